"""Copies of functions, modules, objects and containers: a traced function runs on copies, which other threads do not see."""

from __future__ import annotations

import functools
import operator
import sys
import threading
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from types import CellType, FunctionType, ModuleType, SimpleNamespace, WrapperDescriptorType
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from gradtape.errors import is_internal
from gradtape.trace.source.sites import PACKAGE

ABSENT: Final = object()
"""Stands for an entry or attribute that does not exist."""


LISTED: Final = list | deque | bytearray | array
"""Containers of items in order, which can be changed."""


class Substitute:
    """A container, object or namespace of the user's, and what the traced function writes to in its place.

    Attributes
    ----------
    original, copy : object
        The two, or the dicts of their attributes. They are one object where there is no copy: then its content is restored after the trace.
    initial : object
        What the copy held at first, None before the trace; see `content_of`.
    name : str
        For messages.
    part_label : callable
        Returns the name of one of its parts, for messages.
    step : int
        The number of the step that reads the original; -1 for one that is always the same object.
    path : tuple or None
        Where it is among the arguments of the call, if it is there.
    is_packages : bool
        Whether it is an object of an installed package, or a container in one.
    kept : dict
        What the trace has stored in such a one, and calls cannot make anew, but which depends on no input: it stays, as caches do.
    """

    __slots__ = (
        "copy",
        "initial",
        "is_packages",
        "kept",
        "name",
        "original",
        "part_label",
        "path",
        "step",
    )

    def __init__(
        self, original: Any, copy: Any, name: str, part_label: Callable[[Any], str], step: int = -1
    ) -> None:
        self.original, self.copy, self.name, self.part_label = original, copy, name, part_label
        self.step = step
        self.path: tuple[Any, ...] | None = None
        self.is_packages = False
        self.kept: dict[Any, Any] = {}
        self.initial: Any = None

    @property
    def is_own(self) -> bool:
        """Whether the object is one of gradtape's own, which notes things as it runs."""
        return str(type(self.original).__module__).partition(".")[0] == PACKAGE

    def restore(self) -> None:
        """Set the content of the object back to that at first, if the trace has begun."""
        if self.initial is not None:
            self.hold(self.initial)

    def hold(self, content: Any) -> None:
        """Let the copy hold what `content_of` has returned of it."""
        now, holder = content_of(self.copy), self.copy
        if isinstance(holder, LISTED):
            if len(now) != len(content) or any(map(operator.is_not, now, content)):
                set_items(holder, content)
        elif isinstance(holder, set):
            if now != content:
                holder.clear()
                holder.update(content)
        elif isinstance(holder, dict) and list(now) != list(content):
            set_entries(holder, content)
        else:
            for key in {**content, **now}:
                if now.get(key, ABSENT) is not content.get(key, ABSENT):
                    set_content(holder, key, content.get(key, ABSENT))

    def is_changed(self, before: Any, key: Any = ABSENT) -> bool:
        """Return whether the object, or one entry or attribute, has another content than `before`."""
        now = content_of(self.copy)
        if key is not ABSENT:
            return now.get(key, ABSENT) is not before.get(key, ABSENT)
        if isinstance(now, set):
            return bool(now != before)
        if isinstance(self.copy, array):  # its items are made when they are read
            return self.copy.tobytes() != array(self.copy.typecode, before).tobytes()
        if isinstance(now, dict):
            now, before = [list(chain.from_iterable(x.items())) for x in (now, before)]
        return len(now) != len(before) or not all(map(operator.is_, now, before))


