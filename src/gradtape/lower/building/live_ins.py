"""What a piece of loops uses from outside of itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from gradtape.loops.affine import Position
from gradtape.loops.control import Grow, Open, Reserve, Turns, While
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Call,
    Compute,
    Control,
    Declare,
    For,
    Guard,
    Index,
    Load,
    Number,
    Register,
    Statement,
    Store,
    Wrap,
)
from gradtape.lower.llvm.matrix import MATRIX_ROUTINES
from gradtape.records import record


@record
class Free:
    """The buffers, registers and integer names that statements use and do not define."""

    buffers: dict[Buffer, None] = field(default_factory=dict)
    written: set[Buffer] = field(default_factory=set)
    read: dict[Register, None] = field(default_factory=dict)
    assigned: dict[Register, None] = field(default_factory=dict)
    positions: dict[str, None] = field(default_factory=dict)
    wraps: bool = False
    stacks: bool = False
    stops: bool = False
    _defined: set[str] = field(default_factory=set)
    _named: set[Buffer] = field(default_factory=set)

    def visit(self, statements: Iterable[Statement]) -> None:
        """Add what statements use."""
        for statement in statements:
            if isinstance(statement, For):
                self._defined.add(statement.var.name)
                self.visit(statement.body)
            elif isinstance(statement, Compute):
                self._numbers(statement.args)
                self._defined.add(statement.target.name)
            elif isinstance(statement, Load):
                self._touch(statement.buffer, statement.index)
                self._defined.add(statement.target.name)
            elif isinstance(statement, Store):
                self._touch(statement.buffer, statement.index)
                self.written.add(statement.buffer)
                self._numbers((statement.value,))
            elif isinstance(statement, Declare):
                self._numbers((statement.value,))
                self._defined.add(statement.target.name)
            elif isinstance(statement, Assign):
                self._numbers((statement.value,))
                if statement.target.name not in self._defined:
                    self.assigned[statement.target] = None
            elif isinstance(statement, Wrap):
                self._numbers((statement.value,))
                self._defined.add(statement.target.name)
                self.wraps = True
            elif isinstance(statement, Guard):
                self._numbers((statement.value,))
            elif isinstance(statement, Control):
                self._control(statement)
            else:
                self._call(statement)

    def _control(self, statement: Control) -> None:
        self._numbers(statement.numbers())
        self._defined.update(var.name for var in statement.variables())
        for buffer, position in statement.places():
            self._touch(buffer, position)
            self.written.add(buffer)
        self._named.update(statement.aliases())
        self.stacks = self.stacks or isinstance(statement, Reserve | Grow | Open)
        self.stops = self.stops or self.stacks
        if isinstance(statement, Turns | While) and statement.poll:
            self.stops = True
        for block in statement.blocks():
            self.visit(block)

    def _call(self, statement: Call) -> None:
        self.wraps = self.wraps or statement.function in MATRIX_ROUTINES
        for buffer, position in statement.operands:
            self._touch(buffer, position)
            self.written.add(buffer)

    def _touch(self, buffer: Buffer, position: Position) -> None:
        if buffer not in self._named:
            self.buffers[buffer] = None
        self._position(position)

    def _position(self, position: Position) -> None:
        if not isinstance(position, int):
            for var in position.variables():
                if var.name not in self._defined:
                    self.positions[var.name] = None

    def _numbers(self, numbers: Sequence[Number]) -> None:
        for number in numbers:
            if isinstance(number, Register):
                if number.name not in self._defined:
                    self.read[number] = None
            elif isinstance(number, Index):
                self._position(number.position)


def free_names(statements: Iterable[Statement]) -> Free:
    """Return what statements use from outside."""
    free = Free()
    free.visit(statements)
    return free
