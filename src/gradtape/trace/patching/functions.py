"""Hooks in functions that are written in Python, such as SciPy's: their code is replaced by code that calls a handler."""

from __future__ import annotations

import builtins
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, Final

from gradtape.collector import referrers
from gradtape.trace.patching.recorders import RECORDERS

Function = Callable[..., Any]

_PLACE: Final = "gradtape's handler"
"""The constant that is replaced by the handler."""

_original_functions: Final[dict[CodeType, Function]] = {}
"""Functions with the original code, by the code that replaces it."""

_answered: Final[list[tuple[FunctionType, CodeType]]] = []
"""The functions whose calls a handler answers now, with their own code."""


def hook_function(function: FunctionType, handler_of: Callable[[Function], Function]) -> None:
    """Let a handler answer the calls of a Python function while there is a recorder.

    The function stays the same object, with its signature, defaults, names and source lines.

    Parameters
    ----------
    function : function
        Its ``__code__`` is replaced, once.
    handler_of : callable
        Returns the handler, for a function with the original code.
    """
    if function.__code__ in _original_functions:
        return
    code = function.__code__
    original = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    original.__qualname__ = function.__qualname__
    handler, given = handler_of(original), _without_defaults(original)

    def answer(*args: Any, **kwargs: Any) -> Any:
        if not RECORDERS:
            return original(*args, **kwargs)
        args, kwargs = given(args, kwargs)
        return handler(*args, **kwargs)

    changed = forwarding_code(code, answer)
    _original_functions[changed] = original
    function.__code__ = changed


def with_names(function: Any, **names: Any) -> Function:
    """Return a function with the code of another one, in which global names mean something else."""
    renamed = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    renamed.__kwdefaults__ = function.__kwdefaults__
    return renamed


def without_hook(function: FunctionType) -> Function:
    """Return a function with the code that a function had before it was hooked."""
    return _original_functions.get(function.__code__, function)


def functions_of(codes: Iterable[CodeType]) -> list[FunctionType]:
    """Return the living functions that run these code objects."""
    code_objects = [*codes]
    if not code_objects:
        return []
    return [
        function
        for function in referrers(code_objects, FunctionType)
        if any(function.__code__ is code for code in code_objects)
    ]


@contextmanager
def answered_by(
    functions: Iterable[FunctionType], handler: Callable[[FunctionType, Any, Any], Any]
) -> Iterator[None]:
    """Let a handler answer the calls of Python functions meanwhile.

    Parameters
    ----------
    functions : iterable of function
        They have their own code again afterwards, and while the handler runs.
    handler : callable
        ``(function, args, kwargs) -> result``. It is called on all threads.
    """
    hooked = [(function, function.__code__) for function in functions]
    try:
        for function, code in hooked:
            function.__code__ = forwarding_code(code, _answer(function, code, handler))
        _answered.extend(hooked)
        yield
    finally:
        for function, code in hooked:
            function.__code__ = code
        _answered[:] = [entry for entry in _answered if entry not in hooked]


@contextmanager
def with_own_code() -> Iterator[None]:
    """Restore the original code of hooked functions meanwhile, for inspection."""
    changed = [(function, function.__code__) for function, _ in _answered]
    for function, code in _answered:
        function.__code__ = code
    try:
        yield
    finally:
        for function, code in changed:
            function.__code__ = code


def _answer(function: FunctionType, code: CodeType, handler: Callable[..., Any]) -> Function:
    def answer(*args: Any, **kwargs: Any) -> Any:
        changed = function.__code__
        function.__code__ = code
        try:
            return handler(function, args, kwargs)
        finally:
            function.__code__ = changed

    return answer


@contextmanager
def replaced_len(handler: Callable[[Any], Any]) -> Iterator[None]:
    """Let a function answer `len` in this block, on all threads.

    This is the one name that is replaced: Python's specialised instruction for `len` compares the object and calls no pointer of its, and
    makes an integer of its own of what ``__len__`` returns.
    """
    original = builtins.len
    try:
        builtins.len = handler
        yield
    finally:
        builtins.len = original


def forwarding_code(code: CodeType, answer: Function) -> CodeType:
    """Return code with the same parameters that calls `answer` with all of them."""
    count = code.co_argcount
    positional = list(code.co_varnames[:count])
    only = list(code.co_varnames[count : count + code.co_kwonlyargcount])
    variadic = list(code.co_varnames[count + len(only) :])
    star = f"*{variadic.pop(0)}" if code.co_flags & inspect.CO_VARARGS else ""
    stars = f"**{variadic.pop(0)}" if code.co_flags & inspect.CO_VARKEYWORDS else ""
    alone = positional[: code.co_posonlyargcount]
    named = positional[code.co_posonlyargcount :]
    parameters = [*alone, *["/"][: len(alone)], *named, *[star or "*"][: bool(star or only)], *only, stars]
    arguments = [*positional, star, *[f"{name}={name}" for name in only], stars]
    # Since Python 3.13 the code of a generator must not be replaced by that of another kind of function.
    answers = "yield from" if code.co_flags & inspect.CO_GENERATOR else "return"
    text = (
        f"def around({', '.join(code.co_freevars)}):\n"
        f"    def inner({', '.join(filter(None, parameters))}):\n"
        f"        {answers} {_PLACE!r}({', '.join(filter(None, arguments))})\n"
        f"        {', '.join(code.co_freevars) or None}\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # the constant is not callable yet
        module = compile(text, code.co_filename, "exec")
    around = _constant(module, "around")
    inner = _constant(around, "inner")
    return inner.replace(
        co_consts=tuple([answer if item == _PLACE else item for item in inner.co_consts]),
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno,
    )


def _constant(code: CodeType, name: str) -> CodeType:
    (inner_code,) = [item for item in code.co_consts if isinstance(item, CodeType) and item.co_name == name]
    return inner_code


def _without_defaults(function: FunctionType) -> Callable[[Sequence[Any], dict[str, Any]], tuple[Any, Any]]:
    """Return a function that drops arguments that are defaults of their parameters: rules have only some of SciPy's parameters."""
    code = function.__code__
    defaults = function.__defaults__ or ()
    count, first = code.co_argcount, code.co_argcount - len(defaults)
    keywords = function.__kwdefaults__ or {}

    def given(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        last = len(args)
        if last <= count:
            while last > first and args[last - 1] is defaults[last - 1 - first]:
                last -= 1
        named = {
            name: item for name, item in kwargs.items() if name not in keywords or item is not keywords[name]
        }
        return args[:last], named

    return given
