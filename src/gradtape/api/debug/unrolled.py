"""Loops and branches unrolled at their run-time values: one copy of the body per iteration, computed op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gradtape.ir.body import Body
from gradtape.ir.builder import emit
from gradtape.ir.graph import Node, Value, constant, extract, merge_tags
from gradtape.ops.core.elementwise.cast import identity
from gradtape.ops.core.indexing import parse_index
from gradtape.ops.core.join import stack
from gradtape.transforms.call import GraphCall, recorded
from gradtape.transforms.loops.ops import STACK, Repeat, Scan, Switch, While

Index = tuple[int, ...]
"""The index of one element of an array."""

Iterations = tuple[tuple[str, int], ...]
"""Names of loops, each with the number of an iteration, the innermost loop first."""


class UnrolledLoops:
    """The copies of the bodies of unrolled loops and branches.

    Attributes
    ----------
    iterations : dict of Node to tuple
        By node of a copy: the iterations that it belongs to.
    elements : set of Value
        The elements of arrays that were passed to iterations.
    conditions : list of Value
        What decided which branch was taken, and whether there was another iteration, of those that `in_place_of_loops` replaced.
    counts : list of Value
        The numbers of iterations that were computed, of those.
    """

    def __init__(self) -> None:
        self.iterations: dict[Node, Iterations] = {}
        self.conditions: list[Value] = []
        self.counts: list[Value] = []
        self.elements: set[Value] = set()
        self._stack_elements: dict[Value, tuple[Value, int]] = {}

    @property
    def reads_stacks(self) -> bool:
        """Whether an iteration has read what another one pushed on a stack."""
        return bool(self._stack_elements)

    def source_of_stack_element(self, value: Value, index: Index) -> tuple[Value, Index] | None:
        """Return the value that an iteration pushed on a stack, if `value` was read from one; with the index of the element."""
        if value not in self._stack_elements:
            return None
        stack, iteration = self._stack_elements[value]
        return None if stack.node is None else self.source(stack.node, stack.index, (iteration, *index))

    def source(self, node: Node, output: int, index: Index) -> tuple[Value, Index]:
        """Return the value in a copy of the body from which an element of an output of a loop or branch comes, and its index there."""
        if isinstance(node.op, Switch):
            ((_, outs),) = self.unroll(node)
            return outs[output], index
        count = node.params["carries"]
        y = y_position(node, output)
        carries = _initial_carries(node)
        for iteration, outs in self.unroll(node):
            carries = outs[:count]
            if y is not None and iteration == index[0]:
                return outs[count + y], index[1:]
        return carries[output], index

    def unroll(self, node: Node) -> Iterator[tuple[int, list[Value]]]:
        """Yield ``(number, outputs)`` of each iteration of a loop, in the order of execution; of a switch, of the branch that is taken."""
        if isinstance(node.op, Switch):
            choice, *operands = node.inputs
            assert choice.data is not None
            branches = node.params["branches"]
            number = min(max(int(choice.data), 0), len(branches) - 1)
            outs = _copy_of_body(branches[number], operands)
            self._register(outs, operands, self.iterations.get(node, ()))
            compute_op_by_op(outs)
            yield number, outs
            return
        first = isinstance(node.op, Repeat)
        consts = node.inputs[first : first + node.params["consts"]]
        arrays = node.inputs[first + node.params["consts"] + node.params["carries"] :]
        yield from self._unroll_loop(node, consts, _initial_carries(node), arrays)

    def _unroll_loop(
        self, node: Node, consts: Sequence[Value], carries: Sequence[Value], arrays: Sequence[Value]
    ) -> Iterable[tuple[int, list[Value]]]:
        body: Body = node.params["body"]
        goes_on = _condition(node)
        for iteration in _iteration_numbers(node):
            arguments = [constant(np.asarray(iteration)), *consts, *carries]
            if not goes_on(arguments):
                return
            arguments += [self._element(array, iteration) for array in arrays]
            outs = _copy_of_body(body, arguments)
            self._register(outs, arguments, ((node.op.name, iteration), *self.iterations.get(node, ())))
            compute_op_by_op([*arguments, *outs])
            yield iteration, outs
            carries = outs[: len(carries)]

    def _register(self, outs: Sequence[Value], arguments: Sequence[Value], iterations: Iterations) -> None:
        """Enter the iterations of the nodes of a copy."""
        nodes, _ = extract(outs, arguments, stop=lambda value: value.data is not None)
        self.iterations.update(dict.fromkeys(nodes, iterations))

    def _element(self, array: Value, iteration: int) -> Value:
        if array.aval is not STACK:
            element = parse_index(array.shape, iteration).read(array)
            self.elements.update(out for node in extract([element], [array])[0] for out in node.outs)
            return element
        assert array.data is not None
        element = constant(np.asarray(array.data.item()[iteration]))
        self._stack_elements[element] = (array, iteration)
        return element


def compute_op_by_op(values: Sequence[Value], *, all_ancestors: bool = False) -> None:
    """Compute values and the intermediate values on the way, op by op; with `all_ancestors`, ancestors of known values as well."""
    nodes, _ = extract(values, (), stop=(lambda value: False) if all_ancestors else None)
    with np.errstate(all="ignore"):
        for node in nodes:
            outs = node.outs
            if any(out.data is None for out in outs):
                arrays: list[Any] = [operand.data for operand in node.inputs]
                for out, array in zip(outs, node.op.evaluate(arrays, node.params), strict=True):
                    out.data = array


def y_position(node: Node, output: int) -> int | None:
    """Return the position of an output of a loop among its stacked outputs; None for a final carry."""
    position: int = output - node.params["carries"] - isinstance(node.op, While)
    return position if position >= 0 else None


def _copy_of_body(body: Body, arguments: Sequence[Value]) -> list[Value]:
    """Return the outputs of a copy of a body. An input that has a name in the body is an `identity` node of that name."""
    return recorded(body, [_named(*pair) for pair in zip(arguments, body.inputs, strict=True)])[0]


def _named(value: Value, inner: Value) -> Value:
    if inner.name is None:
        return value
    copy = emit(identity, [value])
    copy.name = inner.name
    return copy


def _initial_carries(node: Node) -> Sequence[Value]:
    first = node.params["consts"] + isinstance(node.op, Repeat)
    return node.inputs[first : first + node.params["carries"]]


def _iteration_numbers(node: Node) -> Iterable[int]:
    """Return the numbers of a loop's iterations, in the order of execution; a while loop ends by its condition."""
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
    """Return whether there is another iteration, as a function of the inputs of the body."""
    if not isinstance(node.op, While):
        return lambda arguments: True

    def goes_on(arguments: list[Value]) -> bool:
        (truth,), _ = recorded(node.params["condition"], arguments)
        compute_op_by_op([truth])
        return bool(truth.data)

    return goes_on


