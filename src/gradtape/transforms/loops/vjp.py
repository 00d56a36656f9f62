"""Reverse mode through loops: a forward loop that stores residuals, and a backward loop that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradtape.ir.builder import at
from gradtape.ir.graph import Literal, Node, Value, extract, literal
from gradtape.ir.types import BOOL, Shape, aval, carries_derivatives
from gradtape.kinds.cotangent import Cotangent
from gradtape.ops.core.elementwise.arithmetic import add
from gradtape.ops.core.elementwise.cast import convert, zeros_like
from gradtape.ops.core.elementwise.logic import bitwise_or
from gradtape.ops.core.shape import expand
from gradtape.transforms.activity import active_values
from gradtape.transforms.loops.batch_before_loop import batched_before_loop
from gradtape.transforms.loops.budget import Record, bytes_of_values, planned_policy
from gradtape.transforms.loops.checkpoint import (
    chunk_length,
    has_chunk_policy,
    is_treeverse,
    scan_in_chunks,
    stores_carries,
    while_in_chunks,
)
from gradtape.transforms.loops.deferred_accumulation import DeferredAccumulation
from gradtape.transforms.loops.draft import (
    Carry,
    Draft,
    LoopOp,
    LoopOperand,
    never_stop,
    placeholder,
    substitute,
)
from gradtape.transforms.loops.licm import hoisted, selection_operands
from gradtape.transforms.loops.prefix_sums import with_continued_sums
from gradtape.transforms.loops.residuals import residuals
from gradtape.transforms.loops.treeverse import Treeverse
from gradtape.transforms.vjp import reverse_sweep

Some = Sequence[Cotangent | None]


@dataclass(slots=True)
class _BodyVjp:
    """The pullback of a loop's body: placeholders for the cotangents of its outputs, and the cotangents of its inputs.

    Attributes
    ----------
    carries : dict of Value to Value
        By inner carry: the placeholder for the cotangent of the next carry.
    ys : dict of int to Value
        By position in `Draft.ys`: the placeholder for the cotangent of that element.
    y_masks : dict of int to Value
        By position in `Draft.ys`: the placeholder for the mask of that cotangent.
    cotangents : dict of Value to Value
        The cotangents of the body's inputs.
    carry_masks : dict of Value to Carry
        By inner carry: the mask outside which its cotangent is zero by selection, carried from iteration to iteration. Without it an
        infinite slope would make NaN of such a zero.
    contribution_masks : dict of Value to Value
        By inner const or element: the mask outside which the iteration's contribution to its cotangent is zero by selection.
    """

    carries: dict[Value, Value]
    ys: dict[int, Value]
    y_masks: dict[int, Value]
    cotangents: dict[Value, Value]
    carry_masks: dict[Value, Carry]
    contribution_masks: dict[Value, Value]

    def results(self) -> list[Value]:
        """Return all outputs of the backward body."""
        masks = [mask.next_carry for mask in self.carry_masks.values()]
        return [*self.cotangents.values(), *masks, *self.contribution_masks.values()]

    def substitute(self, becomes: dict[Value, Value]) -> None:
        """Replace values that the backward body reads."""
        changed = iter(substitute(self.results(), becomes))
        self.cotangents = dict(zip(self.cotangents, changed, strict=False))
        self.carry_masks = {
            inner: mask._replace(next_carry=next_carry)
            for (inner, mask), next_carry in zip(self.carry_masks.items(), changed, strict=False)
        }
        self.contribution_masks = dict(zip(self.contribution_masks, changed, strict=True))


def pull_loop(op: LoopOp, node: Node, cotangents: Some, is_needed: Sequence[bool]) -> list[Cotangent | None]:
    """Return the cotangents of a loop's operands; None for an operand that is not wanted, or that no cotangent reaches.

    If the loop has invariants, code that can be batched before it, or a policy with chunks, the equivalent loop is differentiated instead.
    """
    draft = op.open_draft(node)
    carries, ys, _ = op.split_outputs(cotangents, len(draft.carries))
    outputs = zip((*[carry.next_carry for carry in draft.carries], *draft.ys), (*carries, *ys), strict=True)
    excluded = selection_operands(
        draft, [output for output, each in outputs if each is not None and each.mask is not None]
    )
    better = hoisted(draft, excluded, deriving=True) or batched_before_loop(draft, excluded)
    if better is not None:
        return _vjp_through(op.outs(better.emit()), node, cotangents, is_needed)
    chunk = chunk_length(draft.params.get("length", 0), draft.params.get("policy"))
    if chunk is not None:
        return _vjp_through(op.outs(scan_in_chunks(draft, chunk)), node, cotangents, is_needed)
    if has_chunk_policy(draft):
        return _vjp_through(op.outs(while_in_chunks(draft)), node, cotangents, is_needed)
    body = _body_vjp(draft, carries, ys, is_needed)
    policy = _planned_policy(node, draft, body)
    if policy is not None:
        draft.params = {**draft.params, "policy": policy}
        with at(node.site):
            outs = op.outs(draft.emit())
        return _vjp_through(outs, node, cotangents, is_needed)
    mask_carries: list[Carry] = []
    if is_treeverse(draft.params.get("policy")):
        back, mask_carries = _recompute_carries(op, node, draft, body)
    else:
        stacks, mask_carries, count = _store_residuals(op, node, draft, body)
        back = op.reversed_draft(draft, count)
        back.consts = list(draft.consts)
        back.elements = [*draft.elements, *stacks]
    for position, seed in body.ys.items():
        cotangent = ys[position]
        assert cotangent is not None
        back.elements.append(LoopOperand(cotangent.value, seed))
        if cotangent.mask is not None:
            mask = _spread(cotangent.mask, cotangent.value.shape)
            back.elements.append(LoopOperand(mask, body.y_masks[position]))
    return _emit_backward(draft, body, back, mask_carries, carries, is_needed)


def _recompute_carries(op: LoopOp, node: Node, draft: Draft, body: _BodyVjp) -> tuple[Draft, list[Carry]]:
    """Return the backward loop whose iterations recompute the carries from checkpoints, and its further carries for that."""
    _, _, trips = op.split_outputs(node.outs, len(draft.carries))
    back = op.reversed_draft(draft, trips)
    back.consts = list(draft.consts)
    _, count = draft.params["policy"]
    # More checkpoints than iterations are useless.
    count = min(max(count, 1), max(draft.params.get("length", count), 1))
    treeverse = Treeverse(draft, back, count, *op.while_and_repeat())
    back.elements = list(draft.elements)
    body.substitute(treeverse.entries)
    return back, treeverse.carries


def _emit_backward(
    draft: Draft,
    body: _BodyVjp,
    back: Draft,
    mask_carries: Sequence[Carry],
    carries: Some,
    is_needed: Sequence[bool],
) -> list[Cotangent | None]:
    """Append the backward loop `back`, and return the cotangent of each operand of the node.

    The loop has its operands already. It gets the carries `mask_carries`, the cotangents of carries (of the shapes of these), sums of the
    cotangents of consts, and the cotangents of elements as stacked outputs.
    """
    by_carry: list[Value] = []
    for carry, cotangent in zip(draft.carries, carries, strict=True):
        seed = body.carries.get(carry.inner)
        if seed is not None:
            init = zeros_like(carry.init) if cotangent is None else cotangent.value
            next_carry = body.cotangents.get(carry.inner)
            back.carries.append(Carry(init, seed, zeros_like(seed) if next_carry is None else next_carry))
            by_carry.append(carry.inner)
    elements = [element.inner for element in draft.elements if element.inner in body.cotangents]
    masked = [inner for inner in elements if inner in body.contribution_masks]
    back.ys = [
        *[body.cotangents[inner] for inner in elements],
        *[body.contribution_masks[inner] for inner in masked],
    ]
    count = len(back.ys)
    deferred = _accumulate_consts(draft, body, back, by_carry)
    if not back.carries and not back.ys:
        return [None] * len(is_needed)
    shared = [
        const
        for const in draft.consts
        if const.inner in body.contribution_masks and const.inner in body.cotangents
    ]
    back.carries += [
        *mask_carries,
        *body.carry_masks.values(),
        *[_const_mask_carry(const, body) for const in shared],
    ]
    outputs = back.emit()
    cotangents = dict(
        zip(
            (*by_carry, *elements),
            (*outputs.carries[: len(by_carry)], *outputs.ys[: len(elements)]),
            strict=True,
        )
    )
    masks = dict(
        zip(
            (*body.carry_masks, *[const.inner for const in shared], *masked),
            (*outputs.carries[len(by_carry) + len(mask_carries) :], *outputs.ys[len(elements) : count]),
            strict=True,
        )
    )
    if deferred is not None:
        for const, total in deferred.totals(outputs.ys).items():
            cotangents[const] = add(cotangents[const], total) if const in cotangents else total
    inners = draft.body_inputs[1:]
    lead: list[Cotangent | None] = [None] * (len(is_needed) - len(inners))
    flags = is_needed[len(lead) :]
    return [
        *lead,
        *[
            Cotangent(cotangents[inner], masks.get(inner), inner in body.contribution_masks)
            if flag and inner in cotangents
            else None
            for inner, flag in zip(inners, flags, strict=True)
        ],
    ]


def _const_mask_carry(const: LoopOperand, body: _BodyVjp) -> Carry:
    """Return the carry that gathers the masks of all contributions to the cotangent of a const."""
    running = Value(aval(const.inner.shape, BOOL))
    never = expand(literal(False), const.inner.shape, ())
    return Carry(never, running, bitwise_or(running, body.contribution_masks[const.inner]))


def _accumulate_consts(
    draft: Draft, body: _BodyVjp, back: Draft, by_carry: list[Value]
) -> DeferredAccumulation | None:
    """Make the backward loop accumulate the cotangents of consts, or stack what is accumulated after it."""
    # A policy bounds memory, and results must not depend on the policy.
    deferred = (
        DeferredAccumulation(back) if "length" in back.params and back.params["policy"] is None else None
    )
    parts: dict[LoopOperand, Value] = {}
    for const in draft.consts:
        part = body.cotangents.get(const.inner)
        if part is not None and deferred is not None:
            part = deferred.defer(const, part)
        if part is not None:
            parts[const] = part
    sums = [placeholder(const.inner) for const in parts]
    totals = [add(running, part) for running, part in zip(sums, parts.values(), strict=True)]
    next_carries = [carry.next_carry for carry in back.carries]
    changed = [
        value for value in with_continued_sums([*totals, *next_carries, *back.ys]) if value is not None
    ]
    count = len(totals)
    back.carries = [
        carry._replace(next_carry=next_carry)
        for carry, next_carry in zip(back.carries, changed[count:], strict=False)
    ]
    back.ys = changed[count + len(next_carries) :]
    for const, running, total in zip(parts, sums, changed, strict=False):
        back.carries.append(Carry(zeros_like(const.outer), running, total))
        by_carry.append(const.inner)
    return deferred


def _vjp_through(
    outs: Sequence[Value], node: Node, cotangents: Some, is_needed: Sequence[bool]
) -> list[Cotangent | None]:
    """Return the cotangents of a node's operands by differentiating `outs`, which are equal to the node's outputs."""
    sources = dict.fromkeys(value for value, flag in zip(node.inputs, is_needed, strict=True) if flag)
    pairs = [
        (out, cotangent) for out, cotangent in zip(outs, cotangents, strict=True) if cotangent is not None
    ]
    sweep = reverse_sweep(
        [out for out, _ in pairs],
        list(sources),
        [cotangent.value for _, cotangent in pairs],
        set(node.inputs).__contains__,
        set(sources),
        [cotangent.mask for _, cotangent in pairs],
    )
    arrived = dict(sweep.arrived())
    parts = [arrived.get(source) for source in sources]
    values = with_continued_sums(
        [
            *[None if part is None else part.value for part in parts],
            *[None if part is None else part.mask for part in parts],
        ]
    )
    by_source = {
        source: Cotangent(value, mask, part.is_applied)
        for source, value, mask, part in zip(sources, values, values[len(parts) :], parts, strict=False)
        if value is not None and part is not None
    }
    # An operand that is passed twice has its cotangent once.
    return [
        by_source.pop(value, None) if flag else None
        for value, flag in zip(node.inputs, is_needed, strict=True)
    ]


def _body_vjp(draft: Draft, carries: Some, ys: Some, is_needed: Sequence[bool]) -> _BodyVjp:
    """Return the pullback of the body.

    Which carries have cotangents, and which of these have masks, is found by a fixed point: the body is differentiated until no further
    carry has one.
    """
    sources = _differentiable_inputs(draft, is_needed)
    active = active_values(draft.nodes(), sources)
    carry_seeds = {
        carry.inner: placeholder(carry.inner)
        for carry, cotangent in zip(draft.carries, carries, strict=True)
        if cotangent is not None and carry.inner in sources
    }
    y_seeds = {
        number: placeholder(value)
        for number, (value, cotangent) in enumerate(zip(draft.ys, ys, strict=True))
        if cotangent is not None and value in active
    }
    inners = [carry.inner for carry in draft.carries]
    init_masks = {
        inner: _spread(cotangent.mask, inner.shape)
        for inner, cotangent in zip(inners, carries, strict=True)
        if inner in carry_seeds and cotangent is not None and cotangent.mask is not None
    }
    masks = {inner: Value(aval(inner.shape, BOOL)) for inner in init_masks}
    y_masks = {
        number: Value(aval(stand.shape, BOOL))
        for number, stand in y_seeds.items()
        if (cotangent := ys[number]) is not None and cotangent.mask is not None
    }
    while True:  # terminates: each round but the last finds another carry with a cotangent or a mask
        targets = [carry for carry in draft.carries if carry.inner in carry_seeds]
        sweep = reverse_sweep(
            [*[carry.next_carry for carry in targets], *[draft.ys[number] for number in y_seeds]],
            list(sources),
            [*[carry_seeds[carry.inner] for carry in targets], *y_seeds.values()],
            never_stop,
            masks=[*[masks.get(carry.inner) for carry in targets], *map(y_masks.get, y_seeds)],
        )
        pulled = {
            source: _convert_like(result, source)
            for source, result in zip(sources, sweep.results, strict=True)
            if result is not None
        }
        arrived = dict(sweep.arrived())
        masked = [inner for inner in inners if inner in pulled and arrived[inner].mask is not None]
        newly_active = [inner for inner in inners if inner in pulled and inner not in carry_seeds]
        newly_masked = [inner for inner in masked if inner not in masks]
        if not newly_active and not newly_masked:
            break
        carry_seeds.update({inner: placeholder(inner) for inner in newly_active})
        masks.update({inner: Value(aval(inner.shape, BOOL)) for inner in newly_masked})
    carried = _carried_masks(draft, carries, init_masks, masks, pulled, arrived)
    contribution_masks = {
        operand.inner: _spread(end.mask, operand.inner.shape)
        for operand in (*draft.consts, *draft.elements)
        if operand.outer.dtype.kind != "O"
        and (end := arrived.get(operand.inner)) is not None
        and end.mask is not None
        and operand.inner in pulled
    }
    return _BodyVjp(carry_seeds, y_seeds, y_masks, pulled, carried, contribution_masks)


def _carried_masks(
    draft: Draft,
    cotangents: Some,
    init_masks: dict[Value, Value],
    masks: Mapping[Value, Value],
    pulled: dict[Value, Value],
    arrived: Mapping[Value, Cotangent],
) -> dict[Value, Carry]:
    """Return the masks that the backward loop carries, by carry; their cotangents in `pulled` are unmasked then."""
    carried: dict[Value, Carry] = {}
    for carry, cotangent in zip(draft.carries, cotangents, strict=True):
        if carry.inner in masks and cotangent is None:  # the last iteration has no cotangent
            init_masks[carry.inner] = expand(literal(False), carry.inner.shape, ())
    for inner, mask in masks.items():
        everywhere = expand(literal(True), inner.shape, ())
        end = arrived.get(inner)
        if end is not None:
            pulled[inner] = _convert_like(end.value, inner)
        next_carry = everywhere if end is None or end.mask is None else _spread(end.mask, inner.shape)
        carried[inner] = Carry(init_masks.get(inner, everywhere), mask, next_carry)
    return carried


def _spread(mask: Value, shape: Shape) -> Value:
    """Return a mask as a loop carries it: a literal, from a condition that is known, is spread over the shape of the cotangent."""
    return expand(mask, shape, ()) if isinstance(mask, Literal) and shape else mask


def _differentiable_inputs(draft: Draft, is_needed: Sequence[bool]) -> dict[Value, None]:
    """Return the inputs of the body that depend on wanted operands, carries through earlier iterations included."""
    flags = [flag for group in draft.split(is_needed) for flag in group]
    inputs: dict[Value, None] = {
        inner: None
        for inner, flag in zip(draft.body_inputs[1:], flags, strict=True)
        if flag and carries_derivatives(inner.dtype)
    }
    nodes = draft.nodes()
    while True:  # terminates: each round but the last finds another carry
        active = active_values(nodes, inputs)
        newly_active = [
            carry.inner
            for carry in draft.carries
            if carry.next_carry in active
            and carry.inner not in inputs
            and carries_derivatives(carry.inner.dtype)
        ]
        if not newly_active:
            return inputs
        inputs.update(dict.fromkeys(newly_active))


def _planned_policy(node: Node, draft: Draft, body: _BodyVjp) -> Any:
    """Return the policy with which the record of a loop fits in the memory budget; None where it fits without, or a policy was stated."""
    unknown = draft.count is not None or (draft.test is not None and draft.ys)
    if draft.params.get("policy") is not None or "policy" not in draft.params or unknown:
        return None
    length = draft.params["length"] if "length" in draft.params else draft.params["limit"]
    stored = _stored_values(draft, body)
    on_the_way = _carried_backward(draft, stored)
    stored = [value for value in stored if value not in draft.ys and value not in on_the_way]
    record = Record(
        length, bytes_of_values(stored), bytes_of_values([carry.inner for carry in draft.carries])
    )
    return planned_policy(record, draft.nodes(), node.site) if stored else None


def _stored_values(draft: Draft, body: _BodyVjp) -> list[Value]:
    """Return the residuals of an iteration."""
    reads, primal_nodes = _read_by_backward(draft, body)
    inners = [carry.inner for carry in draft.carries]
    if stores_carries(draft.params.get("policy")):
        needed = set(reads).union(*[each.inputs for each in primal_nodes])
        return [carry.inner for carry in draft.carries if carry.inner in needed]
    return residuals(inners, reads, primal_nodes, set(draft.nodes()), draft.ys)


def _store_residuals(
    op: LoopOp, node: Node, draft: Draft, body: _BodyVjp
) -> tuple[list[LoopOperand], list[Carry], Value | None]:
    """Return the stacked residuals, further carries of the backward loop, and the trip count where it is an output of the loop."""
    stored = _stored_values(draft, body)
    carried_backward = _carried_backward(draft, stored)
    stored = [value for value in stored if value not in carried_backward]
    finals, ys, count = op.split_outputs(node.outs, len(draft.carries))
    stacks = {value: stack for value, stack in zip(draft.ys, ys, strict=True) if value in stored}
    not_stacked = [value for value in stored if value not in stacks]
    if not_stacked:
        with at(node.site):  # a forward loop
            outputs = draft.with_ys(not_stacked).emit()
        finals, count = outputs.carries, outputs.trip_count
        stacks.update(zip(not_stacked, outputs.ys, strict=True))
    carries = [
        Carry(finals[position], next_carry, draft.carries[position].inner)
        for next_carry, position in carried_backward.items()
    ]
    return [LoopOperand(stacks[value], value) for value in stored], carries, count


def _carried_backward(draft: Draft, stored: Sequence[Value]) -> dict[Value, int]:
    """Return next carries that need not be stored, with their positions: the backward loop has them as the next iteration's carries."""
    chosen = set(stored)
    carried: dict[Value, int] = {}
    for number, carry in enumerate(draft.carries):
        computed = (
            carry.next_carry in chosen
            and carry.next_carry.node is not None
            and carry.next_carry not in draft.ys
        )
        if computed and carry.inner in chosen:
            carried.setdefault(carry.next_carry, number)
    return carried


def _read_by_backward(draft: Draft, body: _BodyVjp) -> tuple[dict[Value, None], list[Node]]:
    """Return the primal values that the backward body reads, and the primal nodes: those that depend on no cotangent."""
    derived = {*body.carries.values(), *body.ys.values(), *body.y_masks.values()}
    derived.update([mask.inner for mask in body.carry_masks.values()])
    results = body.results()
    nodes, _ = extract(results, [*draft.body_inputs, *derived])
    primal_nodes: list[Node] = []
    read: list[Value] = []
    for node in nodes:
        if any(value in derived for value in node.inputs):
            derived.update(node.outs)
            read.extend(node.inputs)
        else:
            primal_nodes.append(node)
    primal_values = (value for value in (*read, *results) if value not in derived)
    return {v: None for v in primal_values if not isinstance(v, Literal) and v.data is None}, primal_nodes


def _convert_like(part: Value, like: Value) -> Value:
    return part if part.dtype == like.dtype else convert(part, like.dtype)
