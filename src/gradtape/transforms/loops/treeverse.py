"""Going backward through many turns with a fixed number of them in memory.

Of the turns that are left, the way back knows a few, by number and with their carries. To go one turn back it runs forward from the
last that it knows, and keeps some turns on the way, at distances which make all running the least: A. Griewank and A. Walther,
"Algorithm 799: Revolve", ACM Transactions on Mathematical Software 26, 2000. With `count` kept turns, each turn run at most r times,
it reaches over ``(count + r)! / count! r!`` turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.graph import Value, constant, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INT64, aval
from gradtape.kinds.registry import ROWS
from gradtape.transforms.loops.draft import Carry, Draft, Given, Loop, stand_in, substituted

UNKNOWN: Final = 2**31
"""Iterations that are planned for where the trip count is known only when the loop has run."""

MOST_RUNS: Final = 1024
"""Runs of one iteration that are planned for then. A loop that needs more, with two or three carries kept, runs more than the least."""


class _Scope(NamedTuple):
    """What a turn needs besides the carries, as it is known somewhere."""

    consts: list[Value]
    arrays: list[Value]


class Treeverse:
    """What a scan backward carries to know the carries of each turn.

    Parameters
    ----------
    draft : Draft
        The scan forward.
    back : Draft
        The scan backward; it is given whole arrays to read.
    count : int
        Turns that are kept.
    until, times : Loop
        The ops `while_loop` and `repeat`.

    Attributes
    ----------
    carries : list of Carry
        What the scan backward is to carry.
    entries : dict of Value to Value
        What the carries are when a turn begins.
    """

    def __init__(self, draft: Draft, back: Draft, count: int, until: Loop, times: Loop) -> None:
        self._draft = draft
        self._count = count
        self._times = times
        self._length: int = draft.params.get("length", UNKNOWN)
        self._table = constant(_reaches(count, self._length))
        arrays = [stand_in(given.outside) for given in draft.elements]
        back.consts += [
            Given(given.outside, inside) for given, inside in zip(draft.elements, arrays, strict=True)
        ]
        scope = _Scope([given.inside for given in draft.consts], arrays)
        turn = self._place(draft.index)
        starts = self._starts()
        kept = [stand_in(start) for start in starts]
        more = self._keep_more(until, scope, kept, turn)
        *states, places, top = more
        first = _pick(places, top)
        now = self._run(scope, [_pick(state, top) for state in states], first, turn - first)
        self.entries = {carry.inside: state for carry, state in zip(draft.carries, now, strict=True)}
        # The turn itself is behind us now; the first one stays, whatever happens.
        last = ROWS["maximum"](top - PRIMITIVES["convert"](PRIMITIVES["equal"](first, turn), INT64), 0)  # type: ignore[operator]
        self.carries = [
            Carry(start, inside, after)
            for start, inside, after in zip(starts, kept, (*states, places, last), strict=True)
        ]

    def _place(self, index: Value) -> Value:
        """Return the how-manieth turn has a number, or the number of the turn at a place."""
        return literal(self._length - 1, INT64) - index if self._draft.params.get("reverse") else index

    def _starts(self) -> list[Value]:
        """Return what is known before anything has run: the first turn."""
        many = [
            PRIMITIVES["expand"](
                carry.start, (self._count, *carry.inside.shape), tuple(range(1, carry.inside.ndim + 1))
            )
            for carry in self._draft.carries
        ]
        return [*many, PRIMITIVES["expand"](literal(0, INT64), (self._count,), ()), literal(0, INT64)]

    def _keep_more(self, until: Loop, scope: _Scope, kept: list[Value], turn: Value) -> Sequence[Value]:
        """Return what is known after all that can be kept on the way to a turn is."""
        loop = Draft(until, {"limit": None, "policy": None}, Value(aval((), INT64)))
        inner = _Scope([_const(loop, x) for x in scope.consts], [_const(loop, x) for x in scope.arrays])
        goal = _const(loop, turn)
        *states, places, top = insides = [stand_in(x) for x in kept]
        first = _pick(places, top)
        loop.test = PRIMITIVES["less"](first, goal) & PRIMITIVES["less"](top, literal(self._count - 1, INT64))
        ahead = self._distance(goal + literal(1, INT64) - first, literal(self._count, INT64) - top)
        there = self._run(inner, [_pick(state, top) for state in states], first, ahead)
        next_ = top + literal(1, INT64)
        afters = [
            *[_put(state, now, next_) for state, now in zip(states, there, strict=True)],
            _put(places, first + ahead, next_),
            next_,
        ]
        loop.carries = [Carry(*each) for each in zip(kept, insides, afters, strict=True)]
        return loop.emit().carries

    def _distance(self, turns: Value, free: Value) -> Value:
        """Return how far ahead the next turn to keep is, of those that are left, with so many that may be kept."""
        ours, fewer = _pick(self._table, free), _pick(self._table, free - literal(1, INT64))
        small = PRIMITIVES["less"](ours, PRIMITIVES["expand"](turns, ours.shape, ()))
        runs = ROWS["reduce_sum"](PRIMITIVES["convert"](small, INT64), axes=(0,)) - literal(1, INT64)  # type: ignore[operator]
        distance: Value = ROWS["minimum"](_pick(ours, runs), turns - _pick(fewer, runs))  # type: ignore[operator]
        return distance

    def _run(self, scope: _Scope, states: Sequence[Value], first: Value, count: Value) -> Sequence[Value]:
        """Return the carries some turns later."""
        draft = self._draft
        loop = Draft(self._times, {"reverse": False}, Value(aval((), INT64)), count=count)
        number = self._place(_const(loop, first) + loop.index)
        becomes = {draft.index: number}
        for given, outside in zip(draft.consts, scope.consts, strict=True):
            becomes[given.inside] = _const(loop, outside)
        for given, outside in zip(draft.elements, scope.arrays, strict=True):
            becomes[given.inside] = _pick(_const(loop, outside), number)
        insides = [stand_in(carry.inside) for carry in draft.carries]
        becomes.update({carry.inside: inside for carry, inside in zip(draft.carries, insides, strict=True)})
        afters = substituted([carry.after for carry in draft.carries], becomes)
        loop.carries = [Carry(*each) for each in zip(states, insides, afters, strict=True)]
        return loop.emit().carries


def _const(loop: Draft, outside: Value) -> Value:
    """Let a loop read a value; return what stands for it inside."""
    inside = stand_in(outside)
    loop.consts.append(Given(outside, inside))
    return inside


def _reaches(count: int, length: int) -> np.ndarray[Any, Any]:
    """Return over how many turns so many kept ones reach, by the number of runs."""
    runs = 1
    if length == UNKNOWN:
        while comb(count + runs, count) < length and runs < MOST_RUNS:
            runs += 1
    else:
        while comb(2 + runs, 2) < length:
            runs += 1
    return np.array(
        [[min(comb(kept + r, kept), length) for r in range(runs + 1)] for kept in range(count + 1)], np.int64
    )


def _pick(x: Value, place: Value) -> Value:
    """Return the element of an array at a place that is computed."""
    row: Value = ROWS["gather"](x, PRIMITIVES["reshape"](place, (1,)))  # type: ignore[operator]
    return PRIMITIVES["reshape"](row, x.shape[1:])


def _put(x: Value, element: Value, place: Value) -> Value:
    """Return an array with another element at a place that is computed."""
    row = PRIMITIVES["reshape"](element, (1, *element.shape))
    changed: Value = ROWS["put"](x, row, PRIMITIVES["reshape"](place, (1,)))  # type: ignore[operator]
    return changed
