"""Indexing of arrays: basic keys make views, arrays of integers gather, masks count."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.errors import ShapeError, UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import BOOL, INT64
from gradtape.kinds.operands import as_value, conform
from gradtape.ops.core.elementwise.logic import truth
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import ARRAYS_ARE_ELEMENTS, as_element, has_ellipsis
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.index_arithmetic import Extent
from gradtape.procedures.arrays.nests import (
    as_stored,
    check_same_kind,
    check_writable,
    common_order,
    element,
    materialise,
    memory_order,
    new_array,
    overlaps_elsewhere,
    run_nest,
    store,
    update,
)
from gradtape.procedures.arrays.view import (
    ArrayView,
    Deferred,
    Expression,
    Formula,
    Loads,
    Place,
    Shape,
    apply,
    as_operand,
    common_shape,
)
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.traversal import stored


def getitem(x: Expression, key: Any) -> Any:
    """Return ``x[key]``: an element, a view, or an array of selected elements."""
    keys = expanded_key(x, key)
    if not has_arrays(keys):
        shape, positions = basic_places(x, keys)
        if not shape and not has_ellipsis(key):
            return x.remapped((), positions).element((), Loads())
        return x.remapped(shape, positions)
    mask = only_mask(keys, x)
    if mask is not None:
        return selected(x, mask)
    return gathered(x, keys)


def setitem(x: ArrayView, key: Any, value: Any) -> None:
    """Append ``x[key] = value``."""
    write(x, key, value, None)


def augment(x: ArrayView, key: Any, function: Any, value: Any) -> None:
    """Append an augmented assignment of selected elements, such as ``x[key] += value`` for `np.add`."""
    write(x, key, value, function)


def write(x: ArrayView, key: Any, value: Any, function: Any) -> None:
    """Store a value, or what a function makes of the element and a value, into selected elements."""
    check_writable(x)
    keys = expanded_key(x, key)
    if not has_arrays(keys):
        shape, positions = basic_places(x, keys)
        if not shape and not ARRAYS_ARE_ELEMENTS:
            if not has_ellipsis(key):
                value = number_of(value, x.dtype)
            elif function is None and not isinstance(value, Expression):
                value = as_element(value, x.dtype, in_view=True)
        target = x.remapped(shape, positions)
        if function is None:
            store(target, value)
        else:
            update(function, target, value)
        return
    if function is not None:
        value = apply(x.build, function, getitem(x, key), value)
        check_same_kind(value.dtype, x.dtype, function)
    mask = only_mask(keys, x)
    if mask is not None:
        store_selected(x, mask, value)
    else:
        scatter(x, keys, value)


def number_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return what NumPy stores into one element; an error for an array of several, or of an unknown number."""
    if not isinstance(value, Expression):
        return as_element(value, dtype)
    if not value.ndim:
        return value
    if dtype != BOOL or value.size != 1:
        raise ShapeError("setting an array element with a sequence", where=here.site)
    return value.remapped((), [Place(0)] * value.ndim).element((), Loads())


# Keys


def is_array(part: Any) -> bool:
    return isinstance(part, Expression | list | np.ndarray)


def has_arrays(keys: Sequence[Any]) -> bool:
    return any(is_array(part) for part in keys)


def expanded_key(x: Expression, key: Any) -> list[Any]:
    """Return a key with a part for each axis, and None for each new one."""
    parts = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(part, bool | np.bool_) for part in parts):
        raise UnsupportedFunctionError(
            "a bool is used as an index, which selects all of an array or nothing",
            where=here.site,
            remedy="use x[None] for True, and x[None][:0] for False",
        )
    items = parts
    parts = [as_operand(x.build, part) if is_array(part) else part for part in parts]
    used = sum(
        part.ndim if isinstance(part, Expression) and part.dtype == BOOL else 1
        for part in parts
        if part is not None and part is not Ellipsis
    )
    if used > x.ndim:
        raise IndexError(
            f"too many indices for array: array is {x.ndim}-dimensional, but {used} were indexed"
        )
    whole_axes = [slice(None)] * (x.ndim - used)
    axis = 0
    for part, item in zip(parts, items, strict=True):
        check_numbers(x, item, axis)
        if part is Ellipsis:
            axis += len(whole_axes)
        elif part is not None:
            axis += part.ndim if isinstance(part, Expression) and part.dtype == BOOL else 1
    for position, part in enumerate(parts):
        if part is Ellipsis:
            return [*parts[:position], *whole_axes, *[p for p in parts[position + 1 :] if p is not Ellipsis]]
    return [*parts, *whole_axes]


