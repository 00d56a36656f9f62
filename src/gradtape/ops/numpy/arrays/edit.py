"""Inserting, deleting, trimming, and addressing by computed positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.errors import ConcretizationError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, INTP, Shape
from gradtape.kinds.arguments import as_array, as_shape, concrete, one_axis
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import HOOKS, implements, sample
from gradtape.ops.core.elementwise.cast import convert, convert_number
from gradtape.ops.core.elementwise.integer import floor_divide, remainder
from gradtape.ops.core.elementwise.logic import equal, logical_not
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import join
from gradtape.ops.core.reductions import argmin, reduce_all
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.select import as_positions, bounded
from gradtape.ops.numpy.arrays.shape import moved


def _flat_or_strict(arr: Any, axis: Any) -> tuple[Value, int]:
    x = as_array(arr)
    return (reshape(x, (x.size,)), 0) if axis is None else (x, one_axis(axis, x.ndim))


@implements(
    np.delete,
    samples=(
        sample((5,), 1),
        sample((5,), [0, -1]),
        sample((2, 3), 1, axis=1),
        sample((2, 3), slice(0, 2), axis=-1),
        sample((2, 3), [True, False], axis=0),
        sample((2, 3), 4),
        sample((3,), 5),
    ),
)
def delete(arr: Any, obj: Any, axis: Any = None) -> Value:
    """Follow `numpy.delete`; the positions must be known."""
    x, position = _flat_or_strict(arr, axis)
    kept_positions = np.delete(
        np.arange(x.shape[position]), obj if isinstance(obj, slice) else concrete(obj, "obj")
    )
    return getitem(x, (slice(None),) * position + (kept_positions,))


@implements(
    np.insert,
    samples=(
        sample((4,), 1, 5.0),
        sample((4,), [1, 3], (2,)),
        sample((4,), [2, 2, 0], (3,)),
        sample((2, 3), 1, (3,), axis=0),
        sample((2, 3), 1, (2,), axis=1),
        sample((2, 3), [1], (2, 1), axis=1),
        sample((2, 3), slice(0, 2), 9.0, axis=1),
        sample((2, 3), -1, 7, axis=1),
        sample((2, 3), 2, (2,)),
        sample((4,), 1, (2,)),
        sample((3,), 7, 1.0),
    ),
    by_item=True,
)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Value:
    """Follow `numpy.insert`; where to insert must be known."""
    x, position = _flat_or_strict(arr, axis)
    extent = x.shape[position]
    where: Any = obj if isinstance(obj, slice) else concrete(obj, "obj")
    v = convert_number(values, x.dtype)
    v = reshape(v, (1,) * (x.ndim - v.ndim) + v.shape)
    single = not isinstance(where, slice) and np.ndim(where) == 0 and where.dtype != bool
    if single:
        if not -extent <= where <= extent:
            raise IndexError(f"index {where} is out of bounds for axis {position} with size {extent}")
        v = moved(v, (0,), (position,))
        count = v.shape[position]
        order = np.insert(np.arange(extent), np.full(count, where), np.arange(extent, extent + count))
    else:
        count = len(range(*where.indices(extent))) if isinstance(where, slice) else _count(where)
        order = np.insert(np.arange(extent), where, np.arange(extent, extent + count))
    shape = (*x.shape[:position], count, *x.shape[position + 1 :])
    if np.broadcast_shapes(v.shape, shape) != shape:
        raise ValueError(
            f"could not broadcast values of shape {v.shape} to the inserted part of shape {shape}"
        )
    return getitem(join([x, broadcast_to(v, shape)], position), (slice(None),) * position + (order,))


def _count(where: Any) -> int:
    return int(where.sum()) if where.dtype == BOOL else where.size


REVERSED = slice(None, None, -1)


def count_of_leading(mask: Value) -> int:
    """Return how many elements at the beginning of a vector of booleans are true.

    In a trace it is guarded. The body of a loop stands for all iterations, so there it is 0, which the program checks.
    """
    if mask.size == 0:
        return 0
    first = getitem(mask, 0)
    if (guarded := HOOKS.check(logical_not(first))) is not None:
        if not guarded:
            raise ConcretizationError(
                "an array begins or ends with a zero in the body of a loop, or in a function that a solver calls",
                where=here.site,
                why="zeros at the ends are cut off, and the shape of the result cannot depend on the iteration",
                remedy="keep the coefficients at both ends away from zero, or write the loop in Python",
            )
        return 0
    count = where(reduce_all(mask, axes=(0,)), mask.size, argmin(mask, axes=(0,)))
    return int(concrete(convert(count, np.dtype(np.int64)), "the number of zeros"))


@implements(np.trim_zeros)
def trim_zeros(filt: Any, trim: Any = "fb", axis: Any = None) -> Value:
    """Follow `numpy.trim_zeros`. In a trace, how many zeros the ends of a vector have is guarded."""
    x = as_array(filt)
    return getitem(x, trimmed(x, trim, axis))


def trimmed(x: Value, trim: Any = "fb", axis: Any = None) -> tuple[slice, ...]:
    """Return the index of the array without its outer zeros."""
    if x.ndim == 1 and HOOKS.numbers(x) is None:
        ends = str(trim).lower()
        first = count_of_leading(equal(x, 0)) if "f" in ends else 0
        last = count_of_leading(equal(getitem(x, REVERSED), 0)) if "b" in ends else 0
        return (slice(first, max(x.size - last, first)),)
    positions = np.arange(x.size).reshape(x.shape)
    marked = np.where(concrete(x, "filt") != 0, positions + 1, 0)
    kept_box = np.trim_zeros(marked, trim) if axis is None else np.trim_zeros(marked, trim, axis)
    if kept_box.size == 0:
        return tuple([slice(0, extent) for extent in kept_box.shape])
    nonzero_positions = np.argwhere(np.isin(positions + 1, kept_box[kept_box != 0]))
    low = nonzero_positions.min(axis=0)
    return tuple(
        slice(int(first), int(first) + n) if n != whole else slice(None)
        for first, n, whole in zip(_starts(marked, kept_box, low), kept_box.shape, x.shape, strict=True)
    )


def _starts(marked: Any, kept_box: Any, low: Any) -> Any:
    """Return where the kept box begins: as far before its first nonzero element as inside it."""
    return low - np.argwhere(kept_box != 0).min(axis=0)


@implements(
    np.unravel_index,
    samples=(
        sample(np.array([0, 5, 3]), shape=(2, 3)),
        sample(np.array([[1, 4]]), shape=(2, 3), order="F"),
        sample(4, shape=(2, 3)),
    ),
    dtypes="",
)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Value, ...]:
    """Follow `numpy.unravel_index`."""
    quotient = as_positions(indices)
    extents = as_shape(shape)
    coordinates: list[Value] = []
    for extent in extents if order == "F" else extents[::-1]:
        coordinates.append(remainder(quotient, max(extent, 1)))
        quotient = floor_divide(quotient, max(extent, 1))
    return tuple(coordinates if order == "F" else coordinates[::-1])


@implements(
    np.ravel_multi_index,
    samples=(
        sample([np.array([0, 1]), np.array([2, 0])], dims=(2, 3)),
        sample([np.array([0, 1]), np.array([2, 0])], dims=(2, 3), order="F"),
        sample([np.array([3, -1]), np.array([2, 7])], dims=(2, 3), mode="wrap"),
        sample([np.array([3, -1]), np.array([2, 7])], dims=(2, 3), mode=("clip", "wrap")),
    ),
    dtypes="",
)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Value:
    """Follow `numpy.ravel_multi_index`."""
    extents: Shape = as_shape(dims)
    modes = mode if isinstance(mode, tuple) else (mode,) * len(extents)
    parts = (
        [getitem(multi_index, k) for k in range(multi_index.shape[0])]
        if isinstance(multi_index, Value)
        else list(multi_index)
    )
    if len(parts) != len(extents):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(extents)}")
    total: Value | None = None
    for k, (part, extent, how) in enumerate(zip(parts, extents, modes, strict=True)):
        stride = math.prod(extents[:k] if order == "F" else extents[k + 1 :])
        term = bounded(as_positions(part), extent, how) * stride
        total = term if total is None else total + term
    assert total is not None
    return total


@implements(np.ix_, samples=(sample(np.array([0, 2]), np.array([1, 1, 0])),), dtypes="")
def ix_(*args: Any) -> tuple[Value, ...]:
    """Follow `numpy.ix_`."""
    grids = []
    for k, arg in enumerate(args):
        index = as_array(arg)
        if index.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if index.dtype == BOOL:
            index = as_array(np.flatnonzero(concrete(arg, "mask")))
        index = convert(index, INTP) if index.size == 0 else index
        grids.append(reshape(index, tuple(index.size if j == k else 1 for j in range(len(args)))))
    return tuple(grids)


@implements(np.diag_indices_from, samples=(sample((3, 3)), sample((2, 3)), sample((2,))), dtypes="")
def diag_indices_from(arr: Any) -> Any:
    """Follow `numpy.diag_indices_from`, which looks at the shape alone."""
    return np.diag_indices_from(np.empty(as_array(arr).shape, bool))


@implements(np.tril_indices_from, samples=(sample((3, 3)), sample((2, 3), 1), sample((2,))), dtypes="")
def tril_indices_from(arr: Any, k: Any = 0) -> Any:
    """Follow `numpy.tril_indices_from`, which looks at the shape alone."""
    return np.tril_indices_from(np.empty(as_array(arr).shape, bool), k)


@implements(np.triu_indices_from, samples=(sample((3, 3)), sample((2, 3), 1), sample((2,))), dtypes="")
def triu_indices_from(arr: Any, k: Any = 0) -> Any:
    """Follow `numpy.triu_indices_from`, which looks at the shape alone."""
    return np.triu_indices_from(np.empty(as_array(arr).shape, bool), k)
