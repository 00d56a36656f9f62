"""The functions of `autograd.numpy` that differ from NumPy's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gradtape.trace.array.handle import Handle

numpy_version = np.__version__


def _sequence(arrays: Any) -> Any:
    """Return what NumPy takes for several arrays: an array, a list or a tuple."""
    return arrays if isinstance(arrays, np.ndarray | Handle | Sequence) else list(arrays)


def concatenate(arr_list: Iterable[Any], axis: int | None = 0, **kwargs: Any) -> Any:
    """Join arrays along an axis, as `numpy.concatenate`."""
    return np.concatenate(_sequence(arr_list), axis, **kwargs)


def concatenate_args(axis: int | None, *args: Any) -> Any:
    """Join the arguments along an axis."""
    return np.concatenate(args, axis)


def vstack(tup: Iterable[Any], **kwargs: Any) -> Any:
    """Stack arrays as rows, as `numpy.vstack`."""
    return np.vstack(_sequence(tup), **kwargs)


row_stack = vstack


def hstack(tup: Iterable[Any], **kwargs: Any) -> Any:
    """Stack arrays as columns, as `numpy.hstack`."""
    return np.hstack(_sequence(tup), **kwargs)


def column_stack(tup: Iterable[Any]) -> Any:
    """Stack arrays as columns of a matrix, as `numpy.column_stack`."""
    return np.column_stack(_sequence(tup))


def stack(arrays: Iterable[Any], axis: int = 0, **kwargs: Any) -> Any:
    """Join arrays along a new axis, as `numpy.stack`."""
    return np.stack(_sequence(arrays), axis, **kwargs)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Append values to an array, as `numpy.append`."""
    return np.append(arr, values, axis)


def array(A: Any, *args: Any, **kwargs: Any) -> Any:
    """Return an array of nested lists of numbers and traced arrays."""
    return np.array(A, *args, **kwargs)


def array_from_args(array_args: Any, array_kwargs: Any, *args: Any) -> Any:
    """Return an array of the arguments."""
    return np.array(args, *array_args, **array_kwargs)


def where(condition: Any, *args: Any, **kwargs: Any) -> Any:
    """Choose elements, as `numpy.where`; of Python numbers and lists alone, a number or list."""
    if not args and not kwargs:
        return np.where(condition)
    x, y = (*args, *(kwargs[name] for name in ("x", "y") if name in kwargs))
    result = np.where(condition, x, y)
    if any(map(_holds_arrays, (condition, x, y))) or not isinstance(result, np.ndarray):
        return result
    return result.tolist()


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return square matrices with the last axis of an array as a diagonal, the one that `numpy.diagonal` returns for these arguments."""
    above, below = max(offset, 0), max(-offset, 0)
    rows = D[..., None] * np.eye(D.shape[-1], D.shape[-1] + above + below, above)
    square = np.pad(rows, [(0, 0)] * (D.ndim - 1) + [(below, above), (0, 0)])
    return np.moveaxis(square, (-2, -1), (axis1, axis2))


def metadata(A: Any) -> tuple[Any, int, Any, bool]:
    """Return the shape, the number of dimensions, the dtype of an array, and whether it is complex."""
    return np.shape(A), np.ndim(A), np.result_type(A), bool(np.iscomplexobj(A))


def _holds_arrays(x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(map(_holds_arrays, x))
    return isinstance(x, Handle | np.ndarray | np.generic)
