"""Compiled functions as C functions for SciPy."""

import gc

import numpy as np
import pytest
from scipy.integrate import dblquad, quad

import gradtape as gt
from gradtape.errors import ArgumentError


def test_a_function_of_one_number():
    f = gt.grad(lambda x: np.sin(x) * x).as_low_level_callable()
    gc.collect()
    assert f.signature == "double (double)"
    np.testing.assert_allclose(quad(f, 0.0, np.pi / 2)[0], np.pi / 2)


def test_a_function_of_several_numbers():
    f = gt.jit(lambda x, a, b: b * np.exp(-a * x * x)).as_low_level_callable()
    assert f.signature == "double (int, double *)"
    np.testing.assert_allclose(quad(f, 0.0, np.inf, args=(2.0, 3.0))[0], 1.5 * np.sqrt(np.pi / 2))
    area = dblquad(gt.jit(lambda y, x: x * y).as_low_level_callable(), 0.0, 1.0, 0.0, 2.0)[0]
    np.testing.assert_allclose(area, 1.0)


def test_captured_arrays_and_a_workspace():
    knots = np.linspace(0.0, 1.0, 50)
    f = gt.jit(lambda x: np.sum(np.sort(np.sin(knots * x))[:10]))
    np.testing.assert_allclose(
        quad(f.as_low_level_callable(), 0.0, 1.0)[0], quad(lambda x: float(f(x)), 0.0, 1.0)[0]
    )


def test_what_fails_is_nan():
    f = gt.jit(lambda x: x * 2.0 if x > 0.5 else -x).as_low_level_callable()
    call = f.function
    assert call(1.0) == 2.0 and np.isnan(call(0.25))


def test_what_is_no_function_of_numbers_is_refused():
    with pytest.raises(ArgumentError, match="not a function of 1 numbers"):
        gt.jit(lambda x: x * np.ones(3)).as_low_level_callable()
    with pytest.raises(ArgumentError, match="not a function of 2 numbers"):
        gt.jit(lambda *x: (x[0], x[1])).as_low_level_callable(2)
