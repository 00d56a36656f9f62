"""Factorisations of matrices, and what is solved with them.

A factorisation that only serves to solve (`lu`) has no derivative of its own: a solution depends on the matrix itself, and its
derivative is solved for with the same factors, to any order.

References
----------
M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation", 2008.
I. Murray, "Differentiation of the Cholesky decomposition", 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Node, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import part_dtype
from gradtape.kinds.routines.derivatives import Outs, Push, Tangents
from gradtape.kinds.routines.matrix import Matrix, Places, Routine, matrix_row
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate, real
from gradtape.ops.core.elementwise.logic import less_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.lengths import MAIN, Pattern, by_diagonals
from gradtape.ops.core.reductions import reduce_max, reduce_sum
from gradtape.ops.core.shape import diagonal_of, expand, permute
from gradtape.ops.numpy.linalg.products import matmul

INT32: Final = np.dtype(np.int32)
"""The dtype of LAPACK's pivots."""


def transposed(x: Value) -> Value:
    """Return the matrices transposed."""
    return permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def adjoint(x: Value) -> Value:
    """Return the matrices transposed, and conjugated where they are complex."""
    return transposed(conjugate(x) if x.dtype.kind == "c" else x)


def symmetric(x: Value) -> Value:
    """Return the mean of each matrix and its adjoint."""
    return (x + adjoint(x)) * 0.5


def weighted(x: Value, weights: NDArray | Pattern) -> Value:
    """Return the matrices with their elements multiplied by constants, or by what follows from the numbers of the diagonals."""
    made = (
        by_diagonals(x.shape[-2:], weights, x.dtype)
        if callable(weights)
        else constant(weights.astype(x.dtype))
    )
    return x * expand(made, x.shape, (x.ndim - 2, x.ndim - 1))


def diagonal(x: Value) -> Value:
    """Return the diagonal of each matrix."""
    return diagonal_of(x, x.ndim - 2, x.ndim - 1)


def scaled_columns(x: Value, factors: Value) -> Value:
    """Return the matrices with each column multiplied by a number of its own."""
    return x * expand(factors, x.shape, (*range(x.ndim - 2), x.ndim - 1))


def each_matrix(function: Callable[..., Sequence[NDArray]], *stacks: NDArray) -> tuple[NDArray, ...]:
    """Apply a function with several results to each matrix of some stacks, which have the same axes in front."""
    lead = stacks[0].shape[:-2]
    found = [function(*[stack[place] for stack in stacks]) for place in np.ndindex(*lead)]
    if not found:
        empty = function(*[np.ones(stack.shape[-2:], stack.dtype) for stack in stacks])
        return tuple([np.empty((*lead, *part.shape), part.dtype) for part in empty])
    return tuple([np.stack(parts).reshape(*lead, *parts[0].shape) for parts in zip(*found, strict=True)])


def _routine(module: ModuleType, name: str, dtype: np.dtype[Any]) -> Callable[..., Any]:
    routine: Callable[..., Any] = getattr(module, {"f": "s", "d": "d", "F": "c", "D": "z"}[dtype.char] + name)
    return routine


def lapack_routine(name: str, dtype: np.dtype[Any]) -> Callable[..., Any]:
    """Return SciPy's wrapper of a routine of LAPACK."""
    import scipy.linalg.lapack as lapack  # late: it takes a while, and compiled programs do without it

    return _routine(lapack, name, dtype)


def blas_routine(name: str, dtype: np.dtype[Any]) -> Callable[..., Any]:
    """Return SciPy's wrapper of a routine of BLAS."""
    import scipy.linalg.blas as blas

    return _routine(blas, name, dtype)


# Triangular systems


def _solve_triangular(t: NDArray, b: NDArray, *, lower: bool, transposed: bool, unit: bool) -> NDArray:
    def one(t: NDArray, b: NDArray) -> tuple[NDArray]:
        if not b.size:
            return (b,)
        zeros = np.flatnonzero(np.diagonal(t) == 0)
        if len(zeros) and not unit:
            raise np.linalg.LinAlgError(f"singular matrix: resolution failed at diagonal {zeros[0]}")
        # LAPACK's trtrs starts OpenBLAS's threads for two by two numbers already.
        x = blas_routine("trsm", t.dtype)(1.0, t, b, lower=lower, trans_a=transposed, diag=unit)
        return (np.ascontiguousarray(x),)

    return each_matrix(one, t, b)[0]


