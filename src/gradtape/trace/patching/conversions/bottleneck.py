"""Functions of the package bottleneck, which are written in C: for traced arrays they are NumPy's, or a few lines of NumPy.

pandas, xarray and packages of finance call them where they are installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.trace.array.array import Array, as_python_number
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.conversions.compiled import replace_functions
from gradtape.trace.patching.conversions.sequences import Function


def _reduction(function: Function) -> Function:
    """Return a reduction with bottleneck's parameters, ``(a, axis, ddof)``: NumPy has a dtype where bottleneck has the last."""

    def reduce(a: Any, axis: Any = None, **options: Any) -> Any:
        return function(a, axis=axis, **options)

    return reduce


def _spread(function: Function) -> Function:
    def spread(a: Any, axis: Any = None, ddof: int = 0) -> Any:
        return function(a, axis=axis, ddof=ddof)

    return spread


def _replace(a: Any, old: Any, new: Any) -> None:
    """Write to the array itself."""
    if not isinstance(a, Handle):
        raise ArgumentError(
            "bottleneck.replace writes traced numbers to an ndarray", remedy="np.where(a == old, new, a)"
        )
    target: Any = a
    target[...] = np.where(np.isnan(target) if np.isnan(old) else target == old, new, target)


def _push(a: Any, n: Any = None, axis: int = -1) -> Any:
    """Return the array with the last number before them in place of NaNs, at most `n` times."""
    rows = np.moveaxis(a, axis, -1)
    positions = np.arange(rows.shape[-1])
    last = np.maximum.accumulate(np.where(np.isnan(rows), 0, positions), axis=-1)
    filled = np.take_along_axis(rows, last, axis=-1)
    if n is not None:
        filled = np.where(positions - last > n, np.nan, filled)
    return np.moveaxis(filled, -1, axis)


def _rank(a: Any, axis: Any = None) -> Any:
    from scipy import stats  # late: SciPy's statistics take a third of a second to import

    return stats.rankdata(a, axis=axis)


def _moving(function: Function, name: str) -> Function:
    """Return a function of the last `window` elements before each, NaN where fewer than `min_count` of them are numbers."""

    def move(a: Any, window: int, min_count: int | None = None, axis: int = -1, ddof: int = 0) -> Any:
        length = a.shape[axis]
        least = window if min_count is None else min_count
        if not 1 <= window <= length or not 1 <= least <= window:
            raise ValueError(
                f"bottleneck.{name}: window {window} and min_count {least} do not fit {length} elements along the axis"
            )
        rows = np.moveaxis(a, axis, -1)
        if rows.dtype.kind != "f":
            rows = rows.astype(np.float64)
        before = np.full((*rows.shape[:-1], window - 1), np.nan, rows.dtype)
        places = np.arange(length)[:, None] + np.arange(window)
        windows = np.concatenate([before, rows], axis=-1)[..., places]
        is_number = ~np.isnan(windows)
        count = np.sum(is_number, axis=-1)
        # Windows with too few numbers are computed for other numbers, so that they give no NaN.
        enough = count >= max(least, ddof + 1)
        safe = np.where(enough[..., None], windows, np.arange(1, window + 1, dtype=rows.dtype))
        options = {"ddof": ddof} if ddof else {}
        return np.moveaxis(np.where(enough, function(safe, axis=-1, **options), np.nan), -1, axis)

    return move


def _place_of(extreme: Callable[..., Any]) -> Function:
    """Return the distance of the first smallest or largest number from the end of a window, the last of equal ones."""
    return lambda windows, axis: 1.0 * extreme(windows[..., ::-1], axis=axis)


def _sum_of_squares(a: Any, axis: Any = None) -> Any:
    return np.sum(a * a, axis=axis)


_NUMPY: Final[dict[str, Function]] = {
    **{
        name: _reduction(getattr(np, name))
        for name in ["nansum", "nanmean", "nanmin", "nanmax", "median", "nanmedian", "nanargmin", "nanargmax"]
    },
    **{name: _spread(getattr(np, name)) for name in ["nanstd", "nanvar"]},
    "ss": _sum_of_squares,
    "anynan": lambda a, axis=None: np.any(np.isnan(a), axis=axis),
    "allnan": lambda a, axis=None: np.all(np.isnan(a), axis=axis),
    "replace": _replace,
    "partition": lambda a, kth, axis=-1: np.partition(a, kth, axis=axis),
    "argpartition": lambda a, kth, axis=-1: np.argpartition(a, kth, axis=axis),
    "rankdata": _rank,
    "push": _push,
    **{
        f"move_{name}": _moving(getattr(np, f"nan{name}"), f"move_{name}")
        for name in ["sum", "mean", "std", "var", "min", "max", "median"]
    },
    "move_argmin": _moving(_place_of(np.nanargmin), "move_argmin"),
    "move_argmax": _moving(_place_of(np.nanargmax), "move_argmax"),
}
"""The replacements of bottleneck's functions."""


def _as_number(function: Function) -> Function:
    """Return a replacement whose results without axes are numbers of Python's, as bottleneck's are."""

    def call(a: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(a, *args, **kwargs)
        is_number = type(result) is Array and not result.ndim
        return as_python_number(result) if is_number else result

    return call


replace_functions("bottleneck", {name: _as_number(function) for name, function in _NUMPY.items()})
