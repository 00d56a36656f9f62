"""Subnormal numbers are kept out of the inner loops of products: weights that vanish gradually are shared by both factors.

Processors take a hundred cycles for a product with a subnormal number. Exponentials of very negative numbers are subnormal before they
are zero, and where they weight the terms of a product of matrices, each of them takes part in as many products as the matrix has elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.ir.graph import Graph, Node, Value, literal
from gradtape.kinds.contract import Contract
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.contract import contract
from gradtape.ops.core.elementwise.arithmetic import divide, multiply, negative
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.core.elementwise.logic import less
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, expand_row
from gradtape.passes.rewrite import rewrite

DEEPEST: Final = 8
"""Products, quotients and negations in a row behind which an exponential is looked for."""

SMALL: Final = {8: 2.0**-900, 4: 2.0**-100}
"""Weights below it are shared, by bytes of a number: their products with numbers of usual size may be below the smallest normal
number, 2**-1022 (2**-126)."""

SHARE: Final = {8: 2.0**512, 4: 2.0**64}
"""What a small weight is multiplied and the other factor is divided by. Both 2**-1074 (2**-149), the smallest number, times it and its
reciprocal are so large that products with numbers of usual size are normal."""


def share_vanishing_weights(graph: Graph) -> Graph:
    """Return the graph with ``sum_i (w[i] a[i, j]) b[i, k]`` as ``sum_i (w[i] / h[i] a[i, j]) (h[i] b[i, k])``.

    Where the weight `w` is very small, `h` is a power of two about its root, and 1 elsewhere. Both factors are normal numbers then.
    Their products are what they were; those that were subnormal keep more digits until they are added.

    `w` has an exponential as a factor, and `b` is computed for all axes of `w`: the product with `h` is part of that computation.
    """
    positions = {node.out: position for node in graph.nodes if (position := _place(node)) is not None}
    if not positions:
        return graph
    shared = {out.node.inputs[position] for out, position in positions.items() if out.node is not None}

    def rule(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if node.op is reduce_sum and node.inputs[0] in shared:
            product, share, axes = _split(inputs[0])
            share = expand(share, product.shape, axes)
            return (reduce_sum(multiply(product, share), axes=node.params["axes"]),)
        position = positions.get(node.outs[0])
        if position is None:
            return None
        x, y, out = node.params["x"], node.params["y"], node.params["out"]
        product, share, axes = _split(inputs[position])
        own_subscripts, other = (x, y) if position == 0 else (y, x)
        b = inputs[1 - position]
        b = multiply(b, expand(share, b.shape, tuple([other.index(own_subscripts[axis]) for axis in axes])))
        return (contract(product, b, x, y, out) if position == 0 else contract(b, product, x, y, out),)

    return rewrite(graph, rule)


def _place(node: Node) -> int | None:
    """Return which operand of a contraction has a weight that the other one can share."""
    if (
        not isinstance(node.op, Contract)
        or node.out.dtype.kind != "f"
        or node.out.dtype.itemsize not in SMALL
    ):
        return None
    x, y, out = (frozenset(node.params[name]) for name in ("x", "y", "out"))
    if not (out & x - y and out & y - x):
        return None  # each product of a weight takes part in one other product alone
    for position, own_subscripts, others in ((0, node.params["x"], y), (1, node.params["y"], x)):
        weights_found = _weights(node.inputs[position])
        other = node.inputs[1 - position].node
        if weights_found is None or other is None or not isinstance(other.op, Elementwise):
            continue
        subscripts = {own_subscripts[axis] for axis in weights_found[1]}
        if subscripts <= others and not subscripts <= out and _vanishes(weights_found[0], DEEPEST):
            return position
    return None


def _weights(product: Value) -> tuple[Value, tuple[int, ...], Value] | None:
    """Return the repeated factor of a product, its axes in the product, and the other factor."""
    node = product.node
    if node is None or node.op is not multiply:
        return None
    for repeated, other in (node.inputs, node.inputs[::-1]):
        inner = repeated.node
        if inner is not None and inner.op is expand_row and inner.inputs[0].ndim:
            return inner.inputs[0], inner.params["axes"], other
    return None


def _vanishes(weights: Value, depth: int) -> bool:
    """Return whether an exponential is a factor."""
    node = weights.node
    if node is None or not depth:
        return False
    if node.op is exp:
        return True
    if node.op is divide:
        return _vanishes(node.inputs[0], depth - 1)
    return node.op in (multiply, negative) and any(_vanishes(x, depth - 1) for x in node.inputs)


def _split(product: Value) -> tuple[Value, Value, tuple[int, ...]]:
    """Return a product without the share of its weights, that share, and its axes in the product."""
    weights_found = _weights(product)
    assert weights_found is not None
    weights, axes, other = weights_found
    dtype = weights.dtype
    small = less(fabs(weights), SMALL[dtype.itemsize])
    unit, factor = literal(1.0, dtype), SHARE[dtype.itemsize]
    scaled = multiply(weights, where(small, literal(factor, dtype), unit))
    share = where(small, literal(1.0 / factor, dtype), unit)
    return multiply(other, expand(scaled, product.shape, axes)), share, axes
