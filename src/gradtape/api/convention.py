"""The convention for derivatives in complex numbers.

Inside, the cotangent g of z stands for the map dz -> Re(g dz), so that transposing never conjugates. Outside,
the gradient of a real function f of z = x + iy is df/dx + i df/dy, the direction of steepest ascent: the conjugate.
(|z|^2 has the gradient 2z.) Both are the same for real numbers.
"""

from __future__ import annotations

from ..ir.graph import Literal, Value, literal
from ..ops.complex_parts import conjugate


def flipped(value: Value) -> Value:
    """Return a cotangent of one convention in the other."""
    if value.dtype.kind != "c":
        return value
    if isinstance(value, Literal):
        assert value.data is not None
        return literal(value.data.conj(), value.dtype)
    return conjugate(value)
