"""Compiled functions are as close to the true value as docs/reference/accuracy.md says, and so are sums."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import gradtape as gt

TABLE = (Path(__file__).parents[2] / "docs" / "reference" / "accuracy.md").read_text()
ROW = re.compile(r"^\| `np\.(\w+)` \| (\S+) to (\S+) \| ([\d.]+) \| [\d.]+ \|$", re.MULTILINE)
ROWS = [(name, float(low), float(high), float(bound)) for name, low, high, bound in ROW.findall(TABLE)]
SAMPLES = 20_000

has_wide_floats = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant + 8
wide_only = pytest.mark.skipif(not has_wide_floats, reason="no float here is wider than float64")


def points(low, high):
    """Points over a range: evenly, and by their exponents towards zero where the range has it."""
    rng = np.random.default_rng(0)
    even = rng.uniform(low, high, SAMPLES)
    near = math.copysign(1.0, high) * max(abs(low), abs(high)) * 2.0 ** -rng.uniform(0, 30, SAMPLES)
    return np.concatenate([even, near[(near > low) & (near < high)], -near[(-near > low) & (-near < high)]])


def ulps(got, true):
    """Return the largest distance from the true values, in units of the last place of these."""
    spacing = np.spacing(np.abs(true.astype(np.float64)))
    return float(np.max(np.abs(got.astype(np.longdouble) - true) / spacing))


def measured(name, low, high):
    function = getattr(np, name)
    args = [points(low, high)]
    if function.nin == 2:
        args.append(np.random.default_rng(1).permutation(args[0]))
    got = gt.jit(lambda *xs: function(*xs))(*args)
    return ulps(got, function(*[arg.astype(np.longdouble) for arg in args]))


@wide_only
@pytest.mark.parametrize(("name", "low", "high", "bound"), ROWS, ids=[row[0] for row in ROWS])
def test_a_function_is_as_close_as_documented(name, low, high, bound):
    assert measured(name, low, high) <= bound


@wide_only
def test_exact_rounding_where_the_processor_gives_it():
    x = points(1e-3, 1e3)
    compiled = gt.jit(lambda x: (np.sqrt(x), 1.0 / x, x * x))(x)
    for got, numpys in zip(compiled, (np.sqrt(x), 1.0 / x, x * x), strict=True):
        assert got.tobytes() == numpys.tobytes()


@pytest.mark.parametrize("n", [10**3, 10**5, 2 * 10**6])
def test_the_error_of_a_sum_grows_with_lanes_and_blocks_and_not_with_every_term(n):
    x = np.random.default_rng(2).uniform(size=n)
    true = math.fsum(x)
    error = abs(float(gt.jit(np.sum)(x)) - true) / true
    assert error <= max(n / 32, 8) * 2.0**-53
    assert error <= 4 * math.sqrt(n / 32) * 2.0**-53 + 2.0**-50


def test_a_sum_is_no_worse_for_being_split_into_blocks():
    x = np.random.default_rng(3).uniform(size=2_000_001)
    true = math.fsum(np.exp(np.sin(x)))
    assert abs(float(gt.jit(lambda x: np.sum(np.exp(np.sin(x))))(x)) - true) <= 1e-13 * true
