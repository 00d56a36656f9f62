"""Treeverse: the backward loop of a scan with a fixed number of checkpoints.

The backward loop carries checkpoints: the carries of some iterations, and the numbers of these. For one step back it runs forward from
the last checkpoint, and stores new ones on the way, at distances with the minimum number of recomputed iterations: A. Griewank and
A. Walther, "Algorithm 799: Revolve", ACM Transactions on Mathematical Software 26, 2000. With `count` checkpoints, and each iteration run
at most r times, it covers ``(count + r)! / count! r!`` iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.graph import Value, constant, literal
from gradtape.ir.types import INT64, aval
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.indexing import gather, put_row
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, reshape
from gradtape.transforms.loops.draft import Carry, Draft, LoopOp, LoopOperand, placeholder, substitute

UNKNOWN_LENGTH: Final = 2**31
"""Iterations that are planned for where the trip count is known only when the loop has run."""

MAX_RUNS: Final = 1024
"""Runs of one iteration that are planned for then. A longer loop, with two or three checkpoints, runs more often than the minimum."""


class _Scope(NamedTuple):
    """The values of the forward loop's consts and element arrays in some body."""

    consts: list[Value]
    arrays: list[Value]


class Treeverse:
    """The carries of a backward loop that recompute the carries of the forward loop.

    Parameters
    ----------
    draft : Draft
        The forward loop.
    back : Draft
        The backward loop; the arrays of the forward loop's elements are added to its consts.
    count : int
        The number of checkpoints.
    until, times : LoopOp
        The ops `while_loop` and `repeat`.

    Attributes
    ----------
    carries : list of Carry
        Further carries of the backward loop: arrays of shape (count, ...) with a checkpoint per row, the numbers of their
        iterations (int64, shape (count,)), and the position of the last one (int64 scalar).
    entries : dict of Value to Value
        By inner carry of the forward loop: its value at the beginning of the iteration.
    """

    def __init__(self, draft: Draft, back: Draft, count: int, until: LoopOp, times: LoopOp) -> None:
        self._draft = draft
        self._count = count
        self._times = times
        self._length: int = draft.params.get("length", UNKNOWN_LENGTH)
        self._table = constant(_reach_table(count, self._length))
        arrays = [placeholder(operand.outer) for operand in draft.elements]
        back.consts += [
            LoopOperand(operand.outer, inner) for operand, inner in zip(draft.elements, arrays, strict=True)
        ]
        scope = _Scope([operand.inner for operand in draft.consts], arrays)
        iteration = self._iteration_at(draft.index)
        inits = self._init_checkpoints()
        checkpoints = [placeholder(init) for init in inits]
        stored = self._store_checkpoints(until, scope, checkpoints, iteration)
        *states, iterations, top = stored
        first = _gather_at(iterations, top)
        now = self._advance(scope, [_gather_at(state, top) for state in states], first, iteration - first)
        self.entries = {carry.inner: state for carry, state in zip(draft.carries, now, strict=True)}
        # The checkpoint of this iteration is not needed any more; the first one always stays.
        last = maximum(top - convert(equal(first, iteration), INT64), 0)
        self.carries = [
            Carry(init, inner, next_carry)
            for init, inner, next_carry in zip(inits, checkpoints, (*states, iterations, last), strict=True)
        ]

    def _iteration_at(self, index: Value) -> Value:
        """Convert between the number of an iteration and its position in the order of execution."""
        return literal(self._length - 1, INT64) - index if self._draft.params.get("reverse") else index

    def _init_checkpoints(self) -> list[Value]:
        """Return the initial checkpoints: those of the first iteration."""
        many = [
            expand(carry.init, (self._count, *carry.inner.shape), tuple(range(1, carry.inner.ndim + 1)))
            for carry in self._draft.carries
        ]
        return [*many, expand(literal(0, INT64), (self._count,), ()), literal(0, INT64)]

    def _store_checkpoints(
        self, until: LoopOp, scope: _Scope, checkpoints: list[Value], iteration: Value
    ) -> Sequence[Value]:
        """Append the loop that runs towards an iteration and stores checkpoints; return the new checkpoints."""
        loop = Draft(until, {"limit": None, "policy": None}, Value(aval((), INT64)))
        inner = _Scope([_const(loop, x) for x in scope.consts], [_const(loop, x) for x in scope.arrays])
        goal = _const(loop, iteration)
        *states, iterations, top = inners = [placeholder(x) for x in checkpoints]
        first = _gather_at(iterations, top)
        loop.test = less(first, goal) & less(top, literal(self._count - 1, INT64))
        ahead = self._distance(goal + literal(1, INT64) - first, literal(self._count, INT64) - top)
        reached = self._advance(inner, [_gather_at(state, top) for state in states], first, ahead)
        next_ = top + literal(1, INT64)
        next_carries = [
            *[_scatter_at(state, carry, next_) for state, carry in zip(states, reached, strict=True)],
            _scatter_at(iterations, first + ahead, next_),
            next_,
        ]
        loop.carries = [Carry(*each) for each in zip(checkpoints, inners, next_carries, strict=True)]
        return loop.emit().carries

    def _distance(self, remaining: Value, slots: Value) -> Value:
        """Return the distance to the next checkpoint, with `remaining` iterations to cover and `slots` free checkpoints."""
        ours, fewer = _gather_at(self._table, slots), _gather_at(self._table, slots - literal(1, INT64))
        small = less(ours, expand(remaining, ours.shape, ()))
        runs = reduce_sum(convert(small, INT64), axes=(0,)) - literal(1, INT64)
        distance: Value = minimum(_gather_at(ours, runs), remaining - _gather_at(fewer, runs))
        return distance

    def _advance(self, scope: _Scope, states: Sequence[Value], first: Value, count: Value) -> Sequence[Value]:
        """Append the loop that runs `count` iterations from number `first`; return the carries after it."""
        draft = self._draft
        loop = Draft(self._times, {"reverse": False}, Value(aval((), INT64)), count=count)
        number = self._iteration_at(_const(loop, first) + loop.index)
        becomes = {draft.index: number}
        for operand, outer in zip(draft.consts, scope.consts, strict=True):
            becomes[operand.inner] = _const(loop, outer)
        for operand, outer in zip(draft.elements, scope.arrays, strict=True):
            becomes[operand.inner] = _gather_at(_const(loop, outer), number)
        inners = [placeholder(carry.inner) for carry in draft.carries]
        becomes.update({carry.inner: inner for carry, inner in zip(draft.carries, inners, strict=True)})
        next_carries = substitute([carry.next_carry for carry in draft.carries], becomes)
        loop.carries = [Carry(*each) for each in zip(states, inners, next_carries, strict=True)]
        return loop.emit().carries


def _const(loop: Draft, outer: Value) -> Value:
    """Add a const to a loop; return its inner value."""
    inner = placeholder(outer)
    loop.consts.append(LoopOperand(outer, inner))
    return inner


def _reach_table(count: int, length: int) -> np.ndarray[Any, Any]:
    """Return a table (checkpoints by runs per iteration) of the number of iterations that can be covered, int64."""
    runs = 1
    if length == UNKNOWN_LENGTH:
        while comb(count + runs, count) < length and runs < MAX_RUNS:
            runs += 1
    else:
        while comb(2 + runs, 2) < length:
            runs += 1
    return np.array(
        [
            [min(comb(checkpoints + r, checkpoints), length) for r in range(runs + 1)]
            for checkpoints in range(count + 1)
        ],
        np.int64,
    )


def _gather_at(x: Value, position: Value) -> Value:
    """Return the element of an array at a computed position."""
    element_row = gather(x, reshape(position, (1,)))
    return reshape(element_row, x.shape[1:])


def _scatter_at(x: Value, element: Value, position: Value) -> Value:
    """Return an array with another element at a computed position."""
    element_row = reshape(element, (1, *element.shape))
    return put_row(x, element_row, reshape(position, (1,)))
