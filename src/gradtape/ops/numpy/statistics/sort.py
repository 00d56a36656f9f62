"""Sorting and searching: positions come from the sort rows, values follow by a gather."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, INTP
from gradtape.kinds.arguments import as_array, concrete, one_axis, promoted
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.extrema import clip
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.indexing import gather, getitem
from gradtape.ops.core.join import full
from gradtape.ops.core.lengths import count_to
from gradtape.ops.core.shape import expand, reshape
from gradtape.ops.core.sorting import argsort, searchsorted
from gradtape.ops.numpy.arrays.join import items_of
from gradtape.ops.numpy.arrays.shape import flat_or, moved


def along(x: Value, positions: Value, axis: int) -> Value:
    """Return the elements of `x` at positions along an axis; the other axes agree."""
    if x.ndim == 1:
        return gather(x, positions)
    shape = positions.shape
    indices = []
    for k in range(x.ndim):
        if k == axis:
            indices.append(positions)
        else:
            counter = count_to(shape[k])
            indices.append(expand(counter, shape, (k,)))
    return gather(x, *indices)


def order_of(x: Value, axis: int) -> Value:
    """Return the positions that sort `x` along an axis, equal elements in the order in which they stand."""
    end = x.ndim - 1
    if axis == end:
        return argsort(x)
    return moved(argsort(moved(x, (axis,), (end,))), (end,), (axis,))


def sorted_along(x: Value, axis: int) -> Value:
    """Return `x` sorted along an axis."""
    return along(x, order_of(x, axis), axis)


def _no_fields(order: Any) -> None:
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")


TIED = np.array([[2.0, 1.0, 2.0, -1.0], [np.nan, 0.0, -np.inf, 0.0]])
SORTS = (
    sample((5,)),
    sample((3, 4)),
    sample((3, 4), axis=0),
    sample((2, 3), axis=None),
    sample(TIED),
    sample((2, 3, 2), 1),
)


@implements(np.sort, samples=SORTS)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Value:
    """Follow `numpy.sort`."""
    _no_fields(order)
    x = as_array(a)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    return sorted_along(x, one_axis(axis, x.ndim))


@implements(np.argsort, samples=tuple((args, {**kwargs, "stable": True}) for args, kwargs in SORTS))
def argsort_(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Value:
    """Follow `numpy.argsort`; the order is always stable."""
    _no_fields(order)
    x, place = flat_or(a, axis)
    return order_of(x, place)


def _check_kth(kth: Any, extent: int) -> None:
    for k in np.atleast_1d(concrete(kth, "kth")):
        if not -extent <= k < extent and extent:
            raise ValueError(f"kth(={k}) out of bounds ({extent})")


@implements(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Value:
    """Follow `numpy.partition`, by a full sort."""
    _no_fields(order)
    x = as_array(a)
    x, axis = (reshape(x, (x.size,)), 0) if axis is None else (x, one_axis(axis, x.ndim))
    _check_kth(kth, x.shape[axis])
    return sorted_along(x, axis)


@implements(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Value:
    """Follow `numpy.argpartition`, by a full sort."""
    _no_fields(order)
    x, place = flat_or(a, axis)
    _check_kth(kth, x.shape[place])
    return order_of(x, place)


@implements(
    np.lexsort,
    samples=(
        sample([(4,), np.array([1, 0, 1, 0])]),
        sample((2, 5)),
        sample([(2, 3), np.array([[1, 0, 1], [0, 0, 0]])], axis=0),
    ),
)
def lexsort(keys: Any, axis: Any = -1) -> Value:
    """Follow `numpy.lexsort`: one stable sort per key, the last key last."""
    rows = [as_array(key) for key in items_of(keys)]
    if not rows:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    shape = rows[0].shape
    if any(row.shape != shape for row in rows):
        raise ValueError("all keys need to be the same shape")
    if not shape:
        return as_array(np.zeros((), INTP))
    place = one_axis(axis, len(shape))
    order = order_of(rows[0], place)
    for row in rows[1:]:
        order = along(order, order_of(along(row, order, place), place), place)
    return order


@implements(np.sort_complex, samples=(sample((5,)), sample((2, 3))))
def sort_complex(a: Any) -> Value:
    """Follow `numpy.sort_complex`."""
    x = as_array(a)
    wide = x.dtype if x.dtype.kind == "c" else np.dtype("F" if x.dtype.char in "bhBH" else "D")
    return convert(sort(x), wide)


EDGES = np.array([-2.0, -0.5, 0.0, 1.5])


@implements(
    np.searchsorted,
    samples=(
        sample(EDGES, (3,)),
        sample(EDGES, (2, 2), side="right"),
        sample(EDGES, 0.0),
        sample(EDGES, np.array([0, 2]), "left"),
        sample(np.array([3.0, -1.0, 2.0]), (2,), sorter=np.array([1, 2, 0])),
        sample(EDGES, (2,), "middle"),
    ),
    dtypes="?bqf",
)
def searchsorted_(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Value:
    """Follow `numpy.searchsorted`."""
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    haystack, needles = promoted(a, v)
    if haystack.ndim != 1:
        raise ValueError("object too deep for desired array" if haystack.ndim else "a must be of rank 1")
    if sorter is not None:
        haystack = getitem(haystack, (as_array(sorter),))
    return searchsorted(haystack, needles, side=side)


@implements(
    np.digitize,
    samples=(
        sample((4,), bins=EDGES),
        sample((4,), bins=EDGES, right=True),
        sample((2, 3), bins=EDGES[::-1]),
        sample((3,), [2.0, 1.0, 3.0]),
    ),
    dtypes="?bqf",
)
def digitize(x: Any, bins: Any, right: bool = False) -> Value:
    """Follow `numpy.digitize`; the bins must be known, for they may rise or fall."""
    values = as_array(x)
    if values.dtype.kind == "c":
        raise TypeError("x may not be complex")
    edges = concrete(bins, "bins")
    steps = np.diff(edges)
    side = "left" if right else "right"
    if (steps >= 0).all():
        return searchsorted_(edges, values, side)
    if not (steps <= 0).all():
        raise ValueError("bins must be monotonically increasing or decreasing")
    return as_array(len(edges)) - searchsorted_(edges[::-1], values, side)


@implements(
    np.isin,
    samples=(
        sample(np.array([[1, 2], [3, 5]]), np.array([2, 5, 2])),
        sample(np.array([1.0, np.nan, 2.0]), np.array([np.nan, 2.0]), invert=True),
        sample((3,), [1, 2]),
        sample((2, 3), (0,)),
    ),
    dtypes="?bqf",
)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Value:
    """Follow `numpy.isin`: each element is looked up among the sorted ones."""
    x, among = promoted(element, test_elements)
    among = reshape(among, (among.size,))
    if among.size == 0:
        return full(x.shape, invert, BOOL)
    haystack = sorted_along(among, 0)
    place = clip(searchsorted(haystack, x, side="left"), 0, among.size - 1)
    met = equal(gather(haystack, place), x)
    return ~met if invert else met
