"""Linear programs of `scipy.optimize` with derivatives where the basis is regular, and assignments, which are integers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gradtape.api.solvers.minimize import Problem
from gradtape.api.solvers.optimality import Constraint, constraints_of, side_of
from gradtape.api.solvers.solution import Bound, SolverCall, result_of, solver, warn_of
from gradtape.api.transforms.gradient import grad

VERTEX: Final = 1e-8
"""How near to its limit an active constraint of a linear program is."""


def _dense(items: Any) -> Any:
    """Return an array: users give lists of traced numbers, and sparse matrices, too."""
    items = items.toarray() if hasattr(items, "toarray") else items
    if isinstance(items, list | tuple):
        return np.stack([_dense(item) for item in items])
    return items * 1.0 if hasattr(items, "ndim") else np.asarray(items, float)


def _rows(matrix: Any, low: Any, high: Any) -> Constraint:
    return Constraint(lambda x: np.reshape(np.dot(matrix, x), -1), low, high, None)


def _pairs(bounds: Any, count: int) -> Any:
    """Return bounds of `linprog`, one pair for all unknowns or one for each, in a form that all solvers take."""
    if bounds is None:
        bounds = (0, None)
    if hasattr(bounds, "lb") or hasattr(bounds, "ndim"):
        return bounds
    is_one = len(bounds) == 2 and all(end is None or np.ndim(end) == 0 for end in bounds)
    return (
        [tuple(bounds)] * count
        if is_one
        else [tuple(pair) for pair in (bounds * count if len(bounds) == 1 else bounds)]
    )


@solver("linprog")
def linprog(call: SolverCall) -> Any:
    """Follow `scipy.optimize.linprog`: derivatives are those of the vertex, and of the dual solution."""
    arguments = call.given
    if arguments["integrality"] is not None or arguments["x0"] is not None:
        return NotImplemented
    call.method()
    costs = np.ravel(_dense(arguments["c"]))
    count = int(np.size(costs))
    constraints = []
    for matrix, vector in (("A_ub", "b_ub"), ("A_eq", "b_eq")):
        if arguments[matrix] is not None:
            high = np.ravel(_dense(arguments[vector]))
            low = np.full(np.shape(high), -np.inf) if matrix == "A_ub" else high
            constraints.append(_rows(_dense(arguments[matrix]), low, high))
    options = call.options("method", "options", "callback")
    kinds = [name for name in ("ub", "eq") if arguments[f"A_{name}"] is not None]

    def solve(function: Bound, constraints: Any, bounds: Any) -> Any:
        keywords: dict[str, Any] = {}
        for name, constraint in zip(kinds, constraints, strict=True):
            keywords |= {f"A_{name}": constraint.A, f"b_{name}": constraint.ub}
        ends = np.stack([bounds.lb, bounds.ub], 1)
        result = call.plain(function.derivative(grad)(np.zeros(count)), bounds=ends, **keywords, **options)
        if not result.success:
            warn_of(call.name, np.nan, str(result.message))
            return result | {"x": np.full(count, np.nan) if result.x is None else result.x}
        if "lower" in result:
            push = result.lower.marginals + result.upper.marginals
            sides = np.where(
                np.abs(push) > VERTEX * np.max(np.abs(push), initial=0.0),
                side_of(result.x, bounds.lb, bounds.ub),
                0,
            )
            result.update(
                sides=sides, duals=-np.concatenate([result.ineqlin.marginals, result.eqlin.marginals])
            )
        return result

    problem = Problem(
        call, lambda x: np.dot(costs, x), np.zeros(count), _pairs(arguments["bounds"], count), constraints
    )
    problem.near, problem.is_linear = VERTEX, True
    multipliers, result = problem.solved(solve)
    x, first = result["x"], 0
    fields: dict[str, Any] = {}
    for name, residual, report in (("ub", "slack", "ineqlin"), ("eq", "con", "eqlin")):
        gap: Any = np.zeros(0)
        if name in kinds:
            constraint = constraints[kinds.index(name)]
            gap = constraint.high - constraint.function(x)
        last = first + int(np.size(gap))
        fields |= {residual: gap, report: result_of({"residual": gap, "marginals": -multipliers[first:last]})}
        first = last
    return result_of(result, fun=np.dot(costs, x), **fields)


@solver("milp")
def milp(call: SolverCall) -> Any:
    """Follow `scipy.optimize.milp`: the integers are constants."""
    arguments = call.given
    costs = np.ravel(_dense(arguments["c"]))
    constraints = constraints_of(_as_linear(arguments["constraints"]))
    if constraints is None:
        return NotImplemented
    count = int(np.size(costs))
    bounds = arguments["bounds"] if arguments["bounds"] is not None else _pairs(None, count)
    integral = (
        np.zeros(count, bool)
        if arguments["integrality"] is None
        else np.zeros(count) + arguments["integrality"] != 0
    )
    options = call.options("integrality", "options")

    def solve(function: Bound, constraints: Any, bounds: Any) -> Any:
        result = call.plain(
            function.derivative(grad)(np.zeros(count)), constraints=constraints, bounds=bounds, **options
        )
        if not result.success:
            warn_of(call.name, np.nan, str(result.message))
            return result | {"x": np.full(count, np.nan) if result.x is None else result.x}
        return result

    problem = Problem(call, lambda x: np.dot(costs, x), np.zeros(count), bounds, constraints, integral)
    problem.near, problem.is_linear = VERTEX, True
    _, result = problem.solved(solve)
    return result_of(result, fun=np.dot(costs, result["x"]))


def _as_linear(constraints: Any) -> Any:
    """Return the constraints of `milp`, which may be tuples of the arguments of `LinearConstraint`."""
    from scipy.optimize import LinearConstraint  # late: whoever calls it has it

    if constraints is None:
        return []
    if isinstance(constraints, tuple) and not hasattr(constraints[0], "lb"):
        return [LinearConstraint(*constraints)]
    several = constraints if isinstance(constraints, list | tuple) else [constraints]
    return [
        constraint if hasattr(constraint, "lb") else LinearConstraint(*constraint) for constraint in several
    ]
