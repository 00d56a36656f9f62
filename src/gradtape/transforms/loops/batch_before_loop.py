"""Batching before a loop: code that depends on elements only is computed for all iterations at once, as one matrix product for many
products with vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Final

from gradtape.ir.builder import at, emit
from gradtape.ir.graph import Literal, Node, Value, literal
from gradtape.ir.types import INT64
from gradtape.kinds.batching import Shared, batch_node
from gradtape.kinds.contract import Contract, extents_of
from gradtape.kinds.elementwise import Elementwise, smooth_square
from gradtape.kinds.index_map import IndexMap
from gradtape.ops.core.cumulative import cumsum
from gradtape.ops.core.shape import expand
from gradtape.transforms.loops.draft import Draft, LoopOperand
from gradtape.transforms.loops.residuals import is_expensive

FEW_ELEMENTS: Final = 8
"""Elements of an array up to which one iteration does not fill a vector register, and all iterations together do."""

MANY_PRODUCTS: Final = 256
"""Multiplications of a product from which one for all iterations is worth the memory of its result: a matrix of 16 by 16 and a vector."""

MIN_LENGTH: Final = 16
"""Iterations from which it pays."""

MAX_BYTES: Final = 2**26
"""Bytes of such a result at most."""


def batched_before_loop(draft: Draft, excluded: Collection[Value] = ()) -> Draft | None:
    """Return the scan that reads what its body would compute of elements alone as further elements; None where there is nothing.

    Elementwise values in `excluded` stay in the body.
    """
    length = draft.params.get("length", 0)
    if length < MIN_LENGTH or draft.params["policy"] is not None:
        return None
    outer: dict[Value, Value | Shared] = {given.inner: given.outer for given in draft.elements}
    outer.update({given.inner: Shared(given.outer) for given in draft.consts})
    outer[draft.index] = _iteration_numbers(length)
    cone: list[Node] = []
    known = set(outer)
    for node in draft.nodes():
        if _is_batchable(node) and all(isinstance(v, Literal) or v in known for v in node.inputs):
            cone.append(node)
            known.update(node.outs)
    varying = {given.inner for given in draft.elements} | {draft.index}
    chosen: list[Value] = []
    for node in cone:
        if any(value in varying for value in node.inputs):
            varying.update(node.outs)
            stays = isinstance(node.op, Elementwise) and node.out in excluded
            # The square of a value with a kink is differentiated as one function, and so computed in one place with the value.
            square = smooth_square(node, lambda _: False)
            is_near = square is not None and any(kink.out in chosen for kink in square.with_kink)
            if (not stays and _pays(node, length)) or is_near:
                chosen.append(node.outs[0])
    if not chosen:
        return None
    _compute(cone, outer, length)
    changed = draft.with_ys(draft.ys)
    arrays = [LoopOperand(array, inner) for inner in chosen if isinstance(array := outer[inner], Value)]
    changed.elements = [*draft.elements, *arrays]
    return changed


def _iteration_numbers(length: int) -> Value:
    """Return the numbers of all iterations, int64 of shape (length,), computed: a pass may not add a constant, which no caller passes."""
    ones = expand(literal(1, INT64), (length,), ())
    return cumsum(ones, axis=0, reverse=False) - literal(1, INT64)


def _is_batchable(node: Node) -> bool:
    """Return whether a node can be batched and raises no error."""
    if isinstance(node.op, IndexMap):
        return len(node.inputs) == 1
    return isinstance(node.op, Elementwise | Contract)


def _pays(node: Node, length: int) -> bool:
    out = node.outs[0]
    if length * out.size * out.dtype.itemsize > MAX_BYTES:
        return False
    if isinstance(node.op, Contract):
        return is_expensive(node) and _multiplications(node) >= MANY_PRODUCTS
    return isinstance(node.op, Elementwise) and out.size <= FEW_ELEMENTS and is_expensive(node)


def _multiplications(node: Node) -> int:
    return prod(extents_of(node).values())


def _compute(cone: list[Node], outer: dict[Value, Value | Shared], length: int) -> None:
    """Append the nodes for all iterations and enter their values in `outer`; values that do not vary are shared."""
    for node in cone:
        given = [_outer_value(value, outer) for value in node.inputs]
        flags = [isinstance(value, Value) for value in given]
        operands = [value.value if isinstance(value, Shared) else value for value in given]
        with at(node.site):
            if any(flags):
                (out,) = batch_node(node.op, node, operands, flags, length)
                outer[node.outs[0]] = out
            else:
                outer[node.outs[0]] = Shared(emit(node.op, operands, **node.params))


def _outer_value(value: Value, outer: Mapping[Value, Value | Shared]) -> Value | Shared:
    return Shared(value) if isinstance(value, Literal) else outer[value]
