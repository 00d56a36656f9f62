"""Determinants are polynomials: their derivatives exist at singular matrices, and are those of Leibniz' formula."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradtape as gt


def leibniz(a):
    """Return the determinant as a sum over permutations."""
    n = a.shape[-1]
    total = 0
    for order in itertools.permutations(range(n)):
        term = round(np.linalg.det(np.eye(n)[list(order)]))
        for row, column in enumerate(order):
            term = term * a[..., row, column]
        total = total + term
    return total


def cofactors(a):
    n = len(a)
    minors = [[np.delete(np.delete(a, i, 0), j, 1) for j in range(n)] for i in range(n)]
    return np.array(
        [
            [(-1) ** (i + j) * round(np.linalg.det(m)) for j, m in enumerate(row)]
            for i, row in enumerate(minors)
        ]
    )


def of_rank(n, rank, dtype, seed):
    """Whole numbers, of which the last rows are sums of others."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-9, 10, (n, n)).astype(dtype)
    if a.dtype.kind == "c":
        a += 1j * rng.integers(-9, 10, (n, n))
    for row in range(rank, n):
        a[row] = a[0] * row + a[max(rank - 1, 0)]
    return a[rng.permutation(n)] * (rank > 0)


def test_the_gradient_of_singular_matrices_is_their_cofactors():
    gradient = gt.grad(np.linalg.det)
    a = np.array([[3.0, -7, -5, 0], [9, -2, -6, -7], [18, -6, 11, 7], [21, -8, 7, 4]])
    np.testing.assert_allclose(gradient(a)[0], [-120, -240, 264, -312], rtol=1e-13)
    np.testing.assert_array_equal(gradient(np.diag([1.0, 2, 3, 0])), np.diag([0.0, 0, 0, 6]))
    np.testing.assert_array_equal(gradient(np.zeros((5, 5))), np.zeros((5, 5)))
    for seed in range(60):
        a = of_rank(4, 3, float, seed)
        exact = cofactors(a)
        np.testing.assert_allclose(gradient(a), exact, rtol=1e-12, atol=1e-12 * np.abs(exact).max())


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize(("n", "rank"), [(4, 4), (4, 3), (4, 2), (4, 1), (5, 4), (5, 3), (5, 2), (5, 0)])
def test_derivatives_up_to_the_third_are_those_of_the_polynomial(n, rank, dtype):
    a = of_rank(n, rank, dtype, 1)
    rng = np.random.default_rng(2)
    v, w = (rng.normal(size=(n, n)).astype(dtype) for _ in range(2))

    def derivatives(det):
        def real(x):
            return np.real(det(x))

        def second(x):
            return gt.jvp(real, (x,), (v,))[1]

        def third(x):
            return gt.jvp(second, (x,), (w,))[1]

        return [gt.grad(f)(a) for f in (real, second, third)]

    for found, exact, degree in zip(derivatives(np.linalg.det), derivatives(leibniz), (3, 2, 1), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-11, atol=1e-12 * (1 + np.abs(a).max()) ** degree)


def test_stacks_mix_regular_and_singular_matrices():
    stack = np.stack([of_rank(4, rank, float, 3) for rank in (4, 3, 2, 0)])
    found = gt.grad(lambda s: np.sum(np.linalg.det(s)))(stack)
    mapped = gt.vmap(gt.grad(np.linalg.det))(stack)
    for one, other, a in zip(found, mapped, stack, strict=True):
        np.testing.assert_allclose(one, cofactors(a), rtol=1e-12, atol=1e-10)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("wide", [float, np.float32])
def test_only_the_result_may_leave_the_range(wide):
    large = 1e200 if wide is float else 1e25
    a = np.diag([large, large, 1 / large, 1 / large]).astype(wide)
    np.testing.assert_allclose(gt.jit(np.linalg.det)(a), 1.0, rtol=1e-6)
    found = gt.grad(np.linalg.det)(a)
    np.testing.assert_allclose(np.diag(found), [1 / large, 1 / large, large, large], rtol=1e-6)
    assert gt.grad(np.linalg.det)(np.eye(4) * 1e-150)[0, 0] == 0
    assert gt.grad(np.linalg.det)(np.eye(4) * 1e100)[0, 0] == pytest.approx(1e300, rel=1e-13)
