"""Solving, inverting, determinants, Cholesky factors and the exponential of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import INT64
from gradtape.kinds.arguments import known
from gradtape.kinds.registry import borrows
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.elementwise.complex_parts import conjugate
from gradtape.ops.core.elementwise.exponential import exp, exp2
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.floats import ceil, floor, isfinite
from gradtape.ops.core.elementwise.inverse import log2
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.lengths import MAIN
from gradtape.ops.core.linalg.functions import matrix_derivative
from gradtape.ops.core.matrices import adjoint, cholesky, diagonal, triangular_solve, weighted
from gradtape.ops.core.matrices import transposed as transpose_last
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, reshape
from gradtape.ops.numpy.linalg.norms import norm
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import (
    alike,
    cholesky_,
    det,
    identity_like,
    in_double,
    inexact,
    inv,
    lower_of,
    solved,
    square,
    unsolvable,
)
from gradtape.ops.numpy.statistics.reductions import max_


def refuse(what: str, remedy: str) -> UnsupportedFunctionError:
    return UnsupportedFunctionError(f"{what} is not supported", where=here.site, remedy=remedy)


def column(b: Value) -> tuple[Value, bool]:
    """Return right-hand sides as columns, and whether there was a single one without an axis of its own."""
    return (reshape(b, (*b.shape, 1)), True) if b.ndim == 1 else (b, False)


def as_given(x: Value, single: bool) -> Value:
    return reshape(x, x.shape[:-1]) if single else x


def _triangular(t: Value, b: Value, lower: bool, trans: bool, unit: bool = False) -> Value:
    t, b = alike(t, b)
    return triangular_solve(t, b, lower=lower, transposed=trans, unit=unit)


@borrows("scipy.linalg.solve_triangular")
def solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Value:
    """Follow `scipy.linalg.solve_triangular`."""
    t = square(inexact(a))
    right, single = column(inexact(b, "b"))
    if right.shape[-2] != t.shape[-1]:
        raise unsolvable(t, right)
    if trans in (2, "C"):
        t = conjugate(t) if t.dtype.kind == "c" else t
    return as_given(_triangular(t, right, bool(lower), trans not in (0, "N"), bool(unit_diagonal)), single)


@borrows("scipy.linalg.cholesky")
def scipy_cholesky(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Value:
    """Follow `scipy.linalg.cholesky`; the derivative takes the matrix for symmetric."""
    return cholesky_(a, upper=not lower)


@borrows("scipy.linalg.cho_factor")
def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Value, bool]:
    """Follow `scipy.linalg.cho_factor`; the other triangle is zero, not random."""
    return cholesky_(a, upper=not lower), bool(lower)


@borrows("scipy.linalg.cho_solve")
def cho_solve(c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Value:
    """Follow `scipy.linalg.cho_solve`."""
    c, lower = c_and_lower
    factor = lower_of(square(inexact(c)), not lower)
    right, single = column(inexact(b, "b"))
    if right.shape[-2] != factor.shape[-1]:
        raise unsolvable(factor, right)
    return as_given(_factored(factor, right), single)


def _factored(factor: Value, b: Value) -> Value:
    """Return the solution with the matrix whose lower Cholesky factor this is."""
    half = _triangular(factor, b, True, False)
    back = conjugate(factor) if factor.dtype.kind == "c" else factor
    return _triangular(back, half, True, True)


@borrows("scipy.linalg.solve")
def scipy_solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: Any = None,
    transposed: bool = False,
) -> Value:
    """Follow `scipy.linalg.solve`."""
    left = square(inexact(a))
    right, single = column(inexact(b, "b"))
    if right.shape[-2] != left.shape[-1]:
        raise unsolvable(left, right)
    kind = _STRUCTURES.get(assume_a)
    if kind is None:
        raise ValueError(f"{assume_a} is not a recognized matrix structure")
    if kind in ("pos", "sym", "her"):
        if transposed and left.dtype.kind == "c":
            raise NotImplementedError(
                "scipy.linalg.solve can currently not solve a^T x = b or a^H x = b for complex matrices."
            )
        if kind == "pos":
            return as_given(_factored(cholesky(lower_of(left, not lower)), right), single)
        full_matrix = completed(left, bool(lower), hermitian=kind == "her")
        return as_given(solved(full_matrix, right), single)
    if kind in ("upper", "lower"):
        return as_given(_triangular(left, right, kind == "lower", bool(transposed)), single)
    if kind == "diagonal":
        left = weighted(left, MAIN)
    elif kind == "tridiagonal":
        left = weighted(left, lambda d: (d <= 1) & (d >= -1))
    return as_given(solved(left, right, bool(transposed)), single)


_STRUCTURES = {
    None: "general",
    "gen": "general",
    "general": "general",
    "diagonal": "diagonal",
    "tridiagonal": "tridiagonal",
    "banded": "general",
    "upper triangular": "upper",
    "lower triangular": "lower",
    "sym": "sym",
    "symmetric": "sym",
    "her": "her",
    "hermitian": "her",
    "pos": "pos",
    "positive definite": "pos",
}
"""The structures that SciPy knows by their names; those that no part of the matrix is left out for are solved as any other."""


@borrows("scipy.linalg.inv")
def scipy_inv(
    a: Any,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    assume_a: Any = None,
    lower: bool = False,
) -> Value:
    """Follow `scipy.linalg.inv`."""
    if assume_a is None:
        return inv(a)
    x = square(inexact(a))
    return scipy_solve(x, identity_like(x), lower=lower, assume_a=assume_a)


@borrows("scipy.linalg.det")
def scipy_det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Value:
    """Follow `scipy.linalg.det`, of whose result the dtype is double precision."""
    return in_double(det(a))


@borrows("scipy.linalg.norm")
def scipy_norm(
    a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, check_finite: bool = True
) -> Value:
    """Follow `scipy.linalg.norm`, which is a number of Python's where a routine of BLAS or LAPACK computes it."""
    size_of_matrix = norm(a, ord, axis, keepdims)
    by_routine = {1: (None, 2), 2: (1, np.inf)}.get(np.ndim(a), ()) if axis is None and not keepdims else ()
    return in_double(size_of_matrix) if ord in by_routine else size_of_matrix


