"""Calls of functions in translated code, and attributes."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import gradtape.frontend.numpy as _tables  # noqa: F401 - the tables enter themselves
from gradtape.frontend.functions import FUNCTIONS, Carrier
from gradtape.frontend.interpreter import Interpreter, in_memory
from gradtape.frontend.loops.growing_lists import checked_item, shifted, with_length
from gradtape.frontend.numpy import calls as numpy_calls
from gradtape.frontend.numpy.registry import ATTRIBUTES, METHODS
from gradtape.frontend.numpy.registry import FUNCTIONS as NUMPY_FUNCTIONS
from gradtape.frontend.values import (
    BoundMethod,
    Closure,
    Conflict,
    ListReference,
    RaisedError,
    Template,
    as_integer,
    is_number,
    is_static,
    number_type,
    refuse,
    settled,
    shown,
)
from gradtape.ir.graph import Value
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.view import Expression

PURE_MODULES: Final = frozenset({"math", "cmath", "_operator", "operator"})
"""The modules of functions that Python calls if all arguments are known: they have no effects."""

WRITERS: Final = frozenset(
    {
        "fill",
        "sort",
        "partition",
        "put",
        "itemset",
        "at",
        np.copyto,
        np.put,
        np.place,
        np.putmask,
        np.fill_diagonal,
    }
)
"""Methods and functions that write to arrays."""

PURE_CLASSES: Final = (np.dtype, np.finfo, np.iinfo)


def call(self: Interpreter, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result of a call."""
    args = tuple(args)
    if isinstance(function, functools.partial):
        inner = function.func.function if isinstance(function.func, Carrier) else function.func
        return call(self, inner, (*function.args, *args), {**function.keywords, **kwargs})
    if isinstance(function, BoundMethod):
        return _method(self, function, args, kwargs)
    numpy_calls.refuse_random(function)
    if isinstance(function, types.MethodType):
        return call(self, function.__func__, (function.__self__, *args), kwargs)
    if isinstance(function, Closure):
        return _inlined(self, function, args, kwargs)
    special = _special(function)
    if special is not None:
        return numpy_calls.run(special, getattr(function, "__name__", "a function"), self, *args, **kwargs)
    if numpy_calls.handles(function):
        return _numpy(self, function, args, kwargs)
    if isinstance(function, type):
        return _constructed(self, function, args, kwargs)
    closure = self.close(function)
    if closure is not None and not _is_library(function):
        return _inlined(self, closure, args, kwargs)
    if not kwargs and (of_numbers := _of_numbers(function, args)) is not None:
        return call(self, *of_numbers, kwargs)
    if _is_numba_type(function):
        return FUNCTIONS[np.dtype](self, np.dtype(str(function)), *args)
    if all(map(is_static, (*args, *kwargs.values()))) and _is_pure(function):
        return function(*args, **kwargs)
    name = getattr(function, "__qualname__", None) or shown(function)
    refuse(f"the function {_module(function)}.{name} is called" if name else f"{shown(function)} is called")


def _in(function: Any, table: Any) -> bool:
    try:
        return function in table
    except TypeError:
        return False


def _module(function: Any) -> str:
    return str(getattr(function, "__module__", "") or type(function).__module__)


def _is_pure(function: Any) -> bool:
    """Return whether a call of a function by Python has no effects."""
    owner = getattr(function, "__self__", None)
    return isinstance(function, types.BuiltinFunctionType) and (
        isinstance(owner, str | int | float | complex)
        or (isinstance(owner, types.ModuleType) and owner.__name__ in PURE_MODULES)
    )


def _special(function: Any) -> Any:
    """Return what runs in place of a builtin, of a function of `math`, or of one of Numba's."""
    if _in(function, FUNCTIONS):
        return FUNCTIONS[function]
    if _module(function).startswith("numba") and not hasattr(function, "py_func"):
        return FUNCTIONS.get(f"numba.{getattr(function, '__name__', '')}")
    return None


def _is_library(function: Any) -> bool:
    return _module(function).partition(".")[0] in (
        "numpy",
        "scipy",
        "math",
        "numba",
        "gradtape",
    ) and not hasattr(function, "py_func")