def _triangular_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    (z,), (t, _) = outs, inputs

    def push(tangents: Tangents) -> Value | None:
        dt, db = tangents
        if dt is not None:
            least = 1 if params["unit"] else 0
            moving = weighted(dt, (lambda d: d <= -least) if params["lower"] else (lambda d: d >= least))
            effect = matmul(transposed(moving) if params["transposed"] else moving, z)
            db = -effect if db is None else db - effect
        return None if db is None else triangular_solve(t, db, **params)

    return push


def _triangular_transpose(ct: Value, node: Node) -> Value:
    params = {**node.params, "transposed": not node.params["transposed"]}
    return triangular_solve(node.inputs[0], ct, **params)


def _triangular_solve_places(dtype: np.dtype[Any], lower: bool, transposed: bool, unit: bool) -> Places:
    # The lower triangle of what stands by rows is the upper one by columns.
    return {
        "form": f"{'lower' if lower else 'upper'}{'.transposed' * transposed}{'.unit' * unit}",
        "triangle": "U" if lower else "L",
        "transposed": "T" if transposed else "N",
        "unit": "U" if unit else "N",
        "singular": "or i1 false, false"
        if unit
        else f"call i1 @has_zero_on_diagonal.{dtype.name}(ptr %a, i64 %n)",
    }


triangular_solve: Matrix = matrix_row(
    "triangular_solve",
    shapes=lambda t, b, **params: (b,),
    evaluate=_solve_triangular,
    routine=Routine(0.5, extents=2, uses=("has_zero_on_diagonal",), places=_triangular_solve_places),
    tangent=_triangular_tangent,
    transpose=_triangular_transpose,
    linear_in=1,
    reads=(0, 1),
    samples=tuple(
        ((*lead, n, n), (*lead, n, k), {"lower": lower, "transposed": transposed, "unit": unit})
        for lead, n, k, lower, transposed, unit in (
            ((), 3, 1, True, False, False),
            ((), 3, 2, False, False, False),
            ((), 4, 3, True, True, False),
            ((2,), 3, 2, False, True, True),
            ((2, 2), 2, 1, True, False, True),
            ((0,), 2, 1, True, False, False),
            ((), 0, 2, True, False, False),
            ((), 2, 0, True, False, False),
        )
    ),
)
"""The solution of t x = b, where one triangle of t counts; of t.T x = b where transposed."""


# Any square matrix


def _lu(a: NDArray) -> tuple[NDArray, ...]:
    def one(a: NDArray) -> tuple[NDArray, NDArray]:
        if not a.size:
            return a, np.zeros(0, INT32)
        factors, pivots, _ = lapack_routine("getrf", a.dtype)(a)
        return factors.T, (pivots + 1).astype(INT32)

    return each_matrix(one, a)


lu: Matrix = matrix_row(
    "lu",
    shapes=lambda a: (a, a[:-1]),
    dtypes=lambda dtype: (dtype, INT32),
    evaluate=_lu,
    routine=Routine(0.5, uses=("transpose",)),
    tangent=None,
    samples=(((3, 3), {}), ((2, 4, 4), {}), ((1, 1), {}), ((0, 2, 2), {}), ((0, 0), {})),
)
"""Both triangular factors in one matrix, transposed as LAPACK stores it, and the pivots: the row with which each row was exchanged, counted
from one."""


def _lu_solve(a: NDArray, factors: NDArray, pivots: NDArray, b: NDArray, *, transposed: bool) -> NDArray:
    return np.linalg.solve(np.swapaxes(a, -1, -2) if transposed else a, b)


def _lu_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    (z,), (a, factors, pivots, _) = outs, inputs

    def push(tangents: Tangents) -> Value | None:
        da, _, _, db = tangents
        if da is not None:
            effect = matmul(transposed(da) if params["transposed"] else da, z)
            db = -effect if db is None else db - effect
        return None if db is None else lu_solve(a, factors, pivots, db, **params)

    return push


def _lu_transpose(ct: Value, node: Node) -> Value:
    a, factors, pivots, _ = node.inputs
    return lu_solve(a, factors, pivots, ct, transposed=not node.params["transposed"])


