"""Fourier transforms of many numbers: rows that Python computes, by NumPy's routines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Node, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import part_dtype
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate, real


def _linear(row: str) -> Any:
    """Return the tangent rule of a linear row."""

    def tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
        def push(tangents: Tangents) -> Value | None:
            return None if tangents[0] is None else _ROWS[row](tangents[0], **params)

        return push

    return tangent


def _complex_dtype(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
    return (np.result_type(dtype, np.complex64),)


def _complex(x: Value) -> Value:
    return convert(x, _complex_dtype(x.dtype)[0])


complex_fourier: Callback = callback_row(
    "complex_fourier",
    ranks=(1,),
    shapes=lambda x, *, sign: (x,),
    evaluate=lambda x, *, sign: np.fft.fft(x) if sign < 0 else np.fft.ifft(x, norm="forward"),
    takes_stacks=True,
    tangent=_linear("complex"),
    transpose=lambda ct, node: complex_fourier(ct, **node.params),
    linear_in=0,
    samples=(((5,), {"sign": -1}), ((2, 4), {"sign": 1})),
    prepare=lambda x: (_complex(x),),
)
"""``sum x[j] exp(sign 2 pi i j k / n)``."""


def half_weights(x: Value, n: int, weight: float) -> Value:
    """Multiply half a spectrum of n numbers, except for what is its own mirror image."""
    weights = np.full(n // 2 + 1, weight)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    return x * broadcast_to(constant(weights.astype(part_dtype(x.dtype))), x.shape)


half_fourier: Callback = callback_row(
    "half_fourier",
    ranks=(1,),
    shapes=lambda x: ((x[0] // 2 + 1,),),
    dtypes=_complex_dtype,
    evaluate=lambda x: np.fft.rfft(x),
    takes_stacks=True,
    tangent=_linear("half"),
    transpose=lambda ct, node: _half_transpose(ct, node),
    linear_in=0,
    samples=(((5,), {}), ((2, 4), {}), ((1,), {})),
    prepare=lambda x: (real(x) if x.dtype.kind == "c" else x,),
)
"""The first half of the spectrum of real numbers."""


def _half_transpose(ct: Value, node: Node) -> Value:
    n = node.inputs[0].shape[-1]
    return real_fourier(half_weights(conjugate(ct), n, 0.5), n=n)


def _real(x: NDArray, *, n: int) -> NDArray:
    return np.fft.irfft(x, n, norm="forward")


real_fourier: Callback = callback_row(
    "real_fourier",
    ranks=(1,),
    shapes=lambda x, *, n: ((n,),),
    dtypes=lambda dtype, *, n: (part_dtype(dtype),),
    evaluate=_real,
    takes_stacks=True,
    tangent=_linear("real"),
    transpose=lambda ct, node: half_weights(conjugate(half_fourier(ct)), node.params["n"], 2.0),
    linear_in=0,
    samples=(((3,), {"n": 5}), ((2, 3), {"n": 4})),
    prepare=lambda x: (_complex(x),),
)
"""The n real numbers that have half a spectrum, times n; ``exp`` with a positive sign."""

_ROWS = {"complex": complex_fourier, "half": half_fourier, "real": real_fourier}
