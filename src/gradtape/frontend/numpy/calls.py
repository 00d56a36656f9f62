"""How calls of NumPy in the user's code become statements: what the abstract interpreter asks.

Operands are `Expression` (arrays), 0-d `Value` and Python or NumPy numbers (scalars), lists and tuples of these. Results are the same. An
elementwise result is a `Deferred`: the interpreter stores it (`nests.materialise`) when it is bound to a name or used twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.frontend.numpy.registry import ATTRIBUTES, FUNCTIONS, METHODS, UFUNC_METHODS
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.registry import UFUNCS
from gradtape.procedures.arrays.nests import check_same_kind, store, value_of
from gradtape.procedures.arrays.view import Expression, apply, as_operand
from gradtape.procedures.builder import ProcedureBuilder

IGNORED_KEYWORDS = frozenset({"casting", "order", "subok", "signature"})
"""Keywords that change no value in the supported cases."""


def call(build: ProcedureBuilder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a NumPy function or ufunc.

    Raises
    ------
    UnsupportedFunctionError
        For a function without an implementation.
    """
    kwargs = {name: value for name, value in kwargs.items() if name not in IGNORED_KEYWORDS}
    replacement = FUNCTIONS.get(function)
    if replacement is not None:
        out = kwargs.pop("out", None)
        return delivered(build, replacement(build, *args, **kwargs), out, function)
    if isinstance(function, np.ufunc):
        return call_ufunc(build, function, args, kwargs)
    raise UnsupportedFunctionError(
        f"{getattr(function, '__name__', function)} is not followed in compiled loops", where=here.site
    )


def call_ufunc(
    build: ProcedureBuilder, ufunc: np.ufunc, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Apply a ufunc element by element."""
    out = kwargs.pop("out", None)
    if len(args) > ufunc.nin:
        args, out = args[: ufunc.nin], args[ufunc.nin]
    if isinstance(out, tuple):
        (out,) = out
    dtype = kwargs.pop("dtype", None)
    mask = kwargs.pop("where", True)
    if ufunc.__name__ not in UFUNCS or ufunc.signature is not None or kwargs:
        raise UnsupportedFunctionError(
            f"np.{ufunc.__name__} is not followed in compiled loops"
            + (f" with {', '.join(kwargs)}" if kwargs else ""),
            where=here.site,
        )
    if dtype is not None:
        args = tuple([astype(build, x, dtype) for x in args])
    result = value_of(apply(build, ufunc, *args))
    if mask is not True:
        result = apply(build, np.where, mask, result, out)
    return delivered(build, result, out, ufunc)


def astype(build: ProcedureBuilder, x: Any, dtype: Any) -> Any:
    """Return an operand with another dtype."""
    return FUNCTIONS[np.astype](build, as_operand(build, x), dtype)


def delivered(build: ProcedureBuilder, result: Any, out: Any, function: Any) -> Any:
    """Return a result, or write it to the array given as `out`."""
    result = value_of(result)
    if out is None:
        return result
    check_same_kind(as_operand(build, result).dtype, out.dtype, function)
    store(out, result)
    return out


def call_method(
    build: ProcedureBuilder, x: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a method of an array or of a number."""
    replacement = METHODS.get(name)
    if replacement is None:
        raise UnsupportedFunctionError(
            f"the method {name} is not followed in compiled loops", where=here.site
        )
    kwargs = {key: value for key, value in kwargs.items() if key not in IGNORED_KEYWORDS}
    out = kwargs.pop("out", None)
    return delivered(build, replacement(build, as_operand(build, x), *args, **kwargs), out, name)


def call_ufunc_method(
    build: ProcedureBuilder, ufunc: np.ufunc, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a method of a ufunc, such as ``np.add.reduce``."""
    replacement = UFUNC_METHODS.get((ufunc.__name__, method))
    if replacement is None:
        raise UnsupportedFunctionError(
            f"np.{ufunc.__name__}.{method} is not followed in compiled loops", where=here.site
        )
    return value_of(replacement(build, *args, **kwargs))


def attribute(build: ProcedureBuilder, x: Any, name: str) -> Any:
    """Return an attribute of an array or of a number, such as ``x.T`` or ``x.shape``."""
    found = ATTRIBUTES.get(name)
    if found is None:
        raise UnsupportedFunctionError(
            f"the attribute {name} is not followed in compiled loops", where=here.site
        )
    return found(build, as_operand(build, x))


def is_array(x: Any) -> bool:
    """Return whether an operand is an array of the procedure."""
    return isinstance(x, Expression) and not isinstance(x, Value)
