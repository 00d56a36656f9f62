"""Loops and branches written out, so that what a turn made of good numbers is found in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gradtape.ir.body import Body
from gradtape.ir.builder import emit
from gradtape.ir.graph import Node, Value, constant, extract
from gradtape.ops.core.elementwise.cast import identity
from gradtape.ops.core.indexing import parse_index
from gradtape.transforms.call import inlined
from gradtape.transforms.loops.ops import STACK, Repeat, Scan, Switch, While

Place = tuple[int, ...]


class WrittenOut:
    """Turns of loops that were written out.

    Attributes
    ----------
    turns : dict of Node to tuple
        Of which loops a node belongs to which turns, the innermost first.
    elements : set of Value
        What turns were given of arrays.
    """

    def __init__(self) -> None:
        self.turns: dict[Node, tuple[tuple[str, int], ...]] = {}
        self.elements: set[Value] = set()
        self._elements: dict[Value, tuple[Value, int]] = {}

    def continued(self, value: Value, place: Place) -> tuple[Value, Place] | None:
        """Return the turn that left an element on a stack, if a value is one."""
        if value not in self._elements:
            return None
        stack, turn = self._elements[value]
        return None if stack.node is None else self.result(stack.node, stack.index, (turn, *place))

    def result(self, node: Node, index: int, place: Place) -> tuple[Value, Place]:
        """Return an element of a result of a loop or branch as what the turn or branch computes that it comes from."""
        if isinstance(node.op, Switch):
            ((_, outs),) = self.opened(node)
            return outs[index], place
        count = node.params["carries"]
        left = left_place(node, index)
        carried = _starts(node)
        for turn, outs in self.opened(node):
            carried = outs[:count]
            if left is not None and turn == place[0]:
                return outs[count + left], place[1:]
        return carried[index], place

    def opened(self, node: Node) -> Iterator[tuple[int, list[Value]]]:
        """Yield the turns of a loop, in their order, with what they compute; of a choice the number of the branch that is taken."""
        if isinstance(node.op, Switch):
            choice, *operands = node.inputs
            assert choice.data is not None
            branches = node.params["branches"]
            number = min(max(int(choice.data), 0), len(branches) - 1)
            outs = self._written(branches[number], operands)
            self._note(node, outs, operands, self.turns.get(node, ()))
            work_out(outs)
            yield number, outs
            return
        first = isinstance(node.op, Repeat)
        consts = node.inputs[first : first + node.params["consts"]]
        arrays = node.inputs[first + node.params["consts"] + node.params["carries"] :]
        yield from self._run(node, consts, _starts(node), arrays)

    def _run(
        self, node: Node, consts: Sequence[Value], carried: Sequence[Value], arrays: Sequence[Value]
    ) -> Iterable[tuple[int, list[Value]]]:
        """Yield the turns of a loop with what they compute."""
        body: Body = node.params["body"]
        goes_on = _condition(node)
        for turn in _order(node):
            given = [constant(np.asarray(turn)), *consts, *carried]
            if not goes_on(given):
                return
            given += [self._element(array, turn) for array in arrays]
            outs = self._written(body, given)
            self._note(node, outs, given, ((node.op.name, turn), *self.turns.get(node, ())))
            work_out([*given, *outs])
            yield turn, outs
            carried = outs[: len(carried)]

    def _written(self, body: Body, given: Sequence[Value]) -> list[Value]:
        """Return what a body computes; what it is given and has a name there is another value."""
        return inlined(body, [_named(*pair) for pair in zip(given, body.inputs, strict=True)])

    def _note(
        self, node: Node, outs: Sequence[Value], given: Sequence[Value], turns: tuple[tuple[str, int], ...]
    ) -> None:
        """Remember which turns the nodes of a turn belong to."""
        nodes, _ = extract(outs, given, stop=lambda value: value.data is not None)
        self.turns.update(dict.fromkeys(nodes, turns))

    def _element(self, array: Value, turn: int) -> Value:
        if array.aval is not STACK:
            element = parse_index(array.shape, turn).read(array)
            self.elements.update(out for node in extract([element], [array])[0] for out in node.outs)
            return element
        assert array.data is not None
        element = constant(np.asarray(array.data.item()[turn]))
        self._elements[element] = (array, turn)
        return element


def work_out(values: Sequence[Value], *, all_of_it: bool = False) -> None:
    """Compute values op by op, so that everything on the way is known; with `all_of_it`, also on the way to what is known."""
    nodes, _ = extract(values, (), stop=(lambda value: False) if all_of_it else None)
    with np.errstate(all="ignore"):
        for node in nodes:
            outs = node.outs
            if any(out.data is None for out in outs):
                arrays: list[Any] = [operand.data for operand in node.inputs]
                for out, array in zip(outs, node.op.evaluate(arrays, node.params), strict=True):
                    out.data = array


def left_place(node: Node, index: int) -> int | None:
    """Return which of the things that a loop's turns leave behind one of its results holds, if it is not a carry."""
    place: int = index - node.params["carries"] - isinstance(node.op, While)
    return place if place >= 0 else None


def _starts(node: Node) -> Sequence[Value]:
    """Return what a loop's carries begin with."""
    first = node.params["consts"] + isinstance(node.op, Repeat)
    return node.inputs[first : first + node.params["carries"]]


def _named(value: Value, inside: Value) -> Value:
    if inside.name is None:
        return value
    stand_in = emit(identity, [value])
    stand_in.name = inside.name
    return stand_in


def _order(node: Node) -> Iterable[int]:
    """Return the numbers of a loop's turns, in order; a while is ended by its condition."""
    if isinstance(node.op, Scan):
        count = node.params["length"]
    elif isinstance(node.op, Repeat):
        assert node.inputs[0].data is not None
        count = int(node.inputs[0].data)
    else:
        limit = node.params["limit"]
        return range(2**62 if limit is None else limit)
    return reversed(range(count)) if node.params["reverse"] else range(count)


def _condition(node: Node) -> Callable[[list[Value]], bool]:
    """Return whether there is another turn, as a function of what it would be given."""
    if not isinstance(node.op, While):
        return lambda given: True

    def goes_on(given: list[Value]) -> bool:
        (truth,) = inlined(node.params["condition"], given)
        work_out([truth])
        return bool(truth.data)

    return goes_on
