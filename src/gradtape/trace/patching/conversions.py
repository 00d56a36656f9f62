"""Array-conversion capture: calls that would convert traced arrays to numbers are applied to the arrays as operations.

A list of traced numbers, wherever NumPy takes an array (``np.exp([a, b])``, ``y @ [a, b]``, ``np.linalg.det([[a, b], [c, d]])``), becomes a
traced array first. Scalar types (``np.float64(a)``) convert as `astype` does, methods of ndarrays (``y.dot(a)``) run as the functions of
their names, and functions of `math` and `cmath` as NumPy's. The C functions themselves hand such calls over; see
`gradtape.trace.patching.interpose`.
"""

from __future__ import annotations

import cmath
import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.errors import ArraySubclassError
from gradtape.ir.builder import here
from gradtape.ir.types import aval
from gradtape.kinds.registry import FUNCTIONS, UFUNCS
from gradtape.trace.array.array import Array, wrap
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.iterators import ArrayIterator
from gradtape.trace.array.lengths import Length, has_lengths, of_lengths
from gradtape.trace.array.masked import without_selections
from gradtape.trace.array.preallocated import Preallocated
from gradtape.trace.array.view_functions import strided
from gradtape.trace.dispatch.dispatch import call_function
from gradtape.trace.jit.outcomes import is_handled
from gradtape.trace.patching import recorders
from gradtape.trace.patching.asarray import is_followed
from gradtape.trace.patching.callers import calls
from gradtape.trace.patching.creation import HOOKED
from gradtape.trace.patching.functions import hook_function
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.patching.interpose import When, dispatcher_of, interpose, set_traced_types
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.sites import is_followed_file, is_user_file, user_site
from gradtape.trace.variables.variable import Variable

Function = Callable[..., Any]
_dispatched: Final = type(np.sum)


def find_followed(operand: Any, depth: int = 32) -> Any:
    """Return a traced array in an operand, or in lists and tuples in it; None if there is none."""
    if isinstance(operand, Handle):
        if isinstance(operand, Preallocated) and operand._base.is_untraced():
            return None
        return operand if is_followed(operand) else None
    if depth and isinstance(operand, list | tuple):
        for item in operand:
            found = find_followed(item, depth - 1)
            if found is not None:
                return found
    return None


def _as_array(items: Any) -> Any:
    """Return a list as a traced array; a list without traced elements is returned as it is."""
    if type(items) is not list and type(items) is not tuple:
        return items
    found = find_followed(items)
    return items if found is None else found.__array_function__(np.array, (type(found),), (items,), {})


def _of_ufunc(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = [_as_array(argument) for argument in args]
    if all(new is old for new, old in zip(given, args, strict=True)):
        return NotImplemented
    if "where" in kwargs:
        kwargs["where"] = _as_array(kwargs["where"])
    return function(*given, **kwargs)


_dispatchers: Final[dict[Any, Any]] = {}
"""The dispatchers of NumPy's functions, which return the relevant arguments."""


def _takes_sequences(function: Any) -> bool:
    """Return whether a function's first argument is a sequence of arrays, as that of np.concatenate is."""
    probe = np.zeros(0)
    try:
        return any(item is probe for item in dispatcher_of(function)([probe]))
    except TypeError:  # it takes more, or nothing of that kind
        return False


def _of_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    opener = _dispatchers.get(function)
    if opener is None:
        opener = _dispatchers[function] = dispatcher_of(function)
    try:
        relevant = [
            item for item in opener(*args, **kwargs) or () if type(item) is list or type(item) is tuple
        ]
    except TypeError:  # NumPy raises its own error
        return NotImplemented
    arrays = {id(item): made for item in relevant if (made := _as_array(item)) is not item}
    if not arrays:
        return NotImplemented
    return function(
        *[_replaced(argument, arrays) for argument in args],
        **{name: _replaced(argument, arrays) for name, argument in kwargs.items()},
    )


def _replaced(argument: Any, arrays: dict[int, Any]) -> Any:
    made = arrays.get(id(argument))
    if made is not None:
        return made
    if type(argument) is list or type(argument) is tuple:
        return type(argument)([_replaced(item, arrays) for item in argument])
    return argument


def _clip(array: Any, min: Any = None, max: Any = None, **kwargs: Any) -> Any:
    return np.clip(array, min, max, **kwargs)


def _method(name: str) -> Function:
    function = _clip if name == "clip" else getattr(np, name)

    def run(array: Any, *args: Any, **kwargs: Any) -> Any:
        if find_followed((args, tuple(kwargs.values()))) is None:
            return NotImplemented
        operands = (args[0], array, *args[1:]) if name == "compress" else (array, *args)
        if function in FUNCTIONS:
            # NumPy dispatches on some arguments only, np.take on the array alone, and would come back here.
            return wrap(call_function(function, operands, kwargs))
        return function(*operands, **kwargs)

    return run


METHODS: Final = (
    "all",
    "any",
    "choose",
    "clip",
    "compress",
    "cumprod",
    "cumsum",
    "dot",
    "max",
    "mean",
    "min",
    "prod",
    "repeat",
    "searchsorted",
    "std",
    "sum",
    "take",
    "var",
)
"""Methods of ndarrays that take arrays."""


def _scalar(kind: Any) -> Function:
    def make(asked: type, operand: Any) -> Any:
        if asked is not kind or find_followed(operand) is None:
            return NotImplemented
        array = _as_array(operand)
        return array.astype(kind)

    return make


SCALARS: Final = (
    np.bool_,
    np.float16,
    np.float32,
    np.float64,
    np.complex64,
    np.complex128,
    *{np.dtype(code).type for code in "bBhHiIlLqQ"},
)
"""Types that make scalars of numbers."""


def _number(x: Any, kind: type = float) -> Any:
    """Return an argument of a function of math or cmath as an array or number; None for other arguments."""
    if isinstance(x, Handle):
        if x.ndim:
            return None
        array: Any = x
        return array if array.dtype == kind else array.astype(kind)
    return x if isinstance(x, int | float | complex | np.generic) else None


def _mathematical(function: Function, kind: type = float, invalid: Invalid | None = None) -> Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        if find_followed(args) is None:
            return NotImplemented
        given = [_number(argument, kind) for argument in args]
        if None in map(type_or_none, given):
            return NotImplemented
        if invalid is not None and is_handled(sys._getframe(2)) and bool(invalid.holds(*given)):
            raise invalid.error(invalid.message)
        return _as_python_number(function(*given, **kwargs), given)

    return run


def _as_python_number(made: Any, given: list[Any]) -> Any:
    """Return what a function of math or cmath made as a number of Python's, which takes the dtype of arrays that it meets."""
    if isinstance(made, tuple):
        return tuple([_as_python_number(item, given) for item in made])
    if isinstance(made, Handle):
        value = made.value
        if not any(isinstance(argument, Handle) and argument.value is value for argument in given):
            value.aval = aval((), value.dtype, True)
    return made


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
            if find_followed(args) is None
            else function(*[_array(argument) for argument in args])
        )

    return run


