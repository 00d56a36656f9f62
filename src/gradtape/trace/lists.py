"""Lists of traced numbers that are made into arrays: ``np.array([x[0], -x[1]])``.

NumPy has no protocol by which what stands in a list could say what becomes of the list: np.array asks each item for its numbers. So
while somebody records, the names `numpy.array` and `numpy.asarray` stand for functions that do the same and, where NumPy asked an item
that is followed, make the array once more as an operation.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import numpy as np

from .speculation import speculation


class _Asked(threading.local):
    """The followed items that NumPy asks for their numbers while it makes an array of a list; None at any other time."""

    items: list[Any] | None = None


_asked: Final = _Asked()


def ask(item: Any) -> bool:
    """Return whether any number will do for a traced array, because the array of the list that it stands in is made once more."""
    if _asked.items is None or not (
        (item._base is not None and item._base is speculation.attendant)
        or any(mark.recording for mark in item.value.marks)
    ):
        return False
    _asked.items.append(item)
    return True


class _Names:
    """NumPy's names, exchanged while somebody records on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: set[int] = set()
        self._names: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = []

    def exchange(self, own: Callable[..., Any], following: Callable[..., Any]) -> None:
        """Let another function stand for one of NumPy's while somebody records."""
        self._names.append((own.__name__, own, following))

    def enter(self, user: object) -> None:
        """Let the names stand for functions that follow, for as long as `user` needs that."""
        with self._lock:
            self._users.add(id(user))
            if len(self._users) == 1:
                names = vars(np)
                for name, own, following in self._names:
                    if names[name] is own:
                        names[name] = following

    def leave(self, user: object) -> None:
        """Give the names back when nobody needs them any more; to leave twice does no harm."""
        with self._lock:
            self._users.discard(id(user))
            if not self._users:
                names = vars(np)
                for name, own, following in self._names:
                    if names[name] is following:
                        names[name] = own


def _following(function: Callable[..., Any]) -> Callable[..., Any]:
    def followed(like: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # NumPy itself would look the function up by its name.
        return like.__array_function__(function, (type(like),), args, kwargs)

    @functools.wraps(function)
    def make(*args: Any, like: Any = None, **kwargs: Any) -> Any:
        if like is not None:
            own = isinstance(like, np.ndarray)
            return function(*args, **kwargs, like=like) if own else followed(like, args, kwargs)
        if not args or not isinstance(args[0], list | tuple):
            return function(*args, **kwargs)
        before, _asked.items = _asked.items, []
        try:
            made = function(*args, **kwargs)
            asked = _asked.items
        finally:
            _asked.items = before
        return followed(asked[0], args, kwargs) if asked else made

    return make


def asker(depth: int) -> str:
    """Return the module that called a function `depth` callers up, or that called np.array there."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return "" if frame is None else frame.f_globals.get("__name__", "")


NAMES: Final = _Names()
for _function in (np.array, np.asarray):
    NAMES.exchange(_function, _following(_function))
