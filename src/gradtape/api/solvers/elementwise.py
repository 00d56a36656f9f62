"""Roots and minima of functions that work element by element: the private functions with which the distributions of SciPy's new
infrastructure find quantiles and modes, which `scipy.optimize.elementwise` has as well.

SciPy's call the function with the elements that have not converged, and with its parameters for those; here it is called with all.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gradtape.api.solvers.implicit import attach_derivative
from gradtape.api.solvers.solution import Bound, SolverCall, result_of, solver
from gradtape.api.transforms.gradient import jvp

STEPS: Final = 400
"""The largest number of steps: to halve the widest interval of floats takes 1075, and brackets that are searched for are not wide."""


def _shape(*arrays: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*[np.shape(array) for array in arrays])


def _is_bracket(left: Any, right: Any) -> Any:
    return (np.sign(left) != np.sign(right)) | (left == 0) | (right == 0)


def _moved(end: Any, step: Any, limit: Any) -> Any:
    """Return an end of an interval farther out: half the way to a limit, or by a step if there is none."""
    return np.where(
        np.isfinite(limit), end + 0.5 * (np.where(np.isfinite(limit), limit, 0.0) - end), end + step
    )


def bracket(function: Bound, left: Any, right: Any, low: Any, high: Any) -> dict[str, Any]:
    """Return intervals, of numbers, at whose ends a function has opposite signs: wider ones where it does not have them yet."""
    steps = 0
    with np.errstate(all="ignore"):
        while steps < STEPS:
            steps += 1
            at_left, at_right = np.asarray(function(left)), np.asarray(function(right))
            is_bracketed = _is_bracket(at_left, at_right)
            if np.all(is_bracketed):
                break
            width = right - left
            left, right = (
                np.where(is_bracketed, left, _moved(left, -width, low)),
                np.where(is_bracketed, right, _moved(right, width, high)),
            )
    return {
        "xl": left,
        "xr": right,
        "fl": at_left,
        "fr": at_right,
        "success": is_bracketed,
        "nit": np.full(left.shape, steps),
    }


def root_between(function: Bound, a: Any, b: Any) -> dict[str, Any]:
    """Return the roots, as numbers, in intervals at whose ends a function has opposite signs.

    References
    ----------
    T. R. Chandrupatla, "A new hybrid quadratic/bisection algorithm for finding the zero of a nonlinear function without using
    derivatives", 1997.
    """
    with np.errstate(all="ignore"):
        at_a, at_b = np.asarray(function(a)), np.asarray(function(b))
        valid = _is_bracket(at_a, at_b)
        c, at_c, steps = a, at_a, 0
        while True:
            best = np.where(np.abs(at_a) < np.abs(at_b), a, b)
            smallest = (4 * np.finfo(float).eps * np.abs(best) + np.finfo(float).tiny) / np.abs(b - a)
            # an end that is a root stays the one: there may be others between
            done = ~(smallest <= 0.5) | (at_a == 0) | (at_b == 0) | ~valid
            if steps == STEPS or np.all(done):
                break
            xi, phi = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
            near = (phi * phi < xi) & ((1 - phi) * (1 - phi) < 1 - xi)
            quadratic = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            quadratic = quadratic + (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
            share = np.where(near & np.isfinite(quadratic), quadratic, 0.5)
            share = np.clip(share, np.minimum(smallest, 0.5), np.maximum(1 - smallest, 0.5))
            steps += 1
            x = np.where(done, a, a + share * (b - a))
            at_x = np.asarray(function(x))
            same = np.sign(at_x) == np.sign(at_a)
            c, at_c = np.where(same, a, b), np.where(same, at_a, at_b)
            b, at_b = np.where(same | done, b, a), np.where(same | done, at_b, at_a)
            a, at_a = x, np.where(done, at_a, at_x)
    rising = a <= b
    return {
        "x": np.where(valid, best, np.nan),
        "fun": np.where(best == a, at_a, at_b),
        "xl": np.where(rising, a, b),
        "xr": np.where(rising, b, a),
        "fl": np.where(rising, at_a, at_b),
        "fr": np.where(rising, at_b, at_a),
        "success": valid,
        "nit": np.full(a.shape, steps),
    }


def _broadcast(array: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(array * 1.0, shape)


def _types(shape: tuple[int, ...], *names: str) -> dict[str, Any]:
    """Return arrays of the types of the results."""
    floats = {name: np.zeros(shape) for name in names}
    return {**floats, "success": np.zeros(shape, bool), "nit": np.zeros(shape, int)}


def _result(results: dict[str, Any], **fields: Any) -> Any:
    status = np.where(results["success"], 0, -1)
    return result_of(results, **fields, status=status, nfev=results["nit"] + 2)


@solver("scipy.optimize._bracket._bracket_root")
def bracket_root(call: SolverCall) -> Any:
    """Follow the private function: its intervals are constants."""
    arguments, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return arguments["func"](x, *extra)

    left = arguments["xl0"]
    right = left + 1.0 if arguments["xr0"] is None else arguments["xr0"]
    low, high = (
        unbounded if arguments[name] is None else arguments[name]
        for name, unbounded in (("xmin", -np.inf), ("xmax", np.inf))
    )
    shape = _shape(left, right, low, high, *extra)
    points = [
        _broadcast(np.asarray(each) if issubclass(type(each), float | int) else each, shape)
        for each in (left, right, low, high)
    ]
    results = call.on_host(function, np.zeros(shape), bracket, _types(shape, "xl", "xr", "fl", "fr"), *points)
    return _result(results)


@solver("scipy.optimize._chandrupatla._chandrupatla")
def chandrupatla(call: SolverCall) -> Any:
    """Follow the private function."""
    arguments, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return arguments["func"](x, *extra)

    shape = _shape(arguments["a"], arguments["b"], *extra)
    ends = [_broadcast(arguments[name], shape) for name in ("a", "b")]
    names = ("x", "fun", "xl", "xr", "fl", "fr")
    results = call.on_host(function, np.zeros(shape), root_between, _types(shape, *names), *ends)
    return _result(results, x=attach_derivative(function, results["x"], elementwise=True))


def _of_some(function: Bound, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return a function of some elements and their positions, as SciPy's routines call it, and the positions of all."""
    everywhere = np.zeros(shape)

    def some(x: Any, positions: Any) -> Any:
        points = np.zeros((*np.shape(x)[: np.ndim(x) - np.ndim(positions)], everywhere.size))
        points[..., positions] = x
        values = [
            np.asarray(function(point.reshape(shape))).reshape(-1)
            for point in points.reshape(-1, everywhere.size)
        ]
        return np.stack(values).reshape(points.shape)[..., positions]

    return some, np.arange(everywhere.size).reshape(shape)


