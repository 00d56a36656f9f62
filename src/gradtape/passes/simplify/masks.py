"""Folding of masks: truth values that follow from the program alone.

Derivatives are zero by selection, and the masks that select are made by slices, pads and disjunctions of repeated truth values. Where such
a mask is the same everywhere, it is a number, and what it selects needs no selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradtape.ir.graph import Graph, Node, Value, literal
from gradtape.ir.op import Op
from gradtape.ir.types import BOOL
from gradtape.ir.varying import is_varying
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap, repeated_number
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction
from gradtape.loops.affine import Affine, Position, Var, affine
from gradtape.ops.core.elementwise.logic import bitwise_and, bitwise_or
from gradtape.ops.core.shape import expand
from gradtape.passes.rewrite import rewrite

MOST_ELEMENTS: Final = 4096
"""Elements of a mask that is evaluated, repetitions not counted: a few microseconds."""

ABSORBING: Final[dict[Op, bool]] = {bitwise_or: True, bitwise_and: False}
"""By row, the truth value that decides the result alone."""


def fold_masks(graph: Graph) -> Graph:
    """Return the graph with numbers in place of masks that follow from the program and are the same everywhere."""
    known: dict[Value, NDArray[Any]] = {}

    def contents(value: Value) -> NDArray[Any] | None:
        """Return a mask, or moved numbers, with extent 1 in place of axes along which it is repeated."""
        number = repeated_number(value)
        if number is None:
            return known.get(value)
        return np.asarray(number.data).reshape((1,) * value.ndim)

    def fold(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if not _may_be_known(node, inputs):
            return None
        operands = [contents(value) for value in inputs]
        absorbing = ABSORBING.get(node.op)
        if absorbing is not None and any(x is not None and bool((x == absorbing).all()) for x in operands):
            number = literal(absorbing, BOOL)
            return (number if not node.out.shape else expand(number, node.out.shape, ()),)
        result = None if any(x is None for x in operands) else _evaluated(node, operands)
        if result is None or result.size > MOST_ELEMENTS:
            return None
        if node.out.dtype == BOOL and (result.all() or not result.any()):
            number = literal(bool(result.flat[0]), BOOL)
            return (number if not node.out.shape else expand(number, node.out.shape, ()),)
        outs = node.copy(inputs).outs
        known[outs[0]] = result
        return outs

    return rewrite(graph, fold)


def _may_be_known(node: Node, inputs: Sequence[Value]) -> bool:
    """Return whether a node makes a mask, or moves what a mask is made of, with known extents."""
    is_elementwise = isinstance(node.op, Elementwise) and not node.op.is_opaque
    is_mask = all(value.dtype == BOOL for value in node.outs) and (
        is_elementwise or all(value.dtype == BOOL for value in inputs)
    )
    moves = isinstance(node.op, IndexMap) and len(inputs) == 1
    return (is_mask or moves) and all(
        value.size and not any(map(is_varying, value.shape)) for value in (*node.outs, *inputs)
    )


def _evaluated(node: Node, operands: Sequence[Any]) -> NDArray[Any] | None:
    """Return what a node makes; None where that would take long, or is not known."""
    op = node.op
    if isinstance(op, Elementwise):
        (result,) = op.evaluate(operands, node.params)
        return result
    if isinstance(op, Reduction) and op.monoid in ("or", "and"):
        (result,) = op.evaluate(operands, node.params)
        return result
    if isinstance(op, IndexMap) and len(operands) == 1:
        return _indexed(node, op, operands[0])
    if isinstance(op, Join) and node.out.size <= MOST_ELEMENTS:
        pieces = [np.broadcast_to(x, value.shape) for x, value in zip(operands, node.inputs, strict=True)]
        (result,) = op.evaluate(pieces, node.params)
        return result
    return None


def _indexed(node: Node, op: IndexMap, x: NDArray[Any]) -> NDArray[Any] | None:
    """Return the elements of an index map, along the axes of the result that its elements depend on."""
    shape, in_shape, params = node.out.shape, node.inputs[0].shape, node.params
    variables = [Var(f"i{axis}", 0, max(extent - 1, 1)) for axis, extent in enumerate(shape)]
    index = tuple([affine(variable) for variable in variables])
    positions = op.source(index, in_shape, **params)
    tests = [] if op.inside is None else op.inside(index, in_shape, **params)
    chosen = {
        variable
        for position in (
            *[p for p, extent in zip(positions, x.shape, strict=True) if extent > 1],
            *[t[0] for t in tests],
        )
        for variable in _variables(position)
    }
    extents = [extent if variable in chosen else 1 for variable, extent in zip(variables, shape, strict=True)]
    if prod(extents) > MOST_ELEMENTS:
        return None
    at: Any = tuple(np.ogrid[tuple([slice(extent) for extent in extents])])
    inside = np.ones(extents, bool)
    for number, low, high in () if op.inside is None else op.inside(at, in_shape, **params):
        inside = inside & (number >= low) & (number < high)
    places = [
        np.clip(place, 0, extent - 1) if extent > 1 else 0
        for place, extent in zip(op.source(at, in_shape, **params), x.shape, strict=True)
    ]
    return np.where(inside, x[tuple(places)], np.zeros((), x.dtype))


def _variables(position: Position) -> set[Var]:
    return position.variables() if isinstance(position, Affine) else set()
