"""Factors: those that do not vary along a sum are multiplied after it, and quotients serve both operands of a quotient's derivative."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.ops.core.elementwise.arithmetic import divide, multiply, negative
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, expand_row
from gradtape.passes.control.equal_carries import source_key
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


def share_quotients(graph: Graph) -> Graph:
    """Return the graph with ``(-q / b) * g`` as ``-q * (g / b)``, for ``q = a / b``, where ``g / b`` is computed anyway.

    These are the cotangents of both operands of a quotient, which then takes one division in reverse instead of two. Where `q` is 0
    the result is ``-q * g``: `g / b` may be infinite. Divisors that are repeated stay: their cotangents are sums, without a selection.
    """
    quotients = {(source_key(node.inputs[0]), node.inputs[1]) for node in graph.nodes if node.op is divide}
    if len(quotients) < 3:
        return graph

    def rule(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if node.op is not multiply or node.out.dtype.kind != "f":
            return None
        for place in (0, 1):
            slope, factor = node.inputs[place].node, node.inputs[1 - place]
            if (
                slope is None
                or not _is_slope(slope)
                or (source_key(factor), slope.inputs[1]) not in quotients
            ):
                continue
            now, cotangent = inputs[place], inputs[1 - place]
            if now.node is not None and now.node.op is divide and now.dtype == node.out.dtype:
                numerator, divisor = now.node.inputs
                product = multiply(numerator, divide(cotangent, divisor))
                return (where(equal(numerator, 0.0), multiply(numerator, cotangent), product),)
        return None

    return rewrite(graph, rule)


def _is_slope(node: Node) -> bool:
    """Return whether a node is the derivative of a quotient by its divisor: ``-(a / b) / b``."""
    if node.op is not divide:
        return False
    negated = node.inputs[0].node
    inner = negated.inputs[0].node if negated is not None and negated.op is negative else None
    divisor = node.inputs[1].node
    if divisor is not None and divisor.op is expand_row:
        return False
    return inner is not None and inner.op is divide and inner.inputs[1] is node.inputs[1]


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
