"""What a walk over the captures of a function results in: the checks, the hidden inputs, and copies for the trace."""

from __future__ import annotations

import types
from collections.abc import Sequence
from types import FunctionType
from typing import Any, Final

import numpy as np

from gradtape.ir.op import NDArray
from gradtape.trace.array.array import Array
from gradtape.trace.jit.captures.steps import Check, Step
from gradtape.trace.jit.captures.user_classes import is_plain_object
from gradtape.trace.jit.guards import Trace
from gradtape.trace.jit.signature import as_input
from gradtape.trace.patching.copies import ClassData, Substitute, content_of, restore_content, set_content
from gradtape.trace.patching.undo import restore, state_of

PLAIN_TYPES: Final = (
    *(int, float, complex, bool, str, bytes),
    *(types.NoneType, types.EllipsisType, types.NotImplementedType),
)
"""Types of immutable values without parts."""

A_FILE: Final = "a file: each read advances it, and the compiled function does not read"
"""Why compiled calls do not repeat what a function does with a file."""


class CaptureSpec:
    """The captures of a function: checks, hidden inputs, and the copy of the function that is traced.

    Parameters
    ----------
    trace : Trace
        The tag of the arrays that stand for hidden inputs.
    substitutes : bool
        Whether arrays and numbers become inputs; else they are checked by value.

    Attributes
    ----------
    function : callable
        The copy of the function.
    leaves : list
        The leaves of the call that it was made for.
    objects : list
        The same, with copies of the objects among them.
    steps : list of Step
        The reads, with their checks.
    inputs : list of int
        The steps whose objects are hidden inputs.
    originals : list
        These objects.
    placeholders : list of Array
        The traced arrays that stand for them.
    contents : list of ndarray
        The data of the placeholders while the function is traced.
    unrepeatable : dict of str to str
        Names of objects whose effects compiled calls do not repeat, with the reasons.
    shows : bool
        Whether the function prints, logs, warns or writes to files.
    generators : list of int
        The steps whose objects are random number generators of NumPy's.
    numpy_generators, python_generators : list
        These generators, and those of Python's `random`.
    files : list
        Files among the arguments that have a position.
    may_draw : bool
        Whether the function may draw random numbers from generators of NumPy's.
    substituted : list of Substitute
        Containers, objects and namespaces that have copies, to which the trace writes.
    uncopied : list of Substitute
        Those that have none, whose content is restored after the trace.
    class_data : list of ClassData
        What stands in classes during the trace.
    stored : set of str
        Attributes that the code assigns to or deletes.
    step_of : dict of int to (object, int)
        By the id of an object or its copy, that object, and the number of the step that reads it.
    """

    def __init__(self, trace: Trace, substitutes: bool, substitutes_classes: bool) -> None:
        self.trace = trace
        self.substitutes = substitutes
        self.substitutes_classes = substitutes and substitutes_classes
        self.function: Any = None
        self.leaves: Sequence[Any] = ()
        self.objects: Sequence[Any] = ()
        self.steps: list[Step] = []
        self.inputs: list[int] = []
        self.originals: list[Any] = []
        self.placeholders: list[Array] = []
        self.contents: list[NDArray] = []
        self.unrepeatable: dict[str, str] = {}
        self.shows = False
        self.generators: list[int] = []
        self.numpy_generators: list[Any] = []
        self.python_generators: list[Any] = []
        self.files: list[Any] = []
        self.generator_states: list[tuple[Any, Any]] = []
        self.may_draw = False
        self.substituted: list[Substitute] = []
        self.uncopied: list[Substitute] = []
        self.class_data: list[ClassData] = []
        self.stored: set[str] = set()
        self.step_of: dict[int, tuple[Any, int]] = {}
        self.function_copies: list[tuple[FunctionType, FunctionType]] = []
        self.original_of: dict[int, tuple[Any, Any]] = {}

    def begin(self) -> None:
        """Set the data of the placeholders to the hidden inputs of this call."""
        self.contents = [np.array(as_input(original)) for original in self.originals]
        for placeholder, content in zip(self.placeholders, self.contents, strict=True):
            placeholder.value.data = content
        for data in self.class_data:
            data.install()
        for each in self.uncopied:
            each.initial = content_of(each.copy)
        names = [self.steps[step].name for step in self.inputs]
        self.trace.holders = self.holders(), list(zip(names, self.placeholders, strict=True))
        self.generator_states = [(generator, state_of(generator)) for generator in self.python_generators]

    @property
    def has_effects(self) -> bool:
        """Whether the function may do what a program does not: print, read a clock, draw numbers of Python's, and the like."""
        return bool(self.shows or self.unrepeatable or self.python_generators or self.files)

    def holders(self) -> list[Substitute]:
        """Return the user's objects to which the function may write."""
        return [each for each in (*self.substituted, *self.uncopied) if not each.is_own]

    def steps_apart(self, arrays: bool) -> tuple[int, ...]:
        """Return a step that reads each of these objects, and each array if some are written to, where it is not always the same."""
        first: dict[int, int] = {}
        for each in self.holders():
            if each.step >= 0:
                first.setdefault(id(each.original), each.step)
        if arrays:
            for step, original in zip(self.inputs, self.originals, strict=True):
                if isinstance(original, np.ndarray):
                    first.setdefault(id(original), step)
        return tuple(sorted(set(first.values())))

    def undo_writes(self) -> None:
        """Restore the content of objects that have no copies."""
        for each in self.uncopied:
            each.restore()

    def undo(self) -> None:
        """Undo what the trace has done to the user's own objects."""
        self.undo_writes()
        for generator, state in self.generator_states:
            restore(generator, state)

    def pin(self, number: int) -> None:
        """Check a hidden input by value from now on, because Python has looked at it."""
        step = self.steps[self.inputs[number]]
        if step.check is Check.INPUT:
            step.check = Check.PINNED
            step.expected = step.expected, self.contents[number]

    def release(self) -> None:
        """Restore the copies from their originals: functions that outlive the trace see no traced arrays, and no cycle is left."""
        for data in self.class_data:
            data.remove()
        for each in self.substituted:
            restore_content(each.copy, each.original)
        for copy, original in self.function_copies:
            copy.__defaults__, copy.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
        self.function, self.objects = None, ()
        for references in (
            *(self.substituted, self.function_copies, self.original_of),
            *(self.placeholders, self.originals, self.uncopied, self.class_data, self.step_of),
        ):
            references.clear()

    def step_reading(self, thing: Any) -> int | None:
        """Return the number of the step that reads an object or the original of a copy; None if none does."""
        known, step = self.step_of.get(id(thing), (None, -1))
        return step if known is thing and thing is not None else None

    def original(self, thing: Any) -> Any:
        """Return the original of a copy, and other objects as they are."""
        copy, original = self.original_of.get(id(thing), (None, None))
        return thing if copy is not thing else original

    def with_originals(self, thing: Any, seen: set[int] | None = None) -> Any:
        """Return the original of a copy; an object that the trace has created is returned with originals for the copies in it."""
        original = self.original(thing)
        if original is not thing:
            return original
        seen = set() if seen is None else seen
        kind = type(thing)
        if kind in PLAIN_TYPES or id(thing) in seen:
            return thing
        seen.add(id(thing))
        if isinstance(thing, tuple):
            items = [self.with_originals(item, seen) for item in thing]
            changed = any(new is not item for new, item in zip(items, thing, strict=True))
            return tuple.__new__(kind, items) if changed else thing
        if kind is list:
            parts: Any = list(enumerate(thing))
        elif kind is dict:
            parts = list(thing.items())
        elif is_plain_object(thing):
            parts = list(content_of(thing).items())
        else:
            return thing
        for key, item in parts:
            new = self.with_originals(item, seen)
            if new is item:
                continue
            if kind is list:
                thing[key] = new
            else:
                set_content(thing, key, new)
        return thing
