"""Programs of several trades in the styles that people use: classes with state, dictionaries of parameters, loops with tolerances,
masks, closures, generators, deques, recursion with a memory, early returns.

Each has two sets of arguments. They take other branches, and other numbers of iterations.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

Array = Any
log = logging.getLogger(__name__)


class TradeProgram(NamedTuple):
    """A function, and two sets of arguments, which are all differentiated."""

    function: Callable[..., Any]
    first: tuple[Any, ...]
    second: tuple[Any, ...]


PROGRAMS: dict[str, TradeProgram] = {}


def program(make: Callable[[int], tuple[Any, ...]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function with the arguments that `make` returns for 0 and 1."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = TradeProgram(function, make(0), make(1))
        return function

    return enter


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@program(
    lambda k: (rng(k).normal(size=15) + 3.0 * (np.arange(15) % 2), np.array([0.2 + 0.1 * k, 2.5 - 0.3 * k]))
)
def mixture_by_em(x: Array, start: Array) -> Any:
    """Expectation maximisation of two normal distributions."""
    mu, sd, w = start.copy(), np.ones(2), np.full(2, 0.5)
    history: list[Any] = []
    for _ in range(30):
        logs = -0.5 * ((x[:, None] - mu) / sd) ** 2 - np.log(sd) + np.log(w)
        each = special.logsumexp(logs, axis=1)
        history.append(each.sum())
        if len(history) > 1 and abs(history[-1] - history[-2]) < 1e-2:
            break
        share = np.exp(logs - each[:, None])
        count = share.sum(axis=0)
        w = count / count.sum()
        mu = (share * x[:, None]).sum(axis=0) / count
        sd[:] = np.sqrt((share * (x[:, None] - mu) ** 2).sum(axis=0) / count + 1e-3)
    return history[-1], mu, sd


@program(lambda k: (np.array([0.02, 0.022, 0.025, 0.028, 0.03]) + 0.002 * k, 0.021 + 0.001 * k))
def bootstrapped_curve(swaps: Array, deposit: Any) -> Any:
    """Discount factors in a dictionary by their times."""
    curve = {0.0: 1.0, 0.5: 1.0 / (1.0 + 0.5 * deposit)}

    def discount(t: float) -> Any:
        times = sorted(curve)
        if t in curve:
            return curve[t]
        for a, b in itertools.pairwise(times):
            if a < t < b:
                share = (t - a) / (b - a)
                return np.exp((1 - share) * np.log(curve[a]) + share * np.log(curve[b]))
        last, before = times[-1], times[-2]
        rate = (np.log(curve[before]) - np.log(curve[last])) / (last - before)
        return curve[last] * np.exp(-rate * (t - last))

    for years, rate in enumerate(swaps, start=1):
        annuity = sum(discount(float(t)) for t in range(1, years))
        curve[float(years)] = (1.0 - rate * annuity) / (1.0 + rate)
    zeros = {t: -np.log(d) / t for t, d in curve.items() if t > 0}
    return np.array(list(zeros.values())), discount(2.25), discount(6.5)


NODES = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.8], [1.5, 0.8]])
BARS = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]


@program(lambda k: (NODES + 0.05 * rng(k).normal(size=(4, 2)), rng(k).uniform(0.5, 1.5, 5), -1.0 - k))
def truss(nodes: Array, areas: Array, load: Any) -> Any:
    """Stiffness matrices are added at index grids, and supports taken out."""
    size = 2 * len(nodes)
    stiffness, forces = np.zeros((size, size)), np.zeros(size)
    forces[7] = load
    lengths = []
    for e, (i, j) in enumerate(BARS):
        d = nodes[j] - nodes[i]
        length = np.hypot(*d)
        c, s = d / length
        part = areas[e] / length * np.array([[c * c, c * s], [c * s, s * s]])
        at = np.r_[2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        stiffness[np.ix_(at, at)] += np.block([[part, -part], [-part, part]])
        lengths.append(length)
    free = np.setdiff1d(np.arange(size), [0, 1, 3])
    u = np.zeros(size)
    u[free] = np.linalg.solve(stiffness[np.ix_(free, free)], forces[free])
    strains = [
        (u[2 * j : 2 * j + 2] - u[2 * i : 2 * i + 2]) @ (nodes[j] - nodes[i]) / lengths[e] ** 2
        for e, (i, j) in enumerate(BARS)
    ]
    return forces @ u, np.max(np.abs(np.array(strains))), np.dot(areas, lengths)


@program(lambda k: (1.0 + 0.2 * rng(k).uniform(size=4), 2.0 + 0.1 * k))
def beam_frequencies(inertia: Array, density: Any) -> Any:
    """A generalised eigenvalue problem whose matrices are assembled by slices, with a mask of supports."""
    n, h = 4, 0.25
    bending = np.array([[12, 6 * h, -12, 6 * h], [6 * h, 4 * h**2, -6 * h, 2 * h**2]])
    bending = np.vstack([bending, -bending[0], [6 * h, 2 * h**2, -6 * h, 4 * h**2]]) / h**3
    mass = np.array([[156, 22 * h, 54, -13 * h], [22 * h, 4 * h**2, 13 * h, -3 * h**2]])
    mass = np.vstack([mass, [54, 13 * h, 156, -22 * h], [-13 * h, -3 * h**2, -22 * h, 4 * h**2]]) * h / 420
    k = np.zeros((2 * n + 2, 2 * n + 2))
    m = np.zeros_like(k)
    for e in range(n):
        at = slice(2 * e, 2 * e + 4)
        k[at, at] += inertia[e] * bending
        m[at, at] += density * mass
    keep = np.ones(2 * n + 2, dtype=bool)
    keep[[0, 1]] = False
    return np.sqrt(linalg.eigh(k[keep][:, keep], m[keep][:, keep], eigvals_only=True)[:3]) / (2 * np.pi)


@program(
    lambda k: (
        np.array([5.0, -4.0, 6.0]) + 0.3 * k,
        np.array([1.5, 1.6, 1.0]) + np.array([0.01, 0.02, 0.0]) * k,
        np.linspace(0.1, 1.2 + 0.6 * k, 6),
    )
)
def lens(radii: Array, index: Array, heights: Array) -> Any:
    """Rays through spherical surfaces; a mask keeps those that are not lost."""
    at = np.stack([heights, np.zeros_like(heights)], axis=-1)
    d = np.tile([0.0, 1.0], (len(heights), 1))
    alive = np.ones(len(heights), dtype=bool)
    before, z = 1.0, 0.5
    for radius, after in zip(radii, index, strict=True):
        centre = np.array([0.0, z + radius])
        away = at - centre
        b = np.sum(away * d, axis=1)
        root = b**2 - np.sum(away**2, axis=1) + radius**2
        alive &= root > 0
        at = at + (-b - np.sign(radius) * np.sqrt(np.where(root > 0, root, 1.0)))[:, None] * d
        normal = (at - centre) / radius
        cosine = -np.einsum("ij,ij->i", normal, d)
        normal *= np.sign(cosine)[:, None]
        cosine = np.abs(cosine)
        ratio = before / after
        passed = 1.0 - ratio**2 * (1.0 - cosine**2)
        alive &= passed >= 0
        d = ratio * d + (ratio * cosine - np.sqrt(np.maximum(passed, 0.0)))[:, None] * normal
        before, z = after, z + 1.0
    back = at[:, 0] + (8.0 - at[:, 1]) / d[:, 1] * d[:, 0]
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.mean(back[alive] ** 2)), np.sum(alive * back)


def squared_exponential(p: Any, a: Array, b: Array) -> Array:
    return p["s"] ** 2 * np.exp(-0.5 * (a[:, None] - b[None, :]) ** 2 / p["l"] ** 2)


def periodic(p: Any, a: Array, b: Array) -> Array:
    turns = np.sin(np.pi * np.abs(np.subtract.outer(a, b)) / p["p"])
    return p["s"] ** 2 * np.exp(-2.0 * turns**2 / p["l"] ** 2)


def matern(p: Any, a: Array, b: Array) -> Array:
    r = np.sqrt(3.0) * np.abs(a[:, np.newaxis] - b) / p["l"]
    return p["s"] ** 2 * (1.0 + r) * np.exp(-r)


KERNELS = {"squared": squared_exponential, "periodic": periodic, "matern": matern}


@program(
    lambda k: (
        {name: {"s": 0.7 + 0.2 * k, "l": 1.1 - 0.1 * k, "p": 1.3 + 0.1 * k} for name in KERNELS},
        rng(k).normal(size=8),
        0.3 + 0.1 * k,
    )
)
def sum_of_kernels(parameters: Any, y: Array, noise: Any) -> Any:
    """A Gaussian process whose kernels are in a dictionary, as their parameters are."""
    x = np.linspace(0.0, 3.0, len(y))
    new = np.array([0.33, 1.77, 3.5])
    k = functools.reduce(np.add, [KERNELS[name](p, x, x) for name, p in parameters.items()])
    k[np.diag_indices_from(k)] += noise**2 + 1e-8
    try:
        factor = linalg.cho_factor(k, lower=True)
    except np.linalg.LinAlgError:
        return np.inf, np.full(3, np.nan), np.full(3, np.nan)
    alpha = linalg.cho_solve(factor, y)
    cross = sum(KERNELS[name](p, x, new) for name, p in parameters.items())
    v = linalg.solve_triangular(factor[0], cross, lower=True)
    likelihood = 0.5 * y @ alpha + np.log(np.diag(factor[0])).sum()
    return likelihood, cross.T @ alpha, np.einsum("ij,ij->j", v, v)


@program(lambda k: (0.4 + 0.3 * k, 0.1 + 0.02 * k, 0.05 + 0.01 * k))
def delayed_epidemic(beta: Any, gamma: Any, infected: Any) -> Any:
    """A deque holds what recovers after some days."""
    s, i, r = 1.0 - infected, infected, 0.0
    past = deque([0.0] * 4, maxlen=4)
    peak = i
    curve = []
    for _ in range(25):
        new = beta * s * i
        recovered = gamma * past[0] + 0.02 * i
        if recovered > i:
            recovered = 0.5 * i
        s -= new
        i += new - recovered
        r += recovered
        past.append(i)
        if i > peak:
            peak = i
        curve.append(i)
    return np.asarray(curve), peak, s + i + r


def hamilton(a: Array, b: Array) -> Array:
    w, x, y, z = a
    return np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]]) @ b


@dataclass
class Arm:
    """A robot's arm, which keeps the places of its joints."""

    lengths: Array
    places: list[Array] = field(default_factory=list)
    axes = np.array([[0.0, 0, 1], [0, 1, 0], [0, 1, 0]])

    def forward(self, angles: Array) -> tuple[Array, Array]:
        q, place = np.array([1.0, 0, 0, 0]), np.zeros(3)
        for angle, axis, length in zip(angles, self.axes, self.lengths, strict=True):
            q = hamilton(q, np.concatenate(([np.cos(angle / 2)], np.sin(angle / 2) * axis)))
            q /= np.linalg.norm(q)
            conjugate = q * np.array([1.0, -1, -1, -1])
            place = place + hamilton(hamilton(q, np.r_[0.0, length, 0.0, 0.0]), conjugate)[1:]
            self.places.append(place)
        return place, q


