"""The solver where IPOPT is missing: "trust-constr" of SciPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.nlp.derivatives import Derivatives, Found, Limits

FIRST_BARRIER: Final = 0.1
WARM_BARRIER: Final = 1e-6
NEXT_BARRIER: Final = 0.01
"""The barrier parameter of the first round, also at a warm start, and by how much that of the next one is smaller."""

SMALL_BARRIER: Final = 1e-5
SMALL_SLOPE: Final = 1e-4
"""Up to which barrier parameter, and which slope of the Lagrangian relative to the gradient, a point is a solution."""


def solve(
    functions: Derivatives,
    limits: Limits,
    start: Found,
    options: dict[str, Any],
    report: Callable[..., bool],
) -> Found:
    """Solve a nonlinear program by `scipy.optimize.minimize` with "trust-constr"; arguments are those of `ipopt.solve`."""
    optimize: Any = importlib.import_module("scipy.optimize")
    count = limits.lower.size
    none = np.zeros(count)
    bounded = np.isfinite(limits.low).any() or np.isfinite(limits.high).any()
    constraints = []
    if count:
        constraints.append(
            optimize.NonlinearConstraint(
                lambda x: functions.values(x)[1],
                limits.lower,
                limits.upper,
                functions.jacobian_matrix,
                lambda x, duals: functions.hessian_matrix(x, 0.0, duals),
            )
        )
    stopped = False

    def after(_x: Any, state: Any) -> bool:
        nonlocal stopped
        stopped = not report(
            state.nit,
            state.fun,
            state.constr_violation,
            state.optimality,
            state.get("barrier_parameter", 0.0),
            state.tr_radius,
        )
        return stopped

    is_warm = any(np.any(each) for each in (start.duals, start.low, start.high))
    start_of_round, barrier, total = start.x, WARM_BARRIER if is_warm else FIRST_BARRIER, options["maxiter"]
    tolerance = options["barrier_tol"]
    done = 0
    while True:  # it ends when its trust region is small, often with a barrier that is not
        found = optimize.minimize(
            lambda x: functions.values(x)[0],
            start_of_round,
            method="trust-constr",
            jac=functions.gradient,
            hess=lambda x: functions.hessian_matrix(x, 1.0, none),
            constraints=constraints,
            bounds=optimize.Bounds(limits.low, limits.high) if bounded else None,
            callback=after,
            options={"initial_barrier_parameter": barrier, "initial_barrier_tolerance": barrier}
            | options
            | {"maxiter": total - done},
        )
        done += found.nit
        left = found.get("barrier_parameter", 0.0)
        if stopped or found.status == 4 or left <= tolerance or barrier < tolerance or done >= total:
            break
        start_of_round, barrier = found.x, min(left, barrier) * NEXT_BARRIER
    duals = np.array(found.v[0]) if count else none
    push = np.array(found.v[int(count > 0)]) if bounded else np.zeros(start.x.size)
    small = bool(found.constr_violation <= max(1e-6, 10 * tolerance))
    precise = bool(
        left <= SMALL_BARRIER and found.optimality <= SMALL_SLOPE * (1 + np.max(np.abs(found.grad)))
    )
    success = found.status in (1, 2) and small and precise
    message = "solved" if success else "stopped by the callback" if stopped else str(found.message)
    if found.status in (1, 2) and not success:
        message = (
            "the steps have become too small" if small else "the constraints are infeasible near this point"
        )
    return Found(
        np.array(found.x),
        duals,
        np.maximum(-push, 0),
        np.maximum(push, 0),
        success,
        int(found.status),
        message,
    )
