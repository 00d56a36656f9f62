"""Integrals and sums of `scipy.integrate` with derivatives."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from gradtape.api.solvers.leibniz import Integrand, Routine, called, componentwise, integrate, is_traced
from gradtape.api.solvers.solution import SolverCall, result_of, solver
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.vmap import vmap
from gradtape.errors import DtypeError, ShapeError
from gradtape.trace.routines.registry import refused
from gradtape.trace.source.sites import user_site

OPTIONS: Final = ["epsabs", "epsrel", "limit", "points", "weight", "wvar", "maxp1", "limlst"]

WEIGHTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "cos": lambda x, wvar: np.cos(wvar * x),
    "sin": lambda x, wvar: np.sin(wvar * x),
    "cauchy": lambda x, wvar: 1.0 / (x - wvar),
}


ALGEBRAIC: Final[dict[Any, dict[str, int]]] = {
    "alg": {"alg": 0},
    "alg-loga": {"alg-loga": 0, "alg": 1},
    "alg-logb": {"alg-logb": 0, "alg": 1},
    "alg-log": {"alg-log": 0, "alg-loga": 1, "alg-logb": 1, "alg": 2},
}
"""The weights that are powers of the distances from the limits: the same on [0, 1], by the power of the logarithm of the width."""


def _routine(
    call: SolverCall,
    run: Callable[..., Any],
    options: Sequence[str],
    others: Mapping[str, Any] = MappingProxyType({}),
    **facts: Any,
) -> Routine:
    """Return a routine with these of the call's arguments as its options, but for others.

    Raises
    ------
    UnsupportedFunctionError
        If one of them is traced: its numbers are not known, or its derivative is not.
    """
    chosen = {**{name: call.given[name] for name in options if name in call.given}, **others}
    for name, option in chosen.items():
        if is_traced(option):
            raise refused(
                f"{call.name} with a traced {name}",
                "the integral is differentiated with respect to its limits and to values that the integrand reads",
                f"pass gt.stop_gradient(...).numpy() or a number, or write {name} into the integrand and the limits",
            )
    return Routine(call.name, run, chosen, **facts)


def _refuse(call: SolverCall, **options: Any) -> None:
    for name, default in options.items():
        if call.given.get(name) is not default and call.given.get(name) != default:
            raise refused(
                f"{call.name} with {name}={call.given[name]!r}",
                "its result has no derivative rule",
                f"leave {name} out, or call it with numbers, outside the differentiated function",
            )


@solver("scipy.integrate.quad")
def quad(call: SolverCall) -> Any:
    """Follow `scipy.integrate.quad`."""
    _refuse(call, full_output=0, wopts=None)
    arguments, extra = call.given, call.extra()

    def function(x: Any) -> Any:
        value = called(arguments["func"], (x, *extra))
        return value if arguments["complex_func"] else _number(value, call)

    limits = arguments["a"], arguments["b"]
    if not arguments["complex_func"]:
        return _weighted(call, function, limits)
    real = _weighted(call, lambda x: np.reshape(np.real(function(x)), ()), limits)
    imaginary = _weighted(call, lambda x: np.reshape(np.imag(function(x)), ()), limits)
    return real[0] + 1j * imaginary[0], real[1] + 1j * imaginary[1]


def _weighted(call: SolverCall, function: Callable[[Any], Any], limits: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the integral of a function times the weight of a call; traced numbers in the weight move to the function and the limits."""
    weight, wvar, points = [call.given[name] for name in ("weight", "wvar", "points")]
    low, high = limits
    if points is not None and is_traced(points):
        return _between(call, function, limits, points)
    if weight == "cauchy" and is_traced(wvar):  # of u = x - wvar
        return _integral(
            call, lambda u: function(u + wvar), (low - wvar, high - wvar), weight=weight, wvar=0.0
        )
    if weight in ("cos", "sin") and is_traced(wvar):  # of u = wvar * x
        ends = _scaled(low, wvar), _scaled(high, wvar)
        value, error = _integral(call, lambda u: function(u / wvar), ends, weight=weight, wvar=1.0)
        return value / wvar, error / np.abs(wvar)
    if weight not in ALGEBRAIC or not is_traced(low, high):
        return _integral(call, function, limits)
    width = high - low  # of u = (x - low) / width
    scale = width ** (1.0 + wvar[0] + wvar[1])
    value = error = 0.0
    for name_of_weight, power in ALGEBRAIC[weight].items():
        part, uncertain = _integral(
            call, lambda u: function(low + width * u), (0.0, 1.0), weight=name_of_weight
        )
        factor = scale * np.log(width) ** power
        value, error = value + factor * part, error + np.abs(factor) * uncertain
    return value, error