class WriteWatch:
    """The contents of objects outside when a part of a traced function begins, to find what it writes.

    Parameters
    ----------
    holders : iterable of Substitute
        The objects.
    arrays : iterable of (str, Array)
        Arrays outside, with their names.
    """

    def __init__(self, holders: Iterable[Substitute], arrays: Iterable[tuple[str, Any]]) -> None:
        self._contents = [(each, content_of(each.copy)) for each in holders]
        self._values = [(name, array, array.value) for name, array in arrays]

    def written(self, may_store: Callable[[Any, bool, Any], bool] = lambda *_: False) -> dict[str, Any]:
        """Return what is new by names: what entries, attributes and variables hold now, containers, and arrays.

        Attributes are left out that ``may_store(object, whether a cached property has set it, value)`` allows.
        """
        new: dict[str, Any] = {}
        for each, before in self._contents:
            if not each.is_changed(before):
                continue
            now = content_of(each.copy)
            if isinstance(now, dict):
                keys = [
                    key
                    for key in {**before, **now}
                    if each.is_changed(before, key)
                    and not may_store(each.original, _is_cached(each.original, key, before), now.get(key))
                ]
                new.update((each.part_label(key), now.get(key)) for key in keys)
            else:
                new[each.name] = now
        new.update((name, array) for name, array, value in self._values if array.value is not value)
        return new

    def undo(self) -> None:
        """Let the objects and arrays hold what they held when the watch began."""
        for each, before in self._contents:
            each.hold(before)
        for _, handle, value in self._values:
            if handle.value is not value:
                handle.rebind(value)

    @contextmanager
    def rewound(self) -> Iterator[None]:
        """Let a part of a function run again as it ran first, in this block: what it writes the second time is undone."""
        now = WriteWatch(
            [each for each, _ in self._contents], [(name, handle) for name, handle, _ in self._values]
        )
        try:
            self.undo()
            yield
        finally:
            now.undo()


def _is_cached(holder: Any, key: Any, before: dict[Any, Any]) -> bool:
    """Return whether an attribute that was not there is one that its class computes once."""
    return key not in before and any(
        isinstance(vars(owner).get(key), functools.cached_property) for owner in type(holder).__mro__
    )


class ModuleCopy(ModuleType):
    """Stands for a module of the user's: its attributes are the names that copied functions have."""

    _names: dict[str, Any]
    _original: ModuleType

    def __getattribute__(self, name: str) -> Any:
        names = object.__getattribute__(self, "__dict__").get("_names")
        if names is not None and name in names:
            return names[name]
        original = object.__getattribute__(self, "__dict__").get("_original")
        return super().__getattribute__(name) if original is None else getattr(original, name)

    def __setattr__(self, name: str, content: Any) -> None:
        object.__getattribute__(self, "__dict__")["_names"][name] = content

    def __dir__(self) -> list[str]:
        return dir(object.__getattribute__(self, "__dict__")["_original"])


def copy_module(original: ModuleType, names: dict[str, Any]) -> ModuleCopy:
    """Return the copy of a module with the namespace `names`."""
    copy = ModuleCopy(original.__name__)
    vars(copy).update(_names=names, _original=original)
    return copy


class ReferenceCopy:
    """Stands for a weak reference to an object that was copied."""

    __slots__ = ("_copy",)

    def __init__(self, copy: Any) -> None:
        self._copy = copy

    def __call__(self) -> Any:
        return self._copy


class ClassData:
    """Stands in a class for one of its attributes: the thread that traces reads what the trace has in its place, all others the original.

    Those others may be threads that the traced code has started, whose results are then constants: `is_read_elsewhere` says that there
    was a read.

    Parameters
    ----------
    owner : type
        The class.
    name : str
        The attribute.
    copy : object
        What the trace reads.
    trace : Trace
        The trace.
    """

    __slots__ = ("copy", "is_read_elsewhere", "name", "original", "owner", "thread", "trace")

    def __init__(self, owner: type, name: str, copy: Any, trace: Any) -> None:
        self.owner, self.name, self.copy, self.trace = owner, name, copy, trace
        self.original = vars(owner)[name]
        while type(self.original) is ClassData and self.original.trace.over:  # its removal was interrupted
            self.original = self.original.original
        self.thread = threading.get_ident()
        self.is_read_elsewhere = False

    def __get__(self, thing: Any, cls: type | None = None) -> Any:
        if not self.trace.over:
            if threading.get_ident() == self.thread:
                return self.copy
            self.is_read_elsewhere = self.is_read_elsewhere or not is_internal(sys._getframe(1))
        return shown_by_class(self.original, cls)

    def install(self) -> None:
        """Let the class hold this object."""
        set_content(self.owner, self.name, self)

    def remove(self) -> None:
        """Let the class hold the original again, unless something else was assigned."""
        if vars(self.owner).get(self.name) is self:
            set_content(self.owner, self.name, self.original)


