"""Systems of equations with sparse matrices: direct and iterative solvers of `scipy.sparse.linalg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.ir.types import INTP
from gradtape.kinds.registry import MAKERS, SOLVERS
from gradtape.ops.scipy.sparse_linalg import sparse_iterate, sparse_iterate_info, sparse_solve
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, fresh_value
from gradtape.trace.array.preallocated import holds_traced
from gradtape.trace.routines.registry import constant_or_traced, refused
from gradtape.trace.routines.sparse_matrices import entries, is_sparse

HOME: Final = "scipy.sparse.linalg."

ITERATIVE: Final = ("bicg", "bicgstab", "cg", "cgs", "gmres", "lgmres", "minres", "qmr", "gcrotmk", "tfqmr")
"""The Krylov methods for square systems."""


class Factored:
    """A factorised matrix, of which `solve` is followed; made by ``splu(A)``.

    Parameters
    ----------
    plain : callable
        SciPy's function.
    matrix : sparse matrix
        Its elements may be traced.
    name : str
        The function, for errors.
    """

    def __init__(self, plain: Callable[..., Any], matrix: Any, name: str) -> None:
        self._name = name
        self._matrix = matrix
        self._made = None if holds_traced(matrix) else plain(matrix)

    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """Return the solution for one or several right-hand sides."""
        if self._made is not None and not isinstance(rhs, Handle):
            return self._made.solve(rhs, trans) if self._name == "splu" else self._made(rhs)
        if trans not in ("N", "T"):
            raise refused(
                f"solve(trans={trans!r})",
                "only 'N' and 'T' are followed",
                "np.conj of the arguments, with 'T'",
            )
        system = _system(self._matrix, self._name)
        return _solved(system, rhs, lambda *given: sparse_solve(*given, transposed=trans == "T"))

    def __getattr__(self, name: str) -> Any:
        if self._made is not None:
            return getattr(self._made, name)
        raise refused(
            f"{self._name}(A).{name} of traced elements",
            "only solve() is followed",
            "call it outside of the traced function",
        )


def _system(matrix: Any, name: str) -> tuple[Value, Value, Value]:
    """Return the elements of a square matrix sorted by columns, with their rows and columns."""
    if not is_sparse(matrix):
        raise refused(
            f"{name} of a {type(matrix).__name__} with traced arrays",
            "the derivative needs the elements of the matrix",
            "pass a csc_array, csr_array or coo_array",
        )
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name}: matrix must be square, got shape {matrix.shape}")
    found = entries(matrix.tocsc())
    rows, columns = (constant(np.asarray(index, INTP)) for index in (found.rows, found.columns))
    return _floats(found.data), rows, columns


def _floats(array: Any) -> Value:
    traced = constant_or_traced(array)
    if traced.dtype.kind not in "fc":
        traced = traced.astype(float)
    return fresh_value(traced.value)


def _solved(system: tuple[Value, ...], b: Any, solve: Callable[..., Value]) -> Any:
    if is_sparse(b):
        raise refused("a sparse right-hand side with traced elements", "its solution is dense", "b.toarray()")
    right = constant_or_traced(b)
    if right.ndim not in (1, 2):
        raise ValueError(f"the right-hand side has shape {right.shape}; it must be a vector or a matrix")
    columns = np.reshape(right, (-1, 1)) if right.ndim == 1 else right
    made = Array(solve(*system, _floats(columns)))
    return np.reshape(made, right.shape)


def _spsolve(plain: Any, args: Any, kwargs: Any) -> Any:
    def spsolve(A: Any, b: Any, permc_spec: Any = None, use_umfpack: Any = True) -> Any:
        system = _system(A, "spsolve")
        if not is_sparse(b) and np.shape(b)[0] != A.shape[0]:
            raise ValueError(f"matrix - rhs dimension mismatch ({A.shape} - {np.shape(b)[0]})")
        found = _solved(system, b, lambda *given: sparse_solve(*given, transposed=False))
        return np.reshape(found, (-1,)) if np.shape(b)[1:] == (1,) else found

    return spsolve(*args, **kwargs)


def _splu(plain: Any, args: Any, kwargs: Any) -> Any:
    def splu(A: Any, *more: Any, **options: Any) -> Any:
        return Factored(lambda matrix: plain(matrix, *more, **options), A, "splu")

    return splu(*args, **kwargs)


def _factorized(plain: Any, args: Any, kwargs: Any) -> Any:
    def factorized(A: Any) -> Any:
        return Factored(plain, A, "factorized").solve

    return factorized(*args, **kwargs)


def _iterative(method: str) -> Callable[[Any, Any, Any], Any]:
    def rule(plain: Any, args: Any, kwargs: Any) -> Any:
        def solve(
            A: Any, b: Any, x0: Any = None, *, M: Any = None, callback: Any = None, **options: Any
        ) -> Any:
            for name, given in (("x0", x0), ("M", M), ("callback", callback)):
                if given is not None:
                    raise refused(
                        f"{method}({name}=) with traced arrays",
                        "the compiled function calls it with numbers",
                        f"leave {name} out, or use spsolve",
                    )
            if any(isinstance(option, Handle) for option in options.values()):
                raise refused(
                    f"{method} with traced options",
                    "they decide how many iterations it takes",
                    "give numbers",
                )
            pairs = tuple(sorted(options.items()))
            system = _system(A, method)
            row = {"method": method, "options": pairs, "transposed": False}
            x = _solved(system, b, lambda *given: sparse_iterate(*given, **row))
            right = np.reshape(constant_or_traced(b), (-1, 1))
            info = Array(sparse_iterate_info(*system, _floats(right), **row))
            return x, info

        return solve(*args, **kwargs)

    return rule


SOLVERS[HOME + "spsolve"] = _spsolve
SOLVERS[HOME + "splu"] = _splu
SOLVERS[HOME + "factorized"] = _factorized
MAKERS.update((HOME + "splu", HOME + "factorized"))
for _method in ITERATIVE:
    SOLVERS[HOME + _method] = _iterative(_method)
