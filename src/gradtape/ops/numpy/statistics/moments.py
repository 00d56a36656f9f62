"""Means, variances and statistics derived from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import FLOAT64, INTP, Shape
from gradtape.kinds.arguments import NO_VALUE, as_array, some_axes
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import imag, real
from gradtape.ops.core.elementwise.extrema import clip
from gradtape.ops.core.elementwise.select import where as select
from gradtape.ops.core.join import full, join
from gradtape.ops.core.lengths import as_number
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import permute, reshape
from gradtape.ops.numpy.linalg.matrix import diagonal
from gradtape.ops.numpy.linalg.norms import root, squares
from gradtape.ops.numpy.linalg.products import conjugated, dot
from gradtape.ops.numpy.statistics.reductions import masked, reduced, sum_

FLOAT32 = np.dtype(np.float32)

PLAIN = (
    sample((5,)),
    sample((3, 4), axis=1),
    sample((2, 3, 4), axis=(0, -1), keepdims=True),
    sample((2, 3), axis=()),
    sample((3, 4), axis=0, dtype=np.float32),
    sample((3, 4), axis=1, where=np.array([True, False, True, True])),
)


def working_dtype(x: Value, dtype: Any) -> np.dtype[Any]:
    """Return the dtype in which NumPy sums for a mean: float64 for integers, float32 for float16."""
    if dtype is not None:
        given: np.dtype[Any] = np.dtype(dtype)
        return given
    if x.dtype.kind in "biu":
        return FLOAT64
    return FLOAT32 if x.dtype == np.float16 else x.dtype


def count_of(x: Value, axes: tuple[int, ...], keepdims: bool, where: Any) -> Any:
    """Return how many elements are reduced: a number, or counts where a mask chooses."""
    if where is NO_VALUE or where is True:
        return math.prod(x.shape[axis] for axis in axes)
    ones = broadcast_to(convert(as_array(1), INTP), x.shape)
    return reduced(reduce_sum, masked(ones, where, 0), axes, keepdims)


def over(total: Value, count: Any) -> Value:
    """Divide by a count without a change of dtype."""
    quotient = total / (convert(count, FLOAT64) if isinstance(count, Value) else as_number(count))
    return convert(quotient, total.dtype)


@implements(np.mean, samples=PLAIN)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, *, where: Any = NO_VALUE
) -> Value:
    """Follow `numpy.mean`."""
    x = as_array(a)
    wide = convert(x, working_dtype(x, dtype))
    axes = tuple(sorted(some_axes(axis, x.ndim)))
    total = reduced(reduce_sum, masked(wide, where, 0), axes, keepdims)
    result = over(total, count_of(x, axes, keepdims, where))
    return convert(result, x.dtype) if dtype is None and x.dtype == np.float16 else result


SPREADS = (*PLAIN, sample((3, 4), axis=1, ddof=1), sample((3, 4), axis=0, correction=1), sample((2,), ddof=3))


@implements(np.var, samples=SPREADS)
def var(
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
    """Follow `numpy.var`: the mean of the squared deviations."""
    if correction is not NO_VALUE:
        if ddof != 0:
            raise ArgumentError("ddof and correction can't be provided simultaneously.", where=here.site)
        ddof = correction
    x = as_array(a)
    wide = convert(x, working_dtype(x, dtype))
    axes = tuple(sorted(some_axes(axis, x.ndim)))
    if mean is NO_VALUE:
        total = reduced(reduce_sum, masked(wide, where, 0), axes, True)
        centre = over(total, count_of(x, axes, True, where))
    else:
        centre = as_array(mean)
    squared = squares(x - centre)
    squared = squared if dtype is None else convert(squared, wide.dtype)
    count = count_of(x, axes, keepdims, where)
    freedom = select(count - ddof > 0, count - ddof, 0) if isinstance(count, Value) else max(count - ddof, 0)
    result = over(reduced(reduce_sum, masked(squared, where, 0), axes, keepdims), freedom)
    return convert(result, x.dtype) if dtype is None and x.dtype == np.float16 else result


@implements(np.std, samples=SPREADS)
def std(
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
    """Follow `numpy.std`; its derivative where all elements are equal is 0."""
    return root(var(a, axis, dtype, ddof, keepdims, where=where, mean=mean, correction=correction))


@implements(
    np.average,
    samples=(
        sample((2, 3)),
        sample((2, 3), axis=1, weights=np.array([1.0, 2.0, 3.0])),
        sample((2, 3), weights=np.arange(6.0).reshape(2, 3), returned=True),
        sample((2, 3), 0, np.array([1, 3]), keepdims=True),
        sample((2, 3), 1, returned=True),
        sample((2, 3, 2), axis=(0, 1), weights=np.ones((2, 3))),
        sample((2, 3), weights=np.ones(3)),
        sample((2, 3), axis=1, weights=np.ones(2)),
        sample((2, 2), axis=1, weights=np.array([[1.0, -1.0], [1.0, 2.0]])),
        sample((2, 2), axis=1, weights=np.array([[1.0, 1.0], [-1.0, -1.0]])),
        sample((2, 3), axis=1, weights=np.array([1.0, -1.0, 0.0])),
    ),
)
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    """Follow `numpy.average`."""
    x = as_array(a)
    axes = tuple(range(x.ndim)) if axis is None else some_axes(axis, x.ndim)
    if weights is None:
        result = mean(x, axis, keepdims=keepdims)
        scale: Value = convert(as_array(as_number(x.size // result.size)), result.dtype)
    else:
        w = _spread_weights(x, as_array(weights), axis, axes)
        if not isinstance(weights, Value) and np.any(_sum_of_weights(weights, x.shape, axes) == 0):
            raise ZeroDivisionError("Weights sum to zero, can't be normalized")
        small = x.dtype.kind in "biu"
        dtype = np.result_type(x.dtype, w.dtype, FLOAT64) if small else np.result_type(x.dtype, w.dtype)
        scale = sum_(w, axes, dtype, keepdims)
        result = sum_(convert(x, dtype) * convert(w, dtype), axes, None, keepdims) / scale
    return (result, broadcast_to(scale, result.shape)) if returned else result


def _sum_of_weights(weights: Any, shape: Shape, axes: tuple[int, ...]) -> Any:
    plain = np.asarray(weights)
    return np.sum(plain, axis=axes if plain.shape == shape else None)


def _spread_weights(x: Value, w: Value, axis: Any, axes: tuple[int, ...]) -> Value:
    if w.shape == x.shape:
        return w
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    if w.shape != tuple(x.shape[k] for k in axes):
        raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
    order = tuple(int(k) for k in np.argsort(axes))
    return reshape(permute(w, order), tuple(n if k in axes else 1 for k, n in enumerate(x.shape)))


COVARIANCES = (
    sample((4,)),
    sample((3, 5)),
    sample((5, 3), rowvar=False),
    sample((2, 5), (2, 5)),
    sample((5,), (5,)),
)


@implements(
    np.cov,
    samples=(
        *COVARIANCES,
        sample((2, 5), bias=True),
        sample((2, 5), ddof=0),
        sample((2, 3), ddof=3),
        sample((2, 3), ddof=4),
        sample((2, 4), fweights=np.array([1, 2, 1, 3])),
        sample((2, 4), fweights=np.array([1, 2, 1])),
        sample((2, 4), aweights=np.ones((1, 4))),
        sample((2, 4), aweights=np.array([1.0, 0.5, 0.2, 1.0])),
        sample((2, 4), dtype="f4"),
        sample((2, 3, 2)),
    ),
)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Value:
    """Follow `numpy.cov`."""
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    parts = [as_array(m)] if y is None else [as_array(m), as_array(y)]
    if any(part.ndim > 2 for part in parts):
        raise ValueError("m has more than 2 dimensions")
    kind = np.result_type(*[part.dtype for part in parts], FLOAT64) if dtype is None else np.dtype(dtype)
    rows = [
        _as_rows(convert(part, kind), rowvar, first)
        for first, part in zip((True, False), parts, strict=False)
    ]
    x = join(rows, 0)
    if x.shape[0] == 0:
        return full((0, 0), 0, FLOAT64)
    ddof = (0 if bias else 1) if ddof is None else int(ddof)
    weights: Value | None = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None:
            factor = as_array(given)
            if factor.ndim > 1:
                raise RuntimeError(f"cannot handle multidimensional {name}")
            if factor.shape != (x.shape[1],):
                raise RuntimeError(f"incompatible numbers of samples and {name}")
            weights = factor if weights is None else weights * factor
    freedom: Any
    if weights is None:
        centre = mean(x, 1)
        freedom = x.shape[1] - ddof
    else:
        weights = convert(weights, np.result_type(weights.dtype, FLOAT64))
        centre = average(x, 1, weights)
        total = sum_(weights)
        freedom = total if ddof == 0 else total - ddof * _weight_share(weights, total, aweights)
    x = x - reshape(centre, (*centre.shape, 1))
    weighted = x if weights is None else x * weights
    products = dot(x, permute(conjugated(weighted), (1, 0)))
    scale = select(freedom > 0, freedom, 0) if isinstance(freedom, Value) else as_number(max(freedom, 0))
    result = products * convert(1.0 / as_array(scale), real(products).dtype)
    return reshape(result, tuple(n for n in result.shape if n != 1))


def _weight_share(weights: Value, total: Value, aweights: Any) -> Any:
    return 1 if aweights is None else sum_(weights * as_array(aweights)) / total


def _as_rows(x: Value, rowvar: bool, first: bool) -> Value:
    if x.ndim < 2:
        return reshape(x, (1, x.size))
    return permute(x, (1, 0)) if not rowvar and (x.shape[0] != 1 or first) else x


@implements(np.corrcoef, samples=(*COVARIANCES, sample((2, 5), dtype="f4")))
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Value:
    """Follow `numpy.corrcoef`."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    deviations = root(real(diagonal(c)))
    c = c / reshape(deviations, (c.shape[0], 1)) / deviations
    bounded = clip(real(c), -1.0, 1.0)
    return bounded if c.dtype.kind != "c" else bounded + 1j * clip(imag(c), -1.0, 1.0)
