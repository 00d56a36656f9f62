"""The four operations and their nearest kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value, literal, number_of
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.elementwise import Elementwise, Instruction, Parts, elementwise, is_same, result_dtype
from gradtape.ops.core.elementwise.logic import equal, greater_equal
from gradtape.ops.core.elementwise.select import complex_where, where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.core.shift_rules import DIFFERENCE, PRODUCT, QUOTIENT, SUM, negated

inf = np.inf
PAIR = ((-3.0, 3.0), (-3.0, 3.0))
NUMBERS = "bilqBLQfd"


def complex_square(x: Parts) -> Parts:
    a, b = x
    half = a * b
    return a * a - b * b, half + half


def complex_multiply(x: Parts, y: Parts) -> Parts:
    if x is y:
        return complex_square(x)
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def complex_divide(x: Parts, y: Parts) -> Parts:
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


def complex_scaled(x: Parts, factor: float) -> Parts:
    return x[0] * factor, x[1] * factor


add = elementwise(
    "add",
    np.add,
    body=Instruction(real="fadd", signed="add", unsigned="add", boolean="or"),
    complex_body=lambda x, y: (x[0] + y[0], x[1] + y[1]),
    neutral=(-0.0, -0.0),
    tangents=(lambda d, z, x, y: d, lambda d, z, x, y: d),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: ct),
    additive=(0, 1),
    finite_derivatives=True,
    domain=PAIR,
    edges=((inf, 1.0), (inf, -inf), (0.0, -0.0)),
    dtype_samples=NUMBERS + "?",
    shift=SUM,
)
subtract = elementwise(
    "subtract",
    np.subtract,
    body=Instruction(real="fsub", signed="sub", unsigned="sub"),
    complex_body=lambda x, y: (x[0] - y[0], x[1] - y[1]),
    neutral=(None, 0.0),
    tangents=(lambda d, z, x, y: d, lambda d, z, x, y: -d),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: -ct),
    additive=(0, 1),
    finite_derivatives=True,
    domain=PAIR,
    edges=((inf, 1.0), (inf, inf), (0.0, 0.0)),
    dtype_samples=NUMBERS,
    shift=DIFFERENCE,
)
multiply = elementwise(
    "multiply",
    np.multiply,
    body=Instruction(real="fmul", signed="mul", unsigned="mul", boolean="and"),
    complex_body=complex_multiply,
    neutral=(1.0, 1.0),
    square_of=lambda x, y: x if is_same(x, y) else None,
    partials=(lambda z, x, y: y, lambda z, x, y: x),
    transpose=(lambda ct, x, y: ct * y, lambda ct, x, y: x * ct),
    finite_derivatives=True,
    domain=PAIR,
    edges=((0.0, 2.0), (inf, 2.0), (inf, 0.0)),
    dtype_samples=NUMBERS + "?",
    shift=PRODUCT,
)


def _masked_product(slope: Any, tangent: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.where(np.equal(tangent, 0), np.zeros_like(tangent), np.multiply(slope, tangent))


def _masked_dtypes(slope: Any, tangent: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    dtype = result_dtype(slope, tangent)
    return (dtype, dtype), dtype


masked_product: Elementwise = elementwise(
    "masked_product",
    _masked_product,
    body=lambda x, y: where(equal(y, 0), literal(0, y.dtype), x * y),
    complex_body=lambda x, y: complex_where(
        equal(y[0], 0) & equal(y[1], 0),
        (literal(0, y[0].dtype), literal(0, y[0].dtype)),
        complex_multiply(x, y),
    ),
    tangents=(
        lambda d, z, x, y: masked_product(d, y),
        lambda d, z, x, y: masked_product(x, d),
    ),
    transpose=(lambda ct, x, y: masked_product(ct, y), lambda ct, x, y: masked_product(x, ct)),
    finite_derivatives=True,
    dtypes=_masked_dtypes,
    domain=PAIR,
    edges=((inf, 0.0), (np.nan, 0.0), (inf, 2.0)),
    slopes=(((inf, 0.0), (0.0, inf)), ((2.0, 0.0), (0.0, 2.0))),
    kinks="a product, and 0 where the second factor is 0, whatever the first is",
)
"""A slope times a tangent from memory, which has no mask: a tangent of 0 counts as zero by selection.

A selection could not take its place: the derivative of this product in its second factor is the first also where the second is 0.
"""


def _by_divisor(z: Value, x: Value, y: Value) -> Value:
    """Return the derivative of a quotient in its divisor; that of a reciprocal needs no other division."""
    return -(z * z) if number_of(x) == 1 else -z / y


divide = elementwise(
    "divide",
    np.divide,
    body=Instruction(real="fdiv"),
    complex_body=complex_divide,
    neutral=(None, 1.0),
    tangents=(lambda d, z, x, y: d / y, lambda d, z, x, y: _by_divisor(z, x, y) * d),
    transpose=(lambda ct, x, y: ct / y, None),
    is_quotient=True,
    finite=lambda x, y: bool(number_of(y)),
    domain=((-3.0, 3.0), (0.5, 3.0)),
    edges=((1.0, 0.0), (0.0, 0.0), (1.0, inf), (inf, inf)),
    dtype_samples=NUMBERS,
    shift=QUOTIENT,
)
negative = elementwise(
    "negative",
    np.negative,
    body=Instruction(real="fneg", signed="neg", unsigned="neg"),
    complex_body=lambda x: (-x[0], -x[1]),
    is_involution=True,
    tangents=(lambda d, z, x: -d,),
    transpose=(lambda ct, x: -ct,),
    finite_derivatives=True,
    edges=((0.0,), (inf,)),
    dtype_samples=NUMBERS,
    shift=negated,
)
positive = elementwise(
    "positive",
    np.positive,
    body=lambda x: x,
    complex_body=lambda x: x,
    tangents=(lambda d, z, x: d,),
    transpose=(lambda ct, x: ct,),
    is_identity=True,
    finite=True,
    dtype_samples=NUMBERS,
)

for _row in (add, subtract, multiply, divide, negative):
    PRIMITIVES[_row.name] = _row
