"""Replace calls of graphs by the nodes inside."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import Graph, Node, Value
from ..transforms.call import Call, inlined
from .rewrite import rewrite


def inline_calls(graph: Graph) -> Graph:
    """Return the graph without calls, also without those inside of calls."""
    while any(isinstance(node.op, Call) for node in graph.nodes):
        graph = rewrite(graph, _inline)
    return graph


def _inline(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    return inlined(node.op.graph, inputs) if isinstance(node.op, Call) else None
