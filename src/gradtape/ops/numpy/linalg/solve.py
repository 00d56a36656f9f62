"""Solving, inverting, determinants, Cholesky factors and symmetric eigenproblems: `numpy.linalg` in terms of the matrix rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from gradtape.errors import ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import FLOAT64, INTP, Shape
from gradtape.kinds.arguments import NO_VALUE, as_array, known, lookup, promoted
from gradtape.kinds.operands import broadcast_shapes, broadcast_to
from gradtape.kinds.registry import FUNCTIONS, implements, sample
from gradtape.ops.core.determinants import determinant_of
from gradtape.ops.core.elementwise.cast import convert, stop_gradient, zeros_like
from gradtape.ops.core.elementwise.complex_parts import from_parts, imag, real
from gradtape.ops.core.elementwise.exponential import cos, sin
from gradtape.ops.core.elementwise.floats import isnan
from gradtape.ops.core.elementwise.logic import equal, greater, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute, sign
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import full, join
from gradtape.ops.core.lengths import MAIN, by_diagonals, count_to
from gradtape.ops.core.matrices import (
    adjoint,
    cholesky,
    diagonal,
    eigh,
    log_det,
    lu,
    lu_solve,
    pseudoinverse,
    scaled_columns,
)
from gradtape.ops.core.matrices import svd as svd_row
from gradtape.ops.core.matrices import transposed as transpose_last
from gradtape.ops.core.reductions import reduce_max, reduce_prod, reduce_sum
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.shape import cut
from gradtape.ops.numpy.linalg.products import matmul

EXPLICIT = 3
"""Matrices up to this size have their determinant written out: it is exact where the matrix is singular, and so is its derivative."""


def inexact(operand: Any, argument: str = "a") -> Value:
    """Return an operand in a dtype that linear algebra is done in, as NumPy chooses it."""
    x = as_array(operand, argument)
    if x.dtype.char == "e":
        raise TypeError("array type float16 is unsupported in linalg")
    return x if x.dtype.kind in "fc" else convert(x, FLOAT64)


def in_double(operand: Any, argument: str = "a") -> Value:
    """Return an operand in double precision, in which SciPy returns what it has no routine in single precision for."""
    x = inexact(operand, argument)
    return convert(x, np.result_type(x.dtype, FLOAT64))


def stacked(x: Value) -> Value:
    """Return an array if it is a matrix or a stack of them."""
    if x.ndim < 2:
        raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be at least two-dimensional")
    return x


def unsolvable(a: Value, b: Value) -> ShapeError:
    """Return the error for a system whose right-hand sides are not of its size."""
    return ShapeError(
        f"a of shape {a.shape} and b of shape {b.shape} do not form a system of equations",
        where=here.site,
        remedy=f"b has one row for each row of a: ({a.shape[-1]},) or ({a.shape[-1]}, k) for one matrix",
    )


def square(x: Value) -> Value:
    """Return an array if it is a square matrix or a stack of them."""
    if stacked(x).shape[-1] != x.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return x


def alike(*operands: Value) -> list[Value]:
    """Return stacks of matrices in one dtype, with the same axes in front."""
    dtype = np.result_type(*[operand.dtype for operand in operands])
    lead: Shape = broadcast_shapes([operand.shape[:-2] for operand in operands])
    return [broadcast_to(convert(operand, dtype), (*lead, *operand.shape[-2:])) for operand in operands]


def solved(a: Value, b: Value, transposed: bool = False) -> Value:
    """Return the solutions of a x = b (of a.T x = b) for stacks of matrices."""
    a, b = alike(a, b)
    if a.dtype.kind == "c":
        return _solved_by_parts(transpose_last(a) if transposed else a, b)
    return lu_solve(a, *lu.results(a), b, transposed=transposed)


def _solved_by_parts(a: Value, b: Value) -> Value:
    """Return the solutions for complex matrices: those of real ones of twice the size, for which there are routines in kernels."""
    rows, columns, n = a.ndim - 2, a.ndim - 1, a.shape[-1]
    first, second = real(a), imag(a)
    stacked_matrix = join([join([first, -second], columns), join([second, first], columns)], rows)
    stacked_solution = solved(stacked_matrix, join([real(b), imag(b)], rows))
    return from_parts(cut(stacked_solution, rows, 0, n), cut(stacked_solution, rows, n, 2 * n))


def identity_like(a: Value) -> Value:
    """Return an identity for each matrix."""
    return broadcast_to(by_diagonals((a.shape[-1], a.shape[-1]), MAIN, a.dtype), a.shape)


SQUARES = ((3, 3), (2, 4, 4), (1, 1), (0, 2, 2), (0, 0))


@implements(
    np.linalg.solve,
    samples=(
        sample((3, 3), (3,)),
        sample((3, 3), (3, 2)),
        sample((2, 4, 4), (4, 1)),
        sample((2, 1, 3, 3), (5, 3, 2)),
        sample((0, 0), (0,)),
        sample((0, 2, 2), (2,)),
        sample((2, 3), (3,)),
        sample((3,), (3,)),
        sample((3, 3), (2,)),
    ),
    dtypes="qfFD",
)
def solve(a: Any, b: Any) -> Value:
    """Follow `numpy.linalg.solve`."""
    left, right = square(inexact(a)), inexact(b, "b")
    is_vector = right.ndim == 1
    if right.ndim == 0 or right.shape[0 if is_vector else -2] != left.shape[-1]:
        raise unsolvable(left, right)
    solution = solved(left, reshape(right, (*right.shape, 1)) if is_vector else right)
    return reshape(solution, solution.shape[:-1]) if is_vector else solution


@implements(np.linalg.inv, samples=(*map(sample, SQUARES), sample((2, 3)), sample((3,))), dtypes="qfFD")
def inv(a: Any) -> Value:
    """Follow `numpy.linalg.inv`."""
    x = square(inexact(a))
    return solved(x, identity_like(x))


class SlogdetResult(NamedTuple):
    """What `numpy.linalg.slogdet` returns."""

    sign: Any
    logabsdet: Any


def _parity(pivots: Value, dtype: np.dtype[Any]) -> Value:
    """Return, for each matrix, the sign of its row exchanges."""
    stays = broadcast_to(count_to(pivots.shape[-1], pivots.dtype) + 1, pivots.shape)
    signs = where(equal(pivots, stays), literal(1, dtype), literal(-1, dtype))
    return reduce_prod(signs, axes=(signs.ndim - 1,))


def _sign_and_log(x: Value) -> tuple[Value, Value]:
    factors, pivots = lu.results(x)
    log_determinant = log_det(x, factors, pivots)
    if x.dtype.kind != "c":
        signs = sign(diagonal(factors))
        return _parity(pivots, x.dtype) * reduce_prod(signs, axes=(signs.ndim - 1,)), log_determinant
    angle = imag(log_determinant)
    parity = convert(_parity(pivots, angle.dtype), x.dtype)
    phase = parity * (convert(cos(angle), x.dtype) + convert(sin(angle), x.dtype) * 1j)
    size = real(log_determinant)
    return where(equal(size, -np.inf), literal(0, x.dtype), phase), size


@implements(np.linalg.slogdet, samples=(*map(sample, SQUARES[:-1]), sample((2, 3))), dtypes="qfFD")
def slogdet(a: Any) -> SlogdetResult:
    """Follow `numpy.linalg.slogdet`."""
    x = square(inexact(a))
    if x.shape[-1] == 0:
        unit_signs = broadcast_to(literal(1, x.dtype), x.shape[:-2])
        return SlogdetResult(unit_signs, real(zeros_like(unit_signs)))
    return SlogdetResult(*_sign_and_log(x))


@implements(
    np.linalg.det,
    samples=(*map(sample, SQUARES), sample((5, 2, 2)), sample((4, 4)), sample((2, 3))),
    dtypes="qfFD",
)
def det(a: Any) -> Value:
    """Follow `numpy.linalg.det`."""
    x = square(inexact(a))
    n = x.shape[-1]
    if n > EXPLICIT:
        return determinant_of(x)
    if n == 0:
        return broadcast_to(literal(1, x.dtype), x.shape[:-2])

    def at(i: int, j: int) -> Value:
        return getitem(x, (..., i, j))

    def minor(j: int, k: int, row: int) -> Value:
        return at(row, j) * at(row + 1, k) - at(row, k) * at(row + 1, j)

    if n == 1:
        return at(0, 0)
    if n == 2:
        return minor(0, 1, 0)
    return at(0, 0) * minor(1, 2, 1) - at(0, 1) * minor(0, 2, 1) + at(0, 2) * minor(0, 1, 1)


def lower_of(x: Value, upper: bool) -> Value:
    """Return the matrices whose lower triangle is that of `x`, or the adjoint of the upper one."""
    return adjoint(x) if upper else x


@implements(
    np.linalg.cholesky,
    samples=(sample((0, 2, 2)), sample((0, 0)), sample((2, 3)), sample((3,))),
    dtypes="qfFD",
)
def cholesky_(a: Any, /, *, upper: bool = False) -> Value:
    """Follow `numpy.linalg.cholesky`; the derivative takes the matrix for symmetric."""
    factor = cholesky(lower_of(square(inexact(a)), upper))
    return adjoint(factor) if upper else factor


def thin_svd(x: Value) -> tuple[Value, Value, Value]:
    """Return left singular vectors, singular values, and right singular vectors as conjugate rows, as many as there are values."""
    left, numbers, right = svd_row.results(x)
    return left, numbers, adjoint(right)


RECTANGLES = ((3, 2), (2, 3), (2, 4, 3), (0, 2, 3))


@implements(lookup(np.linalg, "svdvals"), samples=(*map(sample, RECTANGLES), sample((3,))), dtypes="qf")
def svdvals(x: Any, /) -> Value:
    """Follow `numpy.linalg.svdvals`."""
    return thin_svd(stacked(inexact(x, "x")))[1]


@implements(
    np.linalg.cond,
    samples=(sample((3, 2)), sample((3, 3), 2), sample((3, 3), 1), sample((2, 3, 3), "fro")),
    dtypes="qf",
)
def cond(x: Any, p: Any = None) -> Value:
    """Follow `numpy.linalg.cond`."""
    a = stacked(inexact(x, "x"))
    if 0 in a.shape[-2:]:
        raise LinAlgError("cond is not defined on empty arrays")
    if p in (None, 2, -2):
        values = svdvals(a)
        first, last = getitem(values, (..., 0)), getitem(values, (..., -1))
        ratio = last / first if p == -2 else first / last
    else:
        norm = FUNCTIONS[np.linalg.norm]
        ratio = norm(a, p, (-2, -1)) * norm(inv(_nan_where_singular(square(a))), p, (-2, -1))
    unknown = reduce_max(convert(isnan(a), INTP), axes=(a.ndim - 2, a.ndim - 1))
    return where(isnan(ratio) & equal(unknown, 0), np.inf, ratio)


def _nan_where_singular(a: Value) -> Value:
    """Return the matrices that can be factored as they are, and NaN for others."""
    factors, _ = lu.results(a)
    zeros = convert(equal(diagonal(factors), 0), INTP)
    singular = greater(reduce_sum(zeros, axes=(zeros.ndim - 1,)), 0)
    return where(reshape(singular, (*singular.shape, 1, 1)), np.nan, a)


@implements(
    np.linalg.pinv,
    samples=(*map(sample, RECTANGLES[:-1]), sample((3, 3)), sample((3,))),
    dtypes="qf",
)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = NO_VALUE) -> Value:
    """Follow `numpy.linalg.pinv`."""
    x = stacked(inexact(a))
    cut = rcond if rtol is NO_VALUE else rtol
    if cut is None:
        cut = max(x.shape[-2:]) * np.finfo(x.dtype).eps if rtol is None else 1e-15
    if 0 in x.shape[-2:]:
        return full((*x.shape[:-2], x.shape[-1], x.shape[-2]), 0, as_array(a).dtype)
    left, numbers, right = thin_svd(x)
    largest = getitem(numbers, (..., slice(0, 1)))
    share = convert(as_array(cut), numbers.dtype)
    is_kept = numbers > (reshape(share, (*share.shape, 1)) if share.ndim else share) * largest
    return _pseudoinverse(x, left, where(is_kept, 1 / where(is_kept, numbers, 1), 0), right)


def _pseudoinverse(x: Value, left: Value, inverse: Value, right: Value) -> Value:
    back = scaled_columns(adjoint(right), convert(inverse, x.dtype))
    return pseudoinverse(x, matmul(back, adjoint(left)))


@implements(
    np.linalg.matrix_rank,
    samples=(sample((3, 2)), sample((2, 3, 3)), sample((4,)), sample((3, 3), 2.0)),
    dtypes="qf",
)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Value:
    """Follow `numpy.linalg.matrix_rank`."""
    x = as_array(A)
    if x.ndim < 2:
        return convert(FUNCTIONS[np.any](not_equal(x, 0)), INTP)
    if 0 in x.shape:
        return broadcast_to(literal(0, INTP), x.shape[:-2])
    numbers = thin_svd(inexact(x))[1]
    if tol is None:
        share = max(x.shape[-2:]) * np.finfo(numbers.dtype).eps if rtol is None else rtol
        tol = reduce_max(numbers, axes=(numbers.ndim - 1,)) * share
    limit = as_array(tol)
    limit = reshape(limit, (*limit.shape, 1)) if limit.ndim else limit
    return reduce_sum(convert(numbers > limit, INTP), axes=(numbers.ndim - 1,))


@implements(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Value, Value, Any, Value]:
    """Follow `numpy.linalg.lstsq`; the derivative is that of matrices of the same rank, which is a number of the trace.

    Where it cannot be one (`gt.vmap`), there are residuals as for matrices of full rank, and those of others are NaN.
    """
    x, y = inexact(a), inexact(b, "b")
    if x.ndim != 2:
        raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    if y.ndim not in (1, 2):
        raise LinAlgError(f"{y.ndim}-dimensional array given. Array must be one or two-dimensional")
    if y.shape[0] != x.shape[0]:
        raise LinAlgError("Incompatible dimensions")
    x, y = promoted(x, y)
    m, n = x.shape
    left, numbers, right = thin_svd(x)
    share = max(m, n) * np.finfo(x.dtype).eps if rcond is None else 0.0 if rcond < 0 else rcond
    is_kept = numbers > getitem(numbers, (slice(0, 1),)) * share
    count = reduce_sum(convert(is_kept, INTP), axes=(0,))
    known_rank = known(count)
    rank: Any = convert(count, np.dtype(np.int32)) if known_rank is None else np.int32(known_rank)
    unknown = stop_gradient(0 * numbers)  # NaN where LAPACK's routine for singular values does not converge
    inverse = _pseudoinverse(x, left, where(is_kept, 1 / where(is_kept, numbers, 1), unknown), right)
    solution = matmul(inverse, y)
    residuals = getitem(zeros_like(numbers), (slice(0, 0),))
    if (known_rank is None or rank == n) and n < m:
        residual = absolute(matmul(x, solution) - y)
        residuals = reduce_sum(residual * residual, axes=(0,))
        residuals = reshape(residuals, (1,)) if residuals.ndim == 0 else residuals
        if known_rank is None:
            residuals = where(equal(count, n), residuals, np.nan)
    return solution, residuals, rank, numbers


class EighResult(NamedTuple):
    """What `numpy.linalg.eigh` returns."""

    eigenvalues: Any
    eigenvectors: Any


def _eigen(a: Any, UPLO: str) -> tuple[Value, Value]:
    triangle = UPLO.upper()
    if triangle not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    numbers, vectors = eigh.results(square(inexact(a)), lower=triangle == "L")
    return numbers, vectors


@implements(np.linalg.eigh, samples=(sample((0, 2, 2)), sample((2, 3)), sample((1, 1))), dtypes="qfFD")
def eigh_(a: Any, UPLO: str = "L") -> EighResult:
    """Follow `numpy.linalg.eigh`; the derivative takes the matrix for symmetric."""
    return EighResult(*_eigen(a, UPLO))


@implements(np.linalg.eigvalsh, samples=(sample((1, 1)), sample((0, 2, 2)), sample((2, 3))), dtypes="qfFD")
def eigvalsh(a: Any, UPLO: str = "L") -> Value:
    """Follow `numpy.linalg.eigvalsh`; the derivative takes the matrix for symmetric."""
    return _eigen(a, UPLO)[0]
