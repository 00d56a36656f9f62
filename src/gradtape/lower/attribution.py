"""Attribution: for which lines of the user's code a program computes, how often, and what it reads and writes.

A nest of loops is described by the nodes for which it computes. A procedure is described by its steps: statements, and the nodes of the
scalar code, with what flows from where to where.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

from gradtape.costs import PASSING, UNKNOWN_TRIP_COUNT
from gradtape.ir.graph import Node, Value, extract, number_of
from gradtape.loops import ir as loops
from gradtape.loops.affine import interval
from gradtape.lower.llvm.profiled import timed_statements
from gradtape.lower.schedule.costs import cost_of
from gradtape.lower.schedule.order import Schedule
from gradtape.procedures.affine import linear_form
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    Content,
    For,
    If,
    Load,
    Memory,
    Pop,
    Procedure,
    Push,
    Read,
    Span,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.tape import item_size
from gradtape.procedures.traversal import site_of
from gradtape.records import record, replaced, value_record
from gradtape.statements import walk
from gradtape.transforms.observers import DerivativeSite

Site: TypeAlias = Any

Item: TypeAlias = Node | Statement
"""The source of a step: a node, of the graph or of the scalar code after the passes, or a statement of a procedure."""


@record
class Step:
    """The work for one node or statement.

    Attributes
    ----------
    item : Node, Statement or None
        None where it belongs to no node.
    name : str
        Of the op, or of what kind the statement is.
    site : Site or None
        The user's line.
    backward : bool
        Whether it belongs to the reverse sweep.
    operations, moved : float and int
        Numbers computed, and bytes loaded and stored, in one run. Trip counts that follow from data are estimated.
    cost : float
        What all of it costs in one run, in additions.
    procedure : Procedure or None
        The procedure that it stands in, after the passes, if a nest calls it.
    type : str
        Of what a step of a procedure makes.
    parent, part : int and str
        The number of the loop or branch around a step of a procedure, -1 for none; and in which of its blocks, if there are several.
    inputs : list of (int, str)
        The steps of the same block from which something comes, and its type.
    """

    item: Item | None
    name: str
    site: Site
    backward: bool = False
    operations: float = 0.0
    moved: int = 0
    cost: float = 0.0
    procedure: Procedure | None = None
    type: str = ""
    parent: int = -1
    part: str = ""
    inputs: list[tuple[int, str]] = field(default_factory=list)


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
    steps : tuple of Step
        What is done for which node.
    """

    routine: str
    extents: tuple[tuple[int, ...], ...]
    blocks: int
    operations: float
    moved: int
    footprint: int
    lines: tuple[tuple[Site, tuple[str, ...], float], ...]
    steps: tuple[Step, ...]


def describe_nests(
    program: loops.LoopProgram,
    makers: Mapping[str, Node],
    plan: Schedule,
    procedures: Sequence[tuple[Procedure, Procedure]] = (),
) -> list[NestSummary]:
    """Return the nests of a program, in order, and last what is outside them all.

    Parameters
    ----------
    program : loops.LoopProgram
        The loops.
    makers : mapping of str to Node
        By the names that the builder gave, the node for which something is computed. What later stages make of a loop has names that
        begin with those.
    plan : Schedule
        Its storage tells for whom numbers are stored.
    procedures : sequence of (Procedure, Procedure)
        Those that the program calls, as they are called and as they are after the passes.
    """
    makers_by_name = all_makers(makers, plan)
    timed = timed_statements(program)
    within = {id(statement) for statement in timed}
    outside = [statement for statement in program.body if id(statement) not in within]
    return [_described(part, makers_by_name, procedures) for part in (*[[nest] for nest in timed], outside)]


def all_makers(makers: Mapping[str, Node], plan: Schedule) -> dict[str, Node]:
    """Return for each name of a register, and of a buffer that a schedule has assigned, the node for which it is there."""
    makers_by_name: dict[str, Node] = {}
    for nest in sorted(plan.nests, key=lambda nest: nest.kind in ("product", "routine")):
        memory = plan.storage[nest].buffer
        if memory is not None and nest.node is not None:
            makers_by_name[memory.name] = nest.node
    return {**makers_by_name, **makers}


def maker_of(names: Iterable[str], makers: Mapping[str, Node]) -> Node | None:
    """Return the node for which the first of some names is there that is known."""
    return next((makers[base] for name in names if (base := _base(name)) in makers), None)


