"""Rows that move elements: expand, permute, reshape, slice, pad. All the shape functions of NumPy are made of these."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Node, Value
from gradtape.ir.op import NDArray
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import Shape
from gradtape.kinds.index_map import Index, IndexMap, index_map


def _expand(x: NDArray, *, shape: Shape, axes: tuple[int, ...]) -> NDArray:
    new_shape = [1] * len(shape)
    for axis, extent in zip(axes, x.shape, strict=True):
        new_shape[axis] = extent
    return np.broadcast_to(x.reshape(new_shape), shape)


def _shifted(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes when there is one more in front, which stays there."""
    return (0, *[axis + 1 for axis in axes])


expand_row = index_map(
    "expand",
    shape=lambda x, *, shape, axes: shape,
    lead=lambda size, *, shape, axes: {"shape": (size, *shape), "axes": _shifted(axes)},
    axis_images=lambda x, *, shape, axes: axes,
    evaluate=_expand,
    source=lambda i, x, *, shape, axes: tuple(i[axis] for axis in axes),
    transpose=lambda ct, node: PRIMITIVES["reduce_sum"](
        ct, axes=tuple(axis for axis in range(ct.ndim) if axis not in node.params["axes"])
    ),
    is_expansion=True,
    finite_derivatives=True,
    samples=(
        ((3,), {"shape": (2, 3), "axes": (1,)}),
        ((2,), {"shape": (2, 3), "axes": (0,)}),
        ((), {"shape": (2,), "axes": ()}),
        ((2, 4), {"shape": (2, 3, 4), "axes": (0, 2)}),
        ((0,), {"shape": (2, 0), "axes": (1,)}),
    ),
)


def expand(x: Value, shape: Shape, axes: tuple[int, ...]) -> Value:
    """Repeat `x` along new axes: axis k of `x` becomes axis ``axes[k]`` of a result of this shape."""
    return x if shape == x.shape and not isinstance(x, Literal) else expand_row(x, shape=shape, axes=axes)


def spread(x: Value, shape: Shape, axes: tuple[int, ...]) -> Value:
    """Undo the shape of a reduction over `axes`: repeat `x` along them."""
    return expand(x, shape, tuple(axis for axis in range(len(shape)) if axis not in axes))


permute_row = index_map(
    "permute",
    shape=lambda x, *, axes: tuple(x[axis] for axis in axes),
    lead=lambda size, *, axes: {"axes": _shifted(axes)},
    axis_images=lambda x, *, axes: inverse_permutation(axes),
    evaluate=lambda x, *, axes: np.transpose(x, axes),
    source=lambda i, x, *, axes: tuple(i[axes.index(axis)] for axis in range(len(axes))),
    transpose=lambda ct, node: permute(ct, inverse_permutation(node.params["axes"])),
    finite_derivatives=True,
    samples=(((2, 3), {"axes": (1, 0)}), ((2, 3, 4), {"axes": (2, 0, 1)}), ((0, 3), {"axes": (1, 0)})),
)


