"""Keeping less of a loop for its gradient: chunks that are run again on the way back."""

from __future__ import annotations

from math import isqrt
from typing import Any, Final

from gradtape.ir.graph import Value, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INT64
from gradtape.kinds.registry import ROWS
from gradtape.transforms.loops.draft import Carry, Draft, Given, Outcome, stand_in, substituted

ENTRIES: Final = 1
"""The policy of a loop of which only the carries are kept, of each turn: the rest of the turn is run again."""


def chunk_of(length: int, policy: Any) -> int | None:
    """Return how many turns are run again together; None where a policy is not about chunks.

    With about as many chunks as turns in a chunk, what is kept grows with the root of the length, and each turn is run twice: A. Griewank,
    "Achieving logarithmic growth of temporal and spatial complexity in reverse automatic differentiation", 1992, section 3.
    """
    if not length:
        return None
    if policy == "sqrt":
        return max(isqrt(length - 1) + 1, 2)
    return policy if isinstance(policy, int) and policy > ENTRIES else None


def in_chunks(draft: Draft, chunk: int) -> Outcome:
    """Append the same loop as a loop over loops of `chunk` turns, and one for the turns that are left over."""
    length, reverse = draft.params["length"], draft.params["reverse"]
    count = length // chunk
    whole = count * chunk
    ends = [carry.start for carry in draft.carries]
    # In the order in which they run; the rest always stands last.
    pieces: list[list[Value]] = []
    for is_rest in (True, False) if reverse else (False, True):
        if is_rest and whole < length:
            ends, left = _rest(draft, ends, whole)
            pieces.append(left)
        elif not is_rest and count:
            ends, left = _chunks(draft, ends, count, chunk)
            pieces.insert(0, left)
    join: Any = ROWS["join"]
    stacks = [parts[0] if len(parts) == 1 else join(*parts, axis=0) for parts in zip(*pieces, strict=True)]
    return Outcome(ends, stacks, None)


def goes_in_chunks(draft: Draft) -> bool:
    """Return whether a loop of unknown trip count has a policy that keeps the carries at the borders of chunks.

    What it leaves on stacks is for a gradient that is being taken already: then the loop stays one.
    """
    policy = draft.params.get("policy")
    is_about_chunks = policy == "sqrt" or (isinstance(policy, int) and policy > ENTRIES)
    return draft.test is not None and is_about_chunks and not draft.left


def until_in_chunks(draft: Draft) -> Outcome:
    """Append a loop of unknown trip count as a loop over loops, each of which ends with its chunk or with the test.

    Chunks are of k iterations; or, for "sqrt", of 1, 2, 3 and so on: with n iterations there are about sqrt(2 n) chunks and as many
    iterations in the last one, whatever n turns out to be. This is checkpointing without a known end by the simplest rule; compare
    P. Stumm and A. Walther, "New algorithms for optimal online checkpointing", 2010.
    """
    policy, limit = draft.params["policy"], draft.params["limit"]
    one = literal(1, INT64)
    number = stand_in(draft.index)
    if policy == "sqrt":
        half: Any = ROWS["floor_divide"]
        size = number + one
        first = half(number * size, literal(2, INT64))
    else:
        size, first = literal(policy, INT64), number * literal(policy, INT64)
    outer = Draft(draft.op, {"limit": None, "policy": ENTRIES}, number)
    outer.consts = [Given(given.outside, stand_in(given.inside)) for given in draft.consts]
    entries = [stand_in(carry.inside) for carry in draft.carries]
    known = {given.inside: const.inside for given, const in zip(draft.consts, outer.consts, strict=True)}
    known.update({carry.inside: entry for carry, entry in zip(draft.carries, entries, strict=True)})
    assert draft.test is not None
    (begins,) = substituted([draft.test], {**known, draft.index: first})
    outer.test = begins if limit is None else begins & PRIMITIVES["less"](first, literal(limit, INT64))

    index, length, base = (stand_in(draft.index) for _ in range(3))
    inner = Draft(draft.op, {"limit": None, "policy": None}, index)
    inner.consts = [
        *[Given(const.inside, given.inside) for const, given in zip(outer.consts, draft.consts, strict=True)],
        Given(size, length),
        Given(first, base),
    ]
    *afters, goes_on = substituted(draft.ends, {draft.index: base + index})
    inner.test = goes_on & PRIMITIVES["less"](index, length)
    if limit is not None:
        inner.test = inner.test & PRIMITIVES["less"](base + index, literal(limit, INT64))
    inner.carries = [
        Carry(entry, carry.inside, after)
        for entry, carry, after in zip(entries, draft.carries, afters, strict=True)
    ]
    outcome = inner.emit()
    assert outcome.turns is not None
    so_far = stand_in(draft.index)
    outer.carries = [
        *[
            Carry(carry.start, entry, end)
            for carry, entry, end in zip(draft.carries, entries, outcome.carries, strict=True)
        ],
        Carry(literal(0, INT64), so_far, first + outcome.turns),
    ]
    *ends, trips = outer.emit().carries
    return Outcome(ends, [], trips)


