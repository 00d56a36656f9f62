"""The schedule of a graph: the loop of each computation, the order of the loops, and the stored arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import prod
from typing import Final

from gradtape.ir.body import Body
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.index_map import IndexMap
from gradtape.loops.affine import Affine, Position
from gradtape.loops.ir import Buffer
from gradtape.lower.schedule.access import Accesses, analyse_accesses, readers_of
from gradtape.lower.schedule.costs import LANES, REPEATED, STORED, calls_vector_function, reads_again_soon
from gradtape.lower.schedule.fusion import Block, Fusion, Placements
from gradtape.lower.schedule.nests import Form, LoopNest, Note, check_dtype, find_nests, forms_of
from gradtape.lower.schedule.operands import MemoryOperands, base_of_view, memory_operands
from gradtape.lower.schedule.rotate import rotate_loops
from gradtape.lower.schedule.storage import Storage, StorageAssignment
from gradtape.passes.rewrite import closed
from gradtape.records import frozen_record

ROUNDS: Final = 3
"""Schedules tried: each but the first stores what the one before computed twice."""


@frozen_record
class Schedule:
    """Loop nests with their place in the program and in memory.

    Attributes
    ----------
    graph : Graph
        What is computed: of primitive rows, with loops rotated.
    top : Block
        The loops.
    nests : list of LoopNest
        In topological order.
    by_value : dict of Value to LoopNest
        Which of them makes which value.
    placements : mapping of LoopNest to Placement
        Where they run.
    storage : mapping of LoopNest to Storage
        Where their values are.
    sources : dict of Value to Buffer
        The memory of inputs and constants.
    inputs, outputs, scratch : list of Buffer
        Of the program; the constants follow its inputs.
    explain : list of str
        Why loops are shared and values are stored.
    apart : list of Note
        Why nests do not share the loop before theirs.
    """

    graph: Graph
    top: Block
    nests: list[LoopNest]
    by_value: dict[Value, LoopNest]
    placements: Placements
    storage: Mapping[LoopNest, Storage]
    sources: dict[Value, Buffer]
    inputs: list[Buffer]
    outputs: list[Buffer]
    scratch: list[Buffer]
    explain: list[str]
    apart: list[Note]


def schedule(
    graph: Graph,
    traced: Graph,
    carried: Mapping[int, int] | None = None,
    prefix: str = "",
    outline: bool = False,
) -> Schedule:
    """Assign computations to loops, and choose the arrays to store.

    Parameters
    ----------
    graph : Graph
        Of primitive rows.
    traced : Graph
        What it was before the passes: its constants, in their order, follow the inputs.
    carried : mapping of int to int, optional
        For the body of a loop: the inputs that are loop-carried, with the outputs that become them in the next iteration.
    prefix : str, optional
        What the names of buffers begin with.
    outline : bool
        Whether loops are kernels of their own, which find all that they read in memory.

    Raises
    ------
    LoweringError
        For ops and dtypes that kernels do not know.
    """
    graph = rotate_loops(graph)
    for value in (*graph.inputs, *graph.outputs):
        check_dtype(value)
    inputs, sources = _source_buffers(traced, prefix)
    outputs = [
        Buffer(f"{prefix}out{k}", value.dtype, value.size, "output") for k, value in enumerate(graph.outputs)
    ]
    carries = {graph.inputs[index]: outputs[output] for index, output in (carried or {}).items()}
    operands = memory_operands(graph, outline)
    forms = forms_of(graph, operands.products)
    uses = _count_uses(graph)
    stored: set[Value] = set()
    for round_ in range(ROUNDS):
        attempt = _Attempt(graph, operands, forms, stored, outputs, carries, outline)
        recomputed = attempt.recomputed(uses) if round_ < ROUNDS - 1 else set()
        if round_ == 0:
            recomputed |= _functions_around_long_loops(attempt.accesses)
        for nest in attempt.assignment.read_while_written():
            assert nest.node is not None
            if round_ == ROUNDS - 1:
                del attempt.assignment.in_place[nest]
            else:
                recomputed.add(nest.node.inputs[1])
        if not recomputed:
            break
        stored |= recomputed
    storage, scratch = attempt.assignment.assign({value: sources[value] for value in carries}, prefix)
    fusion = attempt.fusion
    explain: list[str] = [*fusion.explain, *attempt.assignment.explain]
    return Schedule(
        graph,
        fusion.top,
        attempt.nests,
        attempt.by_value,
        fusion.placements,
        storage,
        sources,
        inputs,
        outputs,
        scratch,
        explain,
        fusion.apart,
    )


class _Attempt:
    """One round of the schedule: nests, fused and with storage, for a choice of values that are stored.

    Fusion is greedy: nests are placed one by one in a topological order, each in the loop of an earlier one where dependences and the
    cache allow it (K. Kennedy and K. McKinley, "Maximizing loop parallelism and improving data locality via loop fusion and distribution",
    1993). A value that is not stored is computed again wherever it is read; what a round computes too often, the next one stores.

    Parameters
    ----------
    graph : Graph
    operands : MemoryOperands
        What routines read from memory.
    forms : mapping of Node to Form
        The loops that nodes need.
    stored : set of Value
        What earlier rounds decided to store.
    outputs : list of Buffer
    carries : mapping of Value to Buffer
        The loop-carried inputs, with the memory of the next iteration's.
    outline : bool
        Whether loops are kernels of their own.
    """

    def __init__(
        self,
        graph: Graph,
        operands: MemoryOperands,
        forms: Mapping[Node, Form | None],
        stored: set[Value],
        outputs: list[Buffer],
        carries: Mapping[Value, Buffer],
        outline: bool,
    ) -> None:
        self.graph = graph
        self.nests, self.by_value = find_nests(graph, operands, forms, stored, outputs, carries)
        self.accesses, self.costs = analyse_accesses(self.nests, self.by_value)
        readers = readers_of(self.accesses)
        prepared = _made_just_before(self.nests, self.accesses, readers)
        order, made_for = _small_first(self.nests, self.accesses, prepared)
        self.fusion = Fusion(self.accesses, readers, made_for)
        for nest in order:
            self.fusion.place(nest)
        self.assignment = StorageAssignment(self.nests, self.by_value, self.accesses, self.fusion.placements)
        self.assignment.choose_in_place(outline, replaces)

    def recomputed(self, uses: Mapping[Value, int]) -> set[Value]:
        """Return values that are computed so often, or in such an order, that they are better stored."""
        placements = self.fusion.placements
        repeated = _computed_twice(self.nests, self.accesses, placements, self.costs, uses, self.by_value)
        return repeated | _computed_out_of_order(self.graph, self.costs, self.by_value)


@lru_cache(maxsize=1024)
def replaces(branch: Body, index: int, output: int) -> bool:
    """Return whether a branch makes an output in the memory of an input."""
    if branch.outputs[output] is branch.inputs[index]:
        return True
    traced = closed(branch)
    plan = schedule(traced, traced, {index: output})
    return plan.storage[plan.by_value[traced.inputs[index]]].buffer is plan.outputs[output]


def _source_buffers(graph: Graph, prefix: str) -> tuple[list[Buffer], dict[Value, Buffer]]:
    inputs: list[Buffer] = []
    sources: dict[Value, Buffer] = {}
    for k, value in enumerate(graph.inputs):
        sources[value] = Buffer(f"{prefix}x{k}", value.dtype, value.size, "input")
        inputs.append(sources[value])
    for k, value in enumerate(graph.constants()):
        check_dtype(value)
        sources[value] = Buffer(f"{prefix}c{k}", value.dtype, value.size, "constant")
        inputs.append(sources[value])
    return inputs, sources


def _count_uses(graph: Graph) -> dict[Value, int]:
    """Return how often each value is an operand or an output."""
    uses: dict[Value, int] = {}
    for node in graph.nodes:
        for value in node.inputs:
            uses[value] = uses.get(value, 0) + 1
    for value in (*graph.outputs, *[value for value, _ in graph.guards]):
        uses[value] = uses.get(value, 0) + 1
    return uses


# The order in which nests are placed


def _made_just_before(
    nests: Sequence[LoopNest], accesses: Accesses, readers: Mapping[LoopNest, Sequence[LoopNest]]
) -> set[LoopNest]:
    """Return the operands of calls that can share the outermost loop of all that read them; the others are placed early."""
    prepared: set[LoopNest] = set()
    for nest in nests:
        if not nest.feeds_call:
            continue
        place = nest.axes[0].position if nest.axes else None
        if nest not in readers or (
            place is not None
            and all(
                bool(reader.axes)
                and all(position[place] == reader.variables[0] for position in accesses[reader].reads[nest])
                for reader in readers[nest]
            )
        ):
            prepared.add(nest)
    return prepared


def _small_first(
    nests: Sequence[LoopNest], accesses: Accesses, prepared: set[LoopNest]
) -> tuple[list[LoopNest], dict[LoopNest, LoopNest]]:
    """Return a topological order, and for each prepared operand the nest that it is made for.

    Nests with few iterations come as early as they can: what large loops need from them is complete when the first large loop is placed,
    and the others can share it. Prepared operands come just before the nest that reads them. Outputs that are copies of carries come
    first: the next carry may overwrite the carry then.
    """
    order: dict[LoopNest, None] = {}
    made_for: dict[LoopNest, LoopNest] = {}

    def needs(nest: LoopNest) -> set[LoopNest]:
        """Return the nests that must come before a nest, apart from its preparations."""
        required: set[LoopNest] = set()
        for read in accesses[nest].reads:
            required |= needs(read) if read in prepared else {read}
        return required

    def prepare(nest: LoopNest) -> None:
        for read in accesses[nest].reads:
            if read in prepared and read not in order:
                made_for[read] = nest
                prepare(read)
                order[read] = None

    def urgency(nest: LoopNest) -> tuple[int, bool, int, LoopNest]:
        trips = nest.value.size if nest.kind == "product" else prod(axis.extent for axis in nest.axes)
        if lengths_vary():
            trips = nest.value.ndim if nest.kind == "product" else len(nest.axes)
        reads = accesses[nest].reads
        copies = nest.kind == "elementwise" and nest.node is None and any(r.kind == "carry" for r in reads)
        return trips, not copies, nest.order, nest

    needed_by = {nest: needs(nest) for nest in nests if nest not in prepared}
    waiting = {nest: len(needed) for nest, needed in needed_by.items()}
    readers: dict[LoopNest, list[LoopNest]] = {}
    for nest, needed in needed_by.items():
        for read in needed:
            readers.setdefault(read, []).append(nest)
    ready = [urgency(nest) for nest, count in waiting.items() if not count]
    heapify(ready)
    while ready:
        nest = heappop(ready)[-1]
        prepare(nest)
        order[nest] = None
        for reader in readers.get(nest, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heappush(ready, urgency(reader))
    return list(order | dict.fromkeys(nests)), made_for


# What is better stored than computed again


def _functions_around_long_loops(accesses: Accesses) -> set[Value]:
    """Return what nests compute around long loops with functions of the C library, and what is better stored before."""
    chosen: set[Value] = set()
    for nest, access in accesses.items():
        calls: dict[Value, int] = {}
        inner: set[Value] = set()
        for value in access.around:
            assert value.node is not None
            operands = [operand for operand in value.node.inputs if operand in calls]
            count = calls_vector_function(value.node) + sum(calls[operand] for operand in operands)
            if count:
                calls[value] = count
                inner.update(operands)
        for value, count in calls.items():
            level = access.around[value]
            rows = prod(axis.extent for axis in nest.axes[: level + 1])
            reads_rows = any(len(read.axes) > level + 1 for read in access.reads)
            soon = not reads_rows or reads_again_soon(nest, level, count)
            if value not in inner and rows >= LANES and soon:
                chosen.add(value)
    return chosen


def _computed_twice(
    nests: Sequence[LoopNest],
    accesses: Accesses,
    placements: Placements,
    costs: Mapping[Value, float],
    uses: Mapping[Value, int],
    by_value: Mapping[Value, LoopNest],
) -> set[Value]:
    """Return costly values that several loops would compute, or one loop over and over."""
    sites: dict[Value, set[tuple[object, ...]]] = {}
    repeated: set[Value] = set()
    for nest in nests:
        block = id(placements[nest].block)
        at: dict[int, tuple[tuple[object, ...], bool]] = {}  # many values, few positions
        for value, positions in accesses[nest].sites.items():
            for index in positions:
                if id(index) not in at:
                    at[id(index)] = (
                        (block, tuple([_level(position, nest) for position in index])),
                        _repeats(nest, index),
                    )
                site, repeats = at[id(index)]
                sites.setdefault(value, set()).add(site)
                if repeats and costs[value] > REPEATED:
                    repeated.add(value)
    chosen: set[Value] = set()
    for value, where in sites.items():
        repeats, is_shared = value in repeated, len(where) > 1 and uses.get(value, 0) > 1
        if value in by_value or not (repeats or is_shared):
            continue
        cost = _cost_beyond(value, costs, chosen, by_value)
        if (repeats and cost > REPEATED) or (is_shared and cost > STORED):
            chosen.add(value)
    return chosen


def _computed_out_of_order(
    graph: Graph, costs: Mapping[Value, float], by_value: Mapping[Value, LoopNest]
) -> set[Value]:
    """Return expensive arrays that are mostly gathered. They are stored, since a fused gather would not vectorise."""
    return {
        source
        for node in graph.nodes
        if isinstance(node.op, IndexMap)
        and len(node.inputs) > 1
        and (source := base_of_view(node.inputs[0])) not in by_value
        and costs.get(source, 0.0) > STORED
        and 2 * node.out.size >= source.size >= LANES
    }


def _cost_beyond(
    value: Value, costs: Mapping[Value, float], chosen: set[Value], by_value: Mapping[Value, LoopNest]
) -> float:
    """Return what a value costs when those already chosen are only loaded."""
    cost = costs[value]
    stack = [value]
    steps = 0
    while stack and steps < 64:
        steps += 1
        node = stack.pop().node
        if node is None:
            continue
        # The cost of a gather is without those of its indices.
        operands = node.inputs[:1] if isinstance(node.op, IndexMap) else node.inputs
        for operand in operands:
            if operand in chosen:
                cost -= costs[operand]
            elif operand not in by_value and isinstance(operand.node, Node):
                stack.append(operand)
    return cost


def _level(position: Position, nest: LoopNest) -> object:
    """Name a position by the loop that it follows, so that nests in the same loops can be compared."""
    for level, variable in enumerate(nest.variables):
        if position == variable and not isinstance(variable, int):
            return level
    return (nest.order, position)


def _repeats(nest: LoopNest, index: tuple[Position, ...]) -> bool:
    """Whether a loop outside those that a position follows would compute the element again and again."""
    if not nest.axes:
        return False
    varying = set()
    for position in index:
        if isinstance(position, Affine):
            varying |= position.variables()
    levels = [
        level
        for level, variable in enumerate(nest.variables)
        if isinstance(variable, Affine) and variable.variables() & varying
    ]
    if not levels:
        return False
    trips = 1
    for level in range(max(levels)):
        if level not in levels:
            trips *= nest.axes[level].extent
    return trips > 1
