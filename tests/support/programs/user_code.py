"""Programs as people write them in NumPy: statistics, optimisation, finance, simulation, machine learning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

RNG = np.random.default_rng(3)


@dataclass(frozen=True)
class Program:
    """A function of arrays and dictionaries of them with one number as its result, and arguments in whose vicinity it is smooth.

    Attributes
    ----------
    function : callable
        Plain NumPy code.
    args : tuple
        Float arguments; it is differentiated in all of them.
    other : tuple
        The same with other numbers.
    larger : tuple
        The same with other shapes; empty where the program has one size only.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    other: tuple[Any, ...]
    larger: tuple[Any, ...] = ()


PROGRAMS: dict[str, Program] = {}


def program(*draws: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a program with its arguments."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = Program(function, *draws)
        return function

    return enter


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def positive(*shape: int) -> Any:
    return RNG.uniform(0.5, 1.5, size=shape)


def labels(n: int) -> Any:
    return (np.arange(n) % 2).astype(float)


def logsumexp(a: Any, axis: Any = None) -> Any:
    top = np.max(a, axis=axis, keepdims=True)
    return np.squeeze(top, axis) + np.log(np.sum(np.exp(a - top), axis=axis))


# Statistics


@program(
    *[
        ({"w": normal(d), "b": 0.1 * k}, normal(n, d), labels(n))
        for k, (n, d) in enumerate([(8, 3), (8, 3), (5, 2)])
    ]
)
def logistic_regression(params: Any, x: Any, y: Any) -> Any:
    logits = x @ params["w"] + params["b"]
    return np.mean(np.logaddexp(0.0, logits) - y * logits) + 0.01 * np.sum(params["w"] ** 2)


@program(*[(normal(k), normal(n, k), np.round(4 * positive(n))) for n, k in [(7, 3), (7, 3), (4, 2)]])
def poisson_regression(beta: Any, x: Any, counts: Any) -> Any:
    eta = x @ beta
    return -np.sum(counts * eta - np.exp(eta) - special.gammaln(counts + 1.0))


@program(*[(positive(), positive(), positive(n)) for n in (6, 6, 9)])
def gamma_likelihood(shape: Any, rate: Any, x: Any) -> Any:
    return -np.sum(shape * np.log(rate) - special.gammaln(shape) + special.xlogy(shape - 1, x) - rate * x)


@program(*[(normal(k), normal(n, k), labels(n)) for n, k in [(6, 2), (6, 2), (9, 3)]])
def probit(beta: Any, x: Any, y: Any) -> Any:
    signs = 2 * y - 1
    return -special.log_ndtr(signs * (x @ beta)).sum()


@program(*[(normal(n), positive(), positive(), np.linspace(0, 1, n)) for n in (5, 5, 7)])
def gaussian_process(y: Any, length: Any, noise: Any, x: Any) -> Any:
    n = len(x)
    k = np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2 / length**2) + noise * np.eye(n)
    factor = np.zeros((n, n), like=k)
    for i in range(n):
        for j in range(i + 1):
            s = k[i, j] - np.dot(factor[i, :j], factor[j, :j])
            factor[i, j] = np.sqrt(s) if i == j else s / factor[j, j]
    z = np.zeros(n, like=k)
    for i in range(n):
        z[i] = (y[i] - factor[i, :i] @ z[:i]) / factor[i, i]
    return 0.5 * z @ z + np.log(np.diag(factor)).sum() + 0.5 * n * np.log(2 * np.pi)


@program(*[(normal(n), positive(), positive()) for n in (6, 6, 4)])
def kalman_filter(observed: Any, q: Any, r: Any) -> Any:
    transition = np.array([[1.0, 0.1], [0.0, 1.0]])
    state = np.zeros(2)
    covariance = np.eye(2)
    total = 0.0
    for y in observed:
        state = transition @ state
        covariance = transition @ covariance @ transition.T + q * np.diag([0.01, 0.1])
        innovation = y - state[0]
        s = covariance[0, 0] + r
        gain = covariance[:, 0] / s
        state = state + gain * innovation
        covariance = covariance - np.outer(gain, covariance[0])
        total += 0.5 * (np.log(2 * np.pi * s) + innovation**2 / s)
    return total


