"""Matrices in bands, Toeplitz matrices, and matrices whose elements are those of vectors, in some order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Node, Value, constant
from gradtape.ir.op import NDArray
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.kinds.routines.matrix import Matrix, Places, Routine, matrix_row
from gradtape.ops.core.elementwise.cast import zeros_like
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import join
from gradtape.ops.core.linalg.equations import common_dtypes, scipy_function, total
from gradtape.ops.core.matrices import INT32, each_matrix, lapack_routine, transposed
from gradtape.ops.core.shape import expand, reshape
from gradtape.ops.numpy.linalg.products import matmul


def picked(x: Value, positions: NDArray) -> Value:
    """Return the elements of the last axis at some places, and 0 where a place is negative."""
    if x.shape[-1] == 0:
        x = join([x, expand(constant(np.zeros((), x.dtype)), (*x.shape[:-1], 1), ())], x.ndim - 1)
    elements = getitem(x, (..., np.maximum(positions, 0)))
    if not (positions < 0).any():
        return elements
    there = constant(positions >= 0)
    return where(
        expand(there, elements.shape, tuple(range(elements.ndim - positions.ndim, elements.ndim))),
        elements,
        0,
    )


# Bands: band k of a matrix a is row upper - k of its bands, and holds a[j - k, j] at j


def _positions(lower: int, upper: int, n: int) -> NDArray:
    """Return where the elements of a matrix stand in its bands, flat; -1 for those in none."""
    i, j = np.indices((n, n))
    row = upper + i - j
    return np.where((row >= 0) & (row <= lower + upper), row * n + j, -1)


def between_bands(bands: Value, lower: int, upper: int) -> Value:
    """Return the matrices of some bands."""
    rows, n = bands.shape[-2:]
    return picked(reshape(bands, (*bands.shape[:-2], rows * n)), _positions(lower, upper, n))


def bands_of(x: Value, lower: int, upper: int) -> Value:
    """Return the bands of square matrices."""
    n = x.shape[-1]
    row, j = np.indices((lower + upper + 1, n))
    i = row - upper + j
    positions = np.where((i >= 0) & (i < n), i * n + j, -1)
    return picked(reshape(x, (*x.shape[:-2], n * n)), positions)


def _transposed_places(rows: int, n: int, lower: int, upper: int) -> NDArray:
    """Return where the elements of the bands of transposes stand in those of the matrices, flat; -1 for none."""
    row, j = np.indices((rows, n))
    i = row - lower + j  # of the transpose, whose bands these are: it has `lower` bands above
    return np.where((i >= 0) & (i < n), (upper + j - i) * n + i, -1)


def transposed_bands(bands: Value, lower: int, upper: int) -> Value:
    """Return the bands of the transposes."""
    rows, n = bands.shape[-2:]
    positions = _transposed_places(rows, n, lower, upper)
    return picked(reshape(bands, (*bands.shape[:-2], rows * n)), positions)


def bands_times(bands: Value, x: Value, lower: int, upper: int) -> Value:
    """Return the products of matrices in bands with columns."""
    rows, n = bands.shape[-2:]
    turned = transposed_bands(bands, lower, upper)  # row r holds a[j, j + r - lower]
    parts = []
    for row in range(rows):
        columns = np.arange(n) + row - lower
        inside = np.where((columns >= 0) & (columns < n), columns, -1)
        shifted = picked(transposed(x), inside)
        parts.append(
            expand(getitem(turned, (..., row, slice(None))), shifted.shape, _without(shifted.ndim, 2))
            * shifted
        )
    product = total(*parts)
    assert product is not None
    return transposed(product)


def _without(rank: int, axis_from_end: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(rank) if axis != rank - axis_from_end)


def _banded_solve(
    bands: NDArray, b: NDArray, *, lower: int, upper: int, definite: bool, check_finite: bool = False
) -> NDArray:
    if definite:
        return np.asarray(
            scipy_function("solveh_banded")(bands[upper:], b, lower=True, check_finite=check_finite)
        )
    return np.asarray(scipy_function("solve_banded")((lower, upper), bands, b, check_finite=check_finite))


def _banded_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    (x,), (bands, _) = outs, inputs

    def push(tangents: Tangents) -> Value | None:
        moved, db = tangents
        effect = None if moved is None else -bands_times(moved, x, params["lower"], params["upper"])
        change = total(effect, db)
        return None if change is None else banded_solve(bands, change, **params | {"check_finite": False})

    return push


def _banded_transpose(ct: Value, node: Node) -> Value:
    params = node.params
    turned = transposed_bands(node.inputs[0], params["lower"], params["upper"])
    return banded_solve(turned, ct, lower=params["upper"], upper=params["lower"], definite=params["definite"])


def _dominant(bands: Value, b: Value) -> list[Value]:
    rows, n = bands.shape[-2:]
    steady = np.zeros((rows, n), bands.dtype)
    steady[1] = 4
    return [bands * 0.3 + steady, b]


banded_solve: Callback = callback_row(
    "banded_solve",
    ranks=(2, 2),
    shapes=lambda bands, b, **params: (b,),
    dtypes=common_dtypes,
    evaluate=_banded_solve,
    tangent=_banded_tangent,
    transpose=_banded_transpose,
    linear_in=1,
    samples=(
        ((3, 4), (4, 2), {"lower": 1, "upper": 1, "definite": False}),
        ((2, 4, 3), (2, 3, 1), {"lower": 2, "upper": 1, "definite": False}),
    ),
    prepare=_dominant,
)
"""The solution with a matrix in bands; where it is definite, its bands are those of a whole Hermitian matrix."""


def _band_lu(bands: NDArray, *, lower: int, upper: int) -> tuple[NDArray, ...]:
    def one(bands: NDArray) -> tuple[NDArray, NDArray]:
        room = np.zeros((lower, bands.shape[1]), bands.dtype)
        wide = np.concatenate([room, bands])
        factors, pivots, _ = lapack_routine("gbtrf", bands.dtype)(wide, lower, upper)
        return factors.T, (pivots + 1).astype(INT32)

    return each_matrix(one, bands)


def _band_places(lower: int, upper: int, **others: Any) -> Places:
    return {"lower": str(lower), "upper": str(upper), "width": str(2 * lower + upper + 1), **others}


band_lu: Matrix = matrix_row(
    "band_lu",
    shapes=lambda bands, lower, upper: (
        (*bands[:-2], bands[-1], 2 * lower + upper + 1),
        (*bands[:-2], bands[-1]),
    ),
    dtypes=lambda dtype: (dtype, INT32),
    evaluate=_band_lu,
    routine=Routine(
        0.1,
        extents=2,
        is_rectangular=True,
        places=lambda dtype, lower, upper: _band_places(lower, upper),
    ),
    tangent=None,
    samples=(((3, 4), {"lower": 1, "upper": 1}), ((2, 4, 5), {"lower": 2, "upper": 1})),
)
"""The factors of matrices in bands, in columns with room for exchanges as LAPACK stores them, and the pivots, counted from one."""


def _band_lu_solve(
    bands: NDArray,
    factors: NDArray,
    pivots: NDArray,
    b: NDArray,
    *,
    columns: int,
    lower: int,
    transposed: bool,
    upper: int,
) -> NDArray:
    def one(bands: NDArray, b: NDArray) -> tuple[NDArray]:
        try:
            return (np.asarray(scipy_function("solve_banded")((lower, upper), bands, b)),)
        except np.linalg.LinAlgError:
            return (np.full_like(b, np.nan),)

    if transposed:
        rows, n = bands.shape[-2:]
        positions = _transposed_places(rows, n, lower, upper)
        flat = np.reshape(bands, (*bands.shape[:-2], rows * n))
        bands = np.where(positions >= 0, flat[..., np.maximum(positions, 0)], 0)
        lower, upper = upper, lower
    return each_matrix(one, bands, b)[0]


def _band_lu_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    (x,), (bands, factors, pivots, _) = outs, inputs
    lower, upper = params["lower"], params["upper"]

    def push(tangents: Tangents) -> Value | None:
        moved, _, _, db = tangents
        effect = None
        if moved is not None and params["transposed"]:
            effect = -bands_times(transposed_bands(moved, lower, upper), x, upper, lower)
        elif moved is not None:
            effect = -bands_times(moved, x, lower, upper)
        change = total(effect, db)
        return None if change is None else band_lu_solve(bands, factors, pivots, change, **params)

    return push


def _band_lu_transpose(ct: Value, node: Node) -> Value:
    bands, factors, pivots, _ = node.inputs
    params = {**node.params, "transposed": not node.params["transposed"]}
    return band_lu_solve(bands, factors, pivots, ct, **params)


band_lu_solve: Matrix = matrix_row(
    "band_lu_solve",
    shapes=lambda bands, factors, pivots, b, **params: (b,),
    evaluate=_band_lu_solve,
    routine=Routine(
        0.1,
        spare=lambda rows, n: n,
        extents=2,
        is_rectangular=True,
        places=lambda dtype, columns, lower, transposed, upper: _band_places(
            lower, upper, columns=str(columns), transposed="T" if transposed else "N"
        ),
    ),
    tangent=_band_lu_tangent,
    transpose=_band_lu_transpose,
    linear_in=3,
    reads=(1, 2, 3),
    samples=tuple(
        (
            *((*lead, lower + upper + 1, n), (*lead, n, 2 * lower + upper + 1), (*lead, n), (*lead, n, k)),
            {"columns": k, "lower": lower, "transposed": transposed, "upper": upper},
        )
        for lead, n, lower, upper, k, transposed in (
            ((), 4, 1, 1, 1, False),
            ((), 5, 2, 1, 3, True),
            ((2,), 4, 0, 2, 2, False),
        )
    ),
)
"""The solution of a x = b (of a.T x = b where transposed) with the factors and pivots of a matrix in bands."""


# Toeplitz


def toeplitz_matrix(c: Value, r: Value) -> Value:
    """Return the matrices with these first columns and rows; the first element of the rows does not count."""
    m, n = c.shape[-1], r.shape[-1]
    i, j = np.indices((m, n))
    return picked(join([c, r], c.ndim - 1), np.where(i >= j, i - j, m + j - i))


def _toeplitz_solve(c: NDArray, r: NDArray, b: NDArray, *, check_finite: bool = False) -> NDArray:
    return np.asarray(scipy_function("solve_toeplitz")((c, r), b, check_finite=check_finite))


def _toeplitz_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    (x,), (c, r, _) = outs, inputs

    def push(tangents: Tangents) -> Value | None:
        dc, dr, db = tangents
        effect = None
        if dc is not None or dr is not None:
            first = zeros_like(c) if dc is None else dc
            second = zeros_like(r) if dr is None else dr
            effect = -matmul(toeplitz_matrix(first, second), x)
        change = total(effect, db)
        return None if change is None else toeplitz_solve(c, r, change)

    return push


def _toeplitz_transpose(ct: Value, node: Node) -> Value:
    c, r, _ = node.inputs
    first = getitem(c, (..., slice(0, 1)))
    turned = join([first, getitem(r, (..., slice(1, None)))], c.ndim - 1)
    return toeplitz_solve(turned, c, ct)


toeplitz_solve: Callback = callback_row(
    "toeplitz_solve",
    ranks=(1, 1, 2),
    shapes=lambda c, r, b, **params: (b,),
    dtypes=common_dtypes,
    evaluate=_toeplitz_solve,
    tangent=_toeplitz_tangent,
    transpose=_toeplitz_transpose,
    linear_in=2,
    samples=(((4,), (4,), (4, 2), {}), ((2, 3), (2, 3), (2, 3, 1), {})),
    prepare=lambda c, r, b: [c + np.eye(1, c.shape[-1], dtype=c.dtype)[0] * 5, r, b],
)
"""The solution with a Toeplitz matrix, given its first column and row."""
