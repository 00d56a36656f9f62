"""The counters of a profiled kernel, and the instructions that read the clock and add to them.

The block of counters is a symbol, so that one compiled module can be loaded with a block for each function that is profiled. Adding
is atomic: several threads may run a kernel.
"""

from __future__ import annotations

import functools
import platform
import time
from typing import Final

from gradtape.lower.llvm.writer import read_ll

COUNTERS: Final = "gt.profile"
"""The symbol of the block of counters, int64 each."""

KERNEL_TICKS: Final = 0
RUNS: Final = 1
MISSES: Final = 2
ENTRY_TICKS: Final = 3
ENTRIES: Final = 4
FIRST_NEST: Final = 5
"""Words of the block: time in the kernel, its runs, guards missed, time in the native entry, calls that the entry
answered, and time in each nest."""


@functools.cache
def clock_text() -> str:
    """Return the definition of ``i64 @now()``, the clock: the CPU's time stamp counter (10 ns for a reading), or the system's clock."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return read_ll("gradtape.lower.resident", "clock_cycles.ll")
    return read_ll("gradtape.lower.resident", "clock_posix.ll", clock=getattr(time, "CLOCK_MONOTONIC", 1))


def add(word: int, amount: str, unique: str) -> list[str]:
    """Return the instructions that add to a counter; `unique` is a name that is used for this addition only."""
    place = f"{unique}.word{word}"
    return [
        f'{place} = getelementptr i64, ptr @"{COUNTERS}", i64 {word}',
        f"{place}.before = atomicrmw add ptr {place}, i64 {amount} monotonic",
    ]


def counted(ir_text: str, kernel: str) -> str:
    """Return a module with a kernel around the original one that counts runs and missed guards and measures their time."""
    inner = f"{kernel}.profiled"
    text = ir_text.replace(f"define i32 @{kernel}(", f"define internal i32 @{inner}(", 1)
    lines = [
        f'@"{COUNTERS}" = external global i8',
        clock_text(),
        f"define i32 @{kernel}(ptr %inputs, ptr %outputs, ptr %workspace) noinline nounwind {{",
        "  %begin = call i64 @now()",
        f"  %status = call i32 @{inner}(ptr %inputs, ptr %outputs, ptr %workspace)",
        "  %end = call i64 @now()",
        "  %ticks = sub i64 %end, %begin",
        "  %missed = icmp sgt i32 %status, 0",
        "  %miss = zext i1 %missed to i64",
        *[
            f"  {line}"
            for word, amount in ((KERNEL_TICKS, "%ticks"), (RUNS, "1"), (MISSES, "%miss"))
            for line in add(word, amount, "%counted")
        ],
        "  ret i32 %status",
        "}",
    ]
    return "\n".join([text.rstrip(), *lines]) + "\n"
