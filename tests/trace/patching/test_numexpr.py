"""`numexpr.evaluate`, which is compiled: values and derivatives of traced arrays are those of the expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numexpr
import numpy as np
import pytest

import gradtape as gt
from tests.support.differences import gradient_by_differences

X = np.array([0.4, 1.3, 2.2])
SCALE = np.array([2.0, -1.0, 0.5])


def _of_locals(x: Any) -> Any:
    y, scale = x * SCALE, SCALE  # noqa: F841 - the expression reads them
    return numexpr.evaluate("sin(x) * y + scale**2")


def _written(x: Any) -> Any:
    out = np.empty(3)
    numexpr.evaluate("x**2 + 1", out=out)
    return out * x


FUNCTIONS = "where(x > 1, arctan2(x, s), log1p(x)) + abs(-x) + sqrt(x)"

CALLS: dict[str, Callable[[Any], Any]] = {
    "locals": _of_locals,
    "given names": lambda x: numexpr.evaluate("c + (1 - c) / (1 + exp(-a))", local_dict={"a": x, "c": 0.2}),
    "functions": lambda x: numexpr.evaluate(FUNCTIONS, {"x": x, "s": SCALE}),
    "a sum": lambda x: numexpr.evaluate("sum(x * x)"),
    "a result that is written": _written,
}


@pytest.mark.parametrize("name", CALLS)
def test_expressions_are_traced(name: str) -> None:
    call = CALLS[name]

    def total(x: Any) -> Any:
        return np.sum(call(x) ** 2)

    slope = gradient_by_differences(total, X)
    np.testing.assert_allclose(gt.jit(call)(X), call(X), rtol=1e-14)
    np.testing.assert_allclose(gt.grad(total)(X), slope, rtol=1e-5)
    np.testing.assert_allclose(gt.jvp(total, (X,), (X,))[1], slope @ X, rtol=1e-5)
    np.testing.assert_allclose(gt.vmap(call)(np.stack([X, 2 * X])), [call(X), call(2 * X)], rtol=1e-14)
    np.testing.assert_allclose(gt.hessian(total)(X), gt.jacfwd(gt.grad(total))(X), rtol=1e-10)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = total(x)
    np.testing.assert_allclose(tape.gradient(y, x), slope, rtol=1e-5)


def test_expressions_of_numbers_are_numexprs() -> None:
    seen = []

    def function(x: Any) -> Any:
        k = np.arange(3.0)  # noqa: F841 - the expression reads it
        found = numexpr.evaluate("2 * k")
        seen.append(type(found))
        return x * found

    np.testing.assert_allclose(gt.jit(function)(X), X * 2 * np.arange(3.0))
    assert seen[0] is np.ndarray
    np.testing.assert_array_equal(numexpr.evaluate("seen * SCALE", {"seen": X}), X * SCALE)
    given = X + 1.0  # noqa: F841 - the expression reads it
    np.testing.assert_array_equal(numexpr.evaluate("given * SCALE"), (X + 1.0) * SCALE)
    with pytest.raises(KeyError, match="unknown"):
        gt.jit(lambda x: x * numexpr.evaluate("unknown + 1"))(X)


def test_global_variables_in_the_text_of_an_expression_are_refused() -> None:
    with pytest.raises(gt.errors.UnsupportedFunctionError, match="global variable 'SCALE'"):
        gt.jit(lambda x: numexpr.evaluate("x * SCALE"))(X)
