"""Minima of `scipy.optimize` with derivatives: local and global ones, with bounds and constraints."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.api.solvers.optimality import (
    FOLLOWS,
    NEAR,
    SMALLEST_PUSH,
    Box,
    Constraint,
    Optimum,
    active_set,
    constraints_of,
    is_near,
    limits,
    optimum,
    side_of,
)
from gradtape.api.solvers.solution import (
    INTEGERS,
    Bound,
    SolverCall,
    product,
    result_of,
    solver,
    warn_of,
    weighted_hessian,
)
from gradtape.api.transforms.functional import hessian, jacobian
from gradtape.api.transforms.gradient import grad

WITH_GRADIENT: Final = frozenset(
    {"cg", "bfgs", "newton-cg", "l-bfgs-b", "tnc", "slsqp", "dogleg"}
    | {f"trust-{kind}" for kind in ("ncg", "krylov", "exact", "constr")}
)
WITH_PRODUCTS: Final = frozenset({"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"})
WITH_HESSIAN: Final = frozenset({"dogleg", "trust-exact"})
"""The methods of `minimize` by the derivatives that they take; those with products of Hessians take these rather than the matrices."""


class Problem:
    """A minimisation: the objective and its limits.

    Parameters
    ----------
    call : SolverCall
        The call.
    function : callable
        ``function(x)``, a number.
    start : array_like
        An array of the type of `x`.
    bounds : object
        Bounds in any form that SciPy takes.
    constraints : sequence of Constraint
        The constraints.
    fixed : array of bool, optional
        Which unknowns have no derivative: integers.
    others : sequence of callable
        Further functions of `x` that the solver needs: it gets a list of the functions then.
    """

    def __init__(
        self,
        call: SolverCall,
        function: Callable[[Any], Any],
        start: Any,
        bounds: Any = None,
        constraints: Sequence[Constraint] = (),
        fixed: Any = None,
        others: Sequence[Callable[[Any], Any]] = (),
    ) -> None:
        self.call, self.constraints, self.start = call, list(constraints), start
        self._function = function
        self.bounds = None if bounds is None else limits(bounds, np.shape(start))
        self.fixed, self.others = fixed, list(others)
        self.near = NEAR
        self.is_linear = False
        self.takes_hessians = False

    def function(self, x: Any) -> Any:
        """Return the objective as a number."""
        return np.reshape(self._function(x), ())

    def solved(
        self, solve: Callable[..., Any], *numbers: Any, fields: dict[str, Any] = INTEGERS
    ) -> tuple[Any, dict[str, Any]]:
        """Return the minimum with its derivatives, and all that was found.

        Parameters
        ----------
        solve : callable
            ``solve(function, constraints, bounds, *numbers) -> results``, with "x" among them: `constraints` are as the caller gave them,
            with compiled functions, and `bounds` is a `scipy.optimize.Bounds` or None.
        *numbers
            Further arguments that may be traced.
        fields : dict
            What is returned besides, and its types.
        """
        self.constraints = [constraint.full(self.start) for constraint in self.constraints]
        ends = [(constraint.low, constraint.high) for constraint in self.constraints]
        total = sum(int(np.size(low)) for low, _ in ends)
        like_x = np.zeros(np.shape(self.start))
        bounds = () if self.bounds is None else self.bounds

        def run(functions: list[Bound], ends: Any, bounds: Any, *numbers: Any) -> Any:
            function, *others = functions[: len(functions) - len(self.others)]
            optimize: Any = importlib.import_module("scipy.optimize")
            rebuilt = [
                _with_functions(constraint.given, other, low, high, like_x, self.takes_hessians)
                for constraint, other, (low, high) in zip(self.constraints, others, ends, strict=True)
            ]
            with_constraints = [function, *functions[1 + len(others) :]] if self.others else function
            solution = solve(
                with_constraints, rebuilt, optimize.Bounds(*bounds) if bounds else None, *numbers
            )
            active = self._active(function, others, ends, bounds, np.asarray(solution["x"], float))
            if "duals" in solution:  # the solver knows what pushes
                equal = np.concatenate([low == high for low, high in ends] or [np.zeros(0, bool)])
                active["active"] = np.where(equal | _is_a_push(solution["duals"]), 1, 0)
            for name, numbers in active.items():
                if name == "x" or name not in solution:
                    solution[name] = numbers
            return solution

        like = {
            "x": like_x,
            "sides": np.zeros(like_x.shape, int),
            "duals": np.zeros(total),
            "active": np.zeros(total, int),
        }
        functions = [self.function, *[constraint.function for constraint in self.constraints], *self.others]
        solution = self.call.on_host(functions, self.start, run, like | fields, ends, bounds, *numbers)
        best = Optimum(*[solution.pop(name) for name in Optimum._fields])
        x, multipliers = optimum(best, self.function, self.constraints, self.bounds)
        solution["x"] = x
        return multipliers, solution

    def _active(self, function: Bound, others: list[Bound], ends: Any, bounds: Any, x: Any) -> dict[str, Any]:
        """Return the active bounds and constraints at a minimum, as numbers: the fields of `Optimum` that are not known."""
        sides = side_of(x, *bounds) if bounds else np.zeros(x.shape, int)
        if self.fixed is not None:
            sides = np.where(self.fixed, 2, sides)
        beside = (
            is_near(x, bounds[0], bounds[1], self.near) & (sides == 0) if bounds else np.zeros(x.shape, bool)
        )
        report = {"x": x, "sides": sides, "duals": np.zeros(0), "active": np.zeros(0, int)}
        if not others and not beside.any():
            return report
        points = [np.asarray(function_of_x(x)) for function_of_x in others]
        slopes = [np.reshape(function_of_x.derivative(jacobian)(x), (-1, x.size)) for function_of_x in others]
        parts = np.cumsum([len(function_of_x) for function_of_x in points])
        limits = list(ends)
        margins = [self.near * (1 + np.abs(function_of_x)) for function_of_x in points]
        if beside.any():  # a method that stops before a bound: it may be a constraint that is active
            points.append(x[beside])
            slopes.append(np.eye(x.size)[beside.ravel()])
            limits.append((bounds[0][beside], bounds[1][beside]))
            margins.append(np.full(np.count_nonzero(beside), np.inf))

        def curvature(direction: Any, multipliers: Any) -> float:
            if self.is_linear:
                return 0.0
            total = direction @ np.ravel(function.derivative(product)(x, np.reshape(direction, x.shape)))
            for function_of_x, weights in zip(others, np.split(multipliers, parts), strict=False):
                if weights.any():
                    matrix = np.reshape(
                        function_of_x.derivative(weighted_hessian)(x, weights), (x.size, x.size)
                    )
                    total += direction @ matrix @ direction
            return float(total)

        multipliers, active = active_set(
            x.ravel(),
            sides.ravel(),
            np.ravel(function.derivative(grad)(x)),
            np.concatenate(points),
            np.concatenate(slopes),
            np.concatenate([low for low, _ in limits]),
            np.concatenate([high for _, high in limits]),
            np.concatenate(margins),
            curvature,
        )
        count = len(active) - np.count_nonzero(beside)
        sides = np.array(sides)
        sides[beside] = np.where(active[count:] == FOLLOWS, 0, active[count:])
        return report | {"sides": sides, "duals": multipliers[:count], "active": active[:count]}


def _is_a_push(multipliers: Any) -> Any:
    """Return which multipliers are not zero, against the largest one."""
    return np.abs(multipliers) > SMALLEST_PUSH * np.max(np.abs(multipliers), initial=0.0)


def _with_functions(
    constraint: Any, function: Bound, low: Any, high: Any, like: Any, takes_hessian: bool
) -> Any:
    """Return a constraint as the caller gave it, with numbers and compiled functions, of arrays as `like`."""
    optimize: Any = importlib.import_module("scipy.optimize")
    slopes = function.derivative(jacobian)
    if isinstance(constraint, dict) and not takes_hessian:
        return {"type": constraint["type"], "fun": function, "jac": slopes}
    keep = getattr(constraint, "keep_feasible", False)
    if constraint is None or hasattr(constraint, "A"):
        return optimize.LinearConstraint(slopes(like), low, high, keep)
    second_order = (
        {"hess": function.derivative(weighted_hessian), "keep_feasible": keep} if takes_hessian else {}
    )
    return optimize.NonlinearConstraint(function, low, high, slopes, **second_order)


def _differentiable_result(problem: Problem, solution: dict[str, Any]) -> Any:
    """Return a result whose minimum and gradient have derivatives too."""
    function, x = problem.function, solution["x"]
    return result_of(solution, fun=function(x), jac=grad(function)(x))


@solver("minimize")
def minimize(call: SolverCall) -> Any:
    """Follow `scipy.optimize.minimize`."""
    arguments, extra = call.given, call.extra()
    constraints = constraints_of(arguments["constraints"])
    method = arguments["method"]
    if constraints is None or (method is not None and not isinstance(method, str)):
        return NotImplemented
    default = "slsqp" if constraints else "l-bfgs-b" if arguments["bounds"] is not None else "bfgs"
    method_name = call.method() or default

    def function(x: Any) -> Any:
        value = arguments["fun"](x, *extra)
        return value[0] if arguments["jac"] is True else value

    options = call.options("method", "tol", "options", "callback")

    def solve(function: Bound, constraints: Any, bounds: Any, x0: Any) -> Any:
        keywords = dict(options)
        keywords |= {"bounds": bounds} if bounds is not None else {}
        keywords |= {"constraints": constraints} if constraints else {}
        keywords |= {"jac": call.derivative("jac", function, grad)} if method_name in WITH_GRADIENT else {}
        if method_name in WITH_HESSIAN or (method_name in WITH_PRODUCTS and arguments["hess"] is not None):
            keywords |= {"hess": call.derivative("hess", function, hessian)}
        elif method_name in WITH_PRODUCTS:
            keywords |= {"hessp": call.derivative("hessp", function, product)}
        solution = call.plain(lambda x: float(function(x)), x0, **keywords)
        if not solution.success:
            residual = solution.get("constr_violation", solution.get("maxcv"))
            warn_of(
                call.name,
                solution.get("jac", residual) if residual is None else residual,
                str(solution.message),
            )
        elif np.isnan(np.asarray(solution.get("grad", solution.get("jac", 0.0)), float)).any():
            warn_of(call.name, np.nan, "the gradient is NaN there, which the method treats as zero")
        return solution

    start = call.start()
    problem = Problem(call, function, start, arguments["bounds"], constraints)
    problem.takes_hessians = method_name == "trust-constr"
    _, solution = problem.solved(solve, start)
    return _differentiable_result(problem, solution)


@solver("minimize_scalar")
def minimize_scalar(call: SolverCall) -> Any:
    """Follow `scipy.optimize.minimize_scalar`."""
    arguments, extra = call.given, call.extra()
    if callable(arguments["method"]):
        return NotImplemented
    call.method()

    def function(x: Any) -> Any:
        return arguments["fun"](x, *extra)

    options = call.options("method", "tol", "options")
    bracket = tuple(arguments["bracket"] or ())

    def solve(function: Bound, constraints: Any, bounds: Any, bracket: Any) -> Any:
        keywords = dict(options)
        keywords |= {"bracket": bracket} if bracket else {}
        keywords |= {"bounds": (float(bounds.lb[0]), float(bounds.ub[0]))} if bounds is not None else {}
        solution = call.plain(lambda x: float(function(x)), **keywords)
        if not solution.success:
            warn_of(call.name, function.derivative(grad)(solution.x), solution.message)
        return solution

    problem = Problem(call, function, 0.0, None if arguments["bounds"] is None else Box(*arguments["bounds"]))
    _, solution = problem.solved(solve, bracket)
    return result_of(solution, fun=problem.function(solution["x"]))


GLOBAL: Final = ("differential_evolution", "dual_annealing", "shgo", "direct", "basinhopping")


@solver(*GLOBAL)
def global_minimum(call: SolverCall) -> Any:
    """Follow the functions that look for the lowest of all minima: derivatives are those of the minimum that was found."""
    arguments, extra = call.given, call.extra()
    constraints = constraints_of(arguments.get("constraints") or ())
    local = dict(arguments.get("minimizer_kwargs") or {})
    if constraints is None or arguments.get("vectorized") or arguments.get("workers", 1) != 1:
        return NotImplemented
    if call.name.endswith("basinhopping"):
        extra = tuple(local.pop("args", ()))
        bounds = local.pop("bounds", None)
        if local.keys() & {"constraints", "jac", "hess", "hessp"}:
            return NotImplemented
    else:
        bounds = arguments["bounds"]
    start = arguments.get("x0")
    if start is None:
        start = np.zeros(np.shape(bounds.lb) if hasattr(bounds, "lb") else len(bounds))
    begin = {"x0": start} if arguments.get("x0") is not None else {}

    def function(x: Any) -> Any:
        return arguments["func"](x, *extra)

    options = call.other_options("func", "bounds", "constraints", "x0", "minimizer_kwargs")

    def solve(function: Bound, constraints: Any, bounds: Any, begin: Any) -> Any:
        keywords = options | begin
        inner = dict(local)
        if call.name.endswith("basinhopping"):
            inner |= {"bounds": bounds} if bounds is not None else {}
            inner |= {"jac": function.derivative(grad)}
        else:
            keywords |= {"bounds": bounds}
        keywords |= {"minimizer_kwargs": inner} if inner else {}
        keywords |= {"constraints": constraints} if constraints else {}
        solution = call.plain(lambda x: float(function(x)), **keywords)
        if not solution.success:
            warn_of(call.name, function.derivative(grad)(solution.x), str(solution.message))
        return solution

    fixed = arguments.get("integrality")
    problem = Problem(
        call, function, start, bounds, constraints, None if fixed is None else np.asarray(fixed, bool)
    )
    _, solution = problem.solved(solve, begin)
    return result_of(solution, fun=problem.function(solution["x"]))
