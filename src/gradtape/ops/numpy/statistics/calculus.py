"""Differences, sums over intervals, interpolation and convolution."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, FLOAT64, INTP, is_inexact
from gradtape.kinds.arguments import NO_VALUE, as_array, as_int, common_dtype, one_axis, promoted, some_axes
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.correlation import correlate_row, reversed_along
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.elementwise.extrema import clip
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.elementwise.logic import equal, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.indexing import gather, getitem
from gradtape.ops.core.join import cast_as_asked, join
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import pad, reshape
from gradtape.ops.core.sorting import searchsorted
from gradtape.ops.numpy.arrays.shape import atleast_1d, cut
from gradtape.ops.numpy.linalg.products import conjugated
from gradtape.ops.numpy.statistics.sort import order_of


@implements(
    np.diff,
    samples=(
        sample((5,)),
        sample((2, 4), 2),
        sample((3, 2), axis=0),
        sample((2, 3), prepend=0.0, append=np.ones((2, 1))),
        sample((3,), 0),
        sample((2,), 3),
        sample((3,), -1),
    ),
)
def diff(a: Any, n: Any = 1, axis: Any = -1, prepend: Any = NO_VALUE, append: Any = NO_VALUE) -> Value:
    """Follow `numpy.diff`."""
    times = as_int(n, "n")
    if times == 0:
        return as_array(a)
    if times < 0:
        raise ValueError(f"order must be non-negative but got {times}")
    x = as_array(a)
    if x.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    position = one_axis(axis, x.ndim)
    pieces = []
    for piece in (prepend, x, append):
        if piece is not NO_VALUE:
            each = as_array(piece)
            pieces.append(
                each if each.ndim else broadcast_to(each, (*x.shape[:position], 1, *x.shape[position + 1 :]))
            )
    x = join(promoted(*pieces), position) if len(pieces) > 1 else x
    for _ in range(times):
        extent = x.shape[position]
        late, early = cut(x, position, 1, extent), cut(x, position, 0, extent - 1)
        x = not_equal(late, early) if x.dtype == BOOL else late - early
    return x


@implements(
    np.ediff1d,
    samples=(
        sample((5,)),
        sample((2, 3), to_end=np.array([1.0, 2.0]), to_begin=-9.0),
        sample(np.array([1, 4, 9]), to_end=2.5),
    ),
    dtypes="bBqf",
)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Value:
    """Follow `numpy.ediff1d`."""
    x = as_array(ary)
    flat = reshape(x, (x.size,))
    pieces = [cut(flat, 0, 1, flat.size) - cut(flat, 0, 0, flat.size - 1)]
    for name, end_values in (("to_begin", to_begin), ("to_end", to_end)):
        if end_values is not None:
            end = as_array(end_values)
            if not np.can_cast(end.dtype, x.dtype, "same_kind"):
                raise TypeError(
                    f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule."
                )
            end = convert(reshape(end, (end.size,)), x.dtype)
            pieces = [end, *pieces] if name == "to_begin" else [*pieces, end]
    return join(pieces, 0)


@implements(
    np.gradient,
    samples=(
        sample((5,)),
        sample((5,), 0.5),
        sample((3, 4)),
        sample((3, 4), 2.0, np.array([0.0, 1.0, 3.0, 3.5])),
        sample((3, 4), (4,), axis=1),
        sample((5,), edge_order=2),
        sample((4,), np.array([0.0, 1.0, 3.0, 3.5]), edge_order=2),
        sample((2, 4), np.array([0.0, 1.0, 2.0, 3.0]), axis=-1),
        sample((5,), np.array([0.0, 1.0, 3.0, 3.5, 7.0]), edge_order=2),
        sample((3, 2), np.array([0.5, 3.0, 4.0]), axis=0, edge_order=2),
        sample((3, 4), 1.0, 2.0, 3.0),
        sample((3,), edge_order=3),
    ),
    dtypes="BqfD",
)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Follow `numpy.gradient`."""
    y = as_array(f)
    axes = some_axes(axis, y.ndim)
    if len(varargs) == 0:
        spacings: list[Any] = [1.0] * len(axes)
    elif len(varargs) == 1 and np.ndim(varargs[0]) == 0:
        spacings = [as_value(varargs[0])] * len(axes)
    elif len(varargs) == len(axes):
        spacings = [_spacing(spacing, y.shape[k]) for spacing, k in zip(varargs, axes, strict=True)]
    else:
        raise TypeError("invalid number of arguments")
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    y = convert(y, FLOAT64) if y.dtype.kind in "iu" else y
    slopes = [_slopes(y, k, h, edge_order) for k, h in zip(axes, spacings, strict=True)]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _spacing(spacing: Any, extent: int) -> Value:
    """Return a spacing: a number, or the distances between neighbours."""
    points = as_value(spacing)
    if points.ndim == 0:
        return points
    if points.ndim != 1:
        raise ValueError("distances must be either scalars or 1d")
    if points.size != extent:
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    points = points if is_inexact(points.dtype) else convert(points, FLOAT64)
    if extent < 2:
        raise IndexError(f"index 0 is out of bounds for the distances between {extent} points")
    if not isinstance(spacing, Value):
        steps = np.diff(np.asarray(spacing, points.dtype))
        if (steps == steps[0]).all():
            return as_value(steps[0])
    return diff(points)


