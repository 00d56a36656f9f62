"""Where the implementations on arrays of procedures enter themselves, and how calls find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {}
"""What runs in place of a NumPy function; it takes the builder before the arguments."""

ATTRIBUTES: Final[dict[str, Callable[..., Any]]] = {}
"""What an attribute of an array is, from builder and array."""

METHODS: Final[dict[str, Callable[..., Any]]] = {}
"""What runs in place of a method of an array; it takes builder and array before the arguments."""

UFUNC_METHODS: Final[dict[tuple[str, str], Callable[..., Any]]] = {}
"""What runs in place of a method of a ufunc, by the ufunc's name and the method; it takes the builder before the arguments."""

F = TypeVar("F", bound=Callable[..., Any])


def implements(*functions: Any, method: str | None = None) -> Callable[[F], F]:
    """Let the decorated function run in place of NumPy functions, and of a method of arrays."""

    def enter(replacement: F) -> F:
        for function in functions:
            if function is not None:
                FUNCTIONS[function] = replacement
        if method is not None:
            METHODS[method] = replacement
        return replacement

    return enter


def implements_method(*names: str) -> Callable[[F], F]:
    """Let the decorated function run in place of methods of arrays."""

    def enter(replacement: F) -> F:
        for name in names:
            METHODS[name] = replacement
        return replacement

    return enter
