"""Hypergeometric functions, in their argument, and Wright's Bessel function."""

from __future__ import annotations

import numpy as np

from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.elementwise.exponential import exp
from gradtape.ops.scipy.special.rows import NO_FORMULA, refused, special

inf, nan = np.inf, np.nan

hyp0f1: Elementwise = special(
    "hyp0f1",
    refused("hyp0f1", "v", NO_FORMULA),
    lambda f, v, z: hyp0f1(v + 1.0, z) / v,
    domain=((0.5, 3.0), (-4.0, 4.0)),
    edges=((1.0, 0.0), (nan, 1.0), (2.0, 30.0)),
    accuracy=1e-12,
)
hyp1f1: Elementwise = special(
    "hyp1f1",
    refused("hyp1f1", "a", NO_FORMULA),
    refused("hyp1f1", "b", NO_FORMULA),
    lambda f, a, b, x: a / b * hyp1f1(a + 1.0, b + 1.0, x),
    domain=((0.5, 3.0), (0.5, 3.0), (-3.0, 3.0)),
    edges=((1.0, 2.0, 0.0), (nan, 1.0, 1.0), (0.0, 1.0, 2.0)),
    accuracy=1e-12,
)
hyperu: Elementwise = special(
    "hyperu",
    refused("hyperu", "a", NO_FORMULA),
    refused("hyperu", "b", NO_FORMULA),
    lambda f, a, b, x: -a * hyperu(a + 1.0, b + 1.0, x),
    domain=((0.5, 2.5), (0.3, 1.8), (1.0, 4.0)),
    edges=((nan, 1.0, 1.0), (0.0, 1.0, 2.0)),
    accuracy=1e-8,
)
hyp2f1: Elementwise = special(
    "hyp2f1",
    refused("hyp2f1", "a", NO_FORMULA),
    refused("hyp2f1", "b", NO_FORMULA),
    refused("hyp2f1", "c", NO_FORMULA),
    lambda f, a, b, c, z: a * b / c * hyp2f1(a + 1.0, b + 1.0, c + 1.0, z),
    domain=((0.5, 2.0), (0.5, 2.0), (0.5, 3.0), (-0.7, 0.7)),
    edges=((1.0, 2.0, 3.0, 0.0), (nan, 1.0, 1.0, 0.5)),
    accuracy=1e-12,
)
wright_bessel: Elementwise = special(
    "wright_bessel",
    refused("wright_bessel", "a", NO_FORMULA),
    refused("wright_bessel", "b", NO_FORMULA),
    lambda f, a, b, x: wright_bessel(a, a + b, x),
    domain=((0.2, 2.0), (0.5, 2.0), (0.2, 3.0)),
    edges=((1.0, 1.0, 0.0), (nan, 1.0, 1.0)),
    accuracy=1e-12,
)
log_wright_bessel: Elementwise = special(
    "log_wright_bessel",
    refused("log_wright_bessel", "a", NO_FORMULA),
    refused("log_wright_bessel", "b", NO_FORMULA),
    lambda f, a, b, x: exp(log_wright_bessel(a, a + b, x) - f),
    domain=((0.2, 2.0), (0.5, 2.0), (0.2, 3.0)),
    edges=((1.0, 1.0, 0.0), (nan, 1.0, 1.0)),
    accuracy=1e-12,
)
