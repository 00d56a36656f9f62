"""Powers, roots and lengths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.errors import LoweringError
from gradtape.ir.graph import Value, literal, number_of
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.elementwise import Intrinsic, Libm, elementwise
from gradtape.ops.core.elementwise.exp_log import log
from gradtape.ops.core.elementwise.floats import isfinite
from gradtape.ops.core.elementwise.logic import equal, not_equal
from gradtape.ops.core.elementwise.select import where

inf, nan = np.inf, np.nan
SPECIAL = ((0.0,), (-0.0,), (inf,), (-inf,), (nan,), (1e200,), (1e-200,))
FLOATS = "dfbl"

square = elementwise(
    "square",
    np.square,
    body=lambda x: x * x,
    partials=(lambda z, x: 2.0 * x,),
    edges=SPECIAL,
    slopes=(((0.0,), (0.0,)), ((3.0,), (6.0,))),
    dtype_samples="dfblBQ?D",
)
sqrt = elementwise(
    "sqrt",
    np.sqrt,
    body=Intrinsic("llvm.sqrt"),
    partials=(lambda z, x: 0.5 / z,),
    domain=((0.2, 4.0),),
    edges=(*SPECIAL, (-1.0,)),
    slopes=(((0.0,), (inf,)), ((inf,), (0.0,)), ((4.0,), (0.25,))),
    kinks="inf at 0",
    dtype_samples=FLOATS + "D",
)
cbrt = elementwise(
    "cbrt",
    np.cbrt,
    body=Libm("cbrt"),
    partials=(lambda z, x: (1.0 / 3.0) / (z * z),),
    domain=((0.2, 4.0),),
    edges=(*SPECIAL, (-8.0,)),
    slopes=(((0.0,), (inf,)), ((-8.0,), (1.0 / 12.0,)), ((-inf,), (0.0,))),
    kinks="inf at 0",
    dtype_samples=FLOATS,
)


def _reciprocal_body(x: Value) -> Value:
    """Of integers only 1 and -1 have a reciprocal but 0; that of 0 is what the machine makes of inf."""
    if x.dtype.kind == "f":
        return literal(1, x.dtype) / x
    zero = np.iinfo(x.dtype).min if x.dtype.kind == "i" and x.dtype.itemsize >= 4 else 0
    units = equal(x, 1) | equal(x, -1) if x.dtype.kind == "i" else equal(x, 1)
    return where(equal(x, 0), literal(zero, x.dtype), where(units, x, literal(0, x.dtype)))


reciprocal = elementwise(
    "reciprocal",
    np.reciprocal,
    body=_reciprocal_body,
    partials=(lambda z, x: -(z * z),),
    domain=((0.4, 3.0),),
    edges=SPECIAL,
    slopes=(((0.0,), (-inf,)), ((inf,), (0.0,)), ((-2.0,), (-0.25,))),
    kinks="-inf at 0",
    dtype_samples="dfbhlBHD",
)


def _whole_power(x: Value, exponent: int) -> Value:
    """Return x to a power of at least 1 by repeated squaring."""
    result: Value | None = None
    while True:
        if exponent & 1:
            result = x if result is None else result * x
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        x = x * x


def _half_power(x: Value, exponent: float) -> Value:
    """Return x to a small half power; -0.0 counts as 0.0 and -inf as inf, as they do for pow."""
    positive = x + 0.0
    root = sqrt(positive)
    whole = int(exponent)
    if exponent > 0:
        ordinary = root if whole == 0 else _whole_power(positive, whole) * root
        return where(equal(x, -inf), inf, ordinary)
    ordinary = 1.0 / root if whole == 0 else _whole_power(1.0 / positive, -whole) / root
    return where(equal(x, -inf), 0.0, ordinary)


def _easy_power(x: Value, exponent: float) -> Value | None:
    """Return x to a small whole or half power by products, quotients and one root, or None.

    Each step rounds once, so that 8 is the largest power that stays within 4 ULP.
    """
    if exponent in (0.5, 1.5, 2.5, -0.5, -1.5):
        return _half_power(x, exponent)
    if exponent != int(exponent) or not -4 <= exponent <= 8:
        return None
    if exponent == 0:
        return literal(1, x.dtype)
    return _whole_power(x, int(exponent)) if exponent > 0 else _whole_power(1.0 / x, -int(exponent))


def _integer_power(x: Value, y: Value) -> Value:
    """Square for each bit of the exponent; negative exponents are an error that only NumPy can raise."""
    number = number_of(y)
    if number is not None and number >= 0:
        return _whole_power(x, number) if number else literal(1, x.dtype)
    if y.dtype.kind == "i":
        raise LoweringError(
            "an integer to the power of signed integers cannot be compiled",
            why="NumPy raises ValueError where an exponent is negative",
            remedy="use unsigned exponents (n.astype(np.uint64)) or floating bases",
        )
    result: Value = literal(1, x.dtype)
    for bit in range(8 * y.dtype.itemsize):
        chosen = not_equal(y & literal(1 << bit, y.dtype), literal(0, y.dtype))
        result = where(chosen, result * x, result)
        x = x * x
    return result


def _power_body(x: Value, y: Value) -> Value:
    """The number 0.5 means the root itself, NaN at -inf, to np.power, though not to np.float_power."""
    if x.dtype.kind in "iu":
        return _integer_power(x, y)
    return sqrt(x) if number_of(y) == 0.5 else _float_power_body(x, y)


def _float_power_body(x: Value, y: Value) -> Value:
    exponent = number_of(y)
    if exponent is not None and x.dtype.kind == "f" and math.isfinite(exponent):
        easy = _easy_power(x, exponent)
        if easy is not None:
            return easy
    return pow_real(x, y)


def _slope_in_base(z: Value, x: Value, y: Value) -> Value:
    exponent = number_of(y)
    if exponent is not None:
        if exponent in (0, 1):
            return literal(1.0 if exponent == 1 else 0.0)
        return y * power(x, literal(exponent - 1, y.dtype))
    slope = power(x, y - 1.0)
    return where(equal(y, 0.0) & ~isfinite(slope), 0.0, y * slope)


def _slope_in_exponent(z: Value, x: Value, y: Value) -> Value:
    base = number_of(x)
    if isinstance(base, float) and 0 < base < inf:
        return z * math.log(base)
    return where(equal(x, 0.0) | equal(z, 0.0), 0.0, z * log(x))


POWER: dict[str, Any] = {
    "partials": (_slope_in_base, _slope_in_exponent),
    "domain": ((0.3, 3.0), (-3.0, 3.0)),
    "edges": (
        (0.0, 0.0),
        (0.0, 2.0),
        (0.0, -1.0),
        (-2.0, 3.0),
        (-2.0, 0.5),
        (inf, -1.0),
        (inf, 0.0),
        (-inf, 3.0),
        (1.0, nan),
        (nan, 0.0),
        (1e200, 2.0),
        (1e-200, 2.0),
    ),
    "slopes": (
        ((0.0, 0.0), (0.0, 0.0)),
        ((5e-324, 0.0), (0.0, math.log(5e-324))),
        ((0.0, 1.0), (1.0, 0.0)),
        ((0.0, 2.0), (0.0, 0.0)),
        ((0.0, 3.5), (0.0, 0.0)),
        ((0.0, 0.5), (inf, 0.0)),
        ((-2.0, 3.0), (12.0, nan)),
        ((-2.0, -1.0), (-0.25, nan)),
        ((1e-200, 2.0), (2e-200, 0.0)),
        ((inf, -2.0), (-0.0, 0.0)),
        ((2.0, 0.0), (0.0, math.log(2.0))),
    ),
}
KINKS = "x**0 gives 0 in x; 0**y gives 0 in y; x**y for x < 0 gives NaN in y"

pow_real = elementwise("pow_real", np.power, body=Libm("pow"), **POWER)
power = elementwise("power", np.power, body=_power_body, dtype_samples="dfBHQD", kinks=KINKS, **POWER)
float_power = elementwise(
    "float_power",
    np.float_power,
    body=_float_power_body,
    dtype_samples=("d", "f", "l", "fd", "ld"),
    kinks=KINKS,
    **POWER,
)


def _slope_of_length(z: Value, x: Value) -> Value:
    return where(equal(z, 0.0), 0.0, x / z)


hypot = elementwise(
    "hypot",
    np.hypot,
    body=Libm("hypot"),
    partials=(lambda z, x, y: _slope_of_length(z, x), lambda z, x, y: _slope_of_length(z, y)),
    domain=((-3.0, 3.0), (0.5, 3.0)),
    edges=(
        (0.0, 0.0),
        (0.0, -2.0),
        (1e200, 1e200),
        (1e-200, 1e-200),
        (5e-324, 0.0),
        (inf, nan),
        (-inf, 1.0),
        (nan, 1.0),
    ),
    slopes=(
        ((0.0, 0.0), (0.0, 0.0)),
        ((3e200, 4e200), (0.6, 0.8)),
        ((3e-200, -4e-200), (0.6, -0.8)),
        ((-5e-324, 0.0), (-1.0, 0.0)),
    ),
    kinks="0 in both where both are 0",
    dtype_samples="dfl",
)

PRIMITIVES["power"] = power
