"""What is going on around a line of code: tapes that record, traces, and functions that gradtape runs."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from gradtape.ir.graph import TraceTag, Value
from gradtape.trace.jit.guards import InBody, Trace, trace_of
from gradtape.trace.patching import recorders
from gradtape.trace.variables.content import Content


class Watcher(ABC):
    """Somebody who is told which variables are read, such as a tape."""

    __slots__ = ()

    @abstractmethod
    def tag_for(self, variable: Any) -> TraceTag | None:
        """Return the tag that what is read now is to carry; None where it is not followed."""

    @abstractmethod
    def note(self, variable: Any, value: Value) -> None:
        """Take notice of what was read under that tag."""


class Scope:
    """One run of a function that is traced or differentiated.

    Attributes
    ----------
    reads : dict
        What was read of each variable, by its serial number.
    names : dict
        The names of values that were asked for theirs and had none.
    """

    __slots__ = ("_computed", "_taken", "names", "reads")

    def __init__(self) -> None:
        self.reads: dict[int, dict[Value, None]] = {}
        self.names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._computed: list[weakref.ref[Value]] = []

    def note(self, variable: Any, value: Value) -> None:
        """Take notice of what was read."""
        self.reads.setdefault(variable.serial, {})[value] = None

    def unique_name(self, stem: str) -> str:
        """Return `stem`, or where that was given out in this run, ``stem_1``, ``stem_2`` and so on."""
        name, count = stem, 0
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def name_of(self, value: Value) -> str:
        """Return the name of a value; one without gets that of its op, or of an input its position: ``x0``."""
        if value.name is not None:
            return value.name
        name = self.names.get(value)
        if name is None:
            trace = running_trace()[0]
            inputs = [] if trace is None else trace.inputs
            stem = (
                f"x{inputs.index(value)}"
                if value in inputs
                else "input"
                if value.node is None
                else value.node.op.name
            )
            name = self.names[value] = self.unique_name(stem)
        return name

    def note_computed(self, values: Iterable[Value]) -> None:
        """Remember values that were computed inside of the function, which may ask how they came to be.

        The history of what belongs to a trace is the program.
        """
        self._computed += [weakref.ref(value) for value in values if trace_of(value) is None]

    def release(self) -> None:
        """Give up the history of these values: the function has returned."""
        computed, self._computed = self._computed, []
        for reference in computed:
            if (value := reference()) is not None:
                value.release_history()


Context = Watcher | Scope | Trace


class _Contexts(threading.local):
    """What is going on in this thread.

    Attributes
    ----------
    stack : list
        The contexts, from the outermost to the innermost.
    pending : dict
        The variables whose content is still to be computed, by their serial numbers.
    replays : list of dict
        For each call around that is to leave variables alone: the contents that it has instead of theirs.
    """

    def __init__(self) -> None:
        self.stack: list[Context] = []
        self.pending: dict[int, Content] = {}
        self.replays: list[dict[Content, Content]] = []


contexts = _Contexts()


def leave(stack: list[Context], context: Context, user: object) -> None:
    """Let a context, and what `user` needed NumPy's names for, be in force no longer.

    Ctrl-C may come anywhere, also in here: to leave twice, or what was entered by half, does no harm.
    """
    if context in stack:
        stack.remove(context)
    recorders.leave(user)


@contextmanager
def inside(*added: Context) -> Iterator[None]:
    """Let contexts be in force, for a function of the user's that is about to run."""
    stack = contexts.stack
    user = object()
    try:
        stack.extend(added)
        recorders.enter(user)
        yield
    finally:
        try:
            for context in added:
                leave(stack, context, user)
                if isinstance(context, Scope) and context._computed:
                    context.release()
        except BaseException:
            for context in added:
                leave(stack, context, user)
            raise


@contextmanager
def replayed() -> Iterator[None]:
    """Let what is assigned hold for this thread alone, and until the end of the block: what runs again has been counted already."""
    around = contexts.replays
    try:
        contexts.replays = [*around, {}]
        yield
    finally:
        contexts.replays = around


def replayed_content(content: Content) -> Content:
    """Return what stands for a content in the calls around that are to leave variables alone."""
    for contents in contexts.replays:
        if content not in contents:
            contents[content] = content.copy()
        content = contents[content]
    return content


def scopes() -> list[Scope]:
    """Return the functions that are being traced or differentiated around this line, the outermost first."""
    stack = contexts.stack
    return [context for context in stack if isinstance(context, Scope)] if stack else []


def running_trace() -> tuple[Trace | None, int]:
    """Return the innermost trace of this thread, and how many contexts are around it."""
    return trace_below(len(contexts.stack))


def trace_below(depth: int) -> tuple[Trace | None, int]:
    """Return the innermost trace among the outermost `depth` contexts, and how many contexts are around it."""
    stack = contexts.stack
    for place in range(depth - 1, -1, -1):
        context = stack[place]
        if isinstance(context, Trace):
            return context, place
    return None, 0


def bodies_around() -> tuple[InBody, ...]:
    """Return the bodies of loops and branches that are being traced on this thread, the outermost first."""
    stack = contexts.stack
    return tuple([context for context in stack if isinstance(context, InBody)]) if stack else ()
