"""Primal results: a derivative of a procedure computes the results of the procedure as well, which need not run again for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gradtape.ir.graph import Graph, Literal, Node, Value, extract
from gradtape.passes.rewrite import rewrite
from gradtape.transforms.procedures.ops import procedure, procedure_vjp
from gradtape.transforms.procedures.reference import ProcedureReference


def share_primal_results(graph: Graph) -> Graph:
    """Return the graph in which no procedure runs whose results one of its derivatives computes.

    A derivative that depends on the results itself, by its seeds or its directions, leaves the procedure where it is.
    """
    if sum(node.op is procedure or node.op is procedure_vjp for node in graph.nodes) < 2:
        return graph
    while (pair := _find(graph)) is not None:
        graph = _replaced(graph, *pair)
    return graph


def _find(graph: Graph) -> tuple[Node, Node] | None:
    """Return a call of a procedure, and a derivative that computes its results."""
    calls = [node for node in graph.nodes if node.op is procedure or node.op is procedure_vjp]
    derivatives: dict[Any, list[Node]] = {}
    for node in calls:
        for key in _provided(node):
            derivatives.setdefault(key, []).append(node)
    for node in calls:
        if node.op is procedure:
            for other in derivatives.get(_key(node.params["procedure"], node.inputs), ()):
                if not _depends(other, node):
                    return node, other
    return None


def _provided(node: Node) -> Iterator[Any]:
    """Yield what the first results of a derivative are: procedures, with the values of their parameters."""
    reference: ProcedureReference | None = node.params["procedure"]
    if node.op is procedure and reference is not None:
        reference = reference.primal
    while reference is not None:
        yield _key(reference, node.inputs[: len(reference.types)])
        reference = reference.primal


def _key(reference: ProcedureReference, inputs: Sequence[Value]) -> Any:
    return reference, tuple([_number(value) if isinstance(value, Literal) else value for value in inputs])


def _number(value: Literal) -> Any:
    assert value.data is not None
    return value.data.dtype, value.data.tobytes()


def _depends(node: Node, other: Node) -> bool:
    """Return whether a node is computed from the results of another."""
    nodes, _ = extract(node.inputs, stop=lambda value: value.node is None)
    return other in nodes


def _replaced(graph: Graph, node: Node, other: Node) -> Graph:
    """Return the graph in which the first results of `other` take the place of those of `node`."""
    ends = [*other.outs, *graph.outputs, *[value for value, _ in graph.guards]]
    leaves = set(graph.constants())
    nodes, _ = extract(ends, graph.inputs, stop=leaves.__contains__)
    found: dict[Node, Sequence[Value]] = {}

    def rule(each: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if each is node:
            return found[other][: len(node.outs)]
        if each is other:
            found[other] = outs = each.outs if inputs == each.inputs else each.copy(inputs).outs
            return outs
        return None

    return rewrite(Graph(graph.inputs, nodes, graph.outputs, graph.name, graph.guards), rule)
