"""Snapshots of variables: a function that is called again for its derivatives reads the same contents, and its assignments are undone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradtape.ir.graph import TraceTag, Value
from gradtape.trace.jit.guards import Trace
from gradtape.trace.source.contexts import Watcher, replayed


class VariableSnapshot(Watcher):
    """The contents of the variables that a function read, at the time of its call.

    Attributes
    ----------
    reads : dict
        The first read of each variable.
    """

    __slots__ = ("_tag", "reads")

    def __init__(self) -> None:
        self.reads: dict[Any, Value] = {}
        self._tag = TraceTag()
        self._tag.recording = False
        self._tag.over = True

    def tag_for(self, variable: Any) -> TraceTag | None:
        return self._tag

    def note(self, variable: Any, value: Value) -> None:
        self.reads.setdefault(variable, value)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore these contents until the end of the block; assignments inside the block are undone then.

        A read in the body of a loop stands for many values, and is not restored here.
        """
        with replayed():
            for variable, value in self.reads.items():
                if all(tag.recording for tag in value.tags if isinstance(tag, Trace)):
                    variable.restore(value)
            yield
