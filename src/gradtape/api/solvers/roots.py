"""Roots of `scipy.optimize` with derivatives: of functions of one variable, and of systems."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.solvers.implicit import attach_derivative
from gradtape.api.solvers.solution import Bound, SolverCall, result_of, solver, warn_of
from gradtape.api.transforms.functional import jacobian
from gradtape.api.transforms.gradient import grad

BRACKETING = "brentq brenth bisect ridder toms748"


@solver(*[f"scipy.optimize.{name}" for name in BRACKETING.split()])
def bracketed(call: SolverCall) -> Any:
    """Follow the functions that find a root between two points."""
    given, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return given["f"](x, *extra)

    if not call.is_compiled:
        found = call.numbers()
        if given["full_output"]:
            root, report = found
            report.root = attach_derivative(function, root)
            return report.root, report
        return attach_derivative(function, found)
    if given["full_output"]:
        return NotImplemented
    options = call.options(*[name for name in given if name not in ("f", "a", "b", "args")])

    def solve(compiled: Bound, a: Any, b: Any) -> tuple[Any, ...]:
        return (call.plain(compiled, a, b, **options),)

    (root,) = call.on_host(function, 0.0, solve, [0.0], given["a"], given["b"])
    return attach_derivative(function, root)


@solver("scipy.optimize.root_scalar")
def root_scalar(call: SolverCall) -> Any:
    """Follow `scipy.optimize.root_scalar`."""
    given, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        value = given["f"](x, *extra)
        return value[0] if isinstance(value, tuple) else value

    if not call.is_compiled:
        found = call.numbers()
        if not found.converged:
            warn_of(call.name, function(found.root), found.flag)
        found.root = attach_derivative(function, found.root)
        return found
    if given["fprime"] is True or (given["bracket"] is None and given["x0"] is None):
        return NotImplemented
    points = [point for point in (*(given["bracket"] or ()), given["x0"], given["x1"]) if point is not None]
    count = len(given["bracket"] or ())
    options = call.options("method", "xtol", "rtol", "maxiter", "options")

    def solve(compiled: Bound, *numbers: Any) -> tuple[Any, ...]:
        starts = dict(zip(("x0", "x1"), numbers[count:], strict=False))
        slopes = {"fprime": compiled.derivative(grad)} if given["fprime"] is not None else {}
        slopes |= (
            {"fprime2": compiled.derivative(lambda f: grad(grad(f)))} if given["fprime2"] is not None else {}
        )
        found = call.plain(compiled, bracket=numbers[:count] or None, **starts, **slopes, **options)
        if not found.converged:
            warn_of(call.name, compiled(found.root), found.flag)
        return found.root, bool(found.converged), found.iterations, found.function_calls

    root, converged, iterations, calls = call.on_host(function, 0.0, solve, [0.0, True, 0, 0], *points)
    return result_of(
        root=attach_derivative(function, root),
        converged=converged,
        iterations=iterations,
        function_calls=calls,
    )


@solver("scipy.optimize.root")
def root(call: SolverCall) -> Any:
    """Follow `scipy.optimize.root`."""
    given, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        value = given["fun"](x, *extra)
        value = value[0] if given["jac"] is True else value
        return np.stack(value) if isinstance(value, list | tuple) else value

    if not call.is_compiled:
        found = call.numbers()
        if not found.success:
            warn_of(call.name, found.fun, found.message)
        found.x = attach_derivative(function, found.x)
        return found
    start = given["x0"] * np.ones(1)
    options = call.options("method", "tol", "options")

    def solve(compiled: Bound, x0: Any) -> tuple[Any, ...]:
        slopes = {"jac": compiled.derivative(jacobian)} if given["method"] in ("hybr", "lm") else {}
        found = call.plain(compiled, x0, **slopes, **options)
        if not found.success:
            warn_of(call.name, found.fun, found.message)
        return found.x, found.fun, bool(found.success)

    like = np.zeros(start.shape)
    x, fun, success = call.on_host(function, like, solve, [like, like, True], start)
    return result_of(x=attach_derivative(function, x), fun=fun, success=success)


@solver("scipy.optimize.fsolve", "scipy.optimize.fixed_point")
def vector_root(call: SolverCall) -> Any:
    """Follow `scipy.optimize.fsolve` and `scipy.optimize.fixed_point`."""
    given, extra = call.given, call.extra()
    is_fixed_point = call.name.endswith("fixed_point")

    def function(x: Any) -> Any:
        value = given["func"](x, *extra)
        return np.stack(value) if isinstance(value, list | tuple) else value

    def residual(x: Any) -> Any:
        return function(x) - x if is_fixed_point else function(x)

    if given.get("full_output"):
        return NotImplemented
    if not call.is_compiled:
        return attach_derivative(residual, call.numbers())
    skipped = ("func", "x0", "args", "fprime", "full_output")
    options = call.options(*[name for name in given if name not in skipped])

    def solve(compiled: Bound, x0: Any) -> tuple[Any, ...]:
        return (call.plain(compiled, x0, **options),)

    start = given["x0"] if is_fixed_point else given["x0"] * np.ones(1)
    like = np.zeros(np.shape(start))
    (found,) = call.on_host(function, like, solve, [like], start)
    return attach_derivative(residual, found)
