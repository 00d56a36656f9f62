"""The lattice of storage classes: how variables of loops and of joins are stored, which change on the paths of the control flow.

A storage class says how an abstract value is stored: not at all, since it is the same on all paths, in a variable, as a compound of these,
in an array of its own, or as a pointer. It is joined with the values that a name has on the paths to a point. A slot is a storage class
with its variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from gradtape.frontend.builder import TranslationBuilder
from gradtape.frontend.values import (
    MISSING,
    Conflict,
    Enumerated,
    GrowingList,
    ListReference,
    NeedsStaticError,
    RangeValue,
    Reversed,
    Zipped,
    is_number,
    is_static,
    joined_type,
    number_type,
    refuse,
    same,
    shown,
    typed,
)
from gradtape.ir.builder import here
from gradtape.ir.types import Aval, aval
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.nests import is_order_known, materialise, memory_order, store
from gradtape.procedures.arrays.view import ArrayView, Expression
from gradtape.procedures.ir import Dtype, Memory, Pointer, Variable
from gradtape.records import record

RECORDS = (RangeValue, Enumerated, Zipped, Reversed, GrowingList)


@record
class Constant:
    """A value that is the same on all paths: no storage."""

    value: Any


@record
class Scalar:
    """A number in a variable.

    Attributes
    ----------
    type : Aval
        The type of the variable.
    types : frozenset of (dtype, bool)
        The dtypes and weaknesses of the numbers that it holds, if there are several; otherwise empty.
    """

    type: Aval
    types: frozenset[tuple[Dtype, bool]] = frozenset()


@record
class Compound:
    """A tuple, or a range and the like, of values that are stored one by one."""

    kind: type
    items: tuple[Storage, ...]


@record
class OwnArray:
    """An array whose contents are copied into memory of its own; the shape is static."""

    dtype: Dtype
    shape: tuple[int, ...]


@record
class PointedArray:
    """An array that a pointer names, which changes. Arrays that are made anew are such if their shapes are not all the same."""

    memory: Memory
    writable: bool
    numbers: tuple[Storage, ...]

    @property
    def dtype(self) -> Dtype:
        return self.memory.dtype


Storage: TypeAlias = Constant | Scalar | Compound | OwnArray | PointedArray


class StorageLattice:
    """Joins storage classes with abstract values.

    Parameters
    ----------
    build : TranslationBuilder
        Where statements go.
    first : int or None
        In a loop, the serial number of the first pointer of the body: later ones are made in each iteration.
    """

    def __init__(self, build: TranslationBuilder, first: int | None = None) -> None:
        self.build = build
        self.first = first
        self.owned: set[Memory] = set()

    def join(self, storage: Storage, value: Any) -> Storage:
        """Return the least storage class that covers one more value; the same object if it covers it already."""
        if isinstance(storage, Constant):
            if isinstance(storage.value, Conflict) or same(storage.value, value):
                return storage
            return self.join_values(storage.value, value)
        if value is MISSING:
            return storage
        if isinstance(storage, Scalar):
            if not is_number(value):
                return Constant(Conflict(storage.type, value))
            type_ = joined([storage.type], value)
            types = (storage.types or {number_type_of(storage.type)}) | {number_type(value)}
            is_covered = type_ is storage.type and (len(types) == 1 or types == storage.types)
            return storage if is_covered else Scalar(type_, frozenset(types))
        if isinstance(storage, Compound):
            parts = parts_of(value)
            if type(value) is not storage.kind or len(parts) != len(storage.items):
                return Constant(Conflict(storage.kind, value))
            items = tuple(map(self.join, storage.items, parts))
            return storage if all(map(is_same, items, storage.items)) else Compound(storage.kind, items)
        if not isinstance(value, Expression):
            return Constant(Conflict("an array", value))
        return self._join_array(storage, value)

    def join_values(self, first: Any, second: Any) -> Storage:
        """Return the least storage class for two values that are not the same."""
        if first is MISSING or second is MISSING:
            return self._join_undefined(second if first is MISSING else first)
        if is_number(first) and is_number(second):
            types = frozenset([number_type(first), number_type(second)])
            return Scalar(joined([], first, second), types if len(types) > 1 else frozenset())
        if isinstance(first, Expression) and isinstance(second, Expression):
            return self._join_arrays(first, second)
        if type(first) is type(second) and isinstance(first, (tuple, *RECORDS)):
            parts, others = parts_of(first), parts_of(second)
            if len(parts) == len(others):
                items = [
                    Constant(x) if same(x, y) else self.join_values(x, y)
                    for x, y in zip(parts, others, strict=True)
                ]
                return Compound(type(first), tuple(items))
        return Constant(Conflict(first, second))

    def _join_undefined(self, value: Any) -> Storage:
        """Return the storage class of a value that is undefined on other paths."""
        if is_number(value) and not isinstance(value, int | float | complex):
            return Scalar(joined([], value))
        if isinstance(value, tuple | GrowingList):
            return Compound(type(value), tuple(map(self._join_undefined, parts_of(value))))
        if isinstance(value, Expression):
            return self._join_arrays(value, value)
        return Constant(value)

    def _join_arrays(self, first: Expression, second: Expression) -> Storage:
        if first.ndim != second.ndim:
            refuse(
                f"a name holds arrays of {first.ndim} and of {second.ndim} axes",
                "give the arrays different names",
                "after a branch or an iteration, a name must hold arrays with the same number of axes",
            )
        shape = ix.static_shape(first.shape)
        views = [x for x in (first, second) if isinstance(x, ArrayView)]
        dtype = np.promote_types(first.dtype, second.dtype)
        is_new = first.dtype != second.dtype or not views or any(map(self._is_made, (first, second)))
        if is_new and shape is not None and ix.static_shape(second.shape) == shape:
            return OwnArray(dtype, shape)
        pairs = zip(_numbers(first), _numbers(second), strict=True)
        numbers = tuple([Constant(x) if _equal(x, y) else self.join_values(x, y) for x, y in pairs])
        memory = self._memory([view for view in views if view.dtype == dtype], dtype)
        return PointedArray(memory, all(view.writable for view in views), numbers)

    def _memory(self, views: Sequence[ArrayView], dtype: Dtype) -> Memory:
        """Return the memory of some arrays, as one."""
        if not views:
            return Memory(self.build.unique("array"), dtype)
        for view in views[1:]:
            self.build.unify(views[0].pointer.memory, view.pointer.memory)
        return views[0].pointer.memory

    def _is_made(self, x: Expression) -> bool:
        """Return whether an array is made in each iteration, or changes place in it."""
        if self.first is None:
            return False
        if not isinstance(x, ArrayView):
            return True
        return x.pointer.memory in self.owned or self.build.is_newer(x.pointer, self.first)

    def _join_array(self, storage: OwnArray | PointedArray, value: Expression) -> Storage:
        shape = ix.static_shape(value.shape)
        dtype = np.promote_types(storage.dtype, value.dtype)
        if isinstance(storage, OwnArray):
            if shape == storage.shape:
                return storage if dtype == storage.dtype else OwnArray(dtype, storage.shape)
            if value.ndim != len(storage.shape):
                return Constant(Conflict("an array", value))
            numbers: tuple[Storage, ...] = tuple(
                map(Constant, (0, *storage.shape, *ix.row_major(storage.shape)))
            )
            storage = PointedArray(Memory(self.build.unique("array"), storage.dtype), True, numbers)
        if len(storage.numbers) != 1 + 2 * value.ndim:
            return Constant(Conflict("an array", value))
        if self._is_made(value) or value.dtype != storage.dtype:
            constants = [
                one.value for one in storage.numbers[1 : 1 + value.ndim] if isinstance(one, Constant)
            ]
            if shape is not None and list(shape) == constants:
                return OwnArray(dtype, shape)
        memory, writable = storage.memory, storage.writable
        if dtype != storage.dtype:
            memory = Memory(self.build.unique("array"), dtype)
        if isinstance(value, ArrayView):
            writable = writable and value.writable
            if value.dtype == dtype:
                self.build.unify(memory, value.pointer.memory)
        numbers = tuple(
            [
                one if isinstance(one, Constant) and _equal(one.value, x) else self.join(one, x)
                for one, x in zip(storage.numbers, _numbers(value), strict=True)
            ]
        )
        if (
            memory is storage.memory
            and writable == storage.writable
            and all(map(is_same, numbers, storage.numbers))
        ):
            return storage
        return PointedArray(memory, writable, numbers)

    def initial(self, storage: Storage | None, value: Any) -> Storage:
        """Return the storage class that an earlier pass ended with, for the value that a name holds before the loop in this one."""
        if storage is None or isinstance(storage, Constant):
            if storage is not None and (
                isinstance(storage.value, Conflict)
                or (
                    value is MISSING
                    and (is_static(storage.value) or isinstance(storage.value, ListReference))
                )
            ):
                return storage
            return Constant(value)
        if (
            isinstance(storage, Compound)
            and type(value) is storage.kind
            and len(parts_of(value)) == len(storage.items)
        ):
            return Compound(storage.kind, tuple(map(self.initial, storage.items, parts_of(value))))
        if isinstance(storage, PointedArray) and isinstance(value, ArrayView):
            numbers = tuple(map(self.initial, storage.numbers, _numbers(value)))
            if value.dtype == storage.dtype:
                self.build.unify(storage.memory, value.pointer.memory)
            return PointedArray(storage.memory, storage.writable, numbers)
        if isinstance(storage, Compound) and value is MISSING:
            return Compound(storage.kind, tuple([self.initial(item, MISSING) for item in storage.items]))
        return storage


def is_same(first: object, second: object) -> bool:
    return first is second


def _equal(x: Any, y: Any) -> bool:
    return ix.same(x, y)


def joined(types: Sequence[Aval], *numbers: Any) -> Aval:
    """Return the type of a variable that holds numbers."""
    found = [(type_.dtype, type_.weak) for type_ in types] + [number_type(x) for x in numbers]
    dtype, is_weak = joined_type(found)
    return aval((), dtype, is_weak)


def number_type_of(type_: Aval) -> tuple[Dtype, bool]:
    """Return dtype and weakness of a type."""
    return type_.dtype, type_.weak


def parts_of(value: Any) -> tuple[Any, ...]:
    """Return the items of a tuple or the fields of a record."""
    if isinstance(value, tuple):
        return value
    if not isinstance(value, RECORDS):
        return ()
    return tuple([getattr(value, name) for name in value.__match_args__])


def rebuilt(kind: type, parts: Sequence[Any]) -> Any:
    """Return a tuple, a named tuple or a record with other parts."""
    if kind is tuple:
        return tuple(parts)
    make = getattr(kind, "_make", None)
    return kind(*parts) if make is None else make(parts)


def _numbers(array: Expression) -> tuple[Any, ...]:
    """Return offset, shape and strides of an array; of an expression those of the array in memory that it is stored as."""
    if isinstance(array, ArrayView):
        return (array.offset, *array.shape, *array.strides)
    return (0, *array.shape, *ix.row_major(array.shape))


class Slot:
    """A storage class with the variables that it needs.

    Parameters
    ----------
    build : TranslationBuilder
        Where statements go.
    storage : Storage
        How the value is stored.
    name : str
        Of the variables.
    """

    def __init__(self, build: TranslationBuilder, storage: Storage, name: str) -> None:
        self.build = build
        self.storage = storage
        self.name = name
        self.parts: list[Slot] = []
        self.view: ArrayView | None = None
        if isinstance(storage, Scalar):
            self.variable = Variable(build.unique(name), storage.type)
        elif isinstance(storage, Compound):
            self.parts = [Slot(build, item, name) for item in storage.items]
        elif isinstance(storage, PointedArray):
            self.variable = Variable(build.unique(name), build.joined(storage.memory))
            build.pointed.append(self.variable)
            self.parts = [Slot(build, item, name) for item in storage.numbers]
        elif isinstance(storage, OwnArray):
            with build.at_start():
                size = ix.product(storage.shape)
                pointer = build.allocate(name, size, storage.dtype)
            self.view = ArrayView.of_pointer(build, pointer, storage.shape)

    def assign(self, value: Any) -> None:
        """Append what stores a value that the storage class covers."""
        storage = self.storage
        if isinstance(storage, Scalar):
            number = 0 if value is MISSING else value
            self.build.assign(self.variable, typed(number, storage.type))
        elif isinstance(storage, Compound):
            items = [MISSING] * len(self.parts) if value is MISSING else parts_of(value)
            for part, item in zip(self.parts, items, strict=True):
                part.assign(item)
        elif isinstance(storage, OwnArray):
            if value is not MISSING:
                assert self.view is not None
                self._note_order(value)
                store(self.view, value)
        elif isinstance(storage, PointedArray):
            self._assign_pointer(value)

    def _note_order(self, value: Any) -> None:
        """Refuse an array of another order than C, which its own memory would have, where it decides whether a reshape is a view."""
        if isinstance(value, Expression) and not (
            is_order_known(value) and list(memory_order(value, "K")) == list(range(value.ndim))
        ):
            if self.build.keeps_order:
                refuse(f"{self.name} is an array that is not in C order, and a branch or a loop rebinds it")
            self.build.loses_order = True

    def _assign_pointer(self, value: Any) -> None:
        assert isinstance(self.storage, PointedArray)
        if value is MISSING:
            memory = self.build.joined(self.storage.memory)
            pointer: Pointer = self.build.allocate("none", 0, memory.dtype, memory=memory)
            numbers: Sequence[Any] = [MISSING] * len(self.parts)
        else:
            value = self._in_memory(value)
            pointer, numbers = value.pointer, _numbers(value)
        self.build.assign(self.variable, pointer)
        for part, number in zip(self.parts, numbers, strict=True):
            part.assign(number)

    def _in_memory(self, value: Expression) -> ArrayView:
        """Return an array that a branch makes as one in the memory of the storage."""
        assert isinstance(self.storage, PointedArray)
        memory = self.storage.memory
        if not isinstance(value, ArrayView) or value.dtype != memory.dtype:
            value = materialise(value, temporary=True, dtype=memory.dtype)
        self.build.unify(memory, value.pointer.memory)
        return value

    def read(self) -> Any:
        """Append what reads the value, and return it."""
        storage = self.storage
        if isinstance(storage, Constant):
            return storage.value
        if isinstance(storage, Scalar):
            value = self.build.read(self.variable)
            if storage.types:
                self.build.number_types[value] = storage.types
            return value
        if isinstance(storage, Compound):
            return rebuilt(storage.kind, [part.read() for part in self.parts])
        if isinstance(storage, OwnArray):
            return self.view
        pointer = self.build.read(self.variable)
        offset, *rest = [part.read() for part in self.parts]
        ndim = len(rest) // 2
        return ArrayView(
            self.build, pointer, offset, tuple(rest[:ndim]), tuple(rest[ndim:]), storage.writable
        )

    def arrays(self) -> list[ArrayView]:
        """Return the arrays that the value has for its own."""
        if self.view is not None:
            return [self.view]
        return [view for part in self.parts for view in part.arrays()]


def assign_all(slots: dict[str, Slot], values: dict[str, Any]) -> None:
    """Append what stores several values at once: none is overwritten before it has been copied."""
    owned = {view.pointer.memory for slot in slots.values() for view in slot.arrays()}
    copied = {name: _apart(slot, values.get(name, MISSING), owned) for name, slot in slots.items()}
    for name, slot in slots.items():
        with slot.build.binding():
            slot.assign(copied[name])
    if slots:
        _note_copies(next(iter(slots.values())).build, slots, values)


def _note_copies(build: TranslationBuilder, slots: dict[str, Slot], values: dict[str, Any]) -> None:
    """Note which arrays are copies of others that Python has one of."""
    copies = [pair for name, slot in slots.items() for pair in _copies(slot, values.get(name, MISSING))]
    for index, (copy, view) in enumerate(copies):
        build.copied.append((copy, view.pointer))
        build.copied += [
            (copy, other) for other, x in copies[:index] if x.pointer.memory is view.pointer.memory
        ]


def _copies(slot: Slot, value: Any) -> Iterator[tuple[Pointer, ArrayView]]:
    """Yield the arrays of a slot's own with the arrays that are copied to them."""
    if slot.view is not None:
        if isinstance(value, ArrayView) and value.pointer is not slot.view.pointer:
            yield slot.view.pointer, value
    elif isinstance(slot.storage, Compound) and value is not MISSING:
        for part, item in zip(slot.parts, parts_of(value), strict=True):
            yield from _copies(part, item)


