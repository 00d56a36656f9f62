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
"""What is said of a root of a function of one variable besides, and its types."""


def _report(found: dict[str, Any], root: Any, method: str) -> Any:
    """Return the report on a root as SciPy's functions do."""
    optimize: Any = importlib.import_module("scipy.optimize")
    made = optimize.RootResults(root, found["iterations"], found["function_calls"], 0, method)
    made.converged = found["converged"]
    if "flag" in found:
        made.flag = found["flag"]
    return made


@solver("brentq", "brenth", "bisect", "ridder", "toms748")
def bracketed(call: SolverCall) -> Any:
    """Follow the functions that find a root between two points."""
    given, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return given["f"](x, *extra)

    options = call.other_options("f", "a", "b", "full_output")

    def solve(function: Bound, a: Any, b: Any) -> Any:
        _, report = call.plain(lambda x: float(function(x)), a, b, full_output=True, **options)
        if not report.converged:
            warn_of(call.name, function(report.root), str(report.flag))
        return report

    found = call.on_host(function, 0.0, solve, {"root": 0.0, **REPORT}, given["a"], given["b"])
    root = attach_derivative(function, found["root"])
    return (root, _report(found, root, call.name.rpartition(".")[2])) if given["full_output"] else root


@solver("root_scalar")
def root_scalar(call: SolverCall) -> Any:
    """Follow `scipy.optimize.root_scalar`."""
    given, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        value = given["f"](x, *extra)
        return value[0] if isinstance(value, tuple) else value

    call.method()
    bracket = tuple(given["bracket"]) if given["bracket"] is not None else ()
    points = {name: given[name] for name in ("x0", "x1") if given[name] is not None}
    options = call.options("method", "xtol", "rtol", "maxiter", "options")

    def solve(function: Bound, bracket: Any, points: Any) -> Any:
        slopes = {
            name: call.derivative(name, function, transform)
            for name, transform in (("fprime", grad), ("fprime2", second))
            if given[name]
        }
        found = call.plain(
            lambda x: float(function(x)), bracket=bracket or None, **points, **slopes, **options
        )
        if not found.converged:
            warn_of(call.name, function(found.root), found.flag)
        return found

    found = call.on_host(function, 0.0, solve, {"root": 0.0, **REPORT}, bracket, points)
    return _report(found, attach_derivative(function, found["root"]), given["method"] or "")


@solver("newton")
def newton(call: SolverCall) -> Any:
    """Follow `scipy.optimize.newton`: one root, or one for each element of an array."""
    given, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return given["func"](x, *extra)

    start = given["x0"]
    is_vector = np.size(start) > 1
    points = {"x1": given["x1"]} if given["x1"] is not None else {}
    options = call.other_options("func", "x0", "x1", "fprime", "fprime2", "full_output", "disp")

    def solve(function: Bound, x0: Any, points: Any) -> Any:
        slopes: dict[str, Any] = {}
        if given["fprime"] is not None:
            slopes["fprime"] = call.derivative("fprime", function, total_grad)
        if given["fprime2"] is not None:
            slopes["fprime2"] = call.derivative("fprime2", function, total_second)
        found = call.plain(function, x0, **points, **slopes, **options, full_output=True, disp=False)
        if is_vector:
            root, converged, zero = found
            if not np.all(converged):
                warn_of(call.name, np.asarray(function(root))[~converged], f"{np.sum(~converged)} have not")
            return {"root": root, "converged": converged, "zero_der": zero}
        root, report = found
        if not report.converged:
            message = f"no convergence after {report.iterations} iterations, value is {root}"
            if given["disp"]:
                raise RuntimeError(
                    f"Failed to converge after {report.iterations} iterations, value is {root}."
                )
            warn_of(call.name, function(root), message)
        return dict(report)

    shape = np.shape(start)
    several = {name: np.zeros(shape, bool) for name in ("converged", "zero_der")}
    like = {"root": zeros_like(start), **(several if is_vector else REPORT)}
    found = call.on_host(function, start, solve, like, start, points)
    root = attach_derivative(function, found["root"], elementwise=True)
    if not given["full_output"]:
        return root
    if not is_vector:
        return root, _report(found, root, "newton")
    named: Any = importlib.import_module("collections").namedtuple(
        "result", ("root", "converged", "zero_der")
    )
    return named(root, found["converged"], found["zero_der"])


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
    given, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        value = given["fun"](x, *extra)
        return stacked(value[0] if given["jac"] is True else value)

    start = call.start()
    method = call.method()
    options = call.options("method", "tol", "callback", "options")

    def solve(function: Bound, x0: Any) -> Any:
        takes = (method or "hybr") in WITH_JACOBIAN
        slopes = {"jac": call.derivative("jac", function, jacobian)} if takes else {}
        found = call.plain(function, x0, **slopes, **options)
        if not found.success:
            warn_of(call.name, found.fun, found.message)
        return found

    found = call.on_host(function, start, solve, {"x": start, **INTEGERS}, start)
    x = attach_derivative(function, found["x"])
    return result_of(found, x=x, fun=function(x))


@solver("fsolve")
def fsolve(call: SolverCall) -> Any:
    """Follow `scipy.optimize.fsolve`."""
    given, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return stacked(given["func"](x, *extra))

    start = np.ravel(call.start())
    options = call.other_options("func", "x0", "fprime", "full_output", "col_deriv")

    def solve(function: Bound, x0: Any) -> Any:
        banded = given["band"] is not None
        slopes = {} if banded else {"fprime": call.derivative("fprime", function, jacobian)}
        if callable(given["fprime"]) and not call.is_compiled:
            slopes["col_deriv"] = given["col_deriv"]
        x, infodict, ier, message = call.plain(function, x0, **slopes, **options, full_output=True)
        if ier != 1:
            warn_of(call.name, infodict["fvec"], message)
        return {"x": x, "ier": ier, "message": message, "infodict": infodict, **infodict}

    like = {"x": start, "nfev": 0, "njev": 0, "ier": 0}
    found = call.on_host(function, start, solve, like, start)
    x = attach_derivative(function, found["x"])
    if not given["full_output"]:
        return x
    infodict = {"nfev": found["nfev"], "njev": found.get("njev", 0), **found.get("infodict", {})}
    return x, infodict | {"fvec": function(x)}, found["ier"], found.get("message", "")


@solver("fixed_point")
def fixed_point(call: SolverCall) -> Any:
    """Follow `scipy.optimize.fixed_point`."""
    given, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return stacked(given["func"](x, *extra))

    call.check("method", ("del2", "iteration"))
    options = call.options("xtol", "maxiter", "method")

    def solve(function: Bound, x0: Any) -> Any:
        return {"x": call.plain(function, x0, **options)}

    start = given["x0"]
    found = call.on_host(function, start, solve, {"x": start * 1.0}, start)
    return attach_derivative(lambda x: function(x) - x, found["x"])


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
    given = call.given

    def function(x: Any) -> Any:
        return stacked(given["F"](x))

    start = call.start("xin") if isinstance(given["xin"], list | tuple) else given["xin"] * 1.0
    options = call.other_options("F", "xin")

    def solve(function: Bound, x0: Any) -> Any:
        return {"x": call.plain(function, x0, **options)}

    found = call.on_host(function, start, solve, {"x": start}, start)
    return attach_derivative(function, found["x"])