def _slopes(y: Value, axis: int, h: Any, edge_order: int) -> Value:
    extent = y.shape[axis]
    if extent < edge_order + 1:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) "
            "elements are required."
        )

    def at(first: int, last: int) -> Value:
        return cut(y, axis, first, last)

    middle = at(0, extent - 2), at(1, extent - 1), at(2, extent)
    if isinstance(h, Value) and h.ndim:
        inner = _weights(_column(h, axis, y.ndim, 0, -1), _column(h, axis, y.ndim, 1, None), 0)
        ends = _column(h, axis, y.ndim, 0, 1), _column(h, axis, y.ndim, -1, None)
        inside = inner[0] * middle[0] + inner[1] * middle[1] + inner[2] * middle[2]
    else:
        ends = (h, h)
        inside = (middle[2] - middle[0]) / (2.0 * h)
    first, last = (at(k, k + 1) for k in (0, extent - 1))
    if edge_order == 1:
        start, end = (at(1, 2) - first) / ends[0], (last - at(extent - 2, extent - 1)) / ends[1]
    else:
        near = (h, h) if ends[0] is h else (_column(h, axis, y.ndim, 0, 1), _column(h, axis, y.ndim, 1, 2))
        far = (
            (h, h) if ends[0] is h else (_column(h, axis, y.ndim, -2, -1), _column(h, axis, y.ndim, -1, None))
        )
        a, b, c = _weights(*near, -1)
        start = a * first + b * at(1, 2) + c * at(2, 3)
        a, b, c = _weights(*far, 1)
        end = a * at(extent - 3, extent - 2) + b * at(extent - 2, extent - 1) + c * last
    out = y.dtype if is_inexact(y.dtype) else FLOAT64
    return join([convert(piece, out) for piece in (start, inside, end)], axis)


def _column(h: Value, axis: int, rank: int, first: int, last: int | None) -> Value:
    """Return some of the distances as an array that broadcasts along the axis."""
    part = getitem(h, slice(first, last))
    return reshape(part, tuple(part.size if k == axis else 1 for k in range(rank)))


def _weights(p: Any, q: Any, node_position: int) -> tuple[Any, Any, Any]:
    """Return the weights of three neighbours at distances p and q for the slope at the first (-1), the
    middle (0) or the last (1)."""
    if node_position == 0:
        return -q / (p * (p + q)), (q - p) / (p * q), p / (q * (p + q))
    if node_position < 0:
        return -(2.0 * p + q) / (p * (p + q)), (p + q) / (p * q), -p / (q * (p + q))
    return q / (p * (p + q)), -(q + p) / (p * q), (2.0 * q + p) / (q * (p + q))


