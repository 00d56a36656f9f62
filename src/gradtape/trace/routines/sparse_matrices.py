"""Sparse matrices of SciPy with traced elements, and their products with traced arrays.

A matrix with traced elements is an object of SciPy's own class whose `data` is an Array; its pattern is known. What an index does to
the pattern is left to SciPy: it is applied to a matrix of positions. Products are gathers and sums of segments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.graph import Value, constant, literal
from gradtape.ir.op import NDArray
from gradtape.ir.types import INTP
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.kinds.registry import HOOKS
from gradtape.lru import LRU
from gradtape.ops.core.indexing import gather_row, put_add, segment_add
from gradtape.trace.array.array import Array, to_array
from gradtape.trace.array.handle import Handle, fresh_value, unwrap
from gradtape.trace.array.preallocated import to_ndarray
from gradtape.trace.patching.imports import at_import
from gradtape.trace.routines.registry import refused, stands_for
from gradtape.trace.source.sites import user_site
from gradtape.trees import register_node

BASE: Final = "scipy.sparse._base._spbase."
MATRIX: Final = "scipy.sparse._matrix.spmatrix."
COMPRESSED: Final = "scipy.sparse._compressed._cs_matrix."
ROWS: Final = "scipy.sparse._csr._csr_base."
COLUMNS: Final = "scipy.sparse._csc._csc_base."
COORDINATES: Final = "scipy.sparse._coo._coo_base."
DIAGONALS: Final = "scipy.sparse._dia._dia_base."
BLOCKS: Final = "scipy.sparse._bsr._bsr_base."
DATA: Final = "scipy.sparse._data._data_matrix."
CONSTRUCT: Final = "scipy.sparse._construct."
FORMATS: Final = ("csr", "csc", "coo")


class Entries(NamedTuple):
    """The stored elements of a sparse matrix: rows, columns, and numbers, which may be traced."""

    rows: NDArray
    columns: NDArray
    data: Any


def _sparse() -> Any:
    return sys.modules["scipy.sparse"]


def is_sparse(item: Any) -> bool:
    """Return whether an object is a sparse matrix of SciPy's."""
    return bool(_sparse().issparse(item))


def _elements(array: Any) -> Array:
    """Return numbers as an Array."""
    if isinstance(array, Array):
        return array
    if isinstance(array, list | tuple):
        return to_array(unwrap(array))
    return Array(as_value(to_ndarray(array) if isinstance(array, Handle) else np.asarray(array)))


def known_index(positions: NDArray, extent: int) -> tuple[Value, dict[str, bool]]:
    """Return positions as an index, of four bytes and no sign where that is enough, and what is known of them.

    Raises
    ------
    IndexError
        For a matrix whose index arrays are wrong: SciPy does not look at them.
    """
    if positions.size and not 0 <= positions.min() <= positions.max() < extent:
        raise IndexError(f"an index array of a sparse matrix has elements outside 0 to {extent - 1}")
    return constant(positions.astype(np.uint32 if extent < 2**32 else INTP)), {"in_bounds": True}


def taken(array: Any, positions: NDArray) -> Array:
    """Return elements, or rows, of an array; zero at negative positions."""
    value = fresh_value(_elements(array).value)
    if not value.shape[0]:
        return Array(broadcast_to(literal(0, value.dtype), (len(positions), *value.shape[1:])))
    index, facts = known_index(np.maximum(positions, 0), value.shape[0])
    elements = Array(gather_row(value, index, **facts))
    inside = positions >= 0
    if inside.all():
        return elements
    return np.where(inside.reshape(-1, *[1] * (elements.ndim - 1)), elements, 0)  # type: ignore[return-value]


def segment_sums(terms: Any, targets: NDArray, count: int) -> Array:
    """Return the sums of the terms with each target, (count, ...)."""
    value = fresh_value(_elements(terms).value)
    zeros = broadcast_to(literal(0, value.dtype), (count, *value.shape[1:]))
    index, facts = known_index(np.asarray(targets), count)
    if np.all(targets[1:] >= targets[:-1]):
        starts = constant(
            np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=count))]).astype(INTP)
        )
        return Array(segment_add(zeros, value, index, starts, **facts))
    return Array(put_add(zeros, value, index, **facts))


def entries(matrix: Any) -> Entries:
    """Return the stored elements of a matrix, in their order."""
    if matrix.format not in FORMATS:
        matrix = matrix.tocoo()
    if np.shape(matrix.data) != np.shape(matrix.indices if matrix.format != "coo" else matrix.row):
        raise refused(
            f"a sparse matrix whose elements have shape {np.shape(matrix.data)}",
            "gt.vmap maps its elements one by one",
            "in_axes=None for the matrix; map over data, and make the matrix of it inside",
        )
    if matrix.format == "coo":
        return Entries(matrix.row, matrix.col, matrix.data)
    major = np.repeat(np.arange(len(matrix.indptr) - 1), np.diff(matrix.indptr))
    if matrix.format == "csr":
        return Entries(major, matrix.indices, matrix.data)
    return Entries(matrix.indices, major, matrix.data)


