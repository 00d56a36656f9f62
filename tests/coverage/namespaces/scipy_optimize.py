"""The functions of `scipy.optimize`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize as so

from tests.coverage.cases import Case, Namespace, call, public_functions

P = np.array([0.7, 1.3])
MATRIX = np.array([[1.0, 0.5], [0.3, 2.0], [1.0, 1.0]])
DATA = np.array([1.0, 2.0, -3.0])
TIMES = np.linspace(0.0, 2.0, 7)
HEIGHTS = 1.5 * np.exp(-0.7 * TIMES) + 0.02 * np.sin(9 * TIMES)
EXACT = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}
QUIET: dict[str, Any] = {"disp": 0}


def once(function: Callable[..., Any], *arrays: Any, rtol: float = 1e-4) -> list[Case]:
    """Return the case of a solver, without second derivatives, which `tests/api/solvers` has."""
    return call(function, *arrays, second=False, rtol=rtol)


def bowl(x: Any, p: Any) -> Any:
    return (x[0] - p[0]) ** 2 + (x[1] - p[1]) ** 2 + 0.5 * x[0] * x[1]


def slope(x: Any, p: Any) -> Any:
    return np.array([2 * (x[0] - p[0]) + 0.5 * x[1], 2 * (x[1] - p[1]) + 0.5 * x[0]])


def curvature(x: Any, p: Any) -> Any:
    return np.array([[2.0, 0.5], [0.5, 2.0]])


def parabola(x: Any, p: Any) -> Any:
    return (x - p) ** 2 + 0.3 * x


def system(x: Any, p: Any) -> Any:
    return np.array([x[0] + 0.1 * x[1] ** 2 - p[0], x[1] - 0.2 * x[0] * p[1]])


def cubic(x: Any, p: Any) -> Any:
    return x**3 + p * x - 1


def misfits(x: Any, p: Any) -> Any:
    return np.array([x[0] - p[0], x[1] - x[0] * p[1], x[0] * x[1] - 1, x[0] - 2])


def decay(t: Any, height: Any, rate: Any) -> Any:
    return height * np.exp(-rate * t)


def bracketed(name: str) -> list[Case]:
    return call(lambda p: getattr(so, name)(cubic, 0.0, 2.0, args=(p,), xtol=1e-14), 2.0)


def systems(method: str) -> list[Case]:
    return once(lambda p: so.root(system, np.ones(2), (p,), method=method, tol=1e-13).x, P)


def mixing(name: str, sign: float = 1.0, **options: Any) -> list[Case]:
    return once(
        lambda p: getattr(so, name)(lambda x: sign * system(x, p), np.ones(2), f_tol=1e-13, **options), P
    )


def searched(name: str, **options: Any) -> list[Case]:
    bounds = [(-2.0, 2.0)] * 2
    return once(lambda p: getattr(so, name)(bowl, bounds, args=(p,), **options).fun, P, rtol=1e-3)


CASES: dict[str, list[Case]] = {
    **{name: bracketed(name) for name in ("brentq", "brenth", "bisect", "ridder")},
    "toms748": once(lambda p: so.toms748(cubic, 0.0, 2.0, args=(p,)), 2.0),
    **{name: mixing(name) for name in ("anderson", "broyden1", "broyden2", "diagbroyden", "newton_krylov")},
    "excitingmixing": mixing("excitingmixing", -1.0, alpha=0.5),
    "linearmixing": mixing("linearmixing", -1.0, alpha=0.8),
    "newton": [
        *call(lambda p: so.newton(cubic, 0.4, fprime=lambda x, p: 3 * x**2 + p, args=(p,), tol=1e-14), 2.0),
        *once(lambda p: so.newton(lambda x: cubic(x, p), np.full(2, 0.4), tol=1e-14), P),
    ],
    "root_scalar": [
        *once(lambda p: so.root_scalar(cubic, (p,), bracket=[0, 2], xtol=1e-14).root, 2.0),
        *once(lambda p: so.root_scalar(cubic, (p,), x0=0.4, x1=0.5, method="secant", xtol=1e-14).root, 2.0),
    ],
    "root": [case for method in ("hybr", "lm", "df-sane") for case in systems(method)],
    "fsolve": once(lambda p: so.fsolve(system, np.ones(2), (p,), xtol=1e-14), P),
    "fixed_point": once(
        lambda p: so.fixed_point(lambda x, p: np.cos(p * x), 0.5, args=(p,), xtol=1e-14), 0.9
    ),
    "minimize": [
        *once(lambda p: so.minimize(bowl, np.zeros(2), (p,), jac=slope, method="BFGS", tol=1e-10).x, P),
        *once(
            lambda p: (
                so.minimize(
                    lambda x: bowl(x, p),
                    np.zeros(2),
                    jac=lambda x: slope(x, p),
                    constraints={"type": "eq", "fun": lambda x: x[0] + x[1] - p[0] * p[1]},
                    method="SLSQP",
                    tol=1e-14,
                ).x
            ),
            P,
        ),
    ],
    "minimize_scalar": once(lambda p: so.minimize_scalar(parabola, args=(p,), tol=1e-14).fun, 0.7),
    "brent": once(lambda p: so.brent(parabola, args=(p,), full_output=True)[1], 0.7),
    "golden": once(lambda p: so.golden(parabola, args=(p,), full_output=True)[1], 0.7),
    "fminbound": once(lambda p: so.fminbound(parabola, -1.0, 2.0, args=(p,), full_output=True)[1], 0.7),
    "fmin": once(
        lambda p: so.fmin(bowl, np.zeros(2), (p,), xtol=1e-9, ftol=1e-12, full_output=True, **QUIET)[1], P
    ),
    "fmin_powell": once(
        lambda p: so.fmin_powell(bowl, np.zeros(2), (p,), xtol=1e-12, ftol=1e-15, **QUIET), P
    ),
    "fmin_bfgs": once(lambda p: so.fmin_bfgs(bowl, np.zeros(2), slope, (p,), gtol=1e-10, **QUIET), P),
    "fmin_cg": once(lambda p: so.fmin_cg(bowl, np.zeros(2), slope, (p,), gtol=1e-11, **QUIET), P),
    "fmin_ncg": once(
        lambda p: so.fmin_ncg(bowl, np.zeros(2), slope, fhess=curvature, args=(p,), avextol=1e-14, **QUIET),
        P,
    ),
    "fmin_l_bfgs_b": once(
        lambda p: so.fmin_l_bfgs_b(
            bowl, np.zeros(2), slope, (p,), bounds=[(-5.0, 5.0)] * 2, factr=1.0, pgtol=1e-12
        )[:2],
        P,
    ),
    "fmin_tnc": once(
        lambda p: so.fmin_tnc(bowl, np.zeros(2), slope, (p,), ftol=1e-15, pgtol=1e-10, messages=0)[0], P
    ),
    "fmin_slsqp": once(
        lambda p: so.fmin_slsqp(
            bowl,
            np.zeros(2),
            eqcons=[lambda x, p: x[0] + x[1] - p[0]],
            args=(p,),
            fprime=slope,
            acc=1e-14,
            iprint=0,
        ),
        P,
    ),
    "fmin_cobyla": once(
        lambda p: bowl(so.fmin_cobyla(bowl, np.zeros(2), [lambda x, p: 1.0 - x[0]], (p,), rhoend=1e-5), p), P
    ),
    "brute": once(lambda p: bowl(so.brute(bowl, [(-1, 2), (-1, 2)], (p,), Ns=4), p), P),
    "differential_evolution": searched("differential_evolution", rng=1, popsize=5, tol=1e-6),
    "dual_annealing": searched("dual_annealing", rng=1, maxiter=20),
    "shgo": searched("shgo"),
    "direct": searched("direct", vol_tol=1e-7),
    "basinhopping": once(
        lambda p: so.basinhopping(bowl, np.zeros(2), niter=2, rng=1, minimizer_kwargs={"args": (p,)}).fun, P
    ),
    "least_squares": once(lambda p: so.least_squares(misfits, np.ones(2), args=(p,), **EXACT).x, P),
    "leastsq": once(lambda p: so.leastsq(misfits, np.ones(2), args=(p,), xtol=1e-14, ftol=1e-14)[0], P),
    "curve_fit": once(lambda y: so.curve_fit(decay, TIMES, y, xtol=1e-14, ftol=1e-14, gtol=1e-14), HEIGHTS),
    "lsq_linear": once(lambda a, b: so.lsq_linear(a, b, bounds=([-1, -2], [2, 5])).x, MATRIX, DATA),
    "nnls": once(lambda a, b: so.nnls(a, b), MATRIX, DATA),
    "isotonic_regression": call(lambda y: so.isotonic_regression(y).x, [1.0, 3.0, 2.0, 5.0, 4.0, 6.0]),
    "linprog": once(
        lambda c, a, b: so.linprog(c, A_ub=a, b_ub=b).x, [-1.0, -2.0], [[1.0, 1.0], [1.0, 3.0]], [4.0, 6.0]
    ),
    "milp": once(
        lambda c, b: (
            so.milp(
                c,
                integrality=[1, 0],
                constraints=so.LinearConstraint(np.array([[1.0, 1.0], [1.0, 3.0]]), -np.inf, b),
            ).x
        ),
        [-1.0, -2.0],
        [4.2, 6.1],
    ),
    "quadratic_assignment": once(
        lambda a, b: so.quadratic_assignment(a, b).fun,
        [[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]],
        [[0.0, 5.0, 1.0], [5.0, 0.0, 2.0], [1.0, 2.0, 0.0]],
    ),
    "linear_sum_assignment": once(
        lambda c: c[so.linear_sum_assignment(c)], [[0.3, 0.9, 0.5], [0.2, 0.7, 1.1], [0.8, 0.4, 0.6]]
    ),
    "rosen": call(so.rosen, [0.4, 0.9, 1.2]),
    "rosen_der": call(so.rosen_der, [0.4, 0.9, 1.2]),
    "rosen_hess": call(so.rosen_hess, [0.4, 0.9, 1.2]),
    "rosen_hess_prod": call(so.rosen_hess_prod, [0.4, 0.9, 1.2], [1.0, 0.5, 2.0]),
}

REFUSED = {
    "approx_fprime": "it computes differences of numbers; gt.grad and gt.jacobian compute derivatives",
    "check_grad": "it compares numbers; gt.check_grads compares derivatives",
    "bracket": "its points are those of a search, and solve no equations",
    "line_search": "its step is the first that is good enough, and solves no equation",
}

REFUSALS = {
    "approx_fprime": call(lambda p: so.approx_fprime(np.ones(2), lambda x: bowl(x, p)), P),
    "bracket": call(lambda p: so.bracket(parabola, args=(p,)), 0.7),
    "line_search": call(
        lambda p: so.line_search(lambda x: bowl(x, p), lambda x: slope(x, p), np.zeros(2), np.ones(2))[0], P
    ),
}

OTHERS = {"linprog_verbose_callback": "it prints", "show_options": "it prints"}

SCIPY_OPTIMIZE = Namespace(
    "scipy.optimize", public_functions(so), CASES, refused=REFUSED, refusals=REFUSALS, others=OTHERS
)
