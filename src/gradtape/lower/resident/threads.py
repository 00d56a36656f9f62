"""The thread pool of kernels: POSIX threads that sleep until there are blocks.

The routine that kernels call is LLVM IR, compiled by llvmlite in 2 ms, so that a process which finds its
kernels on disk needs no interpreter lock to use several threads. Blocks are claimed one by
one: a thread whose core is busy elsewhere claims fewer. No thread spins. While another kernel uses the pool,
or in a loop inside a block, a kernel runs its blocks itself; the result is the same.
"""

from __future__ import annotations

import ctypes
import functools
import signal
from collections.abc import Mapping
from typing import Final

from gradtape.config import config, on_change
from gradtape.locks import renewed_in_child
from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident
from gradtape.lower.target.host import has_symbol

RUN_BLOCKS: Final = "gradtape.run_blocks"
"""The symbol of the routine ``void (void (*task)(context, block, scratch), context, blocks, scratch bytes)``."""


@functools.cache
def run_blocks_address() -> int:
    """Return the address of the routine that kernels call as `RUN_BLOCKS`.

    Examples
    --------
    >>> run_blocks_address() == run_blocks_address() != 0
    True
    """
    pool = _loaded_pool()
    address = pool["run_blocks"]
    threads = ctypes.c_int64.from_address(pool["threads"])

    def set_threads(count: int) -> None:
        threads.value = count

    set_threads(config.num_threads)
    on_change("num_threads", set_threads)
    reset = ctypes.CFUNCTYPE(None)(pool["reset"])
    reset()
    renewed_in_child(reset)  # there are no threads, and the mutex may have been taken
    return address


def _loaded_pool() -> Mapping[str, int]:
    """Compile and load the routines of the pool."""
    files = ("run_serially.ll", "threads.ll" if has_symbol("pthread_create") else "no_threads.ll")
    text = "".join(
        [read_ll(__package__, file, set_mask=int(getattr(signal, "SIG_SETMASK", 0))) for file in files]
    )
    return load_resident(text, RUN_BLOCKS, ("run_blocks", "reset", "threads"))
