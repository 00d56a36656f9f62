"""Loops taken apart: what goes in, what is carried, what is left behind, each with what stands for it in the body."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from gradtape.errors import InternalError
from gradtape.ir.body import Body
from gradtape.ir.builder import at, emit_all, keep_names
from gradtape.ir.graph import Node, Value, extract
from gradtape.ir.types import aval
from gradtape.kinds.control import Structured

T = TypeVar("T")


class Given(NamedTuple):
    """Something that a body reads: outside of the loop, and what stands for it inside."""

    outside: Value
    inside: Value


class Carry(NamedTuple):
    """Something that is carried: its start outside of the loop, what stands for it in a turn, and what it is after the turn."""

    start: Value
    inside: Value
    after: Value


class Outcome(NamedTuple):
    """The outputs of a loop."""

    carries: Sequence[Value]
    left: Sequence[Value]
    turns: Value | None


@dataclass(slots=True)
class Draft:
    """A loop that is open to changes.

    Attributes
    ----------
    op : Loop
        What runs it.
    params : dict
        Its parameters other than bodies and numbers of operands.
    index : Value
        The turn's number.
    consts, elements : list of Given
        What is the same in each turn, and what each turn takes one element of.
    carries : list of Carry
        From turn to turn.
    left : list of Value
        What each turn leaves behind.
    test : Value or None
        Whether the loop goes on, of the same values in the body.
    count : Value or None
        The number of turns where it is an operand.
    """

    op: Loop
    params: dict[str, Any]
    index: Value
    consts: list[Given] = field(default_factory=list)
    carries: list[Carry] = field(default_factory=list)
    elements: list[Given] = field(default_factory=list)
    left: list[Value] = field(default_factory=list)
    test: Value | None = None
    count: Value | None = None

    @property
    def ends(self) -> list[Value]:
        """What a turn computes: the next carries, what it leaves, and whether there is another turn."""
        test = [] if self.test is None else [self.test]
        return [*[carry.after for carry in self.carries], *self.left, *test]

    @property
    def operands(self) -> list[Given]:
        """What the loop reads: consts, carries, elements."""
        starts = [Given(carry.start, carry.inside) for carry in self.carries]
        return [*self.consts, *starts, *self.elements]

    @property
    def insides(self) -> list[Value]:
        """What a turn starts from."""
        return [self.index, *[given.inside for given in self.operands]]

    def split(self, facts: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
        """Return one thing per input of the node as those of consts, carries and elements."""
        given = facts[len(facts) - len(self.consts) - len(self.carries) - len(self.elements) :]
        first, second = len(self.consts), len(self.consts) + len(self.carries)
        return given[:first], given[first:second], given[second:]

    def nodes(self) -> list[Node]:
        """Return what a turn computes with, in order."""
        return extract(self.ends, self.insides)[0]

    def with_left(self, left: Sequence[Value]) -> Draft:
        """Return the same loop that leaves something else behind."""
        return Draft(
            self.op,
            self.params,
            self.index,
            self.consts,
            self.carries,
            self.elements,
            list(left),
            self.test,
            self.count,
        )

    def emit(self) -> Outcome:
        """Append the loop to the graph; what no turn reads is not passed to it."""
        ends = self.ends
        nodes, captured = extract(ends, self.insides)
        read = {value for node in nodes for value in node.inputs}.union(ends)
        consts = [given for given in self.consts if given.inside in read]
        elements = [given for given in self.elements if given.inside in read]
        for value in captured:
            if value.data is None:
                raise InternalError(f"{value!r} is neither an input of a loop's body nor known")
        inputs = [
            self.index,
            *[given.inside for given in consts],
            *captured,
            *[carry.inside for carry in self.carries],
            *[given.inside for given in elements],
        ]
        count = len(self.carries) + len(self.left)
        parts = Parts(
            close(inputs, ends[:count]),
            None if self.test is None else close(inputs, ends[count:]),
            [*[given.outside for given in consts], *captured],
            [carry.start for carry in self.carries],
            [given.outside for given in elements],
        )
        return self.op.assembled(self, parts)


class Parts(NamedTuple):
    """What a loop is emitted with."""

    body: Body
    condition: Body | None
    consts: list[Value]
    starts: list[Value]
    elements: list[Value]


class Loop(Structured):
    """An op that repeats a body."""

    @abstractmethod
    def opened(self, node: Node) -> Draft:
        """Return a loop's draft; the values inside are those of its body."""

    @abstractmethod
    def assembled(self, draft: Draft, parts: Parts) -> Outcome:
        """Append a node and return its outputs."""

    @abstractmethod
    def turned(self, draft: Draft, count: Value | None) -> Draft:
        """Return the draft of an empty loop that makes the same turns in the opposite order; `count` is their number if it is a result."""

    @abstractmethod
    def helpers(self) -> tuple[Loop, Loop]:
        """Return the ops of a loop of unknown length, and of one whose length is an operand."""

    @abstractmethod
    def switch(self) -> Structured:
        """Return the op that chooses between bodies."""

    def outs(self, outcome: Outcome) -> list[Value]:
        """Return the outputs in the order of a node's."""
        arranged = self.arranged(outcome.carries, outcome.left, outcome.turns)
        return [value for value in arranged if value is not None]

    @abstractmethod
    def parted(self, outs: Sequence[T], carries: int) -> tuple[Sequence[T], Sequence[T], T | None]:
        """Return one thing per output as those of the carries, of what is left behind, and of the number of turns."""

    @abstractmethod
    def arranged(
        self, carries: Sequence[Value | None], left: Sequence[Value | None], count: Value | None = None
    ) -> tuple[Value | None, ...]:
        """Return one thing per output of a node, from those of the carries, of what is left behind, and of the number of turns."""


