"""Patterns: records to be found again. To compare a record with one that is expected is quicker than to describe it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..ir.graph import Literal, Mark, Node, Value
from ..ir.op import Op
from ..ir.types import Aval


class _Step(NamedTuple):
    """A value that a node computes: its place among all values, what computes it, and the places of the node's inputs."""

    place: int
    op: Op
    params: dict[str, Any]
    output: int
    operands: tuple[int, ...]


class _Leaf(NamedTuple):
    """A value at which a record begins: its place, its type, and whether it is followed."""

    place: int
    type: Aval
    marked: bool


class Pattern:
    """A record from its ends back to its leaves, without the values.

    Parameters
    ----------
    ends : sequence of Value
        Each another.
    nodes : sequence of Node
        What lies between, in topological order.
    leaves : sequence of Value
        Where it begins; literals are not among them.
    mark : Mark or None
        Whose record it is; None for work that waits, which begins at values that are known.
    """

    __slots__ = ("_blank", "_count", "_leaves", "_steps")

    def __init__(
        self, ends: Sequence[Value], nodes: Sequence[Node], leaves: Sequence[Value], mark: Mark | None
    ) -> None:
        used = [*ends, *leaves, *[value for node in nodes for value in node.inputs]]
        places = {value: place for place, value in enumerate(dict.fromkeys(used))}
        self._count = len(ends)
        self._blank = [value if isinstance(value, Literal) else None for value in places][len(ends) :]
        self._steps = [
            _Step(places[out], node.op, node.params, index, tuple([places[value] for value in node.inputs]))
            for node in reversed(nodes)
            for index, out in enumerate(node.outs)
            if out in places
        ]
        self._leaves = [_Leaf(places[leaf], leaf.aval, mark in leaf.marks) for leaf in leaves]

    def leaves_of(self, values: Sequence[Value]) -> list[Value]:
        """Return the leaves among the values of a record like this one."""
        return [values[leaf.place] for leaf in self._leaves]

    def match(self, ends: Sequence[Value], mark: Mark | None) -> list[Value] | None:
        """Return the values of the record behind `ends` if it is like this one: in the same order, ends first."""
        if len(ends) != self._count:
            return None
        values: list[Any] = [*ends, *self._blank]
        for place, op, params, output, operands in self._steps:
            value = values[place]
            found = value.maker()
            if found is None or found[0] is not op or value.index != output:
                return None
            if value.data is not None if mark is None else mark not in value.marks:
                return None
            _, inputs, given = found
            if given is not params and _differ(given, params):
                return None
            if len(inputs) != len(operands):
                return None
            for at, operand in zip(operands, inputs):  # noqa: B905 - as long, and asked for at each node
                known = values[at]
                if known is None:
                    values[at] = operand
                elif known is not operand and not _same_number(known, operand):
                    return None
        for place, type_, marked in self._leaves:
            value = values[place]
            if value.aval is not type_ or isinstance(value, Literal) or (mark in value.marks) is not marked:
                return None
            if value.data is None if mark is None else marked and not begins(value, mark):
                return None
        # One value in two places is another record: gradients add up there.
        return values if len(set(values)) == len(values) else None


def begins(value: Value, mark: Mark) -> bool:
    """Return whether a record goes back to a value but not beyond: it is not followed, or was watched and made of nothing that is."""
    if mark not in value.marks:
        return True
    node = value.node
    return node is None or all(mark not in operand.marks for operand in node.inputs)


def _differ(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    try:
        return found != expected
    except ValueError:  # of a parameter that is an array, which no pattern has
        return True


def _same_number(expected: Any, found: Value) -> bool:
    if not isinstance(expected, Literal) or not isinstance(found, Literal):
        return False
    here, there = expected.data, found.data
    assert here is not None
    assert there is not None
    return here.dtype == there.dtype and here.tobytes() == there.tobytes()
