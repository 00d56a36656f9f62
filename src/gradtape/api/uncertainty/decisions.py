"""Decisions by chance in a function of one sample: where random numbers, and parameters, decide what is computed.

A decision is where a small change of a parameter changes the result by a jump, with a small probability:

- a comparison ``u < r`` of a random number u of density d(u) with a threshold r. The derivative of the expectation is
  ``E[d(r) dr (f(just below) - f(just above))]``, by Leibniz's rule for the integral over u;
- an integer k of a discrete distribution F: ``E[-dF(k) / P(k) (f(k + 1) - f(k))]``, by summation by parts.

`found_in` finds the comparisons in recorded nodes; the rules of `discrete` draw the integers. `replayed` records the nodes once more, with
one decision changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.body import Body, bodies_of
from gradtape.ir.builder import keep_names
from gradtape.ir.graph import Literal, Node, TraceTag, Value, merge_tags
from gradtape.ir.op import Op
from gradtape.ir.types import is_inexact
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import as_value
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, negative, subtract
from gradtape.ops.core.elementwise.cast import convert_row, stop_gradient
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.floats import isfinite, isinf, isnan
from gradtape.ops.core.elementwise.integer import floor_divide, fmod, remainder
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.logic import (
    greater,
    greater_equal,
    less,
    less_equal,
)
from gradtape.ops.core.elementwise.signs import heaviside, sign
from gradtape.ops.core.shape import expand_row, reshape_row, slice_row
from gradtape.ops.core.sorting import argsort, searchsorted
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.random.comparisons import ROUNDING
from gradtape.trace.random.draws import is_differentiated
from gradtape.trace.random.lanes import Drawn, Lanes

COMPARISONS: Final[dict[Op, bool]] = {less: True, less_equal: True, greater: False, greater_equal: False}
"""Comparisons, and whether they hold where the first operand is small."""

SHAPES: Final = frozenset({reshape_row, expand_row, convert_row})
"""Ops that keep the elements and their order, if the size is the same."""

SMOOTH: Final = frozenset({stop_gradient, isnan, isinf, isfinite})
"""Ops without derivatives whose results do not jump, except where probability is zero."""

JUMPING: Final = ROUNDING | {sign, heaviside, floor_divide, remainder, fmod}
"""Ops with real results that jump."""

CONTINUOUS: Final = frozenset({"np.interp"})
"""Functions of NumPy that compare their operands, and whose results do not jump."""

UNLIKELY: Final = 0.02
"""The probability of an outcome from which on the score function is an estimate: that of rare outcomes is wrong in most calls."""

MOST_SLICES: Final = 1 << 16
"""Positions of slices of one draw that are compared, to see whether they overlap."""


class Unseen(NamedTuple):
    """A decision by chance that has no part in the derivative.

    Attributes
    ----------
    node : Node or None
        What decides, or the loop or branch in which that is; None for a draw.
    outs : sequence of Value
        What depends on it.
    parameters : sequence of Value
        Those that change how often an outcome occurs.
    message, why : str
        For the error.
    site : object
        The line.
    """

    node: Node | None
    outs: Sequence[Value]
    parameters: Sequence[Value]
    message: str
    why: str
    site: Any


class Step(NamedTuple):
    """A comparison of a uniform number with a threshold as a step of a martingale: its increment has the mean 0, whatever came before.

    Attributes
    ----------
    increment : Array
        One if the number is below the threshold, else 0, less the probability of that; 0 where an outcome is `UNLIKELY`.
    chance : Array
        The probability; one number, if it is the same for all elements.
    bit : int
        The bit of the number in the masks of what depends on it.
    is_felt : Array or bool
        Where the outcome can matter.
    """

    increment: Any
    chance: Any
    bit: int
    is_felt: Any = True


class Search(NamedTuple):
    """A choice among outcomes by a uniform number, as resampling: what the score function needs of it.

    Attributes
    ----------
    is_likely : Array
        Whether all outcomes that are possible occur often enough; see `UNLIKELY`.
    log_chances : Array
        The logarithms of the probabilities of the outcomes, which have derivatives; 0 where `is_likely` is not.
    sizes : Array
        About how large these derivatives are, with their signs.
    chances : Array
        The probabilities of all outcomes; the last one is that of a number above all edges.
    """

    is_likely: Any
    log_chances: Any
    sizes: Any
    chances: Any


class Decision(NamedTuple):
    """One decision, of an array of outcomes.

    Attributes
    ----------
    outcome : Value
        A truth value or an integer.
    other : callable
        ``(outcome as recorded again) -> Array``: the outcome on the other side of the jump; below the threshold where `number` is set.
    above : callable or None
        The outcome above the threshold, where that needs a run of its own.
    number, threshold : Value and Array, or None
        The random number, and what it is at the jump; where other nodes read it.
    weight : Array
        Has the derivative by which the difference of the results is multiplied.
    importance : Array
        About how large that is: in proportion to it, one decision of a sample is chosen.
    has_other : Array or bool
        Where there is another outcome. Elsewhere it may be one that the function was not written for, and counts for nothing.
    size : Array or None
        About how large the derivative of `weight` is, with its sign; None is the importance.
    ratio : Array or None
        The derivative of the logarithm of the outcome's probability, divided by that of `weight`; 0 where it is not used (see `UNLIKELY`).
    step : Step or None
        The comparison of a uniform number, where `ratio` is set.
    search : Search or None
        The choice among outcomes, of `searchsorted`.
    """

    outcome: Value
    other: Callable[[Any], Any]
    above: Callable[[Any], Any] | None
    number: Value | None
    threshold: Any
    weight: Any
    importance: Any
    has_other: Any
    size: Any = None
    ratio: Any = None
    step: Step | None = None
    search: Search | None = None


def still(x: Any) -> Any:
    """Return a number that has no derivative."""
    return Array(stop_gradient(x.value)) if isinstance(x, Handle) and is_inexact(x.dtype) else x


def _may_move(value: Value) -> bool:
    """Return whether a value may have a derivative, as far as that is known while it is traced."""
    if isinstance(value, Literal) or not is_inexact(value.dtype):
        return False
    if any(type(tag) is TraceTag and tag.recording for tag in value.tags):
        return is_differentiated(value)
    return trace_of(value) is not None and not (value.node is not None and value.node.op is stop_gradient)


class Graph:
    """The nodes of one sample, with who reads a value, and on which random numbers it depends."""

    def __init__(
        self,
        nodes: Sequence[Node],
        results: Sequence[Value],
        drawn: Sequence[Drawn],
        tag: Any,
        becomes: dict[Value, Value],
    ) -> None:
        self.nodes = nodes
        self.becomes = becomes
        self.tag = tag
        self.readers: dict[Value, list[Node]] = {}
        for node in nodes:
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault(value, []).append(node)
        self.times = Counter(value for node in nodes for value in node.inputs)
        self.times.update(results)
        self.noise: dict[Value, Drawn] = {}
        for draw in drawn:
            if draw.density is not None:
                for value in self._parts(draw.value):
                    self.noise[value] = draw
        bits = {value: 1 << number for number, value in enumerate(self.noise)}
        self.depends: dict[Value, int] = dict(bits)
        self.of_bit = list(self.noise)
        self.moves: dict[Value, bool] = {}
        for node in nodes:
            mask, moves = 0, False
            for value in node.inputs:
                mask |= self.depends.get(value, 0)
                moves |= self.may_move(value)
            for out in node.outs:
                if out not in bits:
                    self.depends[out] = mask
                self.moves[out] = moves and is_inexact(out.dtype) and node.op is not stop_gradient

    def array(self, value: Value) -> Any:
        """Return a value as it was recorded again."""
        return Array(self.becomes.get(value, value))

    def may_move(self, value: Value) -> bool:
        """Return whether a value may have a derivative."""
        if value in self.moves:
            return self.moves[value]
        return self.tag not in value.tags and _may_move(value)

    def _parts(self, value: Value) -> list[Value]:
        """Return a draw, or its slices, and theirs, if nothing else reads it and they have no element in common."""
        readers = self.readers.get(value, [])
        if len(readers) == 1 and readers[0].op is reshape_row:
            parts = self._parts(readers[0].outs[0])
            return parts if len(parts) > 1 else [value]
        if len(readers) < 2 or any(node.op is not slice_row for node in readers):
            return [value]
        positions = np.arange(value.size).reshape(value.shape)
        cut = [positions[_slices(node)].ravel() for node in readers]
        total = sum(map(len, cut))
        if total > MOST_SLICES or len(np.unique(np.concatenate(cut))) < total:
            return [value]
        return [part for node in readers for part in self._parts(node.outs[0])]


def _slices(node: Node) -> tuple[slice, ...]:
    starts, shape, strides = (node.params[key] for key in ("starts", "shape", "strides"))
    return tuple(
        slice(start, None if (stop := start + count * step) < 0 else stop, step)
        for start, count, step in zip(starts, shape, strides, strict=True)
    )


Deciding = Callable[[Node], Decision | None]
"""The decision of a node; None if there is none."""


def deciding_among(
    nodes: Sequence[Node], results: Sequence[Value], lanes: Lanes, becomes: dict[Value, Value]
) -> Deciding:
    """Return what finds the decision of one of the recorded nodes.

    Parameters
    ----------
    nodes : sequence of Node
        What computes the results of a sample.
    results : sequence of Value
        These.
    lanes : Lanes
        The samples.
    becomes : dict
        What values were recorded again as, of which weights are computed.
    """
    graph = Graph(nodes, results, lanes.drawn_numbers, lanes.tag, becomes)

    def decided(node: Node) -> Decision | None:
        if node.op not in COMPARISONS and node.op is not searchsorted:
            return None
        if not any(graph.may_move(value) for value in node.inputs):
            return None
        return searched_at(graph, node) if node.op is searchsorted else compared_at(graph, node)

    return decided


def found_in(
    nodes: Sequence[Node], results: Sequence[Value], lanes: Lanes, becomes: dict[Value, Value]
) -> tuple[list[Decision], set[Node]]:
    """Return the decisions of recorded nodes, and those nodes whose operands need no derivative for it; see `deciding_among`."""
    decided = deciding_among(nodes, results, lanes, becomes)
    decisions_by_node = {node: decision for node in nodes if (decision := decided(node)) is not None}
    return list(decisions_by_node.values()), set(decisions_by_node)


def differentiated(decisions: list[Decision]) -> list[Decision]:
    """Return the decisions, with the importance 0 where parameters decide without a derivative, if one follows others.

    Captured numbers are such. They are traced, so that a derivative of a result may follow them later: their differences remain.
    """
    is_differentiated = [
        isinstance(each.weight, Handle)
        and any(type(tag) is TraceTag and tag.recording for tag in each.weight.value.tags)
        for each in decisions
    ]
    if not any(is_differentiated):
        return decisions
    return [
        each if flag else each._replace(importance=0.0, size=None, ratio=None, step=None, search=None)
        for each, flag in zip(decisions, is_differentiated, strict=True)
    ]


def deciding_in_bodies(nodes: Sequence[Node], lanes: Lanes) -> list[Node]:
    """Return the loops and branches among recorded nodes in whose bodies chance and parameters decide."""
    moving: dict[Value, bool] = {}
    jumps = _jumps(nodes, set(), partial(_may_move_in_sample, moving, lanes), moving, _random(lanes))
    return [node for node in dict.fromkeys(node for node, _ in jumps) if bodies_of(node)]


def _random(lanes: Lanes) -> set[Value]:
    return {draw.value for draw in lanes.drawn_numbers if is_inexact(draw.value.dtype)}


def _may_move_in_sample(moving: dict[Value, bool], lanes: Lanes, value: Value) -> bool:
    return moving.get(value, lanes.tag not in value.tags and _may_move(value))


def unseen_in(nodes: Sequence[Node], compared: set[Node], lanes: Lanes) -> list[Unseen]:
    """Return the decisions of recorded nodes of which no difference can be computed."""
    moving: dict[Value, bool] = {}
    may_move = partial(_may_move_in_sample, moving, lanes)
    unseen = []
    for node, inner in _jumps(nodes, compared, may_move, moving, _random(lanes)):
        unseen.append(
            Unseen(
                node,
                node.outs,
                [value for value in node.inputs if may_move(value)],
                "gt.expectation cannot differentiate a decision by chance",
                "a result jumps where numbers that depend on chance and on a parameter cross a threshold, "
                + (
                    "and no difference of both sides is computed in a branch, a while loop, or a loop of many iterations"
                    if bodies_of(node)
                    else "and it cannot be solved for one random number"
                ),
                inner.site,
            )
        )
    return unseen + [
        Unseen(
            None,
            [each.value],
            each.parameters,
            f"gt.expectation cannot differentiate with respect to parameters of {each.name}",
            "the numbers are constants in derivatives, and how often each of them is drawn depends on the parameters",
            each.site,
        )
        for each in lanes.constants
    ]


def _jumps(
    nodes: Sequence[Node],
    compared: set[Node],
    may_move: Callable[[Value], bool],
    moving: dict[Value, bool],
    random: set[Value],
) -> Iterator[tuple[Node, Node]]:
    """Yield the nodes whose outputs jump where chance and parameters decide, and the node in a body, or itself; `moving` and `random`
    become what depends on parameters and on chance. Of what has finitely many values, another comparison jumps with probability zero."""
    readers: dict[Value, list[Node]] = {}
    for node in nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    for node in nodes:
        moves = [may_move(value) for value in node.inputs]
        chances = [value in random for value in node.inputs]
        if any(moves) and any(chances) and node not in compared:
            if _is_jump(node) and not _sorts(node, readers):
                yield node, node
            for body in bodies_of(node):
                for _, inner in _jumps_in_body(node, body, moves, chances):
                    yield node, inner
        for out in node.outs:
            moving[out] = any(moves) and is_inexact(out.dtype) and node.op is not stop_gradient
        if any(chances):
            random.update(out for out in node.outs if is_inexact(out.dtype))


def _sorts(node: Node, readers: dict[Value, list[Node]]) -> bool:
    """Return whether the order is used to sort the same numbers, which is continuous."""
    reading = readers.get(node.outs[0], [])
    return bool(
        node.op is argsort
        and reading
        and all(len(each.inputs) == 2 and each.inputs[0] is node.inputs[0] for each in reading)
    )


def _at(moving: dict[Value, bool], value: Value) -> bool:
    return moving.get(value, False)


def _jumps_in_body(
    node: Node, body: Body, moves: Sequence[bool], chances: Sequence[bool]
) -> list[tuple[Node, Node]]:
    """Return the jumps in a body, whose last inputs are the operands; what a loop carries is what it becomes in any iteration."""
    operands = list(zip(reversed(body.inputs), reversed(moves), reversed(chances), strict=False))
    started = {value: flag and is_inexact(value.dtype) for value, flag, _ in operands}
    drawn = {value for value, _, flag in operands if flag and is_inexact(value.dtype)}
    carries = node.params.get("carries", 0)
    first = len(body.inputs) - len(moves) + node.params.get("consts", 0)
    while True:
        moving, random = dict(started), set(drawn)
        jumps = list(_jumps(body.nodes, set(), partial(_at, moving), moving, random))
        before = sum(started.values()), len(drawn)
        if node.params.get("body") is body:
            for value, out in zip(body.inputs[first : first + carries], body.outputs, strict=False):
                started[value] = started.get(value, False) or moving.get(out, False)
                if out in random:
                    drawn.add(value)
        if (sum(started.values()), len(drawn)) == before:
            return jumps


def _is_jump(node: Node) -> bool:
    """Return whether outputs jump where inputs cross a threshold."""
    if node.op in SMOOTH or bodies_of(node) or getattr(node.site, "via", "") in CONTINUOUS:
        return False
    if node.op in JUMPING or not any(is_inexact(out.dtype) for out in node.outs):
        return True
    return isinstance(node.op, Elementwise) and not node.op.differentiable


def compared_at(graph: Graph, node: Node) -> Decision | None:
    """Return the decision of a comparison; None if no random number can be found for which it can be solved."""
    left, right = node.inputs
    both = graph.depends.get(left, 0) | graph.depends.get(right, 0)
    shared = graph.depends.get(left, 0) & graph.depends.get(right, 0)
    for number in _bits(both & ~shared):
        bit = 1 << number
        is_left = bool(graph.depends.get(left, 0) & bit)
        start, target = (left, right) if is_left else (right, left)
        solved = _solved(graph, start, graph.array(target), bit)
        if solved is None:
            continue
        threshold, rises, path = solved
        noise = graph.of_bit[number]
        if noise.size != node.outs[0].size:
            continue
        holds_below = COMPARISONS[node.op] == is_left
        return _crossing(graph, node.outs[0], noise, threshold, rises, holds_below, path)
    return None


def _bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, the last one first: the last draw is the nearest."""
    while mask:
        number = mask.bit_length() - 1
        yield number
        mask ^= 1 << number


