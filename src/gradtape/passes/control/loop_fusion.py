"""Loop fusion: loops with the same iterations become one, for example a loop and the one that stores its residuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradtape.ir.builder import at
from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.control import Structured
from gradtape.passes.control.equal_carries import EqualCarries, MergedLoop, source_key
from gradtape.passes.rewrite import with_outputs
from gradtape.transforms.loops.branches import select
from gradtape.transforms.loops.checkpoint import is_treeverse
from gradtape.transforms.loops.draft import Draft, LoopOp, LoopOperand, placeholder, substitute
from gradtape.transforms.loops.ops import Repeat, Switch


def fuse_loops(graph: Graph) -> Graph:
    """Return the graph in which loops with equal carries are one loop, and branches with equal indices one branch."""
    refused: set[tuple[Node, Node]] = set()
    while True:  # terminates: each round but the last removes a loop or branch
        merged = _fuse_some(graph, refused)
        if merged is None:
            return graph
        graph = merged


def _fuse_some(graph: Graph, refused: set[tuple[Node, Node]]) -> Graph | None:
    """Return the graph after a loop or branch was fused with all that can be fused with it; None where there is none."""
    dependencies = _loop_dependencies(graph)
    groups: dict[Any, list[Node]] = {}
    for node in dependencies:
        groups.setdefault(_iteration_space(node), []).append(node)
    bits = {node: 1 << position for position, node in enumerate(dependencies)}
    for nodes in groups.values():
        operands_of = {node: _common_operands(node) for node in nodes}
        for position, second in enumerate(nodes):
            for first in nodes[:position]:
                if dependencies[second] & bits[first] or operands_of[first].isdisjoint(operands_of[second]):
                    continue
                if (first, second) in refused:
                    continue
                outs = _fuse(first, second)
                if outs is None:
                    refused.add((first, second))
                    continue
                becomes = dict(zip((*first.outs, *second.outs), outs, strict=True))
                other_nodes = [
                    node
                    for node in nodes[position + 1 :]
                    if not dependencies[node] & (bits[first] | bits[second])
                ]
                return _replace_outputs(graph, _with_further(becomes, other_nodes, dependencies, bits))
    return None


def _with_further(
    becomes: dict[Value, Value], nodes: Sequence[Node], dependencies: dict[Node, int], bits: dict[Node, int]
) -> dict[Value, Value]:
    """Return what outputs become where further loops, on which the fused one does not depend nor they on it, are fused with it in turn."""
    fused_bits = 0
    for node in nodes:
        fused_nodes = {
            out.node
            for out in becomes.values()
            if out.node is not None and isinstance(out.node.op, Structured)
        }
        fused_nodes.difference_update(dependencies)
        if len(fused_nodes) != 1:
            break
        (fused,) = fused_nodes
        if dependencies[node] & fused_bits or _common_operands(fused).isdisjoint(_common_operands(node)):
            continue
        outs = _fuse(fused, node)
        if outs is None:
            continue
        fused_bits |= bits[node]
        now = dict(zip((*fused.outs, *node.outs), outs, strict=True))
        becomes = {old: now.get(value, value) for old, value in becomes.items()}
        becomes.update((old, now[old]) for old in node.outs)
    return becomes


def _loop_dependencies(graph: Graph) -> dict[Node, int]:
    """Return for each loop and branch the set of those it depends on, as bits in the order of the result."""
    dependencies: dict[Node, int] = {}
    reached: dict[Value, int] = {}
    for node in graph.nodes:
        mask = 0
        for value in node.inputs:
            mask |= reached.get(value, 0)
        if isinstance(node.op, Structured):
            dependencies[node] = mask
            mask |= 1 << (len(dependencies) - 1)
        if mask:
            reached.update(dict.fromkeys(node.outs, mask))
    return dependencies


def _common_operands(node: Node) -> set[Any]:
    """Return the operands of which loops that can be fused share one: initial carries, or operands if nothing is carried."""
    inputs = node.inputs
    if isinstance(node.op, Switch):
        return {inputs[0]}
    if node.params["carries"]:
        first = node.params["consts"] + isinstance(node.op, Repeat)
        inputs = inputs[first : first + node.params["carries"]]
    return set(map(source_key, inputs))


def _iteration_space(node: Node) -> Any:
    """Return a key that is equal for loops with the same iterations, as far as their nodes show."""
    params = node.params
    if isinstance(node.op, Switch):
        return node.op, node.inputs[0], len(params["branches"])
    if isinstance(node.op, Repeat):
        return node.op, node.inputs[0], params["reverse"]
    policy = params.get("policy")
    # Treeverse changes the pullback of a loop, and not the loop.
    chunks = None if is_treeverse(policy) else policy
    return node.op, params.get("length"), params.get("reverse"), params.get("limit"), chunks


def _fuse(first: Node, second: Node) -> list[Value] | None:
    """Return the outputs of both nodes from one node; None where they cannot be fused, or nothing is saved."""
    if isinstance(first.op, Switch):
        return _fuse_branches(first, second)
    op = first.op
    assert isinstance(op, LoopOp)
    a, b = op.open_draft(first), renamed(op.open_draft(second))
    both = _side_by_side(a, b)
    classes = EqualCarries(both, [] if b.test is None else [b.test])
    count = len(a.carries)
    if a.test is not None and (b.test is None or classes.of(a.test) != classes.of(b.test)):
        return None
    common = set(classes.carries[:count]) & set(classes.carries[count:])
    if not common and (a.carries or b.carries or not _have_common_subexpressions(a, b, classes)):
        return None
    merged = MergedLoop(both, classes)
    with at(first.site):
        outcome = merged.draft.emit()
    finals = [outcome.carries[position] for position in merged.carries]
    stacks = [outcome.ys[position] for position in merged.ys]
    trip_count = [] if outcome.trip_count is None else [outcome.trip_count]
    ys_count = len(a.ys)
    return [
        *finals[:count],
        *trip_count,
        *stacks[:ys_count],
        *finals[count:],
        *trip_count,
        *stacks[ys_count:],
    ]


def _have_common_subexpressions(a: Draft, b: Draft, classes: EqualCarries) -> bool:
    mine = {classes.of(out) for node in a.nodes() for out in node.outs}
    return any(classes.of(out) in mine for node in b.nodes() for out in node.outs)


def renamed(draft: Draft) -> Draft:
    """Return the same loop with new inner values."""
    becomes = {value: placeholder(value) for value in draft.body_inputs}
    new = Draft(draft.op, draft.params, becomes[draft.index], count=draft.count)
    new.consts = [LoopOperand(operand.outer, becomes[operand.inner]) for operand in draft.consts]
    new.elements = [LoopOperand(operand.outer, becomes[operand.inner]) for operand in draft.elements]
    new.carries = [carry._replace(inner=becomes[carry.inner]) for carry in draft.carries]
    new.ys, new.test = draft.ys, draft.test
    new.substitute(becomes)
    return new


def _side_by_side(a: Draft, b: Draft) -> Draft:
    """Return one loop with the operands, carries and outputs of both."""
    moved = replace(b)
    moved.substitute({b.index: a.index})
    b.test = moved.test
    both = Draft(a.op, a.params, a.index, test=a.test, count=a.count)
    both.consts = [*a.consts, *b.consts]
    both.elements = [*a.elements, *b.elements]
    both.carries = [*a.carries, *moved.carries]
    both.ys = [*a.ys, *moved.ys]
    return both


def _fuse_branches(first: Node, second: Node) -> list[Value] | None:
    """Return the outputs of two switches from one switch."""
    inputs, outputs = [], []
    operands = list(dict.fromkeys([*first.inputs[1:], *second.inputs[1:]]))
    for first_branch, second_branch in zip(first.params["branches"], second.params["branches"], strict=True):
        placeholders = {operand: placeholder(operand) for operand in operands}
        finals: list[Value] = []
        for body, node in ((first_branch, first), (second_branch, second)):
            arguments = [placeholders[operand] for operand in node.inputs[1:]]
            finals += substitute(body.outputs, dict(zip(body.inputs, arguments, strict=True)))
        inputs.append(list(placeholders.values()))
        outputs.append(finals)
    with at(first.site):
        return list(select(first.op, first.inputs[0], operands, inputs, outputs))


def _replace_outputs(graph: Graph, becomes: dict[Value, Value]) -> Graph:
    """Return the graph in which outputs of nodes are replaced."""
    replaced = {value.node for value in becomes}
    for node in graph.nodes:
        if node in replaced:
            continue
        inputs = tuple([becomes.get(value, value) for value in node.inputs])
        if inputs != node.inputs:
            becomes.update(zip(node.outs, node.copy(inputs).outs, strict=True))
    return with_outputs(graph, becomes)