def completed(x: Value, lower: bool, hermitian: bool = True) -> Value:
    """Return the symmetric matrices of which one triangle is given."""
    sign = -1 if lower else 1
    other_triangle = weighted(x, lambda d: d * sign > 0)
    return weighted(x, lambda d: d * sign >= 0) + (
        adjoint(other_triangle) if hermitian else transpose_last(other_triangle)
    )


_PADE = (
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
)
_SMALL_ENOUGH = 4.25
"""The norm up to which the approximation of degree 13 is exact to rounding, in double precision."""

_NEGLIGIBLE = 2.0**-1000
"""What stands for the growth of powers that are zero."""

_MANY_SQUARINGS = 4
"""Above it is asked whether a matrix is triangular: each squaring doubles the rounding errors of the exponentials of the diagonal."""


def _halvings(x: Value) -> Value:
    """Return how often a matrix is halved so that |x|**4 and |x|**6 grow as powers of a number up to `_SMALL_ENOUGH`.

    The norm is an upper bound of that number. Powers of |x| bound those of x without the cancellations of the latter, so that rounding
    errors are bounded as well. A matrix that is not finite is not halved: infinities stay, and NaN has no number of halvings.
    """
    magnitudes = absolute(x)
    sums = reduce_sum(magnitudes, axes=(x.ndim - 2,))
    size = max_(sums)
    by_norm = ceil(log2(maximum(where(isfinite(size), size, 0.0) / _SMALL_ENOUGH, 1.0)))
    scale = exp2(-by_norm)
    magnitudes = magnitudes * scale  # their powers do not overflow
    row = reshape(sums * scale, (*sums.shape[:-1], 1, sums.shape[-1]))
    norms = [size]
    for _ in range(5):
        row = matmul(row, magnitudes)
        norms.append(max_(row))
    growth = maximum(norms[3] ** 0.25, norms[5] ** (1 / 6))
    spared = where(isfinite(growth), floor(log2(_SMALL_ENOUGH / maximum(growth, _NEGLIGIBLE))), 0.0)
    return convert(maximum(by_norm - spared, 0.0), INT64)


def _is_triangular(x: Value) -> Value:
    """Return 1 if all matrices are upper triangular, or all lower triangular, and 0 if not."""
    below = max_(absolute(weighted(x, lambda d: d < 0)))
    above = max_(absolute(weighted(x, lambda d: d > 0)))
    return convert(equal(minimum(below, above), 0.0), INT64)


def _with_exact_diagonal(result: Value, x: Value) -> Value:
    """Return exponentials of triangular matrices with the diagonal that they have; derivatives stay those of `result`."""
    exact = expand(exp(diagonal(x)), x.shape, (*range(x.ndim - 2), x.ndim - 1))
    return result + stop_gradient(where(equal(identity_like(x), 1.0), exact - result, 0.0))


@borrows("scipy.linalg.expm")
def expm(A: Any) -> Value:
    """Follow `scipy.linalg.expm`.

    Notes
    -----
    N. J. Higham, "The scaling and squaring method for the matrix exponential revisited", 2005, with fewer squarings where powers of the
    matrix grow less than powers of its norm, as in A. H. Al-Mohy and N. J. Higham, "A new scaling and squaring algorithm for the matrix
    exponential", 2009. How often it is squared depends on the numbers: a jitted function is traced anew where that changes. Where they
    cannot be known (`gt.vmap`), SciPy is called.
    """
    x = square(inexact(A))
    if x.size == 0:
        return x
    count = known(_halvings(x))
    if count is None:
        return matrix_derivative(x, name="expm")
    times = int(count)
    corrects = times > _MANY_SQUARINGS and bool(known(_is_triangular(x)))
    unscaled, x = x, x * 0.5**times
    unit = identity_like(x)
    second = matmul(x, x)
    fourth = matmul(second, second)
    sixth = matmul(second, fourth)
    c = _PADE
    odd = matmul(sixth, sixth * c[13] + fourth * c[11] + second * c[9])
    odd = matmul(x, odd + sixth * c[7] + fourth * c[5] + second * c[3] + unit * c[1])
    even = matmul(sixth, sixth * c[12] + fourth * c[10] + second * c[8])
    even = even + sixth * c[6] + fourth * c[4] + second * c[2] + unit * c[0]
    result = solved(even - odd, even + odd)
    if corrects:
        result = _with_exact_diagonal(result, x)
    for left in reversed(range(times)):
        result = matmul(result, result)
        if corrects:
            result = _with_exact_diagonal(result, unscaled * 0.5**left)
    return result
