"""Axes and shifts that are given as arrays or lists, as NumPy takes them: in functions that go through them, not in reductions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt

Array = Any
ORDER = np.array([1, 0])
STEPS = np.array([[0, 1], [2, -1]])


def streamed(x: Array) -> Array:
    """Each item is shifted by a row of a table, as in lattice Boltzmann methods."""
    y = x.copy()
    for i in range(2):
        y[i] = np.roll(y[i], STEPS[i], axis=(0, 1))
    return y


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "roll": lambda x: np.roll(x, ORDER, axis=(0, 1)),
    "roll by a list": lambda x: np.roll(x, [1, 2], axis=[0, 1]),
    "roll along axes": lambda x: np.roll(x, 1, axis=ORDER),
    "roll in a loop": streamed,
    "flip": lambda x: np.flip(x, ORDER),
    "flip by a list": lambda x: np.flip(x, [0, 2]),
    "moveaxis": lambda x: np.moveaxis(x, ORDER, ORDER[::-1]),
    "tensordot": lambda x: np.tensordot(x, x, axes=np.array([[0], [0]])),
    "tensordot of arrays": lambda x: np.tensordot(x, x, axes=(ORDER, ORDER)),
}

COMPILED = ("roll", "roll by a list", "roll in a loop", "flip by a list")
WEIGHT = np.array([1.0, -2.0, 0.5, 3.0])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("loops", ["auto", "compile", "trace"])
def test_values_and_gradients(name: str, loops: str) -> None:
    function = FUNCTIONS[name]
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    with gt.config.override(loops=loops), warnings.catch_warnings():
        if (
            name not in COMPILED
        ):  # numbers of axes are not known to code that is compiled: it is run and recorded
            warnings.simplefilter("ignore", gt.errors.CompileWarning)
        np.testing.assert_allclose(gt.jit(function)(x), function(x), rtol=1e-12)
        gradient = gt.grad(lambda x: np.sum(WEIGHT * np.ravel(function(x))[:4] ** 2))(x)
        mapped = gt.vmap(function)(np.stack([x, 2 * x]))
    np.testing.assert_allclose(mapped[1], function(2 * x), rtol=1e-12)
    slope = np.sum(WEIGHT * np.ravel(function((1 + 1e-6) * x))[:4] ** 2)
    slope -= np.sum(WEIGHT * np.ravel(function((1 - 1e-6) * x))[:4] ** 2)
    np.testing.assert_allclose(np.sum(gradient * x), slope / 2e-6, rtol=1e-6)


CUBE = np.arange(1.0, 9.0).reshape(2, 2, 2)
BY_AXIS: dict[str, Callable[[Array, int], Array]] = {
    "sum": lambda x, k: x.sum(axis=k),
    "moveaxis": lambda x, k: np.moveaxis(x, k, 0),
    "tensordot": lambda x, k: np.tensordot(CUBE[0], x, axes=([1], [k])),
    "tensordot of a number of axes": lambda x, k: np.tensordot(CUBE, x, axes=k),
    "stack": lambda x, k: np.stack([x, x**2], axis=k),
    "concatenate": lambda x, k: np.concatenate([x, x**2], axis=k),
    "diagonal": lambda x, k: np.diagonal(x, k - 1),
    "rot90": lambda x, k: np.rot90(x, k),
    "rollaxis": lambda x, k: np.rollaxis(x, k),
    "repeat": lambda x, k: np.repeat(x, k + 1, axis=k),
    "eye": lambda x, k: np.eye(2, k=k - 1) * x,
}


@pytest.mark.parametrize("name", BY_AXIS)
@pytest.mark.parametrize("loops", ["auto", "compile", "trace"])
def test_loops_over_axes(name: str, loops: str) -> None:
    """Warnings are errors: a short loop is unrolled, a long one is refused, and neither is an internal error."""

    def short(x: Array) -> Array:
        total = 0.0
        for k in range(3):
            y = BY_AXIS[name](x, k)
            total = total + np.sum(np.cos(np.arange(y.size)).reshape(y.shape) * y**2)
        return total

    def long(x: Array) -> Array:
        total = 0.0
        for k in range(150):
            y = BY_AXIS[name](x, k % 3)
            total = total + np.sum(np.cos(np.arange(y.size)).reshape(y.shape) * y**2)
        return total / 50

    direction = np.cos(CUBE)
    with gt.config.override(loops=loops):
        for function in (short, long):
            value, gradient = gt.value_and_grad(function)(CUBE)
            np.testing.assert_allclose(value, short(CUBE), rtol=1e-11)
            slope = (short(CUBE + 1e-5 * direction) - short(CUBE - 1e-5 * direction)) / 2e-5
            np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-7)
        curvature = gt.hvp(short, (CUBE,), (direction,))
        moved = gt.jvp(gt.grad(short), (CUBE,), (direction,))[1]
        np.testing.assert_allclose(curvature, moved, rtol=1e-11)
        mapped = gt.vmap(gt.grad(short))(np.stack([CUBE, 2 * CUBE]))
        np.testing.assert_allclose(mapped[1], gt.grad(short)(2 * CUBE), rtol=1e-11)


def test_reductions_refuse_arrays_of_axes_as_numpy_does() -> None:
    x = np.ones((2, 3))
    for function in (np.sum, np.max, np.expand_dims):
        with pytest.raises(TypeError):
            function(x, axis=ORDER)
        with pytest.raises(TypeError):
            gt.jit(lambda x, function=function: function(x, axis=ORDER))(x)
