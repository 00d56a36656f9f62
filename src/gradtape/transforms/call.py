"""Call nodes: a whole graph as one node, which a tape records in place of a record that it has seen before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import keep_names
from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import NO_PARAMS, Graph, Node, Value, extract, merge_tags
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import Aval
from gradtape.kinds.control import OwnPullback
from gradtape.transforms.jvp import jvp
from gradtape.transforms.loops.squares import with_squares

Runner = Callable[[Sequence[NDArray]], Sequence[NDArray]]


class GraphCall(Op):
    """The op of a closed graph without constants. Derivatives and kernels use the nodes of the graph.

    Parameters
    ----------
    graph : Graph
        Its inputs are the node's.
    run : callable
        Computes the outputs from arrays.

    Attributes
    ----------
    programs : dict
        Compiled programs by the outputs that they compute; the caller of the graph enters them.
    """

    graph: Graph

    def __init__(self, graph: Graph, run: Runner) -> None:
        super().__init__(f"call_{fingerprint(graph)}")
        self.graph = graph
        self.run = run
        self.programs: dict[tuple[object, ...], Any] = {}
        self._types = tuple(output.aval for output in graph.outputs)

    def appended(self, inputs: Sequence[Value], site: Any) -> tuple[Node, list[Value]]:
        """Append a call, and return its node and its outputs."""
        node = Node(self, tuple(inputs), NO_PARAMS, site)
        return node, node.make_outs(self._types, merge_tags(inputs))

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        return self._types

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        return tuple(self.run(arrays))

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        outputs = inlined(self.graph, node.inputs)
        moving = {v: t for v, t in zip(node.inputs, tangents, strict=True) if t is not None}
        fixed = set(node.inputs)
        return tuple(jvp(outputs, list(moving), list(moving.values()), fixed.__contains__))

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        raise NotDifferentiableError("a call of a graph is not linear", where=node.site)


def inlined(graph: Graph, inputs: Sequence[Value]) -> list[Value]:
    """Return the outputs of a graph for other inputs, as copies of its nodes without tags."""
    becomes: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        operands = tuple([becomes.get(value, value) for value in node.inputs])
        copy = node.copy(operands)
        before, after = node.outs, copy.outs
        keep_names(before, after)
        becomes.update(zip(before, after, strict=True))
    return [becomes.get(value, value) for value in graph.outputs]


def without_data(graph: Graph) -> Graph:
    """Return a copy of a graph that keeps no value of the original alive."""
    fresh = [Value(value.aval) for value in graph.inputs]
    outputs = inlined(graph, fresh)
    nodes, _ = extract(outputs, fresh, lambda value: value.node is None)
    return Graph(fresh, nodes, outputs, graph.name)


def recorded(graph: Graph, inputs: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """Return the outputs and guards of a graph for other inputs, as new nodes with serial numbers and tags, like those of running code."""
    becomes: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        operands = tuple([becomes.get(value, value) for value in node.inputs])
        copy = Node(node.op, operands, node.params, node.site)
        outs: Sequence[Value] = copy.make_outs(tuple([out.aval for out in node.outs]), merge_tags(operands))
        keep_names(node.outs, outs)
        if isinstance(node.op, OwnPullback):
            outs = with_squares(outs)  # a kink that was outside the graph is seen now
        becomes.update(zip(node.outs, outs, strict=True))
    outputs = [becomes.get(value, value) for value in graph.outputs]
    return outputs, [becomes.get(value, value) for value, _ in graph.guards]
