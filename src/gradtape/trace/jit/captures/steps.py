"""The checks of captures: a list of steps, each of which reads an object from outside and compares it with that of the trace.

The steps form a tree: an attribute is read of an object that another step has read. So a step does not hold the objects on the path to
its own, and a list or an object may be replaced by an equal one. Objects that control Python are checked by identity or value;
arrays and numbers that enter the graph are checked for their type only, and passed on.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from gradtape.ir.op import NDArray
from gradtape.kinds.refusals import is_same_data
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.layout import layout_of, memory_of
from gradtape.trace.jit.leaf_kinds import NUMBERS
from gradtape.trace.jit.signature import as_input, layout_of_input
from gradtape.trace.patching.copies import ABSENT, shown_by_class
from gradtape.trees import exact_key


class Source(IntEnum):
    """From where a step reads its object."""

    FIXED = 0
    """It is known from the trace: `key`."""
    ARGUMENT = 1
    """Leaf number `key` of the call's arguments."""
    CELL = 2
    """What a closure cell holds: `key`, or if that is None, the cell that step `parent` has read."""
    ENTRY = 3
    """Entry `key` of the dict that step `parent` has read."""
    ITEM = 4
    """Item number `key` of the list or tuple that step `parent` has read."""
    FIELD = 5
    """Attribute `key` in the ``__dict__`` of the object that step `parent` has read."""
    ATTRIBUTE = 6
    """``getattr(parent, key)``, where that runs no code of the user's: of functions, methods, partials; and slots."""

    REFERENT = 7
    """What the weak reference that step `parent` has read refers to."""


Origin: TypeAlias = tuple[Source, int, Any]
"""Where something is read: source, parent and key of a step."""


class Check(IntEnum):
    """The checks of an object."""

    NOTHING = 0
    SAME = 1
    """It is `expected`, or a number or string equal to it."""
    ALIVE = 2
    """It is what the weak reference `expected` refers to."""
    TYPE = 3
    """Its type is `expected`."""
    KEYS = 4
    """It is a dict of a type and with keys as `expected`."""
    LENGTH = 5
    """It is a list or tuple of a type and length as `expected`."""
    EQUAL = 6
    """It is a container of plain values, equal to `expected`."""
    CONTENT = 7
    """It is an array whose elements are those of `expected`."""
    CLASS = 8
    """What these names stand for in its classes, and in its ancestors, is what `expected` lists."""
    AS_STEP = 9
    """It is the object that step number `expected` has read."""
    ABSENT = 10
    """There is no such entry or attribute."""
    INPUT = 11
    """It is an array or number of the type `expected`, and is passed on."""

    PINNED = 12
    """It is an array or number of a type and with a content as `expected`, and is passed on."""
    DATA = 13
    """It is labelled data of pandas or xarray with the values and labels of `expected`."""
    MEMORY = 14
    """It is an array whose memory is as `expected`: strides, and whether it may be written to."""


