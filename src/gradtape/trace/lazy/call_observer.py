"""Call observers, which are notified of each call with arrays before it runs, and may answer in its place."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from gradtape.ir.graph import Value

NO_KEYWORDS: Final[dict[str, Any]] = {}
"""The keyword arguments of a call that has none."""


class CallObserver(ABC):
    """Records or predicts the calls on one thread: see `gradtape.trace.lazy.call_trace`.

    Operators, ufuncs, functions and the methods that are called most ask for the observer in lines of their own: `observed` takes 0.2 us
    of the 1.8 in which a method is recorded.
    """

    __slots__ = ()

    @abstractmethod
    def observe(
        self,
        function: Any,
        operands: tuple[Any, ...],
        frame: FrameType,
        keywords: dict[str, Any] = NO_KEYWORDS,
    ) -> Any:
        """Return the result of a call, or None: then the caller runs the function as if there was no observer."""


class Deferred(ABC):
    """The source of arrays that have no values yet: it stands in the place of their base."""

    __slots__ = ()

    @abstractmethod
    def materialise(self) -> None:
        """Give all such arrays their values."""

    @property
    def value(self) -> None:
        """Give all such arrays their values, and return None.

        A base of other arrays returns its value here. An array finds that it has no base any more, and asks itself again.
        """
        self.materialise()

    @abstractmethod
    def is_view(self, slot: int) -> bool:
        """Return whether the array at a slot is a view of another one."""

    @abstractmethod
    def starts_from(self, value: Value) -> bool:
        """Return whether these arrays are computed from a value that existed before."""


class _Prediction(threading.local):
    """The prediction of this thread.

    Attributes
    ----------
    observer : CallObserver or None
        What is told of calls.
    deferred : weakref.ref to Deferred, or None
        What was predicted last, whose arrays may still have no values.
    """

    def __init__(self) -> None:
        self.observer: CallObserver | None = None
        self.deferred: weakref.ref[Deferred] | None = None

    def materialise(self, value: Value | None = None) -> None:
        """Give deferred arrays their values: all, or those that are computed from `value`, which is about to change."""
        deferred = None if self.deferred is None else self.deferred()
        if deferred is not None and (value is None or deferred.starts_from(value)):
            deferred.materialise()


prediction: Final = _Prediction()


def observed(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that tells the observer of each call before it runs."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        observer = prediction.observer
        if observer is not None:
            result = observer.observe(call, (self, *args), sys._getframe(1), kwargs)
            if result is not None:
                return result
        return method(self, *args, **kwargs)

    return call
