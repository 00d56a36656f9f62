"""Functions that are called again for their derivatives: they find what they found, and leave no trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradtape.ir.graph import TraceTag, Value
from gradtape.trace.jit.guards import Trace
from gradtape.trace.source.contexts import Watcher, replayed


class Beginning(Watcher):
    """What variables held when a function was called, as far as it read them.

    Attributes
    ----------
    readings : dict
        What was read first of each variable.
    """

    __slots__ = ("_tag", "readings")

    def __init__(self) -> None:
        self.readings: dict[Any, Value] = {}
        self._tag = TraceTag()
        self._tag.recording = False
        self._tag.over = True

    def tag_for(self, variable: Any) -> TraceTag | None:
        return self._tag

    def note(self, variable: Any, value: Value) -> None:
        self.readings.setdefault(variable, value)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Let the variables hold that until the end of the block; what is assigned inside of it is forgotten then.

        What was read in the body of a loop stands for many values, and is found by other ways.
        """
        with replayed():
            for variable, value in self.readings.items():
                if all(tag.recording for tag in value.tags if isinstance(tag, Trace)):
                    variable.hold(value)
            yield
