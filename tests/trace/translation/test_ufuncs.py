"""Ufuncs and classes of Numba with traced arrays: values as NumPy broadcasts them, and derivatives of their code."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba.experimental import jitclass

import gradtape as gt
from gradtape.errors import UnsupportedCodeError, UnsupportedFunctionError


@numba.vectorize
def branching(x: Any, y: Any) -> Any:
    if x > y:
        return x * x * y
    return np.sin(x) * y


@numba.vectorize(["float64(float64)"])
def cube(x: Any) -> Any:
    return x**3


@numba.guvectorize(["void(float64[:],float64,float64[:])"], "(n),()->(n)")
def scaled(x: Any, k: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = x[i] * k * k


@numba.guvectorize(["void(float64[:],float64[:])"], "(n)->()")
def length(x: Any, out: Any) -> None:
    out[0] = 0.0
    for v in x:
        out[0] += v * v


@numba.guvectorize(["void(float64[:],float64[:],float64[:])"], "(),(n)->()")
def nearest(x: Any, points: Any, out: Any) -> None:
    """Take a number as an array of one element, as Numba's manual does."""
    out[0] = np.inf
    for point in points:
        if (x[0] - point) ** 2 < out[0]:
            out[0] = (x[0] - point) ** 2


@numba.guvectorize("(n,m),(m)->(n)")
def product(a: Any, b: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        total = 0.0
        for j in range(b.shape[0]):
            total += a[i, j] * b[j]
        out[i] = total


def into(a: Any, b: Any) -> Any:
    out = np.empty(a.shape[:-1])
    product(a, b, out)
    return out


X = np.array([0.5, 2.0])
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "elements": (branching, (X, X[::-1].copy())),
    "broadcast": (lambda x, y: branching(x[:, None], y), (X, np.array([0.1, 0.7, 1.5]))),
    "a number": (branching, (0.7, 0.3)),
    "a constant": (lambda x: branching(x, 0.3) + cube(np.arange(2)), (X,)),
    "with signatures": (cube, (X,)),
    "no elements": (cube, (X[:0],)),
    "rows": (lambda x: scaled(x, np.array([[2.0], [3.0]])), (X,)),
    "a number per row": (lambda x: length(x) * length(x[0]), (np.arange(6.0).reshape(2, 3) + 1,)),
    "a number as an array": (nearest, (np.array([0.2, 1.4]), np.array([[0.0, 1.0, 2.5]]))),
    "an output": (into, (np.arange(12.0).reshape(2, 2, 3), np.arange(3.0))),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_derivatives(case: str) -> None:
    function, args = CASES[case]
    expected = function(*args)
    found = gt.jit(function)(*args)
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    gt.check_grads(function, args, order=2)
    batch = gt.vmap(function)(*[np.stack([np.asarray(x)] * 2) for x in args])
    np.testing.assert_allclose(batch[1], expected, rtol=1e-14)


def test_on_a_tape() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = cube(x)
    np.testing.assert_allclose(tape.gradient(y, x), 3 * X**2, rtol=1e-14)


def test_integers_are_cast_as_by_the_signature() -> None:
    found = gt.jit(lambda n: cube(n))(np.arange(3))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, cube(np.arange(3)))


def test_methods_and_keywords_are_refused_with_the_remedy() -> None:
    for function in (lambda x: branching.reduce(x), lambda x: cube(x, where=x > 1)):
        with pytest.raises(UnsupportedFunctionError, match="supported"):
            gt.jit(function)(X)


@jitclass([("k", numba.float64)])
class Spring:
    def __init__(self, k: Any) -> None:
        self.k = k

    def energy(self, x: Any) -> Any:
        return 0.5 * self.k * np.sum(x * x)


def test_methods_of_a_jitclass_are_refused_with_the_remedy() -> None:
    spring = Spring(2.0)
    for function in (lambda x: spring.energy(x), lambda x: Spring(x[0]).energy(X)):
        with pytest.raises(UnsupportedCodeError, match=r"jitclass Spring(.|\n)*@numba\.njit"):
            gt.grad(function)(X)
    np.testing.assert_array_equal(gt.grad(lambda x: spring.k * np.sum(x))(X), [2.0, 2.0])


