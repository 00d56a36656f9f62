"""Arrays of rank 0 change in place for all their names; numbers do not: ``y = x; y += 1``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

MAKERS: dict[str, Callable[[Any], Any]] = {
    "np.copy": lambda x: np.copy(x[0]),
    "np.array": lambda x: np.array(x[0]),
    "np.asarray": lambda x: np.asarray(x[0]),
    "zeros_like": lambda x: np.zeros_like(x[0]),
    "zeros": lambda x: np.zeros(()),
    "ellipsis": lambda x: x[0, ...],
    "copy of a view": lambda x: x[0, ...].copy(),
    "sum": lambda x: np.sum(x),
    "sum of a transpose": lambda x: np.sum(np.outer(x, x).T),
    "element": lambda x: x[0],
    "element of a transpose": lambda x: np.outer(x, x).T[0, 1],
    "reshape": lambda x: np.sum(x).reshape(()),
    "product": lambda x: x[0] * x[1],
    "dot": lambda x: x @ x,
    "copy of a number": lambda x: x[0].copy(),
}


def _changed(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        s = make(x)
        other = s
        s += x[1] ** 3
        s *= x[2]
        return s * other + x[0] * other

    return f


def _looped(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        s = make(x)
        other = s
        for i in range(len(x)):
            s += x[i] ** 3
        return s * other + x[0] * other

    return f


X = np.array([0.7, -1.2, 1.9])


@pytest.mark.parametrize("shape", [_changed, _looped])
@pytest.mark.parametrize("name", MAKERS)
def test_names_of_one_number_or_array(name, shape):
    f = shape(MAKERS[name])
    wanted = f(X.copy())
    h = 1e-6
    slopes = [(f(X + h * row) - f(X - h * row)) / (2 * h) for row in np.eye(3)]
    with gt.GradientTape() as tape:
        x = tape.watch(X.copy())
        made = f(x)
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-14)
    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops):
            np.testing.assert_allclose(gt.jit(f)(X), wanted, rtol=1e-14)
            gradient = gt.grad(f)(X)
            np.testing.assert_allclose(gradient, slopes, rtol=1e-6)
            np.testing.assert_allclose(gt.vmap(f)(np.stack([X, X]))[1], wanted, rtol=1e-14)
            pushed = [gt.jvp(f, (X,), (row,))[1] for row in np.eye(3)]
            np.testing.assert_allclose(pushed, gradient, rtol=1e-12)
    g = gt.grad(f)
    rows = [(g(X + h * row) - g(X - h * row)) / (2 * h) for row in np.eye(3)]
    np.testing.assert_allclose(gt.hessian(f)(X), rows, rtol=1e-6, atol=1e-7)


def _rebound(x: Any) -> Any:
    y = x
    y += 1.0
    return x * y


@pytest.mark.parametrize("compiled", [True, False])
def test_arguments(compiled):
    with gt.config.override(jit=compiled):
        f, slope = gt.jit(_rebound), gt.grad(_rebound)
        for _ in range(2):
            for number in (2.0, np.float64(2.0)):
                assert f(number) == 6.0
                assert slope(number) == 5.0
            array = np.array(2.0)
            assert f(array) == 9.0
            assert slope(array) == 6.0
            assert array == 2.0  # a traced function writes to its own copy


def test_mapped_elements_are_numbers():
    np.testing.assert_array_equal(gt.vmap(_rebound)(np.arange(3.0)), [_rebound(x) for x in np.arange(3.0)])


@pytest.mark.parametrize(("argument", "wanted"), [(2.0, 6.0), (np.float64(2.0), 6.0), (np.array(2.0), 9.0)])
def test_watched_arguments(argument, wanted):
    with gt.GradientTape() as tape:
        assert float(_rebound(tape.watch(argument))) == wanted
