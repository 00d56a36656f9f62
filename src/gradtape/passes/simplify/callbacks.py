"""Calls of Python in place of rows that kernels have no code for."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.routines.callback import Callback, python_call
from gradtape.passes.rewrite import rewrite


def call_python(graph: Graph) -> Graph:
    """Return the graph with Python calls in place of the rows of the callback kind."""
    return rewrite(graph, _called)


def _called(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    if not isinstance(node.op, Callback):
        return None
    return python_call(node.op, inputs, [0] * len(inputs), node.params, node.outs)
