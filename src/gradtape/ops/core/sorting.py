"""Rows that find positions in order. What they are applied to follows by a gather, which carries the
derivative."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.batching import all_in_front
from gradtape.kinds.sort import Sort, sort_row
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import reshape, slice_


def _sort_each(x: Value, *, mapped: Sequence[bool], size: int) -> Value:
    return argsort(x)


argsort: Sort = sort_row(
    "argsort",
    shape=lambda x: x,
    evaluate=lambda x: np.argsort(x, axis=-1, stable=True),
    batch=_sort_each,
    samples=(((5,), {}), ((3, 4), {}), ((0,), {}), ((2, 0), {})),
)
"""The stable order along the last axis, NaN at the end."""


def _ranks(x: Value) -> Value:
    """Return which place each element has along the last axis when it is sorted stably."""
    return argsort(argsort(x))


def _search_each(a: Value, v: Value, *, mapped: Sequence[bool], size: int, side: str) -> Value:
    """Where elements are found in a haystack of their own each: how far they move when both are sorted together."""
    if not mapped[0]:
        return searchsorted(a, v, side=side)
    a, v = all_in_front((a, v), mapped, size)
    flat = reshape(v, (size, v.size // size if size else 0))
    left = side == "left"
    together = _ranks(join((flat, a) if left else (a, flat), 1))
    found = slice_(together, (0, 0 if left else a.shape[1]), flat.shape, (1, 1))
    return reshape(found - _ranks(flat), v.shape)


searchsorted: Sort = sort_row(
    "searchsorted",
    shape=lambda a, v: v,
    evaluate=lambda a, v, *, side: np.asarray(np.searchsorted(a, v, side=side)),
    batch=_search_each,
    samples=(
        ((4,), (3,), {"side": "left"}),
        ((4,), (2, 2), {"side": "right"}),
        ((4,), (), {"side": "left"}),
        ((0,), (2,), {"side": "left"}),
    ),
)
"""Where each element of the second belongs in the first, which is of rank 1 and sorted."""
