"""The writer of a procedure's functions: operands, memory and blocks, and the plan for the whole procedure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gradtape.ir.graph import Value, extract, number_of
from gradtape.kinds.routines.callback import PythonCall
from gradtape.loops.ir import Dtype
from gradtape.lower.llvm.function import KernelModule
from gradtape.lower.llvm.instructions import memory_type
from gradtape.lower.llvm.writer import ITSELF, LIKELY, UNLIKELY, own_function
from gradtape.lower.procedures.allocation import IN_FRAME, Allocations, plan_allocations
from gradtape.lower.procedures.comparisons import rounded_alike, sums_of_any_order
from gradtape.lower.procedures.expressions import ScalarEmitter
from gradtape.lower.resident.memory import ARENA
from gradtape.passes.procedures.accesses import backward_loops, independent_loops
from gradtape.procedures.dataflow import exact_integers
from gradtape.procedures.ir import (
    Apply,
    Check,
    For,
    Load,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Statement,
    Store,
    Variable,
)
from gradtape.procedures.poll import plan_polls
from gradtape.procedures.tape import foreseen_records, match_tape, record_layout, streamed_loops
from gradtape.records import record
from gradtape.statements import walk

NO_MEMORY: Final = "no_memory"
LEAVE: Final = "leave"

StatementEmitters: TypeAlias = "Mapping[type, Callable[[ProcedureEmitter, Any], None]]"
"""The functions that append a statement to a function, by the statement's class."""


@record
class EmissionPlan:
    """The plan for a procedure, made before its functions are written.

    Attributes
    ----------
    procedure : Procedure
        The procedure.
    exact : set of Value
        Integers that do not overflow.
    rounded_alike : set of Value
        Numbers that are compared with the same computation at another place.
    sums : dict of Value to Value
        Sums whose order is free, with what each adds.
    allocations : Allocations
        Where arrays are.
    streamed : dict of For to Push or Pop
        The loops whose records lie in arrays.
    foreseen : dict of For to Value
        The loops before which the tape is extended, and by how many bytes.
    independent : dict of For to int
        The loops whose iterations are independent, and the numbers of their access groups.
    backward : set of For
        The loops that are run in the other order.
    bodies : dict of Apply to (str, int)
        The symbols of array computations, and the bytes of workspace that they need.
    calls_python : bool
        Whether Python computes numbers, which may fail.
    aliases : dict of Memory to str
        The attachments of loads and stores.
    """

    procedure: Procedure
    exact: set[Value]
    rounded_alike: set[Value]
    sums: dict[Value, Value]
    allocations: Allocations
    streamed: dict[For, Push | Pop]
    foreseen: dict[For, Value]
    independent: dict[For, int]
    backward: set[For]
    bodies: dict[Apply, tuple[str, int]]
    calls_python: bool
    aliases: dict[Memory | None, str]


def plan_emission(module: KernelModule, procedure: Procedure) -> EmissionPlan:
    """Return the plan for a procedure; metadata and array computations enter the module."""
    body = procedure.body
    streamed = streamed_loops(body, match_tape(body))
    alike = rounded_alike(procedure)
    sums = sums_of_any_order(procedure, alike)
    return EmissionPlan(
        procedure,
        exact_integers(body),
        alike,
        sums,
        plan_allocations(procedure),
        streamed,
        foreseen_records(body, lambda entries: record_layout(entries)[1]),
        {loop: module.add_metadata("distinct !{}") for loop in independent_loops(procedure, streamed)},
        backward_loops(procedure, streamed, sums),
        {s: module.body(s.graph) for s in walk(body) if isinstance(s, Apply)},
        calls_python(procedure),
        alias_metadata(module, procedure),
    )


def calls_python(procedure: Procedure) -> bool:
    """Return whether Python computes numbers of a procedure."""
    used = [x for s in walk(procedure.body) for x in s.uses()]
    nodes, _ = extract([x for x in (*used, *procedure.results) if isinstance(x, Value)])
    return any(isinstance(node.op, PythonCall) for node in nodes)


def is_task(statement: Statement) -> bool:
    """Return whether a statement is a loop over blocks, which have a function of their own."""
    return isinstance(statement, For) and statement.parallel


def own_statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """Yield statements and those inside them, without those of blocks that have a function of their own."""
    for statement in body:
        yield statement
        if not is_task(statement):
            for block in statement.blocks():
                yield from own_statements(block)


