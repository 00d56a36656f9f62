"""What a variable holds: outside of traces, and inside of each."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from gradtape.ir.graph import ARRAYS, TraceTag, Value
from gradtape.trace.variables.locks import noting


class Reading(Value):
    """What was read of a variable; several handles may not share it."""

    __slots__ = ()


ARRAYS.add(Reading)


class _Given(NamedTuple):
    """What was given out last: of which content, and to whom."""

    of: Value
    value: Value
    tags: tuple[TraceTag, ...]


class Content:
    """The current value of a variable, in one place.

    Attributes
    ----------
    variable : weakref.ref
        Whose content it is.
    value : Value
        What was assigned last, cut off from where it came from.
    input : Value or None
        In a trace: what stands for the content before the call; None for a variable that the call itself makes.
    assigned : bool
        In a trace: whether it is to be stored after the call.
    """

    __slots__ = ("__weakref__", "_given", "_last", "assigned", "input", "value", "variable")

    def __init__(self, variable: weakref.ref[Any], value: Value, input_: Value | None = None) -> None:
        self.variable = variable
        self.value = value
        self.input = input_
        self.assigned = False
        self._last: _Given | None = None
        self._given: weakref.WeakSet[Value] = weakref.WeakSet()

    def assign(self, value: Value) -> None:
        """Take a new value."""
        self.value = value
        self.assigned = True
        self._last = None
        with noting:
            self._given.clear()

    def copy(self) -> Content:
        """Return a content of the same variable that begins with the same value."""
        return Content(self.variable, self.value, self.input)

    def settle(self, pending: Value, known: Value) -> None:
        """Put what has been computed in the place of what was pending, if no other thread has assigned meanwhile."""
        if self.value is pending:
            self.value = known

    def reading(self, tags: tuple[TraceTag, ...]) -> Value | None:
        """Return what was given out to the same followers since the last assignment, if anything."""
        if not tags:
            return self.value
        last = self._last
        return last.value if last is not None and last.of is self.value and last.tags == tags else None

    def give_out(self, of: Value, value: Value, tags: tuple[TraceTag, ...]) -> Value:
        """Remember what was given out to these followers, of what the content was a moment ago."""
        self._last = _Given(of, value, tags)
        with noting:
            self._given.add(value)
        return value

    def read(self) -> list[Value]:
        """Return the content and what was given out of it since the last assignment."""
        with noting:
            return [self.value, *self._given]

    def holders(self) -> list[Value]:
        """Return the content and what was given out of it: all values that share its array."""
        with noting:
            return [self.value, *[value for value in self._given if value.data is self.value.data]]
