"""NumPy's error state in traced code: no FloatingPointError is raised, and a warning says so."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import interpolate

import gradtape as gt
from gradtape.errors import GradtapeWarning

X = np.array([1.5, -0.5])


def by_block(x: Any) -> Any:
    with np.errstate(invalid="raise"):
        try:
            return np.sum(np.sqrt(x))
        except FloatingPointError:
            return np.sum(x**2)


def by_setting(x: Any) -> Any:
    before = np.seterr(divide="raise")
    try:
        return np.sum(1.0 / x)
    finally:
        np.seterr(**before)


def on_tape(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        with gt.GradientTape() as tape:
            y = function(tape.watch(x))
        return y, tape

    return run


@pytest.mark.parametrize("way", [gt.jit, gt.grad, on_tape])
@pytest.mark.parametrize(("function", "kind"), [(by_block, "invalid"), (by_setting, "divide")])
def test_errors_that_are_not_raised_are_told(way: Any, function: Callable[..., Any], kind: str) -> None:
    with pytest.warns(GradtapeWarning, match=rf"no FloatingPointError.*\({kind}\)"):
        way(function)(X)


def test_a_warning_that_is_an_error_leaves_the_state_as_it_was() -> None:
    before = np.geterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in by_block, by_setting:
            with pytest.raises(GradtapeWarning):
                gt.jit(function)(X)
    assert np.geterr() == before


@pytest.mark.parametrize("way", [gt.jit, gt.grad, on_tape])
def test_states_that_scipy_changes_are_not_told(way: Any) -> None:
    knots = np.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 3.0])

    def slope(c: Any) -> Any:
        return interpolate.BSpline(knots, c, 2).derivative()(0.5)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        way(slope)(np.arange(5.0))
        with np.errstate(all="raise"):
            way(slope)(np.arange(5.0))


@pytest.mark.parametrize("way", [gt.jit, gt.grad, on_tape])
def test_states_that_raise_nothing_are_not_told(way: Any) -> None:
    def quiet(x: Any) -> Any:
        with np.errstate(all="ignore"), np.errstate(divide="warn"):
            return np.sum(np.sqrt(x)) + np.sum(np.linalg.inv(np.outer(x, x) + np.eye(2)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        way(quiet)(X)
