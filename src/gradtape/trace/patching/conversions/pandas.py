"""Compiled functions of pandas: for traced columns they are NumPy code. What aligns, shifts, groups and rolls columns ends in them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.containers.pandas import holds_traced, refuse_change
from gradtape.errors import GradtapeError, UnsupportedFunctionError
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.conversions.compiled import replace_functions
from gradtape.trace.patching.conversions.sequences import Function
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.source.sites import user_site


def _is_array(value: Any) -> bool:
    return isinstance(value, Handle)


def _as_floats(values: Any) -> Any:
    return values.astype(np.float64)


def _as_numbers(plain: Function) -> Function:
    """Return the function of pandas that makes an array of numbers of one of objects, for traced numbers among them too."""

    def call(objects: Any, *args: Any, **kwargs: Any) -> Any:
        if not (_is_array(objects) or any(_is_array(each) for each in objects.flat)):
            return plain(objects, *args, **kwargs)
        return np.array([*objects]) if objects.dtype == object else objects

    return call


def _take(axis: int) -> Function:
    """Return a function that writes elements to an array, and a number in place of those at -1."""

    def take(values: Any, indexer: Any, out: Any, fill_value: Any = np.nan, allow_fill: bool = True) -> None:
        elements = (
            np.take(values, np.where(indexer < 0, 0, indexer), axis=axis) if values.shape[axis] else out
        )
        if allow_fill and bool(np.any(indexer < 0)):
            missing = np.reshape(indexer < 0, [-1 if k == axis else 1 for k in range(values.ndim)])
            elements = np.where(missing, fill_value, elements)
        out[...] = elements

    return take


def _differences(values: Any, out: Any, periods: int, axis: int, datetimelike: bool = False) -> None:
    """Write the differences of the elements along an axis to an array, NaN where there is none."""
    size = values.shape[axis]
    earlier_positions = np.arange(size) - periods
    earlier = np.take(values, np.clip(earlier_positions, 0, max(size - 1, 0)), axis=axis)
    inside = (earlier_positions >= 0) & (earlier_positions < size)
    out[...] = np.where(inside if axis else inside[:, None], values - earlier, np.nan)


def _filled(values: Any, mask: Any, limit: int | None = None) -> Any:
    """Return the elements, with the last one before it along the last axis in place of each that is missing."""
    positions = np.arange(values.shape[-1])
    last = np.maximum.accumulate(np.where(mask, -1, positions), axis=-1)
    near = (last >= 0) & (positions - last <= (len(positions) if limit is None else limit))
    return np.where(near, np.take_along_axis(values, np.maximum(last, 0), axis=-1), np.nan)


def _filled_backwards(values: Any, mask: Any, limit: int | None = None) -> Any:
    """Return the elements, with the first one after it along the last axis in place of each that is missing."""
    return _filled(values[..., ::-1], mask[..., ::-1], limit)[..., ::-1]


def _windows(values: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """Return the elements from each start to its end as rows, and which of them are numbers."""
    width = max(int(np.max(end - start, initial=0)), 1)
    positions = start[:, None] + np.arange(width)
    inside = positions < end[:, None]
    rows = values[np.minimum(positions, len(values) - 1)]
    return rows, inside & ~np.isnan(rows)


def _rolling(function: Function, fewest: int) -> Function:
    """Return a function of windows that have `minp` numbers, and `fewest` at least."""

    def roll(values: Any, start: Any, end: Any, minp: int, *args: Any, **options: Any) -> Any:
        rows, valid = _windows(values, start, end)
        count = np.sum(valid, axis=1)
        return np.where(count >= max(minp, fewest), function(rows, valid, count, *args, **options), np.nan)

    return roll


def _sum(rows: Any, valid: Any, count: Any) -> Any:
    return np.sum(np.where(valid, rows, 0), axis=-1)


def _product(rows: Any, valid: Any, count: Any) -> Any:
    return np.prod(np.where(valid, rows, 1), axis=-1)


def _mean(rows: Any, valid: Any, count: Any) -> Any:
    return _sum(rows, valid, count) / np.maximum(count, 1)


def _median(rows: Any, valid: Any, count: Any) -> Any:
    ordered = np.sort(np.where(valid, rows, np.inf), axis=-1)
    middle = [
        np.take_along_axis(ordered, position[..., None], -1)[..., 0]
        for position in (np.maximum(count - 1, 0) // 2, count // 2)
    ]
    return (middle[0] + middle[1]) / 2


def _variance(rows: Any, valid: Any, count: Any, ddof: int = 1) -> Any:
    away = np.where(valid, rows - _mean(rows, valid, count)[..., None], 0.0)
    enough = count > ddof
    return np.where(enough, np.sum(away * away, axis=-1) / np.where(enough, count - ddof, 1), np.nan)


def _deviation(rows: Any, valid: Any, count: Any, ddof: int = 1) -> Any:
    return np.sqrt(_variance(rows, valid, count, ddof))


def _error(rows: Any, valid: Any, count: Any, ddof: int = 1) -> Any:
    return np.sqrt(_variance(rows, valid, count, ddof) / np.maximum(count, 1))


def _extreme(function: Any, limit: float) -> Function:
    return lambda rows, valid, count: function(np.where(valid, rows, limit), axis=-1)


def _end(last: bool) -> Function:
    """Return a function that returns the first known element of each row, or the last."""

    def end(rows: Any, valid: Any, count: Any) -> Any:
        flipped = valid[..., ::-1] if last else valid
        position = np.argmax(flipped, axis=-1)
        position = valid.shape[-1] - 1 - position if last else position
        return np.take_along_axis(rows, position[..., None], -1)[..., 0]

    return end


def _moments(skewed: bool) -> Function:
    """Return a function that returns the skewness of the numbers of each row without bias, or their kurtosis."""

    def moments(rows: Any, valid: Any, count: Any) -> Any:
        away = np.where(valid, rows - (_sum(rows, valid, count) / count)[..., None], 0.0)
        second, fewest = np.sum(away**2, axis=-1), 2 if skewed else 3
        n = np.where(count > fewest, count, fewest + 1.0)
        scale = np.where(second > 0, second, 1.0)
        if skewed:
            moment = n * np.sqrt(n - 1) / (n - 2) * np.sum(away**3, axis=-1) / scale**1.5
        else:
            fourth = np.sum(away**4, axis=-1)
            moment = n * (n + 1) * (n - 1) * fourth / ((n - 2) * (n - 3) * scale**2)
            moment = moment - 3 * (n - 1) ** 2 / ((n - 2) * (n - 3))
        return np.where((count > fewest) & (second > 0), moment, np.nan)

    return moments


def _whole(function: Function) -> Function:
    """Return the function of a row for all numbers of an array."""

    def reduce(values: Any, skipna: bool, mask: Any = None) -> Any:
        return _along(function)(np.ravel(values), 0, skipna)

    return reduce


def _along(function: Function) -> Function:
    """Return the function of rows for an array and an axis."""

    def reduce(values: Any, axis: int, skipna: bool, mask: Any = None) -> Any:
        rows = np.moveaxis(values, axis, -1)
        valid = ~np.isnan(rows) if skipna else np.ones(rows.shape, bool)
        return function(rows, valid, np.sum(valid, axis=-1))

    return reduce


def _unstacked(values: Any, mask: Any, stride: int, length: int, width: int, new_values: Any) -> None:
    """Write each column of an array as the columns of a table that `mask` tells: one row after another, where it is true."""
    rows, columns = np.divmod(np.flatnonzero(mask), width)
    for column in range(stride):
        new_values[rows, column * width + columns] = values[:, column]


_GROUPED: Final[dict[str, tuple[Function, int]]] = {
    "sum": (_sum, 0),
    "prod": (_product, 0),
    "mean": (_mean, 1),
    "median": (_median, 1),
    "min": (_extreme(np.min, np.inf), 1),
    "max": (_extreme(np.max, -np.inf), 1),
    "var": (_variance, 1),
    "std": (_deviation, 1),
    "sem": (_error, 1),
    "first": (_end(last=False), 1),
    "last": (_end(last=True), 1),
}
"""Functions of groups, and of how many numbers at least."""

_BY_NUMBERS: Final = (
    *(
        "_get_rows_with_mask",
        "_getitem_bool_array",
        "drop_duplicates",
        "dropna",
        "duplicated",
        "idxmax",
        "idxmin",
        "mode",
    ),
    *("nlargest", "nsmallest", "query", "rank", "sort_values", "unique", "value_counts"),
)
"""Methods that choose or order rows by numbers."""

_CUMULATIVE: Final[dict[str, tuple[Any, int]]] = {"cumsum": (np.cumsum, 0), "cumprod": (np.cumprod, 1)}
"""Functions along groups, and the number that stands for what is missing."""


def _grouped(plain: Function) -> Function:
    """Return the method of pandas that computes a function of the groups of each row, for traced rows too."""

    def call(
        self: Any,
        values: Any,
        *,
        min_count: int,
        ngroups: int,
        comp_ids: Any,
        skipna: bool = True,
        **kwargs: Any,
    ) -> Any:
        named = {"min_count": min_count, "ngroups": ngroups, "comp_ids": comp_ids, **kwargs}
        if not _is_array(values) or not (self.how in _GROUPED or self.how in _CUMULATIVE):
            return plain(self, values, **named, **({} if skipna else {"skipna": False}))
        order = np.argsort(comp_ids, kind="stable")
        sizes = np.bincount(comp_ids[comp_ids >= 0], minlength=ngroups)
        start = np.sum(comp_ids < 0) + np.cumsum(sizes) - sizes
        within = np.arange(max(int(np.max(sizes, initial=0)), 1))
        inside = within < sizes[:, None]
        rows = values[:, order[np.minimum(start[:, None] + within, len(order) - 1)]]
        valid = inside & ~np.isnan(rows) if skipna else np.broadcast_to(inside, rows.shape)
        if self.how in _CUMULATIVE:
            function, neutral = _CUMULATIVE[self.how]
            rank = np.empty(len(order), int)
            rank[order] = np.arange(len(order))
            along = function(np.where(valid, rows, neutral), axis=-1)
            result = along[:, comp_ids, rank - start[comp_ids]]
            return np.where((comp_ids < 0) | np.isnan(values), np.nan, result)
        function, fewest = _GROUPED[self.how]
        options = {name: option for name, option in kwargs.items() if name == "ddof"}
        count = np.sum(valid, axis=-1)
        result = function(rows, valid, count, **options)
        return np.where(count >= max(min_count, fewest), result, np.nan)

    return call


def _interleaved(plain: Function) -> Function:
    """Return the method of pandas that returns the columns of all blocks as one array, for traced blocks too."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        blocks = self.blocks
        if not any(_is_array(block.values) for block in blocks) or any(
            block.is_extension for block in blocks
        ):
            return plain(self, *args, **kwargs)
        order = np.argsort(np.concatenate([block.mgr_locs.as_array for block in blocks]))
        return np.concatenate([block.values for block in blocks])[order]

    return call


