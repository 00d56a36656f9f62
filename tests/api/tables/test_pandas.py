"""Programs of users of pandas: what they compute of traced tables is what pandas computes of tables of numbers, with its labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import gradtape as gt
from gradtape import errors
from tests.support.differences import gradient_by_differences
from tests.support.ways import Function

TIMES = pd.date_range("2026-01-01", periods=6, freq="D", name="day")
NUMBERS = np.array(
    [[1.5, 0.3, 2.0], [-0.3, 1.0, 1.0], [2.2, -2.0, 3.5], [0.4, 0.7, 0.5], [3.1, 0.2, 1.2], [-1.2, 1.1, 0.8]]
)
FRAME = pd.DataFrame(NUMBERS, index=list("uvwxyz"), columns=["a", "b", "c"])
GAPS = FRAME.mask(FRAME == 2.2)
COLUMN = FRAME["a"].rename("v")
WITH_GAP = GAPS["a"]
SERIES = pd.Series(NUMBERS[:, 0], index=TIMES, name="price")
MIXED = FRAME.assign(g=["p", "q", "p", "q", "q", "p"], day=TIMES, kind=pd.Categorical(list("rsrsrs")))
WEIGHTS = pd.Series([0.5, -1.0, 2.0], index=["c", "a", "b"])
BY_TWO = FRAME.set_index(pd.MultiIndex.from_product([["m", "n"], [1, 2, 3]], names=["k", "i"]))

PROGRAMS: dict[str, tuple[Function, Any]] = {
    "column": (lambda d: d["a"] * 2, FRAME),
    "attribute": (lambda d: d.a - d.b, FRAME),
    "columns": (lambda d: d[["c", "a"]] ** 2, FRAME),
    "mean": (lambda d: d.mean(), FRAME),
    "mean of rows": (lambda d: d.mean(axis=1), FRAME),
    "mean with gaps": (lambda d: d.mean(), GAPS),
    "sum with gaps": (lambda s: s.sum(), WITH_GAP),
    "sum that keeps gaps": (lambda s: s.fillna(1.0).sum(skipna=False), WITH_GAP),
    "std": (lambda d: d.std(), FRAME),
    "std of a column": (lambda s: s.std(), COLUMN),
    "std with gaps": (lambda s: s.std(), WITH_GAP),
    "var": (lambda d: d.var(ddof=0), FRAME),
    "sem": (lambda s: s.sem(), COLUMN),
    "skew": (lambda s: s.skew(), COLUMN),
    "kurt": (lambda s: s.kurt(), COLUMN),
    "median": (lambda d: d.median(), FRAME),
    "quantile": (lambda s: s.quantile(0.3), COLUMN),
    "min and max": (lambda d: d.max() - d.min(), FRAME),
    "prod": (lambda d: d.prod(), FRAME),
    "agg": (lambda d: d.agg("sum"), FRAME),
    "agg of two": (lambda d: d.agg(["sum", "mean"]), FRAME),
    "describe by hand": (lambda s: pd.Series({"m": s.mean(), "s": s.std()}), COLUMN),
    "standardised": (lambda d: (d - d.mean()) / d.std(), FRAME),
    "scaled rows": (lambda d: d.div(d.sum(axis=1), axis=0), FRAME),
    "iloc": (lambda s: s.iloc[1] * s.iloc[-1], COLUMN),
    "rows": (lambda d: d.iloc[1:3], FRAME),
    "loc": (lambda d: d.loc["w", "b"] ** 2, FRAME),
    "loc of a row": (lambda d: d.loc["w"] ** 2, FRAME),
    "loc of rows": (lambda d: d.loc["v":"x", ["a"]] ** 2, FRAME),
    "at": (lambda d: d.at["x", "c"] ** 2, FRAME),
    "iat": (lambda d: d.iat[0, 1] ** 2, FRAME),
    "head": (lambda d: d.head(2) * 3, FRAME),
    "mask of labels": (lambda d: d[d.index > "w"] * 2, FRAME),
    "sorted by label": (lambda d: d.sort_index(ascending=False) * 2, FRAME),
    "matrix product": (lambda d: d @ np.array([1.0, 2.0, 3.0]), FRAME),
    "matrix product by labels": (lambda d: d.dot(WEIGHTS), FRAME),
    "gram matrix": (lambda d: d.T @ d, FRAME),
    "transpose": (lambda d: d.T * 2, FRAME),
    "product with a column": (lambda d: d.mul(d["a"], axis=0), FRAME),
    "aligned": (lambda s: s + s.iloc[::-1].iloc[:4], COLUMN),
    "aligned with data": (lambda d: d * WEIGHTS, FRAME),
    "with a data column": (lambda s: s * COLUMN.iloc[::-1], COLUMN),
    "fill_value": (lambda s: s.add(s.iloc[:3], fill_value=1.0), COLUMN),
    "ufunc": (lambda d: np.exp(d), FRAME),
    "ufunc of two": (lambda s: np.maximum(s, COLUMN.iloc[::-1] * 0.5), COLUMN),
    "returns": (lambda s: s.pct_change().iloc[1:], SERIES),
    "shift": (lambda s: s - s.shift(1), SERIES),
    "shift by time": (lambda s: s.shift(1, freq="D") * 2, SERIES),
    "cumsum": (lambda d: d.cumsum(), FRAME),
    "cumprod": (lambda s: (1 + s / 10).cumprod(), SERIES),
    "cummax": (lambda s: s.cummax(), SERIES),
    "rolling mean": (lambda s: s.rolling(2).mean(), SERIES),
    "rolling std": (lambda d: d.rolling(3).std(), FRAME),
    "expanding": (lambda s: s.expanding().sum(), SERIES),
    "resample": (lambda s: s.resample("2D").mean(), SERIES),
    "resample sum": (lambda s: s.resample("3D").sum(), SERIES),
    "groupby mean": (lambda d: d.groupby("g")[["a", "b"]].mean(), MIXED),
    "groupby sum": (lambda d: d.groupby("g")["c"].sum(), MIXED),
    "groupby std": (lambda d: d.groupby("g")["c"].std(), MIXED),
    "groupby max": (lambda d: d.groupby("g")["c"].max(), MIXED),
    "groupby category": (lambda d: d.groupby("kind", observed=True)["c"].mean(), MIXED),
    "groupby transform": (lambda d: d["a"] - d.groupby("g")["a"].transform("mean"), MIXED),
    "groupby function": (lambda d: d.groupby("g")["a"].apply(lambda s: (s**2).sum()), MIXED),
    "groupby several": (lambda d: d.groupby("g")["a"].agg(["sum", "mean"]), MIXED),
    "groups": (lambda d: sum((part["a"] ** 2).mean() for _, part in d.groupby("g")), MIXED),
    "groupby level": (lambda d: d.groupby(level="k").sum(), BY_TWO),
    "levels": (lambda d: d.loc["n"] * d.loc["m"], BY_TWO),
    "unstack": (lambda d: d["a"].unstack("k"), BY_TWO),
    "stack": (lambda d: d.stack() * 2, FRAME),
    "melt": (lambda d: d.melt()["value"] * 2, FRAME),
    "by month": (lambda s: s[s.index.day > 2].sum(), SERIES),
    "between": (lambda s: s["2026-01-02":"2026-01-04"].mean(), SERIES),
    "assign": (lambda d: d.assign(e=d.a * d.b), FRAME),
    "new column": (lambda d: _with(d, "e", d.a * d.b).sum(axis=1), FRAME),
    "changed column": (lambda d: _with(d, "a", d.a * 2).sum(), FRAME),
    "changed cell": (lambda d: _with_cell(d), FRAME),
    "drop": (lambda d: d.drop(columns="b").drop(index="v") * 2, FRAME),
    "rename": (lambda d: d.rename(columns={"a": "A"}), FRAME),
    "reset_index": (lambda s: s.reset_index(drop=True) * 2, COLUMN),
    "reindex": (lambda d: d.reindex(index=["z", "u", "none"]), FRAME),
    "set_index": (lambda d: d.set_index(d.index.str.upper()) * 2, FRAME),
    "concat": (lambda d: pd.concat([d, d * 2]), FRAME),
    "concat columns": (lambda d: pd.concat([d["a"], d["b"] * 2], axis=1), FRAME),
    "merge": (lambda d: d.merge(FRAME.add_suffix("2"), left_index=True, right_index=True), FRAME),
    "join": (lambda d: d.join((d["a"] * 2).rename("e")), FRAME),
    "where": (lambda s: s.where(s > 0.5, 0.0), COLUMN),
    "where a gap": (lambda s: s.where(s > 0.5), COLUMN),
    "mask": (lambda d: d.mask(d < 0, d * 2), FRAME),
    "clip": (lambda d: d.clip(-0.1, 2.1), FRAME),
    "abs": (lambda d: d.abs(), FRAME),
    "fillna": (lambda d: d.fillna(d.mean()), GAPS),
    "ffill": (lambda s: s.ffill(), WITH_GAP),
    "isna": (lambda s: s.isna(), WITH_GAP),
    "comparison": (lambda s: (s > 0.5).sum() * s.mean(), COLUMN),
    "corr": (lambda d: d.corr(), FRAME),
    "cov": (lambda d: d.cov(), FRAME),
    "corr of two": (lambda d: d["a"].corr(d["b"]), FRAME),
    "autocorr": (lambda s: s.autocorr(1), SERIES),
    "apply": (lambda d: d.apply(lambda column: column**2 + column.mean()), FRAME),
    "apply to rows": (lambda d: d.apply(lambda row: row["a"] * row["b"], axis=1), FRAME),
    "map": (lambda s: s.map(lambda x: x**2 + 1), COLUMN),
    "pipe": (lambda d: d.pipe(lambda t: t * 2), FRAME),
    "items": (lambda d: sum((i + 1) * column.mean() for i, (_, column) in enumerate(d.items())), FRAME),
    "iterrows": (lambda d: sum(row["a"] * row["c"] for _, row in d.iterrows()), FRAME),
    "itertuples": (lambda d: sum(row.a * row.c for row in d.itertuples()), FRAME),
    "eval": (lambda d: d.eval("a * b + c"), FRAME),
    "to_numpy": (lambda d: d.to_numpy() @ np.ones(3), FRAME),
    "values": (lambda d: np.linalg.norm(d.values), FRAME),
    "np.sum": (lambda d: np.sum(d, axis=0), FRAME),
    "np.mean": (lambda s: np.mean(s) + np.std(s), COLUMN),
    "np.dot": (lambda d: np.dot(d, np.ones(3)), FRAME),
    "np.where": (lambda s: np.where(s > 0.5, s, 0.0), COLUMN),
    "np.concatenate": (lambda s: np.concatenate([s, s * 2]), COLUMN),
    "np.stack": (lambda d: np.stack([d["a"], d["b"]]), FRAME),
    "np.cumsum": (lambda s: np.cumsum(s), COLUMN),
    "np.diff": (lambda s: np.diff(s), COLUMN),
    "np.outer": (lambda s: np.outer(s, s), COLUMN),
    "np.linalg": (lambda d: np.linalg.solve(d.T @ d + np.eye(3), np.ones(3)), FRAME),
    "np.interp": (lambda s: np.interp(1.5, np.arange(6.0), s), COLUMN),
    "np.array": (lambda d: np.array(d) * 2, FRAME),
    "array beside": (lambda s: np.arange(6.0) * s + s * np.arange(6.0), COLUMN),
    "number at the left": (lambda d: 1.0 / (2.0 + d**2), FRAME),
    "in place": (lambda d: _in_place(d), FRAME),
    "results": (lambda d: {"m": d.mean(), "t": (d["a"], d.iloc[0])}, FRAME),
    "dot of columns": (lambda d: d["a"].dot(d["b"]) + d["a"] @ d["b"], FRAME),
    "text beside": (lambda d: d, MIXED),
    "numbers beside text": (lambda d: d.mean(numeric_only=True), MIXED),
    "select_dtypes": (lambda d: d.select_dtypes("number") * 2, MIXED),
    "times": (lambda d: d["a"][d["day"] > "2026-01-03"].sum(), MIXED),
    "pivot_table": (lambda d: d.pivot_table(values="a", index="g", columns="kind"), MIXED),
    "skew of columns": (lambda d: d.skew(), FRAME),
    "kurt of columns": (lambda d: d.kurt(), GAPS),
    "skew that keeps gaps": (lambda d: d.skew(skipna=False), GAPS),
    "rolling median": (lambda d: d.rolling(3, min_periods=1).median(), FRAME),
    "rolling first": (lambda d: d.rolling(3).first(), FRAME),
    "rolling last": (lambda d: d.rolling(3, min_periods=1).last(), FRAME),
    "rolling by time": (lambda s: s.rolling("2D").mean(), SERIES),
    "faded mean": (lambda s: s.ewm(span=3).mean(), SERIES),
    "faded mean with gaps": (lambda d: d.ewm(alpha=0.3, min_periods=2).mean(), GAPS),
    "faded sum": (lambda d: d.ewm(com=0.5).sum(), FRAME),
    "unstack with holes": (lambda d: d.iloc[:5].unstack("k"), BY_TWO),
    "unstack filled": (lambda d: d["a"].iloc[1:].unstack("k", fill_value=1.0), BY_TWO),
    "xs": (lambda d: d.xs("m") * 2, BY_TWO),
    "slice of two levels": (lambda d: d.loc[pd.IndexSlice["m":"n", 2:3], :] ** 2, BY_TWO),
    "sum of a level": (lambda d: d.groupby(level="i").sum(), BY_TWO),
    "share of a level": (lambda d: d.div(d.groupby(level="k").sum(), level="k"), BY_TWO),
    "swaplevel": (lambda d: d.swaplevel().sort_index() * 2, BY_TWO),
    "droplevel": (lambda d: d.droplevel("k") ** 2, BY_TWO),
    "codes": (lambda d: d["a"] * d["kind"].cat.codes, MIXED),
    "dummies": (lambda d: pd.get_dummies(d["kind"], dtype=float).mul(d["a"], axis=0), MIXED),
    "mapped category": (lambda d: d["a"] * d["g"].map({"p": 1.0, "q": 2.0}), MIXED),
    "group by category": (lambda d: d.groupby("kind", observed=False)[["a"]].sum(), MIXED),
    "pivot": (lambda d: d.pivot(index="day", columns="g", values="a"), MIXED),
    "crosstab": (lambda d: pd.crosstab(d["g"], d["kind"], values=d["a"], aggfunc="sum"), MIXED),
    "resample of two": (lambda s: s.resample("4D").agg(["sum", "max"]), SERIES),
    "resample upwards": (lambda s: s.resample("12h").ffill(), SERIES),
    "asfreq": (lambda s: s.asfreq("12h"), SERIES),
    "time zone": (lambda s: s.tz_localize("UTC") * 2, SERIES),
    "weekday": (lambda s: s[s.index.day_of_week < 4] * 2, SERIES),
    "truncate": (lambda s: s.truncate(before="2026-01-03") ** 2, SERIES),
    "group by weekday": (lambda s: s.groupby(s.index.day_of_week // 3).mean(), SERIES),
    "assign in steps": (lambda d: d.assign(e=lambda t: t["a"] * t["b"], f=lambda t: t["e"] + 1), FRAME),
    "eval with gaps": (lambda d: d.eval("a * b + c ** 2"), GAPS),
    "eval of conditions": (lambda d: d.eval("(a > 0.5) * b + sin(a)"), FRAME),
    "eval of two columns": (lambda d: d.eval("e = a * b\nf = e + 1"), FRAME),
    "query by text": (lambda d: d.query("g == 'p'")[["a", "b"]] * 2, MIXED),
    "value of a loop": (lambda s: _looped(s), COLUMN),
}  # fmt: skip


WEIGHT = np.array([0.5, -1.0, 2.0])

BESIDE: dict[str, Function] = {
    "std": lambda w: (w[0]*FRAME["a"]).std(),
    "mean gaps": lambda w: (w[0]*GAPS["a"]).mean(),
    "scalar df": lambda w: (FRAME*w[0]).std(),
    "df scalar r": lambda w: (w[0]-FRAME).std(),
    "df row array": lambda w: (FRAME*w).sum(axis=1),
    "array df": lambda w: (w*FRAME).std(),
    "df@w": lambda w: (FRAME@w).std(),
    "dot": lambda w: FRAME.dot(w).std(),
    "w@df": lambda w: np.cos(w)@FRAME.T,
    "mul": lambda w: FRAME["a"].mul(w[0]).std(),
    "mul frame": lambda w: FRAME.mul(w,axis=1).std(),
    "np.multiply": lambda w: np.multiply(w[0],FRAME["a"]),
    "np.maximum": lambda w: np.maximum(FRAME["a"],w[0]),
    "np.maximum r": lambda w: np.maximum(w[0],FRAME["a"]),
    "np.power": lambda w: np.power(FRAME["a"].abs(),w[0]),
    "compare": lambda w: (FRAME["a"]>w[0]).sum()*w[1],
    "compare r": lambda w: (w[0]<FRAME["a"]).sum()*w[1],
    "where": lambda w: FRAME["a"].where(FRAME["a"]>0,w[0]),
    "fillna": lambda w: GAPS["a"].fillna(w[0]).std(),
    "assign": lambda w: FRAME.assign(e=w[0]*FRAME["a"]).std(),
    "setcol": lambda w: (lambda d: (d.__setitem__("e",w[0]), d.std())[1])(FRAME.copy()),
    "setarr": lambda w: (lambda d: (d.__setitem__("e",np.tile(w,2)), d.std())[1])(FRAME.copy()),
    "iadd": lambda w: (lambda d: d.__iadd__(w[0]).std())(FRAME.copy()),
    "align": lambda w: (w[0]*FRAME["a"]) + FRAME["b"].iloc[::-1],
    "groupby": lambda w: (w[0]*MIXED["a"]).groupby(MIXED["g"]).std(),
    "rolling": lambda w: (w[0]*SERIES).rolling(3).std(),
    "poly": lambda w: (w[0]+w[1]*FRAME["a"]+w[2]*FRAME["a"]**2 - FRAME["b"]).pow(2).mean(),
    "pow": lambda w: (FRAME["a"].abs()**w[0]).std(),
    "rpow": lambda w: (w[2]**FRAME["a"]).std(),
    "div": lambda w: (FRAME["a"]/w[0]).std()+(w[0]/FRAME["b"]).std(),
    "exp": lambda w: np.exp(-w[0]*FRAME["a"]).std(),
    "sigmoid": lambda w: (1/(1+np.exp(-(FRAME@w)))).std(),
    "series w": lambda w: FRAME.dot(pd.Series(w,index=["a","b","c"])).std(),
    "series w order": lambda w: (FRAME*pd.Series(w,index=["c","b","a"])).sum().std(),
    "clip": lambda w: FRAME["a"].clip(w[1]*1.01,w[2]*1.01).std(),
    "quad": lambda w: w@FRAME.cov()@w,
    "np.dot": lambda w: np.dot(FRAME,w).std(),
    "column times index": lambda w: (w[0]*pd.Series(np.arange(3.),index=[0,1,2])).mean(),
    "float(len)": lambda w: w[0]*len(FRAME)/FRAME.shape[1],
    "iter": lambda w: sum(w[0]*x for x in FRAME["a"]),
    "apply": lambda w: FRAME["a"].apply(lambda x: w[0]*x**2).std(),
    "apply cols": lambda w: FRAME.apply(lambda c: (c*w[0]).std()),
    "agg": lambda w: (FRAME*w[0]).agg(["std","mean"]),
    "concat": lambda w: pd.concat([w[0]*FRAME["a"],w[1]*FRAME["b"]]).std(),
    "DataFrame dict": lambda w: pd.DataFrame({"p":w[0]*FRAME["a"],"q":FRAME["b"]}).std(),
    "DataFrame w": lambda w: pd.DataFrame(np.outer(w,w),columns=list("abc")).std(),
    "Series scalar dict": lambda w: pd.Series({"p":w[0],"q":w[1]}).std(),
    "cumulative": lambda w: (w[0]*FRAME["a"]).cumsum().iloc[-1],
    "sum of list": lambda w: pd.Series([w[0],w[1]**2,1.0]).std(),
}  # fmt: skip
"""Functions of traced numbers beside tables of numbers."""

REFUSED: dict[str, tuple[Function, Any]] = {
    "choice of rows": (lambda s: s[s > 0.5].sum(), COLUMN),
    "choice of rows of a frame": (lambda d: d[d["a"] > 0.5], FRAME),
    "dropna": (lambda s: s.dropna() * 2, WITH_GAP),
    "sort_values": (lambda s: s.sort_values(), COLUMN),
    "sort_values by a column": (lambda d: d.sort_values("a"), FRAME),
    "nlargest": (lambda s: s.nlargest(2).sum(), COLUMN),
    "rank": (lambda s: s.rank(), COLUMN),
    "idxmax": (lambda s: s.idxmax(), COLUMN),
    "value_counts": (lambda s: s.value_counts(), COLUMN),
    "query": (lambda d: d.query("a > 0.5"), FRAME),
}

CHANGES: dict[str, Function] = {
    "column": lambda d: d.__setitem__("a", d["a"] * 2),
    "new column": lambda d: d.__setitem__("e", d["a"] * 2),
    "insert": lambda d: d.insert(0, "e", d["a"]),
    "deleted column": lambda d: d.__delitem__("a"),
    "pop": lambda d: d.pop("a"),
    "names": lambda d: setattr(d, "columns", list("xyz")),
    "index": lambda d: setattr(d, "index", range(6)),
    "cell": lambda d: d.loc.__setitem__(("u", "a"), 7.0),
    "element": lambda d: d.iat.__setitem__((0, 0), 7.0),
    "augmented": lambda d: d.__iadd__(1.0),
}


def _with(frame: Any, name: str, column: Any) -> Any:
    frame = frame.copy()
    frame[name] = column
    return frame


def _with_cell(frame: Any) -> Any:
    frame = frame.copy()
    frame.loc["u", "a"] = frame.loc["v", "b"] * 3
    return frame


def _in_place(frame: Any) -> Any:
    frame = frame * 1.0
    frame += 1.0
    frame["a"] *= 2
    return frame


def _looped(column: Any) -> Any:
    total = 0.0
    for number in column:
        total = total * 0.5 + number**2
    return total


def same(made: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert made.keys() == expected.keys()
        made, expected = tuple(made.values()), tuple(expected.values())
    if isinstance(expected, tuple):
        for one, other in zip(made, expected, strict=True):
            same(one, other)
    elif isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(made, expected, rtol=1e-10, check_freq=False)
    elif isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(made, expected, rtol=1e-10, check_freq=False)
    else:
        assert not isinstance(made, pd.Series | pd.DataFrame)
        np.testing.assert_allclose(made, expected, rtol=1e-10, atol=1e-14)


def total(result: Any) -> Any:
    """Return a number in which each element of a result counts by another factor."""
    if isinstance(result, dict | tuple):
        parts = result.values() if isinstance(result, dict) else result
        return sum((place + 1.0) * total(part) for place, part in enumerate(parts))
    if isinstance(result, pd.DataFrame):
        result = result.select_dtypes("number")
    numbers = result.to_numpy() if isinstance(result, pd.Series | pd.DataFrame) else result
    factors = np.cos(np.arange(np.size(numbers))).reshape(np.shape(numbers))
    return np.sum(np.where(np.isnan(numbers), 0.0, numbers) * factors)


def numbers_of(table: Any) -> Any:
    return table if isinstance(table, pd.Series) else table[["a", "b", "c"]]


def with_numbers(table: Any, numbers: Any) -> Any:
    made = table.copy()
    if isinstance(table, pd.Series):
        return pd.Series(numbers, index=table.index, name=table.name)
    made[["a", "b", "c"]] = numbers
    return made


def others(table: Any) -> list[Any]:
    """Return tables with the labels of another one, and with other numbers, gaps and orders."""
    numbers = numbers_of(table).to_numpy()
    gaps, infinite = -numbers, numbers.copy()
    gaps[1] = np.nan
    infinite.flat[2] = np.inf
    return [with_numbers(table, each) for each in (1.3 * numbers[::-1], gaps, infinite, 0.0 * numbers)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_functions_return_what_pandas_returns(name: str) -> None:
    function, table = PROGRAMS[name]
    compiled = gt.jit(function)
    same(compiled(table), function(table))
    for other in others(table):
        same(compiled(other), function(other))
    with gt.config.override(jit=False):
        same(gt.jit(function)(table), function(table))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "isna"])
def test_gradients_have_the_labels_of_the_table(name: str) -> None:
    function, table = PROGRAMS[name]

    def loss(argument: Any) -> Any:
        return total(function(argument))

    numbers = numbers_of(table).to_numpy()
    slope = np.nan_to_num(gradient_by_differences(lambda x: loss(with_numbers(table, x)), numbers))
    gradient = gt.grad(loss)(table)
    with gt.GradientTape() as tape:
        watched = tape.watch(table)
        y = loss(watched)
    for found in (gradient, gt.jit(gt.grad(loss))(table), tape.gradient(y, watched)):
        assert type(found) is type(table)
        assert all(one.identical(two) for one, two in zip(found.axes, table.axes, strict=True))
        exact = np.where(np.isnan(numbers), 0.0, numbers_of(found).to_numpy())
        np.testing.assert_allclose(exact, slope, rtol=1e-5, atol=1e-6)
    if numbers.size == table.size and not np.isnan(numbers).any():
        tangent = gt.jvp(loss, (table,), (table * 0 + 1,))[1]
        np.testing.assert_allclose(tangent, np.sum(slope), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BESIDE)
def test_traced_numbers_beside_tables(name: str) -> None:
    function = BESIDE[name]

    def loss(w: Any) -> Any:
        return total(function(w))

    for loops in ("auto", "compile"):
        with gt.config.override(loops=loops):
            compiled = gt.jit(function)
            for w in (WEIGHT, 1.3 * WEIGHT, WEIGHT):
                same(compiled(w), function(w))
    slope = gradient_by_differences(loss, WEIGHT)
    np.testing.assert_allclose(gt.grad(loss)(WEIGHT), slope, rtol=1e-5, atol=1e-6)
    with gt.GradientTape() as tape:
        w = tape.watch(WEIGHT)
        y = loss(w)
    np.testing.assert_allclose(tape.gradient(y, w), slope, rtol=1e-5, atol=1e-6)
    if name != "clip":  # whose bounds are compared
        each = np.stack([WEIGHT, 1.3 * WEIGHT])
        np.testing.assert_allclose(gt.vmap(loss)(each), [loss(w) for w in each], rtol=1e-10)


@pytest.mark.parametrize("way", [gt.jit, gt.grad])
@pytest.mark.parametrize("name", REFUSED)
def test_labels_do_not_depend_on_traced_numbers(name: str, way: Function) -> None:
    function, table = REFUSED[name]
    with pytest.raises(
        errors.UnsupportedFunctionError, match=r"labels would depend(?s:.)*where\(condition\)"
    ):
        way(lambda argument: total(function(argument)))(table)


@pytest.mark.parametrize("way", [gt.jit, gt.grad])
@pytest.mark.parametrize("name", CHANGES)
def test_tables_of_the_caller_are_not_changed_in_silence(name: str, way: Function) -> None:
    def changed(frame: Any) -> Any:
        CHANGES[name](frame)
        return total(frame)

    def changed_copy(frame: Any) -> Any:
        return changed(frame.copy())

    frame = FRAME.copy()
    with pytest.raises(errors.InPlaceError, match=r"table\.copy\(\)"):
        way(changed)(frame)
    with pytest.raises(errors.InPlaceError, match=r"table\.copy\(\)"):
        way(lambda nest: changed(nest["d"][0]))({"d": [frame]})
    way(changed_copy)(frame)
    pd.testing.assert_frame_equal(frame, FRAME)
    np.testing.assert_allclose(gt.jit(changed_copy)(frame), changed_copy(frame), rtol=1e-12)


def test_rows_are_mapped_as_columns_with_the_names_of_the_columns() -> None:
    def spread(row: Any) -> Any:
        return row.std() * row["a"]

    expected = FRAME.apply(spread, axis=1).to_numpy()
    np.testing.assert_allclose(gt.vmap(spread)(FRAME), expected, rtol=1e-12)
    np.testing.assert_allclose(gt.vmap(spread, in_axes=1)(FRAME.T), expected, rtol=1e-12)
    np.testing.assert_allclose(gt.map(lambda row: row["a"] * 2, FRAME), 2 * FRAME["a"], rtol=1e-12)
    carried = gt.scan(lambda carry, row: (carry + row["b"], carry * row["a"]), 0.0, FRAME)
    np.testing.assert_allclose(carried[0], FRAME["b"].sum(), rtol=1e-12)
    w = np.array([1.0, 2.0])
    np.testing.assert_allclose(
        gt.vmap(lambda k, d: (k * d["a"]).std(), (0, None))(w, MIXED), w * FRAME["a"].std()
    )
    with pytest.raises(errors.DtypeError, match="dtypes are mapped"):
        gt.vmap(lambda row: row)(MIXED)


def test_second_derivatives() -> None:
    def loss(column: Any) -> Any:
        return (column**3).sum() * column.std()

    plain = gt.hessian(lambda x: np.sum(x**3) * np.std(x, ddof=1))(COLUMN.to_numpy())
    hessian = gt.hessian(loss)(COLUMN)
    pd.testing.assert_frame_equal(hessian, pd.DataFrame(plain, COLUMN.index, COLUMN.index), rtol=1e-10)
    product = gt.hvp(loss, (COLUMN,), (COLUMN,))
    pd.testing.assert_series_equal(
        product, pd.Series(plain @ COLUMN.to_numpy(), COLUMN.index, name="v"), rtol=1e-10
    )


def test_a_column_of_dates_has_no_derivative() -> None:
    with pytest.raises(errors.DtypeError, match=r"datetime64(?s:.)*np\.timedelta64"):
        gt.grad(lambda s: 1.0)(pd.Series(TIMES))
    groups = pd.Series(list("pqpqqp"), index=FRAME.index)
    same(gt.jit(lambda d, by: d.groupby(by).mean())(FRAME, groups), FRAME.groupby(groups).mean())
    with pytest.raises(TypeError, match="bytes-like"):
        gt.jit(lambda d, by: d.groupby(by).mean())(FRAME, FRAME["a"])


def test_missing_values_other_than_nan_are_refused() -> None:
    for made in (
        pd.Series([1.0, None], dtype="Float64"),
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
    ):
        with pytest.raises(errors.DtypeError, match=r"column\.astype\(float\)"):
            gt.jit(lambda table: table)(made)
    with pytest.raises(errors.DtypeError, match=r"index\.to_numpy\(\)"):
        gt.jit(lambda index: index.max())(pd.Index([1.0, np.nan]))

    def stored(x: Any) -> Any:
        column = pd.Series([1.0, "text"], dtype=object)
        column.iloc[0] = x[0]
        return column

    with pytest.raises((errors.GradtapeError, ValueError, TypeError), match=r"dtype object|array element"):
        gt.jit(stored)(WEIGHT)


def test_the_index_and_the_columns_are_a_part_of_the_program() -> None:
    compiled = gt.jit(lambda d: d * 2)
    frame = FRAME.copy()
    for change, traces in (
        (lambda: None, 1),
        (lambda: frame.__setitem__("a", [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), 1),
        (lambda: setattr(frame, "columns", ["A", "b", "c"]), 2),
        (lambda: setattr(frame.index, "name", "row"), 3),
        (lambda: setattr(frame, "index", range(6)), 4),
        (lambda: frame.attrs.__setitem__("unit", "m"), 5),
    ):
        change()
        same(compiled(frame), frame * 2)
        assert compiled.site.traces == traces and compiled(frame).attrs == frame.attrs
    result = compiled(frame)
    result.attrs["unit"], result.index.name = "km", "other"
    assert frame.attrs == {"unit": "m"} and compiled(frame).index.name == frame.index.name


class Prices(pd.Series):
    @property
    def _constructor(self) -> Any:
        return Prices


def test_the_first_table_of_a_class_may_be_a_result_with_gaps() -> None:
    found = gt.jit(lambda x: Prices(x * 2))(WITH_GAP.to_numpy())
    assert type(found) is Prices
    np.testing.assert_array_equal(found.to_numpy(), WITH_GAP.to_numpy() * 2)


class Model:
    def __init__(self, factor: Any, table: Any) -> None:
        self.factor, self.table = factor, table


@pytest.mark.parametrize("table", [COLUMN, FRAME, MIXED])
def test_objects_with_tables(table: Any) -> None:
    def loss(model: Any) -> Any:
        return total(model.factor * numbers_of(model.table) ** 2)

    gradient = gt.grad(loss)(Model(2.0, table))
    np.testing.assert_allclose(gradient.factor, total(numbers_of(table) ** 2))
    plain = gt.grad(lambda numbers: total(2.0 * numbers**2))(numbers_of(table))
    same(numbers_of(gradient.table), plain)
