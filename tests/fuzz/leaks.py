"""Programs that are run again and again leave nothing behind: no cycle for the collector, no object, no memory of the process.

The programs are those of `interrupts`, each time with a number that nothing has been compiled for, in an order by chance.

    python -m tests.fuzz.leaks --rounds 2000 --seed 1
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gradtape as gt
from tests.fuzz.interrupts import SCENARIOS, fresh

PROGRAMS = 4
"""Compiled programs that are kept, so that the caches are full soon."""

MOST_BYTES = 60_000
"""Bytes by which the process may grow with each program: LLVM keeps up to 9 KB of each kernel until its linker is full."""


@contextmanager
def small_caches() -> Iterator[None]:
    """Keep few programs, none on the disk, and let the collector rest."""
    gc.collect()
    with gt.config.override(disk_cache=False, memory_cache=PROGRAMS):
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


def cycles_of(name: str) -> Counter[str]:
    """Run a program that is compiled; return the types of what only the cycle collector could free afterwards."""
    function, k = SCENARIOS[name], fresh()
    for _ in range(3):
        function(k)
    gc.collect()
    function(k)
    if not gc.collect():
        return Counter()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        function(k)
        gc.collect()
        return Counter(type(item).__qualname__ for item in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def resident() -> int:
    """Return the bytes of memory that the process has."""
    import resource

    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # no Linux: the most that it ever had
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def growth(rounds: int, seed: int) -> tuple[float, float]:
    """Run programs by chance; return the bytes and the objects that each has left, after as many that fill the caches."""
    choose = random.Random(seed)
    names = list(SCENARIOS)

    def run() -> tuple[int, int]:
        for _ in range(rounds):
            SCENARIOS[choose.choice(names)](fresh())
        gc.collect()
        return resident(), len(gc.get_objects())

    bytes_before, objects_before = run()
    bytes_after, objects_after = run()
    return (bytes_after - bytes_before) / rounds, (objects_after - objects_before) / rounds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    found = 0
    for name in SCENARIOS.keys() - {"profiled"}:  # which compiles each time, and the compiler leaves cycles
        cycles = cycles_of(name)
        if cycles:
            found += 1
            print(f"--- {name} leaves cycles: {dict(cycles.most_common(8))}", flush=True)
    with small_caches():
        left, objects = growth(options.rounds, options.seed)
    found += left > MOST_BYTES
    print(
        f"{left / 1000:.1f} KB and {objects:.1f} objects are left by each program, {found} findings, seed {options.seed}"
    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
