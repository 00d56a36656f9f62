"""`gt.inspect.numba_source` and `gt.config.compiler`."""

import math

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError, LoweringError

X = np.random.default_rng(0).normal(size=(4, 3))


def energy(x, w):
    r = x[:, None, :] - x[None, :, :]
    d = np.sum(r * r, axis=-1) + np.eye(len(x))
    return np.sum(w * np.sqrt(d)) + np.sum((x @ x.T)[0])


def walk(x, n_steps=20):
    def step(carry, _):
        position, speed = carry
        speed = speed - 0.1 * np.sin(position)
        return (position + 0.1 * speed, speed), position

    (position, _), path = gt.scan(step, (x, x * 0.0), None, length=20)
    return np.sum(position * position) + np.sum(path) * 0.1


def halved(x):
    return gt.while_loop(lambda y: np.sum(y) > 1.0, lambda y: y * 0.5, x)


@numba.njit
def log_determinant(a):
    n = len(a)
    low = np.zeros_like(a)
    total = 0.0
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s -= low[i, k] * low[j, k]
            low[i, j] = math.sqrt(s) if i == j else s / low[j, j]
        total += math.log(low[i, i])
    return total


def module(source):
    """Return the functions of a module that is run as it is."""
    assert "gradtape" not in source and "scipy" not in source
    names = {}
    exec(source, names)
    return names


@pytest.mark.parametrize(
    "function, arguments", [(energy, (X, 1.5)), (walk, (np.linspace(0.1, 1.0, 3),))], ids=["energy", "walk"]
)
def test_the_module_computes_value_and_gradient(function, arguments):
    names = module(gt.inspect.numba_source(function, *arguments))
    value, gradient = gt.value_and_grad(function)(*arguments)
    np.testing.assert_allclose(names[function.__name__](*arguments), value, rtol=1e-12)
    one, other = names[f"value_and_grad_{function.__name__}"](*arguments)
    np.testing.assert_allclose(one, value, rtol=1e-12)
    np.testing.assert_allclose(other, gradient, rtol=1e-11)


def test_loops_from_code_keep_their_names():
    a = X @ X.T + 4.0 * np.eye(4)
    source = gt.inspect.numba_source(log_determinant, a)
    assert "            for k in range(j):\n                s -= " in source
    value, gradient = module(source)["value_and_grad_log_determinant"](a)
    np.testing.assert_allclose(value, log_determinant(a))
    np.testing.assert_allclose(gradient + gradient.T, np.linalg.inv(a), rtol=1e-10)


def test_arrays_from_outside_are_spelled_out():
    knots, shift = np.linspace(0.0, 1.0, 3), np.array([np.inf, 1.0, 2.0])
    source = gt.inspect.numba_source(lambda x: np.sum(x * knots) + np.sum(np.exp(-shift)), np.ones(3))
    assert "np.array([0.0, 0.5, 1.0], np.float64)" in source and "np.inf" in source
    np.testing.assert_allclose(module(source)["lambda_"](np.ones(3)), 1.5 + np.exp(-1.0) + np.exp(-2.0))


def test_a_compiled_function_is_printed_as_it_is():
    both = gt.value_and_grad(energy, argnums=(0, 1))
    names = module(gt.inspect.numba_source(both, X, 1.5))
    value, first, second = names["value_and_grad_energy"](X, 1.5)
    expected, (one, other) = both(X, 1.5)
    np.testing.assert_allclose(value, expected)
    np.testing.assert_allclose(first, one)
    np.testing.assert_allclose(second, other)


def test_a_result_that_is_no_number_has_no_gradient():
    source = gt.inspect.numba_source(halved, np.ones(5))
    assert "value_and_grad" not in source
    np.testing.assert_allclose(module(source)["halved"](np.ones(5)), halved(np.ones(5)))


def test_what_the_module_cannot_compute_is_refused():
    with pytest.raises(LoweringError, match="routine of LAPACK"):
        gt.inspect.numba_source(lambda x: np.linalg.det(x @ x.T), X)
    v = gt.Variable(np.ones(3))
    with pytest.raises(ArgumentError, match="do not come from its arguments alone"):
        gt.inspect.numba_source(lambda x: np.sum(x * v), np.ones(3))


def test_numba_compiles_kernels():
    expected = gt.value_and_grad(energy)(X, 1.5)
    with gt.config.override(compiler="numba"):
        both = gt.value_and_grad(energy)
        value, gradient = both(X, 1.5)
        assert "compiled by Numba" in gt.inspect.explain(both)
    np.testing.assert_allclose(value, expected[0])
    np.testing.assert_allclose(gradient, expected[1])


def test_llvm_compiles_what_numba_cannot():
    with gt.config.override(compiler="numba"):
        f = gt.jit(lambda x: np.linalg.det(x @ x.T + np.eye(4)))
        np.testing.assert_allclose(f(X), np.linalg.det(X @ X.T + np.eye(4)))
        assert "compiled by LLVM and not by Numba" in gt.inspect.explain(f)


def test_an_error_of_a_kernel_is_that_of_numpy():
    with gt.config.override(compiler="numba"):
        f = gt.jit(lambda x, i: x[i] * 2.0)
        assert f(np.arange(3.0), np.array(2)) == 4.0
        with pytest.raises(IndexError):
            f(np.arange(3.0), np.array(7))


def test_the_compiler_is_one_of_two():
    with pytest.raises(ValueError, match='"llvm" or "numba"'):
        gt.config.compiler = "gcc"
