"""Loops and branches: their bodies are lowered as programs of their own and spliced in where they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from gradtape.ir.graph import Graph, Value, extract
from gradtape.ir.op import Op
from gradtape.ir.types import BOOL, INT64
from gradtape.loops.affine import Position, Var, affine
from gradtape.loops.ir import (
    UNBOUNDED,
    Assign,
    Buffer,
    Compute,
    Declare,
    DoubleBuffer,
    For,
    GrowStack,
    Index,
    IndexSwitch,
    Load,
    Number,
    OpenStack,
    Place,
    Register,
    ReserveStack,
    RoutineCall,
    SequentialFor,
    Statement,
    Store,
    WhileLoop,
    const,
)
from gradtape.lower.building.calls import COMPARISONS
from gradtape.lower.building.carries import (
    BodyBindings,
    LoopCarry,
    begin_carry,
    begin_swapped_carries,
    finish_carries,
    load_carries,
    store_carries,
    swapped_carries,
)
from gradtape.lower.building.context import LoopKernels, LoweredBody
from gradtape.lower.building.elements import ElementBuilder
from gradtape.lower.schedule.nests import LoopNest
from gradtape.lower.schedule.order import replaces
from gradtape.lower.schedule.outlined import is_outlined, outlined_graph
from gradtape.lower.schedule.rotate import RotatedWhile, next_condition
from gradtape.lower.schedule.storage import source_of
from gradtape.records import frozen_record
from gradtape.transforms.loops.ops import Repeat, Scan, Switch, While


def emit_control(builder: ElementBuilder, nest: LoopNest) -> None:
    """Emit the loop or the branch of a nest, and let the program read its results."""
    assert nest.node is not None
    _EMITTERS[type(nest.node.op)](builder, nest)


def _results(builder: ElementBuilder, nest: LoopNest) -> list[LoopNest]:
    assert nest.node is not None
    return [builder.nests[out] for out in nest.node.outs]


@frozen_record
class _LoweredLoop:
    """A loop whose body was lowered.

    Attributes
    ----------
    body : LoweredBody
        What one iteration runs. Its inputs are the number of the iteration, the consts, the carries and the elements; its outputs are
        the carries that are live, the elements of the results in `stacked`, and what else was asked for.
    consts : sequence of Value
        What is the same in each iteration.
    carries, live : list of LoopCarry
        All carries, and those that an iteration makes.
    elements : sequence of Value
        Arrays of which each iteration reads one element.
    stacked : sequence of LoopNest
        Results to which each iteration adds one element.
    """

    body: LoweredBody
    consts: Sequence[Value]
    carries: list[LoopCarry]
    live: list[LoopCarry]
    elements: Sequence[Value]
    stacked: Sequence[LoopNest]

    def bindings(
        self, builder: ElementBuilder, iteration: Position, buffers: Sequence[Buffer]
    ) -> BodyBindings:
        """Return what a graph over the number of the iteration, the consts, the carries and the elements reads."""
        bindings = BodyBindings(builder)
        index, *inputs = buffers
        bindings.bind_number(index, Index(iteration))
        for buffer, value in zip(inputs, self.consts, strict=False):
            bindings.bind_constant(buffer, value)
        first = len(self.consts)
        last = first + len(self.carries)
        bindings.bind_inputs(self.carries, inputs[first:last])
        for buffer, value in zip(inputs[last:], self.elements, strict=False):
            bindings.bind_element(buffer, value, iteration)
        return bindings

    def iteration(self, builder: ElementBuilder, iteration: Position) -> tuple[list[Statement], list[Number]]:
        """Return what an iteration does, once the carries are loaded, and the numbers that it makes besides."""
        bindings = self.bindings(builder, iteration, self.body.inputs)
        count = len(self.live)
        count_with_stacks = count + len(self.stacked)
        following, besides = self.body.outputs[:count], self.body.outputs[count_with_stacks:]
        bindings.bind_outputs(self.live, following)
        for buffer, result in zip(self.body.outputs[count:count_with_stacks], self.stacked, strict=True):
            bindings.bind_result(buffer, result, iteration)
        for buffer in besides:
            bindings.want_number(buffer)
        statements = bindings.splice(self.body.statements)
        stores = store_carries(bindings, self.live, following)
        return [*statements, *stores], [bindings.number(buffer) for buffer in besides]

    def stacks(self, builder: ElementBuilder) -> list[Buffer]:
        """Return the memory of the results in `stacked`."""
        memory = [builder.plan.storage[nest].buffer for nest in self.stacked]
        return [buffer for buffer in memory if buffer is not None]

    def pairs(self) -> tuple[DoubleBuffer, ...]:
        return tuple([carry.pair for carry in self.carries if carry.pair is not None])


def _lowered_loop(
    builder: ElementBuilder,
    nest: LoopNest,
    inputs: Sequence[Value],
    stacked: Sequence[LoopNest],
    odd: bool | None,
    besides: Sequence[Value] = (),
) -> _LoweredLoop:
    """Lower the body of a loop and emit what is there before the first iteration.

    Parameters
    ----------
    builder : ElementBuilder
        Of the program.
    nest : LoopNest
        The loop.
    inputs : sequence of Value
        Its consts, initial carries and arrays.
    stacked : sequence of LoopNest
        The results to which each iteration adds one element.
    odd : bool or None
        Whether the trip count is odd, if that is known.
    besides : sequence of Value
        What the body is to compute besides its outputs.
    """
    node, storage = nest.node, builder.plan.storage
    assert node is not None
    body, consts, count = node.params["body"], node.params["consts"], node.params["carries"]
    results = _results(builder, nest)[:count]
    read = [result for result in stacked if storage[result].buffer is not None]
    if len(read) < len(stacked) or besides:
        kept_outputs = [
            out for out, result in zip(body.outputs[count:], stacked, strict=True) if result in read
        ]
        outputs = [*body.outputs[:count], *kept_outputs, *besides]
        nodes, _ = extract(outputs, body.inputs)
        body = Graph(body.inputs, nodes, outputs, body.name)
    live = list(range(count))
    if besides:
        idle = _idle_carries(builder, body, results, consts)
        live = [k for k in live if k not in idle]
        outputs = [body.outputs[k] for k in live] + list(body.outputs[count:])
        body = Graph(body.inputs, body.nodes, outputs, body.name)
    lowered, live, swapped = _lowered_body(builder, body, 1 + consts, live)
    initial = inputs[consts : consts + count]
    begun: dict[int, LoopCarry] = {}
    for other, k in swapped.items():
        begun[k], begun[other] = begin_swapped_carries(
            builder, (results[k], results[other]), (initial[k], initial[other]), odd
        )
    carries = [
        begun[k]
        if k in begun
        else begin_carry(builder, result, value, 1 + consts + k in lowered.in_place, odd)
        if k in live
        else LoopCarry(result)
        for k, (result, value) in enumerate(zip(results, initial, strict=False))
    ]
    elements = inputs[consts + count :]
    return _LoweredLoop(lowered, inputs[:consts], carries, [carries[k] for k in live], elements, read)


def _lowered_body(
    builder: ElementBuilder, body: Graph, first: int, live: Sequence[int]
) -> tuple[LoweredBody, list[int], dict[int, int]]:
    """Lower the body of a loop.

    Parameters
    ----------
    builder : ElementBuilder
        Of the program.
    body : Graph
        Its outputs begin with the next carries that are live.
    first : int
        The input that is the first carry.
    live : sequence of int
        The carries that an iteration makes.

    Returns
    -------
    LoweredBody
        What one iteration runs.
    list of int
        The carries that it makes.
    dict of int to int
        The carries that become what another one was, and which one, whose memory they exchange.
    """
    carried = {first + k: position for position, k in enumerate(live) if body.outputs[position].shape != ()}
    lowered = builder.lower_body(body, carried)
    swapped = {
        k: other
        for k, other in swapped_carries(body, first, live).items()
        if not {first + k, first + other} <= lowered.in_place
    }
    while swapped:  # terminates: each round but the last leaves a swap out
        positions = [position for position, k in enumerate(live) if k not in swapped]
        outputs = [body.outputs[position] for position in positions] + list(body.outputs[len(live) :])
        changed_positions = [live[position] for position in positions]
        memory = {k: other for other, k in swapped.items()}
        carried = {
            first + memory.get(k, k): position
            for position, k in enumerate(changed_positions)
            if outputs[position].shape != ()
        }
        exchanging = builder.lower_body(Graph(body.inputs, body.nodes, outputs, body.name), carried)
        left = {other: k for other, k in swapped.items() if first + other in exchanging.in_place}
        if len(left) == len(swapped):
            return exchanging, changed_positions, swapped
        swapped = left
    return lowered, list(live), {}


def _idle_carries(builder: ElementBuilder, body: Graph, results: Sequence[LoopNest], consts: int) -> set[int]:
    """Return the arrays that only the condition reads, which is computed where they are made."""
    read = {value for node in body.nodes for value in node.inputs}.union(body.outputs)
    return {
        k
        for k, result in enumerate(results)
        if result.shape != ()
        and builder.plan.storage[result].buffer is None
        and body.inputs[1 + consts + k] not in read
    }


def _explain(builder: ElementBuilder, nest: LoopNest, trips: str, loop: _LoweredLoop) -> None:
    """Say how a loop keeps its carries and its stacked results."""
    assert nest.node is not None
    body: Graph = nest.node.params["body"]
    first = 1 + len(loop.consts)
    names_by_place: dict[str, list[str]] = {}
    for position, carry in enumerate(loop.carries):
        if carry not in loop.live and carry.current is None:
            continue
        value = body.inputs[first + position]
        name = value.name or f"carry {position} of shape {value.shape}"
        where = "registers" if carry.register is not None else "memory that is written in place"
        if carry not in loop.live or (carry.pair is not None and carry.pair.carries == 2):
            where = "memory that they exchange"
        elif carry.pair is not None:
            where = "two buffers that are swapped"
        elif carry.copied:
            where = "memory, copied in each iteration"
        names_by_place.setdefault(where, []).append(name)
    carries = "; ".join(f"carries in {where}: {', '.join(names)}" for where, names in names_by_place.items())
    count = len(loop.stacked)
    stacked = f"stacks {count} results of each iteration" if count else "stacks no results"
    builder.notes.append(f"loop over {trips}: {carries or 'carries nothing'}; {stacked}")


def _emit_scan(builder: ElementBuilder, nest: LoopNest) -> None:
    node = nest.node
    assert node is not None
    length, count = node.params["length"], node.params["carries"]
    if builder.context.kernels is not None and is_outlined(node):
        _emit_outlined(builder, nest, builder.context.kernels)
        return
    stacked = _results(builder, nest)[count:]
    if builder.context.trip_count is not None:
        trips = Register(builder.fresh("k"), INT64)
        builder.emit(Load(trips, builder.context.trip_count, 0))
        builder.depth_of[trips.name] = 0
        loop = _lowered_loop(builder, nest, node.inputs, stacked, None)
        _explain(builder, nest, "a trip count known at run time", loop)
        _emit_counted(builder, loop, trips, node.params["reverse"])
        return
    loop = _lowered_loop(builder, nest, node.inputs, stacked, length % 2 == 1)
    if length > 0:
        var = Var(builder.fresh("i_"), 0, length - 1)
        iteration = length - 1 - affine(var) if node.params["reverse"] else affine(var)
        statements = [*load_carries(builder, loop.carries), *loop.iteration(builder, iteration)[0]]
        builder.emit(SequentialFor(var, statements, None, loop.pairs()))
    _explain(builder, nest, f"{length} iterations", loop)
    finish_carries(builder, loop.carries)


def _emit_counted(builder: ElementBuilder, loop: _LoweredLoop, trips: Register, reverse: bool) -> None:
    """Emit as many iterations as a register says."""
    var = Var(builder.fresh("i_"), 0, UNBOUNDED)
    iteration: Position = affine(var)
    if reverse:
        iteration = affine(Var(trips.name, 0, UNBOUNDED)) - 1 - iteration
    statements = [*load_carries(builder, loop.carries), *loop.iteration(builder, iteration)[0]]
    builder.emit(SequentialFor(var, statements, trips, loop.pairs()))
    finish_carries(builder, loop.carries)


def _emit_outlined(builder: ElementBuilder, nest: LoopNest, kernels: LoopKernels) -> None:
    """Emit the call of an outlined loop's kernel: numbers are handed over in memory."""
    node = nest.node
    assert node is not None
    results = _results(builder, nest)
    memory = [builder.plan.storage[result].buffer for result in results]
    used = [k for k, result in enumerate(results) if result.shape == () or memory[k] is not None]
    graph, values = outlined_graph(node, used)
    symbol, workspace = kernels(graph)
    operands: list[Place] = []
    for value in values:
        if value.shape == ():
            number = builder.new_scratch(value.dtype, 1)
            builder.emit(Store(number, 0, builder.element(value, ())))
            operands.append((number, 0))
        elif value.size == 0:  # nothing makes it
            operands.append((builder.new_scratch(value.dtype, 1), 0))
        else:
            operands.append(builder.place_of(value))
    numbers: list[tuple[LoopNest, Buffer]] = []
    for k in used:
        buffer = memory[k]
        if results[k].shape == ():
            buffer = builder.new_scratch(results[k].value.dtype, 1)
            numbers.append((results[k], buffer))
        assert buffer is not None
        operands.append((buffer, 0))
    operands.append((builder.new_scratch(np.dtype(np.uint8), max(workspace, 1)), 0))
    length = node.params["length"]
    builder.notes.append(f"loop over {length} iterations: a kernel of its own, for any trip count")
    work = COMPARISONS * operands[0][0].size
    builder.emit(RoutineCall("loop", tuple(operands), (symbol, len(values), length), "gradtape", work))
    for result, buffer in numbers:
        register = Register(builder.fresh("t"), buffer.dtype)
        builder.emit(Load(register, buffer, 0))
        builder.emit_number(result, register)


