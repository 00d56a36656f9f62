"""Parallelisation: long parallel loops are cut into blocks that threads may share out.

The number of blocks follows from the trip count alone. Sums over the iterations are computed for each block and then over the blocks in
their order, so that a result has the same bits for any number of threads, one included.

Which variables and arrays blocks have for themselves is decided after R. Allen and K. Kennedy, "Optimizing Compilers for Modern
Architectures", Morgan Kaufmann 2001, sections 5.3 and 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from math import ceil
from typing import Final

from gradtape.costs import (
    ADDITION,
    CACHE_LINE,
    LEAST_BLOCK,
    MOST_BLOCKS,
    MOST_SCATTERED_SUMS,
    PARTIAL_SUM,
    UNKNOWN_PARALLEL_TRIP_COUNT,
    WORTHWHILE,
    even_blocks,
)
from gradtape.ir.graph import Literal, Value, extract, literal, number_of
from gradtape.ir.types import INT64, Aval
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.integer import floor_divide
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.passes.procedures.accesses import LoopAccesses
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.dataflow import (
    depend_on,
    exposed_variables,
    is_same_element,
    last_number,
    live_after_loops,
    same_number,
    total_chain,
    totals,
)
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    For,
    Load,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Statement,
    Store,
    Variable,
)
from gradtape.procedures.poll import seconds
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.tape import match_tape
from gradtape.procedures.traversal import array_sizes, assigned, names, stored
from gradtape.records import record, replaced
from gradtape.statements import walk

MOST_PAIRS: Final = 200
"""Pairs of accesses to an array that are compared."""


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
        constant_count = number_of(count)
        if constant_count is not None:
            most = max(min(int(constant_count) // self.rows, self.most), 1)
            return literal(even_blocks(int(constant_count), most), INT64)
        return minimum(
            maximum(floor_divide(count, literal(self.rows, INT64)), literal(1, INT64)),
            literal(self.most, INT64),
        )


def _plan(loop: For, privatisation: Privatisation) -> _Plan | None:
    """Return how a loop is cut; None where its iterations cannot run at the same time, or are not worth it."""
    iteration = sum(seconds(statement, UNKNOWN_PARALLEL_TRIP_COUNT) for statement in loop.body)
    constant_count = number_of(loop.count)
    if constant_count is not None and int(constant_count) * iteration < WORTHWHILE * ADDITION:
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
    if most < 2 or (constant_count is not None and int(constant_count) < 2 * rows):
        return None
    return _Plan(sharing, rows, most)


class _Division:
    """Divides the loops of a procedure."""

    def __init__(self, procedure: Procedure) -> None:
        self.build = ProcedureBuilder(procedure.name, names(procedure))
        self._privatisation = Privatisation(procedure)

    def block(self, statements: Sequence[Statement], divides: bool = True) -> list[Statement]:
        """Return the statements of a block, with parallel loops divided, or sequential."""
        divided: list[Statement] = []
        for statement in statements:
            if isinstance(statement, For):
                plan = _plan(statement, self._privatisation) if divides and statement.parallel else None
                body = self.block(statement.body, divides and plan is None)
                loop = For(statement.index, statement.count, body, site=statement.site)
                divided += [loop] if plan is None else self._divided(loop, plan)
            else:
                divided.append(statement.with_parts(block=lambda body: self.block(body, divides)))
        return divided

    def _divided(self, loop: For, plan: _Plan) -> list[Statement]:
        """Return what stands for a loop: that over blocks, and what combines their sums."""
        build, sharing = self.build, plan.sharing
        around: list[Statement] = []
        assigned_in_loop = assigned(loop.body)
        rewriter = _BlockRewriter(build, assigned_in_loop)
        with build.block(around):
            count = maximum(loop.count, literal(0, INT64)) if number_of(loop.count) is None else loop.count
            blocks = plan.blocks(count)
            rows = floor_divide(count, blocks)
            remainder = count - rows * blocks
            is_even = _is_multiple(count, blocks)
            for statement in walk(loop.body):  # a block finds as values what it does not assign
                if isinstance(statement, Read) and statement.variable not in assigned_in_loop:
                    rewriter.becomes[statement.out] = build.read(statement.variable)
            totals = {}
            for variable in sharing.totals:
                with build.at_start():
                    totals[variable] = build.allocate("parts", MOST_BLOCKS, variable.type.dtype)
            before = {variable: build.read(variable) for variable in (*sharing.resets, *sharing.kept)}
            sums = {}
            for pointer, size in sharing.sums.items():
                # Sums of different blocks have no line in common.
                row = -(-size * pointer.dtype.itemsize // CACHE_LINE) * CACHE_LINE // pointer.dtype.itemsize
                with build.at_start():
                    sums[pointer] = build.allocate("parts", MOST_BLOCKS * row, pointer.dtype), row
            with build.loop(blocks, parallel=True) as number:
                for pointer, (parts, row) in sums.items():
                    rewriter.moved[pointer] = parts, number * row
                    with build.loop(sharing.sums[pointer]) as element:
                        build.store(parts, number * row + element, 0)
                for variable in sharing.totals:
                    build.assign(rewriter.variable(variable), 0)
                for variable in sharing.kept:
                    build.assign(rewriter.variable(variable), before[variable])
                for variable, reset in sharing.resets.items():
                    first = where(equal(number, literal(0, INT64)), before[variable], reset)
                    build.assign(rewriter.variable(variable), first)
                begin, length = number * rows, rows
                if not is_even:
                    begin, length = (
                        begin + minimum(number, remainder),
                        rows + convert(less(number, remainder), INT64),
                    )
                with build.loop(length) as element:
                    rewriter.becomes[loop.index] = begin + element
                    build.current.extend(rewriter.block(loop.body))
                for variable, parts in totals.items():
                    build.store(parts, number, build.read(rewriter.variable(variable)))
            for variable, parts in totals.items():
                with build.loop(blocks) as number:
                    build.assign(variable, build.read(variable) + build.load(parts, number))
            for pointer, (parts, row) in sums.items():
                with build.loop(blocks) as number, build.loop(sharing.sums[pointer]) as element:
                    part = build.load(parts, number * row + element)
                    build.store(pointer, element, build.load(pointer, element) + part)
            for variable, reset in sharing.resets.items():
                build.assign(variable, where(less(literal(0, INT64), count), reset, before[variable]))
        return around


def _is_multiple(count: Value, blocks: Value) -> bool:
    constant_count, parts = number_of(count), number_of(blocks)
    return constant_count is not None and parts is not None and int(constant_count) % int(parts) == 0


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


# Privatisation


@record
class Sharing:
    """The data that the blocks of a parallel loop share.

    Attributes
    ----------
    totals : list of Variable
        The variables in which iterations are summed.
    resets : dict of Variable to Literal
        The variables that each iteration leaves at a known number.
    kept : list of Variable
        The variables that each iteration leaves as it found them.
    sums : dict of Pointer to int
        The arrays to whose elements iterations only add, and their sizes: each block has sums of its own.
    """

    totals: list[Variable] = field(default_factory=list)
    resets: dict[Variable, Literal] = field(default_factory=dict)
    kept: list[Variable] = field(default_factory=list)
    sums: dict[Pointer, int] = field(default_factory=dict)


class Privatisation:
    """Finds what the blocks of loops share, for one procedure."""

    def __init__(self, procedure: Procedure) -> None:
        self._accesses = LoopAccesses(procedure)
        self._live = live_after_loops(procedure.body)
        self._sizes = array_sizes(procedure)
        self._assigned: dict[Variable, list[Assign]] = {}
        for statement in walk(procedure.body):
            if isinstance(statement, Assign):
                self._assigned.setdefault(statement.variable, []).append(statement)

    def sharing(self, loop: For) -> Sharing | None:
        """Return what the blocks of a loop share; None where its iterations cannot run at the same time.

        Iterations of the loop do not conflict but for sums: see `gradtape.procedures.ir.For`.
        """
        shared = Sharing()
        inside = list(walk(loop.body))
        if not self._find_variables(loop, inside, shared):
            return None
        for memory in dict.fromkeys([pointer.memory for pointer in stored(loop.body)]):
            if not self._find_sums(loop, inside, memory, shared):
                return None
        return shared

    # Variables

    def _find_variables(self, loop: For, inside: Sequence[Statement], shared: Sharing) -> bool:
        """Enter the variables that iterations share; return whether blocks can have parts of them."""
        exposed, live = exposed_variables(loop), self._live[loop]
        for variable in dict.fromkeys([s.variable for s in inside if isinstance(s, Assign)]):
            if variable not in exposed and variable not in live:
                continue
            if not isinstance(variable.type, Aval):
                return False
            if variable in exposed and total_chain(variable, inside, exposed | live):
                shared.totals.append(variable)
                continue
            if _is_kept(variable, loop.body):
                shared.kept.append(variable)
                continue
            number = self._reset(variable, loop, inside)
            if number is None:
                return False
            shared.resets[variable] = number
        return True

    def _reset(self, variable: Variable, loop: For, inside: Sequence[Statement]) -> Literal | None:
        """Return the number that a variable holds at the end of each iteration."""
        number, is_certain = last_number(loop.body, variable)
        if number is None or is_certain:
            return number
        assigns_inside = {s for s in inside if isinstance(s, Assign)}
        others = [s for s in self._assigned[variable] if s not in assigns_inside]
        return number if others and all(same_number(s.value, number) for s in others) else None

    # Arrays

    def _find_sums(self, loop: For, inside: Sequence[Statement], memory: Memory, shared: Sharing) -> bool:
        """Enter an array to which iterations add; return whether iterations can store into it at the same time."""
        accesses = [s for s in inside if isinstance(s, Load | Store) and s.pointer.memory is memory]
        if any(memory in s.memories() for s in inside if isinstance(s, Apply)):
            return True
        stores = [s for s in accesses if isinstance(s, Store)]
        if any(isinstance(s, Allocate) and s.out.memory is memory for s in inside):
            return True
        if not _are_accumulations(loop, inside, accesses):
            return True
        if len(stores) * len(stores) <= MOST_PAIRS and not any(
            self._accesses.are_carried(loop, first, second)
            for number, first in enumerate(stores)
            for second in stores[number:]
        ):
            return True
        pointers = {s.pointer for s in accesses}
        if len(pointers) > 1 or not pointers <= self._sizes.keys():
            return False
        (pointer,) = pointers
        shared.sums[pointer] = self._sizes[pointer]
        return True


def _is_kept(variable: Variable, body: Sequence[Statement]) -> bool:
    """Return whether statements read a variable first and assign what they have read last."""
    at_first: set[Content] = set()
    is_assigned, last = False, None
    for statement in body:
        if isinstance(statement, Read) and statement.variable is variable and not is_assigned:
            at_first.add(statement.out)
        elif isinstance(statement, Assign) and statement.variable is variable:
            is_assigned, last = True, statement.value
        elif any(isinstance(s, Assign) and s.variable is variable for s in walk([statement])):
            is_assigned, last = True, None
    return last in at_first


def _are_accumulations(loop: For, inside: Sequence[Statement], accesses: Sequence[Load | Store]) -> bool:
    """Return whether all accesses to an array in a loop are of additions to its elements."""
    used: dict[Value, int] = {}
    for statement in inside:
        for value in statement.uses():
            if isinstance(value, Value):
                for leaf in extract([value])[1]:
                    used[leaf] = used.get(leaf, 0) + 1
    left = set(accesses)
    for body in _all_blocks(loop.body):
        loads = {s.out: (number, s) for number, s in enumerate(body) if isinstance(s, Load) and s in left}
        for number, store in enumerate(body):
            if not isinstance(store, Store) or store not in left:
                continue
            for begin, terms in totals(store):
                start, load = loads.get(begin, (number, None))
                if load is None or start > number or not is_same_element(load, store):
                    continue
                if used[begin] > 1 or depend_on(terms, {begin}):
                    continue
                between = [pointer.memory for pointer in stored(body[start:number])]
                if store.pointer.memory not in between:
                    left -= {load, store}
                break
    return not left


def _all_blocks(body: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """Yield a block and all blocks in it."""
    yield body
    for statement in body:
        for block in statement.blocks():
            yield from _all_blocks(block)
