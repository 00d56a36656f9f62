"""Creation patches: during a recording, `numpy.zeros` and similar functions return preallocated arrays to code that is traced."""

from __future__ import annotations

import sys
from itertools import islice
from types import FrameType
from typing import Any, Final

import numpy as np

from gradtape.ir.builder import here
from gradtape.trace.array.array import wrap
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import (
    Preallocated,
    handles_traced,
    is_traced,
    ndarray_or_none,
    preallocated,
    unwrap_keywords,
    unwrap_preallocated,
)
from gradtape.trace.dispatch.dispatch import call_function
from gradtape.trace.patching.asarray import COPY, KEEPERS
from gradtape.trace.patching.callers import called_directly, calling_frame
from gradtape.trace.patching.interpose import When, interpose, without_hook
from gradtape.trace.patching.recorders import before_recording
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import is_followed_file, is_user_file, user_site

ALLOCATORS: Final = (np.zeros, np.empty)
"""NumPy's compiled functions that allocate arrays. Those written in Python call them: `ones`, `full`, `eye`, `identity`."""

LIKE_FUNCTIONS: Final = (np.zeros_like, np.empty_like, np.ones_like, np.full_like)
"""Functions that create an array with the shape and dtype of another."""

_FULL: Final = np.full.__code__
_frame = sys._getframe


HOOKED: Final[set[Any]] = {*ALLOCATORS, *LIKE_FUNCTIONS}
"""The functions that are patched here."""


def _create(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call one of NumPy's functions, and return its result, if followed code calls it, as a preallocated array."""
    if not contexts.stack:
        return NotImplemented
    if args and type(args[0]) in (list, tuple) and function in LIKE_FUNCTIONS:
        like: Any = np.asarray(args[0])
        if isinstance(like, Handle):
            return function(like, *args[1:], **kwargs)
    frame = _frame(1)
    if not called_directly(frame, function) or not handles_traced(calling_frame(frame)[0]):
        return NotImplemented
    args, kwargs = unwrap_preallocated(args), unwrap_keywords(kwargs)
    if function is np.full_like and is_traced((args[1:], kwargs.get("fill_value"))):
        here.site = user_site(via="np.full_like")
        return wrap(call_function(function, args, kwargs))
    made = without_hook(function)(*args, **kwargs)
    if frame.f_code is _FULL and isinstance(frame.f_locals["fill_value"], Handle):
        made.fill(
            0
        )  # the fill value is written next: the uninitialised elements are not to become constants of the graph
    if type(made) is not np.ndarray or made.dtype.kind not in "biufc" or made.dtype.char in "gG":
        return made
    return preallocated(made if made.base is None else made.copy())


def _copy(frame: FrameType, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call ``np.array(x)`` for an ndarray, and return a preallocated array where a package copies it beside traced ones."""
    filename = frame.f_code.co_filename
    if (
        not contexts.stack
        or is_user_file(filename)
        or not called_directly(frame, np.array)
        or not handles_traced(frame)
    ):
        return NotImplemented
    made = without_hook(np.array)(*args, **unwrap_keywords(kwargs))
    fresh = made is not args[0] and made.base is None and made.dtype.char in "fdFD"
    return preallocated(made) if fresh else made


def _collect(function: Any, iterable: Any, dtype: Any, count: Any = -1, **kwargs: Any) -> Any:
    """Follow `numpy.fromiter`: the stack of the items, if some are traced."""
    if not contexts.stack or kwargs or type(count) is not int:
        return NotImplemented
    items = list(iterable if count < 0 else islice(iterable, count))
    if not is_traced(items):
        return without_hook(function)(items, dtype, count)
    here.site = user_site(via="np.fromiter")
    if count > len(items):
        raise ValueError(f"iterator too short: Expected {count} but iterator had only {len(items)} items.")
    return wrap(call_function(np.stack, (items,), {"dtype": np.dtype(dtype), "casting": "unsafe"}))


COPY.append(_copy)
before_recording(lambda: interpose(_collect, When.ALWAYS, {np.fromiter}))
before_recording(lambda: interpose(_create, When.ALWAYS, HOOKED))


OUTPUTS: Final = frozenset({"_get_output"})
"""Functions of followed packages that return the array which results are written to: it may have been given (`scipy.ndimage`)."""


def _keeps(array: Any, frame: FrameType) -> bool:
    """Return whether a followed package converts an array, preallocated or given to it, to write traced values to it later."""
    caller = calling_frame(frame)[0]
    if not isinstance(array, Preallocated):
        if caller.f_code.co_name not in OUTPUTS:
            return False
    elif ndarray_or_none(array) is None:
        return False
    filename = caller.f_code.co_filename
    return is_followed_file(filename) and not is_user_file(filename) and handles_traced(caller)


KEEPERS.append(_keeps)
