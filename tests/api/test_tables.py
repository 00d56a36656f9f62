"""Tables of pandas and xarray are taken by their values: as arguments, as captures, as operands and as indices; results are arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import gradtape as gt
from gradtape import errors
from tests.support.differences import gradient_by_differences
from tests.support.ways import Function, expect, traced_ways

FRAME = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 7.0], "k": [0, 2, 1], "b": [True, False, True]})
X, Y, K = (FRAME[name].to_numpy() for name in "xyk")
LABELLED = xr.DataArray(X, dims="t", coords={"t": [10, 20, 30]})
PAIR = FRAME[["x", "y"]]

TABLES: dict[str, Any] = {
    "Series": FRAME["x"],
    "DataFrame": PAIR,
    "mixed numbers": FRAME,
    "Index": pd.Index([1.0, 2.0]),
    "nullable": pd.Series([1.0, None], dtype="Float64"),
    "integers with a gap": pd.Series([1, None], dtype="Int64"),
    "sparse": pd.Series([0.0, 2.0]).astype("Sparse[float64]"),
    "DataArray": LABELLED,
}


def numbers(table: Any) -> Any:
    return np.asarray(table.to_numpy() if not hasattr(table, "isna") else table.astype(float).to_numpy())


@pytest.mark.parametrize("kind", TABLES)
def test_arguments_and_operands_are_values(kind: str) -> None:
    table = TABLES[kind]
    expected = numbers(table)
    for made in (
        gt.jit(lambda x: x * 2)(table),
        gt.vjp(lambda x: x * 2.0, table)[0] if expected.dtype.kind == "f" else gt.constant(expected) * 2,
        gt.jit(lambda w: w * table)(2.0),
        gt.jit(lambda w: np.multiply(w, table))(2.0),
        gt.asarray(table) * 2,
    ):
        assert type(made) in (np.ndarray, gt.Array)
        np.testing.assert_array_equal(np.asarray(made), expected * 2)


def test_gradients_have_the_shape_of_the_values() -> None:
    gradient = gt.grad(lambda a, b: np.sum(a**2) * b["w"].sum(), argnums=(0, 1))(PAIR, {"w": FRAME["x"]})
    np.testing.assert_array_equal(gradient[0], 12 * PAIR.to_numpy())
    np.testing.assert_array_equal(gradient[1]["w"], np.full(3, np.sum(PAIR.to_numpy() ** 2)))
    expect(errors.IntegerInputError, lambda: gt.grad(np.sum)(FRAME["k"]), "int64")


PROGRAMS: dict[str, tuple[Function, Function]] = {
    "columns": (
        lambda w: np.mean((w[0] * FRAME["x"] + w[1] * FRAME.y - FRAME["k"]) ** 2),
        lambda w: np.mean((w[0] * X + w[1] * Y - K) ** 2),
    ),
    "a column at the left": (lambda w: ((FRAME.x * w[0] - FRAME.y) ** 2).sum(), lambda w: np.sum((X * w[0] - Y) ** 2)),
    "product": (lambda w: np.sum((PAIR @ w) ** 2), lambda w: np.sum((PAIR.to_numpy() @ w) ** 2)),
    "dot": (lambda w: PAIR.dot(w[:2]).sum(), lambda w: np.sum(PAIR.to_numpy() @ w[:2])),
    "product of a series": (lambda w: FRAME["x"][:2] @ w, lambda w: X[:2] @ w),
    "quadratic form": (lambda w: w @ PAIR.cov() @ w, lambda w: w @ np.cov(PAIR.to_numpy().T) @ w),
    "functions": (
        lambda w: np.dot(PAIR, w).sum() + np.interp(w[0], FRAME["x"], FRAME["y"]),
        lambda w: np.dot(PAIR.to_numpy(), w).sum() + np.interp(w[0], X, Y),
    ),
    "indices": (
        lambda w: np.sum(np.outer(w, w).ravel()[FRAME["k"]]) + np.outer(w, X)[0, FRAME["x"] > 1].sum(),
        lambda w: np.sum(np.outer(w, w).ravel()[K]) + np.outer(w, X)[0, X > 1].sum(),
    ),
    "groups": (
        lambda w: sum(np.sum(w[0] * group["x"]) ** 2 for _, group in FRAME.groupby("b")),
        lambda w: np.sum(w[0] * X[1:2]) ** 2 + np.sum(w[0] * X[[0, 2]]) ** 2,
    ),
    "labels": (
        lambda w: np.sum(LABELLED * w[0]) + (w[1] * LABELLED.sel(t=20)) ** 2 + (LABELLED.values * w[0]).sum(),
        lambda w: 2 * np.sum(X * w[0]) + (w[1] * X[1]) ** 2,
    ),
}  # fmt: skip


@traced_ways
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(way: Function, program: str) -> None:
    of_tables, of_arrays = PROGRAMS[program]
    w = np.array([1.5, -0.5])
    np.testing.assert_allclose(way(of_tables, w), way(of_arrays, w), rtol=1e-12)


@pytest.mark.parametrize(
    "read",
    [
        lambda holder, w: np.sum(holder["data"]["x"].to_numpy() * w),
        lambda holder, w: sum(row.x * w for row in holder["data"].itertuples()),
        lambda holder, w: holder["data"]["x"].iloc[0] * w,
    ],
)
def test_compiled_functions_see_that_a_captured_table_changes(read: Function) -> None:
    holder = {"data": FRAME.copy()}
    compiled = gt.jit(lambda w: read(holder, w))
    for change in (
        lambda: None,
        lambda: holder["data"].__setitem__("x", [7.0, 2.0, 1.0]),
        lambda: holder["data"].loc.__setitem__((0, "x"), -3.0),
        lambda: holder.__setitem__("data", FRAME.copy()),
    ):
        change()
        assert compiled(2.0) == read(holder, 2.0)
    labelled = LABELLED.copy()
    compiled = gt.jit(lambda w: np.sum(labelled.values) * w)
    before = compiled(1.0)
    labelled[0] = 100.0
    assert (before, compiled(1.0)) == (6.0, 105.0)


def test_what_is_not_a_number_is_named() -> None:
    frame = FRAME.assign(name=["u", "v", "w"])
    for call, *said in (
        (lambda: gt.jit(np.sum)(frame), "argument 0", "'name'", "x[['x', 'y', 'k', 'b']]"),
        (lambda: gt.grad(lambda w: np.sum(w * frame["name"]))(1.0), "str" if frame["name"].dtype != object else "object", "astype"),
        (lambda: gt.jit(np.sum)(pd.Series(pd.date_range("2026-01-01", periods=2))), "datetime64", "np.timedelta64(1, 's')"),
        (lambda: gt.jit(np.sum)(pd.Series([1, 2], dtype="category")), "category", "x.cat.codes"),
        (lambda: gt.jit(lambda d: d["a"])(xr.Dataset({"a": LABELLED})), "Dataset", "dict(x.data_vars)"),
    ):  # fmt: skip
        expect(errors.DtypeError, call, *said)


def test_columns_hold_traced_arrays() -> None:
    def with_column(w: Any) -> Any:
        frame = FRAME.copy()
        frame["z"] = w * frame["x"]
        return (frame["x"] - frame["z"]).sum()

    with gt.GradientTape() as tape:
        w = tape.watch(2.0)
        y = with_column(w)
    assert gt.jit(with_column)(2.0) == float(y) == with_column(2.0)
    assert gt.grad(with_column)(2.0) == tape.gradient(y, w) == -FRAME["x"].sum()
    made = FRAME.assign(z=gt.grad(lambda w: np.sum(w**2))(FRAME["x"]), c=gt.constant(X))
    np.testing.assert_array_equal(made[["z", "c"]], np.stack([2 * X, X], axis=1))


def test_errors_of_pandas_about_what_is_traced_say_what_to_do():
    def smoothed(x):
        return pd.Series(x).rolling(2).mean().sum()

    for function in (gt.jit(smoothed), gt.grad(gt.jit(smoothed))):
        with pytest.raises(TypeError) as caught:
            function(np.arange(4.0))
        (note,) = caught.value.__notes__
        assert Path(__file__).name in note and "pandas._libs" in note and "gt.callback" in note
    with pytest.raises(KeyError) as missing:
        gt.jit(lambda x: x * pd.DataFrame({"a": [1.0]})["b"])(1.0)
    assert not hasattr(missing.value, "__notes__")


GRID = xr.DataArray(np.arange(1.0, 7.0).reshape(2, 3), dims=("t", "x"))


@pytest.mark.parametrize(
    "reduce",
    [
        lambda a: (a**2).sum("x"),
        lambda a: a.mean(("x", "t")),
        lambda a: a.cumsum("x"),
        lambda a: a.argmax("x"),
        lambda a: a.argsort("x"),
        lambda a: a.squeeze("x"),
        lambda a: a.transpose("x", "t"),
        lambda a: np.std(a, axis="x"),
        lambda a: np.diff(a, axis="x"),
        lambda a: np.concatenate([a, a], axis="x"),
        lambda a: np.linalg.norm(a, axis="x"),
        lambda a: np.add.reduce(a, "x"),
    ],
)
@pytest.mark.parametrize(
    "way", [gt.jit, lambda f: gt.grad(lambda a: np.sum(f(a))), lambda f: lambda a: f(gt.constant(a))]
)
def test_names_of_dimensions_say_that_labels_are_lost(way: Any, reduce: Function) -> None:
    error = expect(
        errors.DtypeError, lambda: way(reduce)(GRID), "axis is 'x'", "labels", "xr.DataArray(x, dims=...)"
    )
    assert isinstance(error, TypeError) and error.where.filename == __file__


@pytest.mark.parametrize("read", [lambda a: a.dims, lambda a: a.coords, lambda a: a.sum(dim="x")])
def test_what_labelled_arrays_have_says_how_to_label_traced_ones(read: Function) -> None:
    with pytest.raises((AttributeError, TypeError), match=r"xr\.DataArray\(x, dims=\.\.\.\)"):
        gt.jit(read)(GRID)


LABELLED_INSIDE: dict[str, Function] = {
    "mean": lambda a: a.mean("t").sum(),
    "mean of all": lambda a: a.mean(),
    "anomaly": lambda a: ((a - a.mean("t")) ** 2).sum(),
    "std": lambda a: a.std("t").sum("x"),
    "where": lambda a: a.where(a > 2.5).mean("t").sum(),
    "ufunc": lambda a: np.exp(a).mean("x").sum(),
    "data": lambda a: np.sum(a.mean("t").data ** 2),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("program", LABELLED_INSIDE)
def test_labels_inside_traced_code_are_followed_without_a_warning(program: str) -> None:
    def f(x: Any) -> Any:
        return LABELLED_INSIDE[program](xr.DataArray(x, dims=("t", "x")))

    def loss(x: Any) -> Any:
        return np.sum(f(x))

    x, step = GRID.to_numpy(), 1e-6
    moved = [x + step * unit.reshape(x.shape) for unit in np.eye(x.size)]
    slopes = [(float(f(point)) - float(f(2 * x - point))) / (2 * step) for point in moved]
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        y = np.sum(f(watched))
    for gradient in (gt.grad(loss)(x), gt.jacobian(loss)(x), tape.gradient(y, watched)):
        np.testing.assert_allclose(np.ravel(gradient), slopes, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(gt.jit(f)(x), float(f(x)), rtol=1e-14)


def test_values_of_a_labelled_traced_array_are_traced() -> None:
    slopes = gt.grad(lambda x: np.sum(xr.DataArray(x, dims="t").values ** 2))(X)
    np.testing.assert_array_equal(slopes, 2 * X)


COLUMNS: dict[str, Function] = {
    "mean": lambda s: s.mean(),
    "std": lambda s: s.std(),
    "median": lambda s: s.median(),
    "values": lambda s: np.sum(s.to_numpy() ** 2),
    "arithmetic": lambda s: (s * pd.Series([1.0, 2.0, 3.0]) + 1).sum(),
    "cumsum": lambda s: s.cumsum().iloc[1],
    "shift": lambda s: (s.shift(1) * s).sum(),
    "where": lambda s: s.where(s > 1.5, 0.0).sum(),
    "loc": lambda s: s.loc[1] ** 2,
    "quantile": lambda s: s.quantile(0.3),
    "corr": lambda s: s.corr(pd.Series([1.0, 3.0, 2.0])),
    "frame": lambda s: pd.DataFrame({"a": s, "b": s**2}).sum().sum(),
}


@pytest.mark.parametrize("program", COLUMNS)
def test_columns_of_traced_arrays_compute(program: str) -> None:
    def f(x: Any) -> Any:
        return COLUMNS[program](pd.Series(x))

    slopes = gradient_by_differences(f, X)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = f(x)
    np.testing.assert_allclose(float(gt.jit(f)(X)), f(X), rtol=1e-12)
    for gradient in (gt.grad(f)(X), tape.gradient(y, x)):
        np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-8)