def shown_by_class(entry: Any, owner: type | None) -> Any:
    """Return what the entry of a class is for this thread: what a trace has set in its place, or the entry itself."""
    return entry.__get__(None, owner) if type(entry) is ClassData else entry


def is_made_anew(function: FunctionType) -> bool:
    """Return whether code makes a function each time that it runs: it is inside another one, or a lambda."""
    name = function.__code__.co_qualname
    return "<locals>" in name or "<lambda>" in name


def copy_function(
    original: FunctionType,
    namespace: dict[str, Any] | None = None,
    closure: tuple[CellType, ...] | None = None,
) -> FunctionType:
    """Return a function with the same code, names and attributes, and without defaults.

    Parameters
    ----------
    original : function
        Written in Python.
    namespace : dict, optional
        Its global names; those of `original` if it is None.
    closure : tuple of cell, optional
        Its closure; that of `original` if it is None.
    """
    names = original.__globals__ if namespace is None else namespace
    cells = original.__closure__ if closure is None else closure
    copy = FunctionType(original.__code__, names, original.__name__, None, cells)
    copy.__qualname__, copy.__module__ = original.__qualname__, original.__module__
    copy.__doc__, copy.__annotations__ = original.__doc__, original.__annotations__
    copy.__dict__.update(original.__dict__)
    _originals[copy] = ref(original)
    return copy


_originals: Final[WeakKeyDictionary[FunctionType, ref[FunctionType]]] = WeakKeyDictionary()
"""The functions of which there are copies, by these."""


def original_function(function: Any) -> Any:
    """Return the function of which one is a copy; others, and copies of what is gone, as they are."""
    known = _originals.get(function) if type(function) is FunctionType else None
    return function if known is None else known() or function


def copy_object(original: Any) -> Any:
    """Return an object of the same class with the same attributes, made without its constructor."""
    cls = type(original)
    copy: Any = SimpleNamespace() if cls is SimpleNamespace else object.__new__(cls)
    for key in slots_of(cls):
        if hasattr(original, key):
            object.__setattr__(copy, key, getattr(original, key))
    if hasattr(original, "__dict__"):
        copy.__dict__.update(original.__dict__)
    return copy


def copy_empty(container: Any) -> Any:
    """Return an empty container of the same type."""
    if isinstance(container, deque):
        return deque(maxlen=container.maxlen)
    return defaultdict(container.default_factory) if isinstance(container, defaultdict) else type(container)()


def slots_of(cls: type) -> list[str]:
    """Return the names of the slots of a class and its bases, as attributes are stored under them."""
    names = []
    for owner in cls.__mro__:
        slots = vars(owner).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                private = slot.startswith("__") and not slot.endswith("__")
                names.append(f"_{owner.__name__.lstrip('_')}{slot}" if private else slot)
    return names