@program(lambda k: (np.array([0.3, -0.5, 0.9]) + 0.4 * k, np.array([1.0, 0.8, 0.5]) + 0.1 * k))
def robot_arm(angles: Array, lengths: Array) -> Any:
    arm = Arm(lengths)
    place, q = arm.forward(angles)
    turned = 2 * np.arctan2(np.linalg.norm(q[1:]), q[0])
    return np.sum((place - np.array([1.2, 0.4, -0.3])) ** 2), turned, np.stack(arm.places)[:, 2]


@program(lambda k: (rng(k).uniform(0.1, 1.0, size=(5, 5)), 0.85 - 0.15 * k))
def ranks_of_pages(weights: Array, damping: Any) -> Array:
    """A power iteration until the changes are small, with a page that links to none."""
    weights = weights.copy()
    weights[3] = 0.0
    weights[np.abs(np.subtract.outer(np.arange(5), np.arange(5))) > 2] = 0.0
    total = weights.sum(1)
    links = np.divide(weights, total[:, None], out=np.zeros_like(weights), where=total[:, None] > 0)
    rank = np.full(5, 0.2)
    for step in range(200):
        following = damping * (rank @ links + rank[total == 0].sum() / 5) + (1 - damping) / 5
        if np.linalg.norm(following - rank, 1) < 1e-9:
            log.debug("converged after %s steps", step)
            return following
        rank = following
    return rank