lu_solve: Matrix = matrix_row(
    "lu_solve",
    shapes=lambda a, factors, pivots, b, **params: (b,),
    evaluate=_lu_solve,
    routine=Routine(
        1.0,
        extents=2,
        uses=("has_zero_on_diagonal", "swap_rows"),
        places=lambda dtype, transposed: {"file": "lu_solve_transposed"} if transposed else {},
    ),
    tangent=_lu_tangent,
    transpose=_lu_transpose,
    linear_in=3,
    reads=(1, 2, 3),
    samples=tuple(
        ((*lead, n, n), (*lead, n, n), (*lead, n), (*lead, n, k), {"transposed": transposed})
        for lead, n, k, transposed in (
            ((), 3, 1, False),
            ((), 4, 3, True),
            ((2,), 3, 2, False),
            ((2, 2), 2, 2, True),
            ((), 1, 1, False),
            ((0,), 2, 1, False),
            ((), 0, 2, False),
            ((), 2, 0, False),
        )
    ),
)
"""The solution of a x = b (of a.T x = b where transposed) with the factors and pivots of a."""


def _log_det(a: NDArray, factors: NDArray, pivots: NDArray) -> NDArray:
    sign, size = np.linalg.slogdet(a)
    if a.dtype.kind != "c":
        return np.asarray(size)
    # The parity of the exchanges is not part of the product of the diagonal.
    odd = np.sum(pivots != np.arange(1, a.shape[-1] + 1), axis=-1) % 2
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.where(odd, -sign, sign)) + size).astype(a.dtype)


def _log_det_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    a, factors, pivots = inputs

    def push(tangents: Tangents) -> Value | None:
        da = tangents[0]
        if da is None:
            return None
        change = lu_solve(a, factors, pivots, da, transposed=False)
        return reduce_sum(diagonal(change), axes=(change.ndim - 2,))

    return push


log_det: Matrix = matrix_row(
    "log_det",
    shapes=lambda a, factors, pivots: (a[:-2],),
    evaluate=_log_det,
    routine=Routine(0.01),
    tangent=_log_det_tangent,
    reads=(1,),
    samples=(
        ((3, 3), (3, 3), (3,), {}),
        ((2, 4, 4), (2, 4, 4), (2, 4), {}),
        ((0, 2, 2), (0, 2, 2), (0, 2), {}),
        ((0, 0), (0, 0), (0,), {}),
    ),
)
"""The sum of the logarithms of the diagonal of the factors: of absolute values where the matrix is real."""


# Positive definite matrices


def _cholesky_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    (z,) = outs

    def push(tangents: Tangents) -> Value | None:
        (da,) = tangents
        if da is None:
            return None
        left = triangular_solve(z, symmetric(da), lower=True, transposed=False, unit=False)
        both = triangular_solve(z, adjoint(left), lower=True, transposed=False, unit=False)
        return matmul(z, weighted(adjoint(both), lambda d: (d <= 0) - 0.5 * MAIN(d)))

    return push


cholesky: Matrix = matrix_row(
    "cholesky",
    shapes=lambda a: (a,),
    evaluate=np.linalg.cholesky,
    routine=Routine(0.3),
    tangent=_cholesky_tangent,
    kinks="that of a symmetric matrix, although one triangle counts: it is symmetric",
    samples=(((3, 3), {}), ((2, 4, 4), {}), ((1, 1), {}), ((0, 2, 2), {}), ((0, 0), {})),
)
"""The lower factor of a matrix of which the lower triangle counts. The derivative takes the matrix for symmetric, whatever moves it."""


# Symmetric matrices


