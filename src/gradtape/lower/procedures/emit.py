"""Procedures as LLVM functions: a statement after the other, variables in slots that LLVM turns into registers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, log
from typing import Final, TypeAlias

import numpy as np

from gradtape.config import config
from gradtape.ir.graph import Value, number_of
from gradtape.ir.varying import code_is_shared
from gradtape.lower.llvm.function import KernelModule
from gradtape.lower.llvm.instructions import memory_type, register_type
from gradtape.lower.llvm.writer import ITSELF, UNLIKELY
from gradtape.lower.procedures.allocation import IN_FRAME
from gradtape.lower.procedures.emitter import (
    ProcedureEmitter,
    StatementEmitters,
    is_task,
    plan_emission,
)
from gradtape.lower.procedures.tasks import emit_tasks
from gradtape.lower.resident.interrupts import INSIDE, UNKNOWN_TOTAL
from gradtape.lower.target.host import vector_bytes
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.dataflow import depend_on, exposed_variables, unsummed
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    For,
    If,
    Load,
    Memory,
    Pop,
    Procedure,
    Push,
    Read,
    Span,
    Store,
    Variable,
    While,
)
from gradtape.procedures.poll import Poll, has_loops
from gradtape.procedures.tape import item_size, record_layout
from gradtape.statements import walk

MOST_VECTORS: Final = 4
"""Vectors of float64 of a loop that is unrolled.

Measured on a hidden Markov model of 16 states, whose inner loops are two vectors: value and gradient 346 microseconds, unrolled 284.
"""

Mark: TypeAlias = tuple[str, str, str]
"""An arena, its present chunk, and the next free byte of this."""


def emit_procedure(module: KernelModule, procedure: Procedure) -> str:
    """Add the function of a procedure to a module, and return its symbol.

    The function is ``i32 (ptr of each parameter, ptr of each result)``, for scalars as well. It returns 0; -1 where a `Check` failed or
    there is no memory; or the status of an interruption.
    """
    source, procedure = procedure, optimise_procedure(procedure, check=config.verify)
    module.procedures.append((source, procedure))
    module.count += 1
    module.unrolls = False
    symbol = f"procedure{module.count}"
    function = ProcedureEmitter(module, plan_emission(module, procedure), PROCEDURE_EMITTERS, procedure.body)
    module.functions.append(function.whole(symbol, procedure))
    module.scalar_makers[symbol] = procedure, function.makers
    return symbol


def _load(function: ProcedureEmitter, statement: Load) -> None:
    pointer = statement.pointer
    address = function.address(pointer, statement.index)
    facts = function.plan.aliases[pointer.memory]
    name = function.load_element(pointer.dtype, address, facts)
    function.set_operand(statement.out, name)
    function.makers[name[1:]] = statement


def _store(function: ProcedureEmitter, statement: Store) -> None:
    pointer = statement.pointer
    value = function.operand(statement.value)
    address = function.address(pointer, statement.index)
    function.store_element(pointer.dtype, value, address, function.plan.aliases[pointer.memory])


def _variable(function: ProcedureEmitter, variable: Variable) -> tuple[str, str]:
    """Return the type of a variable and its slot."""
    type_ = "ptr" if isinstance(variable.type, Memory) else register_type(variable.type.dtype)
    if variable not in function.variables:
        name = function.variables[variable] = f"%variable{len(function.variables)}"
        function.slot_named(name, type_)
    return type_, function.variables[variable]


def _read(function: ProcedureEmitter, statement: Read) -> None:
    type_, slot = _variable(function, statement.variable)
    function.set_operand(statement.out, function.load(type_, slot))


def _assign(function: ProcedureEmitter, statement: Assign) -> None:
    type_, slot = _variable(function, statement.variable)
    function.store(type_, function.operand(statement.value), slot)


def _allocate(function: ProcedureEmitter, statement: Allocate) -> None:
    dtype, plan = statement.out.dtype, function.plan.allocations
    if statement in plan.results:
        pointer = f"%r{plan.results[statement]}"
    elif statement in plan.in_frame:
        pointer = function.slot(f"[{_room(plan.in_frame[statement])} x i8]", 64)
    size = function.operand(statement.size)
    bytes_ = function.let(f"mul nsw i64 {size}, {dtype.itemsize}")
    if statement not in plan.results and statement not in plan.in_frame:
        pointer = function.allocate(bytes_, "%scratch" if statement in plan.in_scratch else "%arena")
    if statement.zero:
        nonnegative = function.call("i64", "llvm.smax.i64", f"i64 {bytes_}", "i64 0")
        function.call(
            "void", "llvm.memset.p0.i64", f"ptr {pointer}", "i8 0", f"i64 {nonnegative}", "i1 false"
        )
    function.set_operand(statement.out, pointer)


def _room(size: int) -> int:
    """Return the bytes of memory in the frame for so many: other lengths take as many, where they share the code."""
    return 4 ** ceil(log(max(size, 64), 4)) if code_is_shared() else size


def _check(function: ProcedureEmitter, statement: Check) -> None:
    function.note_failure(function.let(f"xor i1 {function.operand(statement.condition)}, true"))


def _apply(function: ProcedureEmitter, statement: Apply) -> None:
    """Append the call of an array computation's kernel; the procedure ends where it fails."""
    symbol, workspace = function.plan.bodies[statement]
    pointers = []
    for operand in statement.inputs:
        if isinstance(operand, Span):
            pointers.append(function.address(operand.pointer, operand.offset))
        else:
            pointers.append(function.slot(memory_type(operand.dtype)))
            function.store_element(operand.dtype, function.operand(operand), pointers[-1])
    pointers += [_constant(function, value) for value in statement.graph.constants()]
    results = [function.address(span.pointer, span.offset) for span in statement.outputs]
    tables = []
    for addresses in (pointers, results):
        tables.append(function.slot(f"[{max(len(addresses), 1)} x ptr]"))
        for position, pointer in enumerate(addresses):
            function.store("ptr", pointer, function.offset(tables[-1], 8 * position))
    mark = None
    if workspace > IN_FRAME:
        mark = _place_in_arena(function)
        tables.append(function.allocate(str(workspace)))
    else:
        tables.append(function.slot(f"[{_room(max(workspace, 8))} x i8]", 64))
    status = function.let(f"call i32 @{symbol}({', '.join([f'ptr {table}' for table in tables])})")
    function.leave_unless_zero(status)
    _rewind(function, mark)


