"""The exponential and the hyperbolic tangent of short vectors, as loops over time compute them."""

import math

import numpy as np
import pytest

import gradtape as gt

NAMES = ("exp", "tanh")
SPECIAL = (
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    5e-324,
    1e-300,
    709.78,
    709.79,
    1e300,
    -744.4,
    -745.2,
    -1e300,
    -740.3,
)


def arguments():
    rng = np.random.default_rng(0)
    return np.concatenate(
        [
            SPECIAL,
            rng.uniform(-1, 1, 6000),
            rng.uniform(-30, 30, 6000),
            rng.uniform(-708, 709, 6000),
            -(10.0 ** rng.uniform(-20, 0, 500)),
        ]
    )


def rows_of(name, width):
    """The function of rows, in a loop that cannot compute them together: it carries ones."""
    function = getattr(np, name)
    return gt.jit(
        lambda rows: gt.scan(lambda one, x: (one * one, function(one * x)), np.ones(width), rows)[1]
    )


@pytest.mark.parametrize("width", [2, 4, 14])
@pytest.mark.parametrize("name", NAMES)
def test_short_vectors_are_within_three_units_in_the_last_place(name, width):
    xs = arguments()
    rows = np.resize(xs, (-(-xs.size // width), width))
    got = rows_of(name, width)(rows).reshape(-1)[: xs.size]
    function = getattr(math, name)
    true = np.array([math.inf if name == "exp" and x > 709.7827128933841 else function(x) for x in xs])
    assert np.array_equal(np.isnan(got), np.isnan(true))
    infinite = np.isinf(true)
    assert np.array_equal(got[infinite], true[infinite])
    fine = np.isfinite(true)
    assert (np.abs(got[fine] - true[fine]) <= 3 * np.spacing(np.abs(true[fine]))).all()
    assert np.array_equal(np.signbit(got[fine]), np.signbit(true[fine]))
