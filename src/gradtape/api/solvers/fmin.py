"""The older functions of `scipy.optimize` for minima, and searches on grids and of assignments, with derivatives."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gradtape.api.solvers.minimize import Problem
from gradtape.api.solvers.optimality import Box, Constraint
from gradtape.api.solvers.roots import stacked
from gradtape.api.solvers.solution import Bound, SolverCall, product, result_of, solver, warn_of
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.gradient import grad

REPORTS: Final = {
    "fmin": "xfiii",
    "fmin_powell": "xfmiii",
    "fmin_bfgs": "xfgmiii",
    "fmin_cg": "xfiii",
    "fmin_ncg": "xfiiii",
    "fminbound": "xfii",
    "brent": "xfii",
    "golden": "xfi",
}
"""What functions return with ``full_output=True``: x, the minimum (f), the gradient (g), a matrix (m), and integers (i)."""

FLAGGED: Final = frozenset({"fmin", "fmin_powell", "fmin_bfgs", "fmin_cg", "fmin_ncg"})
"""Those whose last integer says whether they have converged."""


@solver(*REPORTS)
def older_minimum(call: SolverCall) -> Any:
    """Follow the functions that minimise without bounds, or in an interval."""
    arguments, extra = call.given, call.extra()
    name = call.name.rpartition(".")[2]
    letters = REPORTS[name]
    objective = arguments["f"] if "f" in arguments else arguments["func"]
    if arguments.get("retall"):
        return NotImplemented
    is_scalar = "x0" not in arguments

    def function(x: Any) -> Any:
        return objective(x, *extra)

    own_options = ("f", "func", "x0", "x1", "x2", "brack", "fprime", "fhess", "fhess_p", "full_output")
    options = call.other_options(*own_options)
    bracket = {"brack": tuple(arguments["brack"])} if arguments.get("brack") is not None else {}

    def solve(function: Bound, constraints: Any, bounds: Any, points: Any) -> Any:
        keywords = options | points | {"full_output": True}
        if name in ("fmin_bfgs", "fmin_cg", "fmin_ncg"):
            keywords["fprime"] = call.derivative("fprime", function, grad)
        if name == "fmin_ncg":
            keywords["fhess_p"] = function.derivative(product)
        result = call.plain(lambda x: float(function(x)), **keywords)
        if name in FLAGGED and result[len(letters) - 1]:
            warn_of(
                call.name, function.derivative(grad)(result[0]), f"warning flag {result[len(letters) - 1]}"
            )
        return {"x": result[0], **{f"{k}": part for k, part in enumerate(result)}}

    start = 0.0 if is_scalar else np.ravel(call.start())
    points = {key: arguments[key] for key in ("x1", "x2") if key in arguments} | bracket
    points |= {} if is_scalar else {"x0": start}
    size = int(np.size(start))
    likes = {"f": 0.0, "g": np.zeros(size), "m": np.zeros((size, size)), "i": 0}
    fields = {f"{k}": likes[letter] for k, letter in enumerate(letters) if letter in "mi"}
    ends = Box(arguments["x1"], arguments["x2"]) if name == "fminbound" else None
    problem = Problem(call, function, start, ends)
    _, result = problem.solved(solve, points, fields=fields)
    x = result["x"]
    if not arguments["full_output"]:
        return x
    derived = {"x": x, "f": problem.function(x)} | (
        {"g": grad(problem.function)(x)} if "g" in letters else {}
    )
    return tuple(
        [derived[letter] if letter in derived else result[f"{k}"] for k, letter in enumerate(letters)]
    )


@solver("fmin_l_bfgs_b", "fmin_tnc")
def older_bounded_minimum(call: SolverCall) -> Any:
    """Follow the functions that minimise with bounds."""
    arguments, extra = call.given, call.extra()
    has_pair = not arguments["approx_grad"] and arguments["fprime"] is None
    is_newton = call.name.endswith("tnc")

    def function(x: Any) -> Any:
        value = arguments["func"](x, *extra)
        return value[0] if has_pair else value

    options = call.other_options("func", "x0", "fprime", "bounds", "approx_grad")

    def solve(function: Bound, constraints: Any, bounds: Any, x0: Any) -> Any:
        keywords = options | (
            {} if bounds is None else {"bounds": list(zip(bounds.lb, bounds.ub, strict=True))}
        )
        slope = function.derivative(grad)
        x, *statistics = call.plain(
            lambda x: float(function(x)), x0, fprime=lambda x: np.asarray(slope(x)), **keywords
        )
        if is_newton:
            if statistics[1] not in (0, 1, 2):
                warn_of(call.name, slope(x), f"return code {statistics[1]}")
            return {"x": x, "nfev": statistics[0], "code": statistics[1]}
        report = statistics[1]
        if report["warnflag"]:
            warn_of(call.name, slope(x), str(report["task"]))
        return {"x": x, "nfev": report["funcalls"], "code": report["warnflag"], "report": report}

    start = np.ravel(call.start())
    problem = Problem(call, function, start, arguments["bounds"])
    _, result = problem.solved(solve, start, fields={"nfev": 0, "code": 0})
    x = result["x"]
    if is_newton:
        return x, result["nfev"], result["code"]
    report = {"funcalls": result["nfev"], "warnflag": result["code"], **result.get("report", {})}
    return x, problem.function(x), report | {"grad": grad(problem.function)(x)}


@solver("fmin_slsqp", "fmin_cobyla")
def older_constrained_minimum(call: SolverCall) -> Any:
    """Follow the functions that minimise with constraints."""
    arguments, extra = call.given, call.extra()
    is_cobyla = call.name.endswith("cobyla")
    if arguments.get("full_output") or arguments.get("callback") is not None:
        return NotImplemented
    consargs = extra if arguments.get("consargs") is None else tuple(arguments["consargs"])

    def constraint(functions: Sequence[Any], high: float) -> Constraint:
        def vector(x: Any) -> Any:
            return np.concatenate(
                [
                    np.reshape(stacked(constraint_function(x, *consargs)), -1)
                    for constraint_function in functions
                ]
            )

        return Constraint(vector, 0.0, high, {"type": "eq" if high == 0.0 else "ineq"})

    if is_cobyla:
        below = arguments["cons"] if isinstance(arguments["cons"], list | tuple) else [arguments["cons"]]
        equal: list[Any] = []
    else:
        below = [arguments["f_ieqcons"]] if arguments["f_ieqcons"] is not None else list(arguments["ieqcons"])
        equal = [arguments["f_eqcons"]] if arguments["f_eqcons"] is not None else list(arguments["eqcons"])
    constraints = [
        constraint(functions, high) for functions, high in ((equal, 0.0), (below, np.inf)) if functions
    ]

    def function(x: Any) -> Any:
        return arguments["func"](x, *extra)

    names = (
        {"rhobeg": "rhobeg", "maxfun": "maxiter", "disp": "disp", "catol": "catol"}
        if is_cobyla
        else {"iter": "maxiter", "acc": "ftol", "disp": "disp"}
    )
    options = {names[name]: item for name, item in call.options(*names).items() if item is not None}
    keywords: dict[str, Any] = {"tol": arguments["rhoend"]} if is_cobyla else {}

    def solve(function: Bound, constraints: Any, bounds: Any, x0: Any) -> Any:
        optimize: Any = importlib.import_module("scipy.optimize")
        slope = {} if is_cobyla else {"jac": function.derivative(grad)}
        method = "COBYLA" if is_cobyla else "SLSQP"
        result = optimize.minimize(
            lambda x: float(function(x)),
            x0,
            method=method,
            constraints=constraints,
            bounds=bounds,
            options=options,
            **slope,
            **keywords,
        )
        if not result.success:
            warn_of(call.name, result.get("maxcv", result.get("jac")), str(result.message))
        return result

    start = np.ravel(call.start())
    problem = Problem(call, function, start, arguments.get("bounds") or None, constraints)
    return problem.solved(solve, start)[1]["x"]


@solver("brute")
def brute(call: SolverCall) -> Any:
    """Follow `scipy.optimize.brute`, whose `finish` leads from the grid to a minimum; a point of the grid is a constant."""
    arguments, extra = call.given, call.extra()
    if arguments["full_output"] or arguments["workers"] != 1:
        return NotImplemented

    def function(x: Any) -> Any:
        return arguments["func"](x, *extra)

    options = call.other_options("func", "full_output")
    count = len(arguments["ranges"])

    def solve(function: Bound, constraints: Any, bounds: Any) -> Any:
        return {"x": np.ravel(call.plain(lambda x: float(np.reshape(function(np.ravel(x)), ())), **options))}

    fixed = np.full(count, arguments["finish"] is None)
    return Problem(call, function, np.zeros(count), None, (), fixed).solved(solve, fields={})[1]["x"]


@solver("quadratic_assignment")
def quadratic_assignment(call: SolverCall) -> Any:
    """Follow `scipy.optimize.quadratic_assignment`: the assignment is an array of integers."""
    first, second = [matrix * 1.0 for matrix in (call.given["A"], call.given["B"])]
    options = call.options("method", "options")

    def solve(function: Bound, first: Any, second: Any) -> Any:
        return call.plain(first, second, **options)

    like = {"col_ind": np.zeros(np.shape(first)[:1], int), "nit": 0}
    result = call.on_host(lambda x: x, 0.0, solve, like, first, second)
    order = stop_gradient(result["col_ind"])
    return result_of(result, fun=np.sum(first * second[order][:, order]))


@solver("rosen_hess_prod")
def rosen_hess_prod(call: SolverCall) -> Any:
    """Follow `scipy.optimize.rosen_hess_prod`, which writes into an array that NumPy makes."""
    optimize: Any = importlib.import_module("scipy.optimize")
    return np.dot(optimize.rosen_hess(call.given["x"]), call.given["p"])
