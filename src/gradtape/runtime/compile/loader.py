"""The loader: links object code by llvmlite alone, and unmaps it when the last reference is gone."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final, Protocol

import numpy.typing as npt

from gradtape.locks import Rank, new_lock
from gradtape.lower.target.host import target_machine
from gradtape.runtime.call.capi import ARRAY_DATA

__all__ = ["LoadedModule", "call_flat"]

# Lists of pointers are packed into bytes objects, which takes half the time that ctypes arrays take.
_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
_DRAIN = ctypes.CFUNCTYPE(None)


_MODULES_PER_LINKER: Final = 16
"""A linker keeps the 9 KB of a module's name and symbols for ever, so linkers are replaced.

One linker per module would take 150 KB for each module that is alive, one for all 40; 16 share those costs.
"""


@functools.cache
def _target_machine() -> Any:
    return target_machine(jit=True)


class _Linkers:
    """The current linker, which is replaced when it is full."""

    def __init__(self) -> None:
        self._linker: Any = None
        self._modules = 0
        self._numbers = count()
        self.lock = new_lock(Rank.LINKERS)

    def take(self) -> tuple[Any, str]:
        """Return a linker and the name of its next module."""
        import llvmlite.binding as llvm

        with self.lock:
            if self._linker is None or self._modules == _MODULES_PER_LINKER:
                # JITLink keeps a module in one mapping, so that code reaches its constants. It knows COFF in
                # part only.
                self._linker = llvm.create_lljit_compiler(_target_machine(), use_jit_link=os.name != "nt")
                self._modules = 0
            self._modules += 1
            return self._linker, f"gradtape.{next(self._numbers)}"


linkers: Final = _Linkers()


class LoadedModule:
    """Machine code in memory, unmapped when the last reference to this object is gone.

    Parameters
    ----------
    object_code : bytes
        What :func:`~gradtape.runtime.compile.engine.compile_object` returned, in this process or in another one.
    kernel : str, optional
        The symbol that :func:`call_flat` calls, with the signature
        ``int32_t (void **inputs, void **outputs, void *workspace)``.
    exports : sequence of str, optional
        Further symbols whose addresses will be needed.
    imports : mapping of str to int, optional
        Addresses of functions and data that the code names but that the process's libraries do not export:
        BLAS routines found through SciPy, Python's and NumPy's types and C functions.
    drain : str, optional
        A symbol of the code: a function without arguments that frees the memory which the code keeps between calls.
    needs : sequence of object, optional
        What owns code that this code calls, and keeps in memory.

    Examples
    --------
    >>> from gradtape.runtime.compile.engine import compile_object
    >>> code = compile_object("define i32 @kernel(ptr %i, ptr %o, ptr %w) { ret i32 7 }", "seven")
    >>> LoadedModule(code).address("kernel") != 0
    True
    """

    __slots__ = ("__weakref__", "_call", "_free", "_linker", "_needs", "_tracker", "size")

    def __init__(
        self,
        object_code: bytes,
        kernel: str = "kernel",
        *,
        exports: Sequence[str] = (),
        imports: Mapping[str, int] | None = None,
        drain: str | None = None,
        needs: Sequence[object] = (),
    ) -> None:
        import llvmlite.binding as llvm

        builder = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process()
        for name in (kernel, *exports, *[drain][: drain is not None]):
            builder.export_symbol(name)
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        self._linker, name = linkers.take()
        self._tracker = builder.link(self._linker, name)
        self._call: Callable[[bytes, bytes, int | None], int] = _KERNEL(self._tracker[kernel])
        self.size = len(object_code)
        self._needs = tuple(needs)
        self._free: Callable[[], None] | None = None
        if drain is not None:
            self._free = _DRAIN(self._tracker[drain])
            weakref.finalize(self, _drained, self._free, self._tracker).atexit = False
            _with_drain.add(self)

    def drain(self) -> None:
        """Free the memory that the code keeps between calls."""
        if self._free is not None:
            self._free()

    def address(self, symbol: str) -> int:
        """Return the address of an exported symbol, valid as long as this object lives."""
        address: int = self._tracker[symbol]
        return address


class KernelCode(Protocol):
    """An object with a kernel that can be called from Python."""

    _call: Callable[[bytes, bytes, int | None], int]


_with_drain: Final[weakref.WeakSet[LoadedModule]] = weakref.WeakSet()


def _drained(free: Callable[[], None], code: object) -> None:
    """Free the memory that machine code keeps, before it is unmapped; `code` keeps it mapped so long."""
    free()


def drain_all() -> None:
    """Free the memory that all loaded code keeps between calls."""
    for loaded in list(_with_drain):
        loaded.drain()


@functools.cache
def _pointer_list(length: int) -> struct.Struct:
    return struct.Struct(f"{length}P")


def call_flat(
    loaded: KernelCode,
    inputs: Sequence[npt.NDArray[Any]],
    outputs: Sequence[npt.NDArray[Any]],
    workspace: npt.NDArray[Any] | None = None,
) -> int:
    """Run a kernel on arrays that are known to be what it expects, and return its status.

    Parameters
    ----------
    loaded : KernelCode
        The kernel, usually a `LoadedModule`.
    inputs, outputs : sequence of ndarray
        C-contiguous, aligned, native arrays of the kernel's dtypes and shapes, in the kernel's order. Nothing
        is checked.
    workspace : ndarray, optional
        Memory of the size that the kernel was compiled for, on a 64-byte boundary.

    Returns
    -------
    int
        Zero for success, or the kernel's own status.
    """
    read = ctypes.c_void_p.from_address
    offset = ARRAY_DATA
    sources = _pointer_list(len(inputs)).pack(*[read(id(array) + offset).value for array in inputs])
    targets = _pointer_list(len(outputs)).pack(*[read(id(array) + offset).value for array in outputs])
    scratch = None if workspace is None else read(id(workspace) + offset).value
    status: int = loaded._call(sources, targets, scratch)
    return status
