"""Derivatives over data in partitions, by Dask's schedulers in this process and by a cluster of two processes."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas
import pytest
import scipy.optimize
from distributed import Client, LocalCluster, wait
from numpy.testing import assert_allclose, assert_array_equal

import gradtape as gt
from gradtape.api.clusters import reduction
from gradtape.api.clusters.placement import Placement
from gradtape.api.clusters.reduction import Distributed
from gradtape.api.clusters.shared import _arrived
from gradtape.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(7)
X = RNG.normal(size=(100, 3))
Y = (X @ [1.0, -2.0, 0.5] + RNG.normal(size=100) > 0).astype(float)
W = {"w": np.array([0.3, -0.2, 0.1]), "b": 0.4}


def loss(params: Any, data: Any, scale: float = 1.0) -> Any:
    x, y = data
    z = x @ params["w"] + params["b"]
    return scale * np.sum(np.logaddexp(0.0, z) - y * z)


def mean_loss(params: Any, data: Any) -> Any:
    x, y = data
    z = x @ params["w"] + params["b"]
    return np.mean(np.logaddexp(0.0, z) - y * z)


def residuals(w: Any, x: Any) -> Any:
    return np.tanh(x @ w)


def parts(rows: int = 30) -> Any:
    return da.from_array(X, chunks=(rows, 2)), da.from_array(Y, chunks=rows)


def assert_same(got: Any, expected: Any) -> None:
    assert sorted(got) == ["b", "w"]
    for name in got:
        assert_allclose(got[name], expected[name], rtol=1e-12, atol=1e-12)


def test_sum_over_partitions_is_the_function_of_all_rows() -> None:
    value, gradient = gt.dask.value_and_grad(loss)(W, parts())
    expected, slopes = gt.value_and_grad(loss, argnums=0)(W, (X, Y))
    assert_allclose(value, expected, rtol=1e-13)
    assert_same(gradient, slopes)
    assert_same(gt.dask.grad(loss)(W, parts(), 2.0), {name: 2 * slope for name, slope in slopes.items()})


def test_mean_weights_partitions_by_rows() -> None:
    value, gradient = gt.dask.value_and_grad(mean_loss, reduce="mean")(
        W, parts()
    )  # of 30, 30, 30 and 10 rows
    expected, slopes = gt.value_and_grad(mean_loss, argnums=0)(W, (X, Y))
    assert_allclose(value, expected, rtol=1e-13)
    assert_same(gradient, slopes)


def test_reduction_by_a_function_is_differentiated() -> None:
    def softmax(values: Any) -> Any:
        return np.log(np.sum(np.exp(values / 10)))

    value, gradient = gt.dask.value_and_grad(loss, reduce=softmax)(W, parts())

    def whole(params: Any) -> Any:
        return softmax(np.stack([loss(params, (X[i : i + 30], Y[i : i + 30])) for i in range(0, 100, 30)]))

    expected, slopes = gt.value_and_grad(whole)(W)
    assert_allclose(value, expected, rtol=1e-13)
    assert_same(gradient, slopes)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_products_of_hessians(reduce: Any) -> None:
    one = loss if reduce == "sum" else mean_loss
    vector = {"w": np.array([1.0, 2.0, -1.0]), "b": 0.5}
    got = gt.dask.hvp(one, reduce=reduce)(W, parts(), vector)
    expected = gt.jvp(lambda p: gt.grad(one, argnums=0)(p, (X, Y)), (W,), (vector,))[1]
    assert_same(got, expected)


def test_gauss_newton_products() -> None:
    w, vector = W["w"], np.array([1.0, 2.0, -1.0])
    got = gt.dask.gauss_newton_product(residuals)(w, parts()[0], vector)
    jacobian = gt.jacobian(residuals)(w, X)
    assert_allclose(got, jacobian.T @ (jacobian @ vector), rtol=1e-12)


def test_sparse_jacobian_has_the_rows_of_all_partitions_in_order() -> None:
    def chain(x: Any, data: Any) -> Any:
        return data[:, 0] * np.sum(x[:2] ** 2) + x[2]

    got = gt.dask.sparse_jacobian(chain)(np.array([1.0, 2.0, 3.0, 4.0]), parts()[0])
    expected = np.stack([2 * X[:, 0], 4 * X[:, 0], np.ones(100), np.zeros(100)], 1)
    assert got.shape == (100, 4) and got.nnz == 300
    assert_allclose(got.toarray(), expected)


@pytest.mark.parametrize("method", ["L-BFGS-B", "BFGS", "Newton-CG", "trust-ncg", "trust-constr"])
def test_minimize(method: str) -> None:
    def regularised(params: Any, data: Any) -> Any:
        return mean_loss(params, data) + 0.1 * np.sum(params["w"] ** 2)

    seen: list[Any] = []
    found = gt.dask.minimize(
        regularised, W, parts(), method=method, reduce="mean", tol=1e-10, callback=seen.append
    )
    expected = gt.scipy.minimize(lambda p: regularised(p, (X, Y)), W, tol=1e-10)
    assert_allclose(found.fun, expected.fun, rtol=1e-10)
    assert_allclose(found.x["w"], expected.x["w"], atol=1e-5)
    assert found.jac.keys() == W.keys() and seen[0].keys() == W.keys()


def test_bounds() -> None:
    found = gt.dask.minimize(lambda x, b: np.sum((b - x) ** 2), 0.0, parts()[1], bounds=[(2.0, 3.0)])
    assert found.x == 2.0
    assert isinstance(found, scipy.optimize.OptimizeResult)


def test_data_frames_arrive_as_columns() -> None:
    frame = dd.from_pandas(pandas.DataFrame({"x": X[:, 0], "y": Y, "name": ["a"] * 100}), npartitions=3)

    def misfit(slope: Any, data: Any) -> Any:
        return np.sum((slope * data["x"] - data["y"]) ** 2)

    expected = gt.value_and_grad(misfit, argnums=0)(0.7, {"x": X[:, 0], "y": Y})
    both = gt.dask.value_and_grad(misfit)
    assert_allclose(both(0.7, frame[["x", "y"]]), expected, rtol=1e-12)
    assert_allclose(both(0.7, {"x": frame["x"], "y": frame["y"]}), expected, rtol=1e-12)
    assert_allclose(both(0.7, frame[["x", "y"]].to_delayed()), expected, rtol=1e-12)
    records = np.zeros(100, [("x", float), ("y", float)])
    records["x"], records["y"] = X[:, 0], Y
    assert_allclose(both(0.7, da.from_array(records, chunks=30)), expected, rtol=1e-12)


COLUMNS = pandas.DataFrame(
    {
        "name": ["a", "b"],
        "kind": pandas.Categorical(["a", "b"]),
        "day": pandas.date_range("2020", periods=2),
        "lasts": pandas.to_timedelta([1, 2], "s"),
        "maybe": pandas.array([True, None], dtype="boolean"),
    }
)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("name", "select the numeric columns"),
        ("kind", "cat.codes"),
        ("day", "seconds since a date"),
        ("lasts", "total_seconds"),
        ("maybe", "fill them"),
    ],
)
def test_columns_without_numbers(name: str, remedy: str) -> None:
    frame = dd.from_pandas(COLUMNS, npartitions=1)
    for data in (frame[[name]], frame[name]):
        with pytest.raises(ArgumentError, match=f"column '{name}' of a data frame has the dtype") as caught:
            gt.dask.value_and_grad(lambda w, d: w)(0.7, data)
        assert remedy in str(caught.value)


def test_partitions_without_rows() -> None:
    whole = gt.value_and_grad(mean_loss, argnums=0)(W, (X, Y))
    uneven = ((0, 30, 0, 69, 1, 0), 3)
    data = da.from_array(X, chunks=uneven), da.from_array(Y, chunks=uneven[:1])
    value, gradient = gt.dask.value_and_grad(mean_loss, reduce="mean")(W, data)
    assert_allclose(value, whole[0], rtol=1e-13)
    assert_same(gradient, whole[1])
    value, gradient = gt.dask.value_and_grad(loss)(W, data)
    assert_allclose(value, loss(W, (X, Y)), rtol=1e-13)
    kept = da.from_array(np.arange(100) < 40, chunks=30)  # chunks of unknown lengths, the last two empty
    value, gradient = gt.dask.value_and_grad(mean_loss, reduce="mean")(W, tuple([x[kept] for x in parts()]))
    assert_allclose(value, mean_loss(W, (X[:40], Y[:40])), rtol=1e-13)
    with pytest.raises(ShapeError, match="no rows"):
        gt.dask.value_and_grad(mean_loss, reduce="mean")(W, (da.zeros((0, 3)), da.zeros(0)))


def test_errors_name_the_partition() -> None:
    def short(w: Any, x: Any) -> Any:
        if len(x) < 30:
            raise KeyError("short")
        return np.sum(x @ w)

    for scheduler in ("sync", "threads"):
        with dask.config.set(scheduler=scheduler), pytest.raises(KeyError) as caught:
            gt.dask.value_and_grad(short)(W["w"], parts()[0])
        assert caught.value.__notes__ == ["  partition: number 3 of 0 to 3, of float64[10, 3]"]


def test_arguments_by_keyword() -> None:
    assert_allclose(gt.dask.value_and_grad(loss)(W, parts(), scale=2.0)[0], 2 * loss(W, (X, Y)), rtol=1e-13)
    vector = {"w": np.ones(3), "b": 0.0}
    for transform in (gt.dask.hvp, gt.dask.gauss_newton_product):
        once, twice = transform(loss)(W, parts(), vector), transform(loss)(W, parts(), vector, scale=2.0)
        factor = 2 if transform is gt.dask.hvp else 4
        assert_same(twice, {name: factor * part for name, part in once.items()})


def test_lists_of_delayed_partitions() -> None:
    @dask.delayed
    def load(first: int) -> Any:
        return X[first : first + 50], Y[first : first + 50]

    assert_array_equal(gt.dask.value_and_grad(loss)(W, load(0))[0], loss(W, (X[:50], Y[:50])))
    with pytest.raises(ArgumentError, match="delayed object is mixed with other data"):
        gt.dask.value_and_grad(loss)(W, (load(0), load(50)))
    value, _ = gt.dask.value_and_grad(loss)(W, [load(0), load(50)])
    assert_allclose(value, loss(W, (X, Y)), rtol=1e-13)
    later = gt.dask.value_and_grad(loss).delayed(W, [load(0), load(50)])
    assert_array_equal(dask.compute(later)[0][0], value)


def test_blocks_of_one_shape_are_traced_once() -> None:
    before = set(_arrived._entries)
    both = gt.dask.value_and_grad(loss)
    for scheduler in ("sync", "threads"):
        with dask.config.set(scheduler=scheduler):
            both(W, parts(25))
    (name,) = set(_arrived._entries) - before
    made: Any = _arrived.get(name)
    assert made.site.traces == 1


def test_single_precision_stays() -> None:
    x = da.from_array(X.astype(np.float32), chunks=(30, 3))
    for reduce in ("sum", "mean"):
        both = gt.dask.value_and_grad(lambda w, x: np.sum(np.tanh(x @ w)), reduce=reduce)
        value, gradient = both(np.float32([1, 2, 3]), x)
        assert value.dtype == gradient.dtype == np.float32


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (X, ArgumentError, "data has an ndarray, which is not partitioned"),
        ((), ArgumentError, "data is empty"),
        (lambda: da.from_array(np.array(1.0)), ShapeError, "an array without axes"),
        (lambda: (parts()[0], parts()[1][:50]), ShapeError, "arrays of 100 and 50 rows"),
        (
            lambda: (parts()[0], dd.from_pandas(pandas.Series(Y), npartitions=2)),
            ShapeError,
            "have 4, 2 partitions",
        ),
    ],
)
def test_what_is_wrong_with_data_is_said(data: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        gt.dask.value_and_grad(loss)(W, data() if callable(data) else data)


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match="reduce is 'max'"):
        gt.dask.value_and_grad(loss, reduce="max")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="products with Hessians are sums"):
        gt.dask.hvp(loss, reduce=np.max)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="method is 'Nelder-Mead'"):
        gt.dask.minimize(loss, W, parts(), method="Nelder-Mead")
    with pytest.raises(ArgumentError, match="value_and_grad got a str"):
        gt.dask.value_and_grad("loss")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"arrays of \[3, 100\] rows|no arrays"):
        gt.dask.value_and_grad(lambda w, d: np.sum(d[0]) * w, reduce="mean")(
            1.0, [dask.delayed((np.ones(3), np.ones(100)))]
        )


def test_without_dask_the_remedy_is_named() -> None:
    code = "import sys; sys.modules['dask'] = None; import gradtape as gt; gt.dask"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (
        "ImportError: gt.dask works with Dask, which is not installed: pip install 'gradtape[dask]'"
        in done.stderr
    )


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as made,
    ):
        yield made


@pytest.mark.filterwarnings("default")  # distributed's own, when a worker dies
def test_cluster_gives_the_same_bits_whatever_dies(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Local functions travel as code: workers need not import this module.
    def misfit(w: Any, x: Any) -> Any:
        return np.sum(np.tanh(x @ w) ** 2)

    def die_once(flag: str, block: Any) -> Any:
        """Kill the worker that comes here first."""
        if not Path(flag).exists():
            Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    def traces() -> list[int]:
        from gradtape.api.clusters.shared import _arrived

        return [entry[0].site.traces for entry in _arrived._entries.values()]

    w, flag = W["w"], str(tmp_path / "flag")
    x = da.from_array(X, chunks=(7, 3))
    both = gt.dask.value_and_grad(misfit)
    with dask.config.set(scheduler="sync"):
        expected, slope = both(w, x)
    for _ in range(2):
        value, gradient = both(w, x)
        assert value == expected
        assert_array_equal(gradient, slope)
    for found in client.run(traces).values():
        assert len(found) == 1 and found[0] <= 2  # blocks of 7 rows, and that of the last two
    held, labels = x.persist(), da.from_array(Y, chunks=7).persist()
    wait([held, labels])
    with monkeypatch.context() as patch:
        patch.setattr(Distributed, "_delayed", None)  # the workers hold all blocks
        for reduce in ("sum", np.sum):
            value, gradient = gt.dask.value_and_grad(misfit, reduce=reduce)(w, held)
            assert value == expected if reduce == "sum" else value == pytest.approx(expected, rel=1e-14)
            assert_array_equal(gradient, slope)
        pair = {"x": held, "y": labels}
        value, _ = gt.dask.value_and_grad(lambda w, d: np.sum((d["x"] @ w - d["y"]) ** 2))(w, pair)
        assert_allclose(value, np.sum((X @ w - Y) ** 2))
    blocks = [dask.delayed(die_once)(flag, X[i : i + 7]) for i in range(0, 100, 7)]
    value, gradient = both(w, blocks)
    assert Path(flag).exists()
    assert value == expected
    assert_array_equal(gradient, slope)

    def die_in_a_step(w: Any, x: Any, one: float) -> Any:
        if Path(flag).exists():
            Path(flag).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return one * misfit(w, x)

    wait(held := x.persist())
    both = gt.dask.value_and_grad(die_in_a_step)
    for one in (
        1.0,
        1,
    ):  # a step by tasks, and one without, after which tasks do the work again; each is traced
        value, gradient = both(w, held, one)
        assert not Path(flag).exists()
        assert value == expected
        assert_array_equal(gradient, slope)
        wait(held)
        assert both._last is not None
        both._last = both._last._replace(seconds=0.0)  # as if it had not compiled
        Path(flag).touch()


def test_short_steps_are_made_without_tasks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def misfit(w: Any, x: Any) -> Any:
        if len(w) > 3:
            raise ValueError("too many weights")
        return np.sum(np.tanh(x @ w) ** 2)

    w, both = W["w"], gt.dask.value_and_grad(misfit)
    held = da.from_array(X, chunks=(7, 3)).persist()
    wait(held)
    expected, slope = both(w, held)
    with monkeypatch.context() as patch:
        patch.setattr(reduction, "SHORT_STEP", np.inf)  # whatever the machine does besides
        patch.setattr(Placement, "submit", None)
        value, gradient = both(w, held)
        assert value == expected
        assert_array_equal(gradient, slope)
    with monkeypatch.context() as patch:
        patch.setattr(reduction, "SHORT_STEP", 0.0)
        patch.setattr(Placement, "run", None)
        assert both(w, held)[0] == expected
    with pytest.raises(ValueError, match="too many weights"):
        both(np.ones(4), held)
    other = da.from_array(2 * X, chunks=(7, 3)).persist()
    wait(other)
    assert both(w, other)[0] == pytest.approx(np.sum(np.tanh(2 * X @ w) ** 2))
    assert both(w, held)[0] == expected
    assert pickle.loads(cloudpickle.dumps(both))(w, held)[0] == expected


def test_threads_make_steps_over_different_blocks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets the results of its own, also if both submit their tasks before they gather."""
    w, both = W["w"], gt.dask.value_and_grad(lambda w, x: np.sum(np.tanh(x @ w)))
    few, many = (da.from_array(X, chunks=(rows, 3)).persist() for rows in (50, 10))
    wait([few, many])
    expected = [both(w, few), both(w, many)]
    together, gather = threading.Barrier(2, timeout=60), Client.gather

    def gather_together(self: Client, futures: Any) -> Any:
        together.wait()
        return gather(self, futures)

    monkeypatch.setattr(reduction, "SHORT_STEP", -1.0)
    monkeypatch.setattr(Client, "gather", gather_together)
    with ThreadPoolExecutor(2) as executor:
        found = list(executor.map(lambda data: both(w, data), (few, many)))
    for (value, gradient), (own_value, own_gradient) in zip(found, expected, strict=True):
        assert value == own_value
        assert_array_equal(gradient, own_gradient)


