"""Functions of bottleneck, which are compiled: values and derivatives of traced arrays are those of the package's own."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.support.differences import gradient_by_differences

bottleneck = pytest.importorskip("bottleneck", reason="pandas computes with it where it is installed")

FULL = np.random.default_rng(0).normal(size=(3, 7))
GAPS = FULL.copy()
GAPS[[0, 1, 1, 1], [2, 0, 1, 5]] = np.nan

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

ALL: tuple[Arguments, ...] = (((), {}), ((0,), {}), ((), {"axis": -1}))
ROWS: tuple[Arguments, ...] = (((), {}), ((1,), {}))
SPREADS: tuple[Arguments, ...] = (((), {}), ((0, 1), {}), ((), {"axis": 1, "ddof": 1}), ((-1,), {"ddof": 0}))
FILLS: tuple[Arguments, ...] = (((), {}), ((1,), {}), ((), {"axis": 0}), ((2, 1), {}))
MOVES: tuple[Arguments, ...] = (
    ((3,), {}),
    ((3, 2, 1), {}),
    ((2,), {"axis": 0}),
    ((), {"window": 7, "min_count": 3}),
)
MOVING_SPREADS: tuple[Arguments, ...] = (((3,), {}), ((3,), {"ddof": 1}), ((3, 2, -1, 1), {}))

CALLS = {
    "nansum": ALL,
    "nanmean": ALL,
    "nanmin": ALL,
    "nanmax": ALL,
    "anynan": ALL,
    "allnan": ALL,
    "nanstd": SPREADS,
    "nanvar": SPREADS,
    "nanargmin": ROWS,
    "nanargmax": ROWS,
    "nanmedian": ROWS,
    "push": FILLS,
    "move_sum": MOVES,
    "move_mean": MOVES,
    "move_min": MOVES,
    "move_max": MOVES,
    "move_median": MOVES,
    "move_argmin": MOVES,
    "move_argmax": MOVES,
    "move_std": MOVING_SPREADS,
    "move_var": MOVING_SPREADS,
}
WITHOUT_GAPS = {"median": ALL, "ss": ALL, "rankdata": ROWS}
"""Functions whose results bottleneck does not define for NaN."""

DISCRETE = {"anynan", "allnan", "nanargmin", "nanargmax", "rankdata", "move_argmin", "move_argmax"}


@pytest.mark.parametrize("name", [*CALLS, *WITHOUT_GAPS])
def test_functions_are_those_of_the_package(name: str) -> None:
    function = getattr(bottleneck, name)
    for args, kwargs in CALLS.get(name) or WITHOUT_GAPS[name]:
        for data in (FULL, GAPS) if name in CALLS else (FULL,):
            call = functools.partial(lambda x, a, k: function(x, *a, **k), a=args, k=kwargs)
            expected = call(data.copy())
            with gt.GradientTape() as tape:
                x = tape.watch(data)
                y = call(x)
            for found in (gt.jit(call)(data), y, call(gt.constant(data))):
                np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-9)
                assert np.shape(found) == np.shape(expected)
            if name in DISCRETE:
                continue
            seeds = np.cos(np.arange(np.size(expected))).reshape(np.shape(expected))

            def total(x: Any, call: Any = call, seeds: Any = seeds) -> Any:
                made = call(x)
                return np.sum(np.where(np.isnan(made), 0.0, made) * seeds)

            if data is FULL and name not in ("move_std", "nanstd"):
                np.testing.assert_allclose(
                    gt.grad(total)(data), gradient_by_differences(total, data), rtol=1e-5, atol=1e-7
                )
            gradient = gt.grad(total)(data)
            assert not np.isnan(gradient).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_dtypes_are_those_of_the_package(dtype: Any) -> None:
    data = np.arange(6, dtype=dtype).reshape(2, 3)
    for name, args in [
        ("nanmean", ()),
        ("nansum", (0,)),
        ("move_sum", (2,)),
        ("move_mean", (2,)),
        ("median", ()),
    ]:
        function = getattr(bottleneck, name)
        expected, found = function(data, *args), gt.jit(lambda x, f=function, a=args: f(x, *a))(data)
        assert np.asarray(found).dtype == np.asarray(expected).dtype


def test_replaced_numbers_are_written_to_the_array() -> None:
    def filled(x: Any) -> Any:
        y = x * 2.0
        bottleneck.replace(y, np.nan, 0.5)
        bottleneck.replace(y, old=0.5, new=1.0)
        return y

    np.testing.assert_array_equal(gt.jit(filled)(GAPS), filled(GAPS))
    np.testing.assert_array_equal(
        gt.grad(lambda x: np.sum(filled(x)))(GAPS), np.where(np.isnan(GAPS), 0.0, 2.0)
    )


def test_wrong_arguments_are_errors() -> None:
    for error, call in [
        (ValueError, lambda x: bottleneck.move_sum(x, 9)),
        (ValueError, lambda x: bottleneck.move_mean(x, 3, 4)),
        (ValueError, lambda x: bottleneck.nanmean(x, axis=5)),
        (TypeError, lambda x: bottleneck.nanmean(x, axs=1)),
    ]:
        for way in (lambda: call(FULL), lambda: gt.jit(call)(FULL)):  # noqa: B023 - called here
            with pytest.raises(error):
                way()