def _described(
    statements: Sequence[loops.Statement],
    makers: Mapping[str, Node],
    procedures: Sequence[tuple[Procedure, Procedure]],
) -> NestSummary:
    """Return what statements compute, read and write, added up over all iterations."""
    done: dict[Node | None, Step] = {}
    inside: list[Step] = []
    spans: dict[loops.Buffer, tuple[int, int]] = {}
    routine = ""
    for statement, trips in _with_trips(statements, 1):
        if isinstance(statement, loops.RoutineCall):
            routine = routine or statement.function
            spans.update((buffer, (0, buffer.size - 1)) for buffer, _ in statement.operands)
            called = _in_procedure(statement, trips, procedures)
            inside += called
            if called:
                continue
        maker = maker_of(_names(statement), makers)
        site, name = (None, "") if maker is None else (maker.site, maker.op.name)
        step = done.setdefault(maker, Step(maker, name, site, bool(getattr(site, "backward", False))))
        if isinstance(statement, loops.Load | loops.Store):
            step.moved += statement.buffer.dtype.itemsize * trips
            step.cost += trips * PASSING
            low, high = interval(statement.index)
            first, last = spans.get(statement.buffer, (low, high))
            spans[statement.buffer] = (min(first, low), max(last, high))
        elif isinstance(statement, loops.Compute):
            step.operations += trips
            step.cost += 0.0 if maker is None else trips * max(cost_of(maker), 1.0)
        elif isinstance(statement, loops.RoutineCall):
            operations = trips * _routine_operations(statement)
            step.operations += operations
            step.cost += operations
            step.moved += sum(buffer.nbytes for buffer, _ in statement.operands)
    blocks = max(
        (_trip_count(s) for s in statements if isinstance(s, loops.For) and s.private is not None), default=0
    )
    footprint = sum(
        (min(last, buffer.size - 1) - max(first, 0) + 1) * buffer.dtype.itemsize
        for buffer, (first, last) in spans.items()
    )
    steps = [step for maker, step in done.items() if maker is not None] + inside
    counted = [*done.values(), *inside]
    return NestSummary(
        routine,
        tuple(dict.fromkeys(_extents(statements, ()))),
        blocks,
        sum(step.operations for step in counted),
        sum(step.moved for step in counted),
        footprint,
        _by_line(steps),
        tuple(steps),
    )


def _in_procedure(
    call: loops.RoutineCall, trips: int, procedures: Sequence[tuple[Procedure, Procedure]]
) -> list[Step]:
    """Return the steps of the procedure that a routine is, if it is one."""
    if call.library != "procedure":
        return []
    called = call.numbers[0].procedure
    emitted = next((procedure for source, procedure in procedures if source is called), None)
    return [
        replaced(
            step,
            procedure=emitted,
            cost=trips * step.cost,
            operations=trips * step.operations,
            moved=trips * step.moved,
        )
        for step in (() if emitted is None else describe_procedure(emitted))
    ]


def _names(step: loops.Statement) -> list[str]:
    """Return the names that tell for whom a step is done, the best first."""
    if isinstance(step, loops.Store):
        return (
            [step.value.name, step.buffer.name]
            if isinstance(step.value, loops.Register)
            else [step.buffer.name]
        )
    if isinstance(step, loops.RoutineCall):
        return [buffer.name for buffer, _ in reversed(step.operands)]
    return (
        [step.target.name]
        if isinstance(step, loops.Compute | loops.Load | loops.Declare | loops.Assign | loops.Wrap)
        else []
    )


def _with_trips(statements: Sequence[loops.Statement], trips: int) -> Iterator[tuple[loops.Statement, int]]:
    """Return all statements but loops and branches, with how often each runs."""
    for statement in statements:
        if not isinstance(statement, loops.For | loops.ControlFlow):
            yield statement, trips
        for block in statement.blocks():
            yield from _with_trips(block, trips * (_trip_count(statement) or 1))


