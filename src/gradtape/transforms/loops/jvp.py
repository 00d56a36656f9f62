"""Forward mode through loops: the same loop with tangents carried along."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Node, Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.transforms.jvp import jvp
from gradtape.transforms.loops.draft import Carry, Given, Loop, nothing, stand_in


def push_loop(op: Loop, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
    """Return the tangents of a loop's outputs."""
    draft = op.opened(node)
    consts, starts, elements = draft.split(tangents)
    moved_consts, moved_elements = _moved(draft.consts, consts), _moved(draft.elements, elements)
    fixed = {single: moved.inside for single, moved in (*moved_consts.items(), *moved_elements.items())}
    moving = {
        carry.inside: stand_in(carry.inside)
        for carry, tangent in zip(draft.carries, starts, strict=True)
        if tangent is not None
    }
    while True:  # ends: each round but the last finds a carry more that moves
        known = {**fixed, **moving}
        pushed = jvp([*_afters(draft.carries), *draft.left], list(known), list(known.values()), nothing)
        woken = [
            carry
            for carry, tangent in zip(draft.carries, pushed, strict=False)
            if tangent is not None and carry.inside not in moving
        ]
        if not woken:
            break
        moving.update({carry.inside: stand_in(carry.inside) for carry in woken})
    draft.consts += moved_consts.values()
    draft.elements += moved_elements.values()
    carries = len(draft.carries)
    for carry, start, after in zip(tuple(draft.carries), starts, pushed, strict=False):
        if carry.inside in moving:
            first, then = _or_zeros(start, carry.start), _or_zeros(after, carry.inside)
            draft.carries.append(Carry(first, moving[carry.inside], then))
    left = len(draft.left)
    draft.left += [tangent for tangent in pushed[carries:] if tangent is not None]
    outcome = draft.emit()
    ends, more = iter(outcome.carries[carries:]), iter(outcome.left[left:])
    return op.arranged(
        [next(ends) if inside in moving else None for inside in _insides(draft.carries[:carries])],
        [None if tangent is None else next(more) for tangent in pushed[carries:]],
    )


def _moved(givens: Sequence[Given], tangents: Sequence[Value | None]) -> dict[Value, Given]:
    return {
        given.inside: Given(tangent, stand_in(given.inside))
        for given, tangent in zip(givens, tangents, strict=True)
        if tangent is not None
    }


def _afters(carries: Sequence[Carry]) -> list[Value]:
    return [carry.after for carry in carries]


def _insides(carries: Sequence[Carry]) -> list[Value]:
    return [carry.inside for carry in carries]


def _or_zeros(value: Value | None, like: Value) -> Value:
    return PRIMITIVES["zeros_like"](like) if value is None else value
