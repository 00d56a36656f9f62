"""The op cache: the nodes that a NumPy function appends, by the types of its arguments.

A rule, which runs in place of a NumPy function, depends on types alone: on the shapes and dtypes of arrays, and on its other arguments.
Its second call with the same types is evaluated abstractly, with placeholders, and the nodes become a template. Later calls apply the
template. A rule that reads data fails with placeholders, and runs in full each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.interruptions import raise_interruption
from gradtape.ir.graph import ARRAYS, Value
from gradtape.ir.templates import Template, placeholder, template_of
from gradtape.ir.types import Aval
from gradtape.kinds.arguments import NO_VALUE
from gradtape.ops.core.indexing import Basic, parse_index
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.shape import complete_shape
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.array.views import BasicIndexView, PermutedView, stays_contiguous

MAX_CALLS: Final = 4096
"""Calls in the cache: a program whose shapes or numbers never repeat would otherwise fill the memory."""

MAX_ITEMS: Final = 1024
"""Items of a list or tuple above which a call is not cached: the key is kept, and takes as long to compare."""

NUMBERS: Final = frozenset({bool, int, float, complex, np.float64, np.float32, np.int64, np.int32, np.bool_})
INTEGERS: Final = frozenset({int})
SEQUENCES: Final = frozenset({tuple, list})


class CachedCall(NamedTuple):
    """A call in the cache.

    Attributes
    ----------
    template : Template or None
        The nodes that it appends; None for a call that came once, or that the cache does not serve.
    container : type or None
        Tuple or list for a rule that returns several values.
    view : PermutedView or None
        The template as a view of its only argument; the viewer of the NumPy function sets NumPy's part of it.
    retry : bool
        Whether to make a template when the call comes again.
    """

    template: Template | None
    container: type | None
    view: PermutedView | None
    retry: bool


KEYWORDS: Final = object()
"""Separates positional and keyword arguments in a key."""

SEEN_ONCE: Final = CachedCall(None, None, None, True)
NOT_CACHED: Final = CachedCall(None, None, None, False)
_calls: Final[dict[Any, CachedCall]] = {}


@contextmanager
def own_calls() -> Iterator[None]:
    """Start with an empty cache inside this context, and leave an empty one: rules depend on more than types there."""
    _calls.clear()
    try:
        yield
    finally:
        _calls.clear()


def run(rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the results of a rule for arguments with handles in them."""
    values: list[Value] = []
    call = cached_call(rule, args, kwargs, values)
    if call is None:
        return rule(*map(unwrap, args), **given(kwargs))
    template = call.template
    assert template is not None
    return template(*values) if call.container is None else call.container(template.results(values))


