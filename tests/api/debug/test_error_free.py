"""What a wide format rounds off is kept: results in twice the precision, against rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.debug.arithmetic import normal, rounded_off
from gradtape.api.debug.linalg import evaluate_extended, refined
from gradtape.api.debug.precision import EXTENDED, HAS_EXTENDED
from gradtape.ir.graph import Node, Value
from gradtape.ir.types import FLOAT64, aval
from gradtape.kinds.registry import ROWS

pytestmark = pytest.mark.skipif(not HAS_EXTENDED, reason="long double is double on this machine")


def exact(x: Any) -> Fraction:
    return Fraction(*x.as_integer_ratio())


CASES = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "square": lambda a: a * a,
    "reciprocal": lambda a: 1 / a,
    "negative": lambda a: -a,
    "absolute": abs,
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_rounded_off(name: str) -> None:
    rule = CASES[name]
    count = rule.__code__.co_argcount if name != "absolute" else 1
    rng = np.random.default_rng(1)
    operands = [rng.normal(size=50).astype(EXTENDED) / 3 for _ in range(count)]
    lows = [x * EXTENDED(2.0) ** -66 * rng.uniform(-1, 1, 50) for x in operands]
    row = ROWS[name]
    node = Node(row, tuple([Value(aval((50,), FLOAT64)) for _ in operands]), {})
    result = row.evaluate(operands, {})[0]
    rest = rounded_off(node, operands, lows, result)
    high, low = normal(result, rest)
    for k in range(50):
        wanted = rule(*[exact(x[k]) + exact(y[k]) for x, y in zip(operands, lows, strict=True)])
        error = abs(exact(high[k]) + exact(low[k]) - wanted)
        assert error <= abs(wanted) * Fraction(1, 2**120)


def test_sums_and_roots() -> None:
    rng = np.random.default_rng(2)
    x = (rng.normal(size=(3, 7)) * 10.0 ** rng.integers(-5, 6, (3, 7))).astype(EXTENDED) / 3
    row = ROWS["reduce_sum"]
    node = Node(row, (Value(aval((3, 7), FLOAT64)),), {"axes": (1,)})
    result = row.evaluate([x], node.params)[0]
    total, low = normal(result, rounded_off(node, [x], [0.0], result))
    for k in range(3):
        wanted = sum(map(exact, x[k]))
        assert abs(exact(total[k]) + exact(low[k]) - wanted) <= Fraction(1, 2**115) * sum(
            map(abs, map(exact, x[k]))
        )
    root = ROWS["sqrt"]
    positive = np.abs(x).reshape(-1)
    node = Node(root, (Value(aval((21,), FLOAT64)),), {})
    result = root.evaluate([positive], {})[0]
    high, low = normal(result, rounded_off(node, [positive], [0.0], result))
    for a, h, rest in zip(positive, high, low, strict=True):
        assert abs((exact(h) + exact(rest)) ** 2 - exact(a)) <= exact(a) * Fraction(1, 2**120)


def test_functions_and_complex_numbers_have_no_known_rest() -> None:
    x = np.ones(3, EXTENDED)
    assert rounded_off(Node(ROWS["exp"], (Value(aval((3,), FLOAT64)),), {}), [x], [0.0], np.exp(x)) is None
    z = x.astype(np.clongdouble)
    assert (
        rounded_off(Node(ROWS["negative"], (Value(aval((3,), np.dtype(complex))),), {}), [z], [0.0], -z)
        is None
    )


@pytest.mark.parametrize("transposed", [False, True])
def test_solutions_are_corrected_by_their_residuals(transposed: bool) -> None:
    a = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]]).astype(EXTENDED)
    b = np.array([[EXTENDED(1) / 3], [EXTENDED(2) / 3]])
    empty = np.zeros(0, EXTENDED)
    rng, params = np.random.default_rng(0), {"transposed": transposed}
    operands = [a, empty, empty, b]
    found = evaluate_extended("lu_solve", operands, params, rng)
    (x,) = refined("lu_solve", operands, params, found, rng)
    second = (exact(b[1, 0]) - exact(b[0, 0])) / (exact(a[1, 1]) - 1)
    for number, wanted in zip(x[:, 0], (exact(b[0, 0]) - second, second), strict=True):
        assert abs(exact(number) - wanted) <= abs(wanted) * Fraction(1, 2**61)


def test_errors_that_happen_to_be_small_are_seen_to_be() -> None:
    """The error of ``1 - x * x`` is that of the product: far below a rounding error for a few numbers of many."""
    numbers = 1.0 - np.random.default_rng(3).uniform(1e-7, 2e-7, 2000)
    errors = [abs(exact(1.0 - x * x) - (1 - exact(x) ** 2)) for x in numbers]
    best = numbers[np.argsort([float(error) for error in errors])[:3]]
    for x in best:
        wanted = 1 - exact(x) ** 2
        true = -np.log10(float(abs(exact(1.0 - x * x) - wanted) / wanted))
        assert true > 11.5
        assert gt.debug.digits(lambda x: 1.0 - x * x, x).value == pytest.approx(true, abs=0.2)


def test_a_system_whose_matrix_is_exact_loses_no_digits_by_its_condition() -> None:
    def f(x: Any) -> Any:
        return np.linalg.solve(np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-30]]), np.stack([x, x * x]))[0]

    assert gt.debug.digits(f, 1.25).value > 15.0