def check_numbers(x: Expression, index: Any, axis: int) -> None:
    """Check the largest and the smallest of the numbers of an index that is written as a list: NumPy checks all, also those whose elements
    are not read."""
    if is_array(index) and is_of_integers(index) and np.size(index):
        for number in {int(np.min(index)), int(np.max(index))}:
            checked_index(x.build, number, x.shape[axis], axis)


def is_of_integers(items: Any) -> bool:
    """Return whether an array, or a nested list, is one of integers that are known."""
    if isinstance(items, list):
        return all(map(is_of_integers, items))
    if isinstance(items, np.ndarray):
        return items.dtype.kind in "iu"
    return isinstance(items, int | np.integer) and not isinstance(items, bool)


def basic_places(x: Expression, keys: Sequence[Any]) -> tuple[Shape, list[Place]]:
    """Return shape and places of what integers, slices and new axes select."""
    shape: list[Extent] = []
    positions: list[Place] = []
    build = x.build
    for part in keys:
        if part is None:
            shape.append(1)
            continue
        extent = x.shape[len(positions)]
        if isinstance(part, slice):
            first, count, step = resolved(part, extent, build)
            positions.append(Place(first, len(shape), step))
            shape.append(count)
        else:
            positions.append(Place(checked_index(x.build, part, extent, len(positions))))
    return tuple(shape), positions


def resolved(part: slice, size: Extent, build: ProcedureBuilder) -> tuple[Extent, Extent, Extent]:
    """Return first element, number of elements and step of a slice."""
    start, stop, step = (None if b is None else ix.extent(b) for b in (part.start, part.stop, part.step))
    return ix.resolved_slice(start, stop, step, size, build.counts)


def checked_index(build: ProcedureBuilder, index: Any, size: Extent, axis: int) -> Extent:
    """Return an index counted from the front; one that is out of range fails a `Check`, and becomes 0."""
    if not isinstance(index, Value):
        try:
            index = operator.index(index)
        except TypeError:
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"
            ) from None
    elif index.dtype.kind not in "iu":
        raise IndexError(f"an index of dtype {index.dtype} is not an integer")
    number = ix.extent(index)
    position = ix.wrapped(number, size, build.counts)
    if ix.at_least(ix.add(number, size), 0, build.counts) and ix.is_below(number, size, build.counts) is True:
        return position
    low, high = ix.is_negative(position, build.counts), ix.is_below(position, size, build.counts)
    if low is False and high is True:
        return position
    if low is True or high is False:
        valid: Value = literal(np.bool_(False))
    else:
        conditions = [as_value(c) for c in (high, True if low is False else ~as_value(low)) if c is not True]
        valid = conditions[0] if len(conditions) == 1 else conditions[0] & conditions[1]
    shown = f" with size {size}" if isinstance(size, int) else ""
    build.check(valid, "IndexError", f"index is out of bounds for axis {axis}{shown}")
    return ix.choose(valid, position, 0)


def only_mask(keys: Sequence[Any], x: Expression) -> Expression | None:
    """Return the mask if a key is one for all axes."""
    masks = [part for part in keys if isinstance(part, Expression) and part.dtype == BOOL]
    if not masks:
        return None
    if len(keys) == 1 and masks[0].ndim == x.ndim:
        return masks[0]
    return None


# Arrays of integers