def _emit_repeat(builder: ElementBuilder, nest: LoopNest) -> None:
    node = nest.node
    assert node is not None
    count, *inputs = node.inputs
    trips = Register(builder.fresh("k"), INT64)
    builder.emit(Compute(trips, "identity", None, (builder.element(count, ()),)))
    builder.depth_of[trips.name] = 0
    loop = _lowered_loop(builder, nest, inputs, _results(builder, nest)[node.params["carries"] :], None)
    for stack in loop.stacks(builder):
        builder.emit(ReserveStack(stack, trips))
    for value in loop.elements:
        builder.emit(OpenStack(builder.memory_of(value)))
    _explain(builder, nest, "a trip count known at run time", loop)
    _emit_counted(builder, loop, trips, node.params["reverse"])


def _emit_while(builder: ElementBuilder, nest: LoopNest) -> None:
    """Emit a while loop; where it was rotated, each iteration computes the condition of the next one while it has the carries at hand."""
    node = nest.node
    assert node is not None
    params, results = node.params, _results(builder, nest)
    carries, limit = params["carries"], params["limit"]
    ahead = next_condition(node) if isinstance(node.op, RotatedWhile) else []
    inputs = node.inputs[: params["consts"] + carries]
    loop = _lowered_loop(builder, nest, inputs, results[carries + 1 :], None, ahead)
    var = Var(builder.fresh("i_"), 0, UNBOUNDED if limit is None else max(limit, 0) - 1)
    iteration = affine(var)
    trips, goes_on = Register(builder.fresh("r"), INT64), Register(builder.fresh("t"), BOOL)
    builder.emit(Declare(trips, const(0, INT64)))
    stacks = loop.stacks(builder)
    for stack in stacks:
        builder.emit(ReserveStack(stack, const(0, INT64)))
    body: list[Statement] = [GrowStack(stack, Index(iteration)) for stack in stacks]
    statements, besides = loop.iteration(builder, iteration)
    if ahead:
        tested = Register(builder.fresh("r"), BOOL)
        builder.emit(Declare(tested, builder.element(node.inputs[-1], ())))
        test: list[Statement] = [Compute(goes_on, "identity", None, (tested,))]
        body += [*load_carries(builder, loop.carries), *statements, Assign(tested, besides[0])]
    else:
        condition = builder.lower_body(params["condition"], {})
        bindings = loop.bindings(builder, iteration, condition.inputs)
        bindings.want_number(condition.outputs[0])
        inside = bindings.splice(condition.statements)
        now = bindings.number(condition.outputs[0])
        test = [*load_carries(builder, loop.carries), *inside, Compute(goes_on, "identity", None, (now,))]
        body += statements
    body.append(Assign(trips, Index(iteration + 1)))
    builder.emit(WhileLoop(var, test, goes_on, body, loop.pairs()))
    _explain(builder, nest, "a trip count that its condition decides", loop)
    finish_carries(builder, loop.carries)
    builder.emit_final(results[carries], trips)


