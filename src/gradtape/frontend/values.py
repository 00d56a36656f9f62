"""Abstract values: the knowledge of the abstract interpreter about the content of a name.

A number that depends on data is a 0-d `Value`, an array an `Expression`. Everything else that a name can hold is known: Python's numbers,
strings, functions, modules and dtypes stand for themselves, tuples are tuples of abstract values. The classes below stand for what has no
object of Python's.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from gradtape.errors import UnsupportedCodeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value, literal, number_of
from gradtape.ir.types import BOOL, FLOAT64, INT64, PYTHON_DTYPES, Aval, aval
from gradtape.kinds.elementwise import promotion_type, result_dtype
from gradtape.kinds.operands import as_value, conform
from gradtape.ops.core.elementwise.logic import truth
from gradtape.procedures.arrays.view import ArrayView, Expression, Loads
from gradtape.procedures.ir import Dtype
from gradtape.records import record

Number: TypeAlias = Value | int | float | complex | bool | np.generic

NUMBERS: Final = (Value, int, float, complex, bool, np.number, np.bool_)


class NeedsStaticError(UnsupportedCodeError):
    """A number has to be known in translation; a loop that knows its trip count is unrolled then."""


class Missing:
    """A name that is not assigned on some way to where it is read."""

    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = Missing()


@record
class Conflict:
    """The content of a name that differs between two branches, or two iterations, and cannot be used.

    Attributes
    ----------
    first, second : object
        Two contents.
    """

    first: Any
    second: Any


class ListReference:
    """A Python list. Its items live in the interpreter's state, so that branches and loops can merge them."""

    __slots__ = ()


@record
class GrowingList:
    """The content of a list that a loop appends to; see `gradtape.frontend.loops.growing_lists`.

    Attributes
    ----------
    arrays : ArrayView, or tuple of such
        With a row for each item and for each one that the loop may append; a tuple for items that are tuples.
    type : Aval, or tuple of such
        Of an item.
    length : int or Value
        The number of items.
    is_movable : bool
        Whether items move to larger arrays when there is no room, as it is where nobody knows how many the loop may append.
    """

    arrays: Any
    type: Any
    length: Any
    is_movable: bool = False


@record
class Closure:
    """A function that the translated code defines.

    Attributes
    ----------
    code : code object
    module : dict
        Its globals.
    defaults : tuple
        Abstract values of the last positional arguments.
    cells : dict of str to object
        The variables of the enclosing function, if that is not translated.
    frame : object
        The call of the enclosing function, whose method `lookup` tells what its variables hold now; None if it is not translated.
    keywords : tuple of (str, object)
        The defaults of arguments by keyword only.
    """

    code: types.CodeType
    module: dict[str, Any]
    defaults: tuple[Any, ...]
    cells: dict[str, Any]
    frame: Any = None
    keywords: tuple[tuple[str, Any], ...] = ()

    def lookup(self, name: str) -> Any:
        """Return what a variable of the enclosing function holds now."""
        return self.cells.get(name, MISSING) if self.frame is None else self.frame.lookup(name)


@record
class BoundMethod:
    """A method of an abstract value."""

    owner: Any
    name: str


@record
class Template:
    """A text with numbers that depend on data, each as ``{}``: the message of an error may be one, and nothing can be read from it."""

    text: str


@record
class RaisedError:
    """An exception that the code has made."""

    kind: type
    message: str


@record
class RangeValue:
    """``range(start, stop, step)``, of numbers that may follow from data."""

    start: Any
    stop: Any
    step: Any
    parallel: bool = False


@record
class Enumerated:
    """``enumerate(iterable, start)``."""

    iterable: Any
    start: Any


@record
class Zipped:
    """``zip(*iterables)``."""

    iterables: tuple[Any, ...]


@record
class Reversed:
    """``reversed(iterable)``."""

    iterable: Any


@record
class Unrolled:
    """``literal_unroll(iterable)``."""

    iterable: Any


@record
class Places:
    """``np.ndindex(*shape)``; with an array ``np.ndenumerate(array)``."""

    shape: tuple[Any, ...]
    array: Any = None


def refuse(what: str, remedy: str = "", why: str = "") -> NoReturn:
    """Raise the error for code that is not translated, at the line that is being interpreted."""
    raise UnsupportedCodeError(
        what,
        where=here.site,
        why=why,
        remedy=remedy or "write it with numbers, arrays, tuples and loops, or set gt.config.loops = 'trace'",
    )


# Numbers


def is_number(x: Any) -> bool:
    """Return whether an abstract value is a number, known or not."""
    return isinstance(x, NUMBERS)


def is_concrete_or_traced(x: Any) -> bool:
    """Return whether an object is an ndarray, or an array of a recording; an object that has one as its attribute ``value`` is none."""
    return isinstance(x, np.ndarray) or (
        isinstance(getattr(x, "value", None), Value) and hasattr(type(x), "__array_ufunc__")
    )


