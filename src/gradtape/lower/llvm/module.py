"""Modules: one LLVM function for each loop nest, and the kernel that calls them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TypeAlias

from gradtape.errors import LoweringError
from gradtape.ir.body import Body
from gradtape.loops.affine import affine, interval
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
from gradtape.loops.workspace import ALIGNMENT
from gradtape.lower.llvm.calls import emit_routine
from gradtape.lower.llvm.control import CONTROL
from gradtape.lower.llvm.function import Emitters, FunctionEmitter, KernelModule
from gradtape.lower.llvm.instructions import memory_type, register_type
from gradtape.lower.llvm.parallel import add_wrapper, emit_blocks
from gradtape.lower.llvm.stacks import STACKS, add_stacks
from gradtape.lower.llvm.statements import STATEMENTS
from gradtape.lower.llvm.vector_plans import are_vectors, find_slots
from gradtape.lower.llvm.vectors import VectorWriter
from gradtape.lower.llvm.writer import KERNEL, own_function
from gradtape.lower.resident.errors import RAISED
from gradtape.statements import walk

EMITTERS: Final[Emitters] = {**STATEMENTS, **CONTROL, **STACKS, RoutineCall: emit_routine}
"""What appends a statement to a function, by the statement's class."""

NEST: Final = For | SequentialFor | WhileLoop | IndexSwitch
"""Statements that become functions."""

LARGE: Final = 4000.0
"""Additions in a nest inside a sequential loop from which the nest is outlined: the pointer parameters of a function are known not to
overlap, so that the vectoriser needs no run-time checks. A call costs 5 nanoseconds."""

NO_COPIES: Final = ' "no-builtin-memcpy"'
"""An attribute: LLVM makes no copy in memory of what one row of lanes hands on to another one. That would leave the registers, and be read
again at once."""

WITH_STACKS: Final = "with_stacks"
"""The function that a kernel with stacks calls."""

WITH_BLAS: Final = "with_blas"
"""The function that a kernel with products calls."""

WITH_ERRORS: Final = "with_errors"
"""The function that a kernel with functions of SciPy calls which may set an error."""

REGION: Final = 128
"""Statements of long straight-line code that LLVM's code generator schedules at a time.

It compares each load with each store before it, which takes time in the square of their number: 600 vectors of three elements in a list
took 1.8 s to compile, and 0.4 s in regions of 100 stores. The code is as long.
"""

BARRIER: Final = 'call void asm sideeffect "", ""() nounwind memory(inaccessiblemem: readwrite)'
"""No instruction; the code generator moves no memory access across it, while LLVM's optimisations look through it."""

Instrument: TypeAlias = Callable[[FunctionEmitter, Statement], AbstractContextManager[None]]


def _nothing(kernel: FunctionEmitter, statement: Statement) -> AbstractContextManager[None]:
    return nullcontext()


def emit_module(
    program: LoopProgram,
    offsets: dict[Buffer, int],
    lower_body: Callable[[KernelModule, Body], tuple[str, int]],
    instrument: Instrument = _nothing,
) -> KernelModule:
    """Return the LLVM module of a program, with its kernel.

    Parameters
    ----------
    program : LoopProgram
        The loops.
    offsets : dict of Buffer to int
        Positions of the scratch buffers in the workspace, in bytes.
    lower_body : callable
        Adds the kernel of an array computation in a procedure, see `KernelModule`.
    instrument : callable, optional
        A context manager around the emission of each statement of the program; a profiler reads the clock there.
    """
    module = KernelModule(EMITTERS, _outline, lower_body)
    kernel = _emitted(module, program, offsets, instrument)
    parameters = ["inputs", "outputs", "workspace", *["stacks"][: len(module.stacks)]]
    name, linkage = (WITH_STACKS, "internal ") if module.stacks else (KERNEL, "")
    for needed, routine, program_name in (
        (RAISED in module.symbols, "raised", WITH_ERRORS),
        (module.multiplies, "blas_limit", WITH_BLAS),
    ):
        if needed:
            add_wrapper(module, routine, name, program_name, linkage, parameters)
            name, linkage = program_name, "internal "
    typed = ", ".join(f"ptr noalias %{parameter}" for parameter in parameters)
    module.functions.append(kernel.text(f"define {linkage}i32 @{name}({typed}) nounwind"))
    if module.stacks:
        add_stacks(module, KERNEL, WITH_STACKS)
    return module