@program(*[(normal(k, 2), positive(k), normal(k), normal(n, 2)) for n, k in [(8, 3), (8, 3), (5, 2)]])
def mixture(means: Any, scales: Any, logits: Any, x: Any) -> Any:
    squares = np.sum((x[:, None, :] - means) ** 2, axis=-1)
    scores = logits - logsumexp(logits) - squares / (2 * scales**2) - 2 * np.log(scales)
    return -np.mean(logsumexp(scores, axis=1))


@program(*[(normal(k), normal(n, k), 3 * normal(n)) for n, k in [(9, 2), (9, 2), (6, 3)]])
def robust_regression(beta: Any, x: Any, y: Any, delta: float = 1.345) -> Any:
    residuals = y - x @ beta
    size = np.abs(residuals)
    return np.where(size <= delta, 0.5 * residuals**2, delta * (size - 0.5 * delta)).sum()


@program(*[(normal(k), normal(n, k), normal(n)) for n, k in [(9, 2), (9, 2), (6, 3)]])
def quantile_loss(beta: Any, x: Any, y: Any, level: float = 0.9) -> Any:
    e = y - x @ beta
    return np.mean(np.maximum(level * e, (level - 1) * e))


@program(*[(normal(n),) for n in (8, 8, 11)])
def student_t(x: Any) -> Any:
    centred = x - x.mean()
    t = x.mean() / (x.std(ddof=1) / np.sqrt(x.size))
    return t + np.mean(centred**3) / np.var(x) ** 1.5


@program(*[(normal(n), normal(n)) for n in (8, 8, 5)])
def correlation(x: Any, y: Any) -> Any:
    return np.corrcoef(x, y)[0, 1] + np.cov(x, y)[1, 0]


@program(*[(normal(n), 2.0 * positive(n)) for n in (7, 7, 4)])
def cox_partial_likelihood(eta: Any, times: Any) -> Any:
    risk = np.exp(eta)[np.argsort(-times)]
    return -np.sum(eta) + np.sum(np.log(np.cumsum(risk)))


# Optimisation


@program(*[(normal(n),) for n in (5, 5, 3)])
def rosenbrock(x: Any) -> Any:
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(len(x) - 1))


@program((np.array(2.0),), (np.array(3.5),))
def newton_root(a: Any) -> Any:
    x = a
    while abs(x * x * x - a) > 1e-6 * a:
        x = x - (x**3 - a) / (3 * x**2)
    return x


@program(*[(np.eye(n) * 3 + 0.3 * normal(n, n), normal(n)) for n in (4, 4, 3)])
def lu_solve(matrix: Any, right: Any) -> Any:
    a = matrix.copy()
    b = right.copy()
    n = len(b)
    for k in range(n - 1):
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            a[i, k + 1 :] -= a[i, k] * a[k, k + 1 :]
            b[i] -= a[i, k] * b[k]
    for i in reversed(range(n)):
        b[i] = (b[i] - a[i, i + 1 :] @ b[i + 1 :]) / a[i, i]
    return np.sum(b**2) + np.prod(np.diagonal(a))


@program(*[(normal(n), positive(n)) for n in (4, 4, 6)])
def unrolled_gradient_descent(start: Any, scale: Any) -> Any:
    x = start
    momentum = np.zeros_like(x)
    for _ in range(10):
        momentum = 0.9 * momentum - 0.02 * (scale * x + 0.1 * np.sin(x))
        x = x + momentum
    return np.linalg.norm(x)


@program(*[(0.5 * normal(n, n) + 2 * np.eye(n),) for n in (3, 3, 4)])
def power_iteration(m: Any) -> Any:
    v = np.ones(m.shape[0]) / np.sqrt(m.shape[0])
    for _ in range(5):
        v = m @ v
        v /= np.sqrt(np.sum(v * v))
    return v @ m @ v


# Finance


