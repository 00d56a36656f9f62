"""The call that lets threads share out the blocks of a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gradtape.loops.ir import Buffer, For
from gradtape.lower.llvm.statements import FunctionEmitter
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
    """Append a call that runs `nest` once for each turn of a loop, with the turn as its last argument.

    The other arguments go through a table. A thread that helps gets scratch of its own, in which the private
    buffers stand one after the other.
    """
    assert loop.private is not None
    module = kernel.module
    own: dict[str, int] = {}
    end = 0
    for buffer in loop.private:
        own[f"%{buffer.name}"] = end + firsts[buffer] * buffer.dtype.itemsize
        end += (buffer.nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    task = f"task{len(module.tasks)}"
    lines = [f"define internal void @{task}(ptr %context, i64 %block, ptr %scratch) nounwind {{"]
    if own:
        lines.append("  %helps = icmp ne ptr %scratch, null")
    table = f"%{task}.table"
    kernel.entry.append(f"  {table} = alloca [{max(len(arguments), 1)} x i64]")
    passed = []
    for number, (parameter, argument) in enumerate(zip(parameters, arguments, strict=False)):
        type_, value = argument.split(" ", 1)
        kernel.line(f"%{task}.at{number} = getelementptr inbounds i64, ptr {table}, i64 {number}")
        kernel.line(f"store {type_} {value}, ptr %{task}.at{number}")
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
    lines.extend(("  ret void", "}"))
    module.tasks.append(task)
    module.functions.append("\n".join(lines))
    module.symbols[RUN_BLOCKS] = None
    module.declarations[f'declare void @"{RUN_BLOCKS}"(ptr, ptr, i64, i64)'] = None
    blocks = loop.var.high + 1
    kernel.line(f'call void @"{RUN_BLOCKS}"(ptr @{task}, ptr {table}, i64 {blocks}, i64 {end})')