def add_kernel(module: KernelModule, program: LoopProgram, offsets: dict[Buffer, int]) -> str:
    """Add the kernel of another program to a module, and return its symbol."""
    stacks = len(module.stacks)
    kernel = _emitted(module, program, offsets, _nothing)
    if len(module.stacks) > stacks:
        raise LoweringError(
            f"the array computation {program.name} in a procedure cannot be compiled",
            why="it has a loop of unknown trip count that keeps values",
        )
    module.count += 1
    symbol = f"body{module.count}"
    parameters = "ptr noalias %inputs, ptr noalias %outputs, ptr noalias %workspace"
    module.functions.append(kernel.text(f"define internal i32 @{symbol}({parameters}) nounwind"))
    return symbol


def _emitted(
    module: KernelModule, program: LoopProgram, offsets: dict[Buffer, int], instrument: Instrument
) -> FunctionEmitter:
    """Return the function of a program, without its head; the functions of its nests are in the module."""
    pointers = {buffer: f"%{buffer.name}" for buffer in (*program.inputs, *program.outputs, *program.scratch)}
    kernel = FunctionEmitter(module, pointers)
    nests = {statement: live_ins([statement]) for statement in program.body if isinstance(statement, NEST)}
    around = live_ins([statement for statement in program.body if not isinstance(statement, NEST)])
    names = [around, *nests.values()]
    may_fail = any(found.may_fail for found in names)
    _add_pointers(kernel, program, {buffer for found in names for buffer in found.buffers}, offsets)
    if may_fail:
        kernel.entry += ["  %bad.slot = alloca i1", "  store i1 false, ptr %bad.slot"]
    is_long = len(program.body) - len(nests) > 4 * REGION
    for position, statement in enumerate(program.body):
        if is_long and position % REGION == 0:
            kernel.emit(BARRIER)
        with instrument(kernel, statement):
            if isinstance(statement, NEST):
                _nest(kernel, statement, nests[statement])
            else:
                kernel.statement(statement)
    status = "0"
    if may_fail:
        status = kernel.let(f"select i1 {kernel.load('i1', '%bad.slot')}, i32 -1, i32 0")
    kernel.emit(f"ret i32 {status}")
    module.multiplies |= _multiplies(program.body)
    return kernel


def _add_pointers(
    kernel: FunctionEmitter, program: LoopProgram, used: set[Buffer], offsets: dict[Buffer, int]
) -> None:
    """Append to a kernel the addresses of the buffers that it uses."""
    lines = kernel.entry
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


def _multiplies(statements: Sequence[Statement]) -> bool:
    return any(
        isinstance(inner, RoutineCall) and inner.library in ("blas", "lapack") for inner in walk(statements)
    )


def _outline(kernel: FunctionEmitter, statement: For) -> bool:
    """Outline a nest inside a sequential loop if it is large; return whether it was."""
    if not _is_large(statement):
        return False
    _nest(kernel, statement, live_ins([statement]))
    return True


def _is_large(nest: For) -> bool:
    """Return whether a nest inside a sequential loop is outlined: it takes long, and is not written as straight-line vectors."""
    if work([nest]) < LARGE:
        return False
    loops = [nest, *[statement for statement in walk(nest.body) if isinstance(statement, For)]]
    innermost = [loop for loop in loops if not any(isinstance(inner, For) for inner in loop.body)]
    return not all(are_vectors(loop) for loop in innermost)


