"""Extension of arrays beyond their ends, as `scipy.ndimage` and `scipy.signal` do it in their modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.kinds.arguments import as_array
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import pad
from gradtape.ops.numpy.arrays.shape import cut


def _reflected(positions: NDArray, n: int) -> NDArray:
    """(d c b a | a b c d | d c b a)"""
    folded = positions % (2 * n)
    return np.where(folded < n, folded, 2 * n - 1 - folded)


def _mirrored(positions: NDArray, n: int) -> NDArray:
    """(d c b | a b c d | c b a)"""
    if n == 1:
        return np.zeros_like(positions)
    folded = positions % (2 * n - 2)
    return np.where(folded < n, folded, 2 * n - 2 - folded)


SOURCES: Final[dict[str, Callable[[NDArray, int], NDArray]]] = {
    "reflect": _reflected,
    "grid-mirror": _reflected,
    "mirror": _mirrored,
    "nearest": lambda positions, n: np.clip(positions, 0, n - 1),
    "wrap": lambda positions, n: positions % n,
    "grid-wrap": lambda positions, n: positions % n,
}
"""For each mode of `scipy.ndimage`, which element stands at a place outside."""


def extended(x: Value, axis: int, before: int, after: int, mode: str, cval: Any = 0) -> Value:
    """Return an array with so many elements more before and after it along an axis, in a mode of `scipy.ndimage`."""
    if mode in ("constant", "grid-constant"):
        return with_constants(x, axis, before, after, cval)
    if not before and not after:
        return x
    n = x.shape[axis]
    sides = [np.arange(-before, 0), np.arange(n, n + after)]
    first, last = (picked(x, axis, SOURCES[mode](side, n)) for side in sides)
    return join([*first, x, *last], axis)


def with_constants(x: Value, axis: int, before: int, after: int, constant: Any) -> Value:
    """Return an array with a number before and after it along an axis."""
    number = convert(as_array(constant, "cval"), x.dtype)
    if number.data is not None and not number.tags and not number.data.any():
        starts = tuple([before if k == axis else 0 for k in range(x.ndim)])
        return pad(x, tuple([n + before + after if k == axis else n for k, n in enumerate(x.shape)]), starts)
    sides = [
        [broadcast_to(number, tuple([count if k == axis else n for k, n in enumerate(x.shape)]))]
        if count
        else []
        for count in (before, after)
    ]
    return join([*sides[0], x, *sides[1]], axis)


def picked(x: Value, axis: int, positions: NDArray) -> list[Value]:
    """Return elements along an axis, in pieces whose places are consecutive, backwards or forwards."""
    pieces: list[Value] = []
    start = 0
    while start < len(positions):
        step = int(positions[start + 1] - positions[start]) if start + 1 < len(positions) else 1
        stop = start + 1
        while stop < len(positions) and positions[stop] - positions[stop - 1] == step and abs(step) <= 1:
            stop += 1
        pieces.append(_run(x, axis, int(positions[start]), step, stop - start))
        start = stop
    return pieces


def _run(x: Value, axis: int, start: int, step: int, count: int) -> Value:
    if step == 1 or count == 1:
        return cut(x, axis, start, start + count)
    if step == 0:
        shape = tuple([count if k == axis else n for k, n in enumerate(x.shape)])
        return broadcast_to(cut(x, axis, start, start + 1), shape)
    stop = start - count
    return getitem(x, (*[slice(None)] * axis, slice(start, stop if stop >= 0 else None, -1)))
