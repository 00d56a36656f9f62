"""Exceptions of signal handlers: they end what runs, and are no failure of what they interrupt.

Ctrl-C is one. Others are those that handlers of a program's own raise, such as the `TimeoutError` of an alarm: classes of `Exception`, so
that ``except Exception`` around a compilation or a trace takes them for its failure. Clauses that go on in another way ask here.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Self


def signal_of(error: BaseException) -> signal.Signals | None:
    """Return the signal whose handler has raised an exception, None if it was raised elsewhere."""
    handlers = dict(_handlers())
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_code in handlers:
            return handlers[frame.f_code]
    return None


def raise_interruption(error: BaseException) -> None:
    """Raise an exception again that a signal handler has raised, or what it led to; return where an error has other causes.

    Parameters
    ----------
    error : BaseException
        What was caught.

    Raises
    ------
    BaseException
        What the handler raised; KeyboardInterrupt where `threading` raised a RuntimeError because of one.
    """
    cause: BaseException | None = error
    while cause is not None:
        if signal_of(cause) is not None:
            raise cause
        cause = cause.__cause__
    context: BaseException | None = error if isinstance(error, RuntimeError) else None
    while context is not None:
        if isinstance(context, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        context = context.__context__


class Deferral:
    """Handlers of signals while C code runs that calls Python, and through which no exception can pass.

    An exception of a handler is kept in `errors`, unless Python code is `entered`: there it is raised, so that it ends what that code
    does. Elsewhere it would be lost: a handler may run before the first instruction of a callback, where no clause can catch what it
    raises. Signals are handled by the main thread alone, and other threads keep their errors by `calls`.

    Attributes
    ----------
    errors : list of BaseException
        What callbacks and handlers have raised. A callback returns False then, without a call.
    entered : bool
        Whether code of a callback runs.
    """

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.entered = False
        self._handlers: dict[signal.Signals, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[signal.Signals(number)] = handler
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def calls(self, function: Callable[..., Any]) -> Callable[..., bool]:
        """Return a callback, which returns False where `function` does, or raises an exception, or another one has done so."""

        def run(*args: Any) -> bool:
            if self.errors:
                return False
            try:
                self.entered = True
                done = function(*args) is not False
                self.entered = False
            except BaseException as error:
                self.entered = False
                self.errors.append(error)
                return False
            return done

        return run

    def _handle(self, number: int, frame: FrameType | None) -> None:
        handler = self._handlers[signal.Signals(number)]
        if self.entered:
            handler(number, frame)
            return
        try:
            handler(number, frame)
        except BaseException as error:
            self.errors.append(error)


def _handlers() -> Iterator[tuple[CodeType, signal.Signals]]:
    """Return the code of the signal handlers of this process that are written in Python, with their signals."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        if isinstance(handler, MethodType):
            handler = handler.__func__
        elif not isinstance(handler, FunctionType):
            handler = next(
                (vars(c)["__call__"] for c in type(handler).__mro__ if "__call__" in vars(c)), None
            )
        if isinstance(handler, FunctionType):
            yield handler.__code__, signal.Signals(number)
