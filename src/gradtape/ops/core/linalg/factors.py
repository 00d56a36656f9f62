"""Factors of matrices: LU with pivots, LDL, Hessenberg's form, polar, and orthonormal bases of the whole space.

With A + dA = (L + dL)(U + dU), L**-1 dA U**-1 is the sum of a part below the diagonal, L**-1 dL, and one above it, dU U**-1. The others
are found in the same way. Vectors that complete a basis are not determined; they do not turn among each other here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import BOOL, part_dtype
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.ops.core.elementwise.cast import convert, zeros_like
from gradtape.ops.core.elementwise.complex_parts import from_parts, imag, real
from gradtape.ops.core.elementwise.logic import equal, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import join
from gradtape.ops.core.lengths import MAIN, Pattern, by_diagonals, count_to, on_diagonal
from gradtape.ops.core.linalg.equations import scipy_function, sylvester
from gradtape.ops.core.matrices import (
    INT32,
    adjoint,
    lapack_routine,
    qr,
    svd,
    symmetric,
    transposed,
    triangular_solve,
    weighted,
)
from gradtape.ops.core.shape import expand, pad
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import solved

INT64 = np.dtype(np.int64)


def cut_rows(x: Value, start: int, stop: int) -> Value:
    """Return some rows of each matrix."""
    return getitem(x, (..., slice(start, stop), slice(None)))


def cut_columns(x: Value, start: int, stop: int) -> Value:
    """Return some columns of each matrix."""
    return getitem(x, (..., slice(start, stop)))


def unit_lower(x: Value) -> Value:
    """Return the lower triangles of matrices with at least as many rows as columns, with ones on the diagonal."""
    m, n = x.shape[-2:]
    unit_diagonal = by_diagonals((m, n), MAIN, x.dtype)
    return weighted(x, lambda d: d < 0) + expand(unit_diagonal, x.shape, (x.ndim - 2, x.ndim - 1))


def upper(x: Value) -> Value:
    """Return the upper triangles of matrices."""
    return weighted(x, lambda d: d >= 0)


def lower(x: Value, offset: int = 0) -> Value:
    """Return the lower triangles of matrices."""
    return weighted(x, lambda d: d <= offset)


def by_lower(a: Value, b: Value, *, unit: bool = False) -> Value:
    """Return the solution of a x = b with a lower triangle."""
    return triangular_solve(a, b, lower=True, transposed=False, unit=unit)


def over_upper(b: Value, a: Value) -> Value:
    """Return the solution of x a = b with an upper triangle."""
    return transposed(triangular_solve(a, transposed(b), lower=False, transposed=True, unit=False))


def permutation(row_order: Value, dtype: np.dtype[Any]) -> Value:
    """Return the matrices whose product with a matrix has its rows in this order."""
    n = row_order.shape[-1]
    rank = row_order.ndim
    wide = expand(row_order, (*row_order.shape, n), tuple(range(rank)))
    order = expand(count_to(n, row_order.dtype), wide.shape, (rank,))
    return convert(equal(wide, order), dtype)


# LU


def _lu(a: NDArray) -> tuple[NDArray, ...]:
    m = len(a)
    if not a.size:
        return a, np.zeros(min(a.shape), INT32), np.arange(m)
    packed, pivots, _ = lapack_routine("getrf", a.dtype)(a)  # which does not warn of a pivot that is zero
    order = np.arange(m)
    for k, pivot in enumerate(pivots):
        order[[k, pivot]] = order[[pivot, k]]
    return packed, pivots, order


def _lu_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    packed, _, order = outs
    m, n = packed.shape[-2:]
    k = min(m, n)

    def push(tangents: Tangents) -> Tangents:
        (da,) = tangents
        if da is None or k == 0:
            return None, None, None
        moved = matmul(permutation(order, da.dtype), da)
        left, right = unit_lower(cut_columns(packed, 0, k)), upper(cut_rows(packed, 0, k))
        top, first = cut_rows(left, 0, k), cut_columns(right, 0, k)
        block = cut_columns(cut_rows(moved, 0, k), 0, k)
        # The last pivot divides nothing: generators of Markov chains have a zero there.
        inside = by_lower(top, block, unit=True)
        known = over_upper(cut_columns(inside, 0, k - 1), cut_columns(cut_rows(first, 0, k - 1), 0, k - 1))
        below = lower(pad(known, inside.shape, (0,) * inside.ndim), -1)
        dtop, dfirst = matmul(top, below), upper(inside - matmul(below, first))
        change = dtop + dfirst
        if m > k:
            remaining = cut_rows(moved, k, m) - matmul(cut_rows(left, k, m), dfirst)
            change = join([change, over_upper(remaining, first)], change.ndim - 2)
        if n > k:
            remaining = cut_columns(moved, k, n) - matmul(dtop, cut_columns(right, k, n))
            change = join([change, by_lower(top, remaining, unit=True)], change.ndim - 1)
        return change, None, None

    return push


packed_lu: Callback = callback_row(
    "packed_lu",
    ranks=(2,),
    shapes=lambda a: (a, (min(a),), (a[0],)),
    dtypes=lambda dtype: (dtype, INT32, INT64),
    evaluate=_lu,
    tangent=_lu_tangent,
    kinks="that of the same pivots",
    samples=(((3, 3), {}), ((2, 2, 4), {}), ((4, 2), {}), ((0, 2, 2), {})),
)
"""Both factors in one matrix, with any number of rows and columns, LAPACK's pivots counted from zero, and the order of the rows."""


