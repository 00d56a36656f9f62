"""The names of numpy.linalg. `eigh` and `eigvalsh` are functions of one triangle, as autograd's: the other one has the gradient 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.autograd.namespaces import names_of

__getattr__, __dir__ = names_of("numpy.linalg")


def T(x: Any) -> Any:
    """Return the transposes of matrices."""
    return np.swapaxes(x, -1, -2)


def _dot(a: Any, b: Any) -> Any:
    """Return products of matrices; autograd's tests call it."""
    return np.einsum("...ij,...jk->...ik", a, b)


def eigh(a: Any, UPLO: Any = "L") -> Any:
    """Return eigenvalues and eigenvectors, as `numpy.linalg.eigh`."""
    return np.linalg.eigh(_hermitian(a, UPLO), UPLO)


def eigvalsh(a: Any, UPLO: Any = "L") -> Any:
    """Return eigenvalues, as `numpy.linalg.eigvalsh`."""
    return np.linalg.eigvalsh(_hermitian(a, UPLO), UPLO)


def _hermitian(a: Any, UPLO: Any) -> Any:
    """Return the Hermitian matrices of which matrices have one triangle."""
    if np.ndim(a) < 2 or UPLO not in ("L", "l", "U", "u"):
        return a  # which is an error of NumPy's
    half = np.tril(a, -1) if UPLO in ("L", "l") else np.triu(a, 1)
    diagonal = np.real(a) * np.eye(np.shape(a)[-1])
    return half + np.conj(np.swapaxes(half, -1, -2)) + diagonal