def _solved(graph: Graph, start: Value, target: Any, bit: int) -> tuple[Any, Any, list[Value]] | None:
    """Solve ``start == target`` for a random number.

    Returns
    -------
    threshold : Array
        The solution.
    rises : Array or bool
        Whether `start` grows with the number.
    path : list of Value
        The values between.
    """
    value, path = start, [start]
    rises: Any = True
    while value not in graph.noise:
        node = value.node
        if node is None:
            return None
        on = [bool(graph.depends.get(x, 0) & bit) for x in node.inputs]
        if sum(on) != 1:
            return None
        inner = node.inputs[on.index(True)]
        is_first = on[0]
        other_operand: Any = graph.array(node.inputs[1 - on.index(True)]) if len(node.inputs) == 2 else None
        if node.op in SHAPES and inner.size == value.size and inner.dtype == value.dtype:
            target = np.reshape(np.broadcast_to(target, value.shape), inner.shape)
            rises = (
                rises
                if isinstance(rises, bool)
                else np.reshape(np.broadcast_to(rises, value.shape), inner.shape)
            )
        elif node.op is slice_row and inner in graph.noise and inner.size == value.size:
            target = np.reshape(np.broadcast_to(target, value.shape), inner.shape)
        elif other_operand is not None and inner.shape != value.shape:
            return None
        elif node.op is add:
            target = target - other_operand
        elif node.op is subtract:
            target, rises = (
                (target + other_operand, rises) if is_first else (other_operand - target, _not(rises))
            )
        elif node.op is multiply:
            target, rises = target / other_operand, rises == (other_operand > 0.0)
        elif node.op is divide and is_first:
            target, rises = target * other_operand, rises == (other_operand > 0.0)
        elif node.op is negative:
            target, rises = -target, _not(rises)
        elif node.op is exp:
            target = np.where(target > 0.0, np.log(np.where(target > 0.0, target, 1.0)), -np.inf)
        elif node.op is log:
            target = np.exp(target)
        else:
            return None
        value = inner
        path.append(value)
    return target, rises, path


