"""Arrays that follow from their size: exports for lengths that vary hold what describes them, and compute them for each length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.graph import Value, literal
from gradtape.ir.op import NDArray
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, subtract
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shape import expand, reshape

MOST_BANDS: Final = 9
"""Stretches of equal diagonals in a matrix."""

DIGITS: Final = 12
"""Of numbers that are guessed; whether they are right is seen by all bits of the array."""


class Table(NamedTuple):
    """What describes an array.

    Attributes
    ----------
    kind : str
        A key of `KINDS`.
    dtype : dtype
    shape : tuple of int
    numbers : tuple of (int or float)
        What the kind needs besides.
    axes : tuple of int
        The axes along which the array varies, in its shape; it is the same along all others.
    """

    kind: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    numbers: tuple[Any, ...]
    axes: tuple[int, ...]

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape without the axes along which nothing varies."""
        return tuple([self.shape[axis] for axis in self.axes])

    def array(self) -> NDArray:
        """Return the array."""
        with np.errstate(all="ignore"):
            made = KINDS[self.kind].array(self.dtype, self.inner, *self.numbers)
        placed = [extent if axis in self.axes else 1 for axis, extent in enumerate(self.shape)]
        return np.ascontiguousarray(np.broadcast_to(made.reshape(placed), self.shape))

    def traced(self) -> Value:
        """Return the array, computed by a graph."""
        made = KINDS[self.kind].traced(self.dtype, self.inner, *self.numbers)
        return made if self.inner == self.shape else expand(made, self.shape, self.axes)


class Kind(NamedTuple):
    """A family of tables.

    Attributes
    ----------
    guesses : callable
        ``array -> sequences of numbers``, each of which may describe it.
    array, traced : callable
        ``(dtype, shape, *numbers) -> the array``, and its computation.
    """

    guesses: Callable[[NDArray], Sequence[tuple[Any, ...]]]
    array: Callable[..., NDArray]
    traced: Callable[..., Value]


def tables_of(array: NDArray) -> Iterator[Table]:
    """Yield what describes an array, bit for bit: nothing for those that would have to be listed.

    Examples
    --------
    >>> next(tables_of(np.linspace(0.0, 3.0, 11)[:, None] * np.ones(3)))[2:]
    ((11, 3), (0.0, 0.3, 3.0), (0,))
    >>> next(tables_of(np.tri(4, k=-1)))[2:]
    ((4, 4), (0, 1.0, 0.0), (0, 1))
    """
    if array.size < 2 or array.dtype.kind not in "biuf":
        return
    array = np.ascontiguousarray(array)
    if is_uniform(array):
        yield Table("full", array.dtype, array.shape, (array.reshape(-1)[0].item(),), ())
        return
    axes = tuple([axis for axis in range(array.ndim) if _varies(array, axis)])
    inner = np.ascontiguousarray(array[tuple([slice(None) if k in axes else 0 for k in range(array.ndim)])])
    for kind, family in KINDS.items():
        for numbers in family.guesses(inner):
            plain = tuple([n.item() if isinstance(n, np.generic) else n for n in numbers])
            with np.errstate(all="ignore"):
                made = family.array(array.dtype, inner.shape, *plain)
            if made.dtype == array.dtype and made.tobytes() == inner.tobytes():
                yield Table(kind, array.dtype, array.shape, plain, axes)
                break


def is_uniform(array: NDArray) -> bool:
    """Return whether all elements of an array have the same bits."""
    raw = np.ascontiguousarray(array).reshape(-1)
    words = raw.view(np.uint8).reshape(raw.size, raw.itemsize)
    return bool((words == words[0]).all())


def _varies(array: NDArray, axis: int) -> bool:
    first = np.broadcast_to(array.take([0], axis), array.shape)
    return np.ascontiguousarray(first).tobytes() != array.tobytes()


