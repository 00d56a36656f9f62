"""Removal of annotations: nodes that compute nothing, such as derivatives given by the user and barriers."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.body import Body, holds_rules
from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.control import Barrier, Custom
from gradtape.passes.control.bodies import in_bodies
from gradtape.passes.rewrite import rewrite


def inline_custom_calls(graph: Graph) -> Graph:
    """Return the graph with the bodies of calls with custom derivatives in place of the calls, also inside loops and branches."""
    if not holds_rules(graph.nodes):
        return graph
    return in_bodies(rewrite(graph, _body), _open_body)


def _open_body(body: Body) -> Body:
    if not body.has_rules:
        return body
    opened = inline_custom_calls(body)
    return Body(opened.inputs, opened.nodes, opened.outputs, body.name)


def remove_barriers(graph: Graph) -> Graph:
    """Return the graph without barriers. No pass may merge equal computations after this one."""
    return rewrite(graph, _passed)


def _body(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    return inputs[: len(node.outs)] if isinstance(node.op, Custom) else None


def _passed(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    return inputs[: len(node.outs)] if isinstance(node.op, Barrier) else None
