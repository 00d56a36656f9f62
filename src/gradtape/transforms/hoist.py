"""What a loop computes anew in each turn although it is the same each time, taken out of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..ir.graph import Literal, Node, Value
from ..kinds.accumulate import Accumulate
from ..kinds.control import Barrier, Structured
from ..kinds.elementwise import Elementwise
from ..kinds.index_map import IndexMap
from .draft import Draft, Given, emitted

FREE: Final = ("expand", "permute")
"""Rows that only say how another value is read: outside they would fill memory."""


def selected(draft: Draft, cut: Collection[Value]) -> set[Value]:
    """Return what goes into a selection, or into what is `cut` by one, by elementwise nodes alone, in its turn or in a later one.

    The mask of the selection reaches its cotangent in the turns: computed outside of the loop, it would get a plain zero, and an infinite
    slope would make NaN of it.
    """
    found = set(cut)
    nodes = draft.nodes()
    while True:
        for node in reversed(nodes):
            if isinstance(node.op, Elementwise):
                rules = node.op.confine or (None,) * len(node.inputs)
                reached = not found.isdisjoint(node.outs)
                found.update(
                    value
                    for value, rule in zip(node.inputs, rules, strict=True)
                    if reached or rule is not None
                )
        later = {carry.after for carry in draft.carries if carry.inside in found} - found
        if not later:
            return found
        found |= later


def selects(node: Node) -> bool:
    """Return whether a node selects some of its operands' elements."""
    return isinstance(node.op, Elementwise) and any(rule is not None for rule in node.op.confine or ())


def hoisted(draft: Draft, staying: Collection[Value] = ()) -> Draft | None:
    """Return the loop that is given what is the same in each turn, but for elementwise values that are `staying`; None where nothing is.

    A small sum of cotangents is left of a large one: the derivative of a slice of a const is put into place once, after the loop.
    """
    same: set[Value] = {given.inside for given in draft.consts}
    wanted: dict[Value, None] = {}
    for node in draft.nodes():
        stays = isinstance(node.op, Elementwise) and node.out in staying
        if (
            not stays
            and _may_move(node, draft)
            and all(value in same or isinstance(value, Literal) for value in node.inputs)
        ):
            same.update(node.outs)
        else:
            wanted.update(dict.fromkeys(node.inputs))
    wanted.update(dict.fromkeys(draft.ends))
    given = {const.inside for const in draft.consts}
    moved: dict[Value, None] = {}
    pending = [value for value in wanted if value in same]
    while pending:
        value = pending.pop(0)
        if value in given or value.node is None or isinstance(value, Literal):
            continue
        if value.node.op.name in FREE or all(isinstance(each, Literal) for each in value.node.inputs):
            pending.extend(value.node.inputs)
        else:
            moved[value] = None
    if not moved:
        return None
    outside = emitted(list(moved), {const.inside: const.outside for const in draft.consts})
    changed = draft.with_left(draft.left)
    changed.consts = [*draft.consts, *map(Given, outside, moved)]
    return changed


def _may_move(node: Node, draft: Draft) -> bool:
    """Return whether a node may be computed even if the loop makes no turn."""
    op = node.op
    if isinstance(op, Barrier):
        return False
    if isinstance(op, Structured):
        return all(out.dtype.kind != "O" for out in node.outs)
    looks_up = isinstance(op, IndexMap | Accumulate) and len(node.inputs) > (
        1 if isinstance(op, IndexMap) else 2
    )
    return not looks_up or draft.params.get("length", 0) > 0