def _row(plain: Function) -> Function:
    """Return the method of pandas that returns a row of a table, for traced blocks too."""

    def call(self: Any, loc: int) -> Any:
        if len(self.blocks) == 1 or not any(_is_array(block.values) for block in self.blocks):
            return plain(self, loc)
        return sys.modules["pandas.core.internals.managers"].SingleBlockManager.from_array(
            self._interleave()[:, loc], self.axes[0]
        )

    return call


def _padded(plain: Function) -> Function:
    """Return the method of pandas that fills gaps with the elements before or after them, for traced blocks too."""

    def call(
        self: Any, *, method: str, limit: int | None = None, limit_area: Any = None, **kwargs: Any
    ) -> Any:
        if not _is_array(self.values) or limit_area is not None:
            return plain(self, method=method, limit=limit, limit_area=limit_area, **kwargs)
        fill = _filled if method in ("pad", "ffill") else _filled_backwards
        return [self.make_block_same_class(fill(self.values, np.isnan(self.values), limit))]

    return call


def _holds_traced(value: Any) -> bool:
    return hasattr(value, "_mgr") and holds_traced(value)


def _explained(plain: Function) -> Function:
    """Return a method of pandas whose error names what to do, if it chooses or orders rows by traced numbers."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return plain(self, *args, **kwargs)
        except (TypeError, AttributeError, GradtapeError) as error:
            if not (_holds_traced(self) or any(_is_array(each) for each in args)):
                raise
            name = plain.__name__
            raise UnsupportedFunctionError(
                "the choice of rows by a condition"
                if name.startswith("_get")
                else f"{type(self).__name__}.{name}",
                where=user_site(),
                why="labels would depend on traced numbers",
                remedy="keep all rows, table.where(condition): reductions leave out what is NaN; or compute without labels, "
                "x = table.to_numpy()",
            ) from error

    return call


def _refusing(owner: str = "") -> Callable[[Function], Function]:
    """Return what makes a method that changes a table in place refuse arguments; the table may be an attribute of the object."""

    def replacement(plain: Function) -> Function:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            refuse_change(getattr(self, owner) if owner else self)
            return plain(self, *args, **kwargs)

        return call

    return replacement


def _beside_arrays(plain: Function) -> Function:
    """Return the method of tables for ufuncs, which asks the class of an operand for attributes of its own, for traced operands too."""

    def call(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        def table_of(operand: Any) -> Any:
            if not _is_array(operand) or operand.ndim > self.ndim:
                return operand
            labels = dict(zip(("index", "columns"), self.axes, strict=False))
            table = self._constructor(np.broadcast_to(operand, self.shape), **labels, copy=False)
            if self.ndim == 1:
                table.name = self.name
            return table

        return plain(self, ufunc, method, *map(table_of, inputs), **kwargs)

    return call


def _repeated(plain: Function) -> Function:
    """Return the function of pandas that makes a column of one number, for a traced one too."""

    def call(value: Any, length: int, dtype: Any) -> Any:
        return np.broadcast_to(value, (length,)).copy() if _is_array(value) else plain(value, length, dtype)

    return call


def _without_infinities(plain: Function) -> Function:
    """Return the function of pandas that finds infinities in a result, which is computed in another way then, with the same result."""

    def call(result: Any) -> Any:
        return False if _is_array(result) else plain(result)

    return call


def _iterated(plain: Function) -> Function:
    """Return the method of pandas that iterates over a column, for traced ones too."""

    def call(self: Any) -> Any:
        values = self._values
        return iter(values) if _is_array(values) else plain(self)

    return call


def _mapped(plain: Function) -> Function:
    """Return the function of pandas that calls a function with each element, for traced elements too."""

    def call(values: Any, mapper: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_array(values) or not callable(mapper) or args or any(kwargs.values()):
            return plain(values, mapper, *args, **kwargs)
        return np.array([mapper(each) for each in values])

    return call


def _correlation(matrix: Any, cov: bool = False, minp: int | None = None) -> Any:
    """Return the correlations or covariances of the columns, each pair by the rows in which both are finite."""
    finite = np.isfinite(matrix)
    both = finite[:, :, None] & finite[:, None, :]
    count = np.sum(both, axis=0)
    x = np.where(both, np.where(finite, matrix, 0.0)[:, :, None], 0.0)
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
        "diff_2d": _differences,
        "scalar_skew": _whole(_moments(skewed=True)),
        "scalar_kurt": _whole(_moments(skewed=False)),
        "axis_skew": _along(_moments(skewed=True)),
        "axis_kurt": _along(_moments(skewed=False)),
        **{f"take_1d_{kind}": _take(0) for kind in _KINDS},
        **{f"take_2d_axis{axis}_{kind}": _take(axis) for axis in (0, 1) for kind in _KINDS},
    },
)


def _exponential(
    values: Any,
    start: Any,
    end: Any,
    minp: int,
    com: float,
    adjust: bool,
    ignore_na: bool,
    deltas: Any = None,
    normalize: bool = True,
) -> Any:
    """Return exponentially weighted means, or sums, of all elements up to each one in its window, by linear filters."""
    if deltas is not None and not np.all(np.asarray(deltas) == 1.0):
        raise UnsupportedFunctionError(
            "ewm of pandas with times, of a traced column",
            where=user_site(),
            remedy="weight the elements with NumPy: np.exp(-(t[:, None] - t) / tau)",
        )
    from scipy.signal import lfilter  # late: it takes a while to import

    decay = com / (1.0 + com)
    made = []
    for first, last in zip(start, end, strict=True):
        own = values[first:last]
        known = ~np.isnan(own)
        count = np.cumsum(known)
        if (ignore_na or (normalize and not adjust)) and bool(np.any((count > 0) & ~known)):
            raise UnsupportedFunctionError(
                "ewm of pandas with gaps in a traced column",
                where=user_site(),
                why="the weights behind a gap depend on it where adjust=False or ignore_na=True",
                remedy="call it with the rows that have numbers, or with adjust=True and ignore_na=False",
            )
        numbers = np.where(known, own, 0.0)
        if normalize and not adjust:
            numbers = np.where(known & (count == 1), numbers, (1.0 - decay) * numbers)
        total = lfilter([1.0], [1.0, -decay], numbers)
        if normalize and adjust:
            total = total / np.where(count > 0, lfilter([1.0], [1.0, -decay], 1.0 * known), 1.0)
        made.append(np.where(count >= max(minp, 1), total, np.nan))
    return np.concatenate(made) if made else values


replace_functions(
    "pandas._libs.window.aggregations",
    {
        "ewm": _exponential,
        "roll_sum": _rolling(_sum, 0),
        "roll_mean": _rolling(_mean, 1),
        "roll_var": _rolling(_variance, 1),
        "roll_max": _rolling(_extreme(np.max, -np.inf), 1),
        "roll_min": _rolling(_extreme(np.min, np.inf), 1),
        "roll_median_c": _rolling(_median, 1),
        "roll_first": _rolling(_end(last=False), 1),
        "roll_last": _rolling(_end(last=True), 1),
    },
)
replace_functions("pandas._libs.reshape", {"unstack": _unstacked})


def _replace(module: str, owner: str, name: str, replacement: Callable[[Function], Function]) -> None:
    """Let a method in Python of pandas, or a function, be what a replacement makes of it."""

    def install(module: Any) -> None:
        home = getattr(module, owner, None) if owner else module
        plain = vars(home).get(name)
        if plain is not None:
            setattr(home, name, functools.wraps(plain)(replacement(plain)))

    when_imported(module, install)


_replace("pandas.core.groupby.ops", "WrappedCythonOp", "_call_cython_op", _grouped)
_replace("pandas.core.internals.managers", "BlockManager", "_interleave", _interleaved)
_replace("pandas.core.internals.managers", "BlockManager", "fast_xs", _row)
_replace("pandas.core.internals.blocks", "Block", "pad_or_backfill", _padded)
_replace("pandas._libs.lib", "", "maybe_convert_objects", _as_numbers)
_replace("pandas.core.base", "IndexOpsMixin", "__iter__", _iterated)
_replace("pandas.core.algorithms", "", "map_array", _mapped)
_replace("pandas.core.nanops", "", "_has_infs", _without_infinities)
for _name in ("construction", "frame", "series"):
    _replace(f"pandas.core.{_name}", "", "construct_1d_arraylike_from_scalar", _repeated)
for _module, _owner in (
    ("frame", "DataFrame"),
    ("series", "Series"),
    ("generic", "NDFrame"),
    ("base", "IndexOpsMixin"),
):
    for _name in ("__setitem__", "__delitem__", "insert", "_update_inplace", "_set_axis"):
        _replace(f"pandas.core.{_module}", _owner, _name, _refusing())
    _replace(f"pandas.core.{_module}", _owner, "__array_ufunc__", _beside_arrays)
    for _name in _BY_NUMBERS:
        _replace(f"pandas.core.{_module}", _owner, _name, _explained)
for _name in ("_LocationIndexer", "_ScalarAccessIndexer"):
    _replace("pandas.core.indexing", _name, "__setitem__", _refusing("obj"))
