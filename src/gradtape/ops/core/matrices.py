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
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Node, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import Shape
from gradtape.kinds.matrix import Matrix, Places, Push, Routine, Tangents, matrix_row
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate, real
from gradtape.ops.core.elementwise.logic import equal, less_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.join import join
from gradtape.ops.core.reductions import reduce_max, reduce_sum
from gradtape.ops.core.shape import diagonal_of, expand, permute, reshape, slice_
from gradtape.ops.numpy.linalg.products import matmul


def turned(x: Value) -> Value:
    """Return the matrices transposed."""
    return permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def adjoint(x: Value) -> Value:
    """Return the matrices transposed, and conjugated where they are complex."""
    return turned(conjugate(x) if x.dtype.kind == "c" else x)


def symmetric(x: Value) -> Value:
    """Return the mean of each matrix and its adjoint."""
    return (x + adjoint(x)) * 0.5


def weighted(x: Value, weights: NDArray) -> Value:
    """Return the matrices with their elements multiplied by constants."""
    return x * expand(constant(weights.astype(x.dtype)), x.shape, (x.ndim - 2, x.ndim - 1))


def rows(x: Value, first: int, count: int) -> Value:
    """Return some rows of each matrix."""
    lead = x.shape[:-2]
    return slice_(x, (*(0,) * len(lead), first, 0), (*lead, count, x.shape[-1]), (1,) * x.ndim)


def diagonal(x: Value) -> Value:
    """Return the diagonal of each matrix."""
    return diagonal_of(x, x.ndim - 2, x.ndim - 1)


def scaled_columns(x: Value, factors: Value) -> Value:
    """Return the matrices with each column multiplied by a number of its own."""
    return x * expand(factors, x.shape, (*range(x.ndim - 2), x.ndim - 1))


def _each(function: Callable[..., NDArray], *stacks: NDArray) -> NDArray:
    """Apply a function to each matrix of some stacks, which have the same axes in front."""
    lead = stacks[0].shape[:-2]
    if not lead:
        return function(*stacks)
    results = [function(*[stack[place] for stack in stacks]) for place in np.ndindex(*lead)]
    if not results:
        empty = function(*[np.ones(stack.shape[-2:], stack.dtype) for stack in stacks])
        return np.empty((*lead, *empty.shape), empty.dtype)
    return np.stack(results).reshape(*lead, *results[0].shape)


def _lapack(name: str, dtype: np.dtype[Any]) -> Callable[..., Any]:
    import scipy.linalg.lapack as lapack  # late: it takes a while, and compiled programs do without it

    routine: Callable[..., Any] = getattr(lapack, {"f": "s", "d": "d", "F": "c", "D": "z"}[dtype.char] + name)
    return routine


# Triangular systems


def _solve_triangular(t: NDArray, b: NDArray, *, lower: bool, transposed: bool, unit: bool) -> NDArray:
    def one(t: NDArray, b: NDArray) -> NDArray:
        if not b.size:
            return b
        x, info = _lapack("trtrs", t.dtype)(t, b, lower=lower, trans=transposed, unitdiag=unit)
        if info > 0:
            raise np.linalg.LinAlgError(f"singular matrix: resolution failed at diagonal {info - 1}")
        return np.ascontiguousarray(x)

    return _each(one, t, b)


def _triangle(n: int, lower: bool, unit: bool) -> NDArray:
    ones = np.tri(n, k=-1 if unit else 0)
    return ones if lower else ones.T


def _triangular_tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    t, _ = inputs

    def push(tangents: Tangents) -> Value | None:
        dt, db = tangents
        if dt is not None:
            moving = weighted(dt, _triangle(t.shape[-1], params["lower"], params["unit"]))
            effect = matmul(turned(moving) if params["transposed"] else moving, z)
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
    shape=lambda t, b, **params: b,
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


def _lu(a: NDArray) -> NDArray:
    def one(a: NDArray) -> NDArray:
        n = a.shape[-1]
        if not n:
            return np.zeros((1, 0), a.dtype)
        factors, exchanged, _ = _lapack("getrf", a.dtype)(a)
        return np.concatenate([factors.T, (exchanged + 1).astype(a.dtype)[None]])

    return _each(one, a)


