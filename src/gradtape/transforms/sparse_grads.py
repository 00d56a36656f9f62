"""Sparse gradients: cotangents that are zero except for a few rows, found in the graph before they are computed as dense arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from gradtape.ir.graph import Node, Value, extract, literal
from gradtape.ir.types import Shape
from gradtape.kinds.index_map import is_zero
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.arithmetic import add
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.indexing import gather_row, put_add
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import reshape


@dataclass(frozen=True, slots=True)
class SparseGradient:
    """The array ``zeros; array[positions[i]] += values[i]``.

    Attributes
    ----------
    values : Value
        The rows that are added, shape (n, ...).
    positions : Value
        Their positions, integers >= 0 of shape (n,); a position may repeat.
    """

    values: Value
    positions: Value


def sparsify(
    cotangents: Sequence[Value | None],
    sources: Sequence[Value],
    targets: Sequence[Value],
    stop: Callable[[Value], bool],
) -> list[Value | SparseGradient | None]:
    """Return cotangents as sparse gradients where all contributions come from gathers of rows of the source itself.

    Parameters
    ----------
    cotangents, sources, targets, stop
        The result of `gradtape.transforms.vjp.vjp`, and what it was called with.
    """
    found: list[Value | SparseGradient | None] = list(cotangents)
    terms = {k: _terms(value) for k, value in enumerate(cotangents) if value is not None}
    if any(terms.values()):
        nodes, _ = extract(targets, (), stop)
        for k, parts in terms.items():
            if parts and not _positions(parts) - Counter(_gathers(nodes, sources[k])):
                found[k] = _sparse_gradient(parts, sources[k])
    return found


def sparse_sum(parts: Sequence[Value | SparseGradient], shape: Shape) -> Value | SparseGradient:
    """Return the sum of cotangents of one shape, which is sparse if all of them are."""
    rows = [part for part in parts if isinstance(part, SparseGradient)]
    if len(rows) == len(parts):
        return SparseGradient(
            join([part.values for part in rows], 0), join([part.positions for part in rows], 0)
        )
    return reduce(add, [densify(part, shape) for part in parts])


def densify(part: Value | SparseGradient, shape: Shape) -> Value:
    """Return a cotangent of this shape as a dense array."""
    if isinstance(part, SparseGradient):
        return put_add(broadcast_to(literal(0, part.values.dtype), shape), part.values, part.positions)
    return part


def _gathers(nodes: Sequence[Node], source: Value) -> list[Value]:
    """Return the positions of the gathers of rows of a source."""
    return [
        node.inputs[1]
        for node in nodes
        if node.op is gather_row and "rows" in node.params and node.inputs[0] is source
    ]


def _positions(parts: Sequence[Node]) -> Counter[Value]:
    return Counter(part.inputs[2] for part in parts)


def _terms(cotangent: Value) -> list[Node]:
    """Return the terms of a sum of transposed gathers of rows, in the order of the gathers; none for any other value."""
    terms: list[Node] = []
    seen: set[Node] = set()
    pending = [cotangent]
    while pending:
        node = pending.pop().node
        if node is None or node in seen:  # a gather of the source itself contributes once
            return []
        seen.add(node)
        if node.op is add:
            pending.extend(node.inputs)
        elif node.op is put_add and len(node.inputs) == 3 and is_zero(node.inputs[0]):
            terms.append(node)
        else:
            return []
    return terms


def _sparse_gradient(terms: Sequence[Node], source: Value) -> SparseGradient:
    extent, *row = source.shape
    values = join([reshape(term.inputs[1], (term.inputs[2].size, *row)) for term in terms], 0)
    positions = join([reshape(term.inputs[2], (term.inputs[2].size,)) for term in terms], 0)
    return SparseGradient(values, remainder(positions, max(extent, 1)))