def _constant(function: ProcedureEmitter, value: Value) -> str:
    """Return the address of an array that is part of the program."""
    assert value.data is not None
    data = np.ascontiguousarray(value.data).tobytes()
    name = f"constant.{hashlib.blake2b(data, digest_size=12).hexdigest()}"
    text = f'c"\\{data.hex(chr(92))}", align 64' if data else "zeroinitializer"
    return function.module.constant(name, f"[{len(data)} x i8]", text)


def _for(function: ProcedureEmitter, loop: For) -> None:
    """Append a counted loop, whose test is at its end; or a call that runs blocks by threads."""
    if is_task(loop):
        emit_tasks(function, loop)
        return
    constant_count = number_of(loop.count)
    if constant_count is not None and constant_count <= 0:
        return
    count = function.operand(loop.count)
    if loop in function.plan.streamed:
        _open_stream(function, loop, count)
    elif loop in function.plan.foreseen:
        _make_room(function, function.operand(function.plan.foreseen[loop]))
    poll = function.polls.get(loop)
    if poll is None or has_loops(loop):
        group, unrolls = function.plan.independent.get(loop), _is_a_few_vectors(loop)
        with _iterations(function, count, group, unrolls) as number:
            _iteration(function, loop, number, count)
            _poll_sometimes(function, number, poll, count)
        _end_progress(function, poll)
        return
    # A strip of iterations after the other, so that the loop itself stays free of polls.
    period = poll.period
    strips = function.let(f"add nsw i64 {count}, {period - 1}")
    strips = function.let(f"ashr i64 {strips}, {period.bit_length() - 1}")
    with _iterations(function, strips) as strip:
        first = function.let(f"mul nuw nsw i64 {strip}, {period}")
        left = function.let(f"sub nuw nsw i64 {count}, {first}")
        length = function.call("i64", "llvm.smin.i64", f"i64 {left}", f"i64 {period}")
        with _iterations(function, length, function.plan.independent.get(loop)) as iteration:
            _iteration(function, loop, function.let(f"add nuw nsw i64 {first}, {iteration}"), count)
        _poll(
            function, function.let(f"add nsw i64 {first}, {length}"), count if poll.shows_progress else INSIDE
        )
    _end_progress(function, poll)


