"""Cotangents, and the masks that selections leave on them."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.graph import OPERATORS, Value


@dataclass(frozen=True, slots=True)
class Cotangent:
    """A cotangent that is `value` where `mask` holds and zero elsewhere (everywhere `value` without a mask).

    Where a selection did not take a branch, its cotangent is zero *by selection*: partial derivatives along that branch may be infinite or
    NaN there, and 0 * inf must not arise. So the mask travels with the cotangent through elementwise nodes and is applied at the end.
    """

    value: Value
    mask: Value | None = None

    def applied(self) -> Value:
        """Return the cotangent itself."""
        if self.mask is None:
            return self.value
        return OPERATORS["where"](self.mask, self.value, OPERATORS["zeros_like"](self.value))