def gather_plan(x: Expression, keys: Sequence[Any]) -> tuple[Shape, Any, list[Any], list[int]]:
    """Return the shape of what a key with arrays selects, a function from indices to those in `x`, what it reads, and the axes of
    NumPy's result from the slowest to the fastest in memory: those of the arrays, then the others as in `x`. Arrays at all axes fill it
    in their own order."""
    build = x.build
    parts: list[Any] = []
    used = 0
    for part in keys:
        if isinstance(part, Expression) and part.dtype == BOOL:
            checked_mask(part, x.shape[used : used + part.ndim])
            parts.extend(mask_places(part))
            used += part.ndim
        else:
            parts.append(part)
            used += part is not None
    advanced = [k for k, part in enumerate(parts) if isinstance(part, Expression)]
    numbers = [k for k, part in enumerate(parts) if is_integer(part)]
    spread = sorted([*advanced, *numbers])
    adjacent = spread == list(range(spread[0], spread[-1] + 1))
    arrays = {k: parts[k] for k in advanced}
    for array in arrays.values():
        if array.dtype.kind not in "iu":
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
    common = common_shape(build, [array.shape for array in arrays.values()])
    arrays = {k: array.broadcast(common) for k, array in arrays.items()}
    shape: list[Extent] = []
    axis = 0
    start = None
    steps: list[Any] = []  # for each axis of x: where its index comes from
    for k, part in enumerate(parts):
        if k in spread:
            if start is None and adjacent:
                start = len(shape)
                shape.extend(common)
            steps.append(arrays[k] if k in arrays else checked_index(build, part, x.shape[axis], axis))
            axis += 1
        elif part is None:
            shape.append(1)
        else:
            first, count, step = resolved(part, x.shape[axis], build)
            steps.append(Place(first, len(shape), step))
            shape.append(count)
            axis += 1
    if start is None:
        start = 0
        shape = [*common, *shape]
        steps = [
            Place(s.start, s.axis + len(common), s.step) if isinstance(s, Place) else s  # type: ignore[operator]
            for s in steps
        ]
    begin, end = start, start + len(common)

    def source(indices: Sequence[Extent], loads: Loads) -> list[Extent]:
        inner = indices[begin:end]
        coordinates: list[Extent] = []
        for axis, step in enumerate(steps):
            if isinstance(step, Place):
                coordinates.append(ix.add(step.start, ix.multiply(step.step, indices[step.axis])))  # type: ignore[index]
            elif isinstance(step, Expression):
                index = step.element(inner, loads)
                coordinates.append(checked_index(build, index, x.shape[axis], axis))
            else:
                coordinates.append(step)
        return coordinates

    stepped_axes = [steps[axis].axis for axis in memory_order(x, "K") if isinstance(steps[axis], Place)]
    new = [axis for axis in range(len(shape)) if not begin <= axis < end and axis not in stepped_axes]
    at_all = all(isinstance(step, Expression) for step in steps)
    picked = common_order(common, list(arrays.values())) if at_all else range(len(common))
    return (
        tuple(shape),
        source,
        list(arrays.values()),
        [*(begin + axis for axis in picked), *new, *stepped_axes],
    )


def is_integer(part: Any) -> bool:
    return isinstance(part, Value | int | np.integer) and not isinstance(part, bool | np.bool_)


def apart(x: Expression) -> Expression:
    """Return an array with the same elements that shares no memory with `x`: they are read where it is stored or used."""
    return Formula(x.build, x.shape, x.dtype, x.element, memories([x])) if isinstance(x, ArrayView) else x


def memories(sources: Sequence[Any]) -> list[Any]:
    """Return the memories from which expressions are read."""
    memories_read: list[Any] = []
    for source in sources:
        if isinstance(source, Expression):
            for view in source.views():
                memories_read.extend([view.pointer.memory] if isinstance(view, ArrayView) else view.reads)
    return list(dict.fromkeys(memories_read))


def gathered(x: Expression, keys: Sequence[Any]) -> Expression:
    """Return the elements at places that arrays of integers name, as a deferred expression."""
    shape, source, arrays, axes = gather_plan(x, keys)
    selected = Formula(
        x.build,
        shape,
        x.dtype,
        lambda indices, loads: x.element(source(indices, loads), loads),
        memories([x, *arrays]),
    )
    if axes != list(range(len(shape))):
        if x.build.keeps_order:
            target = new_array(x.build, shape, x.dtype, axes=axes)
            store(target, selected)
            return target
        x.build.loses_order = True
    return selected


def scatter(x: ArrayView, keys: Sequence[Any], value: Any) -> None:
    """Store elements at places that arrays of integers name; where one is named twice the last stays."""
    scatter_by(x, keys, value, None)


