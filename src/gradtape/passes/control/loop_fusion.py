"""Loops that make the same turns become one: what a gradient asks of a loop beside its results, say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.ir.builder import at
from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.control import Structured
from gradtape.passes.control.equal_carries import Classes, United, source_key
from gradtape.passes.rewrite import with_outputs
from gradtape.transforms.loops.branches import select
from gradtape.transforms.loops.draft import Carry, Draft, Given, Loop, stand_in, substituted
from gradtape.transforms.loops.ops import Repeat, Switch


def merge_loops(graph: Graph) -> Graph:
    """Return the graph in which loops with equal carries are one loop, and branches with equal indices one branch."""
    refused: set[tuple[Node, Node]] = set()
    while True:  # ends: each round but the last leaves one loop or branch less
        merged = _merged_once(graph, refused)
        if merged is None:
            return graph
        graph = merged


def _merged_once(graph: Graph, refused: set[tuple[Node, Node]]) -> Graph | None:
    above = _loops_above(graph)
    groups: dict[Any, list[Node]] = {}
    for node in above:
        groups.setdefault(_turns_key(node), []).append(node)
    bits = {node: 1 << place for place, node in enumerate(above)}
    for nodes in groups.values():
        begins = {node: _begins(node) for node in nodes}
        for place, second in enumerate(nodes):
            for first in nodes[:place]:
                if above[second] & bits[first] or begins[first].isdisjoint(begins[second]):
                    continue
                if (first, second) in refused:
                    continue
                outs = _joined(first, second)
                if outs is not None:
                    return _replaced(graph, first, second, outs)
                refused.add((first, second))
    return None


def _loops_above(graph: Graph) -> dict[Node, int]:
    """Return for each loop and branch which others it depends on, as bits in the order of the result."""
    found: dict[Node, int] = {}
    reached: dict[Value, int] = {}
    for node in graph.nodes:
        mask = 0
        for value in node.inputs:
            mask |= reached.get(value, 0)
        if isinstance(node.op, Structured):
            found[node] = mask
            mask |= 1 << (len(found) - 1)
        if mask:
            reached.update(dict.fromkeys(node.outs, mask))
    return found


def _begins(node: Node) -> set[Any]:
    """Return what loops that can be one have in common: something that carries begin with, or something that is read."""
    inputs = node.inputs
    if isinstance(node.op, Switch):
        return {inputs[0]}
    if node.params["carries"]:
        first = node.params["consts"] + isinstance(node.op, Repeat)
        inputs = inputs[first : first + node.params["carries"]]
    return set(map(source_key, inputs))


def _turns_key(node: Node) -> Any:
    """Return what loops share that make the same turns, as far as that can be told from outside."""
    params = node.params
    if isinstance(node.op, Switch):
        return node.op, node.inputs[0], len(params["branches"])
    if isinstance(node.op, Repeat):
        return node.op, node.inputs[0], params["reverse"]
    return node.op, params.get("length"), params.get("reverse"), params.get("limit"), params.get("policy")


def _joined(first: Node, second: Node) -> list[Value] | None:
    """Return the outputs of both nodes from one; None where they cannot be one, or gain nothing."""
    if isinstance(first.op, Switch):
        return _joined_branches(first, second)
    op = first.op
    assert isinstance(op, Loop)
    a, b = op.opened(first), renamed(op.opened(second))
    both = _beside(a, b)
    classes = Classes(both, [] if b.test is None else [b.test])
    count = len(a.carries)
    if a.test is not None and (b.test is None or classes.of(a.test) != classes.of(b.test)):
        return None
    common = set(classes.carries[:count]) & set(classes.carries[count:])
    if not common and (a.carries or b.carries or not _share_work(a, b, classes)):
        return None
    united = United(both, classes)
    with at(first.site):
        outcome = united.draft.emit()
    ends = [outcome.carries[place] for place in united.carries]
    stacks = [outcome.left[place] for place in united.left]
    turns = [] if outcome.turns is None else [outcome.turns]
    lefts = len(a.left)
    return [*ends[:count], *turns, *stacks[:lefts], *ends[count:], *turns, *stacks[lefts:]]


def _share_work(a: Draft, b: Draft, classes: Classes) -> bool:
    mine = {classes.of(out) for node in a.nodes() for out in node.outs}
    return any(classes.of(out) in mine for node in b.nodes() for out in node.outs)


def renamed(draft: Draft) -> Draft:
    """Return the same loop with other values inside."""
    becomes = {value: stand_in(value) for value in draft.insides}
    new = Draft(draft.op, draft.params, becomes[draft.index], count=draft.count)
    new.consts = [Given(given.outside, becomes[given.inside]) for given in draft.consts]
    new.elements = [Given(given.outside, becomes[given.inside]) for given in draft.elements]
    ends = substituted(draft.ends, becomes)
    count = len(draft.carries)
    new.carries = [
        Carry(carry.start, becomes[carry.inside], after)
        for carry, after in zip(draft.carries, ends, strict=False)
    ]
    new.left = ends[count : count + len(draft.left)]
    new.test = None if draft.test is None else ends[-1]
    return new


def _beside(a: Draft, b: Draft) -> Draft:
    """Return one loop that does what both do."""
    index = {b.index: a.index}
    both = Draft(a.op, a.params, a.index, test=a.test, count=a.count)
    both.consts = [*a.consts, *b.consts]
    both.elements = [*a.elements, *b.elements]
    ends = substituted(b.ends, index)
    count = len(b.carries)
    both.carries = [
        *a.carries,
        *[carry._replace(after=after) for carry, after in zip(b.carries, ends, strict=False)],
    ]
    both.left = [*a.left, *ends[count : count + len(b.left)]]
    b.test = None if b.test is None else ends[-1]
    return both


def _joined_branches(first: Node, second: Node) -> list[Value] | None:
    """Return the outputs of two switches from one."""
    inputs, outputs = [], []
    operands = list(dict.fromkeys([*first.inputs[1:], *second.inputs[1:]]))
    for one, other in zip(first.params["branches"], second.params["branches"], strict=True):
        stands = {operand: stand_in(operand) for operand in operands}
        ends: list[Value] = []
        for body, node in ((one, first), (other, second)):
            given = [stands[operand] for operand in node.inputs[1:]]
            ends += substituted(body.outputs, dict(zip(body.inputs, given, strict=True)))
        inputs.append(list(stands.values()))
        outputs.append(ends)
    with at(first.site):
        return list(select(first.op, first.inputs[0], operands, inputs, outputs))


def _replaced(graph: Graph, first: Node, second: Node, outs: Sequence[Value]) -> Graph:
    """Return the graph in which the outputs of two nodes are others."""
    becomes = dict(zip((*first.outs, *second.outs), outs, strict=True))
    for node in graph.nodes:
        if node in (first, second):
            continue
        inputs = tuple([becomes.get(value, value) for value in node.inputs])
        if inputs != node.inputs:
            becomes.update(zip(node.outs, node.copy(inputs).outs, strict=True))
    return with_outputs(graph, becomes)
