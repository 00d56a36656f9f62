"""Builtins, `math`, `cmath`, `operator` and Numba's own functions on abstract values."""

from __future__ import annotations

import cmath
import functools
import math
import operator
import types
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from gradtape.frontend.interpreter import Interpreter, get_item
from gradtape.frontend.loops.sequences import sequence
from gradtape.frontend.numpy.calls import call as numpy_call
from gradtape.frontend.operators import BINARY, UNARY, binary, both, counted, either, unary
from gradtape.frontend.values import (
    BoundMethod,
    Closure,
    Enumerated,
    ListReference,
    Places,
    RaisedError,
    RangeValue,
    Reversed,
    Template,
    Unrolled,
    Zipped,
    as_condition,
    as_integer,
    is_number,
    is_static,
    number_type,
    refuse,
    settled,
    shown,
    weak,
)
from gradtape.ir.builder import emit
from gradtape.ir.graph import Value, extract
from gradtape.ir.types import BOOL, FLOAT64, INT64
from gradtape.kinds.operands import as_value, conform
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.arrays.indexing import getitem
from gradtape.procedures.arrays.reductions import first_extremum
from gradtape.procedures.arrays.view import Expression

T = TypeVar("T")

FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {}
"""What runs in place of a function; it takes the interpreter before the arguments."""

COMPLEX128: Final = np.dtype(np.complex128)


def runs(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let the decorated function run in place of others."""

    def enter(replacement: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            FUNCTIONS[function] = replacement
        return replacement

    return enter


# Conversions


def converted(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number as one of Python's of another type."""
    x = number_of_array(x)
    if not isinstance(x, Value):
        return x
    return x if x.dtype == dtype else weak(conform(x, dtype, ()))


def as_python_number(x: Any) -> Any:
    """Return a number as one of Python's, which takes the dtype of arrays that it meets."""
    if not isinstance(x, Value) or x.aval.weak or x.dtype == BOOL:
        return x
    return weak(emit(UFUNCS["positive"], [x]))  # type: ignore[arg-type]


def number_of_array(x: Any) -> Any:
    """Return the element of an array that has one, or a number as it is."""
    if isinstance(x, Expression):
        if isinstance(x.size, int) and x.size == 1:
            return getitem(x, (0,) * x.ndim)
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
    if not is_number(x):
        refuse(f"{shown(x)} is used where a number is required")
    return settled(x)


@runs(float)
def to_float(self: Interpreter, x: Any = 0.0) -> Any:
    if isinstance(x, str):
        return float(x)
    x = number_of_array(x)
    return as_python_number(converted(x, FLOAT64)) if isinstance(x, Value) else float(x)


@runs(int, math.trunc)
def to_int(self: Interpreter, x: Any = 0) -> Any:
    x = number_of_array(x)
    return as_python_number(converted(x, INT64)) if isinstance(x, Value) else int(x)


@runs(bool, operator.truth)
def to_bool(self: Interpreter, x: Any = False) -> Any:
    grown = self.growing(x)
    if grown is not None:
        return as_condition(binary(self.build, operator.gt, grown.length, 0))
    items = self.items(x)
    return bool(items) if items is not None else as_condition(x)


@runs(complex)
def to_complex(self: Interpreter, x: Any = 0.0, y: Any = 0.0) -> Any:
    x, y = number_of_array(x), number_of_array(y)
    if not isinstance(x, Value) and not isinstance(y, Value):
        return complex(x, y)
    if not isinstance(y, Value) and y == 0:
        return as_python_number(converted(x, COMPLEX128))
    if number_type(x)[0].kind == "c" or number_type(y)[0].kind == "c":
        return binary(self.build, operator.add, x, binary(self.build, operator.mul, y, 1j))
    parts = [conform(as_value(part), FLOAT64, ()) for part in (x, y)]
    return weak(emit(UFUNCS["from_parts"], parts))  # type: ignore[arg-type]


@runs(np.dtype)
def to_dtype(self: Interpreter, dtype: np.dtype[Any], x: Any = 0) -> Any:
    """Return ``np.float64(x)`` and the like."""
    x = self.plain(x)
    if isinstance(x, list | tuple):
        return numpy_call(self.build, np.array, (x,), {"dtype": dtype})
    if isinstance(x, Expression):
        return numpy_call(self.build, np.astype, (x, dtype), {})
    if not isinstance(x, Value):
        return dtype.type(x)
    if x.dtype == dtype and not x.aval.weak:
        return x
    return emit(UFUNCS["positive"], [x]) if x.dtype == dtype else conform(x, dtype, ())  # type: ignore[arg-type]


# Functions of numbers


def _math(name: str, row: str) -> None:
    """Enter a function of `math` that computes with doubles."""
    function = getattr(math, name)

    def replacement(self: Interpreter, *args: Any) -> Any:
        numbers = [number_of_array(x) for x in args]
        if not any(isinstance(x, Value) for x in numbers):
            return function(*numbers)
        is_exact = all(number_type(x)[0] == FLOAT64 for x in numbers)
        result = UFUNCS[row](*[x if is_exact else converted(x, FLOAT64) for x in numbers])
        return as_python_number(settled(result))

    FUNCTIONS[function] = replacement


for _name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "expm1", "log2", "log10", "log1p", "sqrt"):
    _math(_name, _name)
