"""The factor by which NumPy makes normal random numbers with a covariance matrix of independent ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from gradtape.errors import user_level
from gradtape.ir.graph import Value, constant
from gradtape.ir.op import NDArray
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.kinds.routines.derivatives import Outs, Push
from gradtape.ops.core.elementwise.logic import greater
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.matrices import differences, equal_pairs, scaled_columns, symmetric, transposed
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand
from gradtape.ops.numpy.linalg.products import matmul


def _factor(c: NDArray, *, method: str, check: str, tolerance: float) -> NDArray:
    if method == "eigh":
        s, u = np.linalg.eigh(c)
        factor, near = u * np.sqrt(abs(s)), (u * s) @ u.T
        regular = not (s < -tolerance).any() and np.allclose(near, c, rtol=tolerance, atol=tolerance)
    else:
        u, s, vh = np.linalg.svd(c)
        factor = (vh.T if method == "legacy" else u) * np.sqrt(s)
        regular = np.allclose((vh.T * s) @ vh, c, rtol=tolerance, atol=tolerance)
    if check != "ignore" and not regular:
        text = "covariance is not symmetric positive-semidefinite."
        if check == "raise":
            raise ValueError(text)
        warnings.warn(text, RuntimeWarning, stacklevel=user_level())
    return np.asarray(factor)


def _factor_tangent(outs: Outs, inputs: Any, params: dict[str, Any]) -> Push:
    """With the factor ``A = U sqrt(S)``: ``dA = U W sqrt(S)`` and ``dA A' + A dA' = dC``.

    Where two eigenvalues differ, W is antisymmetric, as the derivative of U. Where they are equal, U may be turned and has no
    derivative, and the symmetric W keeps the equation: the derivatives of expectations stay right.
    """
    (factor,) = outs
    rows = factor.ndim - 2
    spectrum = reduce_sum(factor * factor, axes=(rows,))
    some = greater(spectrum, 0.0)
    scale = sqrt(where(some, spectrum, 1.0))
    basis = scaled_columns(factor, 1.0 / scale)
    double = expand(2.0 * where(some, spectrum, 1.0), factor.shape, (*range(rows), rows + 1))
    gaps = differences(spectrum)
    equal = equal_pairs(spectrum)
    divisor = where(equal, double, where(equal, 1.0, gaps))

    def push(tangents: Any) -> Value:
        moved = matmul(transposed(basis), matmul(symmetric(tangents[0]), basis)) / divisor
        return scaled_columns(matmul(basis, moved), where(some, scale, 0.0))

    return push


def _growing(n: int) -> Value:
    return constant(np.diag(np.arange(1.0, n + 1.0)))


normal_factor: Callback = callback_row(
    "normal_factor",
    ranks=(2,),
    shapes=lambda c, **params: (c,),
    evaluate=_factor,
    tangent=_factor_tangent,
    kinks="that of a symmetric matrix; 0 in directions without variance",
    samples=(
        ((3, 3), {"method": "svd", "check": "ignore", "tolerance": 1e-8}),
        ((2, 2, 2), {"method": "eigh", "check": "ignore", "tolerance": 1e-8}),
    ),
    prepare=lambda c: [matmul(transposed(c), c) + _growing(c.shape[-1])],
    codes="d",
)
"""The matrix ``A`` with ``A @ A.T`` the covariance matrix, by the singular values or eigenvalues of it."""
