"""`scipy.linalg`: what the coverage table does not say. Maps are loops, errors are SciPy's, and equal eigenvalues do no harm."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg as sl

import gradtape as gt
from tests.support.differences import gradient_by_differences

A = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, -0.4], [0.6, 0.1, 1.8]])
B = np.array([[0.7, 0.2], [-0.4, 0.5], [1.3, -0.6]])
ONE = np.eye(3)
E = np.array([[0.3, -0.2, 0.1], [-0.2, 0.4, 0.5], [0.1, 0.5, -0.1]])

MAPPED: dict[str, Callable[[Any], Any]] = {
    "expm": sl.expm,
    "logm": sl.logm,
    "sqrtm": sl.sqrtm,
    "cosm": sl.cosm,
    "eigvals": lambda a: np.real(sl.eigvals(a)),
    "schur": lambda a: sl.schur(a)[0],
    "lu": lambda a: sl.lu(a)[2],
    "qr with pivots": lambda a: sl.qr(a, pivoting=True)[1],
    "null space": lambda a: abs(sl.null_space(a[:2])),
    "least squares": lambda a: sl.lstsq(a[:, :2], a[:, 2])[0],
    "toeplitz": lambda a: sl.solve_toeplitz(a[0] + np.array([3, 0, 0], np.float32), a),
    "lyapunov": lambda a: sl.solve_discrete_lyapunov(0.3 * a, a),
    "eigh by index": lambda a: sl.eigh(a @ a.T, subset_by_index=[0, 1])[0],
}


@pytest.mark.parametrize("name", MAPPED)
def test_a_map_is_a_loop(name: str) -> None:
    function = MAPPED[name]
    stack = np.stack([A, A.T @ A, 1.1 * A])

    def total(a: Any) -> Any:
        return np.sum(function(a) * np.cos(np.arange(function(A).size)).reshape(function(A).shape))

    np.testing.assert_allclose(gt.vmap(total)(stack), [total(a) for a in stack], rtol=1e-10)
    gradients = gt.jit(gt.vmap(gt.grad(total)))(stack)
    np.testing.assert_allclose(gradients, [gt.grad(total)(a) for a in stack], rtol=1e-8, atol=1e-10)


@pytest.mark.filterwarnings("ignore:logm result may be inaccurate")
@pytest.mark.parametrize("name", [name for name in MAPPED if name != "null space"])
def test_single_precision(name: str) -> None:
    function = MAPPED[name]
    single = A.astype(np.float32)
    made = gt.jit(function)(single)
    # SciPy returns some in double precision; of logarithms it keeps imaginary parts that are rounding.
    assert np.finfo(made.dtype).dtype == np.finfo(function(single).dtype).dtype
    np.testing.assert_allclose(
        abs(made), abs(function(A)), rtol=2e-3, atol=2e-4
    )  # signs of vectors may be others


@pytest.mark.parametrize("way", [lambda f: f, gt.jit, lambda f: gt.grad(lambda a: np.sum(f(a)))])
@pytest.mark.parametrize(
    ("function", "bad", "error"),
    [
        (lambda a: sl.solve(a, np.ones(3)), np.zeros((3, 3)), np.linalg.LinAlgError),
        (lambda a: sl.solve_toeplitz(a[0], a[1]), np.zeros((3, 3)), np.linalg.LinAlgError),
        (lambda a: sl.solve_banded((1, 1), a, a[0]), np.zeros((3, 3)), np.linalg.LinAlgError),
        (lambda a: sl.solve_banded((1, 2), a, a[0]), np.ones((3, 3)), ValueError),
        (lambda a: sl.solveh_banded(a, a[0], lower=True), -np.ones((2, 3)), np.linalg.LinAlgError),
        (lambda a: sl.solve_circulant(a[0], a[1]), np.zeros((3, 3)), np.linalg.LinAlgError),
        (lambda a: sl.companion(a[0]), np.zeros((3, 3)), ValueError),
        (sl.logm, np.ones((2, 3)), ValueError),
        (
            lambda a: sl.solve_continuous_are(a, a, a, a),
            np.zeros((3, 3)),
            (np.linalg.LinAlgError, ValueError),
        ),
        (lambda a: sl.eigh(a, subset_by_index=[0, 3])[0], ONE, ValueError),
    ],
)
def test_errors_are_scipys(way: Any, function: Any, bad: Any, error: Any) -> None:
    for _ in range(2):
        with pytest.raises(error):
            way(function)(bad)


BANDS = np.array([[0.0, 1.0, 1.0], [4.0, 4.0, 4.0], [1.0, 1.0, 0.0]])
SCALES = np.array([1.0, 4.0, 8.0])


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    "function",
    [
        lambda ab, b, check: sl.solve_banded((1, 1), ab, b, check_finite=check),
        lambda ab, b, check: sl.solveh_banded(ab[:2], b, check_finite=check),
        lambda ab, b, check: sl.solve_toeplitz(ab[1] / SCALES, b, check_finite=check),
        lambda ab, b, check: sl.solve_toeplitz((ab[1], ab[1] / SCALES), b, check_finite=check),
        lambda ab, b, check: sl.cho_solve_banded((ab[:2], False), b, check_finite=check),
    ],
)
def test_numbers_that_are_not_finite_are_checked_as_scipy_checks_them(
    mapped: bool, function: Any, place: int
) -> None:
    given = [BANDS.copy(), np.array([1.0, 2.0, 3.0])]
    given[place][(1, 1) if place == 0 else 1] = np.nan
    with pytest.raises(ValueError, match="must not contain infs or NaNs"):
        function(*given, True)
    stacks = [np.stack([x, x]) for x in given] if mapped else given
    way: Any = gt.vmap if mapped else gt.jit
    with pytest.raises(ValueError, match="must not contain infs or NaNs"):
        way(lambda ab, b: function(ab, b, True))(*stacks)
    made = way(lambda ab, b: function(ab, b, False))(*stacks)
    np.testing.assert_array_equal(made[1] if mapped else made, function(*given, False))
    slopes = gt.grad(lambda b: np.sum(function(given[0], b, False)))(given[1])
    assert np.all(np.isnan(slopes)) or place == 1  # the matrix alone decides


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (sl.sqrtm, 0.5),
        (sl.logm, 1.0),
        (sl.expm, np.e),
        (lambda a: sl.fractional_matrix_power(a, 0.3), 0.3),
        (lambda a: sl.polar(a)[1], 1.0),
    ],
)
def test_functions_of_the_identity_have_exact_derivatives(function: Any, slope: float) -> None:
    """By Daleckii and Krein, the derivative at the identity is f'(1) in all directions."""
    np.testing.assert_allclose(gt.jvp(function, (ONE,), (E,))[1], slope * E, rtol=1e-9, atol=1e-9)

    def second(t: Any) -> Any:
        return np.sum(E * function(ONE + t * E))

    h = 1e-4
    expected = (second(h) - 2 * second(0.0) + second(-h)) / h**2
    assert np.isclose(gt.grad(gt.grad(second))(0.0), expected, rtol=1e-4, atol=1e-4)


