"""Correlation of an array with a kernel: the one row, and how larger results are made of it."""

from __future__ import annotations

from gradtape.ir.graph import Node, Value
from gradtape.ir.types import Shape
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.registry import register
from gradtape.ops.core.shape import pad_row, slice_


def reversed_along(x: Value, rank: int) -> Value:
    """Return an array with its last axes reversed."""
    lead = x.ndim - rank
    starts = tuple([n - 1 if axis >= lead else 0 for axis, n in enumerate(x.shape)])
    return slice_(x, starts, x.shape, tuple([-1 if axis >= lead else 1 for axis in range(x.ndim)]))


def surrounded(x: Value, widths: Shape) -> Value:
    """Return an array with so many zeros before and behind it along its last axes."""
    lead = (0,) * (x.ndim - len(widths))
    if not any(widths):
        return x
    shape = tuple([n + 2 * width for n, width in zip(x.shape, (*lead, *widths), strict=True)])
    return pad_row(x, shape=shape, starts=(*lead, *widths), strides=(1,) * x.ndim)


def full_correlation(x: Value, w: Value, rank: int) -> Value:
    """Return the correlation at all positions at which the kernel meets the array, which is zero outside."""
    widths = tuple([k - 1 for k in w.shape[w.ndim - rank :]])
    return correlate_row(surrounded(x, widths), w, rank=rank)


def _transpose_x(ct: Value, node: Node) -> Value:
    rank = node.params["rank"]
    return full_correlation(ct, reversed_along(node.inputs[1], rank), rank)


correlate_row: Correlation = register(
    Correlation(
        "correlate",
        transpose_x=_transpose_x,
        transpose_w=lambda ct, node: correlate_row(node.inputs[0], ct, **node.params),
        samples=(
            ((7,), (3,), {"rank": 1}),
            ((5,), (5,), {"rank": 1}),
            ((41,), (38,), {"rank": 1}),
            ((90,), (37,), {"rank": 1}),
            ((2, 6), (2, 4), {"rank": 1}),
            ((4, 5), (2, 3), {"rank": 2}),
            ((4, 5), (3, 1), {"rank": 2}),
            ((12, 14), (5, 9), {"rank": 2}),
            ((2, 3, 4), (2, 2, 1), {"rank": 2}),
            ((0, 3), (0, 2), {"rank": 1}),
        ),
    )
)
