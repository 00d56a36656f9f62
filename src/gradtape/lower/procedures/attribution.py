"""Attribution in procedures: what is done for which line of the user's code, how often, and what flows from where to where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

from gradtape.costs import PASSING, UNKNOWN_TRIP_COUNT
from gradtape.ir.graph import Node, Value, extract, number_of
from gradtape.lower.schedule.costs import cost_of
from gradtape.procedures.affine import linear_form
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    Content,
    For,
    If,
    Load,
    Memory,
    Pop,
    Procedure,
    Push,
    Read,
    Span,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.tape import item_size
from gradtape.procedures.traversal import site_of, walk
from gradtape.records import record
from gradtape.transforms.observers import DerivativeSite

Item: TypeAlias = Node | Statement
"""What a step does: a node of the scalar code, or a statement."""


@record
class Step:
    """Something that a procedure does, for which there is one place.

    Attributes
    ----------
    item : Node or Statement
    name : str
        Of the op, or of what kind the statement is.
    type : str
        Of what it makes.
    site : Site or None
        The user's line.
    parent, part : int and str
        The number of the loop or branch around it, -1 for none; and in which of its blocks, if there are several.
    backward : bool
        Whether it belongs to the reverse sweep.
    operations, moved : float and int
        Numbers computed, and bytes loaded and stored, in one run. Trip counts that follow from data are estimated.
    cost : float
        What all of it costs in one run, in additions.
    inputs : list of (int, str)
        The steps of the same block from which something comes, and its type.
    """

    item: Item
    name: str
    type: str
    site: Any
    parent: int
    part: str
    backward: bool = False
    operations: float = 0.0
    moved: int = 0
    cost: float = 0.0
    inputs: list[tuple[int, str]] = field(default_factory=list)


def describe_procedure(procedure: Procedure) -> list[Step]:
    """Return what a procedure does, in the order of its statements; nodes stand where they are used first."""
    return _Description(procedure).steps


class _Description:
    """The steps of a procedure, with what each leaf, variable and memory came from."""

    def __init__(self, procedure: Procedure) -> None:
        self.steps: list[Step] = []
        self._made: dict[Content | Variable | Memory, int] = {}
        self._trips: dict[Value, float] = {}
        self._backward = False
        for statement in procedure.body:
            # What follows the first statement of the reverse sweep belongs to that.
            self._backward = self._backward or any(map(_is_backward, walk([statement])))
            self._statement(statement, -1, "", 1.0)

    def _block(self, statements: Sequence[Statement], parent: int, part: str, trips: float) -> None:
        before = dict(self._made)
        for statement in statements:
            self._statement(statement, parent, part, trips)
        # Scalar code is computed again in the next block; what is stored stays.
        before.update((x, made) for x, made in self._made.items() if isinstance(x, Variable | Memory))
        self._made = before

    def _statement(self, statement: Statement, parent: int, part: str, trips: float) -> None:
        """Add the steps of a statement, and of the nodes that it needs."""
        used = list(statement.uses())
        if isinstance(statement, While):
            used = []  # its condition is computed in its test
        for content in used:
            self._nodes(content, parent, part, trips)
        if isinstance(statement, Read):
            if statement.variable in self._made:
                self._made[statement.out] = self._made[statement.variable]
            return
        moved, type_ = _moved(statement), _type(statement)
        number = self._add(statement, _NAMES[type(statement)], type_, site_of(statement), parent, part)
        step = self.steps[number]
        step.moved, step.cost = int(trips * moved), trips * _cost(statement)
        if isinstance(statement, Apply):
            nodes = statement.graph.nodes
            step.operations = trips * sum(out.size for node in nodes for out in node.outs)
            step.name = ", ".join(dict.fromkeys(node.op.name for node in nodes)) or step.name
        for content in used:
            self._flow(self._made.get(content), number, _type_of(content))
        for place in _places_read(statement):
            self._flow(self._made.get(place), number, place.name)
        if isinstance(statement, For):
            count = self._count(statement.count)
            known = number_of(statement.count)
            step.type = f"{int(known)} times" if known is not None else f"about {count:.0f} times"
            self._trips[statement.index] = (count - 1) / 2
            self._block(statement.body, number, "body", trips * count)
        elif isinstance(statement, While):
            self._block(statement.test, number, "condition", trips * UNKNOWN_TRIP_COUNT)
            self._nodes(statement.condition, number, "condition", trips * UNKNOWN_TRIP_COUNT)
            self._block(statement.body, number, "body", trips * UNKNOWN_TRIP_COUNT)
        elif isinstance(statement, If):
            taken = trips / 2 if statement.then and statement.otherwise else trips
            self._block(statement.then, number, "then", taken)
            self._block(statement.otherwise, number, "else", taken)
        for out in _defined(statement):
            self._made[out] = number
        for written in _places_written(statement):
            self._made[written] = number

    def _nodes(self, content: Content, parent: int, part: str, trips: float) -> None:
        """Add the nodes that compute a value, as far as they are not known here."""
        if not isinstance(content, Value) or not content.is_made or content in self._made:
            return
        nodes, _ = extract([content], stop=lambda value: value in self._made or not value.is_made)
        for node in nodes:
            if any(out in self._made for out in node.outs):
                continue
            number = self._add(node, node.op.name, _type_of(node.out), node.site, parent, part)
            step = self.steps[number]
            step.operations, step.cost = trips, trips * max(cost_of(node), 1.0)
            for value in node.inputs:
                self._flow(self._made.get(value), number, _type_of(value))
            self._made.update((out, number) for out in node.outs)

    def _add(self, item: Item, name: str, type_: str, site: Any, parent: int, part: str) -> int:
        self.steps.append(Step(item, name, type_, site, parent, part, self._backward))
        return len(self.steps) - 1

    def _flow(self, source: int | None, target: int, type_: str) -> None:
        """Note what flows between two steps, at the innermost block that holds both."""
        if source is None:
            return
        above = {at: inside for inside, at in self._upwards(source)}
        for inside, at in self._upwards(target):
            if at in above:
                edge = above[at], type_
                if above[at] < inside and edge not in self.steps[inside].inputs:
                    self.steps[inside].inputs.append(edge)
                return

    def _upwards(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield a step and its parent, then the parent and that of it, and so on."""
        while number >= 0:
            parent = self.steps[number].parent
            yield number, parent
            number = parent

    def _count(self, value: Value) -> float:
        """Return a trip count, in the middle of the loops around."""
        total = 0.0
        for atom, factor in linear_form(value).items():
            known = 1.0 if atom is None else self._trips.get(atom)
            if known is None:
                return UNKNOWN_TRIP_COUNT
            total += factor * known
        return max(total, 0.0)


