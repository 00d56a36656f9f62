"""Objects of the user's classes: which of them are determined by their attributes, and the names of these; classes of traced numbers."""

from __future__ import annotations

import builtins
import enum
import sys
import weakref
from functools import partial
from types import CellType, FunctionType, MethodType, SimpleNamespace
from typing import Any, Final

import numpy as np

from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.bytecode import names_in, nested_codes
from gradtape.trace.patching.copies import closure_of, copy_function, is_filled, set_content, slots_of
from gradtape.trace.patching.name_reads import reads_of
from gradtape.trace.source.sites import PACKAGE, is_program_file, is_user_file, when_files_change
from gradtape.trees import HOOKS, LEAVES

_HEAP_TYPE: Final = 1 << 9


def reads_fields(leaf: Any) -> bool:
    """Return whether an argument is a callable, or an object whose attributes a function may read."""
    return not isinstance(leaf, Handle | np.ndarray | np.generic) and (
        callable(leaf) or is_plain_object(leaf) or is_generator(leaf)
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


def _is_plain_class(cls: type) -> bool:
    is_plain = _plain.get(cls)
    if is_plain is None:
        is_plain = _plain[cls] = _looks_plain(cls)
    return is_plain


def is_package_object(thing: Any) -> bool:
    """Return whether an object is of a class of an installed package that is traced, and determined by its attributes."""
    return is_package_class(type(thing)) and _holds_fields(type(thing))


def is_package_class(cls: type) -> bool:
    """Return whether a class is defined in an installed package that is traced."""
    is_packages = _packages.get(cls)
    if is_packages is None:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
        is_packages = _packages[cls] = is_program_file(file) and not is_user_file(file)
    return is_packages


when_files_change(_packages.clear)


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
    if not cls.__flags__ & _HEAP_TYPE or issubclass(cls, Handle | enum.Enum | type):
        return False
    if not all(base is object or base.__flags__ & _HEAP_TYPE for base in cls.__mro__):
        return False
    refused = ("__del__", "__getattr__", "__array__", "__array_ufunc__", "__array_function__", "__next__")
    return not any(hasattr(cls, name) for name in refused) and (
        cls.__getattribute__ is object.__getattribute__ and cls.__basicsize__ < 4096
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
    """Return the names of the attributes of an object that hold arrays or floats, and of the others; None unless it is a plain object."""
    if (
        not is_plain_object(thing)
        or type(thing) is SimpleNamespace
        or type(thing).__module__.partition(".")[0] == PACKAGE
    ):
        return None
    names = [
        *getattr(thing, "__dict__", ()),
        *[name for name in slots_of(type(thing)) if hasattr(thing, name)],
    ]
    holding = tuple([name for name in names if _holds_arrays(getattr(thing, name))])
    return holding, tuple([name for name in names if name not in holding])


def _holds_arrays(content: Any, depth: int = 0) -> bool:
    kind = type(content)
    if kind in (float, complex) or issubclass(kind, np.inexact | Handle):
        return True
    if kind is np.ndarray:
        return content.dtype.kind in "biufc"
    if depth > 8:
        return False
    if kind is dict:
        return any(_holds_arrays(item, depth + 1) for item in content.values())
    if kind is list or issubclass(kind, tuple):
        return any(_holds_arrays(item, depth + 1) for item in content)
    if kind is SimpleNamespace or not is_plain_object(content):
        return False
    fields = fields_with_arrays(content)
    return fields is not None and bool(fields[0])


class TypeOfNumbers:
    """What the name ``type`` stands for in traced functions: of a traced array, ``type(x)`` is the class that NumPy's code would see.

    Everything else is left to `type`: classes that are made by it or derived from it, ``isinstance(x, type)``, ``type[int]``.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the class of an object, or make a class."""
        if len(args) == 1 and not kwargs:
            if type(args[0]) is Array:
                return args[0]._numpy_class()
            if isinstance(args[0], Handle):  # an array that the function makes
                return args[0].__class__
        return type(*args, **kwargs)

    def __instancecheck__(self, thing: Any) -> bool:
        return isinstance(thing, type)

    def __subclasscheck__(self, cls: type) -> bool:
        return issubclass(cls, type)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (type,)

    def __getitem__(self, item: Any) -> Any:
        return type[item]

    def __getattr__(self, name: str) -> Any:
        return getattr(type, name)

    def __eq__(self, other: object) -> bool:
        return other is self or other is type

    def __hash__(self) -> int:
        return hash(type)


BUILTINS: Final[dict[str, Any]] = {"type": TypeOfNumbers()}
"""Stand-ins for builtins in the code of traced functions."""

_MOST_FUNCTIONS: Final = 64
"""How many functions are read for the name ``type``."""


def asks_for_classes(function: Any) -> bool:
    """Return whether code of a function, or of one that it reads by name, reads the name ``type``.

    Of a traced array ``type(x)`` is the class of NumPy's array in the copies of functions that compiled functions run.
    """
    seen: set[Any] = set()
    open_ = [function]
    while open_ and len(seen) < _MOST_FUNCTIONS:
        one = open_.pop()
        one = getattr(one, "__func__", one)
        if isinstance(one, partial):
            open_.append(one.func)
        if not isinstance(one, FunctionType) or one in seen:
            continue
        seen.add(one)
        names = _names_read(one)
        if "type" in names and "type" not in one.__globals__:
            return True
        open_ += filter(callable, map(one.__globals__.get, names))
        open_ += [cell.cell_contents for _, cell in closure_of(one) if is_filled(cell)]
    return False


def answering_classes(function: Any) -> Any:
    """Return a function that answers ``type(x)`` as NumPy's code would, where it is run outside of a compiled function.

    It is a copy, as are the functions that it names and that ask. A function that asks for no class, or assigns to global names, is
    returned itself.
    """
    asks = type(function) is FunctionType and is_user_file(function.__code__.co_filename)
    return _answering(function, {}) if asks and asks_for_classes(function) else function


def _answering(function: FunctionType, copies: dict[FunctionType, FunctionType]) -> FunctionType:
    known = copies.get(function)
    if known is not None:
        return known
    if reads_of(function.__code__).stores_globals:
        return function

    def replaced(content: Any) -> Any:
        if type(content) is partial and (inner := replaced(content.func)) is not content.func:
            return partial(inner, *content.args, **content.keywords)
        if type(content) is MethodType and (inner := replaced(content.__func__)) is not content.__func__:
            return MethodType(inner, content.__self__)
        asks = type(content) is FunctionType and is_user_file(content.__code__.co_filename)
        return _answering(content, copies) if asks and asks_for_classes(content) else content

    namespace = dict(function.__globals__)
    cells = [cell for _, cell in closure_of(function)]
    copy = copies[function] = copy_function(function, namespace, tuple(map(_own_cell, cells)))
    copy.__defaults__, copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    for name, content in BUILTINS.items():
        namespace.setdefault(name, content)
    for name in _names_read(function) & namespace.keys():
        namespace[name] = replaced(namespace[name])
    for cell in copy.__closure__ or ():
        if is_filled(cell) and (new := replaced(cell.cell_contents)) is not cell.cell_contents:
            set_content(cell, "content", new)
    return copy


def _own_cell(cell: CellType) -> CellType:
    """Return a cell of its own for a function, and others as they are: code may assign to them."""
    holds_function = is_filled(cell) and type(cell.cell_contents) in (FunctionType, MethodType, partial)
    return CellType(cell.cell_contents) if holds_function else cell


def _names_read(function: FunctionType) -> set[str]:
    return {name for code in nested_codes(function.__code__) for name in names_in(code)}


HOOKS.fields = fields_with_arrays
LEAVES.add(np.ndarray)
