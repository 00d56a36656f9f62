"""Comparisons, logic and bit operations: results are booleans or integers, so none has a derivative."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.elementwise import Elementwise, Instruction, Parts, elementwise

PAIR = ((-2.0, 2.0), (-2.0, 2.0))
TIES = ((1.0, 1.0), (np.nan, 1.0), (np.inf, np.inf), (-np.inf, np.inf), (0.0, -0.0))
ORDERED = "bilqBLQfd"
INTEGERS = "bilqBLQ"
BITS = ((-50.0, 50.0), (-50.0, 50.0))


def _complex_less(x: Parts, y: Parts) -> Value:
    """The order by real parts, then by imaginary parts; a NaN in any part has no place in it."""
    ordered = equal(x[1], x[1]) & equal(y[1], y[1])
    return (less(x[0], y[0]) & ordered) | (equal(x[0], y[0]) & less(x[1], y[1]))


def _complex_equal(x: Parts, y: Parts) -> Value:
    return equal(x[0], y[0]) & equal(x[1], y[1])


def complex_greater_equal(x: Parts, y: Parts) -> Value:
    return _complex_less(y, x) | _complex_equal(x, y)


def _complex_not_equal(x: Parts, y: Parts) -> Value:
    return not_equal(x[0], y[0]) | not_equal(x[1], y[1])


def _comparison(
    name: str, real: str, signed: str, unsigned: str, complex_body: Callable[[Parts, Parts], Value]
) -> Elementwise:
    return elementwise(
        name,
        getattr(np, name),
        body=Instruction(
            real=f"fcmp {real}",
            signed=f"icmp {signed}",
            unsigned=f"icmp {unsigned}",
            boolean=f"icmp {unsigned}",
        ),
        complex_body=complex_body,
        finite_derivatives=True,
        domain=PAIR,
        edges=TIES,
        dtype_samples=ORDERED,
    )


less = _comparison("less", "olt", "slt", "ult", _complex_less)
less_equal = _comparison("less_equal", "ole", "sle", "ule", lambda x, y: complex_greater_equal(y, x))
greater = _comparison("greater", "ogt", "sgt", "ugt", lambda x, y: _complex_less(y, x))
greater_equal = _comparison("greater_equal", "oge", "sge", "uge", complex_greater_equal)
equal = _comparison("equal", "oeq", "eq", "eq", _complex_equal)
not_equal = _comparison("not_equal", "une", "ne", "ne", _complex_not_equal)


def truth(x: Value | Parts) -> Value:
    """Return whether each element, which may be complex, is not zero."""
    if isinstance(x, Value):
        return x if x.dtype.kind == "b" else not_equal(x, 0)
    return not_equal(x[0], 0.0) | not_equal(x[1], 0.0)


logical_not = elementwise(
    "logical_not",
    np.logical_not,
    body=lambda x: ~truth(x),
    complex_body=lambda x: ~truth(x),
    edges=((0.0,), (-0.0,), (np.nan,), (np.inf,)),
    dtype_samples=ORDERED + "?",
)
logical_and = elementwise(
    "logical_and",
    np.logical_and,
    body=lambda x, y: truth(x) & truth(y),
    complex_body=lambda x, y: truth(x) & truth(y),
    domain=PAIR,
    edges=((0.0, 1.0), (np.nan, 1.0), (0.0, 0.0)),
    dtype_samples=ORDERED + "?",
)
logical_or = elementwise(
    "logical_or",
    np.logical_or,
    body=lambda x, y: truth(x) | truth(y),
    complex_body=lambda x, y: truth(x) | truth(y),
    domain=PAIR,
    edges=((0.0, 1.0), (np.nan, 0.0), (0.0, 0.0)),
    dtype_samples=ORDERED + "?",
)
logical_xor = elementwise(
    "logical_xor",
    np.logical_xor,
    body=lambda x, y: not_equal(truth(x), truth(y)),
    complex_body=lambda x, y: not_equal(truth(x), truth(y)),
    domain=PAIR,
    edges=((0.0, 1.0), (np.nan, 0.0), (0.0, 0.0)),
    dtype_samples=ORDERED + "?",
)


def _bitwise(name: str, instruction: str, is_idempotent: bool = False) -> Elementwise:
    return elementwise(
        name,
        getattr(np, name),
        body=Instruction(signed=instruction, unsigned=instruction, boolean=instruction),
        is_idempotent=is_idempotent,
        domain=BITS,
        dtype_samples=INTEGERS + "?",
    )


bitwise_and = _bitwise("bitwise_and", "and", is_idempotent=True)
bitwise_or = _bitwise("bitwise_or", "or", is_idempotent=True)
bitwise_xor = _bitwise("bitwise_xor", "xor")
invert = elementwise(
    "invert",
    np.invert,
    body=Instruction(signed="not", unsigned="not", boolean="not"),
    is_involution=True,
    finite_derivatives=True,
    domain=((-50.0, 50.0),),
    dtype_samples=INTEGERS + "?",
)

for _row in (
    less,
    less_equal,
    greater,
    greater_equal,
    equal,
    not_equal,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    invert,
):
    PRIMITIVES[_row.name] = _row