# LDL


def _ldl(a: NDArray, *, lower: bool, hermitian: bool) -> tuple[NDArray, ...]:
    return tuple(scipy_function("ldl")(a, lower=lower, hermitian=hermitian, check_finite=False))


def _ldl_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """The rows of the factor in the order make a triangle, with blocks of two where the middle one has them."""
    factor, middle, _ = outs
    flip = adjoint if params["hermitian"] else transposed

    def push(tangents: Tangents) -> Tangents:
        (da,) = tangents
        if da is None:
            return None, None, None
        # one triangle counts, and the matrix is taken for symmetric
        symmetric = (da + flip(da)) * 0.5
        half = solved(factor, symmetric)
        inside = flip(solved(factor, flip(half)))
        sign = -1 if params["lower"] else 1  # of the diagonals in the triangle that counts
        beside = _flags(on_diagonal(sign), inside)
        block = where(beside, not_equal(middle, 0), False)
        outside = where(block, False, _flags(lambda d: d * sign > 0, inside))
        across = where(transposed(block), False, _flags(lambda d: d * sign < 0, inside))
        moved = where(outside, inside, 0)
        turn = transposed(solved(transposed(middle), transposed(moved)))
        turn = where(outside, turn, 0)
        return matmul(factor, turn), where(outside, 0, where(across, 0, inside)), None

    return push


def _flags(pattern: Pattern, like: Value) -> Value:
    return expand(by_diagonals(like.shape[-2:], pattern, BOOL), like.shape, (like.ndim - 2, like.ndim - 1))


ldl: Callback = callback_row(
    "ldl",
    ranks=(2,),
    shapes=lambda a, **params: (a, a, a[:1]),
    dtypes=lambda dtype, **params: (dtype, dtype, INT64),
    evaluate=_ldl,
    tangent=_ldl_tangent,
    kinks="that of a symmetric matrix and the same pivots",
    samples=(
        ((3, 3), {"lower": True, "hermitian": True}),
        ((2, 4, 4), {"lower": False, "hermitian": True}),
        ((1, 1), {"lower": True, "hermitian": True}),
    ),
    prepare=lambda a: [a + adjoint(a)],
)
"""The outer factor with its rows in their order, the middle one, and the order in which the outer one is a triangle."""


# Hessenberg


def _hessenberg(a: NDArray) -> tuple[NDArray, ...]:
    return tuple(scipy_function("hessenberg")(a, calc_q=True, check_finite=False))


def _hessenberg_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """The first vector of the basis stays; what is below the first subdiagonal of C + H X - X H is zero, which gives X column by column."""
    form, basis = outs
    n = form.shape[-1]

    def push(tangents: Tangents) -> Tangents:
        (da,) = tangents
        if da is None:
            return None, None
        inside = matmul(adjoint(basis), matmul(da, basis))
        rotation = zeros_like(inside)
        for k in range(n - 2):
            rotation = rotation + _turned(form, inside, rotation, k)
        moved = inside + matmul(form, rotation) - matmul(rotation, form)
        if form.dtype.kind == "c" and n > 2:
            for k in range(n - 1):
                # the elements below the diagonal stay real
                rotation = rotation + _phase(form, moved, k)
                moved = inside + matmul(form, rotation) - matmul(rotation, form)
        return weighted(moved, lambda d: d >= -1), matmul(basis, rotation)

    return push


def _turned(form: Value, inside: Value, rotation: Value, k: int) -> Value:
    """Return the part of the rotation that moves vector k + 1, with its counterpart."""
    n = form.shape[-1]
    moved = inside + matmul(form, rotation) - matmul(rotation, form)
    column = getitem(moved, (..., slice(k + 2, n), slice(k, k + 1)))
    pivot = getitem(form, (..., slice(k + 1, k + 2), slice(k, k + 1)))
    none = equal(pivot, 0)
    angle = where(none, 0, 1 / where(none, 1, pivot)) * column
    shape = (*form.shape[:-2], n, n)
    part = pad(angle, shape, (*[0] * (len(shape) - 2), k + 2, k + 1))
    return part - adjoint(part)


