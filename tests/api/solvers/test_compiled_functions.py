"""Solvers of functions that gradtape has made: `gt.jit(f)`, `gt.grad(f)` and others read what the user's function captures."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate as si
import scipy.optimize as so

import gradtape as gt

Function = Callable[..., Any]


def slope(x: Any, a: Any) -> Any:
    return 4 * (x - a) ** 3 + 2 * x


MADE: dict[str, Callable[[Any], Function]] = {
    "jit": lambda a: gt.jit(lambda x: slope(x, a)),
    "grad": lambda a: gt.grad(lambda x: np.sum((x - a) ** 4 + x**2)),
    "grad of grad": lambda a: gt.grad(
        lambda x: np.sum(gt.grad(lambda x: np.sum((x - a) ** 5 / 5 + x**3 / 3))(x))
    ),
    "vmap": lambda a: gt.vmap(lambda x: slope(x, a)),
    "jit of partial": lambda a: gt.jit(functools.partial(lambda b, x: slope(x, b), a)),
    "called": lambda a: (lambda made: lambda x: made(x))(gt.grad(lambda x: np.sum((x - a) ** 4 + x**2))),
}
SOLVERS: dict[str, Callable[[Function], Any]] = {
    "scipy root": lambda f: so.root(f, np.ones(2), tol=1e-12).x,
    "scipy fsolve": lambda f: so.fsolve(f, np.ones(2), xtol=1e-13),
    "scipy least_squares": lambda f: so.least_squares(f, np.ones(2), xtol=1e-14, gtol=1e-14).x,
    "gt root": lambda f: gt.scipy.root(f, np.ones(2), tol=1e-12).x,
    "gt least_squares": lambda f: gt.scipy.least_squares(f, np.ones(2), xtol=1e-14, gtol=1e-14).x,
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("made", MADE)
def test_derivatives_by_what_a_made_function_captures(made: str, solver: str) -> None:
    def total(a: Any) -> Any:
        return np.sum(SOLVERS[solver](MADE[made](a)))

    step = 1e-4
    expected = (total(1.0 + step) - total(1.0 - step)) / (
        2 * step
    )  # functions of plain numbers are made first
    found = [
        gt.grad(total)(1.0),
        gt.jit(gt.grad(total))(1.0),
        gt.jvp(total, (1.0,), (1.0,))[1],
        gt.grad(total)(1.0),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "solve",
    [
        lambda a: so.brentq(gt.grad(gt.grad(lambda x: (x - a) ** 5 + x**3)), 0.0, 2.0),
        lambda a: si.quad(gt.jit(lambda x: np.exp(-a * x)), 0.0, 1.0)[0],
        lambda a: so.minimize(gt.jit(lambda x: np.sum((x - a) ** 4 + x**2)), np.ones(2), tol=1e-10).x[0],
    ],
)
def test_functions_of_a_number_and_objectives(solve: Function) -> None:
    expected = (solve(1.0 + 1e-4) - solve(1.0 - 1e-4)) / 2e-4
    for transform in (gt.grad, lambda f: gt.jit(gt.grad(f))):
        np.testing.assert_allclose(transform(solve)(1.0), expected, rtol=1e-4)
