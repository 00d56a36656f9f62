"""Statements whose turns or branches stay in their order: loops over time, loops that a condition ends, branches."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from gradtape.loops.affine import Position, Var
from gradtape.loops.ir import Buffer, Control, Number, Statement
from gradtape.records import record, value_record

Place = tuple[Buffer, Position]
"""A buffer, and the element at which something begins in it."""


FOREVER: Final = 2**62
"""More turns than a loop makes."""


@value_record
class Pair:
    """Two buffers that take turns: in the first turn `now` is `first` and `following` is `second`, in the next one the other way.

    Attributes
    ----------
    landing : (Buffer, Position) or None
        Where what `now` holds after the last turn is copied to, if only the run knows which of the two it is.
    """

    now: Buffer
    following: Buffer
    first: Place
    second: Place
    landing: Place | None = None


@record
class Turns(Control):
    """``for var in range(count)``, one turn after the other; without `count` over the variable's whole range.

    Attributes
    ----------
    count : Number or None
        How many turns there are, where only the run knows: an int64, which may be 0 or less.
    poll : int
        After so many turns, a power of 2, the loop asks whether it shall go on; 0 for one that is soon over.
    """

    var: Var
    body: list[Statement] = field(default_factory=list)
    count: Number | None = None
    pairs: tuple[Pair, ...] = ()
    poll: int = 0

    def blocks(self) -> tuple[list[Statement], ...]:
        return (self.body,)

    def numbers(self) -> tuple[Number, ...]:
        return () if self.count is None else (self.count,)

    def variables(self) -> tuple[Var, ...]:
        return (self.var,)

    def places(self) -> tuple[Place, ...]:
        return _touched(self.pairs)

    def aliases(self) -> tuple[Buffer, ...]:
        return tuple([buffer for pair in self.pairs for buffer in (pair.now, pair.following)])


@record
class While(Control):
    """``while condition: body``; `test` computes the condition before each turn, and the variable counts the turns.

    The variable's range says how many turns there are at most.
    """

    var: Var
    test: list[Statement]
    condition: Number
    body: list[Statement]
    pairs: tuple[Pair, ...] = ()
    poll: int = 0

    def blocks(self) -> tuple[list[Statement], ...]:
        return (self.test, self.body)

    def numbers(self) -> tuple[Number, ...]:
        return ()

    def variables(self) -> tuple[Var, ...]:
        return (self.var,)

    def places(self) -> tuple[Place, ...]:
        return _touched(self.pairs)

    def aliases(self) -> tuple[Buffer, ...]:
        return tuple([buffer for pair in self.pairs for buffer in (pair.now, pair.following)])


@record
class Choose(Control):
    """The branch whose number is `index`; the first for less than 0, the last for more than there are."""

    index: Number
    branches: tuple[list[Statement], ...]

    def blocks(self) -> tuple[list[Statement], ...]:
        return self.branches

    def numbers(self) -> tuple[Number, ...]:
        return (self.index,)

    def variables(self) -> tuple[Var, ...]:
        return ()

    def places(self) -> tuple[Place, ...]:
        return ()

    def aliases(self) -> tuple[Buffer, ...]:
        return ()


@record
class _OfStack(Control):
    """What is done to a stack, memory that grows: a buffer of the role ``stack``, whose size is that of one element."""

    stack: Buffer

    def blocks(self) -> tuple[list[Statement], ...]:
        return ()

    def numbers(self) -> tuple[Number, ...]:
        return ()

    def variables(self) -> tuple[Var, ...]:
        return ()

    def places(self) -> tuple[Place, ...]:
        return ()

    def aliases(self) -> tuple[Buffer, ...]:
        return (self.stack,)


@record
class Reserve(_OfStack):
    """A stack begins, with room for `count` elements."""

    count: Number

    def numbers(self) -> tuple[Number, ...]:
        return (self.count,)


@record
class Grow(_OfStack):
    """A stack of `turn` elements has room for one more."""

    turn: Number

    def numbers(self) -> tuple[Number, ...]:
        return (self.turn,)


@record
class Open(_OfStack):
    """What follows reads a stack."""


def _touched(pairs: tuple[Pair, ...]) -> tuple[Place, ...]:
    return tuple(
        [place for pair in pairs for place in (pair.first, pair.second, pair.landing) if place is not None]
    )
