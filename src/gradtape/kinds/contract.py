"""The contract kind: products of two arrays summed over shared subscripts, ``out[o] = sum x[a] y[b]``. Bilinear."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.errors import InternalError, ShapeError
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import Aval, aval

Subscripts = tuple[int, ...]


class Contract(Op):
    """The one op of its kind. Parameters ``x``, ``y``, ``out``: the subscripts (small integers) of the axes.

    No subscript repeats within an operand, every output subscript occurs in an operand, and every subscript that is summed over occurs in
    both (what occurs in one alone is summed before).
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

    def __call__(self, a: Value, b: Value, *, x: Subscripts, y: Subscripts, out: Subscripts) -> Value:
        return emit(self, [a, b], x=x, y=y, out=out)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        a, b = avals
        if a.dtype != b.dtype:
            raise InternalError(
                f"{self.name} takes operands of one dtype, not {a.dtype} and {b.dtype}", where=here.site
            )
        extents: dict[int, int] = {}
        for type_, subscripts in ((a, params["x"]), (b, params["y"])):
            for subscript, extent in zip(subscripts, type_.shape, strict=True):
                if extents.setdefault(subscript, extent) != extent:
                    raise ShapeError(
                        f"shapes {a.shape} and {b.shape} do not match: the contracted axes have lengths "
                        f"{extents[subscript]} and {extent}",
                        where=here.site,
                        remedy="transpose an operand, or check which axes are contracted (in a product of matrices the last of the first "
                        "operand and the second-to-last of the second)",
                    )
        return (aval(tuple(extents[subscript] for subscript in params["out"]), a.dtype),)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        a, b = arrays
        x, y, out = params["x"], params["y"], params["out"]
        batch, rows, columns, summed = groups_of(params)
        # np.matmul runs on BLAS; np.einsum would not.
        product = np.matmul(_matrices(a, x, batch, rows, summed), _matrices(b, y, batch, summed, columns))
        order = [*batch, *rows, *columns]
        extents = dict(zip((*x, *y), (*a.shape, *b.shape), strict=True))
        shaped = product.reshape([extents[subscript] for subscript in order])
        return (shaped.transpose([order.index(subscript) for subscript in out]),)

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


class Groups(NamedTuple):
    """The subscripts of a contraction as those of a product of matrices: of a batch, rows, columns, and those summed over."""

    batch: Subscripts
    rows: Subscripts
    columns: Subscripts
    summed: Subscripts


def groups_of(params: dict[str, Any]) -> Groups:
    """Return the groups of the subscripts of a contraction, in the order of the result, and of `x`."""
    x, y, out = params["x"], params["y"], params["out"]
    return Groups(
        tuple([s for s in out if s in x and s in y]),
        tuple([s for s in out if s not in y]),
        tuple([s for s in out if s not in x]),
        tuple([s for s in x if s not in out]),
    )


def extents_of(node: Node) -> dict[int, int]:
    """Return the extent of each subscript of a contraction."""
    x, y = node.inputs
    return dict(zip((*node.params["x"], *node.params["y"]), (*x.shape, *y.shape), strict=True))


def _matrices(
    x: NDArray, subscripts: Subscripts, stacked: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> NDArray:
    """Return an operand as a stack of matrices."""
    stack = x.transpose([subscripts.index(subscript) for subscript in (*stacked, *rows, *columns)])
    extents = stack.shape[: len(stacked)]
    count = math.prod(stack.shape[len(stacked) : len(stacked) + len(rows)])
    return stack.reshape((*extents, count, math.prod(stack.shape[len(stacked) + len(rows) :])))
