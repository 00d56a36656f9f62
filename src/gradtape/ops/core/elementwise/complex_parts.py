"""The parts of complex numbers; on real ones they are the identity, or zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import LoweringError
from gradtape.ir.graph import Value, literal
from gradtape.ir.op import NDArray
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import part_dtype, whole_dtype
from gradtape.kinds.elementwise import Elementwise, elementwise, result_dtype
from gradtape.ops.core.elementwise.cast import convert, zeros_like

NUMBERS = "dflB"


def _part_dtypes(type_: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    own = np.dtype(type_)
    return (own,), part_dtype(own) if own.kind == "c" else own


def refuse_complex(x: Value, name: str) -> None:
    """Raise LoweringError for complex operands: kernels know real numbers only."""
    if x.dtype.kind == "c":
        raise LoweringError(
            f"{name} of complex numbers cannot be compiled", why="kernels compute with real numbers"
        )


def _real_body(x: Value) -> Value:
    refuse_complex(x, "real")
    return x


def _imag_body(x: Value) -> Value:
    refuse_complex(x, "imag")
    return literal(0, x.dtype)


def _conjugate_body(x: Value) -> Value:
    refuse_complex(x, "conjugate")
    return x


def _imag_tangent(d: Value, z: Value, x: Value) -> Value:
    return imag(d)


def _imag_back(ct: Value, x: Value) -> Value:
    """The cotangent g of a complex x stands for the map dx -> Re(g dx); the imaginary part is Re(-i dx)."""
    return convert(ct, x.dtype) * -1j if x.dtype.kind == "c" else zeros_like(ct)


real: Elementwise = elementwise(
    "real",
    np.real,
    body=_real_body,
    complex_body=lambda x: x[0],
    tangents=(lambda d, z, x: real(d),),
    transpose=(lambda ct, x: convert(ct, x.dtype),),
    dtypes=_part_dtypes,
    finite=True,
    dtype_samples=NUMBERS + "D",
)
imag = elementwise(
    "imag",
    np.imag,
    body=_imag_body,
    complex_body=lambda x: x[1],
    tangents=(_imag_tangent,),
    transpose=(_imag_back,),
    dtypes=_part_dtypes,
    finite=True,
    dtype_samples=NUMBERS + "D",
    kinks="0 for real numbers",
)
conjugate: Elementwise = elementwise(
    "conjugate",
    np.conjugate,
    body=_conjugate_body,
    complex_body=lambda x: (x[0], -x[1]),
    tangents=(lambda d, z, x: conjugate(d),),
    transpose=(lambda ct, x: conjugate(ct),),
    finite=True,
    dtype_samples=NUMBERS + "D",
)


def _from_parts(x: NDArray, y: NDArray) -> NDArray:
    """Unlike x + 1j * y it keeps infinities to themselves."""
    out = np.empty(np.broadcast_shapes(np.shape(x), np.shape(y)), np.result_type(x.dtype, np.complex64))
    out.real, out.imag = x, y
    return out


def _whole_dtypes(x: Any, y: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    part = np.result_type(result_dtype(x, y), np.float32)
    return (part, part), whole_dtype(part)


from_parts = elementwise(
    "from_parts",
    _from_parts,
    body=lambda x, y: convert(x, whole_dtype(x.dtype)) + convert(y, whole_dtype(x.dtype)) * 1j,
    complex_body=lambda x, y: (x, y),
    tangents=(lambda d, z, x, y: convert(d, z.dtype), lambda d, z, x, y: convert(d, z.dtype) * 1j),
    transpose=(lambda ct, x, y: real(ct), lambda ct, x, y: -imag(ct)),
    additive=(0, 1),
    dtypes=_whole_dtypes,
    domain=((-3.0, 3.0), (-3.0, 3.0)),
    dtype_samples="df",
)

PRIMITIVES["real"] = real
