"""The ways into gradtape, for tests that hold for each of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

Function = Callable[..., Any]
PAIR = np.array([1.0, 2.0])


def by_jit(function: Function, x: Any) -> Any:
    return gt.jit(function)(x)


def by_grad(function: Function, x: Any) -> Any:
    return gt.grad(lambda x: np.sum(function(x)))(x)


def by_value_and_grad(function: Function, x: Any) -> Any:
    return gt.value_and_grad(lambda x: np.sum(function(x)))(x)[1]


def by_vjp(function: Function, x: Any) -> Any:
    y, pullback = gt.vjp(function, x)
    return pullback(np.ones_like(y))[0]


def by_jvp(function: Function, x: Any) -> Any:
    return gt.jvp(function, (x,), (np.ones(np.shape(x)),))[1]


def by_tape(function: Function, x: Any) -> Any:
    with gt.GradientTape() as tape:
        x = tape.watch(x)
        y = function(x)
    gradient = tape.gradient(y, x)
    return None if gradient is None else gradient.numpy()


ways = pytest.mark.parametrize("way", [by_jit, by_grad, by_value_and_grad, by_vjp, by_jvp, by_tape])
derivatives = pytest.mark.parametrize("way", [by_grad, by_value_and_grad, by_vjp, by_jvp])
traced_ways = pytest.mark.parametrize("way", [by_jit, by_grad, by_value_and_grad])


def expect(error: type[Exception], function: Callable[[], Any], *parts: str) -> Any:
    """Check that an error is raised and says these things; return it."""
    with pytest.raises(error) as caught:
        function()
    for part in parts:
        assert part in str(caught.value)
    return caught.value


def at_a_line_of(function: Callable[..., Any], error: Any) -> bool:
    """Return whether an error names a line of this function."""
    lines, first = inspect.getsourcelines(function)
    return error.where.filename == inspect.getsourcefile(
        function
    ) and first <= error.where.line < first + len(lines)


def line_of(function: Function, text: str) -> str:
    """Return where a line of a function stands, as an error writes it."""
    lines, first = inspect.getsourcelines(function)
    (place,) = [first + k for k, line in enumerate(lines) if text in line]
    return f"{inspect.getsourcefile(function)}:{place} in {function.__name__}"
