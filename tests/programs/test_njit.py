"""Functions of Numba's: under every transform, in compiled functions, on tapes and in loops."""

from collections import namedtuple

import numba
import numpy as np
import pytest

import gradtape as gt

Pair = namedtuple("Pair", "total last")


@numba.njit
def horner(x, coefficients):
    y = 0.0
    for c in coefficients:
        y = y * x + c
    return y


@numba.njit
def smooth(x, rounds=2):
    """Smooth an array in place, cell by cell, and return the sum of its squares."""
    for _ in range(rounds):
        for i in range(1, len(x) - 1):
            x[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1]
    total = 0.0
    for i in range(len(x)):
        total += x[i] * x[i]
    return total


@numba.njit
def powers(x, n):
    out = np.zeros(n)
    p = 1.0
    for i in range(n):
        p *= x
        out[i] = p
    return out


@numba.njit
def pair(x):
    return Pair(x[0] + x[1], x[-1] * 2.0)


C = np.array([0.5, -1.0, 2.0, 3.0])
P = np.polyder(np.poly1d(C))


def test_values_and_derivatives():
    assert np.isclose(gt.jit(horner)(1.5, C), np.polyval(C, 1.5))
    assert np.isclose(gt.grad(horner)(1.5, C), P(1.5))
    value, gradient = gt.value_and_grad(horner, argnums=(0, 1))(1.5, C)
    assert np.isclose(value, np.polyval(C, 1.5))
    np.testing.assert_allclose(gradient[1], 1.5 ** np.arange(3, -1, -1))
    assert np.isclose(gt.value_and_grad(horner, argnames="coefficients")(1.5, C)[0], value)
    _, tangent = gt.jvp(horner, (1.5, C), (1.0, np.ones(4)))
    assert np.isclose(tangent, P(1.5) + gradient[1].sum())
    _, pullback = gt.vjp(horner, 1.5, C)
    np.testing.assert_allclose(pullback(2.0)[1], 2.0 * gradient[1])
    _, push = gt.linearize(horner, 1.5, C)
    assert np.isclose(push(1.0, np.zeros(4)), P(1.5))
    assert np.isclose(gt.grad(gt.grad(horner))(1.5, C), P.deriv()(1.5))
    assert np.isclose(gt.hessian(horner)(1.5, C), P.deriv()(1.5))
    np.testing.assert_allclose(gt.hvp(lambda x: horner(x, C), (1.5,), (2.0,)), 2.0 * P.deriv()(1.5))
    xs = np.array([0.1, -0.4, 2.0])
    np.testing.assert_allclose(gt.vmap(horner, in_axes=(0, None))(xs, C), np.polyval(C, xs))
    np.testing.assert_allclose(gt.vmap(gt.grad(horner), in_axes=(0, None))(xs, C), P(xs))
    np.testing.assert_allclose(gt.jacobian(powers)(0.5, 3), [1.0, 1.0, 0.75])


def test_in_compiled_functions_and_loops():
    function = gt.jit(lambda x: horner(np.sin(x), C) * 2.0)
    assert np.isclose(function(0.3), 2.0 * np.polyval(C, np.sin(0.3)))
    assert np.isclose(gt.grad(function)(0.3), 2.0 * P(np.sin(0.3)) * np.cos(0.3))
    looped = gt.jit(lambda x: gt.fori_loop(0, 3, lambda k, y: horner(y, C) * 0.1, x))
    y = 0.3
    for _ in range(3):
        y = np.polyval(C, y) * 0.1
    assert np.isclose(looped(0.3), y)


def test_on_tapes():
    with gt.GradientTape() as tape:
        x = tape.watch(1.5)
        y = horner(x, C) * 3.0
    assert np.isclose(tape.gradient(y, x), 3.0 * P(1.5))
    variable = gt.Variable(1.5)
    with gt.GradientTape() as tape:
        y = horner(variable, C)
    assert np.isclose(tape.gradient(y, variable), P(1.5))


def smoothed(x, rounds=2):
    x = np.array(x)
    return smooth.py_func(x, rounds), x


