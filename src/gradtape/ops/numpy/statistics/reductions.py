"""Sums, products, extrema and tests over axes, as NumPy's functions and as the ufuncs' ``reduce``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, INTP
from gradtape.kinds.arguments import NO_VALUE, as_array, kept_shape, one_axis, reduced_axes
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.kinds.reduction import remaining
from gradtape.kinds.registry import implements, implements_method, sample
from gradtape.ops.core.elementwise.arithmetic import add, multiply
from gradtape.ops.core.elementwise.cast import convert, convert_number
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.logic import logical_and, logical_or, logical_xor, not_equal, truth
from gradtape.ops.core.elementwise.select import where as select
from gradtape.ops.core.reductions import (
    argmax,
    argmin,
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_min,
    reduce_prod,
    reduce_sum,
)
from gradtape.ops.core.shape import reshape

PLAIN = (
    sample((5,)),
    sample((3, 4), axis=1),
    sample((2, 3, 4), axis=(0, -1), keepdims=True),
    sample((2, 3), axis=()),
    sample((2, 3), None),
    sample((3,), where=np.ones((2, 3), bool)),
)
SUMS = (
    *PLAIN,
    sample((3, 4), axis=0, dtype=np.float32),
    sample((3, 4), axis=0, dtype="f8", initial=2),
    sample((3, 4), axis=1, where=np.array([True, False, True, True])),
)
EXTREMA = (
    *PLAIN,
    sample((3, 4), axis=1, initial=0.5),
    sample((3, 4), axis=1, initial=-5, where=np.array([True, False, True, True])),
    sample(np.array([[1.0, 3.0, 3.0], [np.nan, 2.0, 1.0]]), axis=1),
    sample((), axis=0),
    sample((), axis=-1, keepdims=True),
    sample((), axis=1),
)
TESTS = (
    *PLAIN,
    sample((3, 4), axis=1, where=np.array([True, False, True, True])),
    sample(np.array([[1.0, 0.0, 3.0], [np.nan, 2.0, 1.0]]), axis=1),
)
METHOD = (sample((3, 4)), sample((3, 4), axis=1, keepdims=True), sample((2, 3), axis=None))


def reduced(row: Any, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """Return `x` reduced over sorted axes."""
    result = row(x, axes=axes) if axes else x
    return reshape(result, kept_shape(x.shape, axes)) if keepdims else result


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which NumPy sums: integers narrower than a long are widened."""
    if dtype.kind in "bi":
        return np.result_type(dtype, np.long)
    return np.result_type(dtype, np.ulong) if dtype.kind == "u" else dtype


def masked(x: Value, where: Any, otherwise: Any) -> Value:
    """Return `x` with `otherwise` where the mask does not hold."""
    if where is NO_VALUE or where is True:
        return x
    mask = as_array(where, "where")
    if mask.dtype != BOOL:
        raise TypeError(
            f"Cannot cast array data from {mask.dtype!r} to dtype('bool') according to the rule 'safe'"
        )
    if mask.ndim > x.ndim:
        raise ValueError("input operand has more dimensions than allowed by the axis remapping")
    if np.broadcast_shapes(mask.shape, x.shape) != x.shape:
        raise ValueError(
            f"non-broadcastable operand with shape {x.shape} doesn't match the mask's {mask.shape}"
        )
    return select(broadcast_to(mask, x.shape), x, convert(as_array(otherwise), x.dtype))


def initial_value(initial: Any, dtype: np.dtype[Any]) -> Value:
    """Return a reduction's starting value in the reduction's dtype."""
    return convert_number(as_value(initial, "initial"), dtype)


def total(
    row: Any,
    combine: Elementwise,
    neutral: int,
    a: Any,
    axis: Any,
    dtype: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
) -> Value:
    """Reduce with a monoid that has a neutral element."""
    x = as_array(a)
    x = convert(x, np.dtype(dtype) if dtype is not None else sum_dtype(x.dtype))
    axes = reduced_axes(axis, x.ndim)
    result = reduced(row, masked(x, where, neutral), axes, keepdims)
    return result if initial is NO_VALUE else combine(initial_value(initial, x.dtype), result)


