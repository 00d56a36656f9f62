"""Creation patches: during a recording, `numpy.zeros` and similar functions return preallocated arrays to user code."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from gradtape.ir.builder import here
from gradtape.trace.array.array import wrap
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import is_traced, preallocated, unwrap_keywords, unwrap_preallocated
from gradtape.trace.dispatch.dispatch import call_function
from gradtape.trace.patching.callers import called_by_user
from gradtape.trace.patching.interpose import When, interpose, without_hook
from gradtape.trace.patching.recorders import before_recording
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import user_site

ALLOCATORS: Final = (np.zeros, np.empty)
"""NumPy's compiled functions that allocate arrays. Those written in Python call them: `ones`, `full`, `eye`, `identity`."""

LIKE_FUNCTIONS: Final = (np.zeros_like, np.empty_like, np.ones_like, np.full_like)
"""Functions that create an array with the shape and dtype of another."""

_FULL: Final = np.full.__code__
_frame = sys._getframe


HOOKED: Final[set[Any]] = {*ALLOCATORS, *LIKE_FUNCTIONS}
"""The functions that are patched here."""


def _create(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call one of NumPy's functions, and for user code return its result as a preallocated array."""
    if not contexts.stack:
        return NotImplemented
    if args and type(args[0]) in (list, tuple) and function in LIKE_FUNCTIONS:
        like: Any = np.asarray(args[0])
        if isinstance(like, Handle):
            return function(like, *args[1:], **kwargs)
    frame = _frame(1)
    if not called_by_user(frame, function):
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


before_recording(lambda: interpose(_create, When.ALWAYS, HOOKED))
