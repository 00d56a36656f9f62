"""A loop that turns until Python saw a condition fail: the nodes of its turns become a while_loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.config import rolling
from gradtape.ir.body import Body
from gradtape.ir.builder import at
from gradtape.ir.graph import Value, extract, literal
from gradtape.ir.types import aval
from gradtape.kinds.registry import UFUNCS
from gradtape.transforms.loops.ops import while_loop
from gradtape.transforms.reroll.carries import Carried, Seen, Summary, held, new_chain, test, uses_of
from gradtape.transforms.reroll.iteration import Fixed, Inner, Turn
from gradtape.transforms.reroll.recording import Recording
from gradtape.transforms.reroll.rewrite_state import Irregular, spread_number
from gradtape.transforms.reroll.scan import Checked

LEAST_TURNS: Final = 3
"""Turns from which it can be told what the next ones would be."""


class Exit(NamedTuple):
    """Where Python looked at the condition of a loop, turn after turn, until it failed.

    Attributes
    ----------
    start, period, trips : int
        The nodes of the turns: each from behind one look to the next.
    numbers : list of int
        The guards of the turns' ends.
    first : int
        The guard ahead of the first turn.
    expected : int
        What is seen at the last end; at the others it is not.
    output : int
        Which output of the last node of a turn is looked at.
    bounded : bool
        Whether Python may have left the loop in another way too, so that no more turns are certain than there were.
    """

    start: int
    period: int
    trips: int
    numbers: list[int]
    first: int
    output: int
    expected: int
    bounded: bool


def exits(recording: Recording, looks: Sequence[tuple[int, Any]]) -> list[Exit]:
    """Return the loops that Python left because of what it saw.

    Parameters
    ----------
    recording : Recording
        The nodes.
    looks : sequence of tuple
        The guards by number: objects with a `value`, what was `expected`, the `line` and whether it is `bounded`.
    """
    lines: dict[Any, list[tuple[int, int, Any]]] = {}
    for number, look in looks:
        place = recording.place.get(look.value.node, -1)
        if place >= 0 and look.line is not None:
            lines.setdefault(look.line, []).append((place, number, look))
    found = []
    for group in lines.values():
        begin = 0
        for k in range(1, len(group)):
            if group[k][2].expected != group[begin][2].expected:
                one = _exit(recording, group[begin : k + 1])
                if one is not None:
                    found.append(one)
                begin = k + 1
                if begin >= len(group):
                    break
    return sorted(found)


def _exit(recording: Recording, group: Sequence[tuple[int, int, Any]]) -> Exit | None:
    """Return the loop whose condition was looked at here; None for looks that do not follow each other evenly."""
    places = [place for place, _, _ in group]
    if len(places) <= LEAST_TURNS:
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
    if trips < LEAST_TURNS:
        return None
    runs = recording.even(period, low, trips)
    if not runs:
        return None
    start, left = runs[-1]
    if left < LEAST_TURNS or start + left * period != high:
        return None
    numbers = [number for _, number, _ in group]
    last = group[-1][2]
    return Exit(
        start,
        period,
        left,
        numbers[-left:],
        numbers[-1 - left],
        last.value.index,
        last.expected,
        last.bounded,
    )


def roll_until(
    turn: Turn, seen: dict[tuple[int, int], Seen], way_out: Exit, enters: Value
) -> tuple[Summary, Checked]:
    """Put a while_loop in the place of the nodes.

    Parameters
    ----------
    turn : Turn
        One turn.
    seen : dict
        All guards.
    way_out : Exit
        How the loop ends.
    enters : Value
        Whether it turns at all: the condition ahead of it holds, and all that Python saw before.
    """
    uses = uses_of(turn, seen, frozenset(way_out.numbers))
    for key, turns in uses.escapes.items():
        if isinstance(turn.slots[key], Inner):
            _keep_last(turn, key, turns)
    good = held(turn, uses.looks)
    condition = turn.inside(turn.slots[turn.period - 1, way_out.output])
    goes_on = UFUNCS["logical_not"](test(condition, way_out.expected))
    carried = Carried(turn)
    places: list[int] = []
    if good is not None:
        before, after = good
        goes_on = UFUNCS["logical_and"](goes_on, after)
        places.append(carried.add(before, spread_number(literal(True), before), after))
    going = Value(aval((), np.dtype(bool)))
    place_of_going = carried.add(going, enters, goes_on)
    nodes, _ = extract(carried.following, [turn.number, *turn.consts.values(), *carried.inputs])
    needed = {value for node in nodes for value in node.inputs} | set(carried.following)
    consts = {outer: value for outer, value in turn.consts.items() if value in needed}
    inputs = [turn.number, *consts.values(), *carried.inputs]
    # What Python counted on its side may count differently in turns that were never seen.
    bounded = way_out.bounded or turn.number in needed
    limits = [*([turn.trips] if bounded else []), *([turn.most] if turn.most is not None else [])]
    with at(turn.template[0].site):
        outs = while_loop(
            Body(inputs, [], [going]),
            Body(inputs, nodes, carried.following),
            list(consts),
            carried.inits,
            min(limits) if limits else None,
            rolling().policy,
        )
    results: list[tuple[Value, Value]] = []
    for (slot, output), turns in uses.escapes.items():
        operand = turn.slots[slot, output]
        for number in turns:
            old = turn.recording.nodes[turn.start + slot + number * turn.period].outs[output]
            stands = carried.place((slot, output), turn.trips - number)
            if isinstance(operand, Fixed):
                results.append((old, operand.value))
            else:
                assert stands is not None
                results.append((old, outs[stands]))
    turn.world.place([*outs, *[value for _, value in results]])
    for old, value in results:
        turn.world.becomes(old, value)
    gone = set(way_out.numbers) | {look.number for looks in uses.looks.values() for look in looks}
    left = [(min(gone), outs[k], 1) for k in places]
    if limits:
        left.append((way_out.numbers[-1], outs[place_of_going], 0))
    summary = Summary(turn.template[0].site, None, turn.trips, len(nodes), len(carried.inputs), 0)
    return summary, Checked(gone, left)


def _keep_last(turn: Turn, key: tuple[int, int], turns: Sequence[int]) -> None:
    """Have the values of the last turns carried to the end."""
    back = turn.trips - min(turns)
    if back > 1:
        chains = turn.chains.get(key, [])
        if not any(max(chain.inits) >= back for chain in chains):
            raise Irregular(
                "values of many turns are used, and the number of turns is not known", turn.template[key[0]]
            )
    elif key not in turn.chains:
        new_chain(turn, key)
