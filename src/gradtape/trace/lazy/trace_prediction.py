"""Rehearsals: the second tape of a line writes its script, the later ones read along, and their gradients are one call."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from gradtape.config import config
from gradtape.ir.builder import here
from gradtape.ir.graph import Graph, TraceTag, Value, extract
from gradtape.kinds.control import Structured
from gradtape.runtime.compile.program import ACTIVE
from gradtape.trace.array.handle import Handle
from gradtape.trace.lazy.call_observer import speculation
from gradtape.trace.lazy.gradient_cache import Derivatives, Lazily, Template, gradients, parted, template_for
from gradtape.trace.lazy.instruments import CHECKS
from gradtape.trace.lazy.script import Script, holding, perform
from gradtape.trace.lazy.script_reader import Reader
from gradtape.trace.lazy.script_writer import Writer
from gradtape.trace.source.contexts import contexts
from gradtape.transforms.call import GraphCall, without_data
from gradtape.transforms.observers import OBSERVERS

MOST_FORMS: Final = 8
"""Combinations of arrays in the user's hands for which a program is kept."""

MOST_MISSES: Final = 16
"""How many readers of a script may have come since one was of use, before it is given up; some may be at it on other threads."""

MOST_SCRIPTS: Final = 4
"""How often a line is tried to be written down."""


class _Form(NamedTuple):
    """The derivatives of a script, for some of its arrays in the user's hands.

    Attributes
    ----------
    template : Template
        Computes the targets, the derivatives, and what else is held.
    order : tuple of int
        The leaves that it takes.
    kept : tuple of int
        The places of what else is held.
    """

    template: Template
    order: tuple[int, ...]
    kept: tuple[int, ...]


class _Plan(NamedTuple):
    """A script, and what is asked for at its end.

    Attributes
    ----------
    script : Script
        The record.
    targets : tuple of int
        The places of the targets.
    sources : tuple of int
        The leaves that are the sources.
    forms : dict
        By the places of all that is in the user's hands.
    """

    script: Script
    targets: tuple[int, ...]
    sources: tuple[int, ...]
    forms: dict[tuple[int, ...], _Form]


class Rehearsal(ABC):
    """A tape at a line that is known."""

    __slots__ = ()

    @abstractmethod
    def gradients(self, ends: Sequence[Any], starts: Sequence[Value], tag: TraceTag) -> Derivatives | None:
        """Return the gradients of arrays in sources, if they are what is asked for at this line each time."""


class _Line(Rehearsal):
    """A line that enters tapes.

    Parameters
    ----------
    code : code
        In which it stands.

    Attributes
    ----------
    asked : bool
        Whether a gradient was asked for.
    plan : _Plan or None
        What is expected.
    written : int
        How many scripts were begun since one was of use.
    misses : int
        How many readers have come since then.
    """

    __slots__ = ("asked", "code", "misses", "plan", "written")

    def __init__(self, code: CodeType) -> None:
        self.code = code  # also so that no other code has its identity
        self.asked = False
        self.plan: _Plan | None = None
        self.written = 0
        self.misses = 0

    def gradients(self, ends: Sequence[Any], starts: Sequence[Value], tag: TraceTag) -> Derivatives | None:
        plan = self.plan
        self.asked = True
        reader = ends[0]._base if ends else None
        if plan is None or type(reader) is not Reader or not reader.reads(plan.script, tag) or _is_watched():
            return None
        leaves = reader.leaves()
        if plan.targets != tuple(map(reader.place_of, ends)) or len(plan.sources) != len(starts):
            return None
        for start, place in zip(starts, plan.sources, strict=True):
            if start is not leaves[place]:
                return None
        held = reader.held()
        form = plan.forms.get(held) or _form(plan, held)
        if form is None:
            return None
        self.misses = self.written = 0
        return _given(form, plan, reader)


class _Writing(Rehearsal):
    """A tape whose script is written.

    Parameters
    ----------
    line : _Line
        Where it was entered.
    writer : Writer
        Who writes.
    """

    __slots__ = ("_line", "_writer")

    def __init__(self, line: _Line, writer: Writer) -> None:
        self._line = line
        self._writer = writer

    def gradients(self, ends: Sequence[Any], starts: Sequence[Value], tag: TraceTag) -> Derivatives | None:
        """Return what is always returned, and remember how it came to be."""
        writer = self._writer
        if _is_watched():
            return None
        targets = [end.value for end in ends]
        target_places = _all_known(map(writer.returned_by, ends))
        sources = _all_known(map(writer.place_of, starts))
        if target_places is None or sources is None or len(set(targets)) < len(targets):
            return None
        found = template_for(gradients, "gradient", targets, starts, None, tag)
        if found is None:
            return None
        template, leaves = found
        order = _all_known(map(writer.place_of, leaves))
        if order is None or max(sources) >= 0 or 0 in template.counts or template.stacks:
            return None
        own = _Form(template, tuple([order[place] for place in template.leaves]), ())
        plan = _Plan(writer.script(), target_places, sources, {tuple(sorted(target_places)): own})
        held = writer.held()
        form = plan.forms.get(held) or _form(plan, held)
        if form is None:
            return None
        self._line.plan = plan
        return _given(form, plan, writer)


