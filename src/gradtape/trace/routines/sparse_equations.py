"""Systems of equations, least squares and eigenpairs of sparse matrices: the solvers of `scipy.sparse.linalg`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value, constant
from gradtape.ir.types import INTP
from gradtape.kinds.registry import MAKERS, SOLVERS
from gradtape.kinds.routines.host import enter_function
from gradtape.ops.scipy.sparse_linalg import (
    factored_solve,
    sparse_eigenpairs,
    sparse_iterate,
    sparse_iterate_info,
    sparse_iterate_locally,
    sparse_iterate_locally_info,
    sparse_least_squares,
    sparse_solve,
)
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, fresh_value
from gradtape.trace.array.preallocated import holds_traced
from gradtape.trace.patching.imports import at_import
from gradtape.trace.patching.interpose import When, interpose, without_hook
from gradtape.trace.routines.registry import constant_or_traced, known_numbers, refused
from gradtape.trace.routines.sparse_matrices import (
    Entries,
    absolute,
    assembled,
    entries,
    is_sparse,
    multiply,
    product,
    taken,
    total,
    transpose,
)

HOME: Final = "scipy.sparse.linalg."

ITERATIVE: Final = ("bicg", "bicgstab", "cg", "cgs", "gmres", "lgmres", "minres", "qmr", "gcrotmk", "tfqmr")
"""The Krylov methods for square systems."""


EIGEN_OPTIONS: Final = (
    *("sigma", "which", "v0", "ncv", "maxiter", "tol"),
    *("return_eigenvectors", "Minv", "OPinv", "mode", "rng"),
)
"""The arguments of `eigsh` after the matrices."""


class Factored:
    """A factorised matrix whose `solve` is traced; made by ``splu(A)``.

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
        if trans not in ("N", "T", "H"):
            raise ValueError(f"trans must be 'N', 'T' or 'H', got {trans!r}")
        system = _system(self._matrix, self._name)
        if trans == "H":
            return np.conj(
                _solved(system, np.conj(rhs), lambda *operands: sparse_solve(*operands, transposed=True))
            )
        return _solved(system, rhs, lambda *operands: sparse_solve(*operands, transposed=trans == "T"))

    def __getattr__(self, name: str) -> Any:
        if self._made is not None:
            return getattr(self._made, name)
        raise refused(
            f"{self._name}(A).{name} of traced elements",
            "only solve() is supported",
            "call it outside the traced function",
        )


_FACTORS: Final[dict[int, str]] = {}
"""The keys of factorisations that were made of numbers, by their ids, of which none is given anew: `FUNCTIONS` keeps what it holds."""


def _solve_factored(self: Any, rhs: Any, trans: str = "N") -> Any:
    """Return the solution with a factorisation, or an incomplete one, that was made outside the trace."""
    if trans not in ("N", "T", "H"):
        raise ValueError("trans must be N, T, or H")
    if trans == "H":
        return np.conj(_solve_factored(self, np.conj(rhs), "T"))
    if np.ndim(rhs) not in (1, 2) or np.shape(rhs)[0] != self.shape[0]:
        raise ValueError(f"b is of incompatible size: {np.shape(rhs)}, and the matrix has shape {self.shape}")
    dtype = np.dtype(self.L.dtype)
    right = constant_or_traced(rhs)
    if not np.can_cast(right.dtype, dtype):
        raise TypeError(f"the right-hand side has dtype {right.dtype}, and the factorisation {dtype}")
    key = _FACTORS.get(id(self))
    if key is None:
        key = _FACTORS[id(self)] = enter_function(lambda: (self,))
    columns: Any = np.reshape(right.astype(dtype), (right.shape[0], -1))
    return np.reshape(
        Array(factored_solve(fresh_value(columns.value), key=key, dtype=dtype.char, transposed=trans == "T")),
        right.shape,
    )