@implements(
    np.trapezoid,
    samples=(
        sample((5,)),
        sample((2, 4), dx=0.5),
        sample((3, 4), (4,)),
        sample((3, 2), (3,), axis=0),
        sample((2, 3), (2, 3)),
    ),
)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Value:
    """Follow `numpy.trapezoid`."""
    values = as_array(y)
    position = one_axis(axis, values.ndim)
    width: Any = dx
    if x is not None:
        points = as_array(x)
        if points.ndim == 1:
            steps = diff(points)
            width = reshape(steps, tuple(steps.size if k == position else 1 for k in range(values.ndim)))
        else:
            width = diff(points, axis=axis)
    extent = values.shape[position]
    areas = width * (cut(values, position, 1, extent) + cut(values, position, 0, extent - 1)) / 2.0
    # Points of more dimensions than the values give the areas theirs.
    return reduce_sum(areas, axes=(one_axis(axis, areas.ndim),))


KNOTS = np.array([-2.0, -0.5, 1.0, 2.5])


@implements(
    np.interp,
    samples=(
        sample((5,), KNOTS, (4,)),
        sample((2, 3), KNOTS, (4,), left=-7.0, right=8.0),
        sample((5,), KNOTS, (4,), period=2.0),
        sample((), KNOTS, (4,)),
        sample(np.array([-2.0, 2.5, 3.0, np.nan, 1.0]), KNOTS, (4,)),
        sample((3,), np.array([0.5]), (1,)),
        sample((3,), KNOTS, (3,)),
        sample((3,), KNOTS, (4,), period=0),
    ),
)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Value:
    """Follow `numpy.interp`; it is differentiable in the points, the knots and the values."""
    values = as_array(fp)
    values = convert(values, np.dtype("D") if values.dtype.kind == "c" else FLOAT64)
    if period is not None and not isinstance(period, Value) and period == 0:
        raise ValueError("period must be a non-zero value")
    casting = "safe" if period is None else "unsafe"
    points, knots = (cast_as_asked([as_array(each)], FLOAT64, casting)[0] for each in (x, xp))
    if knots.ndim != 1 or values.ndim != 1:
        raise ValueError(
            "Data points must be 1-D sequences" if period is not None else "object too deep for desired array"
        )
    if knots.size != values.size:
        raise ValueError("fp and xp are not of the same length.")
    if knots.size == 0:
        raise ValueError("array of sample points is empty")
    if period is not None:
        length = absolute(as_value(period))
        points, knots = remainder(points, length), remainder(knots, length)
        order = order_of(knots, 0)
        knots, values = gather(knots, order), gather(values, order)
        knots = join(
            [getitem(knots, slice(-1, None)) - length, knots, getitem(knots, slice(0, 1)) + length], 0
        )
        values = join([getitem(values, slice(-1, None)), values, getitem(values, slice(0, 1))], 0)
        left = right = None
    first, last = getitem(knots, 0), getitem(knots, -1)
    below = getitem(values, 0) if left is None else convert(as_array(left), values.dtype)
    above = getitem(values, -1) if right is None else convert(as_array(right), values.dtype)
    if knots.size == 1:
        inside = broadcast_to(getitem(values, 0), points.shape)
        inside = where(equal(points, points), inside, points)
    else:
        interval = clip(searchsorted(knots, points, side="right") - 1, 0, knots.size - 2)
        start, height = gather(knots, interval), gather(values, interval)
        after = gather(values, interval + 1)
        width = gather(knots, interval + 1) - start
        # Where knots repeat, the last of them counts: only that of the very last one has no width.
        empty = equal(width, 0.0)
        slope = where(empty, 0.0, (after - height) / where(empty, 1.0, width))
        inside = slope * (points - start) + where(empty, after, height)
    return where(points < first, below, where(points > last, above, inside))


SHORT = 64
"""Length of kernels up to which products with what is outside an array are left out, so that infinite weights count only inside."""


