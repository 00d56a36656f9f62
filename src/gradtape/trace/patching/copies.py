"""Copies of functions, modules, objects and containers: a traced function runs on copies, which other threads do not see."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final

ABSENT: Final = object()
"""Stands for an entry or attribute that does not exist."""


class Substitute:
    """A container, object or namespace of the user's, and its copy for the traced function.

    Attributes
    ----------
    original, copy : object
        The two, or the dicts of their attributes.
    initial : object
        What the copy held at first; see `content_of`.
    name : str
        For messages.
    part_label : callable
        Returns the name of one of its parts, for messages.
    """

    __slots__ = ("copy", "initial", "name", "original", "part_label")

    def __init__(self, original: Any, copy: Any, name: str, part_label: Callable[[str], str]) -> None:
        self.original, self.copy, self.name, self.part_label = original, copy, name, part_label
        self.initial: Any = None


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
    return copy


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
    """Return a copy of what a container, cell or object holds: a list or a dict."""
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, list):
        return list(holder)
    if isinstance(holder, CellType):
        return {"content": holder.cell_contents} if is_filled(holder) else {}
    fields = dict(getattr(holder, "__dict__", {}))
    for key in slots_of(type(holder)):
        if hasattr(holder, key):
            fields[key] = getattr(holder, key)
    return fields


def set_content(holder: Any, key: Any, content: Any) -> None:
    """Set or, for `ABSENT`, delete an entry of a dict, the content of a cell, or an attribute of an object."""
    if isinstance(holder, CellType):
        if content is ABSENT:
            del holder.cell_contents
        else:
            holder.cell_contents = content
    elif isinstance(holder, dict):
        if content is ABSENT:
            holder.pop(key, None)
        else:
            holder[key] = content
    elif content is ABSENT:
        object.__delattr__(holder, key)
    else:
        object.__setattr__(holder, key, content)


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
