"""The procedure IR: structured imperative programs with mutable scalars and arrays that are written element by element.

A procedure is a tree of statements with side effects. What is computed between them is pure, and stands in the graph: the operands of
statements are 0-d values (`gradtape.ir.graph.Value`), whose nodes are elementwise rows. The leaves of these expressions are what
statements define: a loaded element, the value of a variable, the number of an iteration. So rows, their derivatives and the passes over
graphs serve procedures too, and pure code has no place of its own: it is computed where it is used, and can be computed again where its
leaves are known.

Loops and branches are structured; there is no ``break``, ``continue`` or early ``return``, which front ends replace by flags. A value is
known in the block that defines it and in the blocks inside that, from its definition on. Each leaf has one definition. Memory is flat
(C order) and reached by pointers; the offset of an element from a pointer is an int64 value. Strides, views and extents are arithmetic of
the front end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from gradtape import statements
from gradtape.ir.body import Body
from gradtape.ir.graph import Value
from gradtape.ir.site import Site
from gradtape.ir.types import Aval
from gradtape.records import record

Dtype: TypeAlias = np.dtype[np.generic]


@record
class Memory:
    """An alias class: pointers into different memories never reach the same element.

    Attributes
    ----------
    name : str
        For prints; unique in a procedure.
    dtype : numpy.dtype
        Of all elements.
    """

    name: str
    dtype: Dtype


@record
class Pointer:
    """The address of the first element of an array: a parameter, what `Allocate` makes, or what was read from a variable."""

    name: str
    memory: Memory

    @property
    def dtype(self) -> Dtype:
        return self.memory.dtype


@record
class Variable:
    """A mutable local variable.

    Attributes
    ----------
    name : str
        For prints; unique in a procedure.
    type : Aval or Memory
        The type of the 0-d values that it holds, or the memory into which its pointers point.
    """

    name: str
    type: Aval | Memory


Content: TypeAlias = Value | Pointer
"""The type of a variable, a parameter or an entry of the tape."""


@record
class Span(statements.Compound):
    """Contiguous elements: those of an array of a known shape that starts at an offset from a pointer."""

    pointer: Pointer
    offset: Value
    aval: Aval

    def contents(self) -> tuple[Content, ...]:
        return self.pointer, self.offset

    def with_contents(self, content: Callable[[Any], Any]) -> Span:
        return Span(content(self.pointer), content(self.offset), self.aval)


class StatementBase(statements.StatementBase):
    """A statement that uses and defines values and pointers."""

    __slots__ = ()

    def pointers_read(self) -> tuple[Pointer, ...]:
        """Return the pointers through which the statement itself reads."""
        return ()

    def pointers_written(self) -> tuple[Pointer, ...]:
        """Return the pointers through which the statement itself writes."""
        return ()

    def memories(self) -> set[Memory]:
        """Return the memories that the statement itself reads and writes."""
        return {pointer.memory for pointer in (*self.pointers_read(), *self.pointers_written())}


# Statements


@record
class Load(StatementBase):
    """``out = pointer[index]``, at a line of the user's code."""

    parts = ("pointer", "index")
    defined = "out"

    out: Value
    pointer: Pointer
    index: Value
    site: Site | None = None

    def pointers_read(self) -> tuple[Pointer, ...]:
        return (self.pointer,)


@record
class Store(StatementBase):
    """``pointer[index] = value``, at a line of the user's code; the dtypes are equal."""

    parts = ("pointer", "index", "value")

    pointer: Pointer
    index: Value
    value: Value
    site: Site | None = None

    def pointers_written(self) -> tuple[Pointer, ...]:
        return (self.pointer,)


@record
class Read(StatementBase):
    """``out = variable``."""

    defined = "out"

    out: Content
    variable: Variable


@record
class Assign(StatementBase):
    """``variable = value``, at a line of the user's code. A variable is assigned before it is read."""

    parts = ("value",)

    variable: Variable
    value: Content
    site: Site | None = None


@record
class Allocate(StatementBase):
    """``out`` is a new array of `size` elements, zeros if `zero`, otherwise uninitialised. It lives until the procedure ends."""

    parts = ("size",)
    defined = "out"

    out: Pointer
    size: Value
    zero: bool = False


