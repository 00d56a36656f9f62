"""The functions of `numpy.linalg` and `scipy.linalg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg as sl

from tests.coverage.cases import Case, Namespace, because, call, public_functions

X = np.array([0.31, 0.84, -0.52, 0.17])
Y = np.array([1.21, 0.44, 0.72, -1.57])
A = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, -0.4], [0.6, 0.1, 1.8]])
B = np.array([[1.2, -0.4, 0.3], [0.5, 2.1, 0.2], [-0.1, 0.7, 1.6]])
H = np.array([[2.0, 0.3, 0.5], [0.3, 1.5, -0.4], [0.5, -0.4, 3.1]])
M = np.array([[1.9, 0.2, -0.3], [0.2, 1.2, 0.4], [-0.3, 0.4, 2.2]])
"""Both symmetric and positive definite."""
T = np.array([[0.3, 1.2, -0.7, 0.4], [0.9, -0.4, 1.6, -1.1], [1.3, 0.8, 0.2, 0.5], [-0.6, 0.7, 0.9, 1.4]])
"""A matrix with complex eigenvalues."""
W = np.array([[0.3, 1.2, -0.7, 0.5], [0.9, -0.4, 1.6, 0.2]])
V = np.array([[1.1, 0.2], [0.5, -0.8], [-0.3, 0.7], [0.4, 0.9]])
R3 = np.array([0.7, -0.4, 1.3])
R32 = np.array([[0.7, 0.2], [-0.4, 0.5], [1.3, -0.6]])
C = A + 0.4j * B.T
STACK = np.stack([A, B])
BANDS = np.array([[0.0, 0.4, -0.3, 0.2], [2.1, 1.7, 2.4, 1.9], [0.5, -0.2, 0.3, 0.0]])
HALF = np.array([[2.1, 1.7, 2.4, 1.9], [0.5, -0.2, 0.3, 0.0]])
"""Bands of a matrix of order 4, and of a symmetric one below its diagonal."""


def cases(function: Callable[..., Any], *calls: Any, **options: Any) -> list[Case]:
    """Return a case for each tuple of arrays."""
    return [case for arrays in calls for case in call(function, *arrays, **options)]


def first_twice(table: dict[str, list[Case]]) -> dict[str, list[Case]]:
    """Return the cases, of which only the first one of each function is differentiated twice: that takes longest."""
    return {
        name: [case._replace(second=case.second and k == 0) for k, case in enumerate(group)]
        for name, group in table.items()
    }


def signed(pair: Any) -> Any:
    """Return eigenvalues and eigenvectors that begin with positive elements: the sign is LAPACK's choice, by processor."""
    values, vectors = pair
    return values, vectors * np.sign(vectors[0])


