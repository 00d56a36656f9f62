"""Updates of single rows: in the array's own memory where nobody else holds it."""

from __future__ import annotations

import sys
from typing import Any, Final, Literal

import numpy as np

from ..errors import DtypeError, ShapeError
from ..ir.builder import here
from ..ir.graph import Value, constant
from ..ir.op import NDArray
from ..ir.types import aval
from ..ops.cast import convert, stop_gradient
from ..ops.indexing import put_add, put_row
from .force import force
from .guards import trace_of
from .handle import Handle
from .slices import IndexedSlices

How = Literal["add", "subtract", "set"]


def scatter(handle: Handle, slices: Any, how: How, caller: str, *, followed: bool = True) -> None:
    """Change the rows of an array that slices name.

    Parameters
    ----------
    handle : Handle
        What is changed, in place.
    slices : IndexedSlices
        Which rows, and by what. Repeated rows add up; of repeated rows to be set, the last wins.
    how : {"add", "subtract", "set"}
        What happens to a row.
    caller : str
        For errors.
    followed : bool
        Whether tapes follow the change (a variable's changes are no part of any derivative).
    """
    value = handle.value
    rows, places = _fitting(value, slices, caller)
    involved = (value, rows, places)
    recorded = followed and any(mark.recording for each in involved for mark in each.marks)
    if recorded or handle._base is not None or any(trace_of(each) is not None for each in involved):
        handle.rebind(_scattered(value, rows, places, how))
    else:
        handle.rebind(_updated(value, rows, places, how))


def scatter_ndarray(array: NDArray, slices: Any, how: How, caller: str) -> None:
    """Change the rows of an ndarray; see `scatter`."""
    rows, places = _fitting(Value(aval(array.shape, array.dtype)), slices, caller)
    _apply(array, *_numbers(array.shape[0], rows, places), how)


def _fitting(value: Value, slices: Any, caller: str) -> tuple[Value, Value]:
    """Return the rows, in the dtype of what they change, and where they belong."""
    if not isinstance(slices, IndexedSlices):
        raise DtypeError(
            f"{caller}: slices must be IndexedSlices, got a {type(slices).__name__}",
            where=here.site,
            remedy="gt.IndexedSlices(values, indices), or the gradient of a table that is read by gathers of its rows",
        )
    rows, places = slices._parts()
    if (
        (slices.dense_shape or value.shape) != value.shape
        or not value.ndim
        or rows.shape[1:] != value.shape[1:]
    ):
        raise ShapeError(
            f"{caller}: slices of dense_shape {slices.dense_shape} with rows of shape {rows.shape[1:]} do not fit "
            f"an array of shape {value.shape}",
            where=here.site,
            remedy=f"rows of shape {value.shape[1:]}" if value.ndim else "an array of rank 1 or more",
        )
    if not np.can_cast(rows.dtype, value.dtype, "same_kind"):
        raise DtypeError(
            f"{caller}: rows of {rows.dtype} cannot be put into an array of {value.dtype}",
            where=here.site,
            remedy="convert one of them first",
        )
    return convert(rows, value.dtype), places


def _scattered(value: Value, rows: Value, places: Value, how: How) -> Value:
    if how == "set":
        return put_row(value, rows, places)
    return put_add(value, rows if how == "add" else -rows, places)


def _updated(value: Value, rows: Value, places: Value, how: How) -> Value:
    """Return the changed array. Where nobody else holds its memory, it takes it over.

    Then what has been recorded with the old array is still to be had: the old value becomes the new one with the old rows put back
    (H. G. Baker, "Shallow binding makes functional arrays fast", SIGPLAN Notices 26, 1991). No tape follows that.
    """
    force([value])
    numbers, at = _numbers(value.shape[0], rows, places)
    alone = _is_alone(value)
    data = value.data
    assert data is not None
    if not alone:
        data = data.copy()
        _apply(data, numbers, at, how)
        return constant(data)
    touched = np.unique(at)
    before = data[touched]
    _apply(data, numbers, at, how)
    new = constant(data)
    past = stop_gradient(put_row(new, constant(before), constant(touched))).node
    assert past is not None
    value.node, value.index, value.data, value.owner = past, 0, None, None
    past.outs = (value,)
    return new


def _numbers(extent: int, rows: Value, places: Value) -> tuple[NDArray, NDArray]:
    """Return rows and places as arrays, the latter from the front.

    Raises
    ------
    IndexError
        Where a place is out of bounds; nothing has been changed then.
    """
    numbers, at = force([rows, places])
    if at.size and not (-extent <= at.min() and at.max() < extent):
        wrong = at[(at < -extent) | (at >= extent)][0]
        raise IndexError(f"index {wrong} is out of bounds for axis 0 with size {extent}")
    return numbers, at % max(extent, 1)


def _apply(data: NDArray, rows: NDArray, places: NDArray, how: How) -> None:
    if how == "set":
        data[places] = rows
        return
    unique, inverse = np.unique(places, return_inverse=True)
    if unique.size < places.size:
        # Sums over runs of the sorted rows: ufunc.at takes ten times as long.
        order = np.argsort(inverse, kind="stable")
        starts = np.searchsorted(inverse[order], np.arange(unique.size))
        places, rows = unique, np.add.reduceat(rows[order], starts, axis=0)
    with np.errstate(all="ignore"):
        data[places] = (np.add if how == "add" else np.subtract)(data[places], rows)


def _holders(value: Value) -> int:
    data = value.data
    return sys.getrefcount(data)


_ALONE: Final = _holders(constant(np.zeros(1)))
"""What `_holders` returns for an array that only its value holds."""


def _is_alone(value: Value) -> bool:
    """Return whether only this value holds its array, and the array its memory."""
    return (
        _holders(value) == _ALONE
        and value.data is not None
        and value.data.flags.carray
        and value.data.flags.owndata
    )
