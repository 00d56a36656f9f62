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
    """What the recipes of one call are made of.

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

    def recipe(self, thing: Any) -> Recipe:
        """Return how a call makes an object that the trace has stored; raise NoRecipe where it cannot."""
        if type(thing) in PLAIN_TYPES:
            return lambda moment: thing
        known, recipe = self._known.get(id(thing), (None, None))
        if known is not thing or recipe is None:
            recipe = self._new(thing)
            self._known[id(thing)] = thing, recipe
        return recipe

    def output(self, value: Value) -> Callable[[Moment], NDArray]:
        """Let the program have a further output, and return what takes it."""
        number = self._first + len(self.values)
        self.values.append(value)
        return lambda moment: moment.outputs[number]

    def _new(self, thing: Any) -> Recipe:
        position = self._arguments.get(id(thing))
        if position is not None:
            return lambda moment: moment.leaves[position]
        container, path = self._containers.get(id(thing), (None, ()))
        if container is thing:
            return lambda moment: resolve(path, moment.arguments)
        step = self._spec.step_reading(thing)
        if step is not None:
            return lambda moment: moment.objects[step]
        if isinstance(thing, Selection):
            thing = thing.elements()
        if isinstance(thing, Handle) and not isinstance(thing, Variable):
            return self._of_array(thing)
        kind = type(thing)
        if kind is np.ndarray and not thing.dtype.hasobject:
            snapshot = thing.copy()
            return lambda moment: snapshot.copy()
        if isinstance(thing, _CONSTANT_TYPES):
            return self._kept(thing)
        if kind in _KEYED:
            return self._of_items(thing, list(thing.items()))
        if kind in _LISTED or (isinstance(thing, tuple) and kind.__base__ is tuple):
            return self._of_items(thing, list(enumerate(thing)))
        if is_plain_object(thing) or is_package_object(thing):
            return self._of_items(thing, list(content_of(thing).items()))
        if kind is MethodType:
            owner, function = self.recipe(thing.__self__), self.recipe(thing.__func__)
            return lambda moment: MethodType(function(moment), owner(moment))
        if kind is functools.partial:
            parts = [self.recipe(part) for part in (thing.func, thing.args, dict(thing.keywords))]
            return lambda moment: _partial(*[part(moment) for part in parts])
        if kind is FunctionType and all(
            is_filled(cell) and self._is_outside(cell.cell_contents) for _, cell in closure_of(thing)
        ):
            return self._kept(thing)
        raise NoRecipe(f"an object of the class {kind.__name__}")

    def _kept(self, thing: Any) -> Recipe:
        self.keeps_objects = True
        return lambda moment: thing

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

    def _of_items(self, thing: Any, items: list[tuple[Any, Any]]) -> Recipe:
        """Return how a container or object is made of its items; it may contain itself."""
        parts: list[tuple[Any, Recipe]] = []
        kind, number = type(thing), id(thing)
        empty = _maker_of_empty(thing)

        def make(moment: Moment) -> Any:
            made = moment.made.get(number)
            if made is not None:
                return made
            if empty is None:
                content = [part(moment) for _, part in parts]
                made = tuple.__new__(kind, content) if issubclass(kind, tuple) else kind(content)
                moment.made[number] = made
                return made
            moment.made[number] = made = empty()
            _fill(made, [(key, part(moment)) for key, part in parts])
            return made

        self._known[number] = thing, make
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


def _maker_of_empty(thing: Any) -> Callable[[], Any] | None:
    """Return what makes an object of the same type without content; None for one that is made with its content."""
    kind = type(thing)
    if issubclass(kind, tuple | frozenset):
        return None
    if kind is deque:
        return functools.partial(deque, maxlen=thing.maxlen)
    if kind is defaultdict:
        return functools.partial(defaultdict, thing.default_factory)
    if kind in (*_KEYED, *_LISTED, SimpleNamespace):
        return kind
    return functools.partial(object.__new__, kind)


def _fill(made: Any, items: list[tuple[Any, Any]]) -> None:
    if isinstance(made, list | deque):
        made.extend([item for _, item in items])
    elif isinstance(made, set):
        made.update([item for _, item in items])
    else:
        for key, item in items:
            set_content(made, key, item)
