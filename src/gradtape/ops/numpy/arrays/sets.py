"""Arrays as sets: distinct elements, in order. The elements are taken from the array, so that the derivative follows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, INTP
from gradtape.kinds.arguments import as_array, known_numbers, lookup, one_axis
from gradtape.kinds.registry import implements
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.logic import not_equal
from gradtape.ops.core.indexing import getitem, put_row
from gradtape.ops.core.join import full
from gradtape.ops.core.reductions import reduce_any
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.join import concatenate
from gradtape.ops.numpy.arrays.select import positions_where
from gradtape.ops.numpy.arrays.shape import moved, ravel
from gradtape.ops.numpy.statistics.sort import isin, lexsort, order_of


@implements(np.unique)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """Follow `numpy.unique`: in a sorted array, the elements that differ from the one before."""
    x = as_array(ar)
    place = None if axis is None else one_axis(axis, x.ndim)
    wanted = (True, return_index, return_inverse, return_counts)
    known = known_numbers(x)
    if known is not None:
        _, index, *extras = np.unique(known, True, True, True, axis=axis, equal_nan=equal_nan)
        source = ravel(x) if place is None else x
        values = getitem(source, (slice(None),) * (place or 0) + (index,))
        chosen = [item for item, is_wanted in zip((values, index, *extras), wanted, strict=True) if is_wanted]
    else:
        chosen = [
            item for item, is_wanted in zip(_distinct(x, place, equal_nan), wanted, strict=True) if is_wanted
        ]
    return tuple(chosen) if len(chosen) > 1 else chosen[0]


def _distinct(x: Value, place: int | None, equal_nan: bool) -> tuple[Value, Value, Value, Value]:
    """Return the distinct elements, where they first are, the group of each element, and the sizes of the groups."""
    whole = place is None or x.ndim == 1
    items = ravel(x) if place is None else moved(x, (place,), (0,))
    count = items.shape[0]
    rows = reshape(items, (count, items.size // max(count, 1)))
    order = order_of(items, 0) if whole else lexsort(_columns(rows)[::-1])
    ranked = getitem(rows, (order,))
    later, earlier = getitem(ranked, slice(1, None)), getitem(ranked, slice(-1))
    differs = not_equal(later, earlier)
    if whole and equal_nan and x.dtype.kind in "fc":
        differs = differs & ~(not_equal(later, later) & not_equal(earlier, earlier))
    begins = concatenate([full((min(count, 1),), True, BOOL), reduce_any(differs, axes=(1,))])
    first = positions_where(begins)
    index = getitem(order, (first,))
    values = getitem(items, (index,))
    group = cumsum(convert(begins, INTP), axis=0, reverse=False) - 1
    inverse = put_row(full((count,), 0, INTP), group, order)
    ends = concatenate([getitem(first, slice(1, None)), np.array([count])[: first.shape[0]]])
    return (
        values if place is None else moved(values, (0,), (place,)),
        index,
        reshape(inverse, x.shape) if place is None else inverse,
        ends - first,
    )


def _columns(rows: Value) -> list[Value]:
    return [getitem(rows, (slice(None), k)) for k in range(rows.shape[1])]


@implements(lookup(np, "in1d"))
def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None) -> Value:
    """Follow `numpy.in1d`, which NumPy 2.4 no longer has."""
    return isin(ravel(ar1), ar2, assume_unique, invert)
