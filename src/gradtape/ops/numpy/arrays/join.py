"""Joining, splitting and repeating."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.arguments import as_array, as_int, as_shape, concrete, lookup, one_axis, promoted
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import cast_as_asked, full, join, stack
from gradtape.ops.core.shape import expand, permute, reshape
from gradtape.ops.numpy.arrays.shape import atleast_1d, atleast_2d, atleast_3d, cut, flat_or, moved, ravel


def items_of(arrays: Any) -> list[Any]:
    """Return the arrays to join: the elements of a sequence or of an array's first axis."""
    if isinstance(arrays, Value):
        if arrays.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return [getitem(arrays, k) for k in range(arrays.shape[0])]
    return list(arrays)


def each_in(arrays: list[Value], dtype: Any, casting: Any) -> list[Value]:
    """Return arrays in their common dtype, or in the requested one."""
    return promoted(*arrays) if dtype is None else cast_as_asked(arrays, dtype, casting)


@implements(
    np.concatenate,
    lookup(np, "concat"),
    samples=(
        sample([(2,), (3,)]),
        sample([(2, 3), (2, 1)], axis=1),
        sample([(2, 3), (4,)], axis=None),
        sample([(2, 3), np.zeros((0, 3), "f")], axis=0, dtype="f4"),
        sample((2, 3, 2)),
        sample([(3,)]),
    ),
)
def concatenate(arrays: Any, axis: Any = 0, *, dtype: Any = None, casting: Any = "same_kind") -> Value:
    """Follow `numpy.concatenate`."""
    pieces = [as_array(item) for item in items_of(arrays)]
    if not pieces:
        raise ValueError("need at least one array to concatenate")
    if axis is None:
        pieces, axis = [reshape(piece, (piece.size,)) for piece in pieces], 0
    if any(piece.ndim == 0 for piece in pieces):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    if any(piece.ndim != pieces[0].ndim for piece in pieces):
        ranks = ", ".join(str(piece.ndim) for piece in pieces)
        raise ValueError(f"all the input arrays must have same number of dimensions, but they have {ranks}")
    return join(each_in(pieces, dtype, casting), one_axis(axis, pieces[0].ndim))


@implements(
    np.stack,
    samples=(
        sample([(3,), (3,)]),
        sample([(2, 3), (2, 3), (2, 3)], axis=-1),
        sample([(), ()], axis=0),
        sample([(2,), np.array([1, 2])], axis=1, dtype="f4"),
        sample((2, 3)),
    ),
)
def stack_(arrays: Any, axis: Any = 0, *, dtype: Any = None, casting: Any = "same_kind") -> Value:
    """Follow `numpy.stack`."""
    items = [as_array(item) for item in items_of(arrays)]
    if not items:
        raise ValueError("need at least one array to stack")
    return stack(*each_in(items, dtype, casting), axis=as_int(axis, "axis"))


@implements(np.vstack, samples=(sample([(3,), (3,)]), sample([(2, 3), (3,)]), sample([(), ()])))
def vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Value:
    """Follow `numpy.vstack`."""
    return concatenate([atleast_2d(item) for item in items_of(tup)], 0, dtype=dtype, casting=casting)


@implements(np.hstack, samples=(sample([(3,), (2,)]), sample([(2, 3), (2, 1)]), sample([(), ()])))
def hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Value:
    """Follow `numpy.hstack`."""
    pieces = [atleast_1d(item) for item in items_of(tup)]
    axis = 0 if pieces and pieces[0].ndim == 1 else 1
    return concatenate(pieces, axis, dtype=dtype, casting=casting)


@implements(np.dstack, samples=(sample([(3,), (3,)]), sample([(2, 3), (2, 3)]), sample([(), ()])))
def dstack(tup: Any) -> Value:
    """Follow `numpy.dstack`."""
    return concatenate([atleast_3d(item) for item in items_of(tup)], 2)


@implements(np.column_stack, samples=(sample([(3,), (3,)]), sample([(2, 3), (2,)]), sample([(), ()])))
def column_stack(tup: Any) -> Value:
    """Follow `numpy.column_stack`."""
    columns = [as_array(item) for item in items_of(tup)]
    return concatenate([c if c.ndim > 1 else reshape(c, (c.size, 1)) for c in columns], 1)


