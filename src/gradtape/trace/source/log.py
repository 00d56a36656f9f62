"""The log of a tape: where it began to watch values, and where values left it, for explanations."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from gradtape.errors import GradtapeWarning, TapeError, warn
from gradtape.ir.graph import TraceTag, Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import is_inexact
from gradtape.trace.source.sites import CLOCK, Site, nearest_frame, user_site

REMEMBERED = 64

Form: TypeAlias = Literal["number", "text", "copy"]


class OpaqueCall(threading.local):
    """The opaque function of SciPy's that runs on this thread: what leaves a tape meanwhile is lost in its result.

    Attributes
    ----------
    name : str
        The function, for messages.
    tags : frozenset of TraceTag
        The tapes that recorded when it was called. Tapes that its callbacks open are their own affair.
    """

    name: str = ""
    tags: frozenset[TraceTag] = frozenset()


opaque_call: Final = OpaqueCall()

SAMPLE: Final = 64
"""The number of elements by which an array that left is recognised."""

WALK: Final = 64
"""The number of values that are visited to find the roots of a value that leaves."""


CALLS: Final = 8
"""The number of calls through which a number that a function returns is tracked."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The conversion of a traced value to a number or an ndarray.

    Attributes
    ----------
    value : weakref.ref to Value
        The value, which is not kept alive.
    what : str
        The conversion, as the user writes it.
    site : Site
        The place.
    numbers : tuple of float
        The elements, or a sample of a large array.
    shape : tuple of int
        Its shape.
    in_list : bool
        Whether its elements leave as Python numbers of a list, each of which is then used by itself.
    meant : bool
        Whether the conversion is explicit (``float(x)``), rather than made by another function.
    form : {"number", "text", "copy"}
        Whether it leaves as a number or an ndarray, as text or into a file, most of which is only shown, or for a variable of its own.
    roots : tuple of weakref.ref to Value, or None
        The leaves of the record that it was computed from; None if the search was too long.
    chain : tuple of (CodeType, int)
        The place in the code, of whatever package, and the calls that led there: code objects with the offsets of instructions.
    is_told_at_end : bool
        Whether a recording that holds the value reports it at its end.
    """

    value: weakref.ref[Value]
    what: str
    site: Any
    numbers: tuple[float, ...] = ()
    shape: tuple[int, ...] = ()
    meant: bool = True
    in_list: bool = False
    form: Form = "number"
    roots: tuple[weakref.ref[Value], ...] | None = ()
    chain: tuple[tuple[CodeType, int], ...] = ()
    is_told_at_end: bool = False

    def comes_from(self, source: Value) -> bool:
        """Return whether the value that left may depend on another."""
        value = self.value()
        if value is source or self.roots is None:
            return True
        return any(root() is source for root in self.roots)


Watch = tuple[weakref.ref[Value], Site, weakref.ref[Any] | None]
"""A value, where a tape began to watch it, and the array that had it; neither is kept alive. A plain tuple is made without a call."""


class Log:
    """The log of one tape; it keeps no array alive.

    Attributes
    ----------
    exits : list of Exit
        The last conversions.
    strict : bool
        Whether a conversion is an error.
    told_at_end : bool
        Whether conversions are told where the recording ends, since a program may pass them on.
    """

    __slots__ = ("_watched", "exits", "strict", "told_at_end")

    def __init__(self) -> None:
        self._watched: list[Watch] = []
        self.exits: list[Exit] = []
        self.strict = False
        self.told_at_end = False

    @property
    def watched(self) -> dict[Value, Site]:
        """The places where the tape began to watch the values that still exist."""
        return {value: site for reference, site, _ in self._watched if (value := reference()) is not None}

    def note(self, value: Value, site: Site) -> None:
        """Record where the tape began to watch a value."""
        self._watched.append((weakref.ref(value), site, value.owner))

    def watched_in(self, array: object) -> weakref.ref[Value] | None:
        """Return the value that an array had when it was watched last; None for an array that was not."""
        for value, _, owner in self._watched[::-1]:
            if owner is not None and owner() is array:
                return value
        return None


def log_of(tag: TraceTag) -> Log:
    """Return the log of a tape's tag."""
    log: Log | None = tag.log
    if log is None:
        log = tag.log = Log()
    return log


