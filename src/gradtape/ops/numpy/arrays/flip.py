"""Flips, rotations by quarter turns, and rolls."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array, as_int, as_shape, listed, one_axis, some_axes
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import reshape, slice_
from gradtape.ops.numpy.arrays.shape import cut, swapaxes


def flipped(x: Value, axes: tuple[int, ...]) -> Value:
    """Return `x` read backwards along some axes."""
    starts = tuple(extent - 1 if k in axes and extent else 0 for k, extent in enumerate(x.shape))
    return slice_(x, starts, x.shape, tuple(-1 if k in axes else 1 for k in range(x.ndim)))


@implements(np.flip, samples=(sample((2, 3)), sample((2, 3), 1), sample((2, 3, 2), axis=(0, -1))))
def flip(m: Any, axis: Any = None) -> Value:
    """Follow `numpy.flip`."""
    x = as_array(m)
    return flipped(x, some_axes(listed(axis), x.ndim))


@implements(np.fliplr, samples=(sample((2, 3)), sample((3,))))
def fliplr(m: Any) -> Value:
    """Follow `numpy.fliplr`."""
    x = as_array(m)
    if x.ndim < 2:
        raise ValueError("Input must be >= 2-d.")
    return flipped(x, (1,))


@implements(np.flipud, samples=(sample((2, 3)), sample(())))
def flipud(m: Any) -> Value:
    """Follow `numpy.flipud`."""
    x = as_array(m)
    if x.ndim < 1:
        raise ValueError("Input must be >= 1-d.")
    return flipped(x, (0,))


@implements(
    np.rot90,
    samples=(
        sample((2, 3)),
        sample((2, 3), 2),
        sample((2, 3, 2), -1, axes=(1, 2)),
        sample((2, 3), 4),
        sample((3,)),
    ),
)
def rot90(m: Any, k: Any = 1, axes: Any = (0, 1)) -> Value:
    """Follow `numpy.rot90`."""
    x = as_array(m)
    if len(tuple(axes)) != 2:
        raise ValueError("len(axes) must be 2.")
    if axes[0] == axes[1] or abs(axes[0] - axes[1]) == x.ndim:
        raise ValueError("Axes must be different.")
    if not all(-x.ndim <= axis < x.ndim for axis in axes):
        raise ValueError(f"Axes={axes} out of range for array of ndim={x.ndim}.")
    first, second = (one_axis(axis, x.ndim) for axis in axes)
    rotations = as_int(k, "k") % 4
    if rotations == 0:
        return x
    if rotations == 2:
        return flipped(x, (first, second))
    if rotations == 1:
        return swapaxes(flipped(x, (second,)), first, second)
    return flipped(swapaxes(x, first, second), (second,))


@implements(
    np.roll,
    samples=(
        sample((5,), 2),
        sample((2, 3), -1),
        sample((2, 3), 1, axis=1),
        sample((2, 3), shift=(1, 2), axis=(0, 1)),
        sample((2, 3), 1, axis=(0, 1)),
        sample((2, 3), 7, axis=-1),
        sample((2, 3), shift=(1, 1), axis=0),
    ),
)
def roll(a: Any, shift: Any, axis: Any = None) -> Value:
    """Follow `numpy.roll`."""
    x = as_array(a)
    if axis is None:
        return reshape(roll(reshape(x, (x.size,)), shift, 0), x.shape)
    places = listed(axis)
    places = places if isinstance(places, tuple | list) else (places,)
    shifts = as_shape(shift)
    count = max(len(places), len(shifts)) if places and shifts else 0
    if {len(places), len(shifts)} - {1, count}:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    for k in range(count):
        place = one_axis(places[k % len(places)], x.ndim)
        extent = x.shape[place]
        step = shifts[k % len(shifts)] % extent if extent else 0
        if step:
            x = join([cut(x, place, extent - step, extent), cut(x, place, 0, extent - step)], place)
    return x


SHIFTS = (sample((5,)), sample((2, 3)), sample((3, 4), axes=1), sample((3, 4), axes=(0, 1)))


def _shifted_half(x: Any, axes: Any, forwards: bool) -> Value:
    array = as_array(x)
    if array.ndim == 0 and axes is None:
        raise ValueError("a number has no middle: shifts need an array of at least one dimension")
    places = tuple(range(array.ndim)) if axes is None else axes if isinstance(axes, tuple | list) else (axes,)
    halves = [array.shape[place] // 2 for place in places]
    return roll(array, tuple(n if forwards else -n for n in halves), tuple(places))


@implements(np.fft.fftshift, samples=SHIFTS)
def fftshift(x: Any, axes: Any = None) -> Value:
    """Follow `numpy.fft.fftshift`."""
    return _shifted_half(x, axes, True)


@implements(np.fft.ifftshift, samples=SHIFTS)
def ifftshift(x: Any, axes: Any = None) -> Value:
    """Follow `numpy.fft.ifftshift`."""
    return _shifted_half(x, axes, False)