def test_programs_with_complex_matrices_are_compiled() -> None:
    def power(a: Any) -> Any:
        q, r = np.linalg.qr(a + 1j * a.T)
        return np.sum(np.abs(sl.expm(q) @ np.linalg.inv(r)) ** 2) + np.sum(np.abs(np.linalg.eigvals(a)))

    compiled = gt.jit(gt.grad(power))
    gt.check_grads(power, (A,), order=2)
    np.testing.assert_allclose(compiled(A), gt.grad(power)(A), rtol=1e-10)
    assert "interpreter" not in str(gt.inspect.explain(compiled))


def test_eigenvalues_are_real_or_complex_as_numpys() -> None:
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    compiled = gt.jit(np.linalg.eigvals)
    for matrix in (A, turn, A):
        assert compiled(matrix).dtype == np.linalg.eigvals(matrix).dtype
        np.testing.assert_allclose(compiled(matrix), np.linalg.eigvals(matrix), rtol=1e-12, atol=1e-12)
    assert gt.vmap(np.linalg.eigvals)(np.stack([A, turn])).dtype == complex


def test_the_null_space_of_a_matrix_without_full_rank_is_followed() -> None:
    def projector(a: Any) -> Any:
        z = sl.null_space(np.outer(a, a) + 0.0 * ONE)
        return z @ z.T

    a = np.array([0.3, -0.7, 1.1])
    step = np.array([0.2, 0.5, -0.4])
    h = 1e-6
    expected = (projector(a + h * step) - projector(a - h * step)) / (2 * h)
    np.testing.assert_allclose(gt.jvp(projector, (a,), (step,))[1], expected, rtol=1e-6, atol=1e-8)


