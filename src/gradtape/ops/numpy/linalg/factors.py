"""Factors of matrices and eigenvalues of any matrix: `numpy.linalg` in terms of the matrix and callback rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import INT64
from gradtape.kinds.arguments import as_array, known
from gradtape.kinds.registry import FUNCTIONS, implements, sample
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import imag, real
from gradtape.ops.core.elementwise.logic import not_equal
from gradtape.ops.core.elementwise.signs import absolute, sign
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import join
from gradtape.ops.core.linalg.eigen import eig as eig_row
from gradtape.ops.core.linalg.factors import full_qr, full_svd
from gradtape.ops.core.matrices import adjoint, scaled_columns
from gradtape.ops.core.matrices import qr as qr_row
from gradtape.ops.core.reductions import reduce_any
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import RECTANGLES, eigh_, inexact, inv, solve, square, stacked, thin_svd


def is_zero(x: Value) -> bool:
    """Return whether all numbers are zero, as far as that can be said: a jitted function is traced anew where it changes."""
    found = known(convert(reduce_any(not_equal(x, 0), axes=tuple(range(x.ndim))), INT64))
    return found is not None and not found


def real_if_zero(tested: Value, *others: Value) -> list[Value]:
    """Return the real parts of values where the imaginary part of the first one is zero, as NumPy does for real matrices."""
    values = [tested, *others]
    return [real(value) for value in values] if is_zero(imag(tested)) else values


class EigResult(NamedTuple):
    """What `numpy.linalg.eig` returns."""

    eigenvalues: Any
    eigenvectors: Any


@implements(np.linalg.eig, samples=(sample((2, 3)), sample((3,))), dtypes="qfFD")
def eig(a: Any) -> EigResult:
    """Follow `numpy.linalg.eig`: for different eigenvalues; vectors have length 1 and a real largest element, as LAPACK's."""
    x = square(inexact(a))
    numbers, vectors = eig_row.results(x, left=False)
    if x.dtype.kind == "c":
        return EigResult(numbers, vectors)
    if x.shape[-1] < 2:
        return EigResult(real(numbers), real(vectors))
    return EigResult(*real_if_zero(numbers, vectors))


@implements(np.linalg.eigvals, samples=(sample((2, 3)), sample((3,))), dtypes="qfFD")
def eigvals(a: Any) -> Any:
    """Follow `numpy.linalg.eigvals`: for different eigenvalues."""
    return eig(a).eigenvalues


class SVDResult(NamedTuple):
    """What `numpy.linalg.svd` returns."""

    U: Any
    S: Any
    Vh: Any


def _hermitian_svd(x: Value, compute_uv: bool) -> Any:
    """Return singular values, and vectors where they are wanted, by eigenvalues in the order of their sizes."""
    numbers, vectors = eigh_(x)
    sizes = absolute(numbers)
    order = FUNCTIONS[np.flip](FUNCTIONS[np.argsort](sizes, axis=-1), axis=-1)
    take = FUNCTIONS[np.take_along_axis]
    found = take(sizes, order, axis=-1)
    if not compute_uv:
        return found
    left = take(vectors, FUNCTIONS[np.expand_dims](order, -2), axis=-1)
    signs = convert(take(sign(numbers), order, axis=-1), x.dtype)
    return SVDResult(left, found, adjoint(scaled_columns(left, signs)))


@implements(np.linalg.svd, samples=(sample((3,)), sample((3, 2), compute_uv=False)), dtypes="qf")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Follow `numpy.linalg.svd`."""
    x = stacked(inexact(a))
    if hermitian:
        return _hermitian_svd(x, compute_uv)
    if not compute_uv:
        return thin_svd(x)[1]
    if full_matrices and x.shape[-1] != x.shape[-2]:
        left, numbers, right = full_svd.results(x)
        return SVDResult(left, numbers, adjoint(right))
    return SVDResult(*thin_svd(x))


class QRResult(NamedTuple):
    """What `numpy.linalg.qr` returns."""

    Q: Any
    R: Any


@implements(
    np.linalg.qr,
    samples=(
        *map(sample, RECTANGLES),
        sample((3, 3)),
        sample((4, 2), "r"),
        sample((3,)),
        sample((3, 2), "what"),
    ),
    dtypes="qfD",
)
def qr(a: Any, mode: str = "reduced") -> Any:
    """Follow `numpy.linalg.qr`."""
    x = stacked(inexact(a))
    m, n = x.shape[-2:]
    if mode not in ("reduced", "r", "complete", "raw"):
        raise ValueError(f"Unrecognized mode '{mode}'")
    if mode == "raw":
        raise UnsupportedFunctionError(
            "np.linalg.qr with mode='raw' is not supported",
            where=here.site,
            why="the vectors of reflections are LAPACK's way to store the factors",
            remedy="pass mode='reduced' or mode='complete'",
        )
    if mode == "complete" and m > n:
        return QRResult(*full_qr.results(x))
    k = min(m, n)
    first = getitem(x, (..., slice(0, k)))
    columns, triangle = qr_row.results(first)
    if n > k:
        rest = matmul(adjoint(columns), getitem(x, (..., slice(k, n))))
        triangle = join([triangle, rest], x.ndim - 1)
    return triangle if mode == "r" else QRResult(columns, triangle)


@implements(np.linalg.tensorsolve, samples=(sample((2, 3, 6), (2, 3)), sample((4, 2), (2,))), dtypes="qfD")
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Value:
    """Follow `numpy.linalg.tensorsolve`."""
    x, y = as_array(a), as_array(b, "b")
    if axes is not None:
        order = list(range(x.ndim))
        for axis in axes:
            order.remove(axis)
            order.insert(x.ndim, axis)
        x = FUNCTIONS[np.transpose](x, order)
    shape = x.shape[-(x.ndim - y.ndim) :]
    size = math.prod(shape)
    if x.size != size**2:
        raise np.linalg.LinAlgError(
            "Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])"
        )
    found = solve(FUNCTIONS[np.reshape](x, (size, size)), FUNCTIONS[np.ravel](y))
    return reshape(found, tuple(shape))


@implements(
    np.linalg.tensorinv,
    samples=(sample((2, 3, 6)), sample((4, 2, 2), ind=1), sample((2, 2), ind=0)),
    dtypes="qfD",
)
def tensorinv(a: Any, ind: int = 2) -> Value:
    """Follow `numpy.linalg.tensorinv`."""
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    x = as_array(a)
    shape = (*x.shape[ind:], *x.shape[:ind])
    if not shape:
        raise TypeError("reshape() takes exactly 1 argument (0 given)")
    rows = math.prod(x.shape[ind:])
    return reshape(inv(FUNCTIONS[np.reshape](x, (rows, -1))), shape)
