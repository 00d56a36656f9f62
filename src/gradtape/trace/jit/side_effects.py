"""Side effects of a traced function: what it writes to objects outside is assigned after each call, when the program has run.

The trace works on copies, or its writes are undone. What they hold at its end, compared with what they held at first, are the changes; the
new values are made in each call by recipes. Nothing is changed before all of them are made: a call that fails changes nothing.
"""

from __future__ import annotations

import io
import operator
import pickle
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.errors import InPlaceError
from gradtape.ir.op import NDArray
from gradtape.locks import Rank, new_lock
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.captures.arguments import resolve
from gradtape.trace.jit.captures.recipes import Moment, NoRecipe, Recipe, RecipeBook
from gradtape.trace.jit.captures.spec import PLAIN_TYPES, CaptureSpec
from gradtape.trace.jit.captures.steps import Check, Source, Step, identity_check
from gradtape.trace.jit.captures.user_classes import is_package_object, is_plain_object
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.jit.leaf_kinds import NUMBERS
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.copies import (
    ABSENT,
    LISTED,
    Substitute,
    content_of,
    entry_of,
    set_content,
    set_entries,
    set_items,
)
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable

_assigning: Final = new_lock(Rank.LEAF)
"""Held while the changes of one call are made."""

_MOST_NESTED: Final = 8
"""How many containers deep variables that a function makes are looked for."""

_MOST_PARTS: Final = 4096
"""In how many parts of an object traced values are looked for."""

_NOT_REPEATED: Final = frozenset({"__warningregistry__", "__annotations__", "__conditional_annotations__"})


class Outdated(Exception):
    """Raised where another thread has changed what a call has read before the call could assign what it writes: it is answered again."""


class Change(NamedTuple):
    """A change of one object.

    Attributes
    ----------
    name : str
        For messages.
    target : callable
        ``(moment) -> object``: which object.
    make : callable
        ``(target) -> object`` for a moment: changes the object, and returns what it held there.
    """

    name: str
    target: Recipe
    make: Callable[[Moment], Callable[[Any], Any]]


class SideEffects:
    """What each call of a trace assigns to objects outside.

    Attributes
    ----------
    changes : list of Change
        In the order of the objects; those of one object in the order of the program.
    counted : set of str
        The names of integers, and of all numbers of classes, that the function reads and also assigns.
    to_arguments : bool
        Whether containers among the arguments change.
    to_arrays : bool
        Whether arrays change in place.
    of_trace : bool
        Whether an object changes, or is stored, that no step reads and no argument holds: that of the traced call.
    values : list of Value
        The outputs of the program that they take, after those for the results.
    """

    __slots__ = ("changes", "counted", "of_trace", "to_arguments", "to_arrays", "values")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.counted: set[str] = set()
        self.to_arguments = self.to_arrays = self.of_trace = False
        self.values: list[Any] = []

    def carry_out(self, moment: Moment, is_current: Callable[[], bool]) -> None:
        """Make all changes, or none; raise Outdated if the call has read what is no longer so."""
        prepared = [(change.target(moment), change.make(moment)) for change in self.changes]
        for target, _ in prepared:
            if isinstance(target, np.ndarray):
                _refuse_shared(target, moment)
        replaced: list[
            Any
        ] = []  # what nothing else refers to goes when the lock is free: its finalisers may call anything
        with _assigning:
            if not is_current():
                raise Outdated
            for target, make in prepared:
                replaced.append(make(target))


@contextmanager
def settled(holders: Iterable[Substitute]) -> Iterator[None]:
    """Let what the user's function, which runs as it stands in this block, writes to objects hold numbers; undo it if the block fails.

    Where a tape records an array that it has written, that array stays.
    """
    watched = [Substitute(each.original, each.original, each.name, each.part_label) for each in holders]
    for each in watched:
        each.initial = content_of(each.original)
    try:
        yield
    except BaseException:
        for each in watched:
            each.restore()
        raise
    for each in watched:
        if each.is_changed(each.initial):
            settle(each)


