"""Digits that are reported against those that mpmath finds, the lines that are blamed, and the remedies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.debug.precision import HAS_EXTENDED
from gradtape.errors import ArgumentError

mpmath = pytest.importorskip("mpmath", reason="digits are compared with mpmath's: pip install mpmath")
pytestmark = pytest.mark.skipif(not HAS_EXTENDED, reason="long double is double on this machine")

Program = Callable[[Any, Any], Any]


class NumPy:
    """The functions of a program, by NumPy."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


class MPMath:
    """The same functions by mpmath."""

    NAMES = {"arctan": "atan", "arcsin": "asin", "arccos": "acos"}  # noqa: RUF012

    def log1p(self, x: Any) -> Any:
        return mpmath.log(1 + x)

    def __getattr__(self, name: str) -> Any:
        return getattr(mpmath, self.NAMES.get(name, name))


class Case(NamedTuple):
    """A program of one number, where it is evaluated, and part of the remedy; none where nothing is lost."""

    name: str
    f: Program
    points: tuple[float, ...]
    remedy: str = ""


def alternating(x: Any, m: Any) -> Any:
    total, term = 1.0 + 0 * x, 1.0 + 0 * x
    for k in range(1, 90):
        term = -term * x / k
        total = total + term
    return total


def smaller_root(b: Any, m: Any) -> Any:
    return (-b + m.sqrt(b * b - 4.0)) / 2.0


def variance(x: Any, m: Any) -> Any:
    first, second, third = x, x + 1.0, 1.000001 * x + 3.0
    squares = (first**2 + second**2 + third**2) / 3.0
    mean = (first + second + third) / 3.0
    return squares - mean**2


def heron(c: Any, m: Any) -> Any:
    a, b = 3.0, 4.0
    s = (a + b + c) / 2.0
    return m.sqrt(s * (s - a) * (s - b) * (s - c))


ILL: list[Case] = [
    Case("1 - cos", lambda x, m: 1 - m.cos(x), (1e-4, 3e-6), "2*np.sin(x/2)**2"),
    Case("cosc", lambda x, m: (1 - m.cos(x)) / x**2, (1e-3, 1e-5, 1e-7), "2*np.sin(x/2)**2"),
    Case("exp - 1", lambda x, m: (m.exp(x) - 1) / x, (1e-3, 1e-6, 1e-9), "np.expm1"),
    Case("log 1 +", lambda x, m: m.log(1 + x) / x, (3.3e-4, 1e-7, 1e-10), "np.log1p"),
    Case("sqrt - sqrt", lambda x, m: m.sqrt(x + 1) - m.sqrt(x), (1e6, 1e9, 1e12), "np.sqrt(a) + np.sqrt(b)"),
    Case("sqrt - 1", lambda x, m: m.sqrt(1 + x) - 1, (1.1e-5, 1.3e-9), "np.sqrt(1 + x) + 1"),
    Case("quadratic", smaller_root, (1e4, 1e6, 3e7), "b + np.sqrt(c)"),
    Case("1/x - 1/(x+1)", lambda x, m: 1 / x - 1 / (x + 1), (1e5, 1e8), "for"),
    Case("log - log", lambda x, m: m.log(x + 1) - m.log(x), (1e6, 1e9), "np.log1p"),
    Case("exp - exp", lambda x, m: m.exp(x + 1) - m.exp(1 + 0 * x), (1e-6, 1e-9), "np.expm1"),
    Case("sin - sin", lambda x, m: m.sin(1 + x) - m.sin(1 + 0 * x), (1e-6, 1e-9), "np.sin((a - b)/2)"),
    Case("cos - cos", lambda x, m: m.cos(1 + x) - m.cos(1 + 0 * x), (1e-6, 1e-9), "np.sin((a - b)/2)"),
    Case("arctan - arctan", lambda x, m: m.arctan(x + 1) - m.arctan(x), (1e4, 1e6), "np.arctan"),
    Case("tanh", lambda x, m: 1 - m.tanh(x), (8.0, 14.0), "np.exp(2*x) + 1"),
    Case("cosh - 1", lambda x, m: m.cosh(x) - 1, (1e-4, 1e-6), "np.sinh"),
    Case("1 - x**2", lambda x, m: 1 - x**2, (1 - 1e-5 / 3, 1 - 1e-9 / 3), "(1 - x)*(1 + x)"),
    Case("squares", lambda x, m: (x + 1) ** 2 - x**2, (1e7 / 3, 1e10 / 3), "(a - b)*(a + b)"),
    Case("x - sin", lambda x, m: (x - m.sin(x)) / x**3, (1e-2, 1e-4), "subtracted"),
    Case("tan - sin", lambda x, m: m.tan(x) - m.sin(x), (1e-3, 1e-5), "subtracted"),
    Case("power", lambda n, m: (1 + 1 / n) ** n, (1e7 / 3, 1e11 / 3), "np.log1p"),
    Case("1 - sin", lambda x, m: 1 - m.sin(x), (1.5707, 1.570796), "np.sin((np.pi/2 - x)/2)"),
    Case("cubic", lambda x, m: x**3 - 3 * x**2 + 3 * x - 1, (1.001, 1 + 1e-4 / 3), "subtracted"),
    Case("alternating series", alternating, (8.0, 15.0, 22.0), "subtracted"),
    Case("variance", variance, (1e6 / 3, 1e7 / 3), "np.var"),
    Case("flat triangle", heron, (6.9999999, 7 - 1e-11), ""),
    Case("log of a quotient", lambda x, m: m.log(x / (x + 1)), (1e7, 1e10), "np.log"),
    Case("x**2 - 2", lambda x, m: x * x - 2, (1.4142135, 1.4142135623), ""),
    Case("two exps", lambda x, m: m.exp(x) - m.exp(-x), (1e-5, 1e-8), "np.exp"),
    Case("probability", lambda x, m: m.exp(-x) * (m.exp(x) - 1 - x), (1e-3, 1e-5), ""),
    Case("finite difference", lambda h, m: (m.exp(1 + h) - m.exp(1 + 0 * h)) / h, (1e-4 / 3, 1e-8 / 3), "np.expm1"),
    Case("digits of a sum", lambda x, m: (1e10 + x) - 1e10, (0.1, 1 / 3), ""),
    Case("log exp", lambda x, m: m.log(1 + m.exp(x)), (-20.0, -30.0), "np.log1p"),
    Case("elliptic", lambda e, m: m.sqrt(1 - (1 - e) ** 2), (1e-8 / 3, 1e-12 / 3), ""),
    Case("relativity", lambda v, m: 1 / m.sqrt(1 - v**2) - 1, (1e-5 / 3, 1e-7 / 3), ""),
]  # fmt: skip

