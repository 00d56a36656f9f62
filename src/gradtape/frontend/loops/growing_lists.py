"""Growing lists: lists of Python to which a loop appends.

Their items stand in arrays that have room for all that the loop may append. Where its iterations are not counted, in a ``while`` loop,
items move to larger arrays when there is no room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from gradtape.frontend.builder import TranslationBuilder
from gradtape.frontend.loops.storage import Constant, PointedArray, Scalar, Slot, arrays_of
from gradtape.frontend.values import Conflict, GrowingList, is_number, joined_type, number_type, typed, weak
from gradtape.ir.graph import Value
from gradtape.ir.types import INT64, Aval, aval
from gradtape.kinds.operands import as_value
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.creation import stacked
from gradtape.procedures.arrays.indexing import getitem, setitem
from gradtape.procedures.arrays.nests import materialise, new_array
from gradtape.procedures.arrays.view import ArrayView, Expression, Formula
from gradtape.procedures.ir import If
from gradtape.records import record

FIRST_ROOM: Final = 8
"""Items for which a list that moves has room at first."""

ItemType: TypeAlias = Aval | tuple[Any, ...] | None
"""Of a number, of an array of a static shape, or of a tuple of such; None for anything else."""


@record
class Growth:
    """How a loop lets a list grow.

    Attributes
    ----------
    type : ItemType
        Of all items.
    room : int or None
        The number of items that an iteration may append; None if items move where there is no room.
    step : int or None
        The number of items by which the list is longer after each iteration, if it is the same for all.
    """

    type: ItemType
    room: int | None
    step: int | None


def type_of_items(content: Any) -> ItemType:
    """Return the type that the items of a list have in common, on all ways that its content may have come."""
    if isinstance(content, GrowingList):
        type_: ItemType = content.type
        return type_
    if isinstance(content, Conflict):
        first, second = type_of_items(content.first), type_of_items(content.second)
        if content.first == () or content.second == ():
            return second if content.first == () else first
        return joined(first, second)
    if not isinstance(content, tuple) or not content:
        return None
    result = _type_of(content[0])
    for item in content[1:]:
        result = joined(result, _type_of(item))
    return result


def _type_of(item: Any) -> ItemType:
    if is_number(item):
        dtype, is_weak = number_type(item)
        return aval((), dtype, is_weak)
    if isinstance(item, Expression):
        shape = ix.static_shape(item.shape)
        return None if shape is None or not shape else aval(shape, item.dtype)
    if type(item) is tuple and item:
        parts = tuple(map(_type_of, item))
        return None if None in parts else parts
    return None


def joined(first: ItemType, second: ItemType) -> ItemType:
    """Return the type of what holds items of either type, None if there is none."""
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        parts = tuple(map(joined, first, second))
        if all(part is other for part, other in zip(parts, first, strict=True)):
            return first
        return None if None in parts else parts
    if not isinstance(first, Aval) or not isinstance(second, Aval) or first.shape != second.shape:
        return None
    dtype, is_weak = joined_type([(part.dtype, part.weak) for part in (first, second)])
    return first if (dtype, is_weak) == (first.dtype, first.weak) else aval(first.shape, dtype, is_weak)


def with_room(build: TranslationBuilder, content: Any, type_: ItemType, room: Any) -> GrowingList:
    """Return a list as a growing one in new arrays, with room for more items."""
    length = content.length if isinstance(content, GrowingList) else len(content)
    arrays = _new_arrays(build, type_, ix.add(length, room))
    is_movable = isinstance(content, GrowingList) and content.is_movable
    if not isinstance(content, GrowingList):
        grown = GrowingList(arrays, type_, 0)
        for item in content:
            grown = appended(grown, item)
        return grown
    with build.loop(length) as position:
        _store(arrays, position, item_at(content, position))
    return GrowingList(arrays, type_, length, is_movable)


def movable(build: TranslationBuilder, content: Any, type_: ItemType) -> GrowingList:
    """Return a list as one whose items move where there is no room for more."""
    if isinstance(content, GrowingList) and content.is_movable and content.type is type_:
        return content
    grown = with_room(build, content, type_, FIRST_ROOM)
    return GrowingList(grown.arrays, grown.type, grown.length, True)


def moved(build: TranslationBuilder, grown: GrowingList) -> GrowingList:
    """Append what moves the items to arrays of twice the size if there is no room for one more, and return the list."""
    views = list(arrays_of(grown.arrays))
    rows = ix.extent(views[0].shape[0])
    is_full: Any = ix.extent(grown.length) >= rows
    if is_full is False:
        return grown
    slots = [Slot(build, _storage_of(view), "list") for view in views]
    for slot, view in zip(slots, views, strict=True):
        slot.assign(view)
    statement = If(as_value(is_full))
    build.append(statement)
    with build.block(statement.then):
        larger = with_room(build, grown, grown.type, ix.add(rows, FIRST_ROOM))
        for slot, view in zip(slots, arrays_of(larger.arrays), strict=True):
            slot.assign(view)
    arrays = _in_tuples(grown.arrays, iter([slot.read() for slot in slots]))
    return GrowingList(arrays, grown.type, grown.length, True)


def _storage_of(view: ArrayView) -> PointedArray:
    """Return the storage for an array of any number of rows."""
    row = (*view.shape[1:], *view.strides)
    return PointedArray(
        view.pointer.memory, True, (Constant(0), Scalar(aval((), INT64, True)), *map(Constant, row))
    )


def _in_tuples(like: Any, arrays: Iterator[Any]) -> Any:
    if isinstance(like, tuple):
        return tuple([_in_tuples(item, arrays) for item in like])
    return next(arrays)


def _new_arrays(build: TranslationBuilder, type_: ItemType, rows: Any) -> Any:
    if isinstance(type_, tuple):
        return tuple([_new_arrays(build, item_type, rows) for item_type in type_])
    assert type_ is not None
    return new_array(build, (rows, *type_.shape), type_.dtype, name="list")


def appended(grown: GrowingList, item: Any) -> GrowingList:
    """Append the store of one more item, for which there is room."""
    _store(grown.arrays, grown.length, item)
    return with_length(grown, ix.add(grown.length, 1))


def with_length(grown: GrowingList, length: Any) -> GrowingList:
    """Return a list with another number of items."""
    return GrowingList(grown.arrays, grown.type, length, grown.is_movable)


def shifted(build: TranslationBuilder, grown: GrowingList) -> GrowingList:
    """Append ``del list[0]``."""
    length = ix.subtract(grown.length, 1)
    with build.loop(length) as position:
        _store(grown.arrays, position, item_at(grown, ix.add(position, 1)))
    return with_length(grown, length)


def _store(arrays: Any, position: Any, item: Any) -> None:
    if isinstance(arrays, tuple):
        for array, part in zip(arrays, item, strict=True):
            _store(array, position, part)
    elif arrays.ndim == 1:
        arrays.store((ix.extent(position),), typed(item, aval((), arrays.dtype)))
    else:
        setitem(arrays, position, item)


def item_at(grown: GrowingList, position: Any) -> Any:
    """Return the item at a place that is in range."""
    return _read(grown.arrays, grown.type, lambda array: getitem(array, position))


def checked_item(grown: GrowingList, index: Any) -> Any:
    """Return the item at an index that may be negative, or out of range."""
    return _read(grown.arrays, grown.type, lambda array: getitem(_filled(array, grown.length), index))


def assign_item(grown: GrowingList, index: Any, item: Any) -> None:
    """Append ``list[index] = item``."""
    _assign(grown.arrays, grown.length, index, item)


def _assign(arrays: Any, length: Any, index: Any, item: Any) -> None:
    if isinstance(arrays, tuple):
        for array, part in zip(arrays, item, strict=True):
            _assign(array, length, index, part)
    else:
        setitem(_filled(arrays, length), index, item)


def _read(arrays: Any, type_: ItemType, read: Callable[[ArrayView], Any]) -> Any:
    if isinstance(arrays, tuple):
        assert isinstance(type_, tuple)
        return tuple([_read(array, item_type, read) for array, item_type in zip(arrays, type_, strict=True)])
    assert isinstance(type_, Aval)
    item = read(arrays)
    return weak(item) if type_.weak and isinstance(item, Value) else item


def _filled(array: ArrayView, length: Any) -> ArrayView:
    return ArrayView(
        array.build, array.pointer, array.offset, (ix.extent(length), *array.shape[1:]), array.strides
    )


def sliced(grown: GrowingList, key: slice) -> GrowingList:
    """Return ``list[key]``, a copy."""
    arrays = _sliced(grown.arrays, grown.length, key)
    first = arrays
    while isinstance(first, tuple):
        first = first[0]
    return GrowingList(arrays, grown.type, first.shape[0], False)


def _sliced(arrays: Any, length: Any, key: slice) -> Any:
    if isinstance(arrays, tuple):
        return tuple([_sliced(array, length, key) for array in arrays])
    return materialise(getitem(_filled(arrays, length), key))


def as_array(grown: GrowingList) -> Expression:
    """Return ``np.asarray(list)``, to be read before the list changes."""
    if isinstance(grown.arrays, tuple):
        parts = [
            as_array(GrowingList(*column, grown.length))
            for column in zip(grown.arrays, grown.type, strict=True)
        ]
        return stacked(parts[0].build, parts, axis=1)
    view = _filled(grown.arrays, grown.length)
    return Formula(view.build, view.shape, view.dtype, view.element, [view.pointer.memory])


def most(number: Any, counts: Any) -> int | None:
    """Return a number that an integer is not above, if one is known."""
    if isinstance(number, int | np.integer):
        return int(number)
    lowest = None if number is None else ix.lowest(ix.multiply(number, -1), counts)
    return None if lowest is None else -lowest