def _not(rises: Any) -> Any:
    return not rises if isinstance(rises, bool) else ~rises


def _crossing(
    graph: Graph,
    outcome: Value,
    noise: Value,
    threshold: Any,
    rises: Any,
    holds_below: bool,
    path: list[Value],
) -> Decision:
    density = graph.noise[noise].density
    assert density is not None
    is_shared = np.ndim(threshold) == 0
    threshold = np.reshape(np.broadcast_to(threshold, noise.shape), outcome.shape)
    at = still(threshold)
    height = density(at)
    is_inside = np.isfinite(at) & (height > 0.0)
    weight = np.where(is_inside, height, 0.0) * np.where(is_inside, threshold, 0.0)
    importance = np.where(is_inside, height * _spread(graph.noise[noise], at), 0.0)
    is_read_elsewhere = any(graph.times[value] > 1 for value in path)
    if not is_read_elsewhere:
        is_below = np.reshape(Array(noise), outcome.shape) < at
        sign = np.where(is_below, -1.0, 1.0)
        decision = Decision(outcome, np.logical_not, None, None, None, weight * sign, importance, is_inside)
        if not graph.noise[noise].is_unit:
            return decision
        is_likely = (at > UNLIKELY) & (at < 1.0 - UNLIKELY)
        chance = np.where(is_likely, at, 0.5)
        ratio = np.where(is_likely, -1.0 / np.where(is_below, chance, 1.0 - chance), 0.0)
        increment = np.where(is_likely, np.where(is_below, 1.0 - chance, -chance), 0.0)
        step = Step(increment, np.ravel(chance)[0] if is_shared else chance, graph.depends[noise])
        return decision._replace(size=sign * importance, ratio=ratio, step=step)
    low = (
        np.broadcast_to(np.asarray(rises == holds_below), outcome.shape)
        if isinstance(rises, bool)
        else np.reshape(np.broadcast_to(rises, noise.shape), outcome.shape) == holds_below
    )
    at_noise = np.reshape(np.where(is_inside, at, 0.0), noise.shape)
    return Decision(
        outcome, lambda _: low, lambda _: np.logical_not(low), noise, at_noise, weight, importance, is_inside
    )


