"""Power series of values, computed order by order from the derivative rules of the ops.

With z' = G(x, z, x') as the tangent of a node, coefficient k of z is coefficient k - 1 of G, divided by k: the nodes of G have series
themselves, and need no order of z that is not known yet. So each op that has a tangent has a series. Nodes that are linear, multilinear,
quotients, squares or negative powers have shorter recurrences; which nodes are linear follows from what the tangent depends on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce, singledispatch
from typing import Any, Final

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import at, emit_all
from gradtape.ir.graph import Literal, Node, Value, extract, literal, merge_tags, next_serial, number_of
from gradtape.ir.op import Op
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import is_inexact
from gradtape.kinds.control import Custom, visible_inputs
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap, is_zero
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.cast import convert
from gradtape.transforms.call import GraphCall, inlined
from gradtape.transforms.loops.squares import Recomputed, whole_at
from gradtape.transforms.observers import derivative_site
from gradtape.transforms.procedures.ops import ProcedureOp

MOST_NESTED: Final = 4
"""Tangents of tangents of a node that is neither a formula nor a loop of the graph: its size may double with each."""

OUTPUT: Final = -1
"""Stands for the outputs of a node among the numbers of its inputs."""

Stop = Callable[[Value], bool]
Coefficient = Value | None
"""One coefficient of a series; None is zero."""


class Expansion:
    """The series of the values of a graph.

    Parameters
    ----------
    sources : mapping of Value to sequence of (Value or None)
        Coefficients 1, 2, ... of values at which the graph starts; the values themselves are their coefficients 0.
    stop : callable
        Predicate on values: those that count as constants.
    """

    def __init__(self, sources: Mapping[Value, Sequence[Coefficient]], stop: Stop) -> None:
        self._begin = next_serial()
        self._stop = stop
        self._sources = dict(sources)
        self._representatives: dict[Value, Value] = {source: source for source in sources}
        self._active: dict[Value, bool] = dict.fromkeys(sources, True)
        self._derivatives: dict[Value, Value] = {}
        self._bases: dict[Node, Node] = {}
        self._series: dict[Node | Value, Series | _Derivative] = {}
        self._alike: dict[object, Value] = {}

    def coefficients(self, targets: Sequence[Value], order: int) -> list[list[Coefficient]]:
        """Return coefficients 1, ..., `order` of each target."""
        nodes, _ = extract(targets, self._sources, self._ends, visible_inputs)
        for node in nodes:
            for out in node.outs:
                self.coefficient(out, order)  # loops compute all orders at once, if the highest is the first
        return [[self.coefficient(target, k) for k in range(1, order + 1)] for target in targets]

    def _ends(self, value: Value) -> bool:
        node = value.node
        return node is None or (node.serial < self._begin and self._stop(value))

    def is_active(self, value: Value) -> bool:
        """Return whether a value depends on a source in a way that has derivatives."""
        is_known_active = self._active.get(value)
        if is_known_active is not None:
            return is_known_active
        nodes, _ = extract([value], self._active, self._ends, visible_inputs)
        for node in nodes:
            moves = any(self._active.get(operand, False) for operand in visible_inputs(node))
            for out in node.outs:
                self._active.setdefault(out, moves and is_inexact(out.dtype))
        return self._active.setdefault(value, False)

    def is_source(self, value: Value) -> bool:
        """Return whether the series of a value is an argument."""
        return value in self._sources

    def direction(self, value: Value) -> Value | None:
        """Return what stands for the derivative of a value in t; None where that is zero."""
        return self._derivative(value) if self.is_active(value) else None

    def _derivative(self, value: Value) -> Value:
        value = self.representative(value)
        derivative = self._derivatives.get(value)
        if derivative is None:
            derivative = self._derivatives[value] = Value(value.aval)
            self._active[derivative] = True
            self._series[derivative] = _Derivative(self, value)
        return derivative

    def coefficient(self, value: Value, k: int) -> Coefficient:
        """Return coefficient k of a value; None for zero."""
        if not self.is_active(value):
            return value if k == 0 else None
        value = self.representative(value)
        coefficients = self._sources.get(value)
        if coefficients is not None:
            return value if k == 0 else coefficients[k - 1] if k <= len(coefficients) else None
        series = self._series.get(value)
        if series is not None:
            return series.at(k)[0]
        node = value.node
        assert node is not None
        base = self._bases.get(node)
        if base is None:
            base = self._bases[node] = self._base(node)
        if k == 0:
            return base.outs[value.index]
        series = self._series.get(node)
        if (
            series is None
        ):  # not before order 1: the rule may make the node's tangent, whose own tangent nobody may need
            series = self._series[node] = rule_of(node.op, node, self)(self, node, base)
        return series.at(k)[value.index]

    def first(self, value: Value) -> Value:
        """Return coefficient 0 of a value, zeros where it is zero."""
        constant_term = self.coefficient(value, 0)
        return broadcast_to(literal(0, value.dtype), value.shape) if constant_term is None else constant_term

    def representative(self, value: Value) -> Value:
        """Return the first value that was computed by the same ops from the same values: sin and cos lead back to each other."""
        representative = self._representatives.get(value)
        if representative is not None:
            return representative
        nodes, _ = extract([value], self._representatives, self._ends)
        for node in nodes:
            operands = tuple([self._representatives.get(operand, operand) for operand in node.inputs])
            key = _key(node, operands) if isinstance(node.op, Elementwise | IndexMap) else None
            for out in node.outs:
                self._representatives[out] = out if key is None else self._alike.setdefault(key, out)
        return self._representatives.setdefault(value, value)

    def _base(self, node: Node) -> Node:
        """Return the node with the coefficients 0 of its inputs."""
        inputs = tuple([self.first(operand) for operand in node.inputs])
        if all(first is operand for first, operand in zip(inputs, node.inputs, strict=True)):
            return node
        copy = Node(node.op, inputs, node.params, node.site)
        copy.make_outs(tuple([out.aval for out in node.outs]), merge_tags(inputs))
        return copy


def _key(node: Node, operands: Sequence[Value]) -> object:
    """Return a key that is equal for nodes that compute the same; None where they cannot be compared."""
    inputs = [
        (operand.aval, operand.data.tobytes())
        if isinstance(operand, Literal) and operand.data is not None
        else operand
        for operand in operands
    ]
    key = (node.op, tuple(inputs), tuple(sorted(node.params.items())))
    try:
        hash(key)
    except TypeError:
        return None
    return key


class Series(ABC):
    """The coefficients of the outputs of a node.

    Parameters
    ----------
    expansion : Expansion
        What the node is part of.
    node : Node
        The node.
    base : Node
        The same on coefficients 0.
    """

    def __init__(self, expansion: Expansion, node: Node, base: Node) -> None:
        self.expansion, self.node, self.base = expansion, node, base
        self.orders: list[Sequence[Coefficient]] = [base.outs]

    def at(self, k: int) -> Sequence[Coefficient]:
        """Return coefficients k, one per output."""
        if len(self.orders) <= k:
            with at(derivative_site(self.node, backward=False)):
                self.extend(k)
        return self.orders[k]

    @abstractmethod
    def extend(self, k: int) -> None:
        """Compute all coefficients up to k."""

    def of_inputs(self, k: int) -> list[Coefficient]:
        """Return coefficients k of the inputs that have derivatives; None for the others."""
        hidden = len(self.node.inputs) - len(visible_inputs(self.node))
        return [
            None if position < hidden else self.expansion.coefficient(operand, k)
            for position, operand in enumerate(self.node.inputs)
        ]


class ByOrder(Series):
    """A node whose coefficients are computed one order after the other."""

    def extend(self, k: int) -> None:
        """Compute all coefficients up to k."""
        while len(self.orders) <= k:
            self.orders.append(
                [
                    None if out is None or is_zero(out) else _fitted(out, like)
                    for out, like in zip(self.next(len(self.orders)), self.node.outs, strict=True)
                ]
            )

    @abstractmethod
    def next(self, k: int) -> Sequence[Coefficient]:
        """Return coefficients k from those before."""


def _fitted(value: Value, like: Value) -> Value:
    """Return a coefficient as an array of the shape and dtype of its value."""
    if value.dtype != like.dtype:
        value = convert(value, like.dtype)
    return broadcast_to(value, like.shape)


class _Derivative:
    """The derivative of a value: coefficient k is (k + 1) times coefficient k + 1 of the value."""

    def __init__(self, expansion: Expansion, value: Value) -> None:
        self.expansion, self._value = expansion, value
        self._found: dict[int, Coefficient] = {}

    def at(self, k: int) -> Sequence[Coefficient]:
        """Return coefficient k, as `Series.at`."""
        if k not in self._found:
            self._found[k] = _times(self.expansion.coefficient(self._value, k + 1), k + 1)
        return (self._found[k],)


class Constant(ByOrder):
    """A node without derivatives."""

    def next(self, k: int) -> Sequence[Coefficient]:
        return [None] * len(self.base.outs)


class Linear(ByOrder):
    """A node that is linear in all moving inputs together: each coefficient is that of the inputs, moved by the tangent."""

    def next(self, k: int) -> Sequence[Coefficient]:
        moving = self.of_inputs(k)
        if all(part is None for part in moving):
            return [None] * len(self.base.outs)
        return self.base.op.jvp(self.base, moving)


class Multilinear(ByOrder):
    """A node that is linear in each of several inputs: sums of products whose orders add up."""

    def next(self, k: int) -> Sequence[Coefficient]:
        expansion, node = self.expansion, self.node
        positions = [position for position, operand in enumerate(node.inputs) if expansion.is_active(operand)]
        terms: list[Sequence[Value]] = []
        for orders in _compositions(k, len(positions)):
            chosen = [
                expansion.coefficient(node.inputs[position], order)
                for position, order in zip(positions, orders, strict=True)
            ]
            if not any(part is None for part in chosen):
                inputs = dict(enumerate(self.base.inputs)) | dict(zip(positions, chosen, strict=True))
                terms.append(emit_all(node.op, list(inputs.values()), **node.params))  # type: ignore[arg-type]
        return [_total([term[index] for term in terms]) for index in range(len(node.outs))]


class Quotient(ByOrder):
    """The result z with z y = x: the coefficient of x, without the products of lower orders of z with y, divided by y."""

    def next(self, k: int) -> Sequence[Coefficient]:
        multiply, subtract = PRIMITIVES["multiply"], PRIMITIVES["subtract"]
        x, y = self.node.inputs
        remainder = self.expansion.coefficient(x, k)
        products = [
            multiply(part, before)
            for j in range(1, k + 1)
            if (part := self.expansion.coefficient(y, j)) is not None
            and (before := self.orders[k - j][0]) is not None
        ]
        total = _total(products)
        if total is not None:
            remainder = PRIMITIVES["negative"](total) if remainder is None else subtract(remainder, total)
        return [None if remainder is None else PRIMITIVES["divide"](remainder, self.base.inputs[1])]


class Square(ByOrder):
    """The square of a value: of two products that are the same one is computed."""

    def next(self, k: int) -> Sequence[Coefficient]:
        multiply = PRIMITIVES["multiply"]
        operand = self.node.op.square_of(*self.node.inputs)  # type: ignore[attr-defined]  # `rule_of` has asked it
        parts = [self.expansion.coefficient(operand, j) for j in range(k + 1)]
        pairs = [
            multiply(part, other)
            for part, other in zip(parts[: (k + 1) // 2], reversed(parts), strict=False)
            if part is not None and other is not None
        ]
        middle = parts[k // 2] if k % 2 == 0 else None
        return [_total([_times(_total(pairs), 2), None if middle is None else multiply(middle, middle)])]


class NegativePower(ByOrder):
    """The result z = x**a for a number a, with x z' = a x' z: powers that are lower by 1, 2, ... would have series of their own.

    Where x is 0 the result is infinite. So the powers above 0, which may have derivatives there, are integrals of lower ones.
    """

    def next(self, k: int) -> Sequence[Coefficient]:
        multiply = PRIMITIVES["multiply"]
        x, exponent = self.node.inputs
        above: Any = number_of(exponent)
        products = []
        for j in range(1, k + 1):
            part, before = self.expansion.coefficient(x, j), self.orders[k - j][0]
            if part is not None and before is not None:
                products.append(_times(multiply(part, before), ((above + 1) * j - k) / k))
        total = _total(products)
        return [None if total is None else PRIMITIVES["divide"](total, self.base.inputs[0])]


class Integral(ByOrder):
    """The integral of the tangent of a node.

    Parameters
    ----------
    tangents : sequence of Value or None
        The derivatives of the outputs in t.
    """

    def __init__(self, expansion: Expansion, node: Node, base: Node, tangents: Sequence[Coefficient]) -> None:
        super().__init__(expansion, node, base)
        self._tangents = tangents

    def next(self, k: int) -> Sequence[Coefficient]:
        return [
            None if tangent is None else _divided(self.expansion.coefficient(tangent, k - 1), k)
            for tangent in self._tangents
        ]


class Alias(ByOrder):
    """A node whose outputs other values compute."""

    def __init__(self, expansion: Expansion, node: Node, base: Node, values: Sequence[Value]) -> None:
        super().__init__(expansion, node, base)
        self._values = values

    def next(self, k: int) -> Sequence[Coefficient]:
        return [self.expansion.coefficient(value, k) for value in self._values]


Build = Callable[[Expansion, Node, Node], Series]


@singledispatch
def rule_of(op: Op, node: Node, expansion: Expansion) -> Build:
    """Return what computes the series of a node."""
    if not any(is_inexact(out.dtype) for out in node.outs):
        return Constant
    with at(derivative_site(node, backward=False)):
        rule = whole_at(node, lambda value: expansion.is_source(value) or not expansion.is_active(value))
        if isinstance(rule, Recomputed):
            return lambda series, at_node, base: Alias(series, at_node, base, [rule.value])
        if rule is not None:
            tangent = rule.push(list(map(expansion.direction, rule.operands)))
            return lambda series, at_node, base: Integral(series, at_node, base, [tangent])
        moving = [position for position, operand in enumerate(node.inputs) if expansion.is_active(operand)]
        kind = (
            _kind_by_facts(op, node, moving)
            if isinstance(op, Elementwise)
            else _kind_by_probe(node, moving, expansion)
        )
        return _integral(op, node, expansion) if kind is None else kind


@rule_of.register
def _custom(op: Custom, node: Node, expansion: Expansion) -> Build:
    return _integral(op, node, expansion)


def _integral(op: Op, node: Node, expansion: Expansion) -> Build:
    """Return the rule that integrates the tangent of a node."""
    with at(derivative_site(node, backward=False)):
        hidden = len(node.inputs) - len(visible_inputs(node))
        directions = list(map(expansion.direction, node.inputs))
        tangents = op.jvp(node, [*(None,) * hidden, *directions[hidden:]])
    return lambda series, at_node, base: Integral(series, at_node, base, tangents)


@rule_of.register
def _procedure(op: ProcedureOp, node: Node, expansion: Expansion) -> Build:
    """The tangent of a procedure is one of about twice its length."""
    nested, reference = 1, node.params["procedure"]
    while reference.primal is not None:
        nested, reference = nested + 1, reference.primal
    if nested > MOST_NESTED:
        raise NotDifferentiableError(
            f"taylor: a loop that is compiled from its code has no series beyond order {MOST_NESTED}",
            where=node.site,
            why="the program of its derivatives would double with each order",
            remedy="request a lower order, or write the loop with gt.scan, gt.fori_loop or gt.while_loop, which have series of any order",
        )
    return _integral(op, node, expansion)


@rule_of.register
def _call(op: GraphCall, node: Node, expansion: Expansion) -> Build:
    values = inlined(op.graph, node.inputs)
    return lambda series, at_node, base: Alias(series, at_node, base, values)


def _kind_by_facts(op: Elementwise, node: Node, moving: Sequence[int]) -> Build | None:
    """Return the short recurrence of a row, if it has one for the inputs that move."""
    if op.square_of is not None and op.square_of(*node.inputs) is not None:
        return Square
    if op.is_power and list(moving) == [0]:
        exponent = number_of(node.inputs[1])
        if isinstance(exponent, int | float) and exponent < 0:
            return NegativePower
    rules = op.linear_rules
    if set(moving).issubset(op.additive):
        return Linear
    if (
        rules is not None
        and all(rules[position] is not None for position in moving)
        and not set(moving).intersection(op.additive)
    ):
        return Linear if len(moving) == 1 else Multilinear
    return Quotient if op.is_quotient and 1 in moving else None


def _kind_by_probe(node: Node, moving: Sequence[int], expansion: Expansion) -> Build | None:
    """Return the short recurrence of a node, according to what its tangents depend on; None where there is none.

    The probe is a copy whose moving inputs are different values, even where those of the node are one.
    """
    inputs = list(node.inputs)
    for position in moving:
        inputs[position] = Value(inputs[position].aval)
    probe = Node(node.op, tuple(inputs), node.params, node.site)
    outs = probe.make_outs(node.types, merge_tags(inputs))
    reads: list[set[int]] = []
    for position in moving:
        direction = Value(inputs[position].aval)
        begin = next_serial()
        tangents = node.op.jvp(
            probe, [direction if position == other else None for other in range(len(inputs))]
        )
        reads.append(
            _reads(
                [tangent for tangent in tangents if tangent is not None],
                {
                    direction: None,
                    **dict.fromkeys(outs, OUTPUT),
                    **{inputs[other]: other for other in moving},
                },
                begin,
                expansion,
            )
        )
    if not any(reads):
        return Linear
    if all(OUTPUT not in read and position not in read for position, read in zip(moving, reads, strict=True)):
        return Multilinear
    return None


def _reads(
    values: Sequence[Value], positions_of: Mapping[Value, int | None], begin: int, expansion: Expansion
) -> set[int]:
    """Return which moving inputs values depend on, or `OUTPUT`, other than by comparisons; older nodes than `begin` are not visited."""
    positions: set[int] = set()
    visited: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value in visited or not is_inexact(value.dtype):
            continue
        visited.add(value)
        if value in positions_of:
            position = positions_of[value]
            if position is not None:
                positions.add(position)
        elif value.node is None or value.node.serial < begin:
            if expansion.is_active(value):
                positions.add(OUTPUT)
        else:
            stack.extend(value.node.inputs)
    return positions


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the tuples of orders whose sum is `total`.

    Examples
    --------
    >>> list(_compositions(2, 2))
    [(0, 2), (1, 1), (2, 0)]
    """
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for others in _compositions(total - first, parts - 1):
            yield (first, *others)


def _total(terms: Sequence[Coefficient]) -> Coefficient:
    """Return the sum of terms."""
    present = [term for term in terms if term is not None]
    return reduce(PRIMITIVES["add"], present) if present else None


def _times(value: Coefficient, number: float) -> Coefficient:
    return value if value is None or number == 1 else PRIMITIVES["multiply"](value, literal(float(number)))


def _divided(value: Coefficient, number: int) -> Coefficient:
    return value if value is None or number == 1 else PRIMITIVES["divide"](value, literal(float(number)))