@program(lambda k: (rng(k).uniform(0.5, 1.5, 4), rng(k + 1).normal(size=4)))
def item_response(slope: Array, difficulty: Array) -> Any:
    """Marginal likelihood by quadrature."""
    nodes, w = np.polynomial.hermite_e.hermegauss(9)
    answers = (np.arange(24).reshape(6, 4) * 5 % 7 < 4).astype(int)
    p = special.expit(slope * (nodes[:, None] - difficulty))
    logs = answers @ np.log(p).T + (1 - answers) @ np.log1p(-p).T
    posterior = np.exp(logs) * w / w.sum()
    ability = (posterior @ nodes) / posterior.sum(1)
    information = np.einsum("qj,j->q", p * (1 - p), slope**2)
    return np.log(posterior.sum(1)).sum(), ability, np.interp(0.2, nodes, information)


@program(lambda k: (np.array([1.0, 0.1, 0.0]), np.array([-0.2, 1.2 + 0.1 * k, 0.1]), 1.5 + 0.9 * k))
def transfer_orbit(start: Array, end: Array, duration: Any) -> Any:
    """Lambert's problem in universal variables."""
    near, far = np.linalg.norm(start), np.linalg.norm(end)
    sense = 1.0 if np.cross(start, end)[2] >= 0 else -1.0
    a = sense * np.sqrt(near * far + start @ end)

    def stumpff(z: Any) -> tuple[Any, Any]:
        if z > 1e-3:
            s = math.sqrt(z)
            return (1 - math.cos(s)) / z, (s - math.sin(s)) / s**3
        if z < -1e-3:
            s = np.sqrt(-z)
            return (1 - np.cosh(s)) / z, (np.sinh(s) - s) / s**3
        return 0.5 - z / 24 + z * z / 720, 1 / 6 - z / 120 + z * z / 5040

    def height_and_time(z: Any) -> tuple[Any, Any]:
        c, s = stumpff(z)
        y = near + far + a * (z * s - 1.0) / np.sqrt(c)
        return y, np.sqrt(y / c) ** 3 * s + a * np.sqrt(y)

    z = 0.0
    for _ in range(60):
        y, t = height_and_time(z)
        if abs(t - duration) < 1e-12:
            break
        z = z - (t - duration) * 1e-6 / (height_and_time(z + 1e-6)[1] - t)
    g = a * np.sqrt(y)
    return (end - (1 - y / near) * start) / g, ((1 - y / far) * end - start) / g


