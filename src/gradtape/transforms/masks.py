"""Masks of cotangents through nodes that mix elements: an element is masked if all elements that are added to it are."""

from __future__ import annotations

import cmath
from collections.abc import Sequence

from gradtape.ir.builder import emit
from gradtape.ir.graph import Literal, Node, Value, number_of
from gradtape.ir.types import FLOAT64, INT64, Shape
from gradtape.kinds.contract import Contract
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cotangent import Cotangent
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.routines.matrix import Matrix
from gradtape.ops.core.correlation import full_correlation
from gradtape.ops.core.cumulative import cumsum, gated_recurrence, recurrence
from gradtape.ops.core.elementwise.cast import convert, zeros_like
from gradtape.ops.core.elementwise.logic import greater, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.join import full
from gradtape.ops.core.reductions import reduce_any
from gradtape.ops.core.shape import expand, expand_row, permute


def masked_parts(node: Node, cotangent: Cotangent, linear: Sequence[bool]) -> list[Cotangent | None] | None:
    """Return the cotangents of a contraction, correlation, cumulative sum, recurrence or linear solve, with masks; None for others.

    A mask costs a reduction of booleans. It is dropped unless an elementwise node reads it.
    """
    mask, op = cotangent.mask, node.op
    assert mask is not None
    if isinstance(op, Contract):
        return _contraction(node, cotangent, mask, linear)
    if isinstance(op, Correlation):
        return _correlation(node, cotangent, mask, linear)
    if op in (cumsum, recurrence, gated_recurrence):
        return _cumulative(node, cotangent, mask, linear)
    if isinstance(op, Matrix) and op.linear_in is not None and not isinstance(mask, Literal):
        # Each column is solved by itself.
        rows = (mask.ndim - 2,)
        any_row = _spread(emit(reduce_any, [mask], axes=rows), mask.shape, rows)
        parts = op.transpose(node, [cotangent.applied()], linear)
        return [None if part is None else Cotangent(part, any_row) for part in parts]
    return None


def _contraction(
    node: Node, cotangent: Cotangent, mask: Value, linear: Sequence[bool]
) -> list[Cotangent | None]:
    out = node.params["out"]
    place, own = (0, node.params["x"]) if linear[0] else (1, node.params["y"])
    # A product that is chosen or not as a whole is not multiplied with what may be infinite; where it is chosen by element, the other
    # operand counts for elements that are chosen as well.
    whole = all(subscript in own for subscript in out) and _unexpanded(mask).ndim == 0
    part = node.op.transpose(node, [cotangent.value if whole else cotangent.applied()], linear)[place]
    assert part is not None
    applied = cotangent.is_applied or not whole
    pulled = Cotangent(part, _operand_mask(mask, out, own, node.inputs[place].shape), applied)
    return [pulled if k == place else None for k in range(2)]


def _unexpanded(value: Value) -> Value:
    """Return an array without its expansions."""
    while value.node is not None and value.node.op is expand_row:
        value = value.node.inputs[0]
    return value


def _operand_mask(mask: Value, out: Sequence[int], own: Sequence[int], shape: Shape) -> Value | None:
    """Return where the cotangent of an operand with the subscripts `own` is not zero by selection, from a mask with the subscripts `out`.

    None where they have no subscript in common: one selected element would be enough for all.
    """
    subscripts = list(out)
    while mask.node is not None and mask.node.op is expand_row:
        subscripts = [subscripts[axis] for axis in mask.node.params["axes"]]
        mask = mask.node.inputs[0]
    summed = tuple([axis for axis, subscript in enumerate(subscripts) if subscript not in own])
    if summed and len(summed) == len(subscripts):
        return None
    if summed:
        mask = emit(reduce_any, [mask], axes=summed)
        subscripts = [subscript for subscript in subscripts if subscript in own]
    order = sorted(range(len(subscripts)), key=lambda axis: own.index(subscripts[axis]))
    if order != list(range(len(order))):
        mask = permute(mask, tuple(order))
    if mask.shape == shape:
        return mask
    axes = tuple([own.index(subscripts[axis]) for axis in order])
    return expand(mask, shape, axes)


def _correlation(
    node: Node, cotangent: Cotangent, mask: Value, linear: Sequence[bool]
) -> list[Cotangent | None]:
    """Return the cotangent of one operand: an element of the array is masked if all windows with it are, one of the kernel if all are."""
    place, rank = 0 if linear[0] else 1, node.params["rank"]
    shape = node.inputs[place].shape
    single = _unexpanded(mask)
    whole = single.ndim == 0
    part = node.op.transpose(node, [cotangent.value if whole else cotangent.applied()], linear)[place]
    assert part is not None
    windows = tuple(range(len(shape) - rank, len(shape)))
    pulled: Value | None
    if whole:
        pulled = expand(single, shape, ())
    elif place == 0:
        ones = full(node.inputs[1].shape, 1.0, FLOAT64)
        pulled = greater(full_correlation(convert(mask, FLOAT64), ones, rank), 0.0)
    elif rank == len(shape):
        pulled = None
    else:
        pulled = _spread(emit(reduce_any, [mask], axes=windows), shape, windows)
    own = Cotangent(part, pulled, is_applied=not whole)
    return [own if k == place else None for k in range(2)]


def _cumulative(
    node: Node, cotangent: Cotangent, mask: Value, linear: Sequence[bool]
) -> list[Cotangent | None] | None:
    """Return the cotangent of the operand of a cumulative op: an element is not masked if one of those after it is not."""
    op = node.op
    assert isinstance(op, Cumulative)
    if isinstance(mask, Literal) or (op is not cumsum and linear[0]):
        return None
    axis, reverse = node.params["axis"], node.params["reverse"]
    if op is gated_recurrence:
        gates = not_equal(node.inputs[0], 0.0)
        single = node.copy((convert(gates, FLOAT64), node.inputs[1]))
        *_, hits = op.transpose(single, [convert(mask, FLOAT64)], linear)
    else:
        hits = cumsum(convert(mask, INT64), axis=axis, reverse=not reverse)
    assert hits is not None
    counts = greater(hits, 0)
    if op is recurrence and not _is_finite_number(node.inputs[0]):
        factors = node.inputs[0]
        safe = where(counts, factors, zeros_like(factors))
        node = node.copy((safe, *node.inputs[1:]))
    *others, part = op.transpose(node, [cotangent.applied()], linear)
    assert part is not None
    return [*[None for _ in others], Cotangent(part, counts, is_applied=True)]


def _is_finite_number(value: Value) -> bool:
    """Return whether an array is one number everywhere, by which zeros stay zeros."""
    number = number_of(_unexpanded(value))
    return number is not None and cmath.isfinite(number)


def _spread(reduced: Value, shape: Shape, axes: Sequence[int]) -> Value:
    """Return an array that was reduced along some axes, repeated along these."""
    kept = tuple([axis for axis in range(len(shape)) if axis not in axes])
    return expand(reduced, shape, kept)
