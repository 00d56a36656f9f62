"""Functions of matrices: logarithms, powers, roots, and functions of the exponential."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.ir.types import INT64
from gradtape.kinds.arguments import as_array, known
from gradtape.kinds.registry import FUNCTIONS, HOOKS, borrows
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import imag, real
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import join
from gradtape.ops.core.linalg.eigen import eig
from gradtape.ops.core.linalg.factors import cut_columns, cut_rows
from gradtape.ops.core.linalg.functions import matrix_derivative, sqrtm
from gradtape.ops.core.matrices import adjoint, scaled_columns
from gradtape.ops.core.shape import expand, reshape
from gradtape.ops.numpy.linalg.norms import norm
from gradtape.ops.numpy.linalg.products import matmul
from gradtape.ops.numpy.linalg.solve import alike, in_double, inexact, inv, solved, square, svdvals
from gradtape.ops.scipy.linalg.solve import expm, refuse

NEARLY: Final = 1e6
"""Rounding errors up to which SciPy takes the imaginary part of a function of a real matrix for zero."""


def _real_again(x: Value, result: Value) -> Value:
    """Return a function of a real matrix as real numbers where its imaginary part is no more than rounding.

    Where that cannot be known (`gt.vmap`), results are real, and NaN where they ought to be complex.
    """
    if x.dtype.kind == "c":
        return result
    is_complex = FUNCTIONS[np.any](absolute(imag(result)) > NEARLY * float(np.finfo(x.dtype).eps))
    flag = known(convert(is_complex, INT64))
    if flag is None:
        return where(is_complex, np.nan, real(result))
    return result if flag else real(result)


@borrows("scipy.linalg.logm")
def logm(A: Any, disp: Any = True) -> Value:
    """Follow `scipy.linalg.logm`."""
    x = square(in_double(A, "A"))
    return _real_again(x, matrix_derivative(x, name="logm"))


@borrows("scipy.linalg.fractional_matrix_power")
def fractional_matrix_power(A: Any, t: Any) -> Value:
    """Follow `scipy.linalg.fractional_matrix_power`; a traced power is exp(t log A)."""
    x = square(inexact(A, "A"))
    if isinstance(t, Value):
        x = in_double(x)
        power = reshape(t, (*t.shape, 1, 1)) if t.ndim else t
        return _real_again(x, expm(matrix_derivative(x, name="logm") * power))
    if t == int(t):
        power_of_matrix: Value = FUNCTIONS[np.linalg.matrix_power](x, int(t))
        return power_of_matrix
    x = in_double(x)
    return _real_again(x, matrix_derivative(x, name="fractional_matrix_power", power=float(t)))


@borrows("scipy.linalg.sqrtm")
def scipy_sqrtm(A: Any, disp: Any = True, blocksize: Any = None) -> Value:
    """Follow `scipy.linalg.sqrtm`."""
    x = square(inexact(A, "A"))
    square_root = sqrtm(x)
    return _real_again(x, square_root)


@borrows("scipy.linalg.signm")
def signm(A: Any, disp: Any = True) -> Value:
    """Follow `scipy.linalg.signm`: A / sqrt(A A)."""
    x = square(inexact(A, "A"))
    root = sqrtm(matmul(x, x))
    return _real_again(x, matmul(convert(x, root.dtype), inv(root)))


@borrows("scipy.linalg.funm")
def funm(A: Any, func: Any, disp: bool = True) -> Any:
    """Follow `scipy.linalg.funm`, by eigenvalues and eigenvectors: for different eigenvalues."""
    x = square(inexact(A, "A"))
    if not disp:
        raise refuse("scipy.linalg.funm with disp=False", "omit it")
    numbers, vectors = eig.results(x, left=False)
    values = convert(as_array(HOOKS.call(func, numbers)), vectors.dtype)
    result = adjoint(solved(adjoint(vectors), adjoint(scaled_columns(vectors, values))))
    return _real_again(x, result)


# The exponential


def _nested(a: Value, e: Value, is_lower: Value) -> Value:
    """Return [[a, e], [0, a]], whose exponential holds the derivative of that of a in the direction e; [[a, 0], [e, a]] where asked for."""
    columns = a.ndim - 1
    right, left = where(is_lower, 0, e), where(is_lower, e, 0)
    return join([join([a, right], columns), join([left, a], columns)], columns - 1)


def _frechet(a: Value, e: Value) -> tuple[Value, Value]:
    """Return the exponential of a, and its derivative. What is nested stays triangular, since `expm` is more accurate for it."""
    n = a.shape[-1]
    above = FUNCTIONS[np.triu](absolute(a) + absolute(e), 1)
    is_lower = equal(FUNCTIONS[np.max](above, axis=(a.ndim - 2, a.ndim - 1), keepdims=True, initial=0), 0)
    exponential = expm(_nested(a, e, is_lower))
    first, second = cut_rows(exponential, 0, n), cut_rows(exponential, n, 2 * n)
    return cut_columns(first, 0, n), where(is_lower, cut_columns(second, 0, n), cut_columns(first, n, 2 * n))


@borrows("scipy.linalg.expm_frechet")
def expm_frechet(
    A: Any, E: Any, method: Any = None, compute_expm: bool = True, check_finite: bool = True
) -> Any:
    """Follow `scipy.linalg.expm_frechet`."""
    a, e = alike(square(in_double(A, "A")), square(in_double(E, "E")))
    if a.shape != e.shape:
        raise ValueError("expected A and E to be the same shape")
    value, derivative = _frechet(a, e)
    return (value, derivative) if compute_expm else derivative


@borrows("scipy.linalg.expm_cond")
def expm_cond(A: Any, check_finite: bool = True) -> Value:
    """Follow `scipy.linalg.expm_cond`."""
    a = square(in_double(A, "A"))
    n = a.shape[-1]
    if a.ndim > 2:
        raise refuse(
            "scipy.linalg.expm_cond of a stack of matrices", "call it for each matrix, or with gt.vmap"
        )
    directions = np.eye(n * n, dtype=a.dtype).reshape(n * n, n, n)
    many = expand(a, (n * n, n, n), (1, 2))
    values, derivatives = _frechet(many, constant(directions))
    jacobian = reshape(derivatives, (n * n, n * n))
    first = getitem(values, 0)
    return getitem(svdvals(jacobian), 0) * norm(a) / norm(first)