def hermitian(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the Hermitian part of its argument."""
    return lambda a, *rest: function((a + np.conj(np.swapaxes(a, -1, -2))) / 2, *rest)


def invariants(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose results are what does not depend on the phases of the vectors of Schur's form."""

    def run(a: Any) -> Any:
        form, basis = function(a)
        first = basis[:, :1]
        return np.abs(form) ** 2, np.diagonal(form), first @ np.conj(first.T), np.abs(basis) ** 2

    return run


def both(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the symmetric parts of two matrices."""
    return lambda a, b: function((a + a.T) / 2, (b + b.T) / 2)


def variants(function: Callable[..., Any], arrays: tuple[Any, ...], *options: dict[str, Any]) -> list[Case]:
    """Return one case of the results with each set of keywords."""
    return call(lambda *x: tuple([function(*x, **keywords) for keywords in options]), *arrays)


def _numpy() -> dict[str, list[Case]]:
    la = np.linalg
    return {
        "cholesky": cases(hermitian(la.cholesky), (H,), (C @ C.conj().T,)),
        "cond": [
            *variants(
                la.cond, (A,), *[{"p": p} for p in (None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc")]
            ),
            *cases(la.cond, (STACK,), (W,)),
        ],
        "cross": cases(la.cross, (R3, A[0]), (A, B)),
        "det": cases(la.det, (A,), (T,), (C,), (STACK,)),
        "diagonal": [*cases(la.diagonal, (A,), (STACK,)), *variants(la.diagonal, (A,), {"offset": 1})],
        "eig": cases(lambda a: tuple(la.eig(a)), (A,), (T,), (C,), (np.stack([T, T.T]),)),
        "eigh": [
            *cases(hermitian(lambda a: signed(la.eigh(a))), (H,)),
            *cases(hermitian(lambda a: la.eigh(a)[0]), (C,)),
        ],
        "eigvals": cases(la.eigvals, (A,), (T,), (C,), (np.stack([T, T.T]),)),
        "eigvalsh": cases(hermitian(la.eigvalsh), (H,), (C,), (STACK,)),
        "inv": cases(la.inv, (A,), (C,), (STACK,)),
        "lstsq": [
            *cases(lambda a, b: la.lstsq(a, b)[0], (V, Y), (W, X[:2]), (A, R3)),
            *cases(lambda a, b: la.lstsq(a, b), (V, Y), (V, T)),
        ],
        "matmul": cases(la.matmul, (A, B), (STACK, A)),
        "matrix_norm": [
            *variants(
                la.matrix_norm, (A,), *[{"ord": p} for p in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)]
            ),
            *variants(la.matrix_norm, (STACK,), {"keepdims": True}),
        ],
        "matrix_power": variants(la.matrix_power, (A,), *[{"n": n} for n in (0, 1, 2, 3, 5, -1, -2, -3)]),
        "matrix_transpose": cases(la.matrix_transpose, (A,), (STACK,)),
        "multi_dot": cases(lambda *x: la.multi_dot(x), (A, B), (W, V, W), (X, V, W, Y)),
        "norm": [
            *variants(la.norm, (X,), *[{"ord": p} for p in (None, 1, 2, 3, 0.5, -1, np.inf, -np.inf)]),
            *variants(
                la.norm, (A,), *[{"ord": p} for p in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)]
            ),
            *variants(
                la.norm, (STACK,), {"axis": 0}, {"axis": (1, 2)}, {"axis": (0, 2), "ord": 1, "keepdims": True}
            ),
            *cases(la.norm, (C,)),
        ],
        "outer": cases(la.outer, (X, Y)),
        "pinv": cases(la.pinv, (A,), (W,), (V,), (STACK,), (C,)),
        "qr": [
            *cases(lambda a: tuple(la.qr(a)), (A,), (W,), (V,), (STACK,), (C,)),
            *cases(lambda a: la.qr(a, mode="r"), (W,), (V,)),
            *cases(
                lambda a: (lambda q: q[:, :2] @ q[:, :2].T + q[:, 2:] @ q[:, 2:].T @ T)(
                    la.qr(a, mode="complete")[0]
                ),
                (V,),
            ),
            *cases(lambda a: tuple(la.qr(a, mode="complete")), (W,)),
        ],
        "slogdet": cases(lambda a: tuple(la.slogdet(a)), (A,), (STACK,), (C,)),
        "solve": cases(la.solve, (A, R3), (A, R32), (STACK, B), (C, R3)),
        "svd": [
            *cases(lambda a: tuple(la.svd(a, full_matrices=False)), (A,), (W,), (V,), (STACK,)),
            *cases(lambda a: la.svd(a)[1], (W,), (C,)),
            *cases(lambda a: (lambda u, s, vh: (u, s, vh[:2], vh[2:].T @ vh[2:]))(*la.svd(a)), (W,)),
            *cases(lambda a: (lambda u, s, vh: (vh, s, u[:, :2], u[:, 2:] @ u[:, 2:].T))(*la.svd(a)), (V,)),
            *cases(lambda a: la.svd(a, compute_uv=False), (W,), (V,)),
            *cases(hermitian(lambda a: la.svd(a, hermitian=True, compute_uv=False)), (H,)),
            *cases(hermitian(lambda a: tuple(la.svd(a, hermitian=True))), (H - 2.3 * np.eye(3),)),
        ],
        "svdvals": cases(la.svdvals, (A,), (W,), (C,)),
        "tensordot": [*variants(la.tensordot, (A, B), {"axes": 1})],
        "tensorinv": [
            *cases(lambda a: la.tensorinv(a.reshape(2, 2, 4)), (T,)),
            *cases(lambda a: la.tensorinv(a.reshape(4, 2, 2), ind=1), (T,)),
        ],
        "tensorsolve": [
            *cases(lambda a, b: la.tensorsolve(a.reshape(2, 2, 4), b.reshape(2, 2)), (T, X)),
            *cases(lambda a, b: la.tensorsolve(a.reshape(2, 4, 2), b, axes=(0, 2)), (T, X)),
        ],
        "trace": [*cases(la.trace, (A,), (STACK,)), *variants(la.trace, (A,), {"offset": 1})],
        "vecdot": cases(la.vecdot, (A, B), (C, C)),
        "vector_norm": [
            *variants(la.vector_norm, (X,), *[{"ord": p} for p in (1, 2, 3, 0.5, -1, np.inf, -np.inf)]),
            *variants(la.vector_norm, (A,), {}, {"axis": 0}, {"axis": (0, 1), "keepdims": True}),
        ],
    }


def _care(a: Any, b: Any, q: Any, r: Any) -> Any:
    return sl.solve_continuous_are(a, b, (q + q.T) / 2, (r + r.T) / 2)


def _dare(a: Any, b: Any, q: Any, r: Any) -> Any:
    return sl.solve_discrete_are(a, b, (q + q.T) / 2, (r + r.T) / 2)


E = np.array([[1.1, 0.1, 0.2], [0.0, 0.9, -0.1], [0.1, 0.2, 1.3]])
S2 = np.array([[1.4, 0.2], [0.2, 0.9]])


def _scipy() -> dict[str, list[Case]]:
    D, off = HALF[0], HALF[1, :3]
    return {
        "block_diag": cases(sl.block_diag, (A, W, X)),
        "cdf2rdf": cases(lambda a: sl.cdf2rdf(*sl.eig(a)), (T,)),
        "cho_factor": cases(hermitian(lambda a: np.tril(sl.cho_factor(a, lower=True)[0])), (H,)),
        "cho_solve": cases(lambda a, b: sl.cho_solve(sl.cho_factor((a + a.T) / 2), b), (H, R3), (H, R32)),
        "cho_solve_banded": cases(
            lambda ab, b: sl.cho_solve_banded((sl.cholesky_banded(ab, lower=True), True), b),
            (HALF, Y),
            (HALF, T),
        ),
        "cholesky": [
            *cases(hermitian(sl.cholesky), (H,), (C @ C.conj().T,)),
            *cases(hermitian(lambda a: sl.cholesky(a, lower=True)), (H,)),
        ],
        "cholesky_banded": [
            *cases(lambda ab: sl.cholesky_banded(ab, lower=True), (HALF,)),
            *cases(sl.cholesky_banded, (HALF[::-1, [3, 0, 1, 2]],)),
        ],
        "circulant": cases(sl.circulant, (X,)),
        "companion": cases(sl.companion, (X,)),
        "convolution_matrix": variants(
            sl.convolution_matrix, (X,), *[{"n": 5, "mode": mode} for mode in ("full", "same", "valid")]
        ),
        "coshm": cases(sl.coshm, (A,), (C,)),
        "cosm": cases(sl.cosm, (A,), (C,)),
        "det": cases(sl.det, (A,), (T,), (C,), (STACK,)),
        "diagsvd": cases(lambda s: sl.diagsvd(s, 4, 5), (X,)),
        "eig": [
            *cases(sl.eig, (A,), (T,), (C,)),
            *cases(lambda a, b: (lambda w, v: (w, abs(v)))(*sl.eig(a, b)), (A, B)),
            *cases(lambda a: sl.eig(a, left=True), (A,), (T,), (C,)),
            *cases(lambda a: sl.eig(a, right=False), (T,)),
            *cases(lambda a: sl.eig(a, left=True, right=False), (T,)),
            *cases(lambda a, b: sl.eig(a, b, right=False), (A, B)),
        ],
        "eig_banded": [
            *cases(lambda ab: sl.eig_banded(ab, lower=True), (HALF,)),
            *cases(lambda ab: sl.eig_banded(ab, lower=True, eigvals_only=True), (HALF,)),
            *cases(lambda ab: sl.eig_banded(ab, lower=True, select="i", select_range=(1, 2)), (HALF,)),
        ],
        "eigh": [
            *cases(hermitian(lambda a: signed(sl.eigh(a))), (H,)),
            *cases(hermitian(lambda a: signed(sl.eigh(a, subset_by_index=[0, 1]))), (H,)),
            *cases(hermitian(lambda a: signed(sl.eigh(a, driver="evd", lower=False))), (H,)),
            *cases(both(lambda a, b: signed(sl.eigh(a, b))), (H, M)),
            *[
                case
                for k in (2, 3)
                for case in call(both(lambda a, b, k=k: signed(sl.eigh(a, b, type=k))), H, M)
            ],
            *cases(hermitian(lambda a: signed(sl.eigh(a, subset_by_value=[0.0, 2.5]))), (H,)),
            *cases(hermitian(lambda a: sl.eigh(a, eigvals_only=True)), (C,)),
        ],
        "eigh_tridiagonal": [
            *cases(sl.eigh_tridiagonal, (D, off)),
            *cases(lambda d, e: sl.eigh_tridiagonal(d, e, select="i", select_range=(0, 1)), (D, off)),
            *cases(lambda d, e: sl.eigh_tridiagonal(d, e, eigvals_only=True), (D, off)),
        ],
        "eigvals": [*cases(sl.eigvals, (A,), (T,), (C,), (A, B))],
        "eigvals_banded": cases(lambda ab: sl.eigvals_banded(ab, lower=True), (HALF,)),
        "eigvalsh": [
            *cases(hermitian(sl.eigvalsh), (H,), (C,)),
            *cases(both(sl.eigvalsh), (H, M)),
            *cases(hermitian(lambda a: sl.eigvalsh(a, subset_by_index=[1, 2])), (H,)),
        ],
        "eigvalsh_tridiagonal": cases(sl.eigvalsh_tridiagonal, (D, off)),
        "expm": cases(sl.expm, (A,), (T,), (C,), (STACK,), (np.zeros((2, 2)),), (3 * T,)),
        "expm_cond": cases(sl.expm_cond, (A,), rtol=1e-4),
        "expm_frechet": [
            *cases(sl.expm_frechet, (A, B)),
            *cases(lambda a, e: sl.expm_frechet(a, e, compute_expm=False), (A, B)),
        ],
        "fiedler": cases(sl.fiedler, (X,)),
        "fiedler_companion": cases(sl.fiedler_companion, (np.array([1.3, 0.4, -0.7, 0.9]),)),
        "fractional_matrix_power": variants(
            sl.fractional_matrix_power, (A,), *[{"t": t} for t in (0.5, 1.7, -0.3, 2.0, -1.0)]
        ),
        "funm": [
            *cases(lambda a: sl.funm(a, np.exp), (A,), (T,)),
            *cases(lambda a: sl.funm(a, lambda z: z * z + np.sin(z)), (A,)),
        ],
        "hankel": cases(sl.hankel, (X,), (X, Y)),
        "hessenberg": [
            *cases(sl.hessenberg, (T,)),
            *cases(lambda a: sl.hessenberg(a, calc_q=True), (T,), (C,)),
        ],
        "inv": cases(sl.inv, (A,), (C,), (STACK,)),
        "khatri_rao": cases(sl.khatri_rao, (W, T)),
        "ldl": [
            *cases(hermitian(sl.ldl), (H,), (H - 2.3 * np.eye(3),)),
            *cases(hermitian(lambda a: sl.ldl(a, lower=False)), (H,)),
        ],
        "leslie": cases(sl.leslie, (X, R3)),
        "logm": cases(sl.logm, (A,), (B,), (C,), (A - 4 * np.eye(3),)),
        "lstsq": [
            *cases(lambda a, b: sl.lstsq(a, b)[0], (V, Y), (W, X[:2]), (A, R3)),
            *cases(sl.lstsq, (V, Y)),
        ],
        "lu": [
            *cases(sl.lu, (A,), (T,), (W,), (V,), (C,), (np.stack([T, T.T]),)),
            *cases(lambda a: sl.lu(a, permute_l=True), (T,)),
            *cases(lambda a: sl.lu(a, p_indices=True)[1:], (T,)),
        ],
        "lu_factor": cases(lambda a: sl.lu_factor(a)[0], (A,), (T,)),
        "lu_solve": [
            *cases(lambda a, b: sl.lu_solve(sl.lu_factor(a), b), (A, R3), (T, Y), (T, V), (C, R3)),
            *[
                case
                for trans in (1, 2)
                for case in call(lambda a, b, k=trans: sl.lu_solve(sl.lu_factor(a), b, trans=k), T, Y)
            ],
        ],
        "matmul_toeplitz": [
            *cases(sl.matmul_toeplitz, (X, Y), (X, V)),
            *cases(lambda c, r, x: sl.matmul_toeplitz((c, r), x), (X, Y, V)),
        ],
        "matrix_balance": cases(lambda a: sl.matrix_balance(a)[0], (A,), (T * [[1.0, 100.0, 1e4, 10.0]],)),
        "norm": [
            *variants(
                sl.norm, (A,), *[{"ord": p} for p in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)]
            ),
            *variants(sl.norm, (X,), {}, {"ord": 1}, {"ord": 3}),
        ],
        "null_space": cases(lambda a: (lambda z: z @ z.T)(sl.null_space(a)), (W,)),
        "orth": cases(sl.orth, (V,), (A,)),
        "orthogonal_procrustes": cases(sl.orthogonal_procrustes, (V, T[:, :2]), (A, B)),
        "pinv": cases(sl.pinv, (A,), (W,), (V,), (C,)),
        "pinvh": cases(hermitian(sl.pinvh), (H,), (C,)),
        "polar": [
            *cases(sl.polar, (A,), (V,), (W,), (C,)),
            *cases(lambda a: sl.polar(a, side="left"), (A,), (W,), (V,)),
        ],
        "qr": [
            *variants(sl.qr, (A,), {}, {"mode": "r"}, {"mode": "economic"}),
            *cases(lambda a: sl.qr(a, mode="economic"), (V,), (W,), (C,)),
            *cases(lambda a: sl.qr(a, mode="economic", pivoting=True)[:2], (V,), (W,), (T,)),
            *cases(lambda a: sl.qr(a, mode="r", pivoting=True)[0], (T,)),
            *cases(sl.qr, (W,)),
            *cases(lambda a: (lambda q, r: (r, q[:, :2], q[:, 2:] @ q[:, 2:].T))(*sl.qr(a)), (V,)),
        ],
        "qr_delete": [
            *cases(lambda a: sl.qr_delete(*np.linalg.qr(a), 0), (V,)),
            *cases(lambda a: sl.qr_delete(*np.linalg.qr(a), 1, which="col"), (T,), second=False),
        ],
        "qr_insert": [
            *cases(lambda a, u: sl.qr_insert(*np.linalg.qr(a), u, 1)[1], (T, X)),
            *cases(lambda a, u: sl.qr_insert(*np.linalg.qr(a), u, 1, which="col"), (V, X), second=False),
        ],
        "qr_multiply": [
            *cases(sl.qr_multiply, (A, B), (V, A[:, :1] @ Y[None])),
            *cases(lambda a, c: sl.qr_multiply(a, c, mode="left"), (A, B)),
            *cases(lambda a, c: sl.qr_multiply(a, c, pivoting=True)[:2], (A, B)),
        ],
        "qr_update": cases(lambda a, u, v: sl.qr_update(*np.linalg.qr(a), u, v), (T, X, Y), (V, X, Y[:2])),
        "rq": [
            *cases(sl.rq, (A,), (C,)),
            *cases(lambda a: (lambda r, q: (r, q[2:], q[:2].T @ q[:2]))(*sl.rq(a)), (W,)),
            *variants(sl.rq, (W,), {"mode": "economic"}, {"mode": "r"}),
            *variants(sl.rq, (V,), {"mode": "economic"}),
        ],
        "rsf2csf": cases(lambda a: sl.rsf2csf(*sl.schur(a)), (A,)),
        "schur": [
            *cases(sl.schur, (A,), (T,)),
            *cases(invariants(sl.schur), (C,)),
            *cases(invariants(lambda a: sl.schur(a, output="complex")), (T,)),
            *cases(lambda a: sl.schur(a, sort="lhp")[:2], (T,)),
        ],
        "signm": cases(sl.signm, (A - 1.9 * np.eye(3),), (T,)),
        "sinhm": cases(sl.sinhm, (A,), (C,)),
        "sinm": cases(sl.sinm, (A,), (C,)),
        "solve": [
            *cases(sl.solve, (A, R3), (A, R32), (C, R3), (STACK, R32)),
            *cases(lambda a, b: sl.solve((a + a.T) / 2, b, assume_a="sym"), (H, R3)),
            *cases(lambda a, b: sl.solve((a + a.T) / 2, b, assume_a="pos"), (H, R3)),
            *cases(lambda a, b: sl.solve((a + a.conj().T) / 2, b, assume_a="her"), (C, R3)),
            *cases(lambda a, b: sl.solve(np.triu(a), b, assume_a="upper triangular"), (A, R3)),
            *cases(lambda a, b: sl.solve(np.tril(a), b, assume_a="lower triangular"), (A, R3)),
            *cases(lambda a, b: sl.solve(np.diag(np.diag(a)), b, assume_a="diagonal"), (A, R3)),
            *cases(
                lambda a, b: sl.solve(np.triu(np.tril(a, 1), -1), b, assume_a="tridiagonal"),
                (T + 3 * np.eye(4), Y),
            ),
            *cases(
                lambda a, b: sl.solve(np.triu(np.tril(a, 1), -1), b, assume_a="banded"),
                (T + 3 * np.eye(4), Y),
            ),
            *cases(lambda a, b: sl.solve(a, b, transposed=True), (A, R3)),
        ],
        "solve_banded": [
            *cases(lambda ab, b: sl.solve_banded((1, 1), ab, b), (BANDS, Y), (BANDS, V)),
            *cases(
                lambda ab, b: sl.solve_banded((2, 0), ab, b),
                (np.array([[2.0, 1.5, 1.8, 2.2], [0.3, 0.2, -0.4, 0.0], [0.1, 0.6, 0.0, 0.0]]), Y),
            ),
        ],
        "solve_circulant": cases(sl.solve_circulant, (X, Y), (X, V)),
        "solve_continuous_are": [
            *cases(_care, (A, R32, H, S2)),
            *cases(
                lambda a, b, q, r, e, s: sl.solve_continuous_are(a, b, (q + q.T) / 2, (r + r.T) / 2, e, s),
                (A, R32, H, S2, E, 0.1 * R32),
            ),
        ],
        "solve_continuous_lyapunov": cases(sl.solve_continuous_lyapunov, (A, B), (C, B)),
        "solve_discrete_are": [
            *cases(_dare, (A, R32, H, S2)),
            *cases(
                lambda a, b, q, r, e, s: sl.solve_discrete_are(a, b, (q + q.T) / 2, (r + r.T) / 2, e, s),
                (A, R32, H, S2, E, 0.1 * R32),
            ),
        ],
        "solve_discrete_lyapunov": [
            *cases(sl.solve_discrete_lyapunov, (A, B)),
            *variants(sl.solve_discrete_lyapunov, (A, B), {"method": "bilinear"}),
        ],
        "solve_lyapunov": cases(sl.solve_lyapunov, (A, B)),
        "solve_sylvester": cases(sl.solve_sylvester, (A, S2, R32), (C, S2, R32)),
        "solve_toeplitz": [
            *cases(sl.solve_toeplitz, (HALF[0], Y), (HALF[0], V)),
            *cases(lambda c, r, b: sl.solve_toeplitz((c, r), b), (X, Y + [2, 0, 0, 0], V)),
        ],
        "solve_triangular": [
            *variants(
                sl.solve_triangular, (A, R3), {}, {"lower": True}, {"trans": 1}, {"trans": "T", "lower": True}
            ),
            *variants(sl.solve_triangular, (A, R32), {"unit_diagonal": True}, {"trans": 2, "lower": True}),
            *cases(lambda a, b: sl.solve_triangular(a, b, trans="C"), (C, R3), second=False),
        ],
        "solveh_banded": [
            *cases(lambda ab, b: sl.solveh_banded(ab, b, lower=True), (HALF, Y), (HALF, V)),
            *cases(sl.solveh_banded, (HALF[::-1, [3, 0, 1, 2]], Y)),
        ],
        "sqrtm": cases(sl.sqrtm, (A,), (C,), (A - 4 * np.eye(3),), (STACK,)),
        "subspace_angles": cases(sl.subspace_angles, (V, T[:, :2])),
        "svd": [
            *cases(lambda a: sl.svd(a, full_matrices=False), (A,), (W,), (V,), (C[:, :0],)),
            *cases(lambda a: (lambda u, s, vh: (u, s, vh[:2], vh[2:].T @ vh[2:]))(*sl.svd(a)), (W,)),
            *cases(lambda a: sl.svd(a, compute_uv=False), (W,), (C,)),
        ],
        "svdvals": cases(sl.svdvals, (A,), (W,)),
        "tanhm": cases(sl.tanhm, (A,), (C,)),
        "tanm": cases(sl.tanm, (A,), (C,)),
        "toeplitz": cases(sl.toeplitz, (X,), (X, Y)),
    }


NUMPY_CONSTANT = {
    "matrix_rank": cases(np.linalg.matrix_rank, (A,), (W,), (STACK,)),
}
SCIPY_CONSTANT = {
    "bandwidth": cases(sl.bandwidth, (np.triu(A),), (np.tril(np.triu(T, -1), 1),)),
    "ishermitian": cases(sl.ishermitian, (A,), (H,), (C,)),
    "issymmetric": cases(sl.issymmetric, (A,), (H,)),
}
OTHERS = because(
    of_types_and_routines="find_best_blas_type get_blas_funcs get_lapack_funcs",
    makes_a_matrix_of_numbers_from_integers="dft hadamard helmert hilbert invhilbert invpascal pascal",
)
REFUSED = because(
    it_is_random="clarkson_woodruff_transform",
    LAPACK_chooses_the_gauge_of_its_orthogonal_factors="cossin qz ordqz",
)
REFUSALS = {
    "clarkson_woodruff_transform": call(
        lambda a: sl.clarkson_woodruff_transform(a, 2, rng=np.random.default_rng(1)), V
    ),
    "cossin": call(lambda a: sl.cossin(np.linalg.qr(a)[0], p=2, q=2), T),
    "qz": call(sl.qz, A, B),
    "ordqz": call(sl.ordqz, A, B),
}

NUMPY_LINALG = Namespace("numpy.linalg", public_functions(np.linalg), first_twice(_numpy()), NUMPY_CONSTANT)
SCIPY_LINALG = Namespace(
    "scipy.linalg", public_functions(sl), first_twice(_scipy()), SCIPY_CONSTANT, REFUSED, REFUSALS, OTHERS
)