def _emit_switch(builder: ElementBuilder, nest: LoopNest) -> None:
    """Emit a branch: numbers leave it in accumulators, arrays in the memory of its results."""
    node, storage = nest.node, builder.plan.storage
    assert node is not None
    index, *operands = node.inputs
    results = _results(builder, nest)
    registers = {
        result: Register(builder.fresh("r"), result.value.dtype) for result in results if result.shape == ()
    }
    for register in registers.values():
        builder.emit(Declare(register, const(0, register.dtype)))
    replaced = {
        position: k
        for k, result in enumerate(results)
        if storage[result].in_place_of is not None and (position := source_of(node, k, replaces)) is not None
    }
    branches = []
    for graph in node.params["branches"]:
        lowered = builder.lower_body(graph, replaced)
        bindings = BodyBindings(builder)
        for buffer, value in zip(lowered.inputs, operands, strict=False):
            bindings.bind_constant(buffer, value)
        after: list[Statement] = []
        for k, (buffer, result) in enumerate(zip(lowered.outputs, results, strict=True)):
            if result in registers:
                bindings.want_number(buffer)
            elif any(out == k and position not in lowered.in_place for position, out in replaced.items()):
                after.append(_computed_aside(builder, bindings, buffer, result))
            else:
                bindings.bind_result(buffer, result, 0)
        statements = bindings.splice(lowered.statements)
        statements.extend(
            Assign(registers[result], bindings.number(buffer))
            for buffer, result in zip(lowered.outputs, results, strict=True)
            if result in registers
        )
        branches.append([*statements, *after])
    builder.emit(IndexSwitch(builder.element(index, ()), tuple(branches)))
    for result, register in registers.items():
        builder.emit_final(result, register)


def _computed_aside(builder: ElementBuilder, bindings: BodyBindings, buffer: Buffer, result: LoopNest) -> For:
    """Let a branch make a result that replaces an operand which it still reads; return the copy of it."""
    memory = builder.plan.storage[result].buffer
    assert memory is not None
    copy = builder.new_scratch(result.value.dtype, result.value.size)
    bindings.bind_memory(buffer, (copy, 0))
    var = Var(builder.fresh("i_"), 0, max(copy.size, 1) - 1)
    element = Register(builder.fresh("t"), copy.dtype)
    return For(var, [Load(element, copy, affine(var)), Store(memory, affine(var), element)])


_EMITTERS: Final[dict[type[Op], Callable[[ElementBuilder, LoopNest], None]]] = {
    Scan: _emit_scan,
    Repeat: _emit_repeat,
    While: _emit_while,
    RotatedWhile: _emit_while,
    Switch: _emit_switch,
}
