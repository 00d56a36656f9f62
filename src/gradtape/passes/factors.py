"""Take factors that do not vary along a sum out of it."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import OPERATORS, Graph, Literal, Node, Value
from ..kinds.reduction import Reduction
from .rewrite import rewrite


def hoist_factors(graph: Graph) -> Graph:
    """Return the graph with ``sum(x * s)`` as ``s * sum(x)`` and ``sum(-x)`` as ``-sum(x)``.

    It costs one multiplication instead of one per element, and often the sum is already there.
    """
    return rewrite(graph, _hoist)


def _hoist(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    if not isinstance(node.op, Reduction) or node.op.name != "reduce_sum" or node.out.dtype.kind != "f":
        return None
    axes: tuple[int, ...] = node.params["axes"]
    result = _sum(node.op, inputs[0], axes)
    return None if result is None else (result,)


def _sum(op: Reduction, x: Value, axes: tuple[int, ...]) -> Value | None:
    """Return the sum with what could be taken out, or None if nothing could."""
    inner = x.node
    if inner is None:
        return None
    if inner.op.name == "negative":
        y = inner.inputs[0]
        return OPERATORS["negative"](_summed(op, y, axes))
    if inner.op.name != "multiply":
        return None
    for factor, rest in (inner.inputs, inner.inputs[::-1]):
        outside = _outside(factor, axes)
        if outside is not None and not isinstance(rest, Literal):
            return OPERATORS["multiply"](_summed(op, rest, axes), outside)
    return None


def _summed(op: Reduction, x: Value, axes: tuple[int, ...]) -> Value:
    """Return the sum, with what could be taken out."""
    result = _sum(op, x, axes)
    return op(x, axes=axes) if result is None else result


def _outside(factor: Value, axes: tuple[int, ...]) -> Value | None:
    """Return a factor as it is outside of the sum, if it does not vary along it."""
    if isinstance(factor, Literal):
        return factor
    node = factor.node
    if node is None or node.op.name != "expand":
        return None
    placed: tuple[int, ...] = node.params["axes"]
    if any(axis in axes for axis in placed):
        return None
    kept = [axis for axis in range(factor.ndim) if axis not in axes]
    shape = tuple(factor.shape[axis] for axis in kept)
    source = node.inputs[0]
    return OPERATORS["expand"](source, shape, tuple(kept.index(axis) for axis in placed)) if shape else source
