"""Equivalence classes of axes: those that one loop over the same positions would run along."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.kinds.contract import Contract, extents_of, groups_of
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.reduction import Reduction
from gradtape.ops.core.shape import expand_row, permute_row

Axis = tuple[Value, int]


class AxisClasses:
    """The classes of the axes of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._parent: dict[Axis, Axis] = {}
        self._graph = graph
        for node in graph.nodes:
            for mine, theirs in same_axes(node):
                self._join(mine, theirs)

    def _find(self, axis: Axis) -> Axis:
        while (parent := self._parent.get(axis, axis)) != axis:
            self._parent[axis] = self._parent.get(parent, parent)
            axis = parent
        return axis

    def _join(self, mine: Axis, theirs: Axis) -> None:
        self._parent[self._find(mine)] = self._find(theirs)

    def places(self) -> Iterator[tuple[int, dict[Value, int]]]:
        """Yield for each class whose members have its axis once: how long it is, and where each member has it."""
        found: dict[Axis, dict[Value, int]] = {}
        twice: set[Axis] = set()
        for value in dict.fromkeys([*self._graph.inputs, *self._graph.constants(), *self.made()]):
            for place in range(value.ndim):
                axis = self._find((value, place))
                if value in found.setdefault(axis, {}):
                    twice.add(axis)
                found[axis][value] = place
        for (value, place), where in found.items():
            if (value, place) not in twice:
                yield value.shape[place], where

    def made(self) -> list[Value]:
        """Return what nodes with a single result make."""
        return [node.out for node in self._graph.nodes if len(node.outs) == 1]


def same_axes(node: Node) -> list[tuple[Axis, Axis]]:
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
        for value, subscripts in zip(
            (*node.inputs, out), (params["x"], params["y"], params["out"]), strict=True
        ):
            for k, subscript in enumerate(subscripts):
                if subscript in home:
                    pairs.append(((value, k), home[subscript]))
                home[subscript] = (value, k)
        return pairs
    x = node.inputs[0] if node.inputs else None
    if op is expand_row and x is not None and not isinstance(x, Literal):
        return [((x, k), (out, axis)) for k, axis in enumerate(params["axes"])]
    if op is permute_row and x is not None:
        return [((x, axis), (out, k)) for k, axis in enumerate(params["axes"])]
    return []


def narrowest(node: Node) -> int:
    """Return the smallest of rows, columns and summands of a product."""
    extents = extents_of(node)
    _, *groups = groups_of(node.params)
    return min(prod([extents[s] for s in group]) for group in groups)
