"""The solver where IPOPT is missing: "trust-constr" of SciPy."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.nlp.derivatives import Derivatives, Found, Limits
from gradtape.api.nlp.solution import DIVERGES, NOT_FINITE
from gradtape.errors import ArgumentError
from gradtape.trace.source.sites import user_site

WARM_BARRIER: Final = 1e-6
"""The barrier parameter at a warm start."""

ENDED: Final = (2, 4)
"""SciPy's statuses of a small trust region; the second one says that the constraints are not met to the last digit."""

UNBOUNDED: Final = -1
"""The status where SciPy raises an error: a linear objective without limits."""

LARGE: Final = 1e20
"""Below minus this the objective is taken to have no lower bound, as IPOPT's `diverging_iterates_tol` takes unknowns."""

_UNKNOWN_OPTION: Final = re.compile(r"unexpected keyword argument '(\w+)'")

SMALL_GAP: Final = 1e-5
SMALL_SLOPE: Final = 1e-4
"""Up to which gap, and which slope of the Lagrangian relative to the gradient, a point is a solution."""


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
    tolerance = options["gtol"]
    stopped = solved = False
    last, is_finite = start.x, True

    def objective(x: Any) -> Any:
        nonlocal last, is_finite
        last, (value, sides) = x.copy(), functions.values(x)
        is_finite = bool(np.isfinite(value) and np.isfinite(sides).all())
        return value

    def gap(state: Any) -> float:
        """Return the largest product of a multiplier and the distance to its limit, of which SciPy takes no notice when it ends."""
        ends = [(state.constr[0], limits.lower, limits.upper)] if count else []
        ends += [(state.x, limits.low, limits.high)] if bounded else []
        gaps = [0.0]
        for (values, low, high), push in zip(ends, state.v, strict=True):
            distance = np.where(push < 0, values - low, high - values)
            gaps.append(np.max(np.abs(distance[push != 0] * push[push != 0]), initial=0.0))
        return float(max(gaps))

    def after(_x: Any, state: Any) -> bool:
        nonlocal stopped, solved
        barrier = state.get("barrier_parameter", 0.0)
        stopped = not report(
            state.nit, state.fun, state.constr_violation, state.optimality, barrier, state.tr_radius
        )
        solved = max(state.optimality, state.constr_violation) <= tolerance and gap(state) <= 10 * tolerance
        return stopped or solved

    more = {"initial_barrier_parameter": WARM_BARRIER, "initial_barrier_tolerance": WARM_BARRIER}
    is_warm = any(np.any(each) for each in (start.duals, start.low, start.high))
    try:
        found = optimize.minimize(
            objective,
            start.x,
            method="trust-constr",
            jac=functions.gradient,
            hess=lambda x: functions.hessian_matrix(x, 1.0, none),
            constraints=constraints,
            bounds=optimize.Bounds(limits.low, limits.high) if bounded else None,
            callback=after,
            options=(more if is_warm else {}) | options | {"gtol": 0.0},
        )
    except TypeError as error:
        unknown = _UNKNOWN_OPTION.search(str(error))
        if unknown is None:
            raise
        raise ArgumentError(
            f"gt.nlp: trust-constr has no option {unknown[1]}",
            where=user_site(),
            remedy='see scipy.optimize.show_options("minimize", "trust-constr")',
        ) from None
    except ValueError as error:
        if "Negative curvature" not in str(error):
            raise
        return start._replace(x=last, success=False, status=UNBOUNDED, message=DIVERGES)
    duals = np.array(found.v[0]) if count else none
    push = np.array(found.v[int(count > 0)]) if bounded else np.zeros(start.x.size)
    small = bool(found.constr_violation <= max(1e-6, 10 * tolerance))
    slope = SMALL_SLOPE * (1 + np.max(np.abs(found.grad)))
    precise = bool(gap(found) <= SMALL_GAP * (1 + abs(found.fun)) and found.optimality <= slope)
    success = small and precise and not stopped and (solved or found.status in ENDED)
    if success:
        message = "solved"
    elif stopped:
        message = "stopped by the callback"
    elif not is_finite:
        message = NOT_FINITE
    elif found.fun < -LARGE:
        message = DIVERGES
    elif found.status in ENDED:
        message = (
            "the steps have become too small" if small else "the constraints are infeasible near this point"
        )
    else:
        message = "out of iterations"
    return Found(
        np.array(found.x),
        duals,
        np.maximum(-push, 0),
        np.maximum(push, 0),
        success,
        int(found.status),
        message,
    )
