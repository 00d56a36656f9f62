"""Choosing elements: by conditions, by positions, along diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import ArgumentError, DtypeError, ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, INTP, Aval
from gradtape.kinds.arguments import as_array, as_int, common_dtype, concrete, known_numbers, one_axis
from gradtape.kinds.operands import as_value, broadcast_to, operand_values
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.extrema import clip
from gradtape.ops.core.elementwise.integer import floor_divide, remainder
from gradtape.ops.core.elementwise.logic import truth
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import gather, getitem, getitem_rows, put_row
from gradtape.ops.core.join import full, stack
from gradtape.ops.core.lengths import by_diagonals, count_to
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import diagonal_of, expand, pad_row, reshape
from gradtape.ops.numpy.arrays.join import items_of
from gradtape.ops.numpy.arrays.shape import flat_or

MASK = np.array([[True, False, True], [False, False, True]])


@implements(
    np.where,
    samples=(
        sample(MASK, (2, 3), (2, 3)),
        sample(MASK, (3,), 2.0),
        sample((2, 3), 1, (2, 1)),
        sample(True, (2,), 0.0),
        sample(MASK, np.array([1, 2, 3], "i4"), 1.5),
        sample((2, 3), (2, 2), 0.0),
        sample(MASK, (2, 3)),
    ),
)
def where_(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """Follow `numpy.where`."""
    if x is None and y is None:
        return nonzero(condition)
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    first, second = operand_values((x, y))
    if (
        first.aval.weak and second.aval.weak
    ):  # NumPy's scalars are not weak, even those made from Python numbers
        dtype = common_dtype(first, second)
        first, second = convert(first, dtype), convert(second, dtype)
    return where(as_value(condition), _cut_off(first, second.aval), _cut_off(second, first.aval))


def _cut_off(value: Value, other: Aval) -> Value:
    """Return a Python integer as np.where takes it: by its lowest bits, where it is too large for the dtype."""
    if value.aval.weak and value.dtype.kind == "i":
        return value if other.weak or other.dtype.kind not in "iu" else convert(value, other.dtype)
    return value


def positions_where(mask: Value) -> Value:
    """Return where the elements of a flat mask are true, in order; their numbers are not known.

    Their count is: a trace guards it, and a call with another count is traced anew. Each true element writes its position behind those of
    the elements before it; the others write theirs behind all of them.
    """
    counts = convert(mask, INTP)
    count = as_int(reduce_sum(counts, axes=(0,)), "the number of true elements")
    behind = where(mask, cumsum(counts, axis=0, reverse=False) - 1, count)
    return getitem(put_row(full((count + 1,), 0, INTP), np.arange(mask.size), behind), slice(count))


@implements(np.nonzero)
def nonzero(a: Any) -> tuple[Any, ...]:
    """Follow `numpy.nonzero`: positions carry no derivative."""
    numbers = known_numbers(a)
    if numbers is not None or not a.ndim:
        return np.nonzero(concrete(a, "a"))
    quotients = positions_where(reshape(truth(a), (a.size,)))
    positions = []
    for extent in a.shape[:0:-1]:
        positions.append(remainder(quotients, extent))
        quotients = floor_divide(quotients, extent)
    return (quotients, *positions[::-1])


@implements(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    """Follow `numpy.flatnonzero`."""
    numbers = known_numbers(a)
    return positions_where(reshape(truth(a), (a.size,))) if numbers is None else np.flatnonzero(numbers)


@implements(np.argwhere)
def argwhere(a: Any) -> Any:
    """Follow `numpy.argwhere`."""
    numbers = known_numbers(a)
    return stack(*nonzero(a), axis=1) if numbers is None and a.ndim else np.argwhere(concrete(a, "a"))


@implements(
    np.select,
    samples=(
        sample([MASK, ~MASK], [(2, 3), (3,)]),
        sample([MASK, np.array([True, False, False])], [(2, 3), 2.0], default=7),
        sample([MASK], [(2, 3)], default=np.float32(1)),
        sample([np.ones((2, 3))], [(2, 3)]),
        sample([MASK], [(2, 3), (2, 3)]),
        sample([], []),
        sample(MASK, (2, 3)),
    ),
)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Value:
    """Follow `numpy.select`: the first condition that holds chooses. An array stands for the list of its items."""
    conditions, cases = [as_array(condition) for condition in items_of(condlist)], items_of(choicelist)
    if len(conditions) != len(cases):
        raise ArgumentError(
            f"list of cases must be same length as list of conditions: condlist has {len(conditions)}, choicelist {len(cases)}",
            where=here.site,
            remedy="give one choice for each condition, and default= for what no condition selects; "
            "for one condition np.where(condition, x, y)",
        )
    if not conditions:
        raise ArgumentError(
            "select with an empty condition list is not possible",
            where=here.site,
            remedy="give at least one condition; np.full_like(x, value) is an array of one number",
        )
    for position, condition in enumerate(conditions):
        if condition.dtype != BOOL:
            raise DtypeError(
                f"invalid entry {position} in condlist: should be boolean ndarray, got {condition.dtype}",
                where=here.site,
                remedy="compare first: x > 0, or x != 0 for the truth of numbers",
            )
    choices = [as_value(choice) for choice in (*cases, default)]
    dtype = common_dtype(*choices)
    *picked, result = [convert(choice, dtype) for choice in choices]
    shapes = [value.shape for value in (*conditions, *picked, result)]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        count = len(conditions)
        raise ShapeError(
            f"np.select cannot broadcast conditions of the shapes {shapes[:count]} and choices of the shapes {shapes[count:-1]}",
            where=here.site,
            remedy="make the trailing axes equal in length, or of length 1 (x[:, None] adds an axis)",
        ) from None
    result = broadcast_to(result, shape)
    for condition, choice in zip(conditions[::-1], picked[::-1], strict=True):
        result = where(condition, choice, result)
    return result


def bounded(positions: Value, extent: int, mode: str) -> Value:
    """Return positions brought into range in the way that `mode` says."""
    if mode == "clip":
        return clip(positions, 0, max(extent - 1, 0))
    if mode == "wrap":
        return remainder(positions, max(extent, 1))
    if mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    return positions


def as_positions(indices: Any, casting: Any = "safe") -> Value:
    """Return index arrays as integers; TypeError for floats, as in NumPy. (np.take lets unsigned ones of 64 bits pass.)"""
    positions = as_array(indices, "indices")
    if positions.size == 0 and not isinstance(indices, Value | np.ndarray):
        return convert(positions, INTP)
    if not np.can_cast(positions.dtype, INTP, casting):
        raise TypeError(
            f"Cannot cast array data from {positions.dtype!r} to {INTP!r} according to the rule 'safe'"
        )
    return convert(positions, INTP)


@implements(
    np.take,
    samples=(
        sample((5,), np.array([0, 3, 3, -1])),
        sample((5, 3), indices=np.array([[4, 0], [2, 2]]), axis=0),
        sample((2, 3), [1, 0, 1], axis=1),
        sample((2, 3), 2, axis=-1),
        sample((2, 3), np.array([7, -9, 2]), mode="wrap"),
        sample((2, 3), np.array([7, -9, 2]), mode="clip", axis=1),
        sample((2, 3), [5], axis=0),
        sample((2, 3), indices=np.array([0.0]), axis=0),
        sample((2, 3), []),
    ),
)
def take(a: Any, indices: Any, axis: Any = None, mode: str = "raise") -> Value:
    """Follow `numpy.take`."""
    x, position = flat_or(a, axis)
    positions = bounded(as_positions(indices, "same_kind"), x.shape[position], mode)
    if positions.size and not x.shape[position]:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    return getitem_rows(x, (slice(None),) * position + (positions,))


def beside(x: Value, positions: Value, axis: int) -> list[Value]:
    """Return index arrays that address, along the axis, the elements at these positions, and off it each
    element."""
    if positions.ndim != x.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    if positions.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    counters = []
    for k, extent in enumerate(x.shape):
        counter = count_to(extent)
        counters.append(
            positions
            if k == axis
            else reshape(counter, tuple(extent if j == k else 1 for j in range(x.ndim)))
        )
    try:
        shape = np.broadcast_shapes(*[counter.shape for counter in counters])
    except ValueError:
        raise IndexError(
            f"shape mismatch: indices of shape {positions.shape} do not fit an array of shape "
            f"{x.shape} off axis {axis}"
        ) from None
    return [broadcast_to(convert(counter, INTP), shape) for counter in counters]


@implements(
    np.take_along_axis,
    samples=(
        sample((2, 3), np.array([[0, 2], [1, -1]]), axis=1),
        sample((2, 3), np.array([[1, 0, 1]]), 0),
        sample((2, 3), np.array([5, 0]), axis=None),
        sample((2, 3), np.array([[0.0], [1.0]]), 1),
    ),
)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Value:
    """Follow `numpy.take_along_axis`."""
    x, positions = as_array(arr), as_array(indices, "indices")
    if axis is None:
        if positions.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        x, axis = reshape(x, (x.size,)), 0
    return gather(x, *beside(x, positions, one_axis(axis, x.ndim)))


@implements(
    np.choose,
    samples=(
        sample(np.array([0, 1, 2]), [(3,), (3,), (3,)]),
        sample(np.array([[1, 0, 1]]), [(2, 3), 5.0]),
        sample(np.array([4, -1, 1]), [(3,), (3,)], mode="wrap"),
        sample(np.array([4, -1, 1]), [(3,), (3,)], mode="clip"),
    ),
)
def choose(a: Any, choices: Any, mode: str = "raise") -> Value:
    """Follow `numpy.choose`."""
    which = as_positions(a)
    values = [as_value(choice) for choice in items_of(choices)]
    dtype = common_dtype(*values)
    options = [convert(option, dtype) for option in values]
    shape = np.broadcast_shapes(which.shape, *[option.shape for option in options])
    which = bounded(which, len(options), mode)
    if not shape:
        return gather(stack(*options), which)
    deck = stack(*[broadcast_to(option, shape) for option in options])
    counters = [expand(count_to(n), shape, (k,)) for k, n in enumerate(shape)]
    return gather(deck, broadcast_to(which, shape), *counters)


@implements(
    np.compress,
    samples=(
        sample([True, False, True], (3,)),
        sample([0, 1], (2, 3), axis=0),
        sample([True, True], (2, 3), 1),
        sample([1, 0, 1, 1], (2, 3)),
    ),
)
def compress(condition: Any, a: Any, axis: Any = None) -> Value:
    """Follow `numpy.compress`."""
    if np.ndim(condition) != 1:
        raise ValueError("condition must be a 1-d array")
    x, position = flat_or(a, axis)
    return getitem(x, (slice(None),) * position + (flatnonzero(condition),))


@implements(
    np.extract, samples=(sample([[True, False, True], [False, True, True]], (2, 3)), sample([1, 0], (2,)))
)
def extract(condition: Any, arr: Any) -> Value:
    """Follow `numpy.extract`."""
    x = as_array(arr)
    return getitem(reshape(x, (x.size,)), (flatnonzero(condition),))


@implements(
    np.diag,
    samples=(
        sample((3,)),
        sample((3,), 1),
        sample((2,), k=-2),
        sample((3, 4)),
        sample((3, 4), -1),
        sample((2, 2, 2)),
        sample(()),
    ),
)
def diag(v: Any, k: Any = 0) -> Value:
    """Follow `numpy.diag`."""
    x, offset = as_array(v), as_int(k, "k")
    if x.ndim == 2:
        return diagonal_of(x, 0, 1, offset)
    if x.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    extent = x.size + abs(offset)
    start = offset if offset >= 0 else -offset * extent
    flat = pad_row(x, shape=(extent * extent,), starts=(start if x.size else 0,), strides=(extent + 1,))
    return reshape(flat, (extent, extent))


@implements(np.diagflat, samples=(sample((2, 2)), sample((2,), 1), sample(())))
def diagflat(v: Any, k: Any = 0) -> Value:
    """Follow `numpy.diagflat`."""
    x = as_array(v)
    return diag(reshape(x, (x.size,)), k)


def _triangle(m: Any, k: Any, lower: bool) -> Value:
    x = as_array(m)
    if x.ndim == 0:
        raise TypeError("tri() needs an array of at least one dimension")
    x = broadcast_to(x, (x.size, x.size)) if x.ndim == 1 else x
    rows, columns = x.shape[-2:]
    last = as_int(k, "k")
    is_kept = by_diagonals((rows, columns), (lambda d: d <= last) if lower else (lambda d: d >= last), BOOL)
    return where(broadcast_to(is_kept, x.shape), x, convert(as_array(0), x.dtype))


TRIANGLES = (sample((3, 4)), sample((3, 4), 1), sample((2, 3, 3), k=-1), sample((3,)))


@implements(np.tril, samples=TRIANGLES)
def tril(m: Any, k: Any = 0) -> Value:
    """Follow `numpy.tril`."""
    return _triangle(m, k, True)


@implements(np.triu, samples=TRIANGLES)
def triu(m: Any, k: Any = 0) -> Value:
    """Follow `numpy.triu`."""
    return _triangle(m, k, False)


@implements(
    np.vander,
    samples=(
        sample((3,)),
        sample((3,), 2),
        sample((2,), 4, increasing=True),
        sample((3,), 0),
        sample((2, 2)),
    ),
)
def vander(x: Any, N: Any = None, increasing: bool = False) -> Value:
    """Follow `numpy.vander`."""
    points = as_array(x)
    if points.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    count = points.size if N is None else as_int(N, "N")
    dtype = np.result_type(points.dtype, np.int_)
    points = convert(points, dtype)
    powers = [broadcast_to(convert(as_array(1), dtype), points.shape)]
    while len(powers) < count:
        powers.append(powers[-1] * points)
    columns = powers[:count] if increasing else powers[:count][::-1]
    return (
        stack(*columns, axis=1)
        if columns
        else reshape(broadcast_to(convert(as_array(0), dtype), (0,)), (points.size, 0))
    )
