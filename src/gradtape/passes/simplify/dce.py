"""Leave out what no output needs."""

from __future__ import annotations

from gradtape.ir.graph import Graph
from gradtape.passes.rewrite import with_outputs


def drop_unused(graph: Graph) -> Graph:
    """Return the graph without nodes on which nothing depends."""
    smaller = with_outputs(graph, {})
    return graph if len(smaller.nodes) == len(graph.nodes) else smaller
