"""Objects of the user's classes: which of them are determined by their attributes, and the names of these; classes of traced numbers."""

from __future__ import annotations

import builtins
import enum
import struct
import sys
import weakref
from collections.abc import Iterable
from types import MemberDescriptorType, SimpleNamespace
from typing import Any, Final

import numpy as np

from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.copies import slots_of
from gradtape.trace.source.sites import PACKAGE, is_program_file, is_user_file, when_files_change
from gradtape.trace.subclasses.instances import TracedNdarray
from gradtape.trees import HOOKS, LEAVES, nodes_of

_HEAP_TYPE: Final = 1 << 9
_POINTER: Final = struct.calcsize("P")


def reads_fields(leaf: Any) -> bool:
    """Return whether an argument is a callable, or an object whose attributes a function may read."""
    return not isinstance(leaf, Handle | np.ndarray | np.generic) and (
        callable(leaf) or is_plain_object(leaf) or shows_fields(leaf) or is_generator(leaf)
    )


def is_generator(thing: Any) -> bool:
    """Return whether an object is a random number generator of NumPy's."""
    return isinstance(thing, np.random.Generator | np.random.RandomState)


def is_plain_object(thing: Any) -> bool:
    """Return whether an object is of a user's class and determined by its attributes."""
    return _is_plain_class(type(thing))


_plain: Final[weakref.WeakKeyDictionary[type, bool]] = weakref.WeakKeyDictionary()
_users: Final[weakref.WeakKeyDictionary[type, bool]] = weakref.WeakKeyDictionary()
_packages: Final[weakref.WeakKeyDictionary[type, bool]] = weakref.WeakKeyDictionary()
_showing: Final[weakref.WeakKeyDictionary[type, bool]] = weakref.WeakKeyDictionary()


def _is_plain_class(cls: type) -> bool:
    is_plain = _plain.get(cls)
    if is_plain is None:
        is_plain = _plain[cls] = _looks_plain(cls)
    return is_plain


def is_package_object(thing: Any) -> bool:
    """Return whether an object is of a class of an installed package that is traced, and determined by its attributes."""
    return shows_fields(thing) and not _has_own_ways(type(thing))


def shows_fields(thing: Any) -> bool:
    """Return whether an object is of a class of an installed package that is traced, and all that it holds can be read, and copied."""
    shows = _showing.get(type(thing))
    if shows is None:
        cls = type(thing)
        shows = _showing[cls] = is_package_class(cls) and _keeps_fields(cls)
    return shows


def is_package_class(cls: type) -> bool:
    """Return whether a class is defined in an installed package that is traced."""
    is_packages = _packages.get(cls)
    if is_packages is None:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
        is_packages = _packages[cls] = is_program_file(file) and not is_user_file(file)
    return is_packages


when_files_change(_packages.clear)
when_files_change(_showing.clear)


def _looks_plain(cls: type) -> bool:
    if cls is SimpleNamespace or (cls.__module__ == "argparse" and cls.__name__ == "Namespace"):
        return True
    own = cls.__module__.partition(".")[0] == PACKAGE
    if own and not getattr(cls, "holds_functions", False):
        return False
    if not own and not is_user_class(cls) and not is_record(cls) and cls.__module__ != "collections":
        return False
    return _holds_fields(cls)


def _holds_fields(cls: type) -> bool:
    """Return whether the attributes of its instances are all that they hold, and are read as such."""
    return _keeps_fields(cls) and not _has_own_ways(cls)


def _has_own_ways(cls: type) -> bool:
    """Return whether a class has methods by which its instances are read otherwise than by their attributes."""
    names = ("__getattr__", "__array__", "__array_ufunc__", "__array_function__")
    return any(hasattr(cls, name) for name in names)


def _keeps_fields(cls: type) -> bool:
    """Return whether its instances keep all that they hold in attributes, and are made without effects."""
    if not cls.__flags__ & _HEAP_TYPE or issubclass(cls, Handle | enum.Enum | type):
        return False
    if not all(base is object or base.__flags__ & _HEAP_TYPE for base in cls.__mro__):
        return False
    slots = slots_of(cls)
    most_bytes = object.__basicsize__ + _POINTER * (len(slots) + len(("__dict__", "__weakref__")))
    return (
        cls.__getattribute__ is object.__getattribute__
        and not hasattr(cls, "__del__")
        and not hasattr(cls, "__next__")
        and cls.__basicsize__ <= most_bytes  # else code in C keeps more in them
        and all(isinstance(getattr(cls, slot, None), MemberDescriptorType) for slot in slots)
    )


