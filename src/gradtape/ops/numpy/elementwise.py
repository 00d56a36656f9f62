"""Functions of NumPy that work element by element and are not ufuncs, as compositions of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.errors import DtypeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import BOOL, FLOAT64, is_inexact
from gradtape.kinds.arguments import NO_VALUE, as_array, as_int, operand_dtypes
from gradtape.kinds.elementwise import promotion_type, result_dtype
from gradtape.kinds.operands import as_value, beside, number_dtype
from gradtape.kinds.registry import borrows, implements, sample
from gradtape.ops.core.elementwise.arithmetic import divide, multiply, positive
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import from_parts, imag, real
from gradtape.ops.core.elementwise.exponential import sinc as sinc_row
from gradtape.ops.core.elementwise.extrema import clip as clip_row
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.floats import isfinite, isinf, isnan, rint, trunc
from gradtape.ops.core.elementwise.inverse import arctan2
from gradtape.ops.core.elementwise.logic import equal, less_equal
from gradtape.ops.core.elementwise.roots import sqrt, square
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute, signbit
from gradtape.ops.core.join import full
from gradtape.ops.core.lengths import as_number, count_to
from gradtape.ops.scipy.special.bessel import i0 as i0_row

inf, nan = np.inf, np.nan
ROUNDED = np.array([0.125, 2.5, -3.5, 1234.567, inf, nan])
SPECIAL = np.array([1.5, nan, inf, -inf, -0.0])


def _no_complex(x: Value, name: str) -> None:
    if x.dtype.kind == "c":
        raise DtypeError(
            f"np.{name} does not take complex numbers here",
            where=here.site,
            remedy=f"apply np.{name} to x.real and x.imag",
        )


@implements(
    np.clip,
    samples=(
        sample((2, 3), -0.5, 0.5),
        sample((3,), None, 0.5),
        sample((2, 3), min=0.0),
        sample((2, 3), (3,), (2, 1)),
        sample((3,)),
        sample((2, 3), -0.5, 0.5, dtype=np.float32),
        sample((2, 3), None, 0.5, dtype=np.complex128),
        sample(np.array([1, 5, -3]), 0, 4, dtype=np.float64),
        sample(np.array([1.5, 5.0, -3.0]), 0, 4, dtype=int, casting="unsafe"),
    ),
)
def clip(
    a: Any,
    a_min: Any = NO_VALUE,
    a_max: Any = NO_VALUE,
    *,
    min: Any = NO_VALUE,
    max: Any = NO_VALUE,
    dtype: Any = None,
    casting: str = "same_kind",
    order: str = "K",
    subok: bool = True,
) -> Value:
    """Stand in for np.clip."""
    if a_min is NO_VALUE and a_max is NO_VALUE:
        low, high = (None if bound is NO_VALUE else bound for bound in (min, max))
    elif a_min is NO_VALUE or a_max is NO_VALUE:
        missing = "a_min" if a_min is NO_VALUE else "a_max"
        raise TypeError(f"clip() missing 1 required positional argument: '{missing}'")
    elif min is not NO_VALUE or max is not NO_VALUE:
        raise ValueError(
            "Passing `min` or `max` keyword argument when `a_min` and `a_max` are provided is forbidden."
        )
    else:
        low, high = a_min, a_max
    x = as_array(a)
    if x.dtype.kind in "iu":
        low, high = _within_range(x.dtype, low, high)
    if dtype is not None:
        x, low, high = _converted_to(number_dtype(dtype), casting, x, low, high)
    if low is None and high is None:
        return positive(x)
    low, high = beside(low, x.dtype), beside(high, x.dtype)
    bounds = [promotion_type(as_value(bound).aval) for bound in (low, high) if bound is not None]
    if is_inexact(result_dtype(x.dtype, *bounds)):
        return clip_row(x, -inf if low is None else low, inf if high is None else high)
    if low is None:
        return minimum(x, high)
    return maximum(x, low) if high is None else clip_row(x, low, high)


def _converted_to(dtype: np.dtype[Any], casting: str, x: Value, *bounds: Any) -> list[Any]:
    """Return the operands of a clip whose result is to have a dtype. Its ufuncs convert all of them to this dtype."""
    given = [None if bound is None else as_value(bound) for bound in bounds]
    for one in (x, *given):
        if one is not None:  # raises NumPy's error
            operand_dtypes(np.positive, [one.aval], dtype, casting)
    return [one if one is None else convert(one, dtype) for one in (x, *given)]


def _within_range(dtype: np.dtype[Any], low: Any, high: Any) -> tuple[Any, Any]:
    """Drop Python integers that bound nothing, so that they need not fit the dtype; where they have no literals, limit them."""
    limits = np.iinfo(dtype)
    if _is_python_integer(low):
        low = maximum(low, int(limits.min)) if limits.min > np.iinfo(low.dtype).min else low
    if _is_python_integer(high):
        high = minimum(high, int(limits.max)) if limits.max < np.iinfo(high.dtype).max else high
    return (
        None if type(low) is int and low <= limits.min else low,
        None if type(high) is int and high >= limits.max else high,
    )


def _is_python_integer(x: Any) -> bool:
    return isinstance(x, Value) and x.aval.weak and x.dtype.kind == "i"


@implements(
    np.round,
    np.around,
    samples=(sample(ROUNDED), sample(ROUNDED, 2), sample(ROUNDED, decimals=-2), sample((2, 3), 1)),
    smooth=False,
)
def round_(a: Any, decimals: Any = 0) -> Value:
    """Stand in for np.round."""
    x, places = as_array(a), as_int(decimals, "decimals")
    if x.dtype.kind in "iu":
        if places >= 0:
            return x
        scale = 10.0**-places
        return convert(multiply(rint(divide(convert(x, FLOAT64), scale)), scale), x.dtype)
    if places == 0:
        return rint(x)
    if x.dtype == BOOL:
        raise DtypeError(
            "np.round of booleans takes no decimals",
            where=here.site,
            remedy="convert them with .astype(float)",
        )
    scale = 10.0 ** abs(places)
    return divide(rint(multiply(x, scale)), scale) if places > 0 else multiply(rint(divide(x, scale)), scale)


@implements(np.fix, samples=(sample(ROUNDED), sample((2, 3))), dtypes="?bBqf", smooth=False)
def fix(x: Any) -> Value:
    """Stand in for np.fix."""
    return trunc(as_array(x))


@implements(np.sinc, samples=(sample((2, 3)), sample(np.array([0.0, 1.0, 1e-9]))))
def sinc(x: Any) -> Value:
    """Stand in for np.sinc."""
    return sinc_row(as_array(x))


@implements(np.i0, samples=(sample((2, 3)), sample(np.array([0.0, 9.0, -20.0]))), dtypes="?bBqf")
def i0(x: Any) -> Value:
    """Stand in for np.i0."""
    array = as_array(x)
    if array.dtype.kind == "c":
        raise TypeError("i0 not supported for complex values")
    dtype = array.dtype if array.dtype.kind == "f" else FLOAT64
    return convert(
        i0_row(convert(array, dtype)), dtype
    )  # SciPy's row computes half precision in double precision


@borrows("numpy:kaiser")
def kaiser(M: Any, beta: Any) -> Value:
    """Follow `numpy.kaiser`: its own code builds an array of both arguments, and the slope in `M` is infinite at both ends."""
    count = as_int(M, "M")
    if count <= 1:
        return full((max(count, 0),), 1, FLOAT64)
    middle = as_number(count - 1) / 2
    arc = sqrt(1 - square((count_to(count) - middle) / middle))
    shape = as_array(beta, "beta")
    return i0(shape * arc) / i0(shape)


@implements(
    np.nan_to_num,
    samples=(sample(SPECIAL), sample(SPECIAL, nan=1.0, posinf=2.0, neginf=-2.0), sample((2, 3))),
)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Value:
    """Stand in for np.nan_to_num; a traced array is a value, so that it is always a copy."""
    array = as_array(x)
    if not is_inexact(array.dtype):
        return array
    if array.dtype.kind == "c":
        first, second = (nan_to_num(part(array), copy, nan, posinf, neginf) for part in (real, imag))
        return from_parts(first, second)
    limits = np.finfo(array.dtype)

    def filled(number: Any, default: Any) -> Value:
        return convert(as_value(default if number is None else number), array.dtype)

    infinite = where(signbit(array), filled(neginf, limits.min), filled(posinf, limits.max))
    return where(isnan(array), filled(nan, 0.0), where(isinf(array), infinite, array))


@implements(np.real, samples=(sample((2, 3)),))
def real_part(val: Any) -> Value:
    """Stand in for np.real."""
    return real(as_array(val))


@implements(np.imag, samples=(sample((2, 3)),))
def imaginary_part(val: Any) -> Value:
    """Stand in for np.imag."""
    return imag(as_array(val))


@implements(np.angle, samples=(sample((2, 3)), sample((3,), deg=True), sample(np.array([1.0, -1.0, 0.0]))))
def angle(z: Any, deg: bool = False) -> Value:
    """Stand in for np.angle."""
    x = as_array(z)
    radians = arctan2(imag(x), real(x)) if x.dtype.kind == "c" else arctan2(literal(0), x)
    return radians * (180.0 / math.pi) if deg else radians


@implements(np.isreal, samples=(sample((2, 3)),), smooth=False)
def isreal(x: Any) -> Value:
    """Stand in for np.isreal."""
    return equal(imag(as_array(x)), 0)


@implements(np.iscomplex, samples=(sample((2, 3)),), smooth=False)
def iscomplex(x: Any) -> Value:
    """Stand in for np.iscomplex."""
    return ~isreal(x)


@implements(np.isposinf, samples=(sample(SPECIAL), sample((2, 3))), dtypes="?bBqf", smooth=False)
def isposinf(x: Any) -> Value:
    """Stand in for np.isposinf."""
    array = as_array(x)
    _no_complex(array, "isposinf")
    return isinf(array) & ~_is_negative(array)


@implements(np.isneginf, samples=(sample(SPECIAL), sample((2, 3))), dtypes="?bBqf", smooth=False)
def isneginf(x: Any) -> Value:
    """Stand in for np.isneginf."""
    array = as_array(x)
    _no_complex(array, "isneginf")
    return isinf(array) & _is_negative(array)


def _is_negative(x: Value) -> Value:
    return signbit(x) if x.dtype.kind == "f" else isinf(x)


@implements(
    np.isclose,
    samples=(
        sample((2, 3), (3,)),
        sample(SPECIAL, np.array([1.5 + 1e-9, nan, inf, inf, 1e-9])),
        sample(SPECIAL, SPECIAL, equal_nan=True),
        sample(np.array([1.0, 1.1]), 1.05, rtol=0.0, atol=0.06),
    ),
    smooth=False,
)
def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Value:
    """Stand in for np.isclose."""
    x, y = as_value(a), as_array(b)
    y = convert(y, result_dtype(y.dtype, float))
    near = less_equal(absolute(x - y), atol + rtol * absolute(y)) & isfinite(y) | equal(x, y)
    return near | (isnan(x) & isnan(y)) if equal_nan else near