def _scaled(limit: Any, factor: Any) -> Any:
    """Return the product of a limit with a factor, of which an infinite one has the sign alone."""
    is_finite = np.isfinite(limit)
    return np.where(is_finite, factor * np.where(is_finite, limit, 0.0), np.sign(factor) * limit)


def _between(
    call: SolverCall, function: Callable[[Any], Any], limits: tuple[Any, Any], points: Any
) -> tuple[Any, Any]:
    """Return the sum of the integrals between traced points, at which a function may jump: each limit is on its side of the point."""
    low, high = limits
    inside = np.clip(np.sort(np.ravel(points)), low, high)
    below, above = [
        inside + (np.nextafter(stop_gradient(inside), end) - stop_gradient(inside)) for end in limits
    ]
    count = range(np.size(inside))
    pairs = zip([low, *[above[k] for k in count]], [*[below[k] for k in count], high], strict=True)
    parts = [_integral(call, function, pair, points=None) for pair in pairs]
    return sum(value for value, _ in parts), sum(error for _, error in parts)


def _integral(
    call: SolverCall, function: Callable[[Any], Any], limits: tuple[Any, Any], **options: Any
) -> tuple[Any, Any]:
    """Return an integral by `quad` with the options of a call, but for some."""
    arguments = call.given | options
    rule = WEIGHTS.get(arguments["weight"])
    facts = {} if rule is None else {"weight": lambda x: rule(x, arguments["wvar"])}
    return integrate(function, limits, _routine(call, _run_quad(call.plain), OPTIONS, options, **facts))


def _number(value: Any, call: SolverCall) -> Any:
    """Return what an integrand has returned, which must be a number.

    Raises
    ------
    ShapeError, DtypeError
        If it is not one, or not a real one.
    """
    if np.size(value) != 1:
        raise ShapeError(
            f"the function given to {call.name} returns an array of shape {np.shape(value)}",
            where=user_site(),
            remedy="return one number, or use scipy.integrate.quad_vec",
        )
    if np.result_type(value).kind == "c":
        raise DtypeError(
            f"the function given to {call.name} returns complex numbers",
            where=user_site(),
            remedy="pass complex_func=True to scipy.integrate.quad, or use scipy.integrate.quad_vec",
        )
    return np.reshape(value, ())


def _run_quad(plain: Callable[..., Any]) -> Callable[..., Any]:
    def run(f: Integrand, a: float, b: float, **options: Any) -> Any:
        return componentwise(lambda part: plain(part, a, b, **options)[:2], f)

    return run


@solver("scipy.integrate.quad_vec")
def quad_vec(call: SolverCall) -> Any:
    """Follow `scipy.integrate.quad_vec`."""
    _refuse(call, full_output=False, workers=1)
    arguments, extra = call.given, call.extra()

    def run(f: Integrand, a: float, b: float, **options: Any) -> Any:
        return call.plain(f, a, b, **options)[:2]

    routine = _routine(call, run, ["epsabs", "epsrel", "norm", "cache_size", "limit", "points", "quadrature"])
    return integrate(lambda x: called(arguments["f"], (x, *extra)), (arguments["a"], arguments["b"]), routine)


@solver("scipy.integrate.nquad")
def nquad(call: SolverCall) -> Any:
    """Follow `scipy.integrate.nquad`: integrals of integrals."""
    _refuse(call, full_output=False)
    options = call.given["opts"]
    ranges = [limits if callable(limits) else _constant(limits) for limits in call.given["ranges"]]
    each = options if isinstance(options, list | tuple) else [options] * len(ranges)
    return _nested(call.given["func"], ranges, call.extra(), each)


@solver("scipy.integrate.dblquad", "scipy.integrate.tplquad")
def multiple(call: SolverCall) -> Any:
    """Follow `scipy.integrate.dblquad` and `scipy.integrate.tplquad`."""
    arguments = call.given

    def between(low: Any, high: Any) -> Callable[..., Any]:
        return lambda *outer: [end(*outer) if callable(end) else end for end in (low, high)]

    def reversed_(low: Any, high: Any) -> Callable[..., Any]:
        inner = between(low, high)
        return lambda y, x: inner(x, y)

    ranges = [_constant((arguments["a"], arguments["b"]))]
    ranges.insert(0, between(arguments["gfun"], arguments["hfun"]))
    if "qfun" in arguments:
        ranges.insert(0, reversed_(arguments["qfun"], arguments["rfun"]))
    options = {"epsabs": arguments["epsabs"], "epsrel": arguments["epsrel"]}
    extra = call.extra()
    return _nested(
        arguments["func"], [_without(len(extra), limits) for limits in ranges], extra, [options] * len(ranges)
    )


