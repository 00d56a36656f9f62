"""What statements hold, use and touch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradtape.loops.affine import Position
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    ControlFlow,
    Declare,
    For,
    Guard,
    Index,
    Load,
    Number,
    RoutineCall,
    Statement,
    Store,
    Wrap,
)


def walk(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Yield all statements, those inside of loops and branches included."""
    for statement in statements:
        yield statement
        if isinstance(statement, For):
            yield from walk(statement.body)
        elif isinstance(statement, ControlFlow):
            for block in statement.blocks():
                yield from walk(block)


def numbers_of(statement: Statement) -> tuple[Number, ...]:
    """Return the numbers that a statement uses itself."""
    if isinstance(statement, Compute):
        return statement.args
    if isinstance(statement, Store | Declare | Assign | Wrap | Guard):
        return (statement.value,)
    return statement.numbers() if isinstance(statement, ControlFlow) else ()


def positions_of(statement: Statement) -> Iterator[Position]:
    """Yield the positions at which a statement loads and stores, and those that it uses as numbers."""
    if isinstance(statement, Load | Store):
        yield statement.index
    for number in numbers_of(statement):
        if isinstance(number, Index):
            yield number.position


def touched(statements: Iterable[Statement]) -> set[Buffer]:
    """Return the buffers that statements and what they hold read and write."""
    found: set[Buffer] = set()
    for statement in walk(statements):
        if isinstance(statement, Load | Store):
            found.add(statement.buffer)
        elif isinstance(statement, RoutineCall):
            found.update(buffer for buffer, _ in statement.operands)
        elif isinstance(statement, ControlFlow):
            found.update(buffer for buffer, _ in statement.places())
    return found
