"""The contract kind: products of two arrays summed over shared letters, ``out[o] = sum x[a] y[b]``.
Bilinear."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import Aval, aval

Letters = tuple[int, ...]


class Contract(Op):
    """The one op of its kind. Parameters ``x``, ``y``, ``out``: the letters (small integers) of the axes.

    No letter repeats within an operand, every output letter occurs in an operand, and every letter that is
    summed over
    occurs in both (what occurs in one alone is summed before).
    """

    finite_derivatives = True
    samples: Sequence[tuple[Any, ...]] = (
        ((2, 3), (3, 4), {"x": (0, 1), "y": (1, 2), "out": (0, 2)}),
        ((3,), (3,), {"x": (0,), "y": (0,), "out": ()}),
        ((2, 3, 4), (4, 2), {"x": (0, 1, 2), "y": (2, 3), "out": (0, 3, 1)}),
        ((2, 3, 4), (2, 4, 5), {"x": (0, 1, 2), "y": (0, 2, 3), "out": (0, 1, 3)}),
        ((2, 0), (0, 3), {"x": (0, 1), "y": (1, 2), "out": (0, 2)}),
        ((2,), (3,), {"x": (0,), "y": (1,), "out": (1, 0)}),
    )

    def __call__(self, a: Value, b: Value, *, x: Letters, y: Letters, out: Letters) -> Value:
        return emit(self, [a, b], x=x, y=y, out=out)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        a, b = avals
        extents: dict[int, int] = {}
        for type_, letters in ((a, params["x"]), (b, params["y"])):
            for letter, extent in zip(letters, type_.shape, strict=True):
                if extents.setdefault(letter, extent) != extent:
                    raise ShapeError(
                        f"shapes {a.shape} and {b.shape} do not fit: an axis that is summed over has extents "
                        f"{extents[letter]} and {extent}",
                        where=here.site,
                        remedy="transpose an operand or check which axes meet (the last of the "
                        "first, the last but one of the second)",
                    )
        return (aval(tuple(extents[letter] for letter in params["out"]), a.dtype),)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        a, b = arrays
        x, y, out = params["x"], params["y"], params["out"]
        both = [letter for letter in x if letter in y and letter in out]
        summed = [letter for letter in x if letter not in out]
        left = [letter for letter in x if letter in out and letter not in y]
        right = [letter for letter in y if letter not in x]
        # np.matmul runs on BLAS; np.einsum would not.
        product = np.matmul(_matrices(a, x, both, left, summed), _matrices(b, y, both, summed, right))
        order = [*both, *left, *right]
        extents = dict(zip((*x, *y), (*a.shape, *b.shape), strict=True))
        shaped = product.reshape([extents[letter] for letter in order])
        return (shaped.transpose([order.index(letter) for letter in out]),)

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        (a, b), (da, db) = node.inputs, tangents
        first = None if da is None else emit(self, [da, b], **node.params)
        second = None if db is None else emit(self, [a, db], **node.params)
        if first is None or second is None:
            return (first if second is None else second,)
        return (PRIMITIVES["add"](first, second),)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        (ct,) = cotangents
        if ct is None:
            return (None, None)
        (a, b), p = node.inputs, node.params
        if linear[0]:
            return (PRIMITIVES["contract"](ct, b, p["out"], p["y"], p["x"], node.inputs[0].shape), None)
        return (None, PRIMITIVES["contract"](ct, a, p["out"], p["x"], p["y"], node.inputs[1].shape))


def _matrices(
    x: NDArray, letters: Letters, stacked: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> NDArray:
    """Return an operand as a stack of matrices."""
    transposed = x.transpose([letters.index(letter) for letter in (*stacked, *rows, *columns)])
    extents = transposed.shape[: len(stacked)]
    count = math.prod(transposed.shape[len(stacked) : len(stacked) + len(rows)])
    return transposed.reshape((*extents, count, math.prod(transposed.shape[len(stacked) + len(rows) :])))
