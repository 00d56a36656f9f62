"""Primal results: a derivative of a procedure computes the results of the procedure as well, which need not run again for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gradtape.ir.body import bodies_of
from gradtape.ir.builder import at
from gradtape.ir.graph import Graph, Literal, Node, Value, extract
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.control import Barrier, Custom
from gradtape.kinds.routines.callback import Callback
from gradtape.ops.core.elementwise.cast import identity
from gradtape.passes.rewrite import rewrite, with_outputs
from gradtape.transforms.loops.draft import LoopOp, make_body, substitute
from gradtape.transforms.procedures.loop_pullback import reference_to_loop, unfold_loops
from gradtape.transforms.procedures.ops import ProcedureOp, procedure, procedure_vjp
from gradtape.transforms.procedures.reference import ProcedureReference
from gradtape.transforms.procedures.vjp import Between


def share_primal_results(graph: Graph) -> Graph:
    """Return the graph in which no procedure and no loop runs whose results one of its derivatives computes.

    A derivative may depend on the results by its seeds: what lies between becomes a part of it.
    """
    if lengths_vary():  # the text of a procedure is for one length
        graph = unfold_loops(graph)
    while (pair := _find(graph)) is not None:
        graph = _replaced(graph, *pair)
    return graph


def _find(graph: Graph) -> tuple[Node, Node] | None:
    """Return a call of a procedure or a loop, and a derivative that computes its results."""
    derivatives: dict[Any, list[Node]] = {}
    for node in graph.nodes:
        if node.op is procedure or node.op is procedure_vjp:
            for inputs, provided in _provided(node):
                derivatives.setdefault(inputs, []).append(node)
                derivatives.setdefault((inputs, provided), []).append(node)
    if not derivatives:
        return None
    for node in graph.nodes:
        inputs = _key(node.inputs)
        if inputs not in derivatives or not (node.op is procedure or isinstance(node.op, LoopOp)):
            continue
        reference = reference_to_loop(node) if isinstance(node.op, LoopOp) else node.params["procedure"]
        for other in derivatives.get((inputs, reference), ()):
            if other is not node and (not _depends(other, node) or _may_take(graph, other, node)):
                return node, other
    return None


def _provided(node: Node) -> Iterator[tuple[Any, ProcedureReference]]:
    """Yield what the first results of a derivative are: procedures, with the values of their parameters."""
    reference: ProcedureReference | None = node.params["procedure"]
    if node.op is procedure and reference is not None:
        reference = reference.primal
    while reference is not None:
        yield _key(node.inputs[: len(reference.types)]), reference
        reference = reference.primal


def _key(inputs: Sequence[Value]) -> Any:
    return tuple([_number(value) if isinstance(value, Literal) else value for value in inputs])


def _number(value: Literal) -> Any:
    assert value.data is not None
    return value.data.dtype, value.data.tobytes()


def _depends(node: Node, other: Node) -> bool:
    """Return whether a node is computed from the results of another."""
    nodes, _ = extract(node.inputs, stop=lambda value: value.node is None)
    return other in nodes


def _may_take(graph: Graph, derivative: Node, node: Node) -> bool:
    """Return whether what lies between a node and its derivative can become a part of the derivative."""
    if derivative.op is not procedure_vjp or "between" in derivative.params:
        return False
    count = len(derivative.params["procedure"].types)
    if count != len(node.inputs):
        return False
    return all(map(_may_move, _nodes_between(graph, node, derivative)))


def _may_move(node: Node) -> bool:
    """Return whether a node can become a part of a procedure."""
    return (
        not isinstance(node.op, Barrier | Custom | Callback | ProcedureOp)
        and all(out.dtype.kind != "O" for out in node.outs)
        and all(_may_move(inner) for body in bodies_of(node) for inner in body.nodes)
    )


def _nodes_between(graph: Graph, node: Node, derivative: Node) -> list[Node]:
    """Return the nodes that compute the seeds of a derivative from the results of a node."""
    after = {node}
    for later in graph.nodes:
        if any(value.node in after for value in later.inputs):
            after.add(later)
    nodes, _ = extract(derivative.inputs, node.outs, stop=lambda value: value.node not in after)
    return nodes


def _replaced(graph: Graph, node: Node, other: Node) -> Graph:
    """Return the graph in which the first results of `other` take the place of those of `node`."""
    if _depends(other, node):
        return _with_between(graph, node, other)
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


def _with_between(graph: Graph, node: Node, derivative: Node) -> Graph:
    """Return the graph in which a derivative computes the results of a node, and its own seeds from them."""
    nodes = _nodes_between(graph, node, derivative)
    outs_between = [out for between in nodes for out in between.outs]
    inputs_between = [value for between in nodes for value in between.inputs]
    computed = {*node.outs, *outs_between}
    count = len(node.inputs)
    seeds = derivative.inputs[count:]
    is_computed = tuple([seed in computed for seed in seeds])
    outside = [other for other in graph.nodes if other not in nodes and other is not derivative]
    read_outside = {value for other in outside for value in other.inputs}
    read_outside.update(graph.outputs, [value for value, _ in graph.guards])
    more = [out for out in outs_between if out in read_outside]
    used = dict.fromkeys([*inputs_between, *seeds])
    positions = tuple([position for position, out in enumerate(node.outs) if out in used])
    operands = [
        value
        for value in dict.fromkeys(inputs_between)
        if value not in computed and not isinstance(value, Literal)
    ]
    with at(derivative.site):
        # Each output of a body is an array of its own.
        ends = [identity(seed) for seed, flag in zip(seeds, is_computed, strict=True) if flag]
        body = make_body(
            [*[node.outs[position] for position in positions], *operands], [*ends, *more], "between"
        )
        outs = _emit(
            derivative,
            [
                *derivative.inputs[:count],
                *[seed for seed, flag in zip(seeds, is_computed, strict=True) if not flag],
                *operands,
            ],
            Between(body, positions, is_computed),
        )
    becomes = dict(zip(node.outs, outs, strict=False))
    becomes.update(zip(derivative.outs, outs, strict=False))
    becomes.update(zip(more, outs[len(derivative.outs) :], strict=True))
    before = [*graph.outputs, *[value for value, _ in graph.guards]]
    return with_outputs(graph, dict(zip(before, substitute(before, becomes), strict=True)))


def _emit(derivative: Node, inputs: Sequence[Value], between: Between) -> Sequence[Value]:
    new = Node(derivative.op, tuple(inputs), {**derivative.params, "between": between}, derivative.site)
    new.set_types(derivative.op.infer([value.aval for value in inputs], new.params))
    return new.outs
