"""What extrema are compared with: it has to be the numbers that they were selected from, to the last bit.

An extremum is equal to one of its elements. Derivatives look for the elements that are, and ``np.sqrt(x - x.min())`` has no NaN. An element
that is computed in two loops may have two values: LLVM fuses ``x * y + z`` to one operation, which rounds once, where nothing else in the
loop reads the product, and the functions for vectors round otherwise than those for numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from gradtape.ir.graph import Node, Value
from gradtape.kinds.elementwise import Elementwise, Instruction, Intrinsic
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction

EXTREMA: Final = frozenset({"maximum", "minimum", "argmax", "argmin"})
"""The monoids of reductions that select an element."""

PRODUCTS: Final = frozenset({"fmul"})
SUMS: Final = frozenset({"fadd", "fsub"})
"""The instructions that LLVM fuses."""


def compared_with_extrema(nodes: Sequence[Node], reads: Iterable[Value] = ()) -> set[Value]:
    """Return the values from which extrema are selected, which are read elsewhere too, and must not be computed again for that.

    Parameters
    ----------
    nodes : sequence of Node
        All that is computed.
    reads : iterable of Value
        What is read besides.
    """
    stack = [
        (node.inputs[0], False)
        for node in nodes
        if isinstance(node.op, Reduction) and node.op.monoid in EXTREMA
    ]
    found: set[Value] = set()
    if not stack:
        return found
    uses = Counter([value for node in nodes for value in node.inputs])
    uses.update(reads)
    seen: set[tuple[Value, bool]] = set()
    while stack:
        value, is_shared = stack.pop()
        is_shared |= uses[value] > 1
        node = value.node
        if node is None or (value, is_shared) in seen:
            continue
        seen.add((value, is_shared))
        if is_shared and isinstance(node.op, Elementwise) and _may_be_rounded_differently(value):
            found.add(value)
        elif isinstance(node.op, IndexMap | Join) or _is_exact(node):
            stack += [(operand, is_shared) for operand in node.inputs]
    return found


def _is_exact(node: Node) -> bool:
    """Return whether an elementwise node gives the same number in any loop, such as ``-x`` and ``abs(x)``."""
    body = node.op.body if isinstance(node.op, Elementwise) else None
    return isinstance(body, Intrinsic) or (isinstance(body, Instruction) and body.real not in PRODUCTS | SUMS)


def _may_be_rounded_differently(value: Value) -> bool:
    """Return whether two loops may compute different numbers: by fused products, or by functions for vectors and for numbers."""
    instructions: set[str | None] = set()
    seen: set[Value] = set()
    stack = [value]
    while stack:
        value = stack.pop()
        node = value.node
        if node is None or value in seen or not isinstance(node.op, Elementwise | IndexMap | Join):
            continue
        seen.add(value)
        stack.extend(node.inputs)
        if not isinstance(node.op, Elementwise):
            continue
        body = node.op.body
        if isinstance(body, Instruction):
            instructions.add(body.real)
        elif not isinstance(body, Intrinsic):
            return True
    return not (instructions.isdisjoint(PRODUCTS) or instructions.isdisjoint(SUMS))
