"""Inlined mathematics: functions of short vectors and of scalars, as sequential loops compute them."""

import math

import numpy as np
import pytest

import gradtape as gt

VECTOR_FUNCTIONS = ("exp", "tanh")
SPECIAL_ARGUMENTS = (
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
            SPECIAL_ARGUMENTS,
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
@pytest.mark.parametrize("name", VECTOR_FUNCTIONS)
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


SCALAR_FUNCTIONS = ("sin", "cos")
SPECIAL_ANGLES = (0.0, -0.0, np.nan, 5e-324, -1e-310, 1e-160, 1e22, -1.7e308, 1048576.0, -2e6)
LARGEST = float(np.nextafter(1048576.0, 0))


def angles():
    """Angles of all sizes, those next to zeros of both functions among them."""
    rng = np.random.default_rng(0)
    multiples = np.arange(-2000, 2001) * (math.pi / 2)
    return np.concatenate(
        [
            rng.uniform(-math.pi / 2, math.pi / 2, 4000),
            rng.uniform(-1e3, 1e3, 4000),
            rng.uniform(-LARGEST, LARGEST, 2000),
            multiples,
            np.nextafter(multiples, np.inf),
            np.nextafter(multiples, -np.inf),
            rng.integers(1, 600_000, 2000) * (math.pi / 2),
            10.0 ** rng.uniform(-300, 0, 500),
            SPECIAL_ANGLES,
            [LARGEST, -LARGEST],
        ]
    )


def one_by_one(name):
    """The function of each element, in a loop that cannot compute them together: it carries a 1."""
    function = getattr(np, name)
    return gt.jit(lambda xs: gt.scan(lambda one, x: (one * one, function(one * x)), 1.0, xs)[1])


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_scalars_are_within_three_units_in_the_last_place(name):
    xs = angles()
    got = one_by_one(name)(xs)
    true = np.array([getattr(math, name)(x) for x in xs])
    assert np.array_equal(np.isnan(got), np.isnan(true))
    fine = ~np.isnan(true)
    assert (np.abs(got[fine] - true[fine]) <= 3 * np.spacing(np.abs(true[fine]))).all()
    assert np.array_equal(np.signbit(got[fine]), np.signbit(true[fine]))


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_an_infinite_angle_has_none(name):
    with np.errstate(invalid="ignore"):
        assert np.isnan(one_by_one(name)(np.array([np.inf, -np.inf]))).all()


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_straight_line_code_computes_the_bits_of_a_loop(name):
    xs = angles()[::100]
    function = getattr(np, name)
    rolled = one_by_one(name)(xs)
    single = gt.jit(lambda x: function(x))
    assert np.array([single(x) for x in xs]).tobytes() == rolled.tobytes()


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_precise_math_is_the_librarys(name):
    xs = angles()[:2000]
    with gt.config.override(precise_math=True):
        got = one_by_one(name)(xs)
    assert got.tolist() == [getattr(math, name)(x) for x in xs]
