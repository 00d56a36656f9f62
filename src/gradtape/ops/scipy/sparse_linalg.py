"""Solutions of sparse systems: SuperLU, Krylov methods, least squares and eigenpairs of `scipy.sparse.linalg`, as callbacks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from gradtape.errors import GradtapeWarning, UnsupportedFunctionError, warn
from gradtape.ir.builder import here
from gradtape.ir.graph import Node, Value, constant, literal
from gradtape.ir.op import NDArray
from gradtape.ir.types import FLOAT64, INTP
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push
from gradtape.kinds.routines.host import FUNCTIONS
from gradtape.ops.core.elementwise.arithmetic import add, multiply, negative, subtract
from gradtape.ops.core.elementwise.cast import convert, zeros_like
from gradtape.ops.core.indexing import gather, put_add
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import expand, permute, reshape, slice_

Numbers = tuple[NDArray, NDArray, NDArray]

HERMITIAN: Final = ("cg", "minres")
"""The Krylov methods for Hermitian matrices."""


class _Last:
    """The last results by their arrays: the reverse sweep solves with the matrix of the forward sweep."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: list[tuple[Any, tuple[NDArray, ...], Any]] = []

    def get(self, key: Any, arrays: Sequence[NDArray]) -> Any:
        for last_key, last_arrays, result in self._known:
            if last_key == key and all(map(np.array_equal, last_arrays, arrays)):
                return result
        return None

    def put(self, key: Any, arrays: Sequence[NDArray], result: Any) -> None:
        copies = tuple([np.array(array) for array in arrays])
        self._known = [(key, copies, result), *self._known[: self._count - 1]]


_factors = _Last(4)
_solutions = _Last(4)


def _matrix(data: NDArray, rows: NDArray, columns: NDArray, size: int) -> Any:
    """Return a matrix by columns."""
    import scipy.sparse

    if np.any(columns[1:] < columns[:-1]):
        return scipy.sparse.coo_array((data, (rows, columns)), shape=(size, size)).tocsc()
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
    keywords = _given(method, options, transposed)
    matrix = keywords.pop("A", None)
    last_solution: tuple[NDArray, NDArray] | None = (
        None if matrix is not None else _solutions.get(key, arrays)
    )
    if last_solution is not None:
        return last_solution
    dtype = np.result_type(data, b, np.float32)
    if matrix is None:
        matrix = _matrix(data.astype(dtype), rows, columns, len(b))
        matrix = matrix.T.tocsr() if transposed else matrix.tocsr()
    solution = np.empty(b.shape, dtype)
    infos = np.zeros(b.shape[1], np.int64)
    for k in range(b.shape[1]):
        solution[:, k], infos[k] = getattr(scipy.sparse.linalg, method)(
            matrix, b[:, k].astype(dtype), **keywords
        )
        if infos[k]:
            residual = np.linalg.norm(matrix @ solution[:, k] - b[:, k])
            warn(
                GradtapeWarning,
                f"scipy.sparse.linalg.{method} has not converged: the residual is {residual:.3g}",
                where=here.site,
                why="the derivative is that of a solution of the equations",
                remedy="rtol=, maxiter=, or spsolve",
            )
    info = infos[np.argmax(np.abs(infos))] if len(infos) else np.int64(0)
    result = solution, np.asarray(info)
    _solutions.put(key, arrays, result)
    return result


def _given(method: str, options: Any, transposed: bool) -> dict[str, Any]:
    """Return the keyword arguments of a Krylov method, with the operator, if it gets one, as A.

    Functions and operators are in `FUNCTIONS`. For derivatives there are other right-hand sides: they take the preconditioner only.
    """
    keywords = dict(options)
    key, is_derivative = keywords.pop("local", ""), keywords.pop("is_derivative", False)
    if key:
        extra = dict(zip(("A", "x0", "M", "callback"), FUNCTIONS[key](), strict=True))
        names = ("A", "M") if is_derivative else tuple(extra)
        keywords.update({name: extra[name] for name in names if extra[name] is not None})
        if transposed:
            keywords.update(
                {name: _transposed(keywords[name], method) for name in ("A", "M") if name in keywords}
            )
    return keywords


