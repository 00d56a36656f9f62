"""Addresses of what Python and NumPy keep in memory: C functions, types, dtype objects."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy._core._multiarray_umath as _multiarray

__all__ = ["addresses", "array_type", "numpy_function", "scalar_holds_data", "supports_dtype"]

_PYTHON_FUNCTIONS: Final = (
    "PyErr_NoMemory",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyList_New",
    "PyList_SetItem",
    "PyLong_AsLongLongAndOverflow",
    "PyMem_RawFree",
    "PyMem_RawMalloc",
    "PyObject_Vectorcall",
    "PyTuple_New",
    "Py_DecRef",
    "Py_IncRef",
)
_NUMPY_FUNCTIONS: Final = {"PyArray_Scalar": 60, "PyArray_NewFromDescr": 94, "PyDataMem_SetHandler": 304}
"""Indices into NumPy's C API table, fixed by its ABI."""

_OBJECTS: Final = {
    "PyComplex_Type": complex,
    "PyFloat_Type": float,
    "PyLong_Type": int,
    "PyArray_Type": np.ndarray,
    "Py_False": False,
    "Py_None": None,
    "Py_True": True,
}
_ALLOCATION_SLOT: Final = 47


def supports_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of the dtype can pass through a native entry: NumPy's own numbers, natively ordered.

    Examples
    --------
    >>> supports_dtype(np.dtype("float64")), supports_dtype(np.dtype(">f8")), supports_dtype(np.dtype("O"))
    (True, False, False)
    """
    return dtype.kind in "biufc" and dtype is np.dtype(dtype.type)


@functools.lru_cache(maxsize=1024)
def array_type(kind: Any, length: int) -> Any:
    """Return the type of C arrays of a length: types are in cycles, so the same ones are used again.

    Examples
    --------
    >>> array_type(ctypes.c_int64, 3)(1, 2, 3)[2]
    3
    """
    return kind * length


@functools.cache
def scalar_holds_data(dtype: np.dtype[Any]) -> bool:
    """Whether a NumPy scalar of the dtype keeps its number right behind the object's head.

    True for all but NumPy's booleans, which are two fixed objects, and checked here on an example.
    """
    if dtype.kind == "b":
        return False
    example = dtype.type(3)
    content = ctypes.string_at(id(example) + object.__basicsize__, dtype.itemsize)
    return content == np.asarray(example).tobytes()


def numpy_function(name: str) -> int:
    """Return the address of a function of NumPy's C API.

    Examples
    --------
    >>> numpy_function("PyArray_Scalar") != 0
    True
    """
    take = ctypes.pythonapi.PyCapsule_GetPointer
    take.restype = ctypes.c_void_p
    take.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(take(_multiarray._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    address: int = table[_NUMPY_FUNCTIONS[name]] or 0
    return address


@functools.cache
def _fixed_addresses() -> dict[str, int]:
    python = ctypes.pythonapi
    found = {name: ctypes.cast(getattr(python, name), ctypes.c_void_p).value for name in _PYTHON_FUNCTIONS}
    found.update((name, numpy_function(name)) for name in _NUMPY_FUNCTIONS)
    found.update((name, id(thing)) for name, thing in _OBJECTS.items())
    return {name: address for name, address in found.items() if address}


@functools.cache
def _dtype_addresses(dtype: np.dtype[Any]) -> dict[str, int]:
    if not supports_dtype(dtype):
        raise TypeError(f"a native entry cannot take or make arrays of dtype {dtype}")
    slot = ctypes.pythonapi.PyType_GetSlot
    slot.restype = ctypes.c_void_p
    slot.argtypes = [ctypes.py_object, ctypes.c_int]
    return {
        f"dtype.{dtype.name}": id(np.dtype(dtype.type)),
        f"scalar.{dtype.name}": id(dtype.type),
        f"allocate.{dtype.name}": slot(dtype.type, _ALLOCATION_SLOT),
    }


def addresses(dtypes: Iterable[np.dtype[Any]]) -> dict[str, int]:
    """Return the address of every name that a native entry may use, given the dtypes it deals in.

    Examples
    --------
    >>> addresses([np.dtype("float64")])["scalar.float64"] == id(np.float64)
    True
    """
    found = dict(_fixed_addresses())
    for dtype in dtypes:
        found.update(_dtype_addresses(dtype))
    return found
