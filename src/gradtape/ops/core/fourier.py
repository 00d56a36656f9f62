"""Fourier, cosine and sine transforms of many numbers: rows that Python computes, by NumPy's and SciPy's routines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from gradtape.ir.graph import Node, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import part_dtype
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate, real
from gradtape.ops.core.shape import expand


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


def _cosines(x: NDArray, *, kind: int, sine: bool, axes: tuple[int, ...], norm: str, ortho: bool) -> NDArray:
    from scipy import fft

    routine: Any
    if len(axes) == 1:
        routine = fft.dst if sine else fft.dct
        return cast(NDArray, routine(x, kind, None, axes[0], norm, orthogonalize=ortho))
    routine = fft.dstn if sine else fft.dctn
    return cast(NDArray, routine(x, kind, None, axes, norm, orthogonalize=ortho))


def _cosines_transpose(ct: Value, node: Node) -> Value:
    """With `orthogonalize`, types 2 and 3 are transposes of one another, and 1 and 4 of themselves; without, weights are at the ends."""
    params = node.params
    kind = {2: 3, 3: 2}.get(params["kind"], params["kind"])
    weighted = () if params["ortho"] or kind == 4 or (kind == 1 and params["sine"]) else params["axes"]
    ends = (0, -1) if kind == 1 else (-1,) if params["sine"] else (0,)
    if kind != 2:
        ct = _weighted(ct, weighted, ends, 2.0)
    found = cosine_transform(ct, **{**params, "kind": kind})
    return found if kind == 3 else _weighted(found, weighted, ends, 0.5)


def _weighted(x: Value, axes: Sequence[int], ends: Sequence[int], weight: float) -> Value:
    for axis in axes:
        weights = np.ones(x.shape[axis], x.dtype)
        weights[list(ends)] = weight
        x = x * expand(constant(weights), x.shape, (x.ndim + axis,))
    return x


cosine_transform: Callback = callback_row(
    "cosine_transform",
    ranks=lambda *, axes, **params: (-min(axes),),
    shapes=lambda x, **params: (x,),
    evaluate=_cosines,
    takes_stacks=True,
    tangent=_linear("cosine"),
    transpose=_cosines_transpose,
    linear_in=0,
    samples=[
        ((2, 3, 4), {"kind": kind, "sine": sine, "axes": axes, "norm": norm, "ortho": ortho})
        for kind, sine, axes, norm, ortho in (
            (1, False, (-1,), "backward", False),
            (1, False, (-2, -1), "ortho", True),
            (1, True, (-1,), "forward", False),
            (2, False, (-2,), "backward", False),
            (2, True, (-1, -2), "ortho", False),
            (3, False, (-1,), "ortho", True),
            (3, True, (-3, -1), "forward", False),
            (4, False, (-1,), "ortho", False),
            (4, True, (-2,), "backward", True),
        )
    ],
    codes="fd",
)
"""A cosine or sine transform of one of the four types along axes, which count from the end; norms and `orthogonalize` are SciPy's."""

_ROWS = {
    "complex": complex_fourier,
    "half": half_fourier,
    "real": real_fourier,
    "cosine": cosine_transform,
}
