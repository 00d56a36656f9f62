"""Roots of `scipy.optimize` with derivatives: of functions of one variable, and of systems."""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np

from gradtape.api.solvers.implicit import attach_derivative
from gradtape.api.solvers.solution import (
    INTEGERS,
    Bound,
    SolverCall,
    result_of,
    second,
    solver,
    warn_of,
    zeros_like,
)
from gradtape.api.transforms.functional import jacobian
from gradtape.api.transforms.gradient import grad, jvp

REPORT: Final = {"iterations": 0, "function_calls": 0, "converged": True}
"""The further fields of a root of a function of one variable, and their types."""


def _report(solution: dict[str, Any], root: Any, method: str) -> Any:
    """Return the report on a root as SciPy's functions do."""
    optimize: Any = importlib.import_module("scipy.optimize")
    made = optimize.RootResults(root, solution["iterations"], solution["function_calls"], 0, method)
    made.converged = solution["converged"]
    if "flag" in solution:
        made.flag = solution["flag"]
    return made


@solver("brentq", "brenth", "bisect", "ridder", "toms748")
def bracketed(call: SolverCall) -> Any:
    """Follow the functions that find a root between two points."""
    arguments, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return arguments["f"](x, *extra)

    options = call.other_options("f", "a", "b", "full_output")

    def solve(function: Bound, a: Any, b: Any) -> Any:
        _, report = call.plain(lambda x: float(function(x)), a, b, full_output=True, **options)
        if not report.converged:
            warn_of(call.name, function(report.root), str(report.flag))
        return report

    solution = call.on_host(function, 0.0, solve, {"root": 0.0, **REPORT}, arguments["a"], arguments["b"])
    root = attach_derivative(function, solution["root"])
    return (root, _report(solution, root, call.name.rpartition(".")[2])) if arguments["full_output"] else root


@solver("root_scalar")
def root_scalar(call: SolverCall) -> Any:
    """Follow `scipy.optimize.root_scalar`."""
    arguments, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        value = arguments["f"](x, *extra)
        return value[0] if isinstance(value, tuple) else value

    call.method()
    bracket = tuple(arguments["bracket"]) if arguments["bracket"] is not None else ()
    points = {name: arguments[name] for name in ("x0", "x1") if arguments[name] is not None}
    options = call.options("method", "xtol", "rtol", "maxiter", "options")

    def solve(function: Bound, bracket: Any, points: Any) -> Any:
        slopes = {
            name: call.derivative(name, function, transform)
            for name, transform in (("fprime", grad), ("fprime2", second))
            if arguments[name]
        }
        solution = call.plain(
            lambda x: float(function(x)), bracket=bracket or None, **points, **slopes, **options
        )
        if not solution.converged:
            warn_of(call.name, function(solution.root), solution.flag)
        return solution

    solution = call.on_host(function, 0.0, solve, {"root": 0.0, **REPORT}, bracket, points)
    return _report(solution, attach_derivative(function, solution["root"]), arguments["method"] or "")


@solver("newton")
def newton(call: SolverCall) -> Any:
    """Follow `scipy.optimize.newton`: one root, or one for each element of an array."""
    arguments, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return arguments["func"](x, *extra)

    start = arguments["x0"]
    is_vector = np.size(start) > 1
    points = {"x1": arguments["x1"]} if arguments["x1"] is not None else {}
    options = call.other_options("func", "x0", "x1", "fprime", "fprime2", "full_output", "disp")

    def solve(function: Bound, x0: Any, points: Any) -> Any:
        slopes: dict[str, Any] = {}
        if arguments["fprime"] is not None:
            slopes["fprime"] = call.derivative("fprime", function, total_grad)
        if arguments["fprime2"] is not None:
            slopes["fprime2"] = call.derivative("fprime2", function, total_second)
        solution = call.plain(function, x0, **points, **slopes, **options, full_output=True, disp=False)
        if is_vector:
            root, converged, zero = solution
            if not np.all(converged):
                warn_of(call.name, np.asarray(function(root))[~converged], f"{np.sum(~converged)} have not")
            return {"root": root, "converged": converged, "zero_der": zero}
        root, report = solution
        if not report.converged:
            message = f"no convergence after {report.iterations} iterations, value is {root}"
            if arguments["disp"]:
                raise RuntimeError(
                    f"Failed to converge after {report.iterations} iterations, value is {root}."
                )
            warn_of(call.name, function(root), message)
        return dict(report)

    shape = np.shape(start)
    several = {name: np.zeros(shape, bool) for name in ("converged", "zero_der")}
    like = {"root": zeros_like(start), **(several if is_vector else REPORT)}
    solution = call.on_host(function, start, solve, like, start, points)
    root = attach_derivative(function, solution["root"], elementwise=True)
    if not arguments["full_output"]:
        return root
    if not is_vector:
        return root, _report(solution, root, "newton")
    named: Any = importlib.import_module("collections").namedtuple(
        "result", ("root", "converged", "zero_der")
    )
    return named(root, solution["converged"], solution["zero_der"])


