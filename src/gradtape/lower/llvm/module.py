"""From loops to the text of an LLVM module: one function per nest, and the kernel that calls them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TypeAlias

from gradtape.loops.affine import Position, affine, interval
from gradtape.loops.ir import (
    Buffer,
    ControlFlow,
    For,
    IndexSwitch,
    Load,
    LoopProgram,
    RoutineCall,
    SequentialFor,
    Statement,
    Store,
    WhileLoop,
)
from gradtape.loops.live_ins import LiveIns, live_ins
from gradtape.loops.passes.parallelise import work
from gradtape.loops.traversal import walk
from gradtape.lower.llvm.blocks import emit_blocks
from gradtape.lower.llvm.instructions import memory_type, register_type
from gradtape.lower.llvm.statements import FunctionEmitter, Module
from gradtape.lower.llvm.vector_plans import are_vectors, find_slots
from gradtape.lower.llvm.vectors import VectorWriter
from gradtape.lower.resident.blas_threads import one_thread_each, with_threads
from gradtape.lower.resident.stacks import with_stacks

NEST: Final = For | SequentialFor | WhileLoop | IndexSwitch
"""What is a function of its own."""

LARGE: Final = 4000.0
"""Additions in a nest inside of a loop over time from which it is a function of its own, whose pointers do not overlap: the
vectoriser need not ask. A call costs 5 nanoseconds."""

KERNEL: Final = "kernel"
PROGRAM: Final = "program"
"""The function that a kernel with stacks calls."""

MULTIPLIES: Final = "multiplies"
"""The function that a kernel with products calls."""

Accompaniment: TypeAlias = Callable[[FunctionEmitter, Statement], AbstractContextManager[None]]


def _nothing(kernel: FunctionEmitter, statement: Statement) -> AbstractContextManager[None]:
    return nullcontext()


def emit_module(
    program: LoopProgram, offsets: dict[Buffer, int], accompany: Accompaniment = _nothing
) -> Module:
    """Return the module whose function `kernel` runs the program.

    Parameters
    ----------
    program : LoopProgram
        The loops.
    offsets : dict of Buffer to int
        Where the scratch buffers stand in the workspace.
    accompany : callable, optional
        Appends to the kernel what comes before and after each statement of the program.
    """
    module = Module(_outlined)
    pointers = {buffer: f"%{buffer.name}" for buffer in (*program.inputs, *program.outputs, *program.scratch)}
    kernel = FunctionEmitter(module, pointers)
    nests = {statement: live_ins([statement]) for statement in program.body if isinstance(statement, NEST)}
    around = live_ins([statement for statement in program.body if not isinstance(statement, NEST)])
    free = [around, *nests.values()]
    wraps = any(names.may_fail for names in free)
    if wraps:
        kernel.entry.append("  %bad.slot = alloca i1")
        kernel.entry.append("  store i1 false, ptr %bad.slot")
    for statement in program.body:
        with accompany(kernel, statement):
            if isinstance(statement, NEST):
                _nest(kernel, statement, nests[statement])
            else:
                kernel.statement(statement)
    if wraps:
        bad = kernel.bind("load i1, ptr %bad.slot")
        kernel.line(f"ret i32 {kernel.bind(f'select i1 {bad}, i32 -1, i32 0')}")
    else:
        kernel.line("ret i32 0")
    used = {buffer for names in free for buffer in names.buffers}
    parameters = ["inputs", "outputs", "workspace", *["stacks"][: len(module.stacks)]]
    name, linkage = (PROGRAM, "internal ") if module.stacks else (KERNEL, "")
    head = f"define {linkage}i32 @({', '.join(f'ptr noalias %{parameter}' for parameter in parameters)})"
    if _multiplies(program.body):
        module.functions.append(with_threads(module, name, MULTIPLIES, head))
        name, head = MULTIPLIES, f"define internal {head.removeprefix(f'define {linkage}')}"
    lines = [f"{head.replace('@', f'@{name}')} nounwind {{", "entry:"]
    for table, buffers in (("inputs", program.inputs), ("outputs", program.outputs)):
        for position, buffer in enumerate(buffers):
            if buffer in used:
                lines.append(
                    f"  %{buffer.name}.at = getelementptr inbounds ptr, ptr %{table}, i64 {position}"
                )
                lines.append(f"  %{buffer.name} = load ptr, ptr %{buffer.name}.at")
    lines.extend(
        f"  %{buffer.name} = getelementptr inbounds i8, ptr %workspace, i64 {offsets[buffer]}"
        for buffer in program.scratch
        if buffer in used
    )
    module.functions.append("\n".join([*lines, *kernel.entry, *kernel.lines, "}"]))
    if module.stacks:
        module.functions.extend(with_stacks(module, KERNEL, PROGRAM))
    return module


def _multiplies(statements: Sequence[Statement]) -> bool:
    return any(isinstance(inner, RoutineCall) and inner.library != "gradtape" for inner in walk(statements))


def _outlined(kernel: FunctionEmitter, statement: For) -> bool:
    """Call a nest inside of a loop over time as a function of its own, if it is worth that."""
    if not _is_large(statement):
        return False
    _nest(kernel, statement, live_ins([statement]))
    return True


def _is_large(nest: For) -> bool:
    """Whether a nest inside of a loop over time takes long, and is not but vectors in straight lines."""
    if work([nest]) < LARGE:
        return False
    loops = [nest, *[statement for statement in walk(nest.body) if isinstance(statement, For)]]
    innermost = [loop for loop in loops if not any(isinstance(inner, For) for inner in loop.body)]
    return not all(are_vectors(loop) for loop in innermost)


def _nest(kernel: FunctionEmitter, statement: For | ControlFlow, names: LiveIns) -> None:
    """Call a nest as a function of its own: one that is there already where only names and places differ."""
    module = kernel.module
    module.count += 1
    name = f"nest{module.count}"
    buffers = list(names.buffers)
    spans = _spans(statement)
    shared_out = isinstance(statement, For) and statement.private is not None
    function = FunctionEmitter(module, {buffer: f"%{buffer.name}" for buffer in buffers})
    parameters, arguments = [], []
    for buffer in buffers:
        first, last = spans.get(buffer, (0, buffer.size - 1))
        function.origins[buffer] = first
        read_only = " readonly" if buffer not in names.written else ""
        align = 64 if buffer.role == "scratch" and not first else buffer.dtype.itemsize
        size = max((last - first + 1) * buffer.dtype.itemsize, 1)
        facts = f"noalias nocapture{read_only} align {align} dereferenceable({size})"
        parameters.append(f"ptr {facts} %{buffer.name}")
        arguments.append(f"ptr {kernel.pointer(buffer, first)}")
    for register in names.registers:
        if register.name in kernel.mutable and register in names.assigned:
            continue
        type_ = register_type(register.dtype)
        parameters.append(f"{type_} %{register.name}")
        arguments.append(f"{type_} {kernel.number(register)}")
    read = {register.name for register in names.registers}
    for position_name in [name for name in names.variables if name not in read]:
        parameters.append(f"i64 %{position_name}")
        arguments.append(f"i64 {kernel.names.get(position_name, f'%{position_name}')}")
    restore = _carry(function, kernel, names, parameters, arguments)
    if names.uses_stacks:
        parameters.append("ptr noalias nocapture %stacks")
        arguments.append("ptr %stacks")
    if isinstance(statement, For) and shared_out:
        parameters.append(f"i64 %{statement.var.name}")
        _move_to_block(function, statement)
        for inner in statement.body:
            function.statement(inner)
    else:
        if isinstance(statement, ControlFlow):
            function.wide = True
            restore = [*_keep_in_registers(function, statement, names), *restore]
        function.statement(statement)
    speed = " optsize" if isinstance(statement, For) and statement.minor else ""
    body = "\n".join(
        [
            f"({', '.join(parameters)}) noinline nounwind{speed} {{",
            "entry:",
            *function.entry,
            *function.lines,
            *restore,
            "  ret i32 0" if names.may_stop else "  ret void",
            "}",
        ]
    )
    known = module.nests.setdefault(_without_names(body, module), name)
    if known == name:
        result = "i32" if names.may_stop else "void"
        module.functions.append(f"define internal {result} @{name}{body}")
    if isinstance(statement, For) and shared_out:
        firsts = {buffer: spans.get(buffer, (0, 0))[0] for buffer in buffers}
        with one_thread_each(kernel) if _multiplies([statement]) else nullcontext():
            emit_blocks(kernel, statement, known, parameters, arguments, firsts)
    elif names.may_stop:
        status = kernel.bind(f"call i32 @{known}({', '.join(arguments)})")
        fine = kernel.bind(f"icmp eq i32 {status}, 0")
        kernel.line(f"br i1 {fine}, label %{name}.over, label %{name}.stopped")
        kernel.start_block(f"{name}.stopped")
        kernel.line(f"ret i32 {status}")
        kernel.start_block(f"{name}.over")
    else:
        kernel.line(f"call void @{known}({', '.join(arguments)})")


def _keep_in_registers(function: FunctionEmitter, statement: ControlFlow, names: LiveIns) -> list[str]:
    """Let small arrays be in registers while a loop over time turns; return what puts them back at its end."""
    function.slots = find_slots([statement], _is_large)
    ahead = len(function.lines)
    after: list[str] = []
    for slot in function.slots.values():
        writer = VectorWriter(function, slot.turns)
        type_ = writer.type(memory_type(slot.buffer.dtype))
        function.entry.extend(f"  {name} = alloca {type_}" for name in slot.pieces())
        for name, piece in zip(slot.pieces(), writer.read(slot.buffer, slot.start), strict=True):
            function.line(f"store {type_} {piece}, ptr {name}")
    function.entry.extend(function.lines[ahead:])
    del function.lines[ahead:]
    for slot in function.slots.values():
        if slot.buffer in names.written:
            writer = VectorWriter(function, slot.turns)
            type_ = writer.type(memory_type(slot.buffer.dtype))
            pieces = [function.bind(f"load {type_}, ptr {name}") for name in slot.pieces()]
            writer.write(slot.buffer, slot.start, pieces)
    after.extend(function.lines[ahead:])
    del function.lines[ahead:]
    return after


def _move_to_block(function: FunctionEmitter, loop: For) -> None:
    """Let pointers begin at a block's own elements, so that the loops inside count from constants.

    LLVM finds that what one turn loads is what the next one needs only then: worth 40 per cent of Rosenbrock's
    function.
    """
    steps: dict[Buffer, set[int]] = {}
    for statement in walk(loop.body):
        touched: list[tuple[Buffer, Position]] = []
        if isinstance(statement, Load | Store):
            touched.append((statement.buffer, statement.index))
        elif isinstance(statement, RoutineCall):
            touched.extend(statement.operands)
        for buffer, position in touched:
            factor = 0 if isinstance(position, int) else position.terms.get(loop.var, 0)
            steps.setdefault(buffer, set()).add(factor)
    for buffer, factors in steps.items():
        (factor, *others) = factors
        if factor and not others:
            start = affine(loop.var) * factor
            place = function.position(start)
            type_ = memory_type(buffer.dtype)
            base = function.pointers[buffer]
            function.pointers[buffer] = function.bind(
                f"getelementptr inbounds {type_}, ptr {base}, i64 {place}"
            )
            function.origins[buffer] = function.origins[buffer] + start


def _carry(
    function: FunctionEmitter,
    kernel: FunctionEmitter,
    names: LiveIns,
    parameters: list[str],
    arguments: list[str],
) -> list[str]:
    """Hand accumulators that begin outside of a nest in and out; return what a function does at its end."""
    restore: list[str] = []
    carried = [
        (register.name, register_type(register.dtype))
        for register in names.assigned
        if register.name in kernel.mutable
    ]
    if names.may_fail:
        carried.append(("bad", "i1"))
    for name, type_ in carried:
        parameters.append(f"ptr noalias nocapture %{name}.outer")
        arguments.append(f"ptr %{name}.slot")
        function.entry.append(f"  %{name}.slot = alloca {type_}")
        function.line(f"%{name}.before = load {type_}, ptr %{name}.outer")
        function.line(f"store {type_} %{name}.before, ptr %{name}.slot")
        restore.append(f"  %{name}.final = load {type_}, ptr %{name}.slot")
        restore.append(f"  store {type_} %{name}.final, ptr %{name}.outer")
    for register in names.assigned:
        if register.name in kernel.mutable:
            function.mutable[register.name] = register.dtype
    return restore


def _spans(nest: For | ControlFlow) -> dict[Buffer, tuple[int, int]]:
    """Return the first and the last element of each buffer that a nest can touch; none where it calls
    routines."""
    spans: dict[Buffer, tuple[int, int]] = {}
    for statement in walk([nest]):
        if isinstance(statement, RoutineCall) or (isinstance(statement, ControlFlow) and statement.places()):
            return {}
        if isinstance(statement, Load | Store):
            low, high = interval(statement.index)
            first, last = spans.get(statement.buffer, (low, high))
            spans[statement.buffer] = (min(first, low), max(last, high))
    return {buffer: (max(first, 0), min(last, buffer.size - 1)) for buffer, (first, last) in spans.items()}


def _without_names(body: str, module: Module) -> str:
    """Return the text of a function with its names and loops numbered in order of appearance."""
    numbers: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0].lstrip("%"), f"%{len(numbers)}")

    def facts(match: re.Match[str]) -> str:
        return module.loops[int(match[1]) - 1]

    return _NAME.sub(rename, _LOOP.sub(facts, body))


_NAME: Final = re.compile(r"%[\w.]+|^[\w.]+(?=:)", re.MULTILINE)
_LOOP: Final = re.compile(r"!llvm\.loop !(\d+)")
