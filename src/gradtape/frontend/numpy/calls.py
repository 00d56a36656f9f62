"""How calls of NumPy in the user's code become statements: what the abstract interpreter asks.

Operands are `Expression` (arrays), 0-d `Value` and Python or NumPy numbers (scalars), lists and tuples of these. Results are the same. An
elementwise result is a `Deferred`: the interpreter stores it (`nests.materialise`) when it is bound to a name or used twice.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.frontend.numpy.layouts import with_layout
from gradtape.frontend.numpy.registry import ATTRIBUTES, FUNCTIONS, METHODS, UFUNC_METHODS
from gradtape.frontend.values import NeedsStaticError, refuse
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.arguments import operand_dtypes
from gradtape.kinds.operands import number_dtype
from gradtape.kinds.refusals import keeps_labels
from gradtape.kinds.registry import FUNCTIONS as RULES
from gradtape.kinds.registry import UFUNCS, UNSUPPORTED, WRITERS, out_place
from gradtape.ops.core.elementwise.cast import convert_number
from gradtape.procedures.arrays import creation
from gradtape.procedures.arrays.graphs import apply_graph
from gradtape.procedures.arrays.indexing import apart
from gradtape.procedures.arrays.nests import check_same_kind, store, value_of
from gradtape.procedures.arrays.view import Expression, apply, as_operand
from gradtape.procedures.builder import ProcedureBuilder

IGNORED_KEYWORDS = frozenset({"subok", "signature"})
"""Keywords that change no value in the supported cases."""


JOINING = frozenset(
    {
        np.concatenate,
        np.stack,
        np.hstack,
        np.vstack,
        np.dstack,
        np.column_stack,
        np.block,
        np.array,
        np.asarray,
    }
)
"""Functions that take a list of arrays as such; for others it stands for an array."""


RETURNING_ARGUMENTS = frozenset({np.broadcast_arrays})
"""Functions without an implementation of their own that may return an argument itself."""


def operands_of(args: Any) -> Iterator[Any]:
    """Yield arguments, and the items of lists and tuples in them."""
    for x in args:
        if isinstance(x, list | tuple):
            yield from operands_of(x)
        else:
            yield x


def _is_nested(x: Any) -> bool:
    return isinstance(x, list) and any(isinstance(item, Expression) or _is_nested(item) for item in x)


def without_ignored(kwargs: dict[str, Any], replacement: Any) -> dict[str, Any]:
    """Return keyword arguments without those that change no value, such as a memory order for a replacement that keeps none."""
    ordered = "order" not in kwargs or (replacement is not None and "order" in _parameters(replacement))
    return {
        name: value
        for name, value in kwargs.items()
        if name not in IGNORED_KEYWORDS and (name != "order" or ordered or value not in ("C", "K", "A"))
    }


@functools.lru_cache(maxsize=1024)
def _parameters(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def call(build: ProcedureBuilder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a NumPy function or ufunc.

    Raises
    ------
    UnsupportedFunctionError
        For a function without an implementation.
    """
    if any(map(keeps_labels, args)):
        refuse("a table with labels is an operand", "compile the code for its values, table.to_numpy()")
    replacement = FUNCTIONS.get(function)
    kwargs = without_ignored(kwargs, replacement)
    if function not in JOINING and (replacement is not None or isinstance(function, np.ufunc)):
        args = tuple([creation.array(build, x) if _is_nested(x) else x for x in args])
    if replacement is not None and not takes(replacement, args, kwargs):
        replacement = None
    if replacement is None and isinstance(function, np.ufunc) and function.signature is None:
        return call_ufunc(build, function, args, kwargs)
    refuse_random(function)
    out = kwargs.pop("out", None)
    place = out_place(function)
    if place is not None and len(args) > place:
        out, args = args[place], (*args[:place], *args[place + 1 :])
    if replacement is not None:
        try:
            result = replacement(build, *args, **kwargs)
        except TypeError:
            _refuse_counted(function, args, kwargs)
            raise
    else:
        result = apply_graph(build, array_rule(function), args, kwargs)
        if function in WRITERS:
            store(args[0], result)
            return None
        if function not in RETURNING_ARGUMENTS and any(result is x for x in operands_of(args)):
            result = apart(result)  # such as np.pad(x, 0)
    if out is None:
        result = with_layout(build, function, args, kwargs, result)
    return delivered(build, result, out, function)


