"""Factors of matrices: LU, LDL, QR and RQ in all modes, singular values, polar and Hessenberg's form."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import INT64, part_dtype
from gradtape.kinds.arguments import as_array, known
from gradtape.kinds.registry import FUNCTIONS, UFUNCS, borrows
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.lengths import MAIN
from gradtape.ops.core.linalg.equations import scipy_function
from gradtape.ops.core.linalg.factors import (
    cut_columns,
    cut_rows,
    full_qr,
    full_svd,
    hessenberg,
    ldl,
    packed_lu,
    permutation,
    polar,
    unit_lower,
    upper,
)
from gradtape.ops.core.matrices import (
    adjoint,
    pseudoinverse,
    symmetric,
    transposed,
    triangular_solve,
    weighted,
)
from gradtape.ops.core.reductions import reduce_max, reduce_sum
from gradtape.ops.core.shape import expand, reshape
from gradtape.ops.numpy.linalg.factors import qr, svd
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import alike, inexact, lstsq, square, stacked, thin_svd, unsolvable
from gradtape.ops.scipy.linalg.solve import as_given, column, completed, refuse

# LU


def _factors(a: Any) -> tuple[Value, Value, Value, Value]:
    """Return the lower and the upper factor, the pivots and the order of the rows."""
    x = stacked(inexact(a))
    k = min(x.shape[-2:])
    packed, pivots, order = packed_lu.results(x)
    return unit_lower(cut_columns(packed, 0, k)), upper(cut_rows(packed, 0, k)), pivots, order


@borrows("scipy.linalg.lu")
def scipy_lu(
    a: Any,
    permute_l: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    p_indices: bool = False,
) -> tuple[Value, ...]:
    """Follow `scipy.linalg.lu`."""
    left, right, _, order = _factors(a)
    if p_indices and not permute_l:
        return FUNCTIONS[np.argsort](order, axis=-1), left, right
    if permute_l:
        return matmul(transposed(permutation(order, left.dtype)), left), right
    dtype = part_dtype(left.dtype) if left.dtype.kind == "c" else left.dtype
    return transposed(permutation(order, dtype)), left, right


@borrows("scipy.linalg.lu_factor")
def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Value, Value]:
    """Follow `scipy.linalg.lu_factor`."""
    packed, pivots, _ = packed_lu.results(stacked(inexact(a)))
    return packed, pivots


def _order(pivots: Any) -> Any:
    order = np.arange(len(pivots))
    for k, pivot in enumerate(pivots):
        order[[k, pivot]] = order[[pivot, k]]
    return order


order_of_pivots: Callback = callback_row(
    "order_of_pivots",
    ranks=(1,),
    shapes=lambda pivots: (pivots,),
    dtypes=lambda dtype: (INT64,),
    evaluate=_order,
    tangent=None,
    samples=(),
)
"""The order of the rows of a square matrix after LAPACK's exchanges."""


