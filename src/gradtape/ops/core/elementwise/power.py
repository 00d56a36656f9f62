"""Powers."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, Final

import numpy as np

from gradtape.errors import LoweringError
from gradtape.ir.graph import Literal, Value, literal, number_of
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.elementwise import Elementwise, Libm, Parts, elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.reduction import Reduction
from gradtape.ops.core.elementwise.arithmetic import complex_multiply
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.exponential import complex_exp
from gradtape.ops.core.elementwise.floats import isfinite
from gradtape.ops.core.elementwise.inverse import complex_log, log
from gradtape.ops.core.elementwise.logic import equal, greater, not_equal
from gradtape.ops.core.elementwise.roots import complex_reciprocal, sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shift_rules import Power

inf, nan = np.inf, np.nan
WHOLE = 100
"""Exponents of complex numbers below which NumPy multiplies instead of taking a logarithm."""


_SQUARES: Final = bool((np.ones(1, bool) ** 2).dtype == np.int8)


def is_square(dtype: np.dtype[Any], exponent: Any) -> bool:
    """Return whether NumPy's operator ``**`` of an array squares booleans with `numpy.square`, which makes int8 of them."""
    return type(exponent) is int and exponent == 2 and dtype.char == "?" and _SQUARES


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


def _is_never_negative(x: Value, depth: int = 8) -> bool:
    """Return whether an integer counts something: it is a truth value or without a sign, or a sum or an extremum of such numbers."""
    if x.dtype.kind in "bu":
        return True
    if isinstance(x, Literal):
        return bool(np.all(np.asarray(x.data) >= 0))
    node = x.node
    if node is None or depth == 0:
        return False
    op = node.op
    if isinstance(op, IndexMap | Reduction) or (isinstance(op, Elementwise) and op.is_identity):
        source = node.inputs[0]
        if source.dtype.kind == "u" and source.dtype.itemsize >= x.dtype.itemsize:
            return False  # the conversion may wrap around
        return source.dtype.kind in "biu" and _is_never_negative(source, depth - 1)
    return False


def _integer_power(x: Value, y: Value) -> Value:
    """Square for each bit of the exponent; negative exponents are an error that only NumPy can raise, unless there are none."""
    number = number_of(y)
    if number is not None and number >= 0:
        return _whole_power(x, number) if number else literal(1, x.dtype)
    if y.dtype.kind == "i" and not _is_never_negative(y):
        raise LoweringError(
            "an integer to the power of signed integers cannot be compiled",
            why="NumPy raises ValueError where an exponent is negative",
            remedy="use unsigned exponents (n.astype(np.uint64)) or floating bases",
        )
    base = number_of(x)
    if base in (1, -1) and x.dtype.kind == "i":  # signs, as of the number of exchanges
        odd = convert(y & literal(1, y.dtype), x.dtype)
        sign: Value = literal(1, x.dtype) - (1 - int(base)) * odd
        return sign
    result: Value = literal(1, x.dtype)
    for bit in range(8 * y.dtype.itemsize - (y.dtype.kind == "i")):
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


def _complex_power(x: Parts, y: Parts) -> Parts:
    """Multiply for small whole exponents; otherwise exp(y log x), and at 0 what NumPy says."""
    if isinstance(y[0], Literal) and isinstance(y[1], Literal):
        exponent, imaginary = float(y[0].data), float(y[1].data)  # type: ignore[arg-type]
        if imaginary == 0 and exponent == int(exponent) and abs(exponent) < WHOLE:
            return _complex_whole_power(x, int(exponent))
    real, imag = complex_exp(complex_multiply(y, complex_log(x)))
    zero = equal(x[0], 0.0) & equal(x[1], 0.0)
    rises = greater(y[0], 0.0)
    constant = equal(y[0], 0.0) & equal(y[1], 0.0)
    at_zero = where(rises, 0.0, literal(nan, real.dtype))
    return (
        where(constant, 1.0, where(zero, at_zero, real)),
        where(constant, 0.0, where(zero, at_zero, imag)),
    )


def _complex_whole_power(x: Parts, exponent: int) -> Parts:
    if exponent == 0:
        return literal(1, x[0].dtype), literal(0, x[0].dtype)
    factors = []
    factor, left = x, abs(exponent)
    while left:
        if left & 1:
            factors.append(factor)
        left >>= 1
        factor = complex_multiply(factor, factor) if left else factor
    product = reduce(complex_multiply, factors)
    return product if exponent > 0 else complex_reciprocal(product)


POWER: dict[str, Any] = {
    "is_power": True,
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
KINKS = "x**0 gives 0 in x; 0**y gives 0 in y (the derivative in x and y does not exist there for y <= 1); x**y for x < 0 gives NaN in y"

pow_real = elementwise("pow_real", np.power, body=Libm("pow", arity=2), **POWER)


def _is_whole_and_positive(x: Value, y: Value) -> bool:
    exponent = number_of(y)
    return isinstance(exponent, int | float) and exponent > 0 and exponent == int(exponent)


power = elementwise(
    "power",
    np.power,
    square_of=lambda x, y: x if number_of(y) == 2 else None,
    body=_power_body,
    complex_body=_complex_power,
    dtype_samples="dfBHQD",
    finite=_is_whole_and_positive,
    kinks=KINKS,
    **POWER,
    shift=Power(),
)
float_power = elementwise(
    "float_power",
    np.float_power,
    square_of=lambda x, y: x if number_of(y) == 2 else None,
    body=_float_power_body,
    complex_body=_complex_power,
    dtype_samples=("d", "f", "l", "fd", "ld"),
    finite=_is_whole_and_positive,
    kinks=KINKS,
    **POWER,
)

PRIMITIVES["power"] = power