class ProcedureEmitter(ScalarEmitter):
    """Writes the function of a procedure, or of the blocks of a parallel loop.

    Parameters
    ----------
    module : KernelModule
    plan : EmissionPlan
        Of the procedure.
    emitters : mapping of type to callable
        The functions that append a statement, by its class.
    body : sequence of statements
        What the function does.
    stop : str
        For a block: the address of the status of all blocks; where that is not zero, the function need not go on.
    """

    def __init__(
        self,
        module: KernelModule,
        plan: EmissionPlan,
        emitters: StatementEmitters,
        body: Sequence[Statement],
        stop: str = "",
    ) -> None:
        super().__init__(module)
        self.plan = plan
        self.exact, self.rounded_alike, self.sums = plan.exact, plan.rounded_alike, plan.sums
        self.emitters = emitters
        self.body = body
        self.group = ""
        self.streams: dict[Push | Pop, tuple[str, str, Value]] = {}
        self.variables: dict[Variable, str] = {}
        self.stop = stop
        self.polls = plan_polls(body, bool(stop))
        inside = list(own_statements(body))
        self.uses_tape = any(isinstance(s, Push | Pop) for s in inside)
        self.uses_arena = self.uses_tape or any(
            s in plan.allocations.in_arena or (isinstance(s, Apply) and plan.bodies[s][1] > IN_FRAME)
            for s in inside
        )
        uses_scratch = any(s in plan.allocations.in_scratch for s in inside)
        self.arenas = [
            name for name, is_used in (("arena", self.uses_arena), ("scratch", uses_scratch)) if is_used
        ]
        self.may_leave = (
            self.uses_arena
            or bool(self.polls)
            or plan.calls_python
            or any(isinstance(s, Apply) or is_task(s) for s in inside)
        )
        self.checks = plan.calls_python or any(isinstance(s, Check) for s in inside)

    def whole(self, symbol: str, procedure: Procedure) -> str:
        """Return the text of the function of a procedure."""
        parameters = self._parameters(procedure)
        self.begin()
        self.statements_of(self.body)
        for number, result in enumerate(procedure.results):
            if isinstance(result, Value):
                self.store_element(result.dtype, self.operand(result), f"%r{number}")
        self.end()
        return self.text(f"define internal i32 @{symbol}({', '.join(parameters)}) {own_function()}")

    def _parameters(self, procedure: Procedure) -> list[str]:
        """Return the parameters of the function, and append loads of the scalars."""
        parameters = []
        for number, (leaf, type_) in enumerate(zip(procedure.parameters, procedure.types, strict=True)):
            dtype = type_.dtype
            size = f" dereferenceable({type_.size * dtype.itemsize})" if type_.size else ""
            parameters.append(f"ptr noalias nocapture readonly align {dtype.itemsize}{size} %a{number}")
            if isinstance(leaf, Pointer):
                self.set_operand(leaf, f"%a{number}")
            else:
                self.set_operand(leaf, self.load_element(leaf.dtype, f"%a{number}"))
        for number, type_ in enumerate(procedure.result_types):
            dtype = type_.dtype
            size = f" dereferenceable({type_.size * dtype.itemsize})" if type_.size else ""
            parameters.append(f"ptr noalias align {dtype.itemsize}{size} %r{number}")
        return parameters

    def begin(self) -> None:
        """Append the prologue before the first statement."""
        if self.checks:
            self.slot_named("%bad.slot", "i1", "false")
        if self.may_leave:
            self.slot_named("%status.slot", "i32", "0")
        for number, arena in enumerate(self.arenas):
            self.emit(f"%{arena} = {self.arena_call('ptr', 'take')}")
            absent = self.let(f"icmp eq ptr %{arena}, null")
            self.branch(absent, f"no_{arena}", f"with_{arena}", UNLIKELY)
            self.start_block(f"no_{arena}")
            self.give_back(self.arenas[:number])
            self.emit("ret i32 -1")
            self.start_block(f"with_{arena}")
        if self.uses_tape:
            self.slot_named("%tape.top", "ptr")
            self.slot_named("%tape.end", "ptr")
            self.store("ptr", self.load("ptr", "%arena"), "%tape.top")
            self.store("ptr", self.load("ptr", "%arena", 8), "%tape.end")

    def end(self) -> None:
        """Append the end of the function."""
        status = "0"
        if self.checks:
            status = self.let(f"select i1 {self.load('i1', '%bad.slot')}, i32 -1, i32 0")
        if not self.may_leave:
            self.emit(f"ret i32 {status}")
            return
        self.store("i32", status, "%status.slot")
        self.jump(LEAVE)
        if self.uses_arena:
            self.start_block(NO_MEMORY)
            self.store("i32", "-1", "%status.slot")
            self.jump(LEAVE)
        self.start_block(LEAVE)
        self.give_back(self.arenas)
        self.emit(f"ret i32 {self.load('i32', '%status.slot')}")

    # Memory

    def slot_named(self, name: str, type_: str, initial: str = "") -> None:
        """Reserve memory on the stack for the length of the call, with an initial value."""
        self.entry.append(f"  {name} = alloca {type_}")
        if initial:
            self.entry.append(f"  store {type_} {initial}, ptr {name}")

    def load_element(self, dtype: Dtype, address: str, facts: str = "") -> str:
        """Append a load of an element, and return its operand."""
        return self.let(self.loaded(dtype, address, f", align {dtype.itemsize}{facts}{self.group}"))

    def store_element(self, dtype: Dtype, value: str, address: str, facts: str = "") -> None:
        """Append a store of an element."""
        super().store_element(dtype, value, address, f", align {dtype.itemsize}{facts}{self.group}")

    def address(self, pointer: Pointer, index: Value) -> str:
        """Return the address of an element."""
        base = self.operand(pointer)
        if number_of(index) == 0:
            return base
        return self.let(
            f"getelementptr inbounds {memory_type(pointer.dtype)}, ptr {base}, i64 {self.operand(index)}"
        )

    def arena_call(self, result: str, routine: str, *operands: str, facts: str = "") -> str:
        """Return the call of a routine of the arena, and declare it."""
        symbol = f"{ARENA}{routine}"
        self.module.bind(symbol)
        types = ", ".join([operand.split()[0] for operand in operands])
        self.module.declare(f'declare {result} @"{symbol}"({types}) nounwind')
        return f'call {result} @"{symbol}"({", ".join(operands)}){facts}'

    def give_back(self, arenas: Sequence[str]) -> None:
        """Append what gives arenas back at the end of the call."""
        for arena in arenas:
            self.emit(self.arena_call("void", "give", f"ptr %{arena}"))

    def unless_null(self, pointer: str) -> str:
        """Append a branch to where the call fails, for a null pointer."""
        label = self.new_label()
        self.branch(self.let(f"icmp eq ptr {pointer}, null"), NO_MEMORY, label, UNLIKELY)
        self.start_block(label)
        return pointer

    def allocate(self, bytes_: str, arena: str = "%arena") -> str:
        """Append an allocation in an arena, and return its address."""
        return self.unless_null(self.let(self.arena_call("ptr", "allocate", f"ptr {arena}", f"i64 {bytes_}")))

    def leave_unless_zero(self, status: str) -> None:
        """Append a branch to the end of the call, for a status that is not zero."""
        stopped, goes_on = self.new_label(), self.new_label()
        self.branch(self.let(f"icmp eq i32 {status}, 0"), goes_on, stopped, LIKELY)
        self.start_block(stopped)
        self.leave(status)
        self.start_block(goes_on)

    def leave(self, status: str) -> None:
        self.store("i32", status, "%status.slot")
        self.jump(LEAVE)

    # Blocks

    def statements_of(self, statements: Sequence[Statement]) -> None:
        """Append statements."""
        for statement in statements:
            self.emitters[type(statement)](self, statement)

    def inner_block(self, statements: Sequence[Statement]) -> None:
        """Append the statements of a block, whose values are not known after it."""
        self.known.append({})
        self.statements_of(statements)
        self.known.pop()


def alias_metadata(module: KernelModule, procedure: Procedure) -> dict[Memory | None, str]:
    """Return the attachments of loads and stores of each memory, and of the tape (None): they never reach each other's elements."""
    found: dict[Memory | None, None] = {}
    for statement in walk(procedure.body):
        if isinstance(statement, Load | Store):
            found[statement.pointer.memory] = None
        elif isinstance(statement, Push | Pop):
            found[None] = None
    if len(found) < 2:
        return dict.fromkeys(found, "")
    domain = module.add_metadata(f"distinct !{{{ITSELF}}}")
    scopes = {memory: module.add_metadata(f"distinct !{{{ITSELF}, !{domain}}}") for memory in found}
    attachments: dict[Memory | None, str] = {}
    for memory, scope in scopes.items():
        own = module.add_metadata(f"!{{!{scope}}}")
        others = ", ".join([f"!{other}" for other in scopes.values() if other != scope])
        attachments[memory] = f", !alias.scope !{own}, !noalias !{module.add_metadata(f'!{{{others}}}')}"
    return attachments
