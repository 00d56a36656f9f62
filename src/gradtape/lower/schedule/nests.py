"""Roots: the values that a loop nest computes. Everything else is computed inside of the nests that use
it."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from gradtape.errors import LoweringError
from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.ir.types import Shape
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.matrix import Matrix
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.sort import Sort
from gradtape.loops.affine import Position, Var, affine
from gradtape.loops.ir import Buffer
from gradtape.passes.layout.contract_transposes import innermost_letter
from gradtape.records import record, value_record

if TYPE_CHECKING:
    from gradtape.lower.schedule.fusion import Block, Loop

JOINED_INLINE = 3
"""Pieces of a join up to which each element asks in which piece it lies; more are copied one after the
other."""

SUPPORTED = frozenset("?bhilqBHILQfd")


@value_record
class Axis:
    """One loop that a root needs.

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


@record
class Root:
    """A value that a nest computes, with what is known of the nest.

    Attributes
    ----------
    value : Value
        What is computed.
    kind : str
        ``each`` (elementwise), ``reduce``, ``argreduce``, ``contract``, ``scan``, ``scatter``, ``join``,
        ``blas``, ``routine``, ``guard``, ``control`` (a loop over time or a branch), ``result`` (one of its
        outputs) or ``held`` (what a loop carries, when a turn begins).
    axes : tuple of Axis
        The loops, outermost first.
    level_of : tuple of int
        For each axis of the operand (or letter of the contraction), its loop.
    """

    value: Value
    kind: str
    axes: tuple[Axis, ...]
    level_of: tuple[int, ...]
    node: Node | None = None
    order: int = 0
    output: Buffer | None = None
    guard: tuple[int, int] | None = None
    split: bool = True
    variables: tuple[Position, ...] = ()
    reads: dict[Root, set[tuple[Position, ...]]] = field(default_factory=dict)
    sources: set[Value] = field(default_factory=set)
    breaks: dict[int, set[int]] = field(default_factory=dict)
    sites: dict[Value, set[tuple[Position, ...]]] = field(default_factory=dict)
    path: list[Loop] = field(default_factory=list)
    block: Block | None = None
    storage: Buffer | None = None
    stored_axes: tuple[int, ...] = ()
    spare: Buffer | None = None
    in_place_of: Root | None = None
    turn: int = 0
    rank: int = 0
    target: tuple[Position, ...] = ()
    base_index: tuple[Position, ...] = ()
    letters: dict[int, int] = field(default_factory=dict)
    prepares: bool = False
    made_for: Root | None = None
    main: Root | None = None
    results: tuple[Root, ...] = ()
    following: Buffer | None = None
    functions: list[str] = field(default_factory=list)
    outside: dict[Value, int] = field(default_factory=dict)
    """Attributes below `level_of` are filled in by the stages: exploring, placing, storing."""

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

    def carries(self, level: int) -> bool:
        """Return whether a running value is carried in a register around this loop."""
        return (
            self.kind == "scan"
            and self.node is not None
            and level == self.node.params["axis"] == len(self.axes) - 1
        )

    def result_index(self, values: tuple[Position, ...]) -> tuple[Position, ...]:
        """Return the position in the result when the loops stand at `values`."""
        index: list[Position] = [0] * self.value.ndim
        for level, axis in enumerate(self.axes):
            if axis.position is not None:
                index[axis.position] = values[level]
        if self.kind == "scan":
            assert self.node is not None
            if self.node.params["reverse"]:
                axis_ = self.node.params["axis"]
                index[axis_] = self.shape[axis_] - 1 - index[axis_]
        return tuple(index)

    def operand_index(self, values: tuple[Position, ...]) -> tuple[Position, ...]:
        """Return the position in the operand when the loops stand at `values`."""
        if self.kind == "scan":
            return self.result_index(values)
        return tuple([values[level] for level in self.level_of])


def fresh_variables(root: Root) -> tuple[Position, ...]:
    """Return one variable per loop; loops of one turn stand at zero."""
    return tuple(
        affine(Var(f"r{root.order}_{level}", 0, axis.extent - 1)) if axis.extent > 1 else 0
        for level, axis in enumerate(root.axes)
    )


def parallel_axes(shape: Shape) -> tuple[Axis, ...]:
    """Return a loop for each axis of a result, in order."""
    return tuple(Axis(extent, position) for position, extent in enumerate(shape))


