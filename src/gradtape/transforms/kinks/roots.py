"""Roots of sums of squares: where the sum is 0, the slope of the root is infinite and that of the squares is 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gradtape.ir.builder import at
from gradtape.ir.graph import Node, Value, extract, literal, number_of
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise, SmoothSquare, is_same, smooth_square
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, negative, subtract
from gradtape.ops.core.elementwise.complex_parts import conjugate, real
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.roots import cbrt, sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute, fabs, hypot
from gradtape.ops.core.reductions import reduce_max, reduce_min, reduce_sum
from gradtape.ops.core.shape import expand_row
from gradtape.ops.numpy.linalg.norms import root
from gradtape.transforms.loops.draft import Draft, LoopOp, LoopOutputs, equal_inputs, inner_result, never_stop

EXAMINED_NODES: Final = 1000
"""Nodes below a root that are looked at for squares; a search that needs more finds none."""

DEEPEST: Final = 30
"""How deep nodes may stand in each other, but for the terms of a sum."""

Closed = Callable[[Value], bool]


class FlatRoot(NamedTuple):
    """A root, or a power between 0 and 1, whose operand vanishes so fast that the slope at 0 counts as 0."""

    node: Node

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values that derivatives go to."""
        return self.node.inputs[:1]

    def push(self, tangents: Sequence[Value | None]) -> Value | None:
        """Return the tangent of the root from that of its operand."""
        (tangent,) = tangents
        if tangent is None:
            return None
        node, op = self.node, self.node.op
        assert isinstance(op, Elementwise) and op.partials is not None and op.partials[0] is not None
        slope = op.partials[0](node.out, *node.inputs, **node.params)
        return where(equal(node.out, 0.0), literal(0.0, slope.dtype), slope) * tangent


ROUNDS: Final = 10
"""How often orders that depend on each other are computed: those that fall for longer, as of repeated roots, are unknown."""


def as_one_function(node: Node, is_closed: Closed) -> SmoothSquare | FlatRoot | None:
    """Return what is differentiated as one function with what it is computed from: a square or a root; None for other nodes.

    Parameters
    ----------
    node : Node
    is_closed : callable
        Predicate on values: those at which derivatives end, so that no function extends beyond them.
    """
    return smooth_square(node, is_closed) or flat_root(node, is_closed)


def flat_root(node: Node, is_closed: Closed) -> FlatRoot | None:
    """Return a root of a sum of squares, or of another sum of powers that it is a norm of; None for other nodes."""
    return FlatRoot(node) if is_flat(node, Orders(is_closed)) else None


def is_flat(node: Node, orders: Orders) -> bool:
    """Return whether a node takes a root of what vanishes so fast that the slope at 0 is 0, or counts as 0; a norm knows that itself."""
    exponent = _exponent(node)
    if exponent is None or exponent >= 1 or node.op is root or node.out.dtype.kind != "f":
        return False
    return 1 <= exponent * orders.of(node.inputs[0], signed=False) < math.inf


def takes_root(node: Node) -> bool:
    """Return whether a node is the square root of real numbers, by the function or as a power."""
    return node.op is not root and _exponent(node) == 0.5 and node.out.dtype.kind == "f"


def _exponent(node: Node) -> float | None:
    """Return the positive number that a node takes its first operand to the power of; None if it does something else."""
    op: object = node.op
    if op is sqrt or op is root:
        return 0.5
    if op is cbrt:
        return 1.0 / 3.0
    number = number_of(node.inputs[1]) if isinstance(op, Elementwise) and op.is_power else None
    return float(number) if isinstance(number, int | float) and 0 < number < math.inf else None


def settles(orders: Mapping[Any, float], lower: Callable[[], None]) -> bool:
    """Lower orders that depend on each other until they no longer fall, and return whether that happens."""
    for _ in range(ROUNDS):
        before = dict(orders)
        lower()
        if orders == before:
            return True
    return False


