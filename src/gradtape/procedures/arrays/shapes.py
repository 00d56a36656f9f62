"""Other shapes of arrays: transposes, reshapes, diagonals, and arrays that are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.builder import here
from gradtape.kinds.arguments import one_axis
from gradtape.kinds.operands import as_value
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.index_arithmetic import Extent
from gradtape.procedures.arrays.nests import as_view, materialise, new_array, store
from gradtape.procedures.arrays.view import ArrayView, Expression, Place, Shape, as_expression
from gradtape.procedures.builder import ProcedureBuilder


def transpose(x: Expression, axes: Any = None) -> Any:
    """Return an array with its axes in another order, by default reversed."""
    order = list(range(x.ndim))[::-1] if axes is None else [one_axis(axis, x.ndim) for axis in axes]
    if sorted(order) != list(range(x.ndim)):
        raise ValueError("axes don't match array")
    return x.remapped(tuple([x.shape[k] for k in order]), [Place(0, order.index(k)) for k in range(x.ndim)])


def swapaxes(x: Expression, axis1: Any, axis2: Any) -> Any:
    order = list(range(x.ndim))
    first, second = one_axis(axis1, x.ndim), one_axis(axis2, x.ndim)
    order[first], order[second] = order[second], order[first]
    return transpose(x, order)


def moveaxis(x: Expression, source: Any, destination: Any) -> Any:
    sources = [one_axis(k, x.ndim) for k in (source if isinstance(source, tuple | list) else (source,))]
    targets = [
        one_axis(k, x.ndim)
        for k in (destination if isinstance(destination, tuple | list) else (destination,))
    ]
    order = [k for k in range(x.ndim) if k not in sources]
    for target, origin in sorted(zip(targets, sources, strict=True)):
        order.insert(target, origin)
    return transpose(x, order)


def flip(x: Expression, axis: Any = None) -> Any:
    """Return an array with the order of elements reversed along axes."""
    chosen = range(x.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = {one_axis(k, x.ndim) for k in chosen}
    positions = [Place(ix.subtract(n, 1), k, -1) if k in axes else Place(0, k) for k, n in enumerate(x.shape)]
    return x.remapped(x.shape, positions)


def diagonal(x: Expression, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the diagonal of two axes, as the last axis."""
    first, second = one_axis(axis1, x.ndim), one_axis(axis2, x.ndim)
    other_axes = [k for k in range(x.ndim) if k not in (first, second)]
    below, right = max(-offset, 0), max(offset, 0)
    counts = x.build.counts
    extent = ix.minimum(ix.subtract(x.shape[first], below), ix.subtract(x.shape[second], right), counts)
    extent = ix.maximum(extent, 0, counts)
    last = len(other_axes)
    starts = {first: below, second: right}
    positions = [
        Place(starts[k], last) if k in starts else Place(0, other_axes.index(k)) for k in range(x.ndim)
    ]
    return x.remapped((*[x.shape[k] for k in other_axes], extent), positions)


def expand_dims(x: Expression, axis: Any) -> Any:
    new_axes = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = x.ndim + len(new_axes)
    new = {one_axis(k, ndim) for k in new_axes}
    old = [k for k in range(ndim) if k not in new]
    shape = tuple([1 if k in new else x.shape[old.index(k)] for k in range(ndim)])
    return x.remapped(shape, [Place(0, k) for k in old])


def squeeze(x: Expression, axis: Any = None) -> Any:
    """Return an array without axes of extent 1."""
    if axis is None:
        axes = [k for k, n in enumerate(x.shape) if isinstance(n, int) and n == 1]
    else:
        axes = [one_axis(k, x.ndim) for k in (axis if isinstance(axis, tuple) else (axis,))]
        if any(x.shape[k] != 1 for k in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    kept_axes = [k for k in range(x.ndim) if k not in axes]
    positions = [Place(0, kept_axes.index(k)) if k in kept_axes else Place(0) for k in range(x.ndim)]
    return x.remapped(tuple([x.shape[k] for k in kept_axes]), positions)


def reshape(x: Expression, shape: Any) -> ArrayView:
    """Return the elements in row-major order in another shape: a view of a contiguous array, otherwise a copy."""
    extents = [ix.extent(n) for n in (shape if isinstance(shape, tuple | list) else (shape,))]
    free = [k for k, n in enumerate(extents) if isinstance(n, int) and n == -1]
    if len(free) > 1:
        raise ValueError("can only specify one unknown dimension")
    if free:
        known_size = ix.product([n for k, n in enumerate(extents) if k != free[0]])
        extents[free[0]] = _quotient(x.size, known_size)
    size, new = x.size, ix.product(extents)
    if isinstance(size, int) and isinstance(new, int):
        if size != new:
            raise ShapeError(
                f"cannot reshape array of size {size} into shape {tuple(extents)}", where=here.site
            )
    elif not ix.same(size, new):
        x.build.check(
            as_value(ix.is_equal(size, new)), "ValueError", "cannot reshape an array into this shape"
        )
    view = as_view(x.build, x, temporary=False)
    strides = _reshaped_strides(view, extents)
    if strides is None:
        view, strides = materialise(view, order="C"), ix.row_major(tuple(extents))
    return ArrayView(x.build, view.pointer, view.offset, tuple(extents), strides, view.writable)


def _reshaped_strides(view: ArrayView, shape: Sequence[Extent]) -> Shape | None:
    """Return the strides of a view in another shape; None where NumPy copies."""
    if view.is_contiguous:
        return ix.row_major(tuple(shape))
    old_shape, strides, new = map(ix.static_shape, (view.shape, view.strides, tuple(shape)))
    if old_shape is None or strides is None or new is None:
        return None
    shadow = np.lib.stride_tricks.as_strided(
        np.empty(1, np.int8), old_shape, strides
    )  # whose elements are not read
    try:
        return shadow.reshape(new, copy=False).strides
    except ValueError:
        return None


def _quotient(size: Extent, known_size: Extent) -> Extent:
    if isinstance(size, int) and isinstance(known_size, int):
        if known_size == 0:
            raise ShapeError("an extent cannot be found where others are 0", where=here.site)
        return size // known_size
    if ix.same(size, known_size):
        return 1
    return ix.floor_divide(size, known_size)


def ravel(x: Expression) -> ArrayView:
    """Return the elements as a 1-D array to be read: a view where one axis has them all, otherwise a copy."""
    return reshape(x, -1) if x.ndim != 1 else as_view(x.build, x, temporary=False)


def concatenate(
    build: ProcedureBuilder, arrays: Sequence[Any], axis: Any = 0, dtype: Any = None
) -> ArrayView:
    """Return arrays joined along an axis."""
    parts = [as_expression(build, array) for array in arrays]
    if axis is None:
        parts, axis = [ravel(part) for part in parts], 0
    ndim = parts[0].ndim
    if ndim == 0 or any(part.ndim != ndim for part in parts):
        raise ValueError(
            "all the input array dimensions except for the concatenation axis must match exactly"
        )
    axis = one_axis(axis, ndim)
    common_dtype = np.result_type(*[part.dtype for part in parts]) if dtype is None else np.dtype(dtype)
    total: Extent = 0
    for part in parts:
        total = ix.add(total, part.shape[axis])
    shape = list(parts[0].shape)
    shape[axis] = total
    out = new_array(build, shape, common_dtype)
    start: Extent = 0
    for part in parts:
        extents = tuple([part.shape[axis] if k == axis else n for k, n in enumerate(shape)])
        target = out.remapped(extents, [Place(start if k == axis else 0, k) for k in range(ndim)])
        store(target, part)
        start = ix.add(start, part.shape[axis])
    return out