class Step:
    """One read and its check. `name` is for messages."""

    __slots__ = ("check", "expected", "key", "name", "parent", "source")

    def __init__(self, source: Source, parent: int, key: Any, check: Check, expected: Any, name: str) -> None:
        self.source = source
        self.parent = parent
        self.key = key
        self.check = check
        self.expected = expected
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}: {self.source.name} {self.check.name}>"

    def read(self, objects: Sequence[Any], leaves: Sequence[Any]) -> Any:
        """Return the object, or `ABSENT`."""
        source, key = self.source, self.key
        if source is Source.FIXED:
            return key
        if source is Source.ARGUMENT:
            return leaves[key]
        if source is Source.CELL:
            cell = objects[self.parent] if key is None else key
            try:
                return cell.cell_contents
            except ValueError:
                return ABSENT
        parent = objects[self.parent]
        if parent is ABSENT:
            return ABSENT
        if source is Source.ENTRY:
            return dict.get(parent, key, ABSENT)
        if source is Source.ITEM:
            if isinstance(parent, list):
                return list.__getitem__(parent, key) if key < list.__len__(parent) else ABSENT
            return parent[key] if key < len(parent) else ABSENT
        if source is Source.FIELD:
            return getattr(parent, "__dict__", {}).get(key, ABSENT)
        if source is Source.REFERENT:
            return parent()
        return getattr(parent, key, ABSENT)

    def holds(self, value: Any, objects: Sequence[Any]) -> bool:
        """Return whether the check of an object holds."""
        check, expected = self.check, self.expected
        if check is Check.ABSENT:
            return value is ABSENT
        if value is ABSENT:
            return False
        if check is Check.NOTHING:
            return True
        if check is Check.SAME:
            return value is expected or is_same(value, expected)
        if check is Check.INPUT:
            return bool(type_key(value) == expected)
        if check is Check.TYPE:
            return type(value) is expected
        if check is Check.ALIVE:
            return value is expected()
        if check is Check.AS_STEP:
            return value is objects[expected]
        if check is Check.LENGTH:
            kind, length = expected
            if type(value) is not kind:
                return False
            return bool((list if isinstance(value, list) else tuple).__len__(value) == length)
        if check is Check.KEYS:
            kind, keys = expected
            return (
                type(value) is kind
                and dict.__len__(value) == len(keys)
                and all(map(is_same_item, keys_of(value), keys))
            )
        if check is Check.PINNED:
            form, content = expected
            return bool(type_key(value) == form) and same_content(as_input(value), content)
        if check is Check.CONTENT:
            return same_content(value, expected)
        if check is Check.MEMORY:
            return bool(memory_of(value) == expected)
        if check is Check.DATA:
            return is_same_data(value, expected)
        if check is Check.CLASS:
            return all(
                _class_entry(owner, name) is (entry() if is_weak else entry)
                for owner, name, entry, is_weak in expected
            )
        return type(value) is type(expected) and equal_plain(value, expected)


def why_never_again(step: Step) -> str:
    """Return why a check that has failed cannot hold in a later call, with the value that differs; empty if it can.

    An object that is gone does not come back, and a number in a class that has grown counts something.
    """
    if step.check is Check.ALIVE:
        return "" if step.expected() is not None else f"{step.name} is a new object in each call"
    for owner, name, entry, is_weak in step.expected if step.check is Check.CLASS else ():
        now = _class_entry(owner, name)
        if is_weak and entry() is None:
            return f"{owner.__name__}.{name} is a new object in each call"
        if type(entry) is int and type(now) is int and now > entry:
            return f"{owner.__name__}.{name} counts: it was {entry}, and is {now}"
    return ""


def keys_of(entries: dict[Any, Any]) -> Iterable[Any]:
    """Return the keys of a dict in its order, without code of its class. The order of an ordered dict is not that of the dict below it."""
    return (OrderedDict if isinstance(entries, OrderedDict) else dict).keys(entries)


def _class_entry(owner: type, name: str) -> Any:
    return shown_by_class(vars(owner).get(name, ABSENT), owner)


def changed_numbers(step: Step) -> list[str]:
    """Return the names of the numbers of Python that a check by value has found changed."""
    if step.check is not Check.CLASS:
        return [step.name] if step.check is Check.SAME and type(step.expected) in NUMBERS else []
    return [
        label_in_class(owner, name)
        for owner, name, entry, _ in step.expected
        if type(entry) in NUMBERS and not is_same_item(_class_entry(owner, name), entry)
    ]


def label_in_class(owner: type, name: str) -> str:
    """Return the description of an attribute of a class."""
    return f"{owner.__name__}.{name}"


def is_same(value: Any, expected: Any) -> bool:
    """Return whether two immutable values are equal, of one type, and of equal representation."""
    kind = type(value)
    if kind is not type(expected):
        return False
    if kind in (int, str, bytes, bool):
        return bool(value == expected)
    if kind in (float, complex):
        return repr(value) == repr(expected)
    if kind is tuple or kind is frozenset:
        return len(value) == len(expected) and all(map(is_same_item, value, expected))
    if issubclass(kind, np.generic):
        return bool(value.dtype == expected.dtype and value.tobytes() == expected.tobytes())
    if kind is slice or kind is range:
        return bool(value == expected)
    return False


def is_same_item(value: Any, expected: Any) -> bool:
    """Return whether two items are one object, or the same immutable value; see `is_same`."""
    return value is expected or is_same(value, expected)


