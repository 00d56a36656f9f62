"""Lists of traced numbers that are made into arrays: ``np.array([x[0], -x[1]])``.

NumPy has no protocol by which what stands in a list could say what becomes of the list: np.array asks each item for its numbers. So
while somebody records, handlers of `numpy.array` and `numpy.asarray` do the same and, where NumPy asked an item that is followed, make
the array once more as an operation. User code that says ``x = np.asarray(x)``, as much code does, gets an array
that is followed too.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any, Final

import numpy as np

from gradtape.kinds.operands import COMPACT
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.view_functions import in_order
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.lazy.call_observer import speculation
from gradtape.trace.patching.callers import called_by_user, calling_frame
from gradtape.trace.patching.interpose import When, interpose, original
from gradtape.trace.patching.recorders import before_recording
from gradtape.trace.source.contexts import scopes
from gradtape.trace.source.sites import is_user_file

_frame = sys._getframe


class _CapturedElements(threading.local):
    """The followed items that NumPy asks for their numbers while it makes an array of a list; None at any other time."""

    items: list[Any] | None = None


_captured: Final = _CapturedElements()


def capture_element(item: Any) -> bool:
    """Return whether any number will do for a traced array, because the array of the list that it stands in is made once more."""
    if _captured.items is None or not is_followed(item):
        return False
    _captured.items.append(item)
    return True


def is_followed(array: Handle) -> bool:
    """Return whether somebody who records now follows an array."""
    promised = array._base is not None and array._base is speculation.attendant
    return promised or any(tag.recording for tag in array.value.tags)


def _array_or_traced(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Make an array of what may be, or hold, a traced one: a traced array."""
    if not args or not isinstance(args[0], list | tuple) or kwargs.get("like") is not None:
        source: Any = args[0] if args else None
        if not isinstance(source, Handle) or not _is_copied_by_user(source, _frame(1), function):
            return NotImplemented
        name = function.__name__
        if _returns_argument(name, source, args, kwargs):
            whole: Any = source
            return in_order(whole[...], ORDERS.get(name, kwargs.get("order")))
        return _traced_call(source, function, args, kwargs)
    before, _captured.items = _captured.items, []
    try:
        made = original(function)(*args, **kwargs)
        asked = _captured.items
    except ValueError as error:
        if isinstance(error.__cause__, Exception | None):
            raise
        raise error.__cause__ from None  # Ctrl-C came while NumPy asked, and NumPy says something else of it
    finally:
        _captured.items = before
    return _traced_call(asked[0], function, args, kwargs) if asked else made


def _traced_call(like: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return like.__array_function__(function, (type(like),), args, kwargs)


ORDERS: Final = {"ascontiguousarray": "C", "asfortranarray": "F"}
"""The order that a function asks for by its name."""


def _returns_argument(name: str, source: Handle, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a function returns the array itself, unless it is in another order."""
    if len(args) > 2 or not kwargs.keys() <= {"dtype", "order", "copy"} or kwargs.get("order") == "A":
        return False
    if (kwargs.get("copy", True) if name == "array" else kwargs.get("copy")) is True:
        return False
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    same = wanted is None or np.dtype(wanted) == source.dtype
    return same and not (name in ORDERS and source.ndim == 0)


def _is_copied_by_user(array: Handle, frame: FrameType, function: Any) -> bool:
    """Return whether the user's own code says ``np.asarray(x)`` of an array that is followed, rather than something compiled does that
    is to have the numbers. An array of a trace has no numbers."""
    if trace_of(array.value) is not None:
        return is_user_file(calling_frame(frame)[0].f_code.co_filename)
    followed = is_followed(array) or (bool(scopes()) and not _is_constant(array))
    return followed and called_by_user(frame, function)


def _is_constant(array: Handle) -> bool:
    """Return whether NumPy has the numbers: of arrays that were made to be written to, until something traced is."""
    base: Any = array._base
    return type(array) in COMPACT and (not hasattr(base, "is_untraced") or base.is_untraced())


def calling_module(depth: int) -> str:
    """Return the module that called a function `depth` callers up, or that called np.array there."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return "" if frame is None else frame.f_globals.get("__name__", "")


CONVERTING: Final = (np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray)
"""Functions that make arrays of anything."""

before_recording(lambda: interpose(_array_or_traced, When.NO_ARRAY, CONVERTING))
