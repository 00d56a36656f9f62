"""Activity analysis: the values on differentiable paths from the sources of a derivative."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gradtape.ir.graph import Node, Value
from gradtape.ir.types import carries_derivatives
from gradtape.kinds.control import visible_inputs
from gradtape.kinds.elementwise import Elementwise


def active_values(
    nodes: Sequence[Node], sources: Collection[Value], constant: Collection[Value] = ()
) -> set[Value]:
    """Return the values with a differentiable path from a source that does not lead through a value of `constant`."""
    active = set(sources)
    for node in nodes:
        if any(operand in active for operand in differentiable_inputs(node)):
            active.update(out for out in node.outs if carries_derivatives(out.dtype) and out not in constant)
    return active


def differentiable_inputs(node: Node) -> Sequence[Value]:
    """Return the inputs in which a node may have a derivative."""
    op = node.op
    if isinstance(op, Elementwise) and op.partials is not None and None in op.partials:
        return [operand for operand, rule in zip(node.inputs, op.partials, strict=True) if rule is not None]
    return visible_inputs(node)
