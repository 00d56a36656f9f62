"""`scipy.linalg` and other functions of SciPy that are written in Python, under whatever name they are known."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.fftpack
import scipy.linalg as sla
import scipy.special
from numpy import array, full, zeros
from scipy.special import logsumexp, softmax
from scipy.stats import norm

import gradtape as gt
from tests.support.programs.matrices import A, Array, B, Function, bent, check_program, definite

PROGRAMS: dict[str, tuple[Function, tuple[Array, ...]]] = {
    "solve_triangular": (lambda a, b: bent(sla.solve_triangular(a, b)), (A, B)),
    "solve_triangular, lower": (lambda a, b: bent(sla.solve_triangular(a, b, lower=True)), (A, B[:, 0])),
    "solve_triangular, turned": (lambda a, b: bent(sla.solve_triangular(a, b, trans="T")), (A, B)),
    "solve_triangular, unit": (
        lambda a, b: bent(sla.solve_triangular(a, b, 1, lower=True, unit_diagonal=True)),
        (A, B),
    ),
    "cho_solve": (lambda a, b: bent(sla.cho_solve(sla.cho_factor(definite(a)), b)), (A, B)),
    "cho_solve, lower": (
        lambda a, b: bent(sla.cho_solve(sla.cho_factor(definite(a), lower=True), b)),
        (A, B[:, 0]),
    ),
    "sla.cholesky": (lambda a: bent(sla.cholesky(definite(a))), (A,)),
    "sla.solve": (lambda a, b: bent(sla.solve(a, b, transposed=True)), (A, B)),
    "sla.solve, positive": (lambda a, b: bent(sla.solve(definite(a), b, assume_a="pos")), (A, B)),
    "sla.eigh of two": (
        lambda a, b: bent(sla.eigh(a + a.T, definite(b))[0]) + bent(sla.eigh(a + a.T, definite(b))[1] ** 2),
        (A, A[::-1].copy()),
    ),
    "sla.eigvalsh": (lambda a: bent(sla.eigvalsh(definite(a), subset_by_index=(1, 2))), (A,)),
    "expm": (lambda a: bent(sla.expm(0.1 * a)), (A,)),
    "expm of a large matrix": (lambda a: bent(sla.expm(a) / 50), (4 * np.sin(A),)),
    "sla.det, inv and norm": (lambda a: sla.det(a) + bent(sla.inv(a)) + sla.norm(a), (A,)),
}


@pytest.mark.parametrize(("function", "args"), PROGRAMS.values(), ids=PROGRAMS)
def test_values_and_derivatives(function: Function, args: tuple[Array, ...]) -> None:
    check_program(function, args)


X = np.array([[0.3, -1.2, 2.0], [1.0, 0.5, -0.7]])

OTHERS: dict[str, Function] = {
    "logsumexp": lambda x: bent(logsumexp(x, axis=1, keepdims=True)) + scipy.special.logsumexp(x),
    "softmax": lambda x: bent(softmax(x, axis=-1)) + bent(scipy.special.log_softmax(x, 0)),
    "pdf": lambda x: bent(norm.pdf(x, 0.5, 2.0)) + bent(norm.logpdf(x)),
    "cdf": lambda x: bent(norm.cdf(x)) + bent(norm.logcdf(x, scale=2.0)) + bent(norm.sf(x) + norm.logsf(x)),
    "ppf": lambda x: bent(norm.ppf(scipy.special.expit(x), loc=x)),
    "fft": lambda x: bent(scipy.fft.fft(x).real) + bent(scipy.fft.irfft(x, n=5, axis=0)),
    "fft2": lambda x: bent(scipy.fft.ifft2(x).imag) + bent(scipy.fft.rfftn(x).real),
}


@pytest.mark.parametrize("function", OTHERS.values(), ids=OTHERS)
def test_other_functions(function: Function) -> None:
    check_program(function, (X,))


def test_complex_systems() -> None:
    z = A + 1j * A[::-1] / 3
    hermitian = z @ z.conj().T + np.eye(4)
    for function, x in (
        (lambda a: sla.solve_triangular(a, B, trans="C"), z),
        (lambda a: sla.cho_solve(sla.cho_factor(a), B), hermitian),
        (lambda a: sla.eigh(a, hermitian, eigvals_only=True), hermitian),
        (sla.expm, z / 4),
    ):
        np.testing.assert_allclose(gt.jit(function)(x), function(x), rtol=1e-8, atol=1e-9)


def test_logarithms_of_sums_with_signs() -> None:
    factors = np.array([1.0, -0.4, -2.0])
    for x in (X, X + 1j * X**2):
        expected = logsumexp(x, b=factors, return_sign=True)
        found = gt.jit(lambda x: logsumexp(x, b=factors, return_sign=True))(x)
        np.testing.assert_allclose(found, expected)


# Names


def by_imported_names(x: Any) -> Any:
    y = zeros(3)
    y[0] = x[0]
    pair = array([x[1], 2.0])
    return np.sum(y) * np.sum(pair) + full(2, x[2]).sum()


def test_names_that_were_imported_by_themselves() -> None:
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(gt.grad(by_imported_names)(x), [4.0, 1.0, 2.0])
    assert gt.jit(by_imported_names)(x) == by_imported_names(x) == 10.0
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        y = by_imported_names(watched)
    np.testing.assert_allclose(tape.gradient(y, watched), [4.0, 1.0, 2.0])


def test_methods_partials_and_callable_objects_know_their_module() -> None:
    class Model:
        def method(self, x: Any) -> Any:
            return by_imported_names(x)

        __call__ = method

    for function in (Model().method, Model(), functools.partial(by_imported_names)):
        np.testing.assert_allclose(gt.grad(function)(np.array([1.0, 2.0, 3.0])), [4.0, 1.0, 2.0])


def test_modules_that_the_users_module_uses(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "model_of_the_users.py").write_text(
        "from numpy import zeros\nfrom scipy.special import logsumexp\n"
        "def f(x):\n    y = zeros(2)\n    y[1] = logsumexp(x)\n    return y.sum()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import model_of_the_users  # type: ignore[import-not-found]

    wanted = softmax(np.arange(3.0))
    np.testing.assert_allclose(gt.grad(lambda x: model_of_the_users.f(x))(np.arange(3.0)), wanted)
    np.testing.assert_allclose(gt.grad(model_of_the_users.f)(np.arange(3.0)), wanted)


def test_functions_of_scipy_do_what_they_do_with_plain_arrays() -> None:
    with gt.GradientTape():
        assert type(logsumexp(X)) is type(scipy.special.logsumexp(X))
        np.testing.assert_array_equal(norm.cdf(X), 1 - norm.sf(X))
        np.testing.assert_array_equal(sla.cholesky(np.ones((1, 1)) * 4), [[2.0]])


@pytest.mark.parametrize("make", [np.array, np.asarray, np.asanyarray, np.ascontiguousarray])
def test_an_array_of_a_traced_array_is_traced(make: Function) -> None:
    def function(x: Any) -> Any:
        y = getattr(np, make.__name__)(x)
        z = getattr(np, make.__name__)(x, dtype=np.float32)
        assert z.dtype == np.float32
        return np.sum(y * z)

    np.testing.assert_allclose(gt.grad(function)(np.arange(3.0)), 2 * np.arange(3.0))
    copied = gt.jit(lambda x: np.array(x))
    x = np.arange(3.0)
    assert not np.shares_memory(copied(x), x)


@pytest.mark.parametrize("name", ["dct", "idct", "dst", "idst"])
def test_cosine_and_sine_transforms_of_fftpack(name: str) -> None:
    transform, x = getattr(scipy.fftpack, name), np.random.default_rng(3).normal(size=(2, 6))
    for options in (
        {},
        {"type": 1},
        {"type": 3, "norm": "ortho"},
        {"type": 4, "axis": 0},
        {"n": 4, "norm": "ortho"},
        {"type": 2, "n": 8},
    ):
        plain = transform(x, **options)
        value, slope = gt.jvp(lambda x, options=options: transform(x, **options), (x,), (x,))
        np.testing.assert_allclose(value, plain, atol=1e-13)
        np.testing.assert_allclose(slope, plain, atol=1e-13)  # it is linear
        weights = np.cos(np.arange(plain.size)).reshape(plain.shape)
        gradient = gt.grad(lambda x, options=options, w=weights: np.sum(w * transform(x, **options)))(x)
        np.testing.assert_allclose(np.sum(gradient * x), np.sum(weights * plain), rtol=1e-12)
    with pytest.raises(ValueError, match="invalid type 5"):
        gt.jit(lambda x: transform(x, type=5))(x)


@pytest.mark.parametrize("name", ["fft", "ifft", "fft2", "ifft2", "fftn", "ifftn"])
def test_transforms_of_fftpack(name: str) -> None:
    transform, x = getattr(scipy.fftpack, name), np.random.default_rng(3).normal(size=(3, 4))
    several = name not in ("fft", "ifft")
    for options in ({}, {"shape": (2, 5)}, {"axes": (0, 1)}) if several else ({}, {"n": 6}, {"axis": 0}):
        plain = transform(x, **options)
        weights = np.cos(np.arange(plain.size)).reshape(plain.shape) * (1 + 0.5j)

        def total(x: Any, options: Any = options, weights: Any = weights) -> Any:
            return np.sum(np.real(weights * transform(x, **options)))

        np.testing.assert_allclose(
            gt.jit(transform, static_argnames=tuple(options))(x, **options), plain, atol=1e-14
        )
        np.testing.assert_allclose(np.sum(gt.grad(total)(x) * x), total(x), rtol=1e-12)  # it is linear
        np.testing.assert_allclose(gt.jvp(total, (x,), (x,))[1], total(x), rtol=1e-12)


@pytest.mark.parametrize("function", [softmax, scipy.special.log_softmax, logsumexp])
def test_infinities_as_scipy_treats_them(function: Any) -> None:
    inf = np.inf
    for x in ([inf, 1.0], [inf, inf], [-inf, 1.0], [-inf, -inf], [inf, -inf], [np.nan, 1.0], [1e308, -1e308]):
        with np.errstate(all="ignore"):
            expected = function(np.array(x))
        np.testing.assert_allclose(gt.jit(function)(np.array(x)), expected, rtol=1e-15)
        np.testing.assert_array_equal(gt.jacrev(function)(np.array(x)), gt.jacfwd(function)(np.array(x)))


@pytest.mark.parametrize("diagonal", [(-1e20, 0.0), (0.0, -1e20), (-50.0, 50.0)])
def test_derivatives_of_exponentials_of_triangular_matrices(diagonal: Any) -> None:
    """The derivative of the other exponential, which is a divided difference."""
    low, high = diagonal
    expected = (np.exp(high) - np.exp(low)) / (high - low)
    lower, direction = np.array([[low, 0.0], [1.0, high]]), np.array([[0.0, 0.0], [1.0, 0.0]])

    derivative = gt.jit(lambda a, e: sla.expm_frechet(a, e)[1])
    np.testing.assert_allclose(derivative(lower, direction)[1, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(derivative(lower.T, direction.T)[0, 1], expected, rtol=1e-12)


def test_exponentials_of_lower_and_upper_matrices_in_one_map() -> None:
    lower, direction = np.array([[-5.0, 0.0], [1.0, 5.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])
    matrices, directions = np.stack([lower, lower.T]), np.stack([direction, direction.T])
    made = gt.vmap(lambda a, e: sla.expm_frechet(a, e)[1])(matrices, directions)
    np.testing.assert_allclose(
        made, [sla.expm_frechet(*pair)[1] for pair in zip(matrices, directions, strict=True)]
    )