def closure_of(function: Any) -> list[tuple[str, CellType]]:
    """Return the names and cells of a Python function's closure variables."""
    return list(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def outer_variables(function: Any) -> dict[str, Any]:
    """Return the global names and closure variables that the code of a function or method may read and that have a value."""
    if getattr(function, "__code__", None) is None:
        return {}
    names = function.__globals__
    variables = {name: names[name] for name in function.__code__.co_names if name in names}
    variables.update((name, cell.cell_contents) for name, cell in closure_of(function) if is_filled(cell))
    return variables


def is_filled(cell: CellType) -> bool:
    """Return whether a closure variable has a value."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def content_of(holder: Any) -> Any:
    """Return a copy of what a container, cell, class or object holds: a list, set or dict."""
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, LISTED | tuple):
        return list(holder)
    if isinstance(holder, set):
        return set(holder)
    if isinstance(holder, type):
        return dict(vars(holder))
    if isinstance(holder, CellType):
        return {"content": holder.cell_contents} if is_filled(holder) else {}
    fields = dict(getattr(holder, "__dict__", {}))
    for key in slots_of(type(holder)):
        if hasattr(holder, key):
            fields[key] = getattr(holder, key)
    return fields


def entry_of(holder: Any, key: Any) -> Any:
    """Return one entry or attribute of what `content_of` returns; `ABSENT` if there is none."""
    if isinstance(holder, dict):
        return dict.get(holder, key, ABSENT)
    if isinstance(holder, CellType):
        return holder.cell_contents if is_filled(holder) else ABSENT
    if isinstance(holder, type):
        return vars(holder).get(key, ABSENT)
    fields = getattr(holder, "__dict__", {})
    if key in fields:
        return fields[key]
    return getattr(holder, key, ABSENT) if key in slots_of(type(holder)) else ABSENT


def set_content(holder: Any, key: Any, content: Any) -> None:
    """Set or, for `ABSENT`, delete an entry of a dict, the content of a cell, or an attribute of an object or class."""
    if isinstance(holder, CellType):
        if content is ABSENT:
            del holder.cell_contents
        else:
            holder.cell_contents = content
    elif isinstance(holder, dict):
        if content is ABSENT:
            _dict_type(holder).pop(holder, key, None)
        else:
            _dict_type(holder).__setitem__(holder, key, content)
    elif isinstance(holder, type):
        if content is ABSENT:
            type.__delattr__(holder, key)
        else:
            type.__setattr__(holder, key, content)
    elif content is ABSENT:
        (delattr if _is_of_c(holder) else object.__delattr__)(holder, key)
    elif _is_of_c(holder):
        setattr(holder, key, content)
    else:
        object.__setattr__(holder, key, content)


def set_items(holder: Any, items: list[Any]) -> None:
    """Let a list, or another container of items in order, have these items."""
    if isinstance(holder, deque):
        holder.clear()
        holder.extend(items)
    elif isinstance(holder, list):
        list.__setitem__(holder, slice(None), items)
    else:
        del holder[:]
        holder.extend(items)


def set_entries(holder: dict[Any, Any], entries: dict[Any, Any]) -> None:
    """Let a dict have these entries, in their order; no code of the user's runs."""
    kind = _dict_type(holder)
    kind.clear(holder)
    for key, item in entries.items():
        kind.__setitem__(holder, key, item)


def _dict_type(holder: dict[Any, Any]) -> Any:
    return OrderedDict if isinstance(holder, OrderedDict) else dict


def _is_of_c(holder: Any) -> bool:
    """Return whether the class of an object sets attributes in its own way, in C."""
    setter: Any = type(holder).__setattr__
    return isinstance(setter, WrapperDescriptorType) and setter is not object.__setattr__


def restore_content(copy: Any, original: Any) -> None:
    """Let a copy hold what its original holds; a dict keeps its own keys."""
    if isinstance(copy, list):
        copy[:] = original
    elif isinstance(copy, dict):
        kept = {key: original[key] for key in copy if key in original}
        copy.clear()
        copy.update(kept)
    elif isinstance(copy, CellType):
        set_content(copy, "content", content_of(original).get("content", ABSENT))
    else:
        if hasattr(copy, "__dict__"):
            copy.__dict__.clear()
            copy.__dict__.update(original.__dict__)
        for key in slots_of(type(copy)):
            if hasattr(original, key):
                object.__setattr__(copy, key, getattr(original, key))
