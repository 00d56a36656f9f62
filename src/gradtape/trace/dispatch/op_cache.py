"""What stands in for NumPy's functions, recalled: a call like an earlier one appends the nodes of the earlier one.

A stand-in is a function of types alone: of the shapes and dtypes of arrays, and of its other arguments. So its second call with the same
is run on values of which nothing but the type is known, and what it appends becomes a recipe. One that asks for numbers fails at that, and
is run in full each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.graph import ARRAYS, Value
from gradtape.ir.templates import Recipe, recipe_of, stand_in
from gradtape.ir.types import Aval
from gradtape.kinds.arguments import NO_VALUE
from gradtape.ops.core.indexing import Basic, parse_index
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.shape import complete_shape
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.array.views import Part, Rearranged, stays_contiguous

MOST: Final = 4096
"""Calls that are remembered: a program whose shapes or numbers never repeat would otherwise fill the memory."""

LONGEST: Final = 1024
"""Items of a list or tuple above which a call is not remembered: what is remembered is kept, and takes as long to compare."""

NUMBERS: Final = frozenset({bool, int, float, complex, np.float64, np.float32, np.int64, np.int32, np.bool_})
INTEGERS: Final = frozenset({int})
SEQUENCES: Final = frozenset({tuple, list})


class Call(NamedTuple):
    """A call that came before.

    Attributes
    ----------
    recipe : Recipe or None
        What it appends; None where it has come once only, or where its arguments do not tell.
    several : type or None
        Tuple or list where it returns several values.
    view : Rearranged or None
        The recipe as a view of its only argument; who knows the NumPy function sets what it sees.
    again : bool
        Whether to try for a recipe when it comes again.
    """

    recipe: Recipe | None
    several: type | None
    view: Rearranged | None
    again: bool


BY_NAME: Final = object()
"""Stands between the arguments that are given by position and those that are given by name."""

ONCE: Final = Call(None, None, None, True)
NEVER: Final = Call(None, None, None, False)
_calls: Final[dict[Any, Call]] = {}


def run(rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return what a stand-in returns for arguments with handles in them."""
    values: list[Value] = []
    call = recall(rule, args, kwargs, values)
    if call is None:
        return rule(
            *[unwrap(argument) for argument in args], **{name: unwrap(kwargs[name]) for name in kwargs}
        )
    recipe = call.recipe
    assert recipe is not None
    return recipe(*values) if call.several is None else call.several(recipe.results(values))


def recall(
    rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], values: list[Value]
) -> Call | None:
    """Return the call with a recipe that is like this one, if there is one, and append the values among the arguments to `values`."""
    code: list[Any] = [rule]
    for argument in args:
        if isinstance(argument, Handle):
            argument = argument._current if argument._base is None else argument.value
        if type(argument) is Value and not argument.aval.weak:
            values.append(argument)
            code.append(argument.aval)
        elif argument is None:
            code.append(None)
        elif not _encode(argument, code, values):
            return None
    if kwargs:
        code.append(BY_NAME)
        for name in kwargs:
            code.append(name)
            if not _encode(kwargs[name], code, values):
                return None
    if len(code) > 8 * LONGEST:
        return None
    key = tuple(code)
    call = _calls.get(key)
    if call is None:
        if len(_calls) >= MOST:
            _calls.clear()
        _calls[key] = ONCE
        return None
    if call.again:
        known = not _may_lose_imaginary(values, key)
        call = _calls[key] = _learned(rule, args, kwargs, values) if known else NEVER
    return None if call.recipe is None else call


def _encode(argument: Any, code: list[Any], values: list[Value]) -> bool:
    """Append what a result depends on of an argument to `code`, and values to `values`; return whether that is possible."""
    kind = type(argument)
    if isinstance(argument, Handle) or kind in ARRAYS:
        value = argument.value if isinstance(argument, Handle) else argument
        type_ = value.aval
        if type_.weak or type(value) not in ARRAYS:
            return False
        values.append(value)
        code.append(type_)
    elif kind in NUMBERS:  # equal numbers of other types are others, and so are zeros of other signs
        code.append(kind)
        code.append(argument or str(argument))
    elif kind in SEQUENCES:
        if len(argument) > LONGEST:
            return False
        if (
            kind is tuple
            and argument
            and type(argument[0]) is int
            and INTEGERS.issuperset(map(type, argument))
        ):
            code.append(argument)
            return True
        code.append(kind)
        code.append(len(argument))
        for item in argument:
            if isinstance(item, Handle):
                item = item._current if item._base is None else item.value
            if type(item) is Value and not item.aval.weak:
                values.append(item)
                code.append(item.aval)
            elif not _encode(item, code, values):
                return False
    elif argument is None or kind is str or argument is NO_VALUE or isinstance(argument, np.dtype | type):
        if kind is str and len(argument) > LONGEST:
            return False
        code.append(argument)
    else:
        return False
    return True


