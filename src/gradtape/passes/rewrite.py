"""Rewriting of graphs; nodes are never changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gradtape.ir.budget import spend
from gradtape.ir.builder import at, here
from gradtape.ir.graph import Graph, Node, Value, extract

Rule: TypeAlias = Callable[[Node, tuple[Value, ...]], Sequence[Value] | None]
"""``(node, its inputs in the new graph) -> what its outputs become``, or None to keep the node."""


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """Return the graph after `rule` has been applied to each node in order.

    What is no longer needed is left out; nodes that stay as they are are shared with the old graph.
    """
    spend(len(graph.nodes))
    with at(None):
        return _rewritten(graph, rule)


def _rewritten(graph: Graph, rule: Rule) -> Graph:
    becomes: dict[Value, Value] = {}
    changed = False
    for node in graph.nodes:
        inputs = node.inputs
        if becomes:
            inputs = tuple([becomes.get(value, value) for value in inputs])
        here.site = node.site
        outs = rule(node, inputs)
        if outs is None and inputs != node.inputs:
            outs = node.copy(inputs).outs
        if outs is not None:
            changed = True
            becomes.update(zip(node.outs, outs, strict=True))
    if not changed:
        return graph
    return with_outputs(graph, becomes)


def applied(node: Node, inputs: Sequence[Value], params: dict[str, Any]) -> Value:
    """Return what the op of a node makes of inputs of other shapes."""
    result = Node(node.op, tuple(inputs), params, node.site)
    (type_,) = node.op.infer([value.aval for value in inputs], params)
    made = Value(type_, result)
    result.outs = (made,)
    return made


def with_outputs(graph: Graph, becomes: dict[Value, Value]) -> Graph:
    """Return the graph whose outputs and guards are what they have become, with the nodes that these need."""
    outputs = [becomes.get(value, value) for value in graph.outputs]
    guards = [(becomes.get(value, value), expected) for value, expected in graph.guards]
    leaves = set(graph.constants())
    nodes, _ = extract([*outputs, *[value for value, _ in guards]], graph.inputs, stop=leaves.__contains__)
    spend(len(nodes))
    return Graph(graph.inputs, nodes, outputs, graph.name, guards)


def closed(graph: Graph) -> Graph:
    """Return a copy of the graph with inputs and constants that have no history.

    A tape's pending work starts at values that nodes have computed earlier. No pass may look behind these, and nothing that compiling
    leaves to the cycle collector may keep a user's arrays alive.
    """
    leaves = [*graph.inputs, *graph.constants()]
    inputs = set(graph.inputs)
    becomes = {value: Value(value.aval, data=None if value in inputs else value.data) for value in leaves}
    nodes = []
    for node in graph.nodes:
        copy = node.copy(tuple([becomes.get(value, value) for value in node.inputs]))
        becomes.update(zip(node.outs, copy.outs, strict=True))
        nodes.append(copy)
    return Graph(
        [becomes[value] for value in graph.inputs],
        nodes,
        [becomes.get(value, value) for value in graph.outputs],
        graph.name,
        [(becomes.get(value, value), expected) for value, expected in graph.guards],
    )