def _with_real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the eigenvalues or singular values of matrices."""
    return part_dtype(dtype) if dtype.kind == "c" else dtype


def _eigh_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """Vectors of equal eigenvalues are not determined: nothing rotates them into one another here (see `transforms/spectral.py`)."""
    numbers, vectors = outs

    def push(tangents: Tangents) -> Tangents:
        (da,) = tangents
        if da is None:
            return None, None
        inside = matmul(adjoint(vectors), matmul(symmetric(da), vectors))
        same = equal_pairs(numbers)
        rotation = inside * where(same, 0, 1 / where(same, 1, differences(numbers)))
        return real_diagonal(inside), matmul(vectors, rotation)

    return push


def real_diagonal(x: Value) -> Value:
    """Return the real parts of the diagonal of each matrix."""
    found = diagonal(x)
    return real(found) if x.dtype.kind == "c" else found


def differences(numbers: Value) -> Value:
    """Return the differences of all pairs of numbers of a matrix: that of the column less that of the row."""
    return _by_column(numbers) - _by_row(numbers)


def _by_column(numbers: Value) -> Value:
    """Return square matrices in which each row is the numbers of a matrix."""
    last = numbers.ndim - 1
    return expand(numbers, (*numbers.shape, numbers.shape[-1]), (*range(last), last + 1))


def _by_row(numbers: Value) -> Value:
    return expand(numbers, (*numbers.shape, numbers.shape[-1]), tuple(range(numbers.ndim)))


ROUNDING: Final = 8
"""How many rounding errors of the largest one, times their number, eigenvalues are apart that count as equal."""


def rounding(numbers: Value) -> Value:
    """Return, for each matrix, by how much its eigenvalues or singular values may differ from the exact ones."""
    sizes = abs(numbers)
    if not sizes.size:
        return reduce_sum(sizes, axes=(sizes.ndim - 1,))
    share = float(ROUNDING * numbers.shape[-1] * np.finfo(sizes.dtype).eps)
    return reduce_max(sizes, axes=(sizes.ndim - 1,)) * share


def equal_pairs(numbers: Value) -> Value:
    """Return which pairs of eigenvalues or singular values of a matrix are equal but for rounding: what differs there is no number."""
    gaps = abs(differences(numbers))
    return less_equal(gaps, expand(rounding(numbers), gaps.shape, tuple(range(numbers.ndim - 1))))


eigh: Matrix = matrix_row(
    "eigh",
    shapes=lambda a, *, lower: (a[:-1], a),
    dtypes=lambda dtype: (_with_real(dtype), dtype),
    evaluate=lambda a, *, lower: np.linalg.eigh(a, "L" if lower else "U"),
    routine=Routine(
        9.0,
        lambda m, n: 3 * n * n + 11 * n + 4,
        uses=("transpose",),
        places=lambda dtype, lower: {"triangle": "L" if lower else "U"},
    ),
    tangent=_eigh_tangent,
    kinks="that of a symmetric matrix; 0 between eigenvectors of equal eigenvalues, but exact for functions of the matrix by reverse mode",
    samples=(
        ((3, 3), {"lower": True}),
        ((2, 4, 4), {"lower": False}),
        ((1, 1), {"lower": True}),
        ((0, 2, 2), {"lower": True}),
    ),
)
"""The eigenvalues of a matrix of which one triangle counts, and the eigenvectors as columns. The derivative takes the matrix for symmetric,
whatever moves it."""


# Any matrix


def _svd(a: NDArray) -> tuple[NDArray, ...]:
    left, numbers, right = np.linalg.svd(a, full_matrices=False)
    return left, numbers, np.swapaxes(right, -1, -2).conj()


def _svd_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """Vectors of equal singular values are not determined: nothing rotates both sides alike here (see `transforms/spectral.py`)."""
    (left, numbers, right), (a,) = outs, inputs
    m, n = a.shape[-2:]
    k = min(m, n)

    def push(tangents: Tangents) -> Tangents:
        (da,) = tangents
        if da is None:
            return None, None, None
        moved_right = matmul(da, right)
        moved_left = matmul(adjoint(da), left)
        inside = matmul(adjoint(left), moved_right)
        across = adjoint(inside)
        # The symmetric part, divided by the difference of the values, rotates both sides alike; the antisymmetric part, divided by
        # their sum, rotates them in opposite directions.
        same = equal_pairs(numbers)
        sums = _by_column(numbers) + _by_row(numbers)
        none = less_equal(sums, expand(rounding(numbers), sums.shape, tuple(range(sums.ndim - 2))))
        alike = (inside + across) * 0.5 * where(same, 0, 1 / where(same, 1, differences(numbers)))
        against = (inside - across) * 0.5 * where(none, 0, 1 / where(none, 1, sums))
        rotated_left = matmul(left, alike + against)
        rotated_right = matmul(right, alike - against)
        zero = less_equal(numbers, expand(rounding(numbers), numbers.shape, tuple(range(numbers.ndim - 1))))
        inverse = convert(where(zero, 0, 1 / where(zero, 1, numbers)), a.dtype)
        if a.dtype.kind == "c":
            # The phase of a pair of vectors is not determined: its change is given to the left one.
            rotated_left = matmul(left, alike + weighted(against, lambda d: 1 - MAIN(d)))
            rotated_right = matmul(right, alike - weighted(against, lambda d: 1 - MAIN(d)))
            phase = weighted((inside - across) * 0.5, MAIN)
            rotated_left = rotated_left + scaled_columns(matmul(left, phase), inverse)
        if m > k:
            outside = moved_right - matmul(left, inside)
            rotated_left = rotated_left + scaled_columns(outside, inverse)
        if n > k:
            outside = moved_left - matmul(right, across)
            rotated_right = rotated_right + scaled_columns(outside, inverse)
        return rotated_left, real_diagonal(inside), rotated_right

    return push


svd: Matrix = matrix_row(
    "svd",
    shapes=lambda a: tuple([(*a[:-2], *extents, min(a[-2:])) for extents in ((a[-2],), (), (a[-1],))]),
    dtypes=lambda dtype: (dtype, _with_real(dtype), dtype),
    evaluate=_svd,
    routine=Routine(
        20.0,
        lambda m, n: m * n + m * min(m, n) + 4 * min(m, n) ** 2 + 64 * (m + n) + 8 * min(m, n),
        extents=2,
        is_rectangular=True,
        uses=("transpose",),
    ),
    tangent=_svd_tangent,
    kinks="0 between vectors of equal singular values that rotate together, but exact for functions of the matrix by reverse mode",
    samples=(((3, 3), {}), ((4, 2), {}), ((2, 2, 3), {}), ((1, 1), {}), ((0, 2, 2), {})),
)
"""The left singular vectors as columns, the singular values, and the right singular vectors as columns (and not conjugated)."""


def _pseudoinverse_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """As long as the rank stays what it is (G. H. Golub and V. Pereyra, 1973)."""
    (z,), (a, _) = outs, inputs

    def push(tangents: Tangents) -> Value | None:
        da = tangents[0]
        if da is None:
            return None
        back = adjoint(da)
        moved = -matmul(z, matmul(da, z))
        outside = matmul(matmul(z, adjoint(z)), back)
        moved = moved + outside - matmul(matmul(outside, a), z)
        inside = matmul(back, matmul(adjoint(z), z))
        return moved + inside - matmul(z, matmul(a, inside))

    return push


pseudoinverse: Matrix = matrix_row(
    "pseudoinverse",
    shapes=lambda a, inverse: (inverse,),
    evaluate=lambda a, inverse: inverse,
    routine=Routine(0.01, extents=2, is_rectangular=True),
    tangent=_pseudoinverse_tangent,
    reads=(1,),
    kinks="that of matrices of the same rank",
    samples=(((3, 2), (2, 3), {}), ((2, 2, 3), (2, 3, 2), {}), ((0, 2, 2), (0, 2, 2), {})),
)
"""The second operand, which is the pseudoinverse of the first, with its derivative."""


# Orthogonal columns


def _qr_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    (columns, triangle), (a,) = outs, inputs

    def push(tangents: Tangents) -> Tangents:
        (da,) = tangents
        if da is None:
            return None, None
        # X = da / R, from R.T X.T = da.T
        x = transposed(triangular_solve(triangle, transposed(da), lower=False, transposed=True, unit=False))
        inside = matmul(adjoint(columns), x)
        below = weighted(inside, lambda d: d < 0)
        rotation = below - adjoint(below)
        if a.dtype.kind == "c":
            rotation = rotation + weighted((inside - adjoint(inside)) * 0.5, MAIN)
        return matmul(columns, rotation - inside) + x, matmul(inside - rotation, triangle)

    return push


qr: Matrix = matrix_row(
    "qr",
    shapes=lambda a: (a, (*a[:-2], a[-1], a[-1])),
    evaluate=np.linalg.qr,
    routine=Routine(4.0, lambda m, n: m * n + 65 * n, extents=2, is_rectangular=True, uses=("transpose",)),
    tangent=_qr_tangent,
    samples=(((3, 3), {}), ((4, 2), {}), ((2, 3, 2), {}), ((1, 1), {}), ((0, 2, 2), {})),
)
"""Of a matrix with at least as many rows as columns: orthonormal columns, and the upper triangular factor."""
