"""Compiled functions of pandas: for traced columns they are NumPy code. What aligns, shifts, selects and rolls columns ends in them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gradtape.trace.patching.conversions.compiled import replace_functions
from gradtape.trace.patching.conversions.sequences import Function


def _as_floats(values: Any) -> Any:
    return values.astype(np.float64)


def _take(axis: int) -> Function:
    """Return a function that writes elements to an array, and a number in place of those at -1."""

    def take(values: Any, indexer: Any, out: Any, fill_value: Any = np.nan, allow_fill: bool = True) -> None:
        taken = np.take(values, np.where(indexer < 0, 0, indexer), axis=axis) if values.shape[axis] else out
        if allow_fill and bool(np.any(indexer < 0)):
            missing = np.reshape(indexer < 0, [-1 if k == axis else 1 for k in range(values.ndim)])
            taken = np.where(missing, fill_value, taken)
        out[...] = taken

    return take


def _windows(values: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """Return the elements from each start to its end as rows, and which of them are numbers."""
    width = max(int(np.max(end - start, initial=0)), 1)
    places = start[:, None] + np.arange(width)
    inside = places < end[:, None]
    rows = values[np.minimum(places, len(values) - 1)]
    return rows, inside & ~np.isnan(rows)


def _rolling(function: Function, fewest: int) -> Function:
    """Return a function of windows that have `minp` numbers, and `fewest` at least."""

    def roll(values: Any, start: Any, end: Any, minp: int, *args: Any, **options: Any) -> Any:
        rows, known = _windows(values, start, end)
        count = np.sum(known, axis=1)
        return np.where(count >= max(minp, fewest), function(rows, known, count, *args, **options), np.nan)

    return roll


def _sum(rows: Any, known: Any, count: Any) -> Any:
    return np.sum(np.where(known, rows, 0.0), axis=1)


def _mean(rows: Any, known: Any, count: Any) -> Any:
    return _sum(rows, known, count) / np.maximum(count, 1)


def _variance(rows: Any, known: Any, count: Any, ddof: int = 1) -> Any:
    away = np.where(known, rows - _mean(rows, known, count)[:, None], 0.0)
    enough = count > ddof
    return np.where(enough, np.sum(away * away, axis=1) / np.where(enough, count - ddof, 1), np.nan)


def _extreme(function: Any, limit: float) -> Function:
    return lambda rows, known, count: function(np.where(known, rows, limit), axis=1)


def _correlation(matrix: Any, cov: bool = False, minp: int | None = None) -> Any:
    """Return the correlations or covariances of the columns, each pair by the rows in which both are finite."""
    known = np.isfinite(matrix)
    both = known[:, :, None] & known[:, None, :]
    count = np.sum(both, axis=0)
    x = np.where(both, np.where(known, matrix, 0.0)[:, :, None], 0.0)
    away = np.where(both, x - np.sum(x, axis=0) / np.maximum(count, 1), 0.0)
    other = np.swapaxes(away, 1, 2)
    product = np.sum(away * other, axis=0)
    enough = count >= max(1 if minp is None else minp, 1)
    if cov:
        return np.where(enough & (count > 1), product / np.maximum(count - 1, 1), np.nan)
    size = np.sum(away * away, axis=0)
    square = size * size.T
    varies = square > 0
    correlation = product / np.sqrt(np.where(varies, square, 1.0))
    return np.where(enough & varies, np.clip(correlation, -1.0, 1.0), np.nan)


_KINDS: Final = (
    "float64_float64",
    "float32_float32",
    "float32_float64",
    "int64_int64",
    "int64_float64",
    "bool_bool",
)

replace_functions(
    "pandas._libs.algos",
    {
        "ensure_float64": _as_floats,
        "nancorr": _correlation,
        **{f"take_1d_{kind}": _take(0) for kind in _KINDS},
        **{f"take_2d_axis{axis}_{kind}": _take(axis) for axis in (0, 1) for kind in _KINDS},
    },
)
replace_functions(
    "pandas._libs.window.aggregations",
    {
        "roll_sum": _rolling(_sum, 0),
        "roll_mean": _rolling(_mean, 1),
        "roll_var": _rolling(_variance, 1),
        "roll_max": _rolling(_extreme(np.max, -np.inf), 1),
        "roll_min": _rolling(_extreme(np.min, np.inf), 1),
    },
)
