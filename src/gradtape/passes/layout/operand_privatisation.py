"""Operand privatisation: a cheap operand of several large products is recomputed for each, in the layout that the product needs.

BLAS reads its operands from memory, so what is computed for it must be written there. Where two products far apart read the same
operand, such as points minus a mean, storing all of it between them costs more than recomputing a part of it just before each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Final

from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.kinds.contract import Contract, extents_of, groups_of
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.shape import expand, expand_row, permute, permute_row
from gradtape.passes.layout.axes import narrowest
from gradtape.passes.layout.contract_transposes import copy_packed
from gradtape.passes.rewrite import applied, rewrite

CHEAP: Final = 4
"""Operations for each element up to which recomputing costs less than reading from memory."""

SIMPLE: Final = 1.0
"""Cost of such an operation at most: an addition or a multiplication."""

LARGE_SIDE: Final = 16
"""Rows, columns and summands from which a product is BLAS's."""

PACKED: Final = 2**12
"""Elements of a matrix up to which BLAS multiplies without copying it, if its layout is right: 64 by 64."""

MUCH_REUSED: Final = 64
"""Multiplications of each element from which a transposed copy costs nothing beside them."""

IN_CACHE: Final = 2**17
"""Elements up to which an operand stays in the L2 cache."""


def privatise_operands(graph: Graph) -> Graph:
    """Return the graph in which no two large products share a cheap operand."""
    uses = Counter(value for node in graph.nodes for value in node.inputs)
    uses.update(graph.outputs)
    return rewrite(graph, lambda node, inputs: _privatised(node, inputs, uses))


def _privatised(node: Node, inputs: tuple[Value, ...], uses: Counter[Value]) -> Sequence[Value] | None:
    if not isinstance(node.op, Contract) or narrowest(node) < LARGE_SIDE or node.out.dtype.kind != "f":
        return None
    operands, params = list(inputs), dict(node.params)
    last = params["out"][-1]
    for position, name in enumerate(("x", "y")):
        value, subscripts = inputs[position], params[name]
        stays = tuple(range(len(subscripts)))
        order = tuple(sorted(stays, key=lambda k: subscripts[k] == last))
        if node.inputs[position].size > IN_CACHE and _is_cheap(value):
            if _strided(value, order) > _strided(value, stays):
                order = stays
            if uses[node.inputs[position]] > 1 or order != stays:
                operands[position] = _Copy(value.size).permuted(value, order)
                params[name] = tuple(subscripts[k] for k in order)
        elif order != stays and _is_reused(node, position):
            operands[position] = copy_packed(value, order)
            params[name] = tuple(subscripts[k] for k in order)
    if operands == list(inputs):
        return None
    result = Node(node.op, tuple(operands), params, node.site)
    result.outs = (Value(node.out.aval, result),)
    return result.outs


def _is_reused(node: Node, position: int) -> bool:
    """Whether an operand is small and each of its elements is multiplied so often that a transposed copy costs nothing."""
    subscripts, other = (node.params["x"], node.params["y"])[:: 1 if position == 0 else -1]
    extents = extents_of(node)
    batch = groups_of(node.params).batch
    size = prod(extents[subscript] for subscript in subscripts if subscript not in batch)
    reuse = prod(extents[subscript] for subscript in other if subscript not in subscripts)
    return size <= PACKED and reuse >= MUCH_REUSED


def _is_cheap(value: Value) -> bool:
    """Whether a few additions and multiplications make a value out of smaller ones."""
    if value.node is None or not isinstance(value.node.op, Elementwise):
        return False
    steps = 0
    stack = [value]
    while stack:
        current = stack.pop()
        node = current.node
        if isinstance(current, Literal) or _is_small(current, value.size):
            continue
        if node is not None and isinstance(node.op, Elementwise):
            steps += 1
            if steps > CHEAP or node.op.cost > SIMPLE:
                return False
            stack.extend(node.inputs)
        elif node is not None and node.op in (expand_row, permute_row):
            stack.extend(node.inputs)
        else:
            return False
    return True


def _is_small(value: Value, size: int) -> bool:
    """Whether reading a value costs little beside what an operand of this size does."""
    return 4 * value.size <= size


def _strided(value: Value, axes: tuple[int, ...]) -> int:
    """Return how many of the smaller values would be read across their rows, if this one had its axes in this order."""
    node = value.node
    if isinstance(value, Literal) or not axes:
        return 0
    if node is not None and isinstance(node.op, Elementwise):
        return sum(_strided(operand, axes) for operand in node.inputs if not isinstance(operand, Literal))
    if node is not None and node.op is permute_row:
        return _strided(node.inputs[0], tuple(node.params["axes"][k] for k in axes))
    if node is not None and node.op is expand_row:
        placed = node.params["axes"]
        source_axes = tuple(placed.index(k) for k in axes if k in placed)
        return 0 if axes[-1] not in placed else _strided(node.inputs[0], source_axes)
    return int(axes[-1] != value.ndim - 1)


class _Copy:
    """Recomputes values with their axes permuted; small ones are read, for an operand of this size."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: dict[tuple[Value, tuple[int, ...]], Value] = {}

    def permuted(self, value: Value, axes: tuple[int, ...]) -> Value:
        """Return a copy of a value with axis ``axes[k]`` as its axis k."""
        if isinstance(value, Literal):
            return value
        copied = self._known.get((value, axes))
        if copied is None:
            copied = self._known[value, axes] = self._made(value, axes)
        return copied

    def _made(self, value: Value, axes: tuple[int, ...]) -> Value:
        node = value.node
        if node is not None and isinstance(node.op, Elementwise) and not _is_small(value, self._size):
            return applied(node, [self.permuted(operand, axes) for operand in node.inputs], node.params)
        if node is not None and node.op is permute_row:
            return self.permuted(node.inputs[0], tuple(node.params["axes"][k] for k in axes))
        if node is not None and node.op is expand_row:
            placed = node.params["axes"]
            kept_axes = tuple(k for k, axis in enumerate(axes) if axis in placed)
            source = self.permuted(node.inputs[0], tuple(placed.index(axes[k]) for k in kept_axes))
            return expand(source, tuple(value.shape[k] for k in axes), kept_axes)
        return permute(value, axes)
