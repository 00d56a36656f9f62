"""Side effects of a traced function: what it writes to copies is written back, and the checks of captures expect it from then on."""

from __future__ import annotations

import operator
import pickle
import random
from collections.abc import Callable, Sequence
from types import CellType
from typing import Any

import numpy as np

from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.captures.spec import CaptureSpec
from gradtape.trace.jit.captures.steps import Check, Step, identity_check
from gradtape.trace.jit.guards import Trace
from gradtape.trace.patching.copies import ABSENT, content_of, set_content
from gradtape.trace.variables.variable import Variable


class SideEffects:
    """What a traced function wrote to objects from outside.

    Attributes
    ----------
    written : dict
        The names of entries, attributes and variables, in the order of the writes.
    lost : dict
        The names of those to which a traced array was written, which is not repeated.
    """

    __slots__ = ("lost", "written")

    def __init__(self) -> None:
        self.written: dict[str, None] = {}
        self.lost: dict[str, None] = {}


def write_back(spec: CaptureSpec, effects: SideEffects) -> None:
    """Write what the traced function has written to copies into their originals, except for traced arrays."""

    def is_traced(array: Handle) -> bool:
        return spec.trace in array.value.tags

    for each in spec.substituted:
        now, initial = content_of(each.copy), each.initial
        if isinstance(now, list):
            if len(now) != len(initial) or any(map(operator.is_not, now, initial)):
                now = list(map(spec.with_originals, now))
                kept = [item for item in now if not _contains(item, is_traced)]
                if len(kept) < len(now):
                    effects.lost[each.name] = None
                elif not _contains(now, _is_variable):
                    effects.written[each.name] = None
                each.original[:] = kept
            continue
        for key in {**initial, **now}:  # in the order of the function's own writes
            new = now.get(key, ABSENT)
            if new is initial.get(key, ABSENT):
                continue
            name = each.name if isinstance(each.copy, CellType) else each.part_label(key)
            new = spec.with_originals(new)
            if _contains(new, is_traced):
                effects.lost[name] = None
                continue
            if not _contains(new, _is_variable) and key != "__warningregistry__":
                effects.written[name] = None
            set_content(each.original, key, new)


def has_side_effects(spec: CaptureSpec) -> bool:
    """Return whether a traced function has written to copies or to objects without one, or does what compiled calls do not repeat."""
    if spec.unrepeatable or spec.undo.changed():
        return True
    for each in spec.substituted:
        now, initial = content_of(each.copy), each.initial
        if isinstance(now, list):
            if len(now) != len(initial) or any(map(operator.is_not, now, initial)):
                return True
        elif any(now.get(key, ABSENT) is not initial.get(key, ABSENT) for key in {**initial, **now}):
            return True
    return False


def expect_side_effects(steps: Sequence[Step], leaves: Sequence[Any], effects: SideEffects) -> bool:
    """Update the checks to the side effects of the traced function itself, and return whether that is possible.

    Compiled calls do not repeat its writes: the next call finds what the trace has left.
    """
    objects: list[Any] = []
    for step in steps:
        value = step.read(objects, leaves)
        if not step.holds(value, objects):
            if not _expect(step, value):
                return False
            if not _contains(value, _is_leaked) and not _contains(value, _is_variable):
                effects.written.setdefault(step.name)
        objects.append(value)
    return True


def _contains(thing: Any, predicate: Callable[[Handle], bool]) -> bool:
    """Return whether something is, or a container in it holds, an array with a property."""
    if isinstance(thing, Handle):
        return predicate(thing)
    if isinstance(thing, dict):
        thing = thing.values()
    elif not isinstance(thing, list | tuple):
        return False
    return any(_contains(item, predicate) for item in thing)


def _is_variable(array: Handle) -> bool:
    return isinstance(array, Variable)  # which a function may make in its first call and keep


def _is_leaked(array: Handle) -> bool:
    """Return whether an array is of a trace that has ended: its next use is an error."""
    return any(isinstance(tag, Trace) and tag.over for tag in array.value.tags)


def _expect(step: Step, value: Any) -> bool:
    """Let a check expect a value; return whether a check of this kind can."""
    check = step.check
    if check is Check.CLASS:
        step.expected = [
            (owner, name, vars(owner).get(name, ABSENT), False) for owner, name, _, _ in step.expected
        ]
    elif value is ABSENT:
        if check in (Check.INPUT, Check.KEYS, Check.LENGTH):
            return False
        step.check = Check.ABSENT
    elif check is Check.KEYS:
        step.expected = type(value), tuple(value)
    elif check is Check.LENGTH:
        step.expected = type(value), len(value)
    elif check is Check.EQUAL:
        step.expected = type(step.expected)(value)
    elif check is Check.CONTENT:
        step.expected = np.array(value)
    elif check is Check.ABSENT:
        step.check = Check.NOTHING
    elif check is Check.SAME or check is Check.ALIVE:
        step.check, step.expected = identity_check(value)
    else:
        return False
    return True


def generator_state(generator: Any) -> bytes:
    """Return the state of a random number generator, to be compared."""
    if isinstance(generator, np.random.Generator):
        return pickle.dumps(generator.bit_generator.state)
    return pickle.dumps(
        generator.getstate() if isinstance(generator, random.Random) else generator.get_state()
    )
