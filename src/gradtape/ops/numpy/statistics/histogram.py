"""Counting: histograms and bincount. Counts have no derivative; weights and the edges found in the data
have."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import DtypeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, FLOAT64, INTP, is_inexact
from gradtape.kinds.arguments import as_array, as_int, common_dtype, concrete, known_numbers
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import gather, getitem, put_add
from gradtape.ops.core.join import full
from gradtape.ops.core.sorting import searchsorted
from gradtape.ops.numpy.arrays.creation import linspace
from gradtape.ops.numpy.arrays.shape import ravel
from gradtape.ops.numpy.statistics.calculus import diff
from gradtape.ops.numpy.statistics.reductions import max_, min_, sum_

SPREAD = np.array([0.1, 2.5, -1.0, 2.0, 0.0, 3.5, 1.0])
EDGES = np.array([-1.0, 0.0, 1.0, 2.5])


def _outer_edges(a: Value, given: Any) -> tuple[Value, Value]:
    if given is not None:
        low, high = (as_value(end) for end in given)
        plain = [end for end in given if not isinstance(end, Value)]
        if len(plain) == 2 and plain[0] > plain[1]:
            raise ValueError("max must be larger than min in range parameter.")
        if not np.isfinite(plain).all():
            raise ValueError(f"supplied range of {given} is not finite")
    else:
        low, high = (min_(a), max_(a)) if a.size else (as_value(0), as_value(1))
    common = common_dtype(low, high, a)
    common = common if is_inexact(common) else FLOAT64
    low, high = convert(low, common), convert(high, common)
    half = convert(where(equal(low, high), 0.5, 0.0), common)
    return low - half, high + half


def _bins(a: Value, bins: Any, range_: Any, weighted: bool) -> Value:
    """Return the edges of the bins."""
    if isinstance(bins, str):
        if weighted:
            raise TypeError("Automated estimation of the number of bins is not supported for weighted data")
        bins = len(np.histogram_bin_edges(concrete(a, "a"), bins, range_)) - 1
    if np.ndim(bins) == 0:
        try:
            count = as_int(bins, "bins")
        except TypeError:
            raise TypeError("`bins` must be an integer, a string, or an array") from None
        if count < 1:
            raise ValueError("`bins` must be positive, when an integer")
        low, high = _outer_edges(a, range_)
        found: Value = linspace(low, high, count + 1)
        return found
    edges = as_array(bins)
    if edges.ndim != 1:
        raise ValueError("`bins` must be 1d, when an array")
    if not isinstance(bins, Value) and np.any(np.asarray(bins)[:-1] > np.asarray(bins)[1:]):
        raise ValueError("`bins` must increase monotonically, when an array")
    return edges


def _uniform_places(points: Value, edges: Value, outside: Value) -> Value:
    """Return the bins of points where all bins are equally wide: by a division, as NumPy's, which is corrected by the edges beside it."""
    count = edges.size - 1
    first = getitem(edges, 0)
    scaled = (points - first) / (getitem(edges, -1) - first) * count
    place = minimum(convert(where(outside, 0.0, scaled), INTP), count - 1)
    place = where(points < gather(edges, place), maximum(place - 1, 0), place)
    return where((points >= gather(edges, place + 1)) & (place < count - 1), place + 1, place)


def _data(a: Any) -> Value:
    x = ravel(a)
    if x.dtype.kind == "c":
        raise DtypeError(
            "histograms of complex numbers", where=here.site, remedy="take the histogram of np.abs(a)"
        )
    return convert(x, np.dtype(np.uint8)) if x.dtype == BOOL else x


HISTOGRAMS = (
    sample(SPREAD),
    sample(SPREAD, 4, range=(0.0, 3.0)),
    sample(SPREAD, bins=EDGES),
    sample(SPREAD, 3, weights=np.arange(7.0)),
    sample((6,), bins=5),
    sample(np.array([1, 2, 2, 5]), 3),
    sample(np.array([2.0, 2.0]), 3),
    sample(np.zeros(0), 3),
    sample(SPREAD, 0),
    sample(SPREAD, [1.0, 0.0]),
)


@implements(
    np.histogram,
    samples=(
        *HISTOGRAMS,
        sample(SPREAD, bins=EDGES, density=True),
        sample(SPREAD, bins=4, weights=np.arange(7.0), density=True),
    ),
    dtypes="qf",
)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Value, Value]:
    """Follow `numpy.histogram`."""
    x = _data(a)
    w = broadcast_to(as_array(np.array(1, INTP)), x.shape) if weights is None else ravel(weights)
    if weights is not None and as_array(weights).shape != as_array(a).shape:
        raise ValueError("weights should have the same shape as a.")
    edges = _bins(x, bins, range, weights is not None)
    count = max(edges.size - 1, 0)
    if count == 0:
        return full((0,), 0, w.dtype), edges
    common = np.result_type(x.dtype, edges.dtype)
    points, limits = convert(x, common), convert(edges, common)
    last = getitem(limits, -1)
    outside = (points < getitem(limits, 0)) | ~(points <= last)
    if np.ndim(bins) == 0:
        place = _uniform_places(points, limits, outside)
    else:
        place = searchsorted(limits, points, side="right") - 1
        place = where(equal(points, last), count - 1, place)
    heaps = put_add(full((count + 1,), 0, w.dtype), w, where(outside, count, place))
    heights = getitem(heaps, slice(0, count))
    if density:
        heights = heights / convert(diff(edges), FLOAT64) / sum_(heights)
    return heights, edges


@implements(np.histogram_bin_edges, samples=HISTOGRAMS[:3], dtypes="qf")
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Value:
    """Follow `numpy.histogram_bin_edges`."""
    return _bins(_data(a), bins, range, weights is not None)


@implements(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Value:
    """Follow `numpy.bincount`. The length depends on the greatest position: if that is not known while tracing, a trace guards it."""
    least = as_int(minlength, "minlength")
    known = known_numbers(x)
    if known is None:
        return _bincount_of_traced(as_array(x), weights, least)
    positions = concrete(x, "x")
    counts = np.bincount(positions, minlength=least)
    if weights is None or positions.size == 0:  # for which NumPy forgets the weights
        return as_array(counts)
    length = counts.size
    w = as_array(weights)
    if w.shape != positions.shape:
        raise ValueError("The weights and list don't have the same length.")
    return put_add(full((length,), 0, FLOAT64), convert(w, FLOAT64), as_array(positions.astype(INTP)))


def _bincount_of_traced(x: Value, weights: Any, least: int) -> Value:
    """Count positions that are known when the program runs."""
    np.bincount(
        np.zeros((1,) * x.ndim, x.dtype), minlength=least
    )  # raises NumPy's errors for shapes, dtypes and lengths
    if not x.size:
        return full((least,), 0, INTP)
    if x.dtype.kind != "b" and as_int(convert(less(min_(x), 0), INTP), "the sign of the least position"):
        raise ValueError("'list' argument must have no negative elements")
    positions = convert(x, INTP)
    length = max(as_int(max_(positions), "the greatest position") + 1, least)
    if weights is None:
        return put_add(full((length,), 0, INTP), np.ones(x.size, INTP), positions)
    w = as_array(weights)
    if w.shape != x.shape:
        raise ValueError("The weights and list don't have the same length.")
    return put_add(full((length,), 0, FLOAT64), convert(w, FLOAT64), positions)
