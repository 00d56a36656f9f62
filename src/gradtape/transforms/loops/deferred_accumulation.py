"""Cotangents of matrices and tables that all turns read: what the turns contribute, put together after the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gradtape.ir.graph import Literal, Node, Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.transforms.loops.draft import Draft, Given

MATRIX: Final = 1024
"""Elements of a matrix from which one product of all turns' vectors beats an outer product in each turn."""

MEMORY: Final = 2**28
"""Bytes that the vectors may take."""

SPARSE: Final = 4
"""How many times larger a table must be than what a turn adds to it."""


class LateSums:
    """Contributions of turns to a sum, taken out of the loop backward.

    Parameters
    ----------
    back : Draft
        The loop backward, a scan; it is given more to leave behind.
    """

    def __init__(self, back: Draft) -> None:
        self._back = back
        self._length: int = back.params["length"]
        self._stacks = {given.inside: given.outside for given in back.elements}
        self._fixed = {given.inside for given in back.consts}
        self._first = len(back.left)
        self._terms: list[tuple[Value, Node, list[Value | int]]] = []

    def take(self, const: Given, part: Value) -> Value | None:
        """Take terms out of a contribution; return what is left of it."""
        node = part.node
        if node is not None and node.op.name == "add":
            rest = [self.take(const, term) for term in node.inputs]
            kept = [term for term in rest if term is not None]
            if len(kept) == 2:
                return (
                    part
                    if kept[0] is node.inputs[0] and kept[1] is node.inputs[1]
                    else PRIMITIVES["add"](*kept)
                )
            return kept[0] if kept else None
        if node is None or not self._pays(node, part):
            return part
        operands = node.inputs if isinstance(node.op, Contract) else node.inputs[1:]
        self._terms.append((const.inside, node, [self._stack(value) for value in operands]))
        return None

    def _pays(self, node: Node, part: Value) -> bool:
        if isinstance(node.op, Contract):
            size = sum(value.size for value in node.inputs)
            enough = part.size >= MATRIX and size <= part.size
            operands: Sequence[Value] = node.inputs
        elif isinstance(node.op, Accumulate) and node.op.name == "put_add" and _is_zero(node.inputs[0]):
            operands = node.inputs[1:]
            size = sum(value.size for value in operands)
            enough = part.size >= SPARSE * size
        else:
            return False
        moving = all(not isinstance(value, Literal) and value not in self._fixed for value in operands)
        return enough and moving and size * self._length * part.dtype.itemsize <= MEMORY

    def _stack(self, value: Value) -> Value | int:
        """Return all turns' values: an array that is there, or the place among what the loop leaves behind."""
        if value in self._stacks:
            return self._stacks[value]
        left = self._back.left
        if value not in left[self._first :]:
            left.append(value)
        return left.index(value, self._first)

    def totals(self, left: Sequence[Value]) -> dict[Value, Value]:
        """Return the sums over all turns by const; `left` is what the loop has left behind."""
        found: dict[Value, Value] = {}
        for const, node, stacks in self._terms:
            arrays = [left[stack] if isinstance(stack, int) else stack for stack in stacks]
            total = _total(node, arrays, const)
            found[const] = total if const not in found else PRIMITIVES["add"](found[const], total)
        return found


def _total(node: Node, arrays: Sequence[Value], const: Value) -> Value:
    op: Any = node.op
    if isinstance(op, Contract):
        x, y, out = (node.params[name] for name in ("x", "y", "out"))
        turn = max((*x, *y), default=-1) + 1
        total: Value = PRIMITIVES["contract"](*arrays, (turn, *x), (turn, *y), out)
        return total
    total = op(PRIMITIVES["zeros_like"](const), *arrays)
    return total


def _is_zero(value: Value) -> bool:
    node = value.node
    if node is None or node.op.name != "expand" or not isinstance(node.inputs[0], Literal):
        return False
    data = node.inputs[0].data
    return data is not None and not data.any()
