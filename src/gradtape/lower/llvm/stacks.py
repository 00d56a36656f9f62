"""Stacks: memory that grows while a loop runs whose trip count is unknown.

The block of a stack begins with its capacity in bytes. A kernel takes the blocks out of the module's table, or large ones out of the memory
pool, at its beginning and puts them back at its end; a second call at the same time allocates others.
"""

from __future__ import annotations

from typing import Final

from gradtape.loops.ir import GrowStack, OpenStack, ReserveStack
from gradtape.lower.llvm.function import Emitters, FunctionEmitter, KernelModule
from gradtape.lower.resident.memory import LARGE

DRAIN: Final = "drain"
"""The function of a module that frees all blocks."""

HEAD: Final = 64
"""Bytes before the elements."""


def _reserve(function: FunctionEmitter, statement: ReserveStack) -> None:
    entry = _entry(function, statement)
    count = function.call("i64", "llvm.smax.i64", f"i64 {function.number(statement.count)}", "i64 1")
    _make_room(function, entry, count, statement.stack.nbytes, first=True)
    _set_pointer(function, statement, entry)


def _grow(function: FunctionEmitter, statement: GrowStack) -> None:
    entry = _entry(function, statement)
    count = function.let(f"add nsw i64 {function.number(statement.length)}, 1")
    _make_room(function, entry, count, statement.stack.nbytes, first=False)
    _set_pointer(function, statement, entry)


def _open(function: FunctionEmitter, statement: OpenStack) -> None:
    _set_pointer(function, statement, _entry(function, statement))


STACKS: Final[Emitters] = {ReserveStack: _reserve, GrowStack: _grow, OpenStack: _open}


def _entry(function: FunctionEmitter, statement: ReserveStack | GrowStack | OpenStack) -> str:
    """Return the address of the pointer to a stack's block."""
    stacks = function.module.stacks
    number = stacks.setdefault(statement.stack.name, len(stacks))
    return function.let(f"getelementptr inbounds ptr, ptr %stacks, i64 {number}")


def _set_pointer(
    function: FunctionEmitter, statement: ReserveStack | GrowStack | OpenStack, entry: str
) -> None:
    """Set the address of a stack's elements: the block may have moved."""
    block = function.load("ptr", entry)
    function.pointers[statement.stack] = function.let(f"getelementptr inbounds i8, ptr {block}, i64 {HEAD}")


def _make_room(function: FunctionEmitter, entry: str, count: str, size: int, first: bool) -> None:
    """Append instructions that grow a block to `count` entries of `size` bytes; the kernel ends where there is no memory."""
    symbol = function.module.add_routine("stacks", head=HEAD, large=LARGE)
    bytes_ = function.let(f"mul nsw i64 {count}, {size}")
    name = function.new_label()
    block = function.load("ptr", entry)
    if first:
        function.branch(function.let(f"icmp eq ptr {block}, null"), f"{name}.more", f"{name}.kept")
        function.start_block(f"{name}.kept")
    room = function.load("i64", block)
    function.branch(function.let(f"icmp ugt i64 {bytes_}, {room}"), f"{name}.more", f"{name}.there")
    function.start_block(f"{name}.more")
    failed = function.let(f"call i1 @{symbol}(ptr {entry}, i64 {bytes_})")
    function.branch(failed, f"{name}.failed", f"{name}.there")
    function.start_block(f"{name}.failed")
    function.emit("ret i32 -1")
    function.start_block(f"{name}.there")


def add_stacks(module: KernelModule, kernel: str, program: str) -> None:
    """Add the kernel that passes the module's stacks to the function `program`, and the function that frees them."""
    count = len(module.stacks)
    module.add_routine("stacks", head=HEAD, large=LARGE)
    module.declare(
        f"@stacks.kept = internal global [{count} x ptr] zeroinitializer",
        f"@stacks.usual = internal global [{count} x i64] zeroinitializer",
    )
    lend = [f"  %stacks = alloca [{count} x ptr]"]
    take_back, drain = [], []
    for k in range(count):
        places = [
            f"  %kept{k} = getelementptr inbounds ptr, ptr @stacks.kept, i64 {k}",
            f"  %usual{k} = getelementptr inbounds i64, ptr @stacks.usual, i64 {k}",
        ]
        lend += [
            *places,
            f"  %block{k} = call ptr @lend_stack(ptr %kept{k}, ptr %usual{k})",
            f"  %lent{k} = getelementptr inbounds ptr, ptr %stacks, i64 {k}",
            f"  store ptr %block{k}, ptr %lent{k}",
        ]
        take_back += [
            f"  %after{k} = load ptr, ptr %lent{k}",
            f"  call void @return_stack(ptr %kept{k}, ptr %usual{k}, ptr %after{k})",
        ]
        drain += [*places, f"  call void @drain_stack(ptr %kept{k}, ptr %usual{k})"]
    parameters = "ptr noalias %inputs, ptr noalias %outputs, ptr noalias %workspace"
    call = f"  %status = call i32 @{program}(ptr %inputs, ptr %outputs, ptr %workspace, ptr %stacks)"
    kernel_lines = [f"define i32 @{kernel}({parameters}) nounwind {{", *lend, call, *take_back]
    module.functions.append("\n".join([*kernel_lines, "  ret i32 %status", "}"]))
    module.functions.append("\n".join([f"define void @{DRAIN}() nounwind {{", *drain, "  ret void", "}"]))
