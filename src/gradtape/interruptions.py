"""Exceptions of signal handlers: they end what runs, and are no failure of what they interrupt.

Ctrl-C is one. Others are those that handlers of a program's own raise, such as the `TimeoutError` of an alarm: classes of `Exception`, so
that ``except Exception`` around a compilation or a trace takes them for its failure. Clauses that go on in another way ask here.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from traceback import walk_tb
from types import CodeType, FunctionType, MethodType
from typing import Any


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