@program(*[(100 * positive(n), 100 * positive(n), positive(n), 0.03, 0.2) for n in (4, 4, 7)])
def black_scholes(spot: Any, strike: Any, years: Any, rate: Any, vol: Any) -> Any:
    d1 = (np.log(spot / strike) + (rate + vol**2 / 2) * years) / (vol * np.sqrt(years))
    d2 = d1 - vol * np.sqrt(years)
    return np.sum(spot * special.ndtr(d1) - strike * np.exp(-rate * years) * special.ndtr(d2))


@program(
    *[
        ({"v0": 0.04, "kappa": 1.5 + k / 10, "theta": 0.05, "xi": 0.3}, normal(2, s, n), 0.02)
        for k, (s, n) in enumerate([(3, 6), (3, 6), (4, 3)])
    ]
)
def heston(params: Any, noise: Any, rate: Any, rho: float = -0.6) -> Any:
    steps, paths = noise.shape[1:]
    dt = 1.0 / steps
    log_price = np.zeros(paths)
    variance = params["v0"] * np.ones(paths)
    for dw1, dw2 in zip(noise[0], noise[1], strict=True):
        dw2 = rho * dw1 + np.sqrt(1 - rho**2) * dw2
        root = np.sqrt(np.maximum(variance, 1e-4))
        log_price = log_price + (rate - variance / 2) * dt + root * np.sqrt(dt) * dw1
        variance = variance + params["kappa"] * (params["theta"] - variance) * dt
        variance += params["xi"] * root * np.sqrt(dt) * dw2
    return np.exp(-rate) * np.mean(np.logaddexp(0.0, 20 * (np.exp(log_price) - 1)) / 20)


@program(
    *[
        (
            {"spot": 100.0, "vol": 0.2 + k / 50},
            [{"strike": 90.0 + 10 * i, "years": 0.5 + i} for i in range(n)],
        )
        for k, n in enumerate((3, 3, 2))
    ]
)
def option_book(market: Any, book: Any) -> Any:
    total = 0.0
    for option in book:
        spread = market["vol"] * np.sqrt(option["years"])
        d1 = np.log(market["spot"] / option["strike"]) / spread + spread / 2
        total = total + market["spot"] * special.ndtr(d1) - option["strike"] * special.ndtr(d1 - spread)
    return total


@program(*[(0.03 + 0.01 * normal(n), 5 * positive(n)) for n in (6, 6, 9)])
def present_value(forwards: Any, cash: Any) -> Any:
    return np.sum(cash * np.cumprod(1 / (1 + forwards)))


@program(*[(positive(n), np.linspace(0.3, n - 1.3, m)) for n, m in [(5, 4), (5, 4), (7, 6)]])
def yield_curve(nodes: Any, years: Any) -> Any:
    rates = np.interp(years, np.arange(len(nodes)), nodes)
    return np.sum(np.exp(-rates * years))


@program(*[(normal(k), 0.1 * normal(n, k)) for n, k in [(12, 3), (12, 3), (9, 4)]])
def portfolio(weights: Any, returns: Any) -> Any:
    w = np.exp(weights) / np.sum(np.exp(weights))
    covariance = np.cov(returns, rowvar=False)
    gains = returns @ w
    tail = np.sort(gains)[:3]
    return w @ covariance @ w - np.mean(gains) - np.mean(tail)


@program(*[(100.0, positive(), 0.02 * k + 0.05) for k in (1, 2)])
def binomial_american(spot: Any, vol: Any, rate: Any, steps: int = 6) -> Any:
    up = np.exp(vol / np.sqrt(steps))
    p = (np.exp(rate / steps) - 1 / up) / (up - 1 / up)
    prices = spot * up ** np.arange(-steps, steps + 1, 2)
    values = np.maximum(101.7 - prices, 0)
    for _ in range(steps):
        values = np.exp(-rate / steps) * (p * values[1:] + (1 - p) * values[:-1])
        prices = prices[:-1] * up
        values = np.maximum(values, 101.7 - prices)
    return values[0]


# Simulation


@program((0.3, 0.1, np.array([0.8, 0.2, 0.0])), (0.5, 0.2, np.array([0.9, 0.1, 0.0])))
def sir(beta: Any, gamma: Any, start: Any) -> Any:
    s, i, r = start
    for _ in range(15):
        infected, recovered = beta * s * i, gamma * i
        s, i, r = s - infected, i + infected - recovered, r + recovered
    return np.log(i) + r


