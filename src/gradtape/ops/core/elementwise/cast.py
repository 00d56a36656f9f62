"""Rows that change the dtype or nothing at all."""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np

from gradtape.errors import user_level
from gradtape.ir.builder import emit
from gradtape.ir.graph import Literal, Value, literal
from gradtape.ir.op import NDArray
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import part_dtype
from gradtape.kinds.elementwise import Instruction, Parts, elementwise
from gradtape.kinds.operands import as_value, broadcast_to, holds_values
from gradtape.kinds.registry import HOOKS
from gradtape.ops.core.elementwise.logic import truth
from gradtape.ops.core.shift_rules import unchanged

DROPPED: Final = "Casting complex values to real discards the imaginary part"
"""What NumPy says."""


def _to(type_: Any, *, dtype: np.dtype[Any]) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    return (type_ if isinstance(type_, np.dtype) else np.dtype(type_),), dtype


def same_dtype(type_: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    """Return the dtypes of the operand and of the result of a row that keeps them."""
    own = type_ if isinstance(type_, np.dtype) else np.dtype(type_)
    return (own,), own


def _cast_tangent(d: Value, z: Value, x: Value, *, dtype: np.dtype[Any]) -> Value:
    return convert_row(d, dtype=dtype)


def _cast_back(ct: Value, x: Value, *, dtype: np.dtype[Any]) -> Value:
    back = x.dtype
    if ct.dtype.kind == "c" and back.kind == "f":
        ct = PRIMITIVES["real"](ct)
    return convert_row(ct, dtype=back)


def _cast(x: NDArray, *, dtype: np.dtype[Any]) -> NDArray:
    return (x.real if drops_imaginary(x.dtype, dtype) else x).astype(dtype)


def drops_imaginary(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Return whether a cast between these dtypes keeps the real part only."""
    return source.kind == "c" and target.kind in "iuf"


def _complex_cast(x: Value | Parts, *, dtype: np.dtype[Any]) -> Value | Parts:
    """Return another dtype: from complex numbers to real ones the imaginary part is dropped, but for their truth."""
    if dtype.kind == "c":
        part = part_dtype(dtype)
        if isinstance(x, Value):
            return convert(x, part), literal(0, part)
        return convert(x[0], part), convert(x[1], part)
    assert not isinstance(x, Value)
    return truth(x) if dtype.kind == "b" else convert(x[0], dtype)


def _of_pair(x: Any, y: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    own = x if isinstance(x, np.dtype) else np.dtype(x)
    return (own, own), own


convert_row = elementwise(
    "convert",
    _cast,
    body=Instruction(real="convert", signed="convert", unsigned="convert", boolean="convert"),
    complex_body=_complex_cast,
    tangents=(_cast_tangent,),
    transpose=(_cast_back,),
    is_identity=True,
    finite_derivatives=True,
    dtypes=_to,
    dtype_samples="dfblQ?",
    params=tuple({"dtype": np.dtype(code)} for code in "fdlB?"),
    shift=unchanged,
)

identity = elementwise(
    "identity",
    lambda x: x,
    body=lambda x: x,
    complex_body=lambda x: x,
    tangents=(lambda d, z, x: d,),
    transpose=(lambda ct, x: ct,),
    is_identity=True,
    finite_derivatives=True,
    dtypes=same_dtype,
    shift=unchanged,
)

stop_gradient = elementwise(
    "stop_gradient",
    lambda x: x,
    body=lambda x: x,
    complex_body=lambda x: x,
    partials=(None,),
    dtypes=same_dtype,
    kinks="0 everywhere: the value counts as a constant",
)


with_tangent_of = elementwise(
    "with_tangent_of",
    lambda x, y: np.broadcast_arrays(x, y)[0],
    body=lambda x, y: x,
    complex_body=lambda x, y: x,
    partials=(None, lambda z, x, y: literal(1.0)),
    dtypes=_of_pair,
    domain=((-3.0, 3.0), (-3.0, 3.0)),
    finite_derivatives=True,
)
"""The first argument, with the derivative of the second one. The code that computes the second one is dead where no derivative is taken."""


def convert(x: Value, dtype: np.dtype[Any]) -> Value:
    """Return `x` with another dtype; the derivative follows between floats and stops at integers.

    Warns
    -----
    ComplexWarning
        Where an imaginary part is dropped, as NumPy does, when the cast is recorded.
    """
    if drops_imaginary(x.dtype, dtype):
        warnings.warn(DROPPED, np.exceptions.ComplexWarning, stacklevel=user_level())
    if isinstance(x, Literal):
        assert x.data is not None
        return literal(_cast(x.data, dtype=dtype), dtype)
    return x if x.dtype == dtype and not x.aval.weak else emit(convert_row, [x], dtype=dtype)


def convert_number(operand: Any, dtype: np.dtype[Any]) -> Value:
    """Return a number, an array or a nested list converted as they are for a write.

    Raises
    ------
    OverflowError, ValueError
        For a Python number that the integer dtype cannot hold, such as NaN. The program checks numbers without a literal.
    """
    if isinstance(operand, list | tuple) and dtype.kind in "iu":
        if holds_values(operand):
            return PRIMITIVES["stack"](*[convert_number(item, dtype) for item in operand])
        x = as_value(operand)
        return as_value(np.array(operand, dtype)) if x.dtype.kind in "if" else convert(x, dtype)
    x = as_value(operand)
    if x.aval.weak and dtype.kind in "iu":
        fit_number(x, dtype)
    return convert(x, dtype)


def fit_number(number: Any, dtype: np.dtype[Any]) -> None:
    """Raise NumPy's error for a number that an integer dtype cannot hold; the program checks numbers without a literal."""
    x = as_value(number)
    if x.dtype.kind not in "iuf" or x.dtype == dtype:
        return
    if isinstance(x, Literal):
        assert x.data is not None
        np.array(int(x.data.item()), dtype)
    else:
        HOOKS.fit(x, dtype)


def zeros_like(x: Value) -> Value:
    """Return zeros of the shape and dtype of `x`."""
    zero = literal(0, x.dtype)
    return zero if isinstance(x, Literal) else broadcast_to(zero, x.shape)


PRIMITIVES["convert"] = convert
PRIMITIVES["zeros_like"] = zeros_like
