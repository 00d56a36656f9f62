"""What can be traced: functions that return their result."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import Any, Final

from gradtape.errors import ArgumentError, kind_of
from gradtape.trace.array.handle import Handle
from gradtape.trace.source.sites import user_site

_RUNS_LATER: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def check_callable(function: Any, caller: str) -> None:
    """Raise ArgumentError unless `function` can be called and returns its result, rather than something that has still to run."""
    if not callable(function):
        of_array = isinstance(function, Handle)
        raise ArgumentError(
            f"{caller} got {kind_of(function)}, which cannot be called",
            where=user_site(),
            why="it transforms functions; use a tape for values that have been computed" if of_array else "",
            remedy="pass the function that computes it, or use tape.gradient(y, x)"
            if of_array
            else "use it as a decorator, or pass a function: gt.jit(f)"
            if caller == "jit"
            else "pass a function",
        )
    if type(function) is FunctionType and not function.__code__.co_flags & _RUNS_LATER:
        return
    kind = _runs_later(function)
    if kind:
        raise ArgumentError(
            f"{caller} got {getattr(function, '__name__', 'a function')}, {kind} function",
            where=user_site(),
            why="its body runs only when its items are requested"
            if "generator" in kind
            else "its body runs only when it is awaited",
            remedy="return a list or an array in place of yielding, or use gt.scan for a loop with results"
            if "generator" in kind
            else "write the computation as an ordinary function, and call that one from the async function",
        )


def _runs_later(function: Any) -> str:
    """Return what kind of function returns before its body has run; empty for ordinary ones."""
    while isinstance(function, functools.partial):
        function = function.func
    for candidate in (function, vars(type(function)).get("__call__")):
        if inspect.isasyncgenfunction(candidate):
            return "an async generator"
        if inspect.isgeneratorfunction(candidate):
            return "a generator"
        if inspect.iscoroutinefunction(candidate):
            return "an async"
    return ""
