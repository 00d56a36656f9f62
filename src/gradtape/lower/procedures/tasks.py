"""Blocks of parallel loops as tasks: functions that the threads of the pool call."""

from __future__ import annotations

from gradtape.lower.llvm.instructions import register_type
from gradtape.lower.llvm.parallel import emit_blocks
from gradtape.lower.llvm.writer import own_function
from gradtape.lower.procedures.emitter import ProcedureEmitter
from gradtape.procedures.ir import Apply, For, Pointer
from gradtape.procedures.traversal import outer_leaves
from gradtape.statements import walk


def emit_tasks(function: ProcedureEmitter, loop: For) -> None:
    """Append a call that runs the body of a loop once for each of its iterations, by several threads.

    The procedure ends where a block was interrupted, or found no memory. Each block takes an arena of its own.
    """
    module = function.module
    block = ProcedureEmitter(module, function.plan, function.emitters, loop.body, "%status.shared")
    parameters, arguments = [], []
    contents = [content for statement in walk(loop.body) for content in statement.uses()]
    for number, leaf in enumerate(outer_leaves(contents, walk([loop]))):
        type_ = "ptr" if isinstance(leaf, Pointer) else register_type(leaf.dtype)
        parameters.append(f"{type_} %a{number}")
        arguments.append(f"{type_} {function.operand(leaf)}")
        block.set_operand(leaf, f"%a{number}")
    block.set_operand(loop.index, "%number")
    parameters += ["i64 %number", f"ptr {block.stop}"]
    block.begin()
    block.statements_of(loop.body)
    block.end()
    module.count += 1
    symbol = f"block{module.count}"
    module.functions.append(
        block.text(f"define internal i32 @{symbol}({', '.join(parameters)}) {own_function()}")
    )
    module.scalar_makers[symbol] = block.plan.procedure, block.makers
    multiplies = module.multiplies and any(isinstance(s, Apply) for s in walk(loop.body))
    blocks = function.operand(loop.count)
    table = emit_blocks(function, symbol, arguments, blocks, multiplies=multiplies, may_stop=True)
    function.leave_unless_zero(function.load("i32", table))
