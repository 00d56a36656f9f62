"""Compiled functions that `@njit` code calls."""

import numba
import numpy as np
import pytest

import gradtape as gt

both = gt.value_and_grad(lambda x: np.sum(np.sin(x) * np.cos(x[0])))
slope = gt.grad(lambda x: np.sin(x) * x)
scaled = gt.jit(lambda a, x: (a * x, {"sum": np.sum(x)}["sum"]))
signed = gt.jit(lambda x: x * 2.0 if x[0] > 0.0 else -x)
table = np.array([2.0, 3.0, 5.0])
weighted = gt.jit(lambda x: x @ table)


@numba.njit
def descend(x, steps):
    total = 0.0
    for _ in range(steps):
        value, gradient = both(x)
        x = x - 0.1 * gradient
        total += value
    return x, total


def test_a_value_and_its_gradient_for_several_shapes():
    both(np.ones(3))
    for size in (3, 4, 3):
        x = np.linspace(0.5, 1.0, size)
        expected, total = descend.py_func(x, 5)
        actual = descend(x, 5)
        np.testing.assert_allclose(actual[0], expected, rtol=1e-13)
        np.testing.assert_allclose(actual[1], total, rtol=1e-13)


def test_functions_of_numbers_need_no_call_before():
    @numba.njit
    def newton(x):
        for _ in range(5):
            x = x - 0.1 * slope(x)
        return x

    np.testing.assert_allclose(newton(0.5), newton.py_func(0.5))


def test_a_function_is_an_argument():
    @numba.njit
    def twice(f, x):
        return f(f(x))

    np.testing.assert_allclose(twice(slope, 0.3), slope(slope(0.3)))


def test_numbers_and_views_as_arguments_and_nested_results():
    x = np.arange(12.0).reshape(3, 4)
    scaled(2.0, x)

    @numba.njit
    def call(a, x):
        return scaled(a, x[:, ::2])

    product, total = call(3.0, x)
    np.testing.assert_array_equal(product, 3.0 * x[:, ::2])
    assert total == np.sum(x[:, ::2])


def test_captured_arrays_are_passed():
    weighted(np.ones(3))

    @numba.njit
    def call(x):
        return weighted(x)

    assert call(np.array([1.0, 2.0, 3.0])) == 23.0


def test_what_a_kernel_cannot_answer_python_does():
    signed(np.ones(2))

    @numba.njit
    def call(x):
        return signed(x)

    np.testing.assert_array_equal(call(np.ones(2)), [2.0, 2.0])
    np.testing.assert_array_equal(call(-np.ones(2)), [1.0, 1.0])
    np.testing.assert_array_equal(call(np.ones(2)), [2.0, 2.0])


def test_an_error_of_python_is_raised():
    def positive(x):
        if x[0] < 0.0:
            raise ValueError("negative")
        return x * 2.0

    f = gt.jit(positive)
    f(np.ones(2))

    @numba.njit
    def call(x):
        return f(x)

    np.testing.assert_array_equal(call(np.ones(2)), [2.0, 2.0])
    with pytest.raises(ValueError, match="negative"):
        call(-np.ones(2))


def test_a_function_that_python_has_not_called():
    matrix = np.arange(16.0).reshape(4, 4)

    def loss(x, scale):
        return scale * np.sum(np.tanh(matrix @ x)), np.outer(x, x)

    f = gt.jit(loss)
    both = gt.value_and_grad(lambda x, w: np.sum(np.sin(w @ x) * x[0]), argnums=(0, 1))

    @numba.njit
    def call(x, scale, w):
        value, square = f(x, scale)
        y, (dx, dw) = both(x, w)
        return value, square, y, dx, dw

    x, w = np.linspace(0.1, 0.4, 4), np.cos(matrix)
    found = call(x, 2.0, w)
    y, slopes = both(x, w)
    wanted = *f(x, 2.0), y, *slopes
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other)
    np.testing.assert_allclose(call(2.0 * x, 1.0, w)[0], np.sum(np.tanh(matrix @ (2.0 * x))))


def test_an_example_computes_nothing():
    total = gt.Variable(0.0)

    @gt.jit
    def add(x):
        total.assign_add(np.sum(x))
        return x

    with pytest.raises(numba.TypingError, match="call it once from Python"):
        numba.njit(lambda x: add(x))(np.ones(3))
    assert float(total) == 0.0


def test_a_function_without_a_trace_is_refused():
    f = gt.jit(lambda x: (x @ np.ones((7, 2))) * 2.0)

    @numba.njit
    def call(x):
        return f(x)

    with pytest.raises(numba.TypingError, match="call it once from Python with such arguments"):
        call(np.ones(7))
    f(np.ones(7))
    again = numba.njit(call.py_func)  # Numba keeps what it could not compile
    np.testing.assert_array_equal(again(np.ones(7)), [14.0, 14.0])


def test_results_of_another_kind_are_refused():
    f = gt.jit(lambda x: x if len(x) > 2 else np.outer(x, x))
    f(np.ones(3))

    @numba.njit
    def call(x):
        return f(x)

    call(np.ones(3))
    with pytest.raises(ValueError, match="returns other types for these arguments"):
        call(np.ones(2))