def _spread(draw: Drawn, at: Any) -> Any:
    """Return about how far a threshold moves with a parameter."""
    return np.minimum(at, 1.0 - at) if draw.is_unit else np.abs(at) + 0.1


def searched_at(graph: Graph, node: Node) -> Decision | None:
    """Return the decision of ``np.searchsorted(edges, u)``: the number of edges below u."""
    edges, number = node.inputs
    if graph.depends.get(edges, 0) & graph.depends.get(number, 0):
        return None
    solved = _solved(graph, number, 0.0, graph.depends.get(number, 0)) if number.node is not None else None
    path = [number] if solved is None else solved[2]
    if any(
        graph.times[value] > 1 or (value.node is not None and value.node.op not in SHAPES) for value in path
    ):
        return None
    draw = graph.noise.get(path[-1])
    if draw is None or not draw.is_unit or not edges.size:
        return None
    table, count = graph.array(edges), edges.size
    k = graph.array(node.outs[0])
    weight, importance, is_step = _step(table, k)
    upper = still(np.take(table, np.minimum(k, count - 1)))

    def other(k: Any) -> Any:
        # Outcomes of probability zero stay at zero: the next one is behind them.
        return np.where(is_step, np.searchsorted(still(table), upper, side="right"), k)

    search = _search(table, k)
    return Decision(
        node.outs[0], other, None, None, None, weight, importance, is_step, size=-importance, search=search
    )


