"""Values and gradients derived by hand, as scalar loops for Numba."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

ROOT_HALF = math.sqrt(0.5)
ROOT_TWO_PI_INVERSE = 1.0 / math.sqrt(2.0 * math.pi)


@njit(fastmath=True)
def rosen_value(x):
    total = 0.0
    for i in range(x.size - 1):
        total += 100.0 * (x[i + 1] - x[i] * x[i]) ** 2 + (1.0 - x[i]) ** 2
    return total


@njit(fastmath=True)
def rosen_gradient(x):
    n = x.size
    gradient = np.empty(n)
    total = 100.0 * (x[1] - x[0] * x[0]) ** 2 + (1.0 - x[0]) ** 2
    gradient[0] = -400.0 * x[0] * (x[1] - x[0] * x[0]) - 2.0 * (1.0 - x[0])
    for i in range(1, n - 1):
        before = x[i] - x[i - 1] * x[i - 1]
        miss = x[i + 1] - x[i] * x[i]
        gradient[i] = 200.0 * before - 400.0 * x[i] * miss - 2.0 * (1.0 - x[i])
        total += 100.0 * miss * miss + (1.0 - x[i]) ** 2
    gradient[n - 1] = 200.0 * (x[n - 1] - x[n - 2] * x[n - 2])
    return total, gradient


@njit(fastmath=True)
def lse_value(x):
    top = x[0]
    for i in range(x.size):
        top = max(top, x[i])
    total = 0.0
    for i in range(x.size):
        total += math.exp(x[i] - top)
    return top + math.log(total)


@njit(fastmath=True)
def lse_gradient(x):
    share = np.empty(x.size)
    top = x[0]
    for i in range(x.size):
        top = max(top, x[i])
    total = 0.0
    for i in range(x.size):
        share[i] = math.exp(x[i] - top)
        total += share[i]
    for i in range(x.size):
        share[i] /= total
    return top + math.log(total), share


@njit(fastmath=True)
def normal_cdf(z):
    return 0.5 + 0.5 * math.erf(z * ROOT_HALF)


@njit(fastmath=True)
def bs_value(spot, strike, time, rate, vol):
    total = 0.0
    for i in range(spot.size):
        width = vol[i] * math.sqrt(time[i])
        d1 = (math.log(spot[i] / strike[i]) + (rate[i] + 0.5 * vol[i] * vol[i]) * time[i]) / width
        present = strike[i] * math.exp(-rate[i] * time[i])
        total += spot[i] * normal_cdf(d1) - present * normal_cdf(d1 - width)
    return total


@njit(fastmath=True)
def bs_gradient(spot, strike, time, rate, vol):
    n = spot.size
    by_spot, by_strike, by_time = np.empty(n), np.empty(n), np.empty(n)
    by_rate, by_vol = np.empty(n), np.empty(n)
    total = 0.0
    for i in range(n):
        root = math.sqrt(time[i])
        width = vol[i] * root
        d1 = (math.log(spot[i] / strike[i]) + (rate[i] + 0.5 * vol[i] * vol[i]) * time[i]) / width
        hit = normal_cdf(d1)
        paid = math.exp(-rate[i] * time[i]) * normal_cdf(d1 - width)
        density = spot[i] * ROOT_TWO_PI_INVERSE * math.exp(-0.5 * d1 * d1)
        owed = strike[i] * paid
        by_spot[i] = hit
        by_strike[i] = -paid
        by_time[i] = 0.5 * density * vol[i] / root + rate[i] * owed
        by_rate[i] = time[i] * owed
        by_vol[i] = density * root
        total += spot[i] * hit - owed
    return total, (by_spot, by_strike, by_time, by_rate, by_vol)


COMPILED = {
    "rosen": (rosen_value, rosen_gradient),
    "lse": (lse_value, lse_gradient),
    "bs": (bs_value, bs_gradient),
}
