"""Contexts: the tapes and traces that record on a thread, and the functions that gradtape runs."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from gradtape.ir.graph import TraceTag, Value
from gradtape.trace.jit.guards import Abstract, InBody, Mapped, Trace, trace_of
from gradtape.trace.patching import recorders
from gradtape.trace.patching.copies import WriteWatch
from gradtape.trace.variables.content import Content


class Watcher(ABC):
    """A recorder that is notified of reads of variables, such as a tape."""

    __slots__ = ()

    @abstractmethod
    def tag_for(self, variable: Any) -> TraceTag | None:
        """Return the tag for a read of a variable now; None if it is not recorded."""

    @abstractmethod
    def note(self, variable: Any, value: Value) -> None:
        """Record a value that was read with this tag."""


class Scope:
    """One run of a function that is traced or differentiated.

    Attributes
    ----------
    reads : dict
        The values that were read of each variable, by its serial number.
    names : dict
        The names that were generated for values.
    """

    __slots__ = ("_computed", "_taken", "names", "reads")

    def __init__(self) -> None:
        self.reads: dict[int, dict[Value, None]] = {}
        self.names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._computed: list[weakref.ref[Value]] = []

    def note(self, variable: Any, value: Value) -> None:
        """Record a value that was read."""
        self.reads.setdefault(variable.serial, {})[value] = None

    def unique_name(self, stem: str) -> str:
        """Return `stem`, or if it was used in this run, ``stem_1``, ``stem_2`` and so on."""
        name, count = stem, 0
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def name_of(self, value: Value) -> str:
        """Return the name of a value; one without gets that of its op, or as an input ``x0``, ``x1`` and so on."""
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
        """Register values that were computed in the function, which may differentiate them.

        The history of values of a trace is the program.
        """
        self._computed += [weakref.ref(value) for value in values if trace_of(value) is None]

    def release(self) -> None:
        """Release the history of these values, after the function has returned."""
        computed, self._computed = self._computed, []
        for reference in computed:
            if (value := reference()) is not None:
                value.release_history()


Context = Watcher | Scope | Trace


class _Contexts(threading.local):
    """The contexts of this thread.

    Attributes
    ----------
    stack : list
        The contexts, from the outermost to the innermost.
    pending : dict
        The contents that are pending, by the serial numbers of their variables.
    replays : list of dict
        For each replayed call around: the contents that replace those of variables.
    rules : int
        How many derivative rules of users are running, one in the other.
    mapped : list of Mapped
        The functions that `vmap` maps and that are running, the outermost first.
    """

    def __init__(self) -> None:
        self.stack: list[Context] = []
        self.pending: dict[int, Content] = {}
        self.replays: list[dict[Content, Content]] = []
        self.rules = 0
        self.mapped: list[Mapped] = []


contexts = _Contexts()


def leave(stack: list[Context], context: Context, user: object) -> None:
    """Remove a context and a recorder.

    Ctrl-C may come anywhere, also in here: to leave twice, or after an incomplete entry, does no harm.
    """
    if context in stack:
        stack.remove(context)
    recorders.leave(user)


@contextmanager
def inside(*added: Context) -> Iterator[None]:
    """Activate contexts for the call of a user's function."""
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
def in_rule() -> Iterator[None]:
    """Take note that a derivative rule runs in this block: what it computes with may be a part of a program, without numbers."""
    try:
        contexts.rules += 1
        yield
    finally:
        contexts.rules -= 1


@contextmanager
def replayed() -> Iterator[None]:
    """Make assignments local to this thread and block: the function runs again, and its assignments have been made already."""
    around = contexts.replays
    try:
        contexts.replays = [*around, {}]
        yield
    finally:
        contexts.replays = around


def replayed_content(content: Content) -> Content:
    """Return the content that replaces a variable's in the replayed calls around."""
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
    """Return the innermost trace of this thread, and the number of contexts around it."""
    return trace_below(len(contexts.stack))


def compiled_trace() -> Trace | None:
    """Return the innermost trace of a jitted function on this thread; bodies of loops and mapped functions are parts of one."""
    return next(
        (c for c in reversed(contexts.stack) if isinstance(c, Trace) and not isinstance(c, Abstract)), None
    )


def write_watch() -> WriteWatch:
    """Return a watch over what the function that is being traced may write outside."""
    trace = compiled_trace()
    return WriteWatch(*(((), ()) if trace is None else trace.holders))


def trace_below(depth: int) -> tuple[Trace | None, int]:
    """Return the innermost trace among the outermost `depth` contexts, and the number of contexts around it."""
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