def test_workers_that_do_not_know_their_shares_get_tasks(client: Client) -> None:
    w, both = W["w"], gt.dask.grad(lambda w, x: np.sum(np.tanh(x @ w)))
    client.wait_for_workers(2)  # a test before has killed one
    workers = list(client.ncores())
    held = [client.scatter(X[50 * i : 50 * (i + 1)], workers=[workers[i]]) for i in range(2)]
    expected = both(w, held)
    first = both._last
    assert first is not None and [share.worker for share in first.placement.shares] == workers
    both._last = first._replace(placement=first.placement._replace(name="unknown"), seconds=0.0)
    assert_array_equal(both(w, held), expected)
    assert both._last.placement.name not in (first.placement.name, "unknown")  # tasks made the step
    both(w, held)
    with dask.config.set(scheduler="threads"):
        assert_array_equal(both(w, [dask.delayed(X[:50]), dask.delayed(X[50:])]), expected)


def test_threads_share_work() -> None:
    """Threads that call one function, and Jacobians of it, get what one thread gets."""
    slope, jacobian = gt.grad(lambda w, x: np.sum(np.tanh(x @ w) ** 2)), gt.jacobian(residuals)
    batched = gt.vmap(lambda x: np.tanh(x @ W["w"]))
    blocks = [X[i : i + 20] for i in range(0, 100, 20)] * 8
    with ThreadPoolExecutor(4) as executor:
        slopes = list(executor.map(lambda x: slope(W["w"], x), blocks))
        jacobians = list(executor.map(lambda x: jacobian(W["w"], x), blocks))
        batches = list(executor.map(batched, blocks))
    for x, got, matrix, batch in zip(blocks, slopes, jacobians, batches, strict=True):
        assert_array_equal(got, slope(W["w"], x))
        assert_array_equal(matrix, jacobian(W["w"], x))
        assert_array_equal(batch, batched(x))
