"""The memory of kernels: a pool of large blocks, and arenas, which procedures allocate from while they run.

Results, workspaces, stacks and arenas take their large blocks from one pool, and freed blocks stay in it for whoever next needs their size,
up to ``gt.config.memory_pool`` bytes: fresh memory costs a page fault for each 4 KB. The routines are LLVM IR, because results die at any
time, at the end of the process too.

A call takes an arena, allocates arrays and grows a tape in it, and gives it back; concurrent calls have different ones.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from typing import Final

from gradtape.config import config, on_change
from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident
from gradtape.lower.target.host import has_symbol

ARENA: Final = "gradtape.arena."
POOL: Final = "gradtape.pool."
"""The prefix of the symbols of the routines of arenas and of the pool."""

LARGE: Final = 2**18
"""Bytes from which a block comes from the pool; the C library keeps smaller blocks by itself."""

HANDLER_NAME: Final = "gradtape results"
"""The name of NumPy's memory handler for results."""

_HUGE: Final = 2**22
"""Bytes from which the pool requests huge pages, as NumPy does."""

_FREE_BLOCKS: Final = 64
"""Free blocks that the pool keeps at most."""

_ARENAS: Final = 16
"""Arenas that are kept."""

_CHUNK: Final = 2**16
"""Bytes of a chunk and of a tape at least."""

_CHUNK_HEAD: Final = 128
"""Bytes that a chunk needs besides the arrays in it: its head, and padding."""

_ARENA_ROUTINES: Final = {
    "take": "take_arena",
    "give": "give_arena",
    "allocate": "allocate_array",
    "release": "rewind",
    "extend": "extend_tape",
}
_POOL_ROUTINES: Final = ("allocate", "release", "discard", "forget")


@functools.cache
def _routines() -> dict[str, int]:
    advise = sys.platform == "linux" and os.environ.get("NUMPY_MADVISE_HUGEPAGE", "1") != "0"
    heap = read_ll(__package__, "heap_posix.ll" if has_symbol("posix_memalign") else "heap_windows.ll")
    pool = read_ll(
        __package__,
        "pool.ll",
        name=HANDLER_NAME.ljust(127, "\0").replace("\0", "\\00"),
        limit=config.memory_pool,
        large=LARGE,
        pooled=LARGE + 4096,
        slots=_FREE_BLOCKS,
        last=_FREE_BLOCKS - 1,
        huge=_HUGE,
        advise="true" if advise else "false",
    )
    arenas = read_ll(
        __package__, "arenas.ll", slots=_ARENAS, large=LARGE, chunk=_CHUNK, head=_CHUNK_HEAD, behind=16 + 63
    )
    exports = ("handler", "limit", "kept", "trim", "trim_arenas", "held")
    found = load_resident(
        heap + pool + arenas,
        "gradtape.memory",
        (*exports, *_POOL_ROUTINES, *_ARENA_ROUTINES.values()),
    )
    limit = ctypes.c_int64.from_address(found["limit"])
    trim_to_limit = ctypes.CFUNCTYPE(None)(found["trim"])

    def set_limit(bytes_: int) -> None:
        limit.value = bytes_
        trim_to_limit()

    on_change("memory_pool", set_limit)
    return found


def handler_address() -> int:
    """Return the address of the NumPy memory handler that allocates from the pool."""
    return _routines()["handler"]


def memory_address(symbol: str) -> int:
    """Return the address of a routine by the symbol that kernels call.

    Examples
    --------
    >>> memory_address("gradtape.arena.take") != 0, memory_address("gradtape.pool.allocate") != 0
    (True, True)
    """
    if symbol.startswith(ARENA):
        return _routines()[_ARENA_ROUTINES[symbol.removeprefix(ARENA)]]
    return _routines()[symbol.removeprefix(POOL)]


def forget(size: int) -> None:
    """Free the kept blocks for allocations of `size` bytes.

    Examples
    --------
    >>> forget(2**20)
    """
    if size >= LARGE:
        ctypes.CFUNCTYPE(None, ctypes.c_int64)(_routines()["forget"])(size)


def trim_memory() -> None:
    """Free all blocks and arenas that no call uses.

    Examples
    --------
    >>> trim_memory()
    """
    if not _routines.cache_info().currsize:
        return
    ctypes.CFUNCTYPE(None)(_routines()["trim_arenas"])()
    limit = ctypes.c_int64.from_address(_routines()["limit"])
    limit.value = 0
    try:
        ctypes.CFUNCTYPE(None)(_routines()["trim"])()
    finally:
        limit.value = config.memory_pool


def kept_bytes() -> int:
    """Bytes that no call uses and that are kept for the next one: the free blocks of the pool, and the small blocks of arenas.

    Examples
    --------
    >>> trim_memory()
    >>> kept_bytes()
    0
    """
    if not _routines.cache_info().currsize:
        return 0
    in_arenas: int = ctypes.CFUNCTYPE(ctypes.c_int64)(_routines()["held"])()
    return ctypes.c_int64.from_address(_routines()["kept"]).value + in_arenas
