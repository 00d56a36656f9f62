"""Forward mode through loops: the same loop with tangents as further operands, carries and outputs."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Literal, Node, Value, literal
from gradtape.ir.types import BOOL, aval
from gradtape.kinds.cotangent import Tangent
from gradtape.ops.core.elementwise.cast import zeros_like
from gradtape.ops.core.shape import expand
from gradtape.transforms.jvp import forward_sweep
from gradtape.transforms.loops.draft import Carry, LoopOp, LoopOperand, never_stop, placeholder


def push_loop(op: LoopOp, node: Node, tangents: Sequence[Tangent | None]) -> list[Tangent | None]:
    """Return the tangents of a loop's outputs; None where a tangent is zero.

    A carry has a tangent if its initial value has one, or if the body gives it one in some iteration: that is found by a fixed point. So
    is which of these have masks, which are further operands, carries and outputs. Those that are not read are dropped later.
    """
    draft = op.open_draft(node)
    consts, inits, elements = draft.split(tangents)
    known: dict[Value, Tangent] = {}
    for mine, pushed_in in ((draft.consts, consts), (draft.elements, elements)):
        for operand, tangent in zip(tuple(mine), pushed_in, strict=True):
            if tangent is not None:
                own = LoopOperand(tangent.value, placeholder(operand.inner))
                mask = tangent.mask
                if mask is not None and not isinstance(mask, Literal):
                    mask = Value(aval(operand.inner.shape, BOOL))
                    mine.append(LoopOperand(_whole(tangent.mask, tangent.value), mask))
                mine.append(own)
                known[operand.inner] = Tangent(own.inner, mask, tangent.is_applied)
    carries = tuple(draft.carries)
    active: dict[Value, Tangent] = {}
    for carry, init in zip(carries, inits, strict=True):
        if init is not None:
            masked = init.mask is not None
            active[carry.inner] = _carried(carry.inner, masked)
    while True:  # terminates: each round but the last finds another carry with a tangent, or with a mask
        pushed = forward_sweep(
            [*[carry.next_carry for carry in carries], *draft.ys],
            [*known, *active],
            [*known.values(), *active.values()],
            never_stop,
        )
        changed = {
            carry.inner: _carried(carry.inner, masked=True)
            for carry, tangent in zip(carries, pushed, strict=False)
            if tangent is not None
            and (carry.inner not in active or (active[carry.inner].mask is None and tangent.mask is not None))
        }
        if not changed:
            break
        active.update(changed)
    ends: list[tuple[int | None, int | None]] = []  # positions among the carries of the new loop
    for carry, init, end in zip(carries, inits, pushed, strict=False):
        inner = active.get(carry.inner)
        if inner is None:
            ends.append((None, None))
            continue
        first = zeros_like(carry.init) if init is None else init.applied()
        last = zeros_like(carry.inner) if end is None else end.applied()
        position = len(draft.carries)
        draft.carries.append(Carry(first, inner.value, last))
        if inner.mask is not None:
            begins = expand(literal(False), carry.inner.shape, ()) if init is None else init.mask
            goes_on = expand(literal(False), carry.inner.shape, ()) if end is None else end.mask
            draft.carries.append(Carry(_whole(begins, carry.inner), inner.mask, _whole(goes_on, carry.inner)))
        ends.append((position, None if inner.mask is None else position + 1))
    y_places: list[tuple[int | None, int | None]] = []
    for tangent in pushed[len(carries) :]:
        if tangent is None:
            y_places.append((None, None))
            continue
        position = len(draft.ys)
        draft.ys.append(tangent.applied())
        if tangent.mask is not None:
            draft.ys.append(_whole(tangent.mask, tangent.value))
        y_places.append((position, None if tangent.mask is None else position + 1))
    outputs = draft.emit()
    values = op.arrange_outputs(
        [_at(outputs.carries, position) for position, _ in ends],
        [_at(outputs.ys, position) for position, _ in y_places],
    )
    masks = op.arrange_outputs(
        [_at(outputs.carries, position) for _, position in ends],
        [_at(outputs.ys, position) for _, position in y_places],
    )
    return [
        None if value is None else Tangent(value, mask, is_applied=True)
        for value, mask in zip(values, masks, strict=True)
    ]


def _carried(inner: Value, masked: bool) -> Tangent:
    """Return the tangent of a carry inside the body."""
    mask = Value(aval(inner.shape, BOOL)) if masked else None
    return Tangent(placeholder(inner), mask, is_applied=masked)


def _whole(mask: Value | None, like: Value) -> Value:
    """Return a mask as an array of the shape of its tangent; nothing is zero by selection without a mask."""
    if mask is None or isinstance(mask, Literal):
        return expand(literal(True) if mask is None else mask, like.shape, ())
    return mask


def _at(values: Sequence[Value], position: int | None) -> Value | None:
    return None if position is None else values[position]
