"""Eigenvalues and eigenvectors of any matrix, of pairs of matrices, and Schur's form.

References
----------
M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation", 2008.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import BOOL
from gradtape.kinds.registry import FUNCTIONS
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate, from_parts, imag, real
from gradtape.ops.core.elementwise.logic import equal, logical_and, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.lengths import by_diagonals, count_to, on_diagonal
from gradtape.ops.core.linalg.equations import scipy_function, total
from gradtape.ops.core.matrices import (
    adjoint,
    diagonal,
    differences,
    equal_pairs,
    scaled_columns,
    weighted,
)
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import solved

Dtypes = tuple[np.dtype[Any], ...]


def complex_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of complex numbers of a dtype's precision."""
    return np.result_type(dtype, np.complex64)


def gaps(numbers: Value) -> Value:
    """Return 1 / (w[j] - w[i]) for each pair of numbers, 0 for those that are equal."""
    same = equal_pairs(numbers)
    return where(same, 0, 1 / where(same, 1, differences(numbers)))


def apart(*operands: Value, growth: float = 1.0) -> list[Value]:
    """Return matrices of real eigenvalues that are far apart, for tests."""
    return [x * 0.1 + np.diag(1.0 + growth * np.arange(x.shape[-1])).astype(x.dtype) for x in operands]


# Any matrix


def in_gauge(vectors: Value, tangent: Value) -> Value:
    """Return the tangent of vectors whose length is 1 and whose largest element is real, as LAPACK's are."""
    rows = vectors.ndim - 2
    along = reduce_sum(real(conjugate(vectors) * tangent), axes=(rows,))
    size = where(equal(imag(vectors), 0), absolute(vectors), -1)
    largest = FUNCTIONS[np.argmax](size, axis=rows)
    order = expand(count_to(vectors.shape[rows]), vectors.shape, (rows,))
    chosen = equal(order, expand(largest, vectors.shape, (*range(rows), rows + 1)))
    length = reduce_sum(where(chosen, real(vectors), 0), axes=(rows,))
    turn = reduce_sum(where(chosen, imag(tangent), 0), axes=(rows,)) / length
    return tangent - scaled_columns(vectors, from_parts(along, turn))


def _eig(a: NDArray, *, left: bool) -> tuple[NDArray, ...]:
    if not left:
        return tuple(np.linalg.eig(a))
    numbers, lefts, rights = scipy_function("eig")(a, left=True)
    return numbers, lefts, rights


def _eig_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    numbers, *vectors = outs

    def push(tangents: Tangents) -> Tangents:
        (da,) = tangents
        if da is None:
            return [None] * len(outs)
        da = convert(da, numbers.dtype)
        rights = vectors[-1]
        inside = solved(rights, matmul(da, rights))
        tangents_of_outs = [diagonal(inside)]
        if params["left"]:
            lefts = vectors[0]
            turn = solved(lefts, matmul(adjoint(da), lefts)) * gaps(conjugate(numbers))
            tangents_of_outs.append(in_gauge(lefts, matmul(lefts, turn)))
        return [*tangents_of_outs, in_gauge(rights, matmul(rights, inside * gaps(numbers)))]

    return push


def _all_complex(count: int) -> Any:
    def dtypes(*operand_dtypes: np.dtype[Any], **params: Any) -> Dtypes:
        return (complex_dtype(np.result_type(*operand_dtypes)),) * (count + bool(params.get("left")))

    return dtypes


eig: Callback = callback_row(
    "eig",
    ranks=(2,),
    shapes=lambda a, *, left: (a[:-1], a, a)[: 2 + left],
    dtypes=_all_complex(2),
    evaluate=_eig,
    tangent=_eig_tangent,
    kinks="that of different eigenvalues: 0 between eigenvectors of equal ones; vectors of length 1 whose largest element is real",
    samples=(
        ((3, 3), {"left": False}),
        ((2, 4, 4), {"left": True}),
        ((1, 1), {"left": False}),
        ((0, 2, 2), {"left": False}),
    ),
)
"""The eigenvalues of a matrix, its left eigenvectors where they are wanted, and its right ones, as columns. All are complex."""


def _eig_pair(a: NDArray, b: NDArray, *, left: bool) -> tuple[NDArray, ...]:
    return tuple(scipy_function("eig")(a, b, left=left))


