"""NumPy's functions that move elements or look at shapes alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import Shape
from gradtape.kinds.arguments import (
    as_array,
    as_int,
    as_shape,
    listed,
    lookup,
    one_axis,
    reduced_axes,
    some_axes,
)
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.shape import permute, reshape, slice_


@implements(np.shape, samples=(sample((2, 3)), sample([[(), 1.0]])))
def shape_(a: Any) -> Shape:
    """Follow `numpy.shape`."""
    return as_array(a).shape


@implements(np.ndim, samples=(sample((2, 3)),))
def ndim(a: Any) -> int:
    """Follow `numpy.ndim`."""
    return as_array(a).ndim


@implements(np.size, samples=(sample((2, 3)), sample((2, 3), 1)))
def size(a: Any, axis: Any = None) -> int:
    """Follow `numpy.size`."""
    x = as_array(a)
    return math.prod(x.shape[axis] for axis in some_axes(axis, x.ndim))


def complete_shape(shape: Shape, size: int) -> Shape:
    """Return a shape with its -1, if any, replaced by what follows from the size."""
    known_size = math.prod(extent for extent in shape if extent != -1)
    unknown = sum(extent == -1 for extent in shape)
    if unknown > 1:
        raise ValueError("can only specify one unknown dimension")
    if any(extent < -1 for extent in shape):
        raise ValueError("negative dimensions not allowed")
    if unknown and (known_size == 0 or size % known_size):
        raise ShapeError(
            f"cannot reshape array of size {size} into shape {shape}",
            where=here.site,
            remedy=f"the extents other than -1 must divide {size}",
        )
    return tuple(size // known_size if extent == -1 else extent for extent in shape)


def reshape_in_order(x: Value, shape: Shape, order: str) -> Value:
    """Return `x` reshaped with its elements read and written in C or Fortran order."""
    shape = complete_shape(shape, x.size)
    if order == "F":
        transposed = permute(x, tuple(range(x.ndim))[::-1])
        return permute(reshape(transposed, shape[::-1]), tuple(range(len(shape)))[::-1])
    if order not in ("C", "A", "K"):
        raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")
    return reshape(x, shape)


@implements(
    np.reshape,
    samples=(
        sample((2, 6), shape=(3, 4)),
        sample((2, 6), -1),
        sample((2, 6), shape=(4, -1), order="F"),
        sample((6,), [2, 3]),
        sample((2, 6), shape=(5,)),
        sample((2, 6), shape=(-1, 5)),
        sample((2, 6), shape=(-1, -1)),
        sample((0, 3), shape=(0, -1)),
    ),
)
def reshape_(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Value:
    """Follow `numpy.reshape`."""
    return reshape_in_order(as_array(a), as_shape(shape), order)


@implements(np.ravel, samples=(sample((2, 3)), sample((2, 3), order="F"), sample([(2,), (2,)])))
def ravel(a: Any, order: str = "C") -> Value:
    """Follow `numpy.ravel`."""
    x = as_array(a)
    return reshape_in_order(x, (x.size,), order)


def flat_or(a: Any, axis: Any) -> tuple[Value, int]:
    """Return an array and an axis; flattened where the axis is None, or 0 of a number."""
    x = as_array(a)
    if axis is None or (x.ndim == 0 and axis in (0, -1)):
        return reshape(x, (x.size,)), 0
    return x, one_axis(axis, x.ndim)


@implements(
    np.transpose,
    lookup(np, "permute_dims"),
    samples=(
        sample((2, 3)),
        sample((2, 3, 4), axes=(1, 2, 0)),
        sample((2, 3, 4), axes=(-1, 0, 1)),
        sample((2, 3), axes=(0, 0)),
        sample((2, 3), axes=(0,)),
    ),
)
def transpose(a: Any, axes: Any = None) -> Value:
    """Follow `numpy.transpose`."""
    x = as_array(a)
    if axes is None:
        return permute(x, tuple(range(x.ndim))[::-1])
    if len(axes) != x.ndim:
        raise ValueError("axes don't match array")
    order = tuple(one_axis(axis, x.ndim) for axis in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ValueError("repeated axis in transpose")
    return permute(x, order)


@implements(
    lookup(np, "matrix_transpose"),
    lookup(np.linalg, "matrix_transpose"),
    samples=(sample((2, 3)), sample((4, 2, 3)), sample((3,))),
)
def matrix_transpose(x: Any, /) -> Value:
    """Follow `numpy.matrix_transpose`."""
    array = as_array(x)
    if array.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {array.ndim}")
    return swapaxes(array, -1, -2)


@implements(np.swapaxes, samples=(sample((2, 3, 4), 0, -1), sample((2, 3), 0, 2)))
def swapaxes(a: Any, axis1: Any, axis2: Any) -> Value:
    """Follow `numpy.swapaxes`."""
    x = as_array(a)
    first, second = one_axis(axis1, x.ndim), one_axis(axis2, x.ndim)
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return permute(x, tuple(order))


def moved(x: Value, source: tuple[int, ...], destination: tuple[int, ...]) -> Value:
    """Return `x` with some axes moved (all non-negative)."""
    order = [axis for axis in range(x.ndim) if axis not in source]
    for position, axis in sorted(zip(destination, source, strict=True)):
        order.insert(position, axis)
    return permute(x, tuple(order))


@implements(
    np.moveaxis,
    samples=(
        sample((2, 3, 4), 0, -1),
        sample((2, 3, 4), [0, 1], [-1, -2]),
        sample((2, 3), [0, 1], 0),
        sample((2, 3), 5, 0),
    ),
)
def moveaxis(a: Any, source: Any, destination: Any) -> Value:
    """Follow `numpy.moveaxis`."""
    x = as_array(a)
    start, end = some_axes(listed(source), x.ndim), some_axes(listed(destination), x.ndim)
    if len(start) != len(end):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    return moved(x, start, end)


@implements(np.rollaxis, samples=(sample((2, 3, 4), 2), sample((2, 3, 4), 0, 3), sample((2, 3, 4), 1, -1)))
def rollaxis(a: Any, axis: Any, start: Any = 0) -> Value:
    """Follow `numpy.rollaxis`."""
    x = as_array(a)
    source = one_axis(axis, x.ndim)
    position = as_int(start, "start")
    position = position + x.ndim if position < 0 else position
    if not 0 <= position <= x.ndim:
        raise np.exceptions.AxisError(
            f"'start' arg requires {-x.ndim} <= start < {x.ndim + 1}, but {start} was passed in"
        )
    return moved(x, (source,), (position - 1 if source < position else position,))


@implements(
    np.squeeze,
    samples=(sample((1, 3, 1)), sample((1, 3, 1), 0), sample((1, 3, 1), axis=(0, -1)), sample((2, 3), 0)),
)
def squeeze(a: Any, axis: Any = None) -> Value:
    """Follow `numpy.squeeze`."""
    x = as_array(a)
    if x.ndim == 0:
        return x if axis is None else reshape(x, (1,) * len(reduced_axes(axis, 0)))
    axes = [k for k, extent in enumerate(x.shape) if extent == 1] if axis is None else some_axes(axis, x.ndim)
    if any(x.shape[k] != 1 for k in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshape(x, tuple(extent for k, extent in enumerate(x.shape) if k not in axes))


@implements(np.expand_dims, samples=(sample((2, 3), 1), sample((2, 3), axis=(0, -1)), sample((3,), 2)))
def expand_dims(a: Any, axis: Any) -> Value:
    """Follow `numpy.expand_dims`."""
    x = as_array(a)
    count = len(axis) if isinstance(axis, tuple | list) else 1
    axes = some_axes(axis, x.ndim + count)
    extents = iter(x.shape)
    return reshape(x, tuple(1 if k in axes else next(extents) for k in range(x.ndim + count)))


@implements(
    np.broadcast_to,
    samples=(
        sample((3,), shape=(2, 3)),
        sample((2, 1), shape=(2, 4)),
        sample((), 3),
        sample((2,), shape=(3,)),
    ),
)
def broadcast_to_(array: Any, shape: Any, subok: bool = False) -> Value:
    """Follow `numpy.broadcast_to`."""
    x, target = as_array(array), as_shape(shape)
    try:
        fits = np.broadcast_shapes(x.shape, target) == target
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"operands could not be broadcast together with remapped shapes: {x.shape} to {target}",
            where=here.site,
            remedy="every trailing extent must be 1 or the wanted one",
        )
    return broadcast_to(x, target)


@implements(np.broadcast_arrays, samples=(sample((3,), (2, 1)), sample((2, 3)), sample((2,), (3,))))
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    """Follow `numpy.broadcast_arrays`."""
    arrays: list[Any] = [arg if arg is None or isinstance(arg, str) else as_array(arg) for arg in args]
    shape = np.broadcast_shapes(*[array.shape for array in arrays if isinstance(array, Value)])
    return tuple(
        [
            broadcast_to(array, shape)
            if isinstance(array, Value)
            else np.broadcast_to(np.array(array), shape)
            for array in arrays
        ]
    )


def _at_least_1(a: Any) -> Value:
    x = as_array(a)
    return reshape(x, (1,)) if x.ndim == 0 else x


def _at_least_2(a: Any) -> Value:
    x = as_array(a)
    return reshape(x, (1,) * (2 - x.ndim) + x.shape) if x.ndim < 2 else x


def _at_least_3(a: Any) -> Value:
    x = as_array(a)
    shapes = {0: (1, 1, 1), 1: (1, x.size, 1), 2: (*x.shape, 1)}
    return reshape(x, shapes[x.ndim]) if x.ndim < 3 else x


ATLEAST = (sample(()), sample((2,)), sample((2, 3), ()), sample((2, 3, 4)))


@implements(np.atleast_1d, samples=ATLEAST)
def atleast_1d(*arys: Any) -> Any:
    """Follow `numpy.atleast_1d`."""
    return _at_least_1(arys[0]) if len(arys) == 1 else tuple(map(_at_least_1, arys))


@implements(np.atleast_2d, samples=ATLEAST)
def atleast_2d(*arys: Any) -> Any:
    """Follow `numpy.atleast_2d`."""
    return _at_least_2(arys[0]) if len(arys) == 1 else tuple(map(_at_least_2, arys))


@implements(np.atleast_3d, samples=ATLEAST)
def atleast_3d(*arys: Any) -> Any:
    """Follow `numpy.atleast_3d`."""
    return _at_least_3(arys[0]) if len(arys) == 1 else tuple(map(_at_least_3, arys))


def cut(x: Value, axis: int, start: int, stop: int) -> Value:
    """Return the elements from `start` to `stop` along an axis."""
    stop = min(stop, x.shape[axis])
    first = tuple(start if k == axis else 0 for k in range(x.ndim))
    shape = tuple(max(stop - start, 0) if k == axis else extent for k, extent in enumerate(x.shape))
    return slice_(x, first if stop > start else (0,) * x.ndim, shape, (1,) * x.ndim)


@implements(np.copy, samples=(sample((2, 3)), sample((2, 3), order="F")))
def copy(a: Any, order: str = "K", subok: bool = False) -> Value:
    """Follow `numpy.copy`: a value never changes, so it is its own copy."""
    return as_array(a)


@implements(
    lookup(np, "astype"), samples=(sample((2, 3), np.float32), sample((2,), "i4"), sample((2,), complex))
)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Value:
    """Follow `numpy.astype`."""
    return convert(as_array(x), np.dtype(dtype))
