"""One loop: from the nodes of its turns to a node that holds one turn as its body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...ir.body import Body
from ...ir.builder import at
from ...ir.graph import Literal, Node, Value, extract, literal
from ...ir.types import INT64, Aval, aval
from ...kinds.elementwise import UFUNCS, Elementwise
from ...kinds.operands import broadcast_to
from ...ops.cast import convert
from ...ops.indexing import gather_row, update_row
from ..control import scan
from .recording import MOVING, Recording
from .rows import (
    MOST_ELEMENTS,
    Starts,
    index_rows,
    line_of,
    read_at,
    slices_as_rows,
    write_at,
    written_rows,
)
from .world import REARRANGING, Irregular, World, spread_number


class Fixed(NamedTuple):
    """A value that is the same in each turn."""

    value: Value


class Rows(NamedTuple):
    """A value of which each turn has its own, known ahead of the loop: a row of this array."""

    value: Value


class Inner(NamedTuple):
    """A value of the body."""

    value: Value


Operand = Fixed | Rows | Inner


class Written(NamedTuple):
    """An array to which each turn writes another part, and that nobody reads before the end."""

    base: Value
    v: Operand
    starts: Starts
    node: Node
    line: tuple[int, int]


class Chain:
    """A value of earlier turns: `inits` by how many turns before the first they stand for, `registers` by how far back they reach."""

    __slots__ = ("inits", "registers")

    def __init__(self) -> None:
        self.inits: dict[int, Value] = {}
        self.registers: dict[int, Value] = {}


class Seen(NamedTuple):
    """Where Python looked at a value: the guard's number, and what it saw."""

    number: int
    expected: int


class Summary(NamedTuple):
    """What was made of a loop."""

    site: Any
    trips: int
    nodes: int
    carries: int
    rows: int