def _trace_factorisations(module: Any) -> None:
    interpose(
        lambda method, /, *args, **kwargs: _solve_factored(*args, **kwargs),
        When.ANYWHERE,
        [module._dsolve._superlu.SuperLU.solve],
    )


# Before anything is recorded: what `factorized` returns keeps the C function that the method has when it is made.
at_import("scipy.sparse.linalg", _trace_factorisations)


def _matrix_given(A: Any, name: str) -> Any:
    """Return the sparse matrix that a function gets."""
    A = getattr(A, "A", A) if type(A).__name__ == "MatrixLinearOperator" else A
    if isinstance(A, Handle | np.ndarray):
        return sys.modules["scipy.sparse"].csr_array(A)
    if not is_sparse(A):
        raise refused(
            f"{name} of a {type(A).__name__} with traced arrays",
            "the derivative needs the elements of the matrix",
            "pass a csc_array, csr_array or coo_array",
        )
    return A


def _system(matrix: Any, name: str) -> tuple[Value, Value, Value]:
    """Return the elements of a square matrix sorted by columns, with their rows and columns."""
    matrix = _matrix_given(matrix, name)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name}: matrix must be square, got shape {matrix.shape}")
    elements = entries(matrix.tocsc())
    rows, columns = (constant(np.asarray(index, INTP)) for index in (elements.rows, elements.columns))
    return _floats(elements.data), rows, columns


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
    solution = Array(solve(*system, _floats(columns)))
    return np.reshape(solution, right.shape)


def _spsolve(plain: Any, args: Any, kwargs: Any) -> Any:
    def spsolve(A: Any, b: Any, permc_spec: Any = None, use_umfpack: Any = True) -> Any:
        system = _system(A, "spsolve")
        if not is_sparse(b) and np.shape(b)[0] != A.shape[0]:
            raise ValueError(f"matrix - rhs dimension mismatch ({A.shape} - {np.shape(b)[0]})")
        solution = _solved(system, b, lambda *operands: sparse_solve(*operands, transposed=False))
        return np.reshape(solution, (-1,)) if np.shape(b)[1:] == (1,) else solution

    return spsolve(*args, **kwargs)


def _splu(plain: Any, args: Any, kwargs: Any) -> Any:
    def splu(A: Any, *arguments: Any, **options: Any) -> Any:
        return Factored(lambda matrix: plain(matrix, *arguments, **options), A, "splu")

    return splu(*args, **kwargs)


def _factorized(plain: Any, args: Any, kwargs: Any) -> Any:
    def factorized(A: Any) -> Any:
        return Factored(plain, A, "factorized").solve

    return factorized(*args, **kwargs)


def _operator_given(A: Any, method: str) -> Any:
    """Return the linear operator that a Krylov method gets, whose elements are not known; None for a matrix."""
    operators = sys.modules["scipy.sparse.linalg"]
    if not isinstance(A, operators.LinearOperator) or type(A).__name__ == "MatrixLinearOperator":
        return None
    if isinstance(A.matvec(without_hook(np.zeros)(A.shape[1], A.dtype)), Handle):
        raise refused(
            f"{method} of a LinearOperator that reads traced arrays",
            "the derivative needs the elements of the matrix",
            f"{method}(A, b) with a csr_array of its elements, or gt.custom_root(lambda x: A @ x - b, solver)",
        )
    return A


def _no_elements(operator: Any) -> Any:
    """Return a matrix of the shape and dtype of an operator."""
    return sys.modules["scipy.sparse"].csc_array(operator.shape, dtype=operator.dtype)


