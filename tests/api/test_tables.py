"""Tables of pandas and xarray as arguments, captures, operands, indices and results: they keep their labels."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import gradtape as gt
from gradtape import errors
from gradtape.trace.jit.signature import CallArguments
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
    "nullable": pd.Series([1.0, 2.0], dtype="Float64"),
    "sparse": pd.Series([0.0, 2.0]).astype("Sparse[float64]"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_arguments_and_operands_keep_their_kind(kind: str) -> None:
    table = TABLES[kind]
    for made in (
        gt.jit(lambda x: x * 2)(table),
        gt.jit(lambda w: w * table)(2),
        gt.jit(lambda w: np.multiply(w, table))(2),
    ):
        if kind == "Index":
            np.testing.assert_array_equal(made, [2.0, 4.0])
        else:
            assert type(made) is type(table)
            np.testing.assert_array_equal(made.to_numpy(), np.asarray((table * 2).to_numpy(), dtype=float))
    assert type(gt.asarray(table)) is gt.Array
    np.testing.assert_array_equal(gt.asarray(table) * 2, np.asarray(table, dtype=float) * 2)


def test_gradients_have_the_labels_of_the_tables() -> None:
    gradient = gt.grad(lambda a, b: np.sum(a**2, axis=None) * b["w"].sum(), argnums=(0, 1))(
        PAIR, {"w": FRAME["x"]}
    )
    pd.testing.assert_frame_equal(gradient[0], 12 * PAIR)
    pd.testing.assert_series_equal(
        gradient[1]["w"], pd.Series(np.full(3, np.sum(PAIR.to_numpy() ** 2)), name="x")
    )
    expect(errors.IntegerInputError, lambda: gt.grad(lambda k: k.sum())(FRAME["k"]), "int64")
    expect(errors.IntegerInputError, lambda: gt.grad(lambda d: d["x"].sum())(FRAME), "int64", "'k'")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: pd.Series(x, name="a"),
        lambda x: pd.DataFrame({"a": x, "b": 2 * x}),
        lambda x: xr.DataArray(x, dims="t"),
        lambda x: xr.DataArray(x, dims="t").to_dataset(name="a"),
    ],
)
def test_each_call_returns_labels(function: Function) -> None:
    """The second call returned an array, where the result was one table."""
    compiled = gt.jit(function)
    for x in (X, 2 * X, X):
        made, expected = compiled(x), function(x)
        assert type(made) is type(expected) and made.equals(expected)


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


def test_compiled_functions_see_that_names_and_attributes_change() -> None:
    labelled, column = LABELLED.assign_attrs(scale=2.0), FRAME["x"].copy()
    frame = FRAME.copy()
    column.attrs["scale"] = np.array([2.0])

    def f(x: Any) -> Any:
        scale = labelled.attrs["scale"] * column.attrs["scale"][0]
        return x * scale * len(labelled.name or "") * len(column.name) * len(frame.index.name or ".")

    compiled = gt.jit(f)
    for change in (
        lambda: labelled.attrs.update(scale=3.0),
        lambda: setattr(labelled, "name", "height"),
        lambda: column.attrs.update(scale=np.array([5.0])),
        lambda: setattr(column, "name", "width"),
        lambda: setattr(frame.index, "name", "row"),
        lambda: None,
    ):
        change()
        assert compiled(2.0) == f(2.0)


def test_what_is_not_a_number_is_named() -> None:
    frame = FRAME.assign(name=["u", "v", "w"])
    for call, *said in (
        (lambda: gt.grad(np.sum)(frame["name"]), "argument 0", "astype(float)"),
        (lambda: gt.grad(lambda w: np.sum(w * frame["name"]))(1.0), "str" if frame["name"].dtype != object else "object", "astype"),
        (lambda: gt.grad(np.sum)(pd.Series(pd.date_range("2026-01-01", periods=2))), "datetime64", "np.timedelta64(1, 's')"),
        (lambda: gt.grad(np.sum)(pd.Series([1, 2], dtype="category")), "category", "x.cat.codes"),
        (lambda: gt.jit(lambda a: a * 2)(xr.DataArray(["u", "v"], dims="t")), "argument 0.data", "<U1"),
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
    def ranked(x):
        return pd.Series(x).rolling(2).rank().sum()

    for function in (gt.jit(ranked), gt.grad(gt.jit(ranked))):
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
def test_names_of_dimensions_need_labels(way: Any, reduce: Function) -> None:
    x = GRID.to_numpy()
    error = expect(
        errors.DtypeError, lambda: way(reduce)(x), "axis is 'x'", "labels", "xr.DataArray(x, dims=...)"
    )
    assert isinstance(error, TypeError) and error.where.filename == __file__


@pytest.mark.parametrize("read", [lambda a: a.dims, lambda a: a.coords, lambda a: a.sum(dim="x")])
def test_what_labelled_arrays_have_says_how_to_label_traced_ones(read: Function) -> None:
    with pytest.raises((AttributeError, TypeError), match=r"xr\.DataArray\(x, dims=\.\.\.\)"):
        gt.jit(read)(GRID.to_numpy())


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


FIELD = xr.DataArray(
    np.arange(1.0, 7.0).reshape(2, 3),
    dims=("t", "x"),
    coords={
        "t": [10.0, 20.0],
        "x": [0.0, 1.0, 3.0],
        "g": ("x", ["p", "q", "p"]),
        "w": ("x", [1.0, 2.0, 0.5]),
    },
    attrs={"units": "m", "range": np.array([0.0, 9.0])},
    name="height",
)

OF_FIELDS: dict[str, Function] = {
    "reduction": lambda a: (a**2).sum("x"),
    "mean": lambda a: a.mean("t"),
    "all": lambda a: (a**2).mean(),
    "interp": lambda a: a.interp(t=15.0, x=[0.5, 2.0]) ** 2,
    "groups": lambda a: a.groupby("g").mean() ** 2,
    "groups of coordinates": lambda a: (a * a.w).groupby("t").sum(),
    "sel": lambda a: a.sel(t=20.0) * a.sel(x=1.0, method="nearest"),
    "weighted": lambda a: (a**2).weighted(a.w).mean("x"),
    "anomaly": lambda a: (a - a.mean("t")) ** 2,
    "where": lambda a: a.where(a > 2.5).sum("x"),
    "shift": lambda a: (a.shift(x=1) * a).sum("x"),
    "differentiate": lambda a: a.differentiate("x") ** 2,
    "integrate": lambda a: a.integrate("x") ** 2,
    "dot": lambda a: xr.dot(a, a.w, dim="x") ** 2,
    "concat": lambda a: xr.concat([a, 2 * a], "t") ** 2,
    "ufunc": lambda a: np.exp(a / 5),
    "apply_ufunc": lambda a: xr.apply_ufunc(np.tanh, a / 5),
    "transpose": lambda a: a.T * 2,
    "stack": lambda a: a.stack(k=("t", "x")) ** 2,
    "unstack": lambda a: (a**2).stack(k=("t", "x")).unstack("k"),
    "windows": lambda a: (a**2).rolling(x=2).mean().fillna(0.0),
    "centred windows": lambda a: (a**2).rolling(x=3, center=True, min_periods=1).sum(),
    "cumulative": lambda a: (a**2).cumulative("x").sum(),
    "quantiles": lambda a: (a**2).quantile([0.2, 0.7], "x"),
    "cumulative_integrate": lambda a: (a**2).cumulative_integrate("x"),
    "rank": lambda a: a.isel(x=0, t=1) ** 2,
    "new coordinate": lambda a: a.assign_coords(total=a.sum("x")) * 2,
    "NumPy's reduction": lambda a: np.sum(a**2, axis=1),
    "NumPy's product": lambda a: np.dot(a**2, np.array([1.0, 2.0, 3.0])),
    "NumPy's stack": lambda a: np.concatenate([a**2, [a[0]]]),
    "einsum": lambda a: np.einsum("ij,ij->i", a, a),
    "norm": lambda a: np.linalg.norm(a),
    "nest": lambda a: {"m": a.mean("x"), "d": a.to_dataset()},
}  # fmt: skip


def equal_tables(made: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        for name, part in expected.items():
            equal_tables(made[name], part)
    elif isinstance(expected, xr.DataArray | xr.Dataset):
        xr.testing.assert_allclose(made, expected, rtol=1e-12)
        described = [table.to_dict(data=False) for table in (made, expected)]
        assert repr(described[0]) == repr(described[1])
    else:
        np.testing.assert_allclose(made, expected, rtol=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("program", OF_FIELDS)
def test_compiled_functions_of_labelled_arrays_return_what_xarray_returns(program: str) -> None:
    f = OF_FIELDS[program]
    compiled = gt.jit(f)
    for field in (FIELD, FIELD + 1.0):
        equal_tables(compiled(field), f(field))
    with gt.config.override(jit=False):
        equal_tables(gt.jit(f)(FIELD), f(FIELD))


def total(result: Any) -> Any:
    parts = result.values() if isinstance(result, dict) else [result]
    return sum(np.sum(part.height if isinstance(part, xr.Dataset) else part) for part in parts)


@pytest.mark.parametrize("program", OF_FIELDS)
def test_gradients_of_labelled_arrays_have_their_labels(program: str) -> None:
    def loss(a: Any) -> Any:
        return total(OF_FIELDS[program](a))

    slopes = FIELD.copy(data=gradient_by_differences(lambda x: loss(FIELD.copy(data=x)), FIELD.to_numpy()))
    value, gradient = gt.value_and_grad(loss)(FIELD)
    np.testing.assert_allclose(value, loss(FIELD), rtol=1e-12)
    with gt.GradientTape() as tape:
        a = tape.watch(FIELD)
        y = loss(a)
    of_tape = tape.gradient(y, a)
    for found in (gradient, gt.jit(gt.grad(loss))(FIELD), of_tape):
        assert type(found) is xr.DataArray
        np.testing.assert_allclose(np.asarray(found.data), slopes, rtol=1e-5, atol=1e-7)
        assert repr(found.to_dict(data=False)) == repr(FIELD.to_dict(data=False))
    forward = gt.jvp(loss, (FIELD,), (FIELD * 0 + 1,))[1]
    np.testing.assert_allclose(forward, slopes.sum(), rtol=1e-5, atol=1e-6)


def test_data_sets_are_containers_of_their_numbers() -> None:
    ds = xr.Dataset(
        {"a": FIELD, "b": ("t", [1.0, 2.0]), "label": ("t", ["u", "v"])}, attrs={"source": "here"}
    )

    def loss(d: Any, power: float) -> Any:
        return ((d["a"] * d["b"]) ** power).sum()

    gradient = gt.grad(loss)(ds, 2.0)
    assert repr(gradient.to_dict(data=False)) == repr(ds.to_dict(data=False))
    np.testing.assert_allclose(gradient["a"], 2 * ds.a * ds.b**2)
    np.testing.assert_allclose(gradient["b"], (2 * ds.a**2 * ds.b).sum("x"))
    assert list(gradient["label"].values) == ["u", "v"]
    equal_tables(gt.jit(lambda d: d[["a", "b"]].mean("t"))(ds), ds[["a", "b"]].mean("t"))
    second = gt.hvp(lambda d: loss(d, 3.0), (ds,), (ds,))
    expected = gt.jvp(gt.grad(lambda d: loss(d, 3.0)), (ds,), (ds,))[1]
    np.testing.assert_allclose(second["a"], expected["a"])
    bad = expect(
        errors.IntegerInputError, lambda: gt.grad(loss)(ds.assign(a=FIELD.astype(int)), 2.0), "d['a']"
    )
    assert "int64" in str(bad)


def test_labels_are_a_part_of_the_program_and_numbers_are_not() -> None:
    compiled = gt.jit(lambda a: a * a.w)
    field = FIELD.copy(deep=True)
    for change, traces in (
        (lambda: None, 1),
        (lambda: field.data.__setitem__((0, 0), 7.0), 1),
        (lambda: field.w.values.__setitem__(0, 5.0), 2),
        (lambda: field.attrs.__setitem__("units", "km"), 3),
        (lambda: field.attrs["range"].__setitem__(0, -1.0), 4),
    ):
        change()
        equal_tables(compiled(field), field * field.w)
        assert compiled.site.traces == traces
    result = compiled(field)
    result.w.values[0], result.attrs["units"] = 100.0, "mm"
    equal_tables(compiled(field), field * field.w)
    assert field.attrs["units"] == "km" and field.w.values[0] == 5.0


def test_labelled_arrays_without_elements_of_rank_0_and_of_other_dtypes() -> None:
    for made in (
        xr.DataArray(3.0),
        xr.DataArray(np.zeros((0, 3)), dims=("t", "x")),
        FIELD.astype("f4"),
        FIELD > 2,
    ):
        equal_tables(gt.jit(lambda a: a)(made), made)
        assert gt.jit(lambda a: a)(made).dtype == made.dtype
    assert gt.grad(lambda a: (a**2).sum())(FIELD.isel(t=slice(0, 0))).sizes == {"t": 0, "x": 3}


def test_what_has_other_axes_than_a_labelled_argument_is_an_array() -> None:
    jacobian = gt.jacobian(lambda a: a.mean("t"))(FIELD)
    assert type(jacobian) is np.ndarray and jacobian.shape == (3, 2, 3)
    np.testing.assert_array_equal(gt.vmap(lambda row: np.sum(row))(FIELD), FIELD.sum("x"))
    y, pull = gt.vjp(lambda a: a.mean("t"), FIELD)
    assert type(pull(y)[0]) is xr.DataArray
    expect(errors.StructureError, lambda: pull(np.ones(3)), "the cotangent", "DataArray")


def test_xarray_is_as_before_outside_of_recordings() -> None:
    gt.grad(lambda a: (a**2).sum())(FIELD)
    assert not hasattr(FIELD, "__array_function__")
    assert type(np.dot(FIELD, np.ones(3))) is np.ndarray


COLUMN = pd.Series([1.0, 2.0, 3.0], index=["a", "b", "c"], name="v")
MATRIX = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}, index=["p", "q"])
SQUARES = pd.DataFrame(2 * np.eye(3), index=COLUMN.index, columns=COLUMN.index)


def equal_labelled(made: Any, expected: Any) -> None:
    if isinstance(expected, tuple | list):
        for one, other in zip(made, expected, strict=True):
            equal_labelled(one, other)
    elif isinstance(expected, dict):
        assert made.keys() == expected.keys()
        for name, part in expected.items():
            equal_labelled(made[name], part)
    elif isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(made, expected)
    elif isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(made, expected)
    else:
        assert not isinstance(made, pd.Series | pd.DataFrame)
        np.testing.assert_allclose(made, expected)


def squares(x: Any) -> Any:
    return np.sum(x**2, axis=None)


ROWS = pd.DataFrame(np.diag([2.0, 4.0, 6.0]), index=COLUMN.index, columns=COLUMN.index)
NUMBERS = {"c": COLUMN, "n": 2.0}

OF_TABLES: dict[str, tuple[Function, Any]] = {
    "series": (lambda: gt.grad(squares)(COLUMN), 2 * COLUMN),
    "frame": (lambda: gt.grad(squares)(MATRIX), 2 * MATRIX),
    "value": (lambda: gt.value_and_grad(squares)(COLUMN), (14.0, 2 * COLUMN)),
    "aux": (lambda: gt.grad(lambda x: (squares(x), x), has_aux=True)(COLUMN), (2 * COLUMN, COLUMN)),
    "nest": (
        lambda: gt.grad(lambda p: squares(p["c"]) * p["n"])(NUMBERS),
        {"c": 4 * COLUMN, "n": 14.0},
    ),
    "two": (
        lambda: gt.grad(lambda x, y: np.sum(x) * np.sum(y, axis=None), argnums=(0, 1))(COLUMN, MATRIX),
        (0 * COLUMN + 10, 0 * MATRIX + 6),
    ),
    "by name": (lambda: gt.grad(lambda w, x: w * squares(x), argnames="x")(2.0, x=COLUMN), 4 * COLUMN),
    "float32": (lambda: gt.grad(squares)(COLUMN.astype("f4")), 2 * COLUMN.astype("f4")),
    "missing": (lambda: gt.grad(lambda x: x.sum())(pd.Series([1.0, np.nan])), pd.Series([1.0, 0.0])),
    "none left": (lambda: gt.grad(squares)(COLUMN[:0]), COLUMN[:0]),
    "index": (lambda: gt.grad(squares)(pd.Index([1.0, 2.0])), [2.0, 4.0]),
    "jacobian": (lambda: gt.jacobian(lambda x: x**2)(COLUMN), ROWS),
    "jacfwd": (lambda: gt.jacfwd(lambda x: {"all": x**2, "sum": squares(x)})(COLUMN), {"all": ROWS, "sum": 2 * COLUMN}),
    "jacrev in two": (
        lambda: gt.jacrev(lambda x, n: x**2 * n, argnums=(0, 1))(COLUMN, 1.0),
        (ROWS, COLUMN**2),
    ),
    "jacobian of a frame": (lambda: gt.jacobian(squares)(MATRIX), 2 * MATRIX),
    "more axes": (lambda: gt.jacobian(lambda x: x)(MATRIX), np.eye(4).reshape(2, 2, 2, 2)),
    "hessian": (lambda: gt.hessian(squares)(COLUMN), SQUARES),
    "mixed": (
        lambda: gt.hessian(lambda p: squares(p["c"]) * p["n"])(NUMBERS),
        {"c": {"c": 2 * SQUARES, "n": 2 * COLUMN}, "n": {"c": 2 * COLUMN, "n": 0.0}},
    ),
    "diagonal": (lambda: gt.hessian_diagonal(squares)(COLUMN), 0 * COLUMN + 2),
    "vjp": (lambda: gt.vjp(lambda x: x**2, COLUMN)[1](COLUMN), (2 * COLUMN**2,)),
    "twice": (lambda: gt.grad(lambda x: np.sum(gt.grad(lambda y: np.sum(y**3))(x)))(COLUMN), 6 * COLUMN),
    "within": (lambda: gt.jit(lambda w: gt.grad(lambda x: w * squares(x))(COLUMN))(2.0), 4 * COLUMN),
    "around": (lambda: gt.jit(gt.grad(squares))(COLUMN), 2 * COLUMN),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", OF_TABLES)
def test_derivatives_by_tables_of_pandas_have_their_labels(name: str, compiled: bool) -> None:
    call, expected = OF_TABLES[name]
    with gt.config.override(jit=compiled):
        equal_labelled(call(), expected)


def test_labels_are_those_of_the_call() -> None:
    gradient = gt.grad(squares)
    for column in (COLUMN, COLUMN.rename({"a": "z"}), COLUMN.rename("other"), COLUMN.to_frame()["v"] + 1):
        equal_labelled(gradient(column), 2 * column)
    equal_labelled(gradient(COLUMN.to_numpy()), [2.0, 4.0, 6.0])
    assert gradient.site.traces == 4


@pytest.mark.parametrize("number", [Fraction(1, 3), Decimal("0.5")])
def test_fractions_and_decimals_are_converted_where_numpy_converts_them(number: Any) -> None:
    def stored(x: Any) -> Any:
        y = x.copy()
        y[0] = number
        y[1:] *= np.full(2, number, dtype=float)
        return y

    np.testing.assert_array_equal(gt.jit(stored)(X), stored(X))
    np.testing.assert_array_equal(gt.jacobian(stored)(X), np.diag([0.0, float(number), float(number)]))
    for call in (
        lambda: gt.jit(lambda x: np.where(x > 1, x, number))(X),
        lambda: gt.jit(lambda x: np.array([x[0], number]))(X),
        lambda: gt.grad(lambda x: x * 2)(number),
    ):
        expect(errors.DtypeError, call, type(number).__name__, "float(")
    expect(errors.DtypeError, lambda: gt.jit(lambda x: x * 2)(np.array([number])), "object", "astype(float)")


def test_warm_calls_with_a_labelled_array_are_answered_by_machine_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its structure was lost where the native entry was entered, so that each call searched for its program in Python."""
    gradient = gt.grad(lambda a: np.sum(np.sin(a) ** 2))
    tables = [
        xr.DataArray(np.linspace(0.1, 1.0, 4) * k, dims="t", coords={"t": np.arange(4.0)}, name="a")
        for k in range(1, 6)
    ]
    for table in tables[:3]:
        gradient(table)
    searched = []
    before = CallArguments.__init__
    monkeypatch.setattr(CallArguments, "__init__", lambda *args: (searched.append(1), before(*args))[1])
    results = [gradient(table) for table in tables]
    assert not searched
    for table, found in zip(tables, results, strict=True):
        xr.testing.assert_allclose(found, np.sin(2 * table))
        assert found.name == "a" and found.identical(found.copy())
    results[0].attrs["unit"], results[0].t.attrs["unit"] = "m", "s"
    assert not results[1].attrs and not gradient(tables[0]).t.attrs
    later = tables[0].assign_coords(t=np.arange(4.0) + 1)
    assert gradient(later).t.values.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert searched
