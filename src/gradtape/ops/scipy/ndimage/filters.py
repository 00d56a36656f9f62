"""Linear filters of `scipy.ndimage`: correlations with a kernel, of an array that is extended beyond its ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.ir.types import FLOAT64, Aval
from gradtape.kinds.arguments import as_array
from gradtape.kinds.registry import borrows
from gradtape.ops.core.correlation import correlate_row
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.join import full, join
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.shape import cut
from gradtape.ops.scipy.extension import extended

MODES: Final = ("nearest", "wrap", "reflect", "mirror", "constant", "grid-wrap", "grid-constant")
"""The modes by the numbers that compiled routines get."""

LONG: Final = 12
"""The size from which sums of windows are made of sums of blocks."""


def floating(x: Any) -> Value:
    """Return an array of floats."""
    value = as_array(x, "input")
    return value if value.dtype.char in "fd" else convert(value, FLOAT64)


def surrounded(
    x: Value,
    sizes: Sequence[int],
    origins: Sequence[int],
    mode: int,
    cval: Any,
    axes: Sequence[int] | None = None,
) -> Value:
    """Return an array extended so that windows of these sizes have a place around each of its elements."""
    for axis, size, origin in zip(range(x.ndim) if axes is None else axes, sizes, origins, strict=True):
        before = size // 2 + int(origin)
        x = extended(x, axis, before, size - 1 - before, MODES[mode], cval)
    return x


def along(w: Value, axis: int, rank: int) -> Value:
    """Return a vector as an array of this rank that has extent 1 along all other axes."""
    return reshape(w, tuple([w.size if k == axis else 1 for k in range(rank)]))


@borrows("scipy.ndimage._nd_image.correlate1d", writes=3)
def correlate1d(
    input: Any, weights: Any, axis: int, output: Aval, mode: int, cval: Any, origin: int
) -> Value:
    """Follow the routine of `scipy.ndimage.correlate1d`."""
    x = floating(input)
    w = convert(as_array(weights, "weights"), x.dtype)
    wide = surrounded(x, (w.size,), (origin,), mode, cval, (axis,))
    return correlate_row(wide, along(w, axis, x.ndim), rank=x.ndim)


@borrows("scipy.ndimage._nd_image.correlate", writes=2)
def correlate(input: Any, weights: Any, output: Aval, mode: int, cval: Any, origins: Sequence[int]) -> Value:
    """Follow the routine of `scipy.ndimage.correlate`."""
    x = floating(input)
    w = convert(as_array(weights, "weights"), x.dtype)
    return correlate_row(surrounded(x, w.shape, origins, mode, cval), w, rank=x.ndim)


@borrows("scipy.ndimage._nd_image.uniform_filter1d", writes=3)
def uniform_filter1d(
    input: Any, size: int, axis: int, output: Aval, mode: int, cval: Any, origin: int
) -> Value:
    """Follow the routine of `scipy.ndimage.uniform_filter1d`."""
    x = floating(input)
    wide = surrounded(x, (size,), (origin,), mode, cval, (axis,))
    if size < LONG:
        sums = correlate_row(wide, along(constant(np.ones(size, x.dtype)), axis, x.ndim), rank=x.ndim)
    else:
        sums = window_sums(wide, size, axis)
    # Sums of integers are exact, and so are their quotients that are integers: the result is cut to integers.
    return sums / float(size)


def window_sums(x: Value, size: int, axis: int) -> Value:
    """Return the sums of all windows along an axis, by two additions for each element, whatever the size.

    A window is the end of a block and the beginning of the next one (M. van Herk, "A fast algorithm for local minimum and maximum
    filters on rectangular and octagonal kernels", 1992): sums from the first element on would cancel.
    """
    count = x.shape[axis] - size + 1
    blocks = -(-(count + size) // size)
    lead, rest = x.shape[:axis], x.shape[axis + 1 :]
    missing = blocks * size - x.shape[axis]
    x = join([x, full((*lead, missing, *rest), 0, x.dtype)], axis)
    by_block = reshape(x, (*lead, blocks, size, *rest))
    ends = reshape(cumsum(by_block, axis=axis + 1, reverse=True), x.shape)
    before = cumsum(cut(by_block, axis + 1, 0, size - 1), axis=axis + 1, reverse=False)
    begins = reshape(join([full((*lead, blocks, 1, *rest), 0, x.dtype), before], axis + 1), x.shape)
    return cut(ends, axis, 0, count) + cut(begins, axis, size, size + count)