def equal_plain(value: Any, expected: Any) -> bool:
    """Return whether two containers of plain values have the same content."""
    if len(value) != len(expected):
        return False
    if isinstance(value, Mapping):
        return all(map(is_same_item, value, expected)) and all(
            map(is_same_item, value.values(), expected.values())
        )
    if isinstance(value, set | frozenset):
        return frozenset(map(exact_key, value)) == frozenset(map(exact_key, expected))
    return all(map(is_same_item, value, expected))


def same_content(value: Any, expected: NDArray) -> bool:
    """Return whether an array is, bit by bit, what another one is."""
    if not issubclass(type(value), np.ndarray):
        return False
    value = np.ndarray.view(value, np.ndarray)  # a subclass may say another dtype than that of its memory
    if value.shape != expected.shape or value.dtype != expected.dtype:
        return False
    if value.dtype.hasobject:
        return all(map(is_same_item, value.ravel(), expected.ravel()))
    if value.flags.c_contiguous and expected.flags.c_contiguous:
        value_bytes, expected_bytes = (array.reshape(-1).view(np.uint8) for array in (value, expected))
        return bool(np.array_equal(value_bytes, expected_bytes))
    return bool(value.tobytes() == expected.tobytes())


def type_key(value: Any) -> Any:
    """Return the type of a hidden input: dtype and shape of an array, the class of a number."""
    kind = type(value)
    if kind is np.ndarray:
        plain = value.flags.c_contiguous
        return (value.dtype, value.shape) if plain else (value.dtype, value.shape, layout_of(value))
    if kind is float or kind is complex or kind is int:
        return kind
    if issubclass(kind, np.generic):
        return value.dtype, "scalar"
    if isinstance(value, Handle):
        aval = value._current.aval
        return aval.dtype, aval.shape, aval.weak, layout_of_input(value)
    return None


def is_key_of_number(key: Any) -> bool:
    """Return whether a hidden input of a type, as `type_key` returns it, is a number of Python's or NumPy's, or an array of rank 0."""
    return isinstance(key, type) or key[1] in ("scalar", ())


def read_captures(steps: Sequence[Step], leaves: Sequence[Any]) -> list[Any] | None:
    """Return the objects that all steps read; None where a check fails."""
    objects: list[Any] = []
    for step in steps:
        value = step.read(objects, leaves)
        if not step.holds(value, objects):
            return None
        objects.append(value)
    return objects


def steps_with_first(steps: Sequence[Step], first: Any) -> list[Step]:
    """Return the steps of calls whose first argument is known, for calls with the others.

    What functions cannot exchange, their globals and closure cells, is known as well.
    """
    known: dict[int, Any] = {}
    made = []
    for number, step in enumerate(steps):
        source, parent, key = step.source, step.parent, step.key
        if source is Source.ARGUMENT and key == 0:
            known[number] = first
        elif source is Source.ARGUMENT:
            key -= 1
        elif source is Source.ATTRIBUTE and parent in known and key in ("__globals__", "__closure__"):
            known[number] = getattr(known[parent], key)
        elif source is Source.ITEM and type(known.get(parent)) is tuple:
            known[number] = known[parent][key]
        elif source is Source.CELL and key is None and parent in known:
            key = known[parent]
        if number not in known:
            made.append(Step(source, parent, key, step.check, step.expected, step.name))
        elif step.check is Check.AS_STEP:
            made.append(Step(Source.FIXED, -1, known[number], step.check, step.expected, step.name))
        else:  # it has been checked when the function was called
            made.append(Step(Source.FIXED, -1, known[number], Check.NOTHING, None, step.name))
    return made


def identity_check(thing: Any) -> tuple[Check, Any]:
    """Return the check that an object is itself, and what it expects: a weak reference, except for classes, modules, and what has none."""
    if isinstance(thing, type | ModuleType):
        return Check.SAME, thing
    try:
        return Check.ALIVE, weakref.ref(thing)
    except TypeError:
        return Check.SAME, thing


def are_alive(steps: Sequence[Step]) -> bool:
    """Return whether all objects that steps must find still exist."""
    return all(step.check is not Check.ALIVE or step.expected() is not None for step in steps)
