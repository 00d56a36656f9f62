"""Series of functions agree with arbitrary precision up to order 8."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mpmath", reason="the series are compared with mpmath: pip install mpmath")

from mpmath import mp

import gradtape as gt
from tests.accuracy.references import REFERENCES

ORDER = 8
QUICK = [
    name
    for name, reference in REFERENCES.items()
    if reference.bits == 4000 or name in ("scipy.special.erf", "scipy.special.erfi")
]
"""Functions that mpmath computes at once; it differentiates the others for minutes."""


@pytest.mark.parametrize("name", QUICK)
def test_series_to_order_8(name: str) -> None:
    reference = REFERENCES[name]
    lows = [max(low, 0.3) if low >= -1 else -1.3 for low, _ in reference.domain]
    highs = [min(high, 1.9) for _, high in reference.domain]
    if name == "np.arccosh":
        lows = [1.2]
    for share in (0.25, 0.6):
        x = [low + share * (high - low) for low, high in zip(lows, highs, strict=True)]
        v = [1.0, -0.7][: len(x)]
        actual = gt.taylor(lambda at: reference.function(*at), x, v, ORDER)
        with mp.workprec(400):
            start, along = [mp.mpf(a) for a in x], [mp.mpf(a) for a in v]
            exact = mp.taylor(
                lambda t: reference.exact(*[a + t * d for a, d in zip(start, along, strict=True)]),  # noqa: B023
                0,
                ORDER,
            )
        expected = np.array([float(mp.re(c)) for c in exact])
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())
