"""Dead-code elimination."""

from __future__ import annotations

from gradtape.ir.graph import Graph
from gradtape.passes.rewrite import with_outputs


def eliminate_dead_code(graph: Graph) -> Graph:
    """Return the graph without nodes on which no output depends."""
    smaller = with_outputs(graph, {})
    return graph if len(smaller.nodes) == len(graph.nodes) else smaller
