"""Loop nests: the values of a graph that are computed by loops or routines of their own.

Everything else is computed inside the nests that use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from gradtape.errors import LoweringError
from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.ir.types import Shape
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import Structured
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.routines.callback import PythonCall
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.loops.affine import Position, Var, affine
from gradtape.loops.ir import Buffer
from gradtape.lower.schedule.operands import MemoryOperands, base_of_view
from gradtape.lower.schedule.products import MatrixProduct
from gradtape.ops.core.shape import reshape_row
from gradtape.passes.layout.contract_transposes import innermost_subscript
from gradtape.records import frozen_record, record, value_record
from gradtape.transforms.loops.ops import STACK, Repeat, While
from gradtape.transforms.procedures.ops import ProcedureOp

JOINED_INLINE: Final = 3
"""Pieces of a join up to which each element asks in which piece it lies; more are copied one after the other."""

DEPTH: Final = 40
"""Nodes in a chain after which one becomes a nest, so that interpreting its elements need not recurse deeper."""

TANGLED: Final = 4
"""Chained reshapes after which one is stored: each can double the length of the index expressions."""

PLACES: Final = 24
"""Positions of a value at which one element of another may read it: beyond, the other is stored, or a chain of stencils would be
traced to each of the elements in its cone."""

SUPPORTED: Final = frozenset("?bhilqBHILQfd")


@value_record
class Axis:
    """One loop of a nest.

    Attributes
    ----------
    extent : int
        Its trip count.
    position : int or None
        The axis of the result along which it runs; None where it is reduced.
    closed : bool
        Whether nothing else may share the loop: what it computes is complete only after it.
    """

    extent: int
    position: int | None
    closed: bool = False


@frozen_record
class LoopNest:
    """The computation of one value. Later stages say in tables of their own what it reads, where it runs and where its value is stored.

    Attributes
    ----------
    value : Value
        What is computed.
    kind : str
        ``elementwise``, ``reduce``, ``argreduce``, ``contract``, ``cumulative``, ``scatter``, ``join``, ``product`` (of matrices, by
        BLAS), ``routine``, ``guard``, ``control`` (a sequential loop or a branch), ``result`` (one of its outputs) or ``carry``
        (a loop-carried value, as an iteration finds it), or ``part`` (a further result of a routine).
    axes : tuple of Axis
        The loops, outermost first.
    level_of : tuple of int
        For each axis of the operand, its loop.
    subscript_levels : mapping of int to int
        For each subscript of a contraction that has one, its loop.
    node : Node or None
        What computes it; None for copies, guards and carries.
    order : int
        Its number, in topological order.
    output : Buffer or None
        The output of the program that it is.
    variables : tuple of Position
        One variable for each loop; zero for loops of one iteration.
    product : MatrixProduct or None
        How BLAS computes it.
    feeds_call : bool
        Whether it is an operand of a routine that is stored for it alone.
    maker : LoopNest or None
        The nest that computes a result of a loop or a branch, or a part.
    carried_to : Buffer or None
        Where an iteration leaves the carry for the next one.
    guard : (int, int) or None
        The number of the guard, and the expected value.
    """

    value: Value
    kind: str
    axes: tuple[Axis, ...]
    level_of: tuple[int, ...]
    subscript_levels: Mapping[int, int]
    node: Node | None
    order: int
    output: Buffer | None
    variables: tuple[Position, ...]
    product: MatrixProduct | None = None
    feeds_call: bool = False
    maker: LoopNest | None = None
    carried_to: Buffer | None = None
    guard: tuple[int, int] | None = None

    @property
    def shape(self) -> Shape:
        return self.value.shape

    def first_reduced(self) -> int:
        """Return the outermost reduced loop; the number of loops where none is."""
        for level, axis in enumerate(self.axes):
            if axis.position is None:
                return level
        return len(self.axes)

    def trailing_reduced(self) -> int:
        """Return the loop from which on all loops are reduced."""
        level = len(self.axes)
        while level > 0 and self.axes[level - 1].position is None:
            level -= 1
        return level

    def accumulates_along(self, level: int) -> bool:
        """Return whether the last element is kept in a register around this loop."""
        return (
            self.kind == "cumulative"
            and self.node is not None
            and level == self.node.params["axis"] == len(self.axes) - 1
        )

    def result_index(self, values: tuple[Position, ...]) -> tuple[Position, ...]:
        """Return the position in the result at the iterations `values` of the loops."""
        index: list[Position] = [0] * self.value.ndim
        for level, axis in enumerate(self.axes):
            if axis.position is not None:
                index[axis.position] = values[level]
        if self.kind == "cumulative":
            assert self.node is not None
            if self.node.params["reverse"]:
                axis_ = self.node.params["axis"]
                index[axis_] = self.shape[axis_] - 1 - index[axis_]
        return tuple(index)

    def operand_index(self, values: tuple[Position, ...]) -> tuple[Position, ...]:
        """Return the position in the operand at the iterations `values` of the loops."""
        if self.kind == "cumulative":
            return self.result_index(values)
        return tuple([values[level] for level in self.level_of])


class Note(str):
    """A decision about a nest and its reason, for `explain`."""

    __slots__ = ("node",)

    node: Node | None

    def __new__(cls, nest: LoopNest, text: str) -> Note:
        note = super().__new__(cls, f"{describe(nest)} {text}")
        note.node = nest.node
        return note


def describe(nest: LoopNest) -> str:
    """Return how messages name a nest."""
    return f"{nest.value.node.op.name if nest.value.node is not None else 'copy'}{list(nest.shape)}"


@record
class Form:
    """The loops that a node needs; see `LoopNest`."""

    kind: str
    axes: tuple[Axis, ...] = ()
    level_of: tuple[int, ...] = ()
    subscript_levels: Mapping[int, int] = field(default_factory=dict)
    product: MatrixProduct | None = None


def forms_of(graph: Graph, products: Mapping[Node, MatrixProduct]) -> dict[Node, Form | None]:
    """Return the loops of each node that is a nest whatever its use; None for what is computed where it is used."""
    return {node: _form_of(node, products) for node in graph.nodes if not isinstance(node.op, Structured)}


def find_nests(
    graph: Graph,
    operands: MemoryOperands,
    forms: Mapping[Node, Form | None],
    stored: set[Value],
    outputs: Sequence[Buffer],
    carried: Mapping[Value, Buffer],
) -> tuple[list[LoopNest], dict[Value, LoopNest]]:
    """Return the nests of a graph in topological order, and which of them makes which value.

    Parameters
    ----------
    graph : Graph
        Of primitive rows.
    operands : MemoryOperands
        What must be in memory.
    forms : mapping of Node to Form
        See `forms_of`.
    stored : set of Value
        What shall be stored besides.
    outputs : sequence of Buffer
        Of the program.
    carried : mapping of Value to Buffer
        Inputs that are loop-carried, with the outputs that become them in the next iteration.
    """
    claimed = _claim_outputs(graph, outputs)
    nests = _Nests(claimed)
    for value, following in carried.items():
        nests.enter(value, Form("carry"), None, carried_to=following)
    depth: dict[Value, int] = {}
    reach = _Reach()
    for node in graph.nodes:
        if isinstance(node.op, Structured):
            nests.enter_control(node)
            continue
        form = forms[node]
        out = node.outs[0]
        feeds_call = False
        if form is None:
            deep = max([depth.get(value, 0) for value in node.inputs], default=0)
            deep += DEPTH // TANGLED if node.op is reshape_row else 1
            depth[out] = deep
            is_stored = out in claimed or out in stored or out in operands.stored
            far = reach.enter(node) > PLACES
            if is_stored or deep > DEPTH or far:
                form = Form("elementwise", parallel_axes(out.shape))
                feeds_call = out in operands.of_calls and out not in claimed
                depth[out] = 0
                reach.stop(out)
        if form is not None:
            nests.enter(out, form, node, feeds_call=feeds_call)
        for part in node.outs[1:]:
            nests.enter(part, Form("part"), node, maker=nests.by_value[out])
    taken = {id(buffer) for buffer in claimed.values()}
    for value, buffer in zip(graph.outputs, outputs, strict=True):
        if id(buffer) not in taken and carried.get(value) is not buffer:
            nests.add(value, Form("elementwise", parallel_axes(value.shape)), None, output=buffer)
    for number, (value, expected) in enumerate(graph.guards, 1):
        nests.add(value, Form("guard"), None, guard=(number, expected))
    return nests.nests, nests.by_value


class _Nests:
    """The nests that were found so far."""

    def __init__(self, claimed: Mapping[Value, Buffer]) -> None:
        self.nests: list[LoopNest] = []
        self.by_value: dict[Value, LoopNest] = {}
        self._claimed = claimed

    def add(self, value: Value, form: Form, node: Node | None, **facts: Any) -> LoopNest:
        """Add a nest that computes a value."""
        order = len(self.nests)
        variables = tuple(
            [
                affine(Var(f"r{order}_{level}", 0, axis.extent - 1)) if axis.extent > 1 else 0
                for level, axis in enumerate(form.axes)
            ]
        )
        output = facts.pop("output", None)
        nest = LoopNest(
            value,
            form.kind,
            form.axes,
            form.level_of,
            form.subscript_levels,
            node,
            order,
            output,
            variables,
            form.product,
            **facts,
        )
        self.nests.append(nest)
        return nest

    def enter(self, value: Value, form: Form, node: Node | None, **facts: Any) -> None:
        """Add the nest that others read a value from."""
        self.by_value[value] = self.add(value, form, node, output=self._claimed.get(value), **facts)

    def enter_control(self, node: Node) -> None:
        """Add the nest that runs a loop or a branch, and those of its results."""
        for value in (*node.inputs, *node.outs):
            if value.aval is not STACK or not isinstance(node.op, While | Repeat):
                check_dtype(value, node)
        control = self.add(node.outs[0], Form("control"), node)
        for out in node.outs:
            self.enter(out, Form("result"), node, maker=control)


def parallel_axes(shape: Shape) -> tuple[Axis, ...]:
    """Return a loop for each axis of a result, in order."""
    return tuple([Axis(extent, position) for position, extent in enumerate(shape)])


def _form_of(node: Node, products: Mapping[Node, MatrixProduct]) -> Form | None:
    """Return the loops of a node that is a nest whatever its use; None for what is computed where it is used."""
    op = node.op
    for value in (*node.inputs, *node.outs):
        check_dtype(value, node)
    if isinstance(op, Sort | Matrix | ProcedureOp | PythonCall):
        return Form("routine")
    out = node.out
    if isinstance(op, Elementwise):
        return Form("elementwise") if out.shape == () else None
    if isinstance(op, IndexMap):
        return None
    if isinstance(op, Reduction):
        return _reduction(node, op)
    if isinstance(op, Contract):
        product = products.get(node)
        return _contraction(node) if product is None else _product(node, product)
    if isinstance(op, Cumulative):
        axis = node.params["axis"]
        axes = tuple([Axis(extent, k, closed=k >= axis) for k, extent in enumerate(out.shape)])
        return Form("cumulative", axes, tuple(range(out.ndim)))
    if isinstance(op, Accumulate):
        shape = node.inputs[1].shape
        axes = tuple([Axis(extent, None, closed=True) for extent in shape or (1,)])
        return Form("scatter", axes, tuple(range(len(shape))))
    if isinstance(op, Join):
        if len(node.inputs) <= JOINED_INLINE:
            return None
        return Form("join", (Axis(1, None, closed=True),))
    raise LoweringError(
        f"kernels do not know the op {op.name}", where=node.site, why="the interpreter runs it"
    )


def _reduction(node: Node, op: Reduction) -> Form:
    shape = node.inputs[0].shape
    reduced = node.params["axes"]
    kept_axes = [axis for axis in range(len(shape)) if axis not in reduced]
    order = [*kept_axes, *reduced] if op.positional else list(range(len(shape)))
    axes = tuple([Axis(shape[axis], None if axis in reduced else kept_axes.index(axis)) for axis in order])
    level_of = tuple([order.index(axis) for axis in range(len(shape))])
    return Form("argreduce" if op.positional else "reduce", axes, level_of)


def _product(node: Node, product: MatrixProduct) -> Form:
    """Return a call of BLAS. What is looped over around it are its axes, so that what makes its operands and what uses its result can
    share the loops."""
    out = node.params["out"]
    axes = tuple([Axis(product.extents[s], out.index(s) if s in out else None) for s in product.looped])
    subscripts = {subscript: level for level, subscript in enumerate(product.looped)}
    return Form("product", axes, (), subscripts, product)


def _contraction(node: Node) -> Form:
    """Return a contraction as loops, in the order that makes the innermost ones run along memory.

    Outermost is what takes the largest steps through the largest arrays: the rows, where there are many, and not a small array's.
    """
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    extents: dict[int, int] = {}
    strides: dict[int, list[int]] = {}
    steps: dict[int, int] = {}
    for subscripts, value in ((x, node.inputs[0]), (y, node.inputs[1]), (out, node.out)):
        stride = 1
        for subscript, extent in zip(reversed(subscripts), reversed(value.shape), strict=True):
            extents[subscript] = extent
            strides.setdefault(subscript, []).append(stride)
            steps[subscript] = steps.get(subscript, 0) + stride * value.size
            stride *= extent
    last = innermost_subscript(node)
    first = max(extents, key=lambda subscript: (subscript != last, steps[subscript]), default=None)
    if lengths_vary():
        order = sorted(extents, key=lambda subscript: (subscript == last, subscript not in out[:1]))
    else:
        order = sorted(
            extents,
            key=lambda subscript: (
                subscript != last,
                subscript == first,
                sorted(strides[subscript], reverse=True),
            ),
            reverse=True,
        )
    axes = tuple([Axis(extents[s], out.index(s) if s in out else None) for s in order])
    return Form("contract", axes, (), {subscript: level for level, subscript in enumerate(order)})


def check_dtype(value: Value, node: Node | None = None) -> None:
    """Raise LoweringError for a dtype that kernels do not compute with."""
    if value.dtype.char not in SUPPORTED:
        raise LoweringError(
            f"kernels do not compute with {value.dtype.name}",
            where=None if node is None else node.site,
            why="they compute with booleans, integers, float32 and float64",
            remedy="use float32 or float64: x.astype(np.float32)",
        )


def _claim_outputs(graph: Graph, outputs: Sequence[Buffer]) -> dict[Value, Buffer]:
    """Return which values are written straight into an output: each once, and views for what they view."""
    claimed: dict[Value, Buffer] = {}
    inputs = set(graph.inputs)
    for value, buffer in zip(graph.outputs, outputs, strict=True):
        base = base_of_view(value)
        if base in inputs or base.node is None or isinstance(base, Literal) or base in claimed:
            continue
        claimed[base] = buffer
    return claimed


class _Reach:
    """Counts the positions of stored values that one element of a value is computed from.

    A path from one to the other counts once for each multiset of index maps on it: shifts, of which stencils are made, commute.
    """

    def __init__(self) -> None:
        self._paths: dict[Value, frozenset[tuple[int, ...]]] = {}
        self._maps: dict[Any, int] = {}

    def enter(self, node: Node) -> int:
        """Take note of a value that is computed where it is used; return the number of its paths."""
        paths: set[tuple[int, ...]] = set()
        for position, value in enumerate(node.inputs):
            if isinstance(value, Literal):
                continue
            before = self._paths.get(value, _HERE)
            if isinstance(node.op, Elementwise):
                paths |= before
            else:
                map_ = self._maps.setdefault(self._key(node, position), len(self._maps))
                paths.update([tuple(sorted((*path, map_))) for path in before])
        self._paths[node.outs[0]] = frozenset(paths)
        return len(paths)

    def stop(self, value: Value) -> None:
        """Take note that a value is stored."""
        del self._paths[value]

    def _key(self, node: Node, position: int) -> Any:
        return node.op, position, *[(name, repr(param)) for name, param in node.params.items()]


_HERE: Final = frozenset([()])
