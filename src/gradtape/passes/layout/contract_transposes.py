"""Transposes of the operands of contractions: folded into the subscripts, or packed where each element is read often."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.contract import Contract, extents_of, groups_of
from gradtape.ops.core.shape import permute_row
from gradtape.passes.rewrite import rewrite

SHORT: Final = 64
"""Extent of a sum below which a reduction across a vector costs more than its additions."""

LARGE: Final = 4096
"""Multiplications from which OpenBLAS beats loops. Square products of float64 on AVX-512, microseconds a call, loops and BLAS: n=8 0.07
and 0.15, n=16 0.62 and 0.40, n=32 3.5 and 1.7, n=64 26 and 10."""

REUSED: Final = 16
"""Uses of each element above which a transposed copy of an operand pays."""

PACKED: Final = 2**15
"""Elements up to which the copy stays in the first two caches."""


def fold_transposes(graph: Graph) -> Graph:
    """Return the graph in which no contraction has a transposed operand."""
    return rewrite(graph, _absorb)


def pack_operands(graph: Graph) -> Graph:
    """Return the graph in which an operand that a contraction reads again and again stands as its
    innermost loop wants it.

    Where the axis that is summed over is short and the last of both operands, each sum would be a few
    multiplications and a reduction across a vector. With another axis of the operand last, the products
    are added vector by vector.
    """
    return rewrite(graph, _pack)


def innermost_subscript(node: Node, packing: bool = False) -> int | None:
    """Return the subscript whose loop goes innermost: the one along which operands and result stand in memory
    or stay the same.

    With `packing`, operands that may be copied count as standing right.
    """
    best, least = None, float("inf")
    subscripts = dict.fromkeys((*node.params["out"], *node.params["x"], *node.params["y"]))
    extents = extents_of(node)
    for subscript in subscripts:
        if extents[subscript] == 1:
            continue
        cost = 0.0 if extents[subscript] >= 4 or lengths_vary() else 1.0
        if subscript not in node.params["out"]:
            cost += 0.5 if extents[subscript] <= SHORT and not lengths_vary() else 0.1
        elif node.params["out"][-1] != subscript:
            cost += 2.0
        for position, name in enumerate(("x", "y")):
            own = node.params[name]
            if subscript in own and own[-1] != subscript:
                cost += 0.2 if packing and _may_pack(node, position) else 1.0
        if cost < least:
            best, least = subscript, cost
    return best


def _may_pack(node: Node, position: int) -> bool:
    own, other = (node.params["x"], node.params["y"])[:: 1 if position == 0 else -1]
    extents = extents_of(node)
    value = node.inputs[position]
    reuse = prod(extents[subscript] for subscript in other if subscript not in own)
    return reuse >= REUSED and 1 < value.size <= PACKED and not isinstance(value, Literal)


def _pack(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    if not isinstance(node.op, Contract) or node.out.dtype.kind != "f":
        return None
    operands, params = list(inputs), dict(node.params)
    if is_large(node):
        return _with_batch_first(node, inputs)
    last = innermost_subscript(node, packing=True)
    for position, name in enumerate(("x", "y")):
        own = params[name]
        if last in own and own[-1] != last and _may_pack(node, position):
            packed = (*[subscript for subscript in own if subscript != last], last)
            operands[position] = copy_packed(
                inputs[position], tuple(own.index(subscript) for subscript in packed)
            )
            params[name] = packed
    return _changed(node, operands, params)


def _changed(node: Node, operands: Sequence[Value], params: dict[str, Any]) -> Sequence[Value] | None:
    if params == node.params:
        return None
    result = Node(node.op, tuple(operands), params, node.site)
    result.outs = (Value(node.out.aval, result),)
    return result.outs


def is_large(node: Node) -> bool:
    """Return whether a product is worth a call of BLAS, its batch apart."""
    batch = groups_of(node.params).batch
    extents = extents_of(node)
    return (
        lengths_vary() or prod(extents[subscript] for subscript in extents if subscript not in batch) >= LARGE
    )


def _with_batch_first(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    """A batch axis that stands last leaves no rows or columns that BLAS could read."""
    operands, params = list(inputs), dict(node.params)
    batch = groups_of(params).batch
    for position, name in enumerate(("x", "y")):
        own = params[name]
        if own and own[-1] in batch:
            packed = (*batch, *[subscript for subscript in own if subscript not in batch])
            operands[position] = copy_packed(
                inputs[position], tuple(own.index(subscript) for subscript in packed)
            )
            params[name] = packed
    return _changed(node, operands, params)


def copy_packed(value: Value, axes: tuple[int, ...]) -> Value:
    """Return a transposed copy: the scheduler stores the transposed operands of contractions that are
    left."""
    return permute_row(value, axes=axes)


def _absorb(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    if not isinstance(node.op, Contract):
        return None
    params: dict[str, Any] = dict(node.params)
    operands = list(inputs)
    for position, subscripts in enumerate(("x", "y")):
        source = operands[position].node
        while source is not None and source.op is permute_row:
            axes = source.params["axes"]
            params[subscripts] = tuple(params[subscripts][axes.index(axis)] for axis in range(len(axes)))
            operands[position] = source.inputs[0]
            source = operands[position].node
    if params == node.params:
        return None
    absorbed = Node(node.op, tuple(operands), params, node.site)
    absorbed.outs = (Value(node.out.aval, absorbed),)
    return absorbed.outs
