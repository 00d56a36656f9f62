"""Marks: who follows values."""

from __future__ import annotations

from collections.abc import Iterable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .graph import Value

ANY: Final = -1
"""Stands for all threads."""


class Mark:
    """Somebody who follows values: a tape or the trace of a jitted function.

    The outputs of a node carry those marks of its inputs that are recording while the node is made.

    Parameters
    ----------
    thread : int, optional
        The thread whose nodes are recorded; by default all.

    Attributes
    ----------
    over : bool
        Whether nobody will ask again how the marked values came to be.
    log : object
        What is remembered for explanations.
    recorded_by : int or None
        The thread whose nodes are followed now, `ANY` for all, None for none.
    """

    __slots__ = ("__weakref__", "_active", "_thread", "log", "over", "recorded_by")

    recorded_by: int | None

    def __init__(self, thread: int | None = None) -> None:
        self.over = False
        self.log: Any = None
        self._thread = thread
        self._active = True
        self.recorded_by = ANY if thread is None else thread

    @property
    def recording(self) -> bool:
        """Whether nodes made on this thread now are followed."""
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


def merge_marks(values: Iterable[Value]) -> tuple[Mark, ...]:
    """Return the marks that a node with these inputs hands on: those that are recording."""
    merged: tuple[Mark, ...] = ()
    for value in values:
        marks = value.marks
        if marks is not merged:  # along a record most values share one tuple
            for mark in marks:
                thread = mark.recorded_by
                if (thread == get_ident() or thread is ANY) and mark not in merged:
                    merged = (*merged, mark) if merged or len(marks) > 1 else marks
    return merged
