"""One turn of a loop: what its nodes become inside of a body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.builder import at
from gradtape.ir.graph import Literal, Node, Value
from gradtape.ir.types import INT64, INTP, aval
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.indexing import gather_row, update_row
from gradtape.transforms.loops.licm import is_selection
from gradtape.transforms.reroll.per_iteration import (
    MOST_ELEMENTS,
    Starts,
    are_apart,
    index_rows,
    line_of,
    partial_axes,
    read_at,
    slices_as_rows,
    strided,
    write_at,
)
from gradtape.transforms.reroll.recording import MOVING, Recording
from gradtape.transforms.reroll.rewrite_state import REARRANGING, Irregular, World


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
    line: tuple[int, int] | None


class Chain:
    """A value of earlier turns: `inits` by how many turns before the first they stand for, `registers` by how far back they reach."""

    __slots__ = ("inits", "registers")

    def __init__(self) -> None:
        self.inits: dict[int, Value] = {}
        self.registers: dict[int, Value] = {}


class Turn:
    """The body of a loop, made from a stretch of a recording in which each turn is wired as the one before.

    Parameters
    ----------
    recording : Recording
        The nodes.
    world : World
        What has become of those before.
    start, period, trips : int
        Which ones they are.
    counted : bool
        Whether the number of turns is not known ahead: then what differs from turn to turn must follow from the turn's number.

    Attributes
    ----------
    slots : dict
        What each output of each node of a turn is.
    written : dict
        Nodes whose writing is put off until after the loop.
    chains : dict
        The carried values.
    consts, elements : dict
        Values from outside, and the body's inputs for them.
    counted : bool
        As given.
    number : Value
        The turn's number.
    most : int or None
        The most turns that can be made without leaving an array.
    """

    def __init__(
        self, recording: Recording, world: World, start: int, period: int, trips: int, *, counted: bool
    ) -> None:
        self.recording = recording
        self.world = world
        self.start, self.period, self.trips = start, period, trips
        self.counted = counted
        self.slots: dict[tuple[int, int], Operand] = {}
        self.written: dict[int, Written] = {}
        self.chains: dict[tuple[int, int], list[Chain]] = {}
        self.consts: dict[Value, Value] = {}
        self.elements: dict[Value, Value] = {}
        self.number = Value(aval((), INT64))
        self.most: int | None = None
        self._stacked: dict[tuple[int, ...], Value] = {}
        first = recording.first
        step = int(first[start + period] - first[start])
        self._edge, self._step = int(first[start]), step
        stop = self._edge + trips * step
        self._source = recording.source[self._edge : stop].reshape(trips, step)
        self._output = recording.output[self._edge : stop].reshape(trips, step)
        self._last = self._source[-1] - (start + (trips - 1) * period)
        self.template = recording.nodes[start + period : start + 2 * period]
        self._selects = any(map(is_selection, self.template))
        for slot in range(period):
            self._slot(slot)

    # Operands

    def _values(self, column: int) -> list[Value]:
        """Return what an input is in each turn."""
        begin = self._edge + column
        operands = self.recording.operands[begin : begin + self.trips * self._step : self._step]
        return [self.world.of(value) for value in operands]

    def _operand(self, column: int, node: Node) -> Operand:
        source = self._source[:, column]
        inner = source >= self.start
        if inner[-1]:
            distance, slot = divmod(int(self._last[column]), self.period)
            key = slot, int(self._output[-1, column])
            if distance == 0:
                return self.slots[key]
            return Inner(self._register(key, -distance, column, node))
        values = self._values(column)
        first = values[0]
        if all(value is first for value in values):
            return Fixed(self.world.actual(first))
        if all(isinstance(value, Literal) for value in values):
            numbers = [value.data for value in values]
            if len({(array.dtype, array.tobytes()) for array in numbers if array is not None}) == 1:
                return Fixed(first)
        if self.counted:
            return Inner(self._counts(values, node))
        key_ = tuple([id(value) for value in values])
        found = self._stacked.get(key_)
        if found is None:
            found = self._stacked[key_] = self.world.stacked(values, node)
        return Rows(found)

    def _counts(self, values: Sequence[Value], node: Node) -> Value:
        """Return a number that grows by the same amount in each turn, computed from the turn's number."""
        numbers = [
            value.data.item()
            for value in values
            if isinstance(value, Literal) and value.data is not None and value.dtype.kind in "iuf"
        ]
        step = strided(numbers) if len(numbers) == len(values) else None
        if step is None or not all(float(number).is_integer() for number in (numbers[0], step)):
            raise Irregular("an input differs from turn to turn, and the number of turns is not known", node)
        count = UFUNCS["add"](UFUNCS["multiply"](self.number, int(step)), int(numbers[0]))
        return convert(count, values[0].dtype)

    def _register(self, key: tuple[int, int], distance: int, column: int, node: Node) -> Value:
        """Return the body's input for a value that was made some turns before."""
        slot, output = key
        type_ = self.template[slot].types[output]
        edges = self.recording.operands
        inits = {}
        for turn in range(distance):
            value = self.world.of(edges[self._edge + turn * self._step + column])
            if not isinstance(value, Literal) and (value.shape != type_.shape or value.dtype != type_.dtype):
                raise Irregular(
                    f"a carried value is {value.aval!r} at first and {type_!r} later", node, starts_late=True
                )
            inits[distance - turn] = value
        chains = self.chains.setdefault(key, [])
        for chain in chains:
            if all(_same(chain.inits.get(place, value), value) for place, value in inits.items()):
                break
        else:
            chains.append(chain := Chain())
        chain.inits.update(inits)
        if distance not in chain.registers:
            chain.registers[distance] = Value(aval(type_.shape, type_.dtype))
        return chain.registers[distance]

    def inside(self, operand: Operand) -> Value:
        """Return the body's value."""
        if isinstance(operand, Inner):
            return operand.value
        if isinstance(operand, Rows):
            rows = operand.value
            found = self.elements.get(rows)
            if found is None:
                found = self.elements[rows] = Value(aval(rows.shape[1:], rows.dtype))
            return found
        value = operand.value
        if isinstance(value, Literal):
            return value
        found = self.consts.get(value)
        if found is None:
            found = self.consts[value] = Value(aval(value.shape, value.dtype))
        return found

    # Nodes

    def _starts(self, slot: int) -> Starts | None:
        """Return where a node reads or writes in each turn, if that differs."""
        node = self.template[slot]
        if node.op not in MOVING:
            return None
        nodes = self.recording.nodes[self.start + slot :: self.period][: self.trips]
        starts: Starts = np.array([node.params["starts"] for node in nodes], np.int64).reshape(self.trips, -1)
        return starts if (starts != starts[0]).any() else None

    def _slot(self, slot: int) -> None:
        node = self.template[slot]
        first = int(self.recording.first[self.start + slot]) - self._edge
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
            self.slots[slot, output] = operand

    def _ahead(
        self, node: Node, operands: Sequence[Operand], starts: Starts | None
    ) -> Sequence[Operand] | None:
        """Return what a node comes to where that is known ahead of the loop."""
        op, params = node.op, node.params
        x = operands[0] if operands else None
        if starts is not None:
            if self.counted or not isinstance(x, Fixed):
                return None
            rows = slices_as_rows(x.value, starts, params["shape"], params["strides"])
            return None if rows is None else [Rows(rows)]
        # Outside of the loop no mask of a selection would reach its cotangent, and an infinite slope would make NaN of a zero.
        stays = self._selects and isinstance(op, Elementwise)
        if not stays and all(isinstance(operand, Fixed) for operand in operands):
            copy = node.copy(tuple([operand.value for operand in operands]))
            return [Fixed(value) for value in copy.outs]
        if op in REARRANGING and isinstance(x, Rows):
            return [Rows(op(x.value, **op.lead(self.trips, **params)))]
        if op is gather_row and isinstance(x, Fixed) and all(isinstance(k, Rows) for k in operands[1:]):
            size = self.trips * node.types[0].size
            if size <= max(MOST_ELEMENTS, 2 * x.value.size):
                return [Rows(gather_row(x.value, *[k.value for k in operands[1:]], **params))]
        return None

    def _in_body(self, node: Node, operands: Sequence[Operand], starts: Starts | None) -> Sequence[Value]:
        params = node.params
        if starts is not None:
            moving = [axis for axis in range(starts.shape[1]) if (starts[:, axis] != starts[0, axis]).any()]
            x = self.inside(operands[0])
            indices = self._indices(x, starts, moving, params["shape"], params["strides"])
            return [read_at(x, indices, moving, params["starts"], params["shape"], params["strides"])]
        inputs = [self.inside(operand) for operand in operands]
        if isinstance(node.op, Elementwise):
            shape = node.types[0].shape
            inputs = [
                value if isinstance(value, Literal) or value.shape == shape else broadcast_to(value, shape)
                for value in inputs
            ]
        return node.copy(tuple(inputs)).outs

    def _indices(
        self, x: Value, starts: Starts, moving: Sequence[int], shape: Any, strides: Any
    ) -> list[Value]:
        """Return the positions that a turn reads or writes along the axes that move."""
        if not self.counted:
            arrays = index_rows(starts, moving, shape, strides)
            return [self.inside(Rows(self.world.number(array))) for array in arrays]
        found = []
        for array, axis in zip(index_rows(starts[:1], moving, shape, strides), moving, strict=True):
            step = strided(starts[:, axis].tolist())
            if step is None:
                raise Irregular("an index jumps, and the number of turns is not known", self.template[0])
            first = self.inside(Fixed(self.world.number(array[0])))
            count = convert(UFUNCS["multiply"](self.number, step), INTP)
            found.append(UFUNCS["add"](first, broadcast_to(count, array.shape[1:])))
            if step:
                room = x.shape[axis] - 1 - int(array.max()) if step > 0 else int(array.min())
                most = room // abs(step) + 1
                self.most = most if self.most is None else min(self.most, most)
        return found

    def _write(self, slot: int, node: Node, first: int, starts: Starts) -> None:
        """Write each turn's part after the loop, if nobody looks at the array before; else carry the array."""
        shape, strides = node.inputs[1].shape, node.params["strides"]
        line = line_of(starts, shape, strides)
        readers = np.flatnonzero(self._last % self.period == slot)
        readers = readers[self._source[-1, readers] >= self.start]
        own = readers.size == 1 and int(readers[0]) == first and int(self._last[first]) == slot - self.period
        numbers = range(self.start + slot, self.start + self.trips * self.period, self.period)
        stop = self.start + self.trips * self.period
        uses = self.recording.last_use[numbers.start : numbers.stop : self.period]
        early = bool((uses[:-1] >= stop).any())
        v = self._operand(first + 1, node)
        base = self._values(first)[0] if own else None
        fits = base is not None and not isinstance(base, Literal) and base.shape == node.types[0].shape
        later = not self.counted and fits and not early
        if later and isinstance(base, Value) and (line or are_apart(base.shape, starts, shape, strides)):
            self.written[slot] = Written(self.world.actual(base), v, starts, node, line)
            return
        x = self.inside(self._operand(first, node))
        moving = partial_axes(x.shape, starts, shape, strides)
        indices = self._indices(x, starts, moving, shape, strides)
        self.slots[slot, 0] = Inner(write_at(x, self.inside(v), indices, moving))


def _same(one: Value, other: Value) -> bool:
    if one is other:
        return True
    if not (isinstance(one, Literal) and isinstance(other, Literal)):
        return False
    assert one.data is not None and other.data is not None
    return one.data.dtype == other.data.dtype and one.data.tobytes() == other.data.tobytes()
