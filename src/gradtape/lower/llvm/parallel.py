"""Parallel loops: calls that distribute blocks to threads, and the number of BLAS threads meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from gradtape.loops.ir import Buffer, For
from gradtape.lower.llvm.function import FunctionEmitter, KernelModule
from gradtape.lower.resident.blas_threads import SET, WANTED
from gradtape.lower.resident.threads import RUN_BLOCKS

ALIGNMENT: Final = 64


def emit_blocks(
    kernel: FunctionEmitter,
    loop: For,
    nest: str,
    parameters: Sequence[str],
    arguments: Sequence[str],
    firsts: Mapping[Buffer, int],
) -> None:
    """Append a call that runs `nest` once for each iteration of a loop, with its number as the last argument.

    The other arguments are passed in a table. A helper thread has its own scratch memory, in which the private buffers follow each
    other.
    """
    assert loop.private is not None
    module = kernel.module
    own: dict[str, int] = {}
    end = 0
    for buffer in loop.private:
        own[f"%{buffer.name}"] = end + firsts[buffer] * buffer.dtype.itemsize
        end += (buffer.nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    task = f"task{module.tasks}"
    module.tasks += 1
    lines = [f"define internal void @{task}(ptr %context, i64 %block, ptr %scratch) nounwind {{"]
    if own:
        lines.append("  %helps = icmp ne ptr %scratch, null")
    table = f"%{task}.table"
    kernel.entry.append(f"  {table} = alloca [{max(len(arguments), 1)} x i64]")
    passed = []
    for number, (parameter, argument) in enumerate(zip(parameters, arguments, strict=False)):
        type_, value = argument.split(" ", 1)
        kernel.emit(f"%{task}.at{number} = getelementptr inbounds i64, ptr {table}, i64 {number}")
        kernel.store(type_, value, f"%{task}.at{number}")
        lines.append(f"  %at{number} = getelementptr inbounds i64, ptr %context, i64 {number}")
        lines.append(f"  %a{number} = load {type_}, ptr %at{number}")
        name = parameter.rsplit(" ", 1)[1]
        if name in own:
            lines.append(f"  %own{number} = getelementptr i8, ptr %scratch, i64 {own[name]}")
            lines.append(f"  %p{number} = select i1 %helps, ptr %own{number}, ptr %a{number}")
            passed.append(f"ptr %p{number}")
        else:
            passed.append(f"{type_} %a{number}")
    lines.append(f"  call void @{nest}({', '.join([*passed, 'i64 %block'])})")
    module.functions.append("\n".join([*lines, "  ret void", "}"]))
    module.bind(RUN_BLOCKS)
    blocks = loop.var.high + 1
    kernel.call("void", f'"{RUN_BLOCKS}"', f"ptr @{task}", f"ptr {table}", f"i64 {blocks}", f"i64 {end}")


def add_wrapper(
    module: KernelModule, routine: str, name: str, program: str, linkage: str, parameters: Sequence[str]
) -> None:
    """Add the function `name`, which calls `program` as the file of a routine says: with another number of BLAS threads, for one."""
    module.add_routine(
        routine,
        name=name,
        program=program,
        linkage=linkage,
        parameters=", ".join([f"ptr noalias %{parameter}" for parameter in parameters]),
        arguments=", ".join([f"ptr %{parameter}" for parameter in parameters]),
    )


@contextmanager
def one_thread_each(kernel: FunctionEmitter) -> Iterator[None]:
    """Set the number of BLAS threads to one around a parallel loop, whose threads call BLAS."""
    kernel.module.bind(SET, WANTED)
    kernel.module.declare(f'@"{WANTED}" = external global i32')
    name = kernel.new_label()
    wanted = kernel.let(f'load i32, ptr @"{WANTED}"')
    alone = kernel.let(f"icmp eq i32 {wanted}, 1")
    kernel.branch(alone, f"{name}.shared", f"{name}.several")
    kernel.start_block(f"{name}.several")
    kernel.call("void", f'"{SET}"', "i32 1")
    kernel.jump(f"{name}.shared")
    kernel.start_block(f"{name}.shared")
    yield
    kernel.branch(alone, f"{name}.after", f"{name}.reset")
    kernel.start_block(f"{name}.reset")
    kernel.call("void", f'"{SET}"', f"i32 {wanted}")
    kernel.jump(f"{name}.after")
    kernel.start_block(f"{name}.after")