def is_record(cls: type) -> bool:
    """Return whether a class is a dataclass, or one of attrs."""
    return hasattr(cls, "__dataclass_fields__") or hasattr(cls, "__attrs_attrs__")


def is_user_class(cls: type) -> bool:
    """Return whether a class is defined in the user's own code."""
    is_users = _users.get(cls)
    if is_users is None:
        is_users = _users[cls] = _is_user_class(cls)
    return is_users


def _is_user_class(cls: type) -> bool:
    if not cls.__flags__ & _HEAP_TYPE or cls.__module__ in ("typing", "abc"):
        return False
    if cls.__module__ == "builtins":  # also of a class that `exec` makes in a namespace without a name
        return vars(builtins).get(cls.__name__) is not cls
    module = sys.modules.get(cls.__module__)
    if module is None:
        return True
    file = getattr(module, "__file__", None)
    return file is None or is_user_file(file)


def has_foreign_code(cls: type, *, reads_packages: bool) -> bool:
    """Return whether a class has methods of a library, which may read any of its attributes; the code of traced packages may be read."""
    return any(
        base is not object
        and base.__module__ not in ("abc", "typing", "collections.abc", PACKAGE)
        and base.__module__.partition(".")[0] != PACKAGE
        and not is_user_class(base)
        and not (reads_packages and is_package_class(base))
        for base in cls.__mro__
    )


def fields_with_arrays(thing: Any) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the names of the attributes of an object that hold arrays or floats, and of the others.

    None unless it is a plain object, and a tree: one that is reached from itself, as a node is by its children's parent, has no leaves.
    """
    if (
        not is_plain_object(thing)
        or type(thing) is SimpleNamespace
        or type(thing).__module__.partition(".")[0] == PACKAGE
        or _leads_to_itself(thing, set(), set())
    ):
        return None
    names = _names_of(thing)
    holding = tuple([name for name in names if _holds_arrays(getattr(thing, name))])
    return holding, tuple([name for name in names if name not in holding])


def _leads_to_itself(thing: Any, above: set[int], trees: set[int]) -> bool:
    """Return whether an object, or a container or object in it, is reached from itself; `trees` collects those that are not."""
    kind = type(thing)
    if kind is dict:
        parts: Iterable[Any] = thing.values()
    elif kind is list or issubclass(kind, tuple):
        if thing and type(thing[0]) in (float, int):  # numbers: the others are not looked at one by one
            return False
        parts = thing
    elif is_plain_object(thing):
        parts = [getattr(thing, name) for name in _names_of(thing)]
    else:
        return False
    if id(thing) in above:
        return True
    if id(thing) in trees:
        return False
    above.add(id(thing))
    if any(_leads_to_itself(part, above, trees) for part in parts):
        return True
    above.remove(id(thing))
    trees.add(id(thing))
    return False


def _names_of(thing: Any) -> list[str]:
    return [
        *getattr(thing, "__dict__", ()),
        *[name for name in slots_of(type(thing)) if hasattr(thing, name)],
    ]


def _holds_arrays(content: Any, depth: int = 0) -> bool:
    kind = type(content)
    if kind in (float, complex) or issubclass(kind, np.inexact | Handle | TracedNdarray):
        return True
    if kind is np.ndarray:
        return content.dtype.kind in "biufc"
    if depth > 8:
        return False
    if kind is dict:
        return any(_holds_arrays(item, depth + 1) for item in content.values())
    if kind is list or issubclass(kind, tuple):
        return any(_holds_arrays(item, depth + 1) for item in content)
    nodes = nodes_of(kind)
    if nodes is not None:
        return any(_holds_arrays(leaf, depth + 1) for leaf in nodes[0](content)[0])
    if kind is SimpleNamespace or not is_plain_object(content):
        return False
    fields = fields_with_arrays(content)
    return fields is not None and bool(fields[0])


HOOKS.fields = fields_with_arrays
LEAVES.add(np.ndarray)
