"""Loops that Python unrolled become loops again: the recording of a `for` is the same nodes over and over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ...ir.graph import Graph, Node, Value
from .forward import forwarded
from .loop import Loop, Seen, Summary
from .periods import LEAST_SAVED, enough, regions
from .recording import Recording, living
from .world import Irregular, World

MOST_LEVELS: Final = 6
"""How deep loops may be nested."""

MOST_PEELED: Final = 3
"""First turns that may differ from the others and stay in front of the loop."""

MULTIPLES: Final = (1, 2, 3, 4, 6)
"""How many repeats of the same ops one turn may consist of: two arrays that change places repeat every second time."""


class Look(NamedTuple):
    """A guard: what Python saw of a value."""

    value: Value
    expected: int


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
    loops, declined : list
        For explanations.
    """

    nodes: Sequence[Node]
    ends: list[Value]
    looks: list[tuple[int, Look]]
    loops: list[Summary]
    declined: list[Declined]


def rolled(
    nodes: Sequence[Node],
    ends: Sequence[Value],
    looks: Sequence[Look] = (),
    pinned: frozenset[Node] = frozenset(),
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
    """
    if len(nodes) < LEAST_SAVED:
        return None
    ordered = sorted(nodes, key=_serial)
    if not _in_order(ordered):
        return None
    values = [*ends, *[look.value for look in looks]]
    current, values = forwarded(ordered, values)
    numbered = list(enumerate(looks))
    loops: list[Summary] = []
    declined: list[Declined] = []
    for _ in range(MOST_LEVELS):
        current = living(current, values)
        numbered = [
            (number, Look(value, look.expected))
            for (number, look), value in zip(numbered, values[len(ends) :], strict=True)
        ]
        level = _Level(current, values[: len(ends)], numbered, pinned)
        declined = [*declined, *level.declined]
        if not level.loops:
            break
        loops += level.loops
        current, numbered = level.nodes, level.looks
        values = [*level.ends, *[look.value for _, look in numbered]]
    if not loops:
        return None
    return Rolled(living(current, values), values[: len(ends)], numbered, loops, declined)


def rolled_graph(graph: Graph) -> tuple[Graph, list[int], Rolled] | None:
    """Return a graph with loops, and for each of its guards the number of the first that it stands for; None where there are none."""
    looks = [Look(value, expected) for value, expected in graph.guards]
    result = rolled(graph.nodes, graph.outputs, looks)
    if result is None:
        return None
    guards = [(look.value, look.expected) for _, look in result.looks]
    whole = Graph(graph.inputs, result.nodes, result.ends, graph.name, guards)
    return whole, [number for number, _ in result.looks], result


class _Level:
    """Rolls the innermost loops of a recording."""

    def __init__(
        self,
        nodes: Sequence[Node],
        ends: Sequence[Value],
        looks: Sequence[tuple[int, Look]],
        pinned: frozenset[Node],
    ) -> None:
        self.declined: list[Declined] = []
        self.loops: list[Summary] = []
        self.nodes: Sequence[Node] = nodes
        self.ends: list[Value] = list(ends)
        self.looks = list(looks)
        if len(nodes) < LEAST_SAVED:
            return
        recording = Recording(nodes, ends, pinned)
        claims = self._claims(recording)
        if not claims:
            return
        self._seen = {}
        for number, look in looks:
            place = recording.place.get(look.value.node, -1)  # type: ignore[arg-type]
            if place >= 0:
                self._seen[place, look.value.index] = Seen(number, look.expected)
        self._rewrite(recording, claims)

    def _claims(self, recording: Recording) -> list[tuple[int, int, int]]:
        """Return ``(start, period, trips)`` of loops that do not overlap, in order."""
        taken = np.zeros(len(recording.nodes), bool)
        claims = []
        for period, low, high in regions(recording.tokens):
            if taken[low:high].any():
                parts = _free(taken, low, high)
            else:
                parts = [(low, high)]
            for begin, end in parts:
                for times in MULTIPLES:
                    turn = period * times
                    if not enough(turn, (end - begin) // turn):
                        break
                    runs = recording.runs(turn, begin, end)
                    for start, trips in runs:
                        claims.append((start, turn, trips))
                        taken[start : start + trips * turn] = True
                    if runs:
                        break
                else:
                    runs = []
                if not runs and enough(period, (end - begin) // period):
                    node = recording.first_difference(period, begin, end)
                    self.declined.append(
                        Declined(node.site, f"{node.op.name} is wired differently from turn to turn")
                    )
        return sorted(claims)

    def _rewrite(self, recording: Recording, claims: Sequence[tuple[int, int, int]]) -> None:
        world = World()
        outside = (recording.source < 0).nonzero()[0].tolist()
        world.begin([recording.operands[k] for k in outside])
        nodes = recording.nodes
        guards: dict[int, tuple[Value, int]] = {}
        gone: set[int] = set()
        place = 0
        for start, period, trips in claims:
            for node in nodes[place:start]:
                world.keep(node)
            place = start
            for peeled in range(MOST_PEELED + 1):
                begin, left = start + peeled * period, trips - peeled
                if not enough(period, left):
                    break
                for node in nodes[place:begin]:
                    world.keep(node)
                place = begin
                loop = Loop(recording, world, begin, period, left, self._seen)
                try:
                    summary, looks = loop.roll()
                except Irregular as reason:
                    self.declined.append(Declined(reason.node.site, reason.reason))
                    if not reason.starts_late:
                        break
                    continue
                self.loops.append(summary)
                for number, value, expected in looks:
                    guards[number] = value, expected
                gone |= loop.checked
                place = begin + left * period
                break
        for node in nodes[place:]:
            world.keep(node)
        self.looks = [
            (number, Look(*guards[number]) if number in guards else look)
            for number, look in self.looks
            if number in guards or number not in gone
        ]
        values = world.spelt_out([*self.ends, *[look.value for _, look in self.looks]])
        self.nodes = world.nodes
        self.ends = values[: len(self.ends)]
        self.looks = [
            (number, Look(value, look.expected))
            for (number, look), value in zip(self.looks, values[len(self.ends) :], strict=True)
        ]


def _serial(node: Node) -> int:
    return node.serial


def _in_order(nodes: Sequence[Node]) -> bool:
    """Return whether each node comes after what it takes: not so where a value was given another history."""
    serials = {node.serial for node in nodes}
    return all(
        value.node is None or value.node.serial < node.serial or value.node.serial not in serials
        for node in nodes
        for value in node.inputs
    )


def _free(taken: np.ndarray, low: int, high: int) -> list[tuple[int, int]]:  # type: ignore[type-arg]
    """Return the stretches between `low` and `high` that are not taken."""
    edges = np.diff(np.concatenate([[True], taken[low:high], [True]]).astype(np.int8))
    begins, ends = np.flatnonzero(edges == -1), np.flatnonzero(edges == 1)
    return [(low + int(a), low + int(b)) for a, b in zip(begins, ends, strict=True)]
