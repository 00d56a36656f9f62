"""What a tape has seen."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from ..ir.graph import Literal, Mark, Value
from ..ir.types import is_inexact
from ..trace.array import Array
from ..trace.contexts import Watcher
from ..trace.variable import Variable
from .ends import Source, unliteral


class Record(Watcher):
    """What a tape has seen: the mark that its values carry, and the variables that were read.

    Parameters
    ----------
    accessed : bool
        Whether trainable variables are followed without being asked for.
    """

    __slots__ = ("_accessed", "_asked_for", "_readings", "mark", "variables")

    def __init__(self, accessed: bool) -> None:
        self.mark = Mark(threading.get_ident())
        self.mark.recording = False
        self.variables: dict[int, Variable] = {}
        self._accessed = accessed
        self._asked_for: set[int] = set()
        self._readings: dict[int, weakref.WeakValueDictionary[int, Value]] = {}

    def mark_for(self, variable: Any) -> Mark | None:
        return self.mark if self.mark.recording and self.wants(variable) else None

    def note(self, variable: Any, value: Value) -> None:
        self.variables[variable.serial] = variable
        self._readings.setdefault(variable.serial, weakref.WeakValueDictionary())[id(value)] = value

    def wants(self, variable: Variable) -> bool:
        """Return whether readings of a variable are followed while the tape records."""
        return (self._accessed and variable.trainable) or variable.serial in self._asked_for

    def ask_for(self, variable: Variable) -> None:
        """Follow a variable from here on, trainable or not."""
        self.variables[variable.serial] = variable
        self._asked_for.add(variable.serial)

    def readings(self, variable: Variable) -> tuple[Value, ...]:
        """Return what was read of a variable and is still in use."""
        return tuple(self._readings.get(variable.serial, {}).values())

    def watch(self, array: Array) -> None:
        """Follow an array from here on."""
        value = array.value
        if isinstance(value, Literal):
            array.rebind(unliteral(value))
            value = array.value
        if self.mark not in value.marks:
            value.marks = (*[other for other in value.marks if not other.over], self.mark)

    def target_value(self, leaf: Any) -> Value:
        """Return what stands for a target: of a variable, something that was read, or would be."""
        if not isinstance(leaf, Variable):
            value: Value = leaf.value
            return value
        known = self.readings(leaf)
        if known or not self.wants(leaf):
            return known[0] if known else leaf.value
        reading = leaf.reading_for(self.mark)
        self.note(leaf, reading)
        return reading

    def source(self, leaf: Any) -> Source:
        """Return what stands for a source: of a variable, all that was read."""
        values = self.readings(leaf) if isinstance(leaf, Variable) else (leaf.value,)
        followed = is_inexact(leaf.dtype)
        return Source(
            leaf.shape,
            leaf.dtype,
            tuple(value for value in values if followed and self.mark in value.marks),
        )

    def close(self) -> None:
        """Give up the record; which variables were watched stays known."""
        self.mark.recording = False
        self.mark.over = True
        self._readings.clear()
