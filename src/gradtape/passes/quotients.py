"""Let products of quotients by one divisor share a division."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..ir.graph import OPERATORS, Graph, Node, Value
from .rewrite import rewrite

Quotients = set[tuple[Value, Value]]
"""What is divided, and by what."""


def share_divisions(graph: Graph) -> Graph:
    """Return the graph with ``(x / y) * c`` as ``x * (c / y)`` where ``c / y`` is computed anyway.

    The derivatives of a quotient are such: ``c / y`` in the dividend, and ``-(x / y) / y * c`` in the divisor. A vector of divisions takes
    longer than anything else that is done with it.
    """
    quotients = {(node.inputs[0], node.inputs[1]) for node in graph.nodes if _is_quotient(node)}
    if len(quotients) < 2:
        return graph
    uses = Counter(value for node in graph.nodes for value in node.inputs)
    uses.update([*graph.outputs, *[value for value, _ in graph.guards]])

    def rule(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if node.op.name != "multiply" or node.out.dtype.kind != "f":
            return None
        for place, (quotient, factor) in enumerate((node.inputs, node.inputs[::-1])):
            inner, now = quotient.node, inputs[place].node
            if inner is None or now is None or uses[quotient] != 1 or not _is_quotient(inner):
                continue
            if (factor, inner.inputs[1]) in quotients and _is_quotient(now):
                dividend, divisor = now.inputs
                return (OPERATORS["multiply"](dividend, OPERATORS["divide"](inputs[1 - place], divisor)),)
        return None

    return rewrite(graph, rule)


def _is_quotient(node: Node) -> bool:
    return node.op.name == "divide" and node.out.dtype.kind == "f"