def _phase(form: Value, moved: Value, k: int) -> Value:
    """Return the turn of vector k + 1 along itself that makes its element below the diagonal real."""
    n = form.shape[-1]
    pivot = real(getitem(form, (..., slice(k + 1, k + 2), slice(k, k + 1))))
    change = imag(getitem(moved, (..., slice(k + 1, k + 2), slice(k, k + 1))))
    none = equal(pivot, 0)
    angle = where(none, 0, change / where(none, 1, pivot))
    shape = (*form.shape[:-2], n, n)
    part = pad(angle, shape, (*[0] * (len(shape) - 2), k + 1, k + 1))
    return from_parts(zeros_like(part), part)


hessenberg: Callback = callback_row(
    "hessenberg",
    ranks=(2,),
    shapes=lambda a: (a, a),
    dtypes=lambda dtype: (dtype, dtype),
    evaluate=_hessenberg,
    tangent=_hessenberg_tangent,
    samples=(((4, 4), {}), ((2, 3, 3), {}), ((1, 1), {}), ((2, 2), {})),
)
"""Hessenberg's form of a matrix, and the orthonormal basis."""


# Whole bases


def with_rest(thin: Value, basis: Value, moved: Value) -> Value:
    """Return the tangent of a whole basis, given that of its first vectors: the others move along these only."""
    k = thin.shape[-1]
    others = cut_columns(basis, k, basis.shape[-1])
    return join([moved, -matmul(thin, matmul(adjoint(moved), others))], moved.ndim - 1)


def _full_svd_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    left, numbers, right = outs
    k = numbers.shape[-1]
    thin = (cut_columns(left, 0, k), numbers, cut_columns(right, 0, k))
    assert svd.tangent is not None
    inner = svd.tangent(thin, inputs, {})

    def push(tangents: Tangents) -> Tangents:
        moved = inner(tangents)
        assert isinstance(moved, tuple)
        if moved[0] is None:
            return None, None, None
        return with_rest(thin[0], left, moved[0]), moved[1], with_rest(thin[2], right, moved[2])

    return push


def _full_svd(a: NDArray) -> tuple[NDArray, ...]:
    left, numbers, right = np.linalg.svd(a)
    return left, numbers, right.conj().T


full_svd: Callback = callback_row(
    "full_svd",
    ranks=(2,),
    shapes=lambda a: ((a[0], a[0]), (min(a),), (a[1], a[1])),
    dtypes=lambda dtype: (dtype, part_dtype(dtype) if dtype.kind == "c" else dtype, dtype),
    evaluate=_full_svd,
    tangent=_full_svd_tangent,
    kinks="0 between vectors of equal singular values that rotate together; "
    "the derivative of vectors that complete a basis lies in the span of the others",
    samples=(),
)
"""As `svd`, with vectors that complete both bases."""


def _full_qr(a: NDArray) -> tuple[NDArray, ...]:
    return tuple(np.linalg.qr(a, mode="complete"))


def _full_qr_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    columns, triangle = outs
    k = inputs[0].shape[-1]
    thin = cut_columns(columns, 0, k)
    assert qr.tangent is not None
    inner = qr.tangent((thin, cut_rows(triangle, 0, k)), inputs, {})

    def push(tangents: Tangents) -> Tangents:
        moved = inner(tangents)
        assert isinstance(moved, tuple)
        if moved[0] is None:
            return None, None
        zero_rows = zeros_like(cut_rows(triangle, k, triangle.shape[-2]))
        return with_rest(thin, columns, moved[0]), join([moved[1], zero_rows], triangle.ndim - 2)

    return push


full_qr: Callback = callback_row(
    "full_qr",
    ranks=(2,),
    shapes=lambda a: ((a[0], a[0]), a),
    dtypes=lambda dtype: (dtype, dtype),
    evaluate=_full_qr,
    tangent=_full_qr_tangent,
    kinks="the derivative of vectors that complete a basis lies in the span of the others",
    samples=(),
)
"""Of a matrix with more rows than columns: an orthonormal basis of the whole space, and the upper triangular factor."""


# Polar


def _polar(a: NDArray) -> NDArray:
    left, _, right = np.linalg.svd(a, full_matrices=False)
    return np.asarray(left @ right)


def _polar_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """With A = U P, the rotation X of dU = U X solves P X + X P = U.H dA - dA.H U; what is outside the columns is divided by P."""
    (unitary,), (a,) = outs, inputs

    def push(tangents: Tangents) -> Value | None:
        (da,) = tangents
        if da is None:
            return None
        stretch = symmetric(matmul(adjoint(unitary), a))
        inside = matmul(adjoint(unitary), da)
        moved = matmul(unitary, sylvester(stretch, stretch, inside - adjoint(inside)))
        if a.shape[-2] > a.shape[-1]:
            outside = da - matmul(unitary, inside)
            moved = moved + adjoint(solved(stretch, adjoint(outside)))
        return moved

    return push


polar: Callback = callback_row(
    "polar",
    ranks=(2,),
    shapes=lambda a: (a,),
    evaluate=_polar,
    tangent=_polar_tangent,
    samples=(((3, 3), {}), ((4, 2), {}), ((2, 3, 2), {})),
)
"""The nearest matrix with orthonormal columns to one with at least as many rows as columns."""
