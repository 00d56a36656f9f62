"""Operators of Python on abstract values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.frontend.numpy.calls import call
from gradtape.frontend.values import (
    Conflict,
    ListReference,
    NeedsStaticError,
    RangeValue,
    Template,
    as_condition,
    as_integer,
    is_number,
    number_type,
    refuse,
    settled,
    shown,
    weak,
)
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, FLOAT64, INT64
from gradtape.kinds.operands import as_value, conform
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.logic import invert, logical_not
from gradtape.ops.core.elementwise.power import is_square
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.view import Expression
from gradtape.procedures.builder import ProcedureBuilder

BINARY: Final[dict[Any, np.ufunc]] = {
    operator.add: np.add,
    operator.sub: np.subtract,
    operator.mul: np.multiply,
    operator.truediv: np.divide,
    operator.floordiv: np.floor_divide,
    operator.mod: np.remainder,
    operator.pow: np.power,
    operator.matmul: np.matmul,
    operator.and_: np.bitwise_and,
    operator.or_: np.bitwise_or,
    operator.xor: np.bitwise_xor,
    operator.lshift: np.left_shift,
    operator.rshift: np.right_shift,
    operator.lt: np.less,
    operator.le: np.less_equal,
    operator.gt: np.greater,
    operator.ge: np.greater_equal,
    operator.eq: np.equal,
    operator.ne: np.not_equal,
}

COMPARISONS: Final = frozenset(
    {operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.contains}
)
"""Operators that look at the items of sequences."""

UNARY: Final[dict[Any, np.ufunc]] = {
    operator.neg: np.negative,
    operator.pos: np.positive,
    operator.invert: np.invert,
}

_ARITHMETIC: Final = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow}


def binary(build: ProcedureBuilder, function: Any, x: Any, y: Any) -> Any:
    """Return ``function(x, y)`` for a binary operator."""
    if function in (operator.is_, operator.is_not):
        return _identity(x, y) is (function is operator.is_)
    if function is operator.contains:
        return contains(build, x, y)
    if isinstance(x, Expression) or isinstance(y, Expression):
        if function is operator.pow and isinstance(x, Expression) and is_square(x.dtype, y):
            return call(build, np.square, (x,), {})
        return call(build, BINARY[function], (x, y), {})
    if is_number(x) and is_number(y):
        if isinstance(x, Value) or isinstance(y, Value):
            return scalar_binary(function, x, y)
        return static(function, x, y)
    if isinstance(x, Template) or isinstance(y, Template):
        texts = [each.text if isinstance(each, Template) else each for each in (x, y)]
        if function is operator.add and all(isinstance(text, str) for text in texts):
            return Template("".join(texts))
        refuse(f"{shown(x)} and {shown(y)} are combined by {function.__name__}")
    if isinstance(x, Value | ListReference | Conflict) or isinstance(y, Value | ListReference | Conflict):
        if function in (operator.eq, operator.ne):
            return function is operator.ne
        refuse(f"{shown(x)} and {shown(y)} are combined by {function.__name__}")
    if (isinstance(x, tuple) and isinstance(y, tuple)) or (isinstance(x, list) and isinstance(y, list)):
        return sequences(build, function, x, y)
    return static(function, x, y)


def static(function: Any, *operands: Any) -> Any:
    """Return what Python computes from known operands."""
    with np.errstate(all="ignore"):
        return function(*operands)


def _identity(x: Any, y: Any) -> bool:
    x, y = settled(x), settled(y)
    if isinstance(x, bool | None) or isinstance(y, bool | None):
        return x is y
    return x is y or (isinstance(x, type) and x == y)


def scalar_binary(function: Any, x: Any, y: Any) -> Any:
    """Return a binary operator of numbers of which one at least depends on data."""
    left, right = number_type(x)[0], number_type(y)[0]
    if function in _ARITHMETIC and left == BOOL and right == BOOL:
        x, y = (weak(conform(as_value(operand), INT64, ())) for operand in (x, y))
    elif function is operator.pow and left.kind in "iu" and right.kind in "iu":
        return integer_power(x, y)
    result = UFUNCS[BINARY[function].__name__](x, y)
    return settled(result)


def integer_power(x: Any, y: Any) -> Any:
    """Return the power of integers: exact up to 2**53; the exponent is not negative, unless it is known."""
    if isinstance(y, int | np.integer) and y >= 0:
        return UFUNCS["power"](x, y)
    if x == 2 and isinstance(x, int):
        return UFUNCS["left_shift"](1, y)
    result = UFUNCS["power"](*[conform(as_value(operand), FLOAT64, ()) for operand in (x, y)])
    if not isinstance(y, Value):
        return weak(result)
    return weak(conform(UFUNCS["rint"](result), INT64, ()))


def sequences(build: ProcedureBuilder, function: Any, x: Sequence[Any], y: Sequence[Any]) -> Any:
    """Return a binary operator of two tuples or two lists: concatenation of tuples, or a comparison item by item."""
    if function is operator.add:
        return tuple(x) + tuple(y)
    if function in (operator.eq, operator.ne):
        result: Any = len(x) == len(y)
        if result:
            for first, second in zip(x, y, strict=True):
                result = both(result, binary(build, operator.eq, first, second))
        return result if function is operator.eq else negated(result)
    for first, second in zip(x, y, strict=False):
        equal = binary(build, operator.eq, first, second)
        if equal is False:
            return binary(build, function, first, second)
        if equal is not True:
            refuse("sequences of numbers that follow from data are compared", "compare their items")
    return static(function, len(x), len(y))


def contains(build: ProcedureBuilder, container: Any, item: Any) -> Any:
    """Return ``item in container``."""
    if isinstance(container, RangeValue):
        x = as_integer(item, "the item")
        above = binary(build, operator.ge, x, container.start)
        return both(above, binary(build, operator.lt, x, container.stop))
    if not isinstance(container, tuple | list | str | range | frozenset | set | dict):
        refuse(f"membership in {shown(container)}")
    if _is_known(item) and (isinstance(container, str | range) or all(map(_is_known, container))):
        return item in container
    is_in: Any = False
    for member in container:
        equal = binary(build, operator.eq, member, item)
        is_in = either(is_in, equal)
    return is_in


def _is_known(value: Any) -> bool:
    """Return whether nothing in a value depends on data."""
    return all(map(_is_known, value)) if isinstance(value, tuple | list) else not isinstance(value, Value)


def both(x: Any, y: Any) -> Any:
    """Return the conjunction of two conditions."""
    x, y = settled(x), settled(y)
    if isinstance(x, Value) and isinstance(y, Value):
        return x & y
    if isinstance(x, Value):
        return x if y else False
    return y if x else False


def either(x: Any, y: Any) -> Any:
    """Return the disjunction of two conditions."""
    x, y = settled(x), settled(y)
    if isinstance(x, Value) and isinstance(y, Value):
        return x | y
    if isinstance(x, Value):
        return True if y else x
    return True if x else y


def negated(x: Any) -> Any:
    """Return the negation of a condition."""
    x = settled(x)
    if not isinstance(x, Value):
        return not x
    maker = x.maker()
    return settled(maker[1][0]) if maker is not None and maker[0] is invert else ~x


def unary(build: ProcedureBuilder, function: Any, x: Any) -> Any:
    """Return a unary operator of an abstract value."""
    if isinstance(x, Expression):
        if function is operator.not_:
            return negated(as_condition(x))
        return call(build, UNARY[function], (x,), {})
    if function is operator.not_:
        return negated(as_condition(x))
    if isinstance(x, Value):
        if x.dtype == BOOL and function is not operator.invert:
            x = weak(conform(x, INT64, ()))
        return settled(logical_not(x) if function is operator.not_ else UFUNCS[UNARY[function].__name__](x))
    return static(function, x)


def item_of(items: Any, key: Any) -> Any:
    """Return an item of a tuple, or of the items of a list."""
    key = settled(key)
    if isinstance(key, slice):
        parts = [settled(bound) for bound in (key.start, key.stop, key.step)]
        if any(isinstance(bound, Value) for bound in parts):
            raise needs_static("the slice of a tuple or list")
        return items[slice(*parts)]
    if not isinstance(key, Value):
        return items[key]
    if len(items) and all(map(is_number, items)) and len(items) <= MOST_CHOICES:
        return chosen(items, key)
    raise needs_static("the index of a tuple or list")


MOST_CHOICES: Final = 8
"""An item of a tuple of numbers is selected by comparisons up to this length, if its index depends on data."""


def chosen(items: Any, index: Value) -> Any:
    """Return the item at an index that is not known."""
    result: Any = items[-1]
    for position in range(len(items) - 2, -1, -1):
        result = where(is_at(index, position, len(items)), items[position], result)
    return result


def is_at(index: Value, position: int, length: int) -> Value:
    """Return whether an index names a place of a sequence, counted from either end."""
    equal = UFUNCS["equal"]
    is_here: Value = equal(index, position) | equal(index, position - length)
    return is_here


def needs_static(description: str) -> NeedsStaticError:
    return NeedsStaticError(
        f"{description} depends on data",
        where=here.site,
        why="the items of a tuple or list may have different types",
        remedy="use an array, or a loop over the tuple itself",
    )


def counted(build: ProcedureBuilder, rows: RangeValue) -> Any:
    """Return the number of items of a range."""
    start, stop, step = rows.start, rows.stop, rows.step
    if isinstance(step, Value):
        up = _count(start, stop, step)
        down = _count(stop, start, ix.subtract(0, step))
        return ix.choose(_ufunc("greater")(step, 0), up, down)
    if step == 0:
        raise ValueError("range() arg 3 must not be zero")
    return _count(start, stop, step) if step > 0 else _count(stop, start, -step)


def _count(low: Any, high: Any, step: Any) -> Any:
    span = ix.subtract(high, low)
    if not (isinstance(step, int) and step == 1):
        span = ix.floor_divide(ix.subtract(ix.add(span, step), 1), step)
    return max(span, 0) if isinstance(span, int) else span


def _ufunc(name: str) -> Callable[..., Any]:
    return UFUNCS[name]
