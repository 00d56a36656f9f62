"""Functions that write into their first argument: they return what that becomes."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import DtypeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import INTP
from gradtape.kinds.arguments import as_array, concrete, one_axis
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.cast import convert, convert_number
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.elementwise.logic import truth
from gradtape.ops.core.elementwise.select import where as where_row
from gradtape.ops.core.indexing import fit_for_write, gather, put_row, setitem
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.join import resize
from gradtape.ops.numpy.arrays.select import as_positions, beside, bounded
from gradtape.ops.numpy.arrays.shape import broadcast_to_

MASK = np.array([[True, False, True], [False, False, True]])


@implements(
    np.copyto,
    samples=(
        sample((2, 3), (3,)),
        sample((2, 3), 2.0, where=MASK),
        sample((2, 3), (2, 3), where=MASK[0]),
        sample(np.arange(3), (3,)),
        sample(np.arange(3), (3,), casting="unsafe"),
        sample((2, 3), (2,)),
    ),
    dtypes="f",
    writes=True,
)
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> Value:
    """Follow `numpy.copyto`."""
    base, value = as_array(dst), as_value(src)
    is_python_integer = value.aval.weak and value.dtype.kind == "i" and base.dtype.kind in "iu"
    if not (is_python_integer or np.can_cast(value.dtype, base.dtype, casting)):
        raise DtypeError(
            f"Cannot cast array data from {value.dtype} to {base.dtype} according to the rule {casting!r}",
            where=here.site,
            remedy="pass casting='unsafe'",
        )
    wide = fit_for_write(value, base.dtype, base.shape)
    if where is True:
        return wide
    return where_row(broadcast_to_(where, base.shape), wide, base)


def _flat_write(a: Any, positions: Value, values: Any) -> Value:
    """Write values, repeated as often as needed, at positions of the flattened array."""
    base = as_array(a)
    if positions.size == 0:
        return base
    v = resize(convert_number(values, base.dtype), positions.size)
    flat = put_row(reshape(base, (base.size,)), v, reshape(positions, (positions.size,)))
    return reshape(flat, base.shape)


@implements(
    np.put,
    samples=(
        sample((2, 3), [0, -1], (2,)),
        sample((2, 3), np.array([1, 4, 2]), (2,)),
        sample((4,), [1, 2], 7),
        sample((4,), [5, -6], (2,), mode="wrap"),
        sample((4,), [5, -6], (2,), mode="clip"),
        sample((4,), [9], (1,)),
    ),
    dtypes="qf",
    writes=True,
    by_item=True,
)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> Value:
    """Follow `numpy.put`."""
    base = as_array(a)
    positions = as_positions(ind)
    if not isinstance(ind, Value) and mode == "raise":
        plain = concrete(ind, "ind")
        if plain.size and (plain.min() < -base.size or plain.max() >= base.size):
            raise IndexError(f"index {plain.max()} is out of bounds for axis 0 with size {base.size}")
    return _flat_write(base, bounded(positions, base.size, mode), v)


@implements(
    np.putmask,
    samples=(
        sample((2, 3), MASK, (2, 3)),
        sample((2, 3), MASK, (2,)),
        sample((2, 3), mask=MASK, values=3.0),
        sample((3,), (3,), 1.0),
    ),
    dtypes="qf",
    writes=True,
    by_item=True,
)
def putmask(a: Any, /, mask: Any, values: Any) -> Value:
    """Follow `numpy.putmask`: values repeat by position."""
    base, chosen = as_array(a), truth(as_array(mask))
    if chosen.size != base.size:
        raise ValueError("putmask: mask and data must be the same size")
    v = convert_number(values, base.dtype)
    if v.size == 0:
        return base
    return where_row(reshape(chosen, base.shape), resize(v, base.shape), base)


@implements(
    np.place,
    samples=(
        sample((2, 3), MASK, (3,)),
        sample((2, 3), MASK, (2,)),
        sample((2, 3), MASK, [1, 2, 3, 4]),
        sample((2,), [False, True], 5.0),
    ),
    dtypes="qf",
    writes=True,
    by_item=True,
)
def place(arr: Any, mask: Any, vals: Any) -> Value:
    """Follow `numpy.place`: values are used up in order."""
    base, chosen = as_array(arr), truth(as_array(mask))
    if chosen.size != base.size:
        raise ValueError("place: mask and data must be the same size")
    v = convert_number(vals, base.dtype)
    v = reshape(v, (v.size,))
    if v.size == 0:
        raise ValueError("Cannot insert from an empty array!")
    flat = reshape(chosen, (base.size,))
    rank = remainder(cumsum(convert(flat, INTP), axis=0) - 1, v.size)
    return reshape(where_row(flat, gather(v, rank), reshape(base, (base.size,))), base.shape)


@implements(
    np.put_along_axis,
    samples=(
        sample((2, 3), np.array([[0, 2], [1, -1]]), (2, 2), axis=1),
        sample((2, 3), np.array([[1, 0, 1]]), 7.0, 0),
        sample((2, 3), np.array([5, 0]), (2,), axis=None),
    ),
    dtypes="qf",
    writes=True,
    by_item=True,
)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> Value:
    """Follow `numpy.put_along_axis`."""
    base, positions = as_array(arr), as_array(indices)
    x, place_ = (reshape(base, (base.size,)), 0) if axis is None else (base, one_axis(axis, base.ndim))
    if axis is None and positions.ndim != 1:
        raise ValueError("when axis=None, `indices` must have a single dimension.")
    keys = beside(x, positions, place_)
    v = fit_for_write(values, base.dtype, keys[0].shape)
    return reshape(put_row(x, v, *keys), base.shape)


@implements(
    np.fill_diagonal,
    samples=(
        sample((3, 3), 2.0),
        sample((2, 4), (2,)),
        sample((5, 2), 1.0, wrap=True),
        sample((2, 2, 2), 3),
        sample((3,), 1.0),
        sample((2, 3, 2), 1),
    ),
    dtypes="qf",
    writes=True,
    by_item=True,
)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> Value:
    """Follow `numpy.fill_diagonal`."""
    base = as_array(a)
    if base.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if base.ndim == 2:
        step = base.shape[1] + 1
        end = base.size if wrap else min(base.shape[1] * base.shape[1], base.size)
    else:
        if len(set(base.shape)) != 1:
            raise ValueError("All dimensions of input must be of equal length")
        step = 1 + sum(base.shape[0] ** k for k in range(1, base.ndim))
        end = base.size
    count = len(range(0, end, step))
    values = resize(convert_number(val, base.dtype), count)
    return reshape(setitem(reshape(base, (base.size,)), slice(0, end, step), values), base.shape)
