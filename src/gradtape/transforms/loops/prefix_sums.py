"""Prefix sums: a sum over the iterations of one loop that another continues, added in the order of one loop over all iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradtape.ir.body import Body
from gradtape.ir.builder import at, emit_all
from gradtape.ir.graph import Node, Value, extract
from gradtape.kinds.index_map import is_zero
from gradtape.ops.core.elementwise.arithmetic import add
from gradtape.transforms.loops.draft import LoopOp, emit_substituted


def with_continued_sums(totals: Sequence[Value | None]) -> list[Value | None]:
    """Return equal totals in which ``x + sum of a loop`` is the sum of a loop with the initial value x.

    This saves an addition, and the memory of the loop's own sum. The result does not depend on the number of loops that compute the sum.
    """
    found = list(totals)
    while True:  # terminates: each round but the last moves an addition into the initial value of a loop
        there = [total for total in found if total is not None]
        uses = Counter(value for node in extract(there)[0] for value in node.inputs)
        uses.update(there)
        sums = {
            place: parts
            for place, total in enumerate(found)
            if total is not None
            and (parts := _split_sum(total)) is not None
            and uses[parts[0]] == uses[total] == 1
        }
        if not sums:
            return found
        node = next(iter(sums.values()))[0].node
        assert node is not None and isinstance(node.op, LoopOp)
        first = len(node.inputs) - len(node.op.open_draft(node).operands) + node.params["consts"]
        inputs = list(node.inputs)
        of_node = {place: parts for place, parts in sums.items() if parts[0].node is node}
        claimed: dict[int, int] = {}
        for place, (ours, other) in of_node.items():
            if ours.index not in claimed:
                claimed[ours.index] = place
                inputs[first + ours.index] = other
        with at(node.site):
            outs = emit_all(node.op, inputs, **node.params)
        becomes = dict(zip(node.outs, outs, strict=True))
        moved_sums = {place: outs[index] for index, place in claimed.items()}
        rest = [place for place, total in enumerate(found) if total is not None and place not in moved_sums]
        rebuilt = emit_substituted(
            [value for value in (found[place] for place in rest) if value is not None], becomes
        )
        for place, value in (*moved_sums.items(), *zip(rest, rebuilt, strict=True)):
            found[place] = value


def _split_sum(total: Value) -> tuple[Value, Value] | None:
    """Return the operands of an addition: the sum of a loop, and the other one."""
    if total.node is None or total.node.op is not add:
        return None
    a, b = total.node.inputs
    for ours, other in ((b, a), (a, b)):
        node = ours.node
        if node is not None and _is_sum(ours, node) and node not in extract([other])[0]:
            return ours, other
    return None


def _is_sum(value: Value, node: Node) -> bool:
    """Return whether an output of a loop is a sum over its iterations with initial value zero."""
    return _adds_to_start(value, node) and is_zero(_start(value, node))


def _start(value: Value, node: Node) -> Value:
    assert isinstance(node.op, LoopOp)
    return node.op.open_draft(node).carries[value.index].init


def _adds_to_start(value: Value, node: Node) -> bool:
    """Return whether an output of a loop is its initial value plus a term per iteration."""
    if not isinstance(node.op, LoopOp) or value.index >= node.params["carries"]:
        return False
    body: Body = node.params["body"]
    carry = node.op.open_draft(node).carries[value.index]
    reads = [each for each in body.nodes for operand in each.inputs if operand is carry.inner]
    inner = carry.next_carry.node
    if reads != [inner] or carry.inner in body.outputs or body.outputs.count(carry.next_carry) > 1:
        return False
    assert inner is not None
    if inner.op is add:
        return True
    return _adds_to_start(carry.next_carry, inner) and _start(carry.next_carry, inner) is carry.inner