for _name in ("hypot", "copysign", "fmod", "isnan", "isinf", "isfinite", "erf", "erfc", "gamma", "degrees"):
    _math(_name, _name)
for _name in ("radians", "cbrt", "exp2", "ldexp", "nextafter", "fabs"):
    _math(_name, _name)
for _name, _row in {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "lgamma": "gammaln",
    "pow": "power",
    "fabs": "absolute",
}.items():
    _math(_name, _row)


@runs(math.log)
def log(self: Interpreter, x: Any, base: Any = None) -> Any:
    x = number_of_array(x)
    if base is not None:
        return binary(self.build, operator.truediv, log(self, x), log(self, number_of_array(base)))
    return as_python_number(UFUNCS["log"](converted(x, FLOAT64))) if isinstance(x, Value) else math.log(x)


@runs(math.floor)
def floor(self: Interpreter, x: Any) -> Any:
    return _rounded(x, "floor", math.floor)


@runs(math.ceil)
def ceil(self: Interpreter, x: Any) -> Any:
    return _rounded(x, "ceil", math.ceil)


def _rounded(x: Any, row: str, function: Any) -> Any:
    x = number_of_array(x)
    if not isinstance(x, Value):
        return function(x)
    return converted(UFUNCS[row](x) if x.dtype.kind == "f" else x, INT64)


@runs(round)
def round_(self: Interpreter, x: Any, digits: Any = None) -> Any:
    if isinstance(x, Expression):
        return numpy_call(self.build, np.round, (x, digits or 0), {})
    x = number_of_array(x)
    if not isinstance(x, Value):
        return round(x, digits)
    if digits is None:
        return _rounded(x, "rint", round)
    rounded = numpy_call(self.build, np.round, (x, digits), {})
    return as_python_number(rounded) if x.aval.weak else rounded


@runs(math.gcd)
def gcd(self: Interpreter, x: Any, y: Any) -> Any:
    x, y = settled(x), settled(y)
    return UFUNCS["gcd"](x, y) if isinstance(x, Value) or isinstance(y, Value) else math.gcd(x, y)


@runs(abs)
def absolute(self: Interpreter, x: Any) -> Any:
    if isinstance(x, Expression):
        return numpy_call(self.build, np.absolute, (x,), {})
    return settled(UFUNCS["absolute"](x)) if isinstance(x, Value) else abs(x)


@runs(pow)
def power(self: Interpreter, x: Any, y: Any, modulus: Any = None) -> Any:
    result = binary(self.build, operator.pow, x, y)
    return result if modulus is None else binary(self.build, operator.mod, result, modulus)


@runs(divmod)
def divmod_(self: Interpreter, x: Any, y: Any) -> Any:
    return binary(self.build, operator.floordiv, x, y), binary(self.build, operator.mod, x, y)


