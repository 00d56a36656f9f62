"""Attribution: the lines of the user's code for which each nest of a program computes, and what it reads and writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gradtape.costs import PASSING
from gradtape.ir.graph import Node
from gradtape.loops.affine import interval
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    ControlFlow,
    Declare,
    For,
    Load,
    LoopProgram,
    Register,
    RoutineCall,
    SequentialFor,
    Statement,
    Store,
    WhileLoop,
    Wrap,
)
from gradtape.lower.llvm.profiled import timed_statements
from gradtape.lower.procedures.attribution import Item, describe_procedure
from gradtape.lower.schedule.costs import cost_of
from gradtape.lower.schedule.order import Schedule
from gradtape.procedures.ir import Procedure
from gradtape.records import value_record

Site: TypeAlias = Any


@value_record
class NodeWork:
    """What a nest does for one node.

    Attributes
    ----------
    node : Node or Statement
        The node, of the graph after the passes; in a procedure, also a statement.
    site : Site or None
        The user's line.
    name : str
        Of the op, or of what kind the statement is.
    backward : bool
        Whether it is part of a reverse sweep.
    procedure : Procedure or None
        The procedure that it stands in, after the passes.
    cost : float
        What all of it costs in one run, in additions.
    operations : float
        Numbers computed in one run.
    moved : int
        Bytes loaded and stored in one run.
    """

    node: Item
    site: Site
    name: str
    backward: bool
    procedure: Procedure | None
    cost: float
    operations: float
    moved: int


@value_record
class NestSummary:
    """A nest of loops, or a routine, of a compiled program.

    Attributes
    ----------
    routine : str
        The name of the routine; empty for loops.
    extents : tuple of tuple of int
        The trip counts of the loops, outermost first, for each chain of loops that ends in an innermost one; 0 where only the run knows.
        What is counted below counts one iteration of these.
    blocks : int
        Into how many blocks, which threads may share out, the rows are cut; 0 where they are not.
    operations : float
        Numbers computed in one run.
    moved : int
        Bytes loaded and stored in one run, whether from memory or from a cache.
    footprint : int
        Bytes of the parts of arrays that are touched: what memory has to deliver and to take.
    lines : tuple of (Site, tuple of str, float)
        The places in the user's code, each with the ops that are computed for it, and its estimated part of the work.
    nodes : tuple of NodeWork
        What is done for which node.
    """

    routine: str
    extents: tuple[tuple[int, ...], ...]
    blocks: int
    operations: float
    moved: int
    footprint: int
    lines: tuple[tuple[Site, tuple[str, ...], float], ...]
    nodes: tuple[NodeWork, ...]


def describe_nests(
    program: LoopProgram,
    makers: Mapping[str, Node],
    plan: Schedule,
    procedures: Sequence[tuple[Procedure, Procedure]] = (),
) -> list[NestSummary]:
    """Return the nests of a program, in order, and last what is outside of them all.

    Parameters
    ----------
    program : LoopProgram
        The loops.
    makers : mapping of str to Node
        By the names that the builder gave, the node for which something is computed. What later stages make of a loop has names that
        begin with those.
    plan : Schedule
        Its storage tells for whom numbers are stored.
    procedures : sequence of (Procedure, Procedure)
        Those that the program calls, as they are called and as they are after the passes.
    """
    known = all_makers(makers, plan)
    timed = timed_statements(program)
    within = {id(statement) for statement in timed}
    outside = [statement for statement in program.body if id(statement) not in within]
    return [_described(part, known, procedures) for part in (*[[nest] for nest in timed], outside)]


def all_makers(makers: Mapping[str, Node], plan: Schedule) -> dict[str, Node]:
    """Return for each name of a register, and of a buffer that a schedule has assigned, the node for which it is there."""
    known: dict[str, Node] = {}
    for nest in sorted(plan.nests, key=lambda nest: nest.kind in ("product", "routine")):
        memory = plan.storage[nest].buffer
        if memory is not None and nest.node is not None:
            known[memory.name] = nest.node
    return {**known, **makers}


def maker_of(names: Iterable[str], makers: Mapping[str, Node]) -> Node | None:
    """Return the node for which the first of some names is there that is known."""
    return next((makers[base] for name in names if (base := _base(name)) in makers), None)


def _described(
    statements: Sequence[Statement],
    makers: Mapping[str, Node],
    procedures: Sequence[tuple[Procedure, Procedure]],
) -> NestSummary:
    """Return what statements compute, read and write, added up over all iterations."""
    steps = list(_steps(statements, 1))
    work: dict[Node, float] = {}
    inside: list[NodeWork] = []
    computed: dict[Node | None, float] = {}
    carried: dict[Node | None, int] = {}
    spans: dict[Buffer, tuple[int, int]] = {}
    for step, trips in steps:
        maker = maker_of(_names(step), makers)
        operations, moved = 0.0, 0
        done = _in_procedure(step, trips, procedures)
        inside += done
        if maker is not None and not done:
            work[maker] = work.get(maker, 0.0) + trips * _cost(step, maker)
        if isinstance(step, Load | Store):
            moved = step.buffer.dtype.itemsize * trips
            low, high = interval(step.index)
            first, last = spans.get(step.buffer, (low, high))
            spans[step.buffer] = (min(first, low), max(last, high))
        elif isinstance(step, Compute):
            operations = float(trips)
        elif isinstance(step, RoutineCall):
            operations = 0.0 if done else trips * _routine_operations(step)
            moved = 0 if done else sum(buffer.nbytes for buffer, _ in step.operands)
            spans.update((buffer, (0, buffer.size - 1)) for buffer, _ in step.operands)
        computed[maker] = computed.get(maker, 0.0) + operations
        carried[maker] = carried.get(maker, 0) + moved
    routine = next((step.function for step, _ in steps if isinstance(step, RoutineCall)), "")
    blocks = max(
        (_trip_count(s) for s in statements if isinstance(s, For) and s.private is not None), default=0
    )
    footprint = sum(
        (min(last, buffer.size - 1) - max(first, 0) + 1) * buffer.dtype.itemsize
        for buffer, (first, last) in spans.items()
    )
    extents = tuple(dict.fromkeys(_extents(statements, ())))
    nodes = [
        NodeWork(
            node, node.site, node.op.name, _is_backward(node.site), None, cost, computed[node], carried[node]
        )
        for node, cost in work.items()
    ]
    operations = sum(computed.values()) + sum(one.operations for one in inside)
    moved = sum(carried.values()) + sum(one.moved for one in inside)
    nodes += inside
    return NestSummary(routine, extents, blocks, operations, moved, footprint, _by_line(nodes), tuple(nodes))


def _in_procedure(
    step: Statement, trips: int, procedures: Sequence[tuple[Procedure, Procedure]]
) -> list[NodeWork]:
    """Return what is done in the procedure that a step calls, if it calls one."""
    if not isinstance(step, RoutineCall) or step.library != "procedure":
        return []
    called = step.numbers[0].procedure
    emitted = next((procedure for source, procedure in procedures if source is called), None)
    return [
        NodeWork(
            one.item,
            one.site,
            one.name,
            one.backward,
            emitted,
            trips * one.cost,
            trips * one.operations,
            trips * one.moved,
        )
        for one in (() if emitted is None else describe_procedure(emitted))
    ]


def _is_backward(site: Site) -> bool:
    return bool(getattr(site, "backward", False))


def _names(step: Statement) -> list[str]:
    """Return the names that tell for whom a step is done, the best first."""
    if isinstance(step, Store):
        return [step.value.name, step.buffer.name] if isinstance(step.value, Register) else [step.buffer.name]
    if isinstance(step, RoutineCall):
        return [buffer.name for buffer, _ in reversed(step.operands)]
    return [step.target.name] if isinstance(step, Compute | Load | Declare | Assign | Wrap) else []


def _cost(step: Statement, maker: Node) -> float:
    """Return what a step costs, in additions."""
    if isinstance(step, Compute):
        return max(cost_of(maker), 1.0)
    if isinstance(step, RoutineCall):
        return _routine_operations(step)
    return PASSING if isinstance(step, Load | Store) else 0.0


def _steps(statements: Sequence[Statement], trips: int) -> Iterator[tuple[Statement, int]]:
    """Return all statements but loops and branches, with how often each runs."""
    for statement in statements:
        if isinstance(statement, For):
            yield from _steps(statement.body, trips * _trip_count(statement))
        elif isinstance(statement, ControlFlow):
            for block in statement.blocks():
                yield from _steps(block, trips * (_trip_count(statement) or 1))
        else:
            yield statement, trips


def _extents(statements: Sequence[Statement], around: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for statement in statements:
        if isinstance(statement, For | SequentialFor | WhileLoop):
            inside = (*around, _trip_count(statement))
            blocks = (statement.body,) if isinstance(statement, For) else statement.blocks()
            deeper = [chain for block in blocks for chain in _extents(block, inside)]
            yield from deeper or [inside]
        elif isinstance(statement, ControlFlow):
            for block in statement.blocks():
                yield from _extents(block, around)


def _trip_count(loop: Statement) -> int:
    """Return the trip count of a loop; 0 where only the run knows, and for branches."""
    if isinstance(loop, For) or (isinstance(loop, SequentialFor) and loop.count is None):
        return loop.var.high - loop.var.low + 1
    return 0


def _routine_operations(call: RoutineCall) -> float:
    if call.library != "gradtape":
        return 2.0 * call.multiplications
    ordered = int(call.numbers[0])
    looked_up = int(call.numbers[1]) if call.function == "searchsorted" else ordered
    return float(looked_up * ordered.bit_length())


def _by_line(work: Sequence[NodeWork]) -> tuple[tuple[Site, tuple[str, ...], float], ...]:
    """Gather the nodes of each line, forward and backward apart, in the order of the code."""
    places: dict[tuple[str, int, bool], tuple[Site, dict[str, None], list[float]]] = {}
    total = sum(one.cost for one in work) or 1.0
    for one in work:
        site = one.site
        key = ("", 0, False) if site is None else (site.filename, site.line, one.backward)
        _, ops, costs = places.setdefault(key, (site, {}, []))
        ops[one.name] = None
        costs.append(one.cost)
    return tuple(
        (site, tuple(ops), sum(costs) / total)
        for _, (site, ops, costs) in sorted(places.items(), key=lambda item: item[0])
    )


_BASE: Final = re.compile(r"(?:[pl]_)?((?:i_|out|[a-z])\d+)")


def _base(name: str) -> str:
    """Return the name that the builder gave, of a name that was made of it."""
    found = _BASE.match(name)
    return found[1] if found else ""
