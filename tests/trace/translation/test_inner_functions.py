"""Functions with long loops that a function calls which cannot be translated itself."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

import gradtape as gt

SCALE = np.array([2.0])


def eliminate(a):
    n = a.shape[0]
    for i in range(n):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            a[i, j] -= a[i, :i] @ a[:i, j]
    a *= SCALE[0]


def flattened(results):
    for part in results:
        yield from flattened(part) if isinstance(part, list) else [part]


def total(a):
    """Neither the dict nor the generator can be translated."""
    given = {"a": a.copy()}
    eliminate(*given.values())
    return sum([np.sum(part) for part in flattened([[given["a"]]])])


def test_the_functions_that_cannot_be_translated_call_some_that_can(matrix):
    with gt.config.override(loops="compile"):
        function = gt.value_and_grad(total)
        value, gradient = function(matrix)
    assert "eliminate was compiled from its code" in gt.inspect.explain(function)
    expected, slopes = gt.value_and_grad(total)(matrix)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-10, atol=1e-12)


@numba.njit
def smoothed(u, f):
    for i in range(1, len(u)):
        u[i] += f[i] * u[i - 1] + 0.1


def test_a_function_of_numba_writes_to_an_array_that_the_caller_has_made():
    def function(f):
        u = np.zeros(len(f))
        u[0] = 1.0
        for _ in range(2):
            smoothed(u, f)
        return np.sum(u)

    value, gradient = gt.value_and_grad(function)(np.array([1.0, 2.0, 3.0]))
    assert value == pytest.approx(24.3)
    np.testing.assert_allclose(gradient, [0.0, 11.0, 6.3], rtol=1e-12)


@pytest.fixture
def matrix():
    return np.random.default_rng(0).normal(size=(60, 60)) + 60 * np.eye(60)


def test_the_inner_function_is_translated(matrix):
    code = eliminate.__code__
    compiled = gt.jit(gt.value_and_grad(total))
    value, gradient = compiled(matrix)
    assert eliminate.__code__ is code
    assert value == pytest.approx(total(matrix))
    step = np.zeros_like(matrix)
    step[5, 3] = 1e-5
    difference = (total(matrix + step) - total(matrix - step)) / 2e-5
    assert gradient[5, 3] == pytest.approx(difference, rel=1e-5)
    said = str(gt.inspect.explain(compiled))
    assert "total was run and recorded, since its code could not be compiled: a dict" in said
    assert "eliminate was compiled from its code: the loop at" in said


def test_what_it_reads_from_outside_is_followed(matrix, monkeypatch):
    compiled = gt.jit(total)
    before = compiled(matrix)
    monkeypatch.setitem(globals(), "SCALE", np.array([3.0]))
    assert compiled(matrix) == pytest.approx(1.5 * before)
    SCALE[0] = 6.0
    assert compiled(matrix) == pytest.approx(3.0 * before)


def root(x):
    return math.sqrt(x) * SCALE[0]


def test_numbers_that_only_the_inner_function_needs():
    def outer(x):
        given = {"x": x}
        return sum(root(part) for part in given.values())

    assert gt.jit(gt.grad(outer))(4.0) == pytest.approx(0.25 * SCALE[0])


def test_one_translation_serves_many_calls(monkeypatch):
    def step(x):
        for _ in range(3000):
            x = x + 1e-3 * np.sin(x)
        return x

    def outer(x):
        given = {"x": x}
        for _ in range(5):
            given["x"] = step(given["x"])
        return given["x"]

    compiled = gt.jit(outer)
    assert compiled(0.5) == pytest.approx(outer(0.5))
    graph = str(gt.inspect.graph(compiled, 0.5))
    assert graph.count("procedure(") == 5
    assert len({line.split("procedure=")[1] for line in graph.splitlines() if "procedure=" in line}) == 1


def test_what_fails_only_after_the_inner_function_has_returned():
    def energies(x):
        found = np.ndarray(4)
        for i in range(4):
            found[i] = np.sum(x) * 1.5**i
        return found

    def outer(x):
        given = {"x": x}
        return np.sum(energies(given["x"]))

    x = np.arange(3.0)
    assert gt.jit(outer)(x) == pytest.approx(outer(x))
    np.testing.assert_allclose(gt.grad(outer)(x), np.full(3, sum(1.5**i for i in range(4))))


def smooth(u, sweeps):
    for _ in range(sweeps):
        u[1:-1] = 0.5 * (u[2:] + u[:-2])


def settle(u):
    change = 1.0
    while change > 1e-3:
        before = u.copy()
        smooth(u, 40)
        change = np.sum(np.abs(u - before))
    return u


def test_functions_that_call_each_other_are_translated_together():
    """The loop that goes on for long is in `smooth`: the translation of the objective reads the code of both."""

    def objective(u):
        return np.sum(settle(u) ** 2)

    start = np.linspace(0.0, 1.0, 30) ** 3
    compiled = gt.jit(objective)
    assert compiled(start) == pytest.approx(objective(start.copy()))
    assert "objective was compiled from its code" in str(gt.inspect.explain(compiled))


def advanced(state, x):
    """A loop of two iterations."""
    after = {}
    for k in range(2):
        x = np.tanh(state[k] * x + 0.1)
        after[k] = x
    return after, x


def test_a_short_loop_that_a_long_one_calls_is_not_to_blame():
    """The dict that changes keeps the long loop from being translated; its iterations are recorded as they are."""

    def objective(x):
        state = {0: x, 1: 0.5 * x}
        for _ in range(1200):
            state, x = advanced(state, x)
        return np.sum(x)

    compiled = gt.value_and_grad(objective)
    point = np.linspace(0.5, 1.5, 9)
    value, gradient = compiled(point)
    said = str(gt.inspect.explain(compiled))
    assert "objective was run and recorded, since its code could not be compiled" in said
    assert "advanced was compiled from its code" not in said
    assert value == pytest.approx(objective(point), rel=1e-12)
    step = 1e-6 * np.eye(9)[4]
    difference = (objective(point + step) - objective(point - step)) / 2e-6
    assert gradient[4] == pytest.approx(difference, rel=1e-5, abs=1e-9)
