"""Derivatives that are integrals, such as that of the incomplete gamma function in its parameter, in code that is compiled."""

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


@pytest.mark.parametrize("function", [one_call, loop, orders])
def test_derivatives_are_those_of_traces(function):
    slopes = [(function(X + step) - function(X - step)) / 2e-5 for step in 1e-5 * np.eye(2)]
    traced, matrix = gt.grad(function)(X), gt.hessian(function)(X)
    np.testing.assert_allclose(traced, slopes, rtol=1e-7)
    with gt.config.override(loops="compile"):
        np.testing.assert_allclose(gt.grad(function)(X), traced, rtol=1e-10)
        np.testing.assert_allclose(gt.jvp(function, (X,), (X,))[1], X @ traced, rtol=1e-10)
        if function is one_call:
            np.testing.assert_allclose(gt.hessian(function)(X), matrix, rtol=1e-8)
