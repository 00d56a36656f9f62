"""Lists and tuples of traced numbers, wherever NumPy takes an array: they become traced arrays first.

``np.exp([a, b])``, ``y @ [a, b]``, ``np.linalg.det([[a, b], [c, d]])``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.kinds.registry import BY_ITEM
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import Preallocated
from gradtape.trace.patching.asarray import is_observed
from gradtape.trace.patching.interpose import dispatcher_of

Function = Callable[..., Any]


def find_traced(operand: Any, depth: int = 32) -> Any:
    """Return a traced array in an operand, or in lists and tuples in it; None if there is none."""
    if isinstance(operand, Handle):
        if isinstance(operand, Preallocated) and operand._base.is_untraced():
            return None
        return operand if is_observed(operand) else None
    if depth and isinstance(operand, list | tuple):
        for item in operand:
            traced = find_traced(item, depth - 1)
            if traced is not None:
                return traced
    return None


def as_array(items: Any) -> Any:
    """Return a list as a traced array; a list without traced elements is returned as it is."""
    if type(items) is not list and type(items) is not tuple:
        return items
    traced = find_traced(items)
    if traced is None:
        return items
    return traced.__array_function__(np.array, (type(traced),), (items,), {})


def call_ufunc(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a ufunc, or a method of one, with traced arrays in place of lists; `NotImplemented` if no list has traced elements."""
    operands = [
        argument
        if place == 2 and function is np.ufunc.at and type(argument) is tuple  # an index for each axis
        else as_array(argument)
        for place, argument in enumerate(args)
    ]
    if all(operand is argument for operand, argument in zip(operands, args, strict=True)):
        return NotImplemented
    if "where" in kwargs:
        kwargs["where"] = as_array(kwargs["where"])
    return function(*operands, **kwargs)


_dispatchers: Final[dict[Any, Any]] = {}
"""The dispatchers of NumPy's functions, which return the relevant arguments."""


def takes_sequences(function: Any) -> bool:
    """Return whether a function's first argument is a sequence of arrays, as that of np.concatenate is."""
    probe = np.zeros(0)
    try:
        return any(item is probe for item in dispatcher_of(function)([probe]))
    except TypeError:  # it takes more, or nothing of that kind
        return False


def call_dispatched(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do the same for a function of NumPy's that dispatches; its dispatcher says which arguments are arrays."""
    dispatcher = _dispatchers.get(function)
    if dispatcher is None:
        dispatcher = _dispatchers[function] = dispatcher_of(function)
    try:
        if function in BY_ITEM and isinstance(args[0] if args else None, Handle):
            return NotImplemented
        sequences = [
            item
            for item in dispatcher(*args, **kwargs) or ()
            if (type(item) is list or type(item) is tuple) and item is not kwargs.get("out")
        ]
    except TypeError:  # NumPy raises its own error
        return NotImplemented
    arrays = {id(item): array for item in sequences if (array := as_array(item)) is not item}
    if not arrays:
        return NotImplemented
    return function(
        *[_replaced(argument, arrays) for argument in args],
        **{name: _replaced(argument, arrays) for name, argument in kwargs.items()},
    )


def _replaced(argument: Any, arrays: dict[int, Any]) -> Any:
    array = arrays.get(id(argument))
    if array is not None:
        return array
    if type(argument) is list or type(argument) is tuple:
        return type(argument)([_replaced(item, arrays) for item in argument])
    return argument


def as_ndarray_or_traced(items: Any) -> Any:
    """Return an operand as a traced array, or as an ndarray if nothing in it is traced."""
    array = as_array(items)
    return np.asarray(items) if array is items and not isinstance(items, Handle) else array