WELL: list[Case] = [
    Case("half angle", lambda x, m: 2 * m.sin(x / 2) ** 2, (1e-4, 1.0)),
    Case("expm1", lambda x, m: m.expm1(x), (1e-9, 1.0)),
    Case("log1p", lambda x, m: m.log1p(x), (1e-9, 1.0)),
    Case("conjugate", lambda x, m: 1 / (m.sqrt(x + 1) + m.sqrt(x)), (1e9, 2.0)),
    Case("product", lambda x, m: (1 - x) * (1 + x), (1 - 1e-9 / 3, 0.3)),
    Case("gaussian", lambda x, m: m.exp(-(x**2) / 2), (0.3, 2.0)),
    Case("polynomial", lambda x, m: 1 + x + x**2 / 2 + x**3 / 6, (0.1, 1.7)),
    Case("logistic", lambda x, m: 1 / (1 + m.exp(-x)), (0.5, 20.0)),
    Case("oscillation", lambda t, m: m.exp(-t / 5) * m.cos(3 * t), (0.7, 2.9)),
    Case("distance", lambda x, m: m.sqrt(x**2 + 1), (1e-3, 50.0)),
    Case("rational", lambda x, m: (x + 2) / (x**2 + 3), (0.4, 9.0)),
    Case("logarithm", lambda x, m: x * m.log(x), (0.3, 12.0)),
    Case("half of it", lambda x, m: x - x / 2, (1 / 3, 7.7)),
    Case("exact difference", lambda x, m: (x * 2 - x) - 1, (1 + 1e-9, 1.5)),
    Case("large sum", lambda x, m: (x + 1e3) * (x + 1e3), (0.1, 5.0)),
    Case("arctangent", lambda x, m: m.arctan(x) * 2, (0.2, 3.0)),
]

POINTS = [pytest.param(case, point, id=f"{case.name}-{point:g}") for case in ILL for point in case.points]
GOOD = [pytest.param(case, point, id=f"{case.name}-{point:g}") for case in WELL for point in case.points]


def right_digits(computed: float, exact: Any) -> float:
    """Return how many digits of a computed number are right."""
    error = abs(mpmath.mpf(float(computed)) - exact)
    if exact == 0 and error != 0:
        return 0.0
    return 15.95 if error == 0 else float(min(15.95, max(0, -mpmath.log10(error / abs(exact)))))


def truth(case: Case, point: float) -> tuple[float, float]:
    """Return the digits of value and derivative that are right, computed op by op: kernels fuse products and sums, and are better."""
    f = case.f
    with gt.debug.check_numerics():
        value, slope = gt.value_and_grad(lambda x: f(x, NumPy()))(point)
    with mpmath.workdps(80):
        exact = mpmath.mpf(point)
        return (
            right_digits(value, f(exact, MPMath())),
            right_digits(slope, mpmath.diff(lambda x: f(x, MPMath()), exact)),
        )


