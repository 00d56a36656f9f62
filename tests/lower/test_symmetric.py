"""Products of a matrix and its transpose, and of scaled transposes."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.loops.ir import RoutineCall
from gradtape.lower.llvm.calls import is_symmetric
from gradtape.lower.pipeline import build_loops
from gradtape.statements import walk


def matrix(rows, columns, dtype=float):
    return np.random.default_rng(rows + columns).normal(size=(rows, columns)).astype(dtype)


def calls(compiled, *args):
    compiled(*args)
    made = compiled.site.specialisations()
    program, _ = build_loops(made[0].graph)
    return [statement for statement in walk(program.body) if isinstance(statement, RoutineCall)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("rows", "columns"), [(1000, 64), (613, 77), (257, 200)])
@pytest.mark.parametrize("transposed", [False, True])
def test_half_of_a_symmetric_product_is_computed(rows, columns, dtype, transposed):
    x = matrix(rows, columns, dtype)
    x = np.ascontiguousarray(x.T) if transposed else x
    product = gt.jit((lambda x: x @ x.T) if transposed else (lambda x: x.T @ x))
    found = product(x)
    exact = x.astype(float) @ x.T.astype(float) if transposed else x.T.astype(float) @ x.astype(float)
    np.testing.assert_allclose(found, exact, atol=rows * 40 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(found, found.T)
    (call,) = calls(product, x)
    assert is_symmetric(call)
    assert "syrk" in gt.inspect.llvm(product, x)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda x: x.T @ x, (matrix(1000, 40),)),
        (lambda x: x.T @ x, (matrix(70, 70),)),
        (lambda x, y: x.T @ y, (matrix(1000, 64), matrix(1000, 64))),
        (lambda x: x @ x, (matrix(200, 200),)),
        (lambda x: x.T @ x.T, (matrix(200, 200),)),
        (lambda x: x[:500].T @ x[500:], (matrix(1000, 100),)),
    ],
    ids=["few rows", "little work", "two matrices", "square", "square of the transpose", "two parts"],
)
def test_other_products_are_computed_in_full(function, args):
    product = gt.jit(function)
    np.testing.assert_allclose(product(*args), function(*args), rtol=1e-9, atol=1e-11)
    (call,) = calls(product, *args)
    assert not is_symmetric(call)
    assert "syrk" not in gt.inspect.llvm(product, *args)


def test_infinities_and_nans_of_a_symmetric_product():
    x = matrix(300, 100)
    x[3, 7], x[5, 9], x[6, 9] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(gt.jit(lambda x: x.T @ x)(x), x.T @ x, rtol=1e-10)


def test_gradients_through_symmetric_products():
    x = matrix(300, 100)
    found = gt.grad(lambda x: np.sum((x.T @ x) ** 2))(x)
    np.testing.assert_allclose(found, 4.0 * x @ (x.T @ x), rtol=1e-10)


def scaled(x, d):
    return (d * x.T) @ x


def chosen(x, d):
    return np.where(d > 0, d * np.tanh(x.T), 2.0) @ x


def other_side(x, d):
    return x.T @ (x.T * d).T


@pytest.mark.parametrize("function", [scaled, chosen, other_side])
def test_a_scaled_transpose_keeps_the_layout_of_its_source(function):
    x, d = matrix(300, 80), matrix(300, 1)[:, 0]
    compiled = gt.jit(function)
    np.testing.assert_allclose(compiled(x, d), function(x, d), rtol=1e-11, atol=1e-12)
    (call,) = calls(compiled, x, d)
    assert call.numbers[:2] == ("N", "T")
    assert "permute" not in str(gt.inspect.graph(compiled, x, d, optimised=True))


def test_what_is_wanted_transposed_stays_transposed():
    def both(x, d):
        y = d * x.T
        return y @ x, y

    def mixed(x, z):
        return (x.T * z) @ x

    x, d, z = matrix(300, 80), matrix(300, 1)[:, 0], matrix(80, 300)
    for own, other in zip(gt.jit(both)(x, d), both(x, d), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-11, atol=1e-12)
    compiled = gt.jit(mixed)
    np.testing.assert_allclose(compiled(x, z), mixed(x, z), rtol=1e-11, atol=1e-12)
    assert "permute" in str(gt.inspect.graph(compiled, x, z, optimised=True))


def test_the_hessian_of_a_logistic_regression():
    x, signs = matrix(200, 70), np.sign(matrix(200, 1)[:, 0])
    w = matrix(70, 1)[:, 0] / 10.0
    hessian = gt.hessian(lambda w, x, signs: np.sum(np.logaddexp(0.0, -signs * (x @ w))))
    p = 1.0 / (1.0 + np.exp(-signs * (x @ w)))
    np.testing.assert_allclose(hessian(w, x, signs), (x.T * (p * (1.0 - p))) @ x, rtol=1e-10)
    source = str(gt.inspect.loops(hessian, w, x, signs))
    assert source.count("gemm(") == 1
    assert source.count("for ") == 5
