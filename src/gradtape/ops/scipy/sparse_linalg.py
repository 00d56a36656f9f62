"""Solutions of sparse systems: SuperLU and the Krylov methods of `scipy.sparse.linalg`, as callbacks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gradtape.errors import GradtapeWarning, warn
from gradtape.ir.builder import here
from gradtape.ir.graph import Node, Value, constant, literal
from gradtape.ir.op import NDArray
from gradtape.ir.types import INTP
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.routines.callback import callback_row
from gradtape.kinds.routines.derivatives import Outs, Push
from gradtape.ops.core.elementwise.arithmetic import multiply, subtract
from gradtape.ops.core.elementwise.cast import convert, zeros_like
from gradtape.ops.core.indexing import gather, put_add
from gradtape.ops.core.shape import expand, reshape

Numbers = tuple[NDArray, NDArray, NDArray]


class _Last:
    """What was computed last from some arrays: the reverse sweep solves with the matrix of the forward sweep."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: list[tuple[Any, tuple[NDArray, ...], Any]] = []

    def get(self, key: Any, arrays: Sequence[NDArray]) -> Any:
        for known, held, result in self._known:
            if known == key and all(map(np.array_equal, held, arrays)):
                return result
        return None

    def put(self, key: Any, arrays: Sequence[NDArray], result: Any) -> None:
        kept = tuple([np.array(array) for array in arrays])
        self._known = [(key, kept, result), *self._known[: self._count - 1]]


_factors = _Last(4)
_solutions = _Last(4)


def _matrix(data: NDArray, rows: NDArray, columns: NDArray, size: int) -> Any:
    """Return a matrix by columns; its elements are sorted so."""
    import scipy.sparse

    indptr = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=size))]).astype(np.int32)
    return scipy.sparse.csc_array((data, rows.astype(np.int32), indptr), shape=(size, size))


def _solve(data: NDArray, rows: NDArray, columns: NDArray, b: NDArray, *, transposed: bool) -> NDArray:
    import scipy.sparse.linalg

    dtype = np.result_type(data, b, np.float32)
    factor = _factors.get(dtype, (data, rows, columns))
    if factor is None:
        try:
            factor = scipy.sparse.linalg.splu(_matrix(data.astype(dtype), rows, columns, len(b)))
        except RuntimeError:  # a singular matrix, of which spsolve warns
            warnings.warn("Matrix is exactly singular", scipy.sparse.linalg.MatrixRankWarning, stacklevel=2)
            return np.full(b.shape, np.nan, dtype)
        _factors.put(dtype, (data, rows, columns), factor)
    solution: NDArray = factor.solve(np.ascontiguousarray(b, dtype), "T" if transposed else "N")
    return solution


def _iterate(
    data: NDArray, rows: NDArray, columns: NDArray, b: NDArray, *, method: str, options: Any, transposed: bool
) -> NDArray:
    return _iterated(data, rows, columns, b, method, options, transposed)[0]


def _iterate_info(
    data: NDArray, rows: NDArray, columns: NDArray, b: NDArray, *, method: str, options: Any, transposed: bool
) -> NDArray:
    return _iterated(data, rows, columns, b, method, options, transposed)[1]


def _iterated(
    data: NDArray, rows: NDArray, columns: NDArray, b: NDArray, method: str, options: Any, transposed: bool
) -> tuple[NDArray, NDArray]:
    """Return the solution that a Krylov method finds for each column, and what it says of its convergence."""
    import scipy.sparse.linalg

    key, arrays = (method, options, transposed), (data, rows, columns, b)
    known: tuple[NDArray, NDArray] | None = _solutions.get(key, arrays)
    if known is not None:
        return known
    dtype = np.result_type(data, b, np.float32)
    matrix = _matrix(data.astype(dtype), rows, columns, len(b))
    matrix = matrix.T.tocsr() if transposed else matrix.tocsr()
    found = np.empty(b.shape, dtype)
    infos = np.zeros(b.shape[1], np.int64)
    for k in range(b.shape[1]):
        found[:, k], infos[k] = getattr(scipy.sparse.linalg, method)(
            matrix, b[:, k].astype(dtype), **dict(options)
        )
        if infos[k]:
            residual = np.linalg.norm(matrix @ found[:, k] - b[:, k])
            warn(
                GradtapeWarning,
                f"scipy.sparse.linalg.{method} has not converged: the residual is {residual:.3g}",
                where=here.site,
                why="the derivative is that of a solution of the equations",
                remedy="rtol=, maxiter=, or spsolve",
            )
    info = infos[np.argmax(np.abs(infos))] if len(infos) else np.int64(0)
    result = found, np.asarray(info)
    _solutions.put(key, arrays, result)
    return result


