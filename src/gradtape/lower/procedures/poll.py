"""Polling: which loops of a procedure look from time to time whether the program was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.ir.graph import Value, number_of
from gradtape.kinds.elementwise import Elementwise
from gradtape.loops.passes.poll import BETWEEN, LONG, UNIT
from gradtape.procedures.ir import Apply, For, If, Statement, While
from gradtape.procedures.traversal import blocks, uses

TRIPS: Final = 64
"""Iterations of an inner loop of unknown trip count."""

UNKNOWN: Final = 1e12
"""Iterations of an outermost loop of unknown trip count: it may be long."""

CALL: Final = 1e-6
"""Seconds that an array computation takes."""

DEEPEST: Final = 2
"""Loops around each other that poll. An innermost loop polls only if it is an outermost one as well."""


def plan_polls(body: Sequence[Statement]) -> dict[For | While, int]:
    """Return the loops that poll, and the number of iterations between two polls, a power of 2."""
    planned: dict[For | While, int] = {}
    seen: set[Value] = set()
    for statement in body:
        _seconds(statement, 0, planned, seen)
    return planned


def _seconds(statement: Statement, depth: int, planned: dict[For | While, int], seen: set[Value]) -> float:
    """Return an estimate of the time that a statement takes, and plan the polls in it."""
    own = UNIT + sum(_operand_seconds(x, seen) for x in uses(statement) if isinstance(x, Value))
    if isinstance(statement, Apply):
        return own + CALL
    if isinstance(statement, If):
        return own + max(sum(_seconds(s, depth, planned, seen) for s in block) for block in blocks(statement))
    if not isinstance(statement, For | While):
        return own
    iteration = own + sum(
        _seconds(inner, depth + 1, planned, seen) for block in blocks(statement) for inner in block
    )
    known = number_of(statement.count) if isinstance(statement, For) else None
    trips = float(known) if known is not None else UNKNOWN if depth == 0 else TRIPS
    polls = depth == 0 or (depth < DEEPEST and has_loops(statement))
    if polls and trips * iteration > LONG:
        planned[statement] = 1 << max(int(BETWEEN / iteration).bit_length() - 1, 0)
    return max(trips, 0.0) * iteration


def has_loops(statement: Statement) -> bool:
    """Return whether there are loops in a statement."""
    inside = [inner for block in blocks(statement) for inner in block]
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
        total += op.cost * UNIT if isinstance(op, Elementwise) else UNIT
        pending += inputs
    return total
