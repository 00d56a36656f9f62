"""Running sums, products and extrema, as NumPy's functions and as the ufuncs' ``accumulate``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import is_inexact
from gradtape.kinds.arguments import as_array, lookup, one_axis
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.registry import implements, implements_method, sample
from gradtape.ops.core.cumulative import cumlogaddexp, cummax, cummin, cumprod, cumsum
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.floats import isnan
from gradtape.ops.core.elementwise.logic import truth
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.join import full, join
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.shape import atleast_1d
from gradtape.ops.numpy.statistics.reductions import sum_dtype
from gradtape.ops.scipy.softmax import inexact

RUNS = (
    sample((5,)),
    sample((3, 4), axis=0),
    sample((3, 4), axis=-1, dtype="f4"),
    sample((2, 3)),
    sample(np.array([[2.0, 0.0, 3.0, -1.0], [0.0, 1.0, 0.0, 4.0]]), 1),
)
NANS = (*RUNS[:3], sample(np.array([[2.0, np.nan, 3.0], [np.nan, 1.0, 0.0]]), 1))


def running(row: Cumulative, a: Any, axis: Any, dtype: Any) -> Value:
    """Apply a cumulative row in the dtype in which NumPy sums."""
    x = as_array(a)
    x = convert(x, sum_dtype(x.dtype) if dtype is None else np.dtype(dtype))
    if axis is None or (x.ndim == 0 and axis in (0, -1)):
        x, axis = reshape(x, (x.size,)), 0
    return row(x, axis=one_axis(axis, x.ndim))


@implements(np.cumsum, samples=RUNS)
def cumsum_(a: Any, axis: Any = None, dtype: Any = None) -> Value:
    """Follow `numpy.cumsum`."""
    return running(cumsum, a, axis, dtype)


@implements(np.cumprod, samples=RUNS)
def cumprod_(a: Any, axis: Any = None, dtype: Any = None) -> Value:
    """Follow `numpy.cumprod`."""
    return running(cumprod, a, axis, dtype)


def _without_nan(a: Any, neutral: float) -> Value:
    x = as_array(a)
    return where(isnan(x), convert(as_array(neutral), x.dtype), x) if is_inexact(x.dtype) else x


@implements(np.nancumsum, samples=NANS)
def nancumsum(a: Any, axis: Any = None, dtype: Any = None) -> Value:
    """Follow `numpy.nancumsum`."""
    return running(cumsum, _without_nan(a, 0), axis, dtype)


@implements(np.nancumprod, samples=NANS)
def nancumprod(a: Any, axis: Any = None, dtype: Any = None) -> Value:
    """Follow `numpy.nancumprod`."""
    return running(cumprod, _without_nan(a, 1), axis, dtype)


def _from_start(row: Cumulative, neutral: int, x: Any, axis: Any, dtype: Any, include_initial: bool) -> Value:
    array = atleast_1d(x)
    if axis is None and array.ndim != 1:
        raise ArgumentError(
            "For arrays which have more than one dimension ``axis`` argument is required (got shape "
            f"{array.shape})",
            where=here.site,
            remedy="pass axis=",
        )
    place = one_axis(0 if axis is None else axis, array.ndim)
    result = running(row, array, place, dtype)
    if not include_initial:
        return result
    shape = tuple(1 if k == place else n for k, n in enumerate(result.shape))
    return join([full(shape, neutral, result.dtype), result], place)


STARTS = (
    sample((4,)),
    sample((2, 3), axis=1, include_initial=True),
    sample((2, 3), axis=0, dtype="f4"),
    sample((2, 3)),
)


@implements(lookup(np, "cumulative_sum"), samples=STARTS)
def cumulative_sum(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Value:
    """Follow `numpy.cumulative_sum`."""
    return _from_start(cumsum, 0, x, axis, dtype, include_initial)


@implements(lookup(np, "cumulative_prod"), samples=STARTS)
def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
) -> Value:
    """Follow `numpy.cumulative_prod`."""
    return _from_start(cumprod, 1, x, axis, dtype, include_initial)


def _accumulate(row: Cumulative, prepare: Callable[[Value], Value]) -> Callable[..., Value]:
    def accumulate(array: Any, axis: Any = 0, dtype: Any = None) -> Value:
        x = as_array(array)
        if x.ndim == 0:
            raise TypeError("cannot accumulate on a scalar")
        x = prepare(x) if dtype is None else convert(x, np.dtype(dtype))
        if prepare is not _widened and prepare(x).dtype != x.dtype:
            raise TypeError(f"dtype={x.dtype} is not one in which this ufunc accumulates")
        return row(x, axis=one_axis(axis, x.ndim))

    return accumulate


def _widened(x: Value) -> Value:
    return convert(x, sum_dtype(x.dtype))


ACCUMULATIONS = (sample((4,)), sample((3, 4)), sample((3, 4), axis=-1))
implements_method("add", "accumulate", samples=ACCUMULATIONS)(_accumulate(cumsum, _widened))
implements_method("multiply", "accumulate", samples=ACCUMULATIONS)(_accumulate(cumprod, _widened))
implements_method("maximum", "accumulate", samples=ACCUMULATIONS)(_accumulate(cummax, lambda x: x))
implements_method("minimum", "accumulate", samples=ACCUMULATIONS)(_accumulate(cummin, lambda x: x))
implements_method("logical_or", "accumulate", samples=ACCUMULATIONS)(_accumulate(cummax, truth))
implements_method("logical_and", "accumulate", samples=ACCUMULATIONS)(_accumulate(cummin, truth))
implements_method("logaddexp", "accumulate", samples=ACCUMULATIONS, dtypes="qf")(
    _accumulate(cumlogaddexp, inexact)
)
