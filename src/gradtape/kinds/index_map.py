"""The index-map kind: ``out[i] = x[f(i)]``, zero where f(i) falls outside the row's bounds. Linear in
x."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.builder import emit
from gradtape.ir.graph import Literal, Node, Value, number_of
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import Aval, Shape, aval
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import register

Index = tuple[Any, ...]
"""Positions as expressions: they support ``+ - * // %`` with integers and with each other."""


class IndexMap(Op):
    """A row of the index-map kind. The first input is x; gathers take index arrays after it.

    Parameters
    ----------
    name : str
        The op's name.
    shape : callable
        ``(x shape, *index shapes, **params) -> output shape``.
    evaluate : callable
        ``(x, *indices, **params) -> array``: NumPy's way.
    source : callable
        ``(i, x shape, *index readers, **params) -> position in x``: where the output at position ``i``
        comes from. An index reader
        takes a position in its index array and returns the (wrapped, checked) integer there.
    transpose : callable
        ``(ct, node) -> Value``: the cotangent of x.
    lead : callable or None
        ``(size, **params) -> params`` of the same map of an array with one axis more in front; None for rows that take index arrays.
    axis_images : callable, optional
        ``(x shape, **params) -> axes``: for each axis of x, the output's axis along which the elements of the whole axis stand in the same
        order; None where there is none. Rows that take index arrays have none at all.
    inside : callable, optional
        ``(i, x shape, **params) -> ((expression, low, high), ...)``: where any expression is not in ``[low,
        high)`` the output is zero.
    is_expansion : bool
        Whether the row repeats its operand along new axes: an expanded literal is a repeated number.
    finite_derivatives : bool
        See `Op`.
    samples : sequence of tuples
        ``(shape, params)`` or ``(shape, index arrays, params)`` that the row is tested with.
    """

    def __init__(
        self,
        name: str,
        *,
        shape: Callable[..., Shape],
        evaluate: Callable[..., NDArray],
        source: Callable[..., Index],
        transpose: Callable[[Value, Node], Value],
        lead: Callable[..., dict[str, Any]] | None = None,
        axis_images: Callable[..., tuple[int | None, ...]] | None = None,
        inside: Callable[..., tuple[tuple[Any, int, int], ...]] | None = None,
        is_expansion: bool = False,
        finite_derivatives: bool = False,
        samples: Sequence[tuple[Any, ...]] = (),
    ) -> None:
        super().__init__(name)
        self.shape_rule = shape
        self.numpy = evaluate
        self.source = source
        self.transpose_rule = transpose
        self.lead_rule = lead
        self._axis_images = axis_images
        self.inside = inside
        self.is_expansion = is_expansion
        self.finite_derivatives = finite_derivatives
        self.samples = samples

    def __call__(self, x: Any, *indices: Any, **params: Any) -> Value:
        return emit(self, [as_value(x), *[as_value(index) for index in indices]], **params)

    def lead(self, size: int, **params: Any) -> dict[str, Any]:
        """Return the parameters for an array with an axis of this size more in front."""
        assert self.lead_rule is not None
        return self.lead_rule(size, **params)

    def axis_images(self, node: Node) -> tuple[int | None, ...]:
        """Return, for each axis of a node's first operand, the output's axis that has its elements in the same order, or None."""
        x = node.inputs[0]
        return (None,) * x.ndim if self._axis_images is None else self._axis_images(x.shape, **node.params)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        x, *indices = avals
        return (aval(self.shape_rule(x.shape, *[index.shape for index in indices], **params), x.dtype),)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        return (np.asarray(self.numpy(*arrays, **params)),)

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        if tangents[0] is None:
            return (None,)
        return (emit(self, [tangents[0], *node.inputs[1:]], **node.params),)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        (cotangent,) = cotangents
        rest = (None,) * (len(node.inputs) - 1)
        return (None if cotangent is None else self.transpose_rule(cotangent, node), *rest)


def index_map(name: str, **facts: Any) -> IndexMap:
    """Enter a row of the index-map kind; see `IndexMap` for the facts."""
    return register(IndexMap(name, **facts))


def repeated_number(value: Value) -> Literal | None:
    """Return the literal that a value is, or repeats."""
    if isinstance(value, Literal):
        return value
    node = value.node
    if node is None or not isinstance(node.op, IndexMap) or not node.op.is_expansion:
        return None
    return node.inputs[0] if isinstance(node.inputs[0], Literal) else None


def is_zero(value: Value) -> bool:
    """Return whether a value is the number zero, or repeats it."""
    number = repeated_number(value)
    return number is not None and number_of(number) == 0
