"""Squares of what a loop or branch reads, carries or returns: where that has a kink, the square is a further operand, carry or result."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, NamedTuple

from gradtape.ir.body import Body, make_body
from gradtape.ir.builder import keep_names
from gradtape.ir.graph import Literal, Node, Value, extract, next_serial
from gradtape.kinds.control import Custom, OwnPullback, custom_call
from gradtape.kinds.elementwise import (
    SmoothSquare,
    computes_kink,
    factors_of,
    is_same,
    smooth_square,
    square_of_elements,
)
from gradtape.kinds.operands import conform
from gradtape.ops.core.elementwise.arithmetic import multiply
from gradtape.ops.core.elementwise.cast import with_tangent_of
from gradtape.transforms.kinks.roots import FlatRoot, flat_root, with_flat_roots_inside
from gradtape.transforms.loops.draft import (
    Carry,
    Draft,
    LoopOp,
    LoopOperand,
    LoopOutputs,
    equal_inputs,
    inner_result,
    never_stop,
    placeholder,
    substitute,
)

_DEEPEST: Final = 3
"""How many loops are looked into one after the other, or one in the other: each may read the results of the next."""


def with_squares(outs: Sequence[Value]) -> Sequence[Value]:
    """Return the outputs of a loop or branch that was just recorded, of one that knows squares of what has a kink.

    In ``s + y[i] * y[i]`` the body does not see that ``y`` is ``abs(x)``: by the chain rule the second derivative at 0 would be 0, not 2.
    The products keep their values, and have the derivatives of squares that are operands or carries, which are computed where transforms
    recognise them. In a primal these are dead.

    Parameters
    ----------
    outs : sequence of Value
        All outputs of the node.
    """
    node = outs[0].node if outs else None
    return outs if node is None else with_flat_roots_inside(Kinks(()).of_node(node))


class Recomputed(NamedTuple):
    """A value, and the nodes that were recorded to compute it, in topological order."""

    value: Value
    nodes: Sequence[Node]


def whole_at(node: Node, is_closed: Callable[[Value], bool]) -> SmoothSquare | FlatRoot | Recomputed | None:
    """Return what a sweep differentiates as one function: a square of what has a kink, or a root; None for other nodes.

    Where a loop or branch computes the kink, the product is computed again, from squares that are results of a loop or branch of its own.

    Parameters
    ----------
    node : Node
    is_closed : callable
        Predicate on values at which derivatives end.
    """
    kinks = Kinks((), is_closed=is_closed)
    square = smooth_square(node, is_closed, kinks)
    if square is None:
        return flat_root(node, is_closed)
    begin = next_serial()
    product = kinks.product(square)
    if product is None:
        return square
    product = conform(product, node.out.dtype, node.out.shape)
    nodes, _ = extract([product], stop=lambda value: value.node is None or value.node.serial < begin)
    return Recomputed(product, nodes)


class Kinks(Container[Value]):
    """The values of one graph that have a kink which other graphs compute: inputs of a body, and results of loops and branches.

    Parameters
    ----------
    leaves : iterable of Value
        The inputs.
    depth : int, default 0
        How many bodies are around this graph.
    is_closed : callable, optional
        Predicate on values at which derivatives end: their squares are not needed. By default there are none.

    Attributes
    ----------
    leaves : set of Value
        The inputs.
    squares : dict of Value
        What stands for the squares of these, where they are needed.
    """

    def __init__(
        self, leaves: Iterable[Value], depth: int = 0, is_closed: Callable[[Value], bool] = never_stop
    ) -> None:
        self.leaves = set(leaves)
        self.squares: dict[Value, Value] = {}
        self._depth = depth
        self._is_closed = is_closed
        self._results: dict[Value, bool] = {}

    def __contains__(self, value: object) -> bool:
        return value in self.leaves or (isinstance(value, Value) and self._is_result(value))

    def kinked(self, value: Value) -> bool:
        """Return whether a value has a factor whose square has no kink."""
        if value.dtype.kind not in "fc" or isinstance(value, Literal):
            return False
        for factor in factors_of(value):
            square = square_of_elements(factor, never_stop)
            if square is not None and (square.with_kink or any(operand in self for operand in square.others)):
                return True
        return False

    def of_node(self, node: Node) -> Sequence[Value]:
        """Return the outputs of a loop or branch, or of one in its place that knows the squares of what has a kink."""
        changed = None
        if isinstance(node.op, LoopOp):
            changed = self._loop(node, node.op)
        elif _is_branch(node):
            changed = self._branches(node)
        elif isinstance(node.op, OwnPullback):
            changed = self._procedure(node, node.op)
        return node.outs if changed is None else changed

    def square(self, value: Value) -> Value:
        """Return the square of a value."""
        if value in self.leaves:
            return self.squares.setdefault(value, placeholder(value))
        node = value.node
        if node is not None and self._is_result(value):
            if isinstance(node.op, LoopOp):
                squared = self._loop(node, node.op, value)
            elif isinstance(node.op, Custom):
                squared = _called_again(node, value.index)
            elif _is_branch(node):
                squared = self._branches(node, value)
            else:
                squared = self._procedure(node, node.op, value)  # type: ignore[arg-type]
            assert squared is not None
            return squared[-1]
        product = multiply(value, value)
        rewritten_square = None if product.node is None else self._replaced(product.node)
        return product if rewritten_square is None else rewritten_square

    def rewritten(self, outputs: Sequence[Value], inputs: Sequence[Value]) -> tuple[list[Value], bool]:
        """Return outputs whose products know the squares of what has a kink, and whether there are such products."""
        becomes: dict[Value, Value] = {}
        for node in extract(outputs, inputs)[0]:
            inputs_rewritten = tuple([becomes.get(value, value) for value in node.inputs])
            new = node
            if inputs_rewritten != node.inputs:
                new = node.copy(inputs_rewritten)
                before, after = node.outs, new.outs
                keep_names(before, after)
            outs: Sequence[Value] = new.outs
            if isinstance(new.op, OwnPullback):
                outs = self.of_node(new)
            elif (product := self._replaced(new)) is not None:
                outs = (product,)
            if outs is not node.outs:
                becomes.update(zip(node.outs, outs, strict=True))
        return [becomes.get(output, output) for output in outputs], bool(becomes)

    def product(self, square: SmoothSquare) -> Value | None:
        """Return a product of squares, computed from the squared values; None where none of them is one of these values.

        Parameters
        ----------
        square : SmoothSquare
            What `smooth_square` has found for the product, with these values as leaves.
        """
        if not any(value in self for value in square.others):
            return None
        values = {
            value: self.square(value) for value in (*[kink.out for kink in square.kinks], *square.others)
        }
        product = square.assembled(values)
        assert product is not None
        return product

    def _replaced(self, node: Node) -> Value | None:
        """Return a product with the derivative of a square, where it is one of what has a kink."""
        square = smooth_square(node, never_stop, self)
        product = None if square is None else self.product(square)
        if product is None:
            return None
        return with_tangent_of(node.out, conform(product, node.out.dtype, node.out.shape))

    def _is_result(self, value: Value) -> bool:
        """Return whether a value is the result of a loop or branch that has a kink there."""
        node = value.node
        if node is None or not isinstance(node.op, OwnPullback | Custom) or value.dtype.kind not in "fc":
            return False
        has_kink = self._results.get(value)
        if has_kink is None:
            has_kink = False
            if self._is_closed(value):
                pass
            elif isinstance(node.op, Custom):
                has_kink = value.index in node.params["rule"].kinked
            elif _is_branch(node):
                if self._depth < _DEEPEST:
                    has_kink = any(
                        inside.kinked(body.outputs[value.index]) for body, inside in self._inside_of(node)
                    )
            elif not isinstance(node.op, LoopOp):
                has_kink = node.op.with_squares_of(node, self._kinked(node), value.index) is not None
            elif self._depth < _DEEPEST:
                draft = node.op.open_draft(node)
                has_kink = self._inside(draft).kinked(inner_result(draft, node.op, value))
            self._results[value] = has_kink
        return has_kink

    def _inside(self, draft: Draft) -> Kinks:
        """Return the inputs of a loop's body that have a kink, also those that get one from an earlier iteration."""
        inside = Kinks(
            [operand.inner for operand in (*draft.consts, *draft.elements) if self.kinked(operand.outer)],
            self._depth + 1,
        )
        has_grown = True
        while has_grown:
            kinked_carries = {
                carry.inner
                for carry in draft.carries
                if carry.inner not in inside.leaves
                and carry.inner.dtype.kind in "fc"
                and (self.kinked(carry.init) or inside.kinked(carry.next_carry))
            }
            inside.leaves |= kinked_carries
            inside._results.clear()
            has_grown = bool(kinked_carries)
        return inside

    def _loop(self, node: Node, op: LoopOp, result: Value | None = None) -> Sequence[Value] | None:
        """Return the outputs of a loop in place of another one, or of one for the square of a result; None where nothing changes."""
        draft = op.open_draft(node)
        inside = self._inside(draft)
        nodes = draft.nodes()
        if any(computes_kink(out) for node in nodes for out in node.outs):
            read = set(draft.body_inputs)
        else:
            read = inside.leaves
        if result is None and not read and not _has_loops(nodes):
            return None
        equal: dict[Value, Value] = {}
        for group in (draft.consts, draft.elements):
            equal |= equal_inputs({inner: outer for outer, inner in group if inner in read})
        draft.substitute(equal)
        outputs, changed = inside.rewritten(draft.body_outputs, draft.body_inputs)
        if result is None and not changed and not equal:
            return None
        count = len(draft.carries)
        positions = {carry.inner: position for position, carry in enumerate(draft.carries)}
        ys = outputs[count : count + len(draft.ys)]
        if result is not None:
            of_carries, of_ys, _ = op.split_outputs(node.outs, count)
            ys = [inside.square(ys[position]) for position, out in enumerate(of_ys) if out is result]
            for position, out in enumerate(of_carries):
                if out is result:
                    inside.square(draft.carries[position].inner)
        carries = [
            carry._replace(next_carry=following)
            for carry, following in zip(draft.carries, outputs, strict=False)
        ]
        squared: dict[Value, int] = {}
        while unsquared := [own for own in inside.squares if own in positions and own not in squared]:
            position = positions[unsquared[0]]
            squared[unsquared[0]] = len(carries)
            init, following = self.square(carries[position].init), inside.square(carries[position].next_carry)
            carries.append(Carry(init, inside.squares[unsquared[0]], following))
        for group in (draft.consts, draft.elements):
            group += [
                LoopOperand(self.square(outer), inside.squares[inner])
                for outer, inner in group
                if inner in inside.squares
            ]
        draft.carries, draft.ys = carries, ys
        draft.test = None if draft.test is None else outputs[-1]
        made = draft.emit()
        made_by = (*made.carries, *made.ys)[0].node
        assert made_by is not None
        made_by.params["body"].name = node.params["body"].name
        if result is None:
            return op.outs(LoopOutputs(made.carries[:count], made.ys, made.trip_count))
        if made.ys:
            return made.ys
        (position,) = [position for position, out in enumerate(of_carries) if out is result]
        return [made.carries[squared[draft.carries[position].inner]]]

    def _kinked(self, node: Node) -> list[int | None]:
        """Return by input the place of the first one that is the same number, if it has a kink."""
        first = [position if self.kinked(value) else None for position, value in enumerate(node.inputs)]
        for position, value in enumerate(node.inputs):
            for other in range(position) if first[position] is not None else ():
                if first[other] == other and is_same(node.inputs[other], value):
                    first[position] = other
                    break
        return first

    def _procedure(self, node: Node, op: OwnPullback, result: Value | None = None) -> Sequence[Value] | None:
        """Do what `_loop` does for a procedure; the square of a result is its last output."""
        kinked = self._kinked(node)
        if result is None and all(position is None for position in kinked):
            return None
        extended = op.with_squares_of(node, kinked, None if result is None else result.index)
        if extended is None:
            return None
        positions, make = extended
        return make([self.square(node.inputs[position]) for position in positions])

    def _inside_of(self, node: Node) -> list[tuple[Body, Kinks]]:
        """Return the bodies of a branch, each with its inputs that have a kink."""
        positions = [position for position, value in enumerate(node.inputs[1:]) if self.kinked(value)]
        return [
            (body, Kinks([body.inputs[position] for position in positions], self._depth + 1))
            for body in node.params["branches"]
        ]

    def _branches(self, node: Node, result: Value | None = None) -> Sequence[Value] | None:
        """Do what `_loop` does for a branch."""
        operands = node.inputs[1:]
        inside_of = self._inside_of(node)
        if (
            result is None
            and not any(inside.leaves for _, inside in inside_of)
            and not any(_has_loops(body.nodes) for body, _ in inside_of)
        ):
            return None
        bodies, changes = [], result is not None
        for body, inside in inside_of:
            inner = {
                value: operand
                for value, operand in zip(body.inputs, operands, strict=True)
                if value in inside.leaves
            }
            outputs, changed = inside.rewritten(substitute(body.outputs, equal_inputs(inner)), body.inputs)
            if result is not None:
                outputs = [inside.square(outputs[result.index])]
            bodies.append((body, inside.squares, outputs))
            changes = changes or changed
        if not changes:
            return None
        squared = [
            position
            for position in range(len(operands))
            if any(body.inputs[position] in squares for body, squares, _ in bodies)
        ]
        branches = [
            make_body(
                [
                    *body.inputs,
                    *[
                        squares.get(inner, placeholder(inner))
                        for inner in map(body.inputs.__getitem__, squared)
                    ],
                ],
                outputs,
                body.name,
            )
            for body, squares, outputs in bodies
        ]
        squares_of_operands = [self.square(operands[position]) for position in squared]
        outs: Sequence[Value] = node.op(branches, node.inputs[0], [*operands, *squares_of_operands])  # type: ignore[operator] # it is a Switch
        return outs


def _called_again(node: Node, result: int) -> Sequence[Value]:
    """Return the outputs of a call with a rule, and the square of one of them, which the rule computes."""
    hidden = node.params["hidden"]
    results, operands = node.inputs[:hidden], node.inputs[hidden:]
    square = multiply(results[result], results[result])
    return custom_call([*results, square], operands, node.params["rule"].with_square_of(result))


def _is_branch(node: Node) -> bool:
    return "branches" in node.params


def _has_loops(nodes: Iterable[Node]) -> bool:
    return any(isinstance(node.op, OwnPullback) for node in nodes)
