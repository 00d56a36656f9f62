"""The result pool: an allocator of large arrays that keeps a few freed blocks for the next results of their size.

The C library gives large freed blocks back to the system, and the next result pays a page fault for each 4 KB:
a third of Black-Scholes' gradient at 10^6. NumPy lets an array bring its own allocator. Ours is LLVM IR, since
it runs whenever an array dies, at the end of the process too; it keeps what is freed, up to
``gt.config.result_pool`` bytes, and gives the oldest back to the system.
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import os
import sys
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gradtape.config import config, on_change
from gradtape.lower.llvm.writer import read_ll
from gradtape.lower.resident.routine import load_resident
from gradtape.lower.target.host import has_symbol
from gradtape.reference_counts import keep_for_ever
from gradtape.runtime.call.capi import numpy_function
from gradtape.runtime.call.convention import ArraySpec

__all__ = ["LARGE", "empty_results", "is_pooled", "kept_bytes", "result_handler", "trim_results"]

LARGE: Final = 2**18
"""Bytes from which a result comes from the pool; the C library keeps smaller blocks by itself."""

_HUGE: Final = 2**22
"""Bytes from which the pool requests huge pages, as NumPy does."""

_SLOTS: Final = 64
"""Free blocks that are kept at most."""


def is_pooled(spec: ArraySpec) -> bool:
    """Whether a native entry takes a result from the pool.

    Examples
    --------
    >>> is_pooled(ArraySpec("float64", (8,)))
    False
    """
    return spec.nbytes >= LARGE and _available()


@functools.cache
def _available() -> bool:
    return has_symbol("posix_memalign") and has_symbol("madvise")


class _Pool:
    """The loaded routines, and their memory handler for NumPy."""

    __slots__ = ("_kept", "_limit", "_trim", "handler", "set_handler")

    def __init__(self) -> None:
        advise = sys.platform == "linux" and os.environ.get("NUMPY_MADVISE_HUGEPAGE", "1") != "0"
        text = read_ll(
            "gradtape.runtime",
            "native/result_pool.ll",
            name="gradtape results".ljust(127, "\0").replace("\0", "\\00"),
            slots=_SLOTS,
            last=_SLOTS - 1,
            huge=_HUGE,
            advise="true" if advise else "false",
        )
        # Nothing in it is hot, and optimising takes 10 ms.
        found = load_resident(text, "gradtape.results", ("handler", "limit", "kept", "trim"), effort=0)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        # Arrays may outlive everything else of this process's Python.
        self.handler = keep_for_ever(make(found["handler"], _CAPSULE, None))
        self._limit = ctypes.c_int64.from_address(found["limit"])
        self._kept = ctypes.c_int64.from_address(found["kept"])
        self._trim = ctypes.PYFUNCTYPE(None)(found["trim"])
        exchange = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
        self.set_handler = exchange(numpy_function("PyDataMem_SetHandler"))

    def set_limit(self, limit: int) -> None:
        self._limit.value = limit
        self._trim()

    def trim(self) -> None:
        self.set_limit(0)
        self._limit.value = config.result_pool

    def kept(self) -> int:
        return int(self._kept.value)


_CAPSULE: Final = b"mem_handler"
"""The name of the capsule that NumPy expects; a capsule keeps a pointer to it."""


@functools.cache
def _pool() -> _Pool:
    pool = _Pool()
    pool.set_limit(config.result_pool)
    on_change("result_pool", pool.set_limit)
    return pool


def result_handler() -> object:
    """Return the memory handler of the pool, a capsule for NumPy."""
    return _pool().handler


def empty_results(specs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[npt.NDArray[Any]]:
    """Return uninitialised arrays; the large ones are allocated from the pool.

    Examples
    --------
    >>> small, large = empty_results([((3,), np.dtype(float)), ((2**16,), np.dtype(float))])
    >>> large.flags.owndata, large.shape
    (True, (65536,))
    """
    small = [prod(shape, start=dtype.itemsize) < LARGE for shape, dtype in specs]
    if all(small) or not _available():
        return [np.empty(shape, dtype) for shape, dtype in specs]
    # NumPy keeps its handler in a context variable. What is set in a copy of the context ends with it, also where a signal's handler raises
    # an error right after the call that sets it, before the former handler could be stored.
    return contextvars.copy_context().run(_pooled, specs)


def _pooled(specs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[npt.NDArray[Any]]:
    pool = _pool()
    pool.set_handler(pool.handler)
    return [np.empty(shape, dtype) for shape, dtype in specs]


def kept_bytes() -> int:
    """Bytes of free blocks in the pool.

    Examples
    --------
    >>> kept_bytes() <= config.result_pool
    True
    """
    return _pool().kept() if _pool.cache_info().currsize else 0


def trim_results() -> None:
    """Free the blocks of the pool."""
    if _pool.cache_info().currsize:
        _pool().trim()