def test_what_is_not_followed_says_why() -> None:
    for function in (lambda a: sl.qz(a, a), lambda a: sl.cossin(a, p=1, q=1)):
        with pytest.raises(gt.errors.UnsupportedFunctionError, match="what to do"):
            gt.jit(function)(A)


def test_dtypes_of_single_precision() -> None:
    a = A.astype(np.float32)

    def all_of(a: Any) -> Any:
        norms = [sl.norm(a, order) for order in (None, 1, 2, np.inf)]
        solutions = [*np.linalg.lstsq(a, a[0], rcond=None), *sl.lstsq(a, a[0])]
        return [*solutions, *norms, sl.norm(a[0]), sl.norm(a[0], 1), *sl.lu(a), sl.lu(a * 1j)[0]]

    for found, expected in zip(gt.jit(all_of)(a), all_of(a), strict=True):
        assert np.asarray(found).dtype == np.asarray(expected).dtype


def test_one_function_computes_exponentials_of_matrices_of_any_size() -> None:
    """How often an exponential is squared is part of the program: another norm asks for another one."""
    function, slope = gt.jit(sl.expm), gt.grad(lambda a: np.sum(sl.expm(a)))
    for scale in (0.1, 10.0, 0.1, 1e-5):
        x = scale * np.array([[0.1, 2.0], [-3.0, 0.05]])
        np.testing.assert_allclose(function(x), sl.expm(x), rtol=1e-10)
        wanted: Any = sl.expm_frechet(x.T, np.ones((2, 2)), compute_expm=False)
        np.testing.assert_allclose(slope(x), wanted, rtol=1e-9, atol=1e-12 * abs(wanted).max())


BADLY_SCALED = [
    np.array([[0.0, 1e10], [0.0, 0.0]]),
    np.array([[1.0, 1e6], [0.0, -1.0]]),
    np.array([[0.1, 3.0, 1e3], [0.0, 0.2, -1e2], [0.0, 0.0, 0.4]]),
]


@pytest.mark.parametrize("x", BADLY_SCALED)
def test_exponentials_of_badly_scaled_matrices_keep_their_digits(x):
    """By their norms they would be halved, and squared, up to 32 times, as `sl.expm_frechet` does."""
    np.testing.assert_allclose(gt.jit(sl.expm)(x), sl.expm(x), rtol=1e-13)
    slope = gt.grad(lambda a: np.sum(sl.expm(a)))(x)
    for i, j in np.ndindex(x.shape):
        direction = np.zeros(x.shape)
        direction[i, j] = 1.0
        both = sl.expm(np.block([[x, direction], [np.zeros(x.shape), x]]))
        assert slope[i, j] == pytest.approx(np.sum(both[: len(x), len(x) :]), rel=1e-9)


@pytest.mark.parametrize("size", [1e3, 1e10, 1e20])
@pytest.mark.parametrize("shape", ["upper", "lower", "diagonal", "stack", "complex"])
def test_the_exponential_of_a_large_triangular_matrix_keeps_its_digits(size: float, shape: str) -> None:
    """Squaring doubled the errors of the exponentials of the diagonal: at 1e20 all results were 0."""
    x: Any = np.array([[-size, 1.0, 0.5], [0.0, -2.0, 0.3], [0.0, 0.0, 0.0]])
    x = {
        "lower": x.T,
        "diagonal": np.diag(np.diag(x)),
        "stack": np.stack([x, x / 3.0]),
        "complex": x + 0j,
    }.get(shape, x)
    wanted = np.vectorize(sl.expm, signature="(n,n)->(n,n)")(x)
    for function in (
        gt.jit(sl.expm),
        gt.jit(lambda a: gt.value_and_grad(lambda b: np.sum(abs(sl.expm(b))))(a)[0]),
    ):
        got = function(x)
        np.testing.assert_allclose(got, wanted if got.shape else np.sum(abs(wanted)), rtol=1e-14)


def test_derivatives_of_the_exponential_of_a_large_diagonal_matrix_are_divided_differences() -> None:
    values = np.array([-1e12, -2.0, 0.0])
    steps = values[:, None] - values + np.eye(3)
    slopes = np.where(np.eye(3) == 1, np.exp(values), (np.exp(values)[:, None] - np.exp(values)) / steps)
    wanted = np.einsum("ik,jl,ij->ijkl", np.eye(3), np.eye(3), slopes)
    for jacobian in (gt.jacfwd, gt.jacrev):
        np.testing.assert_allclose(jacobian(sl.expm)(np.diag(values)), wanted, rtol=1e-14, atol=1e-30)
    mapped = gt.vmap(gt.grad(lambda a: np.sum(sl.expm(a))))(np.stack([np.diag(values)] * 2))
    np.testing.assert_allclose(mapped[1], slopes, rtol=1e-14, atol=1e-30)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_exponentials_of_matrices_that_are_not_finite_are_no_numbers(number: float) -> None:
    for function in (sl.expm, gt.jit(sl.expm)):
        with np.errstate(invalid="ignore"):
            assert not np.isfinite(function(np.array([[number, 0.0], [0.0, 0.0]]))[0, 0])