def _search(edges: Any, k: Any) -> Search:
    """Return the choice among the steps of cumulative probabilities."""
    upper = np.concatenate([np.minimum(edges, 1.0), np.ones(1)])
    lower = np.concatenate([np.zeros(1), upper[:-1]])
    chances = np.maximum(upper - lower, 0.0)
    still_chances, moved = still(chances), [still(np.minimum(x, 1.0 - x)) for x in (upper, lower)]
    is_likely = np.min(np.where(still_chances > 0.0, still_chances, 1.0)) > UNLIKELY / edges.size
    chance, sizes = np.take(chances, k), np.take(moved[0] - moved[1], k)
    safe = np.where(is_likely, chance, 1.0)
    return Search(is_likely, np.log(safe), np.where(is_likely, sizes / still(safe), 0.0), chances)


def _step(edges: Any, k: Any) -> tuple[Any, Any, Any]:
    """Return weight and importance of the step from k to the next outcome, given the cumulative probabilities, and whether there is one."""
    count = edges.shape[0]
    position = np.minimum(k, count - 1)
    upper = np.take(edges, position)
    lower = np.where(k > 0, np.take(edges, np.maximum(position - 1, 0)), 0.0)
    is_step = (k < count) & (still(upper) < 1.0)
    chance = np.where(is_step, still(upper - lower), 1.0)
    weight = np.where(is_step, -upper, 0.0) / np.maximum(chance, 1e-300)
    size = still(np.minimum(upper, 1.0 - upper)) / np.maximum(chance, 1e-300)
    return weight, np.where(is_step, size, 0.0), is_step


