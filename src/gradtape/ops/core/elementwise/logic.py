"""Comparisons and logic: results are booleans, so none has a derivative."""

from __future__ import annotations

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.elementwise import Elementwise, Instruction, elementwise

PAIR = ((-2.0, 2.0), (-2.0, 2.0))
TIES = ((1.0, 1.0), (np.nan, 1.0), (np.inf, np.inf), (-np.inf, np.inf), (0.0, -0.0))
ORDERED = "bilqBLQfd"


def _comparison(name: str, real: str, signed: str, unsigned: str) -> Elementwise:
    PRIMITIVES[name] = row = elementwise(
        name,
        getattr(np, name),
        body=Instruction(
            real=f"fcmp {real}",
            signed=f"icmp {signed}",
            unsigned=f"icmp {unsigned}",
            boolean=f"icmp {unsigned}",
        ),
        domain=PAIR,
        edges=TIES,
        dtype_samples=ORDERED,
    )
    return row


less = _comparison("less", "olt", "slt", "ult")
less_equal = _comparison("less_equal", "ole", "sle", "ule")
greater = _comparison("greater", "ogt", "sgt", "ugt")
greater_equal = _comparison("greater_equal", "oge", "sge", "uge")
equal = _comparison("equal", "oeq", "eq", "eq")
not_equal = _comparison("not_equal", "une", "ne", "ne")


def truth(x: Value) -> Value:
    """Return whether each element is not zero."""
    return x if x.dtype.kind == "b" else PRIMITIVES["not_equal"](x, 0)


logical_not = elementwise(
    "logical_not",
    np.logical_not,
    body=lambda x: PRIMITIVES["invert"](truth(x)),
    edges=((0.0,), (-0.0,), (np.nan,), (np.inf,)),
    dtype_samples=ORDERED + "?",
)
logical_and = elementwise(
    "logical_and",
    np.logical_and,
    body=lambda x, y: truth(x) & truth(y),
    domain=PAIR,
    edges=((0.0, 1.0), (np.nan, 1.0), (0.0, 0.0)),
    dtype_samples=ORDERED + "?",
)
logical_or = elementwise(
    "logical_or",
    np.logical_or,
    body=lambda x, y: truth(x) | truth(y),
    domain=PAIR,
    edges=((0.0, 1.0), (np.nan, 0.0), (0.0, 0.0)),
    dtype_samples=ORDERED + "?",
)
logical_xor = elementwise(
    "logical_xor",
    np.logical_xor,
    body=lambda x, y: PRIMITIVES["not_equal"](truth(x), truth(y)),
    domain=PAIR,
    edges=((0.0, 1.0), (np.nan, 0.0), (0.0, 0.0)),
    dtype_samples=ORDERED + "?",
)
