"""``np.lib.stride_tricks.sliding_window_view``."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array, as_shape, one_axis
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.shape import windows
from gradtape.ops.numpy.arrays.shape import moved


@implements(
    np.lib.stride_tricks.sliding_window_view,
    samples=(
        sample((6,), 3),
        sample((4, 5), window_shape=(2, 3)),
        sample((4, 5), 2, axis=0),
        sample((3, 4, 5), window_shape=(2, 2), axis=(0, 2)),
        sample((4,), 4),
        sample((4,), 5),
        sample((4, 5), 2),
    ),
)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: Any = False, writeable: Any = False
) -> Value:
    """Follow `numpy.lib.stride_tricks.sliding_window_view`."""
    array = as_array(x)
    shape = as_shape(window_shape)
    if any(n < 0 for n in shape):
        raise ValueError("`window_shape` cannot contain negative values")
    given = range(array.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = tuple([one_axis(place, array.ndim) for place in given])
    if len(axes) != len(shape):
        raise ValueError(
            f"Must provide window_shape for all dimensions of `x`; got {len(shape)} window_shape elements and "
            f"{len(axes)} axes."
        )
    counts = tuple([array.shape[place] - n + 1 for place, n in zip(axes, shape, strict=True)])
    if any(count < 1 for count in counts):
        raise ValueError("window shape cannot be larger than input array shape")
    if len(set(axes)) < len(axes):  # windows of windows along the same axis
        for place, n in zip(axes, shape, strict=True):
            array = sliding_window_view(array, n, place)
        return array
    rank = len(axes)
    last = tuple(range(array.ndim - rank, array.ndim))
    front = moved(array, axes, last)
    read = windows(front, counts, (1,) * rank, shape, (0,) * rank)
    return moved(read, last, axes)
