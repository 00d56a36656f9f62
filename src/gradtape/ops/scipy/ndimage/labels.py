"""Measurements of labelled parts of an array, whose labels are constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import INTP
from gradtape.kinds.arguments import as_array, concrete
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.ops.core.indexing import gather, getitem
from gradtape.ops.core.join import stack
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.statistics.quantile import median
from gradtape.ops.numpy.statistics.reductions import argmax_, argmin_
from gradtape.ops.scipy.ndimage.filters import floating, surrounded


@borrows("numpy:isscalar")
def isscalar(element: Any) -> bool:
    """Follow `numpy.isscalar`: a traced number is one, since NumPy's sums and elements are."""
    return not isinstance(element, list | tuple) and as_array(element).ndim == 0


@borrows("scipy.ndimage._measurements._select")
def select(
    input: Any,
    labels: Any = None,
    index: Any = None,
    find_min: bool = False,
    find_max: bool = False,
    find_min_positions: bool = False,
    find_max_positions: bool = False,
    find_median: bool = False,
) -> list[Value]:
    """Follow the function behind `minimum`, `maximum`, `extrema`, `median` and the positions: of equal elements the first counts."""
    x = as_array(input, "input")
    flags = (find_min, find_min_positions, find_max, find_max_positions, find_median)
    flat = reshape(x, (x.size,))
    if labels is None:
        return _of_group(flat, np.arange(x.size), flags)
    marks = np.broadcast_to(concrete(labels, "labels"), x.shape).ravel()
    chosen = None if index is None else concrete(index, "index")
    if chosen is None or not chosen.ndim:
        hit = marks > 0 if chosen is None else marks == chosen
        return _of_group(flat, np.flatnonzero(hit), flags)
    groups = [_of_group(flat, np.flatnonzero(marks == label), flags) for label in chosen.ravel()]
    return [reshape(stack(*column), chosen.shape) for column in zip(*groups, strict=True)]


def _of_group(flat: Value, members: NDArray, flags: Sequence[bool]) -> list[Value]:
    """Return what is wanted of the elements at some places: the least, where it is, the greatest, where it is, the median."""
    if not members.size:
        raise UnsupportedFunctionError(
            "a label of which there is no element",
            where=here.site,
            why="SciPy's result for it depends on other elements",
            remedy="leave it out of index",
        )
    positions_of_group = constant(members.astype(INTP))
    values = gather(flat, positions_of_group)
    results = []
    searches: tuple[tuple[bool, bool, Callable[[Value], Value]], ...] = (
        (flags[0], flags[1], argmin_),
        (flags[2], flags[3], argmax_),
    )
    for wants, wants_place, search in searches:
        if wants or wants_place:
            position = stop_gradient(search(values))
            results += [getitem(values, position)] if wants else []
            results += [getitem(positions_of_group, position)] if wants_place else []
    return results + ([median(values)] if flags[4] else [])


@borrows("scipy.ndimage._nd_image.generic_filter", writes=3)
def generic_filter(
    input: Any,
    function: Any,
    footprint: Any,
    output: Any,
    mode: int,
    cval: Any,
    origins: Any,
    extra_arguments: Any,
    extra_keywords: Any,
) -> Value:
    """Follow the routine of `scipy.ndimage.generic_filter`: the function is traced once for each element."""
    x = floating(input)
    hit = concrete(footprint, "footprint") != 0
    wide = surrounded(x, hit.shape, origins, mode, cval)
    flat = reshape(wide, (wide.size,))
    corners = np.argwhere(hit)
    results = []
    for index in np.ndindex(x.shape):
        at = np.ravel_multi_index(tuple((corners + index).T), wide.shape)
        window = gather(flat, constant(at.astype(INTP)))
        results.append(as_array(HOOKS.call(function, window, *extra_arguments, **extra_keywords)))
    return reshape(stack(*results), x.shape)


@borrows("scipy.ndimage._nd_image.generic_filter1d", writes=4)
def generic_filter1d(*args: Any) -> Value:
    """Refuse `scipy.ndimage.generic_filter1d`."""
    raise UnsupportedFunctionError(
        "scipy.ndimage.generic_filter1d is not supported by gradtape",
        where=here.site,
        why="it has the function write each line into memory of its own",
        remedy="use scipy.ndimage.vectorized_filter, or apply the function to slices of the padded array",
    )
