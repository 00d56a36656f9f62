"""Operators of functions of one argument, made operators of functions of several: the other arguments stay what they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import is_
from typing import Any, TypeVar

from gradtape.errors import GradtapeError
from gradtape.runtime.compile.background import patient

F = TypeVar("F", bound=Callable[..., Any])


def subvals(values: Iterable[Any], replacements: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """Return the values as a tuple, with others at the positions that are named."""
    replaced = list(values)
    for position, value in replacements:
        replaced[position] = value
    return tuple(replaced)


def unary_to_nary(
    unary_operator: Callable[..., Any],
    compiled: Callable[[Callable[[Any], Any]], Callable[[Any], Any]] | None = None,
) -> Callable[..., Any]:
    """Let an operator ``operator(function, x)`` act on functions of several arguments, in one of them or in several.

    Parameters
    ----------
    unary_operator : callable
        ``unary_operator(function, x, *args)``, where `function` has one argument.
    compiled : callable, optional
        ``compiled(function)(x)`` is ``unary_operator(function, x)``, by code that is kept. The derivative in one argument takes it from the
        second call on whose other arguments are the same objects, as in the iterations of a solver, and leaves to the operator what it
        refuses.

    Returns
    -------
    callable
        ``operator(function, argnum=0, *args)`` returns a function of the arguments of `function`.
    """

    @functools.wraps(unary_operator)
    def nary_operator(
        fun: Callable[..., Any], argnum: Any = 0, *op_args: Any, **op_kwargs: Any
    ) -> Callable[..., Any]:
        assert isinstance(argnum, int | tuple | list), argnum
        kept = compiled if isinstance(argnum, int) and not (op_args or op_kwargs) else None
        return _applied(unary_operator, fun, argnum, op_args, op_kwargs, kept)

    return nary_operator


def _applied(
    operator: Callable[..., Any],
    fun: Callable[..., Any],
    argnum: Any,
    op_args: Any,
    op_kwargs: Any,
    compiled: Any,
) -> Callable[..., Any]:
    others: list[Any] | None = None
    kept: Callable[[Any], Any] | None = None

    def nary_function(*args: Any, **kwargs: Any) -> Any:
        nonlocal others, kept, compiled
        if isinstance(argnum, int):
            x = args[argnum]
        else:
            x = tuple(args[k] for k in argnum)

        def unary_function(x: Any) -> Any:
            places = [(argnum, x)] if isinstance(argnum, int) else zip(argnum, x, strict=True)
            return fun(*subvals(args, places), **kwargs)

        def by_operator() -> Any:
            unary_function.__name__ = get_name(fun)
            with patient:
                return operator(unary_function, x, *op_args, **op_kwargs)

        if compiled is None:
            return by_operator()
        now = [*subvals(args, [(argnum, None)]), *kwargs, *kwargs.values()]
        if others is None or len(now) != len(others) or not all(map(is_, now, others)):
            others, kept = now, None
            return by_operator()
        kept = kept or compiled(unary_function if len(now) > 1 else fun)
        try:
            with patient:
                return kept(x)
        except GradtapeError:
            result = by_operator()
            compiled = kept = others = None
            return result

    name = f"{get_name(operator)}_of_{get_name(fun)}_wrt_argnum_{argnum}"
    return wraps(
        fun,
        name,
        (f"{get_name(operator)} of function {get_name(fun)} with respect to argument number {argnum}."),
    )(nary_function)


def wraps(
    fun: Callable[..., Any], namestr: str = "{fun}", docstr: str = "{doc}", **kwargs: Any
) -> Callable[[F], F]:
    """Return a decorator that gives a function a name and a docstring made from those of another one."""

    def named(function: F) -> F:
        with suppress(AttributeError, KeyError, ValueError):
            function.__name__ = namestr.format(fun=get_name(fun), **kwargs)
            function.__doc__ = docstr.format(fun=get_name(fun), doc=get_doc(fun), **kwargs)
        return function

    return named


def get_name(function: Any) -> str:
    """Return the name of a function."""
    return str(getattr(function, "__name__", "[unknown name]"))


def get_doc(function: Any) -> str:
    """Return the docstring of a function."""
    return str(getattr(function, "__doc__", ""))
