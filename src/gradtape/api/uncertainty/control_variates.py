"""A control variate for the choice of one decision: how the results of a sample change with all decisions, by one reverse sweep.

The nodes of a sample are recorded with a real number B added to each decision, which is 0: an op that reads the outcome k has the result
``z + B (z(other outcome) - z(k))``. Results of such ops are real, so the rest of the program is as it is. B has the derivative of the
decision's weight, also where that depends on earlier decisions (the straight-through estimator: Y. Bengio, N. Léonard and A. Courville,
"Estimating or Propagating Gradients Through Stochastic Neurons", 2013). The derivative of these results with respect to parameters is
the sum over all decisions of weight times c, where c is the derivative with respect to B. It is biased. Its bias is estimated by the
decision that is chosen, for which the difference is known: no bias is left, and less variance, as far as c is like the difference
(S. Gu, S. Levine, I. Sutskever and A. Mnih, "MuProp", 2016).

`combined` is the sum of both, and joins it with the score function (see `score_estimates`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.uncertainty.decisions import Deciding, Decision, still
from gradtape.ir.builder import emit, keep_names
from gradtape.ir.graph import Node, Value, constant, extract, merge_tags
from gradtape.ir.types import is_inexact
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.operands import as_value
from gradtape.ops.core.elementwise.arithmetic import add, negative, subtract
from gradtape.ops.core.elementwise.cast import convert_row, stop_gradient
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.reductions import reduce_sum
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.transforms.vjp import vjp as pulled

MOST_RESULTS: Final = 8
"""Numbers in the results from which on there is no control variate: each takes a reverse sweep."""

MOST_OUTCOMES: Final = 4
"""Decisions that are told apart in one truth value or integer; more of them are a sum."""


class Track(NamedTuple):
    """The steps of a sample, or of each sample: those of decisions, of further comparisons of uniform numbers, and of controls.

    Attributes
    ----------
    totals : Array
        The sum of the increments of each comparison.
    products : list of Array
        The sums of their products with the numbers in `own`.
    shared : list of Array
        Numbers that describe the state before each comparison.
    own : list of Array
        Such numbers for each element of the decisions.
    """

    totals: Any
    products: list[Any]
    shared: list[Any]
    own: list[Any]


class Known(NamedTuple):
    """The facts about all decisions of a sample, or of each sample.

    Attributes
    ----------
    usual : list of Array
        c for each result and decision: the results' shapes, and one axis of all decisions.
    chosen, inverse : Array
        The number of the decision that is chosen, and the inverse of the probability of that; 0 if it has no other outcome.
    sizes : Array
        About how large the derivatives of the weights are, with their signs.
    ratio : Array or None
        See `Decision`.
    track : Track or None
        The steps, if there are some.
    is_scored : Array or None
        Which decisions are searches of which the score function is known.
    log_chance, score_size : Array or None
        Of these the logarithm of the probability of all outcomes together, which has a derivative, and about how large that is.
    """

    usual: list[Any]
    chosen: Any
    inverse: Any
    sizes: Any
    ratio: Any
    track: Track | None
    is_scored: Any = None
    log_chance: Any = None
    score_size: Any = None


class _Outcome(NamedTuple):
    """A truth value or integer with another decision, without it (None: as it is), and the number B of the decision."""

    other: Value
    above: Value | None
    amount: Any


class _Relaxed:
    """Nodes of a sample, recorded with real numbers added to decisions."""

    def __init__(
        self,
        still_at: set[Node],
        drawn: Sequence[Decision],
        deciding: Callable[[dict[Value, Value]], Deciding],
    ) -> None:
        self._still_at = still_at
        self._drawn = {each.outcome: each for each in drawn}
        self.becomes: dict[Value, Value] = {}
        self._decided = deciding(self.becomes)
        self.amounts: dict[Value, Value] = {}
        self._outcomes: dict[Value, list[_Outcome]] = {}
        self._moved: dict[Value, Any] = {}

    def record(self, node: Node) -> None:
        """Record a node."""
        operands = tuple([self.becomes.get(value, value) for value in node.inputs])
        if node in self._still_at:
            operands = tuple([stop_gradient(x) if is_inexact(x.dtype) else x for x in operands])
        outs = node.outs if operands == node.inputs else _again(node, operands)
        for value, now in zip(node.outs, outs, strict=True):
            if now is not value:
                self.becomes[value] = now
        if len(node.outs) == 1:
            self._follow(node, operands, outs[0])
        for value in node.outs:
            self._enter(node, value)

    def result(self, value: Value) -> Any:
        """Return a result as a real number that has a derivative by decisions."""
        x = Array(self.becomes.get(value, value)) * 1.0
        amounts = [_by(each, self.becomes.get(value, value)) for each in self._outcomes.get(value, ())]
        return sum([*amounts, self._moved.get(value, 0.0)], x)

    def _enter(self, node: Node, value: Value) -> None:
        """Add a number to the decision of a node, or of a draw."""
        decision = self._drawn.get(value)
        if decision is not None:
            weight = self._upstream(decision.weight)
        else:
            decision = self._decided(node)
            if decision is None:
                return
            weight = decision.weight
        self.amounts[value] = constant(np.zeros(value.shape))
        weight = np.broadcast_to(weight, value.shape)
        now = Array(self.becomes.get(value, value))
        other, above = [
            None if outcome is None else _as(_data(np.broadcast_to(outcome(now), value.shape)).value, value)
            for outcome in (decision.other, decision.above)
        ]
        assert other is not None
        amount = Array(self.amounts[value]) + (weight - still(weight))
        self._outcomes[value] = [_Outcome(other, above, amount)]

    def _upstream(self, weight: Any) -> Any:
        """Return the weight of a draw, computed of what came before it; the numbers that are drawn count as they are."""
        if not isinstance(weight, Handle):
            return weight
        nodes, _ = extract([weight.value], (), stop=lambda value: value in self.becomes)
        becomes = dict(self.becomes)
        for node in nodes:
            operands = tuple([becomes.get(value, value) for value in node.inputs])
            if operands != node.inputs:
                becomes.update(zip(node.outs, _again(node, operands), strict=True))
        return Array(becomes.get(weight.value, weight.value))

    def _follow(self, node: Node, operands: tuple[Value, ...], now: Value) -> None:
        """Let the result of a node depend on the decisions that its operands depend on."""
        (out,) = node.outs
        outcomes: list[_Outcome] = []
        for position, value in enumerate(node.inputs):
            for each in self._outcomes.get(value, ()):
                amount = _amount(node, position, value, each.amount)
                if amount is None:
                    continue
                above = None if each.above is None else _with(node, operands, position, each.above)
                outcomes.append(_Outcome(_with(node, operands, position, each.other), above, amount))
        moved = self._sums(node, operands)
        if node.op is reduce_sum and not is_inexact(node.inputs[0].dtype):
            for each in self._outcomes.get(node.inputs[0], ()):
                change = np.broadcast_to(_by(each, operands[0]), node.inputs[0].shape)
                part = Array(reduce_sum(_data(change).value, axes=node.params["axes"]))
                moved = part if moved is None else moved + part
            outcomes = []
        if out.dtype.kind == "f":
            if outcomes or moved is not None:
                x = sum([_by(each, now) for each in outcomes], Array(now))
                x = x if moved is None else x + moved
                self.becomes[out] = _as(_data(np.broadcast_to(x, out.shape)).value, out)
            return
        if len(outcomes) > MOST_OUTCOMES and out.dtype.kind in "iu":
            moved = sum([_by(each, now) for each in outcomes], 0.0 if moved is None else moved)
            outcomes = []
        if outcomes:
            self._outcomes[out] = outcomes[:MOST_OUTCOMES]
        if moved is not None:
            self._moved[out] = moved

    def _sums(self, node: Node, operands: tuple[Value, ...]) -> Any:
        """Return by how much the result of a node moves with sums over decisions, for ops that are linear."""
        moved = [self._moved.get(value) for value in node.inputs]
        if all(part is None for part in moved):
            return None
        first, *further = [0.0 if part is None else part for part in moved]
        if node.op is convert_row:
            return first
        if node.op is add:
            return first + further[0]
        if node.op is subtract:
            return first - further[0]
        if node.op is negative:
            return -first
        if node.op is where:
            return np.where(Array(operands[0]), further[0], further[1])
        if node.op is reduce_sum or (isinstance(node.op, IndexMap) and moved[0] is not None):
            base = _data(np.broadcast_to(first, node.inputs[0].shape)).value
            return Array(emit(node.op, [base, *operands[1:]], **node.params))
        return None


def _again(node: Node, operands: tuple[Value, ...]) -> Sequence[Value]:
    """Record a node with other operands of the same types."""
    copy = Node(node.op, operands, node.params, node.site)
    outs = copy.make_outs(tuple([out.aval for out in node.outs]), merge_tags(operands))
    keep_names(node.outs, outs)
    return outs


def _with(node: Node, operands: tuple[Value, ...], position: int, value: Value) -> Value:
    return _again(node, (*operands[:position], value, *operands[position + 1 :]))[0]


def _data(x: Any) -> Any:
    return x if isinstance(x, Handle) else Array(as_value(x))


def _as(value: Value, like: Value) -> Value:
    return value if value.dtype == like.dtype else Array(value).astype(like.dtype).value


def _by(outcome: _Outcome, now: Value) -> Any:
    """Return B times the difference that a decision makes, which has no derivative of its own."""
    above = now if outcome.above is None else outcome.above
    change = still(Array(outcome.other) * 1.0 - Array(above) * 1.0)
    return outcome.amount * np.where(np.isfinite(change), change, 0.0)


def _amount(node: Node, position: int, value: Value, amount: Any) -> Any:
    """Return B for the result of a node; None if its elements are not those of the operand."""
    (out,) = node.outs
    if amount.ndim == 0:
        return amount
    if isinstance(node.op, Elementwise):
        is_same = amount.shape == out.shape
        return amount if is_same or _broadcasts(amount.shape, out.shape) else None
    if isinstance(node.op, IndexMap):
        if position == 0:
            base = _data(np.broadcast_to(amount, value.shape)).value
            return Array(emit(node.op, [base, *node.inputs[1:]], **node.params))
        return amount if out.shape == amount.shape else None
    return None


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


def control_variate(
    nodes: Sequence[Node],
    results: Sequence[Value],
    still_at: set[Node],
    drawn: Sequence[Decision],
    outcomes: Sequence[Value],
    deciding: Callable[[dict[Value, Value]], Deciding],
) -> list[Any] | None:
    """Return c for each result and decision: the results' shapes, and one axis of all decisions; None where that takes many sweeps.

    Parameters
    ----------
    nodes, results, still_at
        As for `replayed`.
    drawn : sequence of Decision
        Those of discrete distributions.
    outcomes : sequence of Value
        What is decided, in the order in which decisions are counted.
    deciding : callable
        ``(what values become) -> (node -> Decision or None)``: the comparisons.
    """
    if not 0 < sum(value.size for value in results) <= MOST_RESULTS:
        return None
    relaxed = _Relaxed(still_at, drawn, deciding)
    for node in nodes:
        relaxed.record(node)
    ends = [relaxed.result(value) for value in results]
    amounts = [relaxed.amounts[value] for value in outcomes]
    return [_slopes(end, amounts) for end in ends]


def _slopes(end: Any, amounts: Sequence[Value]) -> Any:
    """Return the derivatives of a result with respect to the numbers B, which are 0 where they are infinite."""
    count = sum(amount.size for amount in amounts)
    rows = []
    for seed in np.eye(end.size):
        parts = pulled([end.value], amounts, [constant(seed.reshape(end.shape))], lambda value: False)
        flat = [
            np.zeros(amount.size) if part is None else np.ravel(np.broadcast_to(Array(part), amount.shape))
            for part, amount in zip(parts, amounts, strict=True)
        ]
        row = np.concatenate(flat)
        rows.append(still(np.where(np.isfinite(row), row, 0.0)))
    return np.reshape(np.stack(rows), (*end.shape, count)) if rows else np.zeros((*end.shape, count))
