"""gt.taylor: all orders at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gradtape as gt

RNG = np.random.default_rng(5)
A = RNG.normal(size=(3, 3)) + 4 * np.eye(3)
X, V = RNG.normal(size=3), RNG.normal(size=3)


def nested(function: Any, x: Any, v: Any, order: int) -> list[Any]:
    """Return coefficients by forward mode over forward mode."""
    found = []
    for k in range(order + 1):
        found.append(gt.jit(function)(x) / math.factorial(k))
        function = lambda x, inner=function: gt.jvp(inner, (x,), (v,))[1]  # noqa: E731
    return found


@gt.custom_jvp
def sine(x: Any) -> Any:
    return np.sin(x)


sine.defjvp(lambda primals, tangents: (np.sin(primals[0]), np.cos(primals[0]) * tangents[0]))


def rolled_loop(x: Any) -> Any:
    total = x * 1.0
    for _ in range(1000):
        total = total + 0.001 * np.sin(total)
    return total


PROGRAMS: dict[str, Any] = {
    "products": lambda x: (A * x) @ (A + x) @ x,
    "square of a matrix": lambda x: (A * x) @ (A * x),
    "solve": lambda x: np.linalg.solve(A + np.outer(x, x), np.cos(x)),
    "inv": lambda x: np.linalg.inv(A * np.exp(x)),
    "det": lambda x: np.linalg.det(A + np.sin(x)),
    "cholesky": lambda x: np.linalg.cholesky(A @ A.T + np.outer(x, x)),
    "eigvalsh": lambda x: np.linalg.eigvalsh(A + A.T + np.outer(x, x)),
    "extrema": lambda x: np.maximum(x, x**2) + np.max(x) * np.sort(x),
    "where": lambda x: np.where(x > 0, np.sqrt(np.abs(x)), x**3),
    "einsum": lambda x: np.einsum("i,ij,j->", x, A * x, np.exp(x)),
    "fft": lambda x: np.abs(np.fft.fft(x)),
    "cumprod": lambda x: np.cumprod(x) * np.prod(x),
    "scan": lambda x: gt.scan(lambda c, e: (np.sin(c) * e + c, c * c), x, np.arange(3.0) / 3 + x[0])[1],
    "while": lambda x: gt.while_loop(lambda c: np.sum(c**2) < 50, lambda c: c * 1.5 + np.sin(c), x),
    "fori": lambda x: gt.fori_loop(0, 5, lambda i, c: c * np.cos(c) + x * i, x),
    "cond": lambda x: gt.cond(x[0] > 0, np.sin, lambda x: np.exp(x) * x[0], x),
    "convolve": lambda x: np.convolve(x, np.exp(x)),
    "power": lambda x: np.abs(x) ** x + 2.0**x,
    "index": lambda x: x[[0, 2]] * x[::-1][:2],
    "complex": lambda x: np.real(np.exp(1j * x) / (x + 2j)),
    "square of a kink": lambda x: np.abs(x - X) ** 2,
    "checkpoint": gt.checkpoint(lambda x: np.sin(x) * x),
    "custom_jvp": lambda x: sine(x * x),
    "loop of Python": rolled_loop,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_nested_forward_mode(name: str) -> None:
    function = PROGRAMS[name]
    order = 3
    series = gt.taylor(function, X, V, order)
    assert len(series) == order + 1
    for mine, theirs in zip(series, nested(function, X, V, order), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)


def test_twelve_orders() -> None:
    """In Fractions: the series of exp(-t**2) sin(3t) / (1 + t**4) at 0."""
    from fractions import Fraction

    def times(a: list[Fraction], b: list[Fraction]) -> list[Fraction]:
        return [sum((a[i] * b[k - i] for i in range(k + 1)), Fraction(0)) for k in range(13)]

    zero = Fraction(0)
    exp = [Fraction((-1) ** (k // 2), math.factorial(k // 2)) if k % 2 == 0 else zero for k in range(13)]
    sin = [Fraction((-1) ** (k // 2) * 3**k, math.factorial(k)) if k % 2 else zero for k in range(13)]
    geometric = [Fraction((-1) ** (k // 4)) if k % 4 == 0 else zero for k in range(13)]
    expected = [float(c) for c in times(times(exp, sin), geometric)]
    actual = gt.taylor(lambda x: np.exp(-(x**2)) * np.sin(3 * x) / (1 + x**4), 0.0, 1.0, 12)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


def test_size_grows_with_a_power_of_the_order() -> None:
    """By nested derivatives it would be multiplied with each order."""
    from gradtape.ir.graph import Value, extract
    from gradtape.transforms.taylor.sweep import taylor
    from tests.support.graphs import input_like

    def count(order: int) -> int:
        x = input_like(np.ones(()))
        from gradtape.ops.core.elementwise.exponential import exp, sin

        y: Value = exp(-x * x) * sin(x * 3.0) / (x * x * x * x + 1.0)
        (series,) = taylor([y], [x], [[input_like(np.ones(()))]], order, lambda value: False)
        return len(extract([part for part in series if part is not None])[0])

    assert count(16) < 5 * count(8)


def test_nests_of_arguments_and_results() -> None:
    def function(p: Any) -> Any:
        return {"product": p["a"] * p["b"][0], "fixed": np.arange(2), "count": np.argmax(p["a"])}

    x = {"a": np.array([1.0, 2.0]), "b": (3.0,)}
    v = {"a": np.array([1.0, 0.0]), "b": (2.0,)}
    series = gt.taylor(function, x, v, 3)
    np.testing.assert_array_equal(series["product"], [[3, 6], [5, 4], [2, 0], [0, 0]])
    np.testing.assert_array_equal(series["fixed"], [[0, 1], [0, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(series["count"], [1, 0, 0, 0])


def test_paths() -> None:
    """The series of a composition: exp along t + t**2 - t**3."""
    actual = gt.taylor(np.exp, 0.0, 1.0, 4, higher=[1.0, -1.0])
    inner = gt.taylor(lambda t: np.exp(t + t**2 - t**3), 0.0, 1.0, 4)
    np.testing.assert_allclose(actual, inner, rtol=1e-14)


def test_other_transforms_apply() -> None:
    def third(x: Any) -> Any:
        return gt.taylor(np.sin, x, 1.0, 3)[3]

    assert np.isclose(gt.grad(third)(0.4), np.sin(0.4) / 6)
    np.testing.assert_allclose(gt.vmap(third)(np.array([0.1, 0.4])), -np.cos([0.1, 0.4]) / 6)
    assert np.isclose(gt.grad(lambda s: gt.taylor(lambda x: s * x**2, 3.0, 1.0, 2)[1])(2.0), 6.0)
    inner = gt.taylor(lambda x: gt.taylor(lambda y: np.exp(x * y), 1.0, 1.0, 1)[1], 0.5, 1.0, 1)
    assert np.isclose(inner[1], np.exp(0.5) * 1.5)


def test_a_capture_is_read_at_each_call() -> None:
    scale = 2.0

    def function(x: Any) -> Any:
        return scale * x

    assert gt.taylor(function, 1.0, 1.0, 1)[1] == 2.0
    scale = 3.0
    assert gt.taylor(function, 1.0, 1.0, 1)[1] == 3.0


def test_dtypes_are_kept() -> None:
    series = gt.taylor(lambda x: np.exp(x) / x, np.ones(2, np.float32), np.ones(2, np.float32), 3)
    assert series.dtype == np.float32 and series.shape == (4, 2)


@pytest.mark.parametrize("order", [-1, 1.5, True, "2"])
def test_bad_orders(order: Any) -> None:
    with pytest.raises(gt.errors.ArgumentError, match="order is"):
        gt.taylor(np.sin, 1.0, 1.0, order)


def test_bad_directions() -> None:
    with pytest.raises(gt.errors.ShapeError, match="v has shape"):
        gt.taylor(np.sin, np.ones(2), np.ones(3), 2)
    with pytest.raises(gt.errors.StructureError, match="v does not have the structure of x"):
        gt.taylor(lambda p: p["a"], {"a": 1.0}, {"b": 1.0}, 2)
    with pytest.raises(gt.errors.StructureError, match="higher must be"):
        gt.taylor(np.sin, 1.0, 1.0, 2, higher=1.0)  # type: ignore[arg-type]
    with pytest.raises(gt.errors.IntegerInputError, match="array of int64"):
        gt.taylor(np.sin, np.array([1]), np.array([1]), 2)


def test_loops_compiled_from_code_have_few_orders() -> None:
    def orbit(x: Any) -> Any:
        y = np.zeros(2000)
        y[0] = x
        for i in range(1, 2000):
            y[i] = y[i - 1] + 0.001 * np.sin(y[i - 1])
        return y[-1]

    def steps(x: Any) -> Any:
        return gt.fori_loop(1, 2000, lambda i, y: y + 0.001 * np.sin(y), x)

    np.testing.assert_allclose(gt.taylor(orbit, 0.5, 1.0, 3), gt.taylor(steps, 0.5, 1.0, 3), rtol=1e-12)
    with pytest.raises(gt.errors.NotDifferentiableError, match="no series beyond order 4"):
        gt.taylor(orbit, 0.5, 1.0, 6)


W = RNG.normal(size=(8, 3))


def network(x: Any) -> Any:
    return np.sum(np.tanh(W @ x) ** 2) * np.exp(-x[0])


SECOND: dict[str, Any] = {
    "network": network,
    "solve": lambda x: np.sum(np.linalg.solve(A + np.outer(x, x), np.cos(x))),
    "scan": lambda x: np.sum(gt.scan(lambda c, e: (np.sin(c) * e + c, c * c), x, np.arange(3.0) + x[0])[1]),
    "linear": lambda x: np.sum(A @ x),
    "square": lambda x: np.sum(x * x) * np.max(x),
}


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_are_those_of_the_hessian(name: str, chunk_size: int | None) -> None:
    function = SECOND[name]
    expected = np.diag(gt.hessian(function)(X))
    actual = gt.hessian_diagonal(function, chunk_size=chunk_size)(X)
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)
    total = gt.laplacian(function, chunk_size=chunk_size)(X)
    assert np.shape(total) == () and np.isclose(total, expected.sum(), rtol=1e-10, atol=1e-12)


def test_second_derivatives_in_nests_and_several_arguments() -> None:
    def function(p: Any, y: Any) -> Any:
        return np.sum(p["a"] ** 3) * p["b"] ** 2 + np.sum(y**4)

    p, y = {"a": np.array([[1.0, 2.0]]), "b": 3.0}, np.array([1.0, 2.0])
    first, second = gt.hessian_diagonal(function, argnums=(0, 1))(p, y)
    np.testing.assert_allclose(first["a"], [[54.0, 108.0]])
    assert np.isclose(first["b"], 18.0)
    np.testing.assert_allclose(second, [12.0, 48.0])
    assert np.isclose(gt.laplacian(function, argnums=(0, 1))(p, y), 240.0)
    assert np.isclose(gt.grad(gt.laplacian(lambda x: np.sum(x**3)))(X)[1], 6.0)


MATRICES = np.random.default_rng(3).standard_normal((3, 4, 4)) / 2


def layers(x: Any) -> Any:
    for matrix in MATRICES:
        x = np.tanh(x @ matrix)
    return np.sum(x)


def scanned_layers(x: Any) -> Any:
    return np.sum(gt.scan(lambda x, matrix: (np.tanh(x @ matrix), None), x, MATRICES)[0])


LAPLACIANS: dict[str, Any] = {
    "a network": layers,
    "a network in a loop": scanned_layers,
    "roots and quotients": lambda x: np.prod(x) / np.linalg.norm(x + 2) + np.exp(x[0] * x[1]),
    "a selection": lambda x: np.sum(np.where(x > 0, x**3, np.sin(x))),
    "linear algebra": lambda x: x[2] * np.log(np.linalg.det(np.outer(x[:2], x[1:3]) + np.eye(2))),
    "a branch": lambda x: gt.cond(x[0] > 0, lambda: np.sum(x**2), lambda: np.sum(x**3)),
    "no second derivatives": lambda x: np.sum(3 * x),
}


@pytest.mark.parametrize("name", LAPLACIANS)
def test_laplacians_are_the_traces_of_hessians(name: str) -> None:
    f, x = LAPLACIANS[name], np.array([0.3, -0.4, 0.9, 1.2])
    expected = np.trace(gt.hessian(f)(x))
    for chunk_size in (None, 3):
        np.testing.assert_allclose(
            gt.laplacian(f, chunk_size=chunk_size)(x), expected, rtol=1e-10, atol=1e-12
        )
    slopes = gt.grad(lambda x: np.trace(gt.hessian(f)(x)))(x)
    np.testing.assert_allclose(gt.grad(gt.laplacian(f))(x), slopes, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(
        gt.vmap(gt.laplacian(f))(np.stack([x, 2 * x]))[0], expected, rtol=1e-10, atol=1e-12
    )


SIDES: list[Any] = [
    (lambda x: np.where(x > 0, np.sqrt(x), 0.0), lambda x: np.sqrt(x), lambda x: 0.0 * x),
    (lambda x: np.maximum(x, 1.0) ** 2, lambda x: x**2, lambda x: 1.0 + 0.0 * x),
    (lambda x: np.abs(x) * x, lambda x: x**2, lambda x: -(x**2)),
    (lambda x: np.clip(x, -0.5, 5.0) * x, lambda x: x**2, lambda x: -0.5 * x),
    (lambda x: np.max(np.stack([x, -x, x - 1])) ** 3, lambda x: x**3, lambda x: -(x**3)),
    (lambda x: np.sort(np.stack([x, 0.5 * x]))[0] ** 3, lambda x: x**3 / 8, lambda x: x**3),
]


@pytest.mark.parametrize("case", range(len(SIDES)))
def test_selections_have_the_coefficients_of_the_chosen_side(case: int) -> None:
    function, above, below = SIDES[case]
    for x, side in ((2.0, above), (-2.0, below)):
        found = gt.taylor(function, x, 1.0, 5)
        np.testing.assert_allclose(found, gt.taylor(side, x, 1.0, 5), rtol=1e-13, atol=1e-15)


def test_what_is_not_selected_has_no_coefficients() -> None:
    x = np.array([0.0, 4.0])
    found = gt.taylor(lambda x: np.where(x > 0, np.sqrt(x), 0.0), x, np.ones(2), 3)
    np.testing.assert_allclose(found[:, 0], 0.0)


def negative_powers(x: Any) -> Any:
    return x**-1.5 + (x * x + 1) ** -2 + np.float_power(x, -0.3) + x**1.5 + x**2


def test_series_of_powers_and_squares() -> None:
    import mpmath

    def exactly(x: Any) -> Any:
        return (
            x ** mpmath.mpf("-1.5") + (x * x + 1) ** -2 + x ** mpmath.mpf(-0.3) + x ** mpmath.mpf(1.5) + x**2
        )

    with mpmath.workdps(40):
        expected = [float(one) for one in mpmath.taylor(exactly, mpmath.mpf(0.7), 8)]
    np.testing.assert_allclose(gt.taylor(negative_powers, 0.7, 1.0, 8), expected, rtol=1e-12)
    np.testing.assert_allclose(gt.taylor(lambda x: x**2, 0.0, 1.0, 4), [0, 0, 1, 0, 0])
    np.testing.assert_allclose(gt.taylor(lambda x: x**1.5, 0.0, 1.0, 1), [0, 0])
    z = gt.taylor(lambda x: x**-2, 1j, 1.0, 3)
    np.testing.assert_allclose(z, [1j**-2, -2 * 1j**-3, 3 * 1j**-4, -4 * 1j**-5], rtol=1e-13)


def test_second_derivatives_need_one_real_number() -> None:
    with pytest.raises(gt.errors.NonScalarOutputError, match="laplacian"):
        gt.laplacian(np.sin)(X)
    with pytest.raises(gt.errors.DtypeError, match="complex"):
        gt.hessian_diagonal(lambda z: np.real(z))(1j)
