"""Profiled kernels: compiled and loaded with counters, and the rate of their clock."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.config import config
from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import Graph
from gradtape.ir.op import NDArray
from gradtape.lower.attribution import NestSummary
from gradtape.lower.llvm.counters import COUNTERS, FIRST_NEST, clock_text
from gradtape.lower.llvm.writer import KERNEL, read_ll
from gradtape.lower.pipeline import lower_profiled
from gradtape.lower.resident.interrupts import RAISE
from gradtape.lower.target.symbols import addresses_of
from gradtape.runtime.call.entry import load
from gradtape.runtime.call.entry_ir import add_entry
from gradtape.runtime.compile.cache import CachedObject, MemoryCache, cached_object
from gradtape.runtime.compile.engine import compile_object
from gradtape.runtime.compile.kernel import Kernel
from gradtape.runtime.compile.loader import LoadedModule

__all__ = ["Moment", "ProfiledKernel", "clock", "profiled_kernel", "profiled_objects"]

profiled_objects: Final[MemoryCache[CachedObject]] = MemoryCache()
"""Object code of profiled kernels, by fingerprint and form."""


class ProfiledKernel(NamedTuple):
    """A kernel with counters of its own.

    Attributes
    ----------
    loaded : LoadedModule
        The machine code.
    counters : ndarray of int64
        What the machine code writes to; see `gradtape.lower.llvm.counters`.
    nests : list of NestSummary
        What is timed in the words from `FIRST_NEST` on, and last what is outside the nests.
    """

    loaded: LoadedModule
    counters: NDArray
    nests: list[NestSummary]


def profiled_kernel(graph: Graph, kernel: Kernel) -> ProfiledKernel:
    """Compile a program as a profiled kernel, and load it with fresh counters.

    Parameters
    ----------
    graph : Graph
        What the program computes: the lines of the user's code are those of its nodes.
    kernel : Kernel
        The program's own kernel.
    """
    lowered = lower_profiled(graph)
    text, nests, drain = lowered.ir_text, lowered.nests, lowered.drain
    signature = kernel.signature
    key = f"{fingerprint(graph)}:{signature}:{config.precise_math}:profiled"

    def build() -> CachedObject:
        whole = add_entry(text, signature, profiled=True)
        return CachedObject(compile_object(whole, KERNEL, unroll=lowered.unrolls))

    found = profiled_objects.get(key, lambda: cached_object(key, build))
    counters = np.zeros(FIRST_NEST + len(nests) - 1, np.int64)
    # Loops with kernels of their own are part of this one. Short ones do not need to poll for signals, but the entry may.
    symbols = [*lowered.symbols, RAISE] if signature is not None and signature.polls else lowered.symbols
    imports = {**addresses_of(symbols), COUNTERS: counters.ctypes.data}
    loaded = load(found.code, signature, imports=imports, drain=drain)
    return ProfiledKernel(loaded, counters, nests)


class Moment(NamedTuple):
    """A point in time on both clocks: in ticks of the kernels' clock, and in nanoseconds."""

    ticks: int
    nanoseconds: int


SETTLING: Final = 0.01
"""Seconds between two moments from which the rate of the kernels' clock is known to 0.01 per cent."""


class Clock:
    """The clock that kernels read.

    Attributes
    ----------
    cost : int
        The ticks between two readings with nothing in between.
    """

    def __init__(self) -> None:
        self._loaded = LoadedModule(
            compile_object(clock_text() + read_ll("gradtape.runtime", "native/clock.ll"), "clock"),
            "ticks",
            exports=("cost",),
        )
        function: Callable[[int], Any] = ctypes.CFUNCTYPE(ctypes.c_int64)
        self._ticks = function(self._loaded.address("ticks"))
        mean = function(self._loaded.address("cost"))
        self.cost: int = min(mean() for _ in range(10))

    def now(self) -> Moment:
        """Return the present moment."""
        return Moment(self._ticks(), time.perf_counter_ns())

    def seconds_per_tick(self, since: Moment) -> float:
        """Return the rate of the clock; wait until enough time has passed to measure it."""
        moment = self.now()
        while moment.nanoseconds - since.nanoseconds < SETTLING * 1e9:
            time.sleep(SETTLING / 4)
            moment = self.now()
        return (moment.nanoseconds - since.nanoseconds) / (moment.ticks - since.ticks) * 1e-9


@functools.cache
def clock() -> Clock:
    """Return the clock, compiled at the first call.

    Examples
    --------
    >>> first, second = clock().now(), clock().now()
    >>> first.ticks <= second.ticks
    True
    """
    return Clock()