def inverse_permutation(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the permutation that undoes `axes`."""
    return tuple(axes.index(axis) for axis in range(len(axes)))


def permute(x: Value, axes: tuple[int, ...]) -> Value:
    """Return `x` with axis ``axes[k]`` as its axis k."""
    return x if axes == tuple(range(x.ndim)) else permute_row(x, axes=axes)


def _reshape_source(i: Index, x: Shape, *, shape: Shape) -> Index:
    """Match runs of axes with the same number of elements, so that an axis that survives is not divided and multiplied."""
    position: list[Any] = []
    here_, there = 0, 0
    while there < len(x) or here_ < len(shape):
        stop_here, stop_there = here_, there
        size_here = size_there = 1
        while stop_here == here_ or stop_there == there or size_here != size_there:
            if stop_there < len(x) and (size_there <= size_here or stop_here == len(shape)):
                size_there *= x[stop_there]
                stop_there += 1
            elif stop_here < len(shape):
                size_here *= shape[stop_here]
                stop_here += 1
            else:
                break
        flat: Any = 0
        for axis in range(here_, stop_here):
            flat = flat * shape[axis] + i[axis] if axis > here_ else i[axis]
        run = x[there:stop_there]
        for axis, extent in enumerate(run):
            below = math.prod(run[axis + 1 :])
            term = flat // below if below != 1 else flat
            position.append(0 if extent == 1 else term % extent if axis > 0 else term)
        here_, there = stop_here, stop_there
    return tuple(position)


def _reshape_images(x: Shape, *, shape: Shape) -> tuple[int | None, ...]:
    """An axis stays an axis where the number of elements before it, and its extent, are the same."""
    axes_by_position: dict[tuple[int, int], int] = {}
    for axis, extent in enumerate(shape):
        axes_by_position.setdefault((math.prod(shape[:axis]), extent), axis)
    return tuple([axes_by_position.get((math.prod(x[:axis]), extent)) for axis, extent in enumerate(x)])


reshape_row = index_map(
    "reshape",
    shape=lambda x, *, shape: shape,
    lead=lambda size, *, shape: {"shape": (size, *shape)},
    axis_images=_reshape_images,
    evaluate=lambda x, *, shape: x.reshape(shape),
    source=_reshape_source,
    transpose=lambda ct, node: reshape(ct, node.inputs[0].shape),
    finite_derivatives=True,
    samples=(
        ((6,), {"shape": (2, 3)}),
        ((2, 3), {"shape": (6,)}),
        ((2, 3, 4), {"shape": (4, 6)}),
        ((2, 1, 3), {"shape": (2, 3)}),
        ((3, 2), {"shape": (1, 3, 1, 2)}),
        ((), {"shape": (1, 1)}),
        ((2, 6), {"shape": (2, 2, 3)}),
        ((0, 3), {"shape": (3, 0, 2)}),
    ),
)


def reshape(x: Value, shape: Shape) -> Value:
    """Return `x` with another shape of the same size.

    Raises
    ------
    ShapeError
        Where the sizes differ.
    """
    if shape == x.shape and not isinstance(x, Literal):
        return x
    if math.prod(shape) != x.size:
        raise ShapeError(
            f"cannot reshape array of size {x.size} into shape {shape}",
            where=here.site,
            remedy=f"choose a shape with {x.size} elements (-1 stands for the one length that follows from the others)",
        )
    if x.node is not None and x.node.op is reshape_row and not x.tags:
        return reshape(x.node.inputs[0], shape)
    return reshape_row(x, shape=shape)


def _slices(starts: Shape, shape: Shape, strides: Shape) -> tuple[slice, ...]:
    """Return the slices that pick ``start + k * stride`` for k below each extent."""
    picked = []
    for start, extent, stride in zip(starts, shape, strides, strict=True):
        stop = start + extent * stride
        picked.append(slice(start, stop if stop >= 0 else None, stride) if extent else slice(0, 0))
    return tuple(picked)


def _whole_axes(x: Shape, shape: Shape, starts: Shape, strides: Shape) -> tuple[int | None, ...]:
    """Return each axis that a slice takes whole, or that a pad leaves as it is; None for the others."""
    facts = zip(x, shape, starts, strides, strict=True)
    return tuple(
        [
            axis if extent == before and start == 0 and stride == 1 else None
            for axis, (before, extent, start, stride) in enumerate(facts)
        ]
    )


slice_row = index_map(
    "slice",
    shape=lambda x, *, starts, shape, strides: shape,
    lead=lambda size, *, starts, shape, strides: {
        "starts": (0, *starts),
        "shape": (size, *shape),
        "strides": (1, *strides),
    },
    axis_images=lambda x, *, starts, shape, strides: _whole_axes(x, shape, starts, strides),
    evaluate=lambda x, *, starts, shape, strides: x[_slices(starts, shape, strides)],
    source=lambda i, x, *, starts, shape, strides: tuple(
        start + k * stride for k, start, stride in zip(i, starts, strides, strict=True)
    ),
    transpose=lambda ct, node: pad_row(
        ct, shape=node.inputs[0].shape, starts=node.params["starts"], strides=node.params["strides"]
    ),
    finite_derivatives=True,
    samples=(
        ((5,), {"starts": (1,), "shape": (3,), "strides": (1,)}),
        ((5,), {"starts": (4,), "shape": (5,), "strides": (-1,)}),
        ((4, 6), {"starts": (0, 1), "shape": (2, 3), "strides": (3, 2)}),
        ((4,), {"starts": (2,), "shape": (0,), "strides": (1,)}),
    ),
)


def slice_(x: Value, starts: Shape, shape: Shape, strides: Shape) -> Value:
    """Return the elements ``start + k * stride`` of every axis, for k below the extents of `shape`."""
    is_whole = shape == x.shape and not any(starts) and all(stride == 1 for stride in strides)
    return x if is_whole else slice_row(x, starts=starts, shape=shape, strides=strides)


def _pad(x: NDArray, *, shape: Shape, starts: Shape, strides: Shape) -> NDArray:
    out = np.zeros(shape, x.dtype)
    out[_slices(starts, x.shape, strides)] = x
    return out


def _pad_source(i: Index, x: Shape, *, shape: Shape, starts: Shape, strides: Shape) -> Index:
    return tuple(
        k - start if stride == 1 else (k - start) // stride if stride > 0 else (start - k) // -stride
        for k, start, stride in zip(i, starts, strides, strict=True)
    )


def _pad_inside(
    i: Index, x: Shape, *, shape: Shape, starts: Shape, strides: Shape
) -> tuple[tuple[Any, int, int], ...]:
    """Where an element of x lands: between the first and the last, and on a multiple of the stride."""
    tests: list[tuple[Any, int, int]] = []
    for k, extent, target_extent, start, stride in zip(i, x, shape, starts, strides, strict=True):
        last = start + (extent - 1) * stride
        low, high = (start, last + 1) if stride > 0 else (last, start + 1)
        if extent == 0:
            low, high = 0, 0
        if low > 0 or high < target_extent:
            tests.append((k, low, high))
        if abs(stride) > 1:
            tests.append(((k - low) % abs(stride), 0, 1))
    return tuple(tests)


pad_row: IndexMap = index_map(
    "pad",
    shape=lambda x, *, shape, starts, strides: shape,
    lead=lambda size, *, shape, starts, strides: {
        "shape": (size, *shape),
        "starts": (0, *starts),
        "strides": (1, *strides),
    },
    axis_images=lambda x, *, shape, starts, strides: _whole_axes(x, shape, starts, strides),
    evaluate=_pad,
    source=_pad_source,
    inside=_pad_inside,
    transpose=lambda ct, node: slice_(
        ct, node.params["starts"], node.inputs[0].shape, node.params["strides"]
    ),
    samples=(
        ((3,), {"shape": (5,), "starts": (1,), "strides": (1,)}),
        ((3,), {"shape": (7,), "starts": (1,), "strides": (2,)}),
        ((3,), {"shape": (7,), "starts": (6,), "strides": (-2,)}),
        ((2, 2), {"shape": (2, 5), "starts": (0, 2), "strides": (1, 1)}),
        ((0,), {"shape": (3,), "starts": (1,), "strides": (1,)}),
    ),
)


def pad(x: Value, shape: Shape, starts: Shape) -> Value:
    """Return zeros of `shape` with `x` at `starts`."""
    return x if shape == x.shape else pad_row(x, shape=shape, starts=starts, strides=(1,) * x.ndim)


def _windows_source(
    i: Index, x: Shape, *, extents: Shape, steps: Shape, shape: Shape, starts: Shape
) -> Index:
    rank = len(extents)
    lead = len(x) - rank
    moves = zip(i[lead : lead + rank], i[lead + rank :], steps, starts, strict=True)
    return (*i[:lead], *[position + window * step + start for window, position, step, start in moves])


def _windows(x: NDArray, *, extents: Shape, steps: Shape, shape: Shape, starts: Shape) -> NDArray:
    rank = len(extents)
    lead = x.ndim - rank
    cut = x[(*[slice(None)] * lead, *[slice(start, None) for start in starts])]
    strides = cut.strides[lead:]
    return np.lib.stride_tricks.as_strided(
        cut,
        (*x.shape[:lead], *extents, *shape),
        (
            *cut.strides[:lead],
            *[step * stride for step, stride in zip(steps, strides, strict=True)],
            *strides,
        ),
        writeable=False,
    )


def _windows_transpose(ct: Value, node: Node) -> Value:
    """Add up the windows, each at its place; or, where these are fewer, what stands at each place of the windows."""
    x, params = node.inputs[0], node.params
    extents, steps, starts, shape = params["extents"], params["steps"], params["starts"], params["shape"]
    rank = len(extents)
    lead = x.ndim - rank
    many = math.prod(extents) > math.prod(shape)
    total = None
    for chosen in itertools.product(*map(range, shape if many else extents)):
        zeros = (0,) * rank
        place, kept_shape = ((*zeros, *chosen), extents) if many else ((*chosen, *zeros), shape)
        cut = (*extents, *[1] * rank) if many else (*[1] * rank, *shape)
        part = slice_(ct, (*[0] * lead, *place), (*ct.shape[:lead], *cut), (1,) * ct.ndim)
        first = [
            k * (1 if many else step) + start for k, step, start in zip(chosen, steps, starts, strict=True)
        ]
        part = pad_row(
            reshape(part, (*ct.shape[:lead], *kept_shape)),
            shape=x.shape,
            starts=(*[0] * lead, *first),
            strides=(*[1] * lead, *(steps if many else [1] * rank)),
        )
        total = part if total is None else PRIMITIVES["add"](total, part)
    return PRIMITIVES["zeros_like"](x) if total is None else total


windows_row = index_map(
    "windows",
    shape=lambda x, *, extents, steps, shape, starts: (*x[: len(x) - len(extents)], *extents, *shape),
    lead=lambda size, **params: params,
    evaluate=_windows,
    source=_windows_source,
    transpose=_windows_transpose,
    finite_derivatives=True,
    samples=(
        ((6,), {"extents": (3,), "steps": (1,), "shape": (4,), "starts": (0,)}),
        ((9,), {"extents": (2,), "steps": (3,), "shape": (4,), "starts": (1,)}),
        ((2, 5), {"extents": (2,), "steps": (1,), "shape": (3,), "starts": (1,)}),
        ((4, 5), {"extents": (2, 3), "steps": (1, 2), "shape": (3, 1), "starts": (0, 0)}),
    ),
)


def windows(x: Value, extents: Shape, steps: Shape, shape: Shape, starts: Shape) -> Value:
    """Return windows of this shape along the last axes: the one numbered k, for k below the extents, begins at ``starts + k * steps``.

    The axes that number the windows stand before those of a window.
    """
    return windows_row(x, extents=extents, steps=steps, shape=shape, starts=starts)


def diagonal_of(x: Value, first: int, second: int, offset: int = 0) -> Value:
    """Return the diagonal of two axes as the last axis: a strided slice of the flattened pair."""
    other_axes = tuple(axis for axis in range(x.ndim) if axis not in (first, second))
    x = permute(x, (*other_axes, first, second))
    rows, columns = x.shape[-2:]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    start = offset if offset >= 0 else -offset * columns
    lead = x.shape[:-2]
    flat = reshape(x, (*lead, rows * columns))
    zeros, unit_steps = (0,) * len(lead), (1,) * len(lead)
    return slice_(flat, (*zeros, start if length else 0), (*lead, length), (*unit_steps, columns + 1))


PRIMITIVES["expand"] = expand
PRIMITIVES["permute"] = permute
PRIMITIVES["reshape"] = reshape
PRIMITIVES["slice"] = slice_
