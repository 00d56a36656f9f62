"""Passes on the bodies of loops and branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.ir.body import Body
from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.control import Structured
from gradtape.passes.rewrite import rewrite


def in_bodies(graph: Graph, change: Callable[[Body], Body]) -> Graph:
    """Return the graph with `change` applied to the bodies of its loops and branches; inputs and outputs keep their types."""

    def rule(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if not isinstance(node.op, Structured):
            return None
        params = {name: _changed(param, change) for name, param in node.params.items()}
        if params == node.params:
            return None
        new = Node(node.op, inputs, params, node.site)
        new.set_types(tuple([out.aval for out in node.outs]))
        return new.outs

    return rewrite(graph, rule)


def _changed(param: Any, change: Callable[[Body], Body]) -> Any:
    if isinstance(param, Body):
        return change(param)
    if isinstance(param, tuple) and param and isinstance(param[0], Body):
        return tuple([change(body) for body in param])
    return param


def holds_bodies(graph: Graph) -> bool:
    """Return whether there are loops or branches in a graph."""
    return any(isinstance(node.op, Structured) for node in graph.nodes)
