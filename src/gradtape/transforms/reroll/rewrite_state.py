"""What has become of a recording: the nodes that are left, and what stands for the values that are gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.ir.builder import at
from gradtape.ir.graph import Literal, Node, TraceTag, Value, constant, extract
from gradtape.ir.types import aval
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import expand_row, pad_row, permute, permute_row, reshape, reshape_row, slice_row
from gradtape.transforms.reroll.per_iteration import MOST_ELEMENTS, Element, picked_rows

REARRANGING: Final = frozenset({slice_row, reshape_row, permute_row})
"""Ops that are done to all rows at once."""

MOST_PIECES: Final = 8
"""Pieces of which the elements of a loop may be joined where they are not the rows of one array."""


MOST_WAYS: Final = 8
"""Arrays whose rows may take turns in a list."""


class Irregular(Exception):
    """A loop cannot be rolled for this reason."""

    def __init__(self, reason: str, node: Node, *, starts_late: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node
        self.starts_late = starts_late


class World:
    """The nodes that stand for those of a recording.

    Parameters
    ----------
    leaves : collection of Value
        Leaves that may be brought together in one array.
    stacks : list of tuple
        Receives such arrays, each with the leaves that are its rows.

    Attributes
    ----------
    nodes : list of Node
        In order.
    """

    __slots__ = ("_becomes", "_elements", "_leaves", "_listed", "_numbers", "_read", "_stacks", "nodes")

    def __init__(self, leaves: Collection[Value], stacks: list[tuple[Value, Sequence[Value]]]) -> None:
        self.nodes: list[Node] = []
        self._leaves = leaves
        self._stacks = stacks
        self._becomes: dict[Value, Value] = {}
        self._elements: dict[Value, Element] = {}
        self._listed: set[Node] = set()
        self._numbers: dict[Any, Value] = {}
        self._read: dict[Value, Value] = {}

    def begin(self, outside: Iterable[Value]) -> None:
        """Begin a new list of nodes; these values come from outside of it."""
        self.nodes = []
        self._listed = {value.node for value in outside if value.node is not None}

    def of(self, value: Value) -> Value:
        """Return what a value has become; an element may be a mere sign for it."""
        becomes = self._becomes
        while value in becomes:
            value = becomes[value]
        return value

    def becomes(self, old: Value, new: Value) -> None:
        self._becomes[old] = new

    def becomes_element(self, old: Value, rows: Value, turn: int) -> None:
        """Let a row of an array stand for a value."""
        sign = Value(old.aval, tags=old.tags)
        self._elements[sign] = Element(rows, turn)
        self._becomes[old] = sign

    def actual(self, value: Value) -> Value:
        """Return the value that a sign stands for."""
        element = self._elements.get(value)
        if element is None:
            return value
        found = self._read.get(value)
        if found is None:
            found = self._read[value] = Element(self.of(element.rows), element.turn).read()
            self.place([found])
        return found

    def keep(self, node: Node) -> None:
        """Append a node of the recording."""
        inputs = node.inputs
        becomes = self._becomes
        if any(value in becomes for value in inputs):
            inputs = tuple([becomes.get(value, value) for value in inputs])
            element = self._elements.get(inputs[0])
            if element is not None and node.op in REARRANGING:
                self.becomes_element(node.out, self._rearranged(element.rows, node), element.turn)
                return
            if isinstance(node.op, Join) and len(inputs) > MOST_PIECES:
                joined = self._joined(inputs, node.params["axis"])
                if joined is not None:
                    self.place([joined])
                    self._becomes[node.out] = joined
                    return
            node = self._copy(node, inputs)
        self._append(node)

    def _rearranged(self, rows: Value, node: Node) -> Value:
        """Return all rows, rearranged as one of them is."""
        op: IndexMap = node.op  # type: ignore[assignment]
        key = rows, op, tuple(node.params.items())
        found = self._numbers.get(key)
        if found is None:
            with at(node.site):
                found = op(rows, **op.lead(rows.shape[0], **node.params))
            self.place([found])
            self._numbers[key] = found
        return found

    def _copy(self, node: Node, inputs: tuple[Value, ...]) -> Node:
        copy = node.copy(inputs)
        for old, new in zip(node.outs, copy.outs, strict=True):
            new.tags = old.tags
            new.aval = old.aval
            self._becomes[old] = new
        copy.set_tags(node.tags)
        return copy

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        self._listed.add(node)

    def place(self, values: Iterable[Value]) -> None:
        """Append what computes new values, tagged as what they are made of."""
        listed = self._listed
        nodes, _ = extract(values, (), lambda value: value.node is None or value.node in listed)
        for node in nodes:
            tags: tuple[TraceTag, ...] = ()
            for value in node.inputs:
                tags = (*tags, *[tag for tag in value.tags if not tag.over and tag not in tags])
            for out in node.outs:
                out.tags = tags
            node.set_tags(tags)
            self._append(node)

    def spelt_out(self, ends: Sequence[Value]) -> list[Value]:
        """Replace all signs by the rows that they stand for; return the ends."""
        if self._elements:
            nodes, self.nodes = self.nodes, []
            self._listed.difference_update(nodes)
            for node in nodes:
                if any(value in self._elements or value in self._becomes for value in node.inputs):
                    inputs = tuple([self.actual(self.of(value)) for value in node.inputs])
                    node = self._copy(node, inputs)
                self._append(node)
        return [self.actual(self.of(value)) for value in ends]

    def number(self, array: np.ndarray[Any, Any]) -> Value:
        """Return an array as a constant: equal ones are one."""
        key = (array.dtype, array.shape, array.tobytes())
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = constant(array)
        return found

    def stacked(self, values: Sequence[Value], node: Node) -> Value:
        """Return an array with these values as its rows.

        Raises
        ------
        Irregular
            Where they differ in type, or are large arrays.
        """
        first = values[0].aval
        for value in values:
            if value.shape != first.shape or value.dtype != first.dtype:
                raise Irregular("an input changes its type", node, starts_late=True)
        if self._leaves and len(values) > MOST_PIECES and all(value in self._leaves for value in values):
            whole = Value(aval((len(values), *first.shape), first.dtype))
            self._stacks.append((whole, values))
            return whole
        pieces = self._pieces(values)
        if len(pieces) == 1:
            return pieces[0]
        if len(pieces) > MOST_PIECES and first.size * len(values) > MOST_ELEMENTS:
            raise Irregular("each turn reads another large array", node)
        return join(pieces, 0)

    def _pieces(self, values: Sequence[Value]) -> list[Value]:
        """Return arrays whose rows are these values: as few as there are."""
        pieces: list[Value] = []
        numbers: list[Any] = []
        for place, rows in self._runs(values):
            if rows is None and _is_number(values[place]):
                numbers.append(values[place].data)
                continue
            if numbers:
                pieces.append(self.number(np.stack(numbers)))
                numbers = []
            if rows is None:
                value = values[place]
                whole = literal_array(value) if isinstance(value, Literal) else value
                rows = reshape(whole, (1, *value.shape))
            pieces.append(rows)
        if numbers:
            pieces.append(self.number(np.stack(numbers)))
        return pieces

    def _runs(self, values: Sequence[Value]) -> list[tuple[int, Value | None]]:
        """Return the places where rows begin, with as many of them as follow each other; and the places of other values."""
        found: list[tuple[int, Value | None]] = []
        elements = [self._elements.get(value) for value in values]
        place = 0
        while place < len(elements):
            element = elements[place]
            if element is None:
                found.append((place, None))
                place += 1
                continue
            ways = self._ways(elements, place)
            if ways == 1:
                last = place
                while last < len(elements) and _rows_at(elements, last) is element.rows:
                    last += 1
                turns = [one.turn for one in elements[place:last] if one is not None]
                found.append((place, picked_rows(element.rows, turns)))
            else:
                last = place + ways
                while last < len(elements) and _follows(elements[last - ways], elements[last]):
                    last += 1
                last -= (last - place) % ways
                columns = []
                for offset in range(ways):
                    own = elements[place + offset : last : ways]
                    rows = picked_rows(own[0].rows, [one.turn for one in own if one is not None])  # type: ignore[union-attr]
                    columns.append(reshape(rows, (rows.shape[0], 1, *rows.shape[1:])))
                whole = join(columns, 1)
                found.append((place, reshape(whole, (last - place, *whole.shape[2:]))))
            place = last
        return found

    @staticmethod
    def _ways(elements: Sequence[Element | None], place: int) -> int:
        """Return how many arrays take turns in a sequence of rows; 1 also where they do so without order."""
        first = elements[place]
        for ways in range(1, MOST_WAYS + 1):
            after = elements[place + ways] if place + ways < len(elements) else None
            if after is None:
                return 1
            if first is not None and after.rows is first.rows:
                return ways if _follows(first, after) else 1
        return 1

    def _joined(self, inputs: Sequence[Value], axis: int) -> Value | None:
        """Return what a join of rows comes to without taking them apart, if they are rows."""
        pieces: list[Value] = []
        changed = False
        for place, rows in self._runs(inputs):
            if rows is None:
                pieces.append(inputs[place])
                continue
            shape = rows.shape[1:]
            front = laid_out(permute(rows, (*range(1, axis + 1), 0, *range(axis + 1, rows.ndim))))
            pieces.append(reshape(front, (*shape[:axis], rows.shape[0] * shape[axis], *shape[axis + 1 :])))
            changed = True
        if not changed:
            return None
        return pieces[0] if len(pieces) == 1 else join(pieces, axis)


def _rows_at(elements: Sequence[Element | None], place: int) -> Value | None:
    element = elements[place]
    return None if element is None else element.rows


def _follows(before: Element | None, after: Element | None) -> bool:
    """Return whether one is the row after another."""
    return (
        before is not None
        and after is not None
        and after.rows is before.rows
        and after.turn == before.turn + 1
    )


def laid_out(x: Value) -> Value:
    """Return `x` as a join would make it: NumPy's sums depend on the order in memory."""
    return (
        x
        if not x.node or x.node.op is not permute_row
        else pad_row(x, shape=x.shape, starts=(0,) * x.ndim, strides=(1,) * x.ndim)
    )


def literal_array(value: Literal) -> Value:
    """Return a number as an array of rank 0."""
    return expand_row(value, shape=(), axes=())


def spread_number(value: Literal, like: Value) -> Value:
    """Return a number as an array of this type."""
    assert value.data is not None
    number = Literal(aval((), like.dtype), data=value.data.astype(like.dtype))
    return expand_row(number, shape=like.shape, axes=())


def _is_number(value: Value) -> bool:
    if value.data is None or value.node is not None or value.tags:
        return False
    return isinstance(value, Literal) or value.owner is None or value.owner() is None
