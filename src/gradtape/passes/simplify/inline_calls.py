"""Inlining of calls of graphs."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Node, Value
from gradtape.passes.rewrite import rewrite
from gradtape.transforms.call import GraphCall, inlined


def inline_calls(graph: Graph) -> Graph:
    """Return the graph without calls, also without those inside calls."""
    flat = rewrite(graph, _inline)
    while any(isinstance(node.op, GraphCall) for node in flat.nodes):
        flat = rewrite(flat, _inline)
    return flat


def _inline(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    return inlined(node.op.graph, inputs) if isinstance(node.op, GraphCall) else None
