"""Slices of joins: parts of arrays that were put together are read from the pieces, without the array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.ir.types import Shape
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import repeated_number
from gradtape.kinds.join import Join, starts
from gradtape.ops.core.shape import expand, slice_, slice_row
from gradtape.passes.rewrite import applied, rewrite


def slice_pieces(graph: Graph) -> Graph:
    """Return the graph in which a slice that lies within one piece of a join is a slice of that piece.

    ``f(join(a, b), c)[:n]`` is ``f(a, c[:n])`` where nothing but slices reads the result of an elementwise ``f``: gates of recurrent
    networks, which are computed together and used one by one.
    """
    opened = _read_in_parts(graph)
    if not opened:
        return graph
    known: dict[tuple[Value, Shape, Shape], Value | None] = {}

    def rule(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if not opened.isdisjoint(node.outs):
            if inputs == node.inputs:
                return None
            outs = node.copy(inputs).outs
            opened.update(outs)
            return outs
        if node.op is not slice_row or inputs[0] not in opened:
            return None
        starts_, shape, strides = (node.params[name] for name in ("starts", "shape", "strides"))
        if 0 in shape or any(stride != 1 for stride in strides):
            return None
        part = _Part(shape, opened, known).of(inputs[0], starts_)
        return None if part is None else (part,)

    return rewrite(graph, rule)


def _read_in_parts(graph: Graph) -> set[Value]:
    """Return the joins, and those elementwise functions of joins that slices alone read, none of their elements twice."""
    opened = {node.out for node in graph.nodes if isinstance(node.op, Join)}
    if not opened:
        return opened
    readers: dict[Value, list[Node]] = {}
    made: list[Node] = []
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
        if isinstance(node.op, Elementwise) and not node.op.is_opaque and not opened.isdisjoint(node.inputs):
            opened.add(node.out)
            made.append(node)
    ends = {*graph.outputs, *[value for value, _ in graph.guards]}
    for node in reversed(made):
        if node.out in ends or not _slices_alone(node, readers.get(node.out, ()), opened):
            opened.discard(node.out)
    return opened


def _slices_alone(node: Node, readers: Sequence[Node], opened: set[Value]) -> bool:
    """Return whether those that read an elementwise node are slices, of fewer elements than it has, and what slices alone read."""
    size = sum(reader.out.size for reader in readers if reader.op is slice_row)
    return size <= node.out.size and all(
        reader.op is slice_row or (isinstance(reader.op, Elementwise) and reader.out in opened)
        for reader in readers
    )


@dataclass
class _Part:
    """Takes the same part of several arrays of one shape; `opened` are those that are never made as a whole.

    `known` are the parts that have been taken before: by array, place and shape.
    """

    shape: Shape
    opened: set[Value]
    known: dict[tuple[Value, Shape, Shape], Value | None]

    def of(self, value: Value, begin: Shape) -> Value | None:
        """Return the elements from a place on; None where an array that is made as a whole is better cut."""
        key = (value, begin, self.shape)
        if key not in self.known:
            self.known[key] = self._taken(value, begin)
        return self.known[key]

    def _taken(self, value: Value, begin: Shape) -> Value | None:
        node = value.node
        assert node is not None
        if isinstance(node.op, Join):
            axis: int = node.params["axis"]
            first, last = begin[axis], begin[axis] + self.shape[axis]
            for start, piece in zip(starts(node), node.inputs, strict=True):
                if start <= first and last <= start + piece.shape[axis]:
                    return self._cut(piece, (*begin[:axis], first - start, *begin[axis + 1 :]))
            return None
        operands = []
        for operand in node.inputs:
            part: Value | None = operand
            if not isinstance(operand, Literal) and operand.shape != ():
                part = self._cut(operand, begin)
            if part is None:
                return None
            operands.append(part)
        return applied(node, operands, node.params)

    def _cut(self, value: Value, begin: Shape) -> Value | None:
        number = repeated_number(value)
        if number is not None:
            return expand(number, self.shape, ())
        if value in self.opened:
            return self.of(value, begin)
        return slice_(value, begin, self.shape, (1,) * value.ndim)
