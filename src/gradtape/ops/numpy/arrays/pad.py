"""``np.pad`` in all its modes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, number_of
from gradtape.kinds.arguments import as_array, concrete
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.elementwise.cast import convert, fit_number
from gradtape.ops.core.elementwise.floats import rint
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import full, join
from gradtape.ops.core.shape import pad
from gradtape.ops.numpy.arrays.creation import linspace
from gradtape.ops.numpy.arrays.flip import flipped
from gradtape.ops.numpy.arrays.shape import broadcast_to_, cut
from gradtape.ops.numpy.statistics.moments import mean
from gradtape.ops.numpy.statistics.quantile import median
from gradtape.ops.numpy.statistics.reductions import max_, min_

Sides = tuple[Any, Any]

ALLOWED: dict[str, tuple[str, ...]] = {
    "empty": (),
    "edge": (),
    "wrap": (),
    "constant": ("constant_values",),
    "linear_ramp": ("end_values",),
    "maximum": ("stat_length",),
    "mean": ("stat_length",),
    "median": ("stat_length",),
    "minimum": ("stat_length",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
}
STATISTICS: dict[str, Callable[..., Value]] = {
    "maximum": max_,
    "minimum": min_,
    "mean": mean,
    "median": median,
}


def per_side(argument: Any, rank: int) -> list[Sides]:
    """Return a pair for each axis from what NumPy allows: one for all, a pair for all, a pair for each."""
    if argument is None:
        return [(None, None)] * rank
    if not _holds_values(argument):
        return [(low, high) for low, high in np.broadcast_to(np.asarray(argument), (rank, 2))]
    items = _items(argument)
    if any(isinstance(item, Value) and item.ndim for item in items.flat):
        pairs = broadcast_to_(argument, (rank, 2))
        return [(getitem(pairs, (axis, 0)), getitem(pairs, (axis, 1))) for axis in range(rank)]
    return [(low, high) for low, high in np.broadcast_to(items, (rank, 2))]


def _items(nested: Any) -> np.ndarray[Any, Any]:
    """Return a nested list as an array of objects, of which values among the items are not converted."""
    if not isinstance(nested, list | tuple):
        made = np.empty((), object)
        made[()] = nested
        return made
    return np.stack([_items(item) for item in nested])


def _holds_values(argument: Any) -> bool:
    return isinstance(argument, Value) or (
        isinstance(argument, list | tuple) and any(map(_holds_values, argument))
    )


def widths_of(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    """Return how much is added before and after each axis."""
    if isinstance(pad_width, dict):
        named = {range(rank)[axis]: width for axis, width in pad_width.items()}
        pad_width = [np.broadcast_to(named.get(axis, 0), 2).tolist() for axis in range(rank)]
    widths = concrete(pad_width, "pad_width")
    if widths.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    if widths.size and widths.min() < 0:
        raise ValueError("index can't contain negative values")
    return [(int(low), int(high)) for low, high in np.broadcast_to(widths, (rank, 2))]


@implements(
    np.pad,
    samples=(
        sample((3,), 2),
        sample((2, 3), pad_width=((1, 0), (2, 1))),
        sample((2, 3), pad_width=(1, 2), constant_values=5),
        sample((2, 3), pad_width=((1, 1), (0, 2)), constant_values=((1, 2), (3, 4))),
        sample((2, 3), {1: (1, 2)}),
        *[
            sample((2, 4), pad_width=((1, 2), (3, 6)), mode=mode)
            for mode in ("edge", "reflect", "symmetric", "wrap")
        ],
        sample((4,), pad_width=(2, 5), mode="reflect", reflect_type="odd"),
        sample((4,), pad_width=(2, 5), mode="symmetric", reflect_type="odd"),
        sample((2, 3), pad_width=(2, 1), mode="linear_ramp", end_values=(4, -1)),
        *[sample((2, 4), pad_width=((1, 2), (3, 1)), mode=mode) for mode in STATISTICS],
        *[sample((2, 5), pad_width=((0, 0), (3, 1)), mode=mode, stat_length=(2, 3)) for mode in STATISTICS],
        sample((3,), 1, mode="what"),
        sample((3,), 1, mode="edge", end_values=2),
        sample((3,), -1),
        sample((3,), 1.5),
    ),
)
def pad_(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Value:
    """Follow `numpy.pad`."""
    x = as_array(array)
    if callable(mode):
        raise UnsupportedFunctionError(
            "np.pad with a function as mode is not supported",
            where=here.site,
            remedy="write into np.pad(x, ...)'s parts by index",
        )
    if mode not in ALLOWED:
        raise ValueError(f"mode {mode!r} is not supported")
    if not set(kwargs) <= set(ALLOWED[mode]):
        raise ValueError(
            f"unsupported keyword arguments for mode {mode!r}: {set(kwargs) - set(ALLOWED[mode])}"
        )
    widths = widths_of(pad_width, x.ndim)
    if mode in ("constant", "empty"):
        constants = kwargs.get("constant_values", 0)
        values = per_side(constants, x.ndim)
        scalars = _are_scalars(constants)
        if x.dtype.kind == "i" or (x.dtype.kind == "u" and not scalars):
            for value in dict.fromkeys(itertools.chain(*values)):
                fit_number(value, x.dtype)
        if scalars:
            values = [(as_array(before), as_array(after)) for before, after in values]
        return _constant(x, widths, values)
    extras: list[Sides] = [(None, None)] * x.ndim
    if mode == "linear_ramp":
        extras = per_side(kwargs.get("end_values", 0), x.ndim)
    elif mode in STATISTICS:
        extras = per_side(kwargs.get("stat_length"), x.ndim)
    for axis, (width, extent) in enumerate(zip(widths, x.shape, strict=True)):
        if extent == 0 and any(width):
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
    for axis, (width, extra) in enumerate(zip(widths, extras, strict=True)):
        if sum(width) == 0:
            continue
        if mode == "linear_ramp":
            x = _ramp(x, axis, width, extra)
        elif mode in STATISTICS:
            x = _statistic(x, axis, width, extra, mode)
        elif kwargs.get("reflect_type") == "odd":
            x = _odd(x, axis, width, mode)
        else:
            positions = np.pad(np.arange(x.shape[axis]), width, mode=mode)
            x = getitem(x, (slice(None),) * axis + (positions,))
    return x


def _are_scalars(constants: Any) -> bool:
    """Return whether the constants stay scalars of NumPy, which wrap where they are written to unsigned integers."""
    shape = _items(constants).shape if _holds_values(constants) else np.shape(constants)
    size = math.prod(shape)
    return len(shape) < 3 and (size == 1 or (size == 2 and shape != (2, 1)))


def _constant(x: Value, widths: list[tuple[int, int]], values: list[Sides]) -> Value:
    shape = tuple(n + low + high for n, (low, high) in zip(x.shape, widths, strict=True))
    if all(number_of(as_array(v)) == 0 for pair in values for v in pair):
        return pad(x, shape, tuple(low for low, _ in widths))
    for axis, ((low, high), (before, after)) in enumerate(zip(widths, values, strict=True)):
        ends = [(*x.shape[:axis], count, *x.shape[axis + 1 :]) for count in (low, high)]
        x = join([full(ends[0], before, x.dtype), x, full(ends[1], after, x.dtype)], axis)
    return x


def _ramp(x: Value, axis: int, width: tuple[int, int], ends: Sides) -> Value:
    low, high = width
    first, last = (getitem(x, (slice(None),) * axis + (k,)) for k in (0, -1))
    before = linspace(ends[0], first, low, endpoint=False, dtype=x.dtype, axis=axis)
    after = flipped(linspace(ends[1], last, high, endpoint=False, dtype=x.dtype, axis=axis), (axis,))
    return join([before, x, after], axis)


def _statistic(x: Value, axis: int, width: tuple[int, int], lengths: Sides, mode: str) -> Value:
    extent = x.shape[axis]
    pieces = [x]
    for side, (count, length) in enumerate(zip(width, lengths, strict=True)):
        taken = extent if length is None else min(int(concrete(length, "stat_length")), extent)
        if taken == 0 and mode in ("maximum", "minimum"):
            raise ValueError("stat_length of 0 yields no value for padding")
        part = cut(x, axis, 0, taken) if side == 0 else cut(x, axis, extent - taken, extent)
        found = STATISTICS[mode](part, axis=axis, keepdims=True)
        found = convert(rint(found) if x.dtype.kind in "iu" else found, x.dtype)
        wide = broadcast_to(found, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
        pieces = [wide, *pieces] if side == 0 else [*pieces, wide]
    return join(pieces, axis)


def _odd(x: Value, axis: int, width: tuple[int, int], mode: Any) -> Value:
    """Continue through the edge: the values mirrored, twice the edge's minus them, as often as it takes."""
    low, high = width
    while low or high:
        extent = x.shape[axis]
        if extent == 1:
            edges = [(*x.shape[:axis], count, *x.shape[axis + 1 :]) for count in (low, high)]
            return join([broadcast_to(x, edges[0]), x, broadcast_to(x, edges[1])], axis)
        most = extent - 1 if mode == "reflect" else extent
        here_, there = min(low, most), min(high, most)
        positions = np.pad(np.arange(extent), (here_, there), mode=mode)
        mirrored = getitem(x, (slice(None),) * axis + (positions,))
        first, last = cut(x, axis, 0, 1), cut(x, axis, extent - 1, extent)
        total = here_ + extent + there
        x = join(
            [
                convert(2 * first - cut(mirrored, axis, 0, here_), x.dtype),
                x,
                convert(2 * last - cut(mirrored, axis, total - there, total), x.dtype),
            ],
            axis,
        )
        low, high = low - here_, high - there
    return x