def _of_numbers(ufunc: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]] | None:
    """Return the function of a ufunc of Numba's and the numbers that it gets; None if it gets others, or for everything else.

    A loop that has been compiled for other types answers if the numbers can be cast to these; else Numba compiles one for their own.
    """
    function = getattr(getattr(ufunc, "_dispatcher", None), "py_func", None)
    if function is None or hasattr(ufunc, "gufunc_builder") or not all(map(is_number, args)):
        return None
    own = [number_type(x)[0] for x in args]
    if any(dtype not in (np.int64, np.float64) for dtype in own):
        return None
    loops = [[np.dtype(char) for char in loop.partition("->")[0]] for loop in ufunc.types]
    fitting = [loop for loop in loops if len(loop) == len(own) and all(map(np.can_cast, own, loop))]
    if not fitting or own in fitting:
        return function, args
    if any(dtype != np.float64 for dtype in fitting[0]) or not all(map(is_static, args)):
        return None
    return function, tuple(map(float, args))


def _is_numba_type(function: Any) -> bool:
    return _module(function).startswith("numba.core.types") and hasattr(function, "bitwidth")


def _is_numpys(owner: Any) -> bool:
    return _module(owner).partition(".")[0] == "numpy" or isinstance(owner, np.generic | np.dtype)


def _numpy(self: Interpreter, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args = tuple(map(self.plain, args))
    kwargs = {name: self.plain(value) for name, value in kwargs.items()}
    if any(isinstance(x, Closure) for x in numpy_calls.operands_of((*args, *kwargs.values()))):
        refuse(f"a function is an argument of {_module(function)}.{function.__name__}")
    in_tables = not isinstance(function, np.ufunc) and function in NUMPY_FUNCTIONS
    if not in_tables and all(is_number(x) and not isinstance(x, Value) for x in args):
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)
    if (
        "out" in kwargs
        or function in WRITERS
        or (isinstance(function, np.ufunc) and len(args) > function.nin)
    ):
        self.settle()
    result = numpy_calls.call(self.build, function, args, kwargs)
    if function in (np.real, np.imag):  # a number of Python's has parts of its own
        return result
    if isinstance(result, tuple):
        return tuple([_as_strong(self, each) for each in result])
    return self_list(self, _as_strong(self, result))


def _as_strong(self: Interpreter, result: Any) -> Any:
    """Return a result of a function of NumPy's, whose scalars are not weak."""
    is_weak = isinstance(result, Value) and result.aval.weak
    return FUNCTIONS[np.dtype](self, result.dtype, result) if is_weak else result


def self_list(self: Interpreter, result: Any) -> Any:
    """Return a result with a list of Python as a list of the interpreter."""
    return self.new_list(result) if isinstance(result, list) else result


