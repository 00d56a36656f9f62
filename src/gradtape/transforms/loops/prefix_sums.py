"""Sums over the turns of one loop that go on in another: added in the order in which one loop over all turns would add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradtape.ir.body import Body
from gradtape.ir.builder import at, emit_all
from gradtape.ir.graph import Node, Value, extract, number_of
from gradtape.transforms.loops.draft import Loop, emitted


def continued(totals: Sequence[Value | None]) -> list[Value | None]:
    """Return the totals where what a loop sums up is not added to something, but the sum begins with that.

    A loop then costs no addition more, nor memory for its own part of the sum; and it does not matter for a result by how many loops it
    was summed up.
    """
    found = list(totals)
    while True:  # ends: each round but the last moves an addition from outside of a loop into its start
        there = [total for total in found if total is not None]
        uses = Counter(value for node in extract(there)[0] for value in node.inputs)
        uses.update(there)
        sums = {
            place: parts
            for place, total in enumerate(found)
            if total is not None
            and (parts := _parts(total)) is not None
            and uses[parts[0]] == uses[total] == 1
        }
        if not sums:
            return found
        node = next(iter(sums.values()))[0].node
        assert node is not None and isinstance(node.op, Loop)
        first = len(node.inputs) - len(node.op.opened(node).operands) + node.params["consts"]
        inputs = list(node.inputs)
        chosen = {place: parts for place, parts in sums.items() if parts[0].node is node}
        taken: dict[int, int] = {}
        for place, (ours, other) in chosen.items():
            if ours.index not in taken:
                taken[ours.index] = place
                inputs[first + ours.index] = other
        with at(node.site):
            outs = emit_all(node.op, inputs, **node.params)
        becomes = dict(zip(node.outs, outs, strict=True))
        mine = {place: outs[index] for index, place in taken.items()}
        rest = [place for place, total in enumerate(found) if total is not None and place not in mine]
        moved = emitted([value for value in (found[place] for place in rest) if value is not None], becomes)
        for place, value in (*mine.items(), *zip(rest, moved, strict=True)):
            found[place] = value


def _parts(total: Value) -> tuple[Value, Value] | None:
    """Return what a loop sums up, and what that is added to."""
    if total.node is None or total.node.op.name != "add":
        return None
    a, b = total.node.inputs
    for ours, other in ((b, a), (a, b)):
        node = ours.node
        if node is not None and _is_sum(ours, node) and node not in extract([other])[0]:
            return ours, other
    return None


def _is_sum(value: Value, node: Node) -> bool:
    """Return whether a result of a loop is a sum over its turns that begins with zero."""
    return _adds_to_start(value, node) and _is_zero(_start(value, node))


def _start(value: Value, node: Node) -> Value:
    assert isinstance(node.op, Loop)
    return node.op.opened(node).carries[value.index].start


def _adds_to_start(value: Value, node: Node) -> bool:
    """Return whether a result of a loop is what it began with, plus something in each turn."""
    if not isinstance(node.op, Loop) or value.index >= node.params["carries"]:
        return False
    body: Body = node.params["body"]
    carry = node.op.opened(node).carries[value.index]
    reads = [each for each in body.nodes for operand in each.inputs if operand is carry.inside]
    inner = carry.after.node
    if reads != [inner] or carry.inside in body.outputs or body.outputs.count(carry.after) > 1:
        return False
    assert inner is not None
    if inner.op.name == "add":
        return True
    return _adds_to_start(carry.after, inner) and _start(carry.after, inner) is carry.inside


def _is_zero(value: Value) -> bool:
    if value.node is not None and value.node.op.name == "expand":
        value = value.node.inputs[0]
    return number_of(value) == 0
