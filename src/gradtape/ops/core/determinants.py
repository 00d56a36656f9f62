"""Determinants and adjugates, whose derivatives exist at singular matrices as everywhere else.

The derivative of a determinant is the adjugate: no solution of a system, which singular matrices do not have, times a determinant of 0.
With A = P L U the adjugate is adj(U) L^-1 P.T, up to the sign of P, and that of a triangular matrix takes no division. Its own derivative
is that of a matrix of full rank, which vanishing singular values are lifted to, less the lift: a formula of Woodbury in which the small
matrix of the lifted values is not inverted.

References
----------
G. W. Stewart, "On the adjugate matrix", Linear Algebra and its Applications 283, 1998.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value, literal
from gradtape.ir.op import NDArray
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.kinds.routines.matrix import Matrix, Places, Routine, matrix_row
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.elementwise.logic import equal, less_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.lengths import MAIN, by_diagonals
from gradtape.ops.core.matrices import (
    adjoint,
    diagonal,
    each_matrix,
    lapack_routine,
    lu,
    lu_solve,
    scaled_columns,
    svd,
    transposed,
)
from gradtape.ops.core.reductions import reduce_prod, reduce_sum
from gradtape.ops.core.shape import expand, reshape, slice_
from gradtape.ops.numpy.linalg.products import matmul

LIFTED = 3
"""How many vanishing singular values the derivatives of adjugates are exact for; with more of them, derivatives of the
determinant are exact up to the third.
"""


def _scales(dtype: np.dtype[Any]) -> Places:
    """Return exponents of numbers that may be multiplied with each other, and by how much others are scaled."""
    return {"scale": "600", "limit": "500"} if dtype.itemsize == 8 else {"scale": "60", "limit": "50"}


def _adjugate_scales(dtype: np.dtype[Any]) -> Places:
    return {"limit": "1000.0" if dtype.itemsize == 8 else "120.0"}


def _determinant_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    a, factors, pivots = inputs

    def push(tangents: Tangents) -> Value | None:
        da = tangents[0]
        if da is None:
            return None
        cofactors = transposed(adjugate(a, factors, pivots))
        return reduce_sum(cofactors * da, axes=(a.ndim - 2, a.ndim - 1))

    return push


determinant: Matrix = matrix_row(
    "determinant",
    shapes=lambda a, factors, pivots: (a[:-2],),
    evaluate=lambda a, factors, pivots: np.asarray(np.linalg.det(a)),
    routine=Routine(0.01, places=_scales),
    tangent=_determinant_tangent,
    reads=(1, 2),
    samples=(
        ((3, 3), (3, 3), (3,), {}),
        ((2, 4, 4), (2, 4, 4), (2, 4), {}),
        ((0, 4, 4), (0, 4, 4), (0, 4), {}),
    ),
)
"""The determinant of a matrix with its factors and pivots."""


def _adjugate(a: NDArray, factors: NDArray, pivots: NDArray) -> NDArray:
    def one(a: NDArray) -> tuple[NDArray]:
        both, rows, _ = lapack_routine("getrf", a.dtype)(a)
        n = len(both)
        out = np.zeros((n, n), both.dtype)
        upper = np.triu(both)
        # Scaled rows, so that only the result may leave the range.
        exponents = np.frexp(np.max(np.abs(upper), axis=1))[1]
        upper = upper * np.ldexp(upper.real.dtype.type(1), -exponents)[:, None]
        product = np.ones((), both.dtype)
        for j in range(n):  # the adjugate of the leading triangle of one row more
            out[:j, j] = -(out[:j, :j] @ upper[:j, j])
            out[j, j] = product
            out[:j, :j] *= upper[j, j]
            product = product * upper[j, j]
        others = np.sum(exponents) - exponents
        out = (
            out
            * np.ldexp(upper.real.dtype.type(1), others // 2)
            * np.ldexp(upper.real.dtype.type(1), others - others // 2)
        )
        for j in reversed(range(n)):
            out[:, j] -= out[:, j + 1 :] @ both[j + 1 :, j]
        for i in reversed(range(n)):
            other = int(rows[i])
            if other != i:
                out[:, [i, other]] = out[:, [other, i]]
                out = -out
        return (out,)

    return each_matrix(one, a)[0]


def _trace(x: Value) -> Value:
    """Return the trace of each matrix, as a matrix of one element."""
    return reshape(reduce_sum(diagonal(x), axes=(x.ndim - 2,)), (*x.shape[:-2], 1, 1))


def _times(factor: Value, x: Value) -> Value:
    """Return the matrices, each multiplied by a matrix of one element."""
    lead = x.ndim - 2
    return x * expand(reshape(factor, factor.shape[:lead]), x.shape, tuple(range(lead)))


def _identities(n: int, like: Value) -> Value:
    return broadcast_to(by_diagonals((n, n), MAIN, like.dtype), (*like.shape[:-2], n, n))


def _small_adjugate(e: Value) -> Value:
    """Return the adjugates of matrices of 3 by 3, by the theorem of Cayley and Hamilton."""
    trace, product = _trace(e), matmul(e, e)
    last = (trace * trace - _trace(product)) * 0.5
    return product - _times(trace, e) + _times(last, _identities(LIFTED, e))


def _small_adjugate_push(e: Value, de: Value) -> Value:
    trace, moved = _trace(e), _trace(de)
    forward = matmul(e, de)
    last = trace * moved - _trace(forward)
    return (
        forward + matmul(de, e) - _times(moved, e) - _times(trace, de) + _times(last, _identities(LIFTED, e))
    )


def _adjugate_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    a = inputs[0]
    n = a.shape[-1]

    def push(tangents: Tangents) -> Value | None:
        da = tangents[0]
        if da is None:
            return None
        # The lift is a constant, so that singular vectors that are not determined do no harm.
        left, numbers, right = svd.results(stop_gradient(a))
        largest = slice_(numbers, (0,) * numbers.ndim, (*numbers.shape[:-1], 1), (1,) * numbers.ndim)
        largest = where(equal(largest, 0.0), 1.0, largest)
        size = expand(reshape(largest, a.shape[:-2]), numbers.shape, tuple(range(a.ndim - 2)))
        lift = where(less_equal(numbers, size * float(np.sqrt(np.finfo(numbers.dtype).eps))), size, 0.0)
        lift = convert(lift, a.dtype)
        raised = a + matmul(scaled_columns(left, lift), adjoint(right))
        inverse = lu_solve(raised, *lu.results(raised), _identities(n, a), transposed=False)
        determinants = reshape(determinant_of(raised), (*a.shape[:-2], 1, 1))

        # Of the lifted values the last three count: where there are more, all derivatives up to the third are 0.
        first = n - LIFTED
        starts, unit_strides = (*[0] * (a.ndim - 2), 0, first), (1,) * a.ndim
        own_lift = slice_(lift, (*[0] * (a.ndim - 2), first), (*a.shape[:-2], LIFTED), (1,) * lift.ndim)
        p = scaled_columns(slice_(left, starts, (*a.shape[:-1], LIFTED), unit_strides), own_lift)
        q = adjoint(slice_(right, starts, (*a.shape[:-1], LIFTED), unit_strides))
        if first:
            before = slice_(lift, (0,) * lift.ndim, (*a.shape[:-2], first), (1,) * lift.ndim)
            kept = where(equal(before, 0.0), literal(1.0, a.dtype), literal(0.0, a.dtype))
            kept = reduce_prod(kept, axes=(kept.ndim - 1,))
            determinants = determinants * reshape(kept, determinants.shape)

        # The formula of Woodbury with adjugates in place of inverses.
        g, h = matmul(inverse, p), matmul(q, inverse)
        e = _identities(LIFTED, a) - matmul(q, g)
        f = _small_adjugate(e)
        part = _trace(matmul(e, f)) * (1.0 / LIFTED)
        through = matmul(inverse, da)
        moved_e = matmul(h, matmul(da, g))
        moved_f = _small_adjugate_push(e, moved_e)
        inner = matmul(g, matmul(f, h))
        change = _times(_trace(through) * part + _trace(matmul(f, moved_e)), inverse) + _times(
            _trace(through), inner
        )
        change = change - matmul(through, _times(part, inverse) + inner)
        change = change + matmul(g, matmul(moved_f, h)) - matmul(inner, matmul(da, inverse))
        return _times(determinants, change)

    return push


adjugate: Matrix = matrix_row(
    "adjugate",
    shapes=lambda a, factors, pivots: (a,),
    evaluate=_adjugate,
    routine=Routine(0.7, lambda m, n: 2 * n, places=_adjugate_scales),
    tangent=_adjugate_tangent,
    reads=(1, 2),
    samples=(
        ((3, 3), (3, 3), (3,), {}),
        ((2, 4, 4), (2, 4, 4), (2, 4), {}),
        ((0, 4, 4), (0, 4, 4), (0, 4), {}),
    ),
)
"""The transposed matrix of cofactors of a matrix of at least 3 by 3 with its factors and pivots."""


def determinant_of(a: Value) -> Value:
    """Return the determinant of each matrix."""
    return determinant(a, *lu.results(a))