def _iterative(method: str) -> Callable[[Any, Any, Any], Any]:
    def rule(plain: Any, args: Any, kwargs: Any) -> Any:
        def solve(
            A: Any, b: Any, x0: Any = None, *, M: Any = None, callback: Any = None, **options: Any
        ) -> Any:
            if holds_traced(M):
                raise refused(
                    f"{method}(M=) with traced arrays",
                    "the preconditioner has no derivative",
                    "make M of numbers, outside the traced function",
                )
            if any(isinstance(option, Handle) for option in options.values()):
                raise refused(
                    f"{method} with traced options",
                    "they decide how many iterations it takes",
                    "give numbers",
                )
            iterate, info_row = sparse_iterate, sparse_iterate_info
            operator = _operator_given(A, method)
            if not (operator is None and x0 is None and M is None and callback is None):
                start = None if x0 is None else known_numbers(x0, f"{method}(x0=)")
                extra: Any = (operator, start, M, callback)
                options["local"] = enter_function(lambda: extra)
                iterate, info_row = sparse_iterate_locally, sparse_iterate_locally_info
            pairs = tuple(sorted(options.items()))
            system = _system(A if operator is None else _no_elements(operator), method)
            row = {"method": method, "options": pairs, "transposed": False}
            x = _solved(system, b, lambda *operands: iterate(*operands, **row))
            right = np.reshape(constant_or_traced(b), (-1, 1))
            info = Array(info_row(*system, _floats(right), **row))
            return x, info

        return solve(*args, **kwargs)

    return rule


def _triangular(plain: Any, args: Any, kwargs: Any) -> Any:
    def spsolve_triangular(
        A: Any,
        b: Any,
        lower: bool = True,
        overwrite_A: bool = False,
        overwrite_b: bool = False,
        unit_diagonal: bool = False,
    ) -> Any:
        _system(A, "spsolve_triangular")
        elements = entries(A)
        beside = elements.rows > elements.columns if lower else elements.rows < elements.columns
        if not np.all(beside | (elements.rows == elements.columns)):
            raise np.linalg.LinAlgError(
                "A is not triangular: an element is on the other side of the diagonal"
            )
        stored = np.flatnonzero(beside if unit_diagonal else beside | (elements.rows == elements.columns))
        data: Any = taken(elements.data, stored)
        rows, columns = elements.rows[stored], elements.columns[stored]
        if unit_diagonal:
            order = np.arange(A.shape[0])
            data = np.concatenate([data, np.ones(len(order), data.dtype)])
            rows, columns = np.concatenate([rows, order]), np.concatenate([columns, order])
        triangle = assembled(Entries(rows, columns, data), A.shape, "csc", array=True)
        system = _system(triangle, "spsolve_triangular")
        return _solved(system, b, lambda *operands: sparse_solve(*operands, transposed=False))

    return spsolve_triangular(*args, **kwargs)


