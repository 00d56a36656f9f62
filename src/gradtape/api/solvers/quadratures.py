"""Integrals and sums of `scipy.integrate` with derivatives."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.api.solvers.leibniz import Integrand, Routine, called, componentwise, integrate, is_traced
from gradtape.api.solvers.solution import SolverCall, result_of, solver
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


def _routine(call: SolverCall, run: Callable[..., Any], options: Sequence[str], **facts: Any) -> Routine:
    """Return a routine with these of the call's arguments as its options.

    Raises
    ------
    UnsupportedFunctionError
        If one of them is traced: its numbers are not known, or its derivative is not.
    """
    chosen = {name: call.given[name] for name in options if name in call.given}
    for name, option in chosen.items():
        if is_traced(option):
            raise refused(
                f"{call.name} with a traced {name}",
                "the integral is differentiated in its limits, and in what the integrand reads",
                f"pass gt.stop_gradient(...).numpy() or a number, or write {name} into the integrand and the limits",
            )
    return Routine(call.name, run, chosen, **facts)


def _refuse(call: SolverCall, **options: Any) -> None:
    for name, default in options.items():
        if call.given.get(name) is not default and call.given.get(name) != default:
            raise refused(
                f"{call.name} with {name}={call.given[name]!r}",
                "its result has no derivative rule",
                f"leave {name} out, or call it with numbers, outside of the differentiated function",
            )


@solver("scipy.integrate.quad")
def quad(call: SolverCall) -> Any:
    """Follow `scipy.integrate.quad`."""
    _refuse(call, full_output=0, wopts=None, complex_func=False)
    given, extra = call.given, call.extra()
    weight = given["weight"]
    if weight is not None and weight not in WEIGHTS and is_traced(given["a"], given["b"]):
        raise refused(
            f"{call.name} with weight={weight!r} and traced limits",
            "the weight depends on the limits",
            "write the weight into the integrand",
        )
    rule = WEIGHTS.get(weight)
    facts = {} if rule is None else {"weight": lambda x: rule(x, given["wvar"])}
    routine = _routine(call, _run_quad(call.plain), OPTIONS, **facts)
    return integrate(lambda x: _number(given["func"], (x, *extra), call), (given["a"], given["b"]), routine)


def _number(function: Callable[..., Any], args: tuple[Any, ...], call: SolverCall) -> Any:
    """Return what an integrand returns, which must be a number.

    Raises
    ------
    ShapeError, DtypeError
        If it is not one, or not a real one.
    """
    value = called(function, args)
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
            remedy="integrate the real and the imaginary part, or use scipy.integrate.quad_vec",
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
    given, extra = call.given, call.extra()

    def run(f: Integrand, a: float, b: float, **options: Any) -> Any:
        return call.plain(f, a, b, **options)[:2]

    routine = _routine(call, run, ["epsabs", "epsrel", "norm", "cache_size", "limit", "points", "quadrature"])
    return integrate(lambda x: called(given["f"], (x, *extra)), (given["a"], given["b"]), routine)


@solver("scipy.integrate.nquad")
def nquad(call: SolverCall) -> Any:
    """Follow `scipy.integrate.nquad`: integrals of integrals."""
    _refuse(call, full_output=False)
    options = call.given["opts"]
    ranges = [given if callable(given) else _constant(given) for given in call.given["ranges"]]
    each = options if isinstance(options, list | tuple) else [options] * len(ranges)
    return _nested(call.given["func"], ranges, call.extra(), each)


@solver("scipy.integrate.dblquad", "scipy.integrate.tplquad")
def multiple(call: SolverCall) -> Any:
    """Follow `scipy.integrate.dblquad` and `scipy.integrate.tplquad`."""
    given = call.given

    def between(low: Any, high: Any) -> Callable[..., Any]:
        return lambda *outer: [end(*outer) if callable(end) else end for end in (low, high)]

    def reversed_(low: Any, high: Any) -> Callable[..., Any]:
        inner = between(low, high)
        return lambda y, x: inner(x, y)

    ranges = [_constant((given["a"], given["b"]))]
    ranges.insert(0, between(given["gfun"], given["hfun"]))
    if "qfun" in given:
        ranges.insert(0, reversed_(given["qfun"], given["rfun"]))
    options = {"epsabs": given["epsabs"], "epsrel": given["epsrel"]}
    extra = call.extra()
    return _nested(
        given["func"], [_without(len(extra), one) for one in ranges], extra, [options] * len(ranges)
    )


def _without(count: int, limits: Callable[..., Any]) -> Callable[..., Any]:
    """Return limits that do not get the further arguments of the integrand."""
    return lambda *given: limits(*given[: len(given) - count])


def _constant(limits: Any) -> Callable[..., Any]:
    return lambda *given: limits


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
    given = call.given

    def one(a: Any, b: Any, *extra: Any) -> tuple[Any, Any]:
        return integrate(lambda x: _number(given["f"], (x, *extra), call), (a, b), routine)

    arrays = [item * 1.0 for item in (given["a"], given["b"], *call.extra())]
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
            found = call.plain(part, a, b, **options)
            return found.integral, found.error

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
    given = call.given
    if is_traced(given["a"], given["b"]):
        raise refused(
            f"{call.name} with traced limits",
            "the number of terms is no smooth function of them",
            "pass numbers: gt.stop_gradient(a).numpy()",
        )

    def run(f: Integrand, a: float, b: float, **options: Any) -> Any:
        def scalar(part: Callable[[Any], Any]) -> tuple[Any, Any]:
            found = call.plain(part, a, b, **options)
            return found.sum, found.error

        return componentwise(scalar, f, takes_arrays=True)

    routine = _routine(call, run, ["step", "maxterms", "tolerances"], has_moving_limits=False)
    total, error = _elementwise(call, routine)
    return result_of(
        {}, sum=total, error=error, success=np.isfinite(error), status=np.where(np.isfinite(error), 0, -2)
    )