@program(lambda k: (0.6 + 0.1 * k, 0.2, 0.9 - 0.1 * k, 1.1 + 0.2 * k))
def geodesic(lat1: Any, lon1: Any, lat2: Any, lon2: Any) -> Any:
    """Vincenty's inverse formula (Survey Review 23, 1975), in thousands of kilometres."""
    f, b = 1 / 298.257223563, 6.356752314245
    u1, u2 = (np.arctan((1 - f) * np.tan(lat)) for lat in (lat1, lat2))
    lam = lon2 - lon1
    for _ in range(100):
        across = np.cos(u1) * np.sin(u2) - np.sin(u1) * np.cos(u2) * np.cos(lam)
        sine = np.hypot(np.cos(u2) * np.sin(lam), across)
        if sine == 0:
            return 0.0
        cosine = np.sin(u1) * np.sin(u2) + np.cos(u1) * np.cos(u2) * np.cos(lam)
        sigma = np.arctan2(sine, cosine)
        alpha = np.cos(u1) * np.cos(u2) * np.sin(lam) / sine
        c2 = 1 - alpha**2
        middle = cosine - 2 * np.sin(u1) * np.sin(u2) / c2 if c2 != 0 else 0.0
        c = f / 16 * c2 * (4 + f * (4 - 3 * c2))
        inner = middle + c * cosine * (2 * middle**2 - 1)
        before, lam = lam, lon2 - lon1 + (1 - c) * f * alpha * (sigma + c * sine * inner)
        if abs(lam - before) < 1e-12:
            break
    u = c2 * (1 / (1 - f) ** 2 - 1)
    p = 1 + u / 16384 * (4096 + u * (-768 + u * (320 - 175 * u)))
    q = u / 1024 * (256 + u * (-128 + u * (74 - 47 * u)))
    last = q / 6 * middle * (4 * sine**2 - 3) * (4 * middle**2 - 3)
    return b * p * (sigma - q * sine * (middle + q / 4 * (cosine * (2 * middle**2 - 1) - last)))