def given(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments with values for handles, without those that stand for none: code of NumPy's hands on
    ``keepdims=np._NoValue``."""
    return {name: unwrap(each) for name, each in kwargs.items() if each is not NO_VALUE}


def cached_call(
    rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], values: list[Value]
) -> CachedCall | None:
    """Return the cached call of these types, if it has a template, and append the values among the arguments to `values`."""
    parts: list[Any] = [rule]
    for argument in args:
        if isinstance(argument, Handle):
            argument = argument._current if argument._base is None else argument.value
        if type(argument) is Value and not argument.aval.weak:
            values.append(argument)
            parts.append(argument.aval)
        elif argument is None:
            parts.append(None)
        elif not _add_to_key(argument, parts, values):
            return None
    if kwargs:
        parts.append(KEYWORDS)
        for name in kwargs:
            parts.append(name)
            if not _add_to_key(kwargs[name], parts, values):
                return None
    if len(parts) > 8 * MAX_ITEMS:
        return None
    key = tuple(parts)
    call = _calls.get(key)
    if call is None:
        if len(_calls) >= MAX_CALLS:
            _calls.clear()
        _calls[key] = SEEN_ONCE
        return None
    if call.retry:
        silent = not _may_lose_imaginary(values, key)
        call = _calls[key] = _abstract_call(rule, args, kwargs, values) if silent else NOT_CACHED
    return None if call.template is None else call


def _add_to_key(argument: Any, parts: list[Any], values: list[Value]) -> bool:
    """Append the type or the meaning of an argument to `parts`, and values to `values`; return whether that is possible."""
    kind = type(argument)
    if isinstance(argument, Handle) or kind in ARRAYS:
        value = argument.value if isinstance(argument, Handle) else argument
        type_ = value.aval
        if type_.weak or type(value) not in ARRAYS:
            return False
        values.append(value)
        parts.append(type_)
    elif kind in NUMBERS:  # equal numbers of other types are others, and so are zeros of other signs
        parts.append(kind)
        parts.append(argument or str(argument))
    elif kind in SEQUENCES:
        if len(argument) > MAX_ITEMS:
            return False
        if (
            kind is tuple
            and argument
            and type(argument[0]) is int
            and INTEGERS.issuperset(map(type, argument))
        ):
            parts.append(argument)
            return True
        parts.append(kind)
        parts.append(len(argument))
        for item in argument:
            if isinstance(item, Handle):
                item = item._current if item._base is None else item.value
            if type(item) is Value and not item.aval.weak:
                values.append(item)
                parts.append(item.aval)
            elif not _add_to_key(item, parts, values):
                return False
    elif argument is None or kind is str or argument is NO_VALUE or isinstance(argument, np.dtype | type):
        if kind is str and len(argument) > MAX_ITEMS:
            return False
        parts.append(argument)
    else:
        return False
    return True


def _may_lose_imaginary(values: Sequence[Value], key: tuple[Any, ...]) -> bool:
    """Return whether complex numbers may become real ones: NumPy warns of it at each call."""
    kinds = {value.dtype.kind for value in values}
    return "c" in kinds and (len(kinds) > 1 or any(isinstance(part, np.dtype | type | str) for part in key))


def _abstract_call(
    rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], values: Sequence[Value]
) -> CachedCall:
    """Evaluate a rule with placeholders, and return the template of the nodes that it appends."""
    inputs = [placeholder(value.aval) for value in values]
    rest = iter(inputs)
    try:
        result = rule(
            *[_replaced(argument, rest) for argument in args],
            **{name: _replaced(each, rest) for name, each in kwargs.items() if each is not NO_VALUE},
        )
    except (
        Exception
    ) as error:  # it reads data, or the arguments are wrong: then the call itself raises the error
        raise_interruption(error)
        return NOT_CACHED
    container = type(result) if type(result) in SEQUENCES else None
    results = [result] if container is None else list(result)
    if not all(isinstance(value, Value) for value in results):
        return NOT_CACHED
    template = template_of(inputs, results)
    if template is None:
        return NOT_CACHED
    return CachedCall(
        template, container, PermutedView(template, not_set) if len(inputs) == 1 else None, False
    )


def not_set(array: Any) -> Any:
    """Take the place of the function that makes NumPy's view, which `gradtape.trace.array.view_functions` sets."""
    raise AssertionError(array)


def _replaced(argument: Any, inputs: Iterator[Value]) -> Any:
    if isinstance(argument, Value | Handle):
        return next(inputs)
    if type(argument) in SEQUENCES:
        return type(argument)([_replaced(item, inputs) for item in argument])
    return argument


class IndexTemplate(NamedTuple):
    """The template of a basic index.

    Attributes
    ----------
    read : Template
        Selects the elements.
    part : BasicIndexView
        The view.
    contiguous : bool
        Whether the view of a contiguous array is contiguous.
    scalar : bool
        Whether it is one element, of which NumPy returns a copy.
    """

    read: Template
    part: BasicIndexView
    contiguous: bool
    scalar: bool


def index_template(type_: Aval, key: Any) -> IndexTemplate | None:
    """Return the template of ``x[key]`` for arrays of a type; None for a key with arrays in it."""
    kind = type(key)
    if kind is int:
        return _index_template(type_, key)
    if kind is slice:
        key = (key,)
    elif kind is not tuple:
        return None
    code = []
    for item in key:
        kind = type(item)
        if kind is slice:
            item = (item.start, item.stop, item.step)
            if not INDEX_TYPES.issuperset(map(type, item)):
                return None
        elif kind not in INDEX_TYPES:
            return None
        code.append(item)
    return _index_template(type_, tuple(code))


def reshape_template(type_: Aval, shape: Any) -> PermutedView | None:
    """Return the view of contiguous arrays of a type with another shape; None for a shape that is not made of integers."""
    if type(shape) is tuple:
        return _reshape_template(type_, shape) if INTEGERS.issuperset(map(type, shape)) else None
    return _reshape_template(type_, (shape,)) if type(shape) is int else None


@lru_cache(maxsize=8192)
def _reshape_template(type_: Aval, shape: tuple[int, ...]) -> PermutedView:
    start = placeholder(type_)
    template = template_of([start], [reshape(start, complete_shape(shape, start.size))])
    assert template is not None
    return PermutedView(template, lambda array: array.reshape(shape, copy=False))


INDEX_TYPES: Final = frozenset({int, type(None), type(Ellipsis)})


@lru_cache(maxsize=8192)
def _index_template(type_: Aval, code: Any) -> IndexTemplate:
    items = code if type(code) is tuple else (code,)
    key = tuple([slice(*item) if type(item) is tuple else item for item in items])
    index = parse_index(type_.shape, key)
    assert isinstance(index, Basic)
    start = placeholder(type_)
    template = template_of([start], [index.read(start)])
    assert template is not None
    scalar = not index.result and Ellipsis not in items
    return IndexTemplate(template, BasicIndexView(index), stays_contiguous(index, type_.shape), scalar)
