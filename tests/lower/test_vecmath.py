"""Functions of the C library are called in innermost loops, where they take several elements at a time."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.kinds.elementwise import Libm
from gradtape.loops.ir import Compute, For
from gradtape.lower.pipeline import build_loops
from gradtape.lower.schedule import costs
from gradtape.statements import walk

ROWS = np.random.default_rng(1).normal(size=(40, 100))
WEIGHTS = np.random.default_rng(2).normal(size=100)
LONG_ROWS = np.random.default_rng(4).normal(size=(40, 700))
SIGNS = np.sign(np.random.default_rng(3).normal(size=40))


def logistic(w, x, signs):
    return np.sum(np.logaddexp(0.0, -signs * (x @ w)))


def log_norms(x):
    return np.sum(np.log(np.sum(x * x, axis=1)))


def log_sums(x):
    m = np.max(x, axis=1)
    return np.sum(np.sin(m + np.log(np.sum(np.exp(x - m[:, None]), axis=1))))


def kernel(x, y):
    return np.exp(-np.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=2))


def gated(w, x):
    return np.sum(np.tanh(x @ w)[:, None] * x)


@pytest.fixture(autouse=True)
def any_machine(monkeypatch):
    """One with a vector form of each function."""
    monkeypatch.setattr(costs, "vector_attribute", lambda name, dtype: ("variants", ((8, name),)))


def built(function, *args):
    """The program of a function and what the scheduler says about it."""
    compiled = gt.jit(function) if not isinstance(function, type(gt.jit(function))) else function
    compiled(*args)
    made = compiled.site.specialisations()
    return build_loops(made[0].graph)


def called_around_loops(program):
    """The functions that are called in a loop with a loop inside."""
    return {
        inner.body.name
        for loop in walk(program.body)
        if isinstance(loop, For) and any(isinstance(inside, For) for inside in loop.body)
        for inner in loop.body
        if isinstance(inner, Compute) and isinstance(inner.body, Libm)
    }


@pytest.mark.parametrize(
    ("function", "args"),
    [(logistic, (WEIGHTS, ROWS, SIGNS)), (log_norms, (ROWS,)), (kernel, (ROWS[:30], ROWS))],
    ids=["logistic", "log_norms", "kernel"],
)
def test_sums_are_stored_before_functions_of_them(function, args):
    program, explain = built(function, *args)
    assert not called_around_loops(program)
    assert any("would be called for one element at a time" in line for line in explain)


def test_results_are_the_same():
    np.testing.assert_allclose(
        gt.jit(logistic)(WEIGHTS, ROWS, SIGNS), logistic(WEIGHTS, ROWS, SIGNS), rtol=1e-12
    )
    np.testing.assert_allclose(gt.jit(kernel)(ROWS[:30], ROWS), kernel(ROWS[:30], ROWS), rtol=1e-12)


def test_short_rows_are_read_once_more():
    program, explain = built(gated, WEIGHTS, ROWS)
    assert not called_around_loops(program)
    assert sum(isinstance(statement, For) for statement in program.body) == 3
    assert any("one element at a time" in line for line in explain)


def test_functions_of_repeated_vectors_are_computed_first():
    program, _ = built(lambda v, x: np.exp(v)[:, None] * x, SIGNS, ROWS)
    assert not called_around_loops(program)
    found = gt.jit(lambda v, x: np.exp(v)[:, None] * x)(SIGNS, ROWS)
    np.testing.assert_allclose(found, np.exp(SIGNS)[:, None] * ROWS, rtol=1e-15)


def test_of_a_gradient_the_part_that_does_not_come_back_is_apart():
    program, _ = built(gt.value_and_grad(log_norms), ROWS)
    assert not called_around_loops(program)
    assert sum(isinstance(statement, For) for statement in program.body) == 2


def test_short_rows_go_side_by_side():
    """They become vectors together with what is around them."""
    _, explain = built(logistic, WEIGHTS[:20], ROWS[:, :20], SIGNS)
    assert not any("one element at a time" in line for line in explain)


def test_a_machine_without_vector_functions_has_nothing_to_gain(monkeypatch):
    monkeypatch.setattr(costs, "vector_attribute", lambda name, dtype: ("", ()))
    program, _ = built(logistic, WEIGHTS, ROWS, SIGNS)
    assert called_around_loops(program) == {"exp", "log1p"}


def test_what_comes_back_to_a_long_row_stays_with_it():
    """The rows would be read once more for the gradient, which takes longer than the functions."""
    program, _ = built(gt.value_and_grad(log_sums), LONG_ROWS)
    assert sum(isinstance(statement, For) for statement in program.body) <= 2
    assert called_around_loops(program)
