"""Polynomials with traced coefficients: zeros at the ends, operators of `numpy.poly1d`, constants beside traced operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.interpolate

import gradtape as gt
from tests.support.differences import gradient_by_differences

C = np.array([1.2, -0.7, 0.5, 0.9])
D = np.array([0.4, 1.1, -0.8])

POLY1D: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda p, q: p + q,
    "add number": lambda p, q: (p + 2.0) * q - 1.0,
    "sub": lambda p, q: p - q,
    "mul": lambda p, q: p * q * 0.5,
    "div": lambda p, q: (p / q)[0] + (p / q)[1],
    "neg": lambda p, q: -p - q,
    "pow": lambda p, q: q**3 + p,
    "composition": lambda p, q: p(q),
    "deriv and integ": lambda p, q: p.deriv() + q.integ(2, 0.3),
    "functions": lambda p, q: np.polysub(np.polyadd(p, q), np.polymul(q, [1.0, 2.0])) + np.polydiv(p, q)[0],
}


@pytest.mark.parametrize("operation", POLY1D.values(), ids=POLY1D)
def test_poly1d(operation: Callable[[Any, Any], Any]) -> None:
    def value(c: Any) -> Any:
        made = operation(np.poly1d(c), np.poly1d(D))
        assert type(made) is np.poly1d
        return np.sum(np.sin(made.coeffs)) + made(0.3)

    expected = gradient_by_differences(value, C)
    np.testing.assert_allclose(gt.jit(value)(C), value(C), rtol=1e-12)
    np.testing.assert_allclose(gt.grad(value)(C), expected, rtol=1e-6, atol=1e-7)
    with gt.GradientTape() as tape:
        c = tape.watch(C)
        y = value(c)
    np.testing.assert_allclose(tape.gradient(y, c), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "c", [[0.0, 0.0, 1.0, 2.0, 0.0], [1.0, 2.0], [0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [3.0]], ids=str
)
def test_zeros_at_the_ends_are_cut_off_as_numpy_does(c: list[float]) -> None:
    """One compiled function serves vectors with different numbers of zeros."""
    x = np.array(c)
    for trim in ("fb", "f", "b"):
        np.testing.assert_array_equal(
            gt.jit(lambda x, trim=trim: np.trim_zeros(x, trim))(x), np.trim_zeros(x, trim)
        )
    np.testing.assert_array_equal(
        np.trim_zeros(gt.jit(np.polymul)(x, D), "f"), np.trim_zeros(np.polymul(x, D), "f")
    )
    np.testing.assert_array_equal(
        gt.jit(np.polynomial.polynomial.polytrim)(x), np.polynomial.polynomial.polytrim(x)
    )
    assert np.isclose(gt.jit(lambda x: np.poly1d(x)(0.3))(x), np.poly1d(x)(0.3))


def test_traced_coefficients_that_are_zero_have_derivatives() -> None:
    """NumPy cuts them off, and their derivative would be lost."""
    zeros = np.zeros(3)
    powers = np.array([0.09, 0.3, 1.0])
    for function, expected in (
        (lambda c: np.poly1d(c)(0.3), powers),
        (lambda c: (np.poly1d(c) * np.poly1d([2.0, 1.0]))(0.3), 1.6 * powers),
        (lambda c: (np.poly1d([2.0, 1.0]) + np.poly1d(c))(0.3), powers),
        (lambda c: np.polynomial.Polynomial(c)(0.3), powers[::-1]),
        (lambda c: (np.polynomial.Polynomial(c) + 2.0)(0.3), powers[::-1]),
        (lambda c: (np.polynomial.Polynomial([1.0]) - np.polynomial.Polynomial(c))(0.3), -powers[::-1]),
        (
            lambda c: (np.polynomial.Polynomial(c) * np.polynomial.Polynomial([1.0, 2.0]))(0.3),
            1.6 * powers[::-1],
        ),
        (lambda c: scipy.interpolate.lagrange([0.0, 1.0, 2.0], c)(0.3), np.array([0.595, 0.51, -0.105])),
    ):
        np.testing.assert_allclose(gt.grad(function)(zeros), expected, atol=1e-12)
        with gt.GradientTape() as tape:
            c = tape.watch(zeros)
            y = function(c)
        np.testing.assert_allclose(tape.gradient(y, c), expected, atol=1e-12)


def test_divisions_and_roots_cut_leading_zeros_off() -> None:
    c = np.array([1.0, 2.0, 0.0])
    quotient, rest = gt.jit(np.polynomial.polynomial.polydiv)(np.array([1.0, 3.0, 2.0]), c)
    expected = np.polynomial.polynomial.polydiv(np.array([1.0, 3.0, 2.0]), c)
    np.testing.assert_allclose(quotient, expected[0])
    np.testing.assert_allclose(rest, expected[1], atol=1e-12)


def test_a_count_of_zeros_is_guarded() -> None:
    function = gt.jit(lambda x: np.trim_zeros(x) * 2)
    for x in ([1.0, 2.0, 0.0], [0.0, 2.0, 0.0], [1.0, 2.0, 3.0], [4.0, 5.0, 0.0]):
        np.testing.assert_array_equal(function(np.array(x)), np.trim_zeros(np.array(x)) * 2)


@pytest.mark.parametrize("kind", ["Polynomial", "Chebyshev", "Legendre", "Hermite", "HermiteE", "Laguerre"])
def test_longer_constant_operands(kind: str) -> None:
    """The package copies the longer operand, which is not traced, and adds the other one to it."""
    series = getattr(np.polynomial, kind)

    def value(c: Any) -> Any:
        p = series([1.0, 2.0, -1.0, 0.5, 0.3, 0.2])
        return np.sum((p + series(c)).coef ** 2) + (p - series(c))(0.4) + (series(c) * p)(0.2)

    expected = gradient_by_differences(value, D)
    np.testing.assert_allclose(gt.grad(value)(D), expected, rtol=1e-6, atol=1e-7)
    with gt.GradientTape() as tape:
        c = tape.watch(D)
        y = value(c)
    np.testing.assert_allclose(tape.gradient(y, c), expected, rtol=1e-6, atol=1e-7)


def test_integer_coefficients() -> None:
    ints = np.array([1, 0, 3])
    made = gt.jit(np.polymul)(ints, np.array([0, 2]))
    expected = np.polymul(ints, np.array([0, 2]))
    np.testing.assert_array_equal(made, expected)
    assert made.dtype == expected.dtype


def test_polynomials_under_vmap() -> None:
    batch = np.stack([C, 2 * C, C + 0.3])
    for function in (
        lambda c: np.polynomial.chebyshev.chebval(0.3, c),
        lambda c: np.polynomial.Polynomial(c).deriv()(0.2),
        lambda c: np.polymul(c, D),
        lambda c: (np.polynomial.Polynomial(c) + np.polynomial.Polynomial(D))(0.2),
    ):
        np.testing.assert_allclose(gt.vmap(function)(batch), [function(c) for c in batch], rtol=1e-12)


PAIR = [0.3 + 0.7j, 0.3 - 0.7j]


@pytest.mark.parametrize(
    "zeros",
    [
        np.array([[-0.5, 0.2], [-0.3, -0.8]]),  # a real matrix with complex eigenvalues
        np.array([[0.5, 0.2], [0.3, 0.8]]),
        np.array([[0.5, 0.2j], [0.3, 0.8]]),
        np.array(PAIR),
        np.array([*PAIR, 1.3]),
        np.array([0.3 + 0.7j, 0.3 - 0.6j]),
        np.array([0.5 + 0j, 1.5]),
    ],
)
def test_coefficients_are_real_where_those_of_numpy_are(zeros):
    expected = np.poly(zeros)
    compiled = gt.jit(np.poly)
    with gt.GradientTape() as tape:
        taped = np.poly(tape.watch(zeros))

    for found in (compiled(zeros), np.asarray(taped)):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    other = zeros + (1j if zeros.ndim == 1 else 0.1)  # no pairs: traced anew where the answer changes
    assert compiled(other).dtype == np.poly(other).dtype
    np.testing.assert_allclose(compiled(other), np.poly(other), rtol=1e-12, atol=1e-14)
