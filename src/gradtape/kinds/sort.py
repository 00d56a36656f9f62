"""The sort kind: positions in order. Integer results; values follow by a gather, which carries the
derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.builder import emit
from gradtape.ir.graph import Literal, Node, Value, constant
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import INTP, Aval, Shape, aval
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import register


class Sort(Op):
    """A row of the sort kind: `shape` of the positions, NumPy's way to find them, and `batch`.

    The latter is ``(*operands, mapped, size, **params) -> Value``: the positions where the operands flagged by `mapped` have one
    axis more in front. `of_complex` is ``(*operands, **params) -> Value``: the positions of complex numbers, by rows of real ones.
    """

    def __init__(
        self,
        name: str,
        *,
        shape: Callable[..., Shape],
        evaluate: Callable[..., NDArray],
        batch: Callable[..., Value],
        of_complex: Callable[..., Value],
        samples: Sequence[tuple[Any, ...]],
    ) -> None:
        super().__init__(name)
        self.shape_rule = shape
        self.numpy = evaluate
        self.batch_rule = batch
        self.of_complex = of_complex
        self.samples = samples

    def __call__(self, *inputs: Any, **params: Any) -> Value:
        return emit(self, [_stored(as_value(x)) for x in inputs], **params)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        return (aval(self.shape_rule(*[type_.shape for type_ in avals]), INTP),)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        return (self.numpy(*arrays, **params).astype(INTP, copy=False),)

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        return (None,)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        return (None,) * len(node.inputs)


def _stored(x: Value) -> Value:
    """Return an array in memory: a routine cannot read a literal."""
    return constant(x.data) if isinstance(x, Literal) and x.data is not None else x


def sort_row(name: str, **facts: Any) -> Sort:
    """Enter a row of the sort kind."""
    return register(Sort(name, **facts))
