"""What a tape remembers of where arrays came under its eyes and where they left it, for explanations."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Log:
    """The record of one tape; it keeps no array alive."""

    watched: weakref.WeakKeyDictionary[Value, Site] = field(default_factory=weakref.WeakKeyDictionary)
    exits: deque[Exit] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


_logs: weakref.WeakKeyDictionary[Mark, Log] = weakref.WeakKeyDictionary()


def log_of(mark: Mark) -> Log:
    """Return the log of a tape's mark."""
    log = _logs.get(mark)
    if log is None:
        log = _logs[mark] = Log()
    return log


def note_watch(value: Value, mark: Mark, site: Site) -> None:
    """Remember where a tape began to follow a value; what happens from now on happens afterwards."""
    log_of(mark).watched[value] = site
    CLOCK.ticks += 1


def note_exit(value: Value, what: str) -> None:
    """Remember that a value is leaving the tapes that follow it."""
    recording = [mark for mark in value.marks if mark.recording]
    if recording:
        exit_ = Exit(weakref.ref(value), what, user_site())
        for mark in recording:
            log_of(mark).exits.append(exit_)
