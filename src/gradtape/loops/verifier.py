"""The rules that loops keep between two passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

import numpy as np

from gradtape.errors import VerifyError
from gradtape.loops.affine import Position, Var, interval
from gradtape.loops.ir import (
    UNBOUNDED,
    Assign,
    Buffer,
    Compute,
    ControlFlow,
    Declare,
    Dtype,
    For,
    GrowStack,
    Guard,
    IndexSwitch,
    Load,
    LoopProgram,
    OpenStack,
    Place,
    Register,
    ReserveStack,
    RoutineCall,
    SequentialFor,
    Statement,
    Store,
    WhileLoop,
    Wrap,
)
from gradtape.loops.printer import print_statement
from gradtape.loops.traversal import positions_of

BOOL: Final = np.dtype(np.bool_)
INT64: Final = np.dtype(np.int64)

COMPARISONS: Final = {"equal", "greater", "greater_equal", "less", "less_equal", "not_equal"}
ARITHMETIC: Final = {"add", "divide", "maximum", "minimum", "multiply", "negative", "subtract"}


def verify_loops(program: LoopProgram, stage: str = "") -> None:
    """Check a program.

    - Buffers have different names, and those that are touched are declared. Scratch is written before it is read.
    - A name is defined once among those that are known at a place, and used only where it is known: what a block defines is known in that
      block and in those inside it, from its definition on. Only what `Declare` makes is assigned to.
    - Positions are made of loop variables, with the ranges of their loops, and of integers that are known. Where a position depends on
      loop variables alone, it is in the buffer.
    - Numbers, buffers and accumulators have the dtypes of the values stored in them.
    - The buffers that a sequential loop swaps are alike, and each iteration writes the following one.
    - Loops make one iteration at least, and those over the lanes of vectors hold no loops.

    Parameters
    ----------
    program : LoopProgram
        To check.
    stage : str
        What made it, for the message.

    Raises
    ------
    VerifyError
        Naming the statement, the rule and the stage that broke it.
    """
    _Verifier(program, stage).check()


class _Verifier:
    """Walks a program in the order in which it runs."""

    def __init__(self, program: LoopProgram, stage: str) -> None:
        self._program = program
        self._stage = stage
        self._statement: Statement | None = None
        self._scopes: list[list[str]] = []
        self._registers: dict[str, Dtype] = {}
        self._accumulators: set[str] = set()
        self._variables: dict[str, Var] = {}
        self._buffers: set[Buffer] = set()
        self._written: set[Buffer] = set()
        self._guards: set[int] = set()

    def check(self) -> None:
        program = self._program
        declared = [*program.inputs, *program.outputs, *program.scratch]
        names = [buffer.name for buffer in declared]
        self._require(len(set(names)) == len(names), "two buffers have the same name")
        self._buffers.update(declared)
        with self._scope():
            self._check_all(program.body)

    @contextmanager
    def _scope(self, var: Var | None = None) -> Iterator[None]:
        """Open a scope, that of a loop with a variable: the names that it defines are unknown after it."""
        self._scopes.append([])
        if var is not None:
            self._define_name(var.name)
            self._variables[var.name] = var
        yield
        for name in self._scopes.pop():
            self._registers.pop(name, None)
            self._variables.pop(name, None)
            self._accumulators.discard(name)

    def _check_all(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self._check(statement)

    def _require(self, holds: bool, rule: str) -> None:
        if not holds:
            self._fail(rule)

    def _fail(self, rule: str) -> NoReturn:
        """Raise an error that names the statement, the rule and the stage."""
        shown = "" if self._statement is None else f" in `{print_statement(self._statement)}`"
        why = f"after the stage {self._stage}" if self._stage else ""
        raise VerifyError(f"{rule}{shown}, loops of {self._program.name}", why=why)

    def _check(self, statement: Statement) -> None:
        """Check a statement and what it holds, and take note of what it defines."""
        before, self._statement = self._statement, statement
        for number in statement.uses():
            if isinstance(number, Register):
                self._check_register(number)
        for position in positions_of(statement):
            self._check_position(position)
        if isinstance(statement, Compute):
            self._check_dtypes(statement)
            self._define(statement.target)
        elif isinstance(statement, Load):
            self._check_place((statement.buffer, statement.index), reads=True)
            self._same(statement.target.dtype, statement.buffer.dtype)
            self._define(statement.target)
        elif isinstance(statement, Store):
            self._check_place((statement.buffer, statement.index))
            self._same(statement.value.dtype, statement.buffer.dtype)
            self._written.add(statement.buffer)
        elif isinstance(statement, Declare):
            self._same(statement.target.dtype, statement.value.dtype)
            self._define(statement.target)
            self._accumulators.add(statement.target.name)
        elif isinstance(statement, Assign):
            self._same(statement.target.dtype, statement.value.dtype)
            name = statement.target.name
            self._require(name in self._accumulators, f"{name} is not an accumulator that is known here")
        elif isinstance(statement, Wrap):
            self._require(statement.value.dtype.kind in "iu", "an index is not an integer")
            self._define(statement.target)
        elif isinstance(statement, Guard):
            self._require(len(self._scopes) == 1, "a guard stands inside a loop")
            self._require(statement.number not in self._guards, "two guards have the same number")
            self._guards.add(statement.number)
        elif isinstance(statement, For):
            self._check_for(statement)
        elif isinstance(statement, RoutineCall):
            for place in statement.operands:
                self._check_place(place)
                self._check_position(place[1])
            self._written.update(buffer for buffer, _ in statement.operands)
        else:
            self._check_control_flow(statement)
        self._statement = before

    # Names

    def _define(self, register: Register) -> None:
        self._define_name(register.name)
        self._registers[register.name] = register.dtype

    def _define_name(self, name: str) -> None:
        if name in self._registers or name in self._variables:
            self._fail(f"{name} is defined twice")
        self._scopes[-1].append(name)

    def _check_register(self, register: Register) -> None:
        dtype = self._registers.get(register.name)
        if dtype is None:
            self._fail(f"{register.name} is used where it is not known")
        self._same(dtype, register.dtype)

    def _check_position(self, position: Position) -> None:
        for var in () if isinstance(position, int) else position.variables():
            loop = self._variables.get(var.name)
            if loop is None and self._registers.get(var.name) != INT64:
                self._fail(f"{var} is used where it is not known")
            elif loop is not None and loop != var:
                self._fail(f"{var} ranges over {var.low} to {var.high}, not as its loop does,")

    # Buffers

    def _check_place(self, place: Place, reads: bool = False) -> None:
        buffer, position = place
        self._require(buffer in self._buffers, f"{buffer.name} is not declared")
        if reads and buffer.role == "scratch":
            self._require(buffer in self._written, f"{buffer.name} is read before it is written")
        if buffer.role == "stack" or not self._has_exact_range(position):
            return
        low, high = interval(position)
        if low < 0 or high >= max(buffer.size, 1):
            self._fail(f"elements {low} to {high} of {buffer.name}, which has {buffer.size}, are touched")

    def _has_exact_range(self, position: Position) -> bool:
        """Whether a position reaches both ends of its interval: a sum of variables of loops that make a known number of iterations."""
        return isinstance(position, int) or all(
            isinstance(atom, Var) and atom.high < UNBOUNDED - 1 and atom.name in self._variables
            for atom in position.terms
        )

    # Dtypes

    def _same(self, mine: Dtype, theirs: Dtype) -> None:
        if mine != theirs:
            self._fail(f"{mine} meets {theirs}")

    def _check_dtypes(self, compute: Compute) -> None:
        args, target = [arg.dtype for arg in compute.args], compute.target.dtype
        if compute.function == "where":
            self._same(args[0], BOOL)
            args = args[1:]
        elif compute.function in COMPARISONS:
            self._same(target, BOOL)
            target = args[0]
        if compute.function in {"identity", "where"} | COMPARISONS | ARITHMETIC:
            for dtype in args:
                self._same(dtype, target)

    # Loops and branches

    def _check_for(self, loop: For) -> None:
        self._require(loop.trip_count >= 1, "a loop makes no iteration")
        if loop.lanes:
            inner = any(isinstance(statement, For | ControlFlow) for statement in loop.body)
            self._require(not inner, "a loop over lanes holds a loop")
        for buffer in loop.private or ():
            self._require(buffer in self._program.scratch, f"{buffer.name} is private and not scratch")
        with self._scope(loop.var):
            self._check_all(loop.body)

    def _check_control_flow(self, statement: ControlFlow) -> None:
        """Check a sequential loop, a branch or what is done to a stack."""
        if isinstance(statement, SequentialFor):
            if statement.count is not None:
                self._same(statement.count.dtype, INT64)
            with self._sequential(statement):
                self._check_all(statement.body)
        elif isinstance(statement, WhileLoop):
            with self._sequential(statement):
                self._check_all(statement.test)
                self._same(statement.condition.dtype, BOOL)
                if isinstance(statement.condition, Register):
                    self._check_register(statement.condition)
                with self._scope():
                    self._check_all(statement.body)
        elif isinstance(statement, IndexSwitch):
            self._require(statement.index.dtype.kind in "biu", "the number of a branch is not an integer")
            for branch in statement.branches:
                with self._scope():
                    self._check_all(branch)
        elif isinstance(statement, ReserveStack | OpenStack):
            self._require(statement.stack.role == "stack", f"{statement.stack.name} is no stack")
            self._buffers.add(statement.stack)
        else:
            assert isinstance(statement, GrowStack)
            self._check_place((statement.stack, 0))

    @contextmanager
    def _sequential(self, loop: SequentialFor | WhileLoop) -> Iterator[None]:
        """Open the scope of a sequential loop: its variable, and the buffers that it swaps."""
        self._require(
            loop.poll & (loop.poll - 1) == 0, "a loop does not poll after a power of 2 of iterations"
        )
        for pair in loop.pairs:
            self._check_place(pair.first, reads=True)
            self._check_place(pair.second, reads=pair.carries == 2)
            for buffer in (pair.current, pair.following, pair.first[0], pair.second[0]):
                alike = (buffer.size, buffer.dtype) == (pair.current.size, pair.current.dtype)
                self._require(alike, f"{buffer.name} is swapped with another size or dtype")
        self._buffers.update(loop.aliases())
        with self._scope(loop.var):
            yield
        self._buffers.difference_update(loop.aliases())
        for pair in loop.pairs:
            self._require(pair.following in self._written, f"no iteration writes {pair.following.name}")
            self._written.update(buffer for buffer, _ in (pair.first, pair.second))
            for place in (pair.landing, pair.aside):
                if place is not None:
                    self._check_place(place)
                    self._written.add(place[0])
