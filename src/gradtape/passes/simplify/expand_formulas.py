"""Expansion of formulas: elementwise rows are replaced by the rows of their formulas."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.errors import LoweringError
from gradtape.ir.graph import Graph, Literal, Node, Value, extract, literal
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.routines.callback import python_call
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.shape import expand
from gradtape.passes.rewrite import rewrite


def expand_formulas(graph: Graph) -> Graph:
    """Return the graph without elementwise rows that are formulas, so that common subexpressions of primal and derivative show.

    Where there is no formula for operands of these dtypes, Python computes the row.
    """
    return rewrite(graph, _expand)


def _expand(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    op = node.op
    if not isinstance(op, Elementwise) or not op.is_formula:
        return None
    try:
        return (expand_formula(op, inputs, node),)
    except LoweringError:
        return python_call(op, inputs, [0] * len(inputs), node.params, node.outs)


def expand_formula(op: Elementwise, inputs: tuple[Value, ...], node: Node) -> Value:
    """Apply the formula of a row, and the formulas of the rows that it uses, to values."""
    assert callable(op.body)
    result = op.body(*[_strong(value) for value in inputs], **node.params)
    result = conformed(result, node.out)
    nodes, _ = extract([result], inputs, stop=lambda value: value.node is None or value in inputs)
    becomes: dict[Value, Value] = {}
    for inner in nodes:
        operands = tuple([becomes.get(value, value) for value in inner.inputs])
        if isinstance(inner.op, Elementwise) and inner.op.is_formula:
            becomes[inner.out] = expand_formula(inner.op, operands, inner)
        elif operands != inner.inputs:
            copy = inner.copy(operands)
            becomes.update(zip(inner.outs, copy.outs, strict=True))
    return becomes.get(result, result)


def conformed(value: Value, like: Value) -> Value:
    """Return `value` with the dtype and shape of `like`."""
    if value.dtype != like.dtype:
        value = convert(value, like.dtype)
    if isinstance(value, Literal):
        value = literal(value.data, like.dtype)
    if value.shape != like.shape or (isinstance(value, Literal) and like.shape != ()):
        value = expand(value, like.shape, ())
    return value


def _strong(value: Value) -> Value:
    """Return a number with a strong dtype, which a formula does not promote again."""
    return literal(value.data, value.dtype) if isinstance(value, Literal) and value.aval.weak else value