@program(*[(positive(n), 0.2) for n in (8, 8, 6)])
def heat_equation(u: Any, alpha: Any) -> Any:
    u = u.copy()
    for _ in range(5):
        u[1:-1] += alpha * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[0], u[-1] = u[1], u[-2]
    return (u**2).sum()


@program(*[(normal(n, m), 0.1) for n, m in [(5, 6), (5, 6), (4, 4)]])
def wave_equation(u: Any, c: Any) -> Any:
    previous, now = u, u * 1.0
    for _ in range(2):
        laplacian = (
            np.roll(now, 1, 0) + np.roll(now, -1, 0) + np.roll(now, 1, 1) + np.roll(now, -1, 1) - 4 * now
        )
        previous, now = now, 2 * now - previous + c * laplacian
    return np.mean(now**2)


@program(*[(normal(n, 2), positive(n)) for n in (4, 4, 5)])
def n_body_energy(positions: Any, masses: Any) -> Any:
    i, j = np.triu_indices(len(masses), 1)
    distance = np.linalg.norm(positions[i] - positions[j], axis=1)
    return -np.sum(masses[i] * masses[j] / np.sqrt(distance**2 + 0.01))


@program((np.array([1.0, 0.5]), 1.1), (np.array([0.2, -0.5]), 0.7))
def runge_kutta(state: Any, mu: Any) -> Any:
    def rhs(s: Any) -> Any:
        x, v = s
        return np.array([v, mu * (1 - x**2) * v - x], like=s)

    for _ in range(4):
        k1 = rhs(state)
        k2 = rhs(state + 0.05 * k1)
        k3 = rhs(state + 0.05 * k2)
        k4 = rhs(state + 0.1 * k3)
        state = state + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return state @ state


@program(*[(normal(n), normal(m)) for n, m in [(3, 4), (3, 4), (3, 3)]])
def dynamic_time_warping(x: Any, y: Any) -> Any:
    cost = (x[:, None] - y[None, :]) ** 2
    table = np.full((len(x) + 1, len(y) + 1), np.inf, like=cost)
    table[0, 0] = 0.0
    for i in range(len(x)):
        for j in range(len(y)):
            table[i + 1, j + 1] = cost[i, j] + min(table[i, j], table[i, j + 1], table[i + 1, j])
    return table[-1, -1]


# Machine learning


@program(*[(normal(k, 2), normal(n, 2)) for n, k in [(9, 3), (9, 3), (6, 2)]])
def k_means(centres: Any, x: Any) -> Any:
    squares = ((x[:, None] - centres[None]) ** 2).sum(-1)
    return np.min(squares, axis=1).mean()


@program(
    *[({"w": normal(d, c), "b": normal(c)}, normal(n, d)) for n, d, c in [(6, 3, 4), (6, 3, 4), (5, 2, 3)]]
)
def softmax_classifier(params: Any, x: Any) -> Any:
    targets = np.arange(len(x)) % params["b"].size
    scores = x @ params["w"] + params["b"]
    scores -= scores.max(axis=1, keepdims=True)
    log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return -log_p[np.arange(len(x)), targets].mean()


@program(
    *[
        ([(normal(d, h), normal(h)), (normal(h, 1), normal(1))], normal(n, d), normal(n))
        for n, d, h in [(6, 2, 5), (6, 2, 5), (4, 3, 4)]
    ]
)
def multilayer_perceptron(layers: Any, x: Any, y: Any) -> Any:
    for w, b in layers[:-1]:
        x = np.tanh(x @ w + b)
    w, b = layers[-1]
    return ((x @ w + b).ravel() - y).var() + np.mean(x**2)


@program(*[(normal(n, n), normal(3, 3)) for n in (6, 6, 5)])
def convolution(image: Any, kernel: Any) -> Any:
    h, w = image.shape[0] - 2, image.shape[1] - 2
    out = sum(kernel[i, j] * image[i : i + h, j : j + w] for i in range(3) for j in range(3))
    return np.sum(np.maximum(out, 0) ** 2)


