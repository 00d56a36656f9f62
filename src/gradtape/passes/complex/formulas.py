"""Elementwise functions of complex numbers as formulas of real and imaginary parts.

The interpreter takes NumPy's functions; the formulas here agree with them to rounding, including where a plain formula would overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np

from gradtape.ir.graph import Literal, Value, literal
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.exp_log import exp, expm1, log, log1p
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.floats import isfinite, isinf, isnan
from gradtape.ops.core.elementwise.hyperbolic import cosh, sinh
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, not_equal
from gradtape.ops.core.elementwise.power import hypot, sqrt
from gradtape.ops.core.elementwise.rounding import rint
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import copysign, fabs
from gradtape.ops.core.elementwise.trig import arctan2, cos, sin, tan

Parts: TypeAlias = tuple[Value, Value]
"""Real and imaginary part."""

inf, nan = math.inf, math.nan

WHOLE: Final = 100
"""Exponents below which NumPy multiplies instead of taking a logarithm."""

FLAT: Final = 22.0
"""Real part beyond which tanh is 1 to rounding."""


def part_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the parts of a complex dtype."""
    return np.dtype(f"f{dtype.itemsize // 2}")


def add(x: Parts, y: Parts) -> Parts:
    return x[0] + y[0], x[1] + y[1]


def subtract(x: Parts, y: Parts) -> Parts:
    return x[0] - y[0], x[1] - y[1]


def multiply(x: Parts, y: Parts) -> Parts:
    if x is y:
        return square(x)
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def divide(x: Parts, y: Parts) -> Parts:
    """Divide by the larger part first, so that no square can overflow (R. L. Smith 1962; NumPy does the same)."""
    (a, b), (c, d) = x, y
    wide = greater_equal(fabs(c), fabs(d))
    zero = equal(c, 0.0) & equal(d, 0.0)
    large, small = where(wide, c, d), where(wide, d, c)
    ratio = where(zero, 0.0, small / large)
    scale = 1.0 / where(zero, fabs(c), large + small * ratio)
    first, second = where(wide, a, b), where(wide, b, a)
    real = where(zero, a, first + second * ratio)
    across = second - first * ratio
    return real * scale, where(zero, b, where(wide, across, -across)) * scale


def reciprocal(x: Parts) -> Parts:
    a, b = x
    wide = greater_equal(fabs(a), fabs(b))
    large, small = where(wide, a, b), where(wide, b, a)
    ratio = small / large
    length = large + small * ratio
    return where(wide, 1.0, ratio) / length, -where(wide, ratio, 1.0) / length


def negative(x: Parts) -> Parts:
    return -x[0], -x[1]


def absolute(x: Parts) -> Value:
    return hypot(x[0], x[1])


def square(x: Parts) -> Parts:
    a, b = x
    half = a * b
    return a * a - b * b, half + half


def scaled(x: Parts, factor: float) -> Parts:
    return x[0] * factor, x[1] * factor


def exponential(x: Parts) -> Parts:
    """Half of the exponent at a time: exp(a) may overflow where exp(a) cos(b) does not."""
    a, b = x
    half = exp(a * 0.5)
    vanished = equal(a, -inf)
    real = where(vanished, 0.0, half * cos(b) * half)
    return real, where(vanished | equal(b, 0.0), b * 0.0, half * sin(b) * half)


def exponential_less_one(x: Parts) -> Parts:
    a, b = x
    half = sin(b * 0.5)
    return expm1(a) * cos(b) - 2.0 * half * half, exp(a) * sin(b)


def logarithm(x: Parts) -> Parts:
    """The square of the length, less one, without the cancellation of one part near one; far from there by the larger part."""
    a, b = fabs(x[0]), fabs(x[1])
    large, small = maximum(a, b), minimum(a, b)
    near = 0.5 * log1p((large - 1.0) * (large + 1.0) + small * small)
    ratio = where(equal(large, small), 1.0, small / large)
    far = log(large) + 0.5 * log1p(ratio * ratio)
    return where(greater(large, 0.5) & less(large, 2.0), near, far), arctan2(x[1], x[0])


