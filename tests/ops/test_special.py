"""`scipy.special`: derivatives that are integrals over wide ranges, complex functions compiled, results by ufuncs of several results."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from scipy.integrate import quad

import gradtape as gt
from gradtape.errors import NotDifferentiableError, UnsupportedFunctionError

Function = Callable[..., Any]


def slope(function: Function, argnum: int, *args: Any) -> Any:
    """Return the derivative of a function of numbers in one of them."""
    return gt.grad(lambda *xs: function(*xs), argnums=argnum)(*args)


@pytest.mark.parametrize(
    ("a", "x"),
    [(0.02, 1e-9), (0.05, 0.7), (0.5, 0.01), (1.0, 30.0), (40.0, 25.0), (900.0, 950.0), (1e4, 1.01e4)],
)
def test_incomplete_gamma_in_its_parameter(a: float, x: float) -> None:
    """The reference is the integral of the density times ``log(t) - psi(a)``, in u = log(t), to the side without cancellation."""
    psi, level = sp.psi(a), np.log(x)

    def integrand(u: float) -> float:
        return float(np.exp(a * u - np.exp(u) - sp.gammaln(a)) * (u - psi))

    if level < psi or x < 0.5:
        peak = min(level, np.log(a))
        far = peak - 60.0 * (1.0 / a + 1.0 / np.sqrt(a))
        expected = sum(
            quad(integrand, *part, epsabs=0, epsrel=1e-12, limit=500)[0] for part in pieces(far, level)
        )
    else:
        far = max(level, np.log(a)) + 60.0 / np.sqrt(a) + 5.0
        expected = -sum(
            quad(integrand, *part, epsabs=0, epsrel=1e-12, limit=500)[0] for part in pieces(level, far)
        )
    assert slope(sp.gammainc, 0, a, x) == pytest.approx(expected, rel=1e-8, abs=1e-14)
    assert slope(sp.gammaincc, 0, a, x) == pytest.approx(-expected, rel=1e-8, abs=1e-14)


def pieces(low: float, high: float) -> list[tuple[float, float]]:
    marks = np.linspace(low, high, 41)
    return list(zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True))


@pytest.mark.parametrize(
    ("a", "b", "x"),
    [
        (0.05, 3.0, 1e-6),
        (0.5, 0.5, 0.99),
        (3.0, 0.05, 0.9),
        (80.0, 120.0, 0.41),
        (2000.0, 10.0, 0.995),
        (1.5, 400.0, 0.001),
    ],
)
def test_incomplete_beta_in_its_parameters(a: float, b: float, x: float) -> None:
    mean, level = sp.psi(a) - sp.psi(a + b), float(sp.logit(x))

    def integrand(u: float) -> float:
        return float(
            np.exp(a * u - (a + b) * np.logaddexp(0.0, u) - sp.betaln(a, b)) * (-np.logaddexp(0.0, -u) - mean)
        )

    width = 40.0 * (1.0 / a + 1.0)
    expected = sum(
        quad(integrand, *part, epsabs=0, epsrel=1e-12, limit=500)[0]
        for part in pieces(min(level, 0.0) - width, level)
    )
    if abs(expected) > 1e-9:
        assert slope(sp.betainc, 0, a, b, x) == pytest.approx(expected, rel=1e-6)
    assert slope(sp.betainc, 1, b, a, 1.0 - x) == pytest.approx(-slope(sp.betainc, 0, a, b, x), rel=1e-9)


@pytest.mark.parametrize(
    ("a", "x", "expected"),
    [
        (1e-5, 0.5, -0.5597794622765575),
        (1e-8, 1e-3, -6.3315389796816063),
        (1e-12, 0.7, -0.37376884323407855),
        (1e-160, 1e-160, -367.83639921414578),
        (0.09, 0.79, -0.36157772849162806),
    ],
)
def test_incomplete_gamma_in_a_small_parameter(a: float, x: float, expected: float) -> None:
    """By mpmath. Nearly all of the density is near 0, where ``log(t) - psi(a)`` cancels."""
    np.testing.assert_allclose(slope(sp.gammainc, 0, a, x), expected, rtol=4e-15)
    np.testing.assert_allclose(slope(sp.gammaincc, 0, a, x), -expected, rtol=4e-15)
    np.testing.assert_allclose(slope(sp.chdtr, 0, 2 * a, 2 * x), 0.5 * expected, rtol=4e-15)
    np.testing.assert_allclose(gt.jvp(lambda a: sp.gammainc(a, x), (a,), (1.0,))[1], expected, rtol=4e-15)


@pytest.mark.parametrize(
    ("a", "b", "x", "expected"),
    [
        (1e-05, 2.5, 0.05, -1.7898666453986795),
        (1e-08, 1.0, 0.1, -2.3025850399750651),
        (1e-12, 0.5, 0.001, -8.2935494524257207),
        (1e-05, 2.5, 0.08, -1.364136113978929),
        (0.09, 3.0, 0.06, -1.3290659583676601),
    ],
)
def test_incomplete_beta_in_a_small_parameter(a: float, b: float, x: float, expected: float) -> None:
    """By mpmath."""
    np.testing.assert_allclose(slope(sp.betainc, 0, a, b, x), expected, rtol=2e-14)
    np.testing.assert_allclose(slope(sp.betaincc, 0, a, b, x), -expected, rtol=2e-14)
    np.testing.assert_allclose(gt.jvp(lambda a: sp.betainc(a, b, x), (a,), (1.0,))[1], expected, rtol=2e-14)


def test_the_series_of_the_incomplete_gamma_function_meets_the_quadrature() -> None:
    """At the border of where each is used, up to the second derivative."""
    for a, x in ((0.1, 0.4), (0.05, 0.8)):
        for order in (1, 2):
            derivative = functools.reduce(lambda f, _: gt.grad(f), range(order), sp.gammainc)
            low, high = a * (1 - 1e-9), x * (1 - 1e-9)
            np.testing.assert_allclose(derivative(low, high), derivative(a, x), rtol=1e-7)


def test_orders_of_bessel_functions_at_zero() -> None:
    """DLMF 10.15.3 ff., 10.38.4: at order 0 the derivatives are other Bessel functions."""
    for x in (0.02, 0.7, 3.0, 9.0, 45.0, 120.0):
        assert slope(sp.jv, 0, 0.0, x) == pytest.approx(0.5 * np.pi * sp.y0(x), rel=1e-9, abs=1e-11)
        assert slope(sp.yv, 0, 0.0, x) == pytest.approx(-0.5 * np.pi * sp.j0(x), rel=1e-9, abs=1e-11)
        assert slope(sp.ive, 0, 0.0, x) == pytest.approx(-sp.k0e(x) * np.exp(-2 * x), rel=1e-9, abs=1e-14)
        assert slope(sp.kve, 0, 0.0, x) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("v", [-1.4, 0.5, 3.0, 17.3, 60.0])
@pytest.mark.parametrize("x", [0.3, 6.0, 25.0, 70.0])
def test_orders_of_bessel_functions(v: float, x: float) -> None:
    for function in (sp.jv, sp.yv, sp.iv, sp.kv, sp.ive, sp.kve):
        h = 1e-3
        near, far = [(function(v + s, x) - function(v - s, x)) / (2 * s) for s in (h / 2, h)]
        scale = max(abs(function(v, x)), 1e-12)
        if np.isfinite(scale) and scale < 1e200:
            found = slope(function, 0, v, x)
            assert abs(found - (4 * near - far) / 3) <= 1e-7 * max(scale, abs(found)), function.__name__


def test_orders_out_of_range_are_nan() -> None:
    assert np.isnan(slope(sp.jv, 0, 2.0, 400.0))
    assert np.isnan(slope(sp.ive, 0, 300.0, 1000.0))


Z = np.array([0.4 + 0.3j, 1.2 - 0.5j, -0.8 + 0.9j])


@pytest.mark.parametrize(
    "function",
    [
        sp.wofz,
        sp.lambertw,
        lambda z: sp.lambertw(z, -1),
        lambda z: sp.hankel1(0.7, z),
        lambda z: sp.hankel2e(1.3, z),
    ],
)
def test_complex_functions_are_compiled(function: Function) -> None:
    compiled = gt.jit(function)
    np.testing.assert_allclose(compiled(Z), function(Z), rtol=1e-12)
    assert "interpreter" not in str(gt.inspect.explain(compiled))
    h = 1e-5
    expected = (function(Z + h) - function(Z - h)) / (2 * h)
    found = gt.jacobian(function, holomorphic=True)(Z)
    np.testing.assert_allclose(np.diag(found), expected, rtol=1e-7)


def test_several_results_and_whole_orders_are_compiled() -> None:
    x = np.array([0.3, 1.1, 2.4])
    n = np.array([0, 2, 5])

    def all_of(x: Any) -> Any:
        return (
            *sp.airy(x),
            *sp.ellipj(x, 0.4),
            *sp.kelvin(x),
            sp.eval_legendre(n, x / 3),
            sp.spherical_jn(n, -x),
            sp.kn(n, x),
        )

    compiled = gt.jit(all_of)
    for found, expected in zip(compiled(x), all_of(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert "interpreter" not in str(gt.inspect.explain(compiled))
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        total = sum(np.sum(np.real(part)) for part in all_of(watched))
    np.testing.assert_allclose(
        tape.gradient(total, watched),
        gt.grad(lambda x: sum(np.sum(np.real(p)) for p in all_of(x)))(x),
        rtol=1e-10,
    )


def test_complex_results_of_a_python_number() -> None:
    """Two parts that are Python numbers, and so have no dtype, make a complex number."""
    slope = gt.grad(lambda x: np.real(sp.modfresnelp(x)[0]))(0.7)
    np.testing.assert_allclose(slope, -np.cos(0.49))


def test_float32_stays() -> None:
    x = np.array([0.3, 1.1, 2.4], np.float32)
    for function in (
        sp.airy,
        sp.fresnel,
        sp.k0,
        lambda x: sp.gammainc(np.float32(1.5), x),
        lambda x: sp.jv(np.float32(0.5), x),
    ):
        expected = function(x)
        found = gt.jit(function)(x)
        for one, other in zip(np.atleast_2d(found), np.atleast_2d(expected), strict=True):
            assert one.dtype == other.dtype == np.float32
            np.testing.assert_allclose(one, other, rtol=2e-6)
    slopes = gt.grad(lambda a: np.sum(sp.gammainc(a, x)))(np.float32(1.5))
    assert slopes.dtype == np.float32
    double = gt.grad(lambda a: np.sum(sp.gammainc(a, x.astype(float))))(1.5)
    assert slopes == pytest.approx(double, rel=1e-5)


def test_batches_of_derivatives_in_parameters() -> None:
    a, x = np.array([0.7, 1.9, 4.0]), np.array([0.5, 2.5, 3.0])
    each = gt.grad(sp.gammainc)
    np.testing.assert_allclose(
        gt.vmap(each)(a, x), [each(p, q) for p, q in zip(a.tolist(), x.tolist(), strict=True)], rtol=1e-12
    )


def test_edges_of_incomplete_functions_have_derivatives() -> None:
    assert slope(sp.gammainc, 0, 2.0, 0.0) == 0.0
    assert slope(sp.gammainc, 0, 2.0, np.inf) == 0.0
    assert slope(sp.betainc, 0, 2.0, 3.0, 0.0) == slope(sp.betainc, 1, 2.0, 3.0, 1.0) == 0.0


def test_what_has_no_derivative_says_so() -> None:
    with pytest.raises(NotDifferentiableError, match="struve in its argument v"):
        gt.grad(lambda v: sp.struve(v, 1.2))(0.5)
    with gt.GradientTape() as tape:
        n = tape.watch(0.5)
        value = sp.hyp1f1(n, 1.5, 0.3)
    with pytest.raises(NotDifferentiableError, match="closed formula"):
        tape.gradient(value, n)
    with pytest.raises(UnsupportedFunctionError, match="ellip_harm"):
        gt.jit(lambda s: sp.ellip_harm(1.0, 2.0, 1, 1, s))(1.5)
    with pytest.raises(NotDifferentiableError, match="holomorphic"):
        gt.grad(lambda z: np.real(sp.ive(0.5, z)))(0.3 + 0.2j)


@pytest.mark.parametrize(
    ("function", "point", "slope"),
    [
        # a principal value for p < 0: differences
        (lambda p: sp.elliprj(0.3, 1.0, 2.0, p), -0.7, None),
        (lambda x: sp.elliprj(x, 1.0, 2.0, -0.7), 0.3, None),
        (lambda x: sp.struve(1.0, x), -1.3, None),
        (lambda x: sp.it2struve0(x), 0.0, -2.0 / np.pi),
        (lambda v: sp.iv(v, 1.3), -2.3, None),
        (lambda v: sp.ive(v, 1.3), -2.0, None),
        (lambda v: sp.jv(v, 0.0), 1.2, 0.0),
        (sp.zetac, -1e-9, -0.91893853),
        (lambda power: sp.boxcox(0.0, power), 2.0, 0.25),
        (lambda x: sp.powm1(x, -1.0), -3.3, None),
        # SciPy truncates orders
        (lambda x: sp.kn(1.5, x), 0.8, None),
        (lambda x: sp.yn(0.7, x), 0.8, None),
        (lambda x: sp.expn(2.5, x), 0.8, None),
        # where SciPy's searches end the results are constant
        (lambda p: sp.pdtrik(p, 1.3), 0.1, 0.0),
        (lambda p: sp.stdtridf(p, 0.2), 0.8, 0.0),
        (sp._ufuncs._log1mexp, -0.3, None),
    ],
)
def test_derivatives_at_edges(function: Function, point: float, slope: float | None) -> None:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        step = 1e-5 * max(1.0, abs(point))
        difference = (function(point + step) - function(point - step)) / (2 * step)
        with gt.GradientTape() as tape:
            x = tape.watch(np.array(point))
            y = function(x)
        found = np.asarray(tape.gradient(y, x))
    if point not in (0.0, 2.0) or slope is None:
        np.testing.assert_allclose(found, difference, rtol=1e-5, atol=1e-9)
    if slope is not None:
        np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: sp.spherical_kn(np.arange(2), x),
        lambda x: sp.spherical_jn(np.arange(2), x),
        lambda x: sp.legendre_p_all(2, x, diff_n=1),
        lambda x: sp.assoc_legendre_p_all(2, 1, x),
        lambda x: sp.sph_legendre_p_all(2, 1, x),
        lambda x: sp.sph_harm_y_all(2, 1, x, x),
    ],
)
def test_sequences_have_the_dtypes_of_scipy(function: Any) -> None:
    x = np.array([0.3, 0.5], np.float32)
    assert gt.jit(function)(x).dtype == function(x).dtype
    np.testing.assert_allclose(gt.jit(function)(x), function(x), rtol=1e-5)


def test_carlsons_integrals_at_an_argument_0() -> None:
    rows = gt.hessian(lambda v: sp.elliprg(v[0], v[1], v[2]))(np.array([0.0, 1.0, 2.0]))
    assert rows[0, 0] == -np.inf
    mixed = [-sp.elliprd(0.0, 2.0, 1.0) / 24.0, -sp.elliprd(0.0, 1.0, 2.0) / 24.0]
    np.testing.assert_allclose(rows[0, 1:], mixed, rtol=1e-12)
    assert gt.grad(gt.grad(lambda x: sp.elliprd(x, 1.0, 2.0)))(0.0) == np.inf
    np.testing.assert_allclose(
        gt.grad(lambda v: sp.elliprg(v[0], v[1], v[2]))(np.array([1.0, 0.0, 2.0]))[[0, 2]],
        [
            sp.elliprf(1.0, 0.0, 2.0) / 4 - sp.elliprd(0.0, 2.0, 1.0) / 12,
            sp.elliprf(1.0, 0.0, 2.0) / 4 - sp.elliprd(0.0, 1.0, 2.0) / 6,
        ],
        rtol=1e-12,
    )
