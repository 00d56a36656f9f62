"""Copies of loops at other positions, in other buffers, under other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradtape.loops.affine import Atom, Position, Var, affine, substitute
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Call,
    Compute,
    Declare,
    For,
    Index,
    Load,
    Number,
    Register,
    Statement,
    Store,
)


class Copier:
    """Copies statements.

    Parameters
    ----------
    values : mapping of Atom to Position
        What stands for loop variables from outside.
    moved : mapping of Buffer to (Buffer, Position), optional
        The buffers that are replaced, and the element at which the old one begins in the new one.
    registers : mapping of str to Register, optional
        What stands for registers from outside, by name.
    suffix : str
        Appended to the names of what is defined inside.
    """

    def __init__(
        self,
        values: Mapping[Atom, Position],
        moved: Mapping[Buffer, tuple[Buffer, Position]],
        registers: Mapping[str, Register] | None = None,
        suffix: str = "",
    ) -> None:
        self._values = dict(values)
        self._moved = moved
        self._registers = dict(registers or {})
        self._suffix = suffix

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return copies of statements."""
        return [self._statement(statement) for statement in statements]

    def _statement(self, statement: Statement) -> Statement:
        if isinstance(statement, For):
            old = statement.var
            var = Var(old.name + self._suffix, old.low, old.high)
            self._values[old] = affine(var)
            return For(var, self.block(statement.body), statement.lanes)
        if isinstance(statement, Load):
            place = self._place(statement)
            return Load(self._defined(statement.target), *place)
        if isinstance(statement, Store):
            return Store(*self._place(statement), self._number(statement.value))
        if isinstance(statement, Compute):
            args = tuple([self._number(arg) for arg in statement.args])
            target = self._defined(statement.target)
            return Compute(target, statement.function, statement.body, args, statement.reassociate)
        if isinstance(statement, Declare):
            value = self._number(statement.value)
            return Declare(self._defined(statement.target), value)
        if isinstance(statement, Call):
            operands = tuple([self._moved_to(buffer, start) for buffer, start in statement.operands])
            return Call(statement.function, operands, statement.numbers)
        assert isinstance(statement, Assign)
        target = self._registers.get(statement.target.name, statement.target)
        return Assign(target, self._number(statement.value))

    def _place(self, statement: Load | Store) -> tuple[Buffer, Position]:
        return self._moved_to(statement.buffer, statement.index)

    def _moved_to(self, old: Buffer, index: Position) -> tuple[Buffer, Position]:
        buffer, offset = self._moved.get(old, (old, 0))
        return buffer, substitute(index, self._values) + offset

    def _defined(self, register: Register) -> Register:
        if self._suffix:
            self._registers[register.name] = Register(register.name + self._suffix, register.dtype)
        return self._registers.get(register.name, register)

    def _number(self, number: Number) -> Number:
        if isinstance(number, Index):
            return Index(substitute(number.position, self._values))
        return self._registers.get(number.name, number) if isinstance(number, Register) else number
