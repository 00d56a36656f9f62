"""Texts in compiled functions: those of known numbers are Python's, and those of traced numbers are for messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradtape as gt

X = np.array([1.3, -0.75, 2.4, 12.0])


@pytest.fixture(params=["auto", "trace", "compile"], autouse=True)
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    with gt.config.override(loops=request.param):
        yield


def of_known_numbers(x: Any) -> Any:
    total = 0.0
    for i in range(len(x)):
        total += x[i] * len(f"{i:03d}") * len(repr("ab")) * len(format(2.5, ".3f")) * len(str(i))
    return total


def test_texts_of_known_numbers_are_those_of_python() -> None:
    np.testing.assert_allclose(gt.jit(of_known_numbers)(X), of_known_numbers(X), rtol=1e-13)
    np.testing.assert_allclose(gt.grad(of_known_numbers)(X), 3 * 4 * 5 * 1 * np.ones(4), rtol=1e-13)


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
