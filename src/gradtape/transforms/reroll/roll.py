"""Rerolling: the repeated nodes of an unrolled Python loop become a loop again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.cast import identity
from gradtape.ops.core.shape import slice_row
from gradtape.transforms.reroll.carries import LoopSummary, SeenGuard, guard_holds
from gradtape.transforms.reroll.loop_builder import LoopBuilder
from gradtape.transforms.reroll.periods import MIN_SAVED, is_worth_a_loop, regions
from gradtape.transforms.reroll.recording import Recording, live_nodes, serial_of
from gradtape.transforms.reroll.rewrite_state import REARRANGING, NotRollable, RewriteState
from gradtape.transforms.reroll.scan import ReplacedGuards, roll_scan
from gradtape.transforms.reroll.store_forwarding import forward_stores
from gradtape.transforms.reroll.while_loop import LoopExit, find_exits, roll_while

MAX_LEVELS: Final = 6
"""How deep loops may be nested."""

MAX_PEELED: Final = 3
"""First iterations that are peeled at most, because they differ from the others."""

MULTIPLES: Final = range(1, 13)
"""Repeats of the same ops that one iteration may consist of: two arrays that are swapped repeat every second time."""

_PASSING_ON: Final = frozenset({identity, *REARRANGING})
"""Ops that compute nothing."""


class RecordedGuard(NamedTuple):
    """A guard of the recording: a value that Python has read.

    Attributes
    ----------
    value : Value
        The value.
    expected : int
        The number that Python read.
    line : object
        The line of the user's code; None if unknown.
    bounded : bool
        For the condition of a loop: whether Python can leave the loop in another way too.
    """

    value: Value
    expected: int
    line: Any = None
    bounded: bool = True


class Declined(NamedTuple):
    """A part of a recording that repeats, and why it was not rolled."""

    site: object
    reason: str


class Rolled(NamedTuple):
    """A recording with loops.

    Attributes
    ----------
    nodes : list of Node
        In topological order.
    outputs : list of Value
        The given outputs, recomputed.
    guards : list of tuple
        The guards, each with the number of the given one at whose position it stands.
    loops : list of Summary
        Descriptions of the loops.
    stacks : list of tuple
        New leaves, each with the leaves that are its elements.
    """

    nodes: Sequence[Node]
    outputs: list[Value]
    guards: list[tuple[int, RecordedGuard]]
    loops: list[LoopSummary]
    stacks: list[tuple[Value, Sequence[Value]]]


def rolled(
    nodes: Sequence[Node],
    outputs: Sequence[Value],
    guards: Sequence[RecordedGuard] = (),
    pinned: frozenset[Node] = frozenset(),
    *,
    until: bool = False,
    leaves: Collection[Value] = (),
    declined: list[Declined] | None = None,
) -> Rolled | None:
    """Return a recording with loops in place of repeated nodes; None where there are none.

    Parameters
    ----------
    nodes : sequence of Node
        All nodes that the outputs and guards depend on.
    outputs : sequence of Value
        The values to keep.
    guards : sequence of RecordedGuard
        Guards.
    pinned : frozenset of Node
        Nodes that must stay as they are.
    until : bool
        Whether loops that Python left because of a guarded value become loops with unknown trip count.
    leaves : collection of Value
        Leaves that may be combined in one array.
    declined : list of Declined, optional
        Receives the parts that repeat and are not rolled, with the reasons.
    """
    if len(nodes) < MIN_SAVED and not until:
        return None
    ordered: Sequence[Node] = sorted(nodes, key=serial_of)
    values = [*outputs, *[guard.value for guard in guards]]
    current, values = forward_stores(ordered, values)
    numbered = list(enumerate(guards))
    loops: list[LoopSummary] = []
    stacks: list[tuple[Value, Sequence[Value]]] = []
    stacking: set[Node] = set()
    is_live = current is ordered
    for _ in range(MAX_LEVELS):
        if not is_live:
            current, is_live = live_nodes(current, values), True
        numbered = [
            (number, guard._replace(value=value))
            for (number, guard), value in zip(numbered, values[len(outputs) :], strict=True)
        ]
        state = RewriteState(leaves, stacks, stacking)
        level = _Level(current, values[: len(outputs)], numbered, pinned, until, state)
        if declined is not None:
            declined += level.declined
        if not level.loops:
            break
        loops += level.loops
        current, numbered, is_live = level.nodes, level.guards, False
        values = [*level.outputs, *[guard.value for _, guard in numbered]]
    if not loops:
        return None
    current = current if is_live else live_nodes(current, values)
    if len(current) >= len(nodes) and not until:
        return None
    return Rolled(current, values[: len(outputs)], numbered, loops, stacks)


def rolled_graph(
    graph: Graph,
    guards: Sequence[RecordedGuard] | None = None,
    *,
    until: bool = False,
    declined: list[Declined] | None = None,
) -> tuple[Graph, list[int], Rolled] | None:
    """Return a graph with loops, and for each of its guards the number of the first one that it replaces; None where there are none.

    The guards are those of the graph unless `guards` describes them; `until` and `declined` are as for `rolled`.
    """
    if guards is None:
        guards = [RecordedGuard(value, expected) for value, expected in graph.guards]
    result = rolled(graph.nodes, graph.outputs, guards, until=until, declined=declined)
    if result is None:
        return None
    pairs = [(guard.value, guard.expected) for _, guard in result.guards]
    whole = Graph(graph.inputs, result.nodes, result.outputs, graph.name, pairs)
    return whole, [number for number, _ in result.guards], result


def without_data_rolled(graph: Graph) -> Graph:
    """Return a rolled copy of a graph without guards, which keeps no value of the graph alive."""
    fresh = {value: Value(value.aval) for value in graph.inputs}
    becomes = dict(fresh)
    copies = []
    for node in in_recorded_order(graph.nodes):
        copy = node.copy(tuple([becomes.get(value, value) for value in node.inputs]))
        becomes.update(zip(node.outs, copy.outs, strict=True))
        copies.append(copy)
    outputs = [becomes.get(value, value) for value in graph.outputs]
    result = rolled(copies, outputs)
    nodes, outputs = (copies, outputs) if result is None else (result.nodes, result.outputs)
    return Graph(list(fresh.values()), nodes, outputs, graph.name)


class _Level:
    """Rolls the innermost loops of a recording."""

    def __init__(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[Value],
        guards: Sequence[tuple[int, RecordedGuard]],
        pinned: frozenset[Node],
        until: bool,
        state: RewriteState,
    ) -> None:
        self.declined: list[Declined] = []
        self.loops: list[LoopSummary] = []
        self._state = state
        self.nodes: Sequence[Node] = nodes
        self.outputs: list[Value] = list(outputs)
        self.guards = list(guards)
        if len(nodes) < MIN_SAVED and not until:
            return
        self._recording = recording = Recording(nodes, outputs, pinned)
        if not recording.in_order:
            return
        loop_exits = find_exits(recording, guards) if until else []
        claims = self._claims(loop_exits)
        if not claims and not loop_exits:
            return
        self._seen_guards = {}
        for number, guard in guards:
            position = recording.place.get(guard.value.node, -1)
            if position >= 0:
                self._seen_guards[position, guard.value.index] = SeenGuard(number, guard.expected)
        self._remaining: dict[int, tuple[Value, int]] = {}
        self._removed: set[int] = set()
        self._entered: dict[int, Value] = {}
        if claims:
            self._rewrite(
                [(start, start + period * trips, (period, trips)) for start, period, trips in claims]
            )
        else:
            self._rewrite(
                [
                    (loop_exit.start, loop_exit.start + loop_exit.period * loop_exit.trips, loop_exit)
                    for loop_exit in _disjoint(loop_exits)
                ]
            )

    def _claims(self, loop_exits: Sequence[LoopExit]) -> list[tuple[int, int, int]]:
        """Return ``(start, period, trips)`` of disjoint loops, in order; loops around an exit are left for a later level."""
        recording = self._recording
        taken = np.zeros(len(recording.nodes), bool)
        iteration_ends = np.zeros(len(recording.nodes) + 1, np.int64)
        for loop_exit in loop_exits:
            iteration_ends[
                loop_exit.start + loop_exit.period : loop_exit.start
                + loop_exit.period * loop_exit.trips
                + 1 : loop_exit.period
            ] = 1
        before = np.cumsum(iteration_ends)
        claims = []
        for period, low, high in regions(recording.tokens):
            if taken[low:high].any():
                parts = _gaps(taken, low, high)
            else:
                parts = [(low, high)]
            for begin, end in parts:
                runs = self._runs(recording, period, begin, end)
                for start, length, trips in runs:
                    if self._saves_nothing(recording.nodes[start : start + length], begin, end):
                        continue
                    stop = start + trips * length
                    if before[stop] - before[start] < 2:
                        taken[start:stop] = True
                        claims.append((start, length, trips))
        return sorted(claims)

    def _runs(self, recording: Recording, period: int, begin: int, end: int) -> list[tuple[int, int, int]]:
        """Return ``(start, period, trips)`` of loops in a part whose ops repeat."""
        for times in MULTIPLES:
            length = period * times
            if not is_worth_a_loop(length, (end - begin) // length):
                break
            runs = recording.runs(length, begin, end)
            if runs:
                return [(start, length, trips) for start, trips in runs]
        if is_worth_a_loop(period, (end - begin) // period):
            node = recording.first_difference(period, begin, end)
            reason = f"{node.op.name} takes what it did not take an iteration before"
            self.declined.append(Declined(node.site, reason))
        return []

    def _saves_nothing(self, iteration: Sequence[Node], begin: int, end: int) -> bool:
        """Return whether a loop in this part would only put together what it reads, or take it apart for the outputs."""
        if self._state.stacking.issuperset(iteration):
            return True
        ops = {node.op for node in iteration}
        if not ops <= _PASSING_ON:
            return False
        recording = self._recording
        read_later = recording.source[recording.first[end] :]
        return slice_row not in ops or not ((begin <= read_later) & (read_later < end)).any()

    def _rewrite(self, claims: Sequence[tuple[int, int, tuple[int, int] | LoopExit]]) -> None:
        """Replace disjoint parts of the recording by loops: ``(first node, end, (period, trips) or loop exit)``, in order."""
        recording = self._recording
        state = self._state
        outside = (recording.source < 0).nonzero()[0].tolist()
        state.begin([recording.operands[k] for k in outside])
        position = 0
        for start, stop, loop in claims:
            for node in recording.nodes[position:start]:
                state.append_recorded(node)
            if isinstance(loop, LoopExit):
                position = stop if self._roll_while(state, loop) else start
            else:
                position = self._roll_scan(state, start, *loop)
        for node in recording.nodes[position:]:
            state.append_recorded(node)
        self.guards = [
            (number, guard._replace(value=value, expected=expected))
            for number, guard in self.guards
            for value, expected in self._current_guards(number, guard)
        ]
        values = state.materialise_all([*self.outputs, *[guard.value for _, guard in self.guards]])
        self.nodes = state.nodes
        self.outputs = values[: len(self.outputs)]
        self.guards = [
            (number, guard._replace(value=value))
            for (number, guard), value in zip(self.guards, values[len(self.outputs) :], strict=True)
        ]

    def _current_guards(self, number: int, guard: RecordedGuard) -> list[tuple[Value, int]]:
        """Return the current form of a guard; empty where a loop has replaced it."""
        if number in self._remaining:
            return [self._remaining[number]]
        return [] if number in self._removed else [(guard.value, guard.expected)]

    def _roll_scan(self, state: RewriteState, start: int, period: int, trips: int) -> int:
        """Replace nodes by a loop; return the position after them."""
        position = start
        for peeled in range(MAX_PEELED + 1):
            begin, trips_left = start + peeled * period, trips - peeled
            if not is_worth_a_loop(period, trips_left):
                break
            for node in self._recording.nodes[position:begin]:
                state.append_recorded(node)
            position = begin
            try:
                loop = LoopBuilder(self._recording, state, begin, period, trips_left, open_ended=False)
                summary, replaced = roll_scan(loop, self._seen_guards)
            except NotRollable as reason:
                self.declined.append(Declined(reason.node.site, reason.reason))
                if not reason.peelable:
                    break
                continue
            self._note(summary, replaced)
            return begin + trips_left * period
        return position

    def _roll_while(self, state: RewriteState, loop_exit: LoopExit) -> bool:
        try:
            loop = LoopBuilder(
                self._recording, state, loop_exit.start, loop_exit.period, loop_exit.trips, open_ended=True
            )
            entered = self._entry_condition(state, loop_exit)
            summary, replaced = roll_while(loop, self._seen_guards, loop_exit, entered)
        except NotRollable as reason:
            self.declined.append(Declined(reason.node.site, reason.reason))
            return False
        self._note(summary, replaced)
        return True

    def _entry_condition(self, state: RewriteState, loop_exit: LoopExit) -> Value:
        """Return whether a loop has a first iteration: in a call with other branches before it, it might never end."""
        entered: Value | None = None
        for number, guard in self.guards:
            if number > loop_exit.first:
                break
            condition = self._entered.get(number)
            if condition is None:
                parts = [
                    guard_holds(state.materialise(state.current(value)), expected)
                    for value, expected in self._current_guards(number, guard)
                ]
                for part in parts:
                    condition = part if entered is None else UFUNCS["logical_and"](entered, part)
                    state.place([condition])
                if condition is not None:
                    self._entered[number] = condition
            entered = entered if condition is None else condition
        assert entered is not None
        return entered

    def _note(self, summary: LoopSummary, replaced: ReplacedGuards) -> None:
        self.loops.append(summary)
        self._removed |= replaced.removed
        for number, value, expected in replaced.remaining:
            self._remaining[number] = value, expected


def _disjoint(loop_exits: Sequence[LoopExit]) -> list[LoopExit]:
    """Return the loops that do not overlap an earlier one."""
    kept: list[LoopExit] = []
    for loop_exit in loop_exits:
        if not kept or kept[-1].start + kept[-1].period * kept[-1].trips <= loop_exit.start:
            kept.append(loop_exit)
    return kept


def in_recorded_order(nodes: Sequence[Node]) -> Sequence[Node]:
    """Return nodes in the order in which they were recorded, if that is a topological order."""
    ordered = sorted(nodes, key=serial_of)
    return ordered if _in_order(ordered) else nodes


def _in_order(nodes: Sequence[Node]) -> bool:
    """Return whether this is a topological order, which replaced histories of values may violate."""
    serials = {node.serial for node in nodes}
    return all(
        value.node is None or value.node.serial < node.serial or value.node.serial not in serials
        for node in nodes
        for value in node.inputs
    )


def _gaps(taken: np.ndarray[Any, Any], low: int, high: int) -> list[tuple[int, int]]:
    """Return the parts between `low` and `high` that are not taken."""
    edges = np.diff(np.concatenate([[True], taken[low:high], [True]]).astype(np.int8))
    begins, outputs = np.flatnonzero(edges == -1), np.flatnonzero(edges == 1)
    return [(low + int(a), low + int(b)) for a, b in zip(begins, outputs, strict=True)]
