"""Compiled functions as C functions for SciPy."""

import gc

import numpy as np
import pytest
from scipy import ndimage
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


IMAGE = np.random.default_rng(0).normal(size=(7, 6))


def weighted(x):
    return np.sum(np.sort(x)[2:7] * np.arange(1.0, 6.0)) / (1.0 + np.exp(x[4]))


def test_a_filter_of_scipys():
    f = gt.jit(weighted).as_low_level_callable(9, signature="generic_filter")
    assert f.signature == "int (double *, npy_intp, double *, void *)"
    np.testing.assert_allclose(
        ndimage.generic_filter(IMAGE, f, size=3), ndimage.generic_filter(IMAGE, weighted, size=3)
    )
    slope = gt.jit(lambda x: gt.grad(weighted)(x)[4]).as_low_level_callable(9, signature="generic_filter")
    found = ndimage.generic_filter(IMAGE, slope, size=3)
    window = IMAGE[2:5, 1:4].ravel()
    np.testing.assert_allclose(found[3, 2], gt.grad(weighted)(window)[4])


def test_a_filter_of_another_size_is_an_error_of_scipys():
    f = gt.jit(weighted).as_low_level_callable(9, signature="generic_filter")
    with pytest.raises(RuntimeError):
        ndimage.generic_filter(IMAGE, f, size=(3, 5))


def test_a_filter_along_lines():
    def differences(line):
        return np.tanh(line[2:] - line[:-2])

    def write(line, out):
        out[...] = differences(line)

    f = gt.jit(differences).as_low_level_callable(8, signature="generic_filter1d")
    np.testing.assert_allclose(
        ndimage.generic_filter1d(IMAGE, f, filter_size=3, axis=1),
        ndimage.generic_filter1d(IMAGE, write, filter_size=3, axis=1),
    )
    with pytest.raises(RuntimeError):
        ndimage.generic_filter1d(IMAGE, f, filter_size=3, axis=0)


@pytest.mark.parametrize("as_array", [False, True])
def test_a_change_of_coordinates(as_array):
    def moved(places):
        row, column = places[0] + 0.3 * np.sin(places[1]), places[1] * 0.9 + 0.1
        return np.stack([row, column]) if as_array else (row, column)

    f = gt.jit(moved).as_low_level_callable(2, signature="geometric_transform")
    found = ndimage.geometric_transform(IMAGE, f, order=1)
    wanted = ndimage.geometric_transform(IMAGE, lambda places: tuple(moved(places)), order=1)
    np.testing.assert_allclose(found, wanted)


def test_what_is_no_such_function_is_refused():
    f = gt.jit(np.sum)
    with pytest.raises(ArgumentError, match="how many numbers"):
        f.as_low_level_callable(signature="generic_filter")
    with pytest.raises(ArgumentError, match="choose one of 'quad', 'generic_filter'"):
        f.as_low_level_callable(signature="filter")
    with pytest.raises(ArgumentError, match="an array of 3 numbers whose result is one array of float64"):
        f.as_low_level_callable(3, signature="generic_filter1d")
    with pytest.raises(ArgumentError, match="whose result is one number of float64"):
        gt.jit(np.sin).as_low_level_callable(3, signature="generic_filter")
