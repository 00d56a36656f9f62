"""The loop IR: structured loops over flat buffers and named numbers.

A register is assigned once, but for accumulators: what `Declare` makes, `Assign` changes. What a block defines is known in that block and
in those inside it, from its definition on. `gradtape.loops.verifier` checks these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from gradtape import statements
from gradtape.loops.affine import Position, Var
from gradtape.records import record, replaced, value_record

Dtype: TypeAlias = np.dtype[Any]

UNBOUNDED: Final = 2**62
"""The trip count of a loop of which only the run knows when it ends: more iterations than there can be."""


@value_record
class Buffer:
    """A flat array.

    Attributes
    ----------
    name : str
        Unique in a program.
    dtype : numpy.dtype
        Of the elements.
    size : int
        How many elements there are; of a stack, in one of its entries.
    role : str
        ``input``, ``constant`` (captured), ``output``, ``scratch`` (in the workspace), ``pair`` (either one of a `DoubleBuffer`) or
        ``stack`` (memory that grows while the program runs).
    in_file : bool
        Whether it is in the part of the workspace that is a scratch file.
    """

    name: str
    dtype: Dtype
    size: int
    role: str
    in_file: bool = False

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


Place: TypeAlias = tuple[Buffer, Position]
"""A buffer, and the element at which something begins in it."""


@record
class Register:
    """A named number."""

    name: str
    dtype: Dtype


@value_record
class Const:
    """A number in the program text, held as its bits so that NaN and -0.0 compare as what they are."""

    bits: bytes
    dtype: Dtype

    @property
    def value(self) -> Any:
        return np.frombuffer(self.bits, self.dtype)[0]


@value_record
class Index:
    """A position used as an int64 number."""

    position: Position

    @property
    def dtype(self) -> Dtype:
        return np.dtype(np.int64)


Number: TypeAlias = Register | Const | Index


def const(value: Any, dtype: Dtype) -> Const:
    """Return a number as a constant."""
    return Const(np.asarray(value, dtype).tobytes(), dtype)


class StatementBase(statements.StatementBase):
    """A statement that uses numbers, and what it touches beside them."""

    __slots__ = ()

    def variables(self) -> tuple[Var, ...]:
        """Return the loop variables that it defines."""
        return ()

    def places(self) -> tuple[Place, ...]:
        """Return the buffers that it touches itself, and where; all but a load may write them."""
        return ()

    def aliases(self) -> tuple[Buffer, ...]:
        """Return the names that it gives to buffers, for its blocks."""
        return ()


# Statements in a straight line


@record
class Compute(StatementBase):
    """``target = function(args)``; `body` says what the machine does."""

    parts = ("args",)
    defined = "target"

    target: Register
    function: str
    body: Any
    args: tuple[Number, ...]
    reassociate: bool = False


@record
class Load(StatementBase):
    """``target = buffer[index]``."""

    defined = "target"

    target: Register
    buffer: Buffer
    index: Position

    def places(self) -> tuple[Place, ...]:
        return ((self.buffer, self.index),)


@record
class Store(StatementBase):
    """``buffer[index] = value``."""

    parts = ("value",)

    buffer: Buffer
    index: Position
    value: Number

    def places(self) -> tuple[Place, ...]:
        return ((self.buffer, self.index),)


@record
class Declare(StatementBase):
    """An accumulator begins with `value`."""

    parts = ("value",)
    defined = "target"

    target: Register
    value: Number


@record
class Assign(StatementBase):
    """An accumulator takes a new value."""

    parts = ("value",)

    target: Register
    value: Number


@record
class Wrap(StatementBase):
    """``target`` is an index read from memory: negatives count from the end, others outside the extent are errors.

    Unless it `is_checked`, the program knows that the index is inside.
    """

    parts = ("value",)

    target: Register
    value: Number
    extent: int
    is_checked: bool = True


@record
class Guard(StatementBase):
    """The program ends here unless `value` is as expected."""

    parts = ("value",)

    number: int
    value: Number
    expected: int


@record
class RoutineCall(StatementBase):
    """A routine on whole buffers.

    Attributes
    ----------
    function : str
        ``gemm``, a routine of linear algebra, ``argsort``, ``searchsorted``, or ``loop``: the kernel of an outlined loop.
    operands : tuple of (Buffer, Position)
        The buffers, each with the element at which its operand starts.
    numbers : tuple
        Extents and options.
    library : str
        ``blas`` (products of matrices), ``lapack`` (linear algebra, which may fail), ``procedure`` (a procedure, which may fail),
        ``python`` (a row that Python computes, which may fail) or ``gradtape`` (its own routines).
    multiplications : int
        In about the time of how many multiplications of matrix elements it is done.
    """

    function: str
    operands: tuple[Place, ...]
    numbers: tuple[Any, ...]
    library: Literal["blas", "lapack", "procedure", "python", "gradtape"] = "gradtape"
    multiplications: int = 0

    def places(self) -> tuple[Place, ...]:
        return self.operands


# Loops and branches


@record
class For(StatementBase):
    """``for var in range(var.low, var.high + 1)`` whose iterations are independent but for accumulators and reductions.

    Attributes
    ----------
    lanes : bool
        Whether the iterations are the lanes of vectors, all at once.
    private : tuple of Buffer or None
        Where it is not None, threads may share out the iterations; it is the scratch of which each thread needs its own.
    minor : bool
        Whether the loop takes no time beside the others, so that short code is better than fast code.
    initial : bool
        Whether the loop does no more than give a carry of the next sequential loop its first elements.
    """

    parts = ("body",)

    var: Var
    body: list[Statement] = field(default_factory=list)
    lanes: bool = False
    private: tuple[Buffer, ...] | None = None
    minor: bool = False
    initial: bool = False

    @property
    def trip_count(self) -> int:
        return self.var.high - self.var.low + 1

    def blocks(self) -> tuple[list[Statement], ...]:
        return (self.body,)

    def variables(self) -> tuple[Var, ...]:
        return (self.var,)


class ControlFlow(StatementBase):
    """A statement whose iterations or branches stay in their order, and what is done to stacks, which grow with such loops."""

    __slots__ = ()


Statement: TypeAlias = (
    Compute | Load | Store | Declare | Assign | Wrap | Guard | For | RoutineCall | ControlFlow
)


@value_record
class DoubleBuffer:
    """A carry in two buffers that are swapped after each iteration, which reads `current` and writes `following`.

    Two carries may share them, of which the second one becomes what the first one was: it is in `following` at first, and an iteration
    replaces it element by element.

    Attributes
    ----------
    current, following : Buffer
        The names that the iteration knows; in the first one they are `first` and `second`.
    landing : (Buffer, Position) or None
        Where what `current` holds after the last iteration is copied to, if only the run knows which of the two it is.
    aside : (Buffer, Position) or None
        Memory of the same size, for two carries: `second` gets then what `following` holds.
    carries : int
        Whether one or two carries are in the buffers.
    """

    current: Buffer
    following: Buffer
    first: Place
    second: Place
    landing: Place | None = None
    aside: Place | None = None
    carries: int = 1

    def moved(self, place: Callable[[Buffer, Position], Place]) -> DoubleBuffer:
        """Return such a carry at other places."""
        ends = ("first", "second", "landing", "aside")
        places = {name: getattr(self, name) for name in ends}
        return replaced(self, **{name: place(*old) for name, old in places.items() if old is not None})


class _SequentialLoop(ControlFlow):
    """A loop that carries arrays in buffers which are swapped."""

    __slots__ = ()

    pairs: tuple[DoubleBuffer, ...]
    var: Var

    def variables(self) -> tuple[Var, ...]:
        return (self.var,)

    def places(self) -> tuple[Place, ...]:
        ends = [(pair.first, pair.second, pair.landing, pair.aside) for pair in self.pairs]
        return tuple([place for places in ends for place in places if place is not None])

    def aliases(self) -> tuple[Buffer, ...]:
        return tuple([buffer for pair in self.pairs for buffer in (pair.current, pair.following)])


@record
class SequentialFor(_SequentialLoop):
    """``for var in range(count)``, one iteration after the other; without `count` over the variable's whole range.

    Attributes
    ----------
    count : Number or None
        The trip count, where only the run knows it: an int64, which may be 0 or less.
    poll : int
        After so many iterations, a power of 2, the loop checks whether the program was interrupted; 0 for a short loop.
    shows_progress : bool
        Whether a loop that polls shows how many iterations are done if it takes long: an outermost one.
    """

    parts = ("count", "body")

    var: Var
    body: list[Statement] = field(default_factory=list)
    count: Number | None = None
    pairs: tuple[DoubleBuffer, ...] = ()
    poll: int = 0
    shows_progress: bool = False

    def blocks(self) -> tuple[list[Statement], ...]:
        return (self.body,)


@record
class WhileLoop(_SequentialLoop):
    """``while condition: body``; `test` computes the condition before each iteration, and the variable counts the iterations.

    The variable's range says how many iterations there are at most.
    """

    parts = ("test", "condition", "body")

    var: Var
    test: list[Statement]
    condition: Number
    body: list[Statement]
    pairs: tuple[DoubleBuffer, ...] = ()
    poll: int = 0
    shows_progress: bool = False

    def uses(self) -> tuple[Number, ...]:
        """Return nothing: the condition is known after the test only."""
        return ()

    def blocks(self) -> tuple[list[Statement], ...]:
        return (self.test, self.body)


@record
class IndexSwitch(ControlFlow):
    """The branch whose number is `index`; the first for less than 0, the last for more than there are."""

    parts = ("index", "branches")

    index: Number
    branches: tuple[list[Statement], ...]

    def blocks(self) -> tuple[list[Statement], ...]:
        return self.branches


@record
class _OfStack(ControlFlow):
    """An operation on a stack: memory that grows by entries of one size."""

    stack: Buffer

    def aliases(self) -> tuple[Buffer, ...]:
        return (self.stack,)


@record
class ReserveStack(_OfStack):
    """A stack begins, with room for `count` entries."""

    parts = ("count",)

    count: Number


@record
class GrowStack(_OfStack):
    """A stack of `length` entries has room for one more."""

    parts = ("length",)

    length: Number


@record
class OpenStack(_OfStack):
    """What follows reads a stack."""


@record
class LoopProgram:
    """Loops with their buffers."""

    name: str
    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    scratch: Sequence[Buffer]
    body: list[Statement]
