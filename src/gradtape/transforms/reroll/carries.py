"""What passes from turn to turn, what is left of it afterwards, and what Python looked at in each turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.graph import Literal, Value, literal
from gradtape.ir.types import INT64, Aval, aval
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.cast import convert
from gradtape.transforms.reroll.iteration import Chain, Rows, Turn
from gradtape.transforms.reroll.rewrite_state import Irregular, spread_number

Key = tuple[int, int]
"""A node of a turn, and one of its outputs."""


class Seen(NamedTuple):
    """Where Python looked at a value: the guard's number, and what it saw."""

    number: int
    expected: int


class Summary(NamedTuple):
    """What was made of a loop.

    Attributes
    ----------
    site : object
        A place in it.
    trips : int or None
        How often it turns; None where that is found out when it runs.
    turns : int
        How often it turned in the recording.
    nodes, carries, rows : int
        The size of the body, the values that pass from turn to turn, and the arrays of which each turn takes a row.
    """

    site: Any
    trips: int | None
    turns: int
    nodes: int
    carries: int
    rows: int


class Uses(NamedTuple):
    """What is used of a loop's values.

    Attributes
    ----------
    escapes : dict
        The turns in which each is used after the loop.
    looks : dict
        The guards on each, one for each turn.
    """

    escapes: dict[Key, list[int]]
    looks: dict[Key, list[Seen]]


def uses_of(turn: Turn, seen: dict[tuple[int, int], Seen], unseen: frozenset[int] = frozenset()) -> Uses:
    """Return what is used of a loop's values; guards with a number in `unseen` are left out."""
    recording, start, period = turn.recording, turn.start, turn.period
    stop = start + turn.trips * period
    escapes: dict[Key, list[int]] = {}
    for place in np.flatnonzero(recording.last_use[start:stop] >= stop).tolist():
        number, slot = divmod(place, period)
        if slot in turn.written:
            continue
        outputs = len(turn.template[slot].types)
        for output in range(outputs):
            if outputs == 1 or (start + place, output) in recording.used:
                escapes.setdefault((slot, output), []).append(number)
    looks: dict[Key, list[Seen]] = {}
    if seen:
        for slot in range(period):
            for output in range(len(turn.template[slot].types)):
                _looks(turn, (slot, output), seen, unseen, escapes, looks)
    return Uses(escapes, looks)


def _looks(
    turn: Turn,
    key: Key,
    seen: dict[tuple[int, int], Seen],
    unseen: frozenset[int],
    escapes: dict[Key, list[int]],
    looks: dict[Key, list[Seen]],
) -> None:
    slot, output = key
    places = range(turn.start + slot, turn.start + turn.trips * turn.period, turn.period)
    found = [
        (number, look)
        for number, place in enumerate(places)
        if (look := seen.get((place, output))) is not None and look.number not in unseen
    ]
    if len(found) == turn.trips:
        looks[key] = [look for _, look in found]
    elif found:
        turns = escapes.setdefault(key, [])
        turns[:] = sorted({*turns, *[number for number, _ in found]})


def test(value: Value, expected: int) -> Value:
    """Return whether a value is what Python saw, as the machine code of a guard asks."""
    if value.dtype.kind == "b" and not isinstance(value, Literal):
        opposite: Value = UFUNCS["logical_not"](value)
        return value if expected else opposite
    same: Value = UFUNCS["equal"](convert(value, INT64), literal(expected, INT64))
    return same


def held(turn: Turn, looks: dict[Key, list[Seen]]) -> tuple[Value, Value] | None:
    """Return whether all turns so far saw what was expected: the carried value, and what becomes of it."""
    if not looks:
        return None
    before = Value(aval((), np.dtype(bool)))
    after: Value = before
    for key, seens in looks.items():
        value = turn.inside(turn.slots[key])
        expected = [seen.expected for seen in seens]
        if min(expected) == max(expected):
            good = test(value, expected[0])
        elif turn.counted:
            raise Irregular("what Python saw differs from turn to turn", turn.template[key[0]])
        else:
            number = turn.inside(Rows(turn.world.number(np.array(expected, np.int64))))
            good = UFUNCS["equal"](convert(value, INT64), number)
        after = UFUNCS["logical_and"](after, good)
    return before, after


def final_chain(turn: Turn, key: Key, turns: Sequence[int]) -> Chain | None:
    """Return a chain that holds these values when the loop ends; None where all must be kept."""
    back = turn.trips - min(turns)
    for chain in turn.chains.get(key, []):
        if max(chain.inits) >= back:
            return chain
    return new_chain(turn, key) if back == 1 else None


def new_chain(turn: Turn, key: Key) -> Chain:
    """Return a chain for a value that no later turn reads."""
    type_ = turn.template[key[0]].types[key[1]]
    chain = Chain()
    chain.inits[1] = literal(0, type_.dtype)
    chain.registers[1] = Value(aval(type_.shape, type_.dtype))
    turn.chains.setdefault(key, []).append(chain)
    return chain


class Carried:
    """The carries of a loop.

    Attributes
    ----------
    inputs, inits, following : list of Value
        The body's inputs, what they are at first, and what becomes of them in a turn.
    """

    __slots__ = ("_places", "following", "inits", "inputs")

    def __init__(self, turn: Turn) -> None:
        self.inputs: list[Value] = []
        self.inits: list[Value] = []
        self.following: list[Value] = []
        self._places: dict[tuple[Key, int], int] = {}
        for key, chains in turn.chains.items():
            type_ = turn.template[key[0]].types[key[1]]
            for chain in chains:
                value = turn.inside(turn.slots[key])
                for back in range(1, max(chain.inits) + 1):
                    register = chain.registers.get(back)
                    if register is None:
                        register = chain.registers[back] = Value(aval(type_.shape, type_.dtype))
                    self._places.setdefault((key, back), len(self.inputs))
                    self.add(register, _init(turn, chain.inits[back], type_), value)
                    value = register

    def add(self, before: Value, init: Value, after: Value) -> int:
        """Append a carry and return its place."""
        self.inputs.append(before)
        self.inits.append(init)
        self.following.append(after)
        return len(self.inputs) - 1

    def place(self, key: Key, back: int) -> int | None:
        """Return where the value that was made `back` turns before the end stands, if it does."""
        return self._places.get((key, back))


def _init(turn: Turn, value: Value, type_: Aval) -> Value:
    if isinstance(value, Literal):
        return spread_number(value, Value(type_))
    return turn.world.actual(value)