def _may_lose_imaginary(values: Sequence[Value], key: tuple[Any, ...]) -> bool:
    """Return whether complex numbers may become real ones, of which NumPy warns at each call."""
    kinds = {value.dtype.kind for value in values}
    return "c" in kinds and (len(kinds) > 1 or any(isinstance(part, np.dtype | type | str) for part in key))


def _learned(
    rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], values: Sequence[Value]
) -> Call:
    inputs = [stand_in(value.aval) for value in values]
    rest = iter(inputs)
    try:
        result = rule(
            *[_replaced(argument, rest) for argument in args],
            **{name: _replaced(kwargs[name], rest) for name in kwargs},
        )
    except Exception:  # it asked for numbers, or the arguments are wrong: then the call itself will say so
        return NEVER
    several = type(result) if type(result) in SEQUENCES else None
    results = [result] if several is None else list(result)
    if not all(isinstance(value, Value) for value in results):
        return NEVER
    recipe = recipe_of(inputs, results)
    if recipe is None:
        return NEVER
    return Call(recipe, several, Rearranged(recipe, unseen) if len(inputs) == 1 else None, False)


def unseen(array: Any) -> Any:
    """Stand in the place of what shows NumPy's view, which `gradtape.trace.array.view_functions` fills in before the view is made."""
    raise AssertionError(array)


def _replaced(argument: Any, inputs: Iterator[Value]) -> Any:
    if isinstance(argument, Value | Handle):
        return next(inputs)
    if type(argument) in SEQUENCES:
        return type(argument)([_replaced(item, inputs) for item in argument])
    return argument


class Picked(NamedTuple):
    """What a basic index of an array is.

    Attributes
    ----------
    read : Recipe
        Picks the elements.
    part : Part
        The view.
    contiguous : bool
        Whether the view of a contiguous array is contiguous.
    scalar : bool
        Whether it is one element, of which NumPy returns a copy.
    """

    read: Recipe
    part: Part
    contiguous: bool
    scalar: bool


def picked(type_: Aval, key: Any) -> Picked | None:
    """Return what ``x[key]`` means for arrays of a type; None where arrays stand in the key."""
    kind = type(key)
    if kind is int:
        return _picked(type_, key)
    if kind is slice:
        key = (key,)
    elif kind is not tuple:
        return None
    code = []
    for item in key:
        kind = type(item)
        if kind is slice:
            item = (item.start, item.stop, item.step)
            if not PLAIN.issuperset(map(type, item)):
                return None
        elif kind not in PLAIN:
            return None
        code.append(item)
    return _picked(type_, tuple(code))


def reshaped(type_: Aval, shape: Any) -> Rearranged | None:
    """Return the view of another shape of contiguous arrays of a type; None where the shape is not made of integers."""
    if type(shape) is tuple:
        return _reshaped(type_, shape) if INTEGERS.issuperset(map(type, shape)) else None
    return _reshaped(type_, (shape,)) if type(shape) is int else None


@lru_cache(maxsize=8192)
def _reshaped(type_: Aval, shape: tuple[int, ...]) -> Rearranged:
    start = stand_in(type_)
    recipe = recipe_of([start], [reshape(start, complete_shape(shape, start.size))])
    assert recipe is not None
    return Rearranged(recipe, lambda array: array.reshape(shape, copy=False))


PLAIN: Final = frozenset({int, type(None), type(Ellipsis)})


@lru_cache(maxsize=8192)
def _picked(type_: Aval, code: Any) -> Picked:
    items = code if type(code) is tuple else (code,)
    key = tuple([slice(*item) if type(item) is tuple else item for item in items])
    index = parse_index(type_.shape, key)
    assert isinstance(index, Basic)
    start = stand_in(type_)
    recipe = recipe_of([start], [index.read(start)])
    assert recipe is not None
    scalar = not index.result and Ellipsis not in items
    return Picked(recipe, Part(index), stays_contiguous(index, type_.shape), scalar)
