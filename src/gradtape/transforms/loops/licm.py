"""What a loop computes anew in each turn although it is the same each time, taken out of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gradtape.ir.graph import Literal, Node, Value, extract, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INT64
from gradtape.kinds.control import Barrier, Structured
from gradtape.kinds.elementwise import Elementwise
from gradtape.transforms.loops.branches import select
from gradtape.transforms.loops.draft import Draft, Given, emitted

FREE: Final = ("expand", "permute")
"""Rows that only say how another value is read: outside they would fill memory."""

SLIGHT: Final = 16
"""Elements up to which an array of such rows as `TAME` has is computed whether or not it is needed."""

TAME: Final = frozenset(
    {"add", "subtract", "multiply", "negative", "sin", "cos", "tanh", "arctan", "where", "convert", "expand"}
    | {"maximum", "minimum", "absolute", "identity", "permute", "reshape", "slice", "reduce_sum", "contract"}
    | {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "invert"}
)
"""Rows whose derivatives are finite, other than by overflow."""


def selected(draft: Draft, cut: Collection[Value]) -> set[Value]:
    """Return what goes into a selection, or into what is `cut` by one, by elementwise nodes alone, in its turn or in a later one.

    The mask of the selection reaches its cotangent in the turns: computed outside of the loop, it would get a plain zero, and an infinite
    slope would make NaN of it.
    """
    found = set(cut)
    nodes = draft.nodes()
    while True:  # ends: each round but the last finds a value more
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


def hoisted(draft: Draft, staying: Collection[Value] = (), *, deriving: bool = False) -> Draft | None:
    """Return the loop that is given what is the same in each turn, but for elementwise values that are `staying`; None where nothing is.

    A small sum of cotangents is left of a large one: the derivative of a slice of a const is put into place once, after the loop.

    A loop that may make no turn computes before it only what its condition reads, and what is small and always finite; the rest is
    computed in a branch, which is taken if there is a first turn. With `deriving`, what both the condition and the turns read stays:
    its derivative would be taken also if there is no turn.
    """
    moved = _invariants(draft, staying)
    if not moved:
        return None
    consts = {const.inside: const.outside for const in draft.consts}
    if draft.params.get("length", 0) > 0:
        outside = emitted(moved, consts)
    else:
        safe, guarded = _sorted_out(draft, moved, deriving)
        if not safe and not guarded:
            return None
        known = {**consts, **dict(zip(safe, emitted(safe, consts), strict=True))}
        outside = [known[value] for value in safe]
        if guarded:
            outside += _computed_if_turned(draft, guarded, known)
        moved = [*safe, *guarded]
    changed = draft.with_left(draft.left)
    changed.consts = [*draft.consts, *map(Given, outside, moved)]
    return changed


def _invariants(draft: Draft, staying: Collection[Value]) -> list[Value]:
    """Return what is the same in each turn and worth a place in memory."""
    same: set[Value] = {given.inside for given in draft.consts}
    wanted: dict[Value, None] = {}
    for node in draft.nodes():
        stays = isinstance(node.op, Elementwise) and node.out in staying
        if (
            not stays
            and _may_move(node)
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
    return list(moved)


def _may_move(node: Node) -> bool:
    """Return whether a node may be computed before a loop that makes a turn."""
    if isinstance(node.op, Structured):
        return all(out.dtype.kind != "O" for out in node.outs)
    return not isinstance(node.op, Barrier)


def _sorted_out(draft: Draft, moved: Sequence[Value], deriving: bool) -> tuple[list[Value], list[Value]]:
    """Return which invariants of a loop that may make no turn are computed in any case, and which only if there is a first turn."""
    if draft.params.get("limit") == 0 or (draft.test is None and draft.count is None):
        return [], []
    insides = draft.insides
    asked = _cone([] if draft.test is None else [draft.test], insides)
    worked = _cone([end for end in draft.ends if end is not draft.test], insides)
    safe: list[Value] = []
    guarded: list[Value] = []
    for value in moved:
        if value in asked and value in worked and deriving and not _is_slight(value, insides):
            continue
        (safe if value in asked or _is_slight(value, insides) else guarded).append(value)
    return safe, guarded


def _cone(ends: Sequence[Value], insides: Sequence[Value]) -> set[Value]:
    """Return all that is computed for some results of a turn."""
    return {*ends, *[out for node in extract(ends, insides)[0] for out in node.outs]}


def _is_slight(value: Value, insides: Sequence[Value]) -> bool:
    """Return whether a value costs next to nothing, cannot fail, and has finite derivatives."""
    return all(
        node.op.name in TAME and max(out.size for out in node.outs) <= SLIGHT
        for node in extract([value], insides)[0]
    )


def _computed_if_turned(draft: Draft, wanted: Sequence[Value], known: Mapping[Value, Value]) -> list[Value]:
    """Append a branch that computes invariants if the loop makes a turn, and else fills in zeros that nobody reads."""
    if draft.test is None:
        assert draft.count is not None
        turned = PRIMITIVES["greater"](draft.count, literal(0, INT64))
    else:
        starts = {carry.inside: carry.start for carry in draft.carries}
        (turned,) = emitted([draft.test], {**known, **starts, draft.index: literal(0, INT64)})
    zeros = [PRIMITIVES["zeros_like"](value) for value in wanted]
    stands = list(known)
    index = PRIMITIVES["convert"](turned, INT64)
    return list(select(draft.op.switch(), index, list(known.values()), [stands, stands], [zeros, wanted]))
