"""Distributive law for contractions: what is only summed, or does not vary along an axis, is summed before it is multiplied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.kinds.contract import Contract, Subscripts
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.contract import contract, permuted_sum
from gradtape.ops.core.elementwise.arithmetic import multiply
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, expand_row
from gradtape.passes.rewrite import applied, rewrite

DEEPEST: Final = 6
"""Elementwise operations in a row behind which repeated axes are looked for."""


def sum_before_products(graph: Graph) -> Graph:
    """Return the graph with ``sum_n (sum_i a[i, n] b[i, j])`` as ``sum_i (sum_n a[i, n]) b[i, j]``.

    In the gradient of a Gaussian mixture this makes one of three products over the points a product over none.
    """
    uses = Counter(value for node in graph.nodes for value in node.inputs)
    uses.update(graph.outputs)
    once = {value for value, count in uses.items() if count == 1}
    return rewrite(graph, lambda node, inputs: _summed_early(node, inputs, once))


def _summed_early(node: Node, inputs: tuple[Value, ...], once: set[Value]) -> Sequence[Value] | None:
    if node.op is not reduce_sum or node.out.dtype.kind != "f" or node.inputs[0] not in once:
        return None
    product = inputs[0].node
    if product is None or not isinstance(product.op, Contract):
        return None
    (a, b), subscripts = product.inputs, product.params
    axes: tuple[int, ...] = node.params["axes"]
    out = tuple(subscript for axis, subscript in enumerate(subscripts["out"]) if axis not in axes)
    return (contract(a, b, subscripts["x"], subscripts["y"], out),)


def drop_repeated_axes(graph: Graph) -> Graph:
    """Return the graph with ``sum_j a[i] b[j, k]``, where `a` is repeated along j, as ``a[i] (sum_j b[j, k])``.

    The gradient of a sum or a mean of a product of matrices begins with a repeated number, and what it makes of it is repeated along an
    axis again: its products of matrices become sums.
    """
    return rewrite(graph, _without_repeats)


def _without_repeats(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    if not isinstance(node.op, Contract) or node.out.dtype.kind not in "fc":
        return None
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    first, second = (
        {subscripts[axis] for axis in _varying_axes(value)}
        for value, subscripts in zip(inputs, (x, y), strict=True)
    )
    second.update(
        [subscript for subscript in x if subscript not in {*first, *second, *out}]
    )  # a factor, in one
    if len(first) == len(x) and len(second) == len(y):
        return None
    a, x = _restricted(inputs[0], x, first)
    b, y = _restricted(inputs[1], y, second)
    if x and y:
        return (contract(a, b, x, y, out, node.out.shape),)
    number, (whole, subscripts) = (b, (a, x)) if x else (a, (b, y))
    present = tuple([subscript for subscript in out if subscript in subscripts])
    total = permuted_sum(whole, subscripts, present)
    product = multiply(total, number if isinstance(number, Literal) else expand(number, total.shape, ()))
    places = tuple([axis for axis, subscript in enumerate(out) if subscript in present])
    return (expand(product, node.out.shape, places),)


def _varying_axes(value: Value, depth: int = DEEPEST) -> set[int]:
    """Return the axes along which a value may vary."""
    node = value.node
    if node is not None and node.op is expand_row:
        placed: tuple[int, ...] = node.params["axes"]
        return {placed[axis] for axis in _varying_axes(node.inputs[0], depth)}
    if node is not None and depth and isinstance(node.op, Elementwise):
        return {axis for operand in node.inputs for axis in _varying_axes(operand, depth - 1)}
    return set(range(value.ndim))


def _restricted(value: Value, subscripts: Subscripts, kept: set[int]) -> tuple[Value, Subscripts]:
    """Return an operand without the axes whose subscripts are not kept, along which it is repeated."""
    axes = tuple([axis for axis, subscript in enumerate(subscripts) if subscript in kept])
    return _without_axes(value, axes), tuple([subscripts[axis] for axis in axes])


def _without_axes(value: Value, axes: tuple[int, ...]) -> Value:
    """Return a value with some of its axes alone; it is repeated along the others."""
    if len(axes) == value.ndim:
        return value
    node = value.node
    assert node is not None
    if node.op is not expand_row:
        return applied(node, [_without_axes(x, axes) if x.ndim else x for x in node.inputs], node.params)
    placed: tuple[int, ...] = node.params["axes"]
    own = tuple([axis for axis, place in enumerate(placed) if place in axes])
    source = _without_axes(node.inputs[0], own)
    shape = tuple([value.shape[axis] for axis in axes])
    return expand(source, shape, tuple([axes.index(placed[axis]) for axis in own])) if shape else source
