"""Parallelisation: large loops over independent rows are cut into blocks that threads may share out.

The blocks follow from the shapes alone. Reductions over rows are computed for each block and then over the blocks in their order, so that a
result has the same bits for any number of threads, one included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Final

from gradtape.costs import (
    INSTRUCTION,
    LEAST_BLOCK,
    LOAD,
    MOST_BLOCKS,
    MOST_DENSE_SUMS,
    PARTIAL_SUM,
    WORTHWHILE,
    even_blocks,
)
from gradtape.kinds.elementwise import SciPy, body_cost
from gradtape.loops.affine import Affine, Position, Var, affine, interval
from gradtape.loops.copies import Copier
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Declare,
    For,
    Load,
    LoopProgram,
    Number,
    Register,
    RoutineCall,
    Statement,
    Store,
)
from gradtape.loops.passes.monoids import COMBINE, identity
from gradtape.loops.traversal import Definitions, positions_of, replace_loops, touched_outside
from gradtape.passes.layout.matmul_tiling import PRODUCT
from gradtape.records import record
from gradtape.statements import walk

ALIGNED: Final = 64
"""Elements of which a block of single elements is a multiple, so that its stores fill cache lines."""


def parallelise(program: LoopProgram) -> LoopProgram:
    """Return the program with its large loops over independent rows in blocks."""

    def split(loop: For, scratch: list[Buffer]) -> list[Statement] | None:
        plan = _plan(loop, program)
        return None if plan is None else _split(plan, scratch)

    return replace_loops(program, split, everywhere=True)


@record
class _ParallelPlan:
    """The facts about a loop over rows.

    Attributes
    ----------
    loop : For
        The loop.
    blocks : int
        Into how many blocks it is cut.
    private : list of Buffer
        Scratch of single rows: each thread needs its own.
    sums : list of Buffer
        What rows add to in memory.
    totals : dict of str to Compute
        The instructions by which rows are combined in accumulators, by their names.
    """

    loop: For
    blocks: int = 0
    private: list[Buffer] = field(default_factory=list)
    sums: list[Buffer] = field(default_factory=list)
    totals: dict[str, Compute] = field(default_factory=dict)


def _plan(loop: For, program: LoopProgram) -> _ParallelPlan | None:
    """Return how a loop of a program is cut; None where its rows depend on each other or are not worth it."""
    inside = list(walk(loop.body))
    if not all(
        isinstance(s, For | Load | Store | Compute | Declare | Assign) or _is_small(s) for s in inside
    ):
        return None
    if any(isinstance(s, Compute) and isinstance(s.body, SciPy) and s.body.may_raise for s in inside):
        return None  # an error is set in the thread that Python knows
    additions = work([loop])
    if additions < WORTHWHILE:
        return None
    plan = _ParallelPlan(loop)
    definitions = Definitions(inside)
    if not _find_totals(plan, inside, definitions) or not _find_buffers(plan, inside, definitions, program):
        return None
    parts = sum(buffer.nbytes for buffer in plan.sums)
    unit = _unit(loop)
    elements = sum(buffer.size for buffer in plan.sums)
    plan.blocks = min(
        MOST_BLOCKS,
        int(additions / LEAST_BLOCK),
        int(additions / (PARTIAL_SUM * max(elements, 1))),
        MOST_DENSE_SUMS // max(parts, 1),
        loop.trip_count // unit,
    )
    if unit == 1:
        plan.blocks = even_blocks(loop.trip_count, plan.blocks)
    return plan if plan.blocks > 1 else None


def _is_small(statement: Statement) -> bool:
    """Whether a statement is a product that BLAS computes in the thread that calls it."""
    return (
        isinstance(statement, RoutineCall)
        and statement.function == "gemm"
        and statement.multiplications <= PRODUCT
    )


def work(statements: Sequence[Statement]) -> float:
    """Return what statements cost, in additions."""
    total = 0.0
    for statement in statements:
        if isinstance(statement, For):
            total += statement.trip_count * work(statement.body)
        elif isinstance(statement, Compute):
            total += INSTRUCTION if statement.body is None else body_cost(statement.body)
        elif isinstance(statement, RoutineCall):
            total += statement.multiplications
        else:
            total += LOAD
    return total


def _unit(loop: For) -> int:
    """Return of how many iterations the blocks are multiples."""
    return 1 if any(isinstance(statement, For) for statement in loop.body) else ALIGNED


class _Products:
    """The buffers that the products among statements touch.

    Attributes
    ----------
    places : dict of Buffer to list of Position
        The first and the last element of each matrix.
    written : set of Buffer
        Of results.
    sums : set of Buffer
        Of results that products are only added to.
    """

    def __init__(self, inside: Iterable[Statement]) -> None:
        self.places: dict[Buffer, list[Position]] = {}
        self.written: set[Buffer] = set()
        self.sums: set[Buffer] = set()
        read: set[Buffer] = set()
        replaced: set[Buffer] = set()
        for call in inside:
            if isinstance(call, RoutineCall):
                *operands, (result, _) = call.operands
                for (buffer, start), length in zip(call.operands, _lengths(call.numbers), strict=True):
                    self.places.setdefault(buffer, []).extend((start, start + (length - 1)))
                read.update(buffer for buffer, _ in operands)
                self.written.add(result)
                if not call.numbers[7]:
                    replaced.add(result)
        self.sums = self.written - replaced - read


def _lengths(numbers: Sequence[object]) -> tuple[int, int, int]:
    """Return how many elements of memory each matrix spans; BLAS stores them by columns."""
    first, second, wide, high, deep, ld_first, ld_second, _, ld_out = numbers
    a = _length(wide, deep, ld_first) if first == "N" else _length(deep, wide, ld_first)
    b = _length(deep, high, ld_second) if second == "N" else _length(high, deep, ld_second)
    return a, b, _length(wide, high, ld_out)


def _length(rows: object, columns: object, leading: object) -> int:
    assert isinstance(rows, int) and isinstance(columns, int) and isinstance(leading, int)
    return (columns - 1) * leading + rows


def _step(value: Number, definitions: Definitions) -> Compute | None:
    """Return what combines a total with one more number, if that is all that becomes of the total."""
    step, uses = definitions.computed(value), definitions.uses
    if step is None or not step.reassociate or uses[step.target.name] != 1:
        return None
    total = step.args[0]
    return step if isinstance(total, Register) and uses[total.name] == 1 else None


def _adds(step: Compute | None) -> bool:
    return (
        step is not None and step.reassociate and step.function == "add" and step.target.dtype.kind in "fiu"
    )


def _loaded(store: Store, definitions: Definitions) -> Load | None:
    """Return where a store takes the total from that it puts back with something added."""
    uses, value = definitions.uses, store.value
    final = definitions.computed(value)
    if final is not None and final.function == "identity":
        (total,) = final.args
        declared = definitions.declares.get(total.name) if isinstance(total, Register) else None
        if declared is None or uses[declared.target.name] != 2:
            return None
        assigned = definitions.assigns.get(declared.target.name)
        sum_of_store = None if assigned is None else definitions.computed(assigned.value)
        if (
            sum_of_store is None
            or not _adds(sum_of_store)
            or sum_of_store.args[0] is not total
            or uses[sum_of_store.target.name] != 1
        ):
            return None
        begin = declared.value
    else:
        begin = value
        while (step := _step(begin, definitions)) is not None and _adds(step):
            begin = step.args[0]
        if begin is value:
            return None
    load = definitions.loaded(begin)
    if load is None or uses[load.target.name] != 1:
        return None
    return load if (load.buffer, load.index) == (store.buffer, store.index) else None


def _find_totals(plan: _ParallelPlan, inside: Sequence[Statement], definitions: Definitions) -> bool:
    """Find the accumulators in which rows are combined; return whether nothing else goes from row to row."""
    for statement in inside:
        if isinstance(statement, Assign) and statement.target.name not in definitions.declares:
            step = _step(statement.value, definitions)
            name = statement.target.name
            if step is None or step.function not in COMBINE or step.args[0] is not statement.target:
                return False
            if name in plan.totals:
                return False
            plan.totals[name] = step
    return True


def _find_buffers(
    plan: _ParallelPlan, inside: Sequence[Statement], definitions: Definitions, program: LoopProgram
) -> bool:
    """Find the scratch of single rows and the sums in memory; return whether rows share nothing else."""
    row, products = plan.loop.var, _Products(inside)
    named = [position for statement in inside for position in positions_of(statement)]
    for position in (*named, *[end_position for ends in products.places.values() for end_position in ends]):
        if isinstance(position, Affine) and any(
            not isinstance(atom, Var) and row in atom.whole.variables() for atom in position.terms
        ):
            return False
    indices_by_buffer: dict[Buffer, list[Position]] = {}
    stores: dict[Buffer, list[Store]] = {}
    loads: dict[Buffer, list[Load]] = {}
    for buffer, ends in products.places.items():
        indices_by_buffer.setdefault(buffer, []).extend(ends)
    for statement in inside:
        if isinstance(statement, Load | Store):
            indices_by_buffer.setdefault(statement.buffer, []).append(statement.index)
        if isinstance(statement, Store):
            stores.setdefault(statement.buffer, []).append(statement)
        elif isinstance(statement, Load):
            loads.setdefault(statement.buffer, []).append(statement)
    elsewhere = touched_outside(program, [plan.loop])
    results = [buffer for buffer in products.places if buffer in products.written]
    for buffer in dict.fromkeys((*stores, *results)):
        rows = {_row_of(position, row) for position in indices_by_buffer[buffer]}
        if None not in rows:
            if len(rows) > 1:
                return False
        elif any(
            isinstance(position, Affine) and row in position.terms for position in indices_by_buffer[buffer]
        ):
            return False
        elif buffer.role == "scratch" and buffer not in elsewhere:
            plan.private.append(buffer)
        elif buffer in products.sums and buffer not in stores and buffer not in loads:
            plan.sums.append(buffer)
        else:
            sources = {id(_loaded(store, definitions)) for store in stores.get(buffer, ())}
            if buffer in products.places or sources != {id(load) for load in loads.get(buffer, ())}:
                return False
            plan.sums.append(buffer)
    return True


def _row_of(position: Position, row: Var) -> tuple[int, int] | None:
    """Return how many elements a row has, and how many rows off a position lies, if it stays within one row's elements."""
    factor = position.terms.get(row, 0) if isinstance(position, Affine) else 0
    if factor <= 0:
        return None
    low, high = interval(position - affine(row) * factor)
    return (factor, low // factor) if low // factor == high // factor else None


def _split(plan: _ParallelPlan, scratch: list[Buffer]) -> list[Statement]:
    """Return the loop over the blocks, what combines their results, and the loop over the rows that are left over.

    Each block has its own accumulators and sums in memory, an array of one element or one sum for each block.
    """
    row = plan.loop.var
    unit = _unit(plan.loop)
    size = plan.loop.trip_count // (plan.blocks * unit) * unit
    block = Var(f"{row.name}_part", 0, plan.blocks - 1)
    inner = Var(row.name, 0, size - 1)
    first = row.low + affine(block) * size
    begin: list[Statement] = []
    end: list[Statement] = []
    combine: list[Statement] = []
    parts: dict[str, Register] = {}
    moved: dict[Buffer, tuple[Buffer, Position]] = {}
    for name, step in plan.totals.items():
        total = step.args[0]
        assert isinstance(total, Register)
        part = parts[name] = Register(f"{name}_part", total.dtype)
        buffer = Buffer(f"p_{name}_{row.name}", total.dtype, plan.blocks, "scratch")
        scratch.append(buffer)
        begin.append(Declare(part, identity(step.function, total.dtype)))
        end.append(Store(buffer, affine(block), part))
        read, sum_ = Register(f"{name}_one", total.dtype), Register(f"{name}_all", total.dtype)
        number = Var(f"{name}_block", 0, plan.blocks - 1)
        added = Compute(sum_, step.function, step.body, (total, read))
        combine.append(
            For(number, [Load(read, buffer, affine(number)), added, Assign(total, sum_)], minor=True)
        )
    for buffer in plan.sums:
        part_of = Buffer(f"p_{buffer.name}_{row.name}", buffer.dtype, buffer.size * plan.blocks, "scratch")
        scratch.append(part_of)
        moved[buffer] = (part_of, affine(block) * buffer.size)
        element = Var(f"{buffer.name}_clear", 0, buffer.size - 1)
        part_index = affine(block) * buffer.size + affine(element)
        begin.append(For(element, [Store(part_of, part_index, identity("add", buffer.dtype))]))
        combine.append(_gathered(buffer, part_of, plan.blocks))
    copier = Copier({row: first + affine(inner)}, moved, parts)
    body: list[Statement] = [*begin, For(inner, copier.block(plan.loop.body)), *end]
    statements: list[Statement] = [For(block, body, private=tuple(plan.private)), *combine]
    start = row.low + size * plan.blocks
    if start <= row.high:
        statements.append(_remaining(plan, start, scratch))
    return statements


def _remaining(plan: _ParallelPlan, start: int, scratch: list[Buffer]) -> For:
    """Return the loop over the rows from `start` on, with scratch of its own."""
    row = plan.loop.var
    remaining_row = Var(f"{row.name}_left", start, row.high)
    moved: dict[Buffer, tuple[Buffer, Position]] = {}
    for buffer in plan.private:
        row_scratch = Buffer(f"{buffer.name}_left", buffer.dtype, buffer.size, "scratch")
        scratch.append(row_scratch)
        moved[buffer] = (row_scratch, 0)
    copier = Copier({row: affine(remaining_row)}, moved, suffix="_left")  # one function may hold both loops
    return For(remaining_row, copier.block(plan.loop.body), minor=True)


def _gathered(buffer: Buffer, parts: Buffer, blocks: int) -> For:
    """Return the loop that adds the blocks' sums to a buffer, block by block."""
    block = Var(f"{buffer.name}_block", 0, blocks - 1)
    element = Var(f"{buffer.name}_element", 0, buffer.size - 1)
    before, part, after = (
        Register(f"{buffer.name}_{suffix}", buffer.dtype) for suffix in ("old", "one", "new")
    )
    function, body = COMBINE["add"]
    return For(
        block,
        [
            For(
                element,
                [
                    Load(before, buffer, affine(element)),
                    Load(part, parts, affine(block) * buffer.size + affine(element)),
                    Compute(after, function, body, (before, part)),
                    Store(buffer, affine(element), after),
                ],
            )
        ],
    )
