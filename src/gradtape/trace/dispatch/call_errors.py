"""Errors of Python that are caused by the arguments of a call: a list where an array was meant, an array where an ndarray is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final

import numpy as np

from gradtape.errors import DtypeError, UnsupportedFunctionError, is_users
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.bytecode import local_names
from gradtape.trace.source.sites import Site, user_site

_USED_AS_ARRAY: Final = re.compile(
    r"'(list|tuple)'"
    r"(?! object cannot be interpreted)|\"(list|tuple)\"\)|can't multiply sequence by non-int|can only concatenate (list|tuple)|"
    r"(list|tuple) indices must be integers"
)
"""What Python says where a list is used as an array."""

_NEEDS_NDARRAY: Final = f"Cannot convert {Array.__name__} to numpy.ndarray"
"""What code that Cython has compiled says of an Array."""


def is_list_of_numbers(argument: Any) -> bool:
    """Return whether an argument is a list or tuple of numbers, or of such lists."""
    return (
        type(argument) in (list, tuple)
        and len(argument) > 0
        and all(
            is_list_of_numbers(item)
            or isinstance(item, int | float | complex | np.generic)
            or (isinstance(item, Handle) and item.ndim == 0)
            for item in argument
        )
    )


def _lists_of_numbers(argument: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the lists of numbers in nested containers, with where they stand."""
    if is_list_of_numbers(argument):
        yield place, argument
    elif isinstance(argument, dict | list | tuple):
        for key, item in argument.items() if isinstance(argument, dict) else enumerate(argument):
            yield from _lists_of_numbers(item, f"{place}[{key!r}]")


def is_list_error(error: BaseException | None) -> bool:
    """Return whether an error of Python says that a list was used as an array."""
    return type(error) in (TypeError, AttributeError) and bool(_USED_AS_ARRAY.search(str(error)))


def list_error(
    error: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> DtypeError | None:
    """Return the error for a list that the function uses as an array, from the error that it raised; None for other errors."""
    if not is_list_error(error):
        return None
    names = local_names(function) or ()
    given = [(names[k] if k < len(names) else str(k), argument) for k, argument in enumerate(args)]
    for name, argument in [*given, *kwargs.items()]:
        for place, found in _lists_of_numbers(argument, name):
            kind = type(found).__name__
            if kind not in str(error) and "sequence" not in str(error):
                continue
            return DtypeError(
                f"the argument {place} is a {kind} of length {len(found)}, and the function uses it as an array: {error}",
                where=_raised_at(error.__traceback__),
                why=f"a {kind} of numbers stays a {kind}, of traced numbers; Python's {kind}s do not calculate",
                remedy=f"pass np.array({place}) in place of the {kind}, or write np.array({place}) at the beginning of the function",
            )
    return None


def call_error(
    error: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> DtypeError | UnsupportedFunctionError | None:
    """Return the error that says what is wrong with the arguments of a call, from the one that Python raised; None for other errors."""
    if str(error) != _NEEDS_NDARRAY:
        return list_error(error, function, args, kwargs)
    return UnsupportedFunctionError(
        "compiled code got a traced array where it takes an ndarray only",
        where=_raised_at(error.__traceback__),
        why="what it computes of the numbers cannot be followed",
        remedy="use a function that is followed (scipy.spatial.KDTree in place of cKDTree), or call it by gt.callback(f, result_like, x)",
    )


def _raised_at(trace: TracebackType | None) -> Site:
    """Return the last line of the user's in a traceback."""
    found = None
    while trace is not None:
        if is_users(trace.tb_frame):
            found = Site(trace.tb_frame.f_code, trace.tb_lasti)
        trace = trace.tb_next
    return user_site() if found is None else found
