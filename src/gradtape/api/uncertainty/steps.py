"""The facts about the random numbers of a sample, step by step: increments of martingales, and numbers that describe the state before.

A step is a comparison of a uniform number; its increment is the outcome less its probability. A control is any other draw, or the outcome
of a search: functions of it whose means are 0 whatever came before, and which move with the parameters.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.uncertainty.decisions import (
    COMPARISONS,
    Decision,
    Graph,
    Step,
    compared_at,
    searched_at,
    still,
)
from gradtape.ir.graph import Node, Value
from gradtape.ir.types import is_inexact
from gradtape.ops.core.elementwise.arithmetic import add, multiply, negative, subtract
from gradtape.ops.core.elementwise.cast import convert_row
from gradtape.ops.core.elementwise.logic import bitwise_and, bitwise_or, logical_and, logical_or
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import gather_row
from gradtape.ops.core.sorting import searchsorted
from gradtape.trace.array.array import Array
from gradtape.trace.random.lanes import Lanes

MOST_STATES: Final = 2
"""How many numbers of the program describe the state before a comparison, beside its threshold."""

MOST_CONTROLS: Final = 16
"""How many draws and searches have control variates: least squares with the factors of more would take longer than the samples."""

POWERS: Final = (1, 2, 3)
"""Of what is taken at the outcome of a search."""

LOOKED_AT: Final = 16
"""How many nodes behind a comparison are looked at for these."""


class Control(NamedTuple):
    """Functions whose means are 0, whatever came before, and which move with the parameters: of draws, or of outcomes of searches.

    Attributes
    ----------
    functions : list of Array
        Of the numbers, or outcomes.
    shared, own : list of Array
        Numbers of the state before; see `State`.
    """

    functions: list[Any]
    shared: list[Any]
    own: list[Any]


class State(NamedTuple):
    """Numbers that describe the state before a step: they depend on no number that this step or a later one compares.

    Attributes
    ----------
    shared : list of Array
        One number each, for all elements of the step.
    own : list of Array
        Numbers for each element, the most important one first: the sum of the increments of the elements before it.
    """

    shared: list[Any]
    own: list[Any]


def steps_in(
    nodes: Sequence[Node],
    results: Sequence[Value],
    lanes: Lanes,
    becomes: dict[Value, Value],
    decisions: Sequence[Decision],
) -> tuple[list[tuple[int | None, Step, State]], list[Control]]:
    """Return the comparisons of uniform numbers, each behind those on which its probability depends; and functions of other numbers.

    Those that no parameter moves are among them, unless numbers are drawn of which it is not known from the nodes what they depend on.

    Returns
    -------
    steps : list of tuple
        The number of the decision among `decisions`, or None; the step; and the state before it.
    controls : list of Control
        Of draws, and of the outcomes of searches, unless there are more than `MOST_CONTROLS` of them.
    """
    graph = Graph(nodes, results, lanes.drawn_numbers, lanes.tag, becomes)
    numbers = {each.outcome: number for number, each in enumerate(decisions) if each.step is not None}
    is_known = not lanes.decisions and all(draw.density is not None for draw in lanes.drawn_numbers)
    waiting: list[_Waiting] = []
    for node in nodes:
        number = numbers.get(node.outs[0])
        decision = None
        if number is not None:
            decision = decisions[number]
        elif is_known and node.op in COMPARISONS:
            decision = compared_at(graph, node)
        elif is_known and node.op is searchsorted:
            decision = searched_at(graph, node)
        if decision is not None and (decision.step is not None or decision.search is not None):
            own_bits, others = [graph.depends.get(x, 0) for x in node.inputs]
            if decision.step is not None:
                own_bits, others = decision.step.bit, (own_bits | others) & ~decision.step.bit
            else:
                own_bits, others = others, own_bits
            waiting.append(_Waiting(node.outs[0], own_bits, others, number, decision))
    if is_known:
        waiting_bits = sum(each.bit for each in waiting)
        draws = [
            _Waiting(value, bit, 0, None, None)
            for value, draw in graph.noise.items()
            if draw.centred is not None and not (bit := graph.depends[value]) & waiting_bits
        ]
        waiting += draws
    waiting.sort(key=lambda each: each.bit)  # as they are drawn, where possible
    ahead = sum(each.bit for each in waiting)
    ordered = []
    while waiting:
        place = next(place for place, each in enumerate(waiting) if not each.before & ahead)
        one = waiting.pop(place)
        ordered.append((one, ahead))
        ahead &= ~one.bit
    places = {node: place for place, node in enumerate(nodes)}
    steps, controls = [], []
    for one, later in ordered:
        step = None if one.decision is None else one.decision.step
        if step is None:
            controls.append((one, later))
        elif not is_known:
            steps.append((one.number, step, State([], [])))
        else:
            is_felt = _is_felt(graph, one.outcome, later)
            step = step._replace(increment=np.where(is_felt, step.increment, 0.0), is_felt=is_felt)
            steps.append((one.number, step, _state(graph, places, one.outcome, later, step)))
    if len(controls) > MOST_CONTROLS:
        return steps, []
    return steps, [_control(graph, places, *each) for each in controls]


class _Waiting(NamedTuple):
    """A step, search or draw, by the value, the bit of its number, those on which its probabilities depend, and its decision."""

    outcome: Value
    bit: int
    before: int
    number: int | None
    decision: Decision | None


def _control(graph: Graph, order: dict[Node, int], waiting: _Waiting, later: int) -> Control:
    """Return functions of a draw, or of what is taken at the outcome of a search."""
    numbers_before = [
        value
        for value in _described_by(graph, order, waiting.outcome, later)
        if graph.depends.get(value, 0) and is_inexact(value.dtype)
    ]
    state = [_finite(graph.array(value) * 1.0) for value in numbers_before[:MOST_STATES]]
    shared = [np.mean(x) for x in state]
    if waiting.decision is None:
        numbers = Array(waiting.outcome)
        centred = graph.noise[waiting.outcome].centred
        assert centred is not None
        own = [x for x in state if x.ndim and x.shape == numbers.shape][:1]
        return Control(centred(numbers), shared, [y for x in own for y in (x, x * x)])
    search = waiting.decision.search
    assert search is not None
    k, count = graph.array(waiting.outcome), search.chances.size
    tables = [
        _finite(graph.array(node.inputs[0]))
        for node in graph.readers.get(waiting.outcome, ())
        if node.op is gather_row
        and node.inputs[0].shape == (count - 1,)
        and is_inexact(node.inputs[0].dtype)
        and not graph.depends.get(node.inputs[0], 0) & later
    ]
    functions = []
    for table in tables[:MOST_STATES] or [np.arange(count - 1.0) / count]:
        for power in POWERS:
            of_all = np.concatenate([table, table[-1:]]) ** power
            change = np.take(of_all, k) - np.sum(search.chances * of_all)
            functions.append(np.where(search.is_likely, change, 0.0))
    return Control(functions, shared, [])


def _finite(x: Any) -> Any:
    return np.where(np.isfinite(x), x, 0.0)


def _is_felt(graph: Graph, outcome: Value, later: int) -> Any:
    """Return where the outcome of a comparison can matter, as far as products and selections with what came before tell."""
    value, is_felt = outcome, True
    while graph.times[value] == 1 and value in graph.readers:
        (node,) = graph.readers[value]
        operands_beside = [x for x in node.inputs if x is not value]
        if (
            any(graph.depends.get(x, 0) & later for x in operands_beside)
            or node.outs[0].shape != outcome.shape
        ):
            break
        operands = [still(graph.array(x)) for x in operands_beside]
        if node.op is where and node.inputs[0] is value:
            is_here = operands[0] != operands[1]
        elif node.op is where:
            is_here = operands[0] if node.inputs[1] is value else ~operands[0]
        elif node.op in (multiply, logical_and) or (node.op is bitwise_and and value.dtype == bool):
            is_here = operands[0] != 0
        elif node.op is logical_or or (node.op is bitwise_or and value.dtype == bool):
            is_here = operands[0] == 0
        elif node.op in (add, subtract, negative, convert_row):
            is_here = True
        else:
            break
        is_felt = is_felt & is_here
        value = node.outs[0]
    return is_felt


def _state(graph: Graph, order: dict[Node, int], outcome: Value, later: int, step: Step) -> State:
    """Return the state before a step: its chance, and numbers that are combined with what depends on its outcome, the nearest first."""
    numbers_before = itertools.islice(_described_by(graph, order, outcome, later), MOST_STATES)
    state = [_finite(still(graph.array(value) * 1.0)) for value in numbers_before]
    if graph.tag in step.chance.value.tags:
        state.append(step.chance)
    variates = [x for x in state if x.ndim][:1]
    if outcome.size > 1:
        before = np.reshape(np.cumsum(step.increment), outcome.shape) - step.increment
        variates = [before, before**2, *variates]
    return State([np.mean(x) for x in state], variates)


def _described_by(graph: Graph, order: dict[Node, int], outcome: Value, later: int) -> Iterator[Value]:
    """Yield numbers that are combined with what depends on an outcome, the nearest first, and that depend on no later number."""
    affected, yielded = {outcome}, set[Value]()
    ahead = sorted(order[node] for node in graph.readers.get(outcome, ()))
    for _ in range(LOOKED_AT):
        if not ahead:
            return
        node = graph.nodes[heapq.heappop(ahead)]
        for value in node.inputs:
            is_alike = value.shape in ((), outcome.shape) and value.dtype.kind in "biuf"
            if (
                not graph.depends.get(value, 0) & later
                and is_alike
                and (graph.tag in value.tags or value.ndim)
                and value not in affected
                and value not in yielded
            ):
                yielded.add(value)
                yield value
        for out in node.outs:
            if out not in affected:
                affected.add(out)
                for reader in graph.readers.get(out, ()):
                    if order[reader] not in ahead:
                        heapq.heappush(ahead, order[reader])
