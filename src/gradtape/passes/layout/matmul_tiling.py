"""Matmul tiling: a tile of rows goes through a chain of large products while it is in the cache.

Where products of matrices with many rows follow each other, with elementwise code between, every intermediate goes through memory
between one product and the next. This pass splits the axis of the rows in two, tiles and rows of a tile, and puts the tiles first in every
intermediate. The scheduler then makes one loop over the tiles: BLAS multiplies a tile at a time, and sums over the rows are accumulated
tile by tile. Nothing is copied: a split axis is other address arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from gradtape.ir.builder import at
from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.contract import Contract, extents_of
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.reduction import Reduction
from gradtape.ops.core.shape import expand_row, permute, permute_row, reshape
from gradtape.passes.layout.axes import AxisClasses, narrowest
from gradtape.passes.rewrite import applied, with_outputs

PRODUCT: Final = 1_000_000
"""Multiplications up to which OpenBLAS multiplies without copying its operands first: 64 by 64 by 200 takes 62 us, by 1000 490."""

LEAST_ROWS: Final = 32
"""Rows of a tile below which the calls of BLAS cost more than the memory."""

LARGE_SIDE: Final = 16
"""Rows, columns and summands from which a product is BLAS's."""

WORTH: Final = 2**22
"""Bytes of a product's rows from which they leave the L2 cache."""

VECTOR: Final = 8
"""Rows of which a tile is a multiple, where it can be: whole vectors."""

SHARE: Final = 0.5
"""How large the operands without rows may be, which each tile reads again, beside the rows of a tile."""


def tile_matmuls(graph: Graph) -> Graph:
    """Return the graph with the rows' axis split into tiles and rows of a tile, where that pays."""
    plan = _plan(graph)
    return graph if plan is None else _Splitter(graph, plan).result()


def tiling_notes(graph: Graph) -> list[str]:
    """Say what the pass does to a graph, and why.

    Examples
    --------
    >>> tiling_notes(Graph((), (), ()))
    []
    """
    plan = _plan(graph)
    if plan is None:
        return []
    tiles = plan.extent // plan.rows
    per_tile = plan.moved // tiles
    return [
        f"{plan.extent} rows are computed in {tiles} tiles of {plan.rows}: the rows of {plan.products} products take "
        f"{plan.moved / 1e6:.1f} MB, those of a tile {per_tile / 1e6:.1f} MB"
    ]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where the rows' axis is in each value that has it, how many rows a tile has, and what made it pay."""

    places: dict[Value, int]
    extent: int
    rows: int
    products: int
    moved: int


def _plan(graph: Graph) -> _Plan | None:
    products = [
        node for node in graph.nodes if isinstance(node.op, Contract) and narrowest(node) >= LARGE_SIDE
    ]
    if len(products) < 2:
        return None
    for extent, axes_of_values in AxisClasses(graph).places():
        plan = _tile(extent, axes_of_values, products) if extent >= 2 * LEAST_ROWS else None
        if plan is not None and _is_possible(graph, plan):
            return plan
    return None