def _refuse_counted(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the error for whole numbers of the running code where an implementation counts with Python's, such as axes."""
    if any(type(x) is Value and x.dtype.kind in "iu" for x in operands_of((*args, *kwargs.values()))):
        raise NeedsStaticError(
            f"an argument of {function.__name__} is known only when the compiled code runs",
            where=here.site,
            why="axes and repetition counts determine the compiled code",
            remedy="call it for each axis, without a loop over axes",
        ) from None


def handles(function: Any) -> bool:
    """Return whether `call` knows a function, or why it is refused."""
    if isinstance(function, np.ufunc):
        return True
    try:
        return function in FUNCTIONS or function in RULES
    except TypeError:
        return False


def takes(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an implementation has parameters for these arguments; `out` is dealt with here."""
    given = {name: value for name, value in kwargs.items() if name != "out"}
    try:
        inspect.signature(function).bind(None, *args, **given)
    except TypeError:
        return False
    return True


def run(implementation: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Return what an implementation returns; arguments for which it has no parameters are refused."""
    try:
        return implementation(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise
        raise UnsupportedFunctionError(
            f"{name} is not supported in compiled loops with these arguments", where=here.site
        ) from None


def array_rule(function: Any) -> Any:
    """Return the composite of rows for a NumPy function, which is applied to arrays of static shapes."""
    rule = UFUNCS.get(function.__name__) if isinstance(function, np.ufunc) else RULES.get(function)
    if rule is None:
        name = getattr(function, "__qualname__", str(function))
        module = getattr(function, "__module__", None) or ""
        why, _, remedy = UNSUPPORTED.get(f"{module}.{name}", "").partition("; ")
        raise UnsupportedFunctionError(
            f"{module}.{name} is not supported in compiled loops",
            where=here.site,
            why=why or "it has no implementation on arrays in loops",
            remedy=remedy or "write it with supported functions, or call it before the loop",
        )
    return rule


def is_random(function: Any) -> bool:
    """Return whether a function draws random numbers."""
    owner = getattr(function, "__self__", None)
    kind = type(owner)
    return kind.__module__.startswith("numpy.random") and kind.__name__ in ("RandomState", "Generator")


def refuse_random(function: Any) -> None:
    """Raise the error for functions that draw random numbers."""
    if is_random(function):
        raise UnsupportedFunctionError(
            f"{getattr(function, '__name__', 'a random number')} draws random numbers in a compiled loop",
            where=here.site,
            why="each call must draw new numbers, which a compiled loop cannot",
            remedy="draw them all before (noise = rng.normal(size=n)), and pass them as an argument",
        )


def call_ufunc(
    build: ProcedureBuilder, ufunc: np.ufunc, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Apply a ufunc element by element."""
    casting = kwargs.pop("casting", "same_kind")
    out = kwargs.pop("out", None)
    if len(args) > ufunc.nin:
        args, out = args[: ufunc.nin], args[ufunc.nin]
    if isinstance(out, tuple):
        (out,) = out
    dtype = kwargs.pop("dtype", None)
    mask = kwargs.pop("where", True)
    if ufunc.__name__ not in UFUNCS or ufunc.signature is not None or kwargs:
        raise UnsupportedFunctionError(
            f"np.{ufunc.__name__} is not supported in compiled loops"
            + (f" with {', '.join(kwargs)}" if kwargs else ""),
            where=here.site,
        )
    if dtype is not None:
        args = _converted(build, ufunc, args, dtype, casting)
    result = value_of(apply(build, ufunc, *args))
    if mask is not True:
        result = apply(build, np.where, mask, result, out)
    return delivered(build, result, out, ufunc)


def _converted(
    build: ProcedureBuilder, ufunc: np.ufunc, args: tuple[Any, ...], dtype: Any, casting: str
) -> tuple[Any, ...]:
    """Return the operands of a ufunc whose results are to have a dtype."""
    operands = [as_operand(build, x) for x in args]
    wanted = operand_dtypes(ufunc, [x.aval for x in operands], number_dtype(dtype), casting)
    return tuple(
        [
            convert_number(x, own) if isinstance(x, Value) and x.dtype.kind == "i" else astype(build, x, own)
            for x, own in zip(operands, wanted, strict=True)
        ]
    )


def astype(build: ProcedureBuilder, x: Any, dtype: Any) -> Any:
    """Return an operand with another dtype."""
    return FUNCTIONS[np.astype](build, as_operand(build, x), dtype)


def delivered(build: ProcedureBuilder, result: Any, out: Any, function: Any) -> Any:
    """Return a result, or write it to the array given as `out`."""
    if out is None:
        return value_of(result)
    if isinstance(out, tuple):
        (out,) = out
    check_same_kind(as_operand(build, result).dtype, out.dtype, function)
    store(out, result)
    return out


REFUSED_METHODS: Final = {
    "tolist": "use the array itself: x[i], or a loop over it",
    "tobytes": "take it out of the loop",
    "resize": "make an array of the new size, and copy",
    "setflags": "leave it out",
    "view": "use astype, or the parts .real and .imag",
}
"""What to do instead of methods that are not supported."""


def call_method(
    build: ProcedureBuilder, x: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a method of an array or of a number; one without an implementation of its own is NumPy's function of this name."""
    replacement = METHODS.get(name)
    function = getattr(np, name, None)
    if name == "sort":
        store(x, call(build, np.sort, (x, *args), kwargs))
        return None
    if replacement is None and handles(function) and name not in REFUSED_METHODS:
        return call(build, function, (x, *args), kwargs)
    if replacement is None:
        raise UnsupportedFunctionError(
            f"the method {name} is not supported in compiled loops",
            where=here.site,
            remedy=REFUSED_METHODS.get(name, "write it with functions of NumPy"),
        )
    kwargs = without_ignored(kwargs, replacement)
    out = kwargs.pop("out", None)
    result = run(replacement, f"the method {name}", build, as_operand(build, x), *args, **kwargs)
    if out is None:
        result = with_layout(build, _method_of(name), (x, *args), kwargs, result)
    return delivered(build, result, out, name)


def call_ufunc_method(
    build: ProcedureBuilder, ufunc: np.ufunc, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a method of a ufunc, such as ``np.add.reduce``."""
    replacement = UFUNC_METHODS.get((ufunc.__name__, method))
    if replacement is None:
        raise UnsupportedFunctionError(
            f"np.{ufunc.__name__}.{method} is not supported in compiled loops", where=here.site
        )
    result = run(replacement, f"np.{ufunc.__name__}.{method}", build, *args, **kwargs)
    return value_of(with_layout(build, getattr(ufunc, method), args, kwargs, result))


@functools.lru_cache(maxsize=256)
def _method_of(name: str) -> Any:
    """Return what calls a method of its first argument."""
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def attribute(build: ProcedureBuilder, x: Any, name: str) -> Any:
    """Return an attribute of an array or of a number, such as ``x.T`` or ``x.shape``."""
    found = ATTRIBUTES.get(name)
    if found is None:
        raise UnsupportedFunctionError(
            f"the attribute {name} is not supported in compiled loops", where=here.site
        )
    operand = as_operand(build, x)
    function = getattr(np, name) if name in ("real", "imag") else operator.attrgetter(name)
    return with_layout(build, function, (operand,), {}, found(build, operand))


def is_array(x: Any) -> bool:
    """Return whether an operand is an array of the procedure."""
    return isinstance(x, Expression) and not isinstance(x, Value)