def reported(case: Case, point: float) -> Any:
    return gt.debug.digits(lambda x: case.f(x, NumPy()), point)


@pytest.mark.parametrize("case, point", POINTS)
def test_lost_digits_are_seen(case: Case, point: float) -> None:
    found = reported(case, point)
    value, slope = truth(case, point)
    assert value - 1.5 < found.value < value + 1.0
    assert slope - 1.5 < found.derivative < slope + 1.0


def test_reported_digits_are_within_one_of_the_truth() -> None:
    differences = []
    for case in ILL + WELL:
        for point in case.points:
            found, exact = reported(case, point), truth(case, point)
            differences += [found.value - exact[0], found.derivative - exact[1]]
    close = np.abs(differences) <= 1.0
    assert len(differences) >= 200
    assert np.mean(close) >= 0.95


@pytest.mark.parametrize("case, point", GOOD)
def test_no_false_alarm(case: Case, point: float) -> None:
    found = reported(case, point)
    assert min(found.value, found.derivative) > 13.5
    assert found.losses == ()


@pytest.mark.parametrize("case", [case for case in ILL if case.remedy], ids=lambda case: case.name)
def test_what_to_write_instead(case: Case) -> None:
    found = reported(case, case.points[-1])
    assert any(case.remedy in loss.remedy for loss in found.losses), found
    assert all(loss.site.filename == __file__ for loss in found.losses)


def test_the_line_is_that_of_the_cancellation() -> None:
    found = reported(Case("variance", variance, ()), 1e7 / 3)
    first = variance.__code__.co_firstlineno
    assert found.losses[0].site.line == first + 4
    assert found.losses[0].in_derivative_of is None


def test_the_digits_of_a_nearly_singular_system_are_those_of_its_solution() -> None:
    matrix = 1 / (np.arange(8)[:, None] + np.arange(8) + 1.0)

    def solved(b: Any) -> Any:
        return np.sum(np.linalg.solve(matrix, b))

    found = gt.debug.digits(solved, np.ones(8))
    with mpmath.workdps(60):
        exact = mpmath.fsum(mpmath.lu_solve(mpmath.matrix(matrix.tolist()), mpmath.ones(8, 1)))
        right = -mpmath.log10(abs(mpmath.mpf(float(solved(np.ones(8)))) / exact - 1))
    assert abs(found.value - float(right)) < 0.5
    assert any("nearly singular" in loss.remedy for loss in found.losses)
    assert gt.debug.digits(lambda b: np.sum(np.linalg.solve(np.eye(3) + 0.1, b)), np.ones(3)).value > 14


def test_loops_are_unrolled() -> None:
    def series(x: Any) -> Any:
        def step(k: Any, state: Any) -> Any:
            term, total = state
            term = -term * x / (k + 1.0)
            return term, total + term

        return gt.fori_loop(0, 90, step, (1.0, 1.0))[1]

    assert gt.debug.digits(series, 20.0).value < 3


def test_a_line_of_a_loop_is_blamed_where_no_op_of_it_loses_much() -> None:
    found = reported(Case("alternating series", alternating, ()), 17.3)
    first = alternating.__code__.co_firstlineno
    assert found.losses[0].site.line == first + 4
    assert found.losses[0].op == "add" and found.losses[0].in_derivative_of is None
    assert found.losses[0].lost > 10


def test_derivatives_along_two_paths_that_cancel() -> None:
    found = reported(Case("x - sin", lambda x, m: (x - m.sin(x)) / x**3, ()), 1e-4)
    of_derivative = [loss for loss in found.losses if loss.in_derivative_of is not None]
    assert found.losses[0].in_derivative_of is None
    assert any("paths" in loss.remedy for loss in of_derivative)


def test_nests_of_arguments_and_results() -> None:
    found = gt.debug.digits(
        lambda x, n: {"a": 1 - np.cos(x["u"]), "b": n * x["v"]}, {"u": 1e-6, "v": np.ones(2)}, 3
    )
    assert found.value_elements["a"] < 6
    assert np.all(found.value_elements["b"] > 15)
    arguments = found.derivative_elements[0]
    assert np.all(arguments["v"] > 15)
    assert found.value < 6


def test_sums_that_cancel() -> None:
    x = np.array([1e16, 1.0, -1e16])
    found = gt.debug.digits(lambda x: np.sum(x * np.array([1.1, 1.0, 1.1])), x)
    assert found.value < 2
    assert "cancel" in found.losses[0].remedy


def test_mistakes() -> None:
    with pytest.raises(ArgumentError, match="no argument is a float"):
        gt.debug.digits(lambda n: n, 2)


def test_a_report() -> None:
    text = repr(gt.debug.digits(lambda x: 1 - np.cos(x), 1e-6))
    assert "digits of the value are right" in text
    assert "loses" in text and "2*np.sin(x/2)**2" in text