@borrows("scipy.linalg.lu_solve")
def lu_solve(
    lu_and_piv: Any, b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Value:
    """Follow `scipy.linalg.lu_solve`."""
    packed, pivots = lu_and_piv
    factors, (right, single) = square(inexact(packed, "lu")), column(inexact(b, "b"))
    if right.shape[-2] != factors.shape[-1]:
        raise unsolvable(factors, right)
    factors, right = alike(factors, right)
    rows = as_array(pivots)
    order = permutation(order_of_pivots(rows), factors.dtype)
    order = FUNCTIONS[np.broadcast_to](order, (*factors.shape[:-2], *order.shape[-2:]))
    if trans == 2 and factors.dtype.kind == "c":
        factors = conjugate(factors)
    if trans not in (0, 1, 2):
        raise ValueError("trans must be 0, 1 or 2")
    if trans == 0:
        half = triangular_solve(factors, matmul(order, right), lower=True, transposed=False, unit=True)
        solution = triangular_solve(factors, half, lower=False, transposed=False, unit=False)
    else:
        half = triangular_solve(factors, right, lower=False, transposed=True, unit=False)
        solution = matmul(
            transposed(order), triangular_solve(factors, half, lower=True, transposed=True, unit=True)
        )
    return as_given(solution, single)


@borrows("scipy.linalg.ldl")
def scipy_ldl(
    A: Any, lower: bool = True, hermitian: bool = True, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Value, ...]:
    """Follow `scipy.linalg.ldl`; the derivative takes the matrix for symmetric."""
    x = square(inexact(A, "A"))
    return ldl.results(x, lower=bool(lower), hermitian=bool(hermitian))


# Orthonormal columns


def _pivots(a: Any) -> Any:
    return scipy_function("qr")(a, mode="r", pivoting=True)[1]


qr_pivots: Callback = callback_row(
    "qr_pivots",
    ranks=(2,),
    shapes=lambda a: (a[1:],),
    dtypes=lambda dtype: (INT64,),
    evaluate=_pivots,
    tangent=None,
    samples=(((3, 4), {}),),
)
"""The order of the columns in which their lengths do not grow."""


@borrows("scipy.linalg.qr")
def scipy_qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Any, ...]:
    """Follow `scipy.linalg.qr`; the order of the columns is constant."""
    if mode not in ("full", "qr", "r", "economic", "raw"):
        raise ValueError("Mode argument should be one of ['full', 'r', 'economic', 'raw']")
    if mode == "raw":
        raise refuse("scipy.linalg.qr with mode='raw'", "pass mode='economic' or mode='full'")
    x = stacked(inexact(a))
    m, n = x.shape[-2:]
    order: tuple[Value, ...] = ()
    if pivoting:
        pivots = qr_pivots(x)
        order = (convert(pivots, np.dtype(np.int32)),)
        x = matmul(x, transposed(permutation(pivots, x.dtype)))
    if mode == "economic" or m <= n:
        columns, triangle = qr(x)
    else:
        columns, triangle = full_qr.results(x)
    return (triangle, *order) if mode == "r" else (columns, triangle, *order)


@borrows("scipy.linalg.qr_multiply")
def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Any, ...]:
    """Follow `scipy.linalg.qr_multiply`."""
    if mode not in ("left", "right"):
        raise ValueError(f"Mode argument can only be 'left' or 'right' but not '{mode}'")
    columns, *factors = scipy_qr(a, mode="economic", pivoting=pivoting)
    other = inexact(c, "c")
    single = other.ndim == 1
    if single:
        other = reshape(other, (other.shape[0], 1) if mode == "left" else (1, other.shape[0]))
    if conjugate and columns.dtype.kind == "c":
        columns = FUNCTIONS[np.conj](columns)
    product = matmul(columns, other) if mode == "left" else matmul(other, columns)
    return (FUNCTIONS[np.ravel](product) if single else product, *factors)


@borrows("scipy.linalg.rq")
def rq(
    a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", check_finite: bool = True
) -> Any:
    """Follow `scipy.linalg.rq`: it is QR of the matrix upside down, from right to left, and transposed."""
    if mode not in ("full", "r", "economic"):
        raise ValueError("Mode argument should be one of ['full', 'r', 'economic']")
    x = stacked(inexact(a))
    m, n = x.shape[-2:]
    turned = adjoint(_flipped(x))
    columns, triangle = full_qr.results(turned) if m < n and mode != "economic" else qr(turned)
    r, q = _flipped(adjoint(triangle)), _flipped(adjoint(columns))
    return r if mode == "r" else (r, q)


def _flipped(x: Value) -> Value:
    flipped: Value = FUNCTIONS[np.flip](x, axis=(-2, -1))
    return flipped


# Singular values


@borrows("scipy.linalg.svd")
def scipy_svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """Follow `scipy.linalg.svd`."""
    decomposition = svd(a, full_matrices, compute_uv)
    return tuple(decomposition) if compute_uv else decomposition