_NAMES: Final[Mapping[type[Statement], str]] = {
    Load: "load",
    Store: "store",
    Assign: "assign",
    Allocate: "allocate",
    Check: "check",
    Apply: "arrays",
    For: "for",
    While: "while",
    If: "if",
    Push: "record",
    Pop: "recall",
}


def _is_backward(statement: Statement) -> bool:
    """Return whether a statement belongs to a reverse sweep, as far as it tells; a forward sweep records what is part of a derivative."""
    site = site_of(statement)
    is_derivative = isinstance(site, DerivativeSite) and site.backward
    return isinstance(statement, Pop) or (is_derivative and not isinstance(statement, Push))


def _cost(statement: Statement) -> float:
    if isinstance(statement, Load | Store):
        return PASSING
    if isinstance(statement, Push | Pop):
        return PASSING * len(_entries(statement))
    if isinstance(statement, Apply):
        nodes = statement.graph.nodes
        return sum(max(cost_of(node), 1.0) * out.size for node in nodes for out in node.outs)
    return 0.0


def _moved(statement: Statement) -> int:
    """Return the bytes that a statement loads and stores when it is run once."""
    if isinstance(statement, Load | Store):
        return statement.pointer.dtype.itemsize
    if isinstance(statement, Push | Pop):
        return sum(map(item_size, _entries(statement)))
    if isinstance(statement, Apply):
        spans = [x for x in (*statement.inputs, *statement.outputs) if isinstance(x, Span)]
        return sum(span.aval.size * span.aval.dtype.itemsize for span in spans)
    return 0


def _entries(statement: Push | Pop) -> tuple[Content, ...]:
    return statement.values if isinstance(statement, Push) else statement.outs


def _type(statement: Statement) -> str:
    """Return what is made, or where it is put."""
    if isinstance(statement, Load):
        return f"{statement.out.dtype} of {statement.pointer.name}"
    if isinstance(statement, Store):
        return f"{statement.value.dtype} in {statement.pointer.name}"
    if isinstance(statement, Assign):
        return statement.variable.name
    if isinstance(statement, Allocate):
        return statement.out.name
    return ""


def _type_of(content: Content) -> str:
    return content.dtype.name if isinstance(content, Value) else content.name


def _defined(statement: Statement) -> Iterable[Content]:
    if isinstance(statement, Load | Allocate):
        return (statement.out,)
    return statement.outs if isinstance(statement, Pop) else ()


def _places_read(statement: Statement) -> Iterable[Memory]:
    if isinstance(statement, Load):
        return (statement.pointer.memory,)
    if isinstance(statement, Apply):
        return [x.pointer.memory for x in statement.inputs if isinstance(x, Span)]
    return ()


def _places_written(statement: Statement) -> Iterable[Memory | Variable]:
    if isinstance(statement, Store):
        return (statement.pointer.memory,)
    if isinstance(statement, Assign):
        return (statement.variable,)
    if isinstance(statement, Apply):
        return [span.pointer.memory for span in statement.outputs]
    return ()
