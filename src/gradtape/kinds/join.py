"""The join kind: arrays laid end to end along one axis. Linear in all of them; the transpose cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.builder import emit
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import Aval, Shape, aval


class Join(Op):
    """The one op of its kind. Inputs of one dtype and rank, equal but for the extent of ``axis``, its only
    parameter.

    A sum of padded arrays would do the same, but at a cost that grows with the square of their number, and
    it would change -0.0 to 0.0.
    """

    samples: Sequence[tuple[Any, ...]] = (
        (((3,), (2,)), {"axis": 0}),
        (((2, 3), (2, 1), (2, 2)), {"axis": 1}),
        (((2, 3), (0, 3)), {"axis": 0}),
        (((1,),), {"axis": 0}),
    )

    def __call__(self, *pieces: Value, axis: int) -> Value:
        return emit(self, pieces, axis=axis)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        axis, first = params["axis"], avals[0]
        extent = sum(type_.shape[axis] for type_ in avals)
        return (aval((*first.shape[:axis], extent, *first.shape[axis + 1 :]), first.dtype),)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        return (np.concatenate(arrays, params["axis"]),)

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        if all(tangent is None for tangent in tangents):
            return (None,)
        zeros = PRIMITIVES["zeros_like"]
        pieces = [
            zeros(piece) if tangent is None else tangent
            for piece, tangent in zip(node.inputs, tangents, strict=True)
        ]
        return (emit(self, pieces, **node.params),)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        (cotangent,) = cotangents
        if cotangent is None:
            return (None,) * len(node.inputs)
        axis, parts = node.params["axis"], []
        for start, piece, flag in zip(starts(node), node.inputs, linear, strict=True):
            first = tuple(start if k == axis else 0 for k in range(piece.ndim))
            strides = (1,) * piece.ndim
            parts.append(PRIMITIVES["slice"](cotangent, first, piece.shape, strides) if flag else None)
        return tuple(parts)


def starts(node: Node) -> Shape:
    """Return where each input of a join begins along its axis."""
    begin, axis = [0], node.params["axis"]
    for piece in node.inputs:
        begin.append(begin[-1] + piece.shape[axis])
    return tuple(begin[:-1])
