"""Rows for indexing by integer arrays and for writes, and what `x[key]` and `x[key] = v` mean in terms of
them."""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from gradtape.errors import DtypeError, InPlaceError, ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Node, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import BOOL, INTP, Shape
from gradtape.kinds.accumulate import Accumulate, accumulate
from gradtape.kinds.index_map import Index, IndexMap, index_map
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.ops.core.elementwise.cast import convert, convert_number, drops_imaginary, zeros_like
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.index_keys import (
    Hits,
    check_bounds,
    index_array,
    is_array_index,
    normal_items,
    plain_code,
    slice_bounds,
    wrapped,
)
from gradtape.ops.core.shape import expand, inverse_permutation, permute, reshape, slice_


def _bounds(params: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of the indices."""
    return {"in_bounds": True} if "in_bounds" in params else {}


def _gather_source(i: Index, x: Shape, *readers: Any, rows: bool = False, in_bounds: bool = False) -> Index:
    lead = len(i) - (len(x) - len(readers))
    return (*[read(i[:lead]) for read in readers], *i[lead:])


gather_row = index_map(
    "gather",
    shape=lambda x, *indices, rows=False, in_bounds=False: (*indices[0], *x[len(indices) :]),
    evaluate=lambda x, *indices, rows=False, in_bounds=False: x[indices],
    source=_gather_source,
    transpose=lambda ct, node: put_add(
        zeros_like(node.inputs[0]), ct, *node.inputs[1:], **_bounds(node.params)
    ),
    samples=(
        ((5,), [np.array([0, 3, 3, 1])], {}),
        ((5, 3), [np.array([[4, -1], [0, 2]])], {}),
        ((3, 4, 2), [np.array([0, 2, 2]), np.array([3, 3, -1])], {}),
        ((3, 2), [np.array([], dtype=np.intp)], {}),
        ((5, 3), [np.array([4, -1, 0])], {"rows": True}),
        ((5,), [np.array([4, 1, 4, 0], np.uint32)], {"in_bounds": True}),
    ),
)
"""With ``rows`` it is a gather that the user wrote: the gradient of what it reads can stay a list of rows.

With ``in_bounds`` the indices are known to be neither negative nor too large, so that kernels do not look.
"""


def gather(x: Value, *indices: Value) -> Value:
    """Return ``x[indices]``: index arrays of one shape pick along the leading axes of `x`."""
    return gather_row(x, *indices)


def _put(base: NDArray, v: NDArray, *indices: NDArray) -> NDArray:
    out = base.copy()
    out[indices] = v
    return out


def _put_add(base: NDArray, v: NDArray, *indices: NDArray, in_bounds: bool = False) -> NDArray:
    out = base.copy()
    np.add.at(out, indices, v)
    return out


def _segment_add(
    base: NDArray, v: NDArray, targets: NDArray, starts: NDArray, in_bounds: bool = False
) -> NDArray:
    return _put_add(base, v, targets)


def distinct(indices: Sequence[Value], extents: Sequence[int]) -> bool:
    """Return whether index arrays address no element twice for certain: that needs arrays that are known."""
    known: list[Any] = [known_array(index) for index in indices]
    if any(index is None for index in known):
        return False
    flat = np.ravel_multi_index(
        [index % extent for index, extent in zip(known, extents, strict=True)], extents
    )
    return bool(len(np.unique(flat)) == flat.size)


def known_array(index: Value) -> NDArray | None:
    """Return the numbers of an index array that is a constant, or one moved or repeated."""
    if index.data is not None:
        return None if index.tags else index.data  # A traced index holds the numbers of one call only.
    node = index.node
    if node is None or not isinstance(node.op, IndexMap) or len(node.inputs) > 1:
        return None
    source = known_array(node.inputs[0])
    return None if source is None else node.op.evaluate([source], node.params)[0]


def _winners(node: Node) -> Value | None:
    """Where an element of v was not overwritten by a later one; None when no index repeats for certain."""
    indices, shape = node.inputs[2:], node.inputs[1].shape
    lead = indices[0].shape
    count = int(np.prod(lead))
    extents = node.inputs[0].shape[: len(indices)]
    if distinct(indices, extents):
        return None
    order = constant(np.arange(count, dtype=INTP).reshape(lead))
    blank = constant(np.full(extents, -1, INTP))
    last = gather(put_row(blank, order, *indices), *indices)
    won = equal(last, order)
    return expand(won, shape, tuple(range(len(lead))))


def _put_transpose(ct: Value, node: Node) -> tuple[Value, Value]:
    indices = node.inputs[2:]
    v = gather(ct, *indices)
    won = _winners(node)
    if won is not None:
        v = where(won, v, zeros_like(v))
    return put_row(ct, zeros_like(node.inputs[1]), *indices), v


def _put_target(j: Index, base: Shape, *readers: Any, in_bounds: bool = False) -> Index:
    return _gather_source(j, base, *readers)


_PUT_SAMPLES: tuple[tuple[Any, ...], ...] = (
    ((5,), (3,), [np.array([0, 3, 1])], {}),
    ((5, 2), (3, 2), [np.array([4, -1, 0])], {}),
    ((3, 4), (2,), [np.array([0, 2]), np.array([3, 3])], {}),
    ((5,), (3,), [np.array([2, 2, 1])], {}),
)

put_row = accumulate(
    "put",
    combine="set",
    evaluate=_put,
    target=_put_target,
    transpose=_put_transpose,
    samples=_PUT_SAMPLES,
)
put_add: Accumulate = accumulate(
    "put_add",
    combine="add",
    evaluate=_put_add,
    target=_put_target,
    transpose=lambda ct, node: (ct, gather_row(ct, *node.inputs[2:], **_bounds(node.params))),
    samples=(
        *_PUT_SAMPLES,
        ((5,), (6,), [np.array([0, 0, 4, 2, 2, 4])], {"in_bounds": True}),
    ),
)
"""With ``in_bounds`` the indices are known to be inside."""

segment_add: Accumulate = accumulate(
    "segment_add",
    combine="add",
    evaluate=_segment_add,
    target=_put_target,
    transpose=lambda ct, node: (ct, gather_row(ct, node.inputs[2], **_bounds(node.params))),
    without_starts=put_add,
    samples=(
        ((5,), (6,), [np.array([0, 0, 2, 2, 2, 4]), np.array([0, 2, 2, 5, 5, 6])], {"in_bounds": True}),
        ((3, 2), (4, 2), [np.array([0, 1, 1, 2]), np.array([0, 1, 3, 4])], {}),
        ((2,), (0,), [np.zeros(0, int), np.zeros(3, int)], {}),
    ),
)
"""`put_add` of v along its first axis, where equal indices follow one another: ``base[i] += sum(v[starts[i]:starts[i + 1]])``.

It has the indices and the starts, one more than there are elements: a kernel goes from start to start with the sum in a register, and
derivatives gather by the indices.
"""


def _update(base: NDArray, v: NDArray, *, starts: Shape, strides: Shape) -> NDArray:
    out = base.copy()
    slice_row_view(out, starts, v.shape, strides)[...] = v
    return out


def slice_row_view(x: NDArray, starts: Shape, shape: Shape, strides: Shape) -> NDArray:
    """Return the view of the elements ``start + k * stride``."""
    picked = []
    for start, extent, stride in zip(starts, shape, strides, strict=True):
        stop = start + extent * stride
        picked.append(slice(start, stop if stop >= 0 else None, stride) if extent else slice(0, 0))
    return x[tuple(picked)]


def _update_transpose(ct: Value, node: Node) -> tuple[Value, Value]:
    starts, strides = node.params["starts"], node.params["strides"]
    v = node.inputs[1]
    return (
        update_row(ct, zeros_like(v), starts=starts, strides=strides),
        slice_(ct, starts, v.shape, strides),
    )


update_row = accumulate(
    "update",
    combine="set",
    lead=lambda size, *, starts, strides: {"starts": (0, *starts), "strides": (1, *strides)},
    evaluate=_update,
    target=lambda j, base, *, starts, strides: tuple(
        start + k * stride for k, start, stride in zip(j, starts, strides, strict=True)
    ),
    transpose=_update_transpose,
    samples=(
        ((5,), (3,), [], {"starts": (1,), "strides": (1,)}),
        ((5,), (5,), [], {"starts": (4,), "strides": (-1,)}),
        ((4, 6), (2, 3), [], {"starts": (0, 1), "strides": (3, 2)}),
        ((4, 6), (2, 0), [], {"starts": (0, 1), "strides": (3, 2)}),
    ),
)


@dataclass(frozen=True)
class Basic:
    """A basic index, normalised: a slice of every axis, which axes are dropped, and the final shape."""

    starts: Shape
    shape: Shape
    strides: Shape
    result: Shape

    def read(self, x: Value) -> Value:
        """Return the elements."""
        return reshape(slice_(x, self.starts, self.shape, self.strides), self.result)

    def write(self, x: Value, v: Value) -> Value:
        """Return `x` with the elements replaced by `v`, which has the shape `result`."""
        if self.shape == x.shape and not any(self.starts) and all(stride == 1 for stride in self.strides):
            return reshape(v, x.shape)
        v = reshape(v, self.shape)
        node = x.node
        if (
            node is not None
            and node.op is update_row
            and node.inputs[1] is v
            and node.params == self._place()
        ):
            return x  # `x[key] += v` writes through the view x[key], and then assigns the view to x[key]
        return update_row(x, v, **self._place())

    def _place(self) -> dict[str, Shape]:
        return {"starts": self.starts, "strides": self.strides}


@dataclass(frozen=True)
class Advanced:
    """An index with integer arrays: first a basic one, then arrays on some axes of its result.

    `masked` tells that some of the arrays stand for a mask.
    """

    basic: Basic
    axes: tuple[int, ...]
    indices: tuple[Value, ...]
    place: int
    masked: bool = False

    def read(self, x: Value) -> Value:
        picked = gather(self._front(self.basic.read(x)), *self.indices)
        return permute(picked, inverse_permutation(self._order(picked.ndim)))

    def read_rows(self, x: Value) -> Value:
        """Return the elements; where integers pick whole rows of `x`, so that its gradient can stay sparse."""
        if self.picks_rows(x.shape) and not self.masked:
            return gather_row(x, *self.indices, rows=True)
        return self.read(x)

    def picks_rows(self, shape: Shape) -> bool:
        """Return whether whole rows of an array of this shape are picked."""
        basic = self.basic
        return (
            self.axes == (0,)
            and basic.shape == basic.result == shape
            and all(stride == 1 for stride in basic.strides)
        )

    def write(self, x: Value, v: Value) -> Value:
        node = x.node
        if (
            node is not None
            and node.op is put_row
            and node.inputs[1] is v
            and node.inputs[2:] == self.indices
        ):
            return x  # `x[key] += v` has written through the view x[key] already
        return self._scatter(x, v, put_row)

    def accumulate(self, x: Value, v: Value) -> Value:
        """Return `x` with `v` added at the elements, repeated ones included (``np.add.at``)."""
        return self._scatter(x, v, put_add)

    def distinct(self, shape: Shape) -> bool:
        """Return whether no element is addressed twice for certain."""
        return distinct(self.indices, [self.basic.result[axis] for axis in self.axes])

    @property
    def result(self) -> Shape:
        """The shape of what is read."""
        lead = self.indices[0].shape
        rest = [extent for axis, extent in enumerate(self.basic.result) if axis not in self.axes]
        return (*rest[: self.place], *lead, *rest[self.place :])

    def _scatter(self, x: Value, v: Value, row: Any) -> Value:
        inner = self.basic.read(x)
        front = self._front(inner)
        changed = row(front, permute(v, self._order(v.ndim)), *self.indices)
        back = permute(changed, inverse_permutation(self._front_axes(inner.ndim)))
        return self.basic.write(x, back)

    def _front_axes(self, ndim: int) -> tuple[int, ...]:
        return (*self.axes, *[axis for axis in range(ndim) if axis not in self.axes])

    def _front(self, x: Value) -> Value:
        return permute(x, self._front_axes(x.ndim))

    def _order(self, ndim: int) -> tuple[int, ...]:
        """Which axes of the result are the gather's: its index axes stand at `place`."""
        count = self.indices[0].ndim
        there = tuple(range(self.place, self.place + count))
        return (*there, *[axis for axis in range(ndim) if axis not in there])


def parse_index(shape: Shape, key: Any) -> Basic | Advanced:
    """Read an index as NumPy does.

    Parameters
    ----------
    shape : tuple of int
        Of the array that is indexed.
    key : object
        What stands in the brackets. Integers are Python's; masks are concrete; index arrays may be values.

    Raises
    ------
    IndexError
        Where NumPy raises it: too many indices, a constant out of bounds, a float.
    """
    code = plain_code(key)
    return _parse(shape, key) if code is None else _parse_plain(shape, code)


@lru_cache(maxsize=8192)
def _parse_plain(shape: Shape, code: tuple[Any, ...]) -> Basic | Advanced:
    return _parse(shape, tuple(slice(*item) if type(item) is tuple else item for item in code))


def _parse(shape: Shape, key: Any) -> Basic | Advanced:
    items = normal_items(shape, key)
    starts: list[int] = []
    extents: list[int] = []
    strides: list[int] = []
    result: list[int] = []
    arrays: list[tuple[int, int, Value]] = []
    positions: list[int] = []
    advanced = any(is_array_index(item) for item in items)
    axis = 0
    for position, item in enumerate(items):
        if item is Ellipsis:
            continue
        if item is None:
            result.append(1)
            continue
        start, count, stride = 0, shape[axis], 1
        if isinstance(item, slice):
            start, count, stride = slice_bounds(item, shape[axis])
            result.append(count)
        elif advanced:
            arrays.append((len(result), axis, index_array(item, shape[axis], axis)))
            positions.append(position)
            result.append(count)
        else:
            start, count = wrapped(item, shape[axis], axis), 1
        starts.append(start)
        extents.append(count)
        strides.append(stride)
        axis += 1
    basic = Basic(tuple(starts), tuple(extents), tuple(strides), tuple(result))
    if not advanced:
        return basic
    try:
        common = np.broadcast_shapes(*[index.shape for *_, index in arrays])
    except ValueError:
        shapes = " ".join(str(index.shape) for *_, index in arrays)
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from None
    if math.prod(common):
        for _, axis, index in arrays:
            check_bounds(index, shape[axis], axis)
    places = tuple(place for place, _, _ in arrays)
    indices = tuple(broadcast_to(convert(index, INTP), common) for *_, index in arrays)
    together = positions == list(range(positions[0], positions[0] + len(positions)))
    masked = any(isinstance(item, Hits) for item in items)
    return Advanced(basic, places, indices, places[0] if together else 0, masked)


def getitem(x: Value, key: Any) -> Value:
    """Return ``x[key]``."""
    chosen = truth_index(key)
    if chosen is not None:
        return parse_index((1, *x.shape), slice(int(chosen))).read(reshape(x, (1, *x.shape)))
    if has_truths(key):
        axes, others = _with_axes_of_truths(key)
        return getitem(getitem(x, axes), others)
    return parse_index(x.shape, key).read(x)


def truth_index(key: Any) -> bool | None:
    """Return the number of the index ``x[True]`` or ``x[False]``, which selects all of an array or nothing; None for other indices."""
    if isinstance(key, bool | np.bool_) or (
        isinstance(key, np.ndarray) and key.dtype == np.bool_ and not key.ndim
    ):
        return bool(key)
    return None


def has_truths(key: Any) -> bool:
    """Return whether an index has True or False beside other items, as ``x[True, None]``."""
    return type(key) is tuple and any(truth_index(item) is not None for item in key)


def _with_axes_of_truths(key: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return an index that makes an axis for each True and False in an index, and the one that is left: all or nothing of these axes."""
    axes: list[Any] = []
    others: list[Any] = []
    for item in key:
        chosen = truth_index(item)
        if chosen is not None:
            axes.append(None)
        elif item is Ellipsis:
            axes.append(Ellipsis)
        elif item is not None:
            is_mask = isinstance(item, np.ndarray | list) and np.asarray(item).dtype.kind == "b"
            axes.extend([slice(None)] * (np.ndim(item) if is_mask else 1))
        others.append(item if chosen is None else np.zeros(int(chosen), INTP))
    return tuple(axes), tuple(others)


def getitem_rows(x: Value, key: Any) -> Value:
    """Return ``x[key]`` as the user's own gather: see `Advanced.read_rows`."""
    index = parse_index(x.shape, key)
    return index.read(x) if isinstance(index, Basic) else index.read_rows(x)


def setitem(x: Value, key: Any, v: Any) -> Value:
    """Return `x` after ``x[key] = v``.

    Raises
    ------
    ShapeError
        Where `v` cannot be broadcast to ``x[key]``.
    """
    if isinstance(key, Value) and key.dtype.kind == "b":
        return _set_masked(x, key, v)
    chosen = truth_index(key)
    if chosen is not None:
        if chosen:
            return setitem(x, ..., fit_for_write(v, x.dtype, x.shape))
        fit_for_write(v, x.dtype, (0, *x.shape))
        return x
    if has_truths(key):
        axes, others = _with_axes_of_truths(key)
        return reshape(setitem(getitem(x, axes), others, v), x.shape)
    index = parse_index(x.shape, key)
    if not index.result and not ARRAYS_ARE_ELEMENTS:
        v = as_element(v, x.dtype, in_view=has_ellipsis(key))
    return index.write(x, fit_for_write(v, x.dtype, index.result))


def has_ellipsis(key: Any) -> bool:
    """Return whether an index has an ellipsis, with which NumPy returns an array of one element and no copy."""
    return key is Ellipsis or (isinstance(key, tuple) and any(item is Ellipsis for item in key))


def as_element(v: Any, dtype: np.dtype[Any], *, in_view: bool = False) -> Any:
    """Return what NumPy stores into one element of a dtype: into a boolean the truth of a sequence, or of an array of one element.

    With an ellipsis, NumPy stores into a view of rank 0 (`in_view`): arrays are broadcast to it, and sequences are none.

    Raises
    ------
    ShapeError
        For other sequences and arrays.
    """
    is_sequence = isinstance(v, list | tuple | range | deque)
    if not is_sequence and (in_view or not np.ndim(v)):
        return v
    if in_view:
        raise _is_sequence()
    if dtype == BOOL and is_sequence:
        return len(v) > 0
    if dtype == BOOL and np.size(v) == 1:
        return reshape(as_value(v), ())
    raise _is_sequence()


def _is_sequence() -> ShapeError:
    return ShapeError(
        "setting an array element with a sequence",
        where=here.site,
        remedy="assign a number: v[0], or v.item()",
    )


def _arrays_are_elements() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            np.zeros(1)[0] = np.ones(1)
        except (TypeError, ValueError):
            return False
    return True


ARRAYS_ARE_ELEMENTS: Final = _arrays_are_elements()
"""Whether this version of NumPy assigns an array of one element to an element."""


def fit_for_write(v: Any, dtype: np.dtype[Any], shape: Shape) -> Value:
    """Return `v` as it is written into elements of this dtype and shape."""
    value = _as_stored(v, dtype)
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = reshape(value, value.shape[1:])
    try:
        fits = np.broadcast_shapes(value.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"could not broadcast input array from shape {value.shape} into shape {shape}",
            where=here.site,
            remedy="the right-hand side must have the shape of the selected part, or one that "
            "broadcasts to it",
        )
    return broadcast_to(value, shape)


def _as_stored(v: Any, dtype: np.dtype[Any]) -> Value:
    """Return what is written into elements of a dtype; an error for a number of Python's that does not fit."""
    value = v if isinstance(v, list | tuple) and dtype.kind in "iu" else as_value(v)
    if isinstance(value, Value) and value.aval.weak and drops_imaginary(value.dtype, dtype):
        raise DtypeError(
            f"a complex number cannot be written into elements of {dtype}",
            where=here.site,
            remedy="write its real part, or make the array complex first: x = x.astype(complex)",
        )
    return convert_number(value, dtype)


def _set_masked(x: Value, mask: Value, v: Any) -> Value:
    """Return `x` after ``x[mask] = v`` for a mask whose values are not known: a selection."""
    value = _as_stored(v, x.dtype)
    if value.ndim and value.size != 1:
        raise InPlaceError(
            f"x[mask] = v with a traced mask of shape {mask.shape} needs a scalar v, got shape {value.shape}",
            where=here.site,
            why="how many elements the mask selects is not known while tracing",
            remedy="write x = np.where(mask, values, x) with values of x's shape",
        )
    extents = x.shape[: mask.ndim]
    if len(extents) != mask.ndim or any(n not in (m, 0) for n, m in zip(mask.shape, extents, strict=True)):
        raise IndexError(f"boolean index of shape {mask.shape} did not match array of shape {x.shape}")
    if 0 in mask.shape:  # which NumPy takes for any extents
        return x
    wide = expand(mask, x.shape, tuple(range(mask.ndim)))
    return where(wide, broadcast_to(reshape(value, ()), x.shape), x)


PRIMITIVES["getitem"] = getitem
