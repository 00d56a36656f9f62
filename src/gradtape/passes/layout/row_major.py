"""Row-major layout: the axis of the observations comes first, where a program does the same for each of many.

NumPy code often keeps many observations along the last axis: products of small matrices with all observations at once, sums over the small
axes between. Nest by nest, every intermediate then goes through memory. With the long axis first, the scheduler walks it once and keeps
what belongs to a row, or to a block of rows, in registers and in the first cache. A value that is only computed has no layout of
its own, so nothing is copied: inputs and outputs are reached by other address arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.ir.builder import at
from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.contract import Contract
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.reduction import Reduction
from gradtape.ops.core.shape import expand_row, permute, permute_row
from gradtape.passes.layout.axes import AxisClasses, narrowest
from gradtape.passes.rewrite import applied, with_outputs

MANY: Final = 256
"""Rows from which one loop over them pays."""

SMALL: Final = 1024
"""Elements of one row up to which a block of rows stays in the L2 cache: 250 a row gain a factor of 2 to 6, 3200 lose a fifth."""

LARGE_SIDE: Final = 16
"""Rows, columns and summands from which a product is large."""

WORTH: Final = 2**15
"""Elements of intermediates from which they leave the L1 cache."""


def make_row_major(graph: Graph) -> Graph:
    """Return the graph with the rows' axis first in every intermediate that has it."""
    rows = _rows(graph)
    return graph if rows is None else _Mover(graph, rows).result()


def _rows(graph: Graph) -> dict[Value, int] | None:
    """Return where the rows' axis is in each value that has it; None where no axis is worth it."""
    classes = AxisClasses(graph)
    intermediate = set(classes.made())
    best, gain = None, WORTH
    for extent, where in classes.places():
        if extent < MANY or any(v.size > SMALL * extent for v in where):
            continue
        moved = sum(
            v.size for v, position in where.items() if position > 0 and v.ndim > 1 and v in intermediate
        )
        if moved >= gain and _has_small_products(graph, where):
            best, gain = where, moved
    return best


def _has_small_products(graph: Graph, where: dict[Value, int]) -> bool:
    """Whether small matrices meet the rows, and no large ones: large ones are BLAS's, and without any NumPy's layout is as good."""
    products = [
        node
        for node in graph.nodes
        if isinstance(node.op, Contract) and any(value in where for value in (*node.inputs, node.out))
    ]
    return bool(products) and all(narrowest(node) < LARGE_SIDE for node in products)


def _front(position: int, ndim: int) -> tuple[int, ...]:
    """Return the permutation that puts an axis first."""
    return (position, *[k for k in range(ndim) if k != position])


def _inverse(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axes.index(k) for k in range(len(axes)))


class _Mover:
    """Rebuilds a graph; for each value there is the new form as it was, the one with the rows first, or both."""

    def __init__(self, graph: Graph, rows: dict[Value, int]) -> None:
        self._graph = graph
        self._rows = {value: position for value, position in rows.items() if position > 0}
        self._plain: dict[Value, Value] = {}
        self._moved: dict[Value, Value] = {}

    def result(self) -> Graph:
        for node in self._graph.nodes:
            with at(node.site):
                self._rebuild(node)
        outputs = [*self._graph.outputs, *[value for value, _ in self._graph.guards]]
        return with_outputs(self._graph, {value: self._as_was(value) for value in outputs})

    def _rebuild(self, node: Node) -> None:
        concerned = len(node.outs) == 1 and any(v in self._rows for v in (*node.inputs, node.out))
        moved = self._moved_node(node) if concerned else None
        if moved is not None:
            table = self._moved if node.out in self._rows else self._plain
            table[node.out] = moved
            return
        inputs = tuple([self._as_was(value) for value in node.inputs])
        copy = node if inputs == node.inputs else node.copy(inputs)
        self._plain.update(zip(node.outs, copy.outs, strict=True))

    def _as_was(self, value: Value) -> Value:
        plain = self._plain.get(value)
        if plain is None:
            moved = self._moved.get(value)
            if moved is None:
                return value
            plain = self._plain[value] = permute(moved, _inverse(_front(self._rows[value], value.ndim)))
        return plain

    def _in_front(self, value: Value) -> Value:
        """Return the form with the rows first (of a value without such an axis, or with it there, the form as it was)."""
        if value not in self._rows:
            return self._as_was(value)
        moved = self._moved.get(value)
        if moved is None:
            moved = self._moved[value] = permute(self._as_was(value), _front(self._rows[value], value.ndim))
        return moved

    def _order(self, value: Value) -> tuple[int, ...]:
        """Return which old axis stands where in the form with the rows first."""
        position = self._rows.get(value)
        return tuple(range(value.ndim)) if position is None else _front(position, value.ndim)

    def _moved_node(self, node: Node) -> Value | None:
        """Return the output with the rows first, computed from inputs with the rows first."""
        op, out, params = node.op, node.out, node.params
        order = self._order(out)
        if isinstance(op, Elementwise):
            return applied(node, [self._in_front(v) for v in node.inputs], params)
        if isinstance(op, Contract):
            subscripts = {
                name: tuple(params[name][k] for k in self._order(value))
                for name, value in zip(("x", "y", "out"), (*node.inputs, out), strict=True)
            }
            return applied(node, [self._in_front(v) for v in node.inputs], subscripts)
        x = node.inputs[0]
        if isinstance(op, Reduction):
            if op.positional:
                return None
            old = self._order(x)
            axes = tuple(sorted(old.index(axis) for axis in params["axes"]))
            return applied(node, [self._in_front(x)], {"axes": axes})
        if op is expand_row:
            shape = tuple(out.shape[k] for k in order)
            axes = tuple(order.index(params["axes"][k]) for k in self._order(x))
            return applied(node, [self._in_front(x)], {"shape": shape, "axes": axes})
        if op is permute_row:
            old = self._order(x)
            return permute(self._in_front(x), tuple(old.index(params["axes"][k]) for k in order))
        return None
