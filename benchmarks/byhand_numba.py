"""Values and gradients derived by hand, as scalar loops for Numba."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

H = 0.01
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


@njit(fastmath=True)
def pendulum_value(angle, speed, damping, gravity, drive, steps):
    th, om, b, g, a = angle[()], speed[()], damping[()], gravity[()], drive[()]
    for _ in range(steps):
        s1 = a - b * om - g * math.sin(th)
        v2 = om + 0.5 * H * s1
        s2 = a - b * v2 - g * math.sin(th + 0.5 * H * om)
        v3 = om + 0.5 * H * s2
        s3 = a - b * v3 - g * math.sin(th + 0.5 * H * v2)
        v4 = om + H * s3
        s4 = a - b * v4 - g * math.sin(th + H * v3)
        th += H / 6.0 * (om + 2.0 * (v2 + v3) + v4)
        om += H / 6.0 * (s1 + 2.0 * (s2 + s3) + s4)
    return th * th + 0.1 * om * om


@njit(fastmath=True)
def pendulum_gradient(angle, speed, damping, gravity, drive, steps):
    th, om, b, g, a = angle[()], speed[()], damping[()], gravity[()], drive[()]
    kept = np.empty((steps, 12))
    for t in range(steps):
        keep = kept[t]
        sin1, keep[8] = math.sin(th), math.cos(th)
        s1 = a - b * om - g * sin1
        v2, th2 = om + 0.5 * H * s1, th + 0.5 * H * om
        sin2, keep[9] = math.sin(th2), math.cos(th2)
        s2 = a - b * v2 - g * sin2
        v3, th3 = om + 0.5 * H * s2, th + 0.5 * H * v2
        sin3, keep[10] = math.sin(th3), math.cos(th3)
        s3 = a - b * v3 - g * sin3
        v4, th4 = om + H * s3, th + H * v3
        sin4, keep[11] = math.sin(th4), math.cos(th4)
        s4 = a - b * v4 - g * sin4
        keep[0], keep[1], keep[2], keep[3] = om, v2, v3, v4
        keep[4], keep[5], keep[6], keep[7] = sin1, sin2, sin3, sin4
        th += H / 6.0 * (om + 2.0 * (v2 + v3) + v4)
        om += H / 6.0 * (s1 + 2.0 * (s2 + s3) + s4)
    by_th, by_om, by_b, by_g, by_a = 2.0 * th, 0.2 * om, 0.0, 0.0, 0.0
    for t in range(steps - 1, -1, -1):
        keep = kept[t]
        s4 = H / 6.0 * by_om
        th4 = -g * keep[11] * s4
        v4 = H / 6.0 * by_th - b * s4
        s3 = H / 3.0 * by_om + H * v4
        th3 = -g * keep[10] * s3
        v3 = H / 3.0 * by_th + H * th4 - b * s3
        s2 = H / 3.0 * by_om + 0.5 * H * v3
        th2 = -g * keep[9] * s2
        v2 = H / 3.0 * by_th + 0.5 * H * th3 - b * s2
        s1 = H / 6.0 * by_om + 0.5 * H * v2
        by_b -= s1 * keep[0] + s2 * keep[1] + s3 * keep[2] + s4 * keep[3]
        by_g -= s1 * keep[4] + s2 * keep[5] + s3 * keep[6] + s4 * keep[7]
        by_a += s1 + s2 + s3 + s4
        by_om += H / 6.0 * by_th + 0.5 * H * th2 + v2 + v3 + v4 - b * s1
        by_th += th2 + th3 + th4 - g * keep[8] * s1
    return th * th + 0.1 * om * om, (by_th, by_om, by_b, by_g, by_a)


COMPILED = {
    "rosen": (rosen_value, rosen_gradient),
    "lse": (lse_value, lse_gradient),
    "bs": (bs_value, bs_gradient),
    "pendulum": (pendulum_value, pendulum_gradient),
}
