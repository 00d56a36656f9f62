"""Bit operations on integers and booleans."""

from __future__ import annotations

import numpy as np

from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.elementwise import Instruction, elementwise

INTEGERS = "bilqBLQ"
PAIR = ((-50.0, 50.0), (-50.0, 50.0))


def _bitwise(name: str, instruction: str) -> None:
    PRIMITIVES[name] = elementwise(
        name,
        getattr(np, name),
        body=Instruction(signed=instruction, unsigned=instruction, boolean=instruction),
        domain=PAIR,
        dtype_samples=INTEGERS + "?",
    )


_bitwise("bitwise_and", "and")
_bitwise("bitwise_or", "or")
_bitwise("bitwise_xor", "xor")

PRIMITIVES["invert"] = elementwise(
    "invert",
    np.invert,
    body=Instruction(signed="not", unsigned="not", boolean="not"),
    domain=((-50.0, 50.0),),
    dtype_samples=INTEGERS + "?",
)
