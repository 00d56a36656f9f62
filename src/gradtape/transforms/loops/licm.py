"""Loop-invariant code motion."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gradtape.ir.graph import Literal, Node, Value, extract, literal
from gradtape.ir.types import BOOL, INT64
from gradtape.kinds.control import Barrier, Structured
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap, repeated_number
from gradtape.ops.core.elementwise.cast import convert, zeros_like
from gradtape.ops.core.elementwise.logic import greater
from gradtape.ops.core.shape import expand_row, permute_row
from gradtape.transforms.loops.branches import select
from gradtape.transforms.loops.draft import Draft, LoopOperand, emit_substituted

VIEWS: Final = frozenset({expand_row, permute_row})
"""Index maps that only change how a value is read: outside the loop they would allocate memory."""

SMALL_INVARIANT: Final = 16
"""Elements up to which an invariant with finite derivatives is computed even if the loop has no iteration."""


def selection_operands(draft: Draft, masked: Collection[Value]) -> set[Value]:
    """Return the values of the body from which a selection, or a value that is `masked` by one, is computed by elementwise nodes alone.

    Paths through loop-carried values count. Inside the loop the mask of the selection reaches the cotangents of these values. Outside,
    they would get a plain zero, and an infinite slope would make NaN of it.
    """
    selecting = set(masked)
    nodes = draft.nodes()
    while True:  # terminates: each round but the last finds another value
        for node in reversed(nodes):
            if isinstance(node.op, Elementwise):
                rules = node.op.confine or (None,) * len(node.inputs)
                reached = not selecting.isdisjoint(node.outs)
                selecting.update(
                    value
                    for value, rule in zip(node.inputs, rules, strict=True)
                    if reached or rule is not None
                )
        later = {carry.next_carry for carry in draft.carries if carry.inner in selecting} - selecting
        if not later:
            return selecting
        selecting |= later


def is_selection(node: Node) -> bool:
    """Return whether a node selects elements of its operands by a mask."""
    return isinstance(node.op, Elementwise) and any(rule is not None for rule in node.op.confine or ())


def hoisted(draft: Draft, excluded: Collection[Value] = (), *, deriving: bool = False) -> Draft | None:
    """Return the loop with its invariants computed before it and passed as consts; None where there are none.

    Elementwise values in `excluded` stay in the loop. A sum of cotangents becomes smaller as well: the derivative of a slice of a const is
    padded once, after the loop.

    If the loop may have no iteration, only invariants that its condition reads, and small ones that are always finite, are computed
    unconditionally; others are computed in a branch that is taken if there is a first iteration. With `deriving`, invariants that both
    the condition and the body read stay in the loop: their derivative would be taken even if there is no iteration.
    """
    moved = _invariants(draft, excluded)
    if not moved:
        return None
    consts = {const.inner: const.outer for const in draft.consts}
    if draft.params.get("length", 0) > 0:
        outer = emit_substituted(moved, consts)
    else:
        safe, guarded = _partition(draft, moved, deriving)
        if not safe and not guarded:
            return None
        emitted = {**consts, **dict(zip(safe, emit_substituted(safe, consts), strict=True))}
        outer = [emitted[value] for value in safe]
        if guarded:
            outer += _emit_guarded(draft, guarded, emitted)
        moved = [*safe, *guarded]
    changed = draft.with_ys(draft.ys)
    changed.consts = [*draft.consts, *map(LoopOperand, outer, moved)]
    return changed


def _invariants(draft: Draft, excluded: Collection[Value]) -> list[Value]:
    """Return the values that are the same in each iteration and worth storing."""
    invariant: set[Value] = {const_inputs.inner for const_inputs in draft.consts}
    read_values: dict[Value, None] = {}
    for node in draft.nodes():
        stays = isinstance(node.op, Elementwise) and node.out in excluded
        if (
            not stays
            and _may_move(node)
            and all(value in invariant or isinstance(value, Literal) for value in node.inputs)
        ):
            invariant.update(node.outs)
        else:
            read_values.update(dict.fromkeys(node.inputs))
    read_values.update(dict.fromkeys(draft.body_outputs))
    const_inputs = {const.inner for const in draft.consts}
    moved: dict[Value, None] = {}
    pending = [value for value in read_values if value in invariant]
    while pending:
        value = pending.pop(0)
        if value in const_inputs or value.node is None or isinstance(value, Literal):
            continue
        if (
            value.node.op in VIEWS
            or _is_test(value)
            or all(isinstance(each, Literal) for each in value.node.inputs)
        ):
            pending.extend(value.node.inputs)
        else:
            moved[value] = None
    return list(moved)


def _is_test(value: Value) -> bool:
    """Return whether a mask asks where an element lies and nothing else: rules for selections must see that."""
    node = value.node
    return (
        value.dtype == BOOL
        and node is not None
        and isinstance(node.op, IndexMap)
        and len(node.inputs) == 1
        and repeated_number(node.inputs[0]) is not None
    )


def _may_move(node: Node) -> bool:
    """Return whether a node may be computed before a loop with at least one iteration."""
    if isinstance(node.op, Structured):
        return all(out.dtype.kind != "O" for out in node.outs)
    return not isinstance(node.op, Barrier)


def _partition(draft: Draft, moved: Sequence[Value], deriving: bool) -> tuple[list[Value], list[Value]]:
    """Split the invariants of a loop that may have no iteration: computed unconditionally, and only if there is one."""
    if draft.params.get("limit") == 0 or (draft.test is None and draft.count is None):
        return [], []
    body_inputs = draft.body_inputs
    tested = _dependencies([] if draft.test is None else [draft.test], body_inputs)
    computed = _dependencies([end for end in draft.body_outputs if end is not draft.test], body_inputs)
    safe: list[Value] = []
    guarded: list[Value] = []
    for value in moved:
        if value in tested and value in computed and deriving and not _is_cheap(value, body_inputs):
            continue
        (safe if value in tested or _is_cheap(value, body_inputs) else guarded).append(value)
    return safe, guarded


def _dependencies(outputs: Sequence[Value], body_inputs: Sequence[Value]) -> set[Value]:
    """Return all values that some outputs of the body depend on."""
    return {*outputs, *[out for node in extract(outputs, body_inputs)[0] for out in node.outs]}


def _is_cheap(value: Value, body_inputs: Sequence[Value]) -> bool:
    """Return whether a value is cheap, cannot fail, and has finite derivatives."""
    return all(
        node.op.finite_derivatives and max(out.size for out in node.outs) <= SMALL_INVARIANT
        for node in extract([value], body_inputs)[0]
    )


def _emit_guarded(
    draft: Draft, guarded_values: Sequence[Value], emitted: Mapping[Value, Value]
) -> list[Value]:
    """Append a branch that computes invariants if the loop has an iteration; else they are zeros, which nothing reads."""
    if draft.test is None:
        assert draft.count is not None
        has_iteration = greater(draft.count, literal(0, INT64))
    else:
        inits = {carry.inner: carry.init for carry in draft.carries}
        (has_iteration,) = emit_substituted(
            [draft.test], {**emitted, **inits, draft.index: literal(0, INT64)}
        )
    zeros = [zeros_like(value) for value in guarded_values]
    placeholders = list(emitted)
    index = convert(has_iteration, INT64)
    return list(
        select(
            draft.op.switch_op(),
            index,
            list(emitted.values()),
            [placeholders, placeholders],
            [zeros, guarded_values],
        )
    )
