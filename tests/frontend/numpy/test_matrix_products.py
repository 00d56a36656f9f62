"""Products of matrices in translated loops: array computations where that is worth a call, loops otherwise; the results are NumPy's."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.procedures.ir import Apply
from gradtape.statements import walk
from tests.frontend.support import check, translated
from tests.support.differences import gradient_by_differences

rng = np.random.default_rng(0)

PRODUCTS = {
    "matmul": lambda a, b: a @ b,
    "transposed": lambda a, b: (b.T @ a.T).T,
    "strided": lambda a, b: np.ascontiguousarray(a[::-1])[::-1] @ b[:, ::-1],
    "einsum": lambda a, b: np.einsum("ij,jk->ik", a, b),
    "turned": lambda a, b: np.einsum("ji,jk->ki", a.T, b).T,
    "dot": lambda a, b: np.dot(a, b),
    "tensordot": lambda a, b: np.tensordot(a, b, 1),
}


def matrices(m, p, n, dtype=np.float64):
    return [rng.normal(size=shape).astype(dtype) for shape in ((m, p), (p, n))]


def steps(product):
    def function(a, b):
        total = 0.0
        for k in range(3):
            total = total + np.sum(np.tanh(product(a * (1.0 + k), b)))
        return total

    return function


def computations(function, *args):
    return sum(isinstance(s, Apply) for s in walk(translated(function, *args).procedure.body))


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(
    "m, p, n, is_call",
    [(16, 16, 16, True), (12, 12, 12, False), (8, 64, 8, True), (64, 7, 64, False), (1, 64, 64, False)],
)
def test_large_products_are_array_computations(name, m, p, n, is_call):
    function = steps(PRODUCTS[name])
    a, b = matrices(m, p, n)
    assert (computations(function, a, b) > 0) == is_call
    check(function, a, b)


def test_batches_count_by_their_matrices():
    def function(a, b):
        total = 0.0
        for k in range(3):
            total = total + np.sum((a * k) @ b)
        return total

    for n, is_call in ((8, False), (16, True)):
        a, b = rng.normal(size=(2, 5, n, n))
        assert (computations(function, a, b) > 0) == is_call
        check(function, a, b)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("size", [12, 16])
def test_derivatives_of_both_are_the_same_as_those_of_a_trace(name, size):
    function = steps(PRODUCTS[name])
    a, b = (0.1 * x for x in matrices(size, size, size))
    results = {}
    for loops in ("compile", "trace"):
        with gt.config.override(loops=loops):
            value, gradients = gt.value_and_grad(function, argnums=(0, 1))(a, b)
            tangent = gt.jvp(function, (a, b), (b, a))[1]
            curvature = gt.hvp(lambda a: function(a, b), (a,), (b,))
            mapped = gt.vmap(function)(np.stack((a, b)), np.stack((b, a)))
            results[loops] = [value, *gradients, tangent, curvature, mapped]
    for one, other in zip(*results.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["f4", "c16", "i8"])
def test_of_other_dtypes(dtype):
    def function(x, a, b):
        total = 0.0
        for k in range(3):
            total = total + x * np.sum(np.real((a * (k + 1)) @ b))
        return total

    a, b = (np.array(10 * x, dtype) for x in matrices(16, 16, 16))
    with gt.config.override(loops="compile"):
        value, slope = gt.value_and_grad(function)(1.5, a, b)
    assert value == pytest.approx(function(1.5, a, b), rel=1e-4 if dtype == "f4" else 1e-12)
    assert slope == pytest.approx(function(1.0, a, b), rel=1e-4 if dtype == "f4" else 1e-12)


def test_a_carry_that_is_multiplied_by_itself():
    def function(a):
        for _ in range(4):
            a = 0.5 * (a @ a) + a
        return np.sum(a * a)

    a = 0.02 * rng.normal(size=(17, 17))
    with gt.config.override(loops="compile"):
        gradient = gt.grad(function)(a)
    np.testing.assert_allclose(gradient, gradient_by_differences(function, a), rtol=1e-5, atol=1e-8)
