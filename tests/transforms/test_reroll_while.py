"""Loops that Python leaves because of what it saw: any trip count in one program, and Python's answer in each case."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gradtape as gt

pytestmark = pytest.mark.usefixtures("loops_are_traced")


STARTS = (2.0, 50.0, 1e3, 7.0, 1e6, 1.0, 1e-3, 1e10, 3.3, 1.0001, 123.0, 1e8, 0.25)


def root(a):
    x = a
    while abs(x * x - a) > 1e-10 * a:
        x = 0.5 * (x + a / x)
    return x


def root_for(a):
    x = a
    for _ in range(60):
        d = (x * x - a) / (2 * x)
        x = x - d
        if abs(d) < 1e-12 * x:
            break
    return x


def root_forever(a):
    x = a
    while True:
        d = (x * x - a) / (2 * x)
        x = x - d
        if abs(d) < 1e-12 * x:
            return x


def root_with_a_limit(a):
    x, n = a, 0
    while abs(x * x - a) > 1e-10 * a and n < 8:
        x = 0.5 * (x + a / x)
        n += 1
    return x


def root_of_positive(a):
    if a < 0:
        return a * 0
    x = a
    while abs(x * x - a) > 1e-10 * a:
        x = 0.5 * (x + a / x)
    return x


def two_roots(a):
    return root(a) * root_forever(a + 1)


def counted(a):
    x, n = a, 0
    while abs(x * x - a) > 1e-10 * a:
        x = 0.5 * (x + a / x)
        n += 1
    return x * n


def summed_by_number(a):
    total, n = a * 0, 1
    while 1 / (a * n * n) > 1e-3:
        total = total + 1 / (a * n * n)
        n += 1
    return total


FUNCTIONS = [root, root_for, root_forever, root_with_a_limit, root_of_positive, two_roots]


def specialisations(function):
    return function.site.specialisations()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_python_and_one_program_agree(function) -> None:
    run = gt.jit(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for start in STARTS:
            np.testing.assert_allclose(run(start), function(np.float64(start)), rtol=1e-13)
    assert any(one.has_dynamic_trips for one in specialisations(run))
    assert len(specialisations(run)) <= 3


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients(function) -> None:
    run = gt.value_and_grad(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for start in STARTS:
            value, slope = run(start)
            with gt.config.override(reroll=False):
                expected, expected_slope = gt.value_and_grad(function)(start)
            np.testing.assert_allclose(value, expected, rtol=1e-12)
            np.testing.assert_allclose(slope, expected_slope, rtol=1e-8)
    assert any(one.has_dynamic_trips for one in specialisations(run))


def test_no_more_traces_once_a_loop_is_open() -> None:
    run = gt.jit(root)
    for start in (2.0, 50.0, 1e3):
        run(start)
    traces = run.site.traces
    for start in np.geomspace(1e-12, 1e12, 50).tolist():
        if start != 1.0:
            np.testing.assert_allclose(run(start), root(start), rtol=1e-13)
    assert run.site.traces == traces


@pytest.mark.filterwarnings("ignore::gradtape.errors.TraceLimitWarning")
@pytest.mark.parametrize("function", [counted, summed_by_number], ids=lambda f: f.__name__)
def test_what_depends_on_the_count_outside_of_the_graph_is_right(function) -> None:
    run = gt.jit(function)
    for start in (2.0, 50.0, 7.0, 0.5, 0.1, 0.01, 3.0, 9.0, 0.003, 1e-4, 2.0):
        np.testing.assert_allclose(run(start), function(np.float64(start)), rtol=1e-12)


def test_a_call_that_python_leads_elsewhere_does_not_loop_for_ever() -> None:
    run = gt.jit(root_of_positive)
    for start in (2.0, 50.0, 1e3, 1e5):
        run(start)
    assert any(one.has_dynamic_trips for one in specialisations(run))
    assert run(-3.0) == 0.0


def test_a_branch_inside_of_an_open_loop() -> None:
    def f(x):
        total = x * 0
        while x > 0.01:
            if x < 100:
                total = total + x
            else:
                total = total - x
            x = x * 0.7
        return total

    run = gt.jit(f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gt.errors.TraceLimitWarning)
        for start in (0.5, 1.0, 5.0, 50.0, 500.0, 90.0, 3.0, 0.001, 700.0, 2.0):
            np.testing.assert_allclose(run(start), f(np.float64(start)), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::gradtape.errors.TraceLimitWarning")
def test_a_branch_that_is_no_condition_of_a_loop() -> None:
    def f(x):
        total = 0.0
        for k in range(len(x)):
            if x[k] > 0:
                total = total + x[k] * k
            else:
                total = total - 3 * x[k]
        return total

    run = gt.jit(f)
    numbers = np.random.default_rng(0)
    for iteration in range(12):
        x = np.abs(numbers.normal(size=30))
        x[(30 * iteration) // 12 :: 7] *= -1
        np.testing.assert_allclose(run(x), f(x), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::gradtape.errors.TraceLimitWarning")
def test_a_condition_that_changes_once() -> None:
    def f(x):
        total = 0.0
        for k in range(len(x)):
            total = total + x[k] if total < 5 else total * 0.5
        return total

    run = gt.jit(f)
    numbers = np.random.default_rng(0)
    for _ in range(12):
        x = np.abs(numbers.normal(size=30)) * numbers.uniform(0.1, 1.0)
        np.testing.assert_allclose(run(x), f(x), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::gradtape.errors.TraceLimitWarning")
def test_elements_of_an_array_until_a_limit() -> None:
    def f(x, most):
        total, k = most * 0, 0
        while total < most:
            total = total + x[k]
            k = k + 1
        return total

    run = gt.jit(f)
    x = np.linspace(0.5, 1.5, 60)
    for most in (3.0, 8.0, 12.0, 5.0, 20.0, 1.0, 30.0, 40.0, 0.3):
        np.testing.assert_allclose(run(x, most), f(x, np.float64(most)), rtol=1e-12)
    assert any(one.has_dynamic_trips for one in specialisations(run))
    with pytest.raises(IndexError):
        run(x, 1e3)


def test_guards_of_all_iterations_are_one() -> None:
    def f(x):
        total = 0.0
        for k in range(40):
            if x[k] > 0:
                total = total + x[k]
        return total

    run = gt.jit(f)
    run(np.ones(40))
    (only,) = specialisations(run)
    assert len(only.guards) == 1
    x = np.ones(40)
    x[17] = -1.0
    assert run(x) == 39.0 and run.site.traces >= 2
