"""Polling: sequential loops that may take long check from time to time whether the program was interrupted."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.costs import LARGE_PRODUCT, LONG_LOOP, SCALAR_ADDITION, UNKNOWN_TRIP_COUNT, poll_period
from gradtape.kinds.elementwise import body_cost
from gradtape.loops.ir import (
    UNBOUNDED,
    Compute,
    For,
    IndexSwitch,
    LoopProgram,
    RoutineCall,
    SequentialFor,
    Statement,
    WhileLoop,
)


def insert_polls(program: LoopProgram) -> LoopProgram:
    """Return the program, whose long sequential loops poll."""
    _insert(program.body, is_outermost=True)
    return LoopProgram(program.name, program.inputs, program.outputs, program.scratch, program.body)


def _insert(statements: Sequence[Statement], is_outermost: bool = False) -> float:
    """Set how often the loops among statements poll, and which show progress; return the seconds that all take."""
    return sum([_seconds(statement, is_outermost) for statement in statements])


def _seconds(statement: Statement, is_outermost: bool) -> float:
    if isinstance(statement, For):
        return statement.trip_count * _insert(statement.body, is_outermost)
    if isinstance(statement, Compute):
        return (0.0 if statement.body is None else body_cost(statement.body)) * SCALAR_ADDITION
    if isinstance(statement, RoutineCall):
        return _call_cost(statement) * SCALAR_ADDITION
    if isinstance(statement, IndexSwitch):
        return max([_insert(branch, is_outermost) for branch in statement.branches])
    if not isinstance(statement, SequentialFor | WhileLoop):
        return SCALAR_ADDITION
    iteration = sum(map(_insert, statement.blocks())) + 3 * SCALAR_ADDITION
    trips = statement.var.high + 1
    if trips * iteration > LONG_LOOP:
        statement.shows_progress = is_outermost
        statement.poll = poll_period(iteration)
    return iteration * (UNKNOWN_TRIP_COUNT if trips > UNBOUNDED else trips)


def _call_cost(call: RoutineCall) -> float:
    return (1.0 if call.library == "gradtape" else LARGE_PRODUCT) * call.multiplications
