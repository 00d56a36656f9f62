"""Checkpointing of loops: chunks of iterations that the backward loop runs again from a stored carry."""

from __future__ import annotations

from math import isqrt
from typing import Any, Final

from gradtape.ir.graph import Value, literal
from gradtape.ir.types import INT64
from gradtape.ops.core.elementwise.integer import floor_divide
from gradtape.ops.core.elementwise.logic import less
from gradtape.ops.core.join import join_row
from gradtape.ops.core.shape import expand, reshape_row, slice_
from gradtape.transforms.loops.draft import Carry, Draft, LoopOperand, LoopOutputs, placeholder, substitute

CARRIES_ONLY: Final = 1
"""The policy of a loop that stores the carries of each iteration and no other residuals: the body is recomputed."""

IN_FILE: Final = ("file", CARRIES_ONLY)
"""The same policy for a loop that stores the carries in a scratch file."""


def is_treeverse(policy: Any) -> bool:
    """Return whether a loop stores some carries at a time, and computes the others from them."""
    return isinstance(policy, tuple) and policy[0] == "treeverse"


def is_in_file(policy: Any) -> bool:
    """Return whether a loop stores the carries of its chunks in a scratch file."""
    return isinstance(policy, tuple) and policy[0] == "file"


def stores_carries(policy: Any) -> bool:
    """Return whether a loop stores the carries of each iteration and no other residuals."""
    return policy in (CARRIES_ONLY, IN_FILE)


def chunk_length(length: int, policy: Any) -> int | None:
    """Return the number of iterations of a chunk; None where a policy has no chunks.

    With about as many chunks as iterations in a chunk, memory grows with the root of the length, and each iteration runs twice
    (A. Griewank, "Achieving logarithmic growth of temporal and spatial complexity in reverse automatic differentiation", 1992, section 3).
    """
    if not length:
        return None
    if policy == "sqrt":
        return max(isqrt(length - 1) + 1, 2)
    if is_in_file(policy):
        policy = policy[1]
    return policy if isinstance(policy, int) and policy > CARRIES_ONLY else None


def scan_in_chunks(draft: Draft, chunk: int) -> LoopOutputs:
    """Append the same loop as a loop over loops of `chunk` iterations, and one loop for the remaining iterations."""
    length, reverse = draft.params["length"], draft.params["reverse"]
    count = length // chunk
    full_length = count * chunk
    carries = [carry.init for carry in draft.carries]
    # In the order in which they run; the elements of the remainder always come last.
    pieces: list[list[Value]] = []
    for is_remainder in (True, False) if reverse else (False, True):
        if is_remainder and full_length < length:
            carries, ys = _remainder(draft, carries, full_length)
            pieces.append(ys)
        elif not is_remainder and count:
            carries, ys = _loop_over_chunks(draft, carries, count, chunk)
            pieces.insert(0, ys)
    stacks = [
        parts[0] if len(parts) == 1 else join_row(*parts, axis=0) for parts in zip(*pieces, strict=True)
    ]
    return LoopOutputs(carries, stacks, None)


def has_chunk_policy(draft: Draft) -> bool:
    """Return whether a loop with unknown trip count has a policy that stores the carries at the borders of chunks.

    A loop with stacked outputs belongs to a gradient already, and stays as it is.
    """
    policy = draft.params.get("policy")
    is_chunked = policy == "sqrt" or (isinstance(policy, int) and policy > CARRIES_ONLY)
    return draft.test is not None and is_chunked and not draft.ys


def while_in_chunks(draft: Draft) -> LoopOutputs:
    """Append a loop with unknown trip count as a loop over loops, each of which ends with its chunk or with the test.

    Chunks are of k iterations; or, for "sqrt", of 1, 2, 3 and so on: with n iterations there are about sqrt(2 n) chunks and as many
    iterations in the last one, for any n. This is online checkpointing by the simplest rule; compare
    P. Stumm and A. Walther, "New algorithms for optimal online checkpointing", 2010.
    """
    policy, limit = draft.params["policy"], draft.params["limit"]
    unit = literal(1, INT64)
    number = placeholder(draft.index)
    if policy == "sqrt":
        half: Any = floor_divide
        size = number + unit
        first = half(number * size, literal(2, INT64))
    else:
        size, first = literal(policy, INT64), number * literal(policy, INT64)
    outer = Draft(draft.op, {"limit": None, "policy": CARRIES_ONLY}, number)
    outer.consts = [LoopOperand(old_const.outer, placeholder(old_const.inner)) for old_const in draft.consts]
    entries = [placeholder(carry.inner) for carry in draft.carries]
    inner_values = {
        old_const.inner: const.inner for old_const, const in zip(draft.consts, outer.consts, strict=True)
    }
    inner_values.update({carry.inner: entry for carry, entry in zip(draft.carries, entries, strict=True)})
    assert draft.test is not None
    (begins,) = substitute([draft.test], {**inner_values, draft.index: first})
    outer.test = begins if limit is None else begins & less(first, literal(limit, INT64))

    index, length, base = (placeholder(draft.index) for _ in range(3))
    inner = Draft(draft.op, {"limit": None, "policy": None}, index)
    inner.consts = [
        *[
            LoopOperand(const.inner, old_const.inner)
            for const, old_const in zip(outer.consts, draft.consts, strict=True)
        ],
        LoopOperand(size, length),
        LoopOperand(first, base),
    ]
    *next_carries, goes_on = substitute(draft.body_outputs, {draft.index: base + index})
    inner.test = goes_on & less(index, length)
    if limit is not None:
        inner.test = inner.test & less(base + index, literal(limit, INT64))
    inner.carries = [
        Carry(entry, carry.inner, next_carry)
        for entry, carry, next_carry in zip(entries, draft.carries, next_carries, strict=True)
    ]
    outcome = inner.emit()
    assert outcome.trip_count is not None
    so_far = placeholder(draft.index)
    outer.carries = [
        *[
            Carry(carry.init, entry, end)
            for carry, entry, end in zip(draft.carries, entries, outcome.carries, strict=True)
        ],
        Carry(literal(0, INT64), so_far, first + outcome.trip_count),
    ]
    *carries, trips = outer.emit().carries
    return LoopOutputs(carries, [], trips)


