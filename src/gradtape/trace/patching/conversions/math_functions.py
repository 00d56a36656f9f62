"""Functions of `math` and `cmath`: of traced numbers they are NumPy's functions, with the errors of Python's."""

from __future__ import annotations

import cmath
import math
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.builder import here
from gradtape.ir.types import aval
from gradtape.kinds.registry import UFUNCS
from gradtape.trace.array.array import wrap
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.outcomes import is_handled
from gradtape.trace.patching.conversions.sequences import Function, as_ndarray_or_traced, find_traced
from gradtape.trace.source.sites import user_site


def _number(operand: Any, kind: type = float) -> Any:
    """Return an argument of a function of math or cmath as an array or number; None for other arguments."""
    if isinstance(operand, Handle):
        if operand.ndim:
            return None
        array: Any = operand
        return array if array.dtype == kind else array.astype(kind)
    return operand if isinstance(operand, int | float | complex | np.generic) else None


def _mathematical(function: Function, kind: type = float, invalid: Invalid | None = None) -> Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        if find_traced(args) is None:
            return NotImplemented
        numbers = [_number(argument, kind) for argument in args]
        if None in map(type_or_none, numbers):
            return NotImplemented
        if invalid is not None and is_handled(sys._getframe(2)) and bool(invalid.holds(*numbers)):
            raise invalid.error(invalid.message)
        return _as_python_number(function(*numbers, **kwargs), numbers)

    return run


def _as_python_number(result: Any, numbers: list[Any]) -> Any:
    """Return the result of a function of math or cmath as a number of Python's, which takes the dtype of arrays that it meets."""
    if isinstance(result, tuple):
        return tuple([_as_python_number(item, numbers) for item in result])
    if isinstance(result, Handle):
        value = result.value
        if not any(isinstance(argument, Handle) and argument.value is value for argument in numbers):
            value.aval = aval((), value.dtype, True)
    return result


class Invalid(NamedTuple):
    """The error that a function of `math` raises where NumPy's result is NaN or infinite.

    Attributes
    ----------
    holds : callable
        Whether it raises the error for arguments.
    error : type
    message : str
    """

    holds: Callable[..., Any]
    error: type[Exception] = ValueError
    message: str = "math domain error"


def _overflow(largest: float) -> Invalid:
    return Invalid(lambda x: (np.abs(x) > largest) & np.isfinite(x), OverflowError, "math range error")


_EXPONENT: Final = Invalid(
    lambda x: (x > 709.782712893384) & np.isfinite(x), OverflowError, "math range error"
)
_POSITIVE: Final = Invalid(lambda x, base=None: x <= 0.0)

_INVALID: Final[dict[str, Invalid]] = {
    "sqrt": Invalid(lambda x: x < 0.0),
    "log": _POSITIVE,
    "log2": _POSITIVE,
    "log10": _POSITIVE,
    "log1p": Invalid(lambda x: x <= -1.0),
    "acos": Invalid(lambda x: np.abs(x) > 1.0),
    "asin": Invalid(lambda x: np.abs(x) > 1.0),
    "acosh": Invalid(lambda x: x < 1.0),
    "atanh": Invalid(lambda x: np.abs(x) >= 1.0),
    "fmod": Invalid(lambda x, y: y == 0.0),
    "pow": Invalid(lambda x, y: ((x < 0.0) & (y != np.floor(y))) | ((x == 0.0) & (y < 0.0))),
    "exp": _EXPONENT,
    "expm1": _EXPONENT,
    "sinh": _overflow(710.4758600739439),
    "cosh": _overflow(710.4758600739439),
}
"""The errors of functions of `math`, by name. In other code the result is NaN or infinite, as Numba's; where user code may catch an error,
a traced number is asked whether it is valid."""


def type_or_none(x: Any) -> type | None:
    """Return the type of an object, and None for None, without comparing arrays."""
    return None if x is None else type(x)


def _row(name: str) -> Function:
    def run(x: Any) -> Any:
        here.site = user_site(via=f"math.{name}")
        return wrap(UFUNCS[name](x.value))

    return run


def _log(x: Any, base: Any = None) -> Any:
    return np.log(x) if base is None else np.log(x) / np.log(base)


def _is_close(a: Any, b: Any, *, rel_tol: Any = 1e-09, abs_tol: Any = 0.0) -> bool:
    largest = np.maximum(np.abs(a), np.abs(b))
    return bool((a == b) | (np.abs(a - b) <= np.maximum(rel_tol * largest, abs_tol)))


def _hypot(*sides: Any) -> Any:
    return np.hypot(*sides) if len(sides) == 2 else np.sqrt(sum(side * side for side in sides))


def _as_predicate(function: Function) -> Function:
    def run(x: Any) -> bool:
        return bool(function(x))

    return run


_SAME: Final = "sin cos tan sinh cosh tanh exp exp2 expm1 log1p log2 log10 sqrt cbrt fabs degrees radians copysign fmod nextafter"
_MATH: Final[dict[str, Function]] = {
    **{name: getattr(np, name) for name in _SAME.split()},
    **{
        f"a{name}": getattr(np, f"arc{name}")
        for name in ["sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2"]
    },
    "pow": np.power,
    "log": _log,
    "hypot": _hypot,
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "gamma": _row("gamma"),
    "lgamma": _row("gammaln"),
    "erf": _row("erf"),
    "erfc": _row("erfc"),
    "isnan": _as_predicate(np.isnan),
    "isinf": _as_predicate(np.isinf),
    "isfinite": _as_predicate(np.isfinite),
    "isclose": _is_close,
}
_CMATH: Final[dict[str, Function]] = {
    **{
        name: getattr(np, name)
        for name in ["sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log10", "sqrt"]
    },
    **{f"a{name}": getattr(np, f"arc{name}") for name in ["sin", "cos", "tan", "sinh", "cosh", "tanh"]},
    "log": _log,
    "phase": np.angle,
    "polar": lambda z: (np.abs(z), np.angle(z)),
    "isnan": _as_predicate(np.isnan),
    "isinf": _as_predicate(np.isinf),
    "isfinite": _as_predicate(np.isfinite),
}


def _sequence(function: Function) -> Function:
    def run(*args: Any) -> Any:
        return (
            NotImplemented
            if find_traced(args) is None
            else function(*[as_ndarray_or_traced(argument) for argument in args])
        )

    return run


_SEQUENCES: Final[dict[str, Function]] = {
    "fsum": np.sum,
    "dist": lambda p, q: np.sqrt(np.sum((p - q) ** 2)),
    "sumprod": lambda p, q: np.sum(p * q),
}


MATHEMATICAL: Final[dict[Any, Function]] = {
    **{
        getattr(math, name): _mathematical(function, invalid=_INVALID.get(name))
        for name, function in _MATH.items()
        if hasattr(math, name)
    },
    **{getattr(cmath, name): _mathematical(function, complex) for name, function in _CMATH.items()},
    **{
        getattr(math, name): _sequence(function)
        for name, function in _SEQUENCES.items()
        if hasattr(math, name)
    },
}
"""The replacements of Python's functions."""
