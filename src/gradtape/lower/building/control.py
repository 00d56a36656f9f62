"""Loops over time and branches: their bodies are lowered as programs of their own and put where they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

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
    LoopProgram,
    Number,
    OpenStack,
    Register,
    ReserveStack,
    SequentialFor,
    Statement,
    Store,
    WhileLoop,
    const,
)
from gradtape.loops.passes.pipeline import optimise_body
from gradtape.lower.building.carries import (
    Carry,
    Frame,
    begin_carry,
    finish_carries,
    head_of_turn,
    let_give,
    let_take,
    new_scratch,
    tail_of_turn,
)
from gradtape.lower.building.outlined import emit_apart, stands_apart
from gradtape.lower.building.rotate import TestedWhile, test_ahead, tested_after
from gradtape.lower.schedule.nests import Root
from gradtape.lower.schedule.order import replaces, schedule
from gradtape.lower.schedule.storage import source_of
from gradtape.passes.rewrite import closed
from gradtape.records import record
from gradtape.transforms.loops.ops import Repeat, Scan, Switch
from gradtape.transforms.loops.ops import While as WhileOp

if TYPE_CHECKING:
    from gradtape.lower.building.builder import Builder


def emit_control(builder: Builder, root: Root) -> None:
    """Emit the loop or the branch of a root, with what it leaves in its results."""
    assert root.node is not None
    _EMITTERS[type(root.node.op)](builder, root)


@record
class _Body:
    """The body of a loop, lowered for itself."""

    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    statements: list[Statement]
    in_place: set[int] = field(default_factory=set)


def lower_body(builder: Builder, graph: Graph, carried: dict[int, int]) -> _Body:
    """Return the statements that one turn runs, over buffers of the body's own inputs and outputs.

    Parameters
    ----------
    builder : Builder
        Of the program around it; receives the scratch buffers.
    graph : Graph
        The body.
    carried : dict of int to int
        The outputs that become inputs of the next turn, by these inputs.
    """
    prefix = builder.fresh("b") + "_"
    traced = closed(graph)
    plan = schedule(test_ahead(traced), traced, carried, prefix)
    inner = builder.within(plan.by_value, plan.sources)
    inner.block(plan.top)
    scratch = [*plan.scratch, *inner.scratch]
    program = optimise_body(LoopProgram(graph.name, plan.inputs, plan.outputs, scratch, inner.body))
    builder.scratch.extend(program.scratch)
    builder.notes.extend(f"in a turn: {note}" for note in (*plan.explain, *inner.notes))
    in_place = {
        place
        for place, output in carried.items()
        if plan.by_value[traced.inputs[place]].storage is plan.outputs[output]
    }
    return _Body(program.inputs, program.outputs, program.body, in_place)


@record
class _Loop:
    """A loop whose body was lowered, with what it carries, and those of the carries that a turn replaces."""

    body: _Body
    consts: Sequence[Value]
    carries: list[Carry]
    after: list[Carry]
    elements: Sequence[Value]
    left: Sequence[Root]

    def frame(self, builder: Builder, turn: Position, buffers: Sequence[Buffer]) -> Frame:
        """Return what a body reads in a turn."""
        frame = Frame(builder)
        index, *inputs = buffers
        frame.held[index] = Index(turn)
        for buffer, value in zip(inputs, self.consts, strict=False):
            frame.constant(buffer, value)
        first = len(self.consts)
        let_take(frame, self.carries, inputs[first : first + len(self.carries)])
        for buffer, value in zip(inputs[first + len(self.carries) :], self.elements, strict=False):
            frame.element(buffer, value, turn)
        return frame

    def turn(self, builder: Builder, turn: Position) -> tuple[list[Statement], list[Number]]:
        """Return what a turn does, once the carries are taken, and the numbers that it makes besides."""
        frame = self.frame(builder, turn, self.body.inputs)
        count = len(self.after)
        after = self.body.outputs[:count]
        let_give(frame, self.after, after)
        more = count + len(self.left)
        for buffer, result in zip(self.body.outputs[count:more], self.left, strict=True):
            frame.leaving(buffer, result, turn)
        besides: list[list[Number]] = [[] for _ in self.body.outputs[more:]]
        frame.left.update(zip(self.body.outputs[more:], besides, strict=True))
        statements = frame.spliced(self.body.statements)
        return [*statements, *tail_of_turn(frame, self.after, after)], [made[-1] for made in besides]

    def stacks(self) -> list[Buffer]:
        """Return the stacks that the loop leaves."""
        return [root.storage for root in self.left if root.storage is not None]

    def pairs(self) -> tuple[DoubleBuffer, ...]:
        return tuple([carry.pair for carry in self.carries if carry.pair is not None])


def _loop(
    builder: Builder,
    root: Root,
    inputs: Sequence[Value],
    left: Sequence[Root],
    odd: bool | None,
    besides: Sequence[Value] = (),
) -> _Loop:
    """Lower a body and emit what is there before the first turn; `besides` it computes these."""
    node = root.node
    assert node is not None
    body, consts, count = node.params["body"], node.params["consts"], node.params["carries"]
    read = [result for result in left if result.storage is not None]
    if len(read) < len(left) or besides:
        kept = [out for out, result in zip(body.outputs[count:], left, strict=True) if result in read]
        outputs = [*body.outputs[:count], *kept, *besides]
        nodes, _ = extract(outputs, body.inputs)
        body = Graph(body.inputs, nodes, outputs, body.name)
    live = list(range(count))
    if besides:
        idle = _idle_carries(body, root, consts, count)
        live = [k for k in live if k not in idle]
        outputs = [body.outputs[k] for k in live] + list(body.outputs[count:])
        body = Graph(body.inputs, body.nodes, outputs, body.name)
    carried = {1 + consts + k: place for place, k in enumerate(live) if body.outputs[place].shape != ()}
    lowered = lower_body(builder, body, carried)
    initial = inputs[consts : consts + count]
    carries = [
        begin_carry(builder, result, value, 1 + consts + k in lowered.in_place, odd)
        if k in live
        else Carry(result)
        for k, (result, value) in enumerate(zip(root.results, initial, strict=False))
    ]
    after = [carries[k] for k in live]
    return _Loop(lowered, inputs[:consts], carries, after, inputs[consts + count :], read)


def _idle_carries(body: Graph, root: Root, consts: int, count: int) -> set[int]:
    """Return the arrays that only the condition reads, which is computed where they are made."""
    read = {value for node in body.nodes for value in node.inputs}.union(body.outputs)
    return {
        k
        for k, result in enumerate(root.results[:count])
        if result.shape != () and result.storage is None and body.inputs[1 + consts + k] not in read
    }


def _describe(builder: Builder, root: Root, turns: str, loop: _Loop) -> None:
    """Say how a loop keeps what it carries and what it leaves."""
    assert root.node is not None
    body: Graph = root.node.params["body"]
    first = 1 + len(loop.consts)
    kept: dict[str, list[str]] = {}
    for place, carry in enumerate(loop.carries):
        if carry not in loop.after:
            continue
        value = body.inputs[first + place]
        name = value.name or f"carry {place} of shape {value.shape}"
        where = "registers" if carry.register is not None else "memory that is written in place"
        if carry.pair is not None:
            where = "two buffers by turns"
        elif carry.copied:
            where = "memory, copied in each turn"
        kept.setdefault(where, []).append(name)
    carries = "; ".join(f"carries in {where}: {', '.join(names)}" for where, names in kept.items())
    left = f"leaves {len(loop.left)} results of each turn" if loop.left else "leaves nothing of its turns"
    builder.notes.append(f"loop over {turns}: {carries or 'carries nothing'}; {left}")


def _scan(builder: Builder, root: Root) -> None:
    assert root.node is not None
    length, count = root.node.params["length"], root.node.params["carries"]
    if builder.kernels is not None and stands_apart(root.node):
        emit_apart(builder, root, builder.kernels)
        return
    if builder.count is not None:
        _counted_scan(builder, root, builder.count)
        return
    loop = _loop(builder, root, root.node.inputs, root.results[count:], length % 2 == 1)
    if length > 0:
        var = Var(builder.fresh("i_"), 0, length - 1)
        turn = length - 1 - affine(var) if root.node.params["reverse"] else affine(var)
        statements = [*head_of_turn(builder, loop.carries), *loop.turn(builder, turn)[0]]
        builder.emit(SequentialFor(var, statements, None, loop.pairs()))
    _describe(builder, root, f"{length} turns", loop)
    finish_carries(builder, loop.carries)


def _counted_scan(builder: Builder, root: Root, turns: Buffer) -> None:
    """Emit a loop that is a kernel of its own: the number of turns is in memory."""
    assert root.node is not None
    count = Register(builder.fresh("k"), INT64)
    builder.emit(Load(count, turns, 0))
    builder.depth_of[count.name] = 0
    carries = root.node.params["carries"]
    loop = _loop(builder, root, root.node.inputs, root.results[carries:], None)
    _describe(builder, root, "as many turns as it is told", loop)
    _emit_turns(builder, loop, count, root.node.params["reverse"])


def _emit_turns(builder: Builder, loop: _Loop, count: Register, reverse: bool) -> None:
    """Emit as many turns as a register says."""
    var = Var(builder.fresh("i_"), 0, UNBOUNDED)
    turn: Position = affine(var)
    if reverse:
        turn = affine(Var(count.name, 0, UNBOUNDED)) - 1 - turn
    statements = [*head_of_turn(builder, loop.carries), *loop.turn(builder, turn)[0]]
    builder.emit(SequentialFor(var, statements, count, loop.pairs()))
    finish_carries(builder, loop.carries)


def _repeat(builder: Builder, root: Root) -> None:
    assert root.node is not None
    carries = root.node.params["carries"]
    count = _counted(builder, root.node.inputs[0])
    loop = _loop(builder, root, root.node.inputs[1:], root.results[carries:], None)
    for stack in loop.stacks():
        builder.emit(ReserveStack(stack, count))
    for value in loop.elements:
        builder.emit(OpenStack(builder.memory_of(value)))
    _describe(builder, root, "as many turns as it is told", loop)
    _emit_turns(builder, loop, count, root.node.params["reverse"])


def _counted(builder: Builder, value: Value) -> Register:
    """Return a number of turns in a register, of which positions may be made."""
    count = Register(builder.fresh("k"), INT64)
    builder.emit(Compute(count, "identity", None, (builder.element(value, ()),)))
    builder.depth_of[count.name] = 0
    return count


def _while(builder: Builder, root: Root) -> None:
    """Where the condition reads arrays, each turn computes that of the next one while it has them at hand."""
    assert root.node is not None
    params = root.node.params
    carries, limit = params["carries"], params["limit"]
    ahead = tested_after(root.node) if isinstance(root.node.op, TestedWhile) else []
    inputs = root.node.inputs[: params["consts"] + carries]
    loop = _loop(builder, root, inputs, root.results[carries + 1 :], None, ahead)
    var = Var(builder.fresh("i_"), 0, UNBOUNDED if limit is None else max(limit, 0) - 1)
    turn = affine(var)
    turns, goes_on = Register(builder.fresh("r"), INT64), Register(builder.fresh("t"), BOOL)
    builder.emit(Declare(turns, const(0, INT64)))
    for stack in loop.stacks():
        builder.emit(ReserveStack(stack, const(0, INT64)))
    body: list[Statement] = [GrowStack(stack, Index(turn)) for stack in loop.stacks()]
    statements, besides = loop.turn(builder, turn)
    if ahead:
        tested = Register(builder.fresh("r"), BOOL)
        builder.emit(Declare(tested, builder.element(root.node.inputs[-1], ())))
        test: list[Statement] = [Compute(goes_on, "identity", None, (tested,))]
        body += [*head_of_turn(builder, loop.carries), *statements, Assign(tested, besides[0])]
    else:
        condition = lower_body(builder, params["condition"], {})
        inside, now = _tested(builder, loop.frame(builder, turn, condition.inputs), condition)
        test = [*head_of_turn(builder, loop.carries), *inside, Compute(goes_on, "identity", None, (now,))]
        body += statements
    body.append(Assign(turns, Index(turn + 1)))
    builder.emit(WhileLoop(var, test, goes_on, body, loop.pairs()))
    _describe(builder, root, "as many turns as its condition wants", loop)
    finish_carries(builder, loop.carries)
    final = Register(builder.fresh("t"), INT64)
    builder.emit(Compute(final, "identity", None, (turns,)))
    builder.made_number(root.results[carries], final)


def _tested(builder: Builder, frame: Frame, condition: _Body) -> tuple[list[Statement], Number]:
    """Return what computes a condition, and its result."""
    made: list[Number] = []
    frame.left[condition.outputs[0]] = made
    statements = frame.spliced(condition.statements)
    return statements, made[-1]


def _switch(builder: Builder, root: Root) -> None:
    assert root.node is not None
    index, *operands = root.node.inputs
    registers = {
        result: Register(builder.fresh("r"), result.value.dtype)
        for result in root.results
        if result.shape == ()
    }
    for register in registers.values():
        builder.emit(Declare(register, const(0, register.dtype)))
    branches = []
    replaced = {
        place: k
        for k, result in enumerate(root.results)
        if result.in_place_of is not None and (place := source_of(root.node, k, replaces)) is not None
    }
    for graph in root.node.params["branches"]:
        lowered = lower_body(builder, graph, replaced)
        frame = Frame(builder)
        for buffer, value in zip(lowered.inputs, operands, strict=False):
            frame.constant(buffer, value)
        after: list[Statement] = []
        for k, (buffer, result) in enumerate(zip(lowered.outputs, root.results, strict=True)):
            if result in registers:
                frame.left[buffer] = []
            elif any(out == k and place not in lowered.in_place for place, out in replaced.items()):
                after.append(_made_aside(builder, frame, buffer, result))
            else:
                frame.leaving(buffer, result, 0)
        statements = frame.spliced(lowered.statements)
        statements.extend(
            Assign(registers[result], frame.left[buffer][-1])
            for buffer, result in zip(lowered.outputs, root.results, strict=True)
            if result in registers
        )
        branches.append([*statements, *after])
    builder.emit(IndexSwitch(builder.element(index, ()), tuple(branches)))
    for result, register in registers.items():
        final = Register(builder.fresh("t"), register.dtype)
        builder.emit(Compute(final, "identity", None, (register,)))
        builder.made_number(result, final)


def _made_aside(builder: Builder, frame: Frame, buffer: Buffer, result: Root) -> For:
    """Let a branch make a result that replaces an operand which it still reads; return the copy of it."""
    assert result.storage is not None
    aside = new_scratch(builder, "m", result.value)
    frame.moved[buffer] = (aside, 0)
    var = Var(builder.fresh("i_"), 0, max(aside.size, 1) - 1)
    one = Register(builder.fresh("t"), aside.dtype)
    return For(var, [Load(one, aside, affine(var)), Store(result.storage, affine(var), one)])


_EMITTERS: Final[dict[type[Op], Callable[[Builder, Root], None]]] = {
    Scan: _scan,
    Repeat: _repeat,
    WhileOp: _while,
    TestedWhile: _while,
    Switch: _switch,
}
