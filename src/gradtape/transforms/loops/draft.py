"""Drafts: loops as mutable records of operands, loop-carried values and stacked outputs, each with its value in the body."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from gradtape.errors import InternalError
from gradtape.ir.body import Body
from gradtape.ir.body import make_body as make_body
from gradtape.ir.builder import at, emit_all, keep_names
from gradtape.ir.graph import Node, Value, extract
from gradtape.ir.types import aval
from gradtape.kinds.control import Structured
from gradtape.kinds.elementwise import is_same

T = TypeVar("T")


class LoopOperand(NamedTuple):
    """An operand of a loop: the value outside, and the body's input for it."""

    outer: Value
    inner: Value


class Carry(NamedTuple):
    """A loop-carried value: its initial value, the body's input for it, and the body's output that the next iteration gets."""

    init: Value
    inner: Value
    next_carry: Value


class LoopOutputs(NamedTuple):
    """The outputs of a loop."""

    carries: Sequence[Value]
    ys: Sequence[Value]
    trip_count: Value | None


@dataclass(slots=True)
class Draft:
    """A loop that can be changed before it is emitted as a node.

    Attributes
    ----------
    op : LoopOp
        Its op.
    params : dict
        Its parameters without bodies and numbers of operands.
    index : Value
        The number of the iteration, int64.
    consts, elements : list of LoopOperand
        Operands that are the same in each iteration, and those of which an iteration reads one element.
    carries : list of Carry
        The loop-carried values.
    ys : list of Value
        Outputs of the body that are stacked, one element per iteration.
    test : Value or None
        Whether there is another iteration, computed from the body's inputs.
    count : Value or None
        The trip count where it is an operand.
    """

    op: LoopOp
    params: dict[str, Any]
    index: Value
    consts: list[LoopOperand] = field(default_factory=list)
    carries: list[Carry] = field(default_factory=list)
    elements: list[LoopOperand] = field(default_factory=list)
    ys: list[Value] = field(default_factory=list)
    test: Value | None = None
    count: Value | None = None

    @property
    def body_outputs(self) -> list[Value]:
        """The next carries, the elements of `ys`, and the test."""
        test = [] if self.test is None else [self.test]
        return [*[carry.next_carry for carry in self.carries], *self.ys, *test]

    @property
    def operands(self) -> list[LoopOperand]:
        """The operands of the node: consts, initial carries, elements."""
        carries = [LoopOperand(carry.init, carry.inner) for carry in self.carries]
        return [*self.consts, *carries, *self.elements]

    @property
    def body_inputs(self) -> list[Value]:
        """The inputs of the body: index, consts, carries, elements."""
        return [self.index, *[operand.inner for operand in self.operands]]

    def split(self, facts: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
        """Split a sequence with one item per input of the node into those of consts, carries and elements."""
        of_operands = facts[len(facts) - len(self.consts) - len(self.carries) - len(self.elements) :]
        first, second = len(self.consts), len(self.consts) + len(self.carries)
        return of_operands[:first], of_operands[first:second], of_operands[second:]

    def nodes(self) -> list[Node]:
        """Return the nodes of the body, in topological order."""
        return extract(self.body_outputs, self.body_inputs)[0]

    def with_ys(self, ys: Sequence[Value]) -> Draft:
        """Return the same loop with other stacked outputs."""
        return Draft(
            self.op,
            self.params,
            self.index,
            self.consts,
            self.carries,
            self.elements,
            list(ys),
            self.test,
            self.count,
        )

    def substitute(self, becomes: dict[Value, Value]) -> None:
        """Replace values that the body reads."""
        if not becomes:
            return
        outputs = substitute(self.body_outputs, becomes)
        count = len(self.carries)
        self.carries = [
            carry._replace(next_carry=next_carry)
            for carry, next_carry in zip(self.carries, outputs, strict=False)
        ]
        self.ys = outputs[count : count + len(self.ys)]
        self.test = None if self.test is None else outputs[-1]

    def emit(self) -> LoopOutputs:
        """Append the loop to the graph. Operands that the body does not read are dropped."""
        outputs = self.body_outputs
        nodes, captured = extract(outputs, self.body_inputs)
        read = {value for node in nodes for value in node.inputs}.union(outputs)
        consts = [operand for operand in self.consts if operand.inner in read]
        elements = [operand for operand in self.elements if operand.inner in read]
        for value in captured:
            if value.data is None:
                raise InternalError(f"{value!r} is neither an input of a loop's body nor known")
        inputs = [
            self.index,
            *[operand.inner for operand in consts],
            *captured,
            *[carry.inner for carry in self.carries],
            *[operand.inner for operand in elements],
        ]
        count = len(self.carries) + len(self.ys)
        parts = LoopParts(
            make_body(inputs, outputs[:count]),
            None if self.test is None else make_body(inputs, outputs[count:]),
            [*[operand.outer for operand in consts], *captured],
            [carry.init for carry in self.carries],
            [operand.outer for operand in elements],
        )
        return self.op.emit_draft(self, parts)


class LoopParts(NamedTuple):
    """Bodies and operands of the node of a loop."""

    body: Body
    condition: Body | None
    consts: list[Value]
    inits: list[Value]
    elements: list[Value]


class LoopOp(Structured):
    """An op that repeats a body."""

    @abstractmethod
    def open_draft(self, node: Node) -> Draft:
        """Return the draft of a node; its inner values are those of the node's body."""

    @abstractmethod
    def emit_draft(self, draft: Draft, parts: LoopParts) -> LoopOutputs:
        """Append the node of a draft and return its outputs."""

    @abstractmethod
    def reversed_draft(self, draft: Draft, count: Value | None) -> Draft:
        """Return the draft of an empty loop with the same iterations in reverse order; `count` is the trip count if that is a result."""

    @abstractmethod
    def while_and_repeat(self) -> tuple[LoopOp, LoopOp]:
        """Return the ops of loops with unknown trip count, and with a trip count that is an operand."""

    @abstractmethod
    def switch_op(self) -> Structured:
        """Return the op of a branch."""

    def outs(self, outcome: LoopOutputs) -> list[Value]:
        """Return the outputs in the order of the node."""
        arranged = self.arrange_outputs(outcome.carries, outcome.ys, outcome.trip_count)
        return [value for value in arranged if value is not None]

    @abstractmethod
    def split_outputs(self, outs: Sequence[T], carries: int) -> tuple[Sequence[T], Sequence[T], T | None]:
        """Split a sequence with one item per output of the node into those of the carries, of `ys`, and of the trip count."""

    @abstractmethod
    def arrange_outputs(
        self, carries: Sequence[Value | None], ys: Sequence[Value | None], count: Value | None = None
    ) -> tuple[Value | None, ...]:
        """Return one item per output of the node, from those of the carries, of `ys`, and of the trip count."""


def placeholder(value: Value) -> Value:
    """Return a value of the same type without a node."""
    return Value(aval(value.shape, value.dtype))


def substitute(outputs: Sequence[Value], becomes: dict[Value, Value]) -> list[Value]:
    """Return copies of `outputs` in which some values are replaced; nodes that do not depend on these are shared."""

    def copied(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        before, after = node.outs, node.copy(inputs).outs
        keep_names(before, after)
        return after

    return _rebuilt(outputs, becomes, copied)


def emit_substituted(outputs: Sequence[Value], becomes: dict[Value, Value]) -> list[Value]:
    """Do what `substitute` does, and append the new nodes to the graph that is recorded: tags and types are inferred anew."""

    def emitted(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        with at(node.site):
            return emit_all(node.op, inputs, **node.params)

    return _rebuilt(outputs, becomes, emitted)


def _rebuilt(
    outputs: Sequence[Value],
    becomes: dict[Value, Value],
    rebuild: Callable[[Node, tuple[Value, ...]], Sequence[Value]],
) -> list[Value]:
    """Return outputs with some values replaced; `rebuild` makes the outputs of a node on other inputs."""
    nodes, _ = extract(outputs, becomes)
    rebuilt_values = dict(becomes)
    for node in nodes:
        inputs = tuple([rebuilt_values.get(value, value) for value in node.inputs])
        if inputs != node.inputs:
            for out, rebuilt in zip(node.outs, rebuild(node, inputs), strict=True):
                rebuilt_values.setdefault(out, rebuilt)
    return [rebuilt_values.get(output, output) for output in outputs]


def inner_result(draft: Draft, op: LoopOp, result: Value) -> Value:
    """Return the value in a loop's body that a result is computed as."""
    assert result.node is not None
    carries, ys, _ = op.split_outputs(result.node.outs, len(draft.carries))
    for outs, values in ((carries, [carry.next_carry for carry in draft.carries]), (ys, draft.ys)):
        for out, value in zip(outs, values, strict=True):
            if out is result:
                return value
    return result  # the trip count


def equal_inputs(outside: Mapping[Value, Value]) -> dict[Value, Value]:
    """Return by input of a body an earlier one that is the same number: a rolled loop has an input for each place that reads an array."""
    duplicates: dict[Value, Value] = {}
    distinct: list[Value] = []
    for inner, value in outside.items():
        other = next((earlier for earlier in distinct if is_same(outside[earlier], value)), None)
        if other is None:
            distinct.append(inner)
        else:
            duplicates[inner] = other
    return duplicates


def never_stop(value: Value) -> bool:
    """The stop predicate of sweeps through bodies: it holds for no value."""
    return False
