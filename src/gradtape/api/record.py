"""What a tape has seen, and what it makes of a question about it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from itertools import compress
from typing import Any

from ..ir.builder import here
from ..ir.graph import Literal, Mark, Value
from ..ir.types import is_inexact
from ..trace.array import Array
from ..trace.contexts import Watcher
from ..trace.log import note_watch
from ..trace.rehearsal import Rehearsal
from ..trace.replay import derivatives, gradients
from ..trace.speculation import speculation
from ..trace.variable import Variable
from ..transforms.rows import Rows
from .ends import Source, gathered, unliteral


class Record(Watcher):
    """What a tape has seen: the mark that its values carry, and the variables that were read.

    Parameters
    ----------
    accessed : bool
        Whether trainable variables are followed without being asked for.
    """

    __slots__ = ("_accessed", "_asked_for", "_readings", "alone", "mark", "rehearsal", "variables")

    def __init__(self, accessed: bool) -> None:
        self.mark = Mark(threading.get_ident())
        self.alone = (self.mark,)  # one tuple for all that nobody else follows: quick to compare
        self.rehearsal: Rehearsal | None = None
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

    def close(self) -> None:
        """Give up the record; which variables were watched stays known."""
        mark = self.mark
        if not mark.over:
            mark.recording = False
            mark.over = True
            self._readings.clear()


def follow(array: Array, record: Record) -> None:
    """Let a tape follow an array from here on."""
    value = array.value
    if isinstance(value, Literal):
        array.rebind(unliteral(value))
        value = array.value
    mark = record.mark
    if mark not in value.marks:
        if speculation.last is not None:
            speculation.settle(value)
        others = [other for other in value.marks if not other.over] if value.marks else ()
        value.marks = (*others, mark) if others else record.alone
        note_watch(value, mark, here.site)


def followed_alone(leaves: Sequence[Any], record: Record) -> list[Value] | None:
    """Return the values of real arrays that a tape follows and nobody else does: nothing is to be checked or converted. None for others."""
    values = []
    alone = record.alone
    for leaf in leaves:
        if type(leaf) is not Array or leaf._base is not None:
            return None
        value = leaf._current
        if value.marks is not alone or value.aval.dtype.kind != "f":
            return None
        values.append(value)
    return values


def single_values(leaves: Sequence[Any], record: Record) -> list[Value] | None:
    """Return the values of real arrays, and what was read of variables; None where one is not real or stands for not just one value."""
    values = []
    for leaf in leaves:
        if type(leaf) is Array and leaf._base is None:
            value = leaf._current
        elif isinstance(leaf, Variable) and len(readings := record.readings(leaf)) == 1:
            (value,) = readings
        else:
            return None
        if value.aval.dtype.kind != "f":
            return None
        values.append(value)
    return values


def target_value(leaf: Any, record: Record) -> Value:
    if not isinstance(leaf, Variable):
        value: Value = leaf.value
        return value
    known = record.readings(leaf)
    if known or not record.wants(leaf):
        return known[0] if known else leaf.value
    reading = leaf.reading_for(record.mark)
    record.note(leaf, reading)
    return reading


def source_of(leaf: Any, record: Record) -> Source:
    mark = record.mark
    if isinstance(leaf, Variable):
        values = record.readings(leaf)
        followed = is_inexact(leaf.dtype)
        return Source(
            leaf.shape, leaf.dtype, tuple([value for value in values if followed and mark in value.marks])
        )
    value: Value = leaf.value
    type_ = value.aval
    followed = mark in value.marks and is_inexact(type_.dtype)
    return Source(type_.shape, type_.dtype, (value,) if followed else ())


def pulled(
    mark: Mark, targets: list[Value], seeds: list[Value] | None, sources: list[Source], *, last: bool
) -> list[Value | Rows | None]:
    """Return the gradient of the targets in each source, along values that carry `mark`."""
    chosen = [mark in value.marks and is_inexact(value.aval.dtype) for value in targets]
    if not all(chosen):
        targets = list(compress(targets, chosen))
        seeds = None if seeds is None else list(compress(seeds, chosen))
    starts = [value for source in sources for value in source.values]
    parts = derivatives(gradients, "gradient", targets, starts, seeds, mark, last=last)
    return gathered(sources, parts)
