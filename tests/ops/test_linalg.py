"""Programs with functions of `numpy.linalg`: values, and derivatives to the second order."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import gradtape as gt
from tests.support.programs.matrices import STACK, A, Array, B, Function, bent, check_program, definite

PROGRAMS: dict[str, tuple[Function, tuple[Array, ...]]] = {
    "solve a vector": (lambda a, b: bent(np.linalg.solve(a, b)), (A, B[:, 0])),
    "solve columns": (lambda a, b: bent(np.linalg.solve(a, b)), (A, B)),
    "solve a stack": (lambda a, b: bent(np.linalg.solve(a, b)), (STACK, B[:3])),
    "solve a transpose": (lambda a, b: bent(np.linalg.solve(a.T, b)), (A, B)),
    "solve twice": (lambda a, b: bent(np.linalg.solve(a, np.linalg.solve(a, b))), (A, B)),
    "inv": (lambda a: bent(np.linalg.inv(a)), (A,)),
    "inv of a stack": (lambda a: bent(np.linalg.inv(a)), (STACK,)),
    "det": (np.linalg.det, (A,)),
    "det of three": (lambda a: bent(np.linalg.det(a)), (STACK,)),
    "det of negative sign": (lambda a: np.linalg.det(a[::-1]), (A,)),
    "slogdet": (lambda a: np.linalg.slogdet(a)[1] * np.linalg.slogdet(a).sign, (A,)),
    "slogdet of a stack": (lambda a: bent(np.linalg.slogdet(a).logabsdet), (STACK,)),
    "cholesky": (lambda a: bent(np.linalg.cholesky(definite(a))), (A,)),
    "cholesky of a stack": (lambda a: bent(np.linalg.cholesky(definite(a))), (STACK,)),
    "cholesky, upper": (lambda a: bent(np.linalg.cholesky(definite(a), upper=True)), (A,)),
    "eigvalsh": (lambda a: bent(np.linalg.eigvalsh(definite(a))), (A,)),
    "eigh": (lambda a: bent(np.linalg.eigh(definite(a)).eigenvectors ** 2), (A,)),
    "eigh of a stack": (lambda a: bent(np.linalg.eigh(definite(a))[1] ** 2), (STACK,)),
    "eigh, upper": (lambda a: bent(np.linalg.eigh(definite(a), "U")[1][0] ** 2), (A,)),
    "svd": (
        lambda a: bent(np.linalg.svd(a, full_matrices=False)[0] ** 2) + bent(np.linalg.svd(a).S),
        (A,),
    ),
    "svd of a tall matrix": (lambda a: sum(bent(part**2) for part in np.linalg.svd(a, False)), (A[:, :2],)),
    "svd of wide matrices": (
        lambda a: sum(bent(part**2) for part in np.linalg.svd(a, False)),
        (STACK[:, :2],),
    ),
    "nuclear norm and condition": (lambda a: np.linalg.norm(a, "nuc") + np.linalg.cond(a), (A[:, :3],)),
    "pinv": (lambda a: bent(np.linalg.pinv(a)), (A[:, :2],)),
    "pinv of wide matrices": (lambda a: bent(np.linalg.pinv(a)), (STACK[:, :2],)),
    "pinv of an orthogonal matrix": (lambda a: bent(np.linalg.pinv(a)), (np.eye(3)[[2, 0, 1]],)),
    "lstsq": (
        lambda a, b: bent(np.linalg.lstsq(a, b)[0]) + np.sum(np.linalg.lstsq(a, b)[1]),
        (A[:, :2], B),
    ),
    "lstsq of too few equations": (lambda a, b: bent(np.linalg.lstsq(a, b)[0]), (A[:2], B[:2, 0])),
    "qr": (lambda a: sum(bent(part) for part in np.linalg.qr(a)), (A,)),
    "qr of tall matrices": (lambda a: sum(bent(part) for part in np.linalg.qr(a)), (STACK[:, :, :2],)),
    "qr of a wide matrix": (lambda a: bent(np.linalg.qr(a, "r")), (A[:2],)),
    "matrix_power": (lambda a: bent(np.linalg.matrix_power(a, -2)), (A,)),
}


@pytest.mark.parametrize(("function", "args"), PROGRAMS.values(), ids=PROGRAMS)
def test_values_and_derivatives(function: Function, args: tuple[Array, ...]) -> None:
    check_program(function, args)


def test_wrong_arguments_are_explained() -> None:
    three, four = np.eye(3), np.ones(4)
    page = r"of shape \(3, 3\)[\s\S]*test_linalg\.py[\s\S]*one row for each row"
    for solve in (
        lambda a, b: np.linalg.solve(a, b),
        lambda a, b: scipy.linalg.solve(a, b),
        lambda a, b: scipy.linalg.solve_triangular(a, b),
        lambda a, b: scipy.linalg.cho_solve((a, True), b),
    ):
        with pytest.raises(gt.errors.ShapeError, match=page):
            gt.jit(solve)(three, four)
    with pytest.raises(gt.errors.ArgumentError, match=r"norm is 'orto'[\s\S]*\"ortho\""):
        gt.jit(lambda x: np.fft.fft(x, norm="orto"))(four)
    with pytest.raises(gt.errors.ArgumentError, match="transform of 0 numbers"):
        gt.jit(lambda x: np.fft.fft(x, n=0))(four)
    with pytest.raises(gt.errors.ArgumentError, match=r"copy=False[\s\S]*np\.asarray"):
        gt.jit(lambda x: np.array(x, dtype=np.float32, copy=False))(four)
    assert gt.jit(lambda x: np.array(x, copy=False))(four).tolist() == four.tolist()


@pytest.mark.parametrize("dtype", ["f4", "F"])
@pytest.mark.parametrize(
    "function",
    [
        scipy.linalg.det,
        scipy.linalg.expm_cond,
        lambda a: scipy.linalg.expm_frechet(a, a)[1],
        lambda a: scipy.linalg.solve_discrete_lyapunov(a / 4, a),
        lambda a: scipy.linalg.solve_toeplitz(a[0], a[1]),
        lambda a: scipy.linalg.solve_continuous_are(a, a, a + a.conj().T, np.eye(2)),
    ],
)
def test_what_scipy_returns_in_double_precision_only(function, dtype):
    a = np.array([[2.0, 0.3], [0.1, 1.5]]).astype(dtype)
    found, expected = gt.jit(function)(a), function(a)
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("p", [None, 2, -2])
def test_matrices_of_zeros_have_an_infinite_condition(p) -> None:
    stack = np.stack([A, 0.0 * A])
    for function in (lambda a: np.linalg.cond(a, p), gt.jit(lambda a: np.linalg.cond(a, p))):
        np.testing.assert_allclose(function(stack), np.linalg.cond(stack, p), rtol=1e-12)
    np.testing.assert_allclose(
        gt.vmap(lambda a: np.linalg.cond(a, p))(stack), np.linalg.cond(stack, p), rtol=1e-12
    )
    assert not np.any(gt.grad(lambda a: np.linalg.cond(a, p))(0.0 * A))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_no_least_squares_of_infinite_matrices_are_made_up() -> None:
    """NumPy's routine does not converge; the solution was 0."""
    infinite = np.where(np.eye(3) * [0, 1, 0] == 1, np.inf, np.arange(9.0).reshape(3, 3) ** 1.5)
    try:
        found = gt.jit(lambda a: np.linalg.lstsq(a, np.ones(3), rcond=None)[0])(infinite)
    except np.linalg.LinAlgError:
        return
    assert np.isnan(found).all()


@pytest.mark.parametrize("p", [1, -1, np.inf, -np.inf, "fro"])
def test_the_condition_of_singular_matrices(p):
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    cases = [
        singular,
        np.zeros((2, 2)),
        np.stack([singular, np.eye(2)]),
        singular.astype(np.float32),
        singular + 0j,
    ]
    for a in [*cases, np.array([[1.0, np.nan], [0.0, 1.0]])]:
        np.testing.assert_allclose(gt.jit(lambda a: np.linalg.cond(a, p))(a), np.linalg.cond(a, p), rtol=1e-6)
    regular = np.array([[1.0, 2.0], [3.0, 4.0]])
    gt.check_grads(lambda a: np.linalg.cond(a, p), (regular,), order=2)
