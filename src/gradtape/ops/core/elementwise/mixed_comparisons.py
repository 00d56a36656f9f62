"""Comparisons of integers that no common integer type can hold: NumPy compares the numbers themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.graph import Literal, Value, literal
from gradtape.ir.types import BOOL, INT64
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.floats import trunc
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, less_equal, not_equal
from gradtape.ops.core.elementwise.select import where

UINT64 = np.dtype(np.uint64)


def _comparing(row: Elementwise, mirrored: Elementwise) -> Callable[[Any, Any], Value]:
    """Return the row for operands of any types; `mirrored` says the same with its operands exchanged."""

    def compare(x: Any, y: Any) -> Value:
        if type(x) is Value and (type(y) is float or (type(y) is Value and x.aval is y.aval)):
            return row.of_two(x, y)
        if type(x) is int or type(y) is int:
            if type(y) is int and (side := _beyond(x, y)):
                return _everywhere(row.function(0, side), x)
            if type(x) is int and (side := _beyond(y, x)):
                return _everywhere(row.function(side, 0), y)
            return row(x, y)
        left, right = as_value(x), as_value(y)
        left, right = _beside_any(left, right), _beside_any(right, left)
        if left.dtype.kind == "i" and right.dtype == UINT64 and _is_any(left):
            return _signed_first(row, left, right)
        if right.dtype.kind == "i" and left.dtype == UINT64 and _is_any(right):
            return _signed_first(mirrored, right, left)
        return row(left, right)

    return compare


def _is_any(number: Value) -> bool:
    """Return whether an integer may be any one: it is not known to fit the dtype of the other operand."""
    return not (number.aval.weak and isinstance(number, Literal))


def _beside_any(x: Value, other: Value) -> Value:
    """Return an operand in a dtype that holds a Python integer which is not known yet, if the other operand is one."""
    is_python = other.aval.weak and other.dtype.kind == "i" and not isinstance(other, Literal)
    return convert(x, INT64) if is_python and x.dtype.kind in "iu" and x.dtype != UINT64 else x


def _beyond(x: Any, number: int) -> int:
    """Return 1 or -1 where a number is above or below everything that the integers x can be, else 0."""
    if not isinstance(x, Value | np.ndarray | np.generic) or x.dtype.kind not in "iu":
        return 0
    limits = np.iinfo(x.dtype)
    return (number > limits.max) - (number < limits.min)


def _everywhere(outcome: Any, like: Any) -> Value:
    known, value = literal(bool(outcome), BOOL), as_value(like)
    return known if isinstance(value, Literal) else broadcast_to(known, value.shape)


def _signed_first(row: Elementwise, signed: Value, unsigned: Value) -> Value:
    """Negative numbers are below all unsigned ones; the others fit the unsigned type."""
    outcome = literal(bool(row.function(-1, 0)), BOOL)
    return where(less(signed, 0), outcome, row(convert(signed, UINT64), unsigned))


def fits(number: Value, dtype: np.dtype[Any]) -> Value:
    """Return whether an integer, or the integer part of a number, is a number of an integer dtype."""
    limits = np.iinfo(dtype)
    if number.dtype.kind == "f":
        whole = trunc(number)
        return greater_equal(whole, float(limits.min)) & less(whole, float(limits.max + 1))
    own = np.iinfo(number.dtype)
    if limits.max >= own.max:
        return greater_equal(number, limits.min)
    below = less_equal(number, limits.max)
    return below if limits.min <= own.min else greater_equal(number, limits.min) & below


MIRRORED = (
    (less, greater),
    (less_equal, greater_equal),
    (greater, less),
    (greater_equal, less_equal),
    (equal, equal),
    (not_equal, not_equal),
)
for _row, _mirrored in MIRRORED:
    UFUNCS[_row.name] = _comparing(_row, _mirrored)