def _nest(kernel: FunctionEmitter, statement: For | ControlFlow, names: LiveIns) -> None:
    """Append the call of a nest's function. Nests that differ in names only share a function."""
    module = kernel.module
    module.count += 1
    name = f"nest{module.count}"
    spans = _spans(statement)
    function = FunctionEmitter(module, {buffer: f"%{buffer.name}" for buffer in names.buffers})
    parameters, arguments = _pass_live_ins(function, kernel, names, spans)
    end = _pass_accumulators(function, kernel, names, parameters, arguments)
    if names.uses_stacks:
        parameters.append("ptr noalias nocapture %stacks")
        arguments.append("ptr %stacks")
    blocks = isinstance(statement, For) and statement.private is not None
    if isinstance(statement, For) and blocks:
        parameters.append(f"i64 %{statement.var.name}")
        _move_to_block(function, statement)
        for inner in statement.body:
            function.statement(inner)
    else:
        if isinstance(statement, ControlFlow):
            function.in_control_flow = True
            end = [*_keep_in_registers(function, statement, names), *end]
        function.statement(statement)
    speed = " optsize" if isinstance(statement, For) and statement.minor else ""
    end.append("  ret i32 0" if names.may_stop else "  ret void")
    if any(isinstance(inner, For) and inner.lanes for inner in walk([statement])):
        speed += NO_COPIES
    body = function.text(f"({', '.join(parameters)}) {own_function()}{speed}", *end)
    known = module.nests.setdefault(_without_names(body, module), name)
    result = "i32" if names.may_stop else "void"
    if known == name:
        module.functions.append(f"define internal {result} @{name}{body}")
    call = f"call {result} @{known}({', '.join(arguments)})"
    if isinstance(statement, For) and blocks:
        own, scratch = _private_memory(statement, parameters, spans)
        count = str(statement.trip_count)
        emit_blocks(
            kernel,
            known,
            arguments,
            count,
            own=own,
            scratch=scratch,
            multiplies=_multiplies([statement]),
        )
    elif names.may_stop:
        kernel.return_unless_zero(kernel.let(call), name)
    else:
        kernel.emit(call)


def _pass_live_ins(
    function: FunctionEmitter, kernel: FunctionEmitter, names: LiveIns, spans: dict[Buffer, tuple[int, int]]
) -> tuple[list[str], list[str]]:
    """Return the parameters of a nest's function for its live-ins, and the arguments of the call."""
    parameters, arguments = [], []
    for buffer in names.buffers:
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
    for variable in names.variables:
        if variable not in read:
            parameters.append(f"i64 %{variable}")
            arguments.append(f"i64 {kernel.names.get(variable, f'%{variable}')}")
    return parameters, arguments


def _pass_accumulators(
    function: FunctionEmitter,
    kernel: FunctionEmitter,
    names: LiveIns,
    parameters: list[str],
    arguments: list[str],
) -> list[str]:
    """Pass accumulators of the caller by reference; return the instructions at the end of the function that write them back."""
    end: list[str] = []
    outer = [register for register in names.assigned if register.name in kernel.mutable]
    carried = [(register.name, register_type(register.dtype)) for register in outer]
    if names.may_fail:
        carried.append(("bad", "i1"))
    for name, type_ in carried:
        parameters.append(f"ptr noalias nocapture %{name}.outer")
        arguments.append(f"ptr %{name}.slot")
        function.entry.append(f"  %{name}.slot = alloca {type_}")
        function.emit(f"%{name}.before = load {type_}, ptr %{name}.outer")
        function.store(type_, f"%{name}.before", f"%{name}.slot")
        end.append(f"  %{name}.final = load {type_}, ptr %{name}.slot")
        end.append(f"  store {type_} %{name}.final, ptr %{name}.outer")
    function.mutable.update({register.name: register.dtype for register in outer})
    return end


