"""What loops carry from turn to turn, and what their bodies read and write, in terms of the program around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gradtape.ir.graph import Value
from gradtape.loops.affine import Position, Var, affine
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
from gradtape.lower.schedule.nests import Root, flat
from gradtape.records import record

if TYPE_CHECKING:
    from gradtape.lower.building.builder import Builder

SMALL: Final = 512
"""Bytes up to which what is carried is copied in each turn rather than that two buffers take turns: a few vectors."""


@record
class Carry:
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
    pair: DoubleBuffer | None = None
    copied: bool = False


class Frame:
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
            self.moved[buffer] = self.builder.place_of(value)

    def element(self, buffer: Buffer, value: Value, turn: Position) -> None:
        """Let a body read this turn's element."""
        whole, start = self.builder.place_of(value)
        self.moved[buffer] = (whole, start + turn * buffer.size)

    def leaving(self, buffer: Buffer, result: Root, turn: Position) -> None:
        """Let a body write this turn's element of a result."""
        if result.storage is None:
            self.moved[buffer] = (new_scratch(self.builder, "m", result.value), 0)
        else:
            self.moved[buffer] = (result.storage, turn * buffer.size)

    def spliced(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return what a body does."""
        return Splicer(self.moved, self.held, self.left).block(statements)


def begin_carry(builder: Builder, result: Root, initial: Value, in_place: bool, odd: bool | None) -> Carry:
    """Emit what is there before the first turn.

    `odd` says whether the number of turns is, if that is known.
    """
    carry = Carry(result)
    dtype = initial.dtype
    if initial.shape == ():
        carry.register = Register(builder.fresh("r"), dtype)
        builder.emit(Declare(carry.register, builder.element(initial, ())))
        carry.taken = Register(builder.fresh("t"), dtype)
        return carry
    home = result.storage or new_scratch(builder, "m", initial)
    carry.home = (home, 0)
    target: Place = carry.home
    if in_place:
        carry.now = carry.following = carry.home
    else:
        spare = new_scratch(builder, "m", initial)
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
            carry.pair = DoubleBuffer(now, following, first, second, landing)
            carry.now, carry.following = (now, 0), (following, 0)
    if result.in_place_of is None or target is not carry.home:
        _copy(builder, target[0], initial)
    return carry


def new_scratch(builder: Builder, prefix: str, value: Value) -> Buffer:
    buffer = Buffer(builder.fresh(prefix), value.dtype, value.size, "scratch")
    builder.scratch.append(buffer)
    return buffer


def _copy(builder: Builder, buffer: Buffer, value: Value) -> None:
    """Emit the loops that put the elements of a value into a buffer."""
    statements = builder.scopes[-1].statements
    before = len(statements)
    builder.over(
        value.shape,
        lambda index: builder.emit(Store(buffer, flat(index, value.shape), builder.element(value, index))),
    )
    for statement in statements[before:]:
        if isinstance(statement, For):
            statement.initial = True


def head_of_turn(builder: Builder, carries: Sequence[Carry]) -> list[Statement]:
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


def let_take(frame: Frame, carries: Sequence[Carry], buffers: Sequence[Buffer]) -> None:
    """Let a body read the carries."""
    for carry, buffer in zip(carries, buffers, strict=True):
        if carry.taken is not None:
            frame.held[buffer] = carry.taken
        elif carry.now is not None:
            frame.moved[buffer] = carry.now


def let_give(frame: Frame, carries: Sequence[Carry], buffers: Sequence[Buffer]) -> None:
    """Let a body write the next carries."""
    for carry, buffer in zip(carries, buffers, strict=True):
        if carry.register is not None:
            frame.left[buffer] = []
        elif carry.following is not None:
            frame.moved[buffer] = carry.following


def tail_of_turn(frame: Frame, carries: Sequence[Carry], buffers: Sequence[Buffer]) -> list[Statement]:
    """Return what hands the carries on at the end of a turn."""
    return [
        Assign(carry.register, frame.left[buffer][-1])
        for carry, buffer in zip(carries, buffers, strict=True)
        if carry.register is not None
    ]


def finish_carries(builder: Builder, carries: Sequence[Carry]) -> None:
    """Let the program read numbers that were carried."""
    for carry in carries:
        if carry.register is not None:
            final = Register(builder.fresh("t"), carry.register.dtype)
            builder.emit(Compute(final, "identity", None, (carry.register,)))
            builder.made_number(carry.result, final)
