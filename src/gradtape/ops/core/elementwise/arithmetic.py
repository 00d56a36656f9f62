"""The four operations and their nearest kin."""

from __future__ import annotations

import numpy as np

from gradtape.ir.graph import Value, number_of
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.elementwise import Instruction, elementwise

inf = np.inf
PAIR = ((-3.0, 3.0), (-3.0, 3.0))
NUMBERS = "bilqBLQfd"

add = elementwise(
    "add",
    np.add,
    body=Instruction(real="fadd", signed="add", unsigned="add", boolean="or"),
    tangents=(lambda d, z, x, y: d, lambda d, z, x, y: d),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: ct),
    domain=PAIR,
    edges=((inf, 1.0), (inf, -inf), (0.0, -0.0)),
    dtype_samples=NUMBERS + "?",
)
subtract = elementwise(
    "subtract",
    np.subtract,
    body=Instruction(real="fsub", signed="sub", unsigned="sub"),
    tangents=(lambda d, z, x, y: d, lambda d, z, x, y: -d),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: -ct),
    domain=PAIR,
    edges=((inf, 1.0), (inf, inf), (0.0, 0.0)),
    dtype_samples=NUMBERS,
)
multiply = elementwise(
    "multiply",
    np.multiply,
    body=Instruction(real="fmul", signed="mul", unsigned="mul", boolean="and"),
    partials=(lambda z, x, y: y, lambda z, x, y: x),
    transpose=(lambda ct, x, y: ct * y, lambda ct, x, y: x * ct),
    domain=PAIR,
    edges=((0.0, 2.0), (inf, 2.0), (inf, 0.0)),
    dtype_samples=NUMBERS + "?",
)


def _by_divisor(z: Value, x: Value, y: Value) -> Value:
    """Return the derivative of a quotient in its divisor; that of a reciprocal needs no other division."""
    return -(z * z) if number_of(x) == 1 else -z / y


divide = elementwise(
    "divide",
    np.divide,
    body=Instruction(real="fdiv"),
    tangents=(lambda d, z, x, y: d / y, lambda d, z, x, y: _by_divisor(z, x, y) * d),
    transpose=(lambda ct, x, y: ct / y, None),
    domain=((-3.0, 3.0), (0.5, 3.0)),
    edges=((1.0, 0.0), (0.0, 0.0), (1.0, inf), (inf, inf)),
    dtype_samples=NUMBERS,
)
negative = elementwise(
    "negative",
    np.negative,
    body=Instruction(real="fneg", signed="neg", unsigned="neg"),
    tangents=(lambda d, z, x: -d,),
    transpose=(lambda ct, x: -ct,),
    edges=((0.0,), (inf,)),
    dtype_samples=NUMBERS,
)


def _plus(x: Value) -> Value:
    return x


positive = elementwise(
    "positive",
    np.positive,
    body=_plus,
    tangents=(lambda d, z, x: d,),
    dtype_samples=NUMBERS,
)

for _row in (add, subtract, multiply, divide, negative):
    PRIMITIVES[_row.name] = _row
