"""Addresses of the routines that a kernel names: BLAS, LAPACK, special functions, resident routines, Python's C API."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from typing import Any

from gradtape.errors import LoweringError
from gradtape.lower.resident.blas_threads import GET, SET, WANTED, blas_addresses
from gradtape.lower.resident.interrupts import POLL, RAISE, poll_address, raise_address
from gradtape.lower.resident.memory import PREFIX, arena_address
from gradtape.lower.resident.threads import RUN_BLOCKS, run_blocks_address
from gradtape.lower.target.extensions import compiled_module
from gradtape.lower.target.host import python_function


@functools.cache
def address_of(symbol: str) -> int:
    """Return the address of a routine that a kernel names as ``module.function``.

    Raises
    ------
    LoweringError
        Where SciPy does not have it.

    Examples
    --------
    >>> address_of("scipy.linalg.cython_blas.dgemm") != 0
    True
    """
    if symbol == POLL:
        return poll_address()
    if symbol == RAISE:
        return raise_address()
    if symbol == RUN_BLOCKS:
        return run_blocks_address()
    if symbol.startswith(PREFIX):
        return arena_address(symbol)
    if symbol in (GET, SET, WANTED):
        return blas_addresses(compiled_module("scipy.linalg.cython_blas").__file__ or "")[symbol]
    module, _, name = symbol.rpartition(".")
    if module == "python":
        return python_function(name)
    library: Any = compiled_module(module)
    table: dict[str, Any] = library.__pyx_capi__
    if name not in table:
        raise LoweringError(f"{module} has no routine {name}", remedy="install a current SciPy")
    return capsule_pointer(table[name])


def addresses_of(symbols: Iterable[str]) -> dict[str, int]:
    """Return the addresses of routines, by their symbols."""
    return {symbol: address_of(symbol) for symbol in symbols}


@functools.cache
def special_function(name: str) -> str:
    """Return the symbol of a special function's overload on doubles.

    Raises
    ------
    LoweringError
        Where SciPy does not have it.
    """
    module = "scipy.special.cython_special"
    table: dict[str, Any] = compiled_module(module).__pyx_capi__
    for candidate in (name, f"__pyx_fuse_1{name}", f"__pyx_fuse_0{name}"):
        if candidate in table:
            signature = (_capsule_name(table[candidate]) or b"").decode()
            if "complex" not in signature and "float " not in signature.replace("double", ""):
                return f"{module}.{candidate}"
    raise LoweringError(f"scipy.special has no compiled function {name}", why="the interpreter runs it")


def _capsule_name(capsule: object) -> bytes | None:
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    name: bytes | None = name_of(capsule)
    return name


def capsule_pointer(capsule: object) -> int:
    """Return the pointer in a capsule."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = pointer_of(capsule, _capsule_name(capsule))
    return address
