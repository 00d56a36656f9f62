"""Methods of ufuncs that work alike for many: ``outer``, ``at``, ``reduceat``, and folds of ufuncs that have no reduction."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, constant
from gradtape.kinds.arguments import as_array, concrete, kept_shape, one_axis, reduced_axes
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.kinds.registry import (
    GENERIC_METHODS,
    HOOKS,
    TRIALS,
    UFUNC_METHODS,
    UFUNCS,
    WRITERS,
    Trial,
    implements_method,
    sample,
)
from gradtape.ops.core.elementwise.arithmetic import add, negative
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.select import where as select
from gradtape.ops.core.indexing import Advanced, Basic, fit_for_write, parse_index
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.creation import asked_dtype
from gradtape.ops.numpy.arrays.shape import cut, moved


def outer(row: Any, a: Any, b: Any, **kwargs: Any) -> Any:
    """Apply a ufunc to all pairs of elements."""
    left, right = as_array(a), as_array(b)
    if right.ndim and left.ndim:
        left = reshape(left, (*left.shape, *[1] * right.ndim))
    return row(left, right, **kwargs)


def _place(base: Value, indices: Any) -> Basic | Advanced:
    if isinstance(indices, list):
        indices = np.asarray(indices)
    return parse_index(base.shape, indices)


def at(row: Any, a: Any, indices: Any, b: Any = None) -> Value:
    """Return `a` after a ufunc has changed the elements at `indices`: one after the other where they may repeat."""
    base = as_array(a)
    index = _place(base, indices)
    if isinstance(index, Advanced) and not index.distinct(base.shape):
        return _at_repeated(row, base, index, b)
    read = index.read(base)
    changed = row(read) if b is None else row(read, as_array(b))
    return index.write(base, fit_for_write(changed, base.dtype, read.shape))


def _at_repeated(row: Any, base: Value, index: Advanced, b: Any) -> Value:
    numbers = index.read(constant(np.arange(base.size).reshape(base.shape)))
    elements = [reshape(numbers, (numbers.size,))]
    if b is not None:
        elements.append(reshape(broadcast_to(as_array(b), numbers.shape), (numbers.size,)))

    def step(
        consts: Sequence[Value], carries: Sequence[Value], each: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        (flat,) = carries
        element_index = parse_index(flat.shape, each[0])
        read = element_index.read(flat)
        return [element_index.write(flat, fit_for_write(row(read, *each[1:]), flat.dtype, read.shape))], []

    if not numbers.size:
        return base
    (end,), _ = HOOKS.scan(step, [], [reshape(base, (base.size,))], elements)
    return reshape(end, base.shape)


def _fold(row: Any, start: Value, lines: Value, where: Value | None = None) -> tuple[Value, Value]:
    """Return what a ufunc makes of a value and the lines of an array, one after the other, and what it had made before each end."""

    def step(
        consts: Sequence[Value], carries: Sequence[Value], elements: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        (before,) = carries
        after = row(before, elements[0])
        if where is not None:
            after = select(elements[1], after, before)
        return [after], [after]

    (end,), (each,) = HOOKS.scan(step, [], [start], [lines] if where is None else [lines, where])
    return end, each


def _first_and_rest(lines: Value) -> tuple[Value, Value]:
    return reshape(cut(lines, 0, 0, 1), lines.shape[1:]), cut(lines, 0, 1, lines.shape[0])


def _ufunc(row: Any) -> np.ufunc:
    """Return the ufunc of a row: of NumPy or, as a method of it was called, of the module of SciPy that is imported."""
    name = next(name for name, candidate in UFUNCS.items() if candidate is row)
    ufunc: np.ufunc = getattr(np, name, None) or getattr(sys.modules["scipy.special"], name)
    return ufunc


def _fold_operand(row: Any, method: str, array: Any, dtype: Any) -> Value:
    """Return the operand of a fold in the dtype in which it is computed."""
    ufunc = _ufunc(row)
    if ufunc.nin != 2:
        raise ValueError(f"{method} only supported for binary functions")
    x = as_array(array)
    if dtype is not None:
        return convert(x, asked_dtype(dtype, x.dtype))
    computed = ufunc.resolve_dtypes((x.dtype, x.dtype, None))
    if computed[2] != computed[0]:
        raise UnsupportedFunctionError(
            f"{ufunc.__name__}.{method} is not supported",
            where=here.site,
            why="its results are no operands",
            remedy="write the loop",
        )
    return convert(x, computed[2])


def reduce(
    row: Any,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Value:
    """Fold an array along axes, from one element to the next, by a ufunc that has no reduction."""
    x = _fold_operand(row, "reduce", array, dtype)
    axes = reduced_axes(axis, x.ndim)
    ufunc = _ufunc(row)
    if len(axes) > 1 and ufunc.identity is None:
        raise ValueError(
            f"reduction operation '{ufunc.__name__}' is not reorderable, so at most one axis may be specified"
        )
    mask = None if where is True else as_value(where)
    if mask is not None:
        if np.broadcast_shapes(mask.shape, x.shape) != x.shape:
            raise ValueError(f"where has shape {mask.shape}, which does not broadcast to {x.shape}")
        mask = broadcast_to(mask, x.shape)
    first = initial if initial is not None else ufunc.identity
    if first is None and mask is not None:
        raise ValueError(
            f"reduction operation '{ufunc.__name__}' does not have an identity, so to use a where mask one has to specify 'initial'"
        )
    kept_extents = [extent for axis_number, extent in enumerate(x.shape) if axis_number not in axes]
    count = math.prod([x.shape[axis_number] for axis_number in axes])
    lines, masks = [
        None if each is None else reshape(moved(each, axes, tuple(range(len(axes)))), (count, *kept_extents))
        for each in (x, mask)
    ]
    assert lines is not None
    if first is not None:
        result = broadcast_to(convert(as_value(first), x.dtype), tuple(kept_extents))
    elif count:
        result, lines = _first_and_rest(lines)
    else:
        raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
    if lines.shape[0]:
        result, _ = _fold(row, result, lines, masks)
    if keepdims:
        result = reshape(result, kept_shape(x.shape, axes))
    return result


def accumulate(row: Any, array: Any, axis: Any = 0, dtype: Any = None) -> Value:
    """Return what a ufunc without a scan makes of the first elements along an axis."""
    x = _fold_operand(row, "accumulate", array, dtype)
    if x.ndim == 0 and axis in (0, -1, None):
        raise TypeError("cannot accumulate on a scalar")
    position = one_axis(axis, x.ndim)
    lines = moved(x, (position,), (0,))
    if lines.shape[0] > 1:
        _, folded = _fold(row, *_first_and_rest(lines))
        lines = join([cut(lines, 0, 0, 1), folded], 0)
    return moved(lines, (0,), (position,))


GENERIC_METHODS["outer"] = outer
GENERIC_METHODS["at"] = at
GENERIC_METHODS["reduce"] = reduce
GENERIC_METHODS["accumulate"] = accumulate


def _accumulating(sign: Callable[[Value], Value]) -> Callable[..., Value]:
    def at_repeated(a: Any, indices: Any, b: Any) -> Value:
        base = as_array(a)
        index = _place(base, indices)
        shape = index.result
        change = as_array(b)
        if isinstance(index, Basic):
            changed = add(index.read(base), sign(change))
            return index.write(base, fit_for_write(changed, base.dtype, shape))
        return index.accumulate(base, fit_for_write(sign(change), base.dtype, shape))

    return at_repeated


REPEATED = (
    sample(np.arange(4.0), np.array([0, 2, 2, -1]), (4,)),
    sample((3, 2), [1, 1], (2,)),
    sample((3, 2), (np.array([0, 0]), np.array([1, 1])), 2.0),
    sample((4,), slice(1, 3), (2,)),
    sample((4,), 1, 5.0),
    sample((4,), [9], 1.0),
    sample(np.arange(4), [1, 1], (2,)),
)
implements_method("add", "at", samples=REPEATED, dtypes="qf", writes=True)(_accumulating(lambda v: v))
implements_method("subtract", "at", samples=REPEATED, dtypes="qf", writes=True)(_accumulating(negative))


def _reduceat(name: str, reduce: Callable[..., Value]) -> Callable[..., Value]:
    def reduceat(array: Any, indices: Any, axis: Any = 0, dtype: Any = None) -> Value:
        x = as_array(array)
        if x.ndim == 0 and axis in (0, -1, None):
            raise TypeError("cannot reduceat on a scalar")
        if axis is None:
            if x.ndim > 1:
                raise ValueError("reduceat does not allow multiple axes")
            axis = 0
        position = one_axis(axis, x.ndim)
        extent = x.shape[position]
        starts = [int(k) for k in concrete(indices, "indices")]
        for start in starts:
            if not 0 <= start < extent:
                raise IndexError(f"index {start} out-of-bounds in {name}.reduceat [0, {extent})")
        pieces = []
        for start, stop in zip(starts, [*starts[1:], extent], strict=True):
            piece = cut(x, position, start, max(stop, start + 1))
            pieces.append(reduce(piece, position, dtype, True))
        if not pieces:
            return convert(cut(x, position, 0, 0), x.dtype)
        return join(pieces, position)

    return reduceat


def reduceat(row: Any, array: Any, indices: Any, axis: Any = 0, dtype: Any = None) -> Value:
    """Fold segments of an array by a ufunc without a reduction: from the first element on, not from the identity."""

    def last(piece: Value, position: int, dtype: Any, keepdims: bool) -> Value:
        each = accumulate(row, piece, position, dtype)
        return cut(each, position, each.shape[position] - 1, each.shape[position])

    return _reduceat(_ufunc(row).__name__, last)(array, indices, axis, dtype)


GENERIC_METHODS["reduceat"] = reduceat

SEGMENTS = (sample((6,), [0, 2, 3]), sample((2, 6), [0, 4, 1, 3], axis=1), sample((3,), [5]))
for _name in ("add", "multiply", "maximum", "minimum", "logical_and", "logical_or"):
    implements_method(_name, "reduceat", samples=SEGMENTS)(_reduceat(_name, UFUNC_METHODS[_name, "reduce"]))

PAIRS = (sample((2,), (3,)), sample((2, 2), (3,)), sample((), (3,)), sample((3,), 2.0))
CHANGES = (
    sample((4,), [0, 2, -1], (3,)),
    sample((4,), np.array([2, 0, 2, -2]), (4,)),
    sample((3, 2), [1], 2.0),
    sample((4,), slice(1, 3), (2,)),
)
for _name in ("add", "multiply", "maximum", "less", "arctan2"):
    TRIALS[_name, "outer"] = Trial(PAIRS, "qf", True)
for _name in ("multiply", "maximum"):
    TRIALS[_name, "at"] = Trial(CHANGES, "qf", True)
    WRITERS.add((_name, "at"))
FOLDS = (
    sample((4,)),
    sample((3, 2)),
    sample((2, 3), axis=1, keepdims=True),
    sample((3,), initial=2.0, where=np.array([True, False, True])),
    sample((0, 2)),
    sample((2, 3), axis=(0, 1)),
)
SCANS = (sample((4,)), sample((2, 3), axis=1), sample((1, 2)), sample((0,)), sample(()))
for _name in ("subtract", "hypot", "divide"):
    TRIALS[_name, "reduce"] = Trial(FOLDS, "qf", True)
    TRIALS[_name, "accumulate"] = Trial(SCANS, "qf", True)
TRIALS["hypot", "reduceat"] = Trial(SEGMENTS, "f", True)
