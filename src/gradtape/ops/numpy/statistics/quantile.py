"""Medians and quantiles: elements of the sorted array, weighted by where the quantile lies between two of
them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import DtypeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value
from gradtape.ir.types import FLOAT64, INTP, is_inexact
from gradtape.kinds.arguments import as_array, kept_shape, some_axes
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.floats import floor, isnan, rint
from gradtape.ops.core.elementwise.integer import floor_divide
from gradtape.ops.core.elementwise.logic import equal, greater_equal, less, logical_not, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import stack
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, permute, reshape
from gradtape.ops.numpy.statistics.moments import mean
from gradtape.ops.numpy.statistics.nan import nanmean
from gradtape.ops.numpy.statistics.sort import along, order_of, sorted_along

Positions = Callable[[Any, Value], Value]


def _continuous(alpha: float, beta: float) -> Positions:
    """Positions in the manner of R. J. Hyndman and Y. Fan, "Sample quantiles in statistical packages", The
    American Statistician 50 (1996)."""
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


def _ceil(x: Value) -> Value:
    return -floor(-x)


def _next_unless(stays: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Positions of a step function: the next element, or the previous one where `stays` says so."""

    def step(position: Value) -> Value:
        below = floor(position)
        exact = equal(position, below)
        return maximum(where(exact & stays(below), below, below + 1), 0)

    return step


def _always(below: Value) -> Value:
    return equal(below, below)


def _odd(below: Value) -> Value:
    return not_equal(below - 2 * floor(below / 2), 0)


STEPS: dict[str, Positions] = {
    "lower": lambda n, q: floor((n - 1) * q),
    "higher": lambda n, q: _ceil((n - 1) * q),
    "nearest": lambda n, q: rint((n - 1) * q),
    "inverted_cdf": lambda n, q: _next_unless(_always)(n * q - 1),
    "closest_observation": lambda n, q: _next_unless(_odd)(n * q - 1 - 0.5),
}
"""Methods that pick one element: its position among n sorted ones, for a quantile q."""

BETWEEN: dict[str, Positions] = {
    "linear": lambda n, q: (n - 1) * q,
    "midpoint": lambda n, q: 0.5 * (floor((n - 1) * q) + _ceil((n - 1) * q)),
    "averaged_inverted_cdf": lambda n, q: n * q - 1,
    "interpolated_inverted_cdf": _continuous(0.0, 1.0),
    "hazen": _continuous(0.5, 0.5),
    "weibull": _continuous(0.0, 0.0),
    "median_unbiased": _continuous(1 / 3, 1 / 3),
    "normal_unbiased": _continuous(3 / 8, 3 / 8),
}
"""Methods that interpolate between two elements: a real position among them."""


def rows_of(x: Value, axes: tuple[int, ...]) -> Value:
    """Return `x` with the reduced axes flattened into the last one."""
    kept = tuple(k for k in range(x.ndim) if k not in axes)
    transposed = permute(x, (*kept, *axes))
    return reshape(transposed, (*[x.shape[k] for k in kept], math.prod(x.shape[k] for k in axes)))


def pick(ordered: Value, position: Value) -> Value:
    """Return the elements at a whole position of the last axis: one position for all rows, or one for
    each."""
    if isinstance(position, Literal) and position.data is not None:
        return getitem(ordered, (Ellipsis, int(position.data)))
    index = convert(position, INTP)
    if index.ndim == 0:
        return getitem(ordered, (Ellipsis, index))
    column = reshape(index, (*index.shape, 1))
    return reshape(along(ordered, column, ordered.ndim - 1), index.shape)


def _between(low: Value, high: Value, weight: Value) -> Value:
    """Interpolate from the nearer end, as NumPy does."""
    difference = high - low
    return where(greater_equal(weight, 0.5), high - difference * (1 - weight), low + difference * weight)


def _one_quantile(ordered: Value, n: Any, q: Value, method: str) -> Value:
    if method in STEPS:
        position = STEPS[method](n, q)
    else:
        position = BETWEEN[method](n, q)
        if is_inexact(position.dtype):
            below = floor(position)
            weight = position - below
            if method == "midpoint":
                weight = where(equal(weight, 0), 0.0, 0.5)
            if method == "averaged_inverted_cdf":
                weight = where(equal(weight, 0), 0.5, 1.0)
            if q.aval.weak and is_inexact(ordered.dtype):
                weight = convert(weight, ordered.dtype)
            ends = [pick(ordered, maximum(minimum(k, n - 1), 0)) for k in (below, below + 1)]
            return _between(ends[0], ends[1], weight)
    return pick(ordered, maximum(minimum(position, n - 1), 0))


