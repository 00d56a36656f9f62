"""Dispatch: the rows and composites for NumPy's functions and ufuncs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.errors import InPlaceError, UnsupportedFunctionError
from gradtape.habits import keyword
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import aval
from gradtape.kinds.arguments import operand_dtypes
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import as_value, number_dtype
from gradtape.kinds.registry import FUNCTIONS, UFUNCS, UNSUPPORTED, WRITERS, find_method, out_place
from gradtape.ops.core.elementwise.cast import convert, convert_number
from gradtape.ops.core.elementwise.select import where as where_row
from gradtape.ops.core.indexing import fit_for_write
from gradtape.trace.array.handle import Handle, check_fits, unwrap
from gradtape.trace.dispatch.op_cache import NUMBERS, given, run
from gradtape.trace.jit.guards import abstract_of
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.bytecode import instruction_at
from gradtape.trace.source.sites import is_traced_file, nearest_frame

UFUNC_RULES: Final[dict[Any, Callable[..., Any]]] = {}
"""The rules of ufuncs of one or two operands that were called before."""

OPERAND_TYPES: Final = NUMBERS | {np.ndarray}
"""The types of operands besides Arrays that these rules take."""


def fast_rule(ufunc: Any) -> Callable[..., Any]:
    """Return the rule of a ufunc that needs no conversion of arguments."""
    row = UFUNCS[ufunc.__name__]
    if isinstance(row, Elementwise):
        return row.of_one if ufunc.nin == 1 else row.of_two
    if ufunc.signature is None:
        return row

    def multiply(x: Any, y: Any) -> Any:
        return run(row, (as_value(x), as_value(y)), {})

    return multiply


IGNORED_KEYWORDS = frozenset({"casting", "order", "subok", "signature"})
"""Keywords of ufuncs that change no value in the supported cases."""


def call_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Apply the row of a ufunc, or of a method of one, to operands of which some are Arrays; results are values.

    Raises
    ------
    UnsupportedFunctionError
        For ufuncs without a row.
    """
    out = kwargs.pop("out", None)
    operands = [unwrap(operand) for operand in inputs]
    if kwargs.get("dtype") is not None and method in ("__call__", "outer"):
        kwargs = dict(kwargs)
        operands = _converted(ufunc, operands, kwargs.pop("dtype"), kwargs.get("casting", "same_kind"))
    if method == "__call__":
        result = _apply_ufunc(
            ufunc, operands, {key: value for key, value in kwargs.items() if key not in IGNORED_KEYWORDS}, out
        )
    else:
        rule = find_method(ufunc.__name__, method)
        if rule is None:
            raise unsupported(f"{qualified_name(ufunc)}.{method}", ufunc)
        result = rule(*operands, **{key: unwrap(value) for key, value in kwargs.items()})
        if method == "at":
            return _store(inputs[0], result, f"{public_name(ufunc)}.at")
    return result if out is None else _write_outputs(result, inputs, out, public_name(ufunc))


def _apply_ufunc(ufunc: Any, operands: list[Any], kwargs: dict[str, Any], out: Any) -> Any:
    row: Any = UFUNCS.get(ufunc.__name__)
    if row is None or (isinstance(row, Elementwise) and row.function is not ufunc and not _in_scipy(ufunc)):
        raise unsupported(qualified_name(ufunc), ufunc)
    if ufunc.nin <= 2:
        UFUNC_RULES[ufunc] = fast_rule(ufunc)
    keep = kwargs.pop("where", True)
    kwargs.pop("dtype", None)
    result = row(*operands, **kwargs)
    result = as_strong_result(result)
    if isinstance(result, Value) and keep is not True:
        result = _masked(result, unwrap(keep), out)
    return result


def _in_scipy(ufunc: Any) -> bool:
    """Return whether a ufunc is SciPy's: its log1p, expm1 and others are those of NumPy."""
    return _ufunc_of("scipy.special", ufunc.__name__) is ufunc


def _ufunc_of(module: str, name: str) -> Any:
    """Return the ufunc that a module has under a name; with its switch for the array API, SciPy has functions around its ufuncs."""
    function = getattr(sys.modules.get(module), name, None)
    return getattr(function, "__wrapped__", function)


