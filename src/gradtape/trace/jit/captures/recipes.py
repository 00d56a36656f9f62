"""Recipes: how each call makes what the traced one has stored outside: of outputs of the program, of what it reads, and of constants."""

from __future__ import annotations

import enum
import functools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.masked import Selection
from gradtape.trace.jit.captures.arguments import resolve
from gradtape.trace.jit.captures.spec import PLAIN_TYPES, CaptureSpec
from gradtape.trace.jit.captures.user_classes import is_package_object, is_plain_object
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.copies import closure_of, content_of, is_filled, set_content
from gradtape.trace.variables.variable import Variable

_CONSTANT_TYPES: Final = (
    *(type, ModuleType, BuiltinFunctionType, np.ufunc, np.dtype, np.generic, np.random.Generator),
    *(enum.Enum, range, slice, Variable),
)
"""Types of objects that each call stores as they are."""

MOST_INTEGER: Final = 2**31
"""The size up to which integers that calls assign are those of programs: products of two fit. Those of Python have no end."""

_KEYED: Final = (dict, OrderedDict, defaultdict, Counter)
_LISTED: Final = (list, tuple, set, frozenset, deque)


class Moment(NamedTuple):
    """The objects from which the recipes of one call are made.

    Attributes
    ----------
    objects : sequence
        What its steps have read.
    leaves : sequence
        Its arguments.
    outputs : sequence of ndarray
        Those of the program.
    arguments : pair of tuple and dict
        Its arguments in their containers.
    made : dict
        By recipe, the containers and objects that have been made: two names of one object stay two names of one.
    """

    objects: Sequence[Any]
    leaves: Sequence[Any]
    outputs: Sequence[NDArray]
    arguments: Any
    made: dict[int, Any]


Recipe: TypeAlias = Callable[[Moment], Any]


class IntegerTooLarge(Exception):
    """Raised where a call would assign an integer that is so large that later ones may not fit: Python computes it."""


class NoRecipe(Exception):
    """Raised for an object that a program cannot make in each call."""


