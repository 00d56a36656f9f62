"""The correlation kind: products of an array's windows with a kernel, ``out[b, o] = sum x[b, o + k] w[b, k]``. Bilinear."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import Aval, Shape, aval


class Correlation(Op):
    """The one op of its kind. Parameter ``rank``: along how many trailing axes the kernel moves.

    Both operands have the same axes before these. The kernel stays inside the array: the result has ``n - k + 1`` elements along them.

    Parameters
    ----------
    name : str
        The op's name.
    transpose_x, transpose_w : callable
        ``(ct, node) -> Value``: the cotangents of the array and of the kernel.
    samples : sequence of tuples
        ``(shape of the array, shape of the kernel, params)``.
    """

    finite_derivatives = True

    def __init__(
        self,
        name: str,
        *,
        transpose_x: Callable[[Value, Node], Value],
        transpose_w: Callable[[Value, Node], Value],
        samples: Sequence[tuple[Any, ...]],
    ) -> None:
        super().__init__(name)
        self._rules = transpose_x, transpose_w
        self.samples = samples

    def __call__(self, x: Value, w: Value, *, rank: int) -> Value:
        return emit(self, [x, w], rank=rank)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        x, w = avals
        lead = x.ndim - params["rank"]
        fits = x.ndim == w.ndim and x.shape[:lead] == w.shape[:lead]
        if not fits or any(not 1 <= k <= n for n, k in zip(x.shape[lead:], w.shape[lead:], strict=True)):
            raise ShapeError(
                f"a kernel of shape {w.shape} does not fit into an array of shape {x.shape}",
                where=here.site,
                remedy="the kernel must have elements, and not more than the array along any axis",
            )
        return (aval(_result_shape(x.shape, w.shape, lead), x.dtype),)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        x, w = arrays
        lead = x.ndim - params["rank"]
        shape = _result_shape(x.shape, w.shape, lead)
        out = np.zeros(shape, x.dtype)
        if math.prod(w.shape[lead:]) <= math.prod(shape[lead:]):
            for k in np.ndindex(w.shape[lead:]):
                weight = w[(..., *k)].reshape(w.shape[:lead] + (1,) * params["rank"])
                out += x[_window(k, shape[lead:])] * weight
        else:
            axes = tuple(range(lead, x.ndim))
            for o in np.ndindex(shape[lead:]):
                out[(..., *o)] = np.sum(x[_window(o, w.shape[lead:])] * w, axis=axes)
        return (out,)

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        (x, w), (dx, dw) = node.inputs, tangents
        first = None if dx is None else emit(self, [dx, w], **node.params)
        second = None if dw is None else emit(self, [x, dw], **node.params)
        if first is None or second is None:
            return (first if second is None else second,)
        return (PRIMITIVES["add"](first, second),)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        (ct,) = cotangents
        if ct is None:
            return (None, None)
        rule = self._rules[0 if linear[0] else 1]
        return (rule(ct, node), None) if linear[0] else (None, rule(ct, node))


def _result_shape(x: Shape, w: Shape, lead: int) -> Shape:
    return (*x[:lead], *[n - k + 1 for n, k in zip(x[lead:], w[lead:], strict=True)])


def _window(start: Shape, extents: Shape) -> tuple[Any, ...]:
    return (..., *[slice(k, k + n) for k, n in zip(start, extents, strict=True)])
