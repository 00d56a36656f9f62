"""Shape parameters at which SciPy takes the limit of a distribution's formulas: the derivatives are those of the limit."""

import numpy as np
import pytest
import scipy.stats as st

import gradtape as gt

CASES = [
    ("genextreme", (0.0,), 0),
    ("genpareto", (0.0,), 0),
    ("kappa4", (0.0, 0.3), 0),
    ("kappa4", (0.5, 0.0), 1),
    ("kappa4", (0.0, 0.0), 0),
    ("kappa4", (0.0, 0.0), 1),
    ("pearson3", (0.0,), 0),
]
METHODS = ("logpdf", "logcdf", "sf", "ppf", "isf")


def difference(function, at, step=0.02):
    """Return a difference of the sixth order, which does not evaluate the function at the point itself."""
    ends = [
        (weight, function(at + k * step), function(at - k * step)) for k, weight in ((1, 45), (2, -9), (3, 1))
    ]
    return sum(weight * (above - below) for weight, above, below in ends) / (60 * step)


@pytest.mark.parametrize(("name", "shapes", "place"), CASES)
def test_derivatives_in_shape_parameters_at_the_limit(name, shapes, place):
    distribution = getattr(st, name)
    for method in METHODS:
        points = np.array([0.35, 0.6]) if method in ("ppf", "isf") else np.array([0.4, 0.9])

        def function(shape, method=method, points=points):
            given = (*shapes[:place], shape, *shapes[place + 1 :])
            return np.asarray(getattr(distribution, method)(points, *given))

        if name == "kappa4" and method in ("ppf", "isf") and place == 0 and shapes[1] == 0.0:
            continue  # SciPy returns NaN for a negative h where k is 0
        with gt.GradientTape() as tape:
            shape = tape.watch(np.full(2, shapes[place]))
            y = getattr(distribution, method)(points, *shapes[:place], shape, *shapes[place + 1 :])
        np.testing.assert_allclose(y, function(shapes[place]), rtol=1e-12)
        np.testing.assert_allclose(
            tape.gradient(y, shape), difference(function, shapes[place]), rtol=1e-6, atol=1e-7
        )


def test_second_derivatives_of_compiled_functions():
    slope = gt.grad(
        lambda c: st.kappa4.logpdf(0.7, 0.2, c) + st.genextreme.logpdf(0.5, c) + st.pearson3.logpdf(0.9, c)
    )
    np.testing.assert_allclose(gt.grad(slope)(0.0), difference(slope, 0.0), rtol=1e-5)


def test_the_ends_of_supports():
    np.testing.assert_array_equal(gt.jit(st.genpareto.logpdf)(np.ones(1), -1.0), [0.0])
    np.testing.assert_array_equal(gt.jit(st.genextreme.logpdf)(np.array([1.0, 2.0]), 1.0), [0.0, -np.inf])
    np.testing.assert_array_equal(gt.jit(st.genextreme.logpdf)(np.ones(1) * 2, 0.5), [-np.inf])
    np.testing.assert_array_equal(
        gt.jit(st.kappa4.pdf)(np.zeros(1), 1.0, 1.0), st.kappa4.pdf(np.zeros(1), 1.0, 1.0)
    )


def test_von_mises_without_concentration():
    x = np.array([0.3, -1.2])
    with gt.GradientTape(persistent=True) as tape:
        kappa = tape.watch(np.float64(0.0))
        density, below, entropy = (
            st.vonmises.logpdf(x, kappa),
            st.vonmises.cdf(x, kappa),
            st.vonmises.entropy(kappa),
        )
    np.testing.assert_allclose(tape.gradient(density, kappa), np.sum(np.cos(x)))
    np.testing.assert_allclose(tape.gradient(below, kappa), np.sum(np.sin(x)) / (2 * np.pi), rtol=1e-9)
    assert tape.gradient(entropy, kappa) == 0.0
