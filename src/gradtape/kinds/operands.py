"""From what a user passes to graph values of the right dtype and shape."""

from __future__ import annotations

import weakref
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from gradtape.errors import ArraySubclassError, DtypeError, ShapeError, kind_of
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value, constant, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INT64, PYTHON_DTYPES, Shape, is_inexact
from gradtape.kinds.refusals import SUPPORTED, is_table, refusal, too_long, values_of, wrong_dtype
from gradtape.kinds.registry import HOOKS

COMPACT: dict[type, Callable[[Any], Value]] = {}
"""Types that stand for an array in another form, with what makes the array of an instance."""

HELD: Final[weakref.WeakValueDictionary[int, Any]] = weakref.WeakValueDictionary()
"""By the ids of ndarrays: the objects that hold them and have a value for their content, `value`, which is the same at each read."""

NUMBER_LIKE: dict[type, Callable[[Any], Any]] = {}
"""Types that stand for a number, with what returns it."""


def as_value(operand: Any, argument: str = "operand") -> Value:
    """Return an operand as a value: numbers become literals, arrays are copied (a value never changes).

    Raises
    ------
    ArraySubclassError
        For np.matrix, masked arrays and other subclasses of ndarray.
    DtypeError
        For what is not a number or an array of numbers.
    """
    if isinstance(operand, Value):
        return operand
    if type(operand) in PYTHON_DTYPES:
        if is_long(operand):
            raise too_long(operand, argument)
        return literal(operand)
    if issubclass(type(operand), np.generic):
        return literal(operand, check_dtype(operand.dtype, argument))
    if issubclass(type(operand), np.ndarray):
        if (
            HELD
            and operand.ndim
            and (holder := HELD.get(id(operand))) is not None
            and holder.numbers is operand
        ):
            known: Value = holder.value
            return known
        check_plain(operand, argument)
        native = check_dtype(operand.dtype, argument)
        copy = np.array(operand, native, order="C", copy=True)
        return literal(copy, native) if copy.ndim == 0 else constant(copy)
    if isinstance(operand, list | tuple):
        return stack_nested(operand, argument)
    if isinstance(operand, SEQUENCES):
        return as_value(items_of(operand), argument)
    if type(operand) in COMPACT:
        return COMPACT[type(operand)](operand)
    if type(operand) in NUMBER_LIKE:
        return as_value(NUMBER_LIKE[type(operand)](operand), argument)
    if isinstance(operand, int | float | complex):
        return as_value(
            np.asarray(operand), argument
        )  # NumPy takes subclasses, such as members of an enumeration, for strong
    if is_table(operand) and (values := values_of(operand)) is not None:
        return as_value(getattr(values, "value", values), argument)
    raise refusal(operand, argument)


SEQUENCES: Final = (range, deque, array, memoryview)
"""Sequences besides lists and tuples of which NumPy makes arrays."""


def is_long(operand: Any) -> bool:
    """Return whether an operand is a Python integer that does not fit in 64 bits."""
    return type(operand) is int and not -(2**63) <= operand < 2**63


def beside(operand: Any, dtype: np.dtype[Any]) -> Any:
    """Return an operand; a long Python integer beside floats is a float, as in NumPy: ``x**n / math.factorial(n)``."""
    return float(operand) if is_long(operand) and is_inexact(dtype) else operand


def operand_values(operands: Sequence[Any]) -> list[Value]:
    """Return operands as values; see `beside` for long integers."""
    if any(map(is_long, operands)):
        dtypes = [as_value(operand).dtype for operand in operands if not is_long(operand)]
        floats = next(filter(is_inexact, dtypes), INT64)
        operands = [beside(operand, floats) for operand in operands]
    return [as_value(operand) for operand in operands]


def argument_value(leaf: Any, argument: str) -> Value:
    """Return an argument of a transform or of a tape as a value; other sequences than lists and tuples are refused, as by gt.jit."""
    if isinstance(leaf, SEQUENCES):
        raise refusal(leaf, argument)
    return as_value(leaf, argument)


def items_of(sequence: Any) -> Any:
    """Return one of `SEQUENCES` as a list or an ndarray."""
    return list(sequence) if isinstance(sequence, deque | range) else np.asarray(sequence)


def stack_nested(items: Sequence[Any], argument: str) -> Value:
    """Return a nested list as a value, whether or not values stand in it."""
    if not holds_values(items):
        return as_value(np.asarray(items), argument)
    return PRIMITIVES["stack"](*[as_value(item, argument) for item in items])