def _frozen(name: str, options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return options as parameters of a node."""
    pairs: list[tuple[str, Any]] = []
    for option, setting in sorted(options.items()):
        if isinstance(setting, np.ndarray | list | Handle):
            pairs.append((option, tuple(np.ravel(known_numbers(setting, f"{name}({option}=)")).tolist())))
        elif setting is None or isinstance(setting, str | bool | int | float):
            pairs.append((option, setting))
        else:
            raise refused(
                f"{name}({option}={setting!r}) with traced arrays",
                "options of compiled functions are numbers, strings and arrays",
                f"leave {option} out, or call {name} outside the traced function",
            )
    return tuple(pairs)


def _pairs(name: str, elements: Entries, size: int, height: int, count: int, options: Any) -> tuple[Any, Any]:
    """Return eigenvalues, and eigenvectors by rows."""
    data = _floats(elements.data)
    if data.dtype.kind == "c":
        raise refused(
            f"{name} of a complex matrix", "derivatives are those of real ones", "np.linalg.eigh or svd"
        )
    index = [constant(np.asarray(part, INTP)) for part in (elements.rows, elements.columns)]
    row = {"size": size, "height": height, "count": int(count), "options": _frozen(name, options)}
    w, vectors = sparse_eigenpairs.results(data, *index, **row)
    return Array(w), Array(vectors)


def _eigsh(plain: Any, args: Any, kwargs: Any) -> Any:
    def eigsh(
        A: Any, k: int = 6, M: Any = None, *positional: Any, return_eigenvectors: bool = True, **options: Any
    ) -> Any:
        options.update(zip(EIGEN_OPTIONS, positional, strict=False))
        with_vectors = options.pop("return_eigenvectors", return_eigenvectors)
        for name in ("M", "Minv", "OPinv"):
            if (M if name == "M" else options.pop(name, None)) is not None:
                raise refused(
                    f"eigsh({name}=) with traced arrays",
                    "derivatives are those of A v = w v",
                    "scipy.linalg.eigh(a, b) for generalised problems",
                )
        matrix = _matrix_given(A, "eigsh")
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"expected square matrix (shape={matrix.shape})")
        if not 0 < k < matrix.shape[0]:
            raise refused(
                f"eigsh of {k} pairs", f"k must be from 1 to {matrix.shape[0] - 1}", "np.linalg.eigh"
            )
        w, vectors = _pairs("eigsh", entries(matrix), matrix.shape[0], 0, k, options)
        if with_vectors:
            return w, np.transpose(vectors)
        return w if options.get("sigma") is not None else _in_arpack_order(w, options.get("which", "LM"))

    return eigsh(*args, **kwargs)


def _in_arpack_order(w: Any, which: str) -> Any:
    """Return ascending eigenvalues in the order in which ARPACK leaves them if it computes no vectors: those wanted most are last."""
    if which in ("LM", "SM"):
        w = np.take(w, np.argsort(np.abs(w)))
    return w[::-1] if which in ("SM", "SA") else w


def _svds(plain: Any, args: Any, kwargs: Any) -> Any:
    def svds(
        A: Any, k: int = 6, *positional: Any, return_singular_vectors: Any = True, **options: Any
    ) -> Any:
        names = (
            "ncv",
            "tol",
            "which",
            "v0",
            "maxiter",
            "return_singular_vectors",
            "solver",
            "rng",
            "options",
        )
        options.update(zip(names, positional, strict=False))
        which_vectors = options.pop("return_singular_vectors", return_singular_vectors)
        matrix = _matrix_given(A, "svds")
        m, n = matrix.shape
        elements = entries(matrix)
        rows, columns = np.asarray(elements.rows, np.int64), np.asarray(elements.columns, np.int64)
        augmented = Entries(
            np.concatenate([rows, columns + m]),
            np.concatenate([columns + m, rows]),
            np.concatenate([elements.data, elements.data]),
        )
        s, vectors = _pairs("svds", augmented, m + n, m, k, options)
        if which_vectors is False:
            return s
        u, vh = np.transpose(vectors[:, :m]) * np.sqrt(2.0), vectors[:, m:] * np.sqrt(2.0)
        return u if which_vectors != "vh" else None, s, vh if which_vectors != "u" else None

    return svds(*args, **kwargs)


def _least_squares(method: str) -> Callable[[Any, Any, Any], Any]:
    def rule(plain: Any, args: Any, kwargs: Any) -> Any:
        def solve(A: Any, b: Any, damp: Any = 0.0, *positional: Any, **options: Any) -> Any:
            names = {
                "lsqr": ("atol", "btol", "conlim", "iter_lim", "show", "calc_var", "x0"),
                "lsmr": ("atol", "btol", "conlim", "maxiter", "show", "x0"),
            }
            options.update(zip(names[method], positional, strict=False))
            if isinstance(damp, Handle):
                raise refused(
                    f"{method}(damp=) of a traced number",
                    "its derivative is not supported",
                    "append damp * identity to A, and zeros to b: vstack([A, damp * eye_array(n)])",
                )
            matrix = _matrix_given(A, method)
            m, n = matrix.shape
            right = constant_or_traced(b)
            if right.shape not in ((m,), (m, 1)):
                raise ValueError(f"{method}: A has shape {(m, n)}, and b has shape {right.shape}")
            if m < n and not damp:
                raise refused(
                    f"{method} of {m} equations with {n} unknowns",
                    "there are many solutions",
                    f"A.T @ spsolve(A @ A.T, b), the smallest one, or {method}(damp=)",
                )
            elements = entries(matrix)
            rows, columns = (constant(np.asarray(part, INTP)) for part in (elements.rows, elements.columns))
            b = np.reshape(right, (-1,))
            x, numbers, variances = map(
                Array,
                sparse_least_squares.results(
                    _floats(elements.data),
                    rows,
                    columns,
                    _floats(b),
                    width=n,
                    method=method,
                    damp=float(damp),
                    options=_frozen(method, options),
                ),
            )
            r = b - product(matrix, x)
            slope = product(transpose(matrix), r) - damp**2 * x
            short, size = np.linalg.norm(r), np.linalg.norm(x)
            damped_norm = np.sqrt(short**2 + (damp * size) ** 2)
            integers = [numbers[number].astype(int) for number in (0, 1)]
            if method == "lsqr":
                ends = [short, damped_norm, numbers[4], numbers[5], np.linalg.norm(slope), size, variances]
            else:
                ends = [damped_norm, np.linalg.norm(slope), numbers[4], numbers[5], size]
            return (x, *integers, *ends)

        return solve(*args, **kwargs)

    return rule


def _norm(plain: Any, args: Any, kwargs: Any) -> Any:
    def norm(x: Any, ord: Any = None, axis: Any = None) -> Any:
        if not is_sparse(x) or ord not in (None, "fro", "f", 1, np.inf, 2) or (ord == 2 and axis is None):
            return NotImplemented
        if axis is None or isinstance(axis, tuple):
            if ord in (1, np.inf):
                return np.max(total(absolute(x), axis=0 if ord == 1 else 1))
            return np.linalg.norm(entries(x.tocsr()).data)
        parts = absolute(x)
        if ord == np.inf:
            return NotImplemented
        if ord == 1:
            return np.reshape(total(parts, axis), (-1,))
        return np.sqrt(np.reshape(total(multiply(parts, parts), axis), (-1,)))

    return norm(*args, **kwargs)


def _inv(plain: Any, args: Any, kwargs: Any) -> Any:
    def inv(A: Any) -> Any:
        system = _system(A, "inv")
        dense = _solved(
            system, np.eye(A.shape[0]), lambda *operands: sparse_solve(*operands, transposed=False)
        )
        return type(A.tocsc())(dense)

    return inv(*args, **kwargs)


def _refused(name: str, why: str, remedy: str) -> Callable[[Any, Any, Any], Any]:
    def rule(plain: Any, args: Any, kwargs: Any) -> Any:
        raise refused(f"{name} of a matrix with traced elements", why, remedy)

    return rule


SOLVERS[HOME + "norm"] = _norm
SOLVERS[HOME + "inv"] = _inv
SOLVERS[HOME + "expm"] = _refused(
    "scipy.sparse.linalg.expm",
    "the exponential is dense in general",
    "scipy.linalg.expm(A.toarray()), or expm_multiply(A, B) for its product with B",
)
SOLVERS[HOME + "spilu"] = _refused(
    "spilu",
    "an incomplete factorisation is a preconditioner, which has no derivative",
    "make it of numbers, outside the traced function, and pass M=",
)
SOLVERS[HOME + "spsolve_triangular"] = _triangular
SOLVERS[HOME + "eigsh"] = _eigsh
SOLVERS[HOME + "svds"] = _svds
for _method in ("lsqr", "lsmr"):
    SOLVERS[HOME + _method] = _least_squares(_method)
SOLVERS[HOME + "spsolve"] = _spsolve
SOLVERS[HOME + "splu"] = _splu
SOLVERS[HOME + "factorized"] = _factorized
MAKERS.update((HOME + "splu", HOME + "factorized"))
for _method in ITERATIVE:
    SOLVERS[HOME + _method] = _iterative(_method)