def as_strong_result(result: Any) -> Any:
    """Return results of a ufunc, if they are values as `as_strong` makes them."""
    if isinstance(result, Value):
        return as_strong(result)
    return tuple(map(as_strong, result)) if isinstance(result, tuple) else result


def as_strong(value: Value) -> Value:
    """Return a result of a ufunc with a strong dtype: NumPy's scalars are not weak, even those made from Python numbers."""
    if value.aval.weak:
        value.aval = aval(value.shape, value.dtype)
    return value


def _converted(ufunc: Any, operands: Sequence[Any], dtype: Any, casting: str) -> list[Value]:
    """Return the operands of a ufunc whose results are to have a dtype."""
    values = list(map(as_value, operands))
    dtypes = operand_dtypes(ufunc, [value.aval for value in values], number_dtype(dtype), casting)
    return [
        convert_number(value, dtype_wanted) if value.dtype.kind == "i" else convert(value, dtype_wanted)
        for value, dtype_wanted in zip(values, dtypes, strict=True)
    ]


def _masked(result: Value, keep: Any, out: Any) -> Value:
    if out is None:
        raise UnsupportedFunctionError(
            "a ufunc with where= and without out=",
            where=here.site,
            why="NumPy leaves the other elements uninitialised, so the result is not defined",
            remedy="use np.where(mask, f(x), other), or give out=",
        )
    (target,) = out
    return where_row(keep, result, unwrap(target))


def _write_outputs(result: Any, inputs: Sequence[Any], out: Any, operation: str) -> Any:
    """Write results to the arrays given as ``out=``, and return these."""
    targets = out if isinstance(out, tuple) else (out,)
    results = result if isinstance(result, tuple) else (result,)
    delivered = []
    for target, value in zip(targets, results, strict=True):
        if target is None:
            delivered.append(value)
        elif (
            issubclass(type(target), np.ndarray)
            and target is inputs[0]
            and _is_recorded(value)
            and instruction_at(nearest_frame(3)) == "BINARY_OP"
        ):  # `n += x`: Python rebinds n to what we return, and n itself stays as it was
            check_fits(value, target.dtype, target.shape, operation)
            delivered.append(fit_for_write(value, target.dtype, target.shape))
        else:
            _store(
                target,
                value,
                operation,
                f"out= of {operation} is an ndarray",
                "omit out=, or pass an array created in the traced code",
            )
            delivered.append(target)
    return delivered[0] if len(delivered) == 1 else tuple(delivered)


def _is_recorded(value: Value) -> bool:
    return any(tag.recording for tag in value.tags)


def _store(
    target: Any,
    result: Value,
    operation: str,
    refused: str = "",
    remedy: str = "write to an array created in the traced code",
) -> None:
    """Write the result of an operation to the array that was given for it."""
    if isinstance(target, Handle):
        target.write_result(result, operation)
    elif issubclass(type(target), np.ndarray) and not _is_recorded(result):
        check_fits(result, target.dtype, target.shape, operation)
        (data,) = force([result])
        np.copyto(target, data, casting="same_kind")
    else:
        abstract = abstract_of(result)
        raise InPlaceError(
            f"{refused or f'{operation} writes to an ndarray'}, but the result is traced",
            where=here.site,
            why="an ndarray needs numbers, which are not known yet" if abstract is None else abstract.why,
            remedy=f"{remedy}: y = np.zeros(n), or np.zeros(n, like=x) in a library"
            if abstract is None
            else abstract.write_remedy,
        )


