"""Samples: the derivatives of random numbers for fixed noise are those of quantiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats as stats
from scipy.optimize import brentq

from gradtape.ir.graph import Value, constant
from gradtape.ir.types import aval
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.registry import ROWS
from gradtape.transforms.vjp import vjp
from tests.support.graphs import run

QUANTILES: dict[str, tuple[Callable[..., Any], list[tuple[float, ...]]]] = {
    "gamma_sample": (stats.gamma.ppf, [(0.3,), (1.0,), (4.5,), (60.0,)]),
    "beta_sample": (stats.beta.ppf, [(0.5, 0.7), (2.0, 3.5), (30.0, 4.0)]),
    "student_sample": (stats.t.ppf, [(0.9,), (2.5,), (30.0,)]),
    "wald_sample": (
        lambda u, mean, scale: stats.invgauss.ppf(u, mean / scale, scale=scale),
        [(1.0, 2.0), (3.0, 0.5)],
    ),
    "vonmises_sample": (
        lambda u, mean, k: mean + brentq(lambda x: stats.vonmises.cdf(x, k) - u, -np.pi, np.pi, xtol=1e-14),
        [(0.0, 0.5), (0.4, 2.0), (0.2, 30.0)],
    ),
    "noncentral_chisquare_sample": (stats.ncx2.ppf, [(2.0, 1.5), (5.0, 0.3)]),
    "noncentral_f_sample": (stats.ncf.ppf, [(3.0, 6.0, 1.2)]),
}
"""SciPy's quantiles, with parameters, by the row's name."""


def test_every_row_has_quantiles() -> None:
    rows = {name for name, row in ROWS.items() if isinstance(row, Elementwise) and row.is_sample}
    assert rows == QUANTILES.keys()


def slopes(row: Any, *numbers: float) -> list[float]:
    """Return the first derivatives of a row in its parameters."""
    inputs = [Value(aval((), np.dtype(float))) for _ in numbers]
    parts = vjp([row(*inputs)], inputs[:-1], [constant(np.ones(()))], lambda value: value in inputs)
    return [float(part) for part in run(parts, inputs, [np.array(number) for number in numbers])]


@pytest.mark.parametrize("name", QUANTILES)
@pytest.mark.parametrize("u", [0.03, 0.4, 0.9])
def test_derivatives_are_those_of_quantiles(name: str, u: float) -> None:
    quantile, points = QUANTILES[name]
    for point in points:
        found = slopes(ROWS[name], *point, float(quantile(u, *point)))
        for k, slope in enumerate(found):
            h = 1e-4 * max(point[k], 0.3)

            def moved(step: float, k: int = k, point: tuple[float, ...] = point) -> float:
                return float(quantile(u, *point[:k], point[k] + step, *point[k + 1 :]))

            expected = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
            assert np.isclose(slope, expected, rtol=1e-6, atol=1e-7), (point, k)
