"""Stacks: memory that grows while a loop runs whose number of turns nobody knows, and that stays between calls.

A block begins with the number of bytes that it has room for. While a kernel runs, its blocks are its own: it takes them at
the beginning and puts them back at the end, and a second call at the same time finds none and allocates others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradtape.loops.ir import GrowStack, OpenStack, ReserveStack

if TYPE_CHECKING:
    from gradtape.lower.llvm.statements import FunctionEmitter, Module

RESIZE: Final = "gradtape.resize"
"""The symbol of the routine ``void *(void *block, size_t bytes)``: realloc."""

RELEASE: Final = "gradtape.release"
"""The symbol of the routine ``void (void *block)``: free."""

DRAIN: Final = "drain"
"""The function of a module that gives all blocks back."""

HEAD: Final = 64
"""Bytes before the elements."""

_ROOM: Final = f"""define internal i1 @stack.more(ptr %entry, i64 %bytes) noinline cold nounwind {{
  %old = load ptr, ptr %entry
  %none = icmp eq ptr %old, null
  br i1 %none, label %new, label %kept
kept:
  %had = load i64, ptr %old
  br label %new
new:
  %before = phi i64 [ 0, %0 ], [ %had, %kept ]
  %twice = shl i64 %before, 1
  %larger = icmp ugt i64 %twice, %bytes
  %room = select i1 %larger, i64 %twice, i64 %bytes
  %whole = add i64 %room, {HEAD}
  %block = call ptr @"{RESIZE}"(ptr %old, i64 %whole)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %end, label %made
made:
  store i64 %room, ptr %block
  store ptr %block, ptr %entry
  br label %end
end:
  ret i1 %failed
}}"""


def emit_stack(emitter: FunctionEmitter, statement: ReserveStack | GrowStack | OpenStack) -> None:
    """Append what makes room, and let the emitter know where the elements are from now on."""
    module, stack = emitter.module, statement.stack
    number = module.stacks.setdefault(stack.name, len(module.stacks))
    entry = emitter.bind(f"getelementptr inbounds ptr, ptr %stacks, i64 {number}")
    if isinstance(statement, ReserveStack):
        _make_room(emitter, entry, emitter.number(statement.count), stack.nbytes, first=True)
    elif isinstance(statement, GrowStack):
        turn = emitter.bind(f"add nsw i64 {emitter.number(statement.length)}, 1")
        _make_room(emitter, entry, turn, stack.nbytes, first=False)
    block = emitter.bind(f"load ptr, ptr {entry}")
    emitter.pointers[stack] = emitter.bind(f"getelementptr inbounds i8, ptr {block}, i64 {HEAD}")


def _make_room(emitter: FunctionEmitter, entry: str, count: str, size: int, first: bool) -> None:
    module = emitter.module
    module.helpers.setdefault("stack.more", _ROOM)
    module.symbols[RESIZE] = None
    module.declarations[f'declare ptr @"{RESIZE}"(ptr, i64)'] = None
    if first:
        count = emitter.call("i64", "llvm.smax.i64", f"i64 {count}, i64 1")
    bytes_ = emitter.bind(f"mul nsw i64 {count}, {size}")
    name = emitter.fresh()[1:]
    there = emitter.bind(f"load ptr, ptr {entry}")
    if first:
        none = emitter.bind(f"icmp eq ptr {there}, null")
        emitter.line(f"br i1 {none}, label %{name}.more, label %{name}.kept")
        emitter.start_block(f"{name}.kept")
    room = emitter.bind(f"load i64, ptr {there}")
    full = emitter.bind(f"icmp ugt i64 {bytes_}, {room}")
    emitter.line(f"br i1 {full}, label %{name}.more, label %{name}.there")
    emitter.start_block(f"{name}.more")
    failed = emitter.bind(f"call i1 @stack.more(ptr {entry}, i64 {bytes_})")
    emitter.line(f"br i1 {failed}, label %{name}.failed, label %{name}.there")
    emitter.start_block(f"{name}.failed")
    emitter.line("ret i32 -1")
    emitter.start_block(f"{name}.there")


def with_stacks(module: Module, kernel: str, program: str) -> list[str]:
    """Return the kernel that lends the module's stacks to the function `program`, and the function that frees them."""
    count = len(module.stacks)
    module.symbols[RELEASE] = None
    module.declarations[f'declare void @"{RELEASE}"(ptr)'] = None
    module.declarations[f"@stacks.kept = internal global [{count} x ptr] zeroinitializer"] = None
    lines = [
        f"define i32 @{kernel}(ptr noalias %inputs, ptr noalias %outputs, ptr noalias %workspace) nounwind {{",
        "entry:",
        f"  %stacks = alloca [{count} x ptr]",
    ]
    for k in range(count):
        lines += [
            f"  %kept{k} = getelementptr inbounds ptr, ptr @stacks.kept, i64 {k}",
            f"  %block{k} = atomicrmw xchg ptr %kept{k}, ptr null acq_rel",
            f"  %lent{k} = getelementptr inbounds ptr, ptr %stacks, i64 {k}",
            f"  store ptr %block{k}, ptr %lent{k}",
        ]
    lines.append(f"  %status = call i32 @{program}(ptr %inputs, ptr %outputs, ptr %workspace, ptr %stacks)")
    drain = [f"define void @{DRAIN}() nounwind {{"]
    for k in range(count):
        lines += [
            f"  %after{k} = load ptr, ptr %lent{k}",
            f"  %other{k} = atomicrmw xchg ptr %kept{k}, ptr %after{k} acq_rel",
            f'  call void @"{RELEASE}"(ptr %other{k})',
        ]
        drain += [
            f"  %kept{k} = getelementptr inbounds ptr, ptr @stacks.kept, i64 {k}",
            f"  %block{k} = atomicrmw xchg ptr %kept{k}, ptr null acq_rel",
            f'  call void @"{RELEASE}"(ptr %block{k})',
        ]
    lines += ["  ret i32 %status", "}"]
    drain += ["  ret void", "}"]
    return ["\n".join(lines), "\n".join(drain)]
