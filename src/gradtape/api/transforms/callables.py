"""What can be traced: functions that return their result."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from gradtape.errors import ArgumentError, kind_of
from gradtape.habits import unknown_keyword
from gradtape.trace.array.handle import Handle
from gradtape.trace.source.sites import user_site

if TYPE_CHECKING:
    from gradtape.api.type_variables import P, V

_NAMESPACES: Final = ("debug", "inspect", "optimizers", "plot", "scipy", "tree")
"""Folders and modules of the interface whose names users write with them: gt.scipy.minimize."""

_RUNS_LATER: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def suggests_keywords(function: Callable[P, V]) -> Callable[P, V]:
    """Let an unknown keyword argument of a public function raise an error with the keyword that was probably meant."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> V:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            better = _unknown_keyword(error, function)
            if better is None:
                raise
            raise better from None

    return called


def _unknown_keyword(error: TypeError, function: Callable[..., Any]) -> TypeError | None:
    options = [
        name
        for name, parameter in list(inspect.signature(function).parameters.items())[1:]
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return unknown_keyword(error, function.__name__, _public_name(function), options)


def _public_name(function: Callable[..., Any]) -> str:
    folder = function.__module__.removeprefix("gradtape.api.").partition(".")[0]
    namespace = f"{folder}." if folder in _NAMESPACES else ""
    return f"gt.{namespace}{function.__qualname__.removesuffix('.__init__')}"


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