def limits(dtype: Any) -> tuple[Any, Any]:
    """Return the smallest and the largest number of a dtype."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return -np.inf, np.inf
    if dtype == BOOL:
        return False, True
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def check_mask_of_extremum(combine: Elementwise, where: Any, initial: Any) -> None:
    """Raise the error of NumPy for a mask without a number to begin with."""
    if initial is NO_VALUE and where is not NO_VALUE and where is not True:
        raise ArgumentError(
            f"reduction operation '{combine.name}' does not have an identity, so to use a where "
            "mask one has to specify 'initial'",
            where=here.site,
            remedy="pass initial=-np.inf for a maximum, initial=np.inf for a minimum",
        )


def extremum(
    row: Any, combine: Elementwise, a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any
) -> Value:
    """Reduce with a monoid that has none."""
    x = as_array(a)
    x = x if dtype is None else convert(x, np.dtype(dtype))
    axes = reduced_axes(axis, x.ndim)
    empty = math.prod([x.shape[k] for k in axes]) == 0
    check_mask_of_extremum(combine, where, initial)
    if initial is NO_VALUE:
        if empty:
            raise ValueError(f"zero-size array to reduction operation {combine.name} which has no identity")
        return reduced(row, x, axes, keepdims)
    start = initial_value(initial, x.dtype)
    x = masked(x, where, start if x.dtype.kind == "c" else limits(x.dtype)[combine is minimum])
    if empty:
        return broadcast_to(start, kept_shape(x.shape, axes) if keepdims else remaining(x.shape, axes))
    return combine(start, reduced(row, x, axes, keepdims))


@implements(np.sum, samples=SUMS)
def sum_(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Value:
    """Follow `numpy.sum`."""
    return total(reduce_sum, add, 0, a, axis, dtype, keepdims, initial, where)


@implements(np.prod, samples=SUMS)
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Value:
    """Follow `numpy.prod`."""
    return total(reduce_prod, multiply, 1, a, axis, dtype, keepdims, initial, where)


@implements(np.max, np.amax, samples=EXTREMA)
def max_(
    a: Any, axis: Any = None, keepdims: bool = False, initial: Any = NO_VALUE, where: Any = NO_VALUE
) -> Value:
    """Follow `numpy.max`."""
    return extremum(reduce_max, maximum, a, axis, None, keepdims, initial, where)


@implements(np.min, np.amin, samples=EXTREMA)
def min_(
    a: Any, axis: Any = None, keepdims: bool = False, initial: Any = NO_VALUE, where: Any = NO_VALUE
) -> Value:
    """Follow `numpy.min`."""
    return extremum(reduce_min, minimum, a, axis, None, keepdims, initial, where)


@implements(np.any, samples=TESTS)
def any_(a: Any, axis: Any = None, keepdims: bool = False, *, where: Any = NO_VALUE) -> Value:
    """Follow `numpy.any`."""
    x = truth(as_array(a))
    axes = reduced_axes(axis, x.ndim)
    return reduced(reduce_any, masked(x, where, False), axes, keepdims)


@implements(np.all, samples=TESTS)
def all_(a: Any, axis: Any = None, keepdims: bool = False, *, where: Any = NO_VALUE) -> Value:
    """Follow `numpy.all`."""
    x = truth(as_array(a))
    axes = reduced_axes(axis, x.ndim)
    return reduced(reduce_all, masked(x, where, True), axes, keepdims)


@implements(np.count_nonzero, samples=TESTS[:5])
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Value:
    """Follow `numpy.count_nonzero`."""
    x = convert(truth(as_array(a)), INTP)
    return reduced(reduce_sum, x, reduced_axes(axis, x.ndim), keepdims)


@implements(np.ptp, samples=PLAIN[:3])
def ptp(a: Any, axis: Any = None, keepdims: bool = False) -> Value:
    """Follow `numpy.ptp`."""
    return max_(a, axis, keepdims) - min_(a, axis, keepdims)


def position(row: Any, a: Any, axis: Any, keepdims: bool) -> Value:
    """Reduce to the position of an element."""
    x = as_array(a)
    whole = axis is None
    axes = tuple(range(x.ndim)) if whole else (one_axis(axis, x.ndim),) if x.ndim else reduced_axes(axis, 0)
    shape = kept_shape(x.shape, axes)
    flat = reshape(x, (x.size,)) if whole or x.ndim == 0 else x
    run = 0 if whole or x.ndim == 0 else axes[0]
    if flat.shape[run] == 0:
        raise ValueError(f"attempt to get {row.name} of an empty sequence")
    result = row(flat, axes=(run,))
    return reshape(result, shape) if keepdims else result


POSITIONS = (
    sample((5,)),
    sample((3, 4), axis=1),
    sample((3, 4), axis=-2, keepdims=True),
    sample((2, 3), None, keepdims=True),
    sample(np.array([[1.0, 3.0, 3.0], [np.nan, 2.0, 1.0]]), axis=1),
    sample((), axis=0),
    sample((), axis=-1, keepdims=True),
    sample((), axis=1),
)


@implements(np.argmax, samples=POSITIONS)
def argmax_(a: Any, axis: Any = None, *, keepdims: bool = False) -> Value:
    """Follow `numpy.argmax`."""
    return position(argmax, a, axis, keepdims)


@implements(np.argmin, samples=POSITIONS)
def argmin_(a: Any, axis: Any = None, *, keepdims: bool = False) -> Value:
    """Follow `numpy.argmin`."""
    return position(argmin, a, axis, keepdims)


@implements_method("add", "reduce", samples=(*METHOD, *SUMS[5:]))
def add_reduce(
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Value:
    """Follow `numpy.add.reduce`."""
    return total(reduce_sum, add, 0, array, axis, dtype, keepdims, 0 if initial is None else initial, where)


@implements_method("multiply", "reduce", samples=(*METHOD, *SUMS[5:]))
def multiply_reduce(
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Value:
    """Follow `numpy.multiply.reduce`."""
    return total(
        reduce_prod, multiply, 1, array, axis, dtype, keepdims, 1 if initial is None else initial, where
    )


def _extremum_reduce(row: Any, combine: Elementwise) -> Callable[..., Value]:
    def reduce(
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        keepdims: bool = False,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Value:
        return extremum(
            row, combine, array, axis, dtype, keepdims, NO_VALUE if initial is None else initial, where
        )

    return reduce


implements_method("maximum", "reduce", samples=(*METHOD, *EXTREMA[5:]))(_extremum_reduce(reduce_max, maximum))
implements_method("minimum", "reduce", samples=(*METHOD, *EXTREMA[5:]))(_extremum_reduce(reduce_min, minimum))


def _logical_reduce(row: Any, combine: Elementwise, neutral: bool) -> Callable[..., Value]:
    def reduce(
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        keepdims: bool = False,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Value:
        x = masked(truth(as_array(array)), where, neutral)
        result = reduced(row, x, reduced_axes(axis, x.ndim), keepdims)
        return result if initial is NO_VALUE or initial is None else combine(truth(as_array(initial)), result)

    return reduce


def parity(x: Value, *, axes: tuple[int, ...]) -> Value:
    """Return whether an odd number of elements is true."""
    return not_equal(reduce_sum(convert(x, INTP), axes=axes) & 1, 0)


implements_method("logical_and", "reduce", samples=METHOD)(_logical_reduce(reduce_all, logical_and, True))
implements_method("logical_or", "reduce", samples=METHOD)(_logical_reduce(reduce_any, logical_or, False))
implements_method("logical_xor", "reduce", samples=METHOD)(_logical_reduce(parity, logical_xor, False))