def _all_known(places: Iterable[int | None]) -> tuple[int, ...] | None:
    """Return places, or None where one of them is unknown or there are none."""
    found = list(places)
    known = tuple([place for place in found if place is not None])
    return known if known and len(known) == len(found) else None


def _is_watched() -> bool:
    """Return whether somebody is to see what happens one by one."""
    return not config.jit or config.eager or bool(CHECKS) or len(OBSERVERS) > 0 or ACTIVE.profiler is not None


_lines: Final[OrderedDict[Any, _Line]] = OrderedDict()


def rehearsed(frame: FrameType, tag: TraceTag, alone: tuple[TraceTag, ...], kind: type[Handle]) -> Rehearsal:
    """Attend to a tape that is entered by a line, if it is known what for.

    Parameters
    ----------
    frame : frame
        What enters the tape.
    tag : TraceTag
        The tape's.
    alone : tuple of TraceTag
        The tags of what nobody else follows.
    kind : type
        Of the user's arrays.
    """
    code = frame.f_code
    key = id(code), frame.f_lasti, config.reroll, config.reroll_checkpoint
    line = _lines.get(key)
    if line is None:
        line = _lines[key] = _Line(code)
        while len(_lines) > config.memory_cache:
            _lines.popitem(last=False)
        return line
    if not line.asked or contexts.stack or _is_watched():
        return line
    plan = line.plan
    if plan is not None and line.misses <= MOST_MISSES:
        line.misses += 1
        reader = Reader(plan.script, tag, alone)
        # Its arrays keep it, and nobody else once the tape has been left.
        speculation.attendant, speculation.last = reader, weakref.ref(reader)
    elif line.written < MOST_SCRIPTS:
        line.plan, line.misses = None, 0
        line.written += 1
        writer = speculation.attendant = Writer(tag, alone, kind)
        return _Writing(line, writer)
    return line


def _given(form: _Form, plan: _Plan, attendant: Writer | Reader) -> Derivatives:
    """Return the derivatives, by one call, and let what is in the user's hands be computed by it."""
    speculation.attendant = speculation.last = None
    leaves = attendant.leaves()
    template = form.template
    given = [leaves[place] for place in form.order]
    _, outs = template.call.appended([*given, *template.constants], here.site)  # type: ignore[list-item]
    for place, value in zip((*plan.targets, *form.kept), outs, strict=False):
        attendant.give(place, value)
    return parted(template.counts, outs[len(plan.targets) + len(form.kept) :])


def _form(plan: _Plan, held: tuple[int, ...]) -> _Form | None:
    """Return what computes more than the targets and the derivatives, by calling once more what the script says, without numbers."""
    own = plan.forms[tuple(sorted(plan.targets))]
    call = own.template.call.graph
    if len(plan.forms) >= MOST_FORMS or any(isinstance(node.op, Structured) for node in call.nodes):
        return None
    kept = tuple([place for place in held if place not in plan.targets])
    count = len(own.order)
    known = dict(zip(own.order, call.inputs, strict=False))
    leaves = [
        known[place] if place in known else Value(leaf.type)
        for place, leaf in enumerate(plan.script.leaves, -len(plan.script.leaves))
    ]
    made: list[Any] = []
    perform(
        plan.script.steps[:-1],
        [holding(plan.script.kind, leaf) for leaf in leaves],
        made,
        lambda _, array: array,
    )
    values = [made[place].value for place in kept]
    nodes, constants = extract(values, leaves, lambda value: value.node is None)
    more = tuple([place - len(leaves) for place, leaf in enumerate(leaves) if leaf not in call.inputs])
    inputs = [*call.inputs[:count], *[leaves[place] for place in more], *call.inputs[count:], *constants]
    ends = len(plan.targets)
    outputs = [*call.outputs[:ends], *values, *call.outputs[ends:]]
    graph = without_data(Graph(inputs, [*call.nodes, *nodes], outputs, "gradient"))
    template = own.template._replace(
        call=GraphCall(graph, Lazily(graph).run), constants=(*own.template.constants, *constants)
    )
    form = plan.forms[held] = _Form(template, (*own.order, *more), kept)
    return form