def _eig_pair_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    numbers, *vectors = outs
    b = convert(inputs[1], numbers.dtype)

    def moved(x: Value, inverse: Value, change: Value, values: Value) -> Value:
        turn = matmul(x, solved(matmul(inverse, x), change) * gaps(values))
        along = reduce_sum(conjugate(x) * turn, axes=(x.ndim - 2,))
        return turn - scaled_columns(x, along)

    def push(tangents: Tangents) -> Tangents:
        da, db = [None if x is None else convert(x, numbers.dtype) for x in tangents]
        if da is None and db is None:
            return [None] * len(outs)

        def change(x: Value, values: Value, flip: bool) -> Value:
            parts = [None if d is None else adjoint(d) if flip else d for d in (da, db)]
            first = None if parts[0] is None else matmul(parts[0], x)
            second = None if parts[1] is None else -scaled_columns(matmul(parts[1], x), values)
            sum_of_terms = total(first, second)
            assert sum_of_terms is not None
            return sum_of_terms

        rights = vectors[-1]
        inside = change(rights, numbers, False)
        tangents_of_outs = [diagonal(solved(matmul(b, rights), inside))]
        if params["left"]:
            values = conjugate(numbers)
            tangents_of_outs.append(moved(vectors[0], adjoint(b), change(vectors[0], values, True), values))
        return [*tangents_of_outs, moved(rights, b, inside, numbers)]

    return push


eig_pair: Callback = callback_row(
    "eig_pair",
    ranks=(2, 2),
    shapes=lambda a, b, *, left: (a[:-1], a, a)[: 2 + left],
    dtypes=_all_complex(2),
    evaluate=_eig_pair,
    tangent=_eig_pair_tangent,
    kinks="that of different eigenvalues; vectors of length 1, whose derivative has no part along themselves",
    samples=(((3, 3), (3, 3), {"left": False}), ((2, 2, 2), (2, 2, 2), {"left": True})),
    prepare=lambda a, b: [*apart(a), *apart(b, growth=0.0)],
    codes="fd",
)
"""The same of a x = w b x."""


# Schur's form


def _schur_vectors(t: NDArray) -> tuple[NDArray, ...]:
    n = len(t)
    basis = np.eye(n, dtype=t.dtype)
    if np.any(np.diagonal(t, -1)):
        t, basis = scipy_function("rsf2csf")(t, basis)
    numbers = np.diagonal(t).copy()
    vectors = np.eye(n, dtype=t.dtype)
    tiny = np.finfo(t.dtype).tiny
    for k in range(1, n):
        block = np.triu(t[:k, :k]) - numbers[k] * np.eye(k)
        flat = np.diagonal(block) == 0
        block[flat, flat] = tiny**0.5
        vectors[:k, k] = scipy_function("solve_triangular")(block, -t[:k, k], check_finite=False)
    return numbers, basis @ vectors


def _schur_vectors_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    numbers, vectors = outs

    def push(tangents: Tangents) -> Tangents:
        (dt,) = tangents
        if dt is None:
            return None, None
        inside = solved(vectors, matmul(dt, vectors))
        return diagonal(inside), matmul(vectors, inside * gaps(numbers))

    return push


def _triangles(x: Value) -> list[Value]:
    return [weighted(each, lambda d: d >= 0) for each in apart(x)]


schur_vectors: Callback = callback_row(
    "schur_vectors",
    ranks=(2,),
    shapes=lambda t: (t[:-1], t),
    dtypes=lambda dtype: (complex_dtype(dtype),) * 2,
    evaluate=_schur_vectors,
    tangent=_schur_vectors_tangent,
    samples=(((3, 3), {}), ((2, 2, 2), {}), ((0, 1, 1), {})),
    prepare=_triangles,
)
"""The eigenvalues of a complex triangular matrix, or of one with blocks of two on its diagonal, in their order there, and vectors."""


def _schur(a: NDArray, *, sort: str) -> tuple[NDArray, ...]:
    if not sort:
        return (*scipy_function("schur")(a, output="real"), np.asarray(0))
    triangle, basis, count = scipy_function("schur")(a, output="real", sort=sort)
    return triangle, basis, np.asarray(count)