def _counted(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Value:
    """Return ``np.arange(size)`` in a shape."""
    ones = expand(literal(1, np.dtype(np.int64)), (int(np.prod(shape)),), ())
    count = convert(add(cumsum(ones, axis=0, reverse=False), literal(-1, np.dtype(np.int64))), dtype)
    return count if len(shape) == 1 else reshape(count, shape)


def _range(dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray:
    return np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)


def _is_regular(array: NDArray) -> bool:
    return array.dtype.kind in "iuf" and bool(np.isfinite(array).all())


# Full


def _full(dtype: np.dtype[Any], shape: tuple[int, ...], number: Any) -> NDArray:
    return np.full(shape, number, dtype)


def _traced_full(dtype: np.dtype[Any], shape: tuple[int, ...], number: Any) -> Value:
    return expand(literal(number, dtype), shape, ())


# Start + step * arange


def _steps(array: NDArray) -> Sequence[tuple[Any, ...]]:
    if not _is_regular(array):
        return []
    flat, scalar = array.reshape(-1), array.dtype.type
    with np.errstate(all="ignore"):
        step = scalar(flat[1] - flat[0])
    if array.dtype.kind != "f":
        return [(flat[0], step)]
    whole = (
        (float(flat[-1]) - float(flat[0])) / (array.size - 1) * array.size
    )  # of np.linspace(..., endpoint=False)
    return [(flat[0], step), (flat[0], scalar(float(f"{whole:.{DIGITS}g}") / array.size))]


def _spaced(dtype: np.dtype[Any], shape: tuple[int, ...], start: Any, step: Any) -> NDArray:
    made: NDArray = _range(dtype, shape) * dtype.type(step) + dtype.type(start)
    return made


def _traced_spaced(dtype: np.dtype[Any], shape: tuple[int, ...], start: Any, step: Any) -> Value:
    return add(multiply(_counted(dtype, shape), literal(step, dtype)), literal(start, dtype))


# np.linspace: the last element is the number that was asked for


def _ends(array: NDArray) -> Sequence[tuple[Any, ...]]:
    if array.dtype.kind != "f" or array.size < 3 or not _is_regular(array):
        return []
    first, last = array.reshape(-1)[[0, -1]]
    return [(first, (last - first) / (array.size - 1), last)]


def _linspace(dtype: np.dtype[Any], shape: tuple[int, ...], start: Any, step: Any, stop: Any) -> NDArray:
    made = _spaced(dtype, shape, start, step)
    made.reshape(-1)[-1] = stop
    return made


def _traced_linspace(dtype: np.dtype[Any], shape: tuple[int, ...], start: Any, step: Any, stop: Any) -> Value:
    count, size = np.dtype(np.int64), int(np.prod(shape))
    is_last = equal(_counted(count, shape), literal(size - 1, count))
    return where(is_last, literal(stop, dtype), _traced_spaced(dtype, shape, start, step))


# (arange + offset) / divisor


def _ratios(array: NDArray) -> Sequence[tuple[Any, ...]]:
    if array.dtype.kind != "f" or not _is_regular(array):
        return []
    flat = array.reshape(-1)
    step = (float(flat[-1]) - float(flat[0])) / (flat.size - 1)
    if not step or not np.isfinite(1 / step):
        return []
    divisor = float(f"{1 / step:.{DIGITS}g}")
    return [(float(f"{float(flat[0]) * divisor:.{DIGITS}g}") + 0.0, divisor)]


def _ratio(dtype: np.dtype[Any], shape: tuple[int, ...], offset: Any, divisor: Any) -> NDArray:
    made: NDArray = (_range(dtype, shape) + dtype.type(offset)) / dtype.type(divisor)
    return made


def _traced_ratio(dtype: np.dtype[Any], shape: tuple[int, ...], offset: Any, divisor: Any) -> Value:
    return divide(add(_counted(dtype, shape), literal(offset, dtype)), literal(divisor, dtype))


# Matrices with stretches of equal diagonals: identities, masks of triangles, differences


def _diagonals(array: NDArray) -> Sequence[tuple[Any, ...]]:
    if array.ndim != 2:
        return []
    sequence = np.concatenate([array[:0:-1, 0], array[0]])
    changes = np.flatnonzero(sequence[1:] != sequence[:-1]) + 1
    if len(changes) >= MOST_BANDS:
        return []
    first = 1 - array.shape[0]
    starts = [int(change) + first for change in changes]
    return [(*[first, *starts][1:], *[sequence[0], *sequence[changes]])]


def _banded(dtype: np.dtype[Any], shape: tuple[int, ...], *numbers: Any) -> NDArray:
    starts, values = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    offsets = np.arange(shape[1]) - np.arange(shape[0])[:, None]
    made = np.full(shape, values[0], dtype)
    for start, value in zip(starts, values[1:], strict=True):
        made[offsets >= start] = value
    return made


def _traced_banded(dtype: np.dtype[Any], shape: tuple[int, ...], *numbers: Any) -> Value:
    starts, values = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    whole = np.dtype(np.int64)
    row, column = [expand(_counted(whole, (extent,)), shape, (k,)) for k, extent in enumerate(shape)]
    offset = subtract(column, row)
    made: Value = literal(values[-1], dtype)
    for start, value in reversed(list(zip(starts, values[:-1], strict=True))):
        made = where(less(offset, literal(start, whole)), literal(value, dtype), made)
    return made


KINDS: Final = {
    "full": Kind(lambda array: [], _full, _traced_full),
    "linspace": Kind(_ends, _linspace, _traced_linspace),
    "spaced": Kind(_steps, _spaced, _traced_spaced),
    "ratio": Kind(_ratios, _ratio, _traced_ratio),
    "banded": Kind(_diagonals, _banded, _traced_banded),
}
"""By name, in the order in which they are tried."""
