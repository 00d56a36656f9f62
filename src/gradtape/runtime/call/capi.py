"""The C API of Python and NumPy, as native entries use it: layouts of objects, and addresses of functions, types and dtypes."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy._core._multiarray_umath as _multiarray

from gradtape.lower.target.host import python_function
from gradtape.lower.target.symbols import capsule_pointer

__all__ = ["addresses", "array_type", "numpy_function", "scalar_holds_data", "supports_dtype"]

FREE_THREADED: Final = "t" in getattr(sys, "abiflags", "")

WORD: Final = 8
HEAD: Final = object.__basicsize__
TYPE: Final = HEAD - WORD
TUPLE_ITEMS: Final = tuple.__basicsize__
LIST_ITEMS: Final = HEAD + WORD
"""Bytes from the beginning of an object to what follows its head, to its type, to a tuple's items, to the address of a list's."""

ARRAY_DATA, ARRAY_NDIM, ARRAY_DIMENSIONS, ARRAY_DESCR, ARRAY_FLAGS = (
    HEAD,
    HEAD + 8,
    HEAD + 16,
    HEAD + 40,
    HEAD + 48,
)
"""Bytes to the fields of an ndarray."""

DTYPE_ORDER, DTYPE_NUMBER = HEAD + 10, HEAD + 12
"""Bytes to the fields of a dtype: the character of its byte order, and the number of its type."""

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x0001, 0x0100, 0x0400
"""Bits of an ndarray's flags."""


def unexpected_fields(array: np.ndarray[Any, Any]) -> list[str]:
    """Return the names of the fields of an ndarray, and of its dtype, that are not at the offsets from which native code reads them.

    Examples
    --------
    >>> unexpected_fields(np.zeros((3, 5))[:, ::2])
    []
    """
    start = id(array)
    dimensions = _word(start + ARRAY_DIMENSIONS)
    flags, known = array.flags, C_CONTIGUOUS | ALIGNED | WRITEABLE
    expected = C_CONTIGUOUS * flags.c_contiguous | ALIGNED * flags.aligned | WRITEABLE * flags.writeable
    fields = {
        "data": (_word(start + ARRAY_DATA), array.ctypes.data),
        "ndim": (_int(start + ARRAY_NDIM), array.ndim),
        "descr": (_word(start + ARRAY_DESCR), id(array.dtype)),
        "flags": (_int(start + ARRAY_FLAGS) & known, expected),
        "byteorder": (_byte(id(array.dtype) + DTYPE_ORDER), ord(array.dtype.byteorder)),
        "num": (_int(id(array.dtype) + DTYPE_NUMBER), array.dtype.num),
    }
    unexpected = [name for name, (read, actual) in fields.items() if read != actual]
    if "ndim" not in unexpected:  # otherwise this may not be a pointer
        extents = tuple(_word(dimensions + WORD * axis) for axis in range(array.ndim))
        unexpected += ["dimensions"] * (extents != array.shape)
    return unexpected


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


def _int(address: int) -> int:
    return ctypes.c_int.from_address(address).value


def _byte(address: int) -> int:
    return ctypes.c_ubyte.from_address(address).value


def _check_layout() -> None:
    """Check all fields that native code reads by their offsets.

    Raises
    ------
    ImportError
        Where this NumPy or this Python has another layout.
    """
    matrix = np.zeros((3, 5), np.int16)
    unaligned, swapped = (
        np.zeros(17, np.uint8)[1:].view(np.float64),
        np.zeros(2, np.dtype(float).newbyteorder()),
    )
    arrays = matrix, matrix[:, ::2], unaligned, swapped
    unexpected = {name for array in arrays for name in unexpected_fields(array)}
    if unexpected:
        fields = ", ".join(sorted(unexpected))
        raise ImportError(f"gradtape does not know the layout of arrays in NumPy {np.__version__}: {fields}")
    pair, items = (matrix, unaligned), [matrix, unaligned]
    addresses_of_items = [id(matrix), id(unaligned)]
    in_tuple = [_word(id(pair) + TUPLE_ITEMS + WORD * k) for k in range(2)]
    start = _word(id(items) + LIST_ITEMS)
    if in_tuple != addresses_of_items or [_word(start), _word(start + WORD)] != addresses_of_items:
        raise ImportError(f"gradtape does not know the layout of tuples and lists in Python {sys.version}")


_check_layout()

_PYTHON_FUNCTIONS: Final = {
    "PyErr_NoMemory": "ptr ()",
    "PyEval_RestoreThread": "void (ptr)",
    "PyEval_SaveThread": "ptr ()",
    "PyList_New": "ptr (i64)",
    "PyList_SetItem": "i32 (ptr, i64, ptr)",
    "PyLong_AsLongLongAndOverflow": "i64 (ptr, ptr)",
    "PyMem_RawFree": "void (ptr)",
    "PyMem_RawMalloc": "ptr (i64)",
    "PyObject_Vectorcall": "ptr (ptr, ptr, i64, ptr)",
    "PyTuple_New": "ptr (i64)",
    "Py_DecRef": "void (ptr)",
    "Py_IncRef": "void (ptr)",
}
_NUMPY_FUNCTIONS: Final = {
    "PyArray_Scalar": ("ptr (ptr, ptr, ptr)", 60),
    "PyArray_NewFromDescr": ("ptr (ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)", 94),
    "PyDataMem_SetHandler": ("ptr (ptr)", 304),
}
"""Functions that a native entry calls, with their types in LLVM's notation; NumPy's with their indices into its C API table, which its
ABI fixes."""

_OTHER_FUNCTIONS: Final = {
    "allocate": "ptr (ptr, i64)",
    "raise": "ptr ()",
    "pool_allocate": "ptr (i64)",
    "pool_release": "void (ptr)",
}
"""A type's own function that makes objects, and routines of `gradtape.lower.resident`."""

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
    """Return the ctypes type of arrays of a length; it is cached, because such types are in reference cycles.

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
    content = ctypes.string_at(id(example) + HEAD, dtype.itemsize)
    return content == np.asarray(example).tobytes()


def prototype(function: str) -> tuple[str, list[str]]:
    """Return the result type and the parameter types of a C function that a native entry calls.

    Examples
    --------
    >>> prototype("PyList_SetItem")
    ('i32', ['ptr', 'i64', 'ptr'])
    """
    name = function.partition(".")[0]
    text = _PYTHON_FUNCTIONS.get(name) or _OTHER_FUNCTIONS.get(name) or _NUMPY_FUNCTIONS[name][0]
    result, _, parameters = text.partition(" ")
    return result, [kind for kind in parameters.strip("()").split(", ") if kind]


def numpy_function(name: str) -> int:
    """Return the address of a function of NumPy's C API.

    Examples
    --------
    >>> numpy_function("PyArray_Scalar") != 0
    True
    """
    table = ctypes.cast(capsule_pointer(_multiarray._ARRAY_API), ctypes.POINTER(ctypes.c_void_p))
    address: int = table[_NUMPY_FUNCTIONS[name][1]] or 0
    return address


@functools.cache
def _fixed_addresses() -> dict[str, int]:
    found = {name: python_function(name) for name in _PYTHON_FUNCTIONS}
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
