"""Store forwarding: a read of an array after writes to it becomes the written value, or a read of the array before.

Then a loop that writes one element after the other carries what it reads, not the array. A loop that writes the same elements in each
iteration carries the array anyway: there the reads stay as they are, which are alike from the first iteration on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.ir.builder import at
from gradtape.ir.graph import Node, Value
from gradtape.ir.types import Shape
from gradtape.ops.core.elementwise.cast import identity
from gradtape.ops.core.indexing import update_row
from gradtape.ops.core.shape import slice_row

MAX_STEPS: Final = 16
"""Writes that are searched for the one that a read overlaps."""

PERIOD: Final = 4
"""Writes to an array, at most, after which the same elements are written again in each iteration of a loop."""


def forward_stores(nodes: Sequence[Node], outputs: Sequence[Value]) -> tuple[Sequence[Node], list[Value]]:
    """Return nodes and outputs in which reads bypass writes to other elements."""
    if not any(node.op is update_row for node in nodes):
        return nodes, list(outputs)
    becomes: dict[Value, Value] = {}
    remaining: list[Node] = []
    repeated = _repeated_writes(nodes)
    for node in nodes:
        inputs = node.inputs
        if becomes and any(value in becomes for value in inputs):
            inputs = tuple([becomes.get(value, value) for value in inputs])
        if node.op is slice_row and _written_by(node.inputs[0]) not in repeated:
            instead = _read(node, inputs[0])
            if instead is not None:
                becomes[node.out] = instead
                if (
                    instead.node is not None
                    and instead.node.op is slice_row
                    and instead.node.site is node.site
                ):
                    remaining.append(instead.node)
                continue
        if inputs is not node.inputs:
            copy = node.copy(inputs)
            for old, new in zip(node.outs, copy.outs, strict=True):
                new.tags = old.tags
                becomes[old] = new
            copy.set_tags(node.tags)
            node = copy
        remaining.append(node)
    return remaining, [becomes.get(value, value) for value in outputs]


def _repeated_writes(nodes: Sequence[Node]) -> set[Node | None]:
    """Return the writes to elements that are written again after a few other writes to the array."""
    repeated: set[Node | None] = set()
    for node in nodes:
        if node.op is not update_row:
            continue
        earlier: Node | None = node
        for _ in range(PERIOD):
            assert earlier is not None
            earlier = _written_by(earlier.inputs[0])
            if earlier is None or earlier.op is not update_row:
                break
            if _place(earlier) == _place(node):
                repeated |= {earlier, node}
                break
    return repeated


def _written_by(value: Value) -> Node | None:
    """Return the node that makes an array; `x[key] += v` leaves an identity behind it."""
    node = value.node
    while node is not None and node.op is identity:
        node = node.inputs[0].node
    return node


def _place(write: Node) -> tuple[Shape, Shape, Shape]:
    return write.params["starts"], write.inputs[1].shape, write.params["strides"]


def _read(node: Node, x: Value) -> Value | None:
    """Return the replacement of a slice of `x`; None where it stays."""
    starts, shape, strides = (node.params[name] for name in ("starts", "shape", "strides"))
    source = x
    for _ in range(MAX_STEPS):
        write = source.node
        if write is None or write.op is not update_row or source.data is not None:
            break
        v = write.inputs[1]
        into, by = write.params["starts"], write.params["strides"]
        if _disjoint(starts, shape, strides, into, v.shape, by):
            source = write.inputs[0]
            continue
        if shape == v.shape and starts == into and (strides == by or max(shape, default=1) <= 1):
            return v
        is_contiguous = all(step == 1 for step in (*strides, *by))
        body_value = all(
            begin <= start and start + extent <= begin + whole
            for start, extent, begin, whole in zip(starts, shape, into, v.shape, strict=True)
        )
        if is_contiguous and body_value:
            offset = tuple(start - begin for start, begin in zip(starts, into, strict=True))
            return _slice(node, v, offset)
        break
    return None if source is x else _slice(node, source, starts)


def _slice(node: Node, x: Value, starts: Shape) -> Value:
    with at(node.site):
        read = slice_row(x, starts=starts, shape=node.params["shape"], strides=node.params["strides"])
    read.tags = node.tags
    assert read.node is not None
    read.node.set_tags(node.tags)
    return read


def _disjoint(
    starts: Shape, shape: Shape, strides: Shape, others: Shape, extents: Shape, steps: Shape
) -> bool:
    for start, extent, stride, other, count, step in zip(
        starts, shape, strides, others, extents, steps, strict=True
    ):
        low, high = sorted((start, start + (extent - 1) * stride))
        begin, end = sorted((other, other + (count - 1) * step))
        if high < begin or end < low:
            return True
    return False