def _check_method(method: str) -> None:
    if method not in STEPS and method not in BETWEEN:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {sorted((*STEPS, *BETWEEN))}")


def _each(q: Any) -> tuple[list[Value], tuple[int, ...]]:
    """Return the single quantiles and the shape in which they were given."""
    if type(q) in (int, float):
        return [as_value(q)], ()
    if not isinstance(q, Value):
        plain = np.asarray(q)
        return [as_value(each) for each in plain.reshape(-1)], plain.shape
    flat = reshape(q, (q.size,))
    return [q] if q.ndim == 0 else [getitem(flat, k) for k in range(q.size)], q.shape


def _check_range(q: Any) -> None:
    if not isinstance(q, Value) and not np.all((np.asarray(q) >= 0) & (np.asarray(q) <= 1)):
        raise ValueError("Quantiles must be in the range [0, 1]")


def _quantiles(
    a: Any, q: Any, axis: Any, method: str, keepdims: bool, weights: Any, without_nan: bool
) -> Value:
    x = as_array(a)
    if x.dtype.kind == "c":
        raise DtypeError(
            "a must be an array of real numbers", where=here.site, remedy="take the quantile of np.abs(a)"
        )
    _check_range(q)
    _check_method(method)
    if without_nan and x.size == 0:
        return nanmean(x, axis, keepdims=keepdims)
    each, shape = _each(q)
    if len(shape) > 2:
        raise ValueError("q must be a scalar or 1d")
    axes = some_axes(axis, x.ndim)
    rows = rows_of(x, axes)
    if weights is None:
        found = _unweighted(rows, each, method, without_nan)
    else:
        found = _weighted(rows, each, method, _weight_rows(weights, x, axis, axes), without_nan)
    rest = kept_shape(x.shape, axes) if keepdims else rows.shape[:-1]
    result = (
        found[0] if shape == () else stack(*found) if found else as_array(np.zeros((0, *rows.shape[:-1])))
    )
    return reshape(result, (*shape, *rest))


def _unweighted(rows: Value, each: list[Value], method: str, without_nan: bool) -> list[Value]:
    ordered = sorted_along(rows, rows.ndim - 1)
    count: Any = rows.shape[-1]
    if not is_inexact(rows.dtype):
        return [_one_quantile(ordered, count, q, method) for q in each]
    if without_nan:
        count = reduce_sum(convert(logical_not(isnan(rows)), INTP), axes=(rows.ndim - 1,))
        return [_one_quantile(ordered, convert(count, q.dtype), q, method) for q in each]
    last = getitem(ordered, (Ellipsis, -1))
    return [where(isnan(last), last, _one_quantile(ordered, count, q, method)) for q in each]


def _weight_rows(weights: Any, x: Value, axis: Any, axes: tuple[int, ...]) -> Value:
    w = as_array(weights)
    if not isinstance(weights, Value) and (np.asarray(weights) < 0).any():
        raise ValueError("Weights must be non-negative.")
    if w.shape != x.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        if w.shape != tuple(x.shape[k] for k in axes):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        w = expand(permute(w, tuple(np.argsort(axes).tolist())), x.shape, tuple(sorted(axes)))
    return rows_of(w, axes)


def _weighted(rows: Value, each: list[Value], method: str, weights: Value, without_nan: bool) -> list[Value]:
    """Pick the first element at which the running sum of the weights reaches the quantile."""
    if method != "inverted_cdf":
        raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
    last = rows.ndim - 1
    if without_nan and is_inexact(rows.dtype):
        weights = where(isnan(rows), 0, weights)
    order = order_of(rows, last)
    ordered = along(rows, order, last)
    runs = cumsum(along(convert(weights, FLOAT64), order, last), axis=last)
    share = runs / getitem(runs, (Ellipsis, slice(-1, None)))
    share = where(equal(share, 0), -1.0, share)
    found = []
    for q in each:
        place = reduce_sum(convert(less(share, q), INTP), axes=(last,))
        picked = pick(ordered, minimum(place, rows.shape[-1] - 1))
        if is_inexact(rows.dtype) and not without_nan:
            end = getitem(ordered, (Ellipsis, -1))
            picked = where(isnan(end), end, picked)
        found.append(picked)
    return found


def _hundredth(a: Any, q: Any) -> Any:
    """Return percentages as fractions, in the dtype that NumPy chooses."""
    x = as_array(a)
    hundred = x.dtype.type(100) if x.dtype.kind == "f" else 100
    if isinstance(q, Value):
        return q / hundred
    if type(q) in (int, float):
        return q / 100
    return np.true_divide(q, hundred)


