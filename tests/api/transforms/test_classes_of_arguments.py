"""``type(x) is np.ndarray`` in functions that transforms run for the first time."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradtape as gt


def _is_ndarray(x: Any) -> bool:
    return type(x) is np.ndarray


def _functions() -> list[Any]:
    """Return functions with code of their own, of which no transform has been called."""
    source = """
def directly(x):
    return np.sum(x**2) if type(x) == np.ndarray else np.sum(3 * x)

def by_a_helper(x):
    return np.sum(x**2) if _is_ndarray(x) else np.sum(3 * x)

def in_a_lambda(x):
    return (lambda v: np.sum(v**2) if type(v) in (np.ndarray, list) else np.sum(3 * v))(x)
"""
    names = {"np": np, "_is_ndarray": _is_ndarray}
    exec(source, names)
    return [names["directly"], names["by_a_helper"], names["in_a_lambda"]]


def test_the_class_of_an_argument_is_ndarray_in_the_first_call() -> None:
    x = np.arange(3.0)
    for function in _functions():
        value, pullback = gt.vjp(function, x)
        assert value == 5.0
        np.testing.assert_array_equal(pullback(1.0)[0], 2 * x)
    for function in _functions():
        assert gt.jvp(function, (x,), (x,)) == (5.0, 10.0)
    for function in _functions():
        np.testing.assert_array_equal(gt.vmap(function)(np.stack([x, 2 * x])), [5.0, 20.0])
