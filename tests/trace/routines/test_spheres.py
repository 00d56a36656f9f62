"""Splines on the sphere: what is affine in the data is followed, on tapes and in jitted functions; the rest says why not."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy
from scipy import interpolate

import gradtape as gt
from gradtape.errors import UnsupportedFunctionError

U, V = np.array([0.4, 0.9, 1.5, 2.2, 2.7]), np.arange(6.0)
HEIGHTS = np.random.default_rng(3).normal(size=(5, 6))
PLACES = np.array([0.5, 1.2, 3.0]), np.array([0.4, 5.0, 2.0])


def heights(r: Any, **options: Any) -> Any:
    return interpolate.RectSphereBivariateSpline(U, V, r, **options).ev(*PLACES)


@pytest.mark.parametrize(
    ("smooth", "values", "is_flat"), [*itertools.product((False, True), (None, (0.3, -0.2)), (False, True))]
)
def test_options_at_the_poles(smooth: bool, values: Any, is_flat: bool) -> None:
    def function(r: Any) -> Any:
        return heights(r, pole_continuity=smooth, pole_values=values, pole_flat=is_flat)

    if is_flat and not smooth:
        with pytest.raises(ValueError, match="pole_flat"):
            gt.jit(function)(HEIGHTS)
        return
    if smooth and values and not is_flat:
        with pytest.raises(UnsupportedFunctionError, match="add pole_flat=True"):
            gt.jit(function)(HEIGHTS)
        return
    if smooth and scipy.__version__.startswith("1.18."):
        pytest.skip("SciPy 1.18 itself reads memory that it has not written")
    for scale in (1.0, 50.0):
        np.testing.assert_allclose(gt.jit(function)(scale * HEIGHTS), function(scale * HEIGHTS), rtol=1e-9)
    gt.check_grads(function, (HEIGHTS,))


@pytest.mark.parametrize("place", [0, 1])
def test_points_of_the_data_are_refused(place: int) -> None:
    def function(x: Any) -> Any:
        points = [U, V]
        points[place] = x
        return np.sum(interpolate.RectSphereBivariateSpline(*points, HEIGHTS)(*PLACES))

    with pytest.raises(UnsupportedFunctionError, match="in anything but its data r"):
        gt.grad(function)((U, V)[place])


def test_smoothing_chooses_knots() -> None:
    with pytest.raises(UnsupportedFunctionError, match="use s=0"):
        gt.grad(lambda r: np.sum(heights(r, s=0.5)))(HEIGHTS)