lu: Matrix = matrix_row(
    "lu",
    shape=lambda a: (*a[:-2], a[-1] + 1, a[-1]),
    evaluate=_lu,
    routine=Routine(0.5, lambda m, n: max(n, 1), uses=("transpose",)),
    tangent=None,
    samples=(((3, 3), {}), ((2, 4, 4), {}), ((1, 1), {}), ((0, 2, 2), {}), ((0, 0), {})),
)
"""Both triangular factors in one matrix, transposed as LAPACK stores it, and a last row: with which row each row was exchanged, counted
from one."""


def _lu_solve(a: NDArray, factors: NDArray, b: NDArray, *, transposed: bool) -> NDArray:
    return np.linalg.solve(np.swapaxes(a, -1, -2) if transposed else a, b)


def _lu_tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    a, factors, _ = inputs

    def push(tangents: Tangents) -> Value | None:
        da, _, db = tangents
        if da is not None:
            effect = matmul(turned(da) if params["transposed"] else da, z)
            db = -effect if db is None else db - effect
        return None if db is None else lu_solve(a, factors, db, **params)

    return push


def _lu_transpose(ct: Value, node: Node) -> Value:
    a, factors, _ = node.inputs
    return lu_solve(a, factors, ct, transposed=not node.params["transposed"])


lu_solve: Matrix = matrix_row(
    "lu_solve",
    shape=lambda a, factors, b, **params: b,
    evaluate=_lu_solve,
    routine=Routine(
        1.0,
        extents=2,
        uses=("has_zero_on_diagonal", "swap_rows"),
        places=lambda dtype, transposed: {"file": "lu_solve_transposed"} if transposed else {},
    ),
    tangent=_lu_tangent,
    transpose=_lu_transpose,
    linear_in=2,
    reads=(1, 2),
    samples=tuple(
        ((*lead, n, n), (*lead, n + 1, n), (*lead, n, k), {"transposed": transposed})
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
"""The solution of a x = b (of a.T x = b where transposed) with the factors of a."""


def _log_det(a: NDArray, factors: NDArray) -> NDArray:
    sign, size = np.linalg.slogdet(a)
    if a.dtype.kind != "c":
        return np.asarray(size)
    # The parity of the exchanges is not part of the product of the diagonal.
    exchanged = np.rint(factors[..., -1, :].real).astype(int)
    odd = np.sum(exchanged != np.arange(1, a.shape[-1] + 1), axis=-1) % 2
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.where(odd, -sign, sign)) + size).astype(a.dtype)


def _log_det_tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    a, factors = inputs

    def push(tangents: Tangents) -> Value | None:
        da = tangents[0]
        if da is None:
            return None
        change = lu_solve(a, factors, da, transposed=False)
        return reduce_sum(diagonal(change), axes=(change.ndim - 2,))

    return push


log_det: Matrix = matrix_row(
    "log_det",
    shape=lambda a, factors: a[:-2],
    evaluate=_log_det,
    routine=Routine(0.01),
    tangent=_log_det_tangent,
    reads=(1,),
    samples=(
        ((3, 3), (4, 3), {}),
        ((2, 4, 4), (2, 5, 4), {}),
        ((0, 2, 2), (0, 3, 2), {}),
        ((0, 0), (1, 0), {}),
    ),
)
"""The sum of the logarithms of the diagonal of the factors: of absolute values where the matrix is real."""


# Positive definite matrices


def _cholesky_tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    n = z.shape[-1]
    halves = np.tri(n) - 0.5 * np.eye(n)

    def push(tangents: Tangents) -> Value | None:
        (da,) = tangents
        if da is None:
            return None
        left = triangular_solve(z, symmetric(da), lower=True, transposed=False, unit=False)
        both = triangular_solve(z, adjoint(left), lower=True, transposed=False, unit=False)
        return matmul(z, weighted(adjoint(both), halves))

    return push


cholesky: Matrix = matrix_row(
    "cholesky",
    shape=lambda a: a,
    evaluate=np.linalg.cholesky,
    routine=Routine(0.3),
    tangent=_cholesky_tangent,
    kinks="that of a symmetric matrix, although one triangle counts: it is symmetric",
    samples=(((3, 3), {}), ((2, 4, 4), {}), ((1, 1), {}), ((0, 2, 2), {}), ((0, 0), {})),
)
"""The lower factor of a matrix of which the lower triangle counts. The derivative takes the matrix for symmetric, whatever moves it."""


