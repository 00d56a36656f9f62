"""The graph: values, the nodes that make them, and closed views of them.

A `Value` is a place in a directed acyclic graph that grows as the user's code runs. A `Node` applies one op. A `Graph` is a
closed view of such a DAG: inputs, nodes in topological order, outputs. Transforms append nodes that refer to the values already
there; nothing is ever rewritten in place.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.site import Site as Site
from gradtape.ir.tags import TraceTag as TraceTag
from gradtape.ir.tags import merge_tags as merge_tags
from gradtape.ir.types import PYTHON_DTYPES, Aval, Shape, aval

if TYPE_CHECKING:
    from gradtape.ir.op import Op


RELEASED = -1
"""The index of a value that was computed and whose node was given up."""


class Value:
    """One array in the graph.

    Attributes
    ----------
    aval : Aval
        Shape, dtype and weakness.
    node : Node or None
        What computes it; None for inputs and constants. What an op with one output makes has its node put together when
        it is asked for: recording makes half as many objects then.
    index : int
        Which of the node's outputs it is.
    data : numpy.ndarray or None
        The array itself where it is known.
    tags : tuple of TraceTag
        The tapes and traces that record it.
    owner : weakref.ref or None
        The user's handle while it lives: what is held is worth keeping when it is computed along with something else.
    name : str or None
        The name that the user gave.
    """

    __array_ufunc__ = (
        None  # code of packages that asks arrays for their `value` computes nothing with one of the graph
    )
    __slots__ = (
        "__weakref__",
        "_inputs",
        "_node",
        "_op",
        "_params",
        "_serial",
        "_site",
        "_types",
        "aval",
        "data",
        "index",
        "name",
        "owner",
        "tags",
    )

    _inputs: tuple[Value, ...]
    _op: Op | None
    _params: dict[str, Any]
    _serial: int
    _site: Any
    _types: tuple[Aval, ...]

    def __init__(
        self,
        aval: Aval,
        node: Node | None = None,
        index: int = 0,
        data: np.ndarray[Any, Any] | None = None,
        tags: tuple[TraceTag, ...] = (),
    ) -> None:
        self.aval = aval
        self._node = node
        if node is None:
            self._op = None
        else:
            self._op, self._inputs, self._params = node.op, node.inputs, node.params
        self.index = index
        self.data = data
        self.tags = tags
        self.owner: weakref.ref[Any] | None = None
        self.name: str | None = None

    @property
    def node(self) -> Node | None:
        node = self._node
        if node is None and self._op is not None:
            node = self._node = Node(self._op, self._inputs, self._params, self._site, self._serial)
            node.adopt(self, self._types)
        return node

    @node.setter
    def node(self, node: Node | None) -> None:
        self._node = node
        if node is None:
            self._op, self._inputs, self._params, self._site = None, (), NO_PARAMS, None
        else:
            self._op, self._inputs, self._params = node.op, node.inputs, node.params

    def release_history(self) -> None:
        """Give up the node of a value whose data are known, unless somebody may still ask how it came to be.

        Who may is told, and gives it up when the tag ends.
        """
        if self._op is None or self.data is None:
            return
        for tag in self.tags:
            if not tag.over:
                tag.note_computed(self)
                return
        self.node, self.index = None, RELEASED

    def maker(self) -> tuple[Op, tuple[Value, ...], dict[str, Any]] | None:
        """Return the op, the inputs and the parameters of the node, if there is one, without putting it together."""
        return None if self._op is None else (self._op, self._inputs, self._params)

    @property
    def is_made(self) -> bool:
        """Whether there is a node."""
        return self._op is not None

    @property
    def shape(self) -> Shape:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return self.aval.ndim

    @property
    def size(self) -> int:
        return self.aval.size

    def __repr__(self) -> str:
        origin = (
            self.node.op.name if self.node is not None else "constant" if self.data is not None else "input"
        )
        return f"<{origin}: {self.aval}>"

    def __bool__(self) -> bool:
        raise TypeError("a graph value has no truth value; rules must use where()")

    # Operators let the rows be written as formulas. The rows enter themselves in `PRIMITIVES`.
    def __add__(self, other: Operand) -> Value:
        return PRIMITIVES["add"](self, other)

    def __radd__(self, other: Operand) -> Value:
        return PRIMITIVES["add"](other, self)

    def __sub__(self, other: Operand) -> Value:
        return PRIMITIVES["subtract"](self, other)

    def __rsub__(self, other: Operand) -> Value:
        return PRIMITIVES["subtract"](other, self)

    def __mul__(self, other: Operand) -> Value:
        return PRIMITIVES["multiply"](self, other)

    def __rmul__(self, other: Operand) -> Value:
        return PRIMITIVES["multiply"](other, self)

    def __truediv__(self, other: Operand) -> Value:
        return PRIMITIVES["divide"](self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return PRIMITIVES["divide"](other, self)

    def __pow__(self, other: Operand) -> Value:
        return PRIMITIVES["power"](self, other)

    def __neg__(self) -> Value:
        return PRIMITIVES["negative"](self)

    def __abs__(self) -> Value:
        return PRIMITIVES["absolute"](self)

    def __lt__(self, other: Operand) -> Value:
        return PRIMITIVES["less"](self, other)

    def __le__(self, other: Operand) -> Value:
        return PRIMITIVES["less_equal"](self, other)

    def __gt__(self, other: Operand) -> Value:
        return PRIMITIVES["greater"](self, other)

    def __ge__(self, other: Operand) -> Value:
        return PRIMITIVES["greater_equal"](self, other)

    def __and__(self, other: Operand) -> Value:
        return PRIMITIVES["bitwise_and"](self, other)

    def __or__(self, other: Operand) -> Value:
        return PRIMITIVES["bitwise_or"](self, other)

    def __invert__(self) -> Value:
        return PRIMITIVES["invert"](self)


class Literal(Value):
    """A number that stands in the program text: rank 0, known, and free to meet any shape in an elementwise node."""

    __slots__ = ()


ARRAYS: set[type[Value]] = {Value}
"""The classes of values of which only the type matters while nothing is computed; a literal counts by its number."""

Operand = Value | int | float | bool | complex | np.generic

next_serial: Final[Callable[[], int]] = itertools.count().__next__
"""Numbers the nodes in the order in which they are made."""


def _nobody() -> None:
    """Stand for a reference to a value that was not made yet."""


def _in_short(
    references: list[Callable[[], Value | None]],
) -> list[Callable[[], Value | None]] | Callable[[], Value | None]:
    """Return the references to the outputs of a node as it holds them: a single one without a list."""
    return references[0] if len(references) == 1 else references


class Node:
    """One application of an op to values.

    A value keeps its node alive, and the node its inputs, but not the other way round: what nobody can reach any more is released at
    once, without waiting for Python's cycle collector.
    """

    __slots__ = ("__weakref__", "_outs", "_tags", "_types", "inputs", "op", "params", "serial", "site")

    def __init__(
        self,
        op: Op,
        inputs: tuple[Value, ...],
        params: dict[str, Any],
        site: Any = None,
        serial: int | None = None,
    ) -> None:
        self.serial = next_serial() if serial is None else serial
        self.op = op
        self.inputs = inputs
        self.params = params
        self.site = site
        self._outs: list[Callable[[], Value | None]] | Callable[[], Value | None] = []

    @property
    def outs(self) -> tuple[Value, ...]:
        """The outputs; one that nobody holds is made anew."""
        references = self._outs
        if not isinstance(references, list):
            only = references()
            return (self._remade(0) if only is None else only,)
        found = tuple([reference() for reference in references])
        if None in found:
            found = tuple([self._remade(index) if out is None else out for index, out in enumerate(found)])
        return found  # type: ignore[return-value]

    @outs.setter
    def outs(self, outs: tuple[Value, ...]) -> None:
        self._outs = _in_short([weakref.ref(out) for out in outs])
        self._types = tuple([out.aval for out in outs])
        self._tags = outs[0].tags if outs else ()

    def adopt(self, out: Value, types: tuple[Aval, ...]) -> None:
        """Take a value as the only output."""
        self._outs = weakref.ref(out)
        self._types = types
        self._tags = out.tags

    def living(self) -> list[Value]:
        """Return those of the outputs that somebody holds."""
        references = self._outs if isinstance(self._outs, list) else [self._outs]
        return [out for reference in references if (out := reference()) is not None]

    def make_outs(self, types: tuple[Aval, ...], tags: tuple[TraceTag, ...]) -> list[Value]:
        """Return new outputs of these types."""
        outs = []
        references: list[Callable[[], Value | None]] = []
        op, inputs, params = self.op, self.inputs, self.params
        for index, type_ in enumerate(types):
            out = _make(Value)  # what its constructor does
            out._node = self
            out._op = op
            out._inputs = inputs
            out._params = params
            out.aval = type_
            out.index = index
            out.data = None
            out.tags = tags
            out.name = None
            out.owner = None
            outs.append(out)
            references.append(weakref.ref(out))
        self._outs = references[0] if len(references) == 1 else references
        self._types = types
        self._tags = tags
        return outs

    def take_as_out(self, value: Value, index: int) -> None:
        """Let this node compute a value that another one was to compute."""
        value.node, value.index = self, index
        if isinstance(self._outs, list):
            self._outs[index] = weakref.ref(value)
        else:
            self._outs = weakref.ref(value)

    def set_types(self, types: tuple[Aval, ...]) -> None:
        """Say what the outputs are; they are made when somebody asks for them."""
        self._outs = _in_short([_nobody] * len(types))
        self._types = types
        self._tags = ()

    @property
    def types(self) -> tuple[Aval, ...]:
        """The outputs."""
        return self._types

    @property
    def tags(self) -> tuple[TraceTag, ...]:
        """The tags of the outputs when the node was made."""
        return self._tags

    def set_tags(self, tags: tuple[TraceTag, ...]) -> None:
        """Set the tags of the outputs."""
        self._tags = tags

    def copy(self, inputs: tuple[Value, ...]) -> Node:
        """Return the same application of the op to other values of the same types."""
        copy = Node(self.op, inputs, self.params, self.site)
        copy.set_types(self._types)
        return copy

    def _remade(self, index: int) -> Value:
        out = Value(self._types[index], self, index, None, self._tags)
        self.take_as_out(out, index)
        return out

    @property
    def out(self) -> Value:
        """The only output."""
        references = self._outs
        if isinstance(references, list):
            raise ValueError(f"{self.op.name} has {len(references)} outputs")
        only = references()
        return self._remade(0) if only is None else only

    def __repr__(self) -> str:
        return f"<node {self.op.name} {', '.join(map(repr, self.inputs))}>"


NO_PARAMS: Final[dict[str, Any]] = {}
"""The parameters of a node that has none."""

_make = object.__new__


def single(
    op: Op, inputs: tuple[Value, ...], params: dict[str, Any], site: Any, types: tuple[Aval, ...], type_: Aval
) -> Value:
    """Return the only output, of type `type_`, of a new node.

    This is what recording consists of: it does what the constructors do, in half of their time.
    """
    out = _make(Value)
    out._node = None
    out._op = op
    out._inputs = inputs
    out._params = params
    out._serial = next_serial()
    out._site = site
    out._types = types
    out.aval = type_
    out.index = 0
    out.data = None
    out.tags = merge_tags(inputs)
    out.name = None
    out.owner = None
    return out


class Graph:
    """A closed piece of the DAG: from `inputs`, by `nodes` in topological order, to `outputs`.

    Values that nodes or outputs refer to and that are neither inputs nor made by a node are constants; they have data.
    Guards are 0-d booleans or integers with the number that each must have for the graph to hold.
    """

    __slots__ = ("__weakref__", "guards", "inputs", "name", "nodes", "outputs")

    def __init__(
        self,
        inputs: Sequence[Value],
        nodes: Sequence[Node],
        outputs: Sequence[Value],
        name: str = "f",
        guards: Sequence[tuple[Value, int]] = (),
    ) -> None:
        self.inputs = tuple(inputs)
        self.nodes = tuple(nodes)
        self.outputs = tuple(outputs)
        self.name = name
        self.guards = tuple(guards)

    def constants(self) -> list[Value]:
        """The captured arrays, in the order of their first use (literals are not among them)."""
        bound: set[Value] = set(self.inputs)
        found: dict[Value, None] = {}
        for node in self.nodes:
            for value in node.inputs:
                if value not in bound and value not in found and not isinstance(value, Literal):
                    found[value] = None
            bound.update(node.outs)
        for value in (*self.outputs, *[value for value, _ in self.guards]):
            if value not in bound and value not in found and not isinstance(value, Literal):
                found[value] = None
        return list(found)

    def __repr__(self) -> str:
        inputs = ", ".join(map(repr, (v.aval for v in self.inputs)))
        outputs = ", ".join(map(repr, (v.aval for v in self.outputs)))
        return f"<Graph {self.name}: ({inputs}) -> ({outputs}), {len(self.nodes)} nodes>"


def extract(
    outputs: Iterable[Value],
    inputs: Iterable[Value] = (),
    stop: Callable[[Value], bool] | None = None,
    follow: Callable[[Node], Sequence[Value]] | None = None,
) -> tuple[list[Node], list[Value]]:
    """Collect what computes `outputs`.

    Parameters
    ----------
    outputs : iterable of Value
        What is wanted.
    inputs : iterable of Value
        Where to stop, even if a node computes them.
    stop : callable, optional
        Further values to stop at: a predicate. By default values whose data are known.
    follow : callable, optional
        Which inputs of a node the walk follows. By default all.

    Returns
    -------
    nodes : list of Node
        In topological order; a node comes as early as its inputs allow, in the order of a depth-first walk.
    leaves : list of Value
        The values at which the walk stopped other than `inputs` and literals, in the order met.
    """
    seen: set[Value] = set(inputs)
    leaves: list[Value] = []
    nodes: list[Node] = []
    done: set[Node] = set()
    stack: list[Value | Node] = []
    for output in outputs:
        stack.append(output)
        while stack:
            item = stack.pop()
            if type(item) is Node:  # its inputs have been visited
                if item not in done:
                    done.add(item)
                    nodes.append(item)
                continue
            assert isinstance(item, Value)
            if item in seen:
                continue
            seen.add(item)
            if not item.is_made or (item.data is not None if stop is None else stop(item)):
                if not isinstance(item, Literal):
                    leaves.append(item)
                continue
            node = item.node
            assert node is not None
            if node not in done:
                stack.append(node)
                operands = node.inputs if follow is None else follow(node)
                stack.extend([operand for operand in reversed(operands) if operand not in seen])
    return nodes, leaves


def literal(number: Any, dtype: np.dtype[Any] | None = None) -> Literal:
    """Return a number as a value; a Python number without `dtype` is weak."""
    if dtype is None and type(number) in PYTHON_DTYPES:
        kind = PYTHON_DTYPES[type(number)]
        return Literal(aval((), kind, True), data=np.asarray(number, kind))
    array = np.asarray(number, dtype)
    return Literal(aval((), array.dtype), data=array)


def constant(array: np.ndarray[Any, Any]) -> Value:
    """Return an array as a value; the caller promises not to change it."""
    return Value(aval(array.shape, array.dtype), data=array)


def number_of(value: Value) -> Any | None:
    """Return the Python number that a literal holds, or None for any other value."""
    return value.data.item() if isinstance(value, Literal) and value.data is not None else None
