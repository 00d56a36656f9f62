"""Blocks of parallel loops as tasks: functions that the threads of the pool call."""

from __future__ import annotations

from contextlib import nullcontext

from gradtape.ir.graph import Literal, Value, extract
from gradtape.loops.ir import Dtype
from gradtape.lower.llvm.instructions import register_type
from gradtape.lower.llvm.parallel import one_thread_each
from gradtape.lower.procedures.emitter import ProcedureEmitter
from gradtape.lower.resident.threads import RUN_BLOCKS
from gradtape.procedures.ir import Apply, Content, For, Pointer
from gradtape.procedures.traversal import walk


def emit_tasks(function: ProcedureEmitter, loop: For) -> None:
    """Append a call that runs the body of a loop once for each of its iterations, by several threads.

    What the body uses of the procedure is passed in a table, behind a status: that of a block which was interrupted, or found no memory.
    Then the procedure ends. Each block takes an arena of its own.
    """
    module = function.module
    task = f"task{module.tasks}"
    module.tasks += 1
    leaves = live_ins(loop)
    table = f"%{task}.table"
    function.entry.append(f"  {table} = alloca [{len(leaves) + 1} x i64], align 8")
    block = ProcedureEmitter(module, function.plan, function.emitters, loop.body, "%status.shared")
    parameters, arguments = [f"ptr {block.stop}", "i64 %number"], ["ptr %context", "i64 %block"]
    lines = [
        f"define internal void @{task}.run(ptr %context, i64 %block, ptr %scratch) nounwind {{",
        "  %before = load atomic i32, ptr %context monotonic, align 4",
        "  %goes = icmp eq i32 %before, 0",
        "  br i1 %goes, label %begin, label %end",
        "begin:",
    ]
    function.store("i32", "0", table)
    for number, leaf in enumerate(leaves, 1):
        type_ = "ptr" if isinstance(leaf, Pointer) else register_type(_dtype(leaf))
        function.store(type_, function.operand(leaf), function.offset(table, 8 * number))
        lines.append(f"  %at{number} = getelementptr inbounds i64, ptr %context, i64 {number}")
        lines.append(f"  %a{number} = load {type_}, ptr %at{number}, align 8")
        parameters.append(f"{type_} %a{number}")
        arguments.append(f"{type_} %a{number}")
        block.set_operand(leaf, f"%a{number}")
    block.set_operand(loop.index, "%number")
    block.begin()
    block.statements_of(loop.body)
    block.end()
    module.functions.append(
        block.text(f"define internal i32 @{task}({', '.join(parameters)}) noinline nounwind")
    )
    module.scalar_makers[task] = block.plan.procedure, block.makers
    lines += [
        f"  %status = call i32 @{task}({', '.join(arguments)})",
        "  %fine = icmp eq i32 %status, 0",
        "  br i1 %fine, label %end, label %stop",
        "stop:",
        "  store atomic i32 %status, ptr %context monotonic, align 4",
        "  br label %end",
        "end:",
        "  ret void",
        "}",
    ]
    module.functions.append("\n".join(lines))
    module.bind(RUN_BLOCKS)
    multiplies = module.multiplies and any(isinstance(s, Apply) for s in walk(loop.body))
    with one_thread_each(function) if multiplies else nullcontext():
        blocks = function.operand(loop.count)
        function.call("void", f'"{RUN_BLOCKS}"', f"ptr @{task}.run", f"ptr {table}", f"i64 {blocks}", "i64 0")
    function.leave_unless_zero(function.load("i32", table))


def live_ins(loop: For) -> list[Content]:
    """Return the values and pointers that the body of a loop uses and does not define, the index apart."""
    contents = [content for statement in walk(loop.body) for content in statement.uses()]
    _, leaves = extract([x for x in contents if isinstance(x, Value)])
    found: dict[Content, None] = dict.fromkeys([*leaves, *[x for x in contents if isinstance(x, Pointer)]])
    inside = {loop.index, *[x for statement in walk(loop.body) for x in statement.defines()]}
    return [x for x in found if x not in inside and not isinstance(x, Literal)]


def _dtype(value: Content) -> Dtype:
    return value.dtype