@numba.vectorize
def kelvin(celsius: Any) -> Any:
    return celsius + 273.15


@numba.vectorize
def vapour_pressure(celsius: Any, humidity: Any) -> Any:
    if celsius < -100.0 or celsius > 200.0:
        raise ValueError("out of range")
    t = kelvin(celsius)
    return humidity * np.exp(-5800.2206 / t + 1.3914993 - 0.048640239 * t + 6.5459673 * np.log(t))


@numba.vectorize
def halved(n: Any) -> Any:
    return n // 2


@numba.vectorize
def with_half_of_seven(x: Any) -> Any:
    return halved(7) + x


@numba.vectorize
def rounded_quarter(x: Any) -> Any:
    return x / 4 if x > 1 else x + 1.75


@numba.vectorize
def with_quarter_of_nine(x: Any) -> Any:
    return rounded_quarter(9) * x


@numba.njit
def kelvin_of_all(x: Any) -> Any:
    return kelvin(x)


@pytest.mark.parametrize("transform", [lambda f: f, gt.jit])
def test_ufuncs_that_call_others_with_numbers(transform: Any) -> None:
    f = transform(lambda t: np.sum(vapour_pressure(t, np.array([0.5, 0.7]))))
    t = np.array([25.0, 31.0])
    value, slope = gt.value_and_grad(f)(t)
    np.testing.assert_allclose(value, np.sum(vapour_pressure(t, np.array([0.5, 0.7]))), rtol=1e-13)
    e = 1e-4
    for k in range(2):
        step = e * np.eye(2)[k]
        difference = (f(t + step) - f(t - step)) / (2 * e)
        np.testing.assert_allclose(slope[k], difference, rtol=1e-7)
    with pytest.raises(ValueError, match="out of range"):
        gt.grad(lambda t: vapour_pressure(t, 0.5))(300.0)


def test_integers_of_ufuncs_are_cast_where_numba_casts_them() -> None:
    assert gt.grad(with_half_of_seven)(3.3) == 1.0
    assert gt.value_and_grad(with_half_of_seven)(3.3)[0] == with_half_of_seven(3.3) == 6.3
    assert rounded_quarter(0.5) == 2.25  # compiled for floats, to which 9 is cast
    assert gt.value_and_grad(with_quarter_of_nine)(1.0)[0] == with_quarter_of_nine(1.0)


@numba.njit
def tail(x: Any) -> Any:
    if x < 0.0:
        return 1.0 - tail(-x)
    return np.exp(-x)


@numba.vectorize
def tails(x: Any) -> Any:
    return tail(x)


@numba.njit
def counted_down(x: Any, steps: Any) -> Any:
    return x if steps < 0.5 else counted_down(2.0 * x, steps - 1.0)


@numba.njit
def spelt(x: Any) -> Any:
    return float(str(x))


def test_code_that_cannot_be_translated_is_run() -> None:
    x = np.array([1.5, -0.7, -2.0])
    slopes = -np.exp(-np.abs(x))
    for function in (lambda x: tails(x), lambda x: np.stack([tail(each) for each in x])):
        value, jacobian = function(x), gt.jacobian(function)
        for point in (x, -x, x):  # the trace of one point is not that of another
            np.testing.assert_allclose(np.diag(jacobian(point)), slopes, rtol=1e-13)
        with gt.GradientTape() as tape:
            watched = tape.watch(x)
            y = function(watched)
        np.testing.assert_allclose(y, value, rtol=1e-13)
        np.testing.assert_allclose(tape.gradient(y, watched), slopes, rtol=1e-13)
    np.testing.assert_allclose(gt.grad(lambda x: np.sum(kelvin_of_all(x) ** 2))(x), 2.0 * (x + 273.15))
    for steps in (3.0, 50.0):
        assert gt.grad(counted_down)(1.0, steps) == 2.0**steps


def test_what_neither_way_can_follow_is_refused_with_the_place() -> None:
    with pytest.raises(UnsupportedCodeError, match="spelt"):
        gt.grad(spelt)(1.5)
