"""Deferred accumulation: the cotangent of a matrix or table that all iterations read, as one product or scatter after the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.ir.graph import Literal, Node, Value
from gradtape.kinds.contract import Contract
from gradtape.kinds.index_map import is_zero
from gradtape.ops.core.contract import contract
from gradtape.ops.core.elementwise.arithmetic import add
from gradtape.ops.core.elementwise.cast import zeros_like
from gradtape.ops.core.indexing import put_add
from gradtape.transforms.loops.draft import Draft, LoopOperand

LARGE_MATRIX: Final = 1024
"""Elements of a matrix from which one product of all iterations' vectors beats an outer product in each iteration."""

MAX_BYTES: Final = 2**28
"""Bytes of the stacked vectors at most."""

SPARSE_RATIO: Final = 4
"""How many times larger a table must be than the contribution of one iteration."""


class DeferredAccumulation:
    """Contributions of iterations to a sum, moved out of the backward loop.

    Parameters
    ----------
    back : Draft
        The backward loop, a scan; factors of the contributions are added to its stacked outputs.
    """

    def __init__(self, back: Draft) -> None:
        self._back = back
        self._length: int = back.params["length"]
        self._stacks = {given.inner: given.outer for given in back.elements}
        self._fixed = {given.inner for given in back.consts}
        self._first = len(back.ys)
        self._terms: list[tuple[Value, Node, list[Value | int]]] = []

    def defer(self, const: LoopOperand, part: Value) -> Value | None:
        """Defer the terms of a contribution for which that pays; return the remaining terms."""
        node = part.node
        if node is not None and node.op is add:
            parts = [self.defer(const, term) for term in node.inputs]
            remaining = [term for term in parts if term is not None]
            if len(remaining) == 2:
                return (
                    part
                    if remaining[0] is node.inputs[0] and remaining[1] is node.inputs[1]
                    else add(*remaining)
                )
            return remaining[0] if remaining else None
        if node is None or not self._pays(node, part):
            return part
        operands = node.inputs if isinstance(node.op, Contract) else node.inputs[1:]
        self._terms.append((const.inner, node, [self._stack(value) for value in operands]))
        return None

    def _pays(self, node: Node, part: Value) -> bool:
        if isinstance(node.op, Contract):
            size = sum(value.size for value in node.inputs)
            pays = part.size >= LARGE_MATRIX and size <= part.size
            operands: Sequence[Value] = node.inputs
        elif node.op is put_add and is_zero(node.inputs[0]):
            operands = node.inputs[1:]
            size = sum(value.size for value in operands)
            pays = part.size >= SPARSE_RATIO * size
        else:
            return False
        varies = all(not isinstance(value, Literal) and value not in self._fixed for value in operands)
        return pays and varies and size * self._length * part.dtype.itemsize <= MAX_BYTES

    def _stack(self, value: Value) -> Value | int:
        """Return the stack of a value over all iterations: an operand of the loop, or the position of a stacked output."""
        if value in self._stacks:
            return self._stacks[value]
        ys = self._back.ys
        if value not in ys[self._first :]:
            ys.append(value)
        return ys.index(value, self._first)

    def totals(self, ys: Sequence[Value]) -> dict[Value, Value]:
        """Return the sums over all iterations by inner const; `ys` are the stacked outputs of the loop."""
        found: dict[Value, Value] = {}
        for const, node, stacks in self._terms:
            arrays = [ys[stack] if isinstance(stack, int) else stack for stack in stacks]
            total = _total(node, arrays, const)
            found[const] = total if const not in found else add(found[const], total)
        return found


def _total(node: Node, arrays: Sequence[Value], const: Value) -> Value:
    if isinstance(node.op, Contract):
        x, y, out = (node.params[name] for name in ("x", "y", "out"))
        iteration = max((*x, *y), default=-1) + 1
        a, b = arrays
        return contract(a, b, (iteration, *x), (iteration, *y), out)
    return put_add(zeros_like(const), *arrays)