# Symmetric matrices


def _eigh(a: NDArray, *, lower: bool) -> NDArray:
    numbers, vectors = np.linalg.eigh(a, "L" if lower else "U")
    return np.concatenate([numbers[..., None, :].astype(a.dtype), vectors], axis=-2)


def _eigh_tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """Vectors of equal eigenvalues are not determined: nothing turns them into one another here (see `transforms/spectral.py`)."""
    n = z.shape[-1]
    numbers, vectors = rows(z, 0, 1), rows(z, 1, n)

    def push(tangents: Tangents) -> Value | None:
        (da,) = tangents
        if da is None:
            return None
        inside = matmul(adjoint(vectors), matmul(symmetric(da), vectors))
        moved = diagonal(inside)
        if da.dtype.kind == "c":
            moved = convert(real(moved), da.dtype)
        same = equal_pairs(numbers)
        turn = inside * where(same, 0, 1 / where(same, 1, differences(numbers)))
        return join([reshape(moved, numbers.shape), matmul(vectors, turn)], z.ndim - 2)

    return push


def differences(numbers: Value) -> Value:
    """Return, of rows of numbers, the differences of each pair: that of the column less that of the row."""
    across = (*numbers.shape[:-2], numbers.shape[-1], numbers.shape[-1])
    flat = reshape(numbers, (*numbers.shape[:-2], numbers.shape[-1]))
    lead = tuple(range(numbers.ndim - 2))
    return expand(flat, across, (*lead, numbers.ndim - 1)) - expand(flat, across, (*lead, numbers.ndim - 2))


ROUNDING: Final = 8
"""How many rounding errors of the largest one, times their number, eigenvalues are apart that count as equal."""


def equal_pairs(numbers: Value) -> Value:
    """Return, of rows of eigenvalues or singular values, which pairs are equal but for rounding: what differs there is no number."""
    gaps = abs(differences(numbers))
    n = numbers.shape[-1]
    if not gaps.size:
        return equal(gaps, 0)
    largest = reduce_max(abs(numbers), axes=(numbers.ndim - 2, numbers.ndim - 1))
    bound = largest * float(ROUNDING * n * np.finfo(gaps.dtype).eps)
    return less_equal(gaps, expand(bound, gaps.shape, tuple(range(numbers.ndim - 2))))


def _with_numbers(shape: Shape, lower: bool) -> Shape:
    return (*shape[:-2], shape[-1] + 1, shape[-1])