def _transposed(operator: Any, method: str) -> Any:
    """Return the transpose of an operator or a matrix; that of a Hermitian operator, which some methods take, is its conjugate."""
    import scipy.sparse.linalg

    if not isinstance(operator, scipy.sparse.linalg.LinearOperator):
        return operator.T
    if method not in HERMITIAN:
        try:
            operator.rmatvec(np.zeros(operator.shape[0], operator.dtype))
        except NotImplementedError:
            raise UnsupportedFunctionError(
                f"the gradient of scipy.sparse.linalg.{method} with a LinearOperator without rmatvec is not known",
                where=here.site,
                why="it solves equations with the transposed matrix",
                remedy="LinearOperator(shape, matvec=..., rmatvec=...); for a factorisation, rmatvec=lambda x: lu.solve(x, 'H')",
            ) from None
        return operator.T
    return scipy.sparse.linalg.LinearOperator(
        operator.shape, matvec=lambda x: np.conj(operator.matvec(np.conj(x))), dtype=operator.dtype
    )


def _for_derivatives(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of systems for derivatives."""
    if "local" not in dict(params.get("options", ())):
        return params
    return {**params, "options": tuple(sorted({**dict(params["options"]), "is_derivative": True}.items()))}


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
            return SOLVES[row](data, rows, columns, right, **_for_derivatives(params))

        return push

    return tangent


def _transpose(row: str) -> Any:
    def transpose(ct: Value, node: Node) -> Value:
        params = _for_derivatives({**node.params, "transposed": not node.params["transposed"]})
        return SOLVES[row](*node.inputs[:3], ct, **params)

    return transpose


def _product(data: Value, rows: Value, columns: Value, x: Value, transposed: bool) -> Value:
    """Return the product of a square sparse matrix with some columns; all may be stacks."""
    rows, columns = (columns, rows) if transposed else (rows, columns)
    return _product_of(data, rows, columns, x, x.shape[-2])


def _product_of(data: Value, rows: Value, columns: Value, x: Value, height: int) -> Value:
    """Return the product of a sparse matrix of some height with some columns; all may be stacks."""
    *lead, size, width = x.shape
    count, length = prod(lead), data.shape[-1]
    flat = reshape(x, (count, size, width))
    problems = expand(constant(np.arange(count, dtype=INTP)), (count, length), (0,))
    positions = [convert(reshape(index, (count, length)), INTP) for index in (rows, columns)]
    numbers = expand(reshape(data, (count, length)), (count, length, width), (0, 1))
    terms = multiply(numbers, gather(flat, problems, positions[1]))
    zeros = broadcast_to(literal(0, terms.dtype), (count, height, width))
    return reshape(put_add(zeros, terms, problems, positions[0]), (*lead, height, width))


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

A is given by its elements with their rows and columns, best sorted by columns; b has columns.
"""


def _factored(b: NDArray, *, key: str, dtype: str, transposed: bool) -> NDArray:
    factor: Any = FUNCTIONS[key]()[0]
    solution: NDArray = factor.solve(np.ascontiguousarray(b, dtype), "T" if transposed else "N")
    return solution


def _factored_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    return lambda tangents: None if tangents[0] is None else factored_solve(tangents[0], **params)


factored_solve: Callback = callback_row(
    "factored_solve",
    ranks=(2,),
    shapes=lambda b, **params: (b,),
    dtypes=lambda b, *, dtype, **params: (np.dtype(dtype),),
    evaluate=_factored,
    tangent=_factored_tangent,
    transpose=lambda ct, node: factored_solve(
        ct, **{**node.params, "transposed": not node.params["transposed"]}
    ),
    linear_in=0,
    samples=(),
    is_local=True,
)
"""The solution of ``A x = b`` (`transposed`: of ``A.T x = b``), where A is the factorisation, of a `dtype`, that the `key` stands for."""

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

sparse_iterate_locally = callback_row(
    "sparse_iterate_locally",
    ranks=(1, 1, 1, 2),
    shapes=_shapes,
    dtypes=_dtypes,
    evaluate=_iterate,
    tangent=_tangent("sparse_iterate_locally"),
    transpose=_transpose("sparse_iterate_locally"),
    linear_in=3,
    samples=(),
    is_local=True,
)
"""The same with an operator, a preconditioner, a start or a callback, which this process only has: `options` name them."""

sparse_iterate_locally_info = callback_row(
    "sparse_iterate_locally_info",
    ranks=(1, 1, 1, 2),
    shapes=lambda data, rows, columns, b, **params: ((),),
    dtypes=lambda *dtypes, **params: (np.dtype(np.int64),),
    evaluate=_iterate_info,
    tangent=None,
    samples=(),
    is_local=True,
)
"""What the method says of its convergence then."""

SOLVES = {
    "sparse_solve": sparse_solve,
    "sparse_iterate": sparse_iterate,
    "sparse_iterate_locally": sparse_iterate_locally,
}


# Eigenpairs and least squares


def _matrix_of(data: NDArray, rows: NDArray, columns: NDArray, shape: tuple[int, int]) -> Any:
    import scipy.sparse

    return scipy.sparse.coo_array((data, (rows, columns)), shape=shape).tocsr()


def _unfrozen(options: Any) -> dict[str, Any]:
    return {name: np.array(item) if isinstance(item, tuple) else item for name, item in options}


def _eigenpairs(
    data: NDArray, rows: NDArray, columns: NDArray, *, size: int, height: int, count: int, options: Any
) -> tuple[NDArray, NDArray]:
    import scipy.sparse.linalg

    keywords = _unfrozen(options)
    if not height:
        w, vectors = scipy.sparse.linalg.eigsh(
            _matrix_of(data, rows, columns, (size, size)), k=count, **keywords
        )
        return w, vectors.T
    upper = rows < height
    matrix = _matrix_of(data[upper], rows[upper], columns[upper] - height, (height, size - height))
    u, s, vh = scipy.sparse.linalg.svds(matrix, k=count, **keywords)
    return s, np.concatenate([u.T, vh], axis=1) / np.sqrt(2.0)


def _row_of(number: Any, like: Value, width: int) -> Value:
    """Return a number, or numbers (width,), along a last axis, for each problem of `like` (..., elements)."""
    shape = (*like.shape[:-1], width)
    array = np.broadcast_to(np.asarray(number), (width,))
    return expand(constant(np.ascontiguousarray(array)), shape, (len(shape) - 1,))


def _swapped(x: Value) -> Value:
    return permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _eigenpairs_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """``(A - w) dv - v dw = -dA v`` and ``v.T dv = 0`` for each pair: the system is regular where w is a single eigenvalue."""
    (w, vectors), (data, rows, columns) = outs, inputs
    size = params["size"]

    def each(x: Value) -> Value:
        """Repeat what is the same for all pairs."""
        shape = (*w.shape, x.shape[-1])
        return expand(x, shape, (*range(len(shape) - 2), len(shape) - 1))

    def push(tangents: Sequence[Value | None]) -> tuple[Value | None, Value | None]:
        change = tangents[0]
        if change is None:
            return None, None
        shift = expand(negative(w), vectors.shape, tuple(range(w.ndim)))
        rows_, columns_ = each(convert(rows, INTP)), each(convert(columns, INTP))
        diagonal = _row_of(np.arange(size, dtype=INTP), vectors, size)
        last = _row_of(np.asarray(size, INTP), vectors, size)
        bordered = join([each(data), shift, vectors, vectors], axis=w.ndim)
        system = (
            bordered,
            join([rows_, diagonal, diagonal, last], axis=w.ndim),
            join([columns_, diagonal, last, diagonal], axis=w.ndim),
        )
        moved = negative(_swapped(_product(change, rows, columns, _swapped(vectors), False)))
        zero = _row_of(np.asarray(0, moved.dtype), moved, 1)
        right = reshape(join([moved, zero], axis=w.ndim), (*w.shape, size + 1, 1))
        derivatives = reshape(sparse_solve(*system, right, transposed=False), (*w.shape, size + 1))
        begin, steps = (0,) * w.ndim, (1,) * (w.ndim + 1)
        slope = slice_(derivatives, (*begin, size), (*w.shape, 1), steps)
        return (
            negative(reshape(slope, w.shape)),
            slice_(derivatives, (*begin, 0), (*w.shape, size), steps),
        )

    return push


sparse_eigenpairs = callback_row(
    "sparse_eigenpairs",
    ranks=(1, 1, 1),
    shapes=lambda data, rows, columns, *, size, count, **params: ((count,), (count, size)),
    dtypes=lambda data, rows, columns, **params: (data, data),
    evaluate=_eigenpairs,
    tangent=_eigenpairs_tangent,
    samples=(),
)
"""Some eigenvalues of a symmetric matrix of `size`, and their eigenvectors, by rows.

With `height`, the matrix is ``[[0, A], [A.T, 0]]``, and `svds` of A finds the pairs: singular values s, and vectors (u, v) / sqrt(2).
"""


def _least_squares(
    data: NDArray,
    rows: NDArray,
    columns: NDArray,
    b: NDArray,
    *,
    width: int,
    method: str,
    damp: float,
    options: Any,
) -> tuple[NDArray, ...]:
    import scipy.sparse.linalg

    matrix = _matrix_of(data, rows, columns, (len(b), width))
    x, *statistics = getattr(scipy.sparse.linalg, method)(matrix, b, damp, **_unfrozen(options))
    numbers = [number for number in statistics if np.ndim(number) == 0]
    return (
        x,
        np.asarray(numbers, np.float64),
        np.asarray(statistics[-1] if np.ndim(statistics[-1]) else np.zeros(width)),
    )


def _least_squares_tangent(outs: Outs, inputs: Sequence[Value], params: dict[str, Any]) -> Push:
    """``r + A x = b`` and ``A.T r = damp**2 x``."""
    x, (data, rows, columns, b) = outs[0], inputs
    height, width, axis = b.shape[-1], params["width"], b.ndim - 1

    def column(vector: Value) -> Value:
        return reshape(vector, (*vector.shape, 1))

    def push(tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        change, right = tangents[0], tangents[3]
        if change is None and right is None:
            return None, None, None
        top = zeros_like(b) if right is None else right
        bottom = zeros_like(x)
        if change is not None:
            fitted = reshape(_product_of(data, rows, columns, column(x), height), b.shape)
            residual = column(subtract(b, fitted))
            top = subtract(top, reshape(_product_of(change, rows, columns, column(x), height), b.shape))
            bottom = negative(reshape(_product_of(change, columns, rows, residual, width), x.shape))
        below = _row_of(np.asarray(-(params["damp"] ** 2), data.dtype), data, width)
        rows_, columns_ = convert(rows, INTP), convert(columns, INTP)
        height_ = _row_of(np.asarray(height, INTP), rows, rows.shape[-1])
        first = _row_of(np.arange(height, dtype=INTP), rows, height)
        second = _row_of(np.arange(height, height + width, dtype=INTP), rows, width)
        shifted = add(columns_, height_)
        unit = _row_of(np.asarray(1, data.dtype), data, height)
        system = (
            join([unit, data, data, below], axis=axis),
            join([first, rows_, shifted, second], axis=axis),
            join([first, shifted, rows_, second], axis=axis),
        )
        solution = sparse_solve(*system, column(join([top, bottom], axis=axis)), transposed=False)
        lead = b.shape[:-1]
        begin, steps = (0,) * len(lead), (1,) * (len(lead) + 2)
        part = slice_(solution, (*begin, height, 0), (*lead, width, 1), steps)
        return reshape(part, x.shape), None, None

    return push


sparse_least_squares = callback_row(
    "sparse_least_squares",
    ranks=(1, 1, 1, 1),
    shapes=lambda data, rows, columns, b, *, width, method, **params: (
        (width,),
        (8 if method == "lsqr" else 7,),
        (width,),
    ),
    dtypes=lambda data, rows, columns, b, **params: (np.result_type(data, b), FLOAT64, FLOAT64),
    evaluate=_least_squares,
    tangent=_least_squares_tangent,
    samples=(),
)
"""The solution that `method`, lsqr or lsmr, finds; the numbers that it returns besides, and variances, which have no derivative."""