def root(x: Parts) -> Parts:
    """The part that does not cancel first; of a sixteenth or of sixteen times x, so that the length stays in range (W. Kahan 1987)."""
    low = less(maximum(fabs(x[0]), fabs(x[1])), 1.0)
    scale = where(low, literal(16.0, x[0].dtype), literal(0.0625, x[0].dtype))
    a, b = x[0] * scale, x[1] * scale
    back = where(low, literal(0.25, a.dtype), literal(4.0, a.dtype))
    long = sqrt(fabs(a) * 0.5 + hypot(a, b) * 0.5)
    short = where(equal(long, 0.0), fabs(b), fabs(b) * 0.5 / long)
    right = greater_equal(a, 0.0)
    real = where(right, long, short) * back
    imag = copysign(where(right, short, long), b) * back
    endless = isinf(b)
    return where(endless, inf, real), where(endless | isnan(b), b, imag)


class _Growth:
    """Products with sinh(x) and cosh(x), by those of half of x: a product may be finite where they overflow.

    The other factor is a sine or cosine; its zeros win against infinity.
    """

    __slots__ = ("_cosh", "_sinh")

    def __init__(self, x: Value) -> None:
        self._sinh, self._cosh = sinh(x * 0.5), cosh(x * 0.5)

    def sinh(self, wave: Value) -> Value:
        product = (wave * self._sinh) * (2.0 * self._cosh)
        return where(equal(wave, 0.0), wave * copysign(1.0, self._sinh), product)

    def cosh(self, wave: Value) -> Value:
        return where(equal(wave, 0.0), wave, (wave * self._cosh) * (2.0 * self._cosh) - wave)


def hyperbolic_sine(x: Parts) -> Parts:
    growth = _Growth(x[0])
    return growth.sinh(cos(x[1])), growth.cosh(sin(x[1]))


def hyperbolic_cosine(x: Parts) -> Parts:
    growth = _Growth(x[0])
    return growth.cosh(cos(x[1])), growth.sinh(sin(x[1]))


def sine(x: Parts) -> Parts:
    growth = _Growth(x[1])
    return growth.cosh(sin(x[0])), growth.sinh(cos(x[0]))


def cosine(x: Parts) -> Parts:
    growth = _Growth(x[1])
    return growth.cosh(cos(x[0])), -growth.sinh(sin(x[0]))


def hyperbolic_tangent(x: Parts) -> Parts:
    """By the tangent of the imaginary part, which neither overflows nor cancels (W. Kahan 1987)."""
    a, b = x
    t = tan(b)
    s = sinh(a)
    stretch = 1.0 + t * t
    below = 1.0 + stretch * s * s
    far = greater(fabs(a), FLAT)
    real = where(far, copysign(1.0, a), stretch * sqrt(1.0 + s * s) * s / below)
    return real, where(far, 4.0 * sin(b) * cos(b) * exp(-2.0 * fabs(a)), t / below)


def tangent(x: Parts) -> Parts:
    real, imag = hyperbolic_tangent((-x[1], x[0]))
    return imag, -real


def power(x: Parts, y: Parts) -> Parts:
    """Multiply for small whole exponents; otherwise exp(y log x), and at 0 what NumPy says."""
    if isinstance(y[0], Literal) and isinstance(y[1], Literal):
        exponent, turn = float(y[0].data), float(y[1].data)  # type: ignore[arg-type]
        if turn == 0 and exponent == int(exponent) and abs(exponent) < WHOLE:
            return _whole_power(x, int(exponent))
    real, imag = exponential(multiply(y, logarithm(x)))
    zero = equal(x[0], 0.0) & equal(x[1], 0.0)
    rises = greater(y[0], 0.0)
    constant = equal(y[0], 0.0) & equal(y[1], 0.0)
    at_zero = where(rises, 0.0, literal(nan, real.dtype))
    return (
        where(constant, 1.0, where(zero, at_zero, real)),
        where(constant, 0.0, where(zero, at_zero, imag)),
    )


def _whole_power(x: Parts, exponent: int) -> Parts:
    if exponent == 0:
        return literal(1, x[0].dtype), literal(0, x[0].dtype)
    factors = []
    factor, left = x, abs(exponent)
    while left:
        if left & 1:
            factors.append(factor)
        left >>= 1
        factor = multiply(factor, factor) if left else factor
    product = reduce(multiply, factors)
    return product if exponent > 0 else reciprocal(product)


def cardinal_sine(x: Parts) -> Parts:
    angle = scaled(x, math.pi)
    real, imag = divide(sine(angle), angle)
    zero = equal(x[0], 0.0) & equal(x[1], 0.0)
    return where(zero, 1.0, real), where(zero, 0.0, imag)


