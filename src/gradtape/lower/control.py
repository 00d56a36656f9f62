"""Loops over time and branches: their bodies are lowered as programs of their own and put where they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

from ..ir.builder import at
from ..ir.graph import OPERATORS, Graph, Node, Value, extract, literal
from ..ir.op import Op
from ..ir.types import BOOL, INT64
from ..loops.affine import Position, Var, affine
from ..loops.batch import batch_rows
from ..loops.collapse import collapse
from ..loops.control import FOREVER, Choose, Grow, Open, Pair, Place, Reserve, Turns, While
from ..loops.ir import (
    Assign,
    Buffer,
    Compute,
    Declare,
    For,
    Index,
    Load,
    Number,
    Program,
    Register,
    Statement,
    Store,
    const,
)
from ..loops.splice import Splicer
from ..passes.rewrite import closed
from ..records import record
from ..transforms.call import inlined
from ..transforms.control import Repeat, Scan, Switch
from ..transforms.control import While as WhileOp
from .roots import Root, base_of_view, flat
from .schedule import schedule

if TYPE_CHECKING:
    from .build import Builder

SMALL: Final = 512
"""Bytes up to which what is carried is copied in each turn rather than that two buffers take turns: a few vectors."""


def emit_control(builder: Builder, root: Root) -> None:
    """Emit the loop or the branch of a root, with what it leaves in its results."""
    assert root.node is not None
    _EMITTERS[type(root.node.op)](builder, root)


@record
class _Carry:
    """What goes from turn to turn: a register, or memory.

    Attributes
    ----------
    taken : Number or None
        The number at the beginning of a turn.
    now, following : Place or None
        The memory that a turn reads, and the one that it writes.
    """

    result: Root
    register: Register | None = None
    taken: Register | None = None
    now: Place | None = None
    following: Place | None = None
    home: Place | None = None
    spare: Place | None = None
    pair: Pair | None = None
    copied: bool = False
    initial: Place | None = None

    def at_start(self) -> _Carry:
        """Return the carry as it is before the first turn."""
        return _Carry(self.result, taken=self.register, now=self.initial)


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
    plan = schedule(traced, traced, carried, prefix)
    inner = builder.within(plan.by_value, plan.sources)
    inner.block(plan.top)
    collapse(inner.body)
    scratch = [*plan.scratch, *inner.scratch]
    program = batch_rows(Program(graph.name, plan.inputs, plan.outputs, scratch, inner.body))
    builder.scratch.extend(program.scratch)
    builder.notes.extend(f"in a turn: {note}" for note in (*plan.explain, *inner.notes))
    in_place = {
        place
        for place, output in carried.items()
        if plan.by_value[traced.inputs[place]].storage is plan.outputs[output]
    }
    return _Body(program.inputs, program.outputs, program.body, in_place)


class _Frame:
    """What the bodies of one node read and write, in terms of the program around it."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.moved: dict[Buffer, Place] = {}
        self.held: dict[Buffer, Number] = {}
        self.left: dict[Buffer, list[Number]] = {}

    def constant(self, buffer: Buffer, value: Value) -> None:
        """Let a body read what is the same in each turn."""
        if value.shape == ():
            self.held[buffer] = self.builder.element(value, ())
        else:
            self.moved[buffer] = (self.builder.memory_of(base_of_view(value)), 0)

    def element(self, buffer: Buffer, value: Value, turn: Position) -> None:
        """Let a body read this turn's element."""
        self.moved[buffer] = (self.builder.memory_of(base_of_view(value)), turn * buffer.size)

    def leaving(self, buffer: Buffer, result: Root, turn: Position) -> None:
        """Let a body write this turn's element of a result."""
        if result.storage is None:
            self.moved[buffer] = (_scratch(self.builder, "w", result.value), 0)
        else:
            self.moved[buffer] = (result.storage, turn * buffer.size)

    def spliced(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return what a body does."""
        return Splicer(self.moved, self.held, self.left).block(statements)


def _begin_carry(builder: Builder, result: Root, initial: Value, in_place: bool, odd: bool | None) -> _Carry:
    """Emit what is there before the first turn.

    `odd` says whether the number of turns is, if that is known.
    """
    carry = _Carry(result)
    dtype = initial.dtype
    if initial.shape == ():
        carry.register = Register(builder.fresh("r"), dtype)
        builder.emit(Declare(carry.register, builder.element(initial, ())))
        carry.taken = Register(builder.fresh("t"), dtype)
        return carry
    home = result.storage or _scratch(builder, "w", initial)
    carry.home = (home, 0)
    target: Place = carry.home
    if in_place:
        carry.now = carry.following = carry.home
    else:
        spare = _scratch(builder, "w", initial)
        if home.nbytes <= SMALL:
            carry.copied = True
            carry.now, carry.following, carry.spare = (spare, 0), carry.home, (spare, 0)
        else:
            now, following = (Buffer(builder.fresh("p"), dtype, initial.size, "pair") for _ in range(2))
            first, second = carry.home, (spare, 0)
            if odd:
                first, second = second, first
            target = first
            landing = carry.home if odd is None and result.storage is not None else None
            carry.pair = Pair(now, following, first, second, landing)
            carry.now, carry.following = (now, 0), (following, 0)
    carry.initial = target
    _copy(builder, target[0], initial)
    return carry


def _scratch(builder: Builder, prefix: str, value: Value) -> Buffer:
    buffer = Buffer(builder.fresh(prefix), value.dtype, value.size, "scratch")
    builder.scratch.append(buffer)
    return buffer


def _copy(builder: Builder, buffer: Buffer, value: Value) -> None:
    """Emit the loops that put the elements of a value into a buffer."""
    builder.over(
        value.shape,
        lambda index: builder.emit(Store(buffer, flat(index, value.shape), builder.element(value, index))),
    )


def _head(builder: Builder, carries: Sequence[_Carry]) -> list[Statement]:
    """Return what takes the carries at the beginning of a turn."""
    made: list[Statement] = []
    for carry in carries:
        if carry.register is not None and carry.taken is not None:
            made.append(Compute(carry.taken, "identity", None, (carry.register,)))
        elif carry.copied and carry.now is not None and carry.following is not None:
            source, target = carry.following[0], carry.now[0]
            var = Var(builder.fresh("i_"), 0, source.size - 1)
            one = Register(builder.fresh("t"), source.dtype)
            made.append(
                For(var, [Load(one, source, affine(var)), Store(target, affine(var), one)])
                if source.size
                else Compute(one, "identity", None, (Index(0),))
            )
    return made


def _taken(frame: _Frame, carries: Sequence[_Carry], buffers: Sequence[Buffer]) -> None:
    """Let a body read the carries."""
    for carry, buffer in zip(carries, buffers, strict=True):
        if carry.taken is not None:
            frame.held[buffer] = carry.taken
        elif carry.now is not None:
            frame.moved[buffer] = carry.now


def _given(frame: _Frame, carries: Sequence[_Carry], buffers: Sequence[Buffer]) -> None:
    """Let a body write the next carries."""
    for carry, buffer in zip(carries, buffers, strict=True):
        if carry.register is not None:
            frame.left[buffer] = []
        elif carry.following is not None:
            frame.moved[buffer] = carry.following


def _tail(frame: _Frame, carries: Sequence[_Carry], buffers: Sequence[Buffer]) -> list[Statement]:
    """Return what hands the carries on at the end of a turn."""
    return [
        Assign(carry.register, frame.left[buffer][-1])
        for carry, buffer in zip(carries, buffers, strict=True)
        if carry.register is not None
    ]


def _finish_carries(builder: Builder, carries: Sequence[_Carry]) -> None:
    """Let the program read numbers that were carried."""
    for carry in carries:
        if carry.register is not None:
            final = Register(builder.fresh("t"), carry.register.dtype)
            builder.emit(Compute(final, "identity", None, (carry.register,)))
            builder.made_number(carry.result, final)


@record
class _Loop:
    """A loop whose body was lowered, with what it carries, and those of the carries that a turn replaces."""

    body: _Body
    consts: Sequence[Value]
    carries: list[_Carry]
    after: list[_Carry]
    elements: Sequence[Value]
    left: Sequence[Root]

    def frame(self, builder: Builder, turn: Position, buffers: Sequence[Buffer]) -> _Frame:
        """Return what a body reads in a turn."""
        frame = _Frame(builder)
        index, *inputs = buffers
        frame.held[index] = Index(turn)
        for buffer, value in zip(inputs, self.consts, strict=False):
            frame.constant(buffer, value)
        first = len(self.consts)
        _taken(frame, self.carries, inputs[first : first + len(self.carries)])
        for buffer, value in zip(inputs[first + len(self.carries) :], self.elements, strict=False):
            frame.element(buffer, value, turn)
        return frame

    def turn(self, builder: Builder, turn: Position) -> tuple[list[Statement], list[Number]]:
        """Return what a turn does, once the carries are taken, and the numbers that it makes besides."""
        frame = self.frame(builder, turn, self.body.inputs)
        count = len(self.after)
        after = self.body.outputs[:count]
        _given(frame, self.after, after)
        more = count + len(self.left)
        for buffer, result in zip(self.body.outputs[count:more], self.left, strict=True):
            frame.leaving(buffer, result, turn)
        besides: list[list[Number]] = [[] for _ in self.body.outputs[more:]]
        frame.left.update(zip(self.body.outputs[more:], besides, strict=True))
        statements = frame.spliced(self.body.statements)
        return [*statements, *_tail(frame, self.after, after)], [made[-1] for made in besides]

    def stacks(self) -> list[Buffer]:
        """Return the stacks that the loop leaves."""
        return [root.storage for root in self.left if root.storage is not None]

    def pairs(self) -> tuple[Pair, ...]:
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
        _begin_carry(builder, result, value, k not in live or 1 + consts + k in lowered.in_place, odd)
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


def _scan(builder: Builder, root: Root) -> None:
    assert root.node is not None
    length, count = root.node.params["length"], root.node.params["carries"]
    loop = _loop(builder, root, root.node.inputs, root.results[count:], length % 2 == 1)
    if length > 0:
        var = Var(builder.fresh("i_"), 0, length - 1)
        turn = length - 1 - affine(var) if root.node.params["reverse"] else affine(var)
        statements = [*_head(builder, loop.carries), *loop.turn(builder, turn)[0]]
        builder.emit(Turns(var, statements, None, loop.pairs()))
    _finish_carries(builder, loop.carries)


def _repeat(builder: Builder, root: Root) -> None:
    assert root.node is not None
    carries = root.node.params["carries"]
    count = _counted(builder, root.node.inputs[0])
    loop = _loop(builder, root, root.node.inputs[1:], root.results[carries:], None)
    for stack in loop.stacks():
        builder.emit(Reserve(stack, count))
    for value in loop.elements:
        builder.emit(Open(builder.memory_of(value)))
    var = Var(builder.fresh("i_"), 0, FOREVER)
    turn: Position = affine(var)
    if root.node.params["reverse"]:
        turn = affine(Var(count.name, 0, FOREVER)) - 1 - turn
    statements = [*_head(builder, loop.carries), *loop.turn(builder, turn)[0]]
    builder.emit(Turns(var, statements, count, loop.pairs()))
    _finish_carries(builder, loop.carries)


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
    ahead = _tested_after(root.node) if _reads_arrays(params["condition"]) else []
    loop = _loop(builder, root, root.node.inputs, root.results[carries + 1 :], None, ahead)
    condition = lower_body(builder, params["condition"], {})
    var = Var(builder.fresh("i_"), 0, FOREVER if limit is None else max(limit, 0) - 1)
    turn = affine(var)
    turns, goes_on = Register(builder.fresh("r"), INT64), Register(builder.fresh("t"), BOOL)
    builder.emit(Declare(turns, const(0, INT64)))
    for stack in loop.stacks():
        builder.emit(Reserve(stack, const(0, INT64)))
    body: list[Statement] = [Grow(stack, Index(turn)) for stack in loop.stacks()]
    statements, besides = loop.turn(builder, turn)
    if ahead:
        tested = Register(builder.fresh("r"), BOOL)
        starts = [carry.at_start() for carry in loop.carries]
        first = _Loop(loop.body, loop.consts, starts, loop.after, loop.elements, loop.left)
        statements_before, now = _tested(builder, first.frame(builder, 0, condition.inputs), condition)
        for statement in statements_before:
            builder.emit(statement)
        builder.emit(Declare(tested, now))
        test: list[Statement] = [Compute(goes_on, "identity", None, (tested,))]
        body += [*_head(builder, loop.carries), *statements, Assign(tested, besides[0])]
    else:
        inside, now = _tested(builder, loop.frame(builder, turn, condition.inputs), condition)
        test = [*_head(builder, loop.carries), *inside, Compute(goes_on, "identity", None, (now,))]
        body += statements
    body.append(Assign(turns, Index(turn + 1)))
    builder.emit(While(var, test, goes_on, body, loop.pairs()))
    _finish_carries(builder, loop.carries)
    final = Register(builder.fresh("t"), INT64)
    builder.emit(Compute(final, "identity", None, (turns,)))
    builder.made_number(root.results[carries], final)


def _tested(builder: Builder, frame: _Frame, condition: _Body) -> tuple[list[Statement], Number]:
    """Return what computes a condition, and its result."""
    made: list[Number] = []
    frame.left[condition.outputs[0]] = made
    statements = frame.spliced(condition.statements)
    return statements, made[-1]


def _reads_arrays(condition: Graph) -> bool:
    """Whether a condition takes long: what it needs of arrays is at hand where they are made."""
    read = {value for node in condition.nodes for value in node.inputs}
    return any(value.shape != () and value in read for value in condition.inputs)


def _tested_after(node: Node) -> list[Value]:
    """Return the condition on the carries that a turn leaves, as a value of the body."""
    body, condition = node.params["body"], node.params["condition"]
    consts, carries = node.params["consts"], node.params["carries"]
    index, *inputs = body.inputs
    with at(None):
        following = OPERATORS["add"](index, literal(1, INT64))
        return inlined(condition, [following, *inputs[:consts], *body.outputs[:carries]])


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
    for graph in root.node.params["branches"]:
        lowered = lower_body(builder, graph, {})
        frame = _Frame(builder)
        for buffer, value in zip(lowered.inputs, operands, strict=False):
            frame.constant(buffer, value)
        for buffer, result in zip(lowered.outputs, root.results, strict=True):
            if result in registers:
                frame.left[buffer] = []
            else:
                frame.leaving(buffer, result, 0)
        statements = frame.spliced(lowered.statements)
        statements.extend(
            Assign(registers[result], frame.left[buffer][-1])
            for buffer, result in zip(lowered.outputs, root.results, strict=True)
            if result in registers
        )
        branches.append(statements)
    builder.emit(Choose(builder.element(index, ()), tuple(branches)))
    for result, register in registers.items():
        final = Register(builder.fresh("t"), register.dtype)
        builder.emit(Compute(final, "identity", None, (register,)))
        builder.made_number(result, final)


_EMITTERS: Final[dict[type[Op], Callable[[Builder, Root], None]]] = {
    Scan: _scan,
    Repeat: _repeat,
    WhileOp: _while,
    Switch: _switch,
}