def close(inputs: Sequence[Value], outputs: Sequence[Value]) -> Body:
    """Return the body that computes `outputs` from `inputs`, with inputs of its own."""
    nodes, _ = extract(outputs, inputs)
    becomes: dict[Value, Value] = {value: stand_in(value) for value in inputs}
    kept = []
    for node in nodes:
        copy = node.copy(tuple([becomes.get(value, value) for value in node.inputs]))
        before, after = node.outs, copy.outs
        keep_names(before, after)
        for out, copied in zip(before, after, strict=True):
            becomes.setdefault(out, copied)
        kept.append(copy)
    return Body([becomes[v] for v in inputs], kept, [becomes.get(v, v) for v in outputs])


def stand_in(value: Value) -> Value:
    """Return an unknown value of the same type."""
    return Value(aval(value.shape, value.dtype))


def substituted(outputs: Sequence[Value], becomes: dict[Value, Value]) -> list[Value]:
    """Return what `outputs` are when some values are replaced; what does not depend on these is shared."""
    nodes, _ = extract(outputs, becomes)
    known = dict(becomes)
    for node in nodes:
        inputs = tuple([known.get(value, value) for value in node.inputs])
        if inputs != node.inputs:
            copy = node.copy(inputs)
            before, after = node.outs, copy.outs
            keep_names(before, after)
            for out, copied in zip(before, after, strict=True):
                known.setdefault(out, copied)
    return [known.get(output, output) for output in outputs]


def emitted(outputs: Sequence[Value], becomes: dict[Value, Value]) -> list[Value]:
    """Do what `substituted` does with nodes that are followed like any others."""
    nodes, _ = extract(outputs, becomes)
    known = dict(becomes)
    for node in nodes:
        inputs = tuple([known.get(value, value) for value in node.inputs])
        if inputs != node.inputs:
            with at(node.site):
                outs = emit_all(node.op, inputs, **node.params)
            for out, made in zip(node.outs, outs, strict=True):
                known.setdefault(out, made)
    return [known.get(output, output) for output in outputs]


def nothing(value: Value) -> bool:
    """The predicate on values that holds for none: a body has no history to stop at."""
    return False