def _array(items: Any) -> Any:
    made = _as_array(items)
    return np.asarray(items) if made is items and not isinstance(items, Handle) else made


_SEQUENCES: Final[dict[str, Function]] = {
    "fsum": np.sum,
    "dist": lambda p, q: np.sqrt(np.sum((p - q) ** 2)),
    "sumprod": lambda p, q: np.sum(p * q),
}


def _python_number(x: Any) -> Any:
    """Return the argument of ``float(x)`` itself where a followed package converts it: it takes a number to be a number of Python's."""
    caller = sys._getframe(2).f_code.co_filename
    if find_followed(x) is None or np.ndim(x) or is_user_file(caller) or not is_followed_file(caller):
        return NotImplemented
    return x.astype(np.float64)


def _iterator(asked: type, *args: Any, **kwargs: Any) -> Any:
    followed = asked is np.nditer and find_followed([*args, *kwargs.values()]) is not None
    return ArrayIterator(*args, **kwargs) if followed else NotImplemented


def _arange(*args: Any, **kwargs: Any) -> Any:
    found = find_followed([*args, *kwargs.values()])
    return (
        NotImplemented if found is None else found.__array_function__(np.arange, (type(found),), args, kwargs)
    )


_functions: Final[dict[Any, Function]] = {
    float: _python_number,
    np.arange: _arange,
    np.nditer: _iterator,
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
    **{kind: _scalar(kind) for kind in SCALARS},
    **{vars(np.ndarray)[name]: _method(name) for name in METHODS},
}
_FUNCTIONS_OF_LENGTHS: Final = frozenset([f for f in vars(math).values() if callable(f)])
_UFUNC_METHODS: Final = frozenset(
    vars(np.ufunc)[name] for name in ("reduce", "accumulate", "reduceat", "outer", "at")
)


