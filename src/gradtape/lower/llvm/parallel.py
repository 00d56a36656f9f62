"""Parallel loops: calls that distribute blocks to threads, and the number of BLAS threads meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from gradtape.lower.llvm.function import FunctionEmitter, KernelModule
from gradtape.lower.resident.blas_threads import SET, WANTED
from gradtape.lower.resident.threads import RUN_BLOCKS


def emit_blocks(
    kernel: FunctionEmitter,
    function: str,
    arguments: Sequence[str],
    blocks: str,
    *,
    own: Mapping[int, int] | None = None,
    scratch: int = 0,
    multiplies: bool = False,
    may_stop: bool = False,
) -> str:
    """Append a call that runs a function for each block of a parallel loop, with its number, by several threads.

    The other arguments, operands with their types in front, are passed in a table, whose address is returned. A helper thread has scratch
    memory of its own, in which those arguments are that `own` names, with their places. A function that may stop also gets the address of
    the status of all blocks, which is in front of the table, and returns one: if that is not zero, no further block begins.
    """
    module = kernel.module
    task = f"task{module.tasks}"
    module.tasks += 1
    table = f"%{task}.table"
    kernel.entry.append(f"  {table} = alloca [{max(len(arguments) + may_stop, 1)} x i64], align 8")
    lines = [f"define internal void @{task}(ptr %context, i64 %block, ptr %scratch) nounwind {{"]
    if may_stop:
        kernel.store("i32", "0", table)
        lines += [
            "  %before = load atomic i32, ptr %context monotonic, align 4",
            "  %goes = icmp eq i32 %before, 0",
            "  br i1 %goes, label %begin, label %end",
            "begin:",
        ]
    if own:
        lines.append("  %helps = icmp ne ptr %scratch, null")
    passed = []
    for number, argument in enumerate(arguments):
        type_, value = argument.split(" ", 1)
        place = number + may_stop
        kernel.store(type_, value, kernel.offset(table, 8 * place))
        lines.append(f"  %at{number} = getelementptr inbounds i64, ptr %context, i64 {place}")
        lines.append(f"  %a{number} = load {type_}, ptr %at{number}, align 8")
        if own and number in own:
            lines.append(f"  %own{number} = getelementptr i8, ptr %scratch, i64 {own[number]}")
            lines.append(f"  %p{number} = select i1 %helps, ptr %own{number}, ptr %a{number}")
            passed.append(f"ptr %p{number}")
        else:
            passed.append(f"{type_} %a{number}")
    passed.append("i64 %block")
    if may_stop:
        lines += [
            f"  %status = call i32 @{function}({', '.join([*passed, 'ptr %context'])})",
            "  %fine = icmp eq i32 %status, 0",
            "  br i1 %fine, label %end, label %stop",
            "stop:",
            "  store atomic i32 %status, ptr %context monotonic, align 4",
            "  br label %end",
            "end:",
        ]
    else:
        lines.append(f"  call void @{function}({', '.join(passed)})")
    module.functions.append("\n".join([*lines, "  ret void", "}"]))
    module.bind(RUN_BLOCKS)
    with _one_thread_each(kernel) if multiplies else nullcontext():
        kernel.call(
            "void", f'"{RUN_BLOCKS}"', f"ptr @{task}", f"ptr {table}", f"i64 {blocks}", f"i64 {scratch}"
        )
    return table


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
def _one_thread_each(kernel: FunctionEmitter) -> Iterator[None]:
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