@program(*[(normal(2, t, d), normal(d, 3 * d), normal(d, d)) for t, d in [(4, 4), (4, 4), (3, 2)]])
def attention(x: Any, w: Any, out: Any, heads: int = 2) -> Any:
    b, t, d = x.shape
    q, k, v = np.split(np.einsum("btd,de->bte", x, w), 3, axis=-1)
    q, k, v = (a.reshape(b, t, heads, d // heads).transpose(0, 2, 1, 3) for a in (q, k, v))
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(d // heads)
    scores = np.where(np.tril(np.ones((t, t), bool)), scores, -1e9)
    weights = np.exp(scores - logsumexp(scores, axis=-1)[..., None])
    mixed = np.einsum("bhqk,bhkd->bhqd", weights, v).transpose(0, 2, 1, 3).reshape(b, t, d)
    return np.mean((mixed @ out + x) ** 2)


@program(*[(normal(n, d), positive(d), normal(d)) for n, d in [(4, 5), (4, 5), (3, 3)]])
def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    scale = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    y = gain * (x - mean) / scale + bias
    return np.sum(0.5 * y * (1 + special.erf(y / np.sqrt(2))))


@program(*[(normal(k + 3), np.linspace(0.06, 0.93, n)) for n, k in [(7, 4), (7, 4), (5, 3)]])
def spline(coefficients: Any, x: Any, degree: int = 3) -> Any:
    count = len(coefficients)
    knots = np.concatenate([np.zeros(degree), np.linspace(0, 1, count - degree + 1), np.ones(degree)])
    basis = [np.where((knots[i] <= x) & (x < knots[i + 1]), 1.0, 0.0) for i in range(len(knots) - 1)]
    for p in range(1, degree + 1):
        following = []
        for i in range(len(knots) - p - 1):
            term = np.zeros_like(x)
            if knots[i + p] > knots[i]:
                term = term + (x - knots[i]) / (knots[i + p] - knots[i]) * basis[i]
            if knots[i + p + 1] > knots[i + 1]:
                term = term + (knots[i + p + 1] - x) / (knots[i + p + 1] - knots[i + 1]) * basis[i + 1]
            following.append(term)
        basis = following
    return np.sum((np.stack(basis, axis=1) @ coefficients - np.sin(6 * x)) ** 2)


@program(
    *[(np.sin(2.0 * np.arange(n) + k), np.cos(2.0 * np.arange(n) - k)) for k, n in enumerate((7, 7, 10))]
)
def sliced_wasserstein(x: Any, y: Any) -> Any:
    return np.mean((np.sort(x) - np.sort(y)) ** 2) + np.median(x) - np.percentile(y, 30)


@program(*[(normal(t, 2), 0.5 * normal(3, 3), normal(2, 3)) for t in (5, 5, 3)])
def recurrent_network(inputs: Any, recurrent: Any, entering: Any) -> Any:
    h = np.zeros(3)
    states = []
    for x in inputs:
        h = np.tanh(h @ recurrent + x @ entering)
        states.append(h)
    return np.sum(np.stack(states) ** 2)


@program(*[(normal(t, s), normal(s, s)) for t, s in [(5, 3), (5, 3), (4, 2)]])
def hidden_markov_forward(emissions: Any, logits: Any) -> Any:
    transition = logits - logsumexp(logits, axis=1)[:, None]
    alpha = emissions[0] - np.log(emissions.shape[1])
    for t in range(1, len(emissions)):
        alpha = logsumexp(alpha[:, None] + transition, axis=0) + emissions[t]
    return logsumexp(alpha)


@program(*[(normal(n, d), np.array(0.7)) for n, d in [(5, 3), (5, 3), (4, 2)]])
def contrastive_loss(z: Any, temperature: Any) -> Any:
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    similarity = z @ z.T / temperature
    similarity[np.diag_indices(len(z))] = -1e9
    following = np.roll(np.arange(len(z)), -1)
    return np.mean(
        logsumexp(similarity, axis=1) - np.take_along_axis(similarity, following[:, None], axis=1)[:, 0]
    )
