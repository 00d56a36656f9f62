"""Loops of independent iterations, by ``numba.prange``."""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from tests.programs.loops.cases import program


@program(lambda n, random: (random.standard_normal(n),), small=7, large=1500)
def pair_energy(x):
    """Return the energy of all pairs: a sum over iterations, and adjoints that many iterations add to."""
    total = 0.0
    for i in prange(len(x)):
        own = 0.0
        for j in range(len(x)):
            own += math.exp(-((x[i] - x[j]) ** 2))
        total += own
    return total


@program(lambda n, random: (random.standard_normal((n, n)), 0.2), (0, 1), small=6, large=700)
def smooth_rows(u, rate):
    """Return rows that are smoothed each for itself, several times in place."""
    out = u.copy()
    for i in prange(out.shape[0]):
        for _ in range(4):
            for j in range(1, out.shape[1] - 1):
                out[i, j] += rate * math.tanh(out[i, j - 1] - 2.0 * out[i, j] + out[i, j + 1])
    return np.sum(out * out)


@program(lambda n, random: (random.standard_normal((n, 12)), 0.05, 0.2), (0, 1, 2), small=9, large=40_000)
def asian_option(z, drift, volatility):
    """Return the mean of payoffs, one path in each iteration."""
    total = 0.0
    step = 1.0 / z.shape[1]
    for path in prange(z.shape[0]):
        price = 1.0
        mean = 0.0
        for k in range(z.shape[1]):
            price *= math.exp(
                (drift - 0.5 * volatility**2) * step + volatility * math.sqrt(step) * z[path, k]
            )
            mean += price / z.shape[1]
        total += max(mean - 1.0, 0.0)
    return total / z.shape[0]
