"""Updates of single rows: in place where nothing else holds the array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

from gradtape.errors import DtypeError, ShapeError, kind_of
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import INTP, Aval, aval
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.indexing import Advanced, Basic, fit_for_write, gather, parse_index, put_add, put_row
from gradtape.reference_counts import reference_count
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.indexed_slices import IndexedSlices
from gradtape.trace.lazy.force import force
from gradtape.trace.variables.locks import computing

How = Literal["add", "subtract", "set"]
"""The operation on a row."""


LARGE: Final = 2**20
"""Bytes from which ``x[k] = v`` and compiled functions write rows in place: to count the holders takes 40 us, the time of such a copy."""


def scatter(handle: Handle, slices: Any, how: How, caller: str) -> None:
    """Change the rows of an array that slices name; tapes and traces record.

    Parameters
    ----------
    handle : Handle
        The array, which is changed in place.
    slices : IndexedSlices
        The rows and their positions. Repeated rows add up; of repeated rows to be set, the last wins.
    how : {"add", "subtract", "set"}
        The operation on a row.
    caller : str
        For errors.
    """
    value = handle.value
    rows, positions = fitting(value.aval, slices, caller)
    involved = (value, rows, positions)
    if handle._base is not None or any(tag.recording for each in involved for tag in each.tags):
        handle.rebind(scattered(value, rows, positions, how))
    else:
        force([value])
        handle.rebind(updated(handle, [value], rows, positions, how))


def scatter_ndarray(array: NDArray, slices: Any, how: How, caller: str) -> None:
    """Change the rows of an ndarray; see `scatter`."""
    rows, positions = fitting(aval(array.shape, array.dtype), slices, caller)
    _apply(array, *_merged(array.shape[0], rows, positions, how), how)


def fitting(target: Aval, slices: Any, caller: str) -> tuple[Value, Value]:
    """Return rows in the dtype of the array that they change, and their positions: shapes ``(n, *row)`` and ``(n,)``.

    Raises
    ------
    DtypeError, ShapeError
        For slices that do not fit.
    """
    if not isinstance(slices, IndexedSlices):
        raise DtypeError(
            f"{caller}: slices must be IndexedSlices, got {kind_of(slices)}",
            where=here.site,
            remedy="gt.IndexedSlices(values, indices), or the gradient of a table that is read by gathers of its rows",
        )
    rows, positions = slices.parts()
    shape = target.shape
    if not shape or rows.shape[1:] != shape[1:] or slices.dense_shape not in (None, shape):
        raise ShapeError(
            f"{caller}: slices of dense_shape {slices.dense_shape} with rows of shape {rows.shape[1:]} do not fit "
            f"an array of shape {shape}",
            where=here.site,
            remedy=f"rows of shape {shape[1:]}" if shape else "an array of rank 1 or more",
        )
    if not np.can_cast(rows.dtype, target.dtype, "same_kind"):
        raise DtypeError(
            f"{caller}: rows of {rows.dtype} cannot be put into an array of {target.dtype}",
            where=here.site,
            remedy="convert one of them first",
        )
    return convert(rows, target.dtype), positions


def written_rows(value: Value, key: Any, new: Any) -> tuple[Value, Value] | None:
    """Return the rows that ``value[key] = new`` writes, and their positions; None where it writes no rows, or more than half of them.

    Raises
    ------
    IndexError, ShapeError, DtypeError
        Where the assignment itself would.
    """
    shape = value.shape
    if isinstance(key, Value) and key.dtype.kind == "b":
        return None
    index = parse_index(shape, key)
    if isinstance(index, Advanced):
        if not index.picks_rows(shape) or 2 * index.indices[0].size > shape[0]:
            return None
        return fit_for_write(new, value.dtype, index.result), index.indices[0]
    if not shape or 2 * index.shape[0] > shape[0]:
        return None
    positions = constant(index.starts[0] + index.strides[0] * np.arange(index.shape[0], dtype=INTP))
    within = Basic((0, *index.starts[1:]), index.shape, (1, *index.strides[1:]), index.result)
    return within.write(gather(value, positions), fit_for_write(new, value.dtype, index.result)), positions


def scattered(value: Value, rows: Value, positions: Value, how: How) -> Value:
    """Return the changed array as a value that depends on the old one."""
    if how == "set":
        return put_row(value, rows, positions)
    return put_add(value, rows if how == "add" else -rows, positions)


def updated(
    handle: Handle,
    holders: Sequence[Value],
    rows: Value,
    positions: Value,
    how: How,
    make: Callable[[NDArray], Value] = constant,
) -> Value:
    """Return the changed array as a value of its own, in the same memory where nothing else holds it.

    The values that held the old array become nodes that put the old rows back into the new one (H. G. Baker, "Shallow binding makes
    functional arrays fast", SIGPLAN Notices 26, 1991), so that records of the old array stay valid. No tape records that.

    Parameters
    ----------
    handle : Handle
        The array of the user's that holds the new value from now on.
    holders : sequence of Value
        All values that are known to hold the array.
    rows, places : Value
        As `fitting` returns them.
    how : {"add", "subtract", "set"}
        The operation on a row.
    make : callable
        Makes the value of an array.

    Raises
    ------
    IndexError
        For a position that is out of bounds; nothing has been changed then.
    """
    numbers, at = _merged(holders[0].shape[0], rows, positions, how)
    with computing:  # another thread may be about to read the array
        force(holders[:1])
        unshared = _is_unshared(holders)
        data = holders[0].data
        assert data is not None
        if not unshared:
            data = data.copy()
            _apply(data, numbers, at, how)
            return make(data)
        before = data[at]
        _apply(data, numbers, at, how)
        return _superseded(handle, holders, make(data), before, at)


def _superseded(handle: Handle, holders: Sequence[Value], new: Value, before: NDArray, at: NDArray) -> Value:
    """Return the value that has taken the memory over, after the values that held it have become nodes."""
    old = put_row(new, constant(before), constant(at))
    for holder in holders:
        past = stop_gradient(old).node
        assert past is not None
        past.outs = (holder,)
        holder.node, holder.index, holder.data = past, 0, None
        if holder.owner is not None and holder.owner() is handle:
            holder.owner = None
    return new


def _merged(extent: int, rows: Value, positions: Value, how: How) -> tuple[NDArray, NDArray]:
    """Return rows and positions as arrays, each position once and not negative: shapes ``(m, *row)`` and ``(m,)``.

    Raises
    ------
    IndexError
        For a position that is out of bounds.
    """
    numbers, at = force([rows, positions])
    check_places(extent, at)
    # The positions may be of any rank.
    numbers = numbers.reshape(at.size, *numbers.shape[at.ndim :])
    at = at.reshape(-1)
    order = np.argsort(at % max(extent, 1), kind="stable")
    ordered = (at % max(extent, 1))[order]
    ends = np.flatnonzero(np.diff(ordered, append=-1))
    if how == "set":
        return numbers[order[ends]], ordered[ends]
    if ends.size < at.size:
        # Sums over runs of the sorted rows: ufunc.at takes ten times as long.
        starts = np.concatenate([[0], ends[:-1] + 1])
        return np.add.reduceat(numbers[order], starts, axis=0), ordered[ends]
    return numbers[order], ordered


def check_places(extent: int, positions: NDArray) -> None:
    """Raise IndexError for a position that is out of bounds."""
    if positions.size and not (-extent <= positions.min() and positions.max() < extent):
        wrong = positions[(positions < -extent) | (positions >= extent)][0]
        raise IndexError(f"index {wrong} is out of bounds for axis 0 with size {extent}")


def _apply(data: NDArray, rows: NDArray, positions: NDArray, how: How) -> None:
    if how == "set":
        data[positions] = rows
    else:
        with np.errstate(all="ignore"):
            data[positions] = (np.add if how == "add" else np.subtract)(data[positions], rows)


def _references(value: Value) -> int:
    data = value.data
    return reference_count(data)


_OWN_REFERENCES: Final = _references(constant(np.zeros(1)))
"""The references to an array that only its value holds, as `_references` counts them."""


def _is_unshared(holders: Sequence[Value]) -> bool:
    """Return whether only these values hold their array, and the array its memory."""
    first = holders[0]
    return (
        _references(first) == _OWN_REFERENCES + len(holders) - 1
        and first.data is not None
        and first.data.flags.carray
        and first.data.flags.owndata
    )
