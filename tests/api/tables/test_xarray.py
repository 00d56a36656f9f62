"""Programs of users of xarray: what they compute of traced arrays and data sets is what xarray computes of numbers, with its labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import gradtape as gt
from tests.support.ways import Function

xr: Any = pytest.importorskip("xarray", reason="pip install xarray")

NUMBERS = 1.5 + 0.5 * np.sin(np.arange(24.0) ** 2).reshape(6, 4)
FIELD = xr.DataArray(
    NUMBERS,
    dims=("t", "x"),
    coords={"t": 2.0 * np.arange(6), "x": [0.0, 1.0, 3.0, 4.0], "season": ("t", list("abcabc"))},
    name="f",
    attrs={"units": "m"},
)
SERIES = xr.DataArray(
    NUMBERS.ravel()[:12], dims="time", coords={"time": pd.date_range("2026-01-01", periods=12, freq="6h")}
)
DATA = xr.Dataset({"a": FIELD, "b": 2 * FIELD.mean("t")})
WEIGHTS = xr.DataArray([1.0, 2.0, 3.0, 4.0], dims="x", coords={"x": FIELD.x})

PROGRAMS: dict[str, tuple[Function, Any]] = {
    "groupby mean": (lambda a: a.groupby("season").mean(), FIELD),
    "groupby sum": (lambda d: d.groupby("season").sum(), DATA),
    "groupby std": (lambda a: a.groupby("season").std(), FIELD),
    "groupby max": (lambda a: a.groupby("season").max(), FIELD),
    "groupby median": (lambda a: a.groupby("season").median(), FIELD),
    "groupby first": (lambda a: a.groupby("season").first(), FIELD),
    "groupby quantile": (lambda a: a.groupby("season").quantile(0.3), FIELD),
    "groupby map": (lambda a: a.groupby("season").map(lambda group: group / group.sum()), FIELD),
    "anomaly": (lambda a: a.groupby("season") - a.groupby("season").mean(), FIELD),
    "groupby bins": (lambda a: a.groupby_bins("t", [-1, 5, 11]).mean(), FIELD),
    "groupby hour": (lambda a: a.groupby("time.hour").mean(), SERIES),
    "interp": (lambda a: a.interp(t=[1.0, 3.5]), FIELD),
    "interp of two": (lambda a: a.interp(t=[1.0, 3.5], x=[0.5, 2.0]), FIELD),
    "interp nearest": (lambda a: a.interp(t=[1.2, 3.5], method="nearest"), FIELD),
    "interp cubic": (lambda a: a.interp(t=[1.2, 3.5], method="cubic"), FIELD),
    "interp of a data set": (lambda d: d.interp(x=[0.5, 2.0]), DATA),
    "resample mean": (lambda a: a.resample(time="1D").mean(), SERIES),
    "resample sum": (lambda a: a.resample(time="12h").sum(), SERIES),
    "resample std": (lambda a: a.resample(time="1D").std(), SERIES),
    "resample upwards": (lambda a: a.resample(time="3h").interpolate("linear"), SERIES),
    "resample ffill": (lambda a: a.resample(time="3h").ffill(), SERIES),
    "weighted mean": (lambda a: a.weighted(WEIGHTS).mean("x"), FIELD),
    "weighted std": (lambda a: a.weighted(WEIGHTS).std("x"), FIELD),
    "weighted sum": (lambda d: d.weighted(WEIGHTS).sum("x"), DATA),
    "traced weights": (lambda a: FIELD.weighted(a).mean(), FIELD),
    "rolling mean": (lambda a: a.rolling(t=3).mean(), FIELD),
    "rolling centred": (lambda a: a.rolling(t=3, center=True, min_periods=1).sum(), FIELD),
    "rolling max": (lambda a: a.rolling(t=2).max(), FIELD),
    "rolling std": (lambda a: a.rolling(t=3).std(), FIELD),
    "rolling windows": (lambda a: a.rolling(t=3).construct("k").mean("k"), FIELD),
    "rolling of two": (lambda a: a.rolling(t=3, x=2).mean(), FIELD),
    "rolling of a data set": (lambda d: d.rolling(t=3).mean(), DATA),
    "coarsen": (lambda a: a.drop_vars("season").coarsen(t=2).mean(), FIELD),
    "arithmetic": (lambda d: d * 2 + d**2, DATA),
    "new variable": (lambda d: d.assign(c=d.a * d.b), DATA),
    "mean of a data set": (lambda d: d.mean("t"), DATA),
    "to_array": (lambda d: d.to_array().sum("variable"), DATA),
    "sel": (lambda d: d.sel(x=1.0) + d.isel(t=0), DATA),
    "merge": (lambda d: xr.merge([d[["a"]] * 2, d[["b"]]]), DATA),
    "rename": (lambda d: d.rename(a="z"), DATA),
    "where": (lambda d: d.where(d.x > 0.5, 0.0), DATA),
    "map": (lambda d: d.map(np.sqrt), DATA),
    "eval": (lambda d: d.eval("a * b + 2"), DATA),
    "query": (lambda d: d.query(t="t > 3"), DATA),
    "cumsum": (lambda a: a.cumsum("t") * a.cumprod("x"), FIELD),
    "diff": (lambda a: a.diff("t") / a.t.diff("t"), FIELD),
    "integrate": (lambda a: a.integrate("t"), FIELD),
    "differentiate": (lambda a: a.differentiate("x"), FIELD),
    "polyfit": (lambda a: xr.polyval(a.t, a.polyfit("t", 1).polyfit_coefficients), FIELD),
    "fillna": (lambda a: a.where(a.t > 3).fillna(a.mean("t")), FIELD),
    "gaps interpolated": (lambda a: a.where(a.t != 4).interpolate_na("t"), FIELD),
    "corr": (lambda a: xr.corr(a, a.shift(t=1), "t"), FIELD),
    "cov": (lambda a: xr.cov(a, a**2, "t"), FIELD),
    "pad": (lambda a: a.pad(t=1, mode="edge"), FIELD),
    "reindex": (lambda a: a.reindex(t=[0.0, 2.0, 20.0]), FIELD),
    "aligned": (lambda a: a.isel(t=slice(0, 3)) + a.isel(t=slice(2, 5)), FIELD),
    "concat": (lambda a: xr.concat([a, a * 2], "k"), FIELD),
    "stack and unstack": (lambda a: (a.stack(z=("t", "x")) * 2).unstack("z"), FIELD),
    "dot": (lambda a: xr.dot(a, WEIGHTS, dim="x"), FIELD),
    "write": (lambda a: _written(a), FIELD),
    "conditions": (lambda a: xr.where(a > 1.6, a, a**2), FIELD),
    "dropped by labels": (lambda a: a.where(a.t > 3, drop=True), FIELD),
}


def _written(array: Any) -> Any:
    array = array.copy()
    array.loc[{"t": 2.0}] = array.loc[{"t": 0.0}] * 3
    return array


def same(made: Any, expected: Any) -> None:
    assert type(made) is type(expected)
    xr.testing.assert_allclose(made, expected, rtol=1e-10)
    assert made.attrs == expected.attrs
    if isinstance(expected, xr.DataArray):
        assert made.name == expected.name


def with_numbers(table: Any, function: Function) -> Any:
    """Return a table of the same labels, with a function of its numbers in their place."""
    if isinstance(table, xr.DataArray):
        return table.copy(data=function(table.values))
    return table.assign({name: with_numbers(array, function) for name, array in table.data_vars.items()})


def total(result: Any) -> Any:
    arrays = [result] if isinstance(result, xr.DataArray) else result.data_vars.values()
    numbers = [each.data for each in arrays if each.dtype.kind == "f"]
    factors = [np.cos(np.arange(each.size)).reshape(each.shape) for each in numbers]
    return sum(
        np.sum(np.where(np.isnan(x), 0.0, x) * factor) for x, factor in zip(numbers, factors, strict=True)
    )


def dot(one: Any, other: Any) -> Any:
    pairs = [(one, other)] if isinstance(one, xr.DataArray) else [(one[n], other[n]) for n in one.data_vars]
    return sum(float(np.sum(a.values * b.values)) for a, b in pairs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_xarray(name: str) -> None:
    function, table = PROGRAMS[name]
    compiled = gt.jit(function)
    for given in (table, with_numbers(table, lambda x: 1.1 * x[::-1]), table):
        same(compiled(given), function(given))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_differences(name: str) -> None:
    function, table = PROGRAMS[name]

    def loss(argument: Any) -> Any:
        return total(function(argument))

    direction = with_numbers(table, lambda x: np.sin(3.0 * np.arange(x.size) + 1.0).reshape(x.shape))
    ends = [float(loss(table + step * direction)) for step in (1e-6, -1e-6)]
    slope = (ends[0] - ends[1]) / 2e-6
    gradient = gt.grad(loss)(table)
    assert type(gradient) is type(table)
    np.testing.assert_allclose(dot(gradient, direction), slope, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gt.jvp(loss, (table,), (direction,))[1], slope, rtol=1e-5, atol=1e-6)
    with gt.GradientTape() as tape:
        watched = tape.watch(table)
        y = loss(watched)
    np.testing.assert_allclose(dot(tape.gradient(y, watched), direction), slope, rtol=1e-5, atol=1e-6)


class Model:
    def __init__(self, factor: Any, field: Any) -> None:
        self.factor, self.field = factor, field


@pytest.mark.parametrize("table", [FIELD, DATA])
def test_objects_with_tables(table: Any) -> None:
    def loss(model: Any) -> Any:
        return total(model.factor * model.field**2)

    gradient = gt.grad(loss)(Model(2.0, table))
    np.testing.assert_allclose(gradient.factor, total(table**2))
    assert gradient.field.identical(gt.grad(lambda field: total(2.0 * field**2))(table))
