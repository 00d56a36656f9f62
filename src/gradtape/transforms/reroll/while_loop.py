"""Rolling a loop that Python left by a condition: the nodes of its iterations become a while_loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.config import loop_policy
from gradtape.ir.body import Body
from gradtape.ir.builder import at
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import aval
from gradtape.kinds.registry import UFUNCS
from gradtape.transforms.loops.ops import while_loop
from gradtape.transforms.reroll.carries import (
    LoopCarries,
    LoopSummary,
    SeenGuard,
    all_guards_hold,
    guard_holds,
    new_chain,
    uses_of,
)
from gradtape.transforms.reroll.loop_builder import BodyValue, Invariant, LoopBuilder
from gradtape.transforms.reroll.recording import Recording
from gradtape.transforms.reroll.rewrite_state import NotRollable, filled
from gradtape.transforms.reroll.scan import ReplacedGuards

MIN_ITERATIONS: Final = 3
"""Iterations from which the next ones can be predicted."""


class LoopExit(NamedTuple):
    """The guards at which Python read the condition of a loop, iteration by iteration, until it failed.

    Attributes
    ----------
    start, period, trips : int
        The nodes of the iterations, each from one guard to the next.
    numbers : list of int
        The guards at the ends of the iterations.
    first : int
        The guard before the first iteration.
    expected : int
        The value at the last guard, at which the loop ends.
    output : int
        Which output of the last node of an iteration is the condition.
    bounded : bool
        Whether Python may leave the loop in another way too, so that further iterations are not certain.
    """

    start: int
    period: int
    trips: int
    numbers: list[int]
    first: int
    output: int
    expected: int
    bounded: bool


def find_exits(recording: Recording, guards: Sequence[tuple[int, Any]]) -> list[LoopExit]:
    """Return the loops that Python left because of a guarded value.

    Parameters
    ----------
    recording : Recording
        The nodes.
    guards : sequence of tuple
        The guards by number: objects with a `value`, what was `expected`, the `line` and whether it is `bounded`.
    """
    lines: dict[Any, list[tuple[int, int, Any]]] = {}
    for number, guard in guards:
        place = recording.place.get(guard.value.node, -1)
        if place >= 0 and guard.line is not None:
            lines.setdefault(guard.line, []).append((place, number, guard))
    found = []
    for group in lines.values():
        begin = 0
        for k in range(1, len(group)):
            if group[k][2].expected != group[begin][2].expected:
                one = _exit_of(recording, group[begin : k + 1])
                if one is not None:
                    found.append(one)
                begin = k + 1
                if begin >= len(group):
                    break
    return sorted(found)


def _exit_of(recording: Recording, group: Sequence[tuple[int, int, Any]]) -> LoopExit | None:
    """Return the loop whose condition a group of guards reads; None where they are not at equal distances."""
    places = [place for place, _, _ in group]
    if len(places) <= MIN_ITERATIONS:
        return None
    period = places[-1] - places[-2]
    trips = 1
    while trips < len(places) - 1 and places[-1 - trips] - places[-2 - trips] == period > 0:
        trips += 1
    low, high = places[-1 - trips] + 1, places[-1] + 1
    if period <= 0:
        return None
    tokens = recording.tokens
    while trips and (tokens[low : high - period] != tokens[low + period : high]).any():
        low, trips = low + period, trips - 1
    if trips < MIN_ITERATIONS:
        return None
    runs = recording.uniform(period, low, trips)
    if not runs:
        return None
    start, remaining = runs[-1]
    if remaining < MIN_ITERATIONS or start + remaining * period != high:
        return None
    numbers = [number for _, number, _ in group]
    last = group[-1][2]
    return LoopExit(
        start,
        period,
        remaining,
        numbers[-remaining:],
        numbers[-1 - remaining],
        last.value.index,
        last.expected,
        last.bounded,
    )


def roll_while(
    loop: LoopBuilder, seen_guards: dict[tuple[int, int], SeenGuard], loop_exit: LoopExit, entered: Value
) -> tuple[LoopSummary, ReplacedGuards]:
    """Replace the nodes of a loop by a while_loop.

    Parameters
    ----------
    loop : LoopBuilder
        The loop.
    seen_guards : dict
        All guards, by node and output.
    loop_exit : LoopExit
        The exit of the loop.
    entered : Value
        Whether there is a first iteration: the condition before the loop holds, and all guards before it.
    """
    uses = uses_of(loop, seen_guards, frozenset(loop_exit.numbers))
    for key, iterations in uses.escapes.items():
        if isinstance(loop.slots[key], BodyValue):
            _keep_last(loop, key, iterations)
    holds = all_guards_hold(loop, uses.guards)
    condition = loop.body_value(loop.slots[loop.period - 1, loop_exit.output])
    goes_on = UFUNCS["logical_not"](guard_holds(condition, loop_exit.expected))
    carried = LoopCarries(loop)
    places: list[int] = []
    if holds is not None:
        before, after = holds
        goes_on = UFUNCS["logical_and"](goes_on, after)
        places.append(carried.add(before, filled(literal(True), before), after))
    going = Value(aval((), np.dtype(bool)))
    place_of_going = carried.add(going, entered, goes_on)
    nodes, consts, _, reads_index = loop.live_body(carried.following, carried.inputs)
    inputs = [loop.index, *consts.values(), *carried.inputs]
    # Numbers that Python counts may be counted differently in iterations that were not recorded.
    bounded = loop_exit.bounded or reads_index
    limits = [
        *([loop.trips] if bounded else []),
        *([loop.max_trips] if loop.max_trips is not None else []),
    ]
    with at(loop.template[0].site):
        outs = while_loop(
            Body(inputs, [], [going]),
            Body(inputs, nodes, carried.following),
            list(consts),
            carried.inits,
            min(limits) if limits else None,
            loop_policy(),
        )
    results: list[tuple[Value, Value]] = []
    for (slot, output), iterations in uses.escapes.items():
        operand = loop.slots[slot, output]
        for number in iterations:
            old = loop.recording.nodes[loop.start + slot + number * loop.period].outs[output]
            place = carried.place((slot, output), loop.trips - number)
            if isinstance(operand, Invariant):
                results.append((old, operand.value))
            else:
                assert place is not None
                results.append((old, outs[place]))
    loop.state.place([*outs, *[value for _, value in results]])
    for old, value in results:
        loop.state.replace(old, value)
    removed = set(loop_exit.numbers) | {guard.number for guards in uses.guards.values() for guard in guards}
    remaining = [(min(removed), outs[k], 1) for k in places]
    if limits:
        remaining.append((loop_exit.numbers[-1], outs[place_of_going], 0))
    summary = LoopSummary(loop.template[0].site, None, loop.trips, len(nodes), len(carried.inputs), 0)
    return summary, ReplacedGuards(removed, remaining)


def _keep_last(loop: LoopBuilder, key: tuple[int, int], iterations: Sequence[int]) -> None:
    """Carry the values of the last iterations to the end of the loop."""
    back = loop.trips - min(iterations)
    if back > 1:
        chains = loop.chains.get(key, [])
        if not any(max(chain.inits) >= back for chain in chains):
            raise NotRollable(
                "values of many iterations are used, and the trip count is not known",
                loop.template[key[0]],
            )
    elif key not in loop.chains:
        new_chain(loop, key)
