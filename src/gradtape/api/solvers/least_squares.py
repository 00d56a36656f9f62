"""Least squares of `scipy.optimize` with derivatives: fits of curves, bounds, and losses that are robust against outliers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.solvers.minimize import Problem
from gradtape.api.solvers.optimality import Box, limits
from gradtape.api.solvers.roots import stacked
from gradtape.api.solvers.solution import INTEGERS, Bound, SolverCall, result_of, solver, warn_of
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.functional import jacobian
from gradtape.api.transforms.gradient import grad
from gradtape.trace.patching.opaque import as_numbers, traced_parts
from gradtape.trace.routines.registry import refused

LOSSES: Final[dict[str, Callable[[Any], Any]]] = {
    "linear": lambda z: z,
    "soft_l1": lambda z: 2 * (np.sqrt(1 + z) - 1),
    "huber": lambda z: np.where(z <= 1, z, 2 * np.sqrt(np.where(z <= 1, 1.0, z)) - 1),
    "cauchy": np.log1p,
    "arctan": np.arctan,
}
"""The loss that is summed over the squares of residuals, as SciPy defines it."""


def _finite(bounds: Any) -> Any:
    """Return bounds; None if all are infinite."""
    ends = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds
    known = [
        end
        for end in ends
        if isinstance(end, list | tuple) or issubclass(type(end), int | float | np.ndarray)
    ]
    return None if len(known) == 2 and all(_are_infinite(end) for end in known) else Box(*ends)


def _are_infinite(end: Any) -> bool:
    parts = end if isinstance(end, list | tuple) else [end]
    return all(issubclass(type(part), float | np.ndarray) and np.all(np.isinf(part)) for part in parts)


METHODS: Final = ("trf", "dogbox", "lm")


def _loss(call: SolverCall) -> Callable[[Any], Any]:
    """Return the function of the squares of residuals that is summed.

    Raises
    ------
    UnsupportedFunctionError
        For a function with traced arrays, in a compiled function: the solver would need their numbers.
    """
    loss: Any = call.given["loss"]
    if not callable(loss):
        call.check("loss", tuple(LOSSES))
        return LOSSES[loss]
    if call.is_compiled and any(True for _ in traced_parts(loss)):
        raise refused(
            f"{call.name} with a loss that reads traced arrays",
            "the solver calls it with numbers",
            "write the loss into the residuals: for rho(f**2), return np.sqrt(rho(f**2)) with loss='linear'",
        )
    return lambda z: loss(z)[0]


@solver("least_squares")
def least_squares(call: SolverCall) -> Any:
    """Follow `scipy.optimize.least_squares`."""
    arguments, extra = call.given, call.extra()
    named = arguments.get("kwargs") or {}
    if callable(arguments["callback"]) and call.is_compiled:
        return NotImplemented
    call.check("method", METHODS)
    loss, scale = _loss(call), arguments["f_scale"]

    def residuals(x: Any) -> Any:
        return np.reshape(stacked(arguments["fun"](x, *extra, **named)), -1)

    def cost(x: Any) -> Any:
        return 0.5 * np.sum(scale**2 * loss((residuals(x) / scale) ** 2))

    kept = (
        "method",
        "ftol",
        "xtol",
        "gtol",
        "x_scale",
        "max_nfev",
        "tr_solver",
        "tr_options",
        "verbose",
        "callback",
    )
    options = call.options(*kept) | ({} if callable(arguments["loss"]) else call.options("loss"))

    def solve(functions: list[Bound], bounds: Any, x0: Any, scale: Any) -> Any:
        _, residuals = functions
        more = options | ({"bounds": bounds} if bounds is not None else {})
        slopes = (
            "2-point"
            if arguments["jac_sparsity"] is not None
            else call.derivative("jac", residuals, jacobian)
            if arguments["jac"] != "2-point"
            else residuals.derivative(jacobian)
        )
        more |= {"jac_sparsity": arguments["jac_sparsity"]} if arguments["jac_sparsity"] is not None else {}
        more |= {"loss": as_numbers(arguments["loss"])} if callable(arguments["loss"]) else {}
        solution = call.plain(residuals, x0, jac=slopes, f_scale=float(scale), **more)
        if not solution.success:
            warn_of(call.name, solution.grad, solution.message)
        return solution

    start = call.start()
    solution = fitted(call, cost, residuals, start, _finite(arguments["bounds"]), solve, start, scale)
    x = solution["x"]
    slopes = jacobian(residuals)(x)
    return result_of(solution, x=x, fun=residuals(x), cost=cost(x), jac=slopes, grad=grad(cost)(x))


def fitted(
    call: SolverCall,
    cost: Callable[[Any], Any],
    residuals: Callable[[Any], Any],
    start: Any,
    bounds: Any,
    solve: Callable[..., Any],
    *numbers: Any,
) -> dict[str, Any]:
    """Return what a solver of least squares finds, with derivatives of the minimum.

    Parameters
    ----------
    call : SolverCall
        The call.
    cost, residuals : callable
        ``cost(x)``, which is smallest at the minimum, and ``residuals(x)``.
    start : array_like
        An array of the type of `x`.
    bounds : object
        Bounds in any form that SciPy takes.
    solve : callable
        ``solve((cost, residuals), bounds, *numbers) -> results``, with "x" among them.
    *numbers
        Further arguments that may be traced.
    """
    problem = Problem(call, cost, start, bounds, others=(residuals,))
    _, solution = problem.solved(
        lambda functions, _, bounds, *numbers: solve(functions, bounds, *numbers), *numbers
    )
    return solution


@solver("leastsq")
def leastsq(call: SolverCall) -> Any:
    """Follow `scipy.optimize.leastsq`."""
    arguments, extra = call.given, call.extra()

    def residuals(x: Any) -> Any:
        return np.reshape(stacked(arguments["func"](x, *extra)), -1)

    def cost(x: Any) -> Any:
        return 0.5 * np.sum(residuals(x) ** 2)

    options = call.other_options("func", "x0", "Dfun", "full_output", "col_deriv")

    def solve(functions: list[Bound], bounds: Any, x0: Any) -> Any:
        _, residuals = functions
        slopes = {"Dfun": residuals.derivative(jacobian)}
        x, _, infodict, message, ier = call.plain(residuals, x0, **slopes, **options, full_output=True)
        if ier not in (1, 2, 3, 4):
            warn_of(call.name, infodict["fvec"], message)
        return {"x": x, "ier": ier, "message": message, "infodict": infodict, "nfev": infodict["nfev"]}

    start = np.ravel(call.start())
    solution = fitted(call, cost, residuals, start, None, solve, start)
    x = solution["x"]
    if not arguments["full_output"]:
        return x, solution.get("ier", solution.get("status"))
    slopes = jacobian(residuals)(x)
    infodict = {"nfev": solution["nfev"], **solution.get("infodict", {})} | {"fvec": residuals(x)}
    return x, np.linalg.inv(slopes.T @ slopes), infodict, solution.get("message", ""), solution.get("ier", 0)


@solver("curve_fit")
def curve_fit(call: SolverCall) -> Any:
    """Follow `scipy.optimize.curve_fit`: the parameters, and their covariance."""
    arguments = call.given
    if arguments["nan_policy"] is not None:
        return NotImplemented
    model, points, data, sigma = arguments["f"], arguments["xdata"], arguments["ydata"], arguments["sigma"]
    bounds = _finite(arguments["bounds"])
    start = arguments["p0"]
    if start is None:
        number = len(inspect.signature(model).parameters) - 1
        start = np.ones(number) if bounds is None else _inside(bounds, number)
    start = np.ravel(np.stack(start) if isinstance(start, list | tuple) else start * np.ones(1))
    count = int(np.size(start))

    def residuals(parameters: Any) -> Any:
        misfit = np.reshape(model(points, *[parameters[k] for k in range(count)]) - data, -1)
        if sigma is None:
            return misfit
        return misfit / sigma if np.ndim(sigma) < 2 else np.linalg.solve(np.linalg.cholesky(sigma), misfit)

    def cost(parameters: Any) -> Any:
        return 0.5 * np.sum(residuals(parameters) ** 2)

    named = call.other_options(*[name for name in arguments if name != "kwargs"])
    named = {("max_nfev" if name == "maxfev" else name): item for name, item in named.items()}
    call.check("method", (None, *METHODS))
    method: Any = arguments["method"] or ("lm" if bounds is None else "trf")

    def solve(functions: list[Bound], bounds: Any, p0: Any) -> Any:
        import scipy.optimize  # late: whoever calls it has it

        _, residuals = functions
        more = named | ({"bounds": bounds} if bounds is not None else {})
        slopes = residuals.derivative(jacobian)
        solution = scipy.optimize.least_squares(residuals, p0, jac=slopes, method=method, **more)
        if not solution.success:
            raise RuntimeError(f"Optimal parameters not found: {solution.message}")
        return solution

    solution = fitted(call, cost, residuals, start, bounds, solve, start)
    best = solution["x"]
    slopes = jacobian(residuals)(best)
    covariance = np.linalg.inv(slopes.T @ slopes)
    if not arguments["absolute_sigma"]:
        covariance = covariance * (2 * cost(best) / (slopes.shape[0] - count))
    if not arguments["full_output"]:
        return best, covariance
    infodict = {"nfev": solution["nfev"], "fvec": residuals(best)}
    return best, covariance, infodict, solution.get("message", ""), solution["status"]


def _inside(bounds: Any, count: int) -> Any:
    """Return a point inside bounds, as SciPy chooses it."""
    low, high = [stop_gradient(end) for end in limits(bounds, (count,))]
    both = np.isfinite(low) & np.isfinite(high)
    middle = np.where(both, 0.5 * (np.where(both, low, 0.0) + np.where(both, high, 0.0)), 1.0)
    middle = np.where(np.isfinite(low) & ~both, np.where(np.isfinite(low), low, 0.0) + 1, middle)
    return np.where(np.isfinite(high) & ~both, np.where(np.isfinite(high), high, 0.0) - 1, middle)


# Linear least squares


def _linear_problem(call: SolverCall, a: Any, b: Any, bounds: Any, solve: Callable[..., Any]) -> Any:
    """Return a minimum of ``|a x - b|^2`` with bounds, and the residuals and cost there."""

    def residuals(x: Any) -> Any:
        return np.dot(a, x) - b

    def cost(x: Any) -> Any:
        return 0.5 * np.sum(residuals(x) ** 2)

    start = np.zeros(np.shape(a)[1])
    fields = INTEGERS | {"active_mask": np.zeros(start.shape, int)}
    problem = Problem(call, cost, start, bounds)
    _, solution = problem.solved(lambda _, __, bounds, a, b: solve(bounds, a, b), a, b, fields=fields)
    x = solution["x"]
    return result_of(solution, x=x, fun=residuals(x), cost=cost(x))


@solver("lsq_linear")
def lsq_linear(call: SolverCall) -> Any:
    """Follow `scipy.optimize.lsq_linear` with dense matrices."""
    arguments = call.given
    if hasattr(arguments["A"], "toarray") or not hasattr(arguments["A"] * 1.0, "shape"):
        return NotImplemented
    options = call.other_options("A", "b", "bounds")
    bounds = _finite(arguments["bounds"])

    def solve(bounds: Any, a: Any, b: Any) -> Any:
        solution = call.plain(a, b, **({"bounds": bounds} if bounds is not None else {}), **options)
        if not solution.success:
            warn_of(call.name, solution.optimality, solution.message)
        return solution

    return _linear_problem(call, arguments["A"], arguments["b"], bounds, solve)


@solver("nnls")
def nnls(call: SolverCall) -> Any:
    """Follow `scipy.optimize.nnls`: least squares of numbers that are not negative."""
    options = call.other_options("A", "b")
    matrix, data = [
        item * 1.0 if hasattr(item, "ndim") else np.stack(item) for item in (call.given["A"], call.given["b"])
    ]

    def solve(bounds: Any, a: Any, b: Any) -> Any:
        return {"x": call.plain(a, b, **options)[0]}

    solution = _linear_problem(call, matrix, data, Box(0.0, np.inf), solve)
    return solution.x, np.linalg.norm(solution.fun)


@solver("isotonic_regression")
def isotonic_regression(call: SolverCall) -> Any:
    """Follow `scipy.optimize.isotonic_regression`: what it returns are means of blocks. Compiled functions return `x` only."""
    arguments = call.given
    y = arguments["y"] * 1.0 if hasattr(arguments["y"], "ndim") else np.stack(arguments["y"])
    weights = np.ones(y.shape) if arguments["weights"] is None else arguments["weights"] * np.ones(y.shape)
    options = call.options("increasing")

    def solve(function: Bound, y: Any, weights: Any) -> Any:
        solution = call.plain(y, weights=weights, **options)
        lengths = np.diff(solution.blocks)
        first, last = np.repeat(solution.blocks[:-1], lengths), np.repeat(solution.blocks[1:], lengths)
        solution.update(first=first, last=last)
        return solution

    places = np.zeros(y.shape, int)
    solution = call.on_host(lambda x: x, 0.0, solve, {"first": places, "last": places}, y, weights)
    first, last = [
        stop_gradient(np.asarray(solution.pop(name))) if not call.is_compiled else solution.pop(name)
        for name in ("first", "last")
    ]
    zero = np.zeros(1)
    sums = np.concatenate([zero, np.cumsum(weights * y)])
    counts = np.concatenate([zero, np.cumsum(weights * 1.0)])
    means = (np.take(sums, last) - np.take(sums, first)) / (np.take(counts, last) - np.take(counts, first))
    if "weights" in solution:
        solution["weights"] = np.add.reduceat(weights, solution["blocks"][:-1])
    return result_of(solution, x=means)
