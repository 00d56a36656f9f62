"""Functions that stand for NumPy's ``zeros`` and its kin while somebody records: user code gets arrays that take traced numbers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np

from ..ir.builder import here
from .array import Array, wrap
from .contexts import contexts
from .dispatch import call_function
from .lists import NAMES
from .preallocated import follows, own, own_named, preallocated
from .sites import callee_at, is_users, user_site

MAKERS: Final = (np.zeros, np.empty, np.ones, np.full, np.eye, np.identity)
"""NumPy's functions that make arrays of nothing."""

SIMILAR: Final = (np.zeros_like, np.empty_like, np.ones_like, np.full_like)
"""Those that make an array of the form of another."""

FILLED: Final = (np.full, np.full_like)
"""Those that are given the number."""

_asked: Final[dict[int, tuple[CodeType, dict[tuple[int, str], bool]]]] = {}
"""What was found out about code: by its id, with the code itself, which keeps the id its own."""


def called_by_user(frame: FrameType, name: str) -> bool:
    """Return whether a frame is of the user's own code and calls a function by this name, rather than something compiled that does."""
    code, place = frame.f_code, frame.f_lasti
    known = _asked.get(id(code))
    if known is None:
        if len(_asked) >= 4096:
            _asked.clear()
        known = _asked[id(code)] = code, {}
    answers = known[1]
    answer = answers.get((place, name))
    if answer is None:
        answer = answers[place, name] = is_users(code.co_filename) and callee_at(frame) == name
    return answer


class StandIn:
    """A function in place of one of NumPy's. Code that knows functions by comparing them takes it for NumPy's own.

    Parameters
    ----------
    function : callable
        NumPy's own.
    """

    __slots__ = ("__dict__",)

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function: Any = self.__wrapped__  # type: ignore[attr-defined]
        like = kwargs.get("like")
        if isinstance(like, Array):  # NumPy itself would look the function up by its name
            del kwargs["like"]
            return like.__array_function__(function, (type(like),), args, kwargs)
        args, kwargs = own(args), own_named(kwargs)
        if not contexts.stack or not called_by_user(sys._getframe(1), function.__name__):
            return function(*args, **kwargs)
        if function in FILLED and follows((args[1:], kwargs.get("fill_value"))):
            here.site = user_site(via=f"np.{function.__name__}")
            return wrap(call_function(function, args, kwargs))
        made = function(*args, **kwargs)
        if type(made) is not np.ndarray or made.dtype.kind not in "biufc" or made.dtype.char in "gG":
            return made
        return preallocated(made if made.base is None else made.copy())

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.__wrapped__  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.__wrapped__)  # type: ignore[attr-defined]

    def __reduce__(self) -> str:
        return str(self.__wrapped__.__name__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return repr(self.__wrapped__)  # type: ignore[attr-defined]


for _function in (*MAKERS, *SIMILAR):
    NAMES.exchange(_function, StandIn(_function))
