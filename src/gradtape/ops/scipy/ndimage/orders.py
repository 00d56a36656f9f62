"""Filters that choose an element of each window: extrema, ranks, and grey morphology.

The element is found first, without a derivative; the result is read from its place, and its cotangent goes there. Of equal elements the
first is taken.

References
----------
K. E. Batcher, "Sorting networks and their applications", 1968.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import INTP, Aval, Shape
from gradtape.kinds.arguments import as_array, concrete
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import borrows
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.logic import equal, less_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import gather, getitem
from gradtape.ops.core.join import full, stack
from gradtape.ops.core.shape import reshape, slice_
from gradtape.ops.numpy.statistics.sort import order_of
from gradtape.ops.scipy.ndimage.filters import MODES, surrounded

NETWORK: Final = 32
"""Elements of a window that are sorted by comparing pairs, written out; more are sorted by a routine."""

CHAIN: Final = 16
"""Elements of a run that are compared one after the other; longer runs are made of two halves."""

Windows = tuple[Value, list[Value], list[int]]
"""An extended array, the element at each place of the window for all windows, and how far in memory the place is from the first."""


def _windows(x: Value, footprint: NDArray, origins: Sequence[int], mode: int, cval: Any) -> Windows:
    """Return the elements of all windows that a footprint covers."""
    wide = surrounded(x, footprint.shape, origins, mode, cval)
    unit_steps = (1,) * x.ndim
    starts = [tuple(map(int, start)) for start in np.argwhere(footprint)]
    elements = [slice_(wide, start, x.shape, unit_steps) for start in starts]
    return wide, elements, [_offset(start, wide.shape) for start in starts]


def _offset(start: Sequence[int], shape: Shape) -> int:
    return int(np.ravel_multi_index(tuple(start), shape)) if len(shape) else 0


def _corner(shape: Shape, wide: Shape) -> Value:
    """Return where in memory the first place of each window is."""
    total: Value = full(shape, 0, INTP)
    stride = 1
    for axis in reversed(range(len(shape))):
        extents = tuple([shape[axis] if k == axis else 1 for k in range(len(shape))])
        steps = constant((np.arange(shape[axis]) * stride).astype(INTP).reshape(extents))
        total = total + broadcast_to(steps, shape)
        stride *= wide[axis]
    return total


def _first_equal(elements: Sequence[Value], extremum: Value, numbers: Sequence[int]) -> Value:
    """Return, of the first element that equals what was found, its number."""
    chosen: Value = full(extremum.shape, numbers[-1], INTP)
    for element, number in reversed(list(zip(elements[:-1], numbers[:-1], strict=True))):
        chosen = where(equal(element, extremum), number, chosen)
    return chosen


def _read(wide: Value, offsets: Value) -> Value:
    """Return the elements at places in memory, counted from the first place of each window."""
    positions = stop_gradient(_corner(offsets.shape, wide.shape) + offsets)
    return gather(reshape(wide, (wide.size,)), positions)


def _numbers(x: Any) -> Value:
    value = as_array(x, "input")
    return convert(value, np.dtype(np.uint8)) if value.dtype.kind == "b" else value


@borrows("scipy.ndimage._nd_image.min_or_max_filter1d", writes=3)
def min_or_max_filter1d(
    input: Any, size: int, axis: int, output: Aval, mode: int, cval: Any, origin: int, minimum: int
) -> Value:
    """Follow the routine of `scipy.ndimage.minimum_filter1d` and `maximum_filter1d`."""
    x = _numbers(input)
    shape = tuple([size if k == axis else 1 for k in range(x.ndim)])
    origins = [origin if k == axis else 0 for k in range(x.ndim)]
    if size <= CHAIN:
        return _extremum(x, np.ones(shape, bool), None, mode, cval, origins, bool(minimum))
    wide = surrounded(x, shape, origins, mode, cval)
    extrema = stop_gradient(wide)
    offsets: Value = full(wide.shape, 0, INTP)
    step = int(np.prod(wide.shape[axis + 1 :]))
    width = 1
    while width < size:
        ahead = min(width, size - width)
        extrema, offsets = _better_half(extrema, offsets, axis, ahead, step, bool(minimum))
        width += ahead
    return _read(wide, offsets)


def _better_half(
    extrema: Value, offsets: Value, axis: int, ahead: int, step: int, minimum: bool
) -> tuple[Value, Value]:
    """Return the extrema of runs from those of two shorter runs, of which one begins `ahead` elements after the other."""
    count = extrema.shape[axis] - ahead

    def part(x: Value, start: int) -> Value:
        starts = tuple([start if k == axis else 0 for k in range(x.ndim)])
        shape = tuple([count if k == axis else n for k, n in enumerate(x.shape)])
        return slice_(x, starts, shape, (1,) * x.ndim)

    first, second = part(extrema, 0), part(extrema, ahead)
    takes = less_equal(first, second) if minimum else less_equal(second, first)
    return where(takes, first, second), where(takes, part(offsets, 0), part(offsets, ahead) + ahead * step)


@borrows("scipy.ndimage._nd_image.min_or_max_filter", writes=3)
def min_or_max_filter(
    input: Any,
    footprint: Any,
    structure: Any,
    output: Aval,
    mode: int,
    cval: Any,
    origins: Sequence[int],
    minimum: int,
) -> Value:
    """Follow the routine of `scipy.ndimage.minimum_filter`, `maximum_filter`, and of grey erosion and dilation."""
    x = _numbers(input)
    return _extremum(x, concrete(footprint, "footprint") != 0, structure, mode, cval, origins, bool(minimum))


def _extremum(
    x: Value,
    footprint: NDArray,
    structure: Any,
    mode: int,
    cval: Any,
    origins: Sequence[int],
    is_minimum: bool,
) -> Value:
    choose: Callable[[Value, Value], Value] = minimum if is_minimum else maximum
    wide, elements, offsets = _windows(x, footprint, origins, mode, cval)
    elements = [stop_gradient(element) for element in elements]
    if structure is None:
        best = _over(choose, elements)
        return _read(wide, _first_equal(elements, best, offsets))
    heights = convert(as_array(structure, "structure"), x.dtype)
    heights = gather(reshape(heights, (heights.size,)), constant(np.flatnonzero(footprint).astype(INTP)))
    if is_minimum:
        heights = -heights
    raised = [
        element + stop_gradient(broadcast_to(getitem(heights, k), x.shape))
        for k, element in enumerate(elements)
    ]
    best = _over(choose, raised)
    number = _first_equal(raised, best, list(range(len(raised))))
    offset = _first_equal(raised, best, offsets)
    return _read(wide, offset) + gather(heights, stop_gradient(number))


def _over(choose: Callable[[Value, Value], Value], elements: Sequence[Value]) -> Value:
    best = elements[0]
    for element in elements[1:]:
        best = choose(best, element)
    return best


@borrows("scipy.ndimage._nd_image.rank_filter", writes=3)
def rank_filter(
    input: Any, rank: int, footprint: Any, output: Aval, mode: int, cval: Any, origins: Sequence[int]
) -> Value:
    """Follow the routine of `scipy.ndimage.rank_filter`, `median_filter` and `percentile_filter`."""
    return ranked(_numbers(input), int(rank), concrete(footprint, "footprint") != 0, mode, cval, origins)


@borrows("scipy.ndimage._rank_filter_1d.rank_filter", writes=3)
def rank_filter_1d(
    input: Any, rank: int, size: int, output: Aval, mode: int, cval: Any, origin: Any
) -> Value:
    """Follow the routine of the same filters for one axis."""
    origins = [int(np.asarray(origin).reshape(-1)[0])]
    return ranked(_numbers(input), int(rank), np.ones(int(size), bool), mode, cval, origins)


def ranked(x: Value, rank: int, footprint: NDArray, mode: int, cval: Any, origins: Sequence[int]) -> Value:
    """Return the element of each window that is larger than so many others."""
    wide, elements, offsets = _windows(x, footprint, origins, mode, cval)
    elements = [stop_gradient(element) for element in elements]
    if len(elements) <= NETWORK:
        return _read(wide, _first_equal(elements, _nth(elements, rank), offsets))
    order = order_of(stack(*elements, axis=x.ndim), x.ndim)
    number = getitem(order, (..., rank))
    return _read(wide, gather(constant(np.array(offsets, INTP)), number))


def _nth(elements: Sequence[Value], rank: int) -> Value:
    """Return the element that is larger than so many others, by a sorting network."""
    lanes = list(elements)
    for low, high in comparators(len(lanes)):
        lanes[low], lanes[high] = minimum(lanes[low], lanes[high]), maximum(lanes[low], lanes[high])
    return lanes[rank]


def comparators(count: int) -> list[tuple[int, int]]:
    """Return the pairs that Batcher's odd-even merge sort puts in order."""
    pairs = []
    size = 1
    while size < count:
        step = size
        while step >= 1:
            for start, k in itertools.product(range(step % size, count - step, 2 * step), range(step)):
                low, high = start + k, start + k + step
                if high < count and low // (2 * size) == high // (2 * size):
                    pairs.append((low, high))
            step //= 2
        size *= 2
    return pairs


@borrows("scipy.signal._signaltools.medfilt2d")
def medfilt2d(input: Any, kernel_size: Any = 3) -> Value:
    """Follow `scipy.signal.medfilt2d`."""
    x = _numbers(input)
    sizes = np.broadcast_to(np.asarray(kernel_size), (x.ndim,))
    if any(size % 2 == 0 for size in sizes):
        raise ValueError("Each element of kernel_size should be odd.")
    footprint = np.ones(tuple(map(int, sizes)), bool)
    return ranked(x, footprint.size // 2, footprint, MODES.index("constant"), 0, (0,) * x.ndim)
