"""Finance by loops: trees, Monte Carlo with given normals, volatility, drawdown."""

from __future__ import annotations

import math

import numpy as np

from tests.programs.loops.cases import Array, program


@program(lambda n, random: (100.0, 105.0, 0.05, 0.2, 1.0, n), (0, 1, 2, 3, 4), small=8, large=1000)
def american_put(spot: Array, strike: Array, rate: Array, sigma: Array, maturity: Array, steps: int) -> Array:
    """A binomial tree in one array that is overwritten level by level."""
    dt = maturity / steps
    up = math.exp(sigma * math.sqrt(dt))
    down = 1.0 / up
    discount = math.exp(-rate * dt)
    p = (math.exp(rate * dt) - down) / (up - down)
    value = np.empty(steps + 1)
    for i in range(steps + 1):
        value[i] = max(strike - spot * up ** (2.0 * i - steps), 0.0)
    for level in range(steps - 1, -1, -1):
        for i in range(level + 1):
            hold = discount * (p * value[i + 1] + (1.0 - p) * value[i])
            exercise = strike - spot * up ** (2.0 * i - level)
            value[i] = max(hold, exercise)
    return value[0]


@program(lambda n, random: (100.0, 103.0, 0.03, 0.25, n), (0, 1, 2, 3), small=6, large=500)
def binomial_tree(spot: Array, strike: Array, rate: Array, sigma: Array, steps: int) -> Array:
    """A European call on a whole triangle of values."""
    dt = 1.0 / steps
    up = math.exp(sigma * math.sqrt(dt))
    p = (math.exp(rate * dt) - 1.0 / up) / (up - 1.0 / up)
    value = np.zeros((steps + 1, steps + 1))
    for i in range(steps + 1):
        final = spot * up ** (2 * i - steps)
        if final > strike:
            value[steps, i] = final - strike
    for level in range(steps - 1, -1, -1):
        for i in range(level + 1):
            value[level, i] = math.exp(-rate * dt) * (
                p * value[level + 1, i + 1] + (1.0 - p) * value[level + 1, i]
            )
    return value[0, 0]


@program(
    lambda n, random: (0.1, 0.12, 0.8, 0.3 * random.standard_normal(n)), (0, 1, 2, 3), small=30, large=100_000
)
def garch(omega: Array, alpha: Array, beta: Array, returns: Array) -> Array:
    """The negative log-likelihood of a GARCH(1, 1) process."""
    n = len(returns)
    variance = omega / (1.0 - alpha - beta)
    total = 0.0
    for t in range(n):
        total += 0.5 * (math.log(2.0 * math.pi * variance) + returns[t] ** 2 / variance)
        variance = omega + alpha * returns[t] ** 2 + beta * variance
    return total / n


@program(
    lambda n, random: (100.0, 0.2, 0.03, random.standard_normal((n, 12))),
    (0, 1, 2),
    small=10,
    large=5000,
)
def asian_monte_carlo(spot: Array, sigma: Array, rate: Array, normals: Array) -> Array:
    """An Asian option by paths from given normals, with a barrier that ends a path."""
    paths, steps = normals.shape
    dt = 1.0 / steps
    drift = (rate - 0.5 * sigma**2) * dt
    total = 0.0
    for path in range(paths):
        s = spot
        average = 0.0
        alive = True
        for step in range(steps):
            s *= math.exp(drift + sigma * math.sqrt(dt) * normals[path, step])
            if s < 70.0:
                alive = False
                break
            average += s
        if alive:
            total += max(average / steps - 100.0, 0.0)
    return math.exp(-rate) * total / paths


@program(lambda n, random: (1.0, 0.2, random.standard_normal((n, 5))), (0, 1), small=12, large=5000)
def early_exercise(spot: Array, sigma: Array, normals: Array) -> Array:
    """Longstaff and Schwartz: a quadratic regression by normal equations at each date."""
    paths, dates = normals.shape
    s = np.empty((paths, dates + 1))
    for i in range(paths):
        s[i, 0] = spot
        for t in range(dates):
            s[i, t + 1] = s[i, t] * math.exp(0.3 * sigma * normals[i, t] - 0.045 * sigma * sigma)
    cash = np.zeros(paths)
    for i in range(paths):
        cash[i] = max(1.1 - s[i, dates], 0.0)
    for t in range(dates - 1, 0, -1):
        m = np.zeros((3, 4))
        count = 0
        for i in range(paths):
            cash[i] *= 0.99
            if s[i, t] >= 1.1:
                continue
            count += 1
            basis = (1.0, s[i, t], s[i, t] ** 2)
            for j in range(3):
                for k in range(3):
                    m[j, k] += basis[j] * basis[k]
                m[j, 3] += basis[j] * cash[i]
        if count < 4:
            continue
        for j in range(3):
            m[j, j] += 1e-6
        for k in range(3):
            for i in range(k + 1, 3):
                ratio = m[i, k] / m[k, k]
                for j in range(k, 4):
                    m[i, j] -= ratio * m[k, j]
        c2 = m[2, 3] / m[2, 2]
        c1 = (m[1, 3] - m[1, 2] * c2) / m[1, 1]
        c0 = (m[0, 3] - m[0, 1] * c1 - m[0, 2] * c2) / m[0, 0]
        for i in range(paths):
            if s[i, t] < 1.1 and 1.1 - s[i, t] > c0 + c1 * s[i, t] + c2 * s[i, t] ** 2:
                cash[i] = 1.1 - s[i, t]
    return cash.mean()


@program(lambda n, random: (np.cumsum(random.standard_normal(n)) + 50.0,), small=30, large=100_000)
def drawdown(prices: Array) -> Array:
    """The largest loss since the highest price so far, and the mean of the losses."""
    peak = prices[0]
    worst = 0.0
    total = 0.0
    for price in prices:
        peak = max(peak, price)
        loss = (peak - price) / peak
        if loss > worst:
            worst = loss
        total += loss
    return worst + total / prices.size


@program(lambda n, random: (np.maximum(np.linspace(-1.0, 1.0, n), 0.0), 0.3, 4), (0, 1), small=8, large=2000)
def crank_nicolson(initial: Array, diffusion: Array, steps: int) -> Array:
    """Half explicit, half implicit steps, each with a tridiagonal solve in the same arrays."""
    n = initial.size
    u = initial.copy()
    c = np.empty(n)
    d = np.empty(n)
    for _ in range(steps):
        c[0] = 0.0
        d[0] = u[0]
        for i in range(1, n - 1):
            right = u[i] + 0.5 * diffusion * (u[i - 1] - 2.0 * u[i] + u[i + 1])
            m = 1.0 + diffusion + 0.5 * diffusion * c[i - 1]
            c[i] = -0.5 * diffusion / m
            d[i] = (right + 0.5 * diffusion * d[i - 1]) / m
        for i in range(n - 2, 0, -1):
            u[i] = d[i] - c[i] * u[i + 1]
    return np.sum(u**2)
