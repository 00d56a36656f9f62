"""Builds a loop: the nodes of one iteration of the recording as the nodes of a body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.builder import at
from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.ir.types import INT64, INTP, aval
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.indexing import gather_row, update_row
from gradtape.transforms.loops.licm import is_selection
from gradtape.transforms.reroll.per_iteration import (
    MAX_ELEMENTS,
    Starts,
    are_disjoint,
    index_arrays,
    line_of,
    partial_axes,
    read_at,
    stacked_slices,
    strided,
    write_at,
)
from gradtape.transforms.reroll.recording import MOVING_OPS, Recording
from gradtape.transforms.reroll.rewrite_state import REARRANGING, NotRollable, RewriteState


class Invariant(NamedTuple):
    """A value that is the same in each iteration."""

    value: Value


class PerIteration(NamedTuple):
    """A value that differs between iterations and is known before the loop: an element of this stack."""

    value: Value


class BodyValue(NamedTuple):
    """A value of the body."""

    value: Value


IterationOperand = Invariant | PerIteration | BodyValue


class DeferredWrite(NamedTuple):
    """Writes of all iterations to different parts of an array that is not read before the end of the loop."""

    base: Value
    v: IterationOperand
    starts: Starts
    node: Node
    line: tuple[int, int] | None


class CarryChain:
    """The carries that hold a value of earlier iterations: initial values and body inputs, by the distance in iterations."""

    __slots__ = ("inits", "registers")

    def __init__(self) -> None:
        self.inits: dict[int, Value] = {}
        self.registers: dict[int, Value] = {}


class LoopBuilder:
    """A loop that is built from a part of a recording in which the nodes of each iteration are connected like those of the one before.

    Parameters
    ----------
    recording : Recording
        The nodes.
    state : RewriteState
        The replacements of the nodes before.
    start, period, trips : int
        The nodes of the loop: the first one, the number per iteration, and the number of iterations.
    open_ended : bool
        Whether the trip count is unknown: then values that differ between iterations must be functions of the iteration's number.

    Attributes
    ----------
    slots : dict
        The value of each output of each node of the body.
    deferred_writes : dict
        Writes that are made after the loop, by node.
    chains : dict
        The chains of carries, by output.
    consts, elements : dict
        Values from outside, and the body's inputs for them.
    open_ended : bool
        As given.
    index : Value
        The number of the iteration, int64.
    max_trips : int or None
        The largest trip count without an index out of bounds.
    """

    def __init__(
        self,
        recording: Recording,
        state: RewriteState,
        start: int,
        period: int,
        trips: int,
        *,
        open_ended: bool,
    ) -> None:
        self.recording = recording
        self.state = state
        self.start, self.period, self.trips = start, period, trips
        self.open_ended = open_ended
        self.slots: dict[tuple[int, int], IterationOperand] = {}
        self.deferred_writes: dict[int, DeferredWrite] = {}
        self.chains: dict[tuple[int, int], list[CarryChain]] = {}
        self.consts: dict[Value, Value] = {}
        self.elements: dict[Value, Value] = {}
        self.index = Value(aval((), INT64))
        self.max_trips: int | None = None
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

    def live_body(
        self, outputs: Sequence[Value], carries: Sequence[Value]
    ) -> tuple[list[Node], dict[Value, Value], dict[Value, Value], bool]:
        """Return the nodes of the body for some outputs, the consts and elements that they read, and whether they read the index."""
        nodes, _ = extract(outputs, [self.index, *self.consts.values(), *carries, *self.elements.values()])
        read = {value for node in nodes for value in node.inputs}.union(outputs)
        consts = {outer: value for outer, value in self.consts.items() if value in read}
        elements = {outer: value for outer, value in self.elements.items() if value in read}
        return nodes, consts, elements, self.index in read

    # Operands

    def _values(self, column: int) -> list[Value]:
        """Return the values of an input in all iterations."""
        begin = self._edge + column
        operands = self.recording.operands[begin : begin + self.trips * self._step : self._step]
        return [self.state.current(value) for value in operands]

    def _operand(self, column: int, node: Node) -> IterationOperand:
        source = self._source[:, column]
        inner = source >= self.start
        if inner[-1]:
            distance, slot = divmod(int(self._last[column]), self.period)
            key = slot, int(self._output[-1, column])
            if distance == 0:
                return self.slots[key]
            return BodyValue(self._carried_value(key, -distance, column, node))
        values = self._values(column)
        first = values[0]
        if all(value is first for value in values):
            return Invariant(self.state.materialise(first))
        if all(isinstance(value, Literal) for value in values):
            numbers = [value.data for value in values]
            if len({(array.dtype, array.tobytes()) for array in numbers if array is not None}) == 1:
                return Invariant(first)
        if self.open_ended:
            return BodyValue(self._induction_variable(values, node))
        key_ = tuple([id(value) for value in values])
        stacked = self._stacked.get(key_)
        if stacked is None:
            stacked = self._stacked[key_] = self.state.stack(values, node)
        return PerIteration(stacked)

    def _induction_variable(self, values: Sequence[Value], node: Node) -> Value:
        """Return a linear induction variable, computed from the number of the iteration."""
        numbers = [
            value.data.item()
            for value in values
            if isinstance(value, Literal) and value.data is not None and value.dtype.kind in "iuf"
        ]
        step = strided(numbers) if len(numbers) == len(values) else None
        if step is None or not all(float(number).is_integer() for number in (numbers[0], step)):
            raise NotRollable("an input differs between iterations, and the trip count is not known", node)
        count = UFUNCS["add"](UFUNCS["multiply"](self.index, int(step)), int(numbers[0]))
        return convert(count, values[0].dtype)

    def _carried_value(self, key: tuple[int, int], distance: int, column: int, node: Node) -> Value:
        """Return the body's input for the value of some iterations before."""
        slot, output = key
        type_ = self.template[slot].types[output]
        operands = self.recording.operands
        inits = {}
        for back in range(distance):
            value = self.state.current(operands[self._edge + back * self._step + column])
            if not isinstance(value, Literal) and (value.shape != type_.shape or value.dtype != type_.dtype):
                raise NotRollable(
                    f"a carried value is {value.aval!r} at first and {type_!r} later", node, peelable=True
                )
            inits[distance - back] = value
        chains = self.chains.setdefault(key, [])
        for chain in chains:
            if all(_same(chain.inits.get(position, value), value) for position, value in inits.items()):
                break
        else:
            chains.append(chain := CarryChain())
        chain.inits.update(inits)
        if distance not in chain.registers:
            chain.registers[distance] = Value(aval(type_.shape, type_.dtype))
        return chain.registers[distance]

    def body_value(self, operand: IterationOperand) -> Value:
        """Return the value of an operand inside the body."""
        if isinstance(operand, BodyValue):
            return operand.value
        if isinstance(operand, PerIteration):
            stack = operand.value
            inner = self.elements.get(stack)
            if inner is None:
                inner = self.elements[stack] = Value(aval(stack.shape[1:], stack.dtype))
            return inner
        value = operand.value
        if isinstance(value, Literal):
            return value
        inner = self.consts.get(value)
        if inner is None:
            inner = self.consts[value] = Value(aval(value.shape, value.dtype))
        return inner

    # Nodes

    def _starts(self, slot: int) -> Starts | None:
        """Return the starts of a slice or update in all iterations, (iterations, axes); None where they are equal."""
        node = self.template[slot]
        if node.op not in MOVING_OPS:
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
            before_loop = self._before_loop(node, operands, starts)
            if before_loop is None:
                before_loop = [BodyValue(value) for value in self._in_body(node, operands, starts)]
        for output, operand in enumerate(before_loop):
            self.slots[slot, output] = operand

    def _before_loop(
        self, node: Node, operands: Sequence[IterationOperand], starts: Starts | None
    ) -> Sequence[IterationOperand] | None:
        """Return the outputs of a node that can be computed before the loop; None for others."""
        op, params = node.op, node.params
        x = operands[0] if operands else None
        if starts is not None:
            if self.open_ended or not isinstance(x, Invariant):
                return None
            stack = stacked_slices(x.value, starts, params["shape"], params["strides"])
            return None if stack is None else [PerIteration(stack)]
        # Outside the loop no mask of a selection would reach its cotangent, and an infinite slope would make NaN of a zero.
        stays = self._selects and isinstance(op, Elementwise)
        if not stays and all(isinstance(operand, Invariant) for operand in operands):
            copy = node.copy(tuple([operand.value for operand in operands]))
            return [Invariant(value) for value in copy.outs]
        if op in REARRANGING and isinstance(x, PerIteration):
            return [PerIteration(op(x.value, **op.lead(self.trips, **params)))]
        if (
            op is gather_row
            and isinstance(x, Invariant)
            and all(isinstance(k, PerIteration) for k in operands[1:])
        ):
            size = self.trips * node.types[0].size
            if size <= max(MAX_ELEMENTS, 2 * x.value.size):
                return [PerIteration(gather_row(x.value, *[k.value for k in operands[1:]], **params))]
        return None

    def _in_body(
        self, node: Node, operands: Sequence[IterationOperand], starts: Starts | None
    ) -> Sequence[Value]:
        params = node.params
        if starts is not None:
            moving = [axis for axis in range(starts.shape[1]) if (starts[:, axis] != starts[0, axis]).any()]
            x = self.body_value(operands[0])
            indices = self._indices(x, starts, moving, params["shape"], params["strides"])
            return [read_at(x, indices, moving, params["starts"], params["shape"], params["strides"])]
        inputs = [self.body_value(operand) for operand in operands]
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
        """Return the positions that an iteration reads or writes along the axes `moving`."""
        if not self.open_ended:
            arrays = index_arrays(starts, moving, shape, strides)
            return [self.body_value(PerIteration(self.state.constant_of(array))) for array in arrays]
        indices = []
        for array, axis in zip(index_arrays(starts[:1], moving, shape, strides), moving, strict=True):
            step = strided(starts[:, axis].tolist())
            if step is None:
                raise NotRollable("an index jumps, and the trip count is not known", self.template[0])
            first = self.body_value(Invariant(self.state.constant_of(array[0])))
            count = convert(UFUNCS["multiply"](self.index, step), INTP)
            indices.append(UFUNCS["add"](first, broadcast_to(count, array.shape[1:])))
            if step:
                room = x.shape[axis] - 1 - int(array.max()) if step > 0 else int(array.min())
                most = room // abs(step) + 1
                self.max_trips = most if self.max_trips is None else min(self.max_trips, most)
        return indices

    def _write(self, slot: int, node: Node, first: int, starts: Starts) -> None:
        """Write the parts of all iterations after the loop, if the array is not read before; else carry the array."""
        shape, strides = node.inputs[1].shape, node.params["strides"]
        line = line_of(starts, shape, strides)
        readers = np.flatnonzero(self._last % self.period == slot)
        readers = readers[self._source[-1, readers] >= self.start]
        is_carried = (
            readers.size == 1 and int(readers[0]) == first and int(self._last[first]) == slot - self.period
        )
        numbers = range(self.start + slot, self.start + self.trips * self.period, self.period)
        stop = self.start + self.trips * self.period
        uses = self.recording.last_use[numbers.start : numbers.stop : self.period]
        early = bool((uses[:-1] >= stop).any())
        v = self._operand(first + 1, node)
        base = self._values(first)[0] if is_carried else None
        fits = base is not None and not isinstance(base, Literal) and base.shape == node.types[0].shape
        later = not self.open_ended and fits and not early
        if later and isinstance(base, Value) and (line or are_disjoint(base.shape, starts, shape, strides)):
            self.deferred_writes[slot] = DeferredWrite(self.state.materialise(base), v, starts, node, line)
            return
        x = self.body_value(self._operand(first, node))
        moving = partial_axes(x.shape, starts, shape, strides)
        indices = self._indices(x, starts, moving, shape, strides)
        self.slots[slot, 0] = BodyValue(write_at(x, self.body_value(v), indices, moving))


def _same(first: Value, second: Value) -> bool:
    if first is second:
        return True
    if not (isinstance(first, Literal) and isinstance(second, Literal)):
        return False
    assert first.data is not None and second.data is not None
    return first.data.dtype == second.data.dtype and first.data.tobytes() == second.data.tobytes()
