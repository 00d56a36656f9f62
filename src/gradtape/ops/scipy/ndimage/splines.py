"""Splines on regular grids: the filter that makes coefficients from samples, weights, and interpolation at any places.

References
----------
M. Unser, A. Aldroubi and M. Eden, "Fast B-spline transforms for continuous image representation and interpolation", 1991.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import FLOAT64, INTP, Aval, Shape
from gradtape.kinds.arguments import as_array
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.contract import contract
from gradtape.ops.core.cumulative import recurrence
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.elementwise.extrema import clip
from gradtape.ops.core.elementwise.floats import floor, trunc
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import gather, getitem
from gradtape.ops.core.join import full, join, stack
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.shape import cut
from gradtape.ops.scipy.ndimage.filters import MODES, along, floating

POLES: Final = {
    2: (math.sqrt(8) - 3,),
    3: (math.sqrt(3) - 2,),
    4: (-0.361341225900220177092212841325675255, -0.013725429297339121360331226939128204),
    5: (-0.430575347099973791851434783493520110, -0.043096288203264653822712376822550182),
}
"""The poles of the filter, by the order of the spline."""

LARGEST: Final = 1e300
"""More than any coordinate of a sample."""

FORGOTTEN: Final = 64
"""Samples after which nothing is left of a sample: the largest pole to this power is 1e-23."""


FAR: Final = 6
"""Samples beyond the last one from which on all coefficients are that of the last."""


@borrows("scipy.ndimage._nd_image.spline_filter1d", writes=3)
def spline_filter1d(input: Any, order: int, axis: int, output: Aval, mode: int) -> Value:
    """Follow the routine of `scipy.ndimage.spline_filter1d`."""
    return coefficients(floating(input), order, axis, MODES[mode])


def coefficients(x: Value, order: int, axis: int, mode: str) -> Value:
    """Return the coefficients of the spline through samples along an axis."""
    n = x.shape[axis]
    if n < 2:
        return x
    ends = {"reflect": _reflecting, "nearest": _reflecting, "grid-wrap": _wrapping}.get(mode, _mirroring)
    x = x * float(math.prod([(1 - z) * (1 - 1 / z) for z in POLES[order]]))
    for z in POLES[order]:
        first, last = ends(n, z)
        factor = broadcast_to(full((), z, x.dtype), x.shape)
        begin = _weighted(x, first, axis)
        forward = recurrence(factor, join([begin, cut(x, axis, 1, n)], axis), axis=axis)
        end = _weighted(forward, last, axis)
        x = recurrence(factor, join([cut(forward, axis, 0, n - 1) * -z, end], axis), axis=axis, reverse=True)
    return x


def _weighted(x: Value, weights: NDArray, axis: int) -> Value:
    """Return a sum along an axis, which stays with extent 1; weights far from both ends are zero."""
    n = x.shape[axis]
    parts = [(0, n)] if n <= 2 * FORGOTTEN else [(0, FORGOTTEN), (n - FORGOTTEN, n)]
    total = None
    for start, stop in parts:
        own_weights = weights[start:stop]
        if not own_weights.any():
            continue
        nonzero = np.flatnonzero(own_weights)
        low, high = start + int(nonzero[0]), start + int(nonzero[-1]) + 1
        w = constant(weights[low:high].astype(x.dtype))
        every = tuple(range(x.ndim))
        part = contract(cut(x, axis, low, high), w, every, (axis,), tuple([k for k in every if k != axis]))
        total = part if total is None else total + part
    assert total is not None
    return reshape(total, tuple([1 if k == axis else extent for k, extent in enumerate(x.shape)]))


def _mirroring(n: int, z: float) -> tuple[NDArray, NDArray]:
    """Return the weights of the first and of the last value of a filter, for samples that go on as (d c b | a b c d | c b a)."""
    powers = z ** np.arange(n)
    first = powers + powers[-1] * powers[::-1]
    first[0], first[-1] = 1, powers[-1]
    last = np.zeros(n)
    last[-2:] = z * z / (z * z - 1), z / (z * z - 1)
    return first / (1 - powers[-1] ** 2), last


def _reflecting(n: int, z: float) -> tuple[NDArray, NDArray]:
    """For (d c b a | a b c d | d c b a)."""
    powers = z ** np.arange(n)
    sums = powers + z**n * powers[::-1]
    if not _reflects_exactly():  # the last summand has the sum so far in place of the first sample
        inner = np.concatenate([[0.0], powers[1:-1], [0.0]])
        before = inner + z**n * inner[::-1]
        before[0] += 1
        before[-1] += z**n
        sums = before * (1 + powers[-1] * z**n)
        sums[-1] += powers[-1]
    first = sums * z / (1 - z ** (2 * n))
    first[0] += 1
    last = np.zeros(n)
    last[-1] = z / (z - 1)
    return first, last


@functools.cache
def _reflects_exactly() -> bool:
    """Return whether SciPy does: since version 1.18."""
    import scipy

    return np.lib.NumpyVersion(scipy.__version__) >= "1.18.0"


def _wrapping(n: int, z: float) -> tuple[NDArray, NDArray]:
    """For (a b c d | a b c d | a b c d)."""
    powers = z ** np.arange(n)
    first = np.concatenate([[1.0], powers[:0:-1]]) / (1 - z**n)
    last = np.concatenate([z * powers[:-1], [1.0]]) * z / (z**n - 1)
    return first, last


def weights(t: Value, order: int) -> list[Value]:
    """Return the weights of neighbouring coefficients at a place.

    The place is t from the middle one, or from the one before the middle if the order is odd. By the recursion of C. de Boor and M. Cox
    for B-splines with distances 1 between knots.
    """
    unit = full(t.shape, 1, t.dtype)
    if order == 0:
        return [unit]
    u = t if order % 2 else t + 0.5
    values = [unit]
    for degree in range(1, order + 1):
        rising = [(u + (degree - 1 - k)) * (1 / degree) for k in range(degree)]
        parts = [weight * part for weight, part in zip(values, rising, strict=True)]
        inner = [values[k] - parts[k] + parts[k - 1] for k in range(1, degree)]
        values = [values[0] - parts[0], *inner, parts[-1]]
    return values


def _mapped(x: Value, n: int, mode: str) -> Value:
    """Return coordinates beyond the ends as those of what stands there in a mode."""
    if mode == "nearest":
        return clip(x, -FAR, n + FAR)
    if mode in ("constant", "grid-constant"):
        return x
    if n <= 1:
        return where(less(x, 0) | greater(x, n - 1), 0.0 * x, x)
    period = {"mirror": 2 * n - 2, "reflect": 2 * n, "wrap": n - 1, "grid-wrap": n}[mode]
    turns = stop_gradient(floor(x / period)) * period
    folded = x - turns
    if mode == "mirror":
        folded = where(greater(folded, n - 1), period - folded, folded)
    elif mode == "reflect":
        folded = where(greater_equal(folded, n), period - 1 - folded, folded)
    elif mode == "wrap":
        # As SciPy has it: what is beyond the last sample begins with the first, what is before the first ends with the last.
        folded = where(less(x, 0) & equal(folded, 0), folded + period, folded)
        return where(less(x, 0) | greater(x, n - 1), folded, x)
    return folded


NARROW: Final = 10
"""Samples up to which a place may be beyond more than one end."""


def _fold(coordinates: Value, n: int, mode: str) -> Value:
    """Return the place of the sample that stands for one beyond the ends, by a few samples only."""
    if mode == "nearest":
        return clip(coordinates, 0, n - 1)
    if mode == "grid-constant":
        return coordinates
    if n == 1:
        return coordinates * 0
    period = {"reflect": 2 * n, "grid-wrap": n}.get(mode, 2 * n - 2)
    if n <= NARROW:
        coordinates = remainder(coordinates, period)
    if mode == "grid-wrap":
        before = where(less(coordinates, 0), coordinates + n, coordinates)
        return where(greater(before, n - 1), before - n, before)
    last = -1 if mode == "reflect" else 0
    folded = where(less(coordinates, 0), last - coordinates, coordinates)
    return where(greater(folded, n - 1), period + last - folded, folded)


class _Axis:
    """Where along one axis the coefficients are that a place needs, with their weights.

    Attributes
    ----------
    places : list of Value
        The positions of the coefficients, from the first to the last.
    weights : list of Value
        Their weights.
    outside : Value or None
        Where the result is the constant.
    """

    def __init__(self, x: Value, c: Value, axis: int, order: int, mode: str) -> None:
        n = c.shape[axis]
        self.outside: Value | None = None
        if mode == "constant":
            self.outside = less(x, 0) | greater(x, n - 1)
            x = where(self.outside, 0.0 * x, x)
        x = _mapped(x, n, mode)
        middle = stop_gradient(floor(x if order % 2 else x + 0.5))
        start = convert(middle, INTP) - order // 2
        self.weights = [convert(weight, c.dtype) for weight in weights(x - middle, order)]
        positions = [start + k for k in range(order + 1)]
        self.places = [_fold(position, n, mode) for position in positions]
        self.beyond: list[Value] | None = None
        if mode == "grid-constant":
            self.beyond = [less(position, 0) | greater(position, n - 1) for position in positions]
            self.places = [clip(position, 0, n - 1) for position in positions]


def interpolated(c: Value, points: Sequence[Value], order: int, mode: str, cval: Any) -> Value:
    """Return a spline with these coefficients at points, given by their coordinates along each axis, which have one shape."""
    axes = [_Axis(x, c, axis, order, mode) for axis, x in enumerate(points)]
    shape = points[0].shape
    strides = [math.prod(c.shape[axis + 1 :]) for axis in range(c.ndim)]
    flat = reshape(c, (c.size,))
    total = None
    for offsets in itertools.product(range(order + 1), repeat=c.ndim):
        at: Any = 0
        weight: Any = None
        beyond: Value | None = None
        for axis, k, stride in zip(axes, offsets, strides, strict=True):
            at = axis.places[k] * stride + at
            weight = axis.weights[k] if weight is None else weight * axis.weights[k]
            if axis.beyond is not None:
                beyond = axis.beyond[k] if beyond is None else beyond | axis.beyond[k]
        element = gather(flat, stop_gradient(at))
        if beyond is not None:
            element = where(beyond, _number(cval, c), element)
        term = element * weight
        total = term if total is None else total + term
    assert total is not None
    return _with_constant(total, axes, shape, cval)


def _number(cval: Any, like: Value) -> Value:
    return convert(as_array(cval, "cval"), like.dtype)


def _with_constant(result: Value, axes: Sequence[_Axis], shape: Shape, cval: Any) -> Value:
    outside: Value | None = None
    for axis in axes:
        if axis.outside is not None:
            axis_outside = broadcast_to(axis.outside, shape)
            outside = axis_outside if outside is None else outside | axis_outside
    return result if outside is None else where(outside, _number(cval, result), result)


def rounded_for(x: Value, output: Aval) -> Value:
    """Return numbers as SciPy rounds them for an array of integers: halves away from zero; unsigned ones are not below zero."""
    if output.dtype.kind == "u":
        return clip(floor(x + 0.5), 0.0, float(np.iinfo(output.dtype).max))
    return trunc(x + where(greater(x, 0), 0.5, -0.5)) if output.dtype.kind == "i" else x


@borrows("scipy.ndimage._nd_image.geometric_transform", writes=5)
def geometric_transform(
    input: Any,
    mapping: Any,
    coordinates: Any,
    matrix: Any,
    shift: Any,
    output: Aval,
    order: int,
    mode: int,
    cval: Any,
    npad: int,
    extra_arguments: Any,
    extra_keywords: Any,
) -> Value:
    """Follow the routine of `scipy.ndimage.geometric_transform`, `map_coordinates` and `affine_transform`."""
    c = floating(input)
    if mapping is not None:
        points = _by_function(mapping, output.shape, extra_arguments, extra_keywords or {}, c.ndim)
    elif coordinates is not None:
        array = as_array(coordinates, "coordinates")
        points = [getitem(array, axis) for axis in range(c.ndim)]
    else:
        points = _affine(as_array(matrix, "matrix"), as_array(shift, "shift"), output.shape, c.ndim)
    points = [reshape(convert(x, FLOAT64) + npad, (x.size,)) for x in points]
    values = interpolated(c, points, order, MODES[mode], cval)
    return rounded_for(reshape(values, output.shape), output)


def _by_function(mapping: Any, shape: Shape, args: Any, kwargs: Any, rank: int) -> list[Value]:
    """Return the coordinates that a function returns for each position of the output."""
    points = [HOOKS.call(mapping, position, *args, **kwargs) for position in np.ndindex(shape)]
    columns = [[as_array(point[axis], "mapping") for point in points] for axis in range(rank)]
    if all(value.data is not None and not value.tags for column in columns for value in column):
        return [constant(np.array([value.data for value in column], float)) for column in columns]
    return [stack(*[convert(value, FLOAT64) for value in column]) for column in columns]


def _affine(matrix: Value, shift: Value, shape: Shape, rank: int) -> list[Value]:
    """Return the coordinates ``shift + matrix @ position``, summed up in the order of SciPy's: what is rounded beyond the end of the
    samples is outside."""
    points = []
    for row in range(rank):
        total = broadcast_to(getitem(shift, row), shape)
        for axis, n in enumerate(shape):
            steps = along(constant(np.arange(n, dtype=float)), axis, len(shape))
            total = total + broadcast_to(_rounded(steps * getitem(matrix, (row, axis))), shape)
        points.append(total)
    return points


def _rounded(product: Value) -> Value:
    """Return a product that is rounded as SciPy rounds it: kernels make one instruction of a product and the sum that takes it, which
    rounds once, unless something stands between the two."""
    return clip(product, -LARGEST, LARGEST)


@borrows("scipy.ndimage._nd_image.zoom_shift", writes=3)
def zoom_shift(
    input: Any,
    zoom: Any,
    shift: Any,
    output: Aval,
    order: int,
    mode: int,
    cval: Any,
    npad: int,
    grid_mode: Any,
) -> Value:
    """Follow the routine of `scipy.ndimage.zoom` and `shift`: one axis after the other, since coordinates along them are independent."""
    c = floating(input)
    scale = None if zoom is None else as_array(zoom, "zoom")
    moved = None if shift is None else as_array(shift, "shift")
    axes = []
    for axis, n in enumerate(output.shape):
        x: Value = constant(np.arange(n, dtype=float))
        if grid_mode and scale is not None:
            x = x + 0.5
        if moved is not None:
            x = x + getitem(moved, axis)
        if scale is not None:
            x = x * getitem(scale, axis)
        if grid_mode and scale is not None:
            x = _rounded(x) - 0.5
        axes.append(_Axis(x + npad if npad else x, c, axis, order, MODES[mode]))
    for number, own in enumerate(axes):
        c = _along_axis(c, own, number, cval)
    shape = output.shape
    for number, own in enumerate(axes):
        if own.outside is not None:
            outside = reshape(own.outside, tuple([n if k == number else 1 for k, n in enumerate(shape)]))
            c = where(broadcast_to(outside, shape), _number(cval, c), c)
    return rounded_for(c, output)


def _along_axis(c: Value, axis: _Axis, position: int, cval: Any) -> Value:
    """Interpolate along one axis. What is outside is the constant along the other axes as well, and weights add up to one."""
    total = None
    for k, (at, weight) in enumerate(zip(axis.places, axis.weights, strict=True)):
        element = getitem(c, (*[slice(None)] * position, stop_gradient(at)))
        if axis.beyond is not None:
            beyond = broadcast_to(along(axis.beyond[k], position, c.ndim), element.shape)
            element = where(beyond, _number(cval, c), element)
        term = element * broadcast_to(along(weight, position, c.ndim), element.shape)
        total = term if total is None else total + term
    assert total is not None
    return total
