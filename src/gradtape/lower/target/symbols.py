"""Addresses of the routines that a kernel names: BLAS, LAPACK, special functions, resident routines, Python's C API."""

from __future__ import annotations

import ctypes
import functools
import importlib
import operator
import re
import struct
from collections.abc import Iterable
from typing import Any, Final

from gradtape.errors import LoweringError
from gradtape.lower.resident.blas_threads import GET, SET, WANTED, blas_addresses
from gradtape.lower.resident.callbacks import CALL_PYTHON, call_python_address
from gradtape.lower.resident.errors import RAISED, raised_address
from gradtape.lower.resident.interrupts import OVER, POLL, RAISE, over_address, poll_address, raise_address
from gradtape.lower.resident.memory import ARENA, POOL, memory_address
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
    if symbol == OVER:
        return over_address()
    if symbol == RAISE:
        return raise_address()
    if symbol == RAISED:
        return raised_address()
    if symbol == CALL_PYTHON:
        return call_python_address()
    if symbol == RUN_BLOCKS:
        return run_blocks_address()
    if symbol.startswith((ARENA, POOL)):
        return memory_address(symbol)
    if symbol in (GET, SET, WANTED):
        return blas_addresses(compiled_module("scipy.linalg.cython_blas").__file__ or "")[symbol]
    if symbol.startswith(LOOPS):
        return _loop_address(symbol)
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
def special_function(name: str) -> str | None:
    """Return the symbol of a special function's overload on doubles; None where it has only a loop.

    Examples
    --------
    >>> special_function("gamma")
    'scipy.special.cython_special.__pyx_fuse_1gamma'
    """
    module = "scipy.special.cython_special"
    table: dict[str, Any] = compiled_module(module).__pyx_capi__
    for candidate in (name, f"__pyx_fuse_1{name}", f"__pyx_fuse_0{name}"):
        if candidate in table:
            signature = (_capsule_name(table[candidate]) or b"").decode()
            if _ON_DOUBLES.match(signature):
                return f"{module}.{candidate}"
    return None


_ON_DOUBLES: Final = re.compile(r"double \(double(, double)*(, int __pyx_skip_dispatch)?\)")


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


LOOPS: Final = "scipy.special.loops."
"""The prefix of the symbols of the loops of ufuncs: ``scipy.special.loops.airy.d->dddd``, and the same with ``.data``."""

_DATA: Final = ".data"

_HEAD: Final = struct.Struct("4i2Pi")
"""The fields of a ufunc object after Python's own: nin, nout, nargs, identity, functions, data, ntypes."""


def has_loop_data(name: str, types: str) -> bool:
    """Return whether a loop of a ufunc of SciPy has data.

    Raises
    ------
    LoweringError
        Where SciPy does not have the loop.
    """
    return _loop(name, types)[1] != 0


def find_loop(name: str, types: str) -> str:
    """Return the loop of a ufunc of SciPy for operands of these types.

    Examples
    --------
    >>> find_loop("airy", "d")
    'd->dddd'
    """
    ufunc = _ufunc(name)
    return next(
        (loop for loop in ufunc.types if loop.partition("->")[0] == types), f"{types}->{'d' * ufunc.nout}"
    )


def _loop_address(symbol: str) -> int:
    path = symbol.removeprefix(LOOPS)
    name, _, types = path.removesuffix(_DATA).rpartition(".")
    return _loop(name, types)[path.endswith(_DATA)]


def _ufunc(name: str) -> Any:
    """Return a ufunc by its path in `scipy.special`."""
    try:
        return operator.attrgetter(name)(importlib.import_module("scipy.special"))
    except AttributeError:
        raise LoweringError(
            f"scipy.special has no function {name}", why="another version of SciPy is installed"
        ) from None


@functools.cache
def _loop(name: str, types: str) -> tuple[int, int]:
    """Return the addresses of a loop of a ufunc and of its data."""
    ufunc = _ufunc(name)
    if types not in ufunc.types:
        raise LoweringError(
            f"scipy.special.{name} has no loop {types}", why="another version of SciPy is installed"
        )
    start = id(ufunc) + object.__basicsize__
    nin, nout, _, _, functions, data, count = _HEAD.unpack(ctypes.string_at(start, _HEAD.size))
    if (nin, nout, count) != (ufunc.nin, ufunc.nout, ufunc.ntypes):
        raise LoweringError(
            "gradtape does not know the layout of this NumPy's ufuncs", why="the interpreter runs it"
        )
    place = ufunc.types.index(types) * ctypes.sizeof(ctypes.c_void_p)
    read = ctypes.c_void_p.from_address
    return read(functions + place).value or 0, (read(data + place).value or 0) if data else 0
