"""Rows that find positions in order. What they are applied to follows by a gather, which carries the
derivative."""

from __future__ import annotations

import numpy as np

from ..kinds.sort import sort_row

argsort = sort_row(
    "argsort",
    shape=lambda x: x,
    evaluate=lambda x: np.argsort(x, axis=-1, stable=True),
    samples=(((5,), {}), ((3, 4), {}), ((0,), {}), ((2, 0), {})),
)
"""The stable order along the last axis, NaN at the end."""

searchsorted = sort_row(
    "searchsorted",
    shape=lambda a, v: v,
    evaluate=lambda a, v, *, side: np.asarray(np.searchsorted(a, v, side=side)),
    samples=(
        ((4,), (3,), {"side": "left"}),
        ((4,), (2, 2), {"side": "right"}),
        ((4,), (), {"side": "left"}),
        ((0,), (2,), {"side": "left"}),
    ),
)
"""Where each element of the second belongs in the first, which is of rank 1 and sorted."""