def _tile(extent: int, axes: dict[Value, int], products: Sequence[Node]) -> _Plan | None:
    """Return how this axis would be split; None where tiles do not pay."""
    concerned = [node for node in products if any(value in axes for value in (*node.inputs, node.out))]
    multiplications = [_bytes_per_row(node, axes) for node in concerned]
    if len(concerned) < 2 or not max(multiplications):
        return None
    values = {value for node in concerned for value in (*node.inputs, node.out)}
    moved = sum(_bytes(value) for value in values if value in axes and value.node is not None)
    reread = sum(_bytes(value) for value in values if value not in axes)
    fitting = [
        rows
        for rows in range(LEAST_ROWS, min(PRODUCT // max(multiplications), extent // 2) + 1)
        if extent % rows == 0 and reread * extent <= SHARE * moved * rows
    ]
    if moved < WORTH or not fitting:
        return None
    rows = max(fitting, key=lambda rows: (rows % VECTOR == 0, rows))
    return _Plan(axes, extent, rows, len(concerned), moved)


def _bytes(value: Value) -> int:
    return value.size * value.dtype.itemsize


def _bytes_per_row(node: Node, axes: dict[Value, int]) -> int:
    """Return the multiplications of a product that one row takes part in; 0 where the rows are a batch of products."""
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    with_subscripts = zip((*node.inputs, node.out), (x, y, out), strict=True)
    row = {subscripts[axes[value]] for value, subscripts in with_subscripts if value in axes}
    batch = {s for s in out if s in x and s in y}
    extents = extents_of(node)
    if row & batch:
        return 0
    return prod(n for s, n in extents.items() if s not in batch | row)


def _is_possible(graph: Graph, plan: _Plan) -> bool:
    """Whether every node with rows can be split, and none needs what has been summed over all rows."""
    axes = plan.places
    summed: set[Value] = set()
    for node in graph.nodes:
        concerned = [value for value in (*node.inputs, *node.outs) if value in axes]
        if any(value in summed for value in node.inputs):
            if any(value in axes for value in node.outs):
                return False
            summed.update(node.outs)
        if not concerned:
            continue
        if len(node.outs) != 1 or not _splits(node):
            return False
        if node.out not in axes:
            summed.add(node.out)
    outside = [*graph.outputs, *[value for value, _ in graph.guards]]
    return all(axes.get(value, 0) == 0 for value in outside)


def _splits(node: Node) -> bool:
    if isinstance(node.op, Reduction):
        return not node.op.positional
    return isinstance(node.op, Elementwise | Contract) or node.op in (expand_row, permute_row)


class _Splitter:
    """Rebuilds a graph; values with rows have the tiles first, and a tile's rows where the rows were."""

    def __init__(self, graph: Graph, plan: _Plan) -> None:
        self._graph = graph
        self._plan = plan
        self._made: dict[Value, Value] = {}

    def result(self) -> Graph:
        for node in self._graph.nodes:
            with at(node.site):
                self._rebuild(node)
        outputs = [*self._graph.outputs, *[value for value, _ in self._graph.guards]]
        return with_outputs(self._graph, {value: self._whole(value) for value in outputs})

    def _whole(self, value: Value) -> Value:
        """Return a value in its own shape; with the rows first in it, that is a view."""
        return reshape(self._form(value), value.shape) if value in self._made else value

    def _rebuild(self, node: Node) -> None:
        axes = self._plan.places
        inputs = [self._form(value) for value in node.inputs]
        if len(node.outs) == 1 and any(value in axes for value in (*node.inputs, node.out)):
            self._made[node.out] = self._split(node, inputs)
            return
        copy = node if tuple(inputs) == node.inputs else node.copy(tuple(inputs))
        self._made.update(zip(node.outs, copy.outs, strict=True))

    def _form(self, value: Value) -> Value:
        """Return what a value has become; inputs are split where they are first used."""
        form = self._made.get(value)
        if form is None:
            axis = self._plan.places.get(value)
            form = self._made[value] = value if axis is None else self._split_input(value, axis)
        return form

    def _split_input(self, value: Value, axis: int) -> Value:
        rows = self._plan.rows
        shape = (*value.shape[:axis], self._plan.extent // rows, rows, *value.shape[axis + 1 :])
        split = reshape(value, shape)
        order = (axis, *[k for k in range(len(shape)) if k != axis])
        return split if axis == 0 else permute(split, order)

    def _shape(self, value: Value) -> tuple[int, ...]:
        axis = self._plan.places.get(value)
        if axis is None:
            return value.shape
        rows = self._plan.rows
        return (self._plan.extent // rows, *value.shape[:axis], rows, *value.shape[axis + 1 :])

    def _split(self, node: Node, inputs: Sequence[Value]) -> Value:
        op, out, params = node.op, node.out, node.params
        axes_of_values = self._plan.places
        if isinstance(op, Elementwise):
            return applied(node, inputs, params)
        if isinstance(op, Contract):
            tile = 1 + max((*params["x"], *params["y"]))
            subscripts = {
                name: (tile, *params[name]) if value in axes_of_values else params[name]
                for name, value in zip(("x", "y", "out"), (*node.inputs, out), strict=True)
            }
            return applied(node, inputs, subscripts)
        x = node.inputs[0]
        moved = x in axes_of_values
        if isinstance(op, Reduction):
            axes = tuple(axis + 1 for axis in params["axes"])
            return applied(node, inputs, {"axes": axes if out in axes_of_values else (0, *axes)})
        first = (0,) if moved else ()
        axes = (*first, *[axis + 1 for axis in params["axes"]])
        if op is expand_row:
            return applied(node, inputs, {"shape": self._shape(out), "axes": axes})
        return applied(node, inputs, {"axes": axes})
