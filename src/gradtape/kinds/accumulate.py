"""The accumulate kind: ``out = base; out[f(j)] = v[j]`` or ``out[f(j)] += v[j]``. Linear in base and v together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from gradtape.ir.builder import emit
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import Aval, aval
from gradtape.kinds.index_map import Index
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import register

T = TypeVar("T")


class Accumulate(Op):
    """A row of the accumulate kind. Inputs: base, v, then index arrays.

    Parameters
    ----------
    name : str
        The op's name.
    combine : {"set", "add"}
        Whether v replaces what stands in base (the last write wins) or is added to it.
    evaluate : callable
        ``(base, v, *indices, **params) -> array``: NumPy's way.
    target : callable
        ``(j, base shape, *index readers, **params) -> position in base`` where v at position ``j`` lands.
    transpose : callable
        ``(ct, node) -> (ct of base, ct of v)``, both as values.
    lead : callable or None
        ``(size, **params) -> params`` where base and v have one axis more in front; None for rows that take index arrays.
    without_starts : Accumulate or None
        For a row whose last input says again what the index array says, for kernels: where the segment of v begins that belongs to each
        element of base. It is the row that does the same without that input.
    samples : sequence of tuples
        ``(base shape, v shape, index arrays, params)``.
    """

    def __init__(
        self,
        name: str,
        *,
        combine: Literal["set", "add"],
        evaluate: Callable[..., NDArray],
        target: Callable[..., Index],
        transpose: Callable[[Value, Node], tuple[Value, Value]],
        lead: Callable[..., dict[str, Any]] | None = None,
        without_starts: Accumulate | None = None,
        samples: Sequence[tuple[Any, ...]] = (),
    ) -> None:
        super().__init__(name)
        self.combine = combine
        self.numpy = evaluate
        self.target = target
        self.transpose_rule = transpose
        self.lead_rule = lead
        self.without_starts = without_starts
        self.samples = samples

    def __call__(self, base: Any, v: Any, *indices: Any, **params: Any) -> Value:
        return emit(self, [as_value(base), as_value(v), *[as_value(index) for index in indices]], **params)

    def split(self, operands: Sequence[T]) -> tuple[T, T, list[T], list[T]]:
        """Return base, v, the index arrays, and the starts of segments of a node's inputs, or of what stands for them."""
        base, v, *indices = operands
        end = len(indices) - (self.without_starts is not None)
        return base, v, indices[:end], indices[end:]

    def lead(self, size: int, **params: Any) -> dict[str, Any]:
        """Return the parameters for a base and values with an axis of this size more in front."""
        assert self.lead_rule is not None
        return self.lead_rule(size, **params)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        return (aval(avals[0].shape, avals[0].dtype),)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        return (self.numpy(*arrays, **params),)

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        base, v = tangents[:2]
        if base is None and v is None:
            return (None,)
        base = base if base is not None else PRIMITIVES["zeros_like"](node.inputs[0])
        v = v if v is not None else PRIMITIVES["zeros_like"](node.inputs[1])
        return (emit(self, [base, v, *node.inputs[2:]], **node.params),)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        (cotangent,) = cotangents
        rest = (None,) * (len(node.inputs) - 2)
        if cotangent is None:
            return (None, None, *rest)
        return (*self.transpose_rule(cotangent, node), *rest)


def accumulate(name: str, **facts: Any) -> Accumulate:
    """Enter a row of the accumulate kind; see `Accumulate` for the facts."""
    return register(Accumulate(name, **facts))
