"""Trace tags: the tapes and traces that record values."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

if TYPE_CHECKING:
    from gradtape.ir.graph import Value


class _Here(threading.local):
    """The place in the user's code that nodes made now belong to, and the builder of the procedure that they are translated to, if any."""

    site: Any = None
    builder: Any = None


here: Final = _Here()

ANY: Final = -1
"""Stands for all threads."""


class TraceTag:
    """A tape, or the trace of a jitted function, that follows values.

    The outputs of a node carry those tags of its inputs that are recording while the node is made.

    Parameters
    ----------
    thread : int, optional
        The thread whose nodes are recorded; by default all.

    Attributes
    ----------
    over : bool
        Whether nobody will ask again how the tagged values came to be.
    log : object
        What is remembered for explanations.
    recorded_by : int or None
        The thread whose nodes are recorded now, `ANY` for all, None for none.
    missed : object
        The place of the last node that was made on another thread meanwhile, and is not recorded.
    """

    __slots__ = (
        "__weakref__",
        "_active",
        "_computed",
        "_room",
        "_thread",
        "log",
        "missed",
        "over",
        "recorded_by",
    )

    recorded_by: int | None
    _computed: list[ref[Value]] | None

    def __init__(self, thread: int | None = None) -> None:
        self.over = False
        self.log: Any = None
        self.missed: Any = None
        self._computed = None
        self._room = 64
        self._thread = thread
        self._active = True
        self.recorded_by = ANY if thread is None else thread

    @property
    def recording(self) -> bool:
        """Whether nodes made on this thread are recorded now."""
        return self.recorded_by is ANY or self.recorded_by == get_ident()

    @recording.setter
    def recording(self, active: bool) -> None:
        self._active = active
        self.recorded_by = None if not active else ANY if self._thread is None else self._thread

    @property
    def thread(self) -> int | None:
        """The thread whose nodes are recorded; None for all."""
        return self._thread

    @thread.setter
    def thread(self, thread: int | None) -> None:
        self._thread = thread
        self.recording = self._active

    def note_computed(self, value: Value) -> None:
        """Remember a value that was computed while this tag is not over: its history is given up at the end."""
        if self._computed is None:
            self._computed = []
        self._computed.append(ref(value))
        if len(self._computed) > self._room:  # a record that stays open: most of what it computed is gone
            self._computed = [reference for reference in self._computed if reference() is not None]
            self._room = 64 + 2 * len(self._computed)

    def release(self) -> None:
        """Give up the history of what was computed while this tag was not over, where nobody else may ask for it."""
        computed, self._computed = self._computed, None
        for reference in computed or ():
            value = reference()
            if value is not None:
                value.release_history()

    def end(self) -> None:
        """Stop recording: nobody will ask again how the tagged values came to be."""
        self.recording = False
        self.over = True
        self.release()


def merge_tags(values: Iterable[Value]) -> tuple[TraceTag, ...]:
    """Return the tags that a node with these inputs hands on: those that are recording."""
    merged: tuple[TraceTag, ...] = ()
    for value in values:
        tags = value.tags
        if tags is not merged:  # along a record most values share one tuple
            for tag in tags:
                thread = tag.recorded_by
                if thread == get_ident() or thread is ANY:
                    if tag not in merged:
                        merged = (*merged, tag) if merged or len(tags) > 1 else tags
                elif thread is not None:
                    tag.missed = here.site
    return merged
