"""Arrays that are joined, repeated, rolled and cut; grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.frontend.numpy.registry import implements
from gradtape.frontend.numpy.shapes import items_of
from gradtape.ir.graph import Value
from gradtape.ir.types import INT64
from gradtape.kinds.arguments import one_axis
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import FUNCTIONS as RULES
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays import shapes
from gradtape.procedures.arrays.graphs import apply_graph
from gradtape.procedures.arrays.index_arithmetic import Extent
from gradtape.procedures.arrays.indexing import apart, getitem, memories
from gradtape.procedures.arrays.nests import materialise, with_axes
from gradtape.procedures.arrays.view import Expression, Formula, Loads, Place, Shape, apply, as_expression
from gradtape.procedures.builder import ProcedureBuilder


def _at_least(x: Expression, ndim: int) -> Expression:
    """Return an array with axes in front of its own."""
    new = max(ndim - x.ndim, 0)
    positions = [Place(0, new + k) for k in range(x.ndim)]
    return x.remapped((*[1] * new, *x.shape), positions)  # type: ignore[no-any-return]


def _parts(build: ProcedureBuilder, tup: Any) -> list[Expression]:
    return [as_expression(build, item) for item in items_of(tup)]


@implements(np.hstack)
def hstack(build: ProcedureBuilder, tup: Any, *, dtype: Any = None) -> Any:
    parts = [_at_least(part, 1) for part in _parts(build, tup)]
    return shapes.concatenate(build, parts, 0 if parts[0].ndim == 1 else 1, dtype)


@implements(np.vstack)
def vstack(build: ProcedureBuilder, tup: Any, *, dtype: Any = None) -> Any:
    return shapes.concatenate(build, [_at_least(part, 2) for part in _parts(build, tup)], 0, dtype)


@implements(np.column_stack)
def column_stack(build: ProcedureBuilder, tup: Any) -> Any:
    parts = [shapes.expand_dims(p, 1) if p.ndim == 1 else _at_least(p, 2) for p in _parts(build, tup)]
    return shapes.concatenate(build, parts, 1)


@implements(np.append)
def append(build: ProcedureBuilder, arr: Any, values: Any, axis: Any = None) -> Any:
    return shapes.concatenate(build, [as_expression(build, x) for x in (arr, values)], axis)


@implements(np.atleast_1d)
def atleast_1d(build: ProcedureBuilder, x: Any) -> Any:
    array = as_expression(build, x)
    return with_axes(array, _at_least(array, 1))


@implements(np.atleast_2d)
def atleast_2d(build: ProcedureBuilder, x: Any) -> Any:
    array = as_expression(build, x)
    return with_axes(array, _at_least(array, 2))


def picked(x: Expression, axis: int, extent: Extent, source: Any) -> Formula:
    """Return an array whose index along an axis is a function of its own one."""

    def element(indices: Sequence[Extent], loads: Loads) -> Value:
        inner = list(indices)
        inner[axis] = source(indices[axis])
        return x.element(inner, loads)

    shape = tuple([extent if k == axis else n for k, n in enumerate(x.shape)])
    return Formula(x.build, shape, x.dtype, element, memories([x]))


@implements(np.roll)
def roll(build: ProcedureBuilder, a: Any, shift: Any, axis: Any = None) -> Any:
    """Follow `numpy.roll`, by two parts for each axis."""
    x = as_expression(build, a)
    if axis is None:
        return shapes.reshape(roll(build, shapes.ravel(x), shift, 0), x.shape)
    shifts, axes = _each(shift), _each(axis)
    count = max(len(shifts), len(axes))
    for by, along in zip(shifts * (count // len(shifts)), axes * (count // len(axes)), strict=True):
        position = one_axis(along, x.ndim)
        size = x.shape[position]
        by = ix.extent(by)
        if isinstance(size, int) and isinstance(by, int):
            start: Extent = -by % size if size else 0
        else:
            start = ix.extent(remainder(as_value(ix.subtract(0, by)), as_value(size)))
        first = _cut(x, position, start, ix.subtract(size, start))
        x = shapes.concatenate(build, [first, _cut(x, position, 0, start)], position)
    return x


def _each(integers: Any) -> tuple[Any, ...]:
    """Return the integers of a sequence, whose length is known, or one integer."""
    if isinstance(integers, Expression) and integers.ndim == 1 and isinstance(integers.shape[0], int):
        return tuple([getitem(integers, (k,)) for k in range(integers.shape[0])])
    return tuple(integers) if isinstance(integers, tuple | list | np.ndarray) else (integers,)


def _cut(x: Expression, axis: int, start: Extent, count: Extent) -> Expression:
    shape = tuple([count if k == axis else n for k, n in enumerate(x.shape)])
    return x.remapped(shape, [Place(start if k == axis else 0, k) for k in range(x.ndim)])  # type: ignore[no-any-return]


@implements(np.repeat, method="repeat")
def repeat(build: ProcedureBuilder, a: Any, repeats: Any, axis: Any = None) -> Any:
    x = as_expression(build, a)
    if isinstance(repeats, Expression | list | tuple | np.ndarray):
        return apply_graph(build, RULES[np.repeat], (x, repeats, axis), {})
    if axis is None:
        x, axis = shapes.ravel(x), 0
    axis, count = one_axis(axis, x.ndim), ix.extent(repeats)
    if isinstance(x.shape[axis], int) and x.shape[axis] == 1:
        return apart(x.broadcast(tuple([count if k == axis else n for k, n in enumerate(x.shape)])))
    return picked(x, axis, ix.multiply(x.shape[axis], count), lambda index: ix.floor_divide(index, count))


@implements(np.tile)
def tile(build: ProcedureBuilder, A: Any, reps: Any) -> Any:
    counts = [ix.extent(count) for count in (reps if isinstance(reps, tuple | list) else (reps,))]
    x = _at_least(as_expression(build, A), len(counts))
    counts = [*[1] * (x.ndim - len(counts)), *counts]
    wide = [n for pair in zip(counts, x.shape, strict=True) for n in pair]
    spread = x.remapped(tuple(wide), [Place(0, 2 * k + 1) for k in range(x.ndim)])
    extents = tuple([ix.multiply(*pair) for pair in zip(counts, x.shape, strict=True)])
    return apart(shapes.reshape(spread, extents))


@implements(np.diff)
def diff(build: ProcedureBuilder, a: Any, n: int = 1, axis: int = -1) -> Any:
    x = as_expression(build, a)
    position = one_axis(axis, x.ndim)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    function = np.not_equal if x.dtype == bool else np.subtract
    for _ in range(n):
        count = ix.maximum(ix.subtract(x.shape[position], 1), 0, build.counts)
        x = apply(build, function, _cut(x, position, 1, count), _cut(x, position, 0, count))
    return x


def _triangle(build: ProcedureBuilder, m: Any, k: Any, lower: bool) -> Any:
    """Return an array with zeros on one side of a diagonal."""
    x = as_expression(build, m)
    if x.ndim == 1:
        x = x.broadcast((x.shape[0], x.shape[0]))
    offset = ix.extent(k)
    zero = x.dtype.type(0)

    def element(indices: Sequence[Extent], loads: Loads) -> Any:
        beyond = ix.subtract(ix.subtract(indices[-1], indices[-2]), offset)
        margin = ix.subtract(0, beyond) if lower else beyond
        outside = ix.is_negative(margin, build.counts)
        if outside is True:
            return zero
        value = x.element(indices, loads)
        return value if outside is False else where(outside, zero, value)

    return Formula(build, x.shape, x.dtype, element, memories([x]))


@implements(np.triu)
def triu(build: ProcedureBuilder, m: Any, k: Any = 0) -> Any:
    return _triangle(build, m, k, False)


@implements(np.tril)
def tril(build: ProcedureBuilder, m: Any, k: Any = 0) -> Any:
    return _triangle(build, m, k, True)


@implements(np.meshgrid)
def meshgrid(
    build: ProcedureBuilder, *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> Any:
    build.reads_order = True
    parts = [shapes.reshape(as_expression(build, x), -1) for x in xi]
    order = list(range(len(parts)))
    if indexing == "xy" and len(parts) > 1:
        order[0], order[1] = 1, 0
    extents: list[Extent] = [1] * len(parts)
    for part, axis in zip(parts, order, strict=True):
        extents[axis] = part.shape[0]
    grids = []
    for part, axis in zip(parts, order, strict=True):
        own_shape = tuple([part.shape[0] if k == axis else 1 for k in range(len(parts))])
        grids.append(part.remapped(own_shape if sparse else tuple(extents), [Place(0, axis)]))
    return tuple([materialise(grid) for grid in grids] if copy else grids)


def grid(build: ProcedureBuilder, key: Any) -> Formula:
    """Return ``np.mgrid[key]``: along its first axis the indices along each of the others."""
    parts = key if isinstance(key, tuple) else (key,)
    starts, steps, counts = [], [], []
    for part in parts:
        start, stop, step = (
            ix.extent(default if bound is None else bound)
            for bound, default in ((part.start, 0), (part.stop, None), (part.step, 1))
        )
        starts.append(start)
        steps.append(step)
        _, count, _ = ix.resolved_slice(
            0, None, step, ix.maximum(ix.subtract(stop, start), 0, build.counts), build.counts
        )
        counts.append(count)

    def along(axis: int, indices: Sequence[Extent]) -> Extent:
        return ix.add(starts[axis], ix.multiply(steps[axis], indices[axis]))

    if not isinstance(key, tuple):
        return Formula(build, tuple(counts), INT64, lambda indices, loads: as_value(along(0, indices)))

    def element(indices: Sequence[Extent], loads: Loads) -> Value:
        which, *inner = indices
        number = along(len(counts) - 1, inner)
        for axis in reversed(range(len(counts) - 1)):
            number = ix.choose(ix.is_equal(which, axis), along(axis, inner), number)
        return as_value(number)

    shape: Shape = (len(counts), *counts)
    return Formula(build, shape, INT64, element)