@contextmanager
def _iterations(
    function: ProcedureEmitter, count: str, group: int | None = None, unrolls: bool = False
) -> Iterator[str]:
    """Append a loop around what is appended meanwhile, and yield the number of the iteration.

    The test is at the end of an iteration. With a group, the loads and stores of different iterations are independent. Where the loop is
    to be unrolled, that is done once it consists of vectors.
    """
    hints = []
    if group is not None:
        function.group = f", !llvm.access.group !{group}"
        hints.append(f'!{{!"llvm.loop.parallel_accesses", !{group}}}')
    if unrolls:
        after = ['!{!"llvm.loop.isvectorized", i32 1}', '!{!"llvm.loop.unroll.full"}']
        numbers = ", ".join([f"!{function.module.add_metadata(fact)}" for fact in after])
        hints.append(f'!{{!"llvm.loop.vectorize.followup_vectorized", {numbers}}}')
    facts = ""
    if hints:
        attached = ", ".join([ITSELF, *hints])
        facts = f"!llvm.loop !{function.module.add_metadata(f'distinct !{{{attached}}}')}"
    name = function.new_label()
    head, end, index = f"{name}.head", f"{name}.end", f"%{name}.index"
    begin = function.label
    function.branch(function.let(f"icmp sgt i64 {count}, 0"), head, end)
    function.start_block(head)
    at = len(function.lines)
    function.known.append({})
    yield index
    function.known.pop()
    following = function.let(f"add nuw nsw i64 {index}, 1")
    function.lines.insert(at, f"  {index} = phi i64 [ 0, %{begin} ], [ {following}, %{function.label} ]")
    function.group = ""
    function.branch(function.let(f"icmp eq i64 {following}, {count}"), end, head, facts)
    function.start_block(end)


def _is_a_few_vectors(loop: For) -> bool:
    """Return whether a loop, once it consists of vectors, has so few iterations that the loop around it may keep them in registers."""
    count = number_of(loop.count)
    if count is None or has_loops(loop) or code_is_shared():
        return False
    return 1 <= int(count) * 8 // vector_bytes() <= MOST_VECTORS


def _iteration(function: ProcedureEmitter, loop: For, number: str, count: str) -> None:
    """Append the body of a counted loop, for the iteration of a number."""
    if loop in function.plan.backward:
        number = function.let(f"sub nuw nsw i64 {count}, {number}")
        number = function.let(f"sub nuw nsw i64 {number}, 1")
    function.set_operand(loop.index, number)
    mark = _mark(function, loop)
    outside = function.inlines, function.in_loop
    function.inlines, function.in_loop = not _may_be_vectorised(function, loop), True
    function.statements_of(loop.body)
    function.inlines, function.in_loop = outside
    _rewind(function, mark)


def _poll(function: ProcedureEmitter, done: str, total: str | int) -> None:
    """Append a poll for signals; the procedure ends if a handler has raised an exception."""
    function.leave_unless_zero(function.poll(done, total))
    if function.stop:
        function.leave_unless_zero(function.let(f"load atomic i32, ptr {function.stop} monotonic, align 4"))


def _poll_sometimes(function: ProcedureEmitter, number: str, poll: Poll | None, total: str | int) -> None:
    """Append a poll that is made after some iterations."""
    if poll is None:
        return
    name = function.new_label()
    due = function.is_poll_due(number, poll.period)
    function.branch(due, f"{name}.poll", f"{name}.over", UNLIKELY)
    function.start_block(f"{name}.poll")
    done = function.let(f"add nuw nsw i64 {number}, 1")
    _poll(function, done, total if poll.shows_progress else INSIDE)
    function.jump(f"{name}.over")
    function.start_block(f"{name}.over")


def _end_progress(function: ProcedureEmitter, poll: Poll | None) -> None:
    """Append the end of a loop that shows its progress."""
    if poll is not None and poll.shows_progress:
        function.leave_unless_zero(function.end_progress())