def holds_values(items: Any) -> bool:
    """Return whether an operand is a value or a nested list with values."""
    return (
        isinstance(items, Value)
        or type(items) in NUMBER_LIKE
        or (isinstance(items, list | tuple) and any(holds_values(item) for item in items))
    )


def check_plain(array: np.ndarray[Any, Any], argument: str) -> None:
    """Raise ArraySubclassError unless `array` is a plain ndarray (or a memory map, which behaves like one)."""
    if type(array) is not np.ndarray and not isinstance(array, np.memmap):
        x = argument if argument.isidentifier() else "x"
        raise ArraySubclassError(
            f"{argument} is {kind_of(array)}, a subclass of ndarray",
            where=here.site,
            why="its operators differ from ndarray's (or it hides values), and a trace would lose that",
            remedy=f"pass np.asarray({x}) (for a masked array: {x}.filled(...) and a mask of your own)",
        )


def number_dtype(given: Any) -> np.dtype[Any]:
    """Return what an argument ``dtype`` stands for, in its native form; raise DtypeError unless it is a dtype of numbers."""
    shown = repr(given)
    try:
        dtype: np.dtype[Any] = np.dtype(given)
        shown = str(dtype)
        return check_dtype(dtype, "dtype")
    except TypeError:  # a DtypeError is one too
        raise DtypeError(
            f"dtype={shown} is not supported",
            where=here.site,
            why="kernels compute with float32 and float64; bfloat16 is a dtype of ml_dtypes"
            if "bfloat16" in shown
            else SUPPORTED,
            remedy=f"give a dtype of numbers, for example dtype={'np.float32' if 'bfloat16' in shown else 'float'}",
        ) from None


def check_dtype(dtype: np.dtype[Any], argument: str) -> np.dtype[Any]:
    """Return the native form of a dtype of numbers; raise DtypeError for any other."""
    if dtype.kind not in "biufc" or dtype.char in "gG":
        raise wrong_dtype(dtype, argument)
    return np.dtype(dtype.type)


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """Return the common shape by NumPy's rules; raise ShapeError that names the shapes."""
    first = shapes[0]
    for shape in shapes:
        if shape != first:
            break
    else:
        return first
    try:
        return _common_shape(*shapes)
    except ValueError:
        raise ShapeError(
            f"operands could not be broadcast together with shapes {' '.join(map(str, shapes))}",
            where=here.site,
            remedy="make the trailing axes equal in length, or of length 1 (x[:, None] adds an axis)",
        ) from None


@lru_cache(maxsize=8192)
def _common_shape(*shapes: Shape) -> Shape:
    return np.broadcast_shapes(*shapes)


@lru_cache(maxsize=8192)
def _expansion(own: Shape, shape: Shape) -> tuple[Shape, tuple[int, ...]]:
    """Return the shape without the axes to be repeated, and where the others stand in the result."""
    lead = len(shape) - len(own)
    axes = tuple(lead + axis for axis, extent in enumerate(own) if extent != 1 or shape[lead + axis] == 1)
    return tuple(own[axis - lead] for axis in axes), axes


def conform(value: Value, dtype: np.dtype[Any], shape: Shape) -> Value:
    """Return `value` with this dtype and shape; literals keep rank 0."""
    if isinstance(value, Literal):
        if value.dtype == dtype:
            return value if not value.aval.weak else literal(value.data, dtype)
        assert value.data is not None
        if value.aval.weak and value.dtype.kind == "i" and dtype.kind in "iu":
            return literal(np.array(value.data.item(), dtype), dtype)  # raises OverflowError like NumPy
        return literal(value.data.astype(dtype), dtype)
    if value.dtype != dtype:
        if value.aval.weak and value.dtype.kind == "i" and dtype.kind in "iu":
            HOOKS.fit(value, dtype)
        value = PRIMITIVES["convert"](value, dtype)
    return value if value.shape == shape else broadcast_to(value, shape)


def broadcast_to(value: Value, shape: Shape) -> Value:
    """Return `value` expanded to `shape` by NumPy's rules (a literal becomes an array)."""
    if value.shape == shape and not isinstance(value, Literal):
        return value
    kept, axes = _expansion(value.shape, shape)
    if kept != value.shape:
        value = PRIMITIVES["reshape"](value, kept)
    return PRIMITIVES["expand"](value, shape, axes)
