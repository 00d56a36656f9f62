"""Systems of matrices in bands and of Toeplitz matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array
from gradtape.kinds.operands import broadcast_shapes, broadcast_to
from gradtape.kinds.registry import borrows
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate
from gradtape.ops.core.join import join
from gradtape.ops.core.linalg.bands import banded_solve, bands_of, toeplitz_solve, transposed_bands
from gradtape.ops.core.linalg.factors import cut_rows
from gradtape.ops.core.linalg.symmetric import whole_from_bands
from gradtape.ops.core.matrices import adjoint, cholesky, weighted
from gradtape.ops.numpy.linalg.solve import in_double, inexact, stacked
from gradtape.ops.scipy.linalg.solve import as_given, column


def _conjugated(x: Value) -> Value:
    return conjugate(x) if x.dtype.kind == "c" else x


def _alike(bands: Value, b: Value) -> list[Value]:
    dtype = np.result_type(bands.dtype, b.dtype)
    lead = broadcast_shapes([bands.shape[:-2], b.shape[:-2]])
    return [broadcast_to(convert(x, dtype), (*lead, *x.shape[-2:])) for x in (bands, b)]


def _solved(
    bands: Value, b: Value, lower: int, upper: int, definite: bool = False, check_finite: bool = False
) -> Value:
    if bands.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"bands of shape {bands.shape} and b of shape {b.shape} do not form a system of equations",
            where=here.site,
            remedy="b has one row for each column of the bands",
        )
    return banded_solve(
        *_alike(bands, b), lower=lower, upper=upper, definite=definite, check_finite=bool(check_finite)
    )


@borrows("scipy.linalg.solve_banded")
def solve_banded(
    l_and_u: Any,
    ab: Any,
    b: Any,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Value:
    """Follow `scipy.linalg.solve_banded`."""
    lower, upper = map(int, l_and_u)
    bands, (right, single) = stacked(inexact(ab, "ab")), column(inexact(b, "b"))
    if lower + upper + 1 != bands.shape[-2]:
        raise ValueError(
            "invalid values for the number of lower and upper diagonals: "
            f"l+u+1 ({lower + upper + 1}) does not equal ab.shape[0] ({bands.shape[-2]})"
        )
    return as_given(_solved(bands, right, lower, upper, check_finite=check_finite), single)


def _whole_bands(bands: Value, lower: bool) -> Value:
    """Return all bands of Hermitian matrices, given those of one triangle."""
    width = bands.shape[-2] - 1
    turned = _conjugated(transposed_bands(bands, *((width, 0) if lower else (0, width))))
    first, second = (turned, bands) if lower else (bands, turned)
    return join([cut_rows(first, 0, width), second], bands.ndim - 2)


@borrows("scipy.linalg.solveh_banded")
def solveh_banded(
    ab: Any,
    b: Any,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    lower: bool = False,
    check_finite: bool = True,
) -> Value:
    """Follow `scipy.linalg.solveh_banded`."""
    bands, (right, single) = stacked(inexact(ab, "ab")), column(inexact(b, "b"))
    width = bands.shape[-2] - 1
    whole = _whole_bands(bands, bool(lower))
    return as_given(_solved(whole, right, width, width, definite=True, check_finite=check_finite), single)


@borrows("scipy.linalg.cholesky_banded")
def cholesky_banded(
    ab: Any, overwrite_ab: bool = False, lower: bool = False, check_finite: bool = True
) -> Value:
    """Follow `scipy.linalg.cholesky_banded`, by the factor of the whole matrix; elements outside the band stay."""
    bands = stacked(inexact(ab, "ab"))
    width = bands.shape[-2] - 1
    factor = cholesky(whole_from_bands(bands, bool(lower)))
    found = bands_of(factor, width, 0) if lower else bands_of(adjoint(factor), 0, width)
    row, column = np.indices(bands.shape[-2:])
    outside = row + column >= bands.shape[-1] if lower else row + column < width
    return found + weighted(bands, outside)


@borrows("scipy.linalg.cho_solve_banded")
def cho_solve_banded(
    cb_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True
) -> Value:
    """Follow `scipy.linalg.cho_solve_banded`."""
    factor, lower = cb_and_lower
    bands, (right, single) = stacked(inexact(factor, "cb")), column(inexact(b, "b"))
    width = bands.shape[-2] - 1
    if not lower:
        bands = _conjugated(transposed_bands(bands, 0, width))
    half = _solved(bands, right, width, 0, check_finite=check_finite)
    return as_given(_solved(_conjugated(transposed_bands(bands, width, 0)), half, 0, width), single)


@borrows("scipy.linalg.solve_toeplitz")
def solve_toeplitz(c_or_cr: Any, b: Any, check_finite: bool = True) -> Value:
    """Follow `scipy.linalg.solve_toeplitz`."""
    if isinstance(c_or_cr, tuple):
        c, r = (in_double(x, name) for x, name in zip(c_or_cr, "cr", strict=True))
    else:
        c = in_double(c_or_cr, "c")
        r = _conjugated(c)
    right = inexact(b, "b")
    first = as_array(right)
    n = c.shape[-1]
    if r.shape[-1] != n or first.ndim == 0 or first.shape[0 if first.ndim == 1 else -2] != n:
        raise ValueError("Incompatible dimensions.")
    right, single = column(right)
    dtype = np.result_type(c.dtype, r.dtype, right.dtype)
    lead = broadcast_shapes([c.shape[:-1], r.shape[:-1], right.shape[:-2]])
    vectors = [broadcast_to(convert(x, dtype), (*lead, n)) for x in (c, r)]
    right = broadcast_to(convert(right, dtype), (*lead, *right.shape[-2:]))
    return as_given(toeplitz_solve(*vectors, right, check_finite=bool(check_finite)), single)
