"""The loop IR: structured loops over flat buffers and named numbers, each assigned once except
accumulators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from gradtape.loops.affine import Position, Var
from gradtape.records import record, value_record

Dtype: TypeAlias = np.dtype[Any]


@value_record
class Buffer:
    """A flat array: an input, a captured constant, an output, or scratch in the workspace."""

    name: str
    dtype: Dtype
    size: int
    role: str

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


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


@record
class Compute:
    """``target = function(args)``; `body` says what the machine does."""

    target: Register
    function: str
    body: Any
    args: tuple[Number, ...]
    reassociate: bool = False


@record
class Load:
    """``target = buffer[index]``."""

    target: Register
    buffer: Buffer
    index: Position


@record
class Store:
    """``buffer[index] = value``."""

    buffer: Buffer
    index: Position
    value: Number


@record
class Declare:
    """An accumulator begins with `value`."""

    target: Register
    value: Number


@record
class Assign:
    """An accumulator takes a new value."""

    target: Register
    value: Number


@record
class Wrap:
    """``target`` is an index read from memory: negatives count from the end, others outside of the extent
    are errors."""

    target: Register
    value: Number
    extent: int


@record
class Guard:
    """The program goes on only if `value` is as expected."""

    number: int
    value: Number
    expected: int


@record
class For:
    """``for var in range(var.low, var.high + 1)``; `lanes` says that its turns are the lanes of vectors,
    all at once.

    Where `private` is not None, threads may share out the turns; it is the scratch of which each thread needs its own. A `minor` loop
    is over in no time beside the others, so that short code is better than fast code.
    """

    var: Var
    body: list[Statement] = field(default_factory=list)
    lanes: bool = False
    private: tuple[Buffer, ...] | None = None
    minor: bool = False


@record
class Call:
    """A routine on whole buffers; each operand is a buffer and the position at which it starts."""

    function: str
    operands: tuple[tuple[Buffer, Position], ...]
    numbers: tuple[Any, ...]


class Control(ABC):
    """A statement that holds blocks and whose turns or branches stay in their order; see `loops.control`."""

    __slots__ = ()

    @abstractmethod
    def blocks(self) -> tuple[list[Statement], ...]:
        """Return the blocks that it holds, in the order in which they run."""

    @abstractmethod
    def numbers(self) -> tuple[Number, ...]:
        """Return the numbers that it uses itself."""

    @abstractmethod
    def variables(self) -> tuple[Var, ...]:
        """Return the loop variables that it defines."""

    @abstractmethod
    def places(self) -> tuple[tuple[Buffer, Position], ...]:
        """Return the buffers that it touches itself, and where."""

    @abstractmethod
    def aliases(self) -> tuple[Buffer, ...]:
        """Return the names that it gives to buffers, for its blocks."""


Statement: TypeAlias = Compute | Load | Store | Declare | Assign | Wrap | Guard | For | Call | Control


@record
class Program:
    """Loops with their buffers."""

    name: str
    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    scratch: Sequence[Buffer]
    body: list[Statement]