def update_at(x: ArrayView, key: Any, function: Any, value: Any) -> None:
    """Change selected elements one after the other, such as by ``np.add.at``: one that is named twice changes twice."""
    check_writable(x)
    keys = expanded_key(x, key)
    if not has_arrays(keys):
        augment(x, key, function, value)
    else:
        scatter_by(x, keys, value, function)


def scatter_by(x: ArrayView, keys: Sequence[Any], value: Any, function: Any) -> None:
    """Store values, or what a function makes of old elements and values."""
    build = x.build
    shape, source, *_ = gather_plan(x, keys)
    value = as_stored(build, value, x.dtype) if function is None else as_operand(build, value)
    if isinstance(value, Expression):
        value = value.broadcast(shape)
        if x.pointer.memory in memories([value]):
            value = materialise(value, temporary=True)

    def body(indices: Sequence[Extent], loads: Loads) -> None:
        target_index, new = source(indices, loads), element(value, indices, loads)
        x.store(target_index, new if function is None else function(x.element(target_index, Loads()), new))

    run_nest(build, shape, body, [value])


# Masks


def checked_mask(mask: Expression, shape: Shape) -> tuple[Expression, Extent]:
    """Return a mask with the extents of what it selects from, and 1.

    Masks do not broadcast: code fails where the extents differ. It goes on nevertheless, and has to stay inside the arrays: the second
    result, a factor for indices, is 0 then.
    """
    if all(map(ix.same, mask.shape, shape)):
        return mask, 1
    step: Extent = 1
    for axis, (mask_extent, extent) in enumerate(zip(mask.shape, shape, strict=True)):
        same = ix.is_equal(mask_extent, extent)
        message = f"boolean index did not match indexed array along axis {axis}"
        if same is False:
            raise IndexError(
                f"{message}; size of axis is {extent} but size of corresponding boolean axis is {mask_extent}"
            )
        if same is not True:
            mask.build.check(as_value(same), "IndexError", message)
            step = ix.choose(same, step, 0)
    return mask.remapped(shape, [Place(0, axis, step) for axis in range(mask.ndim)]), step


def nonzero(mask: Expression) -> tuple[ArrayView, ...]:
    """Return the indices at which a mask holds: an array for each axis, whose extent is known when the code runs.

    Each index is stored, and the next one at the same place unless the mask held: there is no branch that depends on data, and the last
    one that is stored lies within the arrays, which have as many elements as the mask.
    """
    build = mask.build
    index_arrays = [new_array(build, (mask.size,), INT64, name="place") for _ in range(mask.ndim)]
    count = build.variable("count", 0, INT64)

    def body(indices: Sequence[Extent], loads: Loads) -> None:
        hit = conform(truth(mask.element(indices, loads)), INT64, ())
        at = build.read(count)
        for index_array, index in zip(index_arrays, indices, strict=True):
            index_array.store((at,), as_value(index))
        build.assign(count, ix.add(at, hit))

    run_nest(build, mask.shape, body, [mask])
    total = build.read(count)
    return tuple([index_array.remapped((total,), [Place(0, 0)]) for index_array in index_arrays])


class Snapshot:
    """A place in a procedure, and what was in memory there.

    Parameters
    ----------
    build : ProcedureBuilder
        The place is the end of its open block.
    sources : sequence of Expression
        What is read.
    """

    def __init__(self, build: ProcedureBuilder, sources: Sequence[Expression]) -> None:
        self._build = build
        self._sources = sources
        self._block = build.block_now
        self._position = len(self._block)

    @property
    def is_current(self) -> bool:
        """Whether what is read is known to be as it was."""
        if self._build.block_now is not self._block:
            return False
        read = memories(self._sources)
        return not any(pointer.memory in read for pointer in stored(self._block[self._position :]))


def mask_places(mask: Expression) -> tuple[ArrayView, ...]:
    """Return the indices at which a mask holds, those found before if neither the mask nor they have changed."""
    if not isinstance(mask, ArrayView):
        return nonzero(mask)
    cache = mask.build.mask_places
    key = mask.key, tuple(map(ix.key, mask.shape))
    if key not in cache or not cache[key][0].is_current:
        new = nonzero(mask)
        cache[key] = Snapshot(mask.build, [mask, *new]), new
    index_arrays: tuple[ArrayView, ...] = cache[key][1]
    return index_arrays


