"""What turns compute of their elements alone, for all turns at once before the loop: one product of matrices for many with vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Final

from gradtape.ir.builder import at, emit
from gradtape.ir.graph import Literal, Node, Value, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INT64
from gradtape.kinds.batching import Shared, batch_node
from gradtape.kinds.contract import Contract
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.ops.core.cumulative import cumsum
from gradtape.transforms.loops.draft import Draft, Given
from gradtape.transforms.loops.residuals import is_dear

FEW: Final = 8
"""Elements of an array up to which a turn does not fill a vector, as all turns together do."""

MANY: Final = 256
"""Multiplications of a product from which one for all turns is worth its result's memory: a matrix of 16 by 16 and a vector."""

TURNS: Final = 16
"""Turns from which it pays."""

MEMORY: Final = 2**26
"""Bytes that such a result may take."""


def lifted(draft: Draft, staying: Collection[Value] = ()) -> Draft | None:
    """Return the scan that is given what its turns would compute of elements alone, but for elementwise values that are `staying`.

    None where that is nothing.
    """
    length = draft.params.get("length", 0)
    if length < TURNS or draft.params["policy"] is not None:
        return None
    outside: dict[Value, Value | Shared] = {given.inside: given.outside for given in draft.elements}
    outside.update({given.inside: Shared(given.outside) for given in draft.consts})
    outside[draft.index] = _numbers(length)
    cone: list[Node] = []
    known = set(outside)
    for node in draft.nodes():
        if _is_plain(node) and all(isinstance(v, Literal) or v in known for v in node.inputs):
            cone.append(node)
            known.update(node.outs)
    varying = {given.inside for given in draft.elements} | {draft.index}
    chosen: list[Value] = []
    for node in cone:
        if any(value in varying for value in node.inputs):
            varying.update(node.outs)
            stays = isinstance(node.op, Elementwise) and node.out in staying
            if not stays and _pays(node, length):
                chosen.append(node.outs[0])
    if not chosen:
        return None
    _compute(cone, outside, length)
    changed = draft.with_left(draft.left)
    arrays = [Given(array, inside) for inside in chosen if isinstance(array := outside[inside], Value)]
    changed.elements = [*draft.elements, *arrays]
    return changed


def _numbers(length: int) -> Value:
    """Return the numbers of all turns, computed: no pass may add a constant, whose data no caller would pass."""
    ones = PRIMITIVES["expand"](literal(1, INT64), (length,), ())
    return cumsum(ones, axis=0, reverse=False) - literal(1, INT64)


def _is_plain(node: Node) -> bool:
    """Return whether what a node does for one turn can be done for many at once, and is never an error."""
    if isinstance(node.op, IndexMap):
        return len(node.inputs) == 1
    return isinstance(node.op, Elementwise | Contract)


def _pays(node: Node, length: int) -> bool:
    out = node.outs[0]
    if length * out.size * out.dtype.itemsize > MEMORY:
        return False
    if isinstance(node.op, Contract):
        return is_dear(node) and _multiplications(node) >= MANY
    return isinstance(node.op, Elementwise) and out.size <= FEW and is_dear(node)


def _multiplications(node: Node) -> int:
    x, y = node.inputs
    extents = dict(zip((*node.params["x"], *node.params["y"]), (*x.shape, *y.shape), strict=True))
    return prod(extents.values())


def _compute(cone: list[Node], outside: dict[Value, Value | Shared], length: int) -> None:
    """Enter what the nodes come to for all turns; what does not vary comes to one value."""
    for node in cone:
        given = [_outside(value, outside) for value in node.inputs]
        flags = [isinstance(value, Value) for value in given]
        operands = [value.value if isinstance(value, Shared) else value for value in given]
        with at(node.site):
            if any(flags):
                (out,) = batch_node(node.op, node, operands, flags, length)
                outside[node.outs[0]] = out
            else:
                outside[node.outs[0]] = Shared(emit(node.op, operands, **node.params))


def _outside(value: Value, outside: Mapping[Value, Value | Shared]) -> Value | Shared:
    return Shared(value) if isinstance(value, Literal) else outside[value]
