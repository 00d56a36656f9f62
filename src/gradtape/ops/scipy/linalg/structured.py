"""Matrices whose elements are those of vectors or of smaller matrices, and questions about matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value, constant, literal
from gradtape.ir.types import INT64
from gradtape.kinds.arguments import as_array, known
from gradtape.kinds.operands import broadcast_shapes, broadcast_to
from gradtape.kinds.registry import FUNCTIONS, borrows
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate, real
from gradtape.ops.core.elementwise.logic import equal, less_equal, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import join
from gradtape.ops.core.linalg.bands import picked, toeplitz_matrix
from gradtape.ops.core.matrices import adjoint, transposed, weighted
from gradtape.ops.core.reductions import reduce_max
from gradtape.ops.core.shape import expand, pad, reshape


def _vector(x: Any, argument: str) -> Value:
    vector = as_array(x, argument)
    return reshape(vector, (1,)) if vector.ndim == 0 else vector


def _pair(c: Any, r: Any) -> tuple[Value, Value]:
    """Return two vectors of one dtype, or two stacks of them."""
    first, second = _vector(c, "c"), _vector(r, "r")
    dtype = np.result_type(first.dtype, second.dtype)
    lead = broadcast_shapes([first.shape[:-1], second.shape[:-1]])
    first = broadcast_to(convert(first, dtype), (*lead, first.shape[-1]))
    return first, broadcast_to(convert(second, dtype), (*lead, second.shape[-1]))


@borrows("scipy.linalg.toeplitz")
def toeplitz(c: Any, r: Any = None) -> Value:
    """Follow `scipy.linalg.toeplitz`."""
    if r is None:
        first = _vector(c, "c")
        return toeplitz_matrix(first, conjugate(first) if first.dtype.kind == "c" else first)
    return toeplitz_matrix(*_pair(c, r))


@borrows("scipy.linalg.hankel")
def hankel(c: Any, r: Any = None) -> Value:
    """Follow `scipy.linalg.hankel`."""
    first = FUNCTIONS[np.ravel](_vector(c, "c"))
    second = FUNCTIONS[np.zeros_like](first) if r is None else FUNCTIONS[np.ravel](_vector(r, "r"))
    first, second = _pair(first, second)
    m, n = first.shape[-1], second.shape[-1]
    i, j = np.indices((m, n))
    return picked(join([first, second], 0), np.where(i + j < m, i + j, i + j + 1))


@borrows("scipy.linalg.circulant")
def circulant(c: Any) -> Value:
    """Follow `scipy.linalg.circulant`."""
    x = _vector(c, "c")
    n = x.shape[-1]
    i, j = np.indices((n, n))
    return picked(x, (i - j) % max(n, 1))


@borrows("scipy.linalg.convolution_matrix")
def convolution_matrix(a: Any, n: int, mode: str = "full") -> Value:
    """Follow `scipy.linalg.convolution_matrix`."""
    if n <= 0:
        raise ValueError("n must be a positive integer.")
    x = as_array(a)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError("convolution_matrix expects a one-dimensional array that is not empty")
    if mode not in ("full", "valid", "same"):
        raise ValueError("'mode' argument must be one of ('full', 'valid', 'same')")
    m = x.shape[-1]
    rows, start = {
        "full": (n + m - 1, 0),
        "same": (max(n, m), (min(n, m) - 1) // 2),
        "valid": (max(n, m) - min(n, m) + 1, min(n, m) - 1),
    }[mode]
    i, j = np.indices((rows, n))
    positions = i + start - j
    return picked(x, np.where((positions >= 0) & (positions < m), positions, -1))


@borrows("scipy.linalg.block_diag")
def block_diag(*arrs: Any) -> Value:
    """Follow `scipy.linalg.block_diag`."""
    blocks = [as_array(x, f"argument {k}") for k, x in enumerate(arrs)] or [constant(np.zeros((1, 0)))]
    blocks = [reshape(x, (1,) * (2 - x.ndim) + x.shape) if x.ndim < 2 else x for x in blocks]
    dtype = np.result_type(*[block.dtype for block in blocks])
    lead = broadcast_shapes([block.shape[:-2] for block in blocks])
    rows = sum(block.shape[-2] for block in blocks)
    columns = sum(block.shape[-1] for block in blocks)
    matrix = broadcast_to(literal(0, dtype), (*lead, rows, columns))
    row = column = 0
    for block in blocks:
        wide = broadcast_to(convert(block, dtype), (*lead, *block.shape[-2:]))
        if wide.size:
            matrix = matrix + pad(wide, matrix.shape, (*[0 for _ in lead], row, column))
        row, column = row + block.shape[-2], column + block.shape[-1]
    return matrix


def _check_leading(x: Value) -> None:
    flag = known(convert(FUNCTIONS[np.any](equal(getitem(x, (..., 0)), 0)), INT64))
    if flag is not None and flag:
        raise ValueError("The first coefficient(s) of `a` (i.e. elements of `a[..., 0]`) must not be zero.")


@borrows("scipy.linalg.companion")
def companion(a: Any) -> Value:
    """Follow `scipy.linalg.companion`."""
    x = _vector(a, "a")
    n = x.shape[-1] - 1
    if n < 1:
        raise ValueError("The length of `a` along the last axis must be at least 2.")
    _check_leading(x)
    row = -getitem(x, (..., slice(1, None))) / getitem(x, (..., slice(0, 1)))
    top = expand(row, (*row.shape[:-1], n, n), (*range(row.ndim - 1), row.ndim))
    return weighted(top, np.eye(n, 1) * np.ones(n)) + constant(np.eye(n, k=-1, dtype=row.dtype))


@borrows("scipy.linalg.fiedler_companion")
def fiedler_companion(a: Any) -> Value:
    """Follow `scipy.linalg.fiedler_companion`."""
    x = _vector(a, "a")
    n = x.shape[-1] - 1
    if n < 1:
        return getitem(x, (..., slice(0, 0)))
    _check_leading(x)
    parts = getitem(x, (..., slice(1, None))) / getitem(x, (..., slice(0, 1)))
    positions, unit_part = np.full((n, n), -1), np.zeros((n, n), parts.dtype)
    unit_part[range(3, n, 2), range(1, n - 2, 2)] = 1
    unit_part[range(0, n - 2, 2), range(2, n, 2)] = 1
    positions[range(2, n, 2), range(1, n - 1, 2)] = np.arange(2, n, 2)
    positions[range(0, n - 1, 2), range(1, n, 2)] = np.arange(1, n, 2)
    positions[0, 0] = 0
    unit_part[1:2, 0] = 1
    return constant(unit_part) - picked(parts, positions)


@borrows("scipy.linalg.solve_circulant")
def solve_circulant(
    c: Any,
    b: Any,
    singular: str = "raise",
    tol: Any = None,
    caxis: int = -1,
    baxis: int = 0,
    outaxis: int = 0,
) -> Value:
    """Follow `scipy.linalg.solve_circulant`."""
    move, transform = FUNCTIONS[np.moveaxis], FUNCTIONS[np.fft.fft]
    first, second = _vector(c, "c"), _vector(b, "b")
    x, y = move(first, caxis, -1), move(second, baxis, -1)
    n = x.shape[-1]
    if n != y.shape[-1]:
        raise ValueError(f"Shapes of c {first.shape} and b {second.shape} are incompatible")
    spectrum = transform(x, axis=-1)
    sizes = absolute(spectrum)
    if tol is None:
        tol = FUNCTIONS[np.max](sizes, axis=-1, keepdims=True) * (n * np.finfo(np.float64).eps)
    small = less_equal(sizes, tol)
    flag = known(convert(FUNCTIONS[np.any](small), INT64))
    if flag is not None and flag and singular == "raise":
        raise np.linalg.LinAlgError("near singular circulant matrix.")
    quotient = transform(y, axis=-1) / where(small, 1, spectrum)
    solution = FUNCTIONS[np.fft.ifft](where(small, np.nan if singular == "raise" else 0, quotient), axis=-1)
    if first.dtype.kind != "c" and second.dtype.kind != "c":
        solution = real(solution)
    back: Value = move(solution, -1, outaxis)
    return back


# Questions


def _square(a: Any) -> Value:
    x = as_array(a)
    if x.ndim != 2:
        raise ValueError("Input array must be a 2D NumPy array")
    return x


def _is_close(x: Value, y: Value, atol: Any, rtol: Any) -> Value:
    is_close: Value
    if atol is None and rtol is None:
        is_close = FUNCTIONS[np.array_equal](x, y)
    else:
        is_close = FUNCTIONS[np.allclose](x, y, rtol=rtol or 0.0, atol=atol or 0.0)
    return is_close


@borrows("scipy.linalg.issymmetric")
def issymmetric(a: Any, atol: Any = None, rtol: Any = None) -> Any:
    """Follow `scipy.linalg.issymmetric`."""
    x = _square(a)
    return x.shape[0] == x.shape[1] and _is_close(x, transposed(x), atol, rtol)


@borrows("scipy.linalg.ishermitian")
def ishermitian(a: Any, atol: Any = None, rtol: Any = None) -> Any:
    """Follow `scipy.linalg.ishermitian`."""
    x = _square(a)
    return x.shape[0] == x.shape[1] and _is_close(x, adjoint(x), atol, rtol)


@borrows("scipy.linalg.bandwidth")
def bandwidth(a: Any) -> tuple[Any, Any]:
    """Follow `scipy.linalg.bandwidth`."""
    x = as_array(a)
    m, n = x.shape[-2:]
    if x.size == 0:
        return 0, 0
    i, j = np.indices((m, n))
    there = not_equal(x, 0)

    def largest(distance: Any) -> Value:
        wide = expand(constant(np.maximum(distance, 0)), x.shape, (x.ndim - 2, x.ndim - 1))
        return reduce_max(where(there, wide, 0), axes=(x.ndim - 2, x.ndim - 1))

    return convert(largest(i - j), INT64), convert(largest(j - i), INT64)
