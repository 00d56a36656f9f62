"""A program into the place where another one runs it: its buffers become parts of others, its numbers registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gradtape.errors import InternalError
from gradtape.loops.affine import Atom, Position, Var, interval, substitute
from gradtape.loops.control import Choose, Grow, Open, Pair, Reserve, Turns, While
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Call,
    Compute,
    Const,
    Declare,
    For,
    Index,
    Load,
    Number,
    Statement,
    Store,
    Wrap,
)

INT64 = np.dtype(np.int64)


class Splicer:
    """Copies statements.

    Parameters
    ----------
    moved : mapping of Buffer to (Buffer, Position)
        Where buffers are in those of the other program.
    held : mapping of Buffer to Number
        Buffers of one element that are numbers there.
    left : mapping of Buffer to list of Number
        Buffers of one element whose stored number is wanted: the last one is appended.
    """

    def __init__(
        self,
        moved: Mapping[Buffer, tuple[Buffer, Position]],
        held: Mapping[Buffer, Number],
        left: Mapping[Buffer, list[Number]],
    ) -> None:
        self._moved = moved
        self._held = held
        self._left = left
        self._numbers: dict[str, Number] = {}
        self._values: dict[Atom, Position] = {}
        self._depth = 0

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return copies of statements."""
        made: list[Statement] = []
        for statement in statements:
            copy = self._statement(statement)
            if copy is not None:
                made.append(copy)
        return made

    def _inside(self, statements: Sequence[Statement]) -> list[Statement]:
        self._depth += 1
        made = self.block(statements)
        self._depth -= 1
        return made

    def _statement(self, statement: Statement) -> Statement | None:
        if isinstance(statement, Load):
            return self._load(statement)
        if isinstance(statement, Store):
            return self._store(statement)
        if isinstance(statement, Compute):
            return self._compute(statement)
        if isinstance(statement, Wrap):
            return self._wrap(statement)
        if isinstance(statement, Declare | Assign):
            return type(statement)(statement.target, self._number(statement.value))
        if isinstance(statement, For):
            private = statement.private
            if private is not None:
                private = tuple([self._moved.get(buffer, (buffer, 0))[0] for buffer in private])
            body = self._inside(statement.body)
            return For(statement.var, body, statement.lanes, private) if body else None
        if isinstance(statement, Call):
            operands = [self._place(buffer, position) for buffer, position in statement.operands]
            return Call(statement.function, tuple(operands), statement.numbers)
        if isinstance(statement, Turns):
            count = None if statement.count is None else self._number(statement.count)
            body, pairs = self._inside(statement.body), self._pairs(statement.pairs)
            return Turns(statement.var, body, count, pairs, statement.poll)
        if isinstance(statement, While):
            test = self._inside(statement.test)
            condition, body = self._number(statement.condition), self._inside(statement.body)
            pairs = self._pairs(statement.pairs)
            return While(statement.var, test, condition, body, pairs, statement.poll)
        if isinstance(statement, Reserve):
            return Reserve(statement.stack, self._number(statement.count))
        if isinstance(statement, Grow):
            return Grow(statement.stack, self._number(statement.turn))
        if isinstance(statement, Open):
            return statement
        assert isinstance(statement, Choose)
        index = self._number(statement.index)
        return Choose(index, tuple([self._inside(branch) for branch in statement.branches]))

    def _pairs(self, pairs: Sequence[Pair]) -> tuple[Pair, ...]:
        return tuple(
            [
                Pair(
                    pair.now,
                    pair.following,
                    self._place(*pair.first),
                    self._place(*pair.second),
                    None if pair.landing is None else self._place(*pair.landing),
                )
                for pair in pairs
            ]
        )

    def _load(self, statement: Load) -> Statement | None:
        number = self._held.get(statement.buffer)
        if number is None and self._left.get(statement.buffer):
            number = self._left[statement.buffer][-1]
        if number is not None:
            self._numbers[statement.target.name] = number
            return None
        return Load(statement.target, *self._place(statement.buffer, statement.index))

    def _store(self, statement: Store) -> Statement | None:
        value = self._number(statement.value)
        if statement.buffer in self._left:
            if self._depth:
                raise InternalError(f"{statement.buffer.name} is computed inside of a loop")
            self._left[statement.buffer].append(value)
            return None
        return Store(*self._place(statement.buffer, statement.index), value)

    def _compute(self, statement: Compute) -> Statement | None:
        args = tuple([self._number(arg) for arg in statement.args])
        position = _position(statement.function, args) if statement.target.dtype == INT64 else None
        if position is not None:
            self._numbers[statement.target.name] = Index(position)
            return None
        return Compute(statement.target, statement.function, statement.body, args, statement.reassociate)

    def _wrap(self, statement: Wrap) -> Statement | None:
        """An index that follows loop variables and stays inside needs no check."""
        value, extent = self._number(statement.value), statement.extent
        if isinstance(value, Index | Const):
            position = value.position if isinstance(value, Index) else int(value.value)
            low, high = interval(position)
            if low >= -extent and high < 0:
                position, low, high = position + extent, low + extent, high + extent
            if low >= 0 and high < extent:
                self._values[Var(statement.target.name, 0, max(extent - 1, 1))] = position
                return None
        return Wrap(statement.target, value, extent)

    def _place(self, buffer: Buffer, position: Position) -> tuple[Buffer, Position]:
        index = substitute(position, self._values)
        target, offset = self._moved.get(buffer, (buffer, 0))
        return target, index + offset

    def _number(self, number: Number) -> Number:
        if isinstance(number, Index):
            return Index(substitute(number.position, self._values))
        if isinstance(number, Const):
            return number
        return self._numbers.get(number.name, number)


def _position(function: str, args: tuple[Number, ...]) -> Position | None:
    """Return the position that sums and multiples of positions are."""
    parts: list[Position | None] = []
    for arg in args:
        if isinstance(arg, Const) and arg.dtype.kind in "iu":
            parts.append(int(arg.value))
        else:
            parts.append(arg.position if isinstance(arg, Index) else None)
    if not any(isinstance(arg, Index) for arg in args) or any(part is None for part in parts):
        return None
    if function in ("identity", "convert"):
        return parts[0]
    if function == "negative":
        return -parts[0]  # type: ignore[operator]
    a, b = parts if len(parts) == 2 else (None, None)
    if a is None or b is None:
        return None
    if function == "add":
        return a + b
    if function == "subtract":
        return a - b
    if function == "multiply" and (isinstance(a, int) or isinstance(b, int)):
        return a * b
    return None
