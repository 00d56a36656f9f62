"""Loop-carried values, and what the bodies of loops and branches read and write, in terms of the program around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.ir.graph import Graph, Value
from gradtape.loops.affine import Position, Var, affine, flat
from gradtape.loops.copies import Splicer
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Declare,
    DoubleBuffer,
    For,
    Index,
    Load,
    Number,
    Place,
    Register,
    Statement,
    Store,
)
from gradtape.lower.building.elements import ElementBuilder
from gradtape.lower.schedule.nests import LoopNest
from gradtape.records import frozen_record

SMALL: Final = 512
"""Bytes up to which a carry is copied in each iteration rather than that two buffers are swapped: a few vectors."""


@frozen_record
class LoopCarry:
    """A loop-carried value: a number in a register, or an array in memory.

    Attributes
    ----------
    result : LoopNest
        What it becomes after the loop.
    register, loaded : Register or None
        The accumulator of a number, and the number as an iteration finds it.
    current, following : (Buffer, Position) or None
        The memory that an iteration reads, and the one that it writes.
    pair : DoubleBuffer or None
        The buffers that are swapped.
    copied : bool
        Whether each iteration begins with a copy from `following` to `current`.
    """

    result: LoopNest
    register: Register | None = None
    loaded: Register | None = None
    current: Place | None = None
    following: Place | None = None
    pair: DoubleBuffer | None = None
    copied: bool = False


class BodyBindings:
    """The places and numbers of the program that replace the buffers of a body."""

    def __init__(self, builder: ElementBuilder) -> None:
        self._builder = builder
        self._moved: dict[Buffer, Place] = {}
        self._inputs: dict[Buffer, Number] = {}
        self._outputs: dict[Buffer, list[Number]] = {}

    def bind_number(self, buffer: Buffer, number: Number) -> None:
        """Let a body read a number."""
        self._inputs[buffer] = number

    def bind_constant(self, buffer: Buffer, value: Value) -> None:
        """Let a body read what is the same in each iteration."""
        if value.shape == ():
            self._inputs[buffer] = self._builder.element(value, ())
        else:
            self._moved[buffer] = self._builder.place_of(value)

    def bind_element(self, buffer: Buffer, value: Value, iteration: Position) -> None:
        """Let a body read this iteration's element of an array."""
        buffer_of_array, start = self._builder.place_of(value)
        self._moved[buffer] = (buffer_of_array, start + iteration * buffer.size)

    def bind_inputs(self, carries: Sequence[LoopCarry], buffers: Sequence[Buffer]) -> None:
        """Let a body read the carries."""
        for carry, buffer in zip(carries, buffers, strict=True):
            if carry.loaded is not None:
                self._inputs[buffer] = carry.loaded
            elif carry.current is not None:
                self._moved[buffer] = carry.current

    def bind_outputs(self, carries: Sequence[LoopCarry], buffers: Sequence[Buffer]) -> None:
        """Let a body write the next carries."""
        for carry, buffer in zip(carries, buffers, strict=True):
            if carry.register is not None:
                self.want_number(buffer)
            elif carry.following is not None:
                self._moved[buffer] = carry.following

    def bind_result(self, buffer: Buffer, result: LoopNest, iteration: Position) -> None:
        """Let a body write this iteration's element of a result."""
        memory = self._builder.plan.storage[result].buffer
        if memory is None:
            self.bind_memory(buffer, (self._builder.new_scratch(result.value.dtype, result.value.size), 0))
        else:
            self.bind_memory(buffer, (memory, iteration * buffer.size))

    def bind_memory(self, buffer: Buffer, place: Place) -> None:
        """Let a body read or write memory."""
        self._moved[buffer] = place

    def want_number(self, buffer: Buffer) -> None:
        """Keep the number that a body writes; see `number`."""
        self._outputs[buffer] = []

    def number(self, buffer: Buffer) -> Number:
        """Return the number that a body has written."""
        return self._outputs[buffer][-1]

    def splice(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return what a body does."""
        return Splicer(self._moved, self._inputs, self._outputs).block(statements)


def begin_carry(
    builder: ElementBuilder, result: LoopNest, initial: Value, in_place: bool, odd: bool | None
) -> LoopCarry:
    """Emit what is there before the first iteration.

    Parameters
    ----------
    builder : ElementBuilder
        Of the program.
    result : LoopNest
        What the carry becomes.
    initial : Value
        What it is before the first iteration.
    in_place : bool
        Whether iterations replace it element by element.
    odd : bool or None
        Whether the trip count is odd, if that is known: then the last iteration writes to where the result is wanted.
    """
    dtype = initial.dtype
    if initial.shape == ():
        register = Register(builder.fresh("r"), dtype)
        builder.emit(Declare(register, builder.element(initial, ())))
        return LoopCarry(result, register, Register(builder.fresh("t"), dtype))
    storage = builder.plan.storage[result]
    home = storage.buffer or builder.new_scratch(dtype, initial.size)
    target = home
    if in_place:
        carry = LoopCarry(result, current=(home, 0), following=(home, 0))
    else:
        spare = builder.new_scratch(dtype, initial.size)
        if home.nbytes <= SMALL:
            carry = LoopCarry(result, current=(spare, 0), following=(home, 0), copied=True)
        else:
            current, following = [Buffer(builder.fresh("p"), dtype, initial.size, "pair") for _ in range(2)]
            first, second = (spare, home) if odd else (home, spare)
            target = first
            landing: Place | None = (home, 0) if odd is None and storage.buffer is not None else None
            pair = DoubleBuffer(current, following, (first, 0), (second, 0), landing)
            carry = LoopCarry(result, current=(current, 0), following=(following, 0), pair=pair)
    if storage.in_place_of is None or target is not home:
        _emit_copy(builder, target, initial)
    return carry


def begin_swapped_carries(
    builder: ElementBuilder,
    results: tuple[LoopNest, LoopNest],
    initials: tuple[Value, Value],
    odd: bool | None,
) -> tuple[LoopCarry, LoopCarry]:
    """Emit what is there before the first iteration of two carries that exchange their memory.

    The second one becomes what the first one was, and is replaced by what the first one becomes: nothing is copied.

    Parameters
    ----------
    builder : ElementBuilder
        Of the program.
    results : tuple of LoopNest
        What the carries become.
    initials : tuple of Value
        What they are before the first iteration.
    odd : bool or None
        Whether the trip count is odd, if that is known.
    """
    dtype, size = initials[0].dtype, initials[0].size
    storages = [builder.plan.storage[result] for result in results]
    homes = [storage.buffer or builder.new_scratch(dtype, size) for storage in storages]
    begins = [storage.in_place_of is not None for storage in storages]
    if odd and any(begins):
        odd = None
    first, second = homes[::-1] if odd else homes
    current, following = [Buffer(builder.fresh("p"), dtype, size, "pair") for _ in range(2)]
    landing = spare = None
    if odd is None and storages[1].buffer is not None:
        landing, spare = (first, 0), (builder.new_scratch(dtype, size), 0)
    elif odd is None and storages[0].buffer is not None:
        landing = (first, 0)
    pair = DoubleBuffer(current, following, (first, 0), (second, 0), landing, spare, 2)
    for target, initial, is_there in zip((first, second), initials, begins, strict=True):
        if not is_there:
            _emit_copy(builder, target, initial)
    return (
        LoopCarry(results[0], current=(current, 0), following=(following, 0), pair=pair),
        LoopCarry(results[1], current=(following, 0)),
    )


def swapped_carries(body: Graph, first: int, live: Sequence[int]) -> dict[int, int]:
    """Return the carries that become what another one was, and which one; this one becomes something new.

    Parameters
    ----------
    body : Graph
        Its outputs begin with the next carries that are live.
    first : int
        The input that is the first carry.
    live : sequence of int
        The carries that an iteration makes.
    """
    carries = {body.inputs[first + k]: k for k in live}
    following = dict(zip(live, body.outputs, strict=False))
    pairs: dict[int, int] = {}
    for k, value in following.items():
        other = carries.get(value)
        if other is None or other == k or {k, other} & {*pairs, *pairs.values()}:
            continue
        carry = body.inputs[first + k]
        nbytes = carry.size * carry.dtype.itemsize
        alike = (carry.shape, carry.dtype) == (value.shape, value.dtype)
        if alike and nbytes > SMALL and following[other] not in body.inputs:
            pairs[k] = other
    return pairs


def _emit_copy(builder: ElementBuilder, buffer: Buffer, value: Value) -> None:
    """Emit the loops that give a carry its first elements."""
    statements = builder.scopes[-1].statements
    before = len(statements)
    builder.over(
        value.shape,
        lambda index: builder.emit(Store(buffer, flat(index, value.shape), builder.element(value, index))),
    )
    for statement in statements[before:]:
        if isinstance(statement, For):
            statement.initial = True


def load_carries(builder: ElementBuilder, carries: Sequence[LoopCarry]) -> list[Statement]:
    """Return what loads the carries at the beginning of an iteration."""
    statements: list[Statement] = []
    for carry in carries:
        if carry.register is not None and carry.loaded is not None:
            statements.append(Compute(carry.loaded, "identity", None, (carry.register,)))
        elif carry.copied and carry.current is not None and carry.following is not None:
            (source, _), (target, _) = carry.following, carry.current
            var = Var(builder.fresh("i_"), 0, source.size - 1)
            element = Register(builder.fresh("t"), source.dtype)
            statements.append(
                For(var, [Load(element, source, affine(var)), Store(target, affine(var), element)])
                if source.size
                else Compute(element, "identity", None, (Index(0),))
            )
    return statements


def store_carries(
    bindings: BodyBindings, carries: Sequence[LoopCarry], buffers: Sequence[Buffer]
) -> list[Statement]:
    """Return what hands numbers on to the next iteration."""
    return [
        Assign(carry.register, bindings.number(buffer))
        for carry, buffer in zip(carries, buffers, strict=True)
        if carry.register is not None
    ]


def finish_carries(builder: ElementBuilder, carries: Sequence[LoopCarry]) -> None:
    """Let the program read numbers that were carried."""
    for carry in carries:
        if carry.register is not None:
            builder.emit_final(carry.result, carry.register)