def roots_of_norms(outputs: Sequence[Value], inputs: Sequence[Value], orders: Orders) -> list[Value] | None:
    """Return outputs with the roots of norms in the place of square roots that are flat; None where there are none."""
    becomes: dict[Value, Value] = {}
    for node in extract(outputs, inputs)[0]:
        given = tuple([becomes.get(value, value) for value in node.inputs])
        if takes_root(node) and is_flat(node, orders):
            with at(node.site):
                becomes[node.out] = root(given[0])
        elif given != node.inputs:
            becomes.update(zip(node.outs, node.copy(given).outs, strict=True))
    return [becomes.get(output, output) for output in outputs] if becomes else None


def of_anything(value: Value, signed: bool) -> float:
    """Return the order of a value of which nothing is known."""
    return 1.0 if signed else 0.0


class Orders:
    """How fast values vanish: the order of a sum of squares is 2.

    A value of order q is at most a multiple of ``d**q`` at the distance d of what it is computed from to a point at which the value is 0.

    Parameters
    ----------
    is_closed : callable
        Predicate on values: those at which derivatives end.
    known : callable, optional
        ``(leaf, signed) -> order`` of values that no node computes, as `of` returns it; by default nothing is known of them.
    """

    def __init__(self, is_closed: Closed, known: Callable[[Value, bool], float] = of_anything) -> None:
        self._is_closed = is_closed
        self._known = known
        self._left, self._depth = EXAMINED_NODES, 0
        self._found: dict[tuple[Value, bool], float] = {}

    def of(self, value: Value, *, signed: bool) -> float:
        """Return the order of a value: infinite for numbers, at least 1 where no root is seen.

        A value that is not known to be without a sign has the order 0, unless `signed`: then the order is that of its absolute value.
        """
        key = (value, signed)
        if key not in self._found:
            self._left -= 1
            self._depth += 1
            is_near = self._left >= 0 and self._depth <= DEEPEST
            self._found[key] = self._of(value, signed) if is_near else 0.0
            self._depth -= 1
        return self._found[key]

    def _of(self, value: Value, signed: bool) -> float:
        single = value
        while single.node is not None and single.node.op is expand_row:
            single = single.node.inputs[0]
        number = number_of(single)
        if number is not None:
            return math.inf if signed or (isinstance(number, int | float) and number >= 0) else 0.0
        smooth = of_anything(value, signed)
        node = value.node
        if value.dtype.kind != "f" or self._is_closed(value):
            return smooth
        if node is None:
            return self._known(value, signed)
        op = node.op
        if isinstance(op, LoopOp):
            draft = op.open_draft(node)
            orders = self.inside(draft)
            return orders.of(inner_result(draft, op, value), signed=signed)
        if isinstance(op, Elementwise):
            return self._of_row(node, op, signed, smooth)
        if isinstance(op, Contract):
            x, y = node.inputs
            if node.params["x"] == node.params["y"] and is_same(x, y):
                return 2 * self.of(x, signed=True)
            return self._least(node.inputs, signed)
        if isinstance(op, IndexMap) or op in (reduce_sum, reduce_max, reduce_min):
            return self.of(node.inputs[0], signed=signed)
        if isinstance(op, Cumulative):
            return self.of(node.inputs[-1], signed=signed) if op is cumsum else smooth
        if isinstance(op, Join):
            return self._least(node.inputs, signed)
        if isinstance(op, Accumulate):
            return self._least(node.inputs[:2], signed) if op.combine in ("set", "add") else smooth
        return smooth

    def _of_row(self, node: Node, op: Elementwise, signed: bool, smooth: float) -> float:
        operand = None if op.square_of is None else op.square_of(*node.inputs)
        if operand is not None:
            return 2 * self.of(operand, signed=True)
        exponent = _exponent(node)
        if exponent is not None:  # a power that is not whole is NaN where its base is negative
            return exponent * self.of(node.inputs[0], signed=signed or op is root or exponent % 2 != 1)
        if op in (absolute, fabs, hypot):
            return self._least(node.inputs, True)
        if op is exp:
            return math.inf
        if op is negative:
            return self.of(node.inputs[0], signed=True) if signed else 0.0
        if op is subtract:
            return self._least(node.inputs, True) if signed else 0.0
        if op is add:
            terms = self._terms(node)
            # A sum with a positive number is never 0.
            return 0.0 if not signed and any(map(number_of, terms)) else self._least(terms, signed)
        if op is divide:
            return (
                self.of(node.inputs[0], signed=signed) if self.of(node.inputs[1], signed=signed) else smooth
            )
        if op in (multiply, maximum, minimum):
            return self._least(node.inputs, signed)
        if op.confine is not None:  # a selection
            return self._least([node.inputs[k] for k in op.additive], signed)
        if op.is_identity and node.inputs[0].dtype.kind == "f":
            return self.of(node.inputs[0], signed=signed)
        if op is real and not signed:
            return self._of_real(node.inputs[0])
        return smooth

    def _terms(self, node: Node) -> list[Value]:
        """Return the terms of a sum, which an unrolled loop may have written one after the other."""
        terms, pending = [], list(node.inputs)
        while pending:
            value = pending.pop()
            below = value.node
            if below is None or below.op is not add or self._is_closed(value) or self._left < 0:
                terms.append(value)
            else:
                self._left -= 1
                pending += below.inputs
        return terms

    def _of_real(self, value: Value) -> float:
        """Return the order of the real part of a complex number: 2 of a product with the conjugate number."""
        node = value.node
        if node is None or node.op is not multiply:
            return 0.0
        for x, y in (node.inputs, node.inputs[::-1]):
            if y.node is not None and y.node.op is conjugate and is_same(x, y.node.inputs[0]):
                return 2.0
        return 0.0

    def inside(self, draft: Draft) -> Orders:
        """Return the orders in the body of a loop: those of carries are the least of all iterations.

        The body then reads values that are the same as one: a square may be written as a product of two of its inputs.
        """
        operands = {given.inner: given.outer for given in (*draft.consts, *draft.elements)}
        for group in (draft.consts, draft.elements):
            draft.substitute(equal_inputs({inner: outer for outer, inner in group}))
        carried = {(carry.inner, signed): math.inf for carry in draft.carries for signed in (False, True)}

        def known(leaf: Value, signed: bool) -> float:
            if leaf in operands:
                return self.of(operands[leaf], signed=signed)
            return carried.get((leaf, signed), of_anything(leaf, signed))

        def lower() -> None:
            orders = Orders(never_stop, known)
            for carry in draft.carries:
                for signed in (False, True):
                    nexts = self.of(carry.init, signed=signed), orders.of(carry.next_carry, signed=signed)
                    carried[carry.inner, signed] = min(carried[carry.inner, signed], *nexts)

        if not settles(carried, lower):
            carried.clear()
        return Orders(never_stop, known)

    def _least(self, values: Sequence[Value], signed: bool) -> float:
        return min([self.of(value, signed=signed) for value in values])


def with_flat_roots_inside(outs: Sequence[Value]) -> Sequence[Value]:
    """Return the outputs of a loop whose body takes roots of sums of squares that it reads or carries as norms do.

    Derivatives end at what a body reads, so that a transform does not see what it is computed from: it is called where loops are recorded.
    """
    node = outs[0].node if outs else None
    if node is None or not isinstance(node.op, LoopOp):
        return outs
    draft = node.op.open_draft(node)
    if not any(map(takes_root, draft.nodes())):
        return outs
    orders = Orders(never_stop).inside(draft)
    changed = roots_of_norms(draft.body_outputs, draft.body_inputs, orders)
    if changed is None:
        return outs
    count = len(draft.carries)
    draft.carries = [
        carry._replace(next_carry=following) for carry, following in zip(draft.carries, changed, strict=False)
    ]
    draft.ys = changed[count : count + len(draft.ys)]
    draft.test = None if draft.test is None else changed[-1]
    made = draft.emit()
    first = (*made.carries, *made.ys)[0].node
    assert first is not None
    first.params["body"].name = node.params["body"].name
    return node.op.outs(LoopOutputs(made.carries, made.ys, made.trip_count))
