"""From loops to the text of an LLVM module: one function per nest, and the kernel that calls them."""

from __future__ import annotations

import re
from typing import Final

from ..loops.affine import Position, affine, interval
from ..loops.batch import walk
from ..loops.ir import Buffer, Call, For, Load, Program, Statement, Store
from .blas_threads import with_threads
from .blocks import emit_blocks
from .emit import FunctionEmitter, Module
from .free import Free, free_names
from .instructions import memory_type, register_type

KERNEL: Final = "kernel"


def emit_module(program: Program, offsets: dict[Buffer, int]) -> Module:
    """Return the module whose function `kernel` runs the program.

    Parameters
    ----------
    program : Program
        The loops.
    offsets : dict of Buffer to int
        Where the scratch buffers stand in the workspace.
    """
    module = Module()
    pointers = {buffer: f"%{buffer.name}" for buffer in (*program.inputs, *program.outputs, *program.scratch)}
    kernel = FunctionEmitter(module, pointers)
    nests = {statement: free_names([statement]) for statement in program.body if isinstance(statement, For)}
    around = free_names([statement for statement in program.body if not isinstance(statement, For)])
    free = [around, *nests.values()]
    wraps = any(names.wraps for names in free)
    if wraps:
        kernel.entry.append("  %bad.slot = alloca i1")
        kernel.entry.append("  store i1 false, ptr %bad.slot")
    for number, statement in enumerate(program.body):

        def emit(number: int = number, statement: Statement = statement) -> None:
            if isinstance(statement, For):
                _nest(module, kernel, statement, nests[statement], f"nest{number}")
            else:
                kernel.statement(statement)

        if any(isinstance(inner, Call) and inner.function == "gemm" for inner in walk([statement])):
            alone = isinstance(statement, For) and statement.private is not None
            with_threads(kernel, number, alone, emit)
        else:
            emit()
    if wraps:
        bad = kernel.bind("load i1, ptr %bad.slot")
        kernel.line(f"ret i32 {kernel.bind(f'select i1 {bad}, i32 -1, i32 0')}")
    else:
        kernel.line("ret i32 0")
    used = {buffer for names in free for buffer in names.buffers}
    parameters = ", ".join(f"ptr noalias %{name}" for name in ("inputs", "outputs", "workspace"))
    lines = [
        f"define i32 @{KERNEL}({parameters}) nounwind {{",
        "entry:",
    ]
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
    return module


def _nest(module: Module, kernel: FunctionEmitter, statement: For, names: Free, name: str) -> None:
    """Call a nest as a function of its own: one that is there already where only names and places differ."""
    buffers = list(names.buffers)
    spans = _spans(statement)
    shared_out = statement.private is not None
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
    for register in names.read:
        if register.name in kernel.mutable and register in names.assigned:
            continue
        type_ = register_type(register.dtype)
        parameters.append(f"{type_} %{register.name}")
        arguments.append(f"{type_} {kernel.number(register)}")
    for position_name in names.positions:
        parameters.append(f"i64 %{position_name}")
        arguments.append(f"i64 %{position_name}")
    restore = _carry(function, kernel, names, parameters, arguments)
    if shared_out:
        parameters.append(f"i64 %{statement.var.name}")
        _move_to_block(function, statement)
        for inner in statement.body:
            function.statement(inner)
    else:
        function.loop(statement)
    body = "\n".join(
        [
            f"({', '.join(parameters)}) noinline nounwind {{",
            "entry:",
            *function.entry,
            *function.lines,
            *restore,
            "  ret void",
            "}",
        ]
    )
    known = module.nests.setdefault(_without_names(body, module), name)
    if known == name:
        module.functions.append(f"define internal void @{name}{body}")
    if shared_out:
        firsts = {buffer: spans.get(buffer, (0, 0))[0] for buffer in buffers}
        emit_blocks(kernel, statement, known, parameters, arguments, firsts)
    else:
        kernel.line(f"call void @{known}({', '.join(arguments)})")


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
        elif isinstance(statement, Call):
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
    names: Free,
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
    if names.wraps:
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


def _spans(nest: For) -> dict[Buffer, tuple[int, int]]:
    """Return the first and the last element of each buffer that a nest can touch; none where it calls
    routines."""
    spans: dict[Buffer, tuple[int, int]] = {}
    for statement in walk(nest.body):
        if isinstance(statement, Call):
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
