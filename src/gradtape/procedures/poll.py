"""Polling: which loops of a procedure look from time to time whether the program was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

from gradtape.costs import ARRAY_COMPUTATION, LONG_LOOP, SCALAR_ADDITION, UNKNOWN_TRIP_COUNT, poll_period
from gradtape.ir.graph import Value, number_of
from gradtape.kinds.elementwise import Elementwise
from gradtape.procedures.ir import Apply, For, If, Statement, While
from gradtape.statements import walk

DEEPEST: Final = 2
"""Loops around each other that poll. An innermost loop polls only if it is an outermost one as well."""


class Poll(NamedTuple):
    """How a loop polls.

    Attributes
    ----------
    period : int
        The number of iterations between two polls, a power of 2.
    shows_progress : bool
        Whether the loop shows how many iterations are done if it takes long: an outermost one.
    """

    period: int
    shows_progress: bool


def plan_polls(body: Sequence[Statement], is_block: bool = False) -> dict[For | While, Poll]:
    """Return the loops that poll.

    Parameters
    ----------
    body : sequence of statements
    is_block : bool
        Whether it is that of a block of a parallel loop: one more loop is around its loops, and those of unknown trip counts poll.
    """
    estimate = _Estimate(UNKNOWN_TRIP_COUNT, DEEPEST + 1 if is_block else DEEPEST, is_block)
    for statement in body:
        estimate.seconds(statement, 0)
    return estimate.planned


def seconds(statement: Statement, trips: int = UNKNOWN_TRIP_COUNT) -> float:
    """Return an estimate of the time that a statement takes, where loops of unknown trip count have so many iterations.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder()
    >>> x = build.array("x", (1,))
    >>> with build.loop(1000):
    ...     build.store(x, 0, 0.0)
    >>> 1e-7 < seconds(build.body[0]) < 1e-5
    True
    """
    return _Estimate(trips, 0, False).seconds(statement, 1)


class _Estimate:
    """Estimates times, and plans polls."""

    def __init__(self, trips: int, deepest: int, polls_unknown: bool) -> None:
        self._trips = trips
        self._deepest = deepest
        self._polls_unknown = polls_unknown
        self._seen: set[Value] = set()
        self.planned: dict[For | While, Poll] = {}

    def seconds(self, statement: Statement, depth: int) -> float:
        """Return an estimate of the time that a statement takes, and plan the polls in it."""
        own = SCALAR_ADDITION + sum(
            _operand_seconds(x, self._seen) for x in statement.uses() if isinstance(x, Value)
        )
        if isinstance(statement, Apply):
            return own + ARRAY_COMPUTATION
        if isinstance(statement, If):
            return own + max(sum(self.seconds(s, depth) for s in block) for block in statement.blocks())
        if not isinstance(statement, For | While):
            return own
        iteration = own + sum(
            self.seconds(inner, depth + 1) for block in statement.blocks() for inner in block
        )
        known = number_of(statement.count) if isinstance(statement, For) else None
        # An outermost loop of unknown length may be endless.
        trips = float(known) if known is not None else inf if depth == 0 else self._trips
        polls = depth == 0 or (depth < self._deepest and has_loops(statement))
        is_long = trips * iteration > LONG_LOOP or (self._polls_unknown and not _is_counted(statement))
        if polls and is_long:
            self.planned[statement] = Poll(poll_period(iteration), depth == 0 and not self._polls_unknown)
        return max(trips, 0.0) * iteration


def _is_counted(statement: Statement) -> bool:
    """Return whether the trip counts of a loop and of those in it are known."""
    return all(
        not isinstance(inner, While) and (not isinstance(inner, For) or number_of(inner.count) is not None)
        for inner in walk([statement])
    )


def has_loops(statement: Statement) -> bool:
    """Return whether there are loops in a statement."""
    inside = [inner for block in statement.blocks() for inner in block]
    return any(isinstance(inner, For | While) or has_loops(inner) for inner in inside)


def _operand_seconds(value: Value, seen: set[Value]) -> float:
    """Return an estimate of the time that an expression takes, as far as it was not computed before."""
    total = 0.0
    pending = [value]
    while pending:
        value = pending.pop()
        made = value.maker()
        if value in seen or made is None:
            continue
        seen.add(value)
        op, inputs, _ = made
        total += (op.cost if isinstance(op, Elementwise) else 1.0) * SCALAR_ADDITION
        pending += inputs
    return total