@pytest.mark.parametrize("bands", [(0, 0), (1, 1), (2, 1), (0, 2), (2, 0)], ids=str)
def test_systems_in_bands_in_every_way(bands: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    lower, upper = bands
    ab, b = rng.uniform(0.5, 1.0, (lower + upper + 1, 5)), rng.standard_normal((5, 2))
    ab[upper] += 3.0

    def solve(ab: Any, b: Any) -> Any:
        return sl.solve_banded(bands, ab, b)

    whole: Any = sum(np.diag(ab[upper - k, max(k, 0) : 5 + min(k, 0)], k) for k in range(-lower, upper + 1))
    wanted = np.linalg.solve(whole, b)
    for found in (gt.jit(solve)(ab, b), gt.vmap(solve)(np.stack([ab, ab]), np.stack([b, b]))[1]):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    of_b = gt.grad(lambda b: np.sum(solve(ab, b)))(b)
    np.testing.assert_allclose(of_b, np.linalg.solve(whole.T, np.ones((5, 2))), rtol=1e-12)
    backward, forward = gt.jacrev(solve)(ab, b), gt.jacfwd(solve)(ab, b)
    np.testing.assert_allclose(backward, forward, rtol=1e-10, atol=1e-13)
    full = -np.einsum(
        "ik,jl->ijkl", np.linalg.inv(whole), wanted.T
    )  # of x[i, j] by the entry (k, l) of the matrix
    for row in range(lower + upper + 1):
        for column in range(5):
            entry = row - upper + column
            slope = full[:, :, entry, column] if 0 <= entry < 5 else 0.0
            np.testing.assert_allclose(backward[:, :, row, column], slope, atol=1e-12)


def stationary(rates: Any) -> Any:
    """Return the distribution of a Markov chain that stays the same, by the factors of its generator, whose last pivot is zero."""
    generator = rates - np.diag(np.sum(rates, axis=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed, _ = sl.lu_factor(generator.T, check_finite=False)
    left = sl.solve_triangular(packed[:-1, :-1], -packed[:-1, -1])
    weights = np.append(left, 1.0)
    return weights / np.sum(weights)


def test_factors_of_a_matrix_whose_last_pivot_is_zero_have_derivatives() -> None:
    rates = np.array([[0.0, 2.0, 3.0], [1.0, 0.0, 4.0], [2.0, 1.5, 0.0]])
    seeds = np.array([1.0, -2.0, 0.5])

    def total(rates: Any) -> Any:
        return np.sum(seeds * stationary(rates) ** 2)

    slope = gradient_by_differences(total, rates)
    np.testing.assert_allclose(gt.grad(total)(rates), slope, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(gt.jvp(total, (rates,), (rates,))[1], np.sum(slope * rates), atol=1e-8)
    hessian = gt.hessian(total)(rates)
    np.testing.assert_allclose(hessian, np.transpose(hessian, (2, 3, 0, 1)), atol=1e-10)
    np.testing.assert_allclose(hessian, gt.jacfwd(gt.jacfwd(total))(rates), atol=1e-10)
    with gt.GradientTape() as tape:
        x = tape.watch(rates)
        y = total(x)
    np.testing.assert_allclose(tape.gradient(y, x), slope, rtol=1e-5, atol=1e-8)


def test_triangular_systems_that_are_singular_are_refused_by_the_interpreter() -> None:
    t = np.array([[1.0, 2.0], [0.0, 0.0]])
    for options in ({}, {"trans": 1}, {"lower": True}):
        with (
            pytest.raises(np.linalg.LinAlgError, match="resolution failed at diagonal 1"),
            gt.GradientTape() as tape,
        ):
            float(np.sum(sl.solve_triangular(tape.watch(t), np.ones(2), **options)))
    with gt.GradientTape() as tape:
        x = sl.solve_triangular(tape.watch(t), np.ones(2), unit_diagonal=True)
    np.testing.assert_array_equal(x, [-1.0, 1.0])
