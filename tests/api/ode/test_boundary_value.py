"""Boundary value problems: SciPy's numbers, and derivatives in everything that a problem is stated with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_bvp

import gradtape as gt
from gradtape.errors import ShapeError, UnsupportedFunctionError


def string(length: Any) -> Any:
    """The first frequency of a string, which is the unknown parameter, and its shape at a third."""
    x, y = np.array([0.0, 1.0]), np.array([[0.0, 0.0], [3.0, -3.0]])

    def fun(x: Any, y: Any, p: Any) -> Any:
        return np.stack([length * y[1], -length * p[0] ** 2 * y[0]])

    def bc(first: Any, last: Any, p: Any) -> Any:
        return np.stack([first[0], last[0], first[1] - p[0]])

    found = solve_bvp(fun, bc, x, y, p=[3.0], tol=1e-7)
    return found.p[0] + found.sol(1 / 3)[0] * length + found.y[1, -1]


def test_values_and_slopes() -> None:
    length = 1.1
    value, slope = gt.value_and_grad(string)(length)
    exact = np.pi / length + np.sin(np.pi / 3) * length - np.pi / length
    np.testing.assert_allclose(value, exact, rtol=1e-6)
    np.testing.assert_allclose(string(length), value, rtol=1e-7)
    np.testing.assert_allclose(slope, np.sin(np.pi / 3), rtol=1e-5)


def solved(k: Any, **options: Any) -> Any:
    given = {"x": [0.0, 1.0], "y": np.zeros((2, 2)), **options}
    return solve_bvp(
        lambda x, y: np.stack([y[1], -k * y[0]]), lambda a, b: np.stack([a[0], b[0] - 1]), **given
    )


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"S": np.eye(2)}, UnsupportedFunctionError, "with S"),
        ({"y": np.zeros((2, 3))}, ShapeError, "x has shape"),
        ({"y": np.zeros((3, 2))}, ShapeError, "fun returns"),
        ({"p": [1.0]}, TypeError, "positional argument"),
    ],
)
def test_what_is_refused(options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        gt.jit(lambda k: solved(k, **options).y[0, -1])(1.0)


def test_nodes_whose_number_is_not_known() -> None:
    with pytest.raises(UnsupportedFunctionError, match=r"call sol\(x\)"):
        gt.jit(lambda k: np.sum(solved(k).y))(1.0)
