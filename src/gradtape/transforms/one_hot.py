"""One-hot arrays along a mapped axis: the seeds of a Jacobian, kept as positions and numbers.

The first nodes that the seeds meet are often an elementwise factor and a product with a matrix. Of a product with the
identity the matrix itself is left; of one with a diagonal, its scaled rows. So the seeds are carried as positions and
numbers, until something needs them as an array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from gradtape.ir.builder import emit
from gradtape.ir.graph import Literal, Node, Value, constant, literal, number_of
from gradtape.ir.op import Op
from gradtape.ir.types import BOOL, INTP, Shape
from gradtape.kinds.contract import Contract
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap, is_zero, repeated_number
from gradtape.kinds.reduction import Reduction
from gradtape.ops.core.elementwise.arithmetic import add, multiply, subtract
from gradtape.ops.core.elementwise.cast import convert, identity
from gradtape.ops.core.elementwise.logic import bitwise_and, bitwise_or, equal, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import gather_row
from gradtape.ops.core.lengths import count_to
from gradtape.ops.core.reductions import reduce_any, reduce_sum
from gradtape.ops.core.shape import expand, permute, permute_row, reshape, reshape_row


class OneHot:
    """For each element of the mapped axis an array of `shape` that is zero but for one element.

    Parameters
    ----------
    shape : tuple of int
        Of one array.
    dtype : numpy.dtype
        Of the arrays.
    rows : Value
        For each element of the mapped axis, the position (in the flattened array) that is not zero.
    whole : bool
        Whether `rows` counts all positions: then nothing needs to be looked up.
    scale : Value or None
        The numbers at the positions, shape (count,); None means one.
    """

    __slots__ = ("_dense", "_moves", "dtype", "rows", "scale", "shape", "whole")

    def __init__(
        self, shape: Shape, dtype: np.dtype[Any], rows: Value, whole: bool, scale: Value | None = None
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.rows = rows
        self.whole = whole
        self.scale = scale
        self._dense: Value | None = None
        self._moves: dict[bytes, OneHot] = {}

    @property
    def count(self) -> int:
        """The extent of the mapped axis."""
        return self.rows.shape[0]

    def dense(self) -> Value:
        """Return the arrays themselves, the mapped axis in front."""
        if self._dense is None:
            size = prod(self.shape)
            flat = (self.count, size)
            positions = expand(count_to(size), flat, (1,))
            hit = equal(expand(self.rows, flat, (0,)), positions)
            if self.scale is None:
                flat_dense = convert(hit, self.dtype)
            else:
                scale = expand(self.scale, flat, (0,))
                flat_dense = where(hit, scale, literal(0, self.dtype))
            self._dense = reshape(flat_dense, (self.count, *self.shape))
        return self._dense

    def picked(self, other: Value) -> Value:
        """Return the elements of an array of the same shape at the positions."""
        if isinstance(other, Literal):
            return other
        flat = reshape(other, (prod(self.shape),))
        return flat if self.whole else gather_row(flat, self.rows)

    def scaled(self, scale: Value | None) -> OneHot:
        """Return the same positions with other numbers."""
        return self._with(self.shape, self.dtype if scale is None else scale.dtype, scale)

    def ones(self, dtype: np.dtype[Any]) -> OneHot:
        """Return the same positions with ones of a dtype."""
        return self._with(self.shape, dtype, None)

    def reshaped(self, shape: Shape) -> OneHot:
        """Return arrays of another shape and the same size."""
        return self._with(shape, self.dtype, self.scale)

    def moved(self, shape: Shape, new_positions: np.ndarray[Any, Any]) -> OneHot:
        """Return arrays of another shape, the element at position k moved to ``places[k]``."""
        key = new_positions.tobytes()
        if key not in self._moves:
            self._moves[key] = OneHot(shape, self.dtype, self.translated(new_positions), False)
        return self._moves[key]._with(shape, self.dtype, self.scale)

    def _with(self, shape: Shape, dtype: np.dtype[Any], scale: Value | None) -> OneHot:
        """Return the same positions. What is moved to the same positions has the same `rows`: so one sees that a mask fits."""
        other = OneHot(shape, dtype, self.rows, self.whole, scale)
        other._moves = self._moves
        return other

    def translated(self, new_positions: np.ndarray[Any, Any]) -> Value:
        """Return ``places[rows]``."""
        table = constant(new_positions.reshape(-1).astype(INTP))
        return table if self.whole else gather_row(table, self.rows)

    def numbers(self) -> Value:
        """Return the numbers at the positions."""
        if self.scale is not None:
            return self.scale
        return expand(literal(1, self.dtype), (self.count,), ())


Operand = Value | OneHot


def apply(node: Node, operands: Sequence[Operand], mapped: Sequence[bool]) -> Operand | None:
    """Return the output of a node of which operands are one-hot; None where it needs them as arrays."""
    rule = next((rule for kind, rule in RULES if isinstance(node.op, kind)), None)
    if rule is None or any(flag and isinstance(x, Value) for x, flag in zip(operands, mapped, strict=True)):
        return None
    return rule(node, operands)


def _elementwise(node: Node, operands: Sequence[Operand]) -> Operand | None:
    hot = [(k, x) for k, x in enumerate(operands) if isinstance(x, OneHot)]
    argument, first = hot[0]
    op = node.op
    if len(hot) > 1:
        if not all(x.rows is first.rows and x.shape == first.shape for _, x in hot[1:]):
            return None
        if op is where and argument == 0 and len(hot) == 2:
            return _masked(operands)
        if op in (bitwise_and, bitwise_or) and all(x.scale is None for _, x in hot):
            return first
        if op in (add, subtract, bitwise_and, bitwise_or):
            return first.scaled(emit(op, [x.numbers() for _, x in hot]))
        return None
    if op is not_equal and any(isinstance(x, Value) and is_zero(x) for x in operands):
        if first.scale is None:
            return first.ones(BOOL)
        return first.scaled(emit(op, [first.scale, literal(0, first.dtype)]))
    if op is bitwise_and:
        inputs = [first.picked(x) if isinstance(x, Value) else x.numbers() for x in operands]
        return first.scaled(emit(op, inputs))
    if op is where and argument == 0:
        return _chosen(operands, first)
    if op is where:
        return _selected(node, operands, argument, first)
    assert isinstance(op, Elementwise)
    if op.additive or op.linear_rules is None or op.linear_rules[argument] is None:
        return None  # zeros do not stay zeros
    if op is identity or (op is multiply and first.scale is None):
        others = [x for x in operands if isinstance(x, Value)]
        return first if op is identity else first.scaled(_vector(first, first.picked(others[0])))
    inputs = [first.numbers() if isinstance(x, OneHot) else first.picked(x) for x in operands]
    return first.scaled(emit(node.op, inputs, **node.params))


def _vector(hot: OneHot, number: Value) -> Value:
    """Return one number per element of the mapped axis."""
    return expand(number, (hot.count,), ()) if isinstance(number, Literal) else number


def _chosen(operands: Sequence[Operand], mask: OneHot) -> Operand | None:
    """``where(mask, x, 0)`` by a mask that is hot."""
    _, x, other = operands
    assert isinstance(x, Value) and isinstance(other, Value)
    if not is_zero(other):
        return None
    number = repeated_number(x)
    if mask.scale is None and number is not None and number_of(number) == 1:
        return mask.ones(x.dtype)
    picked = _vector(mask, mask.picked(x))
    if mask.scale is None:
        return mask.scaled(picked)
    return mask.scaled(emit(where, [mask.scale, picked, literal(0, x.dtype)]))


def _masked(operands: Sequence[Operand]) -> Operand | None:
    """``where(mask, hot, 0)`` by a mask that is hot at the same positions."""
    mask, hot, other = operands
    if not isinstance(mask, OneHot) or not isinstance(hot, OneHot) or isinstance(other, OneHot):
        return None
    if not is_zero(other):
        return None
    if mask.scale is None:
        return hot
    return hot.scaled(emit(where, [mask.scale, hot.numbers(), literal(0, hot.dtype)]))


def _selected(node: Node, operands: Sequence[Operand], argument: int, hot: OneHot) -> Operand | None:
    """``where(mask, hot, 0)``: zero stays zero."""
    other = operands[3 - argument]
    assert isinstance(other, Value)
    if not is_zero(other):
        return None
    inputs = [
        hot.numbers() if isinstance(x, OneHot) else literal(0, hot.dtype) if x is other else hot.picked(x)
        for x in operands
    ]
    return hot.scaled(emit(node.op, inputs))


def _index_map(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (hot, *indices) = operands
    if indices or not isinstance(hot, OneHot):
        return None
    size = prod(hot.shape)
    if node.op is reshape_row:
        return hot.reshaped(node.out.shape)
    if node.op is permute_row:
        new_positions = np.empty(size, INTP)
        order = np.arange(size, dtype=INTP).reshape(hot.shape).transpose(node.params["axes"])
        new_positions[order.reshape(-1)] = np.arange(size, dtype=INTP)
        return hot.moved(node.out.shape, new_positions)
    return None


def _reduction(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (hot,) = operands
    if not isinstance(hot, OneHot) or node.op not in (reduce_sum, reduce_any):
        return None
    axes = node.params["axes"]
    kept_axes = [axis for axis in range(len(hot.shape)) if axis not in axes]
    if not kept_axes:
        return hot.numbers()
    return hot.moved(node.out.shape, _coordinates(hot.shape, kept_axes))


def _coordinates(shape: Shape, axes: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return, for each position of an array, its position among the given axes alone."""
    all_coordinates = np.indices(shape, INTP).reshape(len(shape), prod(shape))
    position = np.zeros(prod(shape), INTP)
    for axis in axes:
        position = position * shape[axis] + all_coordinates[axis]
    return position


