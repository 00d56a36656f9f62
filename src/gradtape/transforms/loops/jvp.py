"""Forward mode through loops: the same loop with tangents as further operands, carries and outputs."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Node, Value
from gradtape.ops.core.elementwise.cast import zeros_like
from gradtape.transforms.jvp import jvp
from gradtape.transforms.loops.draft import Carry, LoopOp, LoopOperand, never_stop, placeholder


def push_loop(op: LoopOp, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
    """Return the tangents of a loop's outputs; None where a tangent is zero.

    A carry has a tangent if its initial value has one, or if the body gives it one in some iteration: that is found by a fixed point.
    """
    draft = op.open_draft(node)
    consts, inits, elements = draft.split(tangents)
    tangent_consts = _tangent_operands(draft.consts, consts)
    tangent_elements = _tangent_operands(draft.elements, elements)
    operands = {
        primal: tangent.inner for primal, tangent in (*tangent_consts.items(), *tangent_elements.items())
    }
    active = {
        carry.inner: placeholder(carry.inner)
        for carry, tangent in zip(draft.carries, inits, strict=True)
        if tangent is not None
    }
    while True:  # terminates: each round but the last finds another carry with a tangent
        known = {**operands, **active}
        pushed = jvp(
            [*[carry.next_carry for carry in draft.carries], *draft.ys],
            list(known),
            list(known.values()),
            never_stop,
        )
        newly_active = [
            carry
            for carry, tangent in zip(draft.carries, pushed, strict=False)
            if tangent is not None and carry.inner not in active
        ]
        if not newly_active:
            break
        active.update({carry.inner: placeholder(carry.inner) for carry in newly_active})
    draft.consts += tangent_consts.values()
    draft.elements += tangent_elements.values()
    carries = len(draft.carries)
    for carry, init, next_carry in zip(tuple(draft.carries), inits, pushed, strict=False):
        if carry.inner in active:
            draft.carries.append(
                Carry(_or_zeros(init, carry.init), active[carry.inner], _or_zeros(next_carry, carry.inner))
            )
    count = len(draft.ys)
    draft.ys += [tangent for tangent in pushed[carries:] if tangent is not None]
    outputs = draft.emit()
    final_tangents, y_tangents = iter(outputs.carries[carries:]), iter(outputs.ys[count:])
    return op.arrange_outputs(
        [next(final_tangents) if carry.inner in active else None for carry in draft.carries[:carries]],
        [None if tangent is None else next(y_tangents) for tangent in pushed[carries:]],
    )


def _tangent_operands(
    operands: Sequence[LoopOperand], tangents: Sequence[Value | None]
) -> dict[Value, LoopOperand]:
    return {
        operand.inner: LoopOperand(tangent, placeholder(operand.inner))
        for operand, tangent in zip(operands, tangents, strict=True)
        if tangent is not None
    }


def _or_zeros(value: Value | None, like: Value) -> Value:
    return zeros_like(like) if value is None else value
