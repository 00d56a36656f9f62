"""Creation patches: during a recording, `numpy.zeros` and similar functions return preallocated arrays to code that is traced."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from itertools import islice
from types import FrameType, FunctionType
from typing import Any, Final

import numpy as np

from gradtape.ir.builder import here
from gradtape.kinds.operands import as_value
from gradtape.ops.numpy.arrays.creation import WINDOWS
from gradtape.trace.array.array import with_layout, wrap
from gradtape.trace.array.handle import Handle, traced_value
from gradtape.trace.array.lengths import ARRAYS, Length, has_lengths, mapped, needed, plain
from gradtape.trace.array.preallocated import (
    Preallocated,
    handles_traced,
    is_traced,
    ndarray_or_none,
    preallocated,
    unwrap_keywords,
    unwrap_preallocated,
)
from gradtape.trace.dispatch.dispatch import call_function, call_ufunc, public_name
from gradtape.trace.patching.asarray import FRESH, KEEPERS
from gradtape.trace.patching.bytecode import stores_items
from gradtape.trace.patching.callers import called_directly, calling_frame, calls
from gradtape.trace.patching.functions import answered_by
from gradtape.trace.patching.interpose import When, interpose, without_hook
from gradtape.trace.patching.recorders import before_recording
from gradtape.trace.source.asking import ASKING
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import PACKAGE, is_traced_file, is_user_file, user_site
from gradtape.trace.subclasses.instances import TracedNdarray

ALLOCATORS: Final = (np.zeros, np.empty)
"""NumPy's compiled functions that allocate arrays. Those written in Python call them: `ones`, `full`, `eye`, `identity`."""

MAKERS: Final = (
    *(np.arange, np.linspace, np.logspace, np.geomspace, np.repeat, np.tile),
    *(np.diag, np.diagflat, np.kron, np.outer, np.tril, np.triu, np.vander),
)
"""Other functions that make arrays of numbers."""

LIKE_FUNCTIONS: Final = (np.zeros_like, np.empty_like, np.ones_like, np.full_like)
"""Functions that create an array with the shape and dtype of another."""

_FULL: Final = np.full.__code__
_frame = sys._getframe


HOOKED: Final[set[Any]] = {*ALLOCATORS, *LIKE_FUNCTIONS}
"""The functions that are patched here."""