def _chunks(draft: Draft, starts: list[Value], count: int, chunk: int) -> tuple[list[Value], list[Value]]:
    """Append the loop over chunks."""
    index = stand_in(draft.index)
    outer = Draft(draft.op, {**draft.params, "length": count, "policy": ENTRIES}, index)
    consts = [Given(given.outside, stand_in(given.inside)) for given in draft.consts]
    elements = []
    for given in draft.elements:
        shape = (count, chunk, *given.inside.shape)
        stacked = _reshaped(_cut(given.outside, 0, count * chunk), shape)
        elements.append(Given(stacked, _stacked(given.inside, chunk)))
    carried = [stand_in(carry.inside) for carry in draft.carries]
    inner = _shifted(draft, index * literal(chunk, INT64), chunk)
    inner.consts = [
        *[Given(given.inside, old.inside) for given, old in zip(consts, draft.consts, strict=True)],
        *inner.consts,
    ]
    inner.carries = [carry._replace(start=start) for carry, start in zip(inner.carries, carried, strict=True)]
    inner.elements = [
        Given(given.inside, old.inside) for given, old in zip(elements, draft.elements, strict=True)
    ]
    outcome = inner.emit()
    outer.consts, outer.elements = consts, elements
    outer.carries = [
        Carry(start, inside, after)
        for start, inside, after in zip(starts, carried, outcome.carries, strict=True)
    ]
    outer.left = list(outcome.left)
    ends = outer.emit()
    flat = [_reshaped(left, (count * chunk, *left.shape[2:])) for left in ends.left]
    return list(ends.carries), flat


def _rest(draft: Draft, starts: list[Value], first: int) -> tuple[list[Value], list[Value]]:
    """Append the loop over the turns behind the last whole chunk."""
    length = draft.params["length"] - first
    loop = _shifted(draft, literal(first, INT64), length)
    loop.consts = [*draft.consts, *loop.consts]
    loop.carries = [carry._replace(start=start) for carry, start in zip(loop.carries, starts, strict=True)]
    loop.elements = [Given(_cut(given.outside, first, length), given.inside) for given in draft.elements]
    outcome = loop.emit()
    return list(outcome.carries), list(outcome.left)


def _shifted(draft: Draft, by: Value, length: int) -> Draft:
    """Return a loop of some turns whose numbers begin with `by`; without what it reads, but for `by`."""
    index, base = stand_in(draft.index), stand_in(draft.index)
    loop = Draft(draft.op, {**draft.params, "length": length, "policy": "all"}, index)
    loop.consts = [Given(by, base)]
    ends = substituted(draft.ends, {draft.index: index + base})
    count = len(draft.carries)
    loop.carries = [carry._replace(after=after) for carry, after in zip(draft.carries, ends, strict=False)]
    loop.left = ends[count:]
    return loop


def _reshaped(x: Value, shape: tuple[int, ...]) -> Value:
    """Return an array with another shape, by a node that stands on `x` itself: a gradient is asked for there."""
    row: Any = ROWS["reshape"]
    reshaped: Value = row(x, shape=shape)
    return reshaped


def _cut(array: Value, first: int, length: int) -> Value:
    if length == array.shape[0]:
        return array
    rank = array.ndim - 1
    starts, strides = (first, *(0,) * rank), (1,) * array.ndim
    cut: Value = PRIMITIVES["slice"](array, starts, (length, *array.shape[1:]), strides)
    return cut


def _stacked(element: Value, length: int) -> Value:
    return stand_in(
        PRIMITIVES["expand"](element, (length, *element.shape), tuple(range(1, element.ndim + 1)))
    )