eigh: Matrix = matrix_row(
    "eigh",
    shape=_with_numbers,
    evaluate=_eigh,
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
"""The eigenvalues of a matrix of which one triangle counts, in the first row, and below it the eigenvectors as columns. The derivative
takes the matrix for symmetric, whatever moves it."""


# Any matrix


def _svd(a: NDArray) -> NDArray:
    left, numbers, right = np.linalg.svd(a, full_matrices=False)
    parts = (left, numbers[..., None, :].astype(a.dtype), np.swapaxes(right, -1, -2).conj())
    return np.concatenate(parts, axis=-2)


def _svd_tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """Vectors of equal singular values are not determined: nothing turns both sides alike here (see `transforms/spectral.py`)."""
    (a,) = inputs
    m, n = a.shape[-2:]
    k = min(m, n)
    left, numbers, right = rows(z, 0, m), rows(z, m, 1), rows(z, m + 1, n)

    def push(tangents: Tangents) -> Value | None:
        (da,) = tangents
        if da is None:
            return None
        flat = reshape(numbers, (*a.shape[:-2], k))
        moved_right = matmul(da, right)
        moved_left = matmul(adjoint(da), left)
        inside = matmul(adjoint(left), moved_right)
        across = adjoint(inside)
        # What is symmetric in a pair of values turns both sides alike, by their difference; what is not, against each other, by their sum.
        same = equal_pairs(numbers)
        columns = expand(flat, inside.shape, (*range(a.ndim - 2), a.ndim - 1))
        lines = expand(flat, inside.shape, (*range(a.ndim - 2), a.ndim - 2))
        sums = columns + lines
        none = equal(sums, 0)
        alike = (inside + across) * 0.5 * where(same, 0, 1 / where(same, 1, differences(numbers)))
        against = (inside - across) * 0.5 * where(none, 0, 1 / where(none, 1, sums))
        turned_left = matmul(left, alike + against)
        turned_right = matmul(right, alike - against)
        inverse = where(equal(flat, 0), 0, 1 / where(equal(flat, 0), 1, flat))
        moved = diagonal(inside)
        if a.dtype.kind == "c":
            # The phase of a pair of vectors is not determined: what turns them is given to the left one.
            turned_left = matmul(left, alike + weighted(against, 1.0 - np.eye(k)))
            turned_right = matmul(right, alike - weighted(against, 1.0 - np.eye(k)))
            phase = (inside - across) * 0.5
            turn = weighted(phase, np.eye(k))
            turned_left = turned_left + scaled_columns(matmul(left, turn), inverse)
            moved = convert(real(moved), a.dtype)
        if m > k:
            outside = moved_right - matmul(left, inside)
            turned_left = turned_left + scaled_columns(outside, inverse)
        if n > k:
            outside = moved_left - matmul(right, across)
            turned_right = turned_right + scaled_columns(outside, inverse)
        return join([turned_left, reshape(moved, numbers.shape), turned_right], z.ndim - 2)

    return push


svd: Matrix = matrix_row(
    "svd",
    shape=lambda a: (*a[:-2], a[-2] + 1 + a[-1], min(a[-2:])),
    evaluate=_svd,
    routine=Routine(
        20.0,
        lambda m, n: m * n + m * min(m, n) + 4 * min(m, n) ** 2 + 64 * (m + n) + 8 * min(m, n),
        extents=2,
        is_rectangular=True,
        uses=("transpose",),
    ),
    tangent=_svd_tangent,
    kinks="0 between vectors of equal singular values that rotate alike, but exact for functions of the matrix by reverse mode",
    samples=(((3, 3), {}), ((4, 2), {}), ((2, 2, 3), {}), ((1, 1), {}), ((0, 2, 2), {})),
)
"""The left singular vectors as columns, below them the singular values, and below these the right singular vectors as columns (and not
conjugated)."""


def _pseudoinverse_tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """As long as the rank stays what it is (G. H. Golub and V. Pereyra, 1973)."""
    a, _ = inputs

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
    shape=lambda a, inverse: inverse,
    evaluate=lambda a, inverse: inverse,
    routine=Routine(0.01, extents=2, is_rectangular=True),
    tangent=_pseudoinverse_tangent,
    reads=(1,),
    kinks="that of matrices of the same rank",
    samples=(((3, 2), (2, 3), {}), ((2, 2, 3), (2, 3, 2), {}), ((0, 2, 2), (0, 2, 2), {})),
)
"""The second operand, which is the pseudoinverse of the first, with its derivative."""


# Orthogonal columns


def _qr(a: NDArray) -> NDArray:
    columns, triangle = np.linalg.qr(a)
    return np.concatenate([columns, triangle], axis=-2)


def _qr_tangent(z: Value, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    (a,) = inputs
    m, n = a.shape[-2:]
    columns, triangle = rows(z, 0, m), rows(z, m, n)
    lower = np.tri(n, k=-1)

    def push(tangents: Tangents) -> Value | None:
        (da,) = tangents
        if da is None:
            return None
        # X = da / R, from R.T X.T = da.T
        x = turned(triangular_solve(triangle, turned(da), lower=False, transposed=True, unit=False))
        inside = matmul(adjoint(columns), x)
        below = weighted(inside, lower)
        turn = below - adjoint(below)
        if a.dtype.kind == "c":
            turn = turn + weighted((inside - adjoint(inside)) * 0.5, np.eye(n))
        moved = matmul(columns, turn - inside) + x
        return join([moved, matmul(inside - turn, triangle)], z.ndim - 2)

    return push


qr: Matrix = matrix_row(
    "qr",
    shape=lambda a: (*a[:-2], a[-2] + a[-1], a[-1]),
    evaluate=_qr,
    routine=Routine(4.0, lambda m, n: m * n + 65 * n, extents=2, is_rectangular=True, uses=("transpose",)),
    tangent=_qr_tangent,
    samples=(((3, 3), {}), ((4, 2), {}), ((2, 3, 2), {}), ((1, 1), {}), ((0, 2, 2), {})),
)
"""Of a matrix with at least as many rows as columns: orthonormal columns, and below them the upper triangular factor."""