def arrays_of(value: Any) -> Iterator[ArrayView]:
    """Yield the arrays in memory that a value is, or holds."""
    if isinstance(value, ArrayView):
        yield value
    for item in parts_of(value):
        yield from arrays_of(item)


def holds(value: Any, memory: Memory) -> bool:
    """Return whether a value is, or holds, an array in a memory."""
    return any(view.pointer.memory is memory for view in arrays_of(value))


def _apart(slot: Slot, value: Any, owned: set[Memory]) -> Any:
    """Return a value of which no array is one that is about to be overwritten, or may be one, as after a branch."""
    if isinstance(slot.storage, Compound) and value is not MISSING:
        items = [_apart(part, item, owned) for part, item in zip(slot.parts, parts_of(value), strict=True)]
        return rebuilt(slot.storage.kind, items)
    if slot.view is not None and isinstance(value, ArrayView):
        is_other = value.pointer.memory in owned and value.pointer is not slot.view.pointer
        return materialise(value, temporary=True) if is_other else value
    return value


def check_usable(value: Any, name: str) -> Any:
    """Return what a name holds; raise the error for what it cannot hold."""
    if value is MISSING:
        refuse(f"{name} is read before it is assigned", "assign it on all paths to this line")
    if isinstance(value, Conflict):
        message = (
            f"{name} is {shown(value.first)} on one path to this line and {shown(value.second)} on another"
        )
        if value.first is MISSING or value.second is MISSING:
            refuse(f"{name} is not assigned on all paths to this line", "assign it on all paths")
        raise NeedsStaticError(
            message,
            where=here.site,
            why="a name must have one type after a branch and in all iterations of a loop",
            remedy="use different names, and do not use one name for None and for numbers",
        )
    return value