def total_grad(function: Any) -> Any:
    """Return the derivatives of a function of numbers that takes arrays, element by element."""

    def slopes(x: Any, *parameters: Any) -> Any:
        return jvp(lambda x: function(x, *parameters), (x,), (zeros_like(x) + 1.0,))[1]

    return slopes


def total_second(function: Any) -> Any:
    """Return the second derivatives of a function of numbers that takes arrays, element by element."""
    return total_grad(total_grad(function))


def stacked(value: Any) -> Any:
    """Return the values of a system as an array: users return lists too."""
    return np.stack(value) if isinstance(value, list | tuple) else value


WITH_JACOBIAN: Final = ("hybr", "lm")
"""The methods of `root` that take a Jacobian."""


@solver("root")
def root(call: SolverCall) -> Any:
    """Follow `scipy.optimize.root`."""
    arguments, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        value = arguments["fun"](x, *extra)
        return stacked(value[0] if arguments["jac"] is True else value)

    start = call.start()
    method = call.method()
    options = call.options("method", "tol", "callback", "options")

    def solve(function: Bound, x0: Any) -> Any:
        takes = (method or "hybr") in WITH_JACOBIAN
        slopes = {"jac": call.derivative("jac", function, jacobian)} if takes else {}
        solution = call.plain(function, x0, **slopes, **options)
        if not solution.success:
            warn_of(call.name, solution.fun, solution.message)
        return solution

    solution = call.on_host(function, start, solve, {"x": start, **INTEGERS}, start)
    x = attach_derivative(function, solution["x"])
    return result_of(solution, x=x, fun=function(x))


@solver("fsolve")
def fsolve(call: SolverCall) -> Any:
    """Follow `scipy.optimize.fsolve`."""
    arguments, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return stacked(arguments["func"](x, *extra))

    start = np.ravel(call.start())
    options = call.other_options("func", "x0", "fprime", "full_output", "col_deriv")

    def solve(function: Bound, x0: Any) -> Any:
        banded = arguments["band"] is not None
        slopes = {} if banded else {"fprime": call.derivative("fprime", function, jacobian)}
        if callable(arguments["fprime"]) and not call.is_compiled:
            slopes["col_deriv"] = arguments["col_deriv"]
        x, infodict, ier, message = call.plain(function, x0, **slopes, **options, full_output=True)
        if ier != 1:
            warn_of(call.name, infodict["fvec"], message)
        return {"x": x, "ier": ier, "message": message, "infodict": infodict, **infodict}

    like = {"x": start, "nfev": 0, "njev": 0, "ier": 0}
    solution = call.on_host(function, start, solve, like, start)
    x = attach_derivative(function, solution["x"])
    if not arguments["full_output"]:
        return x
    infodict = {"nfev": solution["nfev"], "njev": solution.get("njev", 0), **solution.get("infodict", {})}
    return x, infodict | {"fvec": function(x)}, solution["ier"], solution.get("message", "")


@solver("fixed_point")
def fixed_point(call: SolverCall) -> Any:
    """Follow `scipy.optimize.fixed_point`."""
    arguments, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return stacked(arguments["func"](x, *extra))

    call.check("method", ("del2", "iteration"))
    options = call.options("xtol", "maxiter", "method")

    def solve(function: Bound, x0: Any) -> Any:
        return {"x": call.plain(function, x0, **options)}

    start = arguments["x0"]
    solution = call.on_host(function, start, solve, {"x": start * 1.0}, start)
    return attach_derivative(lambda x: function(x) - x, solution["x"])


@solver(
    "anderson",
    "broyden1",
    "broyden2",
    "diagbroyden",
    "excitingmixing",
    "linearmixing",
    "newton_krylov",
)
def quasi_newton(call: SolverCall) -> Any:
    """Follow the functions that find the root of a system without its Jacobian."""
    arguments = call.given

    def function(x: Any) -> Any:
        return stacked(arguments["F"](x))

    start = call.start("xin") if isinstance(arguments["xin"], list | tuple) else arguments["xin"] * 1.0
    options = call.other_options("F", "xin")

    def solve(function: Bound, x0: Any) -> Any:
        return {"x": call.plain(function, x0, **options)}

    solution = call.on_host(function, start, solve, {"x": start}, start)
    return attach_derivative(function, solution["x"])