def _contract(node: Node, operands: Sequence[Operand]) -> Operand | None:
    """Sum over one-hot subscripts: pick. What stays of the one-hot subscripts meets the picked numbers in a smaller product."""
    first, second = operands
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    if isinstance(first, OneHot) and isinstance(second, OneHot):
        return None
    hot, other = (first, second) if isinstance(first, OneHot) else (second, first)
    own_subscripts, theirs = (x, y) if isinstance(first, OneHot) else (y, x)
    assert isinstance(hot, OneHot) and isinstance(other, Value)
    summed = [subscript for subscript in own_subscripts if subscript not in out]
    kept_subscripts = tuple(subscript for subscript in own_subscripts if subscript in out)
    if not summed:
        return None
    rest_of_other = tuple(subscript for subscript in theirs if subscript not in summed)
    extents = dict(zip(theirs, other.shape, strict=True))
    permuted = permute(other, tuple(theirs.index(subscript) for subscript in (*summed, *rest_of_other)))
    count = prod(extents[subscript] for subscript in summed)
    table = reshape(permuted, (count, *[extents[subscript] for subscript in rest_of_other]))
    rows = hot
    if kept_subscripts:
        rows = hot.moved(
            (count,), _coordinates(hot.shape, [own_subscripts.index(subscript) for subscript in summed])
        )
    picked = table if rows.whole else gather_row(table, rows.rows)
    if hot.scale is not None:
        picked = multiply(picked, expand(hot.scale, picked.shape, (0,)))
    if not kept_subscripts:
        order = tuple(rest_of_other.index(subscript) + 1 for subscript in out)
        return permute(picked, (0, *order))
    shape = tuple(hot.shape[own_subscripts.index(subscript)] for subscript in kept_subscripts)
    coordinates = _coordinates(hot.shape, [own_subscripts.index(subscript) for subscript in kept_subscripts])
    remaining = OneHot(shape, hot.dtype, hot.translated(coordinates), False).dense()
    new = max((*x, *y)) + 1
    return emit(
        node.op, [remaining, picked], x=(new, *kept_subscripts), y=(new, *rest_of_other), out=(new, *out)
    )


Rule = Callable[[Node, Sequence[Operand]], Operand | None]
RULES: tuple[tuple[type[Op], Rule], ...] = (
    (Elementwise, _elementwise),
    (IndexMap, _index_map),
    (Reduction, _reduction),
    (Contract, _contract),
)
