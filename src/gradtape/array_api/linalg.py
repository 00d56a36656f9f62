"""The linear algebra of the array API standard: NumPy's functions, which take an `Array` as they take an ndarray."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.linalg import cholesky as cholesky
from numpy.linalg import cross as cross
from numpy.linalg import det as det
from numpy.linalg import diagonal as diagonal
from numpy.linalg import eigh as eigh
from numpy.linalg import eigvalsh as eigvalsh
from numpy.linalg import inv as inv
from numpy.linalg import matmul as matmul
from numpy.linalg import matrix_norm as matrix_norm
from numpy.linalg import matrix_power as matrix_power
from numpy.linalg import matrix_rank as matrix_rank
from numpy.linalg import matrix_transpose as matrix_transpose
from numpy.linalg import outer as outer
from numpy.linalg import pinv as pinv
from numpy.linalg import qr as qr
from numpy.linalg import slogdet as slogdet
from numpy.linalg import solve as solve
from numpy.linalg import svd as svd
from numpy.linalg import svdvals as svdvals
from numpy.linalg import tensordot as tensordot
from numpy.linalg import trace as trace
from numpy.linalg import vecdot as vecdot
from numpy.linalg import vector_norm as vector_norm


def eig(x: Any, /) -> Any:
    """Return eigenvalues and eigenvectors, which are complex also where NumPy has real ones.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.linalg.eig(xp.asarray([[2.0, 0.0], [0.0, 3.0]])).eigenvalues
    Array([2.+0.j, 3.+0.j], dtype=complex128)
    """
    made = np.linalg.eig(x)
    return type(made)(*map(_as_complex, made))


def eigvals(x: Any, /) -> Any:
    """Return the eigenvalues, which are complex also where NumPy has real ones.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.linalg.eigvals(xp.asarray([[2.0, 0.0], [0.0, 3.0]]))
    Array([2.+0.j, 3.+0.j], dtype=complex128)
    """
    return _as_complex(np.linalg.eigvals(x))


def _as_complex(x: Any) -> Any:
    return x.astype(np.result_type(x.dtype, np.complex64), copy=False)
