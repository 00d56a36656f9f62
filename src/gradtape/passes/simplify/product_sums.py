"""Distributive law for contractions: a contraction whose result is only summed sums its factor first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.contract import Contract
from gradtape.ops.core.contract import contract
from gradtape.ops.core.reductions import reduce_sum
from gradtape.passes.rewrite import rewrite


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