class Loop:
    """A stretch of a recording in which each turn is wired as the one before.

    Parameters
    ----------
    recording : Recording
        The nodes.
    world : World
        What has become of those before.
    start, period, trips : int
        Which ones they are.
    seen : dict
        The guards on the outputs of nodes.
    """

    def __init__(
        self,
        recording: Recording,
        world: World,
        start: int,
        period: int,
        trips: int,
        seen: dict[tuple[int, int], Seen],
    ) -> None:
        self._recording = recording
        self._world = world
        self._start, self._period, self._trips = start, period, trips
        self._seen = seen
        self._slots: dict[tuple[int, int], Operand] = {}
        self._written: dict[int, Written] = {}
        self._chains: dict[tuple[int, int], list[Chain]] = {}
        self._consts: dict[Value, Value] = {}
        self._elements: dict[Value, Value] = {}
        self._stacked: dict[tuple[int, ...], Value] = {}
        self.checked: set[int] = set()
        first = recording.first
        step = int(first[start + period] - first[start])
        self._edge, self._step = int(first[start]), step
        stop = self._edge + trips * step
        self._source = recording.source[self._edge : stop].reshape(trips, step)
        self._output = recording.output[self._edge : stop].reshape(trips, step)
        self._last = self._source[-1] - (start + (trips - 1) * period)
        self._template = recording.nodes[start + period : start + 2 * period]

    # Operands

    def _values(self, column: int) -> list[Value]:
        """Return what an input is in each turn."""
        begin = self._edge + column
        operands = self._recording.operands[begin : begin + self._trips * self._step : self._step]
        return [self._world.of(value) for value in operands]

    def _operand(self, column: int, node: Node) -> Operand:
        source = self._source[:, column]
        inner = source >= self._start
        if inner[-1]:
            distance, slot = divmod(int(self._last[column]), self._period)
            key = slot, int(self._output[-1, column])
            if distance == 0:
                return self._slots[key]
            return Inner(self._register(key, -distance, column, node))
        values = self._values(column)
        first = values[0]
        if all(value is first for value in values):
            return Fixed(self._world.actual(first))
        if all(isinstance(value, Literal) for value in values):
            numbers = [value.data for value in values]
            if len({(array.dtype, array.tobytes()) for array in numbers if array is not None}) == 1:
                return Fixed(first)
        key_ = tuple([id(value) for value in values])
        found = self._stacked.get(key_)
        if found is None:
            found = self._stacked[key_] = self._world.stacked(values, node)
        return Rows(found)

    def _register(self, key: tuple[int, int], distance: int, column: int, node: Node) -> Value:
        """Return the body's input for a value that was made some turns before."""
        slot, output = key
        type_ = self._template[slot].types[output]
        edges = self._recording.operands
        inits = {}
        for turn in range(distance):
            value = self._world.of(edges[self._edge + turn * self._step + column])
            if not isinstance(value, Literal) and (value.shape != type_.shape or value.dtype != type_.dtype):
                raise Irregular(
                    f"a carried value is {value.aval!r} at first and {type_!r} later", node, starts_late=True
                )
            inits[distance - turn] = value
        chains = self._chains.setdefault(key, [])
        for chain in chains:
            if all(_same(chain.inits.get(place, value), value) for place, value in inits.items()):
                break
        else:
            chains.append(chain := Chain())
        chain.inits.update(inits)
        if distance not in chain.registers:
            chain.registers[distance] = Value(aval(type_.shape, type_.dtype))
        return chain.registers[distance]

    def _inside(self, operand: Operand) -> Value:
        """Return the body's value."""
        if isinstance(operand, Inner):
            return operand.value
        if isinstance(operand, Rows):
            rows = operand.value
            found = self._elements.get(rows)
            if found is None:
                found = self._elements[rows] = Value(aval(rows.shape[1:], rows.dtype))
            return found
        value = operand.value
        if isinstance(value, Literal):
            return value
        found = self._consts.get(value)
        if found is None:
            found = self._consts[value] = Value(aval(value.shape, value.dtype))
        return found

    # Nodes

    def _starts(self, slot: int) -> Starts | None:
        """Return where a node reads or writes in each turn, if that differs."""
        node = self._template[slot]
        if node.op not in MOVING:
            return None
        nodes = self._recording.nodes[self._start + slot :: self._period][: self._trips]
        starts: Starts = np.array([node.params["starts"] for node in nodes], np.int64).reshape(
            self._trips, -1
        )
        return starts if (starts != starts[0]).any() else None

    def _slot(self, slot: int) -> None:
        node = self._template[slot]
        first = int(self._recording.first[self._start + slot]) - self._edge
        starts = self._starts(slot)
        with at(node.site):
            if starts is not None and node.op is update_row:
                self._write(slot, node, first, starts)
                return
            operands = [self._operand(first + k, node) for k in range(len(node.inputs))]
            ahead = self._ahead(node, operands, starts)
            if ahead is None:
                ahead = [Inner(value) for value in self._in_body(node, operands, starts)]
        for output, operand in enumerate(ahead):
            self._slots[slot, output] = operand

    def _ahead(
        self, node: Node, operands: Sequence[Operand], starts: Starts | None
    ) -> Sequence[Operand] | None:
        """Return what a node comes to where that is known ahead of the loop."""
        op, params = node.op, node.params
        x = operands[0] if operands else None
        if starts is not None:
            if not isinstance(x, Fixed):
                return None
            rows = slices_as_rows(x.value, starts, params["shape"], params["strides"])
            return None if rows is None else [Rows(rows)]
        if all(isinstance(operand, Fixed) for operand in operands):
            copy = node.copy(tuple([operand.value for operand in operands]))
            return [Fixed(value) for value in copy.outs]
        if op in REARRANGING and isinstance(x, Rows):
            return [Rows(op(x.value, **op.lead(self._trips, **params)))]  # type: ignore[attr-defined, operator]
        if op is gather_row and isinstance(x, Fixed) and all(isinstance(k, Rows) for k in operands[1:]):
            size = self._trips * node.types[0].size
            if size <= max(MOST_ELEMENTS, 2 * x.value.size):
                return [Rows(gather_row(x.value, *[k.value for k in operands[1:]], **params))]
        return None

    def _in_body(self, node: Node, operands: Sequence[Operand], starts: Starts | None) -> Sequence[Value]:
        params = node.params
        if starts is not None:
            moving = [axis for axis in range(starts.shape[1]) if (starts[:, axis] != starts[0, axis]).any()]
            indices = self._indices(starts, moving, params["shape"], params["strides"])
            x = self._inside(operands[0])
            return [read_at(x, indices, moving, params["starts"], params["shape"], params["strides"])]
        inputs = [self._inside(operand) for operand in operands]
        if isinstance(node.op, Elementwise):
            shape = node.types[0].shape
            inputs = [
                value if isinstance(value, Literal) or value.shape == shape else broadcast_to(value, shape)
                for value in inputs
            ]
        return node.copy(tuple(inputs)).outs

    def _indices(self, starts: Starts, moving: Sequence[int], shape: Any, strides: Any) -> list[Value]:
        arrays = index_rows(starts, moving, shape, strides)
        return [self._inside(Rows(self._world.number(array))) for array in arrays]

    def _write(self, slot: int, node: Node, first: int, starts: Starts) -> None:
        """Write each turn's part after the loop, if nobody looks at the array before; else carry the array."""
        shape, strides = node.inputs[1].shape, node.params["strides"]
        line = line_of(starts, shape, strides)
        readers = np.flatnonzero(self._last % self._period == slot)
        readers = readers[self._source[-1, readers] >= self._start]
        own = readers.size == 1 and int(readers[0]) == first and int(self._last[first]) == slot - self._period
        numbers = range(self._start + slot, self._start + self._trips * self._period, self._period)
        stop = self._start + self._trips * self._period
        uses = self._recording.last_use[numbers.start : numbers.stop : self._period]
        early = bool((uses[:-1] >= stop).any())
        v = self._operand(first + 1, node)
        base = self._values(first)[0] if own else None
        fits = base is not None and not isinstance(base, Literal) and base.shape == node.types[0].shape
        if line is not None and fits and not early and isinstance(base, Value):
            self._written[slot] = Written(self._world.actual(base), v, starts, node, line)
            return
        x = self._inside(self._operand(first, node))
        moving = [
            axis
            for axis in range(starts.shape[1])
            if (starts[:, axis] != starts[0, axis]).any()
            or starts[0, axis]
            or shape[axis] != x.shape[axis]
            or strides[axis] != 1
        ]
        indices = self._indices(starts, moving, shape, strides)
        self._slots[slot, 0] = Inner(write_at(x, self._inside(v), indices, moving))

    # The whole

    def roll(self) -> tuple[Summary, list[tuple[int, Value, int]]]:
        """Put a loop in the place of the nodes.

        Returns
        -------
        Summary
            What the loop consists of.
        list of tuple
            Guards: the number of the one whose place each takes, the value, and what is expected.

        Raises
        ------
        Irregular
            Where that cannot be done; then nothing has happened.
        """
        for slot in range(self._period):
            self._slot(slot)
        trips, world = self._trips, self._world
        escapes, guards = self._escapes()
        left: dict[tuple[int, int], Value] = {}
        for key, turns in escapes.items():
            operand = self._slots[key]
            if not isinstance(operand, Inner):
                continue
            if self._final_chain(key, turns) is None:
                left[key] = operand.value
        written = {slot: self._inside(w.v) for slot, w in self._written.items() if not isinstance(w.v, Rows)}
        held = self._held(guards)
        places_ok = 0
        carries, inits, following, places = self._carried()
        if held is not None:
            before, after = held
            places_ok = len(carries)
            carries.append(before)
            following.append(after)
            inits.append(spread_number(literal(True), before))
        outs: tuple[Value, ...] = ()
        count = 0
        if carries or left or written:
            ends = [*following, *left.values(), *written.values()]
            turn = Value(aval((), INT64))
            given = [turn, *self._consts.values(), *carries, *self._elements.values()]
            nodes, leaves = extract(ends, given)
            assert not leaves, leaves
            needed = {value for node in nodes for value in node.inputs} | set(ends)
            consts = {outer: value for outer, value in self._consts.items() if value in needed}
            elements = {outer: value for outer, value in self._elements.items() if value in needed}
            body = Body([turn, *consts.values(), *carries, *elements.values()], nodes, ends)
            with at(self._template[0].site):
                outs = scan(body, list(consts), inits, list(elements), trips)
            count = len(nodes)
        rows = dict(zip([*left, *written], outs[len(carries) :], strict=True))
        new: list[Value] = list(outs)
        results: list[tuple[Value, Value]] = []
        for key, turns in escapes.items():
            new += self._settle(key, turns, outs, places, rows, results)
        for slot, write in self._written.items():
            stacked = write.v.value if isinstance(write.v, Rows) else rows[slot]  # type: ignore[index]
            with at(write.node.site):
                final = written_rows(
                    write.base, stacked, write.starts, write.node.params["strides"], write.line
                )
            last = self._recording.nodes[self._start + slot + (trips - 1) * self._period]
            results.append((last.out, final))
            new.append(final)
        world.place(new)
        for old, value in results:
            world.becomes(old, value)
        looked: list[tuple[int, Value, int]] = []
        if held is not None:
            self.checked = {seen.number for seens in guards.values() for seen in seens}
            looked.append((min(self.checked), outs[places_ok], 1))
        return Summary(self._template[0].site, trips, count, len(carries), len(self._elements)), looked

    def _escapes(self) -> tuple[dict[tuple[int, int], list[int]], dict[tuple[int, int], list[Seen]]]:
        """Return the turns in which each value is used after the loop, and the values that Python looked at in each."""
        recording, start, period = self._recording, self._start, self._period
        stop = start + self._trips * period
        escapes: dict[tuple[int, int], list[int]] = {}
        outside = np.flatnonzero(recording.last_use[start:stop] >= stop)
        for place in outside.tolist():
            turn, slot = divmod(place, period)
            if slot in self._written:
                continue
            outputs = len(self._template[slot].types)
            for output in range(outputs):
                if outputs == 1 or (start + place, output) in recording.used:
                    escapes.setdefault((slot, output), []).append(turn)
        guards: dict[tuple[int, int], list[Seen]] = {}
        if self._seen:
            for slot in range(period):
                for output in range(len(self._template[slot].types)):
                    self._looks(slot, output, escapes, guards)
        return escapes, guards

    def _looks(
        self,
        slot: int,
        output: int,
        escapes: dict[tuple[int, int], list[int]],
        guards: dict[tuple[int, int], list[Seen]],
    ) -> None:
        places = range(self._start + slot, self._start + self._trips * self._period, self._period)
        found = [(turn, self._seen.get((place, output))) for turn, place in enumerate(places)]
        looks = [(turn, seen) for turn, seen in found if seen is not None]
        if len(looks) == self._trips:
            guards[slot, output] = [seen for _, seen in looks]
        elif looks:
            turns = escapes.setdefault((slot, output), [])
            turns[:] = sorted({*turns, *[turn for turn, _ in looks]})

    def _held(self, guards: dict[tuple[int, int], list[Seen]]) -> tuple[Value, Value] | None:
        """Return whether all turns so far saw what was expected: the carried value, and what becomes of it."""
        if not guards:
            return None
        before = Value(aval((), np.dtype(bool)))
        after: Value = before
        for key, seens in guards.items():
            value = self._inside(self._slots[key])
            expected = [seen.expected for seen in seens]
            same = min(expected) == max(expected)
            if value.dtype.kind == "b" and same and not isinstance(value, Literal):
                test = value if expected[0] else UFUNCS["logical_not"](value)
            else:
                number: Value = literal(expected[0], INT64)
                if not same:
                    number = self._inside(Rows(self._world.number(np.array(expected, np.int64))))
                test = UFUNCS["equal"](convert(value, INT64), number)
            after = UFUNCS["logical_and"](after, test)
        return before, after

    def _final_chain(self, key: tuple[int, int], turns: Sequence[int]) -> Chain | None:
        """Return a chain that holds these values when the loop ends; None where all must be kept."""
        back = self._trips - min(turns)
        chains = self._chains.get(key, [])
        for chain in chains:
            if max(chain.inits) >= back:
                return chain
        if back > 1:
            return None
        type_ = self._template[key[0]].types[key[1]]
        chain = Chain()
        zero = literal(0, type_.dtype)
        chain.inits[1] = zero
        chain.registers[1] = Value(aval(type_.shape, type_.dtype))
        self._chains.setdefault(key, []).append(chain)
        return chain

    def _carried(
        self,
    ) -> tuple[list[Value], list[Value], list[Value], dict[tuple[tuple[int, int], int], int]]:
        """Return the carries: as inputs, what they are at first, what becomes of them; and where each value stands at the end."""
        carries: list[Value] = []
        inits: list[Value] = []
        following: list[Value] = []
        places: dict[tuple[tuple[int, int], int], int] = {}
        for key, chains in self._chains.items():
            type_ = self._template[key[0]].types[key[1]]
            for chain in chains:
                value = self._inside(self._slots[key])
                for back in range(1, max(chain.inits) + 1):
                    register = chain.registers.get(back)
                    if register is None:
                        register = chain.registers[back] = Value(aval(type_.shape, type_.dtype))
                    places.setdefault((key, back), len(carries))
                    carries.append(register)
                    following.append(value)
                    inits.append(self._init(chain.inits[back], type_))
                    value = register
        return carries, inits, following, places

    def _init(self, value: Value, type_: Aval) -> Value:
        if isinstance(value, Literal):
            return spread_number(value, Value(type_))
        return self._world.actual(value)

    def _settle(
        self,
        key: tuple[int, int],
        turns: Sequence[int],
        outs: Sequence[Value],
        places: dict[tuple[tuple[int, int], int], int],
        rows: dict[Any, Value],
        results: list[tuple[Value, Value]],
    ) -> list[Value]:
        """Say what becomes of a value that is used after the loop; return what that needs."""
        slot, output = key
        operand = self._slots[key]
        whole = rows.get(key) if isinstance(operand, Inner) else operand.value
        for turn in turns:
            old = self._recording.nodes[self._start + slot + turn * self._period].outs[output]
            place = places.get((key, self._trips - turn))
            if isinstance(operand, Fixed):
                results.append((old, operand.value))
            elif place is not None and isinstance(operand, Inner):
                results.append((old, outs[place]))
            else:
                assert whole is not None
                self._world.becomes_element(old, whole, turn)
        return [] if whole is None else [whole]


def _same(one: Value, other: Value) -> bool:
    if one is other:
        return True
    if not (isinstance(one, Literal) and isinstance(other, Literal)):
        return False
    assert one.data is not None and other.data is not None
    return one.data.dtype == other.data.dtype and one.data.tobytes() == other.data.tobytes()