def _tangent(row: str) -> Any:
    def tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
        """``A dx = db - dA x``."""
        data, rows, columns, _ = inputs
        (x,) = outs

        def push(tangents: Sequence[Value | None]) -> Value | None:
            change, right = tangents[0], tangents[3]
            if change is None and right is None:
                return None
            if change is not None:
                moved = _product(change, rows, columns, x, params["transposed"])
                right = subtract(zeros_like(x) if right is None else right, moved)
            assert right is not None
            return SOLVES[row](data, rows, columns, right, **params)

        return push

    return tangent


def _transpose(row: str) -> Any:
    def transpose(ct: Value, node: Node) -> Value:
        params = {**node.params, "transposed": not node.params["transposed"]}
        return SOLVES[row](*node.inputs[:3], ct, **params)

    return transpose


def _product(data: Value, rows: Value, columns: Value, x: Value, transposed: bool) -> Value:
    """Return the product of a sparse matrix with some columns; all may be stacks."""
    rows, columns = (columns, rows) if transposed else (rows, columns)
    *lead, size, width = x.shape
    count, length = prod(lead), data.shape[-1]
    flat = reshape(x, (count, size, width))
    problems = expand(constant(np.arange(count, dtype=INTP)), (count, length), (0,))
    places = [convert(reshape(index, (count, length)), INTP) for index in (rows, columns)]
    numbers = expand(reshape(data, (count, length)), (count, length, width), (0, 1))
    terms = multiply(numbers, gather(flat, problems, places[1]))
    zeros = broadcast_to(literal(0, terms.dtype), (count, size, width))
    return reshape(put_add(zeros, terms, problems, places[0]), x.shape)


def _shapes(data: Any, rows: Any, columns: Any, b: Any, **params: Any) -> tuple[Any, ...]:
    return (b,)


def _dtypes(data: Any, rows: Any, columns: Any, b: Any, **params: Any) -> tuple[np.dtype[Any], ...]:
    return (np.result_type(data, b, np.float32),)


sparse_solve = callback_row(
    "sparse_solve",
    ranks=(1, 1, 1, 2),
    shapes=_shapes,
    dtypes=_dtypes,
    evaluate=_solve,
    tangent=_tangent("sparse_solve"),
    transpose=_transpose("sparse_solve"),
    linear_in=3,
    samples=(),
)
"""The solution of ``A x = b`` (`transposed`: of ``A.T x = b``) by a factorisation.

A is given by its elements, sorted by columns, with their rows and columns; b has columns.
"""

sparse_iterate = callback_row(
    "sparse_iterate",
    ranks=(1, 1, 1, 2),
    shapes=_shapes,
    dtypes=_dtypes,
    evaluate=_iterate,
    tangent=_tangent("sparse_iterate"),
    transpose=_transpose("sparse_iterate"),
    linear_in=3,
    samples=(),
)
"""The same by a Krylov method of `scipy.sparse.linalg`, `method`, with `options` as pairs."""

sparse_iterate_info = callback_row(
    "sparse_iterate_info",
    ranks=(1, 1, 1, 2),
    shapes=lambda data, rows, columns, b, **params: ((),),
    dtypes=lambda *dtypes, **params: (np.dtype(np.int64),),
    evaluate=_iterate_info,
    tangent=None,
    samples=(),
)
"""What the method says of its convergence: 0 if it has converged."""

SOLVES = {"sparse_solve": sparse_solve, "sparse_iterate": sparse_iterate}
