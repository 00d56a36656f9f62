"""Loops that Python unrolled become loops again: the recording of a `for` is the same nodes over and over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.registry import UFUNCS
from gradtape.transforms.reroll.carries import Seen, Summary, test
from gradtape.transforms.reroll.iteration import Turn
from gradtape.transforms.reroll.periods import LEAST_SAVED, enough, regions
from gradtape.transforms.reroll.recording import Recording, living, serial_of
from gradtape.transforms.reroll.rewrite_state import Irregular, World
from gradtape.transforms.reroll.scan import Checked, roll
from gradtape.transforms.reroll.store_forwarding import forwarded
from gradtape.transforms.reroll.while_loop import Exit, exits, roll_until

MOST_LEVELS: Final = 6
"""How deep loops may be nested."""

MOST_PEELED: Final = 3
"""First turns that may differ from the others and stay in front of the loop."""

MULTIPLES: Final = range(1, 13)
"""How many repeats of the same ops one turn may consist of: two arrays that change places repeat every second time."""


class Look(NamedTuple):
    """A guard: what Python saw of a value.

    Attributes
    ----------
    value : Value
        What it looked at.
    expected : int
        What it saw.
    line : object
        Where; None where nobody knows.
    bounded : bool
        If that is the condition of a loop: whether Python can leave the loop in another way too.
    """

    value: Value
    expected: int
    line: Any = None
    bounded: bool = True


class Declined(NamedTuple):
    """A stretch of nodes that repeats, and why it was not rolled."""

    site: object
    reason: str


class Rolled(NamedTuple):
    """What came of a recording.

    Attributes
    ----------
    nodes : list of Node
        In topological order.
    ends : list of Value
        What the given ends have become.
    looks : list of tuple
        Guards: the number of the given one whose place it takes, and the guard.
    loops : list of Summary
        For explanations.
    stacks : list of tuple
        New leaves, each with the leaves that are its rows.
    """

    nodes: Sequence[Node]
    ends: list[Value]
    looks: list[tuple[int, Look]]
    loops: list[Summary]
    stacks: list[tuple[Value, Sequence[Value]]]


def rolled(
    nodes: Sequence[Node],
    ends: Sequence[Value],
    looks: Sequence[Look] = (),
    pinned: frozenset[Node] = frozenset(),
    *,
    until: bool = False,
    leaves: Collection[Value] = (),
    declined: list[Declined] | None = None,
) -> Rolled | None:
    """Return a recording with loops in the place of nodes that repeat; None where there are none.

    Parameters
    ----------
    nodes : sequence of Node
        All that the ends and guards are made of.
    ends : sequence of Value
        What is wanted.
    looks : sequence of Look
        Guards.
    pinned : frozenset of Node
        Nodes that must stay.
    until : bool
        Whether loops that Python left because of what it saw are to turn as often as they must.
    leaves : collection of Value
        Leaves that may be brought together in one array.
    declined : list of Declined, optional
        Receives what repeats itself and is not rolled up, and why.
    """
    if len(nodes) < LEAST_SAVED and not until:
        return None
    ordered: Sequence[Node] = sorted(nodes, key=serial_of)
    values = [*ends, *[look.value for look in looks]]
    current, values = forwarded(ordered, values)
    numbered = list(enumerate(looks))
    loops: list[Summary] = []
    stacks: list[tuple[Value, Sequence[Value]]] = []
    tidy = current is ordered
    for _ in range(MOST_LEVELS):
        if not tidy:
            current, tidy = living(current, values), True
        numbered = [
            (number, look._replace(value=value))
            for (number, look), value in zip(numbered, values[len(ends) :], strict=True)
        ]
        level = _Level(current, values[: len(ends)], numbered, pinned, until, World(leaves, stacks))
        if declined is not None:
            declined += level.declined
        if not level.loops:
            break
        loops += level.loops
        current, numbered, tidy = level.nodes, level.looks, False
        values = [*level.ends, *[look.value for _, look in numbered]]
    if not loops:
        return None
    left = current if tidy else living(current, values)
    if len(left) >= len(nodes) and not until:
        return None
    return Rolled(left, values[: len(ends)], numbered, loops, stacks)


def rolled_graph(
    graph: Graph,
    looks: Sequence[Look] | None = None,
    *,
    until: bool = False,
    declined: list[Declined] | None = None,
) -> tuple[Graph, list[int], Rolled] | None:
    """Return a graph with loops, and for each of its guards the number of the first that it stands for; None where there are none.

    The guards are those of the graph unless `looks` tells more of them; `until` and `declined` are as for `rolled`.
    """
    if looks is None:
        looks = [Look(value, expected) for value, expected in graph.guards]
    result = rolled(graph.nodes, graph.outputs, looks, until=until, declined=declined)
    if result is None:
        return None
    guards = [(look.value, look.expected) for _, look in result.looks]
    whole = Graph(graph.inputs, result.nodes, result.ends, graph.name, guards)
    return whole, [number for number, _ in result.looks], result


def without_data_rolled(graph: Graph) -> Graph:
    """Return a copy of a graph without guards that keeps nothing of it alive, with loops where its nodes repeat themselves."""
    fresh = {value: Value(value.aval) for value in graph.inputs}
    becomes = dict(fresh)
    copies = []
    for node in in_recorded_order(graph.nodes):
        copy = node.copy(tuple([becomes.get(value, value) for value in node.inputs]))
        becomes.update(zip(node.outs, copy.outs, strict=True))
        copies.append(copy)
    ends = [becomes.get(value, value) for value in graph.outputs]
    result = rolled(copies, ends)
    nodes, ends = (copies, ends) if result is None else (result.nodes, result.ends)
    return Graph(list(fresh.values()), nodes, ends, graph.name)


class _Level:
    """Rolls the innermost loops of a recording."""

    def __init__(
        self,
        nodes: Sequence[Node],
        ends: Sequence[Value],
        looks: Sequence[tuple[int, Look]],
        pinned: frozenset[Node],
        until: bool,
        world: World,
    ) -> None:
        self.declined: list[Declined] = []
        self.loops: list[Summary] = []
        self._world = world
        self.nodes: Sequence[Node] = nodes
        self.ends: list[Value] = list(ends)
        self.looks = list(looks)
        if len(nodes) < LEAST_SAVED and not until:
            return
        self._recording = recording = Recording(nodes, ends, pinned)
        if not recording.in_order:
            return
        ways_out = exits(recording, looks) if until else []
        claims = self._claims(ways_out)
        if not claims and not ways_out:
            return
        self._seen = {}
        for number, look in looks:
            place = recording.place.get(look.value.node, -1)
            if place >= 0:
                self._seen[place, look.value.index] = Seen(number, look.expected)
        self._left: dict[int, tuple[Value, int]] = {}
        self._gone: set[int] = set()
        self._enters: dict[int, Value] = {}
        if claims:
            self._rewrite(
                [(start, start + period * trips, (period, trips)) for start, period, trips in claims]
            )
        else:
            self._rewrite([(one.start, one.start + one.period * one.trips, one) for one in _apart(ways_out)])

    def _claims(self, ways_out: Sequence[Exit]) -> list[tuple[int, int, int]]:
        """Return ``(start, period, trips)`` of loops that do not overlap, in order; loops with a way out wait."""
        recording = self._recording
        taken = np.zeros(len(recording.nodes), bool)
        ends = np.zeros(len(recording.nodes) + 1, np.int64)
        for one in ways_out:
            ends[one.start + one.period : one.start + one.period * one.trips + 1 : one.period] = 1
        before = np.cumsum(ends)
        claims = []
        for period, low, high in regions(recording.tokens):
            if taken[low:high].any():
                parts = _free(taken, low, high)
            else:
                parts = [(low, high)]
            for begin, end in parts:
                found = self._runs(recording, period, begin, end)
                for start, turn, trips in found:
                    stop = start + trips * turn
                    if before[stop] - before[start] < 2:
                        taken[start:stop] = True
                        claims.append((start, turn, trips))
        return sorted(claims)

    def _runs(self, recording: Recording, period: int, begin: int, end: int) -> list[tuple[int, int, int]]:
        """Return ``(start, period, trips)`` of loops in a stretch whose ops repeat."""
        for times in MULTIPLES:
            turn = period * times
            if not enough(turn, (end - begin) // turn):
                break
            runs = recording.runs(turn, begin, end)
            if runs:
                return [(start, turn, trips) for start, trips in runs]
        if enough(period, (end - begin) // period):
            node = recording.first_difference(period, begin, end)
            reason = f"{node.op.name} takes what it did not take a turn before"
            self.declined.append(Declined(node.site, reason))
        return []

    def _rewrite(self, claims: Sequence[tuple[int, int, tuple[int, int] | Exit]]) -> None:
        recording = self._recording
        world = self._world
        outside = (recording.source < 0).nonzero()[0].tolist()
        world.begin([recording.operands[k] for k in outside])
        place = 0
        for start, stop, how in claims:
            for node in recording.nodes[place:start]:
                world.keep(node)
            if isinstance(how, Exit):
                place = stop if self._roll_until(world, how) else start
            else:
                place = self._roll(world, start, *how)
        for node in recording.nodes[place:]:
            world.keep(node)
        self.looks = [
            (number, look._replace(value=value, expected=expected))
            for number, look in self.looks
            for value, expected in self._now(number, look)
        ]
        values = world.spelt_out([*self.ends, *[look.value for _, look in self.looks]])
        self.nodes = world.nodes
        self.ends = values[: len(self.ends)]
        self.looks = [
            (number, look._replace(value=value))
            for (number, look), value in zip(self.looks, values[len(self.ends) :], strict=True)
        ]

    def _now(self, number: int, look: Look) -> list[tuple[Value, int]]:
        """Return what has become of a guard: nothing, where a loop has taken it over."""
        if number in self._left:
            return [self._left[number]]
        return [] if number in self._gone else [(look.value, look.expected)]

    def _roll(self, world: World, start: int, period: int, trips: int) -> int:
        """Put a loop in the place of nodes; return where the nodes go on."""
        place = start
        for peeled in range(MOST_PEELED + 1):
            begin, left = start + peeled * period, trips - peeled
            if not enough(period, left):
                break
            for node in self._recording.nodes[place:begin]:
                world.keep(node)
            place = begin
            try:
                turn = Turn(self._recording, world, begin, period, left, counted=False)
                summary, checked = roll(turn, self._seen)
            except Irregular as reason:
                self.declined.append(Declined(reason.node.site, reason.reason))
                if not reason.starts_late:
                    break
                continue
            self._note(summary, checked)
            return begin + left * period
        return place

    def _roll_until(self, world: World, way_out: Exit) -> bool:
        try:
            turn = Turn(self._recording, world, way_out.start, way_out.period, way_out.trips, counted=True)
            enters = self._entrance(world, way_out)
            summary, checked = roll_until(turn, self._seen, way_out, enters)
        except Irregular as reason:
            self.declined.append(Declined(reason.node.site, reason.reason))
            return False
        self._note(summary, checked)
        return True

    def _entrance(self, world: World, way_out: Exit) -> Value:
        """Return whether a loop is to turn at all: a call that Python would have led elsewhere might turn for ever."""
        enters: Value | None = None
        for number, look in self.looks:
            if number > way_out.first:
                break
            known = self._enters.get(number)
            if known is None:
                parts = [
                    test(world.actual(world.of(value)), expected)
                    for value, expected in self._now(number, look)
                ]
                for part in parts:
                    known = part if enters is None else UFUNCS["logical_and"](enters, part)
                    world.place([known])
                if known is not None:
                    self._enters[number] = known
            enters = enters if known is None else known
        assert enters is not None
        return enters

    def _note(self, summary: Summary, checked: Checked) -> None:
        self.loops.append(summary)
        self._gone |= checked.gone
        for number, value, expected in checked.left:
            self._left[number] = value, expected


def _apart(ways_out: Sequence[Exit]) -> list[Exit]:
    """Return those of the loops that do not overlap one before."""
    found: list[Exit] = []
    for one in ways_out:
        if not found or found[-1].start + found[-1].period * found[-1].trips <= one.start:
            found.append(one)
    return found


def in_recorded_order(nodes: Sequence[Node]) -> Sequence[Node]:
    """Return nodes in the order in which they were recorded, if that is one in which they can be computed."""
    ordered = sorted(nodes, key=serial_of)
    return ordered if _in_order(ordered) else nodes


def _in_order(nodes: Sequence[Node]) -> bool:
    """Return whether each node comes after what it takes: not so where a value was given another history."""
    serials = {node.serial for node in nodes}
    return all(
        value.node is None or value.node.serial < node.serial or value.node.serial not in serials
        for node in nodes
        for value in node.inputs
    )


def _free(taken: np.ndarray[Any, Any], low: int, high: int) -> list[tuple[int, int]]:
    """Return the stretches between `low` and `high` that are not taken."""
    edges = np.diff(np.concatenate([[True], taken[low:high], [True]]).astype(np.int8))
    begins, ends = np.flatnonzero(edges == -1), np.flatnonzero(edges == 1)
    return [(low + int(a), low + int(b)) for a, b in zip(begins, ends, strict=True)]
