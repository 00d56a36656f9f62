"""Texts of traced numbers: what code reads from them follows from the numbers of the call, as in NumPy, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ConcretizationError

X = np.array([1.3, -0.75, 2.4, 12.0])
TABLE = {"2.4": 3.0}


@pytest.fixture(params=["auto", "trace", "compile"], autouse=True)
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    with gt.config.override(loops=request.param):
        yield


def by_length(x: Any) -> Any:
    return x[0] * len(str(x[2]))


def by_key(x: Any) -> Any:
    return x[0] ** 2 * TABLE.get(f"{x[2]:.1f}", 5.0)


def by_comparison(x: Any) -> Any:
    return x[1] * 2.0 if str(x[2]) == "2.4" else x[3] ** 2


def in_a_loop(x: Any) -> Any:
    total = 0.0
    for i in range(len(x)):
        total += x[i] ** 2 * len(f"{x[i]:.2f}")
    return total


def of_known_numbers(x: Any) -> Any:
    total = 0.0
    for i in range(len(x)):
        total += x[i] * len(f"{i:03d}") * len(repr("ab")) * len(format(2.5, ".3f")) * len(str(i))
    return total


@pytest.mark.parametrize("function", [by_length, by_key, by_comparison, in_a_loop, of_known_numbers])
def test_texts_have_the_numbers_of_the_call(function: Callable[..., Any]) -> None:
    compiled, gradient = gt.jit(function), gt.grad(function)
    for x in (X, 2.0 * X, X):
        np.testing.assert_allclose(compiled(x), function(x), rtol=1e-13)
        h = 1e-6 * np.eye(4)
        slopes = np.array([(function(x + d) - function(x - d)) / 2e-6 for d in h])
        if function is not by_length:  # the lengths of neighbours differ
            np.testing.assert_allclose(gradient(x), slopes, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gt.jit(lambda x: 2.0 * compiled(x))(X), 2.0 * function(X), rtol=1e-13)


@pytest.mark.parametrize("function", [by_length, by_key, by_comparison, in_a_loop])
def test_texts_of_one_element_for_all_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(ConcretizationError, match=r"text|vmap"):
        gt.vmap(function)(np.stack([X, 2.0 * X]))


def test_texts_that_are_printed_need_no_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(x: Any) -> Any:
        print(f"first {x[0]:.2f}")
        return x * 2.0

    compiled = gt.jit(shown)
    np.testing.assert_array_equal(compiled(X), 2.0 * X)
    assert capsys.readouterr().out == "first <f64[], traced: gt.print shows the numbers>\n"
    np.testing.assert_array_equal(gt.vmap(shown)(np.stack([X, X])), 2.0 * np.stack([X, X]))


def test_errors_say_numbers_in_their_texts() -> None:
    def checked(x: Any) -> Any:
        total = 0.0
        for i in range(len(x)):
            if x[i] > 100.0:
                raise ValueError(f"entry {i} is too large: {x[i]:.1f}")
            total += x[i]
        return total

    compiled = gt.jit(checked)
    np.testing.assert_allclose(compiled(X), np.sum(X))
    with pytest.raises(ValueError, match="is too large: "):
        compiled(100.0 * X)


def test_texts_of_numbers_of_pythons() -> None:
    def by_representation(x: Any) -> Any:
        return x[0] * len(repr(float(x[2]))) + x[1] * len(f"{float(x[3]):.3f}")

    with gt.config.override(loops="auto"):
        compiled = gt.jit(by_representation)
        for x in (X, 2.0 * X):
            np.testing.assert_allclose(compiled(x), by_representation(x), rtol=1e-13)
