"""Minima of `scipy.optimize` with derivatives: where the gradient is zero, or a bound is met."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.solvers.implicit import attach_derivative
from gradtape.api.solvers.solution import Bound, SolverCall, result_of, solver, warn_of
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.functional import hessian, jacobian
from gradtape.api.transforms.gradient import grad

WITH_GRADIENT: Final = frozenset(
    {"cg", "bfgs", "newton-cg", "l-bfgs-b", "tnc", "slsqp", "dogleg"}
    | {f"trust-{kind}" for kind in ("ncg", "krylov", "exact", "constr")}
)
WITH_HESSIAN: Final = frozenset(
    {"newton-cg", "dogleg", "trust-ncg", "trust-krylov", "trust-exact", "trust-constr"}
)


def _limits(bounds: Any, like: Any) -> tuple[Any, Any]:
    """Return the bounds as two arrays; None are infinite."""
    if bounds is None:
        return np.full(like.shape, -np.inf), np.full(like.shape, np.inf)
    if hasattr(bounds, "lb"):
        low, high = bounds.lb, bounds.ub
    elif isinstance(bounds, tuple) and len(bounds) == 2 and np.size(bounds[0]) != 2:
        low, high = bounds
    else:
        low = np.array([-np.inf if pair[0] is None else pair[0] for pair in bounds])
        high = np.array([np.inf if pair[1] is None else pair[1] for pair in bounds])
    return low + np.zeros(like.shape), high + np.zeros(like.shape)


def stationarity(function: Callable[[Any], Any], bounds: Any, found: Any) -> Callable[[Any], Any]:
    """Return the equations of a minimum: the gradient is zero, and at active bounds the unknowns are the bounds.

    Parameters
    ----------
    function : callable
        ``function(x)``, a number.
    bounds : sequence, scipy.optimize.Bounds or None
        As `scipy.optimize.minimize` takes them.
    found : array_like
        The minimum, which says which bounds are active.
    """
    slope = grad(function)
    if bounds is None:
        return slope
    low, high = _limits(bounds, found)
    x = stop_gradient(found)
    margin = 1e-9 * (1 + np.abs(x))
    at_low, at_high = x <= stop_gradient(low) + margin, x >= stop_gradient(high) - margin

    def residual(x: Any) -> Any:
        free = np.where(at_low | at_high, 0.0, slope(x))
        floor = np.where(at_low, x - np.where(at_low, low, 0.0), 0.0)
        return free + floor + np.where(at_high & ~at_low, x - np.where(at_high, high, 0.0), 0.0)

    return residual


@solver("scipy.optimize.minimize")
def minimize(call: SolverCall) -> Any:
    """Follow `scipy.optimize.minimize` without constraints other than bounds."""
    given, extra = call.given, call.extra()
    if len(given["constraints"] if isinstance(given["constraints"], list | tuple) else [1]):
        return NotImplemented

    def function(x: Any) -> Any:
        value = given["fun"](x, *extra)
        return np.reshape(value[0] if given["jac"] is True else value, ())

    def followed(x: Any) -> Any:
        return attach_derivative(stationarity(function, given["bounds"], x), x)

    method = given["method"]
    if method is not None and not isinstance(method, str):
        return NotImplemented
    known = (method or ("l-bfgs-b" if given["bounds"] is not None else "bfgs")).lower()
    if not call.is_compiled:
        needed = {"jac": grad(function), "hess": hessian(function)} if known in WITH_HESSIAN else {}
        found = call.numbers(**{name: item for name, item in needed.items() if given[name] is None})
        if not found.success:
            warn_of(call.name, found.get("jac", np.nan), found.message)
        found.x = followed(found.x)
        found.fun = function(found.x)
        return found
    start = given["x0"] * np.ones(1)
    like = np.zeros(np.shape(start))
    limits = () if given["bounds"] is None else _limits(given["bounds"], like)
    plain_options = call.options("method", "tol", "options", "callback")

    def solve(compiled: Bound, x0: Any, *ends: Any) -> tuple[Any, ...]:
        options = dict(plain_options)
        options |= {"bounds": list(zip(*ends, strict=True))} if ends else {}
        options |= {"jac": compiled.derivative(grad)} if known in WITH_GRADIENT else {}
        options |= {"hess": compiled.derivative(hessian)} if known in WITH_HESSIAN else {}
        found = call.plain(lambda x: float(compiled(x)), x0, **options)
        if not found.success:
            warn_of(call.name, found.get("jac", np.nan), found.message)
        return found.x, bool(found.success), found.nit, found.nfev

    x, success, nit, nfev = call.on_host(function, like, solve, [like, True, 0, 0], start, *limits)
    x = followed(x)
    return result_of(x=x, fun=function(x), success=success, nit=nit, nfev=nfev)


@solver("scipy.optimize.minimize_scalar")
def minimize_scalar(call: SolverCall) -> Any:
    """Follow `scipy.optimize.minimize_scalar`."""
    given, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return given["fun"](x, *extra)

    def followed(x: Any) -> Any:
        bounds = None if given["bounds"] is None else [given["bounds"]]
        return attach_derivative(stationarity(function, bounds, x), x)

    if not call.is_compiled:
        found = call.numbers()
        if not found.success:
            warn_of(call.name, np.nan, found.message)
        found.x = followed(found.x)
        found.fun = function(found.x)
        return found
    points = [*(given["bracket"] or ()), *(given["bounds"] or ())]
    count = len(given["bracket"] or ())
    plain_options = call.options("method", "tol", "options")

    def solve(compiled: Bound, *numbers: Any) -> tuple[Any, ...]:
        options = dict(plain_options)
        options |= {"bracket": numbers[:count]} if count else {}
        options |= {"bounds": numbers[count:]} if numbers[count:] else {}
        found = call.plain(lambda x: float(compiled(x)), **options)
        return found.x, bool(found.success), found.nfev

    x, success, nfev = call.on_host(function, 0.0, solve, [0.0, True, 0], *points)
    x = followed(x)
    return result_of(x=x, fun=function(x), success=success, nfev=nfev)


@solver("scipy.optimize.least_squares")
def least_squares(call: SolverCall) -> Any:
    """Follow `scipy.optimize.least_squares` with the linear loss."""
    given, extra = call.given, call.extra()
    named = given.get("kwargs") or {}
    if given.get("loss", "linear") != "linear":
        return NotImplemented

    def residuals(x: Any) -> Any:
        return np.reshape(given["fun"](x, *extra, **named), -1)

    def cost(x: Any) -> Any:
        return 0.5 * np.sum(residuals(x) ** 2)

    bounds = (
        given.get("bounds") if np.any(np.isfinite(_ends(given.get("bounds", (-np.inf, np.inf))))) else None
    )

    def followed(x: Any) -> Any:
        return attach_derivative(stationarity(cost, bounds, x), x)

    if not call.is_compiled:
        found = call.numbers()
        if not found.success:
            warn_of(call.name, found.grad, found.message)
        found.x = followed(found.x)
    else:
        if bounds is not None and not all(isinstance(end, np.ndarray | float | int) for end in _both(bounds)):
            return NotImplemented
        kept = ("bounds", "method", "ftol", "xtol", "gtol", "x_scale", "max_nfev", "tr_solver", "tr_options")
        options = call.options(*kept)

        def solve(compiled: Bound, x0: Any) -> tuple[Any, ...]:
            found = call.plain(compiled, x0, jac=compiled.derivative(jacobian), **options)
            if not found.success:
                warn_of(call.name, found.grad, found.message)
            return found.x, bool(found.success), found.nfev

        start = given["x0"] * np.ones(1)
        like = np.zeros(np.shape(start))
        x, success, nfev = call.on_host(residuals, like, solve, [like, True, 0], start)
        found = result_of(x=followed(x), success=success, nfev=nfev)
    found.fun = residuals(found.x)
    found.cost = 0.5 * np.sum(found.fun**2)
    return found


def _both(bounds: Any) -> tuple[Any, Any]:
    return (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds


def _ends(bounds: Any) -> Any:
    return np.concatenate([np.ravel(np.asarray(stop_gradient(end))) for end in _both(bounds)])


@solver("scipy.optimize.curve_fit")
def curve_fit(call: SolverCall) -> Any:
    """Follow `scipy.optimize.curve_fit` without bounds: the parameters, and their covariance in first order."""
    given = call.given
    if np.any(np.isfinite(_ends(given["bounds"]))) or given["full_output"] or np.ndim(given["sigma"]) > 1:
        return NotImplemented
    model, points, data = given["f"], given["xdata"], given["ydata"]
    weights = 1.0 if given["sigma"] is None else given["sigma"]
    start = given["p0"]
    if start is None:
        start = np.ones(len(inspect.signature(model).parameters) - 1)
    start = start * np.ones(1)
    count = int(np.size(start))

    def residuals(parameters: Any) -> Any:
        return np.reshape((model(points, *[parameters[k] for k in range(count)]) - data) / weights, -1)

    def cost(parameters: Any) -> Any:
        return 0.5 * np.sum(residuals(parameters) ** 2)

    if call.is_compiled:
        optimize: Any = importlib.import_module("scipy.optimize")
        named = call.options("kwargs").get("kwargs", {})
        limits = {name: named[name] for name in ("ftol", "xtol", "gtol") if name in named}

        def solve(compiled: Bound, p0: Any) -> tuple[Any, ...]:
            slopes = compiled.derivative(jacobian)
            found = optimize.least_squares(compiled, p0, jac=slopes, method="lm", **limits)
            if not found.success:
                warn_of(call.name, found.grad, found.message)
            return (found.x,)

        like = np.zeros(np.shape(start))
        (best,) = call.on_host(residuals, like, solve, [like], start)
    else:
        best = call.numbers()[0]
    best = attach_derivative(stationarity(cost, None, best), best)
    slopes = jacobian(residuals)(best)
    covariance = np.linalg.inv(slopes.T @ slopes)
    if not given["absolute_sigma"]:
        covariance = covariance * (2 * cost(best) / (slopes.shape[0] - count))
    return best, covariance