GAPS = np.array([[1.0, np.nan, 3.0, -2.0], [np.nan, np.nan, 0.5, 4.0], [2.0, 1.0, 1.5, -1.0]])
QUANTILES = (
    sample((5,), 0.3),
    sample((3, 4), [0.1, 0.5, 0.9], axis=1),
    sample((2, 3, 4), 0.25, axis=(0, 2), keepdims=True),
    sample((4,), 1.0),
    sample((4,), 1),
    sample((4,), np.float32(0.3)),
    sample((4,), np.array(0.4)),
    sample((4,), np.array([0.2, 0.7])),
    sample(GAPS, 0.4, axis=1),
    sample((3,), 1.5),
    sample((3, 4), np.array([0.2, 0.7]), axis=0),
    sample((4,), 0.5, weights=np.array([1.0, 2.0, 0.0, 1.0]), method="inverted_cdf"),
    *[sample((3, 5), 0.37, axis=1, method=method) for method in (*STEPS, *BETWEEN)],
    *[sample((2, 4), 0.5, axis=1, method=method) for method in (*STEPS, *BETWEEN)],
    *[sample((4,), [0.0, 0.125, 0.375, 0.625, 0.875, 1.0], method=method) for method in (*STEPS, *BETWEEN)],
    sample((2, 3), [0.2, 0.6], axis=1, weights=np.array([1.0, 2.0, 0.5]), method="inverted_cdf"),
    sample((2, 3, 2), 0.4, axis=(2, 0), weights=np.array([[1.0, 2.0], [0.5, 1.0]]), method="inverted_cdf"),
    sample((2, 3), 0.4, axis=1, weights=np.ones(2), method="inverted_cdf"),
    sample((2, 3), 0.4, weights=np.ones(3), method="inverted_cdf"),
)
PERCENTAGES = (
    sample((5,), 30),
    sample((3, 4), [10, 50.0], axis=0),
    sample((3, 4), 25.0, method="hazen"),
    sample((4,), 100),
)


@implements(np.quantile, samples=QUANTILES, dtypes="Bqf")
def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Value:
    """Follow `numpy.quantile`; the fraction may be traced as well."""
    return _quantiles(a, q, axis, method, keepdims, weights, False)


@implements(np.percentile, samples=PERCENTAGES, dtypes="Bqf")
def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Value:
    """Follow `numpy.percentile`."""
    return _quantiles(a, _hundredth(a, q), axis, method, keepdims, weights, False)


@implements(np.nanquantile, samples=QUANTILES[:10], dtypes="Bqf")
def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Value:
    """Follow `numpy.nanquantile`."""
    return _quantiles(a, q, axis, method, keepdims, weights, True)


@implements(np.nanpercentile, samples=PERCENTAGES, dtypes="Bqf")
def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Value:
    """Follow `numpy.nanpercentile`."""
    return _quantiles(a, _hundredth(a, q), axis, method, keepdims, weights, True)


MEDIANS = (
    sample((5,)),
    sample((3, 4), axis=1),
    sample((3, 4)),
    sample((2, 3, 4), axis=(0, 2), keepdims=True),
    sample(GAPS, axis=1),
    sample(GAPS, axis=0),
)


@implements(np.median, samples=MEDIANS)
def median(a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Value:
    """Follow `numpy.median`."""
    x = as_array(a)
    axes = some_axes(axis, x.ndim)
    rows = rows_of(x, axes)
    ordered = sorted_along(rows, rows.ndim - 1)
    n = rows.shape[-1]
    middle = mean(getitem(ordered, (Ellipsis, slice((n - 1) // 2 if n else 0, n // 2 + 1))), -1)
    if is_inexact(x.dtype) and n:
        last = getitem(ordered, (Ellipsis, -1))
        middle = where(isnan(last), last, middle)
    return reshape(middle, kept_shape(x.shape, axes)) if keepdims else middle


@implements(np.nanmedian, samples=MEDIANS, dtypes="?bBqf")
def nanmedian(a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Value:
    """Follow `numpy.nanmedian`."""
    x = as_array(a)
    if not is_inexact(x.dtype) or x.size == 0:
        return median(x, axis, keepdims=keepdims)
    axes = some_axes(axis, x.ndim)
    rows = rows_of(x, axes)
    ordered = sorted_along(rows, rows.ndim - 1)
    n = reduce_sum(convert(logical_not(isnan(rows)), INTP), axes=(rows.ndim - 1,))
    low = pick(ordered, maximum(floor_divide(n - 1, 2), 0))
    high = pick(ordered, minimum(floor_divide(n, 2), rows.shape[-1] - 1))
    middle = 0.5 * (low + high)
    return reshape(middle, kept_shape(x.shape, axes)) if keepdims else middle
