"""Values that differ between iterations, as the elements of one array along its first axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.ir.types import INTP, Shape
from gradtape.ops.core.indexing import gather_row, put_row, update_row
from gradtape.ops.core.shape import inverse_permutation, permute, reshape, slice_

Starts = np.ndarray[Any, np.dtype[np.int64]]
Indices = np.ndarray[Any, np.dtype[np.intp]]

MAX_ELEMENTS: Final = 1 << 22
"""Elements of a stack at most if it copies overlapping slices, or separate arrays."""


class StackElement:
    """An element of a stack along its first axis that replaces the value of one iteration until it is materialised."""

    __slots__ = ("index", "stack")

    def __init__(self, stack: Value, index: int) -> None:
        self.stack = stack
        self.index = index

    def read(self) -> Value:
        """Append the nodes that read the element."""
        shape = self.stack.shape
        first = (self.index,) + (0,) * (len(shape) - 1)
        picked = slice_(self.stack, first, (1, *shape[1:]), (1,) * len(shape))
        return reshape(picked, shape[1:])


def strided(starts: Sequence[int]) -> int | None:
    """Return the step of an arithmetic progression, or None for other numbers."""
    if len(starts) < 2:
        return 1
    step = starts[1] - starts[0]
    numbers = np.asarray(starts)
    return step if bool((np.diff(numbers) == step).all()) else None


def picked_elements(stack: Value, iterations: Sequence[int]) -> Value:
    """Return the elements of a stack at these positions, in this order."""
    step = strided(iterations)
    shape = stack.shape
    if step:
        first = (iterations[0],) + (0,) * (len(shape) - 1)
        return slice_(stack, first, (len(iterations), *shape[1:]), (step,) + (1,) * (len(shape) - 1))
    return gather_row(stack, constant(np.asarray(iterations, INTP)))


def stacked_slices(x: Value, starts: Starts, shape: Shape, strides: Shape) -> Value | None:
    r"""Return the stack of ``x[start : start + extent * stride : stride]`` for all starts, an array (iterations, x.ndim).

    The result has the shape (iterations, \*shape). None where that would copy the same elements too often.
    """
    iterations = len(starts)
    moving = [axis for axis in range(x.ndim) if (starts[:, axis] != starts[0, axis]).any()]
    rest = tuple(axis for axis in range(x.ndim) if axis not in moving)
    line = line_of(starts, shape, strides)
    if line is not None:
        axis, step = line
        begin = tuple(int(number) for number in starts[0])
        long = slice_(x, begin, _with(shape, axis, iterations * shape[axis]), _with(strides, axis, step))
        split = reshape(long, (*shape[:axis], iterations, *shape[axis:]))
        return permute(split, (axis, *[k for k in range(split.ndim) if k != axis]))
    if iterations * math.prod(shape) > max(MAX_ELEMENTS, 2 * x.size):
        return None
    fixed = slice_(
        x,
        tuple(0 if axis in moving else int(starts[0, axis]) for axis in range(x.ndim)),
        tuple(x.shape[axis] if axis in moving else shape[axis] for axis in range(x.ndim)),
        tuple(1 if axis in moving else strides[axis] for axis in range(x.ndim)),
    )
    indices = [constant(index) for index in index_arrays(starts, moving, shape, strides)]
    gathered = gather_row(permute(fixed, (*moving, *rest)), *indices)
    order = inverse_permutation((*moving, *rest))
    return permute(gathered, (0, *[axis + 1 for axis in order]))


def line_of(starts: Starts, shape: Shape, strides: Shape) -> tuple[int, int] | None:
    """Return the axis along which slices of this shape are adjacent, and the stride; None where they are not."""
    moving = [axis for axis in range(len(shape)) if (starts[:, axis] != starts[0, axis]).any()]
    if len(moving) != 1:
        return None
    (axis,) = moving
    step = strided(starts[:, axis].tolist())
    extent = shape[axis]
    if not step or not (extent == 1 or (strides[axis] == 1 and step == extent)):
        return None
    return axis, step if extent == 1 else 1


def partial_axes(base: Shape, starts: Starts, shape: Shape, strides: Shape) -> list[int]:
    """Return the axes along which an iteration writes a part of the array only."""
    return [
        axis
        for axis in range(len(base))
        if (starts[:, axis] != starts[0, axis]).any()
        or starts[0, axis]
        or shape[axis] != base[axis]
        or strides[axis] != 1
    ]


def are_disjoint(base: Shape, starts: Starts, shape: Shape, strides: Shape) -> bool:
    """Return whether no two iterations write to the same element."""
    moving = partial_axes(base, starts, shape, strides)
    if math.prod(base) == 0 or not moving:
        return False
    places = np.ravel_multi_index(
        index_arrays(starts, moving, shape, strides), [base[axis] for axis in moving]
    )
    return bool(np.unique(places).size == places.size)


def written_elements(
    base: Value, stack: Value, starts: Starts, strides: Shape, line: tuple[int, int] | None
) -> Value:
    """Return `base` with each element of a stack written at its start; `line` is the result of `line_of`."""
    if line is None:
        shape = stack.shape[1:]
        moving = partial_axes(base.shape, starts, shape, strides)
        indices = [constant(index) for index in index_arrays(starts, moving, shape, strides)]
        order = (*moving, *[axis for axis in range(base.ndim) if axis not in moving])
        front = permute(stack, (0, *[axis + 1 for axis in order]))
        changed = put_row(permute(base, order), front, *indices)
        return permute(changed, inverse_permutation(order))
    axis, step = line
    shape = stack.shape[1:]
    order = (*range(1, axis + 1), 0, *range(axis + 1, stack.ndim))
    together = reshape(permute(stack, order), _with(shape, axis, len(starts) * shape[axis]))
    begin = tuple(int(number) for number in starts[0])
    by = _with(strides, axis, step)
    if axis == 0 and together.shape == base.shape and not any(begin) and all(number == 1 for number in by):
        return together
    return update_row(base, together, starts=begin, strides=by)


def index_arrays(starts: Starts, moving: Sequence[int], shape: Shape, strides: Shape) -> list[Indices]:
    r"""Return, for each axis along which starts differ, the positions that the iterations address, (iterations, \*extents)."""
    wide = (len(starts), *[shape[axis] for axis in moving])
    indices = []
    for place, axis in enumerate(moving):
        along = np.arange(shape[axis]) * strides[axis]
        positions = starts[:, axis].reshape(-1, *[1] * len(moving)) + along.reshape(
            *[-1 if k == place else 1 for k in range(len(moving))]
        )
        indices.append(np.ascontiguousarray(np.broadcast_to(positions, wide)).astype(INTP))
    return indices


def read_at(
    x: Value, indices: Sequence[Value], moving: Sequence[int], first: Shape, shape: Shape, strides: Shape
) -> Value:
    """Return a slice of `x` at these positions along the axes `moving`."""
    rest = [axis for axis in range(x.ndim) if axis not in moving]
    fixed = slice_(
        x,
        tuple(0 if axis in moving else first[axis] for axis in range(x.ndim)),
        tuple(x.shape[axis] if axis in moving else shape[axis] for axis in range(x.ndim)),
        tuple(1 if axis in moving else strides[axis] for axis in range(x.ndim)),
    )
    order = (*moving, *rest)
    return permute(gather_row(permute(fixed, order), *indices), inverse_permutation(order))


def write_at(x: Value, v: Value, indices: Sequence[Value], moving: Sequence[int]) -> Value:
    """Return `x` with `v` written at these positions along the axes `moving`; along the others `v` has the extents of `x`."""
    order = (*moving, *[axis for axis in range(x.ndim) if axis not in moving])
    changed = put_row(permute(x, order), permute(v, order), *indices)
    return permute(changed, inverse_permutation(order))


def _with(shape: Shape, axis: int, extent: int) -> Shape:
    return (*shape[:axis], extent, *shape[axis + 1 :])