def test_arrays_that_the_function_changes():
    def loss(x):
        y = x * 1.0
        total = smooth(y)
        return total + np.sum(y)

    x = np.array([0.0, 1.0, -1.0, 2.0, 0.5])
    total, after = smoothed(x)
    assert np.isclose(gt.jit(loss)(x), total + after.sum())
    steps = 1e-6 * np.eye(5)
    expected = [(loss(x + d) - loss(x - d)) / 2e-6 for d in steps]
    np.testing.assert_allclose(gt.grad(loss)(x), expected, rtol=1e-6)
    np.testing.assert_array_equal(x, [0.0, 1.0, -1.0, 2.0, 0.5])


def test_integers_that_are_shapes_are_parts_of_the_program():
    function = gt.jit(powers)
    np.testing.assert_allclose(function(2.0, 3), [2.0, 4.0, 8.0])
    np.testing.assert_allclose(function(2.0, 4), [2.0, 4.0, 8.0, 16.0])
    assert function.site.traces == 2


def test_integers_that_steer_loops_are_arguments():
    function = gt.jit(smooth)
    x = np.array([0.0, 1.0, -1.0, 2.0, 0.5])
    for rounds in (1, 2, 5):
        assert np.isclose(function(x.copy(), rounds), smoothed(x, rounds)[0])


def test_results():
    found = gt.jit(lambda x: pair(x))(np.array([1.0, 2.0, 3.0]))
    assert type(found) is Pair and found == (3.0, 6.0)
    nothing = numba.njit(lambda x: None)
    assert gt.jit(lambda x: (nothing(x), x))(2.0) == (None, 2.0)


def test_errors_name_the_line():
    @numba.njit
    def beyond(x, i):
        return x[i] * 2.0

    function = gt.jit(beyond)
    assert function(np.ones(3), 1) == 2.0
    with pytest.raises(IndexError, match=r"test_njit\.py"):
        function(np.ones(3), 5)


def test_untraced_calls_are_numbas():
    @gt.jit
    def function(x):
        return x * horner(2.0, np.zeros(3) + 1.0)

    assert function(2.0) == 14.0
    assert "horner" not in str(gt.inspect.explain(function))


def test_explain_says_that_it_was_compiled():
    function = gt.grad(horner)
    function(1.5, C)
    assert "horner was compiled from its code: it is a function of Numba's" in gt.inspect.explain(function)
    assert "def horner(" in gt.inspect.graph(function)


def test_signatures_defaults_and_further_arguments():
    @numba.njit("f8(f8)")
    def signed(x):
        return x * x

    @numba.njit
    def product(*factors):
        return factors[0] * factors[1]

    @numba.njit
    def scaled(x, scale=3.0):
        return x * scale

    assert gt.grad(signed)(2.0) == 4.0 and gt.grad(lambda x: signed(x) * 2.0)(2.0) == 8.0
    assert signed(3.0) == 9.0 and not signed._can_compile
    assert gt.grad(lambda x: product(x, 3.0))(2.0) == 3.0
    assert gt.grad(lambda x: scaled(x, scale=x))(2.0) == 4.0 and gt.grad(scaled)(2.0) == 3.0


def test_a_program_that_the_vectoriser_of_straight_code_breaks():
    """LLVM 22 uses a product before it is computed here, and the code generator ended the process."""

    @numba.njit
    def rows(a, m):
        n = len(a)
        p = m.copy()
        p[0, 0] = 1.0
        p[0, :] = np.sin(a)
        total = 0.0
        for i in range(n):
            total += (1.0 + i) * a[i]
            for j in range(n):
                total += 0.1 * (i - j + 2) * p[i, j]
        return total

    random = np.random.default_rng(0)
    a, m, da, dm = (random.standard_normal(shape) for shape in ((4,), (4, 4), (4,), (4, 4)))
    gradient = gt.grad(rows, argnums=(0, 1))(a, m)
    expected = np.sum(gradient[0] * da) + np.sum(gradient[1] * dm)
    assert gt.jvp(rows, (a, m), (da, dm))[1] == pytest.approx(expected, rel=1e-12)
