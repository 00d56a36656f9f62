"""Who reads along, or writes down, what is called with arrays: see `gradtape.trace.lazy.script`."""

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

NO_NAMES: Final[dict[str, Any]] = {}
"""The keyword arguments of a call that has none."""


class Attendant(ABC):
    """Is told of what is called with arrays, before it happens.

    Operators, ufuncs, functions and the methods that are called most ask for one in lines of their own: `attended` takes 0.2 us of the 1.8
    in which a method is recorded.
    """

    __slots__ = ()

    @abstractmethod
    def take(
        self, function: Any, operands: tuple[Any, ...], frame: FrameType, named: dict[str, Any] = NO_NAMES
    ) -> Any:
        """Return what a function returns for these operands, or None: then it is to be called as if nobody had been told."""


class Promised(ABC):
    """Stands in the place of the base of arrays that have no values yet."""

    __slots__ = ("__weakref__",)

    @abstractmethod
    def keep(self) -> None:
        """Give all such arrays their values."""

    @property
    def value(self) -> None:
        """None, when all such arrays have their values: what an array asks its base for."""
        self.keep()

    @abstractmethod
    def has_met(self, value: Value) -> bool:
        """Return whether these arrays are computed from a value that has been there before."""


class _Speculation(threading.local):
    """What is expected on this thread.

    Attributes
    ----------
    attendant : Attendant or None
        Who is to be told.
    last : weakref.ref to Promised, or None
        Whose arrays may still be without values.
    """

    def __init__(self) -> None:
        self.attendant: Attendant | None = None
        self.last: weakref.ref[Promised] | None = None

    def settle(self, value: Value | None = None) -> None:
        """Let what was promised have its values: all, or what is computed from `value`, which is about to become another."""
        promised = None if self.last is None else self.last()
        if promised is not None and (value is None or promised.has_met(value)):
            promised.keep()


speculation: Final = _Speculation()


def attended(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let who attends be told of a method before it runs."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        attendant = speculation.attendant
        if attendant is not None:
            made = attendant.take(call, (self, *args), sys._getframe(1), kwargs)
            if made is not None:
                return made
        return method(self, *args, **kwargs)

    return call