class RecipeBook:
    """The recipes of one trace.

    Parameters
    ----------
    spec : CaptureSpec
        What the function reads.
    leaves : dict of int to Array
        The traced arguments that the function has not written to, by their positions.
    results : list of Array
        The results of the function for which the program has outputs, in their order.

    Attributes
    ----------
    values : list of Value
        Further outputs that the recipes take.
    keeps_objects : bool
        Whether a recipe returns an object of the trace itself.
    """

    def __init__(self, spec: CaptureSpec, leaves: dict[int, Any], results: Sequence[Any]) -> None:
        self.values: list[Value] = []
        self.keeps_objects = False
        self._spec = spec
        self._first = len(results)
        self._results = {id(array): number for number, array in enumerate(results)}
        self._containers: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._arguments = {id(leaf): number for number, leaf in leaves.items()}
        self._known: dict[int, tuple[Any, Recipe]] = {}

    def note_argument(self, copy: Any, path: tuple[Any, ...]) -> None:
        """Let a container among the arguments be that of each call."""
        self._containers[id(copy)] = copy, path

    def recipe(self, value: Any) -> Recipe:
        """Return how a call makes an object that the trace has stored; raise NoRecipe where it cannot."""
        if type(value) in PLAIN_TYPES:
            return lambda moment: value
        known_object, recipe = self._known.get(id(value), (None, None))
        if known_object is not value or recipe is None:
            recipe = self._new(value)
            self._known[id(value)] = value, recipe
        return recipe

    def output(self, value: Value) -> Callable[[Moment], NDArray]:
        """Let the program have a further output, and return what takes it."""
        number = self._first + len(self.values)
        self.values.append(value)
        return lambda moment: moment.outputs[number]

    def _new(self, value: Any) -> Recipe:
        position = self._arguments.get(id(value))
        if position is not None:
            return lambda moment: moment.leaves[position]
        container, path = self._containers.get(id(value), (None, ()))
        if container is value:
            return lambda moment: resolve(path, moment.arguments)
        step = self._spec.step_reading(value)
        if step is not None:
            return lambda moment: moment.objects[step]
        if isinstance(value, Selection):
            value = value.elements()
        if isinstance(value, Handle) and not isinstance(value, Variable):
            return self._of_array(value)
        kind = type(value)
        if kind is np.ndarray and not value.dtype.hasobject:
            snapshot = value.copy()
            return lambda moment: snapshot.copy()
        if isinstance(value, _CONSTANT_TYPES):
            return self._kept(value)
        if kind in _KEYED:
            return self._of_items(value, list(value.items()))
        if kind in _LISTED or (isinstance(value, tuple) and kind.__base__ is tuple):
            return self._of_items(value, list(enumerate(value)))
        if is_plain_object(value) or is_package_object(value):
            return self._of_items(value, list(content_of(value).items()))
        if kind is MethodType:
            owner, function = self.recipe(value.__self__), self.recipe(value.__func__)
            return lambda moment: MethodType(function(moment), owner(moment))
        if kind is functools.partial:
            parts = [self.recipe(part) for part in (value.func, value.args, dict(value.keywords))]
            return lambda moment: _partial(*[part(moment) for part in parts])
        if kind is FunctionType and all(
            is_filled(cell) and self._is_outside(cell.cell_contents) for _, cell in closure_of(value)
        ):
            return self._kept(value)
        raise NoRecipe(f"an object of the class {kind.__name__}")

    def _kept(self, value: Any) -> Recipe:
        self.keeps_objects = True
        return lambda moment: value

    def _is_outside(self, content: Any) -> bool:
        return type(content) in PLAIN_TYPES or (
            isinstance(content, (*_CONSTANT_TYPES, FunctionType)) and self._spec.original(content) is content
        )

    def _of_array(self, array: Handle) -> Recipe:
        value = array.value
        if self._spec.trace not in value.tags:
            (data,) = force([value])
            return lambda moment: np.array(data) if data.ndim else data[()]
        if value.ndim:
            number = self._results.get(id(array))
            return self.output(value) if number is None else lambda moment: moment.outputs[number]
        take = self.output(value)
        if value.aval.weak:
            return lambda moment: _python_number(take(moment))
        return lambda moment: take(moment)[()]

    def _of_items(self, value: Any, items: list[tuple[Any, Any]]) -> Recipe:
        """Return how a container or object is made of its items; it may contain itself."""
        parts: list[tuple[Any, Recipe]] = []
        kind, number = type(value), id(value)
        empty = _maker_of_empty(value)

        def make(moment: Moment) -> Any:
            container = moment.made.get(number)
            if container is not None:
                return container
            if empty is None:
                content = [part(moment) for _, part in parts]
                container = tuple.__new__(kind, content) if issubclass(kind, tuple) else kind(content)
                moment.made[number] = container
                return container
            moment.made[number] = container = empty()
            _fill(container, [(key, part(moment)) for key, part in parts])
            return container

        self._known[number] = value, make
        parts += [(self._spec.original(key), self.recipe(item)) for key, item in items]
        return make


def _python_number(array: NDArray) -> Any:
    """Return a number of Python; raise IntegerTooLarge for an integer near to where those of the program end."""
    number = array.item()
    if type(number) is int and abs(number) >= MOST_INTEGER:
        raise IntegerTooLarge
    return number


def _partial(function: Any, args: Any, keywords: Any) -> Any:
    return functools.partial(function, *args, **keywords)


def _maker_of_empty(value: Any) -> Callable[[], Any] | None:
    """Return what makes an object of the same type without content; None for one that is made with its content."""
    kind = type(value)
    if issubclass(kind, tuple | frozenset):
        return None
    if kind is deque:
        return functools.partial(deque, maxlen=value.maxlen)
    if kind is defaultdict:
        return functools.partial(defaultdict, value.default_factory)
    if kind in (*_KEYED, *_LISTED, SimpleNamespace):
        return kind
    return functools.partial(object.__new__, kind)


def _fill(container: Any, items: list[tuple[Any, Any]]) -> None:
    if isinstance(container, list | deque):
        container.extend([item for _, item in items])
    elif isinstance(container, set):
        container.update([item for _, item in items])
    else:
        for key, item in items:
            set_content(container, key, item)
