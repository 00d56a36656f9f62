"""Constant folding: nodes on numbers, and elementwise nodes on repeated numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtape.ir.graph import Graph, Literal, Node, Value, literal
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap, repeated_number
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.reduction import Reduction
from gradtape.ops.core.shape import expand
from gradtape.passes.rewrite import rewrite


def fold_constants(graph: Graph) -> Graph:
    """Return the graph without computations whose operands are numbers or repetitions of a number."""
    return rewrite(graph, _fold)


def _fold(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    op = node.op
    if isinstance(op, Elementwise):
        return None if op.is_opaque else _fold_elementwise(node, op, inputs)
    if isinstance(op, IndexMap) and op.inside is None and not isinstance(inputs[0], Literal):
        number = repeated_number(inputs[0])
        if number is not None and len(inputs) == 1:
            return (broadcast_to(number, node.out.shape),)
    if isinstance(op, IndexMap) and op.inside is not None:
        number = repeated_number(inputs[0])
        if (
            number is not None
            and number.data is not None
            and not number.data.any()
            and not np.signbit(number.data.real)
        ):
            return (broadcast_to(number, node.out.shape),)
    if isinstance(op, Reduction):
        return _fold_reduction(node, op, inputs[0])
    return None


def _fold_elementwise(node: Node, op: Elementwise, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    numbers = [repeated_number(value) for value in inputs]
    known = [number for number in numbers if number is not None]
    if not known:
        return None
    if len(known) == len(inputs):
        with np.errstate(all="ignore"):
            (data,) = op.evaluate([number.data for number in known], node.params)  # type: ignore[misc]
        folded = literal(data.astype(node.out.dtype, copy=False), node.out.dtype)
        if node.out.shape == ():
            return (folded,)
        return (expand(folded, node.out.shape, ()),)
    slim = tuple(
        value if number is None or value.shape == () else literal(number.data, value.dtype)
        for value, number in zip(inputs, numbers, strict=True)
    )
    if all(a is b for a, b in zip(slim, inputs, strict=True)):
        return None
    if node.out.shape != () and all(isinstance(value, Literal) or value.shape == () for value in slim):
        return None
    changed = Node(op, slim, node.params, node.site)
    changed.outs = (Value(node.out.aval, changed),)
    return changed.outs


def _fold_reduction(node: Node, op: Reduction, x: Value) -> Sequence[Value] | None:
    """A maximum of equal numbers is that number; their sum is a product where that is exact for sure."""
    number = repeated_number(x)
    if number is None or x.shape == () or x.size == 0 or op.positional:
        return None
    if op.monoid in ("maximum", "minimum", "or", "and"):
        result = literal(number.data, node.out.dtype)
    elif op.monoid == "add" and number.dtype.kind in "iuf":
        assert number.data is not None
        count = x.size // max(node.out.size, 1)
        if number.dtype.kind == "f" and not _sums_exactly(float(number.data), count):
            return None
        with np.errstate(all="ignore"):
            result = literal(np.multiply(number.data, np.asarray(count, number.dtype)), node.out.dtype)
    else:
        return None
    return (result if node.out.shape == () else expand(result, node.out.shape, ()),)


def _sums_exactly(number: float, count: int) -> bool:
    """Whether each partial sum is representable: an integer below 2**24, which float32 holds as well."""
    return number == int(number) and abs(number) * count < 2**24 if np.isfinite(number) else False