def settle(each: Substitute) -> None:
    """Replace pending arrays by their numbers in what an object holds that it did not hold before."""
    now, seen = content_of(each.original), dict[int, Any]()
    if isinstance(now, dict):
        for key, content in now.items():
            if content is not each.initial.get(key, ABSENT):
                number = _in_numbers(content, seen)
                if number is not content:
                    set_content(each.original, key, number)
    elif isinstance(each.original, list | deque):
        for number, content in enumerate(now):
            if isinstance(content, Handle | list | dict | tuple):
                each.original[number] = _in_numbers(content, seen)


def _in_numbers(thing: Any, seen: dict[int, Any]) -> Any:
    """Return an array that nothing records as numbers; set the items of a container, and the attributes of an object, to such."""
    if id(thing) in seen:
        return seen[id(thing)]
    seen[id(thing)] = thing
    if isinstance(thing, Handle) and not isinstance(thing, Variable):
        value = thing.value
        if trace_of(value) is None and not any(tag.recording for tag in value.tags):
            (array,) = force([value])
            scalar = array.item() if value.aval.weak else array[()]
            seen[id(thing)] = np.array(array) if array.ndim else scalar
    elif type(thing) is tuple:
        items = [_in_numbers(item, seen) for item in thing]
        if any(map(operator.is_not, items, thing)):
            seen[id(thing)] = tuple(items)
    elif type(thing) in (list, dict) or is_plain_object(thing):
        content = content_of(thing)
        for key, item in list(content.items() if isinstance(content, dict) else enumerate(content)):
            number = _in_numbers(item, seen)
            if number is not item:
                if isinstance(thing, list):
                    thing[key] = number
                else:
                    set_content(thing, key, number)
    return seen[id(thing)]


def _refuse_shared(target: NDArray, moment: Moment) -> None:
    """Refuse to write to an array that is read-only, or in whose memory the call reads another one."""
    what = "an array that the function reads from outside and writes to"
    if not target.flags.writeable:
        raise ValueError("assignment destination is read-only")
    others = (*(each for each in moment.objects if each is not target), *moment.leaves)
    for other in others:
        if isinstance(other, np.ndarray) and np.may_share_memory(target, other):
            raise InPlaceError(
                f"{what} shares memory with another one",
                where=user_site(),
                why="the program reads both before it writes",
                remedy="make a copy of one of them",
            )


def side_effects_of(
    spec: CaptureSpec, arguments: Sequence[Substitute], leaves: dict[int, Any], results: Sequence[Any]
) -> SideEffects:
    """Return what a traced function has written outside; raise NoRecipe where a program cannot do it.

    Parameters
    ----------
    spec : CaptureSpec
        The copies that it has written to, and the steps, to which checks of what it has written unchanged are added.
    arguments : sequence of Substitute
        The containers among its arguments.
    leaves, results
        As for `RecipeBook`.
    """
    effects, book = SideEffects(), RecipeBook(spec, leaves, results)
    reads = {(step.parent, step.key): step for step in spec.steps if step.parent >= 0}
    for each in arguments:
        book.note_argument(each.copy, each.path or ())
    for each in (*spec.substituted, *spec.uncopied, *arguments):
        if each.is_own:
            continue
        changes = list(_changes_of(each, spec, book))
        effects.changes += changes
        if changes:
            effects.to_arguments |= each.path is not None
            effects.of_trace |= each.path is None and each.step < 0
            effects.counted |= {step.name for step in spec.steps if _is_of(step, each, changes)}
            effects.counted |= _numbers_of_class(each) & {change.name for change in changes}
        _check_unchanged(each, spec, reads)
    arrays = list(_array_changes(spec, book))
    effects.changes += arrays
    effects.to_arrays = bool(arrays)
    effects.values = book.values
    effects.of_trace |= book.keeps_objects
    return effects


def _is_of(step: Step, each: Substitute, changes: Sequence[Change]) -> bool:
    """Return whether a step reads an integer that one of these changes of an object replaces."""
    if type(step.expected) is not int:
        return False
    if step.source is Source.CELL:
        return step.key is each.original or (step.key is None and step.parent == each.step)
    if step.parent != each.step or each.step < 0:
        return False
    return step.source is Source.ITEM or any(step.name == change.name for change in changes)


def _numbers_of_class(each: Substitute) -> set[str]:
    """Return the names of the numbers that a class held at first."""
    if not isinstance(each.original, type):
        return set()
    return {each.part_label(key) for key, content in each.initial.items() if type(content) in NUMBERS}