def _may_be_vectorised(function: ProcedureEmitter, loop: For) -> bool:
    """Return whether a loop is an innermost one whose iterations hand on nothing but sums that they do not use."""
    inside = list(walk(loop.body))
    if any(isinstance(s, For | While | Apply | Allocate) for s in inside):
        return False
    handed_on = exposed_variables(loop)
    used: list[Value] = []
    for s in inside:
        values = [x for x in s.uses() if isinstance(x, Value)]
        if isinstance(s, Assign):
            values = [
                x for value in values if value.is_made for x in unsummed(value, function.sums)[1] or [value]
            ]
        used += values
    reads = {s.out for s in inside if isinstance(s, Read) and s.variable in handed_on}
    return not depend_on(used, reads)


def _while(function: ProcedureEmitter, loop: While) -> None:
    name = function.new_label()
    head, body, end = f"{name}.head", f"{name}.body", f"{name}.end"
    trips = function.slot("i64", 8)
    function.store("i64", "0", trips)
    function.jump(head)
    function.start_block(head)
    function.known.append({})
    mark = _mark(function, loop)
    outside, function.in_loop = function.in_loop, True
    function.statements_of(loop.test)
    goes_on = function.operand(loop.condition)
    if function.checks:
        goes_on = function.unless_failed(goes_on)
    function.branch(goes_on, body, end)
    function.start_block(body)
    function.statements_of(loop.body)
    function.in_loop = outside
    _rewind(function, mark)
    function.known.pop()
    number = function.load("i64", trips)
    function.store("i64", function.let(f"add nuw nsw i64 {number}, 1"), trips)
    poll = function.polls.get(loop)
    _poll_sometimes(function, number, poll, UNKNOWN_TOTAL)
    function.jump(head)
    function.start_block(end)
    _end_progress(function, poll)


def _mark(function: ProcedureEmitter, loop: For | While) -> Mark | None:
    """Append loads of the place in an arena to which a loop rewinds after each iteration."""
    plan = function.plan.allocations
    if loop in plan.rewound:
        return _place_in_arena(function)
    return _place_in_arena(function, "%scratch") if loop in plan.scratches else None


def _place_in_arena(function: ProcedureEmitter, arena: str = "%arena") -> Mark:
    """Append loads of an arena's present chunk and of its next free byte."""
    return arena, function.load("ptr", arena, 16), function.load("ptr", arena, 24)


def _rewind(function: ProcedureEmitter, mark: Mark | None) -> None:
    if mark is not None:
        arena, chunk, free = mark
        function.emit(function.arena_call("void", "release", f"ptr {arena}", f"ptr {chunk}", f"ptr {free}"))


def _if(function: ProcedureEmitter, branch: If) -> None:
    condition = function.operand(branch.condition)
    name = function.new_label()
    then, otherwise, end = f"{name}.then", f"{name}.else", f"{name}.end"
    function.branch(condition, then, otherwise if branch.otherwise else end)
    function.start_block(then)
    function.inner_block(branch.then)
    function.jump(end)
    if branch.otherwise:
        function.start_block(otherwise)
        function.inner_block(branch.otherwise)
        function.jump(end)
    function.start_block(end)


# The tape


def _reserve(function: ProcedureEmitter, bytes_: str) -> str:
    """Append what makes room on the tape, and return the address of the first new byte; the top is moved behind the last."""
    name = function.new_label()
    top = function.load("ptr", "%tape.top")
    end = function.load("ptr", "%tape.end")
    used, capacity = (function.let(f"ptrtoint ptr {pointer} to i64") for pointer in (top, end))
    room = function.let(f"sub i64 {capacity}, {used}")
    full = function.let(f"icmp ugt i64 {bytes_}, {room}")
    before = function.label
    function.branch(full, f"{name}.full", f"{name}.room", UNLIKELY)
    function.start_block(f"{name}.full")
    call = function.arena_call(
        "ptr", "extend", "ptr %arena", f"ptr {top}", f"i64 {bytes_}", facts=function.plan.aliases[None]
    )
    moved = function.unless_null(function.let(call))
    function.store("ptr", function.load("ptr", "%arena", 8), "%tape.end")
    after = function.label
    function.jump(f"{name}.room")
    function.start_block(f"{name}.room")
    base = function.let(f"phi ptr [ {top}, %{before} ], [ {moved}, %{after} ]")
    function.store("ptr", function.let(f"getelementptr i8, ptr {base}, i64 {bytes_}"), "%tape.top")
    return base