@implements(np.append, samples=(sample((2, 3), (2,)), sample((2, 3), (1, 3), axis=0), sample((2,), 1.0)))
def append(arr: Any, values: Any, axis: Any = None) -> Value:
    """Follow `numpy.append`."""
    if axis is None:
        return concatenate([ravel(arr), ravel(values)], 0)
    return concatenate([as_array(arr), as_array(values)], axis)


@implements(
    np.block,
    samples=(
        sample([(2,), (3,)]),
        sample([[(2, 2), (2, 1)], [(1, 2), (1, 1)]]),
        sample([[(2, 2), np.ones((2, 1), "f")]]),
        sample((2, 3)),
        sample([[(2,), (3,)], [(5,)]]),
    ),
)
def block(arrays: Any) -> Value:
    """Follow `numpy.block`."""
    depth = _block_depth(arrays)
    rank = max(depth, *[array.ndim for array in _leaves(arrays)])
    return _join_block(arrays, depth, rank)


def _leaves(arrays: Any) -> list[Value]:
    if isinstance(arrays, list):
        return [leaf for item in arrays for leaf in _leaves(item)]
    return [as_array(arrays)]


def _block_depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise TypeError("arrays is a tuple. Only lists can be used to arrange blocks")
    if not isinstance(arrays, list):
        return 0
    if not arrays:
        raise ValueError("List at arrays cannot be empty")
    depths = {_block_depth(item) for item in arrays}
    if len(depths) > 1:
        raise ValueError("List depths are mismatched: every block must lie in as many lists as the others")
    return depths.pop() + 1


def _join_block(arrays: Any, depth: int, rank: int) -> Value:
    if depth == 0:
        leaf = as_array(arrays)
        return reshape(leaf, (1,) * (rank - leaf.ndim) + leaf.shape)
    return concatenate([_join_block(item, depth - 1, rank) for item in arrays], axis=-depth)


SPLITS = (
    sample((6,), 3),
    sample((5, 2), [1, 3]),
    sample((2, 4), 2, axis=1),
    sample((4,), [3, 1, 9]),
    sample((4,), indices_or_sections=np.array([-1])),
)


@implements(np.array_split, samples=(*SPLITS[:4], sample((7,), 3), sample((2,), 3)))
def array_split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Value]:
    """Follow `numpy.array_split`."""
    x = as_array(ary)
    axis = as_int(axis, "axis")
    if not -x.ndim <= axis < x.ndim:
        raise IndexError("tuple index out of range")
    axis %= x.ndim
    extent = x.shape[axis]
    if isinstance(indices_or_sections, Sequence | np.ndarray) and np.ndim(
        concrete(indices_or_sections, "indices")
    ):
        points = [0, *[int(k) for k in concrete(indices_or_sections, "indices")], extent]
    else:
        count = as_int(indices_or_sections, "sections")
        if count <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, extra = divmod(extent, count)
        points = np.cumsum([0] + extra * [each + 1] + (count - extra) * [each]).tolist()
    pieces = []
    for first, last in pairwise(points):
        start, stop, _ = slice(first, last).indices(extent)
        pieces.append(cut(x, axis, start, stop))
    return pieces


@implements(np.split, samples=(*SPLITS, sample((7,), 3)))
def split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Value]:
    """Follow `numpy.split`."""
    x = as_array(ary)
    if np.ndim(indices_or_sections) == 0 and x.shape[axis] % as_int(indices_or_sections, "sections"):
        raise ValueError("array split does not result in an equal division")
    return array_split(x, indices_or_sections, axis)


@implements(np.hsplit, samples=(sample((6,), 3), sample((2, 4), 2), sample((2, 4, 3), 2), sample((), 2)))
def hsplit(ary: Any, indices_or_sections: Any) -> list[Value]:
    """Follow `numpy.hsplit`."""
    x = as_array(ary)
    if x.ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(x, indices_or_sections, 1 if x.ndim > 1 else 0)


@implements(np.vsplit, samples=(sample((4, 2), 2), sample((4,), 2)))
def vsplit(ary: Any, indices_or_sections: Any) -> list[Value]:
    """Follow `numpy.vsplit`."""
    x = as_array(ary)
    if x.ndim < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(x, indices_or_sections, 0)


