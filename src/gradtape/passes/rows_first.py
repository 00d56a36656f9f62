"""Put the axis of the rows first, where a program does the same for each of many rows.

NumPy code often keeps many observations along the last axis: products of small matrices with all observations at once, sums over the small
axes between. Nest by nest, every intermediate then goes through memory. With the long axis first, the scheduler walks it once and keeps
what belongs to a row, or to a block of rows, in registers and in the first cache. A value that is only computed has no layout of
its own, so nothing is copied: inputs and outputs are reached by other address arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from ..ir.builder import at
from ..ir.graph import Graph, Literal, Node, Value
from ..kinds.contract import Contract
from ..kinds.elementwise import Elementwise
from ..kinds.reduction import Reduction
from ..kinds.registry import ROWS
from .rewrite import with_outputs

MANY: Final = 256
"""Rows from which walking them once pays."""

SMALL: Final = 1024
"""Elements of one row up to which a block of rows stays in the second cache: 250 a row gain a factor of 2 to 6, 3200 lose a fifth."""

LARGE_SIDE: Final = 32
"""Rows, columns and summands from which a product is large."""

WORTH: Final = 2**15
"""Elements of intermediates from which they leave the first cache."""

Axis = tuple[Value, int]


def rows_first(graph: Graph) -> Graph:
    """Return the graph with the rows' axis first in every intermediate that has it."""
    classes = _Classes(graph)
    rows = classes.rows()
    return graph if rows is None else _Mover(graph, rows).result()


class _Classes:
    """Which axes run along each other: equal loops of equal length."""

    def __init__(self, graph: Graph) -> None:
        self._parent: dict[Axis, Axis] = {}
        self._graph = graph
        for node in graph.nodes:
            for mine, theirs in _same_axes(node):
                self._join(mine, theirs)

    def _find(self, axis: Axis) -> Axis:
        while (parent := self._parent.get(axis, axis)) != axis:
            self._parent[axis] = self._parent.get(parent, parent)
            axis = parent
        return axis

    def _join(self, mine: Axis, theirs: Axis) -> None:
        self._parent[self._find(mine)] = self._find(theirs)

    def rows(self) -> dict[Value, int] | None:
        """Return where the rows' axis is in each value that has it; None where no axis is worth it."""
        places: dict[Axis, dict[Value, int]] = {}
        twice: set[Axis] = set()
        made = [node.out for node in self._graph.nodes if len(node.outs) == 1]
        for value in dict.fromkeys([*self._graph.inputs, *self._graph.constants(), *made]):
            for place in range(value.ndim):
                found = self._find((value, place))
                if value in places.setdefault(found, {}):
                    twice.add(found)
                places[found][value] = place
        best, gain = None, WORTH
        intermediate = set(made)
        for found, where in places.items():
            extent = found[0].shape[found[1]]
            if found in twice or extent < MANY or any(v.size > SMALL * extent for v in where):
                continue
            moved = sum(
                v.size for v, place in where.items() if place > 0 and v.ndim > 1 and v in intermediate
            )
            if moved >= gain and self._has_small_products(where):
                best, gain = where, moved
        return best

    def _has_small_products(self, where: dict[Value, int]) -> bool:
        """Whether small matrices meet the rows, and no large ones: large ones are BLAS's, and without any NumPy's layout is as good."""
        products = [
            node
            for node in self._graph.nodes
            if isinstance(node.op, Contract) and any(value in where for value in (*node.inputs, node.out))
        ]
        return bool(products) and all(_narrowest(node) < LARGE_SIDE for node in products)


def _same_axes(node: Node) -> list[tuple[Axis, Axis]]:
    """Return the pairs of axes, one of an input and one of the output (or of the other input), that run along each other."""
    if len(node.outs) != 1:
        return []
    op, out, params = node.op, node.out, node.params
    if isinstance(op, Elementwise):
        return [
            ((v, k), (out, k)) for v in node.inputs if not isinstance(v, Literal) for k in range(out.ndim)
        ]
    if isinstance(op, Reduction):
        kept = [k for k in range(node.inputs[0].ndim) if k not in params["axes"]]
        return [((node.inputs[0], axis), (out, k)) for k, axis in enumerate(kept)]
    if isinstance(op, Contract):
        home: dict[int, Axis] = {}
        pairs = []
        for value, letters in zip(
            (*node.inputs, out), (params["x"], params["y"], params["out"]), strict=True
        ):
            for k, letter in enumerate(letters):
                if letter in home:
                    pairs.append(((value, k), home[letter]))
                home[letter] = (value, k)
        return pairs
    x = node.inputs[0] if node.inputs else None
    if op.name == "expand" and x is not None and not isinstance(x, Literal):
        return [((x, k), (out, axis)) for k, axis in enumerate(params["axes"])]
    if op.name == "permute" and x is not None:
        return [((x, axis), (out, k)) for k, axis in enumerate(params["axes"])]
    return []