def _make_room(function: ProcedureEmitter, bytes_: str) -> None:
    """Append what makes room on the tape for so many bytes, where there is so much memory: a tape that grows is copied, to fresh pages."""
    name = function.new_label()
    top, end = function.load("ptr", "%tape.top"), function.load("ptr", "%tape.end")
    used, capacity = (function.let(f"ptrtoint ptr {pointer} to i64") for pointer in (top, end))
    full = function.let(f"icmp ugt i64 {bytes_}, {function.let(f'sub i64 {capacity}, {used}')}")
    function.branch(full, f"{name}.full", f"{name}.room", UNLIKELY)
    function.start_block(f"{name}.full")
    moved = function.let(
        function.arena_call(
            "ptr", "extend", "ptr %arena", f"ptr {top}", f"i64 {bytes_}", facts=function.plan.aliases[None]
        )
    )
    function.branch(function.let(f"icmp eq ptr {moved}, null"), f"{name}.room", f"{name}.moved", UNLIKELY)
    function.start_block(f"{name}.moved")
    function.store("ptr", moved, "%tape.top")
    function.store("ptr", function.load("ptr", "%arena", 8), "%tape.end")
    function.jump(f"{name}.room")
    function.start_block(f"{name}.room")


def _open_stream(function: ProcedureEmitter, loop: For, count: str) -> None:
    """Append what reserves the records of all iterations of a loop, or takes them off the tape."""
    statement = function.plan.streamed[loop]
    _, size = record_layout(statement.entries)
    iterations = function.call("i64", "llvm.smax.i64", f"i64 {count}", "i64 0")
    bytes_ = function.let(f"mul nuw nsw i64 {iterations}, {size}")
    base = _reserve(function, bytes_) if isinstance(statement, Push) else _taken_off(function, bytes_)
    function.streams[statement] = (base, iterations, loop.index)


def _taken_off(function: ProcedureEmitter, bytes_: str) -> str:
    top = function.load("ptr", "%tape.top")
    negative = function.let(f"sub nsw i64 0, {bytes_}")
    base = function.let(f"getelementptr i8, ptr {top}, i64 {negative}")
    function.store("ptr", base, "%tape.top")
    return base


def _places(function: ProcedureEmitter, statement: Push | Pop) -> list[str]:
    """Return the addresses of the values of a record."""
    contents = statement.entries
    byte_offsets, size = record_layout(contents)
    if statement not in function.streams:
        base = (
            _reserve(function, str(size)) if isinstance(statement, Push) else _taken_off(function, str(size))
        )
        return [function.offset(base, byte_offset) for byte_offset in byte_offsets]
    base, count, index = function.streams[statement]
    number = function.operand(index)
    if isinstance(statement, Pop):
        left = function.let(f"sub nuw nsw i64 {count}, {number}")
        number = function.let(f"sub nuw nsw i64 {left}, 1")
    addresses = []
    for content, byte_offset in zip(contents, byte_offsets, strict=True):
        first = function.let(f"mul nuw nsw i64 {count}, {byte_offset}")
        array = function.let(f"getelementptr inbounds i8, ptr {base}, i64 {first}")
        type_ = f"[{item_size(content)} x i8]"
        addresses.append(function.let(f"getelementptr inbounds {type_}, ptr {array}, i64 {number}"))
    return addresses


def _push(function: ProcedureEmitter, statement: Push) -> None:
    operands = list(map(function.operand, statement.values))
    for content, operand, address in zip(
        statement.values, operands, _places(function, statement), strict=True
    ):
        facts = function.plan.aliases[None]
        if isinstance(content, Value):
            function.store_element(content.dtype, operand, address, facts)
        else:
            function.emit(f"store ptr {operand}, ptr {address}, align 8{facts}{function.group}")


def _pop(function: ProcedureEmitter, statement: Pop) -> None:
    for out, address in zip(statement.outs, _places(function, statement), strict=True):
        facts = function.plan.aliases[None]
        if isinstance(out, Value):
            operand = function.load_element(out.dtype, address, facts)
        else:
            operand = function.let(f"load ptr, ptr {address}, align 8{facts}{function.group}")
        function.set_operand(out, operand)


PROCEDURE_EMITTERS: Final[StatementEmitters] = {
    Load: _load,
    Store: _store,
    Read: _read,
    Assign: _assign,
    Allocate: _allocate,
    Check: _check,
    Apply: _apply,
    For: _for,
    While: _while,
    If: _if,
    Push: _push,
    Pop: _pop,
}