def _method(self: Interpreter, method: BoundMethod, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    owner, name = method.owner, method.name
    if isinstance(owner, ListReference):
        return _list_method(self, owner, name, args)
    args = tuple(map(self.plain, args))
    if name in WRITERS or "out" in kwargs:
        self.settle()
    if isinstance(owner, np.ufunc):
        return numpy_calls.call_ufunc_method(self.build, owner, name, args, kwargs)
    return self_list(self, numpy_calls.call_method(self.build, owner, name, args, kwargs))


def _list_method(self: Interpreter, owner: ListReference, name: str, args: tuple[Any, ...]) -> Any:
    if name == "append":
        self.append(owner, [in_memory(args[0])])
        return None
    if name == "extend":
        self.append(owner, self.items(args[0]) or ())
        return None
    if name in ("pop", "insert", "clear", "reverse"):
        self.check_list_write(owner)
    grown = self.growing(owner)
    if grown is not None and name in ("pop", "clear") and not args:
        last = checked_item(grown, -1) if name == "pop" else None
        self.lists[owner] = with_length(grown, ix.subtract(grown.length, 1) if name == "pop" else 0)
        return last
    if grown is not None and name == "pop" and args == (0,):
        self.settle()
        first = checked_item(grown, 0)
        self.lists[owner] = shifted(self.build, grown)
        return first
    items = list(self.list_items(owner))
    if name == "copy":
        return self.new_list(items)
    elif name in ("pop", "insert", "clear", "reverse"):
        given = [as_integer(args[0], "the index"), *args[1:]] if args else []
        if any(isinstance(one, Value) for one in given[:1]):
            refuse("the index of an item of a list depends on data")
        result = getattr(items, name)(*given)
        self.lists[owner] = tuple(items)
        return result
    else:
        refuse(f"the method {name} of a list is called")
    self.lists[owner] = tuple(items)
    return None


def _constructed(self: Interpreter, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return an instance of a class: a number, a named tuple, an exception."""
    if issubclass(kind, np.generic):
        return FUNCTIONS[np.dtype](self, np.dtype(kind), *args)
    if issubclass(kind, BaseException):
        parts = [x.text if isinstance(x, Template) else x if isinstance(x, str) else shown(x) for x in args]
        return RaisedError(kind, parts[0] if len(parts) == 1 else ", ".join(parts))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*args, **kwargs)
    if kind in PURE_CLASSES and all(map(is_static, (*args, *kwargs.values()))):
        return kind(*args, **kwargs)
    refuse(f"an object of the class {kind.__name__} is made")


def _inlined(self: Interpreter, function: Closure, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    arguments = list(map(in_memory, bound(function, args, kwargs)))
    return self.run_code(function, arguments)


def bound(function: Closure, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Return the arguments of a call in the order of the signature, with defaults."""
    code = function.code
    count, only = code.co_argcount, code.co_kwonlyargcount
    names, by_keyword = code.co_varnames[:count], code.co_varnames[count : count + only]
    if code.co_flags & 0x08:
        refuse(f"{code.co_name} takes arbitrary keyword arguments (**)", "name them")
    rest = tuple(args[count:])
    if rest and not code.co_flags & 0x04:
        raise TypeError(f"{code.co_name}() takes {count} positional arguments but {len(args)} were given")
    values = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in (*names[code.co_posonlyargcount :], *by_keyword):
            raise TypeError(f"{code.co_name}() got an unexpected keyword argument {name!r}")
        if name in values:
            raise TypeError(f"{code.co_name}() got multiple values for argument {name!r}")
        values[name] = value
    for name, value in zip(reversed(names), reversed(function.defaults), strict=False):
        values.setdefault(name, value)
    for name, value in function.keywords:
        values.setdefault(name, value)
    missing = [name for name in (*names, *by_keyword) if name not in values]
    if missing:
        raise TypeError(f"{code.co_name}() missing arguments: {', '.join(missing)}")
    stars = [rest] if code.co_flags & 0x04 else []
    return [*[values[name] for name in names], *stars, *[values[name] for name in by_keyword]]


def attribute(self: Interpreter, owner: Any, name: str) -> Any:
    """Return an attribute of an abstract value."""
    if isinstance(owner, Expression | Value):
        if name in METHODS:
            return BoundMethod(owner, name)
        if isinstance(owner, Value) and name == "dtype":
            return owner.dtype
        if name in ATTRIBUTES:
            return settled(numpy_calls.attribute(self.build, owner, name))
        refuse(f"the attribute {name} of {shown(owner)} is read")
    if isinstance(owner, ListReference):
        return BoundMethod(owner, name)
    if isinstance(owner, np.ufunc) and name in ("reduce", "accumulate", "outer", "at", "reduceat"):
        return BoundMethod(owner, name)
    if isinstance(owner, Closure | Conflict | RaisedError):
        if name in ("py_func", "__wrapped__"):
            return owner
        refuse(f"the attribute {name} of {shown(owner)} is read")
    found = inspect.getattr_static(type(owner), name, None)
    if isinstance(found, property) and not _is_numpys(owner):
        return call(self, found.fget, (owner,), {})
    if isinstance(found, functools.cached_property) and name not in vars(owner):
        refuse(
            f"the cached property {name} of {shown(owner)} is read for the first time",
            "read it before the call",
            "reading it sets an attribute, which compiled code cannot do",
        )
    value = getattr(owner, name)
    if isinstance(owner, types.ModuleType) and owner.__name__.partition(".")[0] in (
        "math",
        "numpy",
        "cmath",
        "numba",
    ):
        return value
    if isinstance(owner, tuple | int | float | complex | np.generic | np.dtype | type | str):
        return value
    return self.outside(owner, name, value)