def _keep_in_registers(function: FunctionEmitter, statement: ControlFlow, names: LiveIns) -> list[str]:
    """Promote small arrays to registers for a sequential loop; return the instructions at its end that store them."""
    function.slots = find_slots([statement], _is_large)
    before = len(function.lines)
    for slot in function.slots.values():
        writer = VectorWriter(function, slot.size)
        type_ = writer.type(memory_type(slot.buffer.dtype))
        function.entry.extend(f"  {name} = alloca {type_}" for name in slot.pieces())
        for name, piece in zip(slot.pieces(), writer.read(slot.buffer, slot.start), strict=True):
            function.store(type_, piece, name)
    function.entry.extend(function.lines[before:])
    del function.lines[before:]
    for slot in function.slots.values():
        if slot.buffer in names.written:
            writer = VectorWriter(function, slot.size)
            type_ = writer.type(memory_type(slot.buffer.dtype))
            writer.write(slot.buffer, slot.start, [function.load(type_, name) for name in slot.pieces()])
    end = function.lines[before:]
    del function.lines[before:]
    return end


def _move_to_block(function: FunctionEmitter, loop: For) -> None:
    """Move the base pointers of a block's buffers to its first elements, so that the inner loops have constant bounds.

    Only then does LLVM reuse in an iteration what the one before has loaded: 40 per cent of the time of Rosenbrock's function.
    """
    steps: dict[Buffer, set[int]] = {}
    for statement in walk(loop.body):
        for buffer, position in statement.places():
            factor = 0 if isinstance(position, int) else position.terms.get(loop.var, 0)
            steps.setdefault(buffer, set()).add(factor)
    for buffer, factors in steps.items():
        (factor, *others) = factors
        if factor and not others:
            start = affine(loop.var) * factor
            place = function.position(start)
            type_ = memory_type(buffer.dtype)
            base = function.pointers[buffer]
            function.pointers[buffer] = function.let(
                f"getelementptr inbounds {type_}, ptr {base}, i64 {place}"
            )
            function.origins[buffer] = function.origins[buffer] + start


def _private_memory(
    loop: For, parameters: Sequence[str], spans: dict[Buffer, tuple[int, int]]
) -> tuple[dict[int, int], int]:
    """Return which parameters of a block are private buffers, and where these are in the scratch memory of a thread; and its size."""
    numbers = {parameter.rsplit(" ", 1)[1]: number for number, parameter in enumerate(parameters)}
    own: dict[int, int] = {}
    end = 0
    for buffer in loop.private or ():
        if f"%{buffer.name}" in numbers:
            first, _ = spans.get(buffer, (0, 0))
            own[numbers[f"%{buffer.name}"]] = end + first * buffer.dtype.itemsize
        end += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
    return own, end


def _spans(nest: For | ControlFlow) -> dict[Buffer, tuple[int, int]]:
    """Return the first and the last element of each buffer that a nest accesses; an empty dictionary for a nest that calls routines."""
    spans: dict[Buffer, tuple[int, int]] = {}
    for statement in walk([nest]):
        if isinstance(statement, RoutineCall) or (isinstance(statement, ControlFlow) and statement.places()):
            return {}
        if isinstance(statement, Load | Store):
            low, high = interval(statement.index)
            first, last = spans.get(statement.buffer, (low, high))
            spans[statement.buffer] = (min(first, low), max(last, high))
    return {buffer: (max(first, 0), min(last, buffer.size - 1)) for buffer, (first, last) in spans.items()}


def _without_names(body: str, module: KernelModule) -> str:
    """Return the text of a function with names and loop metadata in a canonical form: equal texts are equal functions."""
    numbers: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0].lstrip("%"), f"%{len(numbers)}")

    def facts(match: re.Match[str]) -> str:
        return module.metadata[int(match[1]) - 1]

    return _NAME.sub(rename, _LOOP.sub(facts, body))


_NAME: Final = re.compile(r"%[\w.]+|^[\w.]+(?=:)", re.MULTILINE)
_LOOP: Final = re.compile(r"!llvm\.loop !(\d+)")
