"""Formula expansion: scalar expressions over the rows that Python and Numba have."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gradtape.errors import LoweringError
from gradtape.ir.expressions import Code, expression
from gradtape.ir.graph import Literal, Node, Value, literal
from gradtape.ir.types import INT64
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import from_parts, imag, real
from gradtape.ops.core.elementwise.integer import shift_down
from gradtape.ops.core.elementwise.logic import bitwise_and

UINT64: Final = np.dtype(np.uint64)


def expand(value: Value, known: dict[Value, Value]) -> Value:
    """Return a value with the formulas in it written out; `known` keeps what was expanded, and is extended.

    Leaves stay, and values in which there is nothing to expand.
    """
    found = known.get(value)
    if found is not None:
        return found
    stack = [value]
    while stack:
        top = stack[-1]
        node = top.node
        if top in known:
            stack.pop()
            continue
        if node is None:
            known[top] = top
            continue
        waiting = [operand for operand in node.inputs if operand not in known]
        if waiting:
            stack.extend(waiting)
            continue
        result = _expanded(top, node, known)
        while result not in known:
            expand(result, known)
        known[top] = known[result]
    return known[value]


def _expanded(value: Value, node: Node, known: dict[Value, Value]) -> Value:
    """Return a value whose operands are expanded with its own formula written out once."""
    operands = tuple([known[operand] for operand in node.inputs])
    op = node.op
    if isinstance(op, IndexMap) and not operands[0].ndim:
        return operands[0]
    if not isinstance(op, Elementwise):
        raise LoweringError(f"{op.name} stands among the scalars of a procedure", where=node.site)
    if op.body is None:  # a copy
        return operands[0]
    if is_direct(op.name, operands, value.dtype):
        if operands == node.inputs:
            result = value
        else:
            result = node.copy(operands).outs[0]
            result.name = value.name
        known[result] = result
        return result
    if any(operand.dtype.kind == "c" for operand in operands) and op.complex_body is not None:
        return _of_parts(op.complex_body, operands, node.params, value.dtype)
    formula: Any = FORMULAS.get(op.name, op.body)
    if not callable(formula):
        raise LoweringError(f"{op.name} of {value.dtype} has no form in Python", where=node.site)
    result = formula(*operands, **node.params)
    return result if result.dtype == value.dtype else convert(result, value.dtype)


def _of_parts(
    formula: Any, operands: tuple[Value, ...], params: dict[str, Any], dtype: np.dtype[Any]
) -> Value:
    """Return a formula for pairs of real and imaginary parts, applied to complex numbers."""
    parts = [(real(x), imag(x)) if x.dtype.kind == "c" else x for x in operands]
    result = formula(*parts, **params)
    if not isinstance(result, Value):
        result = from_parts(*result)
    return result if result.dtype == dtype else convert(result, dtype)


def is_direct(name: str, operands: tuple[Value, ...], dtype: np.dtype[Any]) -> bool:
    """Return whether Python and Numba have a row for such operands."""
    if name in ("left_shift", "right_shift"):
        return False
    codes = [Code("2" if isinstance(operand, Literal) else "x") for operand in operands]
    return expression(name, codes, [operand.dtype for operand in operands], dtype) is not None


def _ones_in(x: Value) -> Value:
    """Count bits in pairs, then in groups of 4, 8 and more (H. S. Warren, Hacker's Delight, chapter 5)."""
    bits = bitwise_and(convert(convert(x, INT64), UINT64), literal(2 ** (8 * x.dtype.itemsize) - 1, UINT64))
    for shift, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        low = literal(mask, UINT64)
        bits = bitwise_and(bits, low) + bitwise_and(shift_down(bits, literal(shift, UINT64)), low)
    for shift in (8, 16, 32):
        bits = bits + shift_down(bits, literal(shift, UINT64))
    return convert(bitwise_and(bits, literal(127, UINT64)), x.dtype)


FORMULAS: Final = {"ones_in": _ones_in}
"""Formulas of rows that machines have and Python does not."""
