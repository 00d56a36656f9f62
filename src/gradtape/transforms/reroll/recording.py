"""A recording as arrays of integers: a token per node, and the sources of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Node, TraceTag, Value
from gradtape.ops.core.indexing import update_row
from gradtape.ops.core.shape import slice_row
from gradtape.transforms.reroll.periods import Tokens, is_worth_a_loop

Numbers = np.ndarray[Any, np.dtype[np.int64]]

MOVING_OPS = frozenset({slice_row, update_row})
"""Ops whose starts may differ between iterations."""

MAX_CUTS: Final = 6
"""How often a part is cut where its iterations are connected differently."""


class Recording:
    """Nodes in the order in which they were recorded.

    Attributes
    ----------
    nodes : list of Node
        The nodes that the outputs depend on.
    tokens : ndarray
        Equal numbers for nodes of the same op, parameters (starts aside) and types.
    first : ndarray
        The position of each node's first input among all inputs; one more entry for the end.
    operands : list of Value
        All inputs of all nodes.
    source, output : ndarray
        For each of them, the node that computes it (-1 for values from outside), and which of its outputs it is.
    in_order : bool
        Whether the nodes are in topological order.
    last_use : ndarray
        The last node that reads an output of each node; the number of nodes for an output of the recording.
    """

    __slots__ = (
        "first",
        "in_order",
        "last_use",
        "nodes",
        "operands",
        "output",
        "place",
        "source",
        "tokens",
        "used",
    )

    def __init__(self, nodes: Sequence[Node], outputs: Iterable[Value], pinned: frozenset[Node]) -> None:
        self.nodes = nodes
        self.place = position_of = dict[Node | None, int]({node: k for k, node in enumerate(nodes)})
        operands: list[Value] = []
        counts: list[int] = [0]
        codes: dict[Any, int] = {}
        tokens: list[int] = []
        several: set[int] = set()
        for k, node in enumerate(nodes):
            inputs = node.inputs
            operands += inputs
            counts.append(len(inputs))
            types = node.types
            tags = node.tags
            key: Any
            if len(types) == 1:
                key = node.op, id(types[0]), _static_key(node) if node.params else len(inputs)
            else:
                key = node.op, types, _static_key(node), len(inputs)
                several.add(k)
            for value in inputs:
                value_tags = value.tags
                if value_tags and value_tags != tags and not _includes(tags, value_tags):
                    key = node
            if pinned and node in pinned:
                key = node
            code = codes.get(key)
            if code is None:
                code = codes[key] = len(codes)
            tokens.append(code)
        self.operands = operands
        self.tokens: Tokens = np.array(tokens, np.int64)
        self.first: Numbers = np.cumsum(counts)
        find = position_of.get
        self.source: Numbers = np.array([find(value.node, -1) for value in operands], np.int64)
        self.output: Numbers = np.array([value.index for value in operands], np.int64)
        self.last_use: Numbers = np.full(len(nodes), -1, np.int64)
        takers = np.repeat(np.arange(len(nodes)), np.diff(self.first))
        inner = self.source >= 0
        # This fails if the history of a value was replaced.
        self.in_order = bool((self.source < takers).all())
        self.last_use[self.source[inner]] = takers[inner]  # readers are in order: the last one stays
        self.used: set[tuple[int, int]] = set()
        if several:
            pairs = zip(self.source.tolist(), self.output.tolist(), strict=True)
            self.used = {pair for pair in pairs if pair[0] in several}
        for value in outputs:
            source_position = find(value.node, -1)
            if source_position >= 0:
                self.last_use[source_position] = len(nodes)
                self.used.add((source_position, value.index))

    def runs(self, period: int, low: int, high: int) -> list[tuple[int, int]]:
        """Return ``(start, trips)`` of the loops in a part whose tokens repeat, by the data flow."""
        start = self._best_start(period, low, high)
        return self._uniform_parts(period, start, (high - start) // period, is_worth_a_loop)

    def uniform(self, period: int, start: int, trips: int) -> list[tuple[int, int]]:
        """Return ``(start, trips)`` of the parts in which each iteration is connected like the one before."""
        return self._uniform_parts(period, start, trips, _at_least_two)

    def _best_start(self, period: int, low: int, high: int) -> int:
        """Return where the first iteration begins so that few values are carried."""
        middle = low + ((high - low) // period // 2) * period
        begin, end = int(self.first[middle]), int(self.first[middle + period])
        step = int(self.first[middle + period] - self.first[middle])
        takers = np.repeat(
            np.arange(middle, middle + period), np.diff(self.first[middle : middle + period + 1])
        )
        source = self.source[begin:end]
        moves = (source >= low) & (self.source[begin + step : end + step] == source + period)
        reach: dict[int, int] = {}
        for origin, taker in zip(source[moves].tolist(), takers[moves].tolist(), strict=True):
            slot = (origin - low) % period
            reach[slot] = max(reach.get(slot, 0), taker - origin)
        crossing = np.zeros(period, np.int64)
        for slot, length in reach.items():
            full_periods, remainder = divmod(length, period)
            crossing += full_periods
            end = slot + remainder + 1
            crossing[slot + 1 : min(end, period)] += 1
            crossing[: max(end - period, 0)] += 1
        lost = (high - low) // period - (high - low - np.arange(period)) // period
        return low + int(np.argmin(crossing + 2 * lost))

    def _uniform_parts(
        self, period: int, start: int, trips: int, suffice: Callable[[int, int], bool], depth: int = 0
    ) -> list[tuple[int, int]]:
        """Return the parts of ``[start, start + trips * period)`` in which each iteration is connected like the one before."""
        if not suffice(period, trips) or depth > MAX_CUTS:
            return []
        first = self.first
        step = int(first[start + period] - first[start])
        begin, end = int(first[start]), int(first[start]) + (trips - 1) * step
        before, after = self.source[begin:end], self.source[begin + step : end + step]
        same_output = self.output[begin:end] == self.output[begin + step : end + step]
        outside = before < start
        shifted = ~outside & (after == before + period) & same_output
        enters = outside & (after >= start) & (after < start + period)
        stays = outside & (after < start)
        # A value computed in one iteration and read by all later ones comes from outside the latter.
        fixed = ~outside & (after == before) & same_output
        broken = np.flatnonzero(~(shifted | enters | stays | fixed)) // max(step, 1)
        origin = (before[fixed] - start) // period
        cuts = np.unique(np.concatenate([broken, origin]))
        if not cuts.size:
            return [(start, trips)]
        edges = [-1, *cuts.tolist(), trips - 1]
        parts: list[tuple[int, int]] = []
        for edge, other in pairwise(edges):
            start_ = start + (edge + 1) * period
            parts += self._uniform_parts(period, start_, other - edge, suffice, depth + 1)
        return parts

    def first_difference(self, period: int, low: int, high: int) -> Node:
        """Return the first node of a part that is not connected like the one an iteration before."""
        begin, end = int(self.first[low]), int(self.first[high - period])
        shift = int(self.first[low + period] - self.first[low])
        before, after = self.source[begin:end], self.source[begin + shift : end + shift]
        odd = np.flatnonzero((before >= low) & (after != before + period) & (after != before))
        slot = begin + shift + int(odd[0]) if odd.size else begin
        return self.nodes[int(np.searchsorted(self.first, slot, "right")) - 1]


def _at_least_two(period: int, trips: int) -> bool:
    return trips >= 2


def _includes(tags: tuple[TraceTag, ...], input_tags: tuple[TraceTag, ...]) -> bool:
    """Return whether all recorders that record an input follow the outputs: not so where a tape had stopped."""
    return all(tag in tags or tag.over for tag in input_tags)


def _static_key(node: Node) -> Any:
    """Return a key of the parameters that must be equal in all iterations."""
    params = node.params
    if node.op in MOVING_OPS:
        return params.get("shape"), params["strides"]
    key = (len(node.inputs), *params.items())
    try:
        hash(key)
    except TypeError:  # an array, or the rule of one call
        return tuple([(name, id(value)) for name, value in params.items()])
    return key


def nodes_since(outputs: Iterable[Value], starts: Iterable[Value], moment: int) -> list[Node]:
    """Return the nodes recorded since a moment that the outputs depend on, in the order of recording."""
    stops = set(starts)
    reached: set[Node] = set()
    stack = list(outputs)
    while stack:
        value = stack.pop()
        node = value.node
        if node is None or node in reached or node.serial < moment or value in stops:
            continue
        reached.add(node)
        stack += node.inputs
    return sorted(reached, key=serial_of)


def serial_of(node: Node) -> int:
    """Return the serial number of a node: its position in the order of recording."""
    return node.serial


def live_nodes(nodes: Sequence[Node], outputs: Iterable[Value]) -> list[Node]:
    """Return the nodes that the outputs depend on, in the same order."""
    needed: set[Node | None] = {value.node for value in outputs}
    live = []
    for node in reversed(nodes):
        if node in needed:
            live.append(node)
            for value in node.inputs:
                needed.add(value.node)
    live.reverse()
    return live