def call_function(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Apply the rule of a NumPy function; results are values.

    Raises
    ------
    UnsupportedFunctionError
        For unsupported functions, with the reason.
    """
    entry = FUNCTION_RULES.get(function) or _find_rule(function)
    rule = entry.rule
    if len(args) <= entry.most and "out" not in kwargs:
        try:
            return run(rule, args, kwargs)
        except TypeError as error:
            missed = keyword(error, entry.via) if type(error) is TypeError else None
            if missed is None:
                raise
            raise missed from None
    out = kwargs.pop("out", None) if kwargs else None
    out_position = out_place(function)
    if out_position is not None and len(args) > out_position:
        out, args = args[out_position], (*args[:out_position], *args[out_position + 1 :])
    if type(out) in (tuple, list) and (type(out) is list or function is not np.clip):
        raise TypeError(f"out= of {public_name(function)} must be an array, not a {type(out).__name__}")
    in_place = WRITTEN_ARGUMENTS.get(function)
    result = rule(*map(unwrap, args), **given(kwargs))
    if in_place is not None:
        return _store(args[0] if args else kwargs[in_place], result, public_name(function))
    return result if out is None else _write_outputs(result, args, out, public_name(function))


class FunctionRule(NamedTuple):
    """The rule of a NumPy function.

    Attributes
    ----------
    rule : callable
        The row or composite.
    via : str
        The public name of the function, for messages.
    most : int
        The number of positional arguments up to which it writes to none of them.
    """

    rule: Callable[..., Any]
    via: str
    most: int


FUNCTION_RULES: Final[dict[Any, FunctionRule]] = {}


def _find_rule(function: Any) -> FunctionRule:
    rule = FUNCTIONS.get(function)
    if rule is None:
        raise unsupported(qualified_name(function))
    out_position = out_place(function)
    most = -1 if function in WRITERS else sys.maxsize if out_position is None else out_position
    entry = FUNCTION_RULES[function] = FunctionRule(rule, public_name(function), most)
    return entry


@functools.lru_cache(maxsize=1024)
def implementation_in_python(function: Any) -> Any:
    """Return NumPy's own implementation of a function that has no rule, if it is in a traced module; else None."""
    implementation = getattr(function, "_implementation", None)
    if function in FUNCTIONS or not isinstance(implementation, FunctionType):
        return None
    return implementation if is_traced_file(implementation.__code__.co_filename) else None


WRITTEN_ARGUMENTS: dict[Any, str] = {
    np.copyto: "dst",
    np.put: "a",
    np.place: "arr",
    np.putmask: "a",
    np.put_along_axis: "arr",
    np.fill_diagonal: "a",
}
"""Functions that write to their first argument, whose name this is: their rules return its new content."""


def public_name(function: Any) -> str:
    """Return a function's public name with the prefix np, such as ``np.linalg.eig``."""
    return qualified_name(function).replace("numpy.", "np.", 1)


@functools.lru_cache(maxsize=1024)
def qualified_name(function: Any) -> str:
    """Return a function's public name, such as ``numpy.linalg.eig``."""
    name = getattr(function, "__name__", str(function))
    if not isinstance(function, np.ufunc):
        return f"{getattr(function, '__module__', '?')}.{name}"
    homes = ("numpy", "scipy.special")  # ufuncs have no __module__
    home = next((home for home in homes if _ufunc_of(home, name) is function), None)
    return name if home is None else f"{home}.{name}"


OTHER_UFUNC: Final = (
    "it is a ufunc made elsewhere (np.frompyfunc, C), and does not expose the function that it was made from",
    "call that function: f(x) where it is NumPy code, np.vectorize(f)(x) for a function of one number, or a function with @numba.njit; "
    "these are supported",
)
NUMBA_UFUNC: Final = (
    "of ufuncs of Numba only calls are supported, not methods such as reduce and accumulate",
    "call the ufunc itself and reduce its results with NumPy, or write the loop in a function with @numba.njit",
)


def unsupported(name: str, ufunc: Any = None) -> UnsupportedFunctionError:
    """Return the error for an unsupported function, with the reason in the table; `ufunc` is the ufunc that it is, or is a method of."""
    reason = UNSUPPORTED.get(name)
    why, _, remedy = (reason or "").partition("; ")
    if not reason and ufunc is not None and isinstance(ufunc, np.ufunc) and "." not in qualified_name(ufunc):
        why, remedy = OTHER_UFUNC
    elif type(ufunc).__module__.startswith("numba."):
        why, remedy = NUMBA_UFUNC
    return UnsupportedFunctionError(
        f"{name} is not supported by gradtape",
        where=here.site,
        why=why or "it has no rule",
        remedy=remedy
        or "write it with supported functions, or take it out of the traced code (x.numpy() on a tape)",
    )