def is_told_at_end(value: Value) -> bool:
    """Return whether a recording that records a value tells at its end what has left."""
    return any(tag.recording and tag.log is not None and tag.log.told_at_end for tag in value.tags)


def note_watch(value: Value, tag: TraceTag, site: Site) -> None:
    """Record where a tape began to watch a value, and advance the clock."""
    log_of(tag).note(value, site)
    CLOCK.ticks += 1


def sample_of(data: NDArray) -> tuple[float, ...]:
    """Return a sample of an array of floats, by which it is recognised: all elements of a small one, and both parts of complex ones."""
    if data.dtype.kind not in "fc":
        return ()
    flat = data.reshape(-1)
    sample = flat[:: max(1, flat.size // SAMPLE)][:SAMPLE].tolist()
    return tuple(
        sample
        if data.dtype.kind == "f"
        else [part for number in sample for part in (number.real, number.imag)]
    )


def _roots_of(value: Value) -> tuple[weakref.ref[Value], ...] | None:
    roots: list[Value] = []
    visited, pending = {value}, [value]
    while pending:
        current = pending.pop()
        inputs = () if current._op is None else current._inputs
        if not inputs or not {tag for operand in inputs for tag in operand.tags}.issuperset(current.tags):
            roots.append(current)  # where a recording begins
        for operand in inputs:
            if operand.tags and operand not in visited:
                visited.add(operand)
                pending.append(operand)
        if len(visited) > WALK:
            return None
    return tuple([weakref.ref(root) for root in roots])


def _calls_from(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    """Return the places of a frame and of those that called it."""
    chain: list[tuple[CodeType, int]] = []
    while frame is not None and len(chain) < CALLS:
        chain.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(chain)


def note_exit(
    value: Value,
    conversion: str,
    data: Any = None,
    *,
    meant: bool = True,
    in_list: bool = False,
    form: Form = "number",
) -> None:
    """Record that a value leaves the tapes that record it, with a sample of its data."""
    recording = [tag for tag in value.tags if tag.recording]
    if recording:
        if form != "number" and not is_inexact(value.dtype):
            return
        if (
            form == "number"
            and is_inexact(value.dtype)
            and any(tag.log is not None and tag.log.strict for tag in recording)
        ):
            raise TapeError(
                f"{conversion} takes a value out of a tape that is strict",
                where=user_site(),
                why="no derivative passes through a number or an ndarray",
                remedy="stay with Arrays, which NumPy's functions take; "
                "if the constant is intended, use with tape.stop_recording(): ...",
            )
        if form == "number" and not opaque_call.tags.isdisjoint(recording):
            warn(
                GradtapeWarning,
                f"{opaque_call.name} converts a watched array to a number; its result has no gradient",
                where=user_site(),
                remedy="x.numpy() before the call, to state that this is intended",
            )
        numbers = () if data is None else sample_of(np.asarray(data))
        roots = _roots_of(value) if numbers else ()
        chain = _calls_from(nearest_frame(2)) if numbers else ()
        exit_ = Exit(
            weakref.ref(value),
            conversion,
            user_site(),
            numbers,
            value.shape,
            meant,
            in_list,
            form,
            roots,
            chain,
            is_told_at_end(value),
        )
        for tag in recording:
            exits = log_of(tag).exits
            if (
                form == "text"
            ):  # a line that shows numbers again and again does not push out what else has left
                exits[:] = [each for each in exits if not (each.form == "text" and each.chain == chain)]
            exits.append(exit_)
            del exits[:-REMEMBERED]
