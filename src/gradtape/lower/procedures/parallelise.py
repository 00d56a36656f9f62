"""Parallelisation: long parallel loops are cut into blocks that threads may share out.

The number of blocks follows from the trip count alone. Sums over the iterations are computed for each block and then over the blocks in
their order, so that a result has the same bits for any number of threads, one included.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from gradtape.costs import (
    ADDITION,
    LEAST_BLOCK,
    MOST_BLOCKS,
    MOST_SCATTERED_SUMS,
    PARTIAL_SUM,
    UNKNOWN_PARALLEL_TRIP_COUNT,
    WORTHWHILE,
)
from gradtape.ir.graph import Value, literal, number_of
from gradtape.ir.types import INT64
from gradtape.lower.procedures.poll import seconds
from gradtape.lower.procedures.privatise import Privatisation, Sharing
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.integer import floor_divide
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.ir import (
    Assign,
    For,
    Load,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Statement,
    Store,
    Variable,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.tape import match_tape
from gradtape.procedures.traversal import names, walk
from gradtape.records import record, replaced

LINE: Final = 64
"""Bytes of a cache line: sums of different blocks have none in common."""


def divide_loops(procedure: Procedure) -> Procedure:
    """Return the procedure with its long parallel loops in blocks.

    Afterwards a parallel loop is one over blocks. Only its body uses the variables that it assigns; others are read before it.
    """
    if not any(isinstance(s, For) and s.parallel for s in walk(procedure.body)):
        return procedure
    division = _Division(procedure)
    body = division.block(procedure.body)
    return replaced(procedure, body=[*division.build.start, *body])


@record
class _Plan:
    """How a loop is cut.

    Attributes
    ----------
    sharing : Sharing
        What its blocks share.
    rows : int
        Iterations that a block has at least.
    most : int
        Blocks at most.
    """

    sharing: Sharing
    rows: int
    most: int

    def blocks(self, count: Value) -> Value:
        """Return the number of blocks."""
        known = number_of(count)
        if known is not None:
            most = max(min(int(known) // self.rows, self.most), 1)
            return literal(_even(int(known), most), INT64)
        return minimum(
            maximum(floor_divide(count, literal(self.rows, INT64)), literal(1, INT64)),
            literal(self.most, INT64),
        )


def _even(trips: int, blocks: int) -> int:
    """Return a number of blocks not far below another one that leaves no iterations over, if there is one."""
    return next((count for count in range(blocks, blocks // 2, -1) if trips % count == 0), blocks)


def _plan(loop: For, privatisation: Privatisation) -> _Plan | None:
    """Return how a loop is cut; None where its iterations cannot run at the same time, or are not worth it."""
    iteration = sum(seconds(statement, UNKNOWN_PARALLEL_TRIP_COUNT) for statement in loop.body)
    known = number_of(loop.count)
    if known is not None and int(known) * iteration < WORTHWHILE * ADDITION:
        return None
    if any(isinstance(s, Push | Pop) for s in walk(loop.body)) and match_tape(loop.body) is None:
        return None
    sharing = privatisation.sharing(loop)
    if sharing is None:
        return None
    elements = len(sharing.totals) + sum(sharing.sums.values())
    bytes_ = sum([size * pointer.dtype.itemsize for pointer, size in sharing.sums.items()])
    rows = max(ceil(ADDITION * max(LEAST_BLOCK, PARTIAL_SUM * elements) / iteration), 1)
    most = min(MOST_BLOCKS, MOST_SCATTERED_SUMS // max(bytes_, 1))
    if most < 2 or (known is not None and int(known) < 2 * rows):
        return None
    return _Plan(sharing, rows, most)


class _Division:
    """Divides the loops of a procedure."""

    def __init__(self, procedure: Procedure) -> None:
        self.build = ProcedureBuilder(procedure.name, names(procedure))
        self._privatisation = Privatisation(procedure)

    def block(self, statements: Sequence[Statement], divides: bool = True) -> list[Statement]:
        """Return the statements of a block, with parallel loops divided, or sequential."""
        found: list[Statement] = []
        for statement in statements:
            if isinstance(statement, For):
                plan = _plan(statement, self._privatisation) if divides and statement.parallel else None
                body = self.block(statement.body, divides and plan is None)
                loop = For(statement.index, statement.count, body, site=statement.site)
                found += [loop] if plan is None else self._divided(loop, plan)
            else:
                found.append(statement.with_parts(block=lambda body: self.block(body, divides)))
        return found

    def _divided(self, loop: For, plan: _Plan) -> list[Statement]:
        """Return what stands for a loop: that over blocks, and what combines their sums."""
        build, sharing = self.build, plan.sharing
        around: list[Statement] = []
        assigned = {s.variable for s in walk(loop.body) if isinstance(s, Assign)}
        rewriter = _BlockRewriter(build, assigned)
        with build.block(around):
            count = maximum(loop.count, literal(0, INT64)) if number_of(loop.count) is None else loop.count
            blocks = plan.blocks(count)
            rows = floor_divide(count, blocks)
            rest = count - rows * blocks
            is_even = _is_multiple(count, blocks)
            for statement in walk(loop.body):  # a block finds as values what it does not assign
                if isinstance(statement, Read) and statement.variable not in assigned:
                    rewriter.becomes[statement.out] = build.read(statement.variable)
            totals = {}
            for variable in sharing.totals:
                with build.at_start():
                    totals[variable] = build.allocate("parts", MOST_BLOCKS, variable.type.dtype)
            before = {variable: build.read(variable) for variable in (*sharing.resets, *sharing.kept)}
            sums = {}
            for pointer, size in sharing.sums.items():
                row = -(-size * pointer.dtype.itemsize // LINE) * LINE // pointer.dtype.itemsize
                with build.at_start():
                    sums[pointer] = build.allocate("parts", MOST_BLOCKS * row, pointer.dtype), row
            with build.loop(blocks, parallel=True) as number:
                for pointer, (parts, row) in sums.items():
                    rewriter.moved[pointer] = parts, number * row
                    with build.loop(sharing.sums[pointer]) as place:
                        build.store(parts, number * row + place, 0)
                for variable in sharing.totals:
                    build.assign(rewriter.variable(variable), 0)
                for variable in sharing.kept:
                    build.assign(rewriter.variable(variable), before[variable])
                for variable, reset in sharing.resets.items():
                    first = where(equal(number, literal(0, INT64)), before[variable], reset)
                    build.assign(rewriter.variable(variable), first)
                begin, length = number * rows, rows
                if not is_even:
                    begin, length = begin + minimum(number, rest), rows + convert(less(number, rest), INT64)
                with build.loop(length) as place:
                    rewriter.becomes[loop.index] = begin + place
                    build.current.extend(rewriter.block(loop.body))
                for variable, parts in totals.items():
                    build.store(parts, number, build.read(rewriter.variable(variable)))
            for variable, parts in totals.items():
                with build.loop(blocks) as number:
                    build.assign(variable, build.read(variable) + build.load(parts, number))
            for pointer, (parts, row) in sums.items():
                with build.loop(blocks) as number, build.loop(sharing.sums[pointer]) as place:
                    part = build.load(parts, number * row + place)
                    build.store(pointer, place, build.load(pointer, place) + part)
            for variable, reset in sharing.resets.items():
                build.assign(variable, where(less(literal(0, INT64), count), reset, before[variable]))
        return around


def _is_multiple(count: Value, blocks: Value) -> bool:
    known, parts = number_of(count), number_of(blocks)
    return known is not None and parts is not None and int(known) % int(parts) == 0


class _BlockRewriter(Rewriter):
    """Rewrites the iterations of a loop for a block: with variables of its own, and sums in its own parts of memory.

    Attributes
    ----------
    assigned : set of Variable
        The variables that the iterations assign.
    moved : dict of Pointer to (Pointer, Value)
        Where the sums of an array begin: a pointer and an offset.
    """

    def __init__(self, build: ProcedureBuilder, assigned: set[Variable]) -> None:
        super().__init__()
        self.assigned = assigned
        self.moved: dict[Pointer, tuple[Pointer, Value]] = {}
        self._build = build
        self._variables: dict[Variable, Variable] = {}

    def variable(self, variable: Variable) -> Variable:
        """Return the variable of the blocks that stands for another one."""
        if variable not in self._variables:
            self._variables[variable] = Variable(self._build.unique(variable.name), variable.type)
        return self._variables[variable]

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return the statements of a block of the loop's body; variables that it does not assign are read before it."""
        return [
            self.statement(statement)
            for statement in statements
            if not isinstance(statement, Read) or statement.variable in self.assigned
        ]

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Read):
            return Read(statement.out, self.variable(statement.variable))
        if isinstance(statement, Load | Store) and statement.pointer in self.moved:
            parts, offset = self.moved[statement.pointer]
            index = offset + self.value(statement.index)
            if isinstance(statement, Load):
                return replaced(statement, pointer=parts, index=index)
            return Store(parts, index, self.value(statement.value), statement.site)
        new = super().statement(statement)
        if isinstance(new, Assign):
            return replaced(new, variable=self.variable(new.variable))
        return replaced(new, parallel=False) if isinstance(new, For) else new
