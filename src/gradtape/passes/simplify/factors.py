"""Factor hoisting: factors that do not vary along a sum are multiplied after it."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.ops.core.elementwise.arithmetic import multiply, negative
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, expand_row
from gradtape.passes.rewrite import rewrite

Sums = set[tuple[Value, tuple[int, ...]]]
"""The operand and the axes of sums."""


def hoist_factors(graph: Graph) -> Graph:
    """Return the graph with ``sum(-x)`` as ``-sum(x)``, and ``sum(x * s)`` as ``s * sum(x)`` where ``sum(x)`` is computed anyway.

    Elsewhere the product stays inside: a sum that overflows without its factor would give infinity where NumPy gives a number.
    """
    sums = {(node.inputs[0], node.params["axes"]) for node in graph.nodes if node.op is reduce_sum}
    return rewrite(graph, lambda node, inputs: _hoist(node, inputs, sums))


def _hoist(node: Node, inputs: tuple[Value, ...], sums: Sums) -> Sequence[Value] | None:
    if node.op is not reduce_sum or node.out.dtype.kind != "f":
        return None
    axes: tuple[int, ...] = node.params["axes"]
    result = _sum(inputs[0], axes, sums)
    return None if result is None else (result,)


def _sum(x: Value, axes: tuple[int, ...], sums: Sums) -> Value | None:
    """Return the sum with its factors hoisted, or None if there are none."""
    inner = x.node
    if inner is None:
        return None
    if inner.op is negative:
        y = inner.inputs[0]
        return negative(_summed(y, axes, sums))
    if inner.op is not multiply:
        return None
    for factor, rest in (inner.inputs, inner.inputs[::-1]):
        outside = _outside(factor, axes)
        if outside is not None and (rest, axes) in sums:
            return multiply(_summed(rest, axes, sums), outside)
    return None


def _summed(x: Value, axes: tuple[int, ...], sums: Sums) -> Value:
    """Return the sum with its factors hoisted."""
    result = _sum(x, axes, sums)
    return reduce_sum(x, axes=axes) if result is None else result


def _outside(factor: Value, axes: tuple[int, ...]) -> Value | None:
    """Return a factor as it is outside the sum, if it does not vary along it."""
    if isinstance(factor, Literal):
        return factor
    node = factor.node
    if node is None or node.op is not expand_row:
        return None
    placed: tuple[int, ...] = node.params["axes"]
    if any(axis in axes for axis in placed):
        return None
    kept = [axis for axis in range(factor.ndim) if axis not in axes]
    shape = tuple(factor.shape[axis] for axis in kept)
    source = node.inputs[0]
    return expand(source, shape, tuple(kept.index(axis) for axis in placed)) if shape else source
