"""The objects that a function can reach by the names in its code: which are watched where no trace of a jitted function is around."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any, Final

from gradtape.trace.jit.captures.arguments import CONTAINERS
from gradtape.trace.jit.captures.user_classes import is_plain_object, is_user_class
from gradtape.trace.jit.captures.walk import always
from gradtape.trace.patching.copies import LISTED, Substitute, WriteWatch, closure_of, content_of, is_filled
from gradtape.trace.patching.name_reads import reads_of
from gradtape.trace.source.contexts import compiled_trace, write_watch
from gradtape.trace.source.sites import is_user_file

_MOST: Final = 256
"""The number of objects behind which no others are looked for."""

_LONGEST: Final = 4096
"""The length of containers that are looked into."""


def watch_over(function: Callable[..., Any]) -> WriteWatch:
    """Return a watch over what a function that runs once for many others may write outside, as it begins."""
    return WriteWatch(outside_of(function), ()) if compiled_trace() is None else write_watch()


def outside_of(function: Any) -> list[Substitute]:
    """Return the containers and objects of the user's that a function may write to, each in its own place.

    Examples
    --------
    >>> log = []
    >>> [each.name for each in outside_of(lambda x: log.append(x))]
    ["the global 'log'"]
    """
    substitutes: dict[int, Substitute] = {}
    visited: set[int] = set()
    waiting = [(function, "the function")]
    while waiting and len(visited) < _MOST:
        current, name = waiting.pop(0)
        if id(current) in visited:
            continue
        visited.add(id(current))
        if _is_writable(current):
            label = (
                f"the attribute {{!r}} of {name}"
                if _has_attributes(current)
                else f"the entry {{!r}} of {name}"
            )
            part = always(name) if isinstance(current, CellType) else label.format
            substitutes[id(current)] = Substitute(current, current, name, part)
            substitutes[id(current)].initial = content_of(current)
        waiting += _parts(current, name)
    return list(substitutes.values())


def _is_writable(value: Any) -> bool:
    if isinstance(value, LISTED | dict | set):
        return len(value) <= _LONGEST
    return isinstance(value, CellType) or _has_attributes(value)


def _has_attributes(value: Any) -> bool:
    return is_user_class(value) if isinstance(value, type) else is_plain_object(value)


def _parts(value: Any, name: str) -> Iterator[tuple[Any, str]]:
    """Yield what code reaches from an object, with names for messages."""
    if isinstance(value, functools.partial):
        yield from [(part, name) for part in (value.func, *value.args, *value.keywords.values())]
    elif isinstance(value, MethodType):
        yield value.__self__, f"the object of {value.__name__}"
        yield value.__func__, name
    elif isinstance(value, FunctionType):
        yield from _names_of(value)
    elif isinstance(value, CellType):
        if is_filled(value):
            yield value.cell_contents, name
    elif isinstance(value, CONTAINERS) and len(value) <= _LONGEST:
        content = content_of(value)
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        yield from [(item, f"{name}[{key!r}]") for key, item in pairs]
    elif _has_attributes(value):
        if not isinstance(value, type):
            yield type(value), f"the class {type(value).__name__}"
        yield from [(item, f"{name}.{key}") for key, item in content_of(value).items()]
    elif (wrapped := getattr(value, "__wrapped__", None)) is not None:
        yield wrapped, name
    elif (owner := getattr(value, "__self__", None)) is not None:
        yield owner, name


def _names_of(function: FunctionType) -> Iterator[tuple[Any, str]]:
    if not is_user_file(function.__code__.co_filename):
        if (wrapped := getattr(function, "__wrapped__", None)) is not None:
            yield wrapped, function.__name__
        return
    names, reads = function.__globals__, reads_of(function.__code__)
    for name, cell in closure_of(function):
        yield cell, f"the closure variable {name!r} of {function.__name__}"
    yield from [(names[name], f"the global {name!r}") for name in sorted(reads.names) if name in names]
    if reads.stores_globals:
        yield names, "the globals"
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    yield from [(default, f"a default of {function.__name__}") for default in defaults]
    if vars(function):
        yield vars(function), f"the attributes of {function.__name__}"
