"""Reductions that leave NaN out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import DtypeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import is_inexact
from gradtape.kinds.arguments import NO_VALUE, as_array, reduced_axes
from gradtape.kinds.registry import implements, implements_method, sample
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.floats import isnan
from gradtape.ops.core.elementwise.logic import logical_not
from gradtape.ops.core.elementwise.select import where as select
from gradtape.ops.core.reductions import reduce_all
from gradtape.ops.numpy.linalg.norms import root, squares
from gradtape.ops.numpy.statistics.moments import mean, var
from gradtape.ops.numpy.statistics.reductions import argmax_, argmin_, masked, max_, min_, prod, reduced, sum_

HOLES = np.array([[1.0, np.nan, 3.0, -2.0], [np.nan, np.nan, 0.5, 4.0], [2.0, 1.0, 1.5, -1.0]])
GAPS = np.array([[1.0, np.nan], [np.nan, np.nan], [2.0, 1.0]])
NANS = (sample(HOLES), sample(HOLES, axis=0), sample(HOLES, axis=1, keepdims=True), sample((2, 3), axis=1))
EMPTY_ROWS = (*NANS, sample(GAPS, axis=1))


def without_nan(x: Value, neutral: Any) -> Value:
    """Return `x` with a number in place of NaN."""
    return select(isnan(x), convert(as_array(neutral), x.dtype), x) if is_inexact(x.dtype) else x


@implements(np.nansum, samples=(*EMPTY_ROWS, sample(HOLES, axis=1, dtype="f4")))
def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Value:
    """Follow `numpy.nansum`."""
    return sum_(without_nan(as_array(a), 0), axis, dtype, keepdims, initial, where)


@implements(np.nanprod, samples=EMPTY_ROWS)
def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Value:
    """Follow `numpy.nanprod`."""
    return prod(without_nan(as_array(a), 1), axis, dtype, keepdims, initial, where)


def _extremum(
    function: Callable[..., Value], fill: float, a: Any, axis: Any, keepdims: bool, initial: Any, where: Any
) -> Value:
    x = as_array(a)
    if not is_inexact(x.dtype):
        return function(x, axis, keepdims, initial, where)
    found = function(without_nan(x, fill), axis, keepdims, initial, where)
    if initial is not NO_VALUE:
        return found
    nothing = reduced(reduce_all, isnan(x), reduced_axes(axis, x.ndim), keepdims)
    return select(nothing, convert(as_array(np.nan), x.dtype), found)


@implements(np.nanmax, samples=(*EMPTY_ROWS, sample(HOLES, axis=1, initial=2.5)), dtypes="?bBqf")
def nanmax(
    a: Any, axis: Any = None, keepdims: bool = False, initial: Any = NO_VALUE, where: Any = NO_VALUE
) -> Value:
    """Follow `numpy.nanmax`."""
    return _extremum(max_, -np.inf, a, axis, keepdims, initial, where)


@implements(np.nanmin, samples=(*EMPTY_ROWS, sample(HOLES, axis=1, initial=0.5)), dtypes="?bBqf")
def nanmin(
    a: Any, axis: Any = None, keepdims: bool = False, initial: Any = NO_VALUE, where: Any = NO_VALUE
) -> Value:
    """Follow `numpy.nanmin`."""
    return _extremum(min_, np.inf, a, axis, keepdims, initial, where)


def _reduce(function: Callable[..., Value], fill: float) -> Callable[..., Value]:
    """What ``fmax.reduce`` does: NaN gives way to numbers."""

    def reduce(
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        keepdims: bool = False,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Value:
        x = as_array(array) if dtype is None else convert(as_array(array), np.dtype(dtype))
        return _extremum(function, fill, x, axis, keepdims, NO_VALUE if initial is None else initial, where)

    return reduce


implements_method("fmax", "reduce", samples=NANS)(_reduce(max_, -np.inf))
implements_method("fmin", "reduce", samples=NANS)(_reduce(min_, np.inf))


@implements(np.nanargmax, samples=NANS, dtypes="?bBqf")
def nanargmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Value:
    """Follow `numpy.nanargmax`, but for rows of NaN alone, whose position is 0 here."""
    return argmax_(without_nan(as_array(a), -np.inf), axis, keepdims=keepdims)


@implements(np.nanargmin, samples=NANS, dtypes="?bBqf")
def nanargmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Value:
    """Follow `numpy.nanargmin`, but for rows of NaN alone, whose position is 0 here."""
    return argmin_(without_nan(as_array(a), np.inf), axis, keepdims=keepdims)


def _check_inexact(dtype: Any) -> None:
    if dtype is not None and not is_inexact(np.dtype(dtype)):
        raise DtypeError(
            "If a is inexact, then dtype must be inexact", where=here.site, remedy="leave dtype out"
        )


@implements(np.nanmean, samples=EMPTY_ROWS)
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, *, where: Any = NO_VALUE
) -> Value:
    """Follow `numpy.nanmean`."""
    x = as_array(a)
    if not is_inexact(x.dtype):
        return mean(x, axis, dtype, keepdims, where=where)
    _check_inexact(dtype)
    total = sum_(without_nan(x, 0), axis, dtype, keepdims, where=where)
    return total / convert(sum_(logical_not(isnan(x)), axis, None, keepdims, where=where), _real_dtype(total))


def _real_dtype(x: Value) -> np.dtype[Any]:
    return np.dtype(f"f{x.dtype.itemsize // 2}") if x.dtype.kind == "c" else x.dtype


SPREADS = (
    *EMPTY_ROWS,
    sample(HOLES, axis=1, ddof=1),
    sample(HOLES, axis=0, ddof=2),
    sample((2, 3), axis=1, mean=np.ones((2, 1))),
)


@implements(np.nanvar, samples=SPREADS)
def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = NO_VALUE,
    mean: Any = NO_VALUE,
    correction: Any = NO_VALUE,
) -> Value:
    """Follow `numpy.nanvar`."""
    x = as_array(a)
    if not is_inexact(x.dtype):
        return var(x, axis, dtype, ddof, keepdims, where=where, mean=mean, correction=correction)
    _check_inexact(dtype)
    if correction is not NO_VALUE:
        if ddof != 0:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    centre = nanmean(x, axis, dtype, True, where=where) if mean is NO_VALUE else as_array(mean)
    if x.ndim and np.broadcast_shapes(x.shape, centre.shape) != x.shape:
        raise ValueError(f"a mean of shape {centre.shape} is not one of an array of shape {x.shape}")
    x = x if dtype is None else convert(x, np.dtype(dtype))
    deviations = masked(convert(x - centre, x.dtype), logical_not(isnan(x)), 0)
    total = sum_(squares(deviations), axis, None, keepdims, where=where)
    if dtype is not None and np.dtype(dtype).kind == "c":
        total = convert(total, np.dtype(dtype))
    count = sum_(logical_not(isnan(x)), axis, None, keepdims, where=where)
    freedom = convert(count, total.dtype) - ddof
    return select(freedom > 0, total, convert(as_array(np.nan), total.dtype)) / select(
        freedom > 0, freedom, 1
    )


@implements(np.nanstd, samples=SPREADS)
def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = NO_VALUE,
    mean: Any = NO_VALUE,
    correction: Any = NO_VALUE,
) -> Value:
    """Follow `numpy.nanstd`."""
    return root(nanvar(a, axis, dtype, ddof, keepdims, where=where, mean=mean, correction=correction))
