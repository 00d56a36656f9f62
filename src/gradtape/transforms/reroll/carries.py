"""Loop-carried values of a rolled loop, uses of its values after the loop, and its guards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.graph import Literal, Value, literal
from gradtape.ir.types import INT64, Aval, aval
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.cast import convert
from gradtape.transforms.reroll.loop_builder import CarryChain, LoopBuilder, PerIteration
from gradtape.transforms.reroll.rewrite_state import NotRollable, filled

Key = tuple[int, int]
"""A node of the body, and one of its outputs."""


class SeenGuard(NamedTuple):
    """A guard of the recording: its number, and the value that Python has read."""

    number: int
    expected: int


class LoopSummary(NamedTuple):
    """A description of a rolled loop.

    Attributes
    ----------
    site : object
        A source location in it.
    trips : int or None
        The trip count; None where it depends on the arguments.
    recorded_trips : int
        The trip count in the recording.
    nodes, carries, elements : int
        The numbers of nodes of the body, of carries, and of arrays of which an iteration reads an element.
    """

    site: Any
    trips: int | None
    recorded_trips: int
    nodes: int
    carries: int
    elements: int


class LoopUses(NamedTuple):
    """The uses of a loop's values.

    Attributes
    ----------
    escapes : dict
        The iterations whose value is used after the loop.
    guards : dict
        The guards on each, one per iteration.
    """

    escapes: dict[Key, list[int]]
    guards: dict[Key, list[SeenGuard]]


def uses_of(
    loop: LoopBuilder,
    seen_guards: dict[tuple[int, int], SeenGuard],
    excluded: frozenset[int] = frozenset(),
) -> LoopUses:
    """Return the uses of a loop's values; guards with a number in `excluded` do not count."""
    recording, start, period = loop.recording, loop.start, loop.period
    stop = start + loop.trips * period
    escapes: dict[Key, list[int]] = {}
    for place in np.flatnonzero(recording.last_use[start:stop] >= stop).tolist():
        number, slot = divmod(place, period)
        if slot in loop.deferred_writes:
            continue
        outputs = len(loop.template[slot].types)
        for output in range(outputs):
            if outputs == 1 or (start + place, output) in recording.used:
                escapes.setdefault((slot, output), []).append(number)
    guards: dict[Key, list[SeenGuard]] = {}
    if seen_guards:
        for slot in range(period):
            for output in range(len(loop.template[slot].types)):
                _looks(loop, (slot, output), seen_guards, excluded, escapes, guards)
    return LoopUses(escapes, guards)


def _looks(
    loop: LoopBuilder,
    key: Key,
    seen_guards: dict[tuple[int, int], SeenGuard],
    excluded: frozenset[int],
    escapes: dict[Key, list[int]],
    guards: dict[Key, list[SeenGuard]],
) -> None:
    slot, output = key
    places = range(loop.start + slot, loop.start + loop.trips * loop.period, loop.period)
    found = [
        (number, guard)
        for number, place in enumerate(places)
        if (guard := seen_guards.get((place, output))) is not None and guard.number not in excluded
    ]
    if len(found) == loop.trips:
        guards[key] = [guard for _, guard in found]
    elif found:
        iterations = escapes.setdefault(key, [])
        iterations[:] = sorted({*iterations, *[number for number, _ in found]})


def guard_holds(value: Value, expected: int) -> Value:
    """Return whether a value is the one that Python has read, with the test of a guard in a kernel."""
    if value.dtype.kind == "b" and not isinstance(value, Literal):
        opposite: Value = UFUNCS["logical_not"](value)
        return value if expected else opposite
    same: Value = UFUNCS["equal"](convert(value, INT64), literal(expected, INT64))
    return same


def all_guards_hold(loop: LoopBuilder, guards: dict[Key, list[SeenGuard]]) -> tuple[Value, Value] | None:
    """Return the carry "the guards of all iterations so far hold": its value before and after the iteration. None without guards."""
    if not guards:
        return None
    before = Value(aval((), np.dtype(bool)))
    after: Value = before
    for key, expectations in guards.items():
        value = loop.body_value(loop.slots[key])
        expected = [seen_guards.expected for seen_guards in expectations]
        if min(expected) == max(expected):
            holds = guard_holds(value, expected[0])
        elif loop.open_ended:
            raise NotRollable("what Python saw differs between iterations", loop.template[key[0]])
        else:
            number = loop.body_value(PerIteration(loop.state.constant_of(np.array(expected, np.int64))))
            holds = UFUNCS["equal"](convert(value, INT64), number)
        after = UFUNCS["logical_and"](after, holds)
    return before, after


def final_chain(loop: LoopBuilder, key: Key, iterations: Sequence[int]) -> CarryChain | None:
    """Return a chain of carries that has these values when the loop ends; None where all must be stacked."""
    back = loop.trips - min(iterations)
    for chain in loop.chains.get(key, []):
        if max(chain.inits) >= back:
            return chain
    return new_chain(loop, key) if back == 1 else None


def new_chain(loop: LoopBuilder, key: Key) -> CarryChain:
    """Return a chain for a value that no later iteration reads."""
    type_ = loop.template[key[0]].types[key[1]]
    chain = CarryChain()
    chain.inits[1] = literal(0, type_.dtype)
    chain.registers[1] = Value(aval(type_.shape, type_.dtype))
    loop.chains.setdefault(key, []).append(chain)
    return chain


class LoopCarries:
    """The carries of a rolled loop.

    Attributes
    ----------
    inputs, inits, following : list of Value
        The body's inputs for the carries, the initial values, and the next carries.
    """

    __slots__ = ("_places", "following", "inits", "inputs")

    def __init__(self, loop: LoopBuilder) -> None:
        self.inputs: list[Value] = []
        self.inits: list[Value] = []
        self.following: list[Value] = []
        self._places: dict[tuple[Key, int], int] = {}
        for key, chains in loop.chains.items():
            type_ = loop.template[key[0]].types[key[1]]
            for chain in chains:
                value = loop.body_value(loop.slots[key])
                for back in range(1, max(chain.inits) + 1):
                    register = chain.registers.get(back)
                    if register is None:
                        register = chain.registers[back] = Value(aval(type_.shape, type_.dtype))
                    self._places.setdefault((key, back), len(self.inputs))
                    self.add(register, _init(loop, chain.inits[back], type_), value)
                    value = register

    def add(self, before: Value, init: Value, after: Value) -> int:
        """Append a carry and return its position."""
        self.inputs.append(before)
        self.inits.append(init)
        self.following.append(after)
        return len(self.inputs) - 1

    def place(self, key: Key, back: int) -> int | None:
        """Return the position of the carry that holds the value of `back` iterations before the end; None if there is none."""
        return self._places.get((key, back))


def _init(loop: LoopBuilder, value: Value, type_: Aval) -> Value:
    if isinstance(value, Literal):
        return filled(value, Value(type_))
    return loop.state.materialise(value)