class Selected(ArrayView):
    """The elements of an array where a mask held: stored one after the other, though a reduction may read the array and the mask instead.

    Parameters
    ----------
    view : ArrayView
        The stored elements.
    source, mask : Expression
        What was selected from, and by what.
    """

    def __init__(self, view: ArrayView, source: Expression, mask: Expression) -> None:
        super().__init__(view.build, view.pointer, view.offset, view.shape, view.strides)
        self.source = source
        self.mask = mask
        self._snapshot = Snapshot(self.build, [source, mask])

    @property
    def is_current(self) -> bool:
        """Whether array and mask are known to be as they were."""
        return self._snapshot.is_current


def unselected(x: Expression) -> tuple[Expression, Expression] | None:
    """Return the whole array of which a mask selects an expression, and the mask; None if there is no such mask."""
    if isinstance(x, Selected):
        return (x.source, x.mask) if x.is_current else None
    if not isinstance(x, Deferred):
        return None
    operands: list[Any] = []
    masks: list[Expression] = []
    for operand in x.operands:
        if isinstance(operand, Expression):
            selection = unselected(operand)
            if selection is None:
                return None
            operands.append(selection[0])
            masks.append(selection[1])
        else:
            operands.append(operand)
    if not masks or any(mask is not masks[0] for mask in masks):
        return None
    return Deferred(x.build, x.function, operands, masks[0].shape, x.dtype), masks[0]


def selected(x: Expression, mask: Expression) -> Selected:
    """Return the elements where a mask holds, whose number is known when the code runs."""
    build = x.build
    if not x.ndim:
        x, mask = x.remapped((1,), []), mask.remapped((1,), [])
    index_arrays = mask_places(mask)
    mask, step = checked_mask(mask, x.shape)
    out = new_array(build, index_arrays[0].shape, x.dtype, name="selected")

    def body(indices: Sequence[Extent], loads: Loads) -> None:
        coordinates = [
            ix.multiply(step, axis_indices.element(indices, loads)) for axis_indices in index_arrays
        ]
        out.store(indices, x.element(coordinates, loads))

    run_nest(build, out.shape, body, [*index_arrays])
    return Selected(out, x, mask)


def store_selected(x: ArrayView, mask: Expression, value: Any) -> None:
    """Store a number where a mask holds, or the elements of a 1-D array one after the other."""
    build = x.build
    mask, _ = checked_mask(mask, x.shape)
    if overlaps_elsewhere(x, mask):
        mask = materialise(mask, temporary=True)
    value = as_stored(build, value, x.dtype)
    if isinstance(value, Expression) and value.ndim == 0:
        value = value.element((), Loads())
    if isinstance(value, Expression) and isinstance(value.size, int) and value.size == 1:
        value = value.remapped((), [Place(0)] * value.ndim).element((), Loads())
    if not isinstance(value, Expression):

        def fill(indices: Sequence[Extent], loads: Loads) -> None:
            with build.branch(mask.element(indices, loads)):
                x.store(indices, value)

        run_nest(build, x.shape, fill, [mask])
        return
    if value.ndim != 1:
        raise UnsupportedFunctionError(
            "an array of several axes is assigned to masked elements",
            where=here.site,
            remedy="assign a number, or use x[:] = np.where(mask, values, x)",
        )
    source = materialise(value, temporary=True) if x.pointer.memory in memories([value]) else value
    count = build.variable("count", 0, INT64)

    def body(indices: Sequence[Extent], loads: Loads) -> None:
        with build.branch(mask.element(indices, loads)):
            at = build.read(count)
            inside = ix.is_below(at, source.shape[0], {})
            safe = at if inside is True else where(inside, at, 0)
            x.store(indices, source.element((safe,), Loads()))
            build.assign(count, ix.add(at, 1))

    run_nest(build, x.shape, body, [mask])
    same = ix.is_equal(build.read(count), source.shape[0])
    build.check(as_value(same), "ValueError", "cannot assign values to as many masked elements as there are")
