"""The content of a variable, outside traces and inside each, and the values that were read of it."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from gradtape.ir.graph import ARRAYS, TraceTag, Value
from gradtape.trace.variables.locks import noting


class VariableRead(Value):
    """A value that was read of a variable; no two handles share it."""

    __slots__ = ()


ARRAYS.add(VariableRead)


class _LastRead(NamedTuple):
    """The last read: of which content, its value, and the tags of the tapes that record it."""

    content: Value
    value: Value
    tags: tuple[TraceTag, ...]


class Content:
    """The current value of a variable, outside traces or inside one.

    Attributes
    ----------
    variable : weakref.ref
        The variable.
    value : Value
        The value that was assigned last, without its history.
    input : Value or None
        In a trace: the input that stands for the content before the call; None for a variable that the call itself makes.
    assigned : bool
        In a trace: whether the value is stored after the call.
    """

    __slots__ = ("__weakref__", "_last", "_reads", "assigned", "input", "value", "variable")

    def __init__(self, variable: weakref.ref[Any], value: Value, input_: Value | None = None) -> None:
        self.variable = variable
        self.value = value
        self.input = input_
        self.assigned = False
        self._last: _LastRead | None = None
        self._reads: weakref.WeakSet[Value] = weakref.WeakSet()

    def assign(self, value: Value) -> None:
        """Replace the value."""
        self.value = value
        self.assigned = True
        self._last = None
        with noting:
            self._reads.clear()

    def copy(self) -> Content:
        """Return a content of the same variable that begins with the same value."""
        return Content(self.variable, self.value, self.input)

    def replace(self, pending: Value, computed: Value) -> None:
        """Replace a pending value by the computed one, if no other thread has assigned meanwhile."""
        if self.value is pending:
            self.value = computed

    def last_read(self, tags: tuple[TraceTag, ...]) -> Value | None:
        """Return the last read since the last assignment, if the same tapes record it; for no tapes, the value itself."""
        if not tags:
            return self.value
        last = self._last
        return last.value if last is not None and last.content is self.value and last.tags == tags else None

    def add_read(self, content: Value, value: Value, tags: tuple[TraceTag, ...]) -> Value:
        """Note a read that tapes record, of the value that the content had a moment ago."""
        self._last = _LastRead(content, value, tags)
        with noting:
            self._reads.add(value)
        return value

    def reads(self) -> list[Value]:
        """Return the value and the reads since the last assignment."""
        with noting:
            return [self.value, *self._reads]

    def holders(self) -> list[Value]:
        """Return all values that share the array of the content."""
        with noting:
            return [self.value, *[value for value in self._reads if value.data is self.value.data]]