def is_static(x: Any) -> bool:
    """Return whether an abstract value is known, and no array of the procedure."""
    if isinstance(x, tuple):
        return all(map(is_static, x))
    if isinstance(x, slice):
        return all(map(is_static, (x.start, x.stop, x.step)))
    return not isinstance(
        x,
        Value
        | Expression
        | ListReference
        | Closure
        | Conflict
        | Missing
        | RangeValue
        | Enumerated
        | Zipped
        | Template,
    )


def settled(x: Any) -> Any:
    """Return the number that a literal holds; any other value as it is."""
    if type(x) is Literal:
        number = number_of(x)
        return number if x.aval.weak else x.dtype.type(number)
    return x


def weak(x: Value) -> Value:
    """Return a value as a number of Python's, which takes the dtype of what it meets; the value is new."""
    if not x.aval.weak and x.dtype in (INT64, FLOAT64, BOOL, np.dtype(np.complex128)):
        if type(x) is Literal:
            return literal(number_of(x))
        x.aval = aval((), x.dtype, True)
    return x


def as_integer(x: Any, what: str) -> Any:
    """Return an integer as a Python int, or as a value of dtype int64."""
    x = settled(x)
    if isinstance(x, Value):
        if x.dtype.kind not in "iub":
            refuse(f"{what} is a number of dtype {x.dtype}, not an integer")
        return x if x.dtype == INT64 else weak(conform(x, INT64, ()))
    try:
        return x.__index__()
    except AttributeError:
        refuse(f"{what} is {shown(x)}, not an integer")


def as_condition(x: Any) -> Any:
    """Return the truth of an abstract value: a bool, or a value of dtype bool."""
    x = settled(x)
    if isinstance(x, Value):
        return x if x.dtype == BOOL else truth(x)
    if isinstance(x, Expression):
        if x.ndim == 0 or x.size == 1:
            return as_condition(x.element((0,) * x.ndim, Loads()))
        refuse("the truth value of an array is used", "use np.all(x), np.any(x), or an element")
    if isinstance(x, RangeValue):
        refuse("the truth value of a range is used")
    return bool(x)


def number_type(x: Any) -> tuple[Dtype, bool]:
    """Return dtype and weakness of a number."""
    if isinstance(x, Value):
        return x.dtype, x.aval.weak
    if type(x) in PYTHON_DTYPES:
        return PYTHON_DTYPES[type(x)], True
    return np.asarray(x).dtype, False


def joined_type(types_: Sequence[tuple[Dtype, bool]]) -> tuple[Dtype, bool]:
    """Return dtype and weakness of what holds one of several numbers."""
    is_weak = all(one for _, one in types_)
    dtype = result_dtype(*[promotion_type(aval((), dtype, one)) for dtype, one in types_])
    return dtype, is_weak and dtype in PYTHON_DTYPES.values()


def typed(x: Any, type_: Aval) -> Value:
    """Return a number as a value of a dtype."""
    return conform(as_value(x), type_.dtype, ())


def shown(x: Any) -> str:
    """Return a description of an abstract value for messages."""
    if isinstance(x, Value):
        return f"a number of dtype {x.dtype} that depends on data"
    if isinstance(x, Expression):
        return f"an array of dtype {x.dtype} and {x.ndim} axes"
    if isinstance(x, ListReference):
        return "a list"
    if isinstance(x, Closure):
        return f"the function {x.code.co_name}"
    if isinstance(x, RaisedError):
        return f"a {x.kind.__name__}"
    if isinstance(x, Template):
        return f"the text {x.text!r} of numbers that depend on data"
    return (
        f"{x!r:.60}" if isinstance(x, int | float | complex | bool | str | None) else f"a {type(x).__name__}"
    )


def same(first: Any, second: Any) -> bool:
    """Return whether two abstract values are known to be the same."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, ArrayView):
        return first.pointer is second.pointer and first.key == second.key and same(first.shape, second.shape)
    if isinstance(first, slice):
        return same((first.start, first.stop, first.step), (second.start, second.stop, second.step))
    if isinstance(first, int | float | complex | np.number | np.bool_):
        return repr(first) == repr(second)
    if isinstance(first, str | bytes | np.dtype):
        return bool(first == second)
    if isinstance(first, Closure):
        return (
            first.code is second.code
            and first.frame is second.frame
            and first.cells.keys() == second.cells.keys()
            and all(same(x, second.cells[name]) for name, x in first.cells.items())
            and same(first.defaults, second.defaults)
            and same(first.keywords, second.keywords)
        )
    if isinstance(
        first, RangeValue | Enumerated | Zipped | Reversed | Unrolled | Places | BoundMethod | GrowingList
    ):
        return all(same(getattr(first, name), getattr(second, name)) for name in first.__match_args__)
    if type(first) is Literal:
        return same(settled(first), settled(second))
    return False
