"""What a tape remembers of where arrays came under its eyes and where they left it, for explanations."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from ..ir.graph import Mark, Value
from .sites import CLOCK, Site, user_site

REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Exit:
    """A followed value was turned into a number or an ndarray."""

    value: weakref.ref[Value]
    what: str
    site: Any


class Log:
    """The record of one tape; it keeps no array alive.

    Attributes
    ----------
    exits : list of Exit
        Where arrays left, most recently.
    """

    __slots__ = ("_watched", "exits")

    def __init__(self) -> None:
        self._watched: list[tuple[weakref.ref[Value], Site]] = []
        self.exits: list[Exit] = []

    @property
    def watched(self) -> dict[Value, Site]:
        """Where the tape began to follow the values that are left."""
        return {value: site for reference, site in self._watched if (value := reference()) is not None}

    def note(self, value: Value, site: Site) -> None:
        """Remember where the tape began to follow a value."""
        self._watched.append((weakref.ref(value), site))


def log_of(mark: Mark) -> Log:
    """Return the log of a tape's mark."""
    log: Log | None = mark.log
    if log is None:
        log = mark.log = Log()
    return log


def note_watch(value: Value, mark: Mark, site: Site) -> None:
    """Remember where a tape began to follow a value; what happens from now on happens afterwards."""
    log_of(mark).note(value, site)
    CLOCK.ticks += 1


def note_exit(value: Value, what: str) -> None:
    """Remember that a value is leaving the tapes that follow it."""
    recording = [mark for mark in value.marks if mark.recording]
    if recording:
        exit_ = Exit(weakref.ref(value), what, user_site())
        for mark in recording:
            exits = log_of(mark).exits
            exits.append(exit_)
            del exits[:-REMEMBERED]