def _schur_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """With Z.H dA Z = C and Z.H dZ = X, the part of C + T X - X T below the blocks is zero; the eigenvectors of T divide X."""
    triangle, basis, *further = outs
    n = triangle.shape[-1]
    dtype = triangle.dtype

    def push(tangents: Tangents) -> Tangents:
        (da,) = tangents
        if da is None:
            return [None] * len(outs)
        inside = matmul(adjoint(basis), matmul(convert(da, dtype), basis))
        numbers, vectors = schur_vectors.results(convert(triangle, complex_dtype(dtype)))
        below = _below(triangle)
        divided = solved(vectors, matmul(convert(inside, vectors.dtype), vectors)) * gaps(numbers)
        rotation = adjoint(solved(adjoint(vectors), adjoint(matmul(vectors, where(below, divided, 0)))))
        rotation = where(below, real(rotation) if dtype.kind != "c" else rotation, 0)
        rotation = rotation - adjoint(rotation)
        if dtype.kind != "c" and n > 1:
            rotation = rotation + _in_blocks(triangle, inside, rotation)
        moved = inside + matmul(triangle, rotation) - matmul(rotation, triangle)
        return where(below, 0, moved), matmul(basis, rotation), *[None for _ in further]

    return push


def _below(triangle: Value) -> Value:
    """Return what lies below the blocks of Schur's form."""
    lower, subdiagonal = [
        expand(
            by_diagonals(triangle.shape[-2:], pattern, BOOL),
            triangle.shape,
            (triangle.ndim - 2, triangle.ndim - 1),
        )
        for pattern in (lambda d: d < 0, on_diagonal(-1))
    ]
    return where(logical_and(subdiagonal, not_equal(triangle, 0)), False, lower)


def _in_blocks(triangle: Value, inside: Value, rotation: Value) -> Value:
    """Return the rotations within blocks of two, whose diagonal elements stay equal."""
    n = triangle.shape[-1]
    moved = inside + matmul(triangle, rotation) - matmul(rotation, triangle)
    steps = diagonal(moved)
    first, second = _part(steps, 0, n - 1), _part(steps, 1, n)
    upper, lower = _beside(triangle, 1), _beside(triangle, -1)
    none = equal(lower, 0)
    angle = where(none, 0, (second - first) / (2 * where(none, 1, upper + lower)))
    low = _spread(angle, n)
    return low - adjoint(low)


def _part(x: Value, start: int, stop: int) -> Value:
    return getitem(x, (..., slice(start, stop)))


def _beside(x: Value, offset: int) -> Value:
    diagonal_values: Value = FUNCTIONS[np.diagonal](x, offset, -2, -1)
    return diagonal_values


def _spread(x: Value, n: int) -> Value:
    """Return matrices with numbers below their diagonals."""
    rows = np.maximum(np.arange(n) - 1, 0)
    wide = getitem(x, (..., rows))
    return weighted(expand(wide, (*wide.shape, n), tuple(range(wide.ndim))), on_diagonal(-1))


schur: Callback = callback_row(
    "schur",
    ranks=(2,),
    shapes=lambda a, *, sort: (a, a, ()),
    dtypes=lambda dtype, **params: (dtype, dtype, np.dtype(np.int64)),
    evaluate=_schur,
    tangent=_schur_tangent,
    kinks="that of different eigenvalues; the derivative of a complex vector has no part along itself",
    samples=(((3, 3), {"sort": ""}), ((2, 2, 2), {"sort": "rhp"}), ((1, 1), {"sort": ""})),
    prepare=apart,
    codes="fd",
)
"""Schur's form of a matrix: blocks on the diagonal, the orthonormal basis, and how many eigenvalues are sorted to the top."""


def _schur_of_blocks(triangle: NDArray) -> tuple[NDArray, ...]:
    return tuple(scipy_function("rsf2csf")(triangle, np.eye(len(triangle), dtype=triangle.dtype)))


schur_of_blocks: Callback = callback_row(
    "schur_of_blocks",
    ranks=(2,),
    shapes=lambda triangle: (triangle, triangle),
    dtypes=lambda dtype: (complex_dtype(dtype),) * 2,
    evaluate=_schur_of_blocks,
    tangent=_schur_tangent,
    kinks="that of different eigenvalues; the derivative of a vector has no part along itself",
    samples=(((3, 3), {}),),
    prepare=_triangles,
)
"""The complex form of Schur's form of a real matrix, and the unitary basis."""