def _searched(call: SolverCall, points: list[str], results: tuple[str, ...], options: list[str]) -> Any:
    """Return what SciPy's search for minima finds, as numbers, and the function that it is given."""
    arguments, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        return arguments["func"](x, *extra)

    starts = {name: arguments[name] for name in points if arguments[name] is not None}
    shape = _shape(*starts.values(), *extra)
    limits = [
        _broadcast(np.asarray(each) if issubclass(type(each), float | int) else each, shape)
        for each in starts.values()
    ]

    def solve(function: Bound, *limits: Any) -> dict[str, Any]:
        of_positions, positions = _of_some(function, shape)
        search = call.plain(
            of_positions,
            **dict(zip(starts, limits, strict=True)),
            args=(positions,),
            **call.options(*options),
        )
        return {name: search[name] for name in (*results, "success", "nit", "status")}

    types = {**_types(shape, *results), "status": np.zeros(shape, int)}
    found = call.on_host(function, np.zeros(shape), solve, types, *limits)
    return function, found


@solver("scipy.optimize._bracket._bracket_minimum")
def bracket_minimum(call: SolverCall) -> Any:
    """Follow the private function: its intervals are constants."""
    points, results = ["xm0", "xl0", "xr0", "xmin", "xmax"], ("xl", "xm", "xr", "fl", "fm", "fr")
    _, found = _searched(call, points, results, ["factor", "maxiter"])
    return result_of(found, nfev=found["nit"] + 3)


@solver("scipy.optimize._chandrupatla._chandrupatla_minimize")
def chandrupatla_minimize(call: SolverCall) -> Any:
    """Follow the private function: a minimum is where the derivative is zero."""
    results = ("x", "fun", "xl", "xm", "xr", "fl", "fm", "fr")
    function, found = _searched(
        call, ["x1", "x2", "x3"], results, ["xatol", "xrtol", "fatol", "frtol", "maxiter"]
    )

    def slope(x: Any) -> Any:
        return jvp(function, (x,), (np.ones(x.shape),))[1]

    is_finite = np.isfinite(found["x"])
    root = attach_derivative(slope, np.where(is_finite, found["x"], found["xm"]), elementwise=True)
    return result_of(found, x=root * np.where(is_finite, 1.0, np.nan), nfev=found["nit"] + 3)
