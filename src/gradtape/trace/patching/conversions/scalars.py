"""Types and methods of NumPy's that convert arrays: ``np.float64(a)`` is ``a.astype(np.float64)``, ``y.dot(a)`` is ``np.dot(y, a)``."""

from __future__ import annotations

import _abc
import functools
import math
import operator
import sys
from types import FunctionType, WrapperDescriptorType
from typing import Any, Final

import numpy as np

from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import FUNCTIONS
from gradtape.ops.core.elementwise.cast import convert_number
from gradtape.trace.array.array import Array, as_python_number, wrap
from gradtape.trace.array.concretize import abstracting_trace, stays_traced
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.iterators import ArrayIterator, Broadcast
from gradtape.trace.dispatch.dispatch import call_function
from gradtape.trace.patching.conversions.sequences import Function, as_array, find_traced
from gradtape.trace.source.sites import is_user_file
from gradtape.trace.subclasses.instances import instance


def _clip(array: Any, min: Any = None, max: Any = None, **kwargs: Any) -> Any:
    return np.clip(array, min, max, **kwargs)


def _method(name: str) -> Function:
    function = _clip if name == "clip" else getattr(np, name)

    def run(array: Any, *args: Any, **kwargs: Any) -> Any:
        if find_traced((args, tuple(kwargs.values()))) is None:
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
    def make(cls: type, operand: Any) -> Any:
        if cls is not kind or find_traced(operand) is None:
            return NotImplemented
        array = as_array(operand)
        convert_number(
            array.value, np.dtype(kind)
        )  # which raises an error for a Python number that does not fit
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


def _python_number(x: Any) -> Any:
    """Return the argument of ``float(x)`` itself where a traced package, or code in a trace that has no numbers, converts it."""
    caller = sys._getframe(2).f_code.co_filename
    if find_traced(x) is None or np.ndim(x) or not stays_traced(as_array(x).value, caller):
        return NotImplemented
    return NotImplemented if x.dtype.kind == "c" else as_python_number(x, float)


def _complex_number(cls: type, real: Any = 0.0, imag: Any = 0.0) -> Any:
    """Return the argument of ``complex(x)``, or the number of two parts, where ``float(x)`` is the number itself."""
    caller = sys._getframe(2).f_code.co_filename
    parts = [as_array(part) for part in (real, imag) if find_traced(part) is not None]
    if cls is not complex or not parts:
        return NotImplemented
    if any(np.ndim(part) or not stays_traced(part.value, caller) for part in parts):
        return NotImplemented
    if type(imag) is float and imag == 0.0:
        return as_python_number(as_array(real), complex)
    if any(np.iscomplexobj(part) for part in parts):
        return NotImplemented
    number: Any = np.zeros(1, complex, like=parts[0])
    number.real, number.imag = real, imag
    return as_python_number(number[0], complex)


def _is_instance(kind: Any, x: Any) -> Any:
    """Return what ``isinstance(x, Iterable)`` is of what NumPy has in this place: a number is none, and an instance of `numbers.Real`."""
    if type(x) is not Array:
        return NotImplemented
    cls = x._numpy_class()
    # An object of the class: protocols with attributes refuse issubclass.
    return isinstance(np.empty(0) if cls is np.ndarray else cls(), kind)


def _operator_of_number(operation: Any, x: Any = None, *others: Any, **kwargs: Any) -> Any:
    """Call ``float.__mul__(x, y)`` with traced numbers, which stand for numbers of Python's."""
    is_number = isinstance(x, Handle | int | float | complex)
    if operation.__objclass__ not in (float, int, complex) or not is_number or kwargs:
        return NotImplemented
    name = operation.__name__
    if hasattr(operator, name):
        return getattr(operator, name)(x, *others)
    reflected = f"__{name.removeprefix('__r')}"
    return getattr(operator, reflected)(*others, x) if hasattr(operator, reflected) else NotImplemented


_OF_SEQUENCES: Final = frozenset({"__contains__", "__getitem__", "__iter__", "__len__", "__setitem__"})
"""Methods that arrays have, and numbers do not all have: code uses them to tell one from the other."""


def _has_attribute(x: Any, name: Any) -> Any:
    """Return what ``hasattr(x, "__len__")`` is of what NumPy has in this place."""
    return hasattr(x._numpy_class(), name) if type(x) is Array and name in _OF_SEQUENCES else NotImplemented


_ITERATORS: Final[dict[type, Any]] = {np.nditer: ArrayIterator, np.broadcast: Broadcast}


def _iterator(cls: type, *args: Any, **kwargs: Any) -> Any:
    given = [*args, *kwargs.values()]
    is_traced = cls in _ITERATORS and (find_traced(given) is not None or Broadcast in map(type, args))
    return _ITERATORS[cls](*args, **kwargs) if is_traced else NotImplemented


def _of_buffer(
    cls: type,
    shape: Any,
    dtype: Any = float,
    buffer: Any = None,
    offset: int = 0,
    strides: Any = None,
    order: Any = None,
) -> Any:
    """Call ``np.ndarray(shape, dtype, buffer=x)``, by which classes make their objects, for a traced array in memory order."""
    if not isinstance(buffer, Handle) or offset or strides is not None or order not in (None, "C"):
        return NotImplemented
    array: Any = as_array(buffer)
    if np.dtype(dtype) != array.dtype or math.prod(np.atleast_1d(shape).tolist()) != array.size:
        return NotImplemented
    made = np.ravel(array).reshape(shape)
    return made if cls is np.ndarray else instance(cls, made, None)


def _cached(cached: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function of `functools.lru_cache` with traced numbers, which have no fixed value to be found by: nothing is kept.

    Of the user's own functions a compiled one checks what they read, but not of what is called in their place.
    """
    function = cached.__wrapped__
    if type(function) is FunctionType and is_user_file(function.__code__.co_filename):
        return NotImplemented
    return function(*args, **kwargs)


def _getitem(array: Any, key: Any) -> Any:
    """Return ``y[k]`` of an ndarray, or of its iterator ``y.flat``, for index arrays and masks whose numbers a trace does not know."""
    keys = key if type(key) is tuple else (key,)
    if not any(isinstance(each, Handle) and each.ndim and abstracting_trace(each.value) for each in keys):
        return NotImplemented
    whole = np.ravel(array.base) if type(array) is np.flatiter else array
    return Array(as_value(whole, "the array"))[key] if whole.dtype.kind in "biufc" else NotImplemented


def _arange(*args: Any, **kwargs: Any) -> Any:
    traced = find_traced([*args, *kwargs.values()])
    return (
        NotImplemented
        if traced is None
        else traced.__array_function__(np.arange, (type(traced),), args, kwargs)
    )


CONVERSIONS: Final[dict[Any, Function]] = {
    WrapperDescriptorType: _operator_of_number,
    _abc._abc_instancecheck: _is_instance,
    float: _python_number,
    complex: _complex_number,
    type(functools.lru_cache(len)): _cached,
    hasattr: _has_attribute,
    np.ndarray: _of_buffer,
    np.arange: _arange,
    **dict.fromkeys(_ITERATORS, _iterator),
    vars(np.ndarray)["__getitem__"]: _getitem,
    vars(np.flatiter)["__getitem__"]: _getitem,
    **{kind: _scalar(kind) for kind in SCALARS},
    **{vars(np.ndarray)[name]: _method(name) for name in METHODS},
}
"""By type, function or method, what is called in its place."""
