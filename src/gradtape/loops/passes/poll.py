"""Polling: sequential loops that may take long check from time to time whether the program was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.kinds.elementwise import Instruction, Intrinsic
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

UNIT: Final = 0.3e-9
"""Seconds that an addition takes at most, about."""

LONG: Final = 2e-4
"""Seconds that a loop takes from which it polls."""

BETWEEN: Final = 5e-5
"""Seconds between two polls: each costs 30 nanoseconds, and the loop its registers."""

UNKNOWN: Final = 16
"""Iterations of a loop of unknown trip count, for the time that the one around it takes."""

_FUNCTION: Final = 40.0
_SLOW: Final = {"fdiv": 4.0, "llvm.sqrt": 5.0}


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
        return _cost(statement.body) * UNIT
    if isinstance(statement, RoutineCall):
        return _call_cost(statement) * UNIT
    if isinstance(statement, IndexSwitch):
        return max([_insert(branch, is_outermost) for branch in statement.branches])
    if not isinstance(statement, SequentialFor | WhileLoop):
        return UNIT
    iteration = sum(map(_insert, statement.blocks())) + 3 * UNIT
    trips = statement.var.high + 1
    if trips * iteration > LONG:
        statement.shows_progress = is_outermost
        statement.poll = 1 << max(int(BETWEEN / iteration).bit_length() - 1, 0)
    return iteration * (UNKNOWN if trips > UNBOUNDED else trips)


def _cost(body: object) -> float:
    if isinstance(body, Instruction | Intrinsic):
        return _SLOW.get(body.real or "", 1.0)
    return 0.0 if body is None else _FUNCTION


def _call_cost(call: RoutineCall) -> float:
    return (1.0 if call.library == "gradtape" else 0.2) * call.multiplications