def _array_changes(spec: CaptureSpec, book: RecipeBook) -> Iterator[Change]:
    """Yield the changes of arrays in place."""
    for step, array, hidden in zip(spec.inputs, spec.placeholders, spec.trace.hidden, strict=True):
        if array.value is hidden:
            continue
        take = book.output(array.value)

        def make(moment: Moment, take: Recipe = take) -> Callable[[Any], Any]:
            content = take(moment)
            return lambda holder: np.copyto(holder, content)

        yield Change(spec.steps[step].name, partial(_read_by, step), make)


def _read_by(step: int, moment: Moment) -> Any:
    return moment.objects[step]


def _changes_of(each: Substitute, spec: CaptureSpec, book: RecipeBook) -> Iterator[Change]:
    """Yield the changes of one object."""
    now, initial, original = content_of(each.copy), each.initial, each.original
    step, path = each.step, each.path
    target: Recipe = (lambda moment: original) if step < 0 else (lambda moment: moment.objects[step])
    if path is not None:
        target = lambda moment: resolve(path, moment.arguments)  # noqa: E731
    if isinstance(each.copy, LISTED):
        if each.is_changed(initial):
            yield Change(each.name, target, _list_change(now, initial, book, each.name))
        return
    if isinstance(each.copy, set):
        added, removed = [item for item in now if item not in initial], initial - now
        if added or removed:
            items = [_recipe(book, item, each.name) for item in added]
            yield Change(each.name, target, _set_change(items, removed))
        return
    kept = [key for key in initial if key in now]
    if (
        isinstance(each.copy, dict) and list(now)[: len(kept)] != kept
    ):  # an entry was taken out and put in again
        recipes = {key: _recipe(book, item, each.part_label(key)) for key, item in now.items()}
        yield Change(each.name, target, _whole_change(recipes))
        return
    for key in {**initial, **now}:  # in the order of the function's own writes
        new = now.get(key, ABSENT)
        if new is initial.get(key, ABSENT) or key in _NOT_REPEATED or _is_made_variable(new, spec):
            continue
        name = each.part_label(key)
        try:
            recipe = None if new is ABSENT else _recipe(book, new, name)
        except NoRecipe:
            if not each.is_packages or depends_on(new, spec.trace):
                raise
            each.kept[key] = new
            continue
        yield Change(name, target, _entry_change(spec.original(key), recipe))


def _recipe(book: RecipeBook, thing: Any, name: str) -> Recipe:
    try:
        return book.recipe(thing)
    except NoRecipe as error:
        raise NoRecipe(name, *error.args) from None


def _entry_change(key: Any, recipe: Recipe | None) -> Callable[[Moment], Callable[[Any], Any]]:
    def make(moment: Moment) -> Callable[[Any], Any]:
        content = ABSENT if recipe is None else recipe(moment)

        def change(holder: Any) -> Any:
            before = entry_of(holder, key)
            set_content(holder, key, content)
            return before

        return change

    return make


def _whole_change(recipes: dict[Any, Recipe]) -> Callable[[Moment], Callable[[Any], Any]]:
    def make(moment: Moment) -> Callable[[Any], Any]:
        content = {key: recipe(moment) for key, recipe in recipes.items()}

        def change(holder: Any) -> Any:
            before = dict(holder)
            set_entries(holder, content)
            return before

        return change

    return make


def _set_change(items: list[Recipe], removed: set[Any]) -> Callable[[Moment], Callable[[Any], Any]]:
    def make(moment: Moment) -> Callable[[Any], Any]:
        added = [item(moment) for item in items]

        def change(holder: Any) -> None:
            set.difference_update(holder, removed)
            set.update(holder, added)

        return change

    return make


