"""Derivatives of routines: how tangents are pushed forward, and a cotangent is pulled back to the operand that a row is linear in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtape.errors import NotDifferentiableError
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import Op

Outs = Sequence[Value]
Tangents = Sequence[Value | None]
Push = Callable[[Tangents], Value | Tangents | None]


class RoutineDerivatives(Op):
    """A row of routines with derivatives of its own.

    Attributes
    ----------
    tangent : callable or None
        ``(outs, inputs, params) -> (tangents -> tangents of the results)``; None for no derivative.
    transpose_rule : callable or None
        ``(cotangent, node) -> cotangent`` of the operand that the row is linear in.
    linear_in : int or None
        The place of that operand.
    """

    tangent: Callable[..., Push] | None
    transpose_rule: Callable[[Value, Node], Value] | None
    linear_in: int | None

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        if self.tangent is None or all(tangent is None for tangent in tangents):
            return (None,) * len(node.outs)
        pushed = self.tangent(node.outs, node.inputs, node.params)(tangents)
        return (pushed,) if pushed is None or isinstance(pushed, Value) else tuple(pushed)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        (cotangent,) = cotangents
        if self.transpose_rule is None or not self.is_linear(linear):
            raise NotDifferentiableError(f"{self.name} is not linear", where=node.site)
        parts: list[Value | None] = [None] * len(node.inputs)
        if cotangent is not None and self.linear_in is not None:
            parts[self.linear_in] = self.transpose_rule(cotangent, node)
        return tuple(parts)

    def is_linear(self, flags: Sequence[bool]) -> bool:
        """Return whether the row is linear in the flagged inputs together."""
        return all(place == self.linear_in for place, flag in enumerate(flags) if flag)