def _without(count: int, limits: Callable[..., Any]) -> Callable[..., Any]:
    """Return limits that do not get the further arguments of the integrand."""
    return lambda *arguments: limits(*arguments[: len(arguments) - count])


def _constant(limits: Any) -> Callable[..., Any]:
    return lambda *arguments: limits


def _nested(function: Callable[..., Any], ranges: Sequence[Any], extra: Any, options: Sequence[Any]) -> Any:
    integral: Any = importlib.import_module("scipy.integrate").quad

    def inner(depth: int, *outer: Any) -> tuple[Any, Any]:
        low, high = ranges[depth](*outer)
        chosen = options[depth] or {}
        chosen = dict(chosen(*outer) if callable(chosen) else chosen)
        if depth == 0:
            return integral(function, low, high, args=outer, **chosen)  # type: ignore[no-any-return]
        return integral(lambda x: inner(depth - 1, x, *outer)[0], low, high, **chosen)  # type: ignore[no-any-return]

    return inner(len(ranges) - 1, *extra)


def _elementwise(call: SolverCall, routine: Routine) -> tuple[Any, Any]:
    """Return an integral for each element of limits and further arguments, which are broadcast."""
    arguments = call.given

    def one(a: Any, b: Any, *extra: Any) -> tuple[Any, Any]:
        return integrate(lambda x: _number(called(arguments["f"], (x, *extra)), call), (a, b), routine)

    arrays = [item * 1.0 for item in (arguments["a"], arguments["b"], *call.extra())]
    shape = np.broadcast_shapes(*[np.shape(array) for array in arrays])
    if not shape:
        return one(*arrays)
    flat = [np.reshape(np.broadcast_to(array, shape), -1) for array in arrays]
    value, error = vmap(one)(*flat)
    return np.reshape(value, shape), np.reshape(error, shape)


@solver("scipy.integrate.tanhsinh")
def tanhsinh(call: SolverCall) -> Any:
    """Follow `scipy.integrate.tanhsinh`."""
    _refuse(call, log=False, preserve_shape=False, callback=None)

    def run(f: Integrand, a: float, b: float, **options: Any) -> Any:
        def scalar(part: Callable[[Any], Any]) -> tuple[Any, Any]:
            integral = call.plain(part, a, b, **options)
            return integral.integral, integral.error

        return componentwise(scalar, f, takes_arrays=True)

    routine = _routine(call, run, ["maxlevel", "minlevel", "atol", "rtol"])
    integral, error = _elementwise(call, routine)
    atol, rtol = call.given["atol"] or 0.0, call.given["rtol"]
    rtol = float(np.finfo(float).eps) ** 0.75 if rtol is None else rtol
    converged = (error <= atol) | (error < rtol * np.abs(integral))
    status = np.where(np.isfinite(integral), np.where(converged, 0, -2), -3)
    return result_of({}, integral=integral, error=error, success=status == 0, status=status)


@solver("scipy.integrate.nsum")
def nsum(call: SolverCall) -> Any:
    """Follow `scipy.integrate.nsum`: a sum over integers, whose limits are constants."""
    _refuse(call, log=False)
    arguments = call.given
    if is_traced(arguments["a"], arguments["b"]):
        raise refused(
            f"{call.name} with traced limits",
            "the number of terms is not a smooth function of them",
            "pass numbers: gt.stop_gradient(a).numpy()",
        )

    def run(f: Integrand, a: float, b: float, **options: Any) -> Any:
        def scalar(part: Callable[[Any], Any]) -> tuple[Any, Any]:
            answer = call.plain(part, a, b, **options)
            return answer.sum, answer.error

        return componentwise(scalar, f, takes_arrays=True)

    routine = _routine(call, run, ["step", "maxterms", "tolerances"], has_moving_limits=False)
    total, error = _elementwise(call, routine)
    return result_of(
        {}, sum=total, error=error, success=np.isfinite(error), status=np.where(np.isfinite(error), 0, -2)
    )
