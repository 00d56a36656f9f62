"""Live-ins: what statements use that is defined outside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from gradtape.loops.affine import Position, Var
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Declare,
    GrowStack,
    Index,
    Load,
    OpenStack,
    Register,
    ReserveStack,
    RoutineCall,
    SequentialFor,
    Statement,
    WhileLoop,
    Wrap,
)
from gradtape.records import record


@record
class LiveIns:
    """What statements use and do not define, each in the order of its first use.

    Attributes
    ----------
    buffers : dict of Buffer to None
        All that are touched.
    written : set of Buffer
        Those that may be written.
    registers : dict of Register to None
        Numbers that are read.
    assigned : dict of Register to None
        Accumulators that are changed.
    variables : dict of str to None
        Names of loop variables, and of integers that positions are made of.
    may_fail : bool
        Whether an index may be out of bounds, or a routine may fail.
    uses_stacks : bool
        Whether memory grows.
    may_stop : bool
        Whether the program may end early: memory is exhausted, or the program was interrupted.
    """

    buffers: dict[Buffer, None] = field(default_factory=dict)
    written: set[Buffer] = field(default_factory=set)
    registers: dict[Register, None] = field(default_factory=dict)
    assigned: dict[Register, None] = field(default_factory=dict)
    variables: dict[str, None] = field(default_factory=dict)
    may_fail: bool = False
    uses_stacks: bool = False
    may_stop: bool = False
    _defined: set[str] = field(default_factory=set)
    _aliases: set[Buffer] = field(default_factory=set)

    def visit(self, statements: Iterable[Statement]) -> None:
        """Add what statements use."""
        for statement in statements:
            for number in statement.uses():
                if isinstance(number, Register):
                    if number.name not in self._defined:
                        self.registers[number] = None
                elif isinstance(number, Index):
                    self._position(number.position)
            self._defined.update(var.name for var in statement.variables())
            for buffer, position in statement.places():
                self._touch(buffer, position)
                if not isinstance(statement, Load):
                    self.written.add(buffer)
            if isinstance(statement, Load | Compute | Declare | Wrap):
                self._defined.add(statement.target.name)
                self.may_fail = self.may_fail or (isinstance(statement, Wrap) and statement.is_checked)
            elif isinstance(statement, Assign):
                if statement.target.name not in self._defined:
                    self.assigned[statement.target] = None
            elif isinstance(statement, RoutineCall):
                fails = statement.library in ("lapack", "procedure", "python") or statement.function == "loop"
                self.may_fail = self.may_fail or fails
                self.may_stop = self.may_stop or statement.library in ("procedure", "python")
            self._aliases.update(statement.aliases())
            self.uses_stacks = self.uses_stacks or isinstance(statement, ReserveStack | GrowStack | OpenStack)
            polls = isinstance(statement, SequentialFor | WhileLoop) and bool(statement.poll)
            self.may_stop = self.may_stop or self.uses_stacks or polls
            for block in statement.blocks():
                self.visit(block)

    def _touch(self, buffer: Buffer, position: Position) -> None:
        if buffer not in self._aliases:
            self.buffers[buffer] = None
        self._position(position)

    def _position(self, position: Position) -> None:
        for atom in () if isinstance(position, int) else position.terms:
            if not isinstance(atom, Var):
                self._position(atom.whole)
            elif atom.name not in self._defined:
                self.variables[atom.name] = None


def live_ins(statements: Iterable[Statement]) -> LiveIns:
    """Return what statements use from outside."""
    found = LiveIns()
    found.visit(statements)
    return found
