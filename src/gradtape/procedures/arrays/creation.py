"""New arrays: zeros, ranges, copies, and arrays of nested lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import INT64
from gradtape.kinds.elementwise import promotion_type, result_dtype
from gradtape.kinds.operands import as_value, conform
from gradtape.ops.core.elementwise.arithmetic import divide
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.floats import ceil
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.index_arithmetic import Extent
from gradtape.procedures.arrays.nests import materialise, new_array, store
from gradtape.procedures.arrays.view import (
    ArrayView,
    Expression,
    Formula,
    Loads,
    Place,
    as_operand,
    of_numbers,
)
from gradtape.procedures.builder import ProcedureBuilder


def as_shape(shape: Any) -> tuple[Extent, ...]:
    """Return the argument `shape` as a tuple."""
    return tuple([ix.extent(extent) for extent in (shape if isinstance(shape, tuple | list) else (shape,))])


Axes: TypeAlias = Sequence[int] | None
"""The axes of a new array from the slowest to the fastest in memory; None for C order."""


def zeros(build: ProcedureBuilder, shape: Any, dtype: Any = float, axes: Axes = None) -> ArrayView:
    """Return a new array of zeros."""
    return new_array(build, as_shape(shape), np.dtype(dtype), zero=True, axes=axes)


def empty(build: ProcedureBuilder, shape: Any, dtype: Any = float, axes: Axes = None) -> ArrayView:
    """Return a new array that is not initialised."""
    return new_array(build, as_shape(shape), np.dtype(dtype), axes=axes)


def full(
    build: ProcedureBuilder, shape: Any, fill_value: Any, dtype: Any = None, axes: Axes = None
) -> ArrayView:
    """Return a new array of one number."""
    fill = as_operand(build, fill_value)
    dtype = fill.dtype if dtype is None else np.dtype(dtype)
    target = new_array(build, as_shape(shape), dtype, axes=axes)
    store(target, fill)
    return target


def arange(
    build: ProcedureBuilder, start: Any, stop: Any = None, step: Any = None, dtype: Any = None
) -> Formula:
    """Return the numbers from `start` to before `stop`, computed where they are used."""
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    values = [as_value(number) for number in (start, stop, step)]
    kinds = {value.dtype.kind for value in values}
    count: Extent
    if kinds <= set("biu"):
        first, last, by = (ix.extent(value) for value in values)
        _, count = _range_count(first, last, by, build)
        common_dtype: np.dtype[Any] = INT64
    else:
        common_dtype = np.result_type(*[value.dtype for value in values])
        if all(value.data is not None for value in values):
            count = max(0, math.ceil((stop - start) / step))
        else:
            count = ix.maximum(
                conform(ceil(divide(values[1] - values[0], values[2])), INT64, ()), 0, build.counts
            )
    dtype = common_dtype if dtype is None else np.dtype(dtype)

    def element(indices: Sequence[Extent], loads: Loads) -> Value:
        return convert(as_value(values[0] + as_value(indices[0]) * values[2]), dtype)  # which may wrap

    return Formula(build, (count,), dtype, element)


def _range_count(start: Extent, stop: Extent, step: Extent, build: ProcedureBuilder) -> tuple[Extent, Extent]:
    if isinstance(step, int) and step == 0:
        raise ZeroDivisionError("division by zero")
    if isinstance(step, Value):
        rising = ix.floor_divide(ix.subtract(ix.add(ix.subtract(stop, start), step), 1), step)
        falling = ix.floor_divide(ix.add(ix.add(ix.subtract(stop, start), step), 1), step)
        span = ix.choose(~less(step, 0), rising, falling)
    elif step > 0:
        span = ix.floor_divide(ix.add(ix.subtract(stop, start), step - 1), step)
    else:
        span = ix.floor_divide(ix.add(ix.subtract(start, stop), -step - 1), -step)
    return start, ix.maximum(span, 0, build.counts)


def linspace(
    build: ProcedureBuilder,
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
) -> Any:
    """Return numbers with equal steps from `start` to `stop`."""
    first, last, count = as_value(start), as_value(stop), ix.extent(num)
    parts = ix.subtract(count, 1) if endpoint else count
    common_dtype = result_dtype(promotion_type(first.aval), promotion_type(last.aval), float)
    divisor = (
        float(max(parts, 1)) if isinstance(parts, int) else conform(as_value(parts), np.dtype(float), ())
    )
    step = conform(as_value((last - first) / divisor), common_dtype, ())

    def element(indices: Sequence[Extent], loads: Loads) -> Value:
        (index,) = indices
        number: Any = first + as_value(index) * step
        if endpoint:
            at_end = ix.is_equal(index, parts)
            if at_end is True and parts != 0:
                number = last
            elif at_end is not False and parts != 0:
                number = where(equal(as_value(index), parts), last, number)
        return conform(as_value(number), common_dtype, ())

    result = Formula(build, (count,), common_dtype, element)
    return (result, step) if retstep else result


def eye(build: ProcedureBuilder, rows: Any, columns: Any = None, k: Any = 0, dtype: Any = float) -> Formula:
    """Return ones on a diagonal, zeros elsewhere."""
    n = ix.extent(rows)
    m = n if columns is None else ix.extent(columns)
    unit, zero = (np.dtype(dtype).type(number) for number in (1, 0))

    def element(indices: Sequence[Extent], loads: Loads) -> Value:
        on = ix.is_equal(ix.subtract(indices[1], indices[0]), ix.extent(k))
        return where(on, unit, zero) if isinstance(on, Value) else as_value(unit if on else zero)

    return Formula(build, (n, m), np.dtype(dtype), element)


def array(build: ProcedureBuilder, content: Any, dtype: Any = None, copy: bool = True) -> Any:
    """Return ``np.array(given)``: a copy of an array, or a new array of nested lists of numbers and arrays."""
    if isinstance(content, list | tuple) and _holds_arrays(content):
        return stacked(build, [array(build, item, dtype) for item in content], dtype)
    if isinstance(content, list | tuple | np.ndarray):
        return of_numbers(build, content, dtype)
    content = as_operand(build, content)
    if isinstance(content, Expression):
        target_dtype = content.dtype if dtype is None else np.dtype(dtype)
        if not copy and isinstance(content, ArrayView) and target_dtype == content.dtype:
            return content
        return materialise(content, dtype=target_dtype)
    return full(build, (), content, dtype)


def _holds_arrays(nested: Any) -> bool:
    return isinstance(nested, Expression) or (
        isinstance(nested, list | tuple) and any(_holds_arrays(item) for item in nested)
    )


def _differs(first: Extent | None, other: Extent | None) -> bool:
    """Return whether two extents are known to be different; None is one that an array does not have."""
    return (
        first is None
        or other is None
        or (isinstance(first, int) and isinstance(other, int) and first != other)
    )


def stacked(build: ProcedureBuilder, items: Sequence[Any], dtype: Any = None, axis: int = 0) -> ArrayView:
    """Return arrays of one shape joined along a new axis."""
    parts = [as_operand(build, item) for item in items]
    common_dtype = np.result_type(*[part.dtype for part in parts]) if dtype is None else np.dtype(dtype)
    inner = list(parts[0].shape)
    if any(_differs(extent, other) for part in parts for extent, other in zip_longest(part.shape, inner)):
        raise ShapeError("all input arrays must have the same shape", where=here.site)
    axis %= len(inner) + 1
    target = new_array(build, (*inner[:axis], len(parts), *inner[axis:]), common_dtype)
    for k, part in enumerate(parts):
        positions = [Place(0, a) for a in range(axis)]
        positions += [Place(k), *[Place(0, a) for a in range(axis, len(inner))]]
        store(target.remapped(tuple(inner), positions), part)
    return target