@program(lambda k: (0.0005, 5e-5 * (1 + 0.3 * k), 1.1 + 0.005 * k, 0.03 + 0.005 * k))
def reserves(a: Any, b: Any, c: Any, interest: Any) -> Any:
    """A life insurance by Makeham's law: a generator, and a recursion with a memory."""

    def dies(x: float) -> Any:
        return 1.0 - math.exp(-a - b * c**x * (c - 1) / np.log(c))

    def survivors(x: int, years: int) -> Iterator[Any]:
        alive: Any = 1.0
        for k in range(years):
            yield alive
            alive *= 1.0 - dies(x + k)

    v = 1 / (1 + interest)
    annuity = sum(p * v**t for t, p in enumerate(survivors(60, 12)))
    benefit = sum(p * dies(60 + t) * v ** (t + 1) for t, p in enumerate(survivors(60, 12)))
    premium = benefit / annuity

    @functools.cache
    def reserve(t: int) -> Any:
        if t == 0:
            return 0.0
        died = dies(60 + t - 1)
        return ((reserve(t - 1) + premium) * (1 + interest) - died) / (1 - died)

    return premium, np.array([reserve(t) for t in (1, 5, 12)])


@program(lambda k: (rng(k).normal(size=(6, 6)) * 0.2, rng(k + 3).normal(size=6) * 0.5, 1.0 + 0.2 * k))
def magnetisation(coupling: Array, field_: Array, beta: Any) -> Any:
    """A damped fixed point of Thouless, Anderson and Palmer's equations."""
    coupling = (coupling + coupling.T) / 2
    coupling[np.diag_indices(6)] = 0.0
    m = np.tanh(field_)
    for step in itertools.count():
        new = np.tanh(beta * (field_ + coupling @ m - beta * m * (coupling**2 @ (1 - m**2))))
        change = np.abs(new - m).max()
        m = 0.5 * m + 0.5 * new
        if change < 1e-6 or step > 60:
            break
    entropy = -np.sum(special.xlogy((1 + m) / 2, (1 + m) / 2) + special.xlogy((1 - m) / 2, (1 - m) / 2))
    return -0.5 * m @ coupling @ m - field_ @ m - entropy / beta, m


class Layer(NamedTuple):
    """One film: its complex index of refraction, and its thickness."""

    index: Any
    thickness: Any


@program(lambda k: (np.array([1.38, 2.1]) + 0.02 * k, np.array([100.0, 60.0]) + 5 * k, 0.01 + 0.01 * k))
def thin_films(index: Array, thickness: Array, absorption: Any) -> Any:
    """Products of complex transfer matrices, one for each wavelength."""
    wave = np.linspace(450.0, 650.0, 3)
    layers = [Layer(n + 1j * absorption, d) for n, d in zip(index, thickness, strict=True)]
    whole = np.tile(np.eye(2, dtype=complex), (len(wave), 1, 1))
    for n, d in layers:
        phase = 2 * np.pi * n * d / wave
        m = np.empty((len(wave), 2, 2), dtype=complex)
        m[:, 0, 0] = m[:, 1, 1] = np.cos(phase)
        m[:, 0, 1] = 1j * np.sin(phase) / n
        m[:, 1, 0] = 1j * n * np.sin(phase)
        whole = whole @ m
    b, c = np.moveaxis(whole @ np.array([1.0, 1.52]), -1, 0)
    r = (b - c) / (b + c)
    return np.abs(r) ** 2, 4 * 1.52 / np.abs(b + c) ** 2, np.angle(r)


@program(lambda k: (np.array([0.1, 0.9, 0.3]) + 0.05 * k,))
def rewards_of_a_chain(p: Array) -> Any:
    """Values of states by iteration, with rewards on a grid of which one is traced."""
    moves = np.array([[0.0, 0.5, 0.5], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])
    moves[0] = [0.9 - p[0], p[0], 0.1]
    rewards = np.linspace(0.0, 1.0, 3)
    rewards[1] = p[1]
    values = np.zeros(3)
    for _ in range(200):
        new = rewards + 0.9 * p[2] * moves @ values
        if np.max(np.abs(new - values)) < 1e-12:
            break
        values = new
    return values


@program(lambda k: (np.array([1.0, 2.0, 3.0, 4.0]) + 0.1 * k, 0.1))
def reactions_by_chance(rates: Array, feedback: float) -> Any:
    """Gillespie's algorithm with the classes and functions of NumPy's old random numbers."""
    draws, time, counts, weight = np.random.RandomState(5), 0.0, [10, 0, 0, 0], 0.0
    np.random.seed(3)
    for _ in range(15):
        speeds = rates * (1.0 + feedback * np.array(counts))
        total = speeds.sum()
        time = time - np.log(draws.rand()) / total
        chosen = int(np.random.randint(4))
        weight += np.log(speeds[chosen] / total)
        counts[chosen] += 1
    return time, weight
