"""The cumulative kind: ``out[k] = step(out[k-1], x[k])`` along one axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import emit
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import Aval, aval
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import register


class Cumulative(Op):
    """A row of the cumulative kind, with parameters ``axis`` and ``reverse`` (from the end towards the start).

    Parameters
    ----------
    name : str
        The op's name.
    step : callable
        ``(previous, *elements) -> element`` as a formula over elementwise rows.
    first : callable
        ``(*elements) -> element``: the element at which it starts.
    evaluate : callable
        ``(*arrays, axis) -> array`` forwards.
    tangent : callable or None
        ``(z, inputs, params) -> (tangents -> Value)``, linear in the tangents (None is zero).
    transpose : callable or None
        ``(ct, node) -> cotangents`` per input, for linear rows.
    samples : sequence of tuples
        ``(shapes of the inputs, params)``.
    """

    def __init__(
        self,
        name: str,
        *,
        step: Callable[..., Value],
        first: Callable[..., Value],
        evaluate: Callable[..., NDArray],
        tangent: Callable[..., Callable[[Sequence[Value | None]], Value | None]],
        transpose: Callable[[Value, Node], tuple[Value | None, ...]] | None = None,
        kinks: str = "",
        arity: int = 1,
    ) -> None:
        super().__init__(name)
        self.step = step
        self.first = first
        self.numpy = evaluate
        self.tangent = tangent
        self.transpose_rule = transpose
        self.kinks = kinks
        self.samples = tuple(
            ((shape,) * arity, {"axis": axis, "reverse": reverse})
            for shape, axis, reverse in (
                ((5,), 0, False),
                ((3, 4), 1, True),
                ((3, 4), 0, False),
                ((0,), 0, False),
            )
        )

    def __call__(self, *inputs: Any, axis: int, reverse: bool = False) -> Value:
        return emit(self, [as_value(x) for x in inputs], axis=axis, reverse=reverse)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        return (aval(avals[0].shape, avals[0].dtype),)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        axis = params["axis"]
        if not params["reverse"]:
            return (self.numpy(*arrays, axis=axis),)
        flip = tuple(slice(None, None, -1) if k == axis else slice(None) for k in range(arrays[0].ndim))
        return (self.numpy(*[array[flip] for array in arrays], axis=axis)[flip],)

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        if all(tangent is None for tangent in tangents):
            return (None,)
        return (self.tangent(node.out, node.inputs, node.params)(tangents),)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        (cotangent,) = cotangents
        if self.transpose_rule is None:
            raise NotDifferentiableError(f"{self.name} is not linear", where=node.site)
        if cotangent is None:
            return (None,) * len(node.inputs)
        return self.transpose_rule(cotangent, node)


def cumulative(name: str, **facts: Any) -> Cumulative:
    """Enter a row of the cumulative kind; see `Cumulative` for the facts."""
    return register(Cumulative(name, **facts))
