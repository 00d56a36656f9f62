"""Derivatives that are integrals or sums, such as that of the incomplete gamma function in its parameter, in code that is compiled."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import gradtape as gt

X = np.array([2.5, 0.4])


def one_call(x):
    return special.gammainc(x[0], x[1])


def loop(x):
    total = 0.0
    for k in range(3):
        total += special.betainc(x[0] + k, 1.3, x[1]) * (k + 1)
    return total


def orders(x):
    return special.jv(x[0], x[1]) + special.stdtr(x[0], x[1])


def polynomials(x):
    total = special.eval_jacobi(3, x[0], x[1], 0.4) + special.eval_sh_jacobi(2, 2.0 + x[0], 0.5 + x[1], 0.3)
    for k in range(2):
        total += special.eval_gegenbauer(4.0, x[0], x[1]) * (k + 1)
    return total


def degree_zero(x):
    constants = special.eval_gegenbauer(0, x[0], x[1]) + special.eval_sh_jacobi(0, 2.5, 0.5, x[0] - 2.5)
    return special.eval_genlaguerre(2, x[0], x[1]) + constants


@pytest.mark.parametrize("function", [one_call, loop, orders, polynomials, degree_zero])
def test_derivatives_are_those_of_traces(function):
    slopes = [(function(X + step) - function(X - step)) / 2e-5 for step in 1e-5 * np.eye(2)]
    traced = gt.grad(function)(X)
    np.testing.assert_allclose(traced, slopes, rtol=1e-7)
    with gt.config.override(loops="compile"):
        np.testing.assert_allclose(gt.grad(function)(X), traced, rtol=1e-10)
        np.testing.assert_allclose(gt.jvp(function, (X,), (X,))[1], X @ traced, rtol=1e-10)
    if function in (one_call, degree_zero):
        matrix = gt.hessian(function)(X)
        with gt.config.override(loops="compile"):
            np.testing.assert_allclose(gt.hessian(function)(X), matrix, rtol=1e-8, atol=1e-12)
