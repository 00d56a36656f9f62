"""Functions inside functions, translated: the variables that they share, as Python shares them."""

import numba
import numpy as np
import pytest

import gradtape as gt
from tests.frontend.support import check

X = np.array([0.3, 1.2, -0.7, 0.9, 2.1])


def changed_after_the_definition(x):
    k = x[0]

    def g(v):
        return v * k

    t = g(x[1])
    k = x[2]
    return t + g(x[3])


def changed_in_a_loop(x):
    k = x[0]

    def g(v):
        return v * k

    t = 0.0
    for i in range(len(x)):
        t += g(x[i])
        k = x[i] + 1.0
    return t


def changed_in_a_branch(x):
    k = x[0]

    def g(v):
        return v * k

    t = 0.0
    for i in range(len(x)):
        if x[i] > 0.5:
            k = x[i]
        t += g(x[i])
    return t


def changed_in_a_while_loop(x):
    i = 0

    def current():
        return x[i] * (i + 1)

    t = 0.0
    while i < 4:
        t += current()
        i += 1
    return t + current()


def two_levels(x):
    k = x[0]

    def g(v):
        def h(w):
            return w * k

        return h(v) + h(1.0)

    t = 0.0
    for i in range(len(x)):
        t += g(x[i])
        k = k * x[1]
    return t


def a_parameter(x, s=2.0):
    def g(v):
        return v * s

    t = 0.0
    for v in x:
        t += g(v)
        s = s + v
    return t


def loop_variables(x):
    t = 0.0
    for i in range(len(x)):

        def term(y):
            return y * x[i] + i  # noqa: B023 - it is called in the same iteration

        t += term(x[i]) * term(2.0)
    return t


def assigned_inside(x):
    t, n = 0.0, 0

    def add(v):
        nonlocal t, n
        if v > 0:
            t += v * v
            n += 1

    for i in range(len(x)):
        add(x[i])
        if n > 2:
            add(x[0])
    return t * n


def assigned_by_two(x):
    t = 0.0

    def add(v):
        nonlocal t
        t = t + v

    def twice(v):
        nonlocal t
        t = t * 2.0
        add(v)
        t = t + 1.0

    for v in x:
        twice(v)
    return t


def assigned_two_levels_below(x):
    t = 0.0

    def outer(v):
        def inner(w):
            nonlocal t
            t += w * v

        for k in range(3):
            inner(v * k)

    for v in x:
        outer(v)
    return t


def assigned_in_a_recursion(x):
    t = 0.0

    def visit(k):
        nonlocal t
        if k < 4:
            t = t * 0.5 + x[k]
            visit(k + 1)
            t = t * x[k]

    visit(0)
    return t


def made_by_another_function(x):
    def make(a):
        def f(v):
            return a * v

        return f

    f, g = make(x[0]), make(x[1])
    t = 0.0
    for v in x:
        t += f(v) * g(v)
    return t


def recursion(x):
    def power(b, n):
        if n == 0:
            return 1.0
        return b * power(b, n - 1)

    t = 0.0
    for i in range(len(x)):
        t += power(x[i], 4)
    return t


def recursion_of_two(x):
    def even(n):
        return 1.0 if n == 0 else x[0] * odd(n - 1)

    def odd(n):
        return 2.0 if n == 0 else x[1] * even(n - 1)

    t = 0.0
    for i in range(4):
        t += even(4) + odd(3) * x[i]
    return t


def keyword_only(x):
    def scaled(y, *, factor=2.0, offset):
        return y * factor + offset

    t = 0.0
    for i in range(len(x)):
        t += scaled(x[i], offset=i) * scaled(x[i], factor=x[0], offset=1.0)
    return t


def stars_and_keywords(x):
    def g(a, *rest, power=2):
        t = a
        for one in rest:
            t += one**power
        return t

    return g(x[0]) + g(x[1], x[2], x[3]) + g(*(x[0], x[4]), power=3)


CLOSURES = [
    changed_after_the_definition,
    changed_in_a_loop,
    changed_in_a_branch,
    changed_in_a_while_loop,
    two_levels,
    a_parameter,
    loop_variables,
    assigned_inside,
    assigned_by_two,
    assigned_two_levels_below,
    assigned_in_a_recursion,
    made_by_another_function,
    recursion,
    recursion_of_two,
    keyword_only,
    stars_and_keywords,
]


@pytest.mark.parametrize("function", CLOSURES, ids=lambda f: f.__name__)
def test_closures(function):
    check(function, X)


@pytest.mark.parametrize("function", CLOSURES, ids=lambda f: f.__name__)
def test_their_gradients_are_differences(function):
    slopes = [(function(X + e) - function(X - e)) / 2e-6 for e in 1e-6 * np.eye(5)]
    assert np.allclose(gt.grad(numba.njit(function))(X), slopes, rtol=1e-5, atol=1e-7)


def stepped(x, *, steps=3, gain):
    t = 0.0
    for i in range(steps):
        t += gain * np.sin(x[i % 5])
    return t


@pytest.mark.parametrize("loops", ["compile", "trace"])
def test_arguments_by_keyword_only(loops):
    with gt.config.override(loops=loops):
        slope = gt.grad(stepped)
        assert np.allclose(slope(X, gain=2.0), [*2.0 * np.cos(X[:3]), 0.0, 0.0])
        assert np.allclose(slope(X, gain=1.0, steps=5), np.cos(X))
        assert ("from its code" in gt.inspect.explain(slope)) is (loops == "compile")
