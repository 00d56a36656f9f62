"""Building procedures, statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import INT64, Aval, aval
from gradtape.kinds.operands import as_value, conform
from gradtape.procedures.ir import (
    Allocate,
    Assign,
    Check,
    Content,
    Dtype,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Procedure,
    Read,
    Statement,
    Store,
    Variable,
    While,
)

Number = Value | int | float | bool | complex | np.generic


def leaf(dtype: Any) -> Value:
    """Return a new 0-d value without a history, to be defined by a statement."""
    return Value(aval((), np.dtype(dtype)))


def integer(number: Number) -> Value:
    """Return a number as an int64 value."""
    return conform(as_value(number), INT64, ())


class ProcedureBuilder:
    """Appends statements to the block that is open.

    Operands may be Python numbers; what is stored or assigned is converted to the dtype of the memory or the variable.

    Parameters
    ----------
    name : str
        For prints.
    names : iterable of str
        Names that are taken: those of a procedure of which parts are used again.

    Examples
    --------
    >>> build = ProcedureBuilder("total")
    >>> x = build.array("x", (3,))
    >>> total = build.variable("s", 0.0)
    >>> with build.loop(3) as i:
    ...     build.assign(total, build.read(total) + build.load(x, i))
    >>> build.finish([build.read(total)]).result_types
    (f64[],)
    """

    def __init__(self, name: str = "f", names: Iterable[str] = ()) -> None:
        self.name = name
        self.parameters: list[Content] = []
        self.types: list[Aval] = []
        self.body: list[Statement] = []
        self.counts: dict[Value, Value] = {}
        """The count of the loop of each index."""
        self.start: list[Statement] = []
        self.mask_places: dict[Any, Any] = {}
        """The indices at which masks hold, as found before."""
        self.keeps_order = False
        """Whether new arrays are laid out as NumPy lays them out; else in C order, which is faster to return."""
        self.loses_order = False
        """Whether NumPy would have laid out an array in another order than this procedure does."""
        self.reads_order = False
        """Whether the order of elements in memory has decided between a view and a copy."""
        self.unknown_orders: set[Memory] = set()
        """The memories of arrays of which nobody knows in which order NumPy's elements would stand."""
        self.array_inputs: dict[Content, Content] = {}
        """Of the array computation that is being made: what its scalar inputs stand for."""
        self._open = [self.body]
        self._names = dict.fromkeys(names, 0)

    def unique(self, name: str) -> str:
        """Return a name that this procedure does not have yet."""
        unique = name
        while unique in self._names:
            self._names[name] += 1
            unique = f"{name}.{self._names[name]}"
        self._names[unique] = 0
        return unique

    @property
    def current(self) -> list[Statement]:
        """The open block."""
        return self._open[-1]

    def append(self, statement: Statement) -> None:
        """Append a statement to the open block."""
        self._open[-1].append(statement)

    @contextmanager
    def block(self, statements: list[Statement]) -> Iterator[None]:
        """Let statements be appended to a block."""
        self._open.append(statements)
        try:
            yield
        finally:
            self._open.pop()

    @property
    def block_now(self) -> list[Statement]:
        """The open block."""
        return self._open[-1]

    @contextmanager
    def at_start(self) -> Iterator[None]:
        """Let statements be put before all others."""
        with self.block(self.start):
            yield

    def note_copy(self, copy: Pointer, original: Pointer) -> None:
        """Note that an array is a copy of another one which may be a view of it in NumPy."""

    # Parameters, memory and variables

    def array(self, name: str, shape: Sequence[int], dtype: Any = np.float64) -> Pointer:
        """Add an array parameter."""
        type_ = aval(tuple(shape), np.dtype(dtype))
        name = self.unique(name)
        pointer = Pointer(name, Memory(name, type_.dtype))
        self.parameters.append(pointer)
        self.types.append(type_)
        return pointer

    def scalar(self, name: str, dtype: Any = np.float64) -> Value:
        """Add a scalar parameter."""
        value = leaf(dtype)
        value.name = self.unique(name)
        self.parameters.append(value)
        self.types.append(value.aval)
        return value

    def allocate(
        self,
        name: str,
        size: Number,
        dtype: Dtype | type = np.float64,
        zero: bool = False,
        memory: Memory | None = None,
    ) -> Pointer:
        """Append the allocation of an array; pass `memory` if a variable is to hold pointers to it and to others."""
        name = self.unique(name)
        pointer = Pointer(name, Memory(name, np.dtype(dtype)) if memory is None else memory)
        self.append(Allocate(pointer, integer(size), zero))
        return pointer

    def variable(self, name: str, initial: Number | Pointer, dtype: Any = None) -> Variable:
        """Return a new variable, and append its first assignment."""
        if isinstance(initial, Pointer):
            variable = Variable(self.unique(name), initial.memory)
        else:
            value = as_value(initial)
            variable = Variable(
                self.unique(name), aval((), value.dtype if dtype is None else np.dtype(dtype))
            )
        self.assign(variable, initial)
        return variable

    # Statements

    def load(self, pointer: Pointer, index: Number) -> Value:
        out = leaf(pointer.dtype)
        self.append(Load(out, pointer, integer(index), here.site))
        return out

    def store(self, pointer: Pointer, index: Number, value: Number) -> None:
        self.append(Store(pointer, integer(index), conform(as_value(value), pointer.dtype, ()), here.site))

    def read(self, variable: Variable) -> Any:
        """Return what a variable holds: a value or a pointer."""
        out: Content
        if isinstance(variable.type, Memory):
            out = Pointer(self.unique(variable.name), variable.type)
        else:
            out = Value(variable.type)
        self.append(Read(out, variable))
        return out

    def assign(self, variable: Variable, value: Number | Pointer) -> None:
        if isinstance(value, Pointer):
            self.append(Assign(variable, value, here.site))
        else:
            assert isinstance(variable.type, Aval)
            self.append(Assign(variable, conform(as_value(value), variable.type.dtype, ()), here.site))

    def check(self, condition: Value, error: str, message: str) -> None:
        self.append(Check(condition, error, message, here.site))

    @contextmanager
    def loop(self, count: Number, parallel: bool = False) -> Iterator[Value]:
        """Append a `For`; its body is what is appended meanwhile."""
        loop = For(leaf(INT64), integer(count), [], parallel, here.site)
        self.append(loop)
        self.counts[loop.index] = loop.count
        with self.block(loop.body):
            yield loop.index

    def append_with_blocks(self, statement: Statement, fill: Callable[[list[Statement]], None]) -> None:
        """Append a statement like another one, whose blocks get what is appended when a function is called with the blocks of the other."""
        new = statement.with_parts(block=lambda body: [])
        self.append(new)
        for block, body in zip(new.blocks(), statement.blocks(), strict=True):
            with self.block(block):
                fill(body)

    @contextmanager
    def loop_while(self) -> Iterator[While]:
        """Append a `While`; meanwhile its test is appended, and after `start_body` its body.

        Examples
        --------
        >>> build = ProcedureBuilder("halve")
        >>> x = build.variable("x", build.scalar("x0"))
        >>> with build.loop_while() as loop:
        ...     build.start_body(loop, build.read(x) > 1.0)
        ...     build.assign(x, build.read(x) * 0.5)
        """
        loop = While(leaf(np.bool_))
        self.append(loop)
        with self.block(loop.test):
            yield loop

    def start_body(self, loop: While, condition: Value) -> None:
        """End the test of a `While`, and open its body."""
        loop.condition = condition
        self._open[-1] = loop.body

    @contextmanager
    def branch(self, condition: Value) -> Iterator[If]:
        """Append an `If`; meanwhile its first block is appended, and after `start_otherwise` the second one."""
        branch = If(condition)
        self.append(branch)
        with self.block(branch.then):
            yield branch

    def start_otherwise(self, branch: If) -> None:
        """End the first block of an `If`, and open the second one."""
        self._open[-1] = branch.otherwise

    def finish(self, results: Sequence[Content], result_types: Sequence[Aval] | None = None) -> Procedure:
        """Return the procedure; without types the results are scalars."""
        types = tuple(result_types) if result_types is not None else tuple([_scalar(x) for x in results])
        self.body[:0] = self.start
        self.start.clear()
        return Procedure(
            self.name, tuple(self.parameters), tuple(self.types), self.body, tuple(results), types
        )


def _scalar(result: Content) -> Aval:
    assert isinstance(result, Value)
    return result.aval
