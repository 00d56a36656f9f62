"""Loops and branches written out, so that what a turn made of good numbers is found in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ...ir.body import Body
from ...ir.graph import Node, Value, constant, extract
from ...ops.indexing import parse_index
from ...trace.force import compute
from ...transforms.call import inlined
from ...transforms.control import STACK, Repeat, Scan, Switch, While

Place = tuple[int, ...]


class WrittenOut:
    """Turns of loops that were written out.

    Attributes
    ----------
    turns : dict of Node to tuple
        Of which loops a node belongs to which turns, the innermost first.
    """

    def __init__(self) -> None:
        self.turns: dict[Node, tuple[tuple[str, int], ...]] = {}
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
            choice, *operands = node.inputs
            assert choice.data is not None
            branches = node.params["branches"]
            outs = inlined(branches[min(max(int(choice.data), 0), len(branches) - 1)], operands)
            compute(outs)
            return outs[index], place
        count, first = node.params["carries"], node.params["consts"] + isinstance(node.op, Repeat)
        consts, carried = (
            node.inputs[first - node.params["consts"] : first],
            node.inputs[first : first + count],
        )
        left = index - count - isinstance(node.op, While)
        for turn, outs in self._run(node, consts, carried, node.inputs[first + count :]):
            carried = tuple(outs[:count])
            if left >= 0 and turn == place[0]:
                return outs[count + left], place[1:]
        return carried[index], place

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
            outs = inlined(body, given)
            nodes, _ = extract(outs, given)
            around = self.turns.get(node, ())
            self.turns.update(dict.fromkeys(nodes, ((node.op.name, turn), *around)))
            compute([*given, *outs])
            yield turn, outs
            carried = outs[: len(carried)]

    def _element(self, array: Value, turn: int) -> Value:
        if array.aval is not STACK:
            return parse_index(array.shape, turn).read(array)
        assert array.data is not None
        element = constant(np.asarray(array.data.item()[turn]))
        self._elements[element] = (array, turn)
        return element


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
        compute([truth])
        return bool(truth.data)

    return goes_on