@record
class Check(StatementBase):
    """Where `condition` is false the results are invalid, and the call raises an error with `message`; the procedure goes on nevertheless.

    So checks do not stand in the way of vectors. Who makes one for an index replaces an invalid index by a valid one.

    Attributes
    ----------
    error : str
        The name of the built-in exception, such as ``IndexError``.
    site : Site or None
        The user's line.
    """

    parts = ("condition",)

    condition: Value
    error: str
    message: str
    site: Site | None = None


@record
class Apply(StatementBase):
    """The array computation of a graph: ``outputs = graph(inputs)`` on scalars and contiguous arrays of static shapes.

    The outputs do not overlap the inputs.
    """

    parts = ("inputs", "outputs")

    graph: Body
    inputs: tuple[Value | Span, ...]
    outputs: tuple[Span, ...]

    def pointers_read(self) -> tuple[Pointer, ...]:
        return tuple([x.pointer for x in self.inputs if isinstance(x, Span)])

    def pointers_written(self) -> tuple[Pointer, ...]:
        return tuple([span.pointer for span in self.outputs])


@record
class For(StatementBase):
    """``for index in range(count)``. The count, an int64, may be 0 or negative.

    Attributes
    ----------
    parallel : bool
        Whether iterations may run at the same time (``prange``): none touches an element that another one stores, but for elements and
        variables to which iterations only add. What an iteration allocates is its own. Once loops are cut into blocks, those over blocks
        are the parallel ones.
    site : Site or None
        The user's line.
    """

    parts = ("count", "body")
    defined = "index"

    index: Value
    count: Value
    body: list[Statement] = field(default_factory=list)
    parallel: bool = False
    site: Site | None = None

    def blocks(self) -> tuple[list[Statement], ...]:
        return (self.body,)


@record
class While(StatementBase):
    """``while True: test; if not condition: break; body``. What `test` defines is known in `body`."""

    parts = ("test", "condition", "body")

    condition: Value
    test: list[Statement] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)

    def blocks(self) -> tuple[list[Statement], ...]:
        return (self.test, self.body)


@record
class If(StatementBase):
    """One of two blocks. What they define is not known after it: results are variables."""

    parts = ("condition", "then", "otherwise")

    condition: Value
    then: list[Statement] = field(default_factory=list)
    otherwise: list[Statement] = field(default_factory=list)

    def blocks(self) -> tuple[list[Statement], ...]:
        return (self.then, self.otherwise)


@record
class Push(StatementBase):
    """Append values to the tape, a last-in, first-out memory of the procedure. The reverse sweep pops what the forward sweep pushed."""

    parts = ("values",)

    values: tuple[Content, ...]

    @property
    def entries(self) -> tuple[Content, ...]:
        """What becomes part of the record."""
        return self.values


@record
class Pop(StatementBase):
    """Take off the tape what the matching `Push` appended: as many values, in the same order."""

    defined = "outs"

    outs: tuple[Content, ...]

    @property
    def entries(self) -> tuple[Content, ...]:
        """What was part of the record."""
        return self.outs


Statement: TypeAlias = Load | Store | Read | Assign | Allocate | Check | Apply | For | While | If | Push | Pop


@record
class Procedure:
    """A procedure, from the outside a pure function of arrays.

    Attributes
    ----------
    name : str
        For prints.
    parameters : sequence of Value or Pointer
        A leaf for each argument: a 0-d value for a scalar, a pointer for an array. Arrays are contiguous. The body does not store into
        them: it copies the parameters that it changes.
    types : sequence of Aval
        Of the arguments.
    body : list of statements
    results : sequence of Value or Pointer
        A value of the body's outermost block for a scalar; for an array a pointer that the body allocates in its outermost block with
        as many elements as its type has. A pointer is not a result twice.
    result_types : sequence of Aval
        Of the results.
    """

    name: str
    parameters: Sequence[Content]
    types: Sequence[Aval]
    body: list[Statement]
    results: Sequence[Content]
    result_types: Sequence[Aval]