def in_place_of_loops(
    values: Sequence[Value], loops: UnrolledLoops, inputs: Sequence[Value] = ()
) -> list[Value]:
    """Return values computed without loops, branches and calls: by copies of the bodies, one for each iteration.

    Parameters
    ----------
    values : sequence of Value
        What is computed by loops.
    loops : UnrolledLoops
        Where the copies are entered.
    inputs : sequence of Value
        Where to stop.
    """
    nodes, _ = extract(values, inputs, stop=lambda value: False)
    copies: dict[Value, Value] = {}
    for node in nodes:
        operands = [copies.get(operand, operand) for operand in node.inputs]
        if isinstance(node.op, GraphCall):
            outs = in_place_of_loops(recorded(node.op.graph, operands)[0], loops, operands)
        elif isinstance(node.op, Scan | Repeat | While | Switch):
            outs = _outputs_of_iterations(_with_operands(node, operands, loops), loops)
        elif all(copy is operand for copy, operand in zip(operands, node.inputs, strict=True)):
            continue
        else:
            outs = list(_with_operands(node, operands, loops).outs)
        copies.update(zip(node.outs, outs, strict=True))
    return [copies.get(value, value) for value in values]


def _with_operands(node: Node, operands: Sequence[Value], loops: UnrolledLoops) -> Node:
    copy = Node(node.op, tuple(operands), node.params, node.site)
    copy.make_outs(tuple([out.aval for out in node.outs]), merge_tags(operands))
    if node in loops.iterations:
        loops.iterations[copy] = loops.iterations[node]
    return copy


def _outputs_of_iterations(node: Node, loops: UnrolledLoops) -> list[Value]:
    """Return the outputs of a loop or branch, computed by copies of its body."""
    compute_op_by_op(node.inputs)
    iterations = sorted(loops.unroll(node), key=lambda pair: pair[0])
    if isinstance(node.op, Switch):
        loops.conditions.append(node.inputs[0])
        return in_place_of_loops(iterations[0][1], loops, node.inputs)
    if isinstance(node.op, Repeat):
        loops.counts.append(node.inputs[0])
    if isinstance(node.op, While):
        loops.conditions += _conditions_of_while(node, [outs for _, outs in iterations])
    count = node.params["carries"]
    backwards = node.params.get("reverse", False)
    last = iterations[0 if backwards else -1][1] if iterations else _initial_carries(node)
    stacks = (
        [[outs[y] for _, outs in iterations] for y in range(count, len(iterations[0][1]))]
        if iterations
        else []
    )
    parts = in_place_of_loops(
        [*last[:count], *[part for stack_outputs in stacks for part in stack_outputs]], loops, node.inputs
    )
    carries, stacked_parts = parts[:count], parts[count:]
    trips = [constant(np.asarray(len(iterations)))] if isinstance(node.op, While) else []
    ys = [stack(*stacked_parts[k * len(iterations) : (k + 1) * len(iterations)]) for k in range(len(stacks))]
    if not iterations:
        ys = [constant(np.zeros(out.shape, out.dtype)) for out in node.outs[count + len(trips) :]]
    return [*carries, *trips, *ys]


def _conditions_of_while(node: Node, outs: Sequence[Sequence[Value]]) -> list[Value]:
    """Return the truth values of a loop's condition: of each iteration, and that which has ended the loop."""
    consts, carries = node.inputs[: node.params["consts"]], _initial_carries(node)
    truths = []
    for iteration in range(len(outs) + 1):
        (truth,), _ = recorded(node.params["condition"], [constant(np.asarray(iteration)), *consts, *carries])
        truths.append(truth)
        if iteration < len(outs):
            carries = outs[iteration][: len(carries)]
    return truths
