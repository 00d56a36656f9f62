"""Arrays from the memory pool: results of kernels, and workspaces of kernels that are called from Python.

The C library gives large freed blocks back to the system, and the next result pays a page fault for each 4 KB: a third of Black-Scholes'
gradient at 10^6. NumPy lets an array bring its own allocator (NEP 49), which is the pool's (`gradtape.lower.resident.memory`).
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gradtape.lower.resident.memory import LARGE, handler_address
from gradtape.reference_counts import keep_for_ever
from gradtape.runtime.call.capi import numpy_function
from gradtape.runtime.call.convention import ArraySpec

__all__ = ["empty_results", "empty_workspace", "is_pooled", "result_handler"]

_ALIGNMENT: Final = 64
"""Bytes of a cache line, on whose boundary a workspace begins."""

_GUARD_NUMBER: Final = 8
"""Bytes of a workspace at least: a guard that does not hold writes the actual value there."""


def is_pooled(spec: ArraySpec) -> bool:
    """Whether a native entry takes a result from the pool.

    Examples
    --------
    >>> is_pooled(ArraySpec("float64", (8,)))
    False
    """
    return spec.nbytes >= LARGE


class _Allocator:
    """The pool's memory handler for NumPy."""

    __slots__ = ("handler", "set_handler")

    def __init__(self) -> None:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        # Arrays may outlive the interpreter.
        self.handler = keep_for_ever(make(handler_address(), _CAPSULE, None))
        exchange = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
        self.set_handler = exchange(numpy_function("PyDataMem_SetHandler"))


_CAPSULE: Final = b"mem_handler"
"""The name of the capsule that NumPy expects; a capsule keeps a pointer to it."""


@functools.cache
def _allocator() -> _Allocator:
    return _Allocator()


def result_handler() -> object:
    """Return the memory handler of the pool, a capsule for NumPy."""
    return _allocator().handler


def empty_results(specs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[npt.NDArray[Any]]:
    """Return uninitialised arrays; the large ones are allocated from the pool.

    Examples
    --------
    >>> small, large = empty_results([((3,), np.dtype(float)), ((2**16,), np.dtype(float))])
    >>> large.flags.owndata, large.shape
    (True, (65536,))
    """
    small = [prod(shape, start=dtype.itemsize) < LARGE for shape, dtype in specs]
    if all(small):
        return [np.empty(shape, dtype) for shape, dtype in specs]
    # NumPy keeps its handler in a context variable. What is set in a copy of the context ends with it, also where a signal's handler raises
    # an error right after the call that sets it, before the former handler could be stored.
    return contextvars.copy_context().run(_pooled, specs)


def _pooled(specs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[npt.NDArray[Any]]:
    allocator = _allocator()
    allocator.set_handler(allocator.handler)
    return [np.empty(shape, dtype) for shape, dtype in specs]


def empty_workspace(size: int) -> npt.NDArray[Any]:
    """Return uninitialised memory for a kernel, on a 64-byte boundary, with room for a guard's number.

    Examples
    --------
    >>> block = empty_workspace(100)
    >>> block.nbytes, block.ctypes.data % 64
    (100, 0)
    """
    needed = max(size, _GUARD_NUMBER)
    (raw,) = empty_results([((needed + _ALIGNMENT,), np.dtype(np.uint8))])
    skip = -raw.ctypes.data % _ALIGNMENT
    return raw[skip : skip + needed]