def _create(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call one of NumPy's functions, and return its result, if traced code calls it, as a preallocated array."""
    if not contexts.stack:
        return NotImplemented
    if ASKING.questions is not None and _follows_from_lengths(function, args, kwargs):
        return made_of_lengths(function, args, kwargs) if calls(_frame(1), function) else NotImplemented
    if args and isinstance(args[0], TracedNdarray):
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
        return with_layout(function, wrap(call_function(function, args, kwargs)), ())
    array = without_hook(function)(*args, **kwargs)
    if frame.f_code is _FULL and isinstance(frame.f_locals["fill_value"], Handle):
        array.fill(
            0
        )  # the fill value is written next: the uninitialised elements are not to become constants of the graph
    if type(array) is not np.ndarray or array.dtype.kind not in "biufc" or array.dtype.char in "gG":
        return array
    return preallocated(array if array.base is None else array.copy())


def _follows_from_lengths(function: Any, args: Any, kwargs: Any) -> bool:
    """Return whether an array is created of lengths, or with the shape of a traced one, whose extents may be lengths."""
    if has_lengths([args, kwargs]):
        return True
    return function in LIKE_FUNCTIONS and bool(args) and isinstance(args[0], Handle) and is_traced(args[0])


def made_of_lengths(function: Any, args: Any, kwargs: Any, method: str = "__call__") -> Any:
    """Return what one of NumPy's functions makes of lengths, traced.

    Raises
    ------
    UnsupportedFunctionError
        Where it has no rule.
    """
    if function is np.arange and not _is_counted(args, kwargs):
        return function(*needed(args), **needed(kwargs))
    here.site = user_site(via=public_name(function))
    arguments, named = unwrap_preallocated(args), unwrap_keywords(kwargs)
    if isinstance(function, np.ufunc):
        return wrap(_as_traced(function, call_ufunc(function, method, arguments, named)))
    if function is np.arange:
        arguments, named = _bounds(arguments), _bounds(named)
    return wrap(_as_traced(function, call_function(function, arguments, named)))


def _bounds(bounds: Any) -> Any:
    """Return bounds with numbers in place of lengths that are floats."""
    return mapped(lambda bound: plain(bound) if isinstance(bound, float) else bound, bounds)


def _is_counted(args: Any, kwargs: Any) -> bool:
    """Return whether the number of elements of an `np.arange` is exact: it follows from whole numbers, and is not rounded."""
    ends = [*args[:3], *[kwargs[name] for name in ("start", "stop", "step") if name in kwargs]]
    return all(
        type(end) is Length
        or isinstance(end, int | np.integer)
        or (isinstance(end, float) and end.is_integer())
        for end in ends
        if end is not None
    )


def _as_traced(function: Any, results: Any) -> Any:
    if isinstance(results, tuple | list):
        return type(results)([_as_traced(function, item) for item in results])
    value = as_value(results)
    if function not in HOOKED:  # which take no memory
        ASKING.questions.largest = max(ASKING.questions.largest, value.size)
    return traced_value(value)


ARRAYS.update(call=made_of_lengths, wrap=wrap)


def _creator(function: FunctionType, args: Any, kwargs: Any) -> Any:
    """Answer a call of one of `OF_LENGTHS`, while lengths record what is asked of them."""
    public = _PUBLIC.get(function)
    if public is None:  # SciPy's check of the number of elements of a window, which takes it for an int
        (count,) = args
        return count <= 1 if type(count) is Length and count >= 0 else function(count)
    if ASKING.questions is not None and contexts.stack and has_lengths([args, kwargs]):
        if public in WINDOWS:
            here.site = user_site(via=public_name(public))
            return wrap(_as_traced(public, WINDOWS[public](*args, **kwargs)))
        return made_of_lengths(public, args, kwargs)
    array = function(*args, **kwargs)
    if public is not np.eye or type(array) is not np.ndarray or array.dtype.char not in "?bBhHiIlLqQfdFD":
        return array
    frame: Any = _frame(1)
    while frame.f_globals.get("__name__", "").startswith(PACKAGE) or frame.f_code.co_name == "eye":
        frame = frame.f_back
    is_users = contexts.stack and called_directly(frame, public) and handles_traced(calling_frame(frame)[0])
    return preallocated(array) if is_users else array


OF_LENGTHS: Final = (np.eye, np.tri, np.linspace, np.repeat, np.broadcast_to, *WINDOWS)
"""Functions written in Python that are applied as rules where they are given lengths. Others that are given some make arrays by `np.arange`
and its kin, or need the number itself."""

_PUBLIC: Final[dict[Any, Any]] = {getattr(f, "_implementation", f): f for f in OF_LENGTHS}


def with_arrays_of_lengths() -> AbstractContextManager[None]:
    """Let these functions make traced arrays of lengths in a block."""
    windows: Any = sys.modules.get("scipy.signal.windows._windows")
    guards = [] if windows is None else [windows._len_guards]
    return answered_by([*_PUBLIC, *guards], _creator)


def writable(array: Any, function: Any, frame: FrameType, *, source: Any = None, is_own: bool = False) -> Any:
    """Return an array that a function has made of numbers, as a preallocated one where the user's code that calls it, or a caller of that,
    assigns to elements, or where a package does so or copies it beside traced arrays. With `is_own` nothing else holds its memory, even of
    a view."""
    asking: FrameType | None = frame
    while asking is not None and not stores_items(asking.f_code):
        asking = asking.f_back if is_user_file(asking.f_code.co_filename) else None
    is_new = type(array) is np.ndarray and array is not source and (is_own or array.base is None)
    if (
        not is_new
        or not array.flags.writeable
        or array.dtype.char not in "fdFD"
        or (asking is None and (function is not np.array or is_user_file(frame.f_code.co_filename)))
        or not called_directly(frame, function)
        or not handles_traced(frame)
    ):
        return array
    return preallocated(array if array.base is None else array.copy())


def made_writable(function: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
    """Call a function that makes an array, for code that may write to its elements."""
    if not contexts.stack or is_traced(args):
        return NotImplemented
    array = without_hook(function)(*unwrap_preallocated(args), **unwrap_keywords(kwargs))
    return writable(array, function, frame, is_own=True)


def _copy(method: Any, array: Any, /, order: Any = "C") -> Any:
    """Answer a call of ``y.copy()`` for an ndarray."""
    if not contexts.stack or type(array) is not np.ndarray:
        return NotImplemented
    return writable(without_hook(np.array)(array, order=order), method, _frame(1))


def _collect(function: Any, iterable: Any, dtype: Any, count: Any = -1, **kwargs: Any) -> Any:
    """Follow `numpy.fromiter`: the stack of the items, if some are traced."""
    if not contexts.stack or kwargs or type(count) is not int:
        return NotImplemented
    items = list(iterable if count < 0 else islice(iterable, count))
    if not is_traced(items) or np.dtype(dtype) == object:
        return without_hook(function)(items, dtype, count)
    here.site = user_site(via="np.fromiter")
    if count > len(items):
        raise ValueError(f"iterator too short: Expected {count} but iterator had only {len(items)} items.")
    return wrap(call_function(np.stack, (items,), {"dtype": np.dtype(dtype), "casting": "unsafe"}))


FRESH.append(writable)
before_recording(lambda: interpose(_copy, When.ALWAYS, {np.ndarray.copy}))
before_recording(lambda: interpose(_collect, When.ALWAYS, {np.fromiter}))
before_recording(lambda: interpose(_create, When.ALWAYS, HOOKED))


OUTPUTS: Final = frozenset({"_get_output"})
"""Functions of traced packages that return the array which results are written to: it may have been given (`scipy.ndimage`)."""


def _keeps(array: Any, frame: FrameType) -> bool:
    """Return whether a traced package converts an array, preallocated or given to it, to write traced values to it later."""
    caller = calling_frame(frame)[0]
    if not isinstance(array, Preallocated):
        if caller.f_code.co_name not in OUTPUTS:
            return False
    elif ndarray_or_none(array) is None:
        return False
    filename = caller.f_code.co_filename
    return is_traced_file(filename) and not is_user_file(filename) and handles_traced(caller)


KEEPERS.append(_keeps)
