"""Copies of statements at other positions, in other buffers, under other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from gradtape.errors import InternalError
from gradtape.loops.affine import Atom, Position, Var, affine, interval, substitute
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Const,
    ControlFlow,
    DoubleBuffer,
    For,
    Index,
    Load,
    Number,
    Place,
    Register,
    RoutineCall,
    SequentialFor,
    Statement,
    Store,
    WhileLoop,
    Wrap,
)
from gradtape.records import replaced

INT64: Final = np.dtype(np.int64)


class Copier:
    """Copies statements.

    Parameters
    ----------
    values : mapping of Atom to Position
        The positions that replace loop variables of outer loops.
    moved : mapping of Buffer to (Buffer, Position)
        The buffers that are replaced, and the element at which the old one begins in the new one.
    registers : mapping of str to Register, optional
        The registers that replace those defined outside, by name.
    suffix : str
        Appended to the names that are defined inside.

    Attributes
    ----------
    numbers : dict of str to Number
        The numbers that replace registers, by their old name: those that were given, and those that were defined inside.
    """

    def __init__(
        self,
        values: Mapping[Atom, Position],
        moved: Mapping[Buffer, Place],
        registers: Mapping[str, Register] | None = None,
        suffix: str = "",
    ) -> None:
        self.numbers: dict[str, Number] = dict(registers or {})
        self._values = dict(values)
        self._moved = moved
        self._suffix = suffix

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return copies of statements, without those that became superfluous."""
        copies = [self._statement(statement) for statement in statements]
        return [copy for copy in copies if copy is not None]

    def _statement(self, statement: Statement) -> Statement | None:
        if isinstance(statement, Load):
            return self._load(statement)
        if isinstance(statement, Store):
            return self._store(statement)
        if isinstance(statement, Compute):
            return self._compute(statement)
        if isinstance(statement, Wrap):
            return self._wrap(statement)
        if isinstance(statement, For):
            return self._for(statement)
        if isinstance(statement, RoutineCall):
            return replaced(statement, operands=tuple([self._place(*place) for place in statement.operands]))
        if isinstance(statement, Assign):
            target = self.numbers.get(statement.target.name, statement.target)
            assert isinstance(target, Register)
            return Assign(target, self._number(statement.value))
        if isinstance(statement, ControlFlow):
            return self._control_flow(statement)
        return statement.with_parts(self._number, define=self._defined)

    def _control_flow(self, statement: ControlFlow) -> ControlFlow:
        """Return a copy of a sequential loop or a branch, or of an operation on a stack."""
        copy = statement.with_parts(self._number, self._inner, self._defined)
        if isinstance(copy, SequentialFor | WhileLoop):
            copy.pairs = self._pairs(copy.pairs)
        return copy

    def _inner(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return copies of what a loop or a branch holds."""
        return self.block(statements)

    def _for(self, loop: For) -> For | None:
        var = loop.var
        if self._suffix:
            var = Var(var.name + self._suffix, var.low, var.high)
            self._values[loop.var] = affine(var)
        private = loop.private
        if private is not None:
            private = tuple([self._moved.get(buffer, (buffer, 0))[0] for buffer in private])
        body = self._inner(loop.body)
        return For(var, body, loop.lanes, private) if body else None

    def _load(self, load: Load) -> Load | None:
        return Load(self._defined(load.target), *self._place(load.buffer, load.index))

    def _store(self, store: Store) -> Store | None:
        return Store(*self._place(store.buffer, store.index), self._number(store.value))

    def _compute(self, compute: Compute) -> Compute | None:
        return compute.with_parts(self._number, define=self._defined)

    def _wrap(self, wrap: Wrap) -> Wrap | None:
        return wrap.with_parts(self._number)

    def _pairs(self, pairs: Sequence[DoubleBuffer]) -> tuple[DoubleBuffer, ...]:
        return tuple([pair.moved(self._place) for pair in pairs])

    def _place(self, old: Buffer, index: Position) -> Place:
        buffer, offset = self._moved.get(old, (old, 0))
        return buffer, substitute(index, self._values) + offset

    def _defined(self, register: Register) -> Register:
        if self._suffix:
            self.numbers[register.name] = register = Register(register.name + self._suffix, register.dtype)
        return register

    def _number(self, number: Number) -> Number:
        if isinstance(number, Index):
            return Index(substitute(number.position, self._values))
        return self.numbers.get(number.name, number) if isinstance(number, Register) else number


class Splicer(Copier):
    """Copies the statements of a program to where another one runs it: scalars in buffers become numbers, integers positions.

    Parameters
    ----------
    moved : mapping of Buffer to (Buffer, Position)
        Where the buffers of the program are in those of the other one.
    inputs : mapping of Buffer to Number
        Buffers of one element, and the numbers that they hold.
    outputs : mapping of Buffer to list of Number
        Buffers of one element whose stored number is wanted: it is appended.
    """

    def __init__(
        self,
        moved: Mapping[Buffer, Place],
        inputs: Mapping[Buffer, Number],
        outputs: Mapping[Buffer, list[Number]],
    ) -> None:
        super().__init__({}, moved)
        self._inputs = inputs
        self._outputs = outputs
        self._depth = 0

    def _inner(self, statements: Sequence[Statement]) -> list[Statement]:
        self._depth += 1
        made = self.block(statements)
        self._depth -= 1
        return made

    def _load(self, load: Load) -> Load | None:
        number = self._inputs.get(load.buffer)
        if number is None and self._outputs.get(load.buffer):
            number = self._outputs[load.buffer][-1]
        if number is None:
            return super()._load(load)
        self.numbers[load.target.name] = number
        return None

    def _store(self, store: Store) -> Store | None:
        if store.buffer not in self._outputs:
            return super()._store(store)
        if self._depth:
            raise InternalError(f"{store.buffer.name} is computed inside a loop")
        self._outputs[store.buffer].append(self._number(store.value))
        return None

    def _compute(self, compute: Compute) -> Compute | None:
        if compute.target.dtype == INT64:
            position = _position(compute.function, [self._number(arg) for arg in compute.args])
            if position is not None:
                self.numbers[compute.target.name] = Index(position)
                return None
        return super()._compute(compute)

    def _wrap(self, wrap: Wrap) -> Wrap | None:
        """Drop the check of an index that follows loop variables and stays inside."""
        value, extent = self._number(wrap.value), wrap.extent
        if isinstance(value, Index | Const):
            position = value.position if isinstance(value, Index) else int(value.value)
            low, high = interval(position)
            if low >= -extent and high < 0:
                position, low, high = position + extent, low + extent, high + extent
            if low >= 0 and high < extent:
                self._values[Var(wrap.target.name, 0, max(extent - 1, 1))] = position
                return None
        return super()._wrap(wrap)


def _position(function: str, args: Sequence[Number]) -> Position | None:
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