def cast(x: Value | Parts, *, dtype: np.dtype[Any]) -> Value | Parts:
    """Return another dtype: from complex numbers to real ones the imaginary part is dropped, but for their truth."""
    if dtype.kind == "c":
        part = part_dtype(dtype)
        if isinstance(x, Value):
            return convert(x, part), literal(0, part)
        return convert(x[0], part), convert(x[1], part)
    assert not isinstance(x, Value)
    return truth(x) if dtype.kind == "b" else convert(x[0], dtype)


def chosen(c: Value, x: Parts, y: Parts) -> Parts:
    return where(c, x[0], y[0]), where(c, x[1], y[1])


def same(x: Parts, y: Parts) -> Value:
    return equal(x[0], y[0]) & equal(x[1], y[1])


def different(x: Parts, y: Parts) -> Value:
    return not_equal(x[0], y[0]) | not_equal(x[1], y[1])


def truth(x: Value | Parts) -> Value:
    if isinstance(x, Value):
        return x if x.dtype.kind == "b" else not_equal(x, 0)
    return not_equal(x[0], 0.0) | not_equal(x[1], 0.0)


def before(x: Parts, y: Parts) -> Value:
    """The order by real parts, then by imaginary parts; a NaN in any part has no place in it."""
    ordered = equal(x[1], x[1]) & equal(y[1], y[1])
    return (less(x[0], y[0]) & ordered) | (equal(x[0], y[0]) & less(x[1], y[1]))


def at_least(x: Parts, y: Parts) -> Value:
    return before(y, x) | same(x, y)


def missing(x: Parts) -> Value:
    return isnan(x[0]) | isnan(x[1])


def larger(x: Parts, y: Parts) -> Parts:
    return chosen(missing(x) | at_least(x, y), x, y)


def smaller(x: Parts, y: Parts) -> Parts:
    return chosen(missing(x) | at_least(y, x), x, y)


def direction(x: Parts) -> Parts:
    length = hypot(x[0], x[1])
    zero = equal(length, 0.0)
    return where(zero, 0.0, x[0] / length), where(zero, 0.0, x[1] / length)


FORMULAS: Final[dict[str, Callable[..., Value | Parts]]] = {
    "absolute": absolute,
    "add": add,
    "clip": lambda x, low, high: smaller(larger(x, low), high),
    "conjugate": lambda x: (x[0], -x[1]),
    "convert": cast,
    "cos": cosine,
    "cosh": hyperbolic_cosine,
    "divide": divide,
    "equal": same,
    "exp": exponential,
    "exp2": lambda x: exponential(scaled(x, math.log(2.0))),
    "expm1": exponential_less_one,
    "float_power": power,
    "fmax": lambda x, y: chosen(missing(y) | at_least(x, y), x, y),
    "fmin": lambda x, y: chosen(missing(y) | at_least(y, x), x, y),
    "from_parts": lambda x, y: (x, y),
    "greater": lambda x, y: before(y, x),
    "greater_equal": at_least,
    "identity": lambda x: x,
    "imag": lambda x: x[1],
    "isfinite": lambda x: isfinite(x[0]) & isfinite(x[1]),
    "isinf": lambda x: isinf(x[0]) | isinf(x[1]),
    "isnan": missing,
    "less": before,
    "less_equal": lambda x, y: at_least(y, x),
    "log": logarithm,
    "log10": lambda x: scaled(logarithm(x), 1.0 / math.log(10.0)),
    "log1p": lambda x: (log(hypot(x[0] + 1.0, x[1])), arctan2(x[1], x[0] + 1.0)),
    "log2": lambda x: scaled(logarithm(x), 1.0 / math.log(2.0)),
    "logical_and": lambda x, y: truth(x) & truth(y),
    "logical_not": lambda x: ~truth(x),
    "logical_or": lambda x, y: truth(x) | truth(y),
    "logical_xor": lambda x, y: not_equal(truth(x), truth(y)),
    "maximum": larger,
    "minimum": smaller,
    "multiply": multiply,
    "negative": negative,
    "not_equal": different,
    "positive": lambda x: x,
    "power": power,
    "real": lambda x: x[0],
    "reciprocal": reciprocal,
    "rint": lambda x: (rint(x[0]), rint(x[1])),
    "sign": direction,
    "sin": sine,
    "sinc": cardinal_sine,
    "sinh": hyperbolic_sine,
    "sqrt": root,
    "square": square,
    "stop_gradient": lambda x: x,
    "subtract": subtract,
    "tan": tangent,
    "tanh": hyperbolic_tangent,
    "where": chosen,
}
"""By row, the formula: complex operands as pairs, all others as values."""