@borrows("scipy.linalg.svdvals")
def scipy_svdvals(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Value:
    """Follow `scipy.linalg.svdvals`."""
    return thin_svd(stacked(inexact(a)))[1]


def _rank(numbers: Value, limit: Any) -> tuple[int, Value | None]:
    """Return how many singular values are larger than a limit: a jitted function is traced anew where it changes.

    Where it cannot be known (`gt.vmap`), this is all of them, and the second result is NaN where they are fewer.
    """
    count = reduce_sum(convert(numbers > limit, INT64), axes=(0,))
    known_count = known(count)
    if known_count is not None:
        return int(known_count), None
    full_rank = numbers.shape[-1]
    return full_rank, where(equal(count, full_rank), 1.0, np.nan)


def _basis(x: Value, valid: Value | None) -> Value:
    return x if valid is None else x * convert(valid, x.dtype)


def _limit(x: Value, numbers: Value, rcond: Any) -> Any:
    if rcond is None:
        rcond = np.finfo(numbers.dtype).eps * max(x.shape[-2:])
    return reduce_max(numbers, axes=(0,)) * rcond if numbers.size else 0.0


def _one(a: Any, name: str) -> Value:
    x = stacked(inexact(a, "A"))
    if x.ndim > 2:
        raise refuse(
            f"scipy.linalg.{name} of a stack of matrices",
            "call it for each matrix, or with gt.vmap where the rank is constant",
        )
    return x


@borrows("scipy.linalg.orth")
def orth(A: Any, rcond: Any = None) -> Value:
    """Follow `scipy.linalg.orth`; the rank is a number of the trace."""
    x = _one(A, "orth")
    left, numbers, _ = thin_svd(x)
    rank, valid = _rank(numbers, _limit(x, numbers, rcond))
    return _basis(cut_columns(left, 0, rank), valid)


@borrows("scipy.linalg.null_space")
def null_space(
    A: Any,
    rcond: Any = None,
    *,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Value:
    """Follow `scipy.linalg.null_space`; the rank is a number of the trace."""
    x = _one(A, "null_space")
    _, numbers, right = full_svd.results(x)
    rank, valid = _rank(numbers, _limit(x, numbers, rcond))
    return _basis(cut_columns(right, rank, x.shape[-1]), valid)


@borrows("scipy.linalg.subspace_angles")
def subspace_angles(A: Any, B: Any) -> Value:
    """Follow `scipy.linalg.subspace_angles`: small angles by their sines, others by their cosines."""
    first, second = orth(A), orth(B)
    if first.shape[-2] != second.shape[-2]:
        raise ValueError("A and B must have the same number of rows")
    if first.shape[-1] < second.shape[-1]:
        first, second = second, first
    inside = matmul(adjoint(first), second)
    cosines = thin_svd(inside)[1]
    sines = thin_svd(second - matmul(first, inside))[1]
    clip, flip = FUNCTIONS[np.clip], FUNCTIONS[np.flip]
    small = cosines * cosines >= 0.5
    angles = UFUNCS["arcsin"](where(small, clip(sines, -1.0, 1.0), 0.0))
    others = UFUNCS["arccos"](where(small, 0.0, flip(clip(cosines, -1.0, 1.0))))
    all_angles: Value = where(small, angles, others)
    return all_angles


def _inverse(x: Value, atol: Any, rtol: Any) -> tuple[Value, Value]:
    left, numbers, right = thin_svd(x)
    share = max(x.shape[-2:]) * np.finfo(numbers.dtype).eps if rtol is None else rtol
    largest = getitem(numbers, (..., slice(0, 1)))
    is_kept = numbers > largest * share + (0.0 if atol is None else atol)
    scale = convert(where(is_kept, 1 / where(is_kept, numbers, 1), 0), x.dtype)
    columns = adjoint(right)
    back = columns * expand(scale, columns.shape, (*range(x.ndim - 2), x.ndim - 1))
    rank = reduce_sum(convert(is_kept, INT64), axes=(is_kept.ndim - 1,))
    return pseudoinverse(x, matmul(back, adjoint(left))), rank


@borrows("scipy.linalg.pinv")
def scipy_pinv(
    a: Any, *, atol: Any = None, rtol: Any = None, return_rank: bool = False, check_finite: bool = True
) -> Any:
    """Follow `scipy.linalg.pinv`."""
    inverse, rank = _inverse(stacked(inexact(a)), atol, rtol)
    return (inverse, rank) if return_rank else inverse


@borrows("scipy.linalg.pinvh")
def pinvh(
    a: Any,
    atol: Any = None,
    rtol: Any = None,
    lower: bool = True,
    return_rank: bool = False,
    check_finite: bool = True,
) -> Any:
    """Follow `scipy.linalg.pinvh`; the derivative takes the matrix for symmetric."""
    inverse, rank = _inverse(completed(square(inexact(a)), bool(lower)), atol, rtol)
    return (inverse, rank) if return_rank else inverse


@borrows("scipy.linalg.lstsq")
def scipy_lstsq(
    a: Any,
    b: Any,
    cond: Any = None,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    lapack_driver: Any = None,
) -> tuple[Any, ...]:
    """Follow `scipy.linalg.lstsq`; the derivative is that of matrices of the same rank."""
    x = inexact(a)
    solution, residuals, rank, numbers = lstsq(x, b, float(np.finfo(x.dtype).eps) if cond is None else cond)
    if residuals.shape == (1,) and as_array(b).ndim == 1:
        residuals = reshape(residuals, ())
    rank = rank if isinstance(rank, Value) else int(rank)
    return solution, residuals, rank, None if lapack_driver == "gelsy" else numbers


# Polar and Hessenberg


@borrows("scipy.linalg.polar")
def scipy_polar(a: Any, side: str = "right") -> tuple[Value, Value]:
    """Follow `scipy.linalg.polar`."""
    if side not in ("right", "left"):
        raise ValueError("`side` must be either 'right' or 'left'")
    x = stacked(inexact(a))
    unitary = nearest(x)
    back = adjoint(unitary)
    return unitary, symmetric(matmul(back, x) if side == "right" else matmul(x, back))


def nearest(x: Value) -> Value:
    """Return the nearest matrices with orthonormal columns, or rows where there are fewer of these."""
    return polar(x) if x.shape[-2] >= x.shape[-1] else adjoint(polar(adjoint(x)))


@borrows("scipy.linalg.orthogonal_procrustes")
def orthogonal_procrustes(A: Any, B: Any, check_finite: bool = True) -> tuple[Value, Value]:
    """Follow `scipy.linalg.orthogonal_procrustes`."""
    x, y = stacked(inexact(A, "A")), stacked(inexact(B, "B"))
    if x.shape != y.shape:
        raise ValueError(f"the shapes of A and B differ ({x.shape} vs {y.shape})")
    product = matmul(adjoint(x), y)
    unitary = nearest(product)
    inside = FUNCTIONS[np.trace](matmul(adjoint(unitary), product), axis1=-2, axis2=-1)
    return unitary, FUNCTIONS[np.real](inside) if inside.dtype.kind == "c" else inside


@borrows("scipy.linalg.hessenberg")
def scipy_hessenberg(
    a: Any, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """Follow `scipy.linalg.hessenberg`."""
    form, basis = hessenberg.results(square(inexact(a)))
    return (form, basis) if calc_q else form


@borrows("scipy.linalg.matrix_balance")
def matrix_balance(
    A: Any, permute: bool = True, scale: bool = True, separate: bool = False, overwrite_a: bool = False
) -> tuple[Any, Any]:
    """Follow `scipy.linalg.matrix_balance`: the scales are powers of two, and constant."""
    x = square(inexact(A, "A"))
    scaling, order = balance.results(x, permute=bool(permute), scale=bool(scale))
    sizes = convert(scaling, x.dtype)
    rows = expand(sizes, x.shape, (*range(x.ndim - 2), x.ndim - 2))
    columns = expand(sizes, x.shape, (*range(x.ndim - 2), x.ndim - 1))
    moved = permutation(order, x.dtype)
    balanced = matmul(moved, matmul(x, transposed(moved))) * columns / rows
    if separate:
        return balanced, (scaling, order)
    real_rows = expand(scaling, x.shape, (*range(x.ndim - 2), x.ndim - 2))
    return balanced, matmul(transposed(permutation(order, scaling.dtype)), weighted(real_rows, MAIN))


def _balance(a: Any, *, permute: bool, scale: bool) -> Any:
    return scipy_function("matrix_balance")(a, permute=permute, scale=scale, separate=True)[1]


balance: Callback = callback_row(
    "balance",
    ranks=(2,),
    shapes=lambda a, **params: (a[1:], a[1:]),
    dtypes=lambda dtype, **params: (np.dtype(np.float64), INT64),
    evaluate=_balance,
    tangent=None,
    samples=(((3, 3), {"permute": True, "scale": True}),),
)
"""The scales, powers of two, and the order of the rows and columns of a balanced matrix."""