def assembled(elements: Entries, shape: tuple[int, int], kind: str, array: bool) -> Any:
    """Return a sparse matrix with these elements; those at the same position are added."""
    rows, columns = np.asarray(elements.rows, np.int64), np.asarray(elements.columns, np.int64)
    if kind not in FORMATS:
        raise refused(
            f"a sparse matrix with traced elements in format {kind!r}",
            "its elements are not stored one after the other",
            "use format='csr', 'csc' or 'coo'",
        )
    maker = getattr(_sparse(), f"{kind}_{'array' if array else 'matrix'}")
    if kind == "coo":
        return _filled(maker((np.zeros(len(rows)), (rows, columns)), shape=shape), elements.data)
    keys = rows * shape[1] + columns if kind == "csr" else columns * shape[0] + rows
    unique, inverse = np.unique(keys, return_inverse=True)
    if len(unique) < len(keys):
        data = segment_sums(elements.data, inverse, len(unique))
    elif np.array_equal(inverse, np.arange(len(keys))):
        data = _elements(elements.data)
    else:
        data = taken(elements.data, np.argsort(inverse))
    width = shape[1] if kind == "csr" else shape[0]
    height = shape[0] if kind == "csr" else shape[1]
    counts = np.bincount(unique // max(width, 1), minlength=height)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    matrix = maker((np.zeros(len(unique)), unique % max(width, 1), indptr), shape=shape)
    return _filled(matrix, data)


def _filled(matrix: Any, data: Any) -> Any:
    matrix.data = _elements(data)
    return matrix


def with_data(matrix: Any, data: Any) -> Any:
    """Return a matrix of the same pattern with other elements."""
    format = matrix.format if matrix.format in FORMATS else "csr"
    return assembled(entries(matrix)._replace(data=data), matrix.shape, format, _is_array(matrix))


def _is_array(matrix: Any) -> bool:
    return isinstance(matrix, _sparse().sparray)


def _like(matrix: Any, elements: Entries, shape: tuple[int, int]) -> Any:
    """Return a matrix in the format of another one."""
    format = matrix.format if matrix.format in FORMATS else "csr"
    return assembled(elements, shape, format, _is_array(matrix))


def _positions(matrix: Any) -> tuple[Any, Any]:
    """Return a matrix of the same pattern, with the positions of its elements from 1, and its elements."""
    matrix = _like(matrix, entries(matrix), matrix.shape) if matrix.format != "coo" else matrix.tocsr()
    plain = _filled(matrix.copy(), 0)
    plain.data = np.arange(1, len(matrix.indices) + 1)
    return plain, matrix.data


def _moved(matrix: Any, operation: Callable[[Any], Any]) -> Any:
    """Return what an operation makes that moves elements without a change."""
    plain, data = _positions(matrix)
    result = operation(plain)
    if is_sparse(result):
        if result.ndim != 2:
            raise refused(
                "a sparse array of one dimension", "its elements are traced", "index a slice: A[i:i+1]"
            )
        return _like(
            result, entries(result)._replace(data=taken(data, entries(result).data - 1)), result.shape
        )
    positions = np.asarray(result)
    elements = taken(data, positions.reshape(-1) - 1)
    return np.reshape(elements, positions.shape)


# Construction


@stands_for(COMPRESSED + "__init__", COORDINATES + "__init__")
def construct(
    self: Any, arg1: Any, shape: Any = None, dtype: Any = None, copy: bool = False, **options: Any
) -> None:
    """Make a matrix from traced elements, and a pattern that is known."""
    kind = type(self)._format
    if is_sparse(arg1):
        elements, shape = entries(arg1), arg1.shape if shape is None else shape
    elif isinstance(arg1, tuple) and len(arg1) == 2 and isinstance(arg1[1], tuple | list | np.ndarray):
        rows, columns = [_known(part) for part in arg1[1]]
        elements = Entries(rows, columns, arg1[0])
        shape = (int(rows.max()) + 1, int(columns.max()) + 1) if shape is None else shape
    elif isinstance(arg1, tuple) and len(arg1) == 3 and kind != "coo":
        indices, indptr = _known(arg1[1]), _known(arg1[2])
        major = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        rows, columns = (major, indices) if kind == "csr" else (indices, major)
        elements = Entries(rows, columns, arg1[0])
        if shape is None:
            inner, outer = int(indices.max(initial=-1)) + 1, len(indptr) - 1
            shape = (outer, inner) if kind == "csr" else (inner, outer)
    elif isinstance(arg1, Handle) and _elements(arg1).ndim == 2:
        dense = _elements(arg1)
        m, n = dense.shape
        rows, columns = (part.reshape(-1) for part in np.indices((m, n)))
        elements, shape = Entries(rows, columns, np.ravel(dense)), (m, n)
    else:
        raise refused(
            f"{type(self).__name__} of these arguments",
            "a matrix with traced elements is made of its elements and a pattern",
            f"{type(self).__name__}((data, indices, indptr), shape=...) or ((data, (rows, columns)), shape=...)",
        )
    data = elements.data if dtype is None else _elements(elements.data).astype(dtype)
    if np.shape(data) != np.shape(elements.rows):
        raise ValueError(
            f"row, column, and data arrays must have the same length, got {np.shape(elements.rows)} and {np.shape(data)}"
        )
    shape = tuple(int(extent) for extent in shape)
    if len(elements.rows) and (elements.rows.max() >= shape[0] or elements.columns.max() >= shape[1]):
        raise ValueError(f"indices exceed the shape {shape} of the matrix")
    vars(self).update(vars(assembled(elements._replace(data=data), shape, kind, _is_array(self))))


def _known(index: Any) -> NDArray:
    """Return an array of the pattern, which must be known."""
    data = HOOKS.numbers(index.value) if isinstance(index, Handle) else np.asarray(index)
    if data is None:
        raise refused(
            "a sparse matrix with a traced pattern",
            "which elements it has is known only when the compiled function runs",
            "make indices and indptr outside the compiled function; only data may be traced",
        )
    return data


# Conversions and views


@stands_for(ROWS + "tocsr", COLUMNS + "tocsr", COORDINATES + "tocsr")
def tocsr(self: Any, copy: bool = False) -> Any:
    return assembled(entries(self), self.shape, "csr", _is_array(self))


@stands_for(ROWS + "tocsc", COLUMNS + "tocsc", COORDINATES + "tocsc")
def tocsc(self: Any, copy: bool = False) -> Any:
    return assembled(entries(self), self.shape, "csc", _is_array(self))


@stands_for(COMPRESSED + "tocoo", ROWS + "tocoo", COORDINATES + "tocoo")
def tocoo(self: Any, copy: bool = True) -> Any:
    return assembled(entries(self), self.shape, "coo", _is_array(self))


@stands_for(
    *[home + "tolil" for home in (BASE, ROWS)],
    *[home + "tobsr" for home in (BASE, ROWS)],
    *[home + "todia" for home in (BASE, COORDINATES)],
    BASE + "todok",
)
def refuse_format(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise refused(
        "the conversion of a sparse matrix with traced elements to another format",
        "only the elements of csr, csc and coo stand one after the other",
        "use tocsr(), tocsc() or tocoo()",
    )


@stands_for(BASE + "asformat")
def asformat(self: Any, format: Any, copy: bool = False) -> Any:
    return self if format is None else assembled(entries(self), self.shape, format, _is_array(self))


@stands_for(ROWS + "transpose", COLUMNS + "transpose", COORDINATES + "transpose")
def transpose(self: Any, axes: Any = None, copy: bool = False) -> Any:
    rows, columns, data = entries(self)
    turned = {"csr": "csc", "csc": "csr", "coo": "coo"}[self.format]
    return assembled(Entries(columns, rows, data), self.shape[::-1], turned, _is_array(self))


@stands_for(DATA + "copy")
def copied(self: Any) -> Any:
    return with_data(self, entries(self).data)


@stands_for(COMPRESSED + "toarray", COORDINATES + "toarray", BASE + "todense")
def toarray(self: Any, order: Any = None, out: Any = None) -> Any:
    if out is not None:
        raise refused("toarray(out=)", "its elements are traced", "use the array that it returns")
    rows, columns, data = entries(self)
    m, n = self.shape
    flat = segment_sums(data, np.asarray(rows, np.int64) * n + columns, m * n)
    return np.reshape(flat, (m, n))


@stands_for(COMPRESSED + "diagonal", COORDINATES + "diagonal")
def diagonal(self: Any, k: int = 0) -> Any:
    rows, columns, data = entries(self)
    m, n = self.shape
    count = max(min(m + min(k, 0), n - max(k, 0)), 0)
    chosen = np.flatnonzero(columns - rows == k)
    return segment_sums(taken(data, chosen), (rows[chosen] + min(k, 0)), count)


@stands_for(BASE + "trace")
def trace(self: Any, offset: int = 0) -> Any:
    return np.sum(diagonal(self, offset))


@stands_for("scipy.sparse._index.IndexMixin.__getitem__", COORDINATES + "__getitem__")
def getitem(self: Any, key: Any) -> Any:
    if self.format == "coo":
        raise TypeError(f"{type(self).__name__} is not subscriptable with traced elements: use tocsr()")
    return _moved(self, lambda plain: plain[key])


@stands_for(COMPRESSED + "eliminate_zeros", COORDINATES + "eliminate_zeros")
def keep_zeros(self: Any) -> None:
    """Keep the pattern: which elements are zero is known only when a compiled function runs."""


@stands_for(COMPRESSED + "setdiag", BASE + "setdiag")
def refuse_diagonal(self: Any, values: Any, k: int = 0) -> Any:
    raise refused(
        "setdiag() of a sparse matrix",
        "its pattern would depend on the written values",
        "add a matrix: A + diags_array(values - A.diagonal())",
    )


@stands_for("scipy.sparse._data._minmax_mixin._min_or_max_axis")
def refuse_extremum(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise refused(
        "max(axis=) or min(axis=) of a sparse matrix",
        "its pattern would depend on numbers",
        "A.toarray().max(axis=...)",
    )


@stands_for("scipy.sparse._index.IndexMixin.__setitem__", COORDINATES + "__setitem__")
def setitem(self: Any, key: Any, x: Any) -> Any:
    raise refused(
        "writing to elements of a sparse matrix",
        "its pattern would depend on the written values",
        "make a matrix with the elements: A + csr_array((data, (rows, columns)), shape=A.shape)",
    )


# Elementwise operations


def _map_elements(function: Callable[[Any], Any]) -> Callable[..., Any]:
    def operate(self: Any) -> Any:
        return with_data(self, function(_elements(entries(self).data)))

    return operate


def absolute(matrix: Any) -> Any:
    """Return the matrix of absolute values."""
    return with_data(matrix, np.abs(_elements(entries(matrix).data)))


for _name, _operation in {
    "__neg__": np.negative,
    "__abs__": np.abs,
    "conjugate": np.conj,
    **{
        name: getattr(np, name)
        for name in (
            "sin",
            "tan",
            "arcsin",
            "arctan",
            "sinh",
            "tanh",
            "arcsinh",
            "arctanh",
            "expm1",
            "log1p",
            "sqrt",
            "sign",
            "floor",
        )
    },
}.items():
    stands_for(DATA + _name)(_map_elements(_operation))


@stands_for(DATA + "astype", BASE + "astype")
def astype(self: Any, dtype: Any, casting: Any = "unsafe", copy: bool = True) -> Any:
    return with_data(self, _elements(entries(self).data).astype(dtype))


@stands_for(DATA + "power", BASE + "power")
def power(self: Any, n: Any, dtype: Any = None) -> Any:
    return with_data(self, _elements(entries(self).data) ** n)


@stands_for(BASE + "__pow__", MATRIX + "__pow__")
def matrix_power(self: Any, other: Any) -> Any:
    if _is_array(self):
        return power(self, other)
    result = self
    for _ in range(int(other) - 1):
        result = product(result, self)
    return result


def _is_scalar(other: Any) -> bool:
    return not is_sparse(other) and np.ndim(other) == 0


def _combined(first: Any, second: Any) -> tuple[NDArray, NDArray, Any, Any]:
    """Return rows and columns of the elements of either matrix, and the elements of both there."""
    if first.shape != second.shape:
        raise ValueError(f"inconsistent shapes: {first.shape} and {second.shape}")
    n = max(first.shape[1], 1)
    parts = [entries(_like(matrix, entries(matrix), matrix.shape).tocsr()) for matrix in (first, second)]
    keys = [np.asarray(part.rows, np.int64) * n + part.columns for part in parts]
    union = np.union1d(*keys)
    positions_of_parts = []
    for matrix_keys in keys:
        positions = np.full(len(union), -1)
        positions[np.searchsorted(union, matrix_keys)] = np.arange(len(matrix_keys))
        positions_of_parts.append(positions)
    data = [taken(part.data, positions) for part, positions in zip(parts, positions_of_parts, strict=True)]
    return union // n, union % n, *data


def _added(self: Any, other: Any, sign: int) -> Any:
    if is_sparse(other):
        rows, columns, a, b = _combined(self, other)
        return _like(self, Entries(rows, columns, a + sign * b), self.shape)
    if _is_scalar(other):
        if isinstance(other, Handle) or other != 0:
            raise NotImplementedError("adding a nonzero scalar to a sparse array is not supported")
        return copied(self)
    return toarray(self) + sign * other


@stands_for(BASE + "__add__", BASE + "__radd__")
def add(self: Any, other: Any) -> Any:
    return _added(self, other, 1)


@stands_for(BASE + "__sub__")
def subtract(self: Any, other: Any) -> Any:
    return _added(self, other, -1)


@stands_for(BASE + "__rsub__")
def subtract_from(self: Any, other: Any) -> Any:
    return _added(with_data(self, -_elements(entries(self).data)), other, 1)


@stands_for(BASE + "multiply")
def multiply(self: Any, other: Any) -> Any:
    elements = entries(self)
    data = _elements(elements.data)
    if is_sparse(other):
        if other.shape != self.shape:
            raise refused(
                "multiply() of matrices of different shapes",
                "broadcasting would change the pattern",
                "np.asarray of one",
            )
        rows, columns, a, b = _combined(self, other)
        n = max(self.shape[1], 1)
        common = np.intersect1d(
            *[np.asarray(part.rows, np.int64) * n + part.columns for part in (elements, entries(other))]
        )
        common_positions = np.flatnonzero(np.isin(rows * n + columns, common))
        return _like(
            self,
            Entries(rows[common_positions], columns[common_positions], taken(a * b, common_positions)),
            self.shape,
        )
    if _is_scalar(other):
        return with_data(self, data * other)
    factors = np.broadcast_to(other, self.shape) if np.shape(other) != self.shape else other
    flat = np.asarray(elements.rows, np.int64) * self.shape[1] + elements.columns
    return with_data(self, data * taken(np.reshape(factors, (-1,)), flat))


@stands_for(BASE + "__truediv__")
def divide(self: Any, other: Any) -> Any:
    if is_sparse(other):
        raise refused(
            "the quotient of sparse matrices",
            "0 / 0 would fill it with NaN",
            "divide the elements: A.data / B.data",
        )
    return multiply(self, 1.0 / other)


def _extremum(name: str, of_two: Callable[..., Any]) -> Callable[..., Any]:
    def extremum(self: Any, other: Any) -> Any:
        if is_sparse(other):
            if other.shape != self.shape:
                raise ValueError(f"inconsistent shapes {self.shape} and {other.shape}")
            rows, columns, a, b = _combined(self, other)
            return _like(self, Entries(rows, columns, of_two(a, b)), self.shape)
        if isinstance(other, Handle) or np.ndim(other) or of_two(other, 0) != 0:
            raise refused(
                f"{name}() of a sparse matrix and {other!r}",
                "elements that are not stored would not stay zero",
                f"np.{name}(A.toarray(), other)",
            )
        return with_data(self, of_two(_elements(entries(self).data), other))

    return extremum


for _name, _of_two in (("maximum", np.maximum), ("minimum", np.minimum)):
    stands_for(BASE + _name)(_extremum(_name, _of_two))


@stands_for(
    BASE + "__rtruediv__",
    BASE + "__eq__",
    BASE + "__lt__",
    BASE + "__gt__",
)
def refuse_comparison(self: Any, other: Any) -> Any:
    raise refused(
        "a comparison of a sparse matrix",
        "its pattern would depend on numbers",
        "compare the elements, A.data",
    )


# Sums


@stands_for(COMPRESSED + "sum", BASE + "sum")
def total(self: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    rows, columns, data = entries(self)
    data = _elements(data)
    if axis is None or axis in ((0, 1), (1, 0)):
        return np.sum(data)
    axis = axis[0] if isinstance(axis, tuple) else axis
    if not -2 <= axis < 2:
        raise ValueError(f"axis {axis} is out of bounds for a matrix")
    sums = (
        segment_sums(data, columns, self.shape[1])
        if axis % 2 == 0
        else segment_sums(data, rows, self.shape[0])
    )
    if _is_array(self):
        return sums
    return sums[None, :] if axis % 2 == 0 else sums[:, None]


@stands_for(BASE + "mean")
def mean(self: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    m, n = self.shape
    count = m * n if axis is None else (m, n)[axis]
    return total(self, axis) / count


@stands_for("scipy.sparse.csgraph:_laplacian.laplacian")
def laplacian(
    csgraph: Any,
    normed: bool = False,
    return_diag: bool = False,
    use_out_degree: bool = False,
    *,
    copy: bool = True,
    form: str = "array",
    dtype: Any = None,
    symmetrized: bool = False,
) -> Any:
    if np.ndim(csgraph) != 2 or csgraph.shape[0] != csgraph.shape[1]:
        raise ValueError("csgraph must be a square matrix or array")
    if form != "array":
        raise refused(
            f"scipy.sparse.csgraph.laplacian(form={form!r}) of traced elements",
            "operators have no derivatives",
            "form='array'",
        )
    n = csgraph.shape[0]
    graph = csgraph if is_sparse(csgraph) else _elements(csgraph)
    graph = graph.astype(float) if normed and graph.dtype.kind in "iu" else graph
    graph = graph + np.conj(graph.T) if symmetrized else graph
    if is_sparse(graph):
        rows, columns, data = entries(graph)
        beside = np.flatnonzero(rows != columns)
        rows, columns, data = rows[beside], columns[beside], taken(data, beside)
        degrees = segment_sums(data, rows if use_out_degree else columns, n)
    else:
        numbers = np.arange(n)
        data = np.where(numbers[:, None] == numbers, 0, graph)
        degrees = np.sum(data, axis=1 if use_out_degree else 0)
    isolated = degrees == 0
    ends = np.where(isolated, 1, np.sqrt(np.where(isolated, 1, degrees))) if normed else degrees
    diagonal = (1 - isolated).astype(graph.dtype) if normed else degrees
    if is_sparse(graph):
        if normed:
            data = data / taken(ends, rows) / taken(ends, columns)
        numbers = np.arange(n)
        elements = Entries(
            np.concatenate([rows, numbers]),
            np.concatenate([columns, numbers]),
            np.concatenate([-data, diagonal]),
        )
        result = assembled(elements, (n, n), "coo", _is_array(graph))
    else:
        result = np.where(
            numbers[:, None] == numbers, diagonal, -(data / ends / ends[:, None] if normed else data)
        )
    if dtype is not None:
        result, ends = result.astype(dtype), ends.astype(dtype)
    return (result, ends) if return_diag else result


# Products


@stands_for(BASE + "__matmul__", BASE + "dot", COORDINATES + "dot")
def product(self: Any, other: Any) -> Any:
    if is_sparse(other):
        return _sparse_product(self, other)
    if np.ndim(other) == 0:
        raise ValueError("Scalar operands are not allowed, use '*' instead")
    if np.ndim(other) > 2 or np.shape(other)[0] != self.shape[1]:
        raise ValueError(f"dimension mismatch: {self.shape} @ {np.shape(other)}")
    rows, columns, data = entries(self)
    picked = taken(other, columns)
    data = _elements(data)
    terms = data * picked if np.ndim(other) == 1 else data[:, None] * picked
    return segment_sums(terms, rows, self.shape[0])


@stands_for(BASE + "__rmatmul__")
def product_from_left(self: Any, other: Any) -> Any:
    if np.ndim(other) == 0:
        raise ValueError("Scalar operands are not allowed, use '*' instead")
    rows, columns, data = entries(self)
    turned = assembled(Entries(columns, rows, data), self.shape[::-1], "csr", _is_array(self))
    transposed = product(turned, np.transpose(other))
    return np.transpose(transposed)


@stands_for(BASE + "__mul__", MATRIX + "__mul__")
def star(self: Any, other: Any) -> Any:
    return multiply(self, other) if _is_array(self) or _is_scalar(other) else product(self, other)


@stands_for(BASE + "__rmul__", MATRIX + "__rmul__")
def star_from_left(self: Any, other: Any) -> Any:
    return multiply(self, other) if _is_array(self) or _is_scalar(other) else product_from_left(self, other)


def _sparse_product(first: Any, second: Any) -> Any:
    """Return the product of sparse matrices: one term for each pair of elements that meet."""
    if first.shape[1] != second.shape[0]:
        raise ValueError(f"dimension mismatch: {first.shape} @ {second.shape}")
    rows, inner, a = entries(first)
    by_row = second.tocsr()
    starts, lengths = by_row.indptr[:-1][inner], np.diff(by_row.indptr)[inner]
    left = np.repeat(np.arange(len(inner)), lengths)
    right = np.arange(int(lengths.sum())) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    terms = taken(a, left) * taken(by_row.data, right)
    kind = "csc" if first.format == "csc" else "csr"
    shape = first.shape[0], second.shape[1]
    return assembled(Entries(rows[left], by_row.indices[right], terms), shape, kind, _is_array(first))


# Functions that make matrices


@stands_for(CONSTRUCT + "kron")
def kron(A: Any, B: Any, format: Any = None) -> Any:
    first, second = _as_sparse(A), _as_sparse(B)
    a, b = entries(first), entries(second)
    (m, n), (p, q) = first.shape, second.shape
    left, right = np.repeat(np.arange(len(a.rows)), len(b.rows)), np.tile(np.arange(len(b.rows)), len(a.rows))
    data = taken(a.data, left) * taken(b.data, right)
    elements = Entries(
        np.asarray(a.rows, np.int64)[left] * p + np.asarray(b.rows)[right],
        np.asarray(a.columns, np.int64)[left] * q + np.asarray(b.columns)[right],
        data,
    )
    return assembled(elements, (m * p, n * q), format or "coo", _is_array(first) or _is_array(second))


def _as_sparse(matrix: Any) -> Any:
    return matrix if is_sparse(matrix) else _sparse().coo_array(matrix)


def _is_flat(numbers: Any) -> bool:
    return not len(numbers) or np.ndim(numbers[0]) == 0


@stands_for(CONSTRUCT + "diags_array", CONSTRUCT + "diags")
def diags_array(
    diagonals: Any,
    /,
    offsets: Any = 0,
    shape: Any = None,
    format: Any = None,
    dtype: Any = None,
) -> Any:
    single = np.ndim(offsets) == 0 and (
        _elements(diagonals).ndim == 1 if isinstance(diagonals, Handle) else _is_flat(diagonals)
    )
    parts = [diagonals] if single else list(diagonals)
    diagonal_offsets = [int(offset) for offset in np.atleast_1d(offsets)]
    if len(parts) != len(diagonal_offsets):
        raise ValueError("number of diagonals and offsets must be the same")
    if shape is None:
        size = len(parts[0]) + abs(diagonal_offsets[0])
        shape = (size, size)
    m, n = shape
    rows, columns, data = [], [], []
    for part, k in zip(parts, diagonal_offsets, strict=True):
        count = max(min(m + min(k, 0), n - max(k, 0)), 0)
        numbers = np.broadcast_to(np.reshape(part, (-1,)), (count,)) if np.size(part) == 1 else part
        if len(numbers) != count:
            raise ValueError(
                f"Diagonal length (offset {k}: {len(numbers)} at shape {shape}) does not agree with array size"
            )
        order = np.arange(count)
        rows.append(order - min(k, 0))
        columns.append(order + max(k, 0))
        data.append(numbers)
    elements = Entries(np.concatenate(rows), np.concatenate(columns), np.concatenate(data))
    return assembled(elements, (m, n), "csr" if format in (None, "dia") else format, True)


@stands_for(CONSTRUCT + "spdiags")
def spdiags(data: Any, diags: Any, m: Any = None, n: Any = None, format: Any = None) -> Any:
    shape = m if n is None else (m, n)
    if shape is None:
        shape = (np.shape(np.atleast_2d(data))[1],) * 2
    return _of_diagonals(data, diags, (int(shape[0]), int(shape[1])), format, False)


@stands_for(DIAGONALS + "__init__")
def construct_of_diagonals(
    self: Any, arg1: Any, shape: Any = None, dtype: Any = None, copy: bool = False, **options: Any
) -> None:
    """Make a matrix from diagonals with traced elements. It is stored in another format, as are those of ``sp.diags_array``."""
    if not (isinstance(arg1, tuple) and len(arg1) == 2 and shape is not None):
        refuse_construction(self, arg1)
    data, offsets = arg1
    data = data if dtype is None else _elements(data).astype(dtype)
    matrix = _of_diagonals(data, offsets, (int(shape[0]), int(shape[1])), None, _is_array(self))
    self.__class__ = type(matrix)
    vars(self).update(vars(matrix))


@stands_for(BLOCKS + "__init__")
def refuse_construction(
    self: Any, arg1: Any, shape: Any = None, dtype: Any = None, copy: bool = False, **options: Any
) -> None:
    """Refuse it: the elements of this format do not stand one after the other."""
    raise refused(
        f"{type(self).__name__} of traced elements",
        "only the elements of csr, csc and coo stand one after the other",
        "sp.diags_array(diagonals, offsets=...) or sp.block_array(blocks), which make other formats",
    )


def _of_diagonals(data: Any, offsets: Any, shape: tuple[int, int], format: Any, array: bool) -> Any:
    """Return the matrix whose element in a column is the one at this place of a row of `data`, on the diagonal of the row."""
    rows, columns, parts = [], [], []
    m, n = shape
    numbers = _elements(np.atleast_2d(data))
    for part, k in zip(numbers, np.atleast_1d(_known(offsets)), strict=True):
        inside = np.arange(max(int(k), 0), min(m + int(k), n, numbers.shape[1]))
        rows.append(inside - k)
        columns.append(inside)
        parts.append(taken(part, inside))
    elements = Entries(np.concatenate(rows), np.concatenate(columns), np.concatenate(parts))
    return assembled(elements, shape, "csr" if format in (None, "dia") else format, array)


@stands_for(CONSTRUCT + "hstack")
def hstack(blocks: Any, format: Any = None, dtype: Any = None) -> Any:
    return block_array([blocks], format=format)


@stands_for(CONSTRUCT + "vstack")
def vstack(blocks: Any, format: Any = None, dtype: Any = None) -> Any:
    return block_array([[block] for block in blocks], format=format)


@stands_for(CONSTRUCT + "block_diag")
def block_diag(mats: Any, format: Any = None, dtype: Any = None) -> Any:
    count = len(mats)
    return block_array(
        [[mats[i] if i == j else None for j in range(count)] for i in range(count)], format=format
    )


@stands_for(CONSTRUCT + "block_array", CONSTRUCT + "bmat")
def block_array(blocks: Any, *, format: Any = None, dtype: Any = None) -> Any:
    grid = [[None if block is None else _as_sparse(block) for block in row] for row in blocks]
    heights: Any = [next((b.shape[0] for b in row if b is not None), None) for row in grid]
    widths: Any = [
        next((b.shape[1] for b in column if b is not None), None) for column in zip(*grid, strict=True)
    ]
    if None in heights or None in widths:
        raise ValueError("a row or a column of blocks has no block, so its extent is not known")
    tops, lefts = np.cumsum([0, *heights]), np.cumsum([0, *widths])
    rows, columns, data = [], [], []
    present = [block for row in grid for block in row if block is not None]
    for i, row in enumerate(grid):
        for j, block in enumerate(row):
            if block is None:
                continue
            if block.shape != (heights[i], widths[j]):
                raise ValueError(
                    f"blocks[{i}, {j}] has shape {block.shape}, expected ({heights[i]}, {widths[j]})"
                )
            elements = entries(block)
            rows.append(np.asarray(elements.rows, np.int64) + tops[i])
            columns.append(np.asarray(elements.columns, np.int64) + lefts[j])
            data.append(elements.data)
    elements_of_all = Entries(np.concatenate(rows), np.concatenate(columns), np.concatenate(data))
    formats = {block.format for block in present}
    kind = format or (formats.pop() if len(formats) == 1 else "coo")
    return assembled(elements_of_all, (int(tops[-1]), int(lefts[-1])), kind, any(map(_is_array, present)))


# Containers: the elements are a leaf, the pattern is a part of the structure


class Pattern:
    """The pattern of a sparse matrix, and its class: two are equal if all of that is.

    Parameters
    ----------
    matrix : sparse matrix
    """

    __slots__ = ("_fields", "_kind")

    def __init__(self, matrix: Any) -> None:
        self._kind = type(matrix)
        self._fields = {name: _copied(field) for name, field in vars(matrix).items() if name != "data"}

    def filled(self, data: Any) -> Any:
        """Return a matrix with this pattern.

        Raises
        ------
        ShapeError
            For elements that are arrays: the result of `vmap`, or a Jacobian in a matrix.
        """
        if getattr(data, "ndim", 1) > 1:
            raise ShapeError(
                f"a {self._kind.__name__} cannot hold elements of shape {data.shape}",
                where=user_site(),
                why="a sparse matrix has one number for each element of its pattern",
                remedy="return its elements, A.data, or differentiate with respect to them, and make the matrix from them",
            )
        matrix = object.__new__(self._kind)
        vars(matrix).update({name: _copied(field) for name, field in self._fields.items()})
        matrix.data = data
        return matrix

    def is_of(self, kind: type, fields: dict[str, Any]) -> bool:
        """Return whether a matrix of a class with these attributes has this pattern."""
        return (
            self._kind is kind
            and self._fields["_shape"] == fields["_shape"]
            and all(map(np.array_equal, _index_arrays(self._fields), _index_arrays(fields)))
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Pattern) and self.is_of(other._kind, other._fields))

    def __hash__(self) -> int:
        return hash((self._kind, self._fields["_shape"], len(_index_arrays(self._fields)[0])))

    def __repr__(self) -> str:
        return f"<pattern of a {self._kind.__name__} of shape {self._fields['_shape']}>"


_SEEN: Final[LRU[tuple[int, ...], Pattern]] = LRU(lambda: 8)
"""Patterns by the identities of the index arrays that they were copied from."""


def pattern_of(matrix: Any) -> Pattern:
    """Return the pattern of a matrix: the same object as before for the same arrays, unless they were written to.

    So the call of a compiled function compares the index arrays once, and copies none.
    """
    fields = vars(matrix)
    key = tuple(map(id, _index_arrays(fields)))
    pattern = _SEEN.get(key)
    if pattern is None or not pattern.is_of(type(matrix), fields):
        _SEEN[key] = pattern = Pattern(matrix)
    return pattern


def _index_arrays(fields: dict[str, Any]) -> list[NDArray]:
    present_fields = [fields[name] for name in ("indices", "indptr", "coords") if name in fields]
    return [part for field in present_fields for part in (field if isinstance(field, tuple) else (field,))]


def _copied(field: Any) -> Any:
    if isinstance(field, tuple) and any(isinstance(part, np.ndarray) for part in field):
        return tuple([part.copy() for part in field])
    return field.copy() if isinstance(field, np.ndarray) else field


def register_containers(module: Any) -> None:
    """Let sparse matrices be containers of their elements."""
    for kind in FORMATS:
        for suffix in ("array", "matrix"):
            register_node(
                getattr(module, f"{kind}_{suffix}"),
                lambda matrix: ((matrix.data,), pattern_of(matrix), ("data",)),
                lambda pattern, children: pattern.filled(*children),
            )


at_import("scipy.sparse", register_containers)  # arguments are flattened before anything is recorded
