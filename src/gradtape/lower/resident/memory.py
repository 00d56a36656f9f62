"""Arenas: the memory that procedures allocate while they run, kept for the next call.

A call takes an arena, allocates arrays and grows a tape in it, and gives it back; calls at the same time have different ones. All kernels
share them. Fresh memory would cost a page fault for each 4 KB.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Final

from gradtape.config import config, on_change
from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident

PREFIX: Final = "gradtape.arena."
"""What the symbols of the routines begin with."""

ROUTINES: Final = ("take", "give", "allocate", "release", "extend")

SLOTS: Final = 16
"""Arenas that are kept."""

SMALLEST: Final = 2**16
"""Bytes of a chunk and of a tape at least."""

HEAD: Final = 128
"""Bytes that a chunk needs besides the arrays in it: its head, and what is lost to alignment."""


@functools.cache
def _routines() -> dict[str, int]:
    limit = config.result_pool
    text = read_ll(
        __package__, "memory.ll", slots=SLOTS, limit=limit, chunk=SMALLEST, head=HEAD, behind=16 + 63
    )
    found = load_resident(text, "gradtape.arenas", (*ROUTINES, "trim", "held", "limit"), effort=1)
    most = ctypes.c_int64.from_address(found["limit"])

    def set_limit(bytes_: int) -> None:
        most.value = bytes_

    on_change("result_pool", set_limit)
    return found


def arena_address(symbol: str) -> int:
    """Return the address of a routine by the symbol that kernels call.

    Examples
    --------
    >>> arena_address("gradtape.arena.take") != 0
    True
    """
    return _routines()[symbol.removeprefix(PREFIX)]


def trim_arenas() -> None:
    """Free the arenas that no call uses.

    Examples
    --------
    >>> trim_arenas()
    """
    if _routines.cache_info().currsize:
        ctypes.CFUNCTYPE(None)(_routines()["trim"])()


def held_bytes() -> int:
    """Return the bytes of the arenas that no call uses: after a call, what it took, if it was the only one.

    Examples
    --------
    >>> trim_arenas()
    >>> held_bytes()
    0
    """
    if not _routines.cache_info().currsize:
        return 0
    bytes_: int = ctypes.CFUNCTYPE(ctypes.c_int64)(_routines()["held"])()
    return bytes_
