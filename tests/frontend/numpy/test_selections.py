"""Functions that select elements, in compiled code."""

import numba
import numpy as np
import pytest

import gradtape as gt

X = np.array([0.3, 1.2, -0.7, 2.1, 0.9, 1.2])
A = np.outer(X, [1.0, -1.0, 2.0])

FUNCTIONS = {
    "flatnonzero": lambda x: np.sum(x[np.flatnonzero(x > 0.5)] ** 2),
    "where": lambda x: np.sum(x[np.where(x > 0.5)] ** 2),
    "argwhere": lambda x: np.sum(x[np.argwhere(x > 0.5)[:, 0]] ** 3),
    "extract": lambda x: np.sum(np.extract(x > 0.5, x) ** 2),
    "compress": lambda x: np.sum(np.compress(x > 0.5, x) ** 2),
    "unique": lambda x: np.sum(np.unique(x) ** 2),
    "unique of rounded": lambda x: np.sum(np.unique(np.floor(x)) * x[0]),
    "number of unique": lambda x: len(np.unique(np.floor(x))) * x[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("factor", [1.0, -1.0, 0.1])
def test_selections(name, factor):
    function, x = FUNCTIONS[name], factor * X
    with gt.config.override(loops="compile"):
        value, gradient = gt.value_and_grad(numba.njit(function))(x)
    assert value == pytest.approx(function(x), rel=1e-12)
    if name == "unique":  # a value that is there twice has one element in the result
        assert gradient.sum() == pytest.approx(2 * np.unique(x).sum())
        return
    differences = [(function(x + 1e-6 * e) - function(x - 1e-6 * e)) / 2e-6 for e in np.eye(x.size)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8)


def test_compress_along_an_axis():
    def rows(a):
        return np.sum(np.compress(a[:, 0] > 0.5, a, axis=0) ** 2)

    assert float(gt.jit(numba.njit(rows))(A)) == pytest.approx(rows(A))


def test_unique_keeps_one_nan():
    def count(x):
        return len(np.unique(x))

    x = np.array([1.0, np.nan, 2.0, np.nan, 1.0])
    assert int(gt.jit(numba.njit(count))(x)) == count(x) == 3
    assert int(gt.jit(numba.njit(count))(x[:1])) == 1


def test_functions_with_other_results_of_unknown_length_are_run_and_recorded():
    trimmed = gt.jit(numba.njit(lambda x: np.sum(np.trim_zeros(x))))
    assert float(trimmed(X)) == pytest.approx(np.sum(X))
    assert "length of a NumPy function" in str(gt.inspect.explain(trimmed))
    unique = gt.jit(numba.njit(lambda x: np.sum(np.unique(x, return_index=True)[0])))
    assert float(unique(X)) == pytest.approx(np.sum(np.unique(X)))
    assert "with options" in str(gt.inspect.explain(unique))


def test_indices_found_in_an_earlier_iteration_stay():
    def weighted(x):
        before = np.flatnonzero(x > 100.0)
        total = 0.0
        for k in range(5):
            found = np.flatnonzero(x > k)
            total += (k + 1) * np.sum(x[before])
            before = found
        return total

    x = np.arange(30.0) % 7.0
    value, gradient = gt.value_and_grad(numba.njit(weighted))(x)
    assert value == weighted(x)
    np.testing.assert_allclose(gradient, [sum(k + 2 for k in range(4) if e > k) for e in x])


@pytest.mark.parametrize("size", [1, 3, 6])
def test_masks_of_unknown_size_are_compared_when_code_runs(size):
    @numba.njit
    def twice(x, n):
        kept = x[x > -9.0]
        return np.sum(kept[x[: int(n)] > -9.0]) + np.sum(x[:2] * 0.0)

    if size == X.size:
        assert gt.jit(twice)(X, float(size)) == pytest.approx(X.sum())
    else:
        with pytest.raises(IndexError, match="boolean index did not match"):
            gt.jit(twice)(X, float(size))


def test_searches_of_masks_leave_nothing_for_the_reverse_sweep():
    @numba.njit
    def energy(x):
        total = 0.0
        for k in range(4):
            chosen = x[x > 0.317 * k]
            for i in range(chosen.shape[0]):
                total += np.sin(chosen[i] * total) + chosen[i]
        return total

    x = np.concatenate([X, 1.0 - X, X + 0.03])
    gradient = gt.grad(energy)
    searches = [loop for loop in gt.inspect.numba_source(gradient, x).split("for ") if "count +=" in loop]
    assert len(searches) == 1
    assert "append" not in searches[0]
    differences = [(energy(x + 1e-6 * e) - energy(x - 1e-6 * e)) / 2e-6 for e in np.eye(x.size)]
    np.testing.assert_allclose(gradient(x), differences, rtol=1e-5, atol=1e-6)