def root_for(node: Node) -> Root | None:
    """Return the root for a node that needs one whatever its use; None for what is computed where it is
    used."""
    op, out = node.op, node.out
    _check_dtypes(node)
    if isinstance(op, Elementwise):
        return Root(out, "each", (), (), node) if out.shape == () else None
    if isinstance(op, IndexMap):
        return None
    if isinstance(op, Reduction):
        return _reduction_root(node, op)
    if isinstance(op, Contract):
        return contract_root(node)
    if isinstance(op, Cumulative):
        axis = node.params["axis"]
        axes = tuple(Axis(extent, k, closed=k >= axis) for k, extent in enumerate(out.shape))
        return Root(out, "scan", axes, tuple(range(out.ndim)), node)
    if isinstance(op, Accumulate):
        shape = node.inputs[1].shape
        axes = tuple(Axis(extent, None, closed=True) for extent in shape or (1,))
        return Root(out, "scatter", axes, tuple(range(len(shape))), node)
    if isinstance(op, Join):
        if len(node.inputs) <= JOINED_INLINE:
            return None
        return Root(out, "join", (Axis(1, None, closed=True),), (), node)
    if isinstance(op, Sort | Matrix):
        return Root(out, "routine", (), (), node)
    raise LoweringError(
        f"kernels do not know the op {op.name}", where=node.site, why="the interpreter runs it"
    )


def _reduction_root(node: Node, op: Reduction) -> Root:
    shape = node.inputs[0].shape
    reduced = node.params["axes"]
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    order = [*kept, *reduced] if op.positional else list(range(len(shape)))
    axes = tuple(Axis(shape[axis], None if axis in reduced else kept.index(axis)) for axis in order)
    level_of = tuple(order.index(axis) for axis in range(len(shape)))
    return Root(node.out, "argreduce" if op.positional else "reduce", axes, level_of, node)


def contract_root(node: Node) -> Root:
    """Return a contraction as loops, in the order that makes the innermost ones run along memory.

    Outermost is what takes the largest steps through the largest arrays: the rows, where there are many, and not a small array's.
    """
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    extents: dict[int, int] = {}
    strides: dict[int, list[int]] = {}
    steps: dict[int, int] = {}
    for letters, value in ((x, node.inputs[0]), (y, node.inputs[1]), (out, node.out)):
        stride = 1
        for letter, extent in zip(reversed(letters), reversed(value.shape), strict=True):
            extents[letter] = extent
            strides.setdefault(letter, []).append(stride)
            steps[letter] = steps.get(letter, 0) + stride * value.size
            stride *= extent
    last = innermost_letter(node)
    first = max(extents, key=lambda letter: (letter != last, steps[letter]), default=None)
    order = sorted(
        extents,
        key=lambda letter: (letter != last, letter == first, sorted(strides[letter], reverse=True)),
        reverse=True,
    )
    axes = tuple(Axis(extents[s], out.index(s) if s in out else None) for s in order)
    return Root(node.out, "contract", axes, (), node, letters={s: level for level, s in enumerate(order)})


def _check_dtypes(node: Node) -> None:
    for value in (*node.inputs, *node.outs):
        check_dtype(value, node)


def check_dtype(value: Value, node: Node | None = None) -> None:
    """Raise LoweringError for a dtype that kernels do not compute with."""
    if value.dtype.char not in SUPPORTED:
        raise LoweringError(
            f"kernels do not compute with {value.dtype.name}",
            where=None if node is None else node.site,
            why="they know booleans, integers, float32 and float64",
            remedy="nothing need be done: the interpreter runs it",
        )


def base_of_view(value: Value) -> Value:
    """Return the array that a value is a reshaped view of; a number may stand in a register, of which there is no view."""
    while (
        value.node is not None
        and value.node.op.name == "reshape"
        and not isinstance(value.node.inputs[0], Literal)
        and value.node.inputs[0].shape != ()
    ):
        value = value.node.inputs[0]
    return value


def part_of(value: Value) -> tuple[Value, int]:
    """Return the value in whose memory all of a value stands one after the other, and the element at which it begins."""
    offset = 0
    while value.node is not None and not isinstance(value.node.inputs[0], Literal):
        node, whole = value.node, value.node.inputs[0]
        if node.op.name == "slice" and _is_run(node):
            stride = 1
            for start, extent in zip(reversed(node.params["starts"]), reversed(whole.shape), strict=True):
                offset += start * stride
                stride *= extent
        elif node.op.name != "reshape" or whole.shape == ():  # a number stands in a register
            break
        value = whole
    return value, offset


def _is_run(node: Node) -> bool:
    """Whether a slice takes elements that stand one after the other."""
    shape, whole = node.params["shape"], node.inputs[0].shape
    if any(stride != 1 for stride in node.params["strides"]) or 0 in shape:
        return False
    cut = [axis for axis, (extent, all_) in enumerate(zip(shape, whole, strict=True)) if extent != all_]
    return not cut or all(extent == 1 for extent in shape[: cut[-1]])


def count_uses(graph: Graph) -> dict[Value, int]:
    """Return how often each value is an operand or an output."""
    uses: dict[Value, int] = {}
    for node in graph.nodes:
        for value in node.inputs:
            uses[value] = uses.get(value, 0) + 1
    for value in (*graph.outputs, *[value for value, _ in graph.guards]):
        uses[value] = uses.get(value, 0) + 1
    return uses


def flat(index: tuple[Position, ...], shape: tuple[int, ...]) -> Position:
    """Return the position in a flat buffer of an index into a shape."""
    address: Position = 0
    for position, extent in zip(index, shape, strict=True):
        address = address * extent + position
    return address
