"""Cotangents, and the masks that selections leave on them."""

from __future__ import annotations

from dataclasses import dataclass

from gradtape.ir.graph import Value
from gradtape.ir.primitives import PRIMITIVES


@dataclass(frozen=True, slots=True)
class Cotangent:
    """A cotangent that is `value` where `mask` holds and zero elsewhere (everywhere `value` without a mask).

    Where a selection did not take a branch, its cotangent is zero *by selection*: partial derivatives along that branch may be infinite or
    NaN there, and 0 * inf must not arise. So the mask travels with the cotangent through elementwise nodes and through those that only move
    elements, and is applied at the end.

    Attributes
    ----------
    value : Value
        The cotangent where the mask holds.
    mask : Value or None
        Where it is not zero by selection.
    is_applied : bool
        Whether the value is zero already where the mask does not hold.
    """

    value: Value
    mask: Value | None = None
    is_applied: bool = False

    def applied(self) -> Value:
        """Return the cotangent itself."""
        if self.mask is None or self.is_applied:
            return self.value
        return PRIMITIVES["where"](self.mask, self.value, PRIMITIVES["zeros_like"](self.value))


Tangent = Cotangent
"""A tangent with its mask, in forward mode: outside the mask it is zero by selection, also behind slopes that are infinite."""


def summed(a: Cotangent, b: Cotangent) -> Cotangent:
    """Return the sum of two masked (co)tangents: zero by selection where both are."""
    add = PRIMITIVES["add_stacks" if a.value.dtype.kind == "O" else "add"]
    if a.mask is b.mask:
        return Cotangent(add(a.value, b.value), a.mask, a.is_applied and b.is_applied)
    if a.mask is None or b.mask is None:
        return Cotangent(add(a.applied(), b.applied()))
    return Cotangent(add(a.applied(), b.applied()), PRIMITIVES["bitwise_or"](a.mask, b.mask), is_applied=True)
