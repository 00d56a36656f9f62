"""Bits in bytes: ``np.packbits`` and ``np.unpackbits``."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.ir.op import NDArray
from gradtape.kinds.arguments import as_array, one_axis
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.integer import right_shift
from gradtape.ops.core.elementwise.logic import not_equal
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import pad, reshape, slice_
from gradtape.ops.numpy.arrays.shape import moved

BYTE: Final = np.dtype(np.uint8)

FLAGS: Final = np.arange(22).reshape(2, 11) % 3 == 0
BYTES: Final = np.arange(0, 240, 40, dtype=np.uint8).reshape(2, 3)


def _places(bitorder: Any) -> NDArray:
    """Return by how many places each bit of a byte is shifted."""
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    return np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1].copy()


def _along_last(x: Value, axis: Any) -> tuple[Value, int | None]:
    """Return an array with the axis at its end, flat if there is none."""
    if axis is None:
        return reshape(x, (x.size,)), None
    place = one_axis(axis, x.ndim)
    return moved(x, (place,), (x.ndim - 1,)), place


def _moved_back(x: Value, place: int | None) -> Value:
    return x if place is None else moved(x, (x.ndim - 1,), (place,))


def _extended(x: Value, extent: int) -> Value:
    """Return an array whose last axis is cut, or ends with zeros."""
    shape = (*x.shape[:-1], extent)
    if extent <= x.shape[-1]:
        return slice_(x, (0,) * x.ndim, shape, (1,) * x.ndim)
    return pad(x, shape, (0,) * x.ndim)


@implements(
    np.packbits,
    samples=(sample(FLAGS), sample(FLAGS, 0), sample(FLAGS, axis=-1, bitorder="little"), sample(BYTES, 1)),
    dtypes="?bBq",
    smooth=False,
)
def packbits(a: Any, axis: Any = None, bitorder: Any = "big") -> Value:
    """Follow `numpy.packbits`."""
    weights = constant(np.uint8(1) << _places(bitorder))
    x = as_array(a)
    if x.dtype.kind not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    x, place = _along_last(x, axis)
    count = -(-x.shape[-1] // 8)
    bits = _extended(convert(not_equal(x, 0), BYTE), 8 * count)
    shape = (*x.shape[:-1], count, 8)
    terms = reshape(bits, shape) * broadcast_to(weights, shape)
    return _moved_back(reduce_sum(terms, axes=(len(shape) - 1,)), place)


@implements(
    np.unpackbits,
    samples=(
        sample(BYTES),
        sample(BYTES, 0),
        sample(BYTES, axis=1, count=11, bitorder="little"),
        sample(BYTES, axis=-1, count=-3),
        sample(BYTES, count=60),
    ),
    dtypes="B",
    smooth=False,
)
def unpackbits(a: Any, axis: Any = None, count: Any = None, bitorder: Any = "big") -> Value:
    """Follow `numpy.unpackbits`."""
    places = constant(_places(bitorder))
    x = as_array(a)
    if x.dtype != BYTE:
        raise TypeError("Expected an input array of unsigned byte data type")
    x, place = _along_last(x, axis)
    shape = (*x.shape, 8)
    wide = broadcast_to(reshape(x, (*x.shape, 1)), shape)
    bits = right_shift(wide, broadcast_to(places, shape)) & np.uint8(1)
    bits = reshape(bits, (*x.shape[:-1], 8 * x.shape[-1]))
    if count is not None:
        extent = operator.index(count)
        if extent < 0:
            extent += bits.shape[-1]
            if extent < 0:
                raise ValueError(f"-ve count trims more elements than there are: {count}")
        bits = _extended(bits, extent)
    return _moved_back(bits, place)
