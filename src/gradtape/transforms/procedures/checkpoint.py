"""Checkpointing of procedures: loops whose iterations the reverse sweep runs again, so that their records are not kept.

A loop with a memory policy is cut into chunks. The forward sweep stores what the loop changes at the beginning of each chunk; the reverse
sweep restores it, runs the chunk again with records, and then backwards. Iterations of a parallel loop do not depend on each other: each
is run again alone, and its records never leave the caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from gradtape.costs import UNKNOWN_TRIP_COUNT
from gradtape.ir.graph import Value, literal, number_of
from gradtape.ir.types import INT64
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.extrema import maximum
from gradtape.ops.core.elementwise.integer import floor_divide
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.procedures.builder import integer
from gradtape.procedures.dataflow import exposed_variables, live_after_loops, total_chain
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    For,
    Load,
    Memory,
    Pointer,
    Procedure,
    Read,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import outer_leaves
from gradtape.records import record
from gradtape.statements import walk
from gradtape.transforms.procedures.blocks import Block, BlockTree, Place, written
from gradtape.transforms.procedures.dependence import Dependence

FLOAT: Final = literal(0.0).dtype


@record
class Rerun:
    """A loop whose iterations run again in the reverse sweep.

    Attributes
    ----------
    block : Block
        Its iteration.
    accesses : list of (Load or Apply, Place)
        What the iterations read of arrays.
    contents : list of Content
        What they use of the blocks around, pointers and sizes of stored arrays included.
    own : set of Memory
        The memories of arrays that an iteration makes.
    arrays : dict of Memory to list of Allocate
        What may be stored: the arrays outside that the loop writes, by memory.
    conflicting : set of Memory
        The memories that have to be: some iteration overwrites what another one has read.
    variables : list of Variable
        Those that iterations hand on.
    totals : set of Variable
        For a parallel loop: those in which iterations are summed; the reverse sweep does not need them.
    """

    block: Block
    accesses: list[tuple[Load | Apply, Place]] = field(default_factory=list)
    contents: list[Content] = field(default_factory=list)
    own: set[Memory] = field(default_factory=set)
    arrays: dict[Memory, list[Allocate]] = field(default_factory=dict)
    conflicting: set[Memory] = field(default_factory=set)
    variables: list[Variable] = field(default_factory=list)
    totals: set[Variable] = field(default_factory=set)

    @property
    def loop(self) -> For | While:
        assert isinstance(self.block.holder, For | While)
        return self.block.holder

    @property
    def is_parallel(self) -> bool:
        return isinstance(self.loop, For) and self.loop.parallel


def find_reruns(procedure: Procedure, tree: BlockTree, dependence: Dependence, chunked: bool) -> list[Rerun]:
    """Return the loops that can run again: parallel ones, and with a memory policy the outermost others."""
    allocations = [
        (statement, Place(block, position))
        for block in tree.blocks
        for position, statement in enumerate(block.statements)
        if isinstance(statement, Allocate)
    ]
    live = live_after_loops(procedure.body)
    reruns: list[Rerun] = []
    for block in tree.blocks:
        around = [outer for outer in list(block.around())[1:] if outer.is_loop]
        if not block.is_loop or any(not other.is_parallel and other.block in around for other in reruns):
            continue
        rerun = Rerun(block)
        is_outermost = all(isinstance(outer.holder, For) and outer.holder.parallel for outer in around)
        if (rerun.is_parallel or (chunked and is_outermost)) and _analyse(
            rerun, tree, dependence, allocations, live
        ):
            reruns.append(rerun)
    return reruns


def _analyse(
    rerun: Rerun,
    tree: BlockTree,
    dependence: Dependence,
    allocations: Sequence[tuple[Allocate, Place]],
    live: Mapping[For, set[Variable]],
) -> bool:
    """Fill in the reads and changes of a loop; return whether it can run again."""
    loop = rerun.loop
    inside: list[Statement] = list(walk([loop]))
    own_memories = rerun.own = {s.out.memory for s in inside if isinstance(s, Allocate)}
    assigned = {s.variable for s in inside if isinstance(s, Assign)}
    if any(isinstance(s, Read) and s.variable not in assigned for s in inside):
        return False
    exposed = exposed_variables(loop)
    if any(x in exposed and isinstance(x.type, Memory) and x.type in own_memories for x in assigned):
        return False
    if isinstance(loop, For) and loop.parallel:
        shared = exposed | live.get(loop, set())
        for variable in assigned & exposed:
            chain = total_chain(variable, inside, shared)
            if chain is None:
                return False
            rerun.totals |= chain
    else:
        rerun.variables = [
            x for x in dict.fromkeys(s.variable for s in inside if isinstance(s, Assign)) if x in exposed
        ]
    _find_accesses(rerun, tree, dependence)
    outer = list(rerun.block.around())[1:]
    for memory in dict.fromkeys([x for s in inside for x in written(s) if isinstance(x, Memory)]):
        arrays = [(s, place) for s, place in allocations if s.out.memory is memory]
        if memory in own_memories:
            if any(s not in inside for s, _ in arrays):
                return False
            rerun.conflicting.discard(memory)
            continue
        if any(place.block not in outer for _, place in arrays):
            return False
        rerun.arrays[memory] = [s for s, _ in arrays]
    contents = [x for s in inside for x in s.uses()]
    for stored in rerun.arrays.values():
        contents += [x for s in stored for x in (s.out, s.size)]
    rerun.contents = outer_leaves(contents, inside)
    return True


def _find_accesses(rerun: Rerun, tree: BlockTree, dependence: Dependence) -> None:
    """Enter what the iterations of a loop read, and what of that they overwrite."""
    writes: list[tuple[Store | Apply, Place]] = []
    for block in tree.blocks:
        if rerun.block not in block.around():
            continue
        for position, statement in enumerate(block.statements):
            place = Place(block, position)
            if isinstance(statement, Load | Apply):
                rerun.accesses.append((statement, place))
            if isinstance(statement, Store | Apply):
                writes.append((statement, place))
    for access, place in rerun.accesses:
        for memory in {pointer.memory for pointer in access.pointers_read()} - rerun.conflicting:
            for statement, where in writes:
                if memory not in written(statement):
                    continue
                if isinstance(access, Load) and isinstance(statement, Store):
                    meets = dependence.overwrites(statement, where, access, place)
                else:
                    meets = tree.may_precede(place, where)
                if meets:
                    rerun.conflicting.add(memory)
                    break


class Chunks:
    """The chunks of a loop: how many iterations each has.

    Parameters
    ----------
    policy : int or "sqrt"
        The number of iterations; or as many as there are chunks, which takes the least memory if what is stored for a chunk is as large as
        the records of an iteration.
    stored : Value
        Bytes that are stored for a chunk. If this is more than `recorded`, chunks are longer by as much.
    recorded : int
        Bytes of the records of an iteration.
    """

    def __init__(self, policy: Any, stored: Value, recorded: int) -> None:
        self._policy = policy
        self._scale = maximum(floor_divide(stored, integer(max(recorded, 1))), integer(1))

    def length(self, count: Value) -> Value:
        """Return the number of iterations of the chunks of a loop of known trip count."""
        if self._policy != "sqrt":
            return integer(self._policy)
        area = convert(maximum(count, integer(0)) * self._scale, FLOAT)
        return convert(sqrt(area), INT64) + integer(1)

    def begin(self, number: Value) -> Value:
        """Return the first iteration of a chunk of a loop of unknown trip count: chunks grow, for "sqrt" by the same number each."""
        if self._policy != "sqrt":
            return number * integer(self._policy)
        return self._scale * floor_divide(number * (number + integer(1)), integer(2))


def record_bytes(loop: Block, tree: BlockTree, records: Mapping[Block, Sequence[Content]]) -> int:
    """Return the bytes that the records of an iteration take, about."""
    total = 0.0
    for block in tree.blocks:
        around = list(block.around())
        if loop in around:
            trips = 1.0
            for inner in around[: around.index(loop)]:
                if isinstance(inner.holder, For | While):
                    trip_count = number_of(inner.holder.count) if isinstance(inner.holder, For) else None
                    trips *= UNKNOWN_TRIP_COUNT if trip_count is None else float(trip_count)
            sizes = [x.size * x.dtype.itemsize if isinstance(x, Value) else 8 for x in records.get(block, ())]
            total += trips * sum(sizes)
    return int(total)


class StatementCopy(Rewriter):
    """Copies statements with their blocks; what they define is defined anew.

    Parameters
    ----------
    outer : Rewriter
        What stands for the leaves that are defined elsewhere.
    variables : dict of Variable to Variable
        Others that are used in place of some.
    """

    def __init__(self, outer: Rewriter, variables: Mapping[Variable, Variable]) -> None:
        super().__init__()
        self._outer = outer
        self._variables = variables

    def unknown(self, content: Content) -> None:
        self.becomes[content] = self._outer.content(content)

    def pointer(self, pointer: Pointer) -> Pointer:
        if pointer not in self.becomes:
            self.unknown(pointer)
        return super().pointer(pointer)

    def statement(self, statement: Statement) -> Statement:
        """Return a copy of a statement."""
        if isinstance(statement, For):
            return super().statement(statement.with_parts(define=self.defined))
        copy: Statement = super().statement(statement).with_parts(define=self.defined)
        if isinstance(copy, Read | Assign):
            copy.variable = self._variables.get(copy.variable, copy.variable)
        return copy