def _takes_lengths(called: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a function has lengths among its arguments, and nothing that NumPy's protocols know."""
    if called is np.arange:
        return calls(sys._getframe(2), called)
    if type(called) is _dispatched:
        return find_followed([*args, *kwargs.values()]) is None
    return called in _FUNCTIONS_OF_LENGTHS


def _hook(called: Any, /, *args: Any, **kwargs: Any) -> Any:
    kind = type(called)
    if ASKING.questions is not None and has_lengths([args, kwargs]) and _takes_lengths(called, args, kwargs):
        return of_lengths(called, args, kwargs)
    if kind is np.ufunc or called in _UFUNC_METHODS:
        return _of_ufunc(called, args, kwargs)
    if kind is _dispatched:
        return _of_function(called, args, kwargs)
    return _functions[called](*args, **kwargs)


def _interpose() -> None:
    set_traced_types(Array, Variable, Preallocated, Length)
    functions = {
        function for function in FUNCTIONS if type(function) is _dispatched and dispatcher_of(function)
    }
    sequences = {function for function in functions if _takes_sequences(function)}
    interpose(_hook, When.ANYWHERE, _functions)
    interpose(_hook, When.WITHIN, sequences)
    interpose(_hook, When.NESTED, [*(functions - sequences - HOOKED), *_ufuncs_of(np), *_UFUNC_METHODS])
    when_imported("scipy.special", lambda special: interpose(_hook, When.NESTED, _ufuncs_of(special)))


def _ufuncs_of(module: ModuleType) -> list[Any]:
    things = [getattr(thing, "__wrapped__", thing) for thing in vars(module).values()]
    return [thing for thing in things if type(thing) is np.ufunc]


recorders.before_recording(_interpose)


# Classes of NumPy's that are written in Python


def _index_trick(plain: Function) -> Function:
    """Return the handler of ``np.r_[...]`` and ``np.c_[...]``: NumPy's own code arranges the positions of the elements."""

    def getitem(self: Any, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        if isinstance(key, str) or find_followed(items) is None:
            return plain(self, key)
        arrays: list[Any] = []
        kinds: list[Any] = []
        places: list[Any] = []
        size = 0
        for item in items:
            if isinstance(item, str):
                places.append(item)
                continue
            array = plain(np.r_, item) if isinstance(item, slice) else _array(item)
            places.append(np.arange(size, size + array.size).reshape(array.shape) if array.ndim else size)
            size += array.size
            kinds.append(item if type(item) in (bool, int, float, complex) else array.dtype)
            arrays.append(array)
        kind = np.result_type(*kinds)
        flat = np.concatenate([np.ravel(array).astype(kind) for array in arrays])
        order = np.asarray(plain(self, tuple(places)))
        return (
            flat.reshape(order.shape)
            if np.array_equal(order.ravel(), np.arange(size))
            else np.take(flat, order)
        )

    return getitem


def _vectorize_call(plain: Function) -> Function:
    """Return the handler of functions of `numpy.vectorize`: the function is called with one traced number after the other."""

    def call(self: Any, func: Any, args: Any) -> Any:
        args = without_selections(args)
        if find_followed(args) is None:
            return plain(self, func, args)
        dims = self._in_and_out_core_dims
        cores = [0] * len(args) if dims is None else [len(names) for names in dims[0]]
        arrays = [_array(argument) for argument in args]
        lead = np.broadcast_shapes(
            *[array.shape[: array.ndim - core] for array, core in zip(arrays, cores, strict=True)]
        )
        whole = [
            np.broadcast_to(array, (*lead, *array.shape[array.ndim - core :]))
            for array, core in zip(arrays, cores, strict=True)
        ]
        results = [func(*[array[place] for array in whole]) for place in np.ndindex(*lead)]
        if not results:
            return plain(self, func, args)
        if not isinstance(results[0], tuple):
            return _stack_results(results, lead, self.otypes[0] if self.otypes else None)
        kinds = self.otypes or [None] * len(results[0])
        return tuple(
            [
                _stack_results(parts, lead, kind)
                for parts, kind in zip(zip(*results, strict=True), kinds, strict=True)
            ]
        )

    return call


def _stack_results(results: Any, lead: tuple[int, ...], kind: Any) -> Any:
    array = np.stack([_array(result) for result in results])
    array = array.reshape((*lead, *array.shape[1:]))
    return array.astype(kind) if kind else array


def _refuse_matrix(plain: Function) -> Function:
    """Return the handler of `numpy.matrix`, which raises an error for traced arrays."""

    def new(kind: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        if find_followed(data) is None:
            return plain(kind, data, *args, **kwargs)
        raise ArraySubclassError(
            "a matrix, a subclass of ndarray, meets a traced array",
            where=user_site(),
            why="its operators mean something else than those of arrays",
            remedy="use np.asarray(m), and @ for products",
        )

    return new


def _as_strided(plain: Function) -> Function:
    """Return the handler of ``np.lib.stride_tricks.as_strided``, which asks arrays for their memory."""

    def call(x: Any, shape: Any = None, strides: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, Array):
            return plain(x, shape, strides, *args, **kwargs)
        here.site = user_site(via="as_strided")
        return strided(x, shape, strides, bool(args[1] if len(args) > 1 else kwargs.get("writeable", True)))

    return call


def _hook_classes() -> None:
    hook_function(np.lib.stride_tricks.as_strided, _as_strided)  # type: ignore[arg-type]
    joining: Any = type(np.r_).__mro__[1]
    mapping: Any = np.vectorize
    hook_function(np.matrix.__new__, _refuse_matrix)  # type: ignore[arg-type]
    hook_function(joining.__getitem__, _index_trick)
    hook_function(mapping._vectorize_call, _vectorize_call)


recorders.before_recording(_hook_classes)