def _narrowest(node: Node) -> int:
    """Return the smallest of rows, columns and summands of a product."""
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    extents = dict(zip((*x, *y), (*node.inputs[0].shape, *node.inputs[1].shape), strict=True))
    groups = (
        [s for s in out if s in x and s not in y],
        [s for s in out if s in y and s not in x],
        [s for s in x if s in y and s not in out],
    )
    narrowest: int = min(prod([extents[s] for s in group]) for group in groups)
    return narrowest


def _front(place: int, ndim: int) -> tuple[int, ...]:
    """Return the permutation that puts an axis first."""
    return (place, *[k for k in range(ndim) if k != place])


def _inverse(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axes.index(k) for k in range(len(axes)))


class _Mover:
    """Rebuilds a graph; for each value there is the new form as it was, the one with the rows first, or both."""

    def __init__(self, graph: Graph, rows: dict[Value, int]) -> None:
        self._graph = graph
        self._rows = {value: place for value, place in rows.items() if place > 0}
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
        found = self._plain.get(value)
        if found is None:
            moved = self._moved.get(value)
            if moved is None:
                return value
            found = self._plain[value] = _permuted(moved, _inverse(_front(self._rows[value], value.ndim)))
        return found

    def _in_front(self, value: Value) -> Value:
        """Return the form with the rows first (of a value without such an axis, or with it there, the form as it was)."""
        if value not in self._rows:
            return self._as_was(value)
        found = self._moved.get(value)
        if found is None:
            found = self._moved[value] = _permuted(self._as_was(value), _front(self._rows[value], value.ndim))
        return found

    def _order(self, value: Value) -> tuple[int, ...]:
        """Return which old axis stands where in the form with the rows first."""
        place = self._rows.get(value)
        return tuple(range(value.ndim)) if place is None else _front(place, value.ndim)

    def _moved_node(self, node: Node) -> Value | None:
        """Return the output with the rows first, computed from inputs with the rows first."""
        op, out, params = node.op, node.out, node.params
        order = self._order(out)
        if isinstance(op, Elementwise):
            return _apply(node, [self._in_front(v) for v in node.inputs], params)
        if isinstance(op, Contract):
            letters = {
                name: tuple(params[name][k] for k in self._order(value))
                for name, value in zip(("x", "y", "out"), (*node.inputs, out), strict=True)
            }
            return _apply(node, [self._in_front(v) for v in node.inputs], letters)
        x = node.inputs[0]
        if isinstance(op, Reduction):
            if op.positional:
                return None
            old = self._order(x)
            axes = tuple(sorted(old.index(axis) for axis in params["axes"]))
            return _apply(node, [self._in_front(x)], {"axes": axes})
        if op.name == "expand":
            shape = tuple(out.shape[k] for k in order)
            axes = tuple(order.index(params["axes"][k]) for k in self._order(x))
            return _apply(node, [self._in_front(x)], {"shape": shape, "axes": axes})
        if op.name == "permute":
            old = self._order(x)
            return _permuted(self._in_front(x), tuple(old.index(params["axes"][k]) for k in order))
        return None


def _apply(node: Node, inputs: Sequence[Value], params: dict[str, Any]) -> Value:
    result = Node(node.op, tuple(inputs), params, node.site)
    (type_,) = node.op.infer([value.aval for value in inputs], params)
    made = Value(type_, result)
    result.outs = (made,)
    return made


def _permuted(value: Value, axes: tuple[int, ...]) -> Value:
    if axes == tuple(range(value.ndim)):
        return value
    op: Any = ROWS["permute"]
    permuted: Value = op(value, axes=axes)
    return permuted
