"""Minima with constraints, linear programs, and fits with bounds: derivatives of what is active, up to the second."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize as so

import gradtape as gt

WEIGHTS = np.array([1.0, 2.0])
PLANE = np.array([[1.0, 1.0], [1.0, -1.0]])
TIGHT = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}


def bowl(x: Any, p: Any) -> Any:
    return (x[0] - p) ** 2 + (x[1] - p**2) ** 2 + 0.1 * x[0] ** 4


def best(p: Any, constraints: Any, method: str = "SLSQP", **options: Any) -> Any:
    start = np.array([0.1, 0.1])
    return so.minimize(
        lambda x: bowl(x, p), start, method=method, tol=1e-10, constraints=constraints, **options
    )


def line(p: Any) -> dict[str, Any]:
    return {"type": "eq", "fun": lambda x: x[0] + p * x[1] - 1}


def half(p: Any) -> dict[str, Any]:
    return {"type": "ineq", "fun": lambda x, q: q - x[0] - x[1], "args": (0.5 * p,)}


def disc(p: Any) -> so.NonlinearConstraint:
    return so.NonlinearConstraint(lambda x: x[0] ** 2 + x[1] ** 2, 0, 0.3 * p)


def strip(p: Any) -> so.LinearConstraint:
    return so.LinearConstraint(PLANE, np.array([-1.0, -5.0]), np.array([0.5, 5.0]) * p)


def misfits(x: Any, p: Any) -> Any:
    return np.array([x[0] - p, x[1] - x[0] * p, x[0] * x[1] - 1, x[0] - 3])


def program(p: Any) -> Any:
    return so.linprog(
        [-1.0, -2.0 * p, 0.5],
        A_ub=[[1.0, p, 1.0], [1.0, 3.0, 0.0]],
        b_ub=[4.0 * p, 6.0],
        A_eq=[[1.0, 0.0, 1.0]],
        b_eq=[p],
        bounds=[(0, None), (0, p), (0.1 * p, None)],
    )


def table(p: Any) -> Any:
    return np.array([[1.0, p], [p, 2.0], [1.0, 1.0]]), np.array([1.0, 2.0, -3.0 * p])


CASES: dict[str, Callable[[Any], Any]] = {
    "an equality": lambda p: best(p, [line(p)]).x @ WEIGHTS,
    "an inequality and a bound": lambda p: (
        best(p, half(p), bounds=[(None, None), (0.3 * p, None)]).x @ WEIGHTS
    ),
    "a linear constraint": lambda p: best(p, strip(p)).x @ WEIGHTS,
    "a nonlinear constraint": lambda p: best(p, disc(p)).fun,
    "an inactive constraint": lambda p: best(p, so.LinearConstraint(PLANE, -9.0, 9.0 * p)).x @ WEIGHTS,
    "trust-constr": lambda p: best(p, [disc(p), line(2.0)], "trust-constr").x @ WEIGHTS,
    "linprog": lambda p: program(p).x @ np.array([1.0, 2.0, 3.0]),
    "linprog, the minimum": lambda p: program(p).fun,
    "linprog, the dual solution": lambda p: np.sum(program(p).ineqlin.marginals),
    "milp": lambda p: (
        so.milp(
            np.array([-1.0, -2.0 * p]),
            integrality=[1, 0],
            constraints=so.LinearConstraint(np.array([[1.0, 1.0], [1.0, 3.0]]) * p, -np.inf, [4.0, 6.0]),
        ).x
        @ WEIGHTS
    ),
    "lsq_linear": lambda p: so.lsq_linear(*table(p), bounds=([-1, 0.2 * p], [2.0, 2.0])).x @ WEIGHTS,
    "nnls": lambda p: so.nnls(*table(p))[0] @ WEIGHTS,
    "nnls, the residual": lambda p: so.nnls(*table(p))[1],
    "isotonic_regression": lambda p: (
        so.isotonic_regression(
            np.array([1.0, 3.0, 2.0, 5.0, 4.0]) * p, weights=np.array([1.0, p, 1.0, 2.0, p])
        ).x
        @ np.arange(5.0)
    ),
    "a robust loss": lambda p: (
        so.least_squares(misfits, [1.0, 1.0], args=(p,), loss="soft_l1", f_scale=0.5 * p, **TIGHT).x @ WEIGHTS
    ),
    "least_squares with bounds": lambda p: (
        so.least_squares(misfits, [0.1, 0.1], args=(p,), bounds=([0, 0], [1.0 * p, 2.0]), **TIGHT).x @ WEIGHTS
    ),
    "leastsq": lambda p: so.leastsq(misfits, [0.1, 0.1], args=(p,), xtol=1e-14)[0] @ WEIGHTS,
    "newton, several": lambda p: (
        so.newton(lambda x: x**3 + p * x - np.array([1.0, 2.0]), np.ones(2)) @ WEIGHTS
    ),
    "newton, full": lambda p: so.newton(lambda x: x**3 + p * x - 1, 1.0, full_output=True)[1].root,
    "brentq, full": lambda p: so.brentq(lambda x: x**3 + p * x - 1, 0, 2, full_output=True)[0],
    "differential_evolution": lambda p: (
        so.differential_evolution(
            lambda x: bowl(x, p), [(-1.0, 1.0), (-1.0, 0.3 * p)], rng=1, popsize=3, maxiter=5
        ).x
        @ WEIGHTS
    ),
    "broyden1": lambda p: (
        so.broyden1(
            lambda x: np.array([x[0] + 0.1 * x[1] ** 2 - p, x[1] - 0.2 * x[0] * p]), np.ones(2), f_tol=1e-12
        )
        @ WEIGHTS
    ),
}

UNTIDY = {"differential_evolution", "trust-constr"}
"""They warn: that they have not converged, or that SciPy itself has no Hessian."""


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name: str) -> None:
    function, p, h = CASES[name], 0.7, 1e-3
    with warnings.catch_warnings():
        if name in UNTIDY:
            warnings.simplefilter("ignore")
        value, slope = gt.value_and_grad(function)(p)
        np.testing.assert_allclose(value, function(p), rtol=1e-5, atol=1e-6)
        differences = (gt.jit(function)(p + h) - gt.jit(function)(p - h)) / (2 * h)
        np.testing.assert_allclose(slope, differences, rtol=2e-3, atol=1e-3)
        with gt.GradientTape() as tape:
            watched = tape.watch(p)
            result = function(watched)
        np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(tape.gradient(result, watched), slope, rtol=1e-4, atol=1e-5)


def test_methods_that_stop_before_a_bound() -> None:
    """An unknown near to its bound is at it, if the gradient pushes it there."""

    def below(p: Any, end: Any) -> Any:
        return so.minimize_scalar(lambda x: (x - p) ** 2, bounds=(0, end), method="bounded").x

    slope = gt.grad(below, argnums=(0, 1))
    np.testing.assert_array_equal(slope(0.7, 0.5), (0.0, 1.0))
    np.testing.assert_allclose(slope(0.3, 0.5), (1.0, 0.0))

    def inside(p: Any) -> Any:
        ends = so.Bounds(np.zeros(2), np.array([0.4, 0.9]))
        return so.minimize(bowl, np.full(2, 0.1), (p,), method="trust-constr", bounds=ends).x

    np.testing.assert_allclose(gt.jacobian(inside)(0.7), [0.0, 1.4], atol=1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
@pytest.mark.parametrize("weight", [1e-8, 1e8])
def test_what_is_active_does_not_depend_on_units(weight: float, unit: float) -> None:
    def below(p: Any, end: Any) -> Any:
        def cost(x: Any) -> Any:
            return weight * (x / unit - p) ** 2

        options = {"xatol": 1e-5 * unit}
        found = so.minimize_scalar(cost, bounds=(0, end * unit), method="bounded", options=options)
        return found.x / unit

    slope = gt.grad(below, argnums=(0, 1))
    np.testing.assert_allclose(slope(0.7, 0.5), (0.0, 1.0), atol=1e-12)
    np.testing.assert_allclose(slope(0.4999, 0.5), (1.0, 0.0), atol=1e-12)


def test_the_curvature_of_constraints_decides_as_well() -> None:
    """The function is linear: on the circle it is the constraint that is curved, and the minimum is free though near to its bound."""

    def across(p: Any) -> Any:
        circle = so.NonlinearConstraint(lambda x: x @ x, 1.0, 1.0)
        ends = so.Bounds(np.array([-2.0, 5e-4]), np.array([2.0, 2.0]))
        options = {"gtol": 1e-8, "xtol": 1e-10}
        start = np.array([-0.9, 0.1])
        return so.minimize(
            lambda x: x[0] - p * x[1],
            start,
            method="trust-constr",
            bounds=ends,
            constraints=circle,
            options=options,
        ).x

    np.testing.assert_allclose(gt.jacobian(across)(1e-3), [1e-3, 1.0], atol=1e-4)
    np.testing.assert_allclose(gt.jacobian(across)(1e-5), [0.0, 0.0], atol=1e-4)
