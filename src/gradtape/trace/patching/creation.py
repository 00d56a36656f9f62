"""Handlers of NumPy's ``zeros`` and its kin: while somebody records, user code gets arrays that take traced numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...ir.builder import here
from ..array import wrap
from ..contexts import contexts
from ..dispatch import call_function
from ..handle import Handle
from ..preallocated import follows, own, own_named, preallocated
from ..sites import user_site
from .callers import called_by_user
from .hooks import hook

MAKERS: Final = (np.zeros, np.empty)
"""NumPy's compiled functions that make arrays of nothing. Those written in Python call them: `ones`, `full`, `eye`, `identity`."""

SIMILAR: Final = (np.zeros_like, np.empty_like, np.ones_like, np.full_like)
"""Those that make an array of the form of another."""

Function = Callable[..., Any]

_FULL: Final = np.full.__code__
_frame = sys._getframe


def _handler_of(function: Any) -> Callable[[Function], Function]:
    def handler_of(plain: Function) -> Function:
        def make(*args: Any, **kwargs: Any) -> Any:
            if not contexts.stack:
                return plain(*args, **kwargs)
            frame = _frame(1)
            if not called_by_user(frame, function):
                return plain(*args, **kwargs)
            args, kwargs = own(args), own_named(kwargs)
            if function is np.full_like and follows((args[1:], kwargs.get("fill_value"))):
                here.site = user_site(via="np.full_like")
                return wrap(call_function(function, args, kwargs))
            made = plain(*args, **kwargs)
            if frame.f_code is _FULL and isinstance(frame.f_locals["fill_value"], Handle):
                made.fill(
                    0
                )  # what it is filled with is written next: what was there before is to be no constant of its own
            if type(made) is not np.ndarray or made.dtype.kind not in "biufc" or made.dtype.char in "gG":
                return made
            return preallocated(made if made.base is None else made.copy())

        return make

    return handler_of


for _function in (*MAKERS, *SIMILAR):
    hook(_function, _handler_of(_function))
