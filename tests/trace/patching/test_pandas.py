"""Compiled functions of pandas: traced columns are shifted, aligned, rolled and correlated as those of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gradtape as gt
from tests.support.differences import gradient_by_differences

DATA = np.array([1.5, -0.3, 2.2, 0.4, 3.1, -1.2])
OTHER = np.array([0.3, 1.0, -2.0, 0.7, 0.2, 1.1])


def _table(x: Any) -> Any:
    return pd.DataFrame({"a": x, "b": OTHER, "c": x * OTHER})


CALLS: dict[str, Callable[[Any], Any]] = {
    "shift": lambda x: pd.Series(x).shift(1).to_numpy(),
    "reindex": lambda x: pd.Series(x).reindex([5, 0, 7, 2]).to_numpy(),
    "take rows": lambda x: _table(x).take([4, 1, 1]).to_numpy(),
    "drop": lambda x: pd.Series(x).drop(index=[2]).to_numpy(),
    "percent": lambda x: pd.Series(x).pct_change(2).to_numpy(),
    "sum of windows": lambda x: pd.Series(x).rolling(2).sum().to_numpy(),
    "mean of windows": lambda x: pd.Series(x).rolling(3, min_periods=1).mean().to_numpy(),
    "spread of windows": lambda x: pd.Series(x).rolling(3).std().to_numpy(),
    "variance of centred windows": lambda x: pd.Series(x).rolling(3, center=True).var(ddof=0).to_numpy(),
    "extremes of windows": lambda x: (
        pd.Series(x).rolling(3).max().to_numpy() + pd.Series(x).rolling(2).min().to_numpy()
    ),
    "expanding": lambda x: pd.Series(x).expanding().mean().to_numpy(),
    "exponential windows": lambda x: pd.Series(x).ewm(alpha=0.3, min_periods=2).mean().to_numpy(),
    "exponential windows with gaps": lambda x: (
        _table(x).reindex([0, 1, 9, 2, 3]).ewm(span=4).mean().to_numpy()
    ),
    "recursive exponential windows": lambda x: (
        pd.Series(x).shift(2).ewm(com=2, adjust=False).mean().to_numpy()
    ),
    "exponential sums": lambda x: pd.Series(x).ewm(halflife=2).sum().to_numpy(),
    "exponential windows of a table": lambda x: _table(x).ewm(com=1).mean().to_numpy(),
    "exponential windows of groups": lambda x: (
        pd.Series(x).groupby([0, 1, 0, 1, 1, 0]).ewm(alpha=0.4).mean().to_numpy()
    ),
    "gaps": lambda x: pd.Series(x).shift(1).rolling(3, min_periods=1).mean().to_numpy(),
    "products": lambda x: np.dot(_table(x).T, np.outer(x, x)),
    "correlations": lambda x: _table(x).corr().to_numpy(),
    "correlations with gaps": lambda x: _table(x).shift(1).corr(min_periods=3).to_numpy(),
    "covariances with gaps": lambda x: _table(x).shift(2).cov().to_numpy(),
}


@pytest.mark.parametrize("name", CALLS)
def test_columns_are_traced(name: str) -> None:
    call = CALLS[name]
    expected = call(DATA)
    seeds = np.cos(np.arange(expected.size)).reshape(expected.shape)

    def total(x: Any) -> Any:
        made = call(x)
        return np.sum(np.where(np.isnan(made), 0.0, made) * seeds)

    slope = gradient_by_differences(total, DATA)
    np.testing.assert_allclose(gt.jit(call)(DATA), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gt.grad(total)(DATA), slope, rtol=1e-5, atol=1e-7)
    with gt.GradientTape() as tape:
        x = tape.watch(DATA)
        y = total(x)
    np.testing.assert_allclose(tape.gradient(y, x), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("options", [{"adjust": False}, {"ignore_na": True}])
def test_exponential_windows_whose_weights_depend_on_gaps_are_refused(options: dict[str, bool]) -> None:
    def call(x: Any) -> Any:
        return pd.Series(x).reindex([0, 9, 1]).ewm(alpha=0.5, **options).mean().to_numpy()

    with pytest.raises(gt.errors.UnsupportedFunctionError, match="with gaps") as caught:
        gt.jit(call)(DATA)
    assert "adjust=True and ignore_na=False" in str(caught.value)


def test_exponential_windows_over_times_are_refused() -> None:
    times = pd.to_datetime(
        ["2020-01-01", "2020-01-02", "2020-01-05", "2020-01-06", "2020-01-07", "2020-01-09"]
    )
    with pytest.raises(gt.errors.UnsupportedFunctionError, match="with times"):
        gt.jit(lambda x: pd.Series(x).ewm(halflife="2 days", times=times).mean().to_numpy())(DATA)