def sliding_products(a: Value, w: Value, mode: str) -> Value:
    """Return the sums of products of a with w, which is not longer, at the positions of a mode."""
    if a.dtype.kind == "b":
        return convert(sliding_products(convert(a, INTP), convert(w, INTP), mode), a.dtype)
    n, m = a.size, w.size
    before = {"full": m - 1, "same": m // 2, "valid": 0}[mode]
    after = {"full": m - 1, "same": m - 1 - m // 2, "valid": 0}[mode]
    if m > SHORT:
        return correlate_row(pad(a, (n + before + after,), (before,)), w, rank=1)
    pieces = [correlate_row(a, w, rank=1)]
    if before:
        pieces.insert(0, cut(_all_products(cut(a, 0, 0, m - 1), w), 0, m - 1 - before, m - 1))
    if after:
        pieces.append(cut(_all_products(cut(a, 0, n - m + 1, n), w), 0, m - 1, m - 1 + after))
    return join(pieces, 0)


def _all_products(a: Value, w: Value) -> Value:
    """Return the sums of products at all positions: the table of all products, each row moved one further than the one before, and summed.

    The rows are moved by reading a table of one width as a table of another.
    """
    n, m = a.size, w.size
    length = n + m - 1
    table = reshape(reversed_along(w, 1), (m, 1)) * reshape(a, (1, n))
    wide = reshape(pad(table, (m, length + 1), (0, 0)), (m * (length + 1),))
    return reduce_sum(reshape(cut(wide, 0, 0, m * length), (m, length)), axes=(0,))


def _mode(mode: Any) -> str:
    modes = {0: "valid", 1: "same", 2: "full"}
    name = modes.get(mode, mode)
    if name not in modes.values():
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    return str(name)


def _pair(a: Any, v: Any) -> tuple[Value, Value]:
    left, right = promoted(a, v)
    for operand in (left, right):
        if operand.ndim != 1:
            raise ValueError(f"object of too {'large' if operand.ndim else 'small'} depth for desired array")
        if operand.size == 0:
            raise ValueError("a and v cannot be empty")
    return left, right


SLIDING = tuple(
    sample((n,), (m,), mode)
    for n, m in ((5, 3), (3, 4), (4, 2), (3, 3))
    for mode in ("full", "same", "valid")
)


@implements(
    np.convolve,
    samples=(*SLIDING, sample((3,), (), "full"), sample((2,), (2, 2)), sample((2,), (2,), "some")),
)
def convolve(a: Any, v: Any, mode: Any = "full") -> Value:
    """Follow `numpy.convolve`."""
    left, right = _pair(atleast_1d(a), atleast_1d(v))
    if right.size > left.size:
        left, right = right, left
    return sliding_products(left, reversed_along(right, 1), _mode(mode))


@implements(np.correlate, samples=(*SLIDING, sample((5,), (2,))))
def correlate(a: Any, v: Any, mode: Any = "valid") -> Value:
    """Follow `numpy.correlate`."""
    left, right = _pair(a, v)
    right = conjugated(right)
    if right.size <= left.size:
        return sliding_products(left, right, _mode(mode))
    # NumPy swaps the operands and reverses the result, which moves the middle of "same" by one.
    return reversed_along(sliding_products(right, left, _mode(mode)), 1)


@implements(
    np.unwrap,
    samples=(
        sample(np.array([0.0, 2.0, 5.0, 8.0, 1.0, -4.0, -9.0])),
        sample((2, 5), axis=0, period=2.0),
        sample((5,), discont=4.0),
        sample(np.array([0, 3, 7, 1, 2]), period=4),
        sample(np.array([0.0, 1.0, 2.0, 1.0, 0.0]), period=2.0),
    ),
    dtypes="qf",
)
def unwrap(p: Any, discont: Any = None, axis: Any = -1, *, period: Any = 2 * np.pi) -> Value:
    """Follow `numpy.unwrap`."""
    x = as_array(p)
    position = one_axis(axis, x.ndim) if x.ndim else 0
    steps = diff(x, axis=axis)
    discont = period / 2 if discont is None else discont
    dtype = common_dtype(steps, as_value(period))
    if dtype.kind in "iu":
        high, odd = divmod(period, 2)
        ambiguous = odd == 0
    else:
        high, ambiguous = period / 2, True
    low = -high
    folded = remainder(steps - low, period) + low
    if ambiguous:
        folded = where(equal(folded, low) & (steps > 0), high, folded)
    correction = stop_gradient(where(absolute(steps) < discont, 0, folded - steps))
    moved = cut(x, position, 1, x.shape[position]) + cumsum(correction, axis=position)
    return join([convert(cut(x, position, 0, 1), dtype), convert(moved, dtype)], position)