def _list_change(
    now: list[Any], initial: list[Any], book: RecipeBook, name: str
) -> Callable[[Moment], Callable[[Any], Any]]:
    """Return how the items between those that stay at the beginning and at the end are replaced."""
    first = sum(1 for _ in takewhile(bool, map(operator.is_, now, initial)))
    most = min(len(now), len(initial)) - first
    same = map(operator.is_, reversed(now), reversed(initial))
    last = min(most, sum(1 for _ in takewhile(bool, same)))
    items = [_recipe(book, item, name) for item in now[first : len(now) - last]]
    is_appended = first == len(initial)

    def make(moment: Moment) -> Callable[[Any], Any]:
        added = [item(moment) for item in items]

        def change(holder: Any) -> Any:
            if is_appended:
                holder.extend(added)
                return None
            before = list(holder)
            content = list(before)
            content[first : len(content) - last] = added
            set_items(holder, content)
            return before

        return change

    return make


def _check_unchanged(each: Substitute, spec: CaptureSpec, reads: dict[Any, Step]) -> None:
    """Check attributes that the code assigns to and does not read.

    If the trace has left one as it was, the code may have assigned the same again.
    """
    if isinstance(each.copy, LISTED | dict | set) or not isinstance(each.initial, dict):
        return
    if each.step < 0:
        return
    fields = getattr(each.original, "__dict__", {})
    for key in sorted(spec.stored & each.initial.keys()):
        if (each.step, key) in reads or content_of(each.copy).get(key, ABSENT) is not each.initial[key]:
            continue
        content = spec.original(each.initial[key])
        is_plain = type(content) in PLAIN_TYPES
        if not is_plain and spec.step_reading(content) is None:
            continue  # nothing else refers to it from which the code could have it
        check, expected = (Check.SAME, content) if is_plain else identity_check(content)
        source = Source.FIELD if key in fields else Source.ATTRIBUTE
        spec.steps.append(Step(source, each.step, key, check, expected, each.part_label(key)))


def kept_variables(spec: CaptureSpec) -> list[Callable[[], None]]:
    """Return what assigns the variables that the function has made to where it keeps them, and what gradtape's own objects have noted.

    The first call makes the variables, and all others read them.
    """
    assignments: list[Callable[[], None]] = []
    for each in (*spec.substituted, *spec.uncopied):
        if not each.is_changed(each.initial):
            continue
        now, initial, original = content_of(each.copy), each.initial, each.original
        for key, new in each.kept.items():
            assignments.append(partial(set_content, original, key, spec.with_originals(new)))
        if isinstance(now, list) and _is_made_variable(now, spec):
            items = list(map(spec.with_originals, now))
            assignments.append(partial(original.__setitem__, slice(None), items))
        for key, new in now.items() if isinstance(now, dict) else ():
            if new is not initial.get(key, ABSENT) and (_is_made_variable(new, spec) or each.is_own):
                assignments.append(partial(set_content, original, key, spec.with_originals(new)))
    return assignments


def depends_on(thing: Any, trace: Any) -> bool:
    """Return whether something is a traced value, or a container or object that leads to one."""
    open_, seen = [thing], set[int]()
    while open_:
        part = open_.pop()
        if isinstance(part, Handle):
            if trace in part.value.tags:
                return True
        elif id(part) not in seen and len(seen) < _MOST_PARTS:
            seen.add(id(part))
            if isinstance(part, dict):
                open_ += part.values()
            elif isinstance(part, list | tuple | set | frozenset | deque):
                open_ += part
            elif is_plain_object(part) or is_package_object(part):
                open_ += content_of(part).values()
    return False


def _is_made_variable(thing: Any, spec: CaptureSpec, depth: int = 0) -> bool:
    """Return whether something is a variable that the trace has made, or a container holds one."""
    if depth > _MOST_NESTED:
        return False
    if isinstance(thing, Handle):
        return isinstance(thing, Variable) and spec.step_reading(thing) is None
    if isinstance(thing, dict):
        thing = thing.values()
    elif not isinstance(thing, list | tuple):
        return False
    return any(_is_made_variable(item, spec, depth + 1) for item in thing)


def state_to_compare(thing: Any) -> bytes:
    """Return the state of a random number generator, or the position of a file."""
    if isinstance(thing, io.IOBase):
        try:
            return b"" if thing.closed else pickle.dumps(thing.tell())
        except OSError:  # while ``for line in file`` reads ahead
            return b""
    if isinstance(thing, np.random.Generator):
        return pickle.dumps(thing.bit_generator.state)
    return pickle.dumps(thing.getstate() if isinstance(thing, random.Random) else thing.get_state())
