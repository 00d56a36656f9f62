"""Rows that find positions in order. What they are applied to follows by a gather, which carries the
derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gradtape.ir.graph import Value, literal
from gradtape.ir.types import INTP
from gradtape.kinds.batching import all_in_front
from gradtape.kinds.sort import Sort, sort_row
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import imag, real
from gradtape.ops.core.elementwise.floats import isnan
from gradtape.ops.core.elementwise.logic import less, less_equal
from gradtape.ops.core.indexing import gather
from gradtape.ops.core.join import join
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, reshape, slice_

MOST_COUNTED: Final = 64
"""How long haystacks are of which all elements are compared, which takes less time than to sort them with what is searched for."""


def _sort_each(x: Value, *, mapped: Sequence[bool], size: int) -> Value:
    return argsort(x)


def _sort_complex(x: Value) -> Value:
    """Sort stably by one key after the other, the last one first. As in NumPy, numbers with a NaN in the imaginary part alone stand behind
    those without, and before those with a NaN in the real part."""
    order = argsort(imag(x))
    for key in (real(x), isnan(imag(x)) & ~isnan(real(x)) | isnan(real(x))):
        order = _taken(order, argsort(_taken(key, order)))
    return order


def _taken(x: Value, positions: Value) -> Value:
    """Return the elements at positions along the last axis."""
    extent = x.shape[-1]
    rows = x.size // extent if extent else 0
    if rows > 1:
        first = cumsum(expand(literal(extent, INTP), (rows,), ()), axis=0) - extent
        positions = reshape(positions, (rows, extent)) + expand(first, (rows, extent), (0,))
    return reshape(gather(reshape(x, (x.size,)), reshape(positions, (x.size,))), x.shape)


argsort: Sort = sort_row(
    "argsort",
    shape=lambda x: x,
    evaluate=lambda x: np.argsort(x, axis=-1, stable=True),
    batch=_sort_each,
    of_complex=_sort_complex,
    samples=(((5,), {}), ((3, 4), {}), ((0,), {}), ((2, 0), {})),
)
"""The stable order along the last axis, NaN at the end."""


def _ranks(x: Value) -> Value:
    """Return which place each element has along the last axis when it is sorted stably."""
    return argsort(argsort(x))


def _counted_before(a: Value, v: Value, left: bool) -> Value:
    """Return how many elements of each row of `a` stand before, or if not `left` at, each one in the same row of `v`; NaN is the last."""
    shape = (*v.shape, a.shape[1])
    low, high = expand(a, shape, (0, 2)), expand(v, shape, (0, 1))
    is_before = less(low, high) if left else less_equal(low, high)
    if a.dtype.kind == "f":
        is_before = is_before | (isnan(high) & ~isnan(low) if left else isnan(high))
    return reduce_sum(convert(is_before, INTP), axes=(2,))


def _search_each(a: Value, v: Value, *, mapped: Sequence[bool], size: int, side: str) -> Value:
    """Where elements are found in a haystack of their own each: how far they move when both are sorted together."""
    if not mapped[0]:
        return searchsorted(a, v, side=side)
    a, v = all_in_front((a, v), mapped, size)
    flat = reshape(v, (size, v.size // size if size else 0))
    left = side == "left"
    if a.shape[1] <= MOST_COUNTED and a.dtype.kind != "c":
        return reshape(_counted_before(a, flat, left), v.shape)
    together = _ranks(join((flat, a) if left else (a, flat), 1))
    found = slice_(together, (0, 0 if left else a.shape[1]), flat.shape, (1, 1))
    return reshape(found - _ranks(flat), v.shape)


def _search_complex(a: Value, v: Value, *, side: str) -> Value:
    stacked = reshape(a, (1, *a.shape)), reshape(v, (1, *v.shape))
    return reshape(_search_each(*stacked, mapped=(True, True), size=1, side=side), v.shape)


searchsorted: Sort = sort_row(
    "searchsorted",
    shape=lambda a, v: v,
    evaluate=lambda a, v, *, side: np.asarray(np.searchsorted(a, v, side=side)),
    batch=_search_each,
    of_complex=_search_complex,
    samples=(
        ((4,), (3,), {"side": "left"}),
        ((4,), (2, 2), {"side": "right"}),
        ((4,), (), {"side": "left"}),
        ((0,), (2,), {"side": "left"}),
    ),
)
"""Where each element of the second belongs in the first, which is of rank 1 and sorted."""
