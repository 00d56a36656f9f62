"""The trace of one call of a jitted function: its inputs, the guards on values that Python looked at, the variables that it met."""

from __future__ import annotations

from typing import Any

from ..ir.graph import Mark, Value
from ..transforms.reroll.carried import Summary
from ..transforms.reroll.roll import Declined
from .content import Content


class Guard:
    """What Python saw: `value` was `expected` at `site` while tracing."""

    __slots__ = ("expected", "site", "value")

    def __init__(self, value: Value, expected: int, site: Any) -> None:
        self.value = value
        self.expected = expected
        self.site = site


class Trace(Mark):
    """Follows everything that depends on the arguments of the call that is being traced.

    Parameters
    ----------
    described : str
        Which function is traced, for errors.
    remedy : str
        What else can be done where Python asks for numbers.
    until : bool
        Whether loops that Python leaves because of what it sees are to turn as often as they must in each call.
    """

    __slots__ = ("_seen", "contents", "declined", "described", "guards", "inputs", "loops", "remedy", "sites", "until")

    def __init__(self, described: str, remedy: str = "", *, until: bool = False) -> None:
        super().__init__()
        self.until = until
        self.described = described
        self.remedy = remedy
        self.inputs: list[Value] = []
        self.guards: list[Guard] = []
        self.sites: list[Any] = []
        self.loops: list[Summary] = []
        self.declined: list[Declined] = []
        self.contents: dict[int, Content] = {}
        self._seen: dict[Value, int] = {}

    def guard(self, value: Value, expected: int, site: Any) -> int:
        """Record that Python saw `expected`; what was seen before needs no second guard."""
        if value not in self._seen:
            self._seen[value] = expected
            self.guards.append(Guard(value, expected, site))
            self.sites.append(site)
        return self._seen[value]

    def finish(self) -> None:
        """End the trace: example values are dropped, so that what leaked is found out."""
        self.recording = False
        self.over = True
        for value in self.inputs:
            value.data = None


class Mapped(Trace):
    """Follows what depends on an element of a mapped axis: one stands for all of them, and has no numbers."""

    __slots__ = ()


def mapped_by(value: Value) -> Mapped | None:
    """Return who maps the axis of which a value is one element, if anybody."""
    for mark in value.marks:
        if isinstance(mark, Mapped) and mark.recording:
            return mark
    return None


def trace_of(value: Value) -> Trace | None:
    """Return the running trace that a value depends on, if any."""
    for mark in value.marks:
        if isinstance(mark, Trace) and mark.recording:
            return mark
    return None
