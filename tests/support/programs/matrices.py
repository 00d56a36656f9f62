"""Programs of linear algebra, as the tests of NumPy's and of SciPy's functions run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as gt

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

RNG = np.random.default_rng(7)
A = RNG.normal(size=(4, 4)) + 2 * np.eye(4)
STACK = RNG.normal(size=(2, 3, 3)) + 4 * np.eye(3)
B = RNG.normal(size=(4, 2))


def definite(x: Any) -> Any:
    """Return symmetric matrices that are positive definite, whatever x is."""
    return x @ np.swapaxes(x, -1, -2) + np.eye(x.shape[-1])


def bent(x: Any) -> Any:
    """Return a number in which each element counts differently."""
    return np.sum(np.sin(x) * np.linspace(1, 2, x.size).reshape(x.shape))


def check_program(function: Function, args: tuple[Array, ...]) -> None:
    """Check that the kernel's value and gradient are the interpreter's, and that these are right to the second order."""
    expected = function(*args)
    places = tuple(range(len(args)))
    compiled = gt.jit(gt.value_and_grad(function, argnums=places))
    value, slopes = compiled(*args)
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-11)
    assert "interpreter" not in str(gt.inspect.explain(compiled))
    before, gt.config.jit = gt.config.jit, False
    try:
        gt.check_grads(function, args, order=2)
        with gt.GradientTape() as tape:
            watched = [tape.watch(arg) for arg in args]
            result = function(*watched)
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-11)
        for found, wanted in zip(tape.gradient(result, watched), slopes, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
    finally:
        gt.config.jit = before
