"""Abstract values: the properties of an array that are known before it is computed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np

from gradtape.locks import Rank, new_lock

Shape = tuple[int, ...]


class Aval:
    """The shape, dtype and weakness of an array: all that a trace may depend on.

    `aval` makes them, one for each: they are equal exactly if they are the same object, so that tables of them are quick.

    Parameters
    ----------
    shape : tuple of int
        The extents.
    dtype : numpy.dtype
        The element type, always in native byte order.
    weak : bool
        True for what stems from Python numbers alone: such a value takes the dtype of what it meets (NEP 50).
    """

    __slots__ = ("__weakref__", "dtype", "ndim", "shape", "weak")

    def __init__(self, shape: Shape, dtype: np.dtype[Any], weak: bool = False) -> None:
        self.shape: Final = shape
        self.dtype: Final = dtype
        self.weak: Final = weak
        self.ndim: Final = len(shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return aval, (self.shape, self.dtype, self.weak)

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    def __repr__(self) -> str:
        return f"{short_dtype(self.dtype)}[{','.join(map(str, self.shape))}]{'*' if self.weak else ''}"


_alive: Final[WeakValueDictionary[tuple[Shape, np.dtype[Any], bool], Aval]] = WeakValueDictionary()
_making: Final = new_lock(Rank.LEAF)


@lru_cache(maxsize=16384)
def aval(shape: Shape, dtype: np.dtype[Any], weak: bool = False) -> Aval:
    """Return the one `Aval` with this shape, dtype and weakness."""
    with _making:
        return _alive.setdefault((shape, dtype, weak), Aval(shape, dtype, weak))


@lru_cache(maxsize=256)
def short_dtype(dtype: np.dtype[Any]) -> str:
    """Return the name that prints use: ``f64``, ``i32``, ``u8``, ``bool``, ``c128``."""
    return dtype.name if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize * 8}"


BOOL: Final = np.dtype(np.bool_)
FLOAT64: Final = np.dtype(np.float64)
INT64: Final = np.dtype(np.int64)
INTP: Final = np.dtype(np.intp)

PYTHON_DTYPES: Final[dict[type, np.dtype[Any]]] = {
    bool: BOOL,
    int: INT64,
    float: FLOAT64,
    complex: np.dtype(np.complex128),
}


def part_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the parts of a complex dtype."""
    return np.dtype(f"f{dtype.itemsize // 2}")


def whole_dtype(part: np.dtype[Any]) -> np.dtype[Any]:
    """Return the complex dtype whose parts have this dtype."""
    return np.dtype(f"c{2 * part.itemsize}")


@lru_cache(maxsize=256)
def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Return whether values of this dtype carry derivatives."""
    return dtype.kind in "fc"


@lru_cache(maxsize=256)
def carries_derivatives(dtype: np.dtype[Any]) -> bool:
    """Return whether a value of this dtype may have a tangent: floats, and the stacks that loops leave behind."""
    return dtype.kind in "fcO"