@implements(np.dsplit, samples=(sample((2, 2, 4), 2), sample((4, 2), 2)))
def dsplit(ary: Any, indices_or_sections: Any) -> list[Value]:
    """Follow `numpy.dsplit`."""
    x = as_array(ary)
    if x.ndim < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(x, indices_or_sections, 2)


@implements(lookup(np, "unstack"), samples=(sample((3, 2)), sample((3, 2), axis=-1), sample(())))
def unstack(x: Any, /, *, axis: Any = 0) -> tuple[Value, ...]:
    """Follow `numpy.unstack`."""
    array = as_array(x)
    if array.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    front = moved(array, (one_axis(axis, array.ndim),), (0,))
    return tuple(getitem(front, k) for k in range(front.shape[0]))


@implements(
    np.tile,
    samples=(
        sample((3,), 2),
        sample((2, 3), reps=(2, 2)),
        sample((2, 3), 2),
        sample((3,), [2, 2]),
        sample((), 3),
    ),
)
def tile(A: Any, reps: Any) -> Value:
    """Follow `numpy.tile`."""
    counts = as_shape(concrete(reps, "reps"))
    x = as_array(A)
    rank = max(len(counts), x.ndim)
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - x.ndim) + x.shape
    wide = tuple(extent for pair in zip(counts, shape, strict=True) for extent in pair)
    axes = tuple(2 * (rank - x.ndim + axis) + 1 for axis in range(x.ndim))
    return reshape(expand(x, wide, axes), tuple(c * n for c, n in zip(counts, shape, strict=True)))


@implements(
    np.repeat,
    samples=(
        sample((3,), 2),
        sample((2, 3), 2),
        sample((2, 3), 2, axis=1),
        sample((2, 3), [1, 0, 2], axis=1),
        sample((3,), repeats=np.array([2, 1, 0])),
        sample((2, 3), [2], axis=0),
        sample((), 3),
    ),
)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Value:
    """Follow `numpy.repeat`."""
    x, place = flat_or(a, axis)
    counts = concrete(repeats, "repeats")
    if counts.size == 1:
        count = int(counts.reshape(-1)[0])
        if count < 0:
            raise ValueError("repeats may not contain negative values.")
        shape = (*x.shape[: place + 1], count, *x.shape[place + 1 :])
        kept = tuple(k for k in range(len(shape)) if k != place + 1)
        return reshape(
            expand(x, shape, kept), (*x.shape[:place], x.shape[place] * count, *x.shape[place + 1 :])
        )
    rows = np.repeat(np.arange(x.shape[place]), counts)
    return getitem(x, (slice(None),) * place + (rows,))


@implements(
    np.resize,
    samples=(
        sample((2, 3), new_shape=(4, 2)),
        sample((3,), 7),
        sample((2, 3), new_shape=(2, 2)),
        sample((), new_shape=(2,)),
        sample((0,), 3),
    ),
)
def resize(a: Any, new_shape: Any) -> Value:
    """Follow `numpy.resize`."""
    shape = as_shape(new_shape)
    if any(extent < 0 for extent in shape):
        raise ValueError("all elements of `new_shape` must be non-negative")
    x = ravel(a)
    wanted = math.prod(shape)
    if x.size == 0 or wanted == 0:
        return full(shape, 0, x.dtype)
    return reshape(cut(tile(x, -(-wanted // x.size)), 0, 0, wanted), shape)


@implements(
    np.meshgrid,
    samples=(
        sample((2,), (3,)),
        sample((2,), (3,), (2,), indexing="ij"),
        sample((2,), (3,), sparse=True),
        sample((2,)),
    ),
)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Value, ...]:
    """Follow `numpy.meshgrid`."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    axes = [ravel(x) for x in xi]
    rank = len(axes)
    grids = [reshape(x, (1,) * k + (x.size,) + (1,) * (rank - 1 - k)) for k, x in enumerate(axes)]
    if indexing == "xy" and rank > 1:
        grids = [permute(grid, (1, 0, *range(2, rank))) for grid in grids]
    if sparse or not grids:
        return tuple(grids)
    shape = np.broadcast_shapes(*[grid.shape for grid in grids])
    return tuple(broadcast_to(grid, shape) for grid in grids)


PRIMITIVES["concatenate"] = concatenate