def _loop_over_chunks(
    draft: Draft, inits: list[Value], count: int, chunk: int
) -> tuple[list[Value], list[Value]]:
    """Append the loop over `count` chunks of `chunk` iterations; return the final carries and the stacked outputs, (count * chunk, ...)."""
    index = placeholder(draft.index)
    stored = IN_FILE if is_in_file(draft.params["policy"]) else CARRIES_ONLY
    outer = Draft(draft.op, {**draft.params, "length": count, "policy": stored}, index)
    consts = [LoopOperand(operand.outer, placeholder(operand.inner)) for operand in draft.consts]
    elements = []
    for operand in draft.elements:
        shape = (count, chunk, *operand.inner.shape)
        stacked = _reshape(_slice_leading(operand.outer, 0, count * chunk), shape)
        elements.append(LoopOperand(stacked, _stacked_placeholder(operand.inner, chunk)))
    entries = [placeholder(carry.inner) for carry in draft.carries]
    inner = _shifted_body(draft, index * literal(chunk, INT64), chunk)
    inner.consts = [
        *[LoopOperand(operand.inner, old.inner) for operand, old in zip(consts, draft.consts, strict=True)],
        *inner.consts,
    ]
    inner.carries = [carry._replace(init=entry) for carry, entry in zip(inner.carries, entries, strict=True)]
    inner.elements = [
        LoopOperand(operand.inner, old.inner) for operand, old in zip(elements, draft.elements, strict=True)
    ]
    chunk_outputs = inner.emit()
    outer.consts, outer.elements = consts, elements
    outer.carries = [
        Carry(init, entry, next_carry)
        for init, entry, next_carry in zip(inits, entries, chunk_outputs.carries, strict=True)
    ]
    outer.ys = list(chunk_outputs.ys)
    outputs = outer.emit()
    flat = [_reshape(ys, (count * chunk, *ys.shape[2:])) for ys in outputs.ys]
    return list(outputs.carries), flat


def _remainder(draft: Draft, inits: list[Value], first: int) -> tuple[list[Value], list[Value]]:
    """Append the loop over the iterations from number `first`, after the last whole chunk."""
    length = draft.params["length"] - first
    loop = _shifted_body(draft, literal(first, INT64), length)
    loop.consts = [*draft.consts, *loop.consts]
    loop.carries = [carry._replace(init=init) for carry, init in zip(loop.carries, inits, strict=True)]
    loop.elements = [
        LoopOperand(_slice_leading(operand.outer, first, length), operand.inner) for operand in draft.elements
    ]
    outcome = loop.emit()
    return list(outcome.carries), list(outcome.ys)


def _shifted_body(draft: Draft, by: Value, length: int) -> Draft:
    """Return a loop of `length` iterations whose numbers begin with `by`, without the other consts and elements."""
    index, base = placeholder(draft.index), placeholder(draft.index)
    loop = Draft(draft.op, {**draft.params, "length": length, "policy": "all"}, index)
    loop.consts = [LoopOperand(by, base)]
    loop.carries, loop.ys = draft.carries, draft.ys
    loop.substitute({draft.index: index + base})
    return loop


def _reshape(x: Value, shape: tuple[int, ...]) -> Value:
    """Return an array with another shape, by a node on `x` itself, which is the source of a gradient."""
    return reshape_row(x, shape=shape)


def _slice_leading(array: Value, first: int, length: int) -> Value:
    if length == array.shape[0]:
        return array
    rank = array.ndim - 1
    starts, strides = (first, *(0,) * rank), (1,) * array.ndim
    return slice_(array, starts, (length, *array.shape[1:]), strides)


def _stacked_placeholder(element: Value, length: int) -> Value:
    return placeholder(expand(element, (length, *element.shape), tuple(range(1, element.ndim + 1))))