def _extreme(name: str, compare: Any) -> Callable[..., Any]:
    """Return ``max`` or ``min``: Python's keep the first of equal numbers, and of a NaN what a comparison leaves."""

    def replacement(self: Interpreter, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            refuse(f"{name} is called with {', '.join(kwargs)}")
        if len(args) == 1:
            args = (self.as_array(args[0]),)
            items = self.items(args[0])
            if items is None and isinstance(args[0], Expression):
                if args[0].ndim != 1:
                    refuse(f"{name} is called with an array of {args[0].ndim} axes")
                return first_extremum(args[0], name == "max")
            args = tuple(items or ())
        best = args[0]
        for candidate in args[1:]:
            best = _better(self, compare, best, candidate)
        return best

    return replacement


def _better(self: Interpreter, compare: Any, best: Any, candidate: Any) -> Any:
    chosen = binary(self.build, compare, candidate, best)
    if not isinstance(chosen, Value):
        return candidate if chosen else best
    return settled(where(chosen, candidate, best))


FUNCTIONS[max] = _extreme("max", operator.gt)
FUNCTIONS[min] = _extreme("min", operator.lt)


def _of_cmath(name: str, row: str) -> None:
    function = getattr(cmath, name)

    def replacement(self: Interpreter, x: Any) -> Any:
        x = number_of_array(x)
        return (
            as_python_number(UFUNCS[row](converted(x, COMPLEX128))) if isinstance(x, Value) else function(x)
        )

    FUNCTIONS[function] = replacement


for _name in (
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "exp",
    "log",
    "sqrt",
    "log10",
    "isnan",
    "isfinite",
):
    _of_cmath(_name, _name)


@runs(cmath.phase)
def phase(self: Interpreter, x: Any) -> Any:
    return as_python_number(numpy_call(self.build, np.angle, (number_of_array(x),), {}))


# Sequences


@runs(len)
def length(self: Interpreter, x: Any) -> Any:
    grown = self.growing(x)
    if grown is not None:
        return grown.length
    items = self.items(x)
    if items is not None:
        return len(items)
    if isinstance(x, RangeValue):
        count = counted(self.build, x)
        return where(count < 0, 0, count) if isinstance(count, Value) else count
    if isinstance(x, Expression) and x.ndim:
        return x.shape[0]
    return sequence(self, x).count


@runs(range, "numba.prange")
def range_(self: Interpreter, *args: Any) -> Any:
    integers = [as_integer(x, "an argument of range") for x in args]
    start, stop, step = (0, integers[0], 1) if len(integers) == 1 else (*integers, 1)[:3]
    return RangeValue(start, stop, step)


def _parallel(self: Interpreter, *args: Any) -> Any:
    rows = range_(self, *args)
    rows.parallel = True
    return rows


FUNCTIONS["numba.prange"] = _parallel


@runs(enumerate)
def enumerate_(self: Interpreter, iterable: Any, start: Any = 0) -> Any:
    return Enumerated(iterable, start)


@runs(zip)
def zip_(self: Interpreter, *iterables: Any, strict: bool = False) -> Any:
    return Zipped(iterables)


@runs(reversed)
def reversed_(self: Interpreter, iterable: Any) -> Any:
    return Reversed(iterable)


@runs("numba.literal_unroll")
def literal_unroll(self: Interpreter, iterable: Any) -> Any:
    return Unrolled(iterable)


@runs(np.ndindex, "numba.pndindex")
def ndindex(self: Interpreter, *shape: Any) -> Any:
    first = shape[0] if shape else ()
    return Places(tuple(first) if isinstance(first, tuple) else shape)


@runs(np.ndenumerate)
def ndenumerate(self: Interpreter, array: Any) -> Any:
    return Places(tuple(array.shape), array)


@runs(sum)
def sum_(self: Interpreter, iterable: Any, start: Any = 0) -> Any:
    iterable = self.as_array(iterable)
    if isinstance(iterable, Expression) and iterable.ndim == 1:
        total = numpy_call(self.build, np.sum, (iterable,), {})
        return (
            total
            if start == 0 and not isinstance(start, Value)
            else binary(self.build, operator.add, total, start)
        )
    rows = sequence(self, iterable)
    if not isinstance(rows.count, int):
        refuse("the sum of a sequence whose length depends on data", "add in a loop, or use np.sum")
    for k in range(rows.count):
        start = binary(self.build, operator.add, start, rows.item(k))
    return start


def _folded(combine: Callable[[Any, Any], Any], first: bool) -> Callable[..., Any]:
    def replacement(self: Interpreter, iterable: Any) -> Any:
        rows = sequence(self, iterable)
        if not isinstance(rows.count, int):
            refuse("all or any of a sequence whose length depends on data", "use np.all or np.any")
        result: Any = first
        for k in range(rows.count):
            result = combine(result, as_condition(rows.item(k)))
        return result

    return replacement


FUNCTIONS[all] = _folded(both, True)
FUNCTIONS[any] = _folded(either, False)


@runs(tuple)
def tuple_(self: Interpreter, iterable: Any = ()) -> Any:
    rows = sequence(self, iterable)
    if not isinstance(rows.count, int):
        refuse("a tuple of a sequence whose length depends on data", "use an array")
    return tuple([rows.item(k) for k in range(rows.count)])


@runs(list)
def list_(self: Interpreter, iterable: Any = ()) -> Any:
    return self.new_list(tuple_(self, iterable))


@runs(slice)
def slice_(self: Interpreter, *args: Any) -> Any:
    return slice(*args)


@runs(map)
def map_(self: Interpreter, function: Any, *iterables: Any) -> Any:
    parts = [sequence(self, one) for one in iterables]
    counts = [one.count for one in parts]
    if not all(isinstance(one, int) for one in counts):
        refuse("a map over a sequence whose length depends on data", "write a loop")
    return tuple(
        [self.call(self, function, [part.item(k) for part in parts], {}) for k in range(min(counts))]
    )


# Types and the rest


@runs(isinstance)
def isinstance_(self: Interpreter, x: Any, kinds: Any) -> bool:
    if is_static(x):
        return isinstance(x, kinds)
    return _only(self, x, {issubclass(cls, kinds) for cls in classes_of(self, x)})


@runs(type)
def type_(self: Interpreter, x: Any) -> type:
    return _only(self, x, classes_of(self, x))


def _only(self: Interpreter, x: Any, answers: set[T]) -> T:
    """Return the one answer to a question for a class."""
    if len(answers) > 1:
        names = " or ".join(sorted(cls.__name__ for cls in classes_of(self, x)))
        refuse(
            f"the class of {shown(x)} is needed, and it is {names}, depending on the iteration or the branch",
            "give the number one class, for example with float(...) where it is assigned",
        )
    (answer,) = answers
    return answer


def classes_of(self: Interpreter, x: Any) -> set[type]:
    """Return the classes that Python may see of an abstract value."""
    if not isinstance(x, Value) or not self.build.number_types:
        return {class_of(x)}
    types_ = self.build.number_types.get(x, frozenset())
    if not types_:
        return {class_of(x), *([PYTHON_CLASSES[x.dtype.kind]] if _may_be_weak(self, x) else [])}
    return {
        PYTHON_CLASSES.get(dtype.kind, dtype.type) if is_weak else dtype.type for dtype, is_weak in types_
    }


def _may_be_weak(self: Interpreter, x: Value) -> bool:
    """Return whether a value may be a number of Python, since it is computed from numbers of several classes alone."""
    several = self.build.number_types
    nodes, leaves = extract([x], stop=lambda value: not value.is_made or value in several)
    if x.dtype.kind not in PYTHON_CLASSES or several.keys().isdisjoint(leaves):
        return False
    may_be = {leaf: leaf.aval.weak or any(is_weak for _, is_weak in several.get(leaf, ())) for leaf in leaves}
    for node in nodes:
        may_be.update(dict.fromkeys(node.outs, all(may_be.get(operand, True) for operand in node.inputs)))
    return may_be[x]


def class_of(x: Any) -> type:
    """Return the class that Python would see of an abstract value."""
    if isinstance(x, Expression):
        return np.ndarray
    if isinstance(x, Value):
        number: type = x.dtype.type
        return PYTHON_CLASSES.get(x.dtype.kind, number) if x.aval.weak else number
    if type(x) in CLASSES:
        return CLASSES[type(x)]
    if isinstance(x, BoundMethod | RaisedError | Reversed | Unrolled | Places):
        refuse(f"the class of {shown(x)} is needed", "write the code for that class, without the check")
    return type(x)


CLASSES: Final[dict[type, type]] = {
    Closure: types.FunctionType,
    Enumerated: enumerate,
    ListReference: list,
    RangeValue: range,
    Zipped: zip,
}
"""The classes of what stands for objects of Python."""

PYTHON_CLASSES: Final[dict[str, type]] = {"b": bool, "c": complex, "f": float, "i": int}
"""Python's classes of numbers by the kind of the dtype."""


def _text(function: Any) -> Any:
    """Return what runs in place of a function that makes a text."""

    def text(self: Interpreter, *args: Any) -> str | Template:
        return function(*args) if all(map(is_static, args)) else Template("{}")

    return text


for _function in (str, repr, format):
    runs(_function)(_text(_function))


@runs(print)
def print_(self: Interpreter, *args: Any, **kwargs: Any) -> None:
    refuse("print is called", "print outside the function, or set gt.config.loops = 'trace'")


@runs(callable)
def callable_(self: Interpreter, x: Any) -> bool:
    return isinstance(x, Closure) or callable(x)


@runs(getattr)
def getattr_(self: Interpreter, x: Any, name: str, *default: Any) -> Any:
    return self.attribute(self, x, name)


@runs(functools.reduce)
def reduce_(self: Interpreter, function: Any, iterable: Any, *first: Any) -> Any:
    items = [*first, *tuple_(self, iterable)]
    result = items[0]
    for item in items[1:]:
        result = self.call(self, function, [result, item], {})
    return result


@runs(functools.partial)
def partial_(self: Interpreter, function: Any, *args: Any, **kwargs: Any) -> Any:
    return functools.partial(function if callable(function) else Carrier(function), *args, **kwargs)


class Carrier:
    """Makes an abstract function callable, as `functools.partial` demands; a call of the partial function takes it out again."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self) -> None:
        raise AssertionError("an abstract function is not called by Python")


for _operator in BINARY:
    FUNCTIONS[_operator] = lambda self, x, y, _operator=_operator: binary(self.build, _operator, x, y)
for _operator in UNARY:
    FUNCTIONS[_operator] = lambda self, x, _operator=_operator: unary(self.build, _operator, x)
FUNCTIONS[operator.getitem] = get_item