def _extents(statements: Sequence[loops.Statement], around: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for statement in statements:
        is_loop = bool(statement.variables())
        inside = (*around, _trip_count(statement)) if is_loop else around
        deeper = [chain for block in statement.blocks() for chain in _extents(block, inside)]
        yield from deeper or [inside][:is_loop]


def _trip_count(loop: loops.Statement) -> int:
    """Return the trip count of a loop; 0 where only the run knows, and for branches."""
    if isinstance(loop, loops.For) or (isinstance(loop, loops.SequentialFor) and loop.count is None):
        return loop.var.high - loop.var.low + 1
    return 0


def _routine_operations(call: loops.RoutineCall) -> float:
    if call.library != "gradtape":
        return 2.0 * call.multiplications
    ordered = int(call.numbers[0])
    looked_up = int(call.numbers[1]) if call.function == "searchsorted" else ordered
    return float(looked_up * ordered.bit_length())


def _by_line(steps: Sequence[Step]) -> tuple[tuple[Site, tuple[str, ...], float], ...]:
    """Gather the steps of each line, forward and backward apart, in the order of the code."""
    by_line: dict[tuple[str, int, bool], tuple[Site, dict[str, None], list[float]]] = {}
    total = sum(step.cost for step in steps) or 1.0
    for step in steps:
        site = step.site
        key = ("", 0, False) if site is None else (site.filename, site.line, step.backward)
        _, ops, costs = by_line.setdefault(key, (site, {}, []))
        ops[step.name] = None
        costs.append(step.cost)
    return tuple(
        (site, tuple(ops), sum(costs) / total)
        for _, (site, ops, costs) in sorted(by_line.items(), key=lambda item: item[0])
    )


_BASE: Final = re.compile(r"(?:[pl]_)?((?:i_|out|[a-z])\d+)")


def _base(name: str) -> str:
    """Return the name that the builder gave, of a name that was made of it."""
    match = _BASE.match(name)
    return match[1] if match else ""


# Procedures


def describe_procedure(procedure: Procedure) -> list[Step]:
    """Return what a procedure does, in the order of its statements; nodes stand where they are used first."""
    return _Description(procedure).steps


class _Description:
    """The steps of a procedure, with what each leaf, variable and memory came from."""

    def __init__(self, procedure: Procedure) -> None:
        self.steps: list[Step] = []
        self._made: dict[Content | Variable | Memory, int] = {}
        self._trips: dict[Value, float] = {}
        self._backward = False
        for statement in procedure.body:
            # What follows the first statement of the reverse sweep belongs to that.
            self._backward = self._backward or any(map(_is_backward, walk([statement])))
            self._statement(statement, -1, "", 1.0)

    def _block(self, statements: Sequence[Statement], parent: int, part: str, trips: float) -> None:
        before = dict(self._made)
        for statement in statements:
            self._statement(statement, parent, part, trips)
        # Scalar code is computed again in the next block; what is stored stays.
        before.update((x, number) for x, number in self._made.items() if isinstance(x, Variable | Memory))
        self._made = before

    def _statement(self, statement: Statement, parent: int, part: str, trips: float) -> None:
        """Add the steps of a statement, and of the nodes that it needs."""
        used = list(statement.uses())
        if isinstance(statement, While):
            used = []  # its condition is computed in its test
        for content in used:
            self._nodes(content, parent, part, trips)
        if isinstance(statement, Read):
            if statement.variable in self._made:
                self._made[statement.out] = self._made[statement.variable]
            return
        moved = _moved(statement)
        number = self._add(
            statement, _NAMES[type(statement)], _type(statement), site_of(statement), parent, part
        )
        step = self.steps[number]
        step.moved, step.cost = int(trips * moved), trips * _cost(statement)
        if isinstance(statement, Apply):
            nodes = statement.graph.nodes
            step.operations = trips * sum(out.size for node in nodes for out in node.outs)
            step.name = ", ".join(dict.fromkeys(node.op.name for node in nodes)) or step.name
        for content in used:
            self._flow(self._made.get(content), number, _type_of(content))
        for pointer in statement.pointers_read():
            self._flow(self._made.get(pointer.memory), number, pointer.memory.name)
        if isinstance(statement, For):
            count = self._count(statement.count)
            constant_count = number_of(statement.count)
            step.type = (
                f"{int(constant_count)} times" if constant_count is not None else f"about {count:.0f} times"
            )
            self._trips[statement.index] = (count - 1) / 2
            self._block(statement.body, number, "body", trips * count)
        elif isinstance(statement, While):
            self._block(statement.test, number, "condition", trips * UNKNOWN_TRIP_COUNT)
            self._nodes(statement.condition, number, "condition", trips * UNKNOWN_TRIP_COUNT)
            self._block(statement.body, number, "body", trips * UNKNOWN_TRIP_COUNT)
        elif isinstance(statement, If):
            branch_trips = trips / 2 if statement.then and statement.otherwise else trips
            self._block(statement.then, number, "then", branch_trips)
            self._block(statement.otherwise, number, "else", branch_trips)
        if not isinstance(statement, For):
            self._made.update((out, number) for out in statement.defines())
        self._made.update((pointer.memory, number) for pointer in statement.pointers_written())
        if isinstance(statement, Assign):
            self._made[statement.variable] = number

    def _nodes(self, content: Content, parent: int, part: str, trips: float) -> None:
        """Add the nodes that compute a value, as far as they are not known here."""
        if not isinstance(content, Value) or not content.is_made or content in self._made:
            return
        nodes, _ = extract([content], stop=lambda value: value in self._made or not value.is_made)
        for node in nodes:
            if any(out in self._made for out in node.outs):
                continue
            number = self._add(node, node.op.name, _type_of(node.out), node.site, parent, part)
            step = self.steps[number]
            step.operations, step.cost = trips, trips * max(cost_of(node), 1.0)
            for value in node.inputs:
                self._flow(self._made.get(value), number, _type_of(value))
            self._made.update((out, number) for out in node.outs)

    def _add(self, item: Item, name: str, type_: str, site: Any, parent: int, part: str) -> int:
        self.steps.append(Step(item, name, site, self._backward, type=type_, parent=parent, part=part))
        return len(self.steps) - 1

    def _flow(self, source: int | None, target: int, type_: str) -> None:
        """Note what flows between two steps, at the innermost block that holds both."""
        if source is None:
            return
        above = {at: inside for inside, at in self._upwards(source)}
        for inside, at in self._upwards(target):
            if at in above:
                edge = above[at], type_
                if above[at] < inside and edge not in self.steps[inside].inputs:
                    self.steps[inside].inputs.append(edge)
                return

    def _upwards(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield a step and its parent, then the parent and that of it, and so on."""
        while number >= 0:
            parent = self.steps[number].parent
            yield number, parent
            number = parent

    def _count(self, value: Value) -> float:
        """Return a trip count, in the middle of the loops around."""
        total = 0.0
        for atom, factor in linear_form(value).items():
            count = 1.0 if atom is None else self._trips.get(atom)
            if count is None:
                return UNKNOWN_TRIP_COUNT
            total += factor * count
        return max(total, 0.0)


_NAMES: Final[Mapping[type[Statement], str]] = {
    Load: "load",
    Store: "store",
    Assign: "assign",
    Allocate: "allocate",
    Check: "check",
    Apply: "arrays",
    For: "for",
    While: "while",
    If: "if",
    Push: "record",
    Pop: "recall",
}


def _is_backward(statement: Statement) -> bool:
    """Return whether a statement belongs to a reverse sweep, as far as it tells; a forward sweep records what is part of a derivative."""
    site = site_of(statement)
    is_derivative = isinstance(site, DerivativeSite) and site.backward
    return isinstance(statement, Pop) or (is_derivative and not isinstance(statement, Push))


def _cost(statement: Statement) -> float:
    if isinstance(statement, Load | Store):
        return PASSING
    if isinstance(statement, Push | Pop):
        return PASSING * len(statement.entries)
    if isinstance(statement, Apply):
        nodes = statement.graph.nodes
        return sum(max(cost_of(node), 1.0) * out.size for node in nodes for out in node.outs)
    return 0.0


def _moved(statement: Statement) -> int:
    """Return the bytes that a statement loads and stores when it is run once."""
    if isinstance(statement, Load | Store):
        return statement.pointer.dtype.itemsize
    if isinstance(statement, Push | Pop):
        return sum(map(item_size, statement.entries))
    if isinstance(statement, Apply):
        spans = [x for x in (*statement.inputs, *statement.outputs) if isinstance(x, Span)]
        return sum(span.aval.size * span.aval.dtype.itemsize for span in spans)
    return 0


def _type(statement: Statement) -> str:
    """Return the defined name, or the location that is written."""
    if isinstance(statement, Load):
        return f"{statement.out.dtype} of {statement.pointer.name}"
    if isinstance(statement, Store):
        return f"{statement.value.dtype} in {statement.pointer.name}"
    if isinstance(statement, Assign):
        return statement.variable.name
    if isinstance(statement, Allocate):
        return statement.out.name
    return ""


def _type_of(content: Content) -> str:
    return content.dtype.name if isinstance(content, Value) else content.name
