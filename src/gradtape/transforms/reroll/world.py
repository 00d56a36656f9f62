"""What has become of a recording: the nodes that are left, and what stands for the values that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from ...ir.builder import at
from ...ir.graph import Literal, Mark, Node, Value, constant, extract
from ...ir.types import aval
from ...kinds.index_map import IndexMap
from ...kinds.join import Join
from ...ops.join import join
from ...ops.shape import expand_row, pad_row, permute, permute_row, reshape, reshape_row, slice_row
from .rows import MOST_ELEMENTS, Element, picked_rows

REARRANGING: Final = frozenset({slice_row, reshape_row, permute_row})
"""Ops that are done to all rows at once."""

MOST_PIECES: Final = 8
"""Pieces of which the elements of a loop may be joined where they are not the rows of one array."""


class Irregular(Exception):
    """A loop cannot be rolled for this reason."""

    def __init__(self, reason: str, node: Node, *, starts_late: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node
        self.starts_late = starts_late


class World:
    """The nodes that stand for those of a recording.

    Attributes
    ----------
    nodes : list of Node
        In order.
    """

    __slots__ = ("_becomes", "_elements", "_listed", "_numbers", "_read", "nodes")

    def __init__(self) -> None:
        self.nodes: list[Node] = []
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
        sign = Value(old.aval, marks=old.marks)
        self._elements[sign] = Element(rows, turn)
        self._becomes[old] = sign

    def actual(self, value: Value) -> Value:
        """Return the value that a sign stands for."""
        element = self._elements.get(value)
        if element is None:
            return value
        found = self._read.get(value)
        if found is None:
            found = self._read[value] = element.read()
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
            new.marks = old.marks
            new.aval = old.aval
            self._becomes[old] = new
        copy.set_marks(node.marks)
        return copy

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        self._listed.add(node)

    def place(self, values: Iterable[Value]) -> None:
        """Append what computes new values, marked as what they are made of."""
        listed = self._listed
        nodes, _ = extract(values, (), lambda value: value.node is None or value.node in listed)
        for node in nodes:
            marks: tuple[Mark, ...] = ()
            for value in node.inputs:
                marks = (*marks, *[mark for mark in value.marks if not mark.over and mark not in marks])
            for out in node.outs:
                out.marks = marks
            node.set_marks(marks)
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
        rows: Value | None = None
        turns: list[int] = []

        def flush() -> None:
            nonlocal numbers, rows, turns
            if numbers:
                pieces.append(self.number(np.stack(numbers)))
            if rows is not None:
                pieces.append(picked_rows(rows, turns))
            numbers, rows, turns = [], None, []

        for value in values:
            element = self._elements.get(value)
            if element is not None:
                if rows is not element.rows:
                    flush()
                    rows = element.rows
                turns.append(element.turn)
            elif _is_number(value):
                if not numbers:
                    flush()
                numbers.append(value.data)
            else:
                flush()
                whole = literal_array(value) if isinstance(value, Literal) else value
                pieces.append(reshape(whole, (1, *value.shape)))
        flush()
        return pieces

    def _joined(self, inputs: Sequence[Value], axis: int) -> Value | None:
        """Return what a join of rows comes to without taking them apart, if they are rows."""
        pieces: list[Value] = []
        k = 0
        changed = False
        while k < len(inputs):
            element = self._elements.get(inputs[k])
            if element is None:
                pieces.append(inputs[k])
                k += 1
                continue
            turns = []
            while k < len(inputs) and (other := self._elements.get(inputs[k])) is not None:
                if other.rows is not element.rows:
                    break
                turns.append(other.turn)
                k += 1
            rows = picked_rows(element.rows, turns)
            shape = rows.shape[1:]
            front = laid_out(permute(rows, (*range(1, axis + 1), 0, *range(axis + 1, rows.ndim))))
            extent = len(turns) * shape[axis]
            pieces.append(reshape(front, (*shape[:axis], extent, *shape[axis + 1 :])))
            changed = True
        if not changed:
            return None
        return pieces[0] if len(pieces) == 1 else join(pieces, axis)


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
    if value.data is None or value.node is not None or value.marks:
        return False
    return isinstance(value, Literal) or value.owner is None or value.owner() is None
