"""Functions whose results NumPy leaves as ndarrays, or that the standard calls otherwise than NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gradtape.array_api.creation import asarray, check_device
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Array:
    """Return the array with another dtype.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.astype(xp.asarray([1.5, 2.5]), xp.int64)
    Array([1, 2], dtype=int64)
    """
    check_device(device)
    return asarray(x).astype(dtype, copy=copy)


def nonzero(x: Any, /) -> tuple[Array, ...]:
    """Return the positions of the elements that are not zero, one array for each axis.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.nonzero(xp.asarray([0.0, 3.0, 4.0]))
    (Array([1, 2], dtype=int64),)
    """
    return tuple(map(asarray, np.nonzero(x)))


def finfo(type: Any, /) -> FloatLimits:
    """Return the limits of a floating dtype, or of the dtype of an array, as Python floats.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.finfo(xp.float32).bits
    32
    """
    dtype = _dtype_of(type)
    limits = np.finfo(dtype)
    return FloatLimits(
        int(limits.bits),
        float(limits.eps),
        float(limits.max),
        float(limits.min),
        float(limits.smallest_normal),
        limits.dtype,
    )


def iinfo(type: Any, /) -> np.iinfo[Any]:
    """Return the limits of an integer dtype, or of the dtype of an array.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.iinfo(xp.int8).max
    127
    """
    return np.iinfo(_dtype_of(type))


class FloatLimits(NamedTuple):
    """The limits of a floating dtype, as the standard requires them of ``finfo``."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


def _dtype_of(given: Any) -> Any:
    return given.dtype if isinstance(given, Handle | np.ndarray) else given


def clip(x: Any, /, min: Any = None, max: Any = None) -> Array:
    """Return the elements, with those beyond a bound replaced by it.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.clip(xp.asarray([-2.0, 0.5]), 0, 1)
    Array([0. , 0.5])
    """
    return asarray(np.clip(asarray(x), min, max))


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return the elements in order along an axis.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.sort(xp.asarray([2.0, 3.0, 1.0]), descending=True)
    Array([3., 2., 1.])
    """
    ordered = np.sort(asarray(x), axis=axis, stable=stable)
    return asarray(np.flip(ordered, axis=axis) if descending else ordered)


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return the positions of the elements in order; of equal elements, the first stands first.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.argsort(xp.asarray([2.0, 3.0, 2.0]), descending=True)
    Array([1, 0, 2], dtype=int64)
    """
    if not descending:
        return asarray(np.argsort(asarray(x), axis=axis, stable=stable))
    # The order of the reversed array, reversed, keeps equal elements in their order.
    backwards = np.flip(np.argsort(np.flip(asarray(x), axis=axis), axis=axis, stable=stable), axis=axis)
    return asarray(x.shape[axis] - 1 - backwards)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Array]:
    """Return arrays of coordinates, in a list.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.meshgrid(xp.asarray([1, 2]), xp.asarray([3]))
    [Array([[1, 2]], dtype=int64), Array([[3, 3]], dtype=int64)]
    """
    return list(np.meshgrid(*map(asarray, arrays), indexing=indexing))  # type: ignore[call-overload] # a str


def broadcast_arrays(*arrays: Any) -> list[Array]:
    """Return the arrays with one shape, in a list.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.broadcast_arrays(xp.asarray([1, 2]), xp.asarray(3))
    [Array([1, 2], dtype=int64), Array([3, 3], dtype=int64)]
    """
    return list(map(asarray, np.broadcast_arrays(*map(asarray, arrays))))


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Array:
    """Return for each element of an array whether another array has it.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.isin(xp.asarray([1, 2, 3]), xp.asarray([1, 3]))
    Array([ True, False,  True], dtype=bool)
    """
    return asarray(np.isin(asarray(x1), asarray(x2), invert=invert))


def unique_all(x: Any, /) -> Any:
    """Return the distinct elements, where they first are, the group of each element, and the sizes of the groups.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.unique_all(xp.asarray([2, 2, 1])).counts
    Array([1, 2], dtype=int64)
    """
    return _as_arrays(np.unique_all(asarray(x)))


def unique_counts(x: Any, /) -> Any:
    """Return the distinct elements and how often each is there.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.unique_counts(xp.asarray([2, 2, 1])).counts
    Array([1, 2], dtype=int64)
    """
    return _as_arrays(np.unique_counts(asarray(x)))


def unique_inverse(x: Any, /) -> Any:
    """Return the distinct elements and the group of each element.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.unique_inverse(xp.asarray([2, 2, 1])).inverse_indices
    Array([1, 1, 0], dtype=int64)
    """
    return _as_arrays(np.unique_inverse(asarray(x)))


def _as_arrays(made: Any) -> Any:
    """Return the same named tuple, with Arrays in it."""
    return type(made)(*map(asarray, made))