def replayed(
    nodes: Sequence[Node],
    results: Sequence[Value],
    still_at: set[Node],
    changes: dict[Value, Callable[[Any], Any]],
) -> tuple[list[Value], dict[Value, Value]]:
    """Record nodes once more, and return the results, and what each value becomes.

    Parameters
    ----------
    nodes, results
        What is recorded again.
    still_at : set of Node
        Nodes whose operands have no derivative.
    changes : dict
        ``(value as recorded again) -> Array`` by the values that are changed.
    """
    becomes: dict[Value, Value] = {}

    def enter(value: Value, now: Value) -> None:
        change = changes.get(value)
        if change is not None:
            changed = change(Array(now))
            now = changed.value if isinstance(changed, Handle) else as_value(changed)
        if now is not value:
            becomes[value] = now

    for value in changes:
        if value.node is None:
            enter(value, value)
    for node in nodes:
        operands = tuple([becomes.get(value, value) for value in node.inputs])
        if node in still_at:
            operands = tuple([stop_gradient(x) if is_inexact(x.dtype) else x for x in operands])
        if operands == node.inputs:
            outs: Sequence[Value] = node.outs
        else:
            copy = Node(node.op, operands, node.params, node.site)
            outs = copy.make_outs(tuple([out.aval for out in node.outs]), merge_tags(operands))
            keep_names(node.outs, outs)
        for value, now in zip(node.outs, outs, strict=True):
            enter(value, now)
    return [becomes.get(value, value) for value in results], becomes
