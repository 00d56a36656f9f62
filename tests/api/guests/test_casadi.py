"""`gt.casadi`: NumPy code as a function of CasADi's matrices, compared with CasADi's own derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.api.guests.pages import check_programs
from tests.support.ways import expect

ca = pytest.importorskip("casadi", reason="an optional extra")

X = np.array([0.3, -1.2, 0.7])


def numpys(x: Any, p: Any) -> Any:
    total = 0.0
    for i in range(3):
        total = total + np.sin(x[i]) * x[i] ** 2 * p
    return {"total": total, "squares": x**2 * p, "outer": np.outer(x, p * x)}


def casadis(x: Any, p: Any) -> Any:
    return {"total": ca.sum1(ca.sin(x) * x**2 * p), "squares": x**2 * p, "outer": ca.mtimes(x, p * x.T)}


@pytest.fixture(scope="module")
def graphs() -> Any:
    """Return the unknowns and the results of both."""
    x, p = ca.MX.sym("x", 3), ca.MX.sym("p")
    return x, p, gt.casadi(numpys)(x, p), casadis(x, p)


def same(graphs: Any, ours: Any, theirs: Any) -> None:
    x, p, *_ = graphs
    computed = ca.Function("both", [x, p], [ours, theirs])(X, 2.0)
    np.testing.assert_allclose(computed[0].full(), computed[1].full(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["total", "squares", "outer"])
def test_values_and_first_derivatives(graphs: Any, name: str) -> None:
    x, p, ours, theirs = graphs
    ours, theirs = ours[name], theirs[name]
    same(graphs, ours, theirs)
    same(graphs, ca.jacobian(ours, x), ca.jacobian(theirs, x))
    same(graphs, ca.jacobian(ours, p), ca.jacobian(theirs, p))
    same(graphs, ca.jtimes(ours, x, p * x), ca.jtimes(theirs, x, p * x))
    weights = ca.MX(np.arange(1.0, 1 + theirs.numel()).reshape(theirs.shape))
    same(graphs, ca.jtimes(ours, x, weights, True), ca.jtimes(theirs, x, weights, True))


def test_second_derivatives(graphs: Any) -> None:
    x, _, ours, theirs = graphs
    same(graphs, ca.hessian(ours["total"], x)[0], ca.hessian(theirs["total"], x)[0])
    forward = [ca.jtimes(ca.jtimes(r["squares"], x, x), x, ca.sin(x)) for r in (ours, theirs)]
    same(graphs, *forward)
    mixed = [ca.jtimes(ca.jtimes(r["outer"], x, x), x, ca.MX.ones(3, 3), True) for r in (ours, theirs)]
    same(graphs, *mixed)


def test_several_directions_at_once(graphs: Any) -> None:
    x, _, ours, theirs = graphs
    seeds = ca.MX(np.arange(6.0).reshape(3, 2))
    same(graphs, ca.jtimes(ours["squares"], x, seeds), ca.jtimes(theirs["squares"], x, seeds))
    same(graphs, ca.jtimes(ours["squares"], x, seeds, True), ca.jtimes(theirs["squares"], x, seeds, True))


def test_ipopt_solves_a_program() -> None:
    y = ca.MX.sym("y", 2)
    quiet = {"ipopt.print_level": 0, "print_time": 0, "ipopt.sb": "yes"}

    def solved(objective: Any, constraint: Any) -> Any:
        program = {"x": y, "f": objective(y), "g": constraint(y)}
        solver = ca.nlpsol("solver", "ipopt", program, quiet)
        return solver(x0=[0.2, 0.3], lbg=0, ubg=1)["x"].full(), solver.stats()["iter_count"]

    def rosenbrock(y: Any) -> Any:
        return (1 - y[0]) ** 2 + 100 * (y[1] - y[0] ** 2) ** 2

    def radius(y: Any) -> Any:
        return y[0] ** 2 + y[1] ** 2

    found, steps = solved(gt.casadi(rosenbrock), gt.casadi(radius))
    expected, expected_steps = solved(rosenbrock, radius)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert steps == expected_steps  # the same derivatives lead the same way


def test_constants_and_matrices() -> None:
    f = gt.casadi(lambda a, rows, n, *, mode: getattr(np, mode)(a[rows], axis=0) * n)
    a, rows = ca.DM(np.arange(6.0).reshape(3, 2)), np.array([2, 0])
    assert f(a, rows, 2, mode="sum").full().ravel().tolist() == [8, 12]
    rows[:] = 1
    assert f(a, rows, 2, mode="sum").full().ravel().tolist() == [8, 12]
    assert f(a, rows, 3, mode="max").full().ravel().tolist() == [6, 9]
    assert float(gt.casadi(lambda x: x.ndim)(ca.DM(2.0))) == 0
    assert gt.casadi(np.zeros_like)(ca.DM.ones(1, 3)).shape == (1, 3)


def test_what_casadi_cannot_call_is_an_error() -> None:
    expect(gt.errors.ArgumentError, lambda: gt.casadi(np.sum)(ca.SX.sym("x", 3)), "SX", "MX.sym")
    expect(gt.errors.ArgumentError, lambda: gt.casadi(lambda x: x[:, None, None])(ca.DM.ones(3)), "(3, 1, 1)")
    expect(gt.errors.ArgumentError, lambda: gt.casadi(lambda x: x * 1j)(ca.DM.ones(3)), "complex128")
    expect(gt.errors.ArgumentError, lambda: gt.casadi(3), "casadi got an int")


def test_the_page_prints_what_it_says() -> None:
    check_programs("casadi")
