"""Monoids of reductions: the instruction that combines, and its identity."""

from __future__ import annotations

from typing import Final

import numpy as np

from gradtape.ir.graph import Node
from gradtape.kinds.elementwise import Instruction
from gradtape.kinds.reduction import Reduction
from gradtape.loops.ir import Const, Dtype, const

COMBINE: Final = {
    "add": ("add", Instruction(real="fadd", signed="add", unsigned="add", boolean="or")),
    "multiply": ("multiply", Instruction(real="fmul", signed="mul", unsigned="mul", boolean="and")),
    "maximum": ("maximum", Instruction("llvm.maximum", "llvm.smax", "llvm.umax", "or")),
    "minimum": ("minimum", Instruction("llvm.minimum", "llvm.smin", "llvm.umin", "and")),
    "or": ("logical_or", Instruction(boolean="or")),
    "and": ("logical_and", Instruction(boolean="and")),
}
"""By monoid: the row and the instruction that combine; extrema hand NaN on, as NumPy's do."""


def monoid_of(node: Node) -> str:
    """Return the name of the monoid of a reduction or contraction."""
    if isinstance(node.op, Reduction):
        return node.op.monoid
    return "or" if node.out.dtype.kind == "b" else "add"


def identity(name: str, dtype: Dtype) -> Const:
    """Return what leaves every number as it is when combined with it."""
    if name in ("add", "or"):
        return const(-0.0 if dtype.kind == "f" else 0, dtype)
    if name in ("multiply", "and"):
        return const(1, dtype)
    if dtype.kind == "f":
        return const(-np.inf if name == "maximum" else np.inf, dtype)
    if dtype.kind == "b":
        return const(name == "minimum", dtype)
    limits = np.iinfo(dtype)
    return const(limits.min if name == "maximum" else limits.max, dtype)
