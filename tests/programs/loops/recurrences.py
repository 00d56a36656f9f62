"""Dynamic programs and filters: alignments, paths through graphs and time series."""

from __future__ import annotations

import math

import numpy as np

from tests.programs.loops.cases import Array, program


@program(
    lambda n, random: (random.standard_normal(n), random.standard_normal(n + 1), 0.7),
    (0, 1, 2),
    small=5,
    large=300,
)
def soft_dtw(x: Array, y: Array, gamma: Array) -> Array:
    """Dynamic time warping with a smooth minimum."""
    n, m = len(x), len(y)
    r = np.full((n + 1, m + 1), 1e10)
    r[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            a = -r[i - 1, j - 1] / gamma
            b = -r[i - 1, j] / gamma
            c = -r[i, j - 1] / gamma
            top = max(a, b, c)
            low = math.exp(a - top) + math.exp(b - top) + math.exp(c - top)
            r[i, j] = (x[i - 1] - y[j - 1]) ** 2 - gamma * (math.log(low) + top)
    return r[n, m]


def chain(n: int, random: np.random.Generator) -> tuple[Array, Array]:
    return random.standard_normal((n, 3)), random.standard_normal((3, 3))


@program(chain, (0, 1), small=6, large=10_000)
def viterbi(score: Array, transition: Array) -> Array:
    """The best path's score, read again along the path that was found."""
    steps, states = score.shape
    best = score[0].copy()
    back = np.zeros((steps, states), dtype=np.int64)
    for t in range(1, steps):
        new = np.empty(states)
        for j in range(states):
            top = -np.inf
            where = 0
            for i in range(states):
                candidate = best[i] + transition[i, j]
                if candidate > top:
                    top = candidate
                    where = i
            back[t, j] = where
            new[j] = top + score[t, j]
        best = new
    state = np.argmax(best)
    total = score[steps - 1, state]
    for t in range(steps - 1, 0, -1):
        old = back[t, state]
        total += transition[old, state] + score[t - 1, old]
        state = old
    return total


@program(chain, (0, 1), small=6, large=10_000)
def viterbi_soft(score: Array, transition: Array) -> Array:
    """The forward algorithm in log space; two arrays change places."""
    steps, states = score.shape
    alpha = np.zeros(states)
    new = np.zeros(states)
    for j in range(states):
        alpha[j] = score[0, j]
    for t in range(1, steps):
        for j in range(states):
            top = -np.inf
            for i in range(states):
                top = max(top, alpha[i] + transition[i, j])
            s = 0.0
            for i in range(states):
                s += math.exp(alpha[i] + transition[i, j] - top)
            new[j] = math.log(s) + top + score[t, j]
        alpha, new = new, alpha
    return np.log(np.sum(np.exp(alpha - alpha.max()))) + alpha.max()


def words(n: int, random: np.random.Generator) -> tuple[Array, Array, float, float]:
    return random.integers(0, 4, n), random.integers(0, 4, n + 2), 1.1, 0.83


@program(words, (2, 3), small=6, large=1000)
def edit_distance(first: Array, second: Array, gap: Array, change: Array) -> Array:
    """Levenshtein's distance with costs as parameters; a row of values, letters as integers."""
    m = len(second)
    row = np.empty(m + 1)
    for j in range(m + 1):
        row[j] = j * gap
    for letter in first:
        diagonal = row[0]
        row[0] += gap
        for j in range(1, m + 1):
            cost = 0.0 if letter == second[j - 1] else change
            old = row[j]
            row[j] = min(row[j] + gap, row[j - 1] + gap, diagonal + cost)
            diagonal = old
    return row[m]


@program(
    lambda n, random: (
        random.integers(0, 4, n),
        random.integers(0, 4, n),
        random.standard_normal((4, 4)),
        -0.6,
    ),
    (2, 3),
    small=6,
    large=1000,
)
def needleman_wunsch(first: Array, second: Array, substitution: Array, gap: Array) -> Array:
    """The alignment's score by a table whose indices are data."""
    n, m = first.shape[0], second.shape[0]
    table = np.zeros((n + 1, m + 1))
    for i in range(n + 1):
        table[i, 0] = i * gap
    for j in range(m + 1):
        table[0, j] = j * gap
    for i in range(n):
        for j in range(m):
            match = table[i, j] + substitution[first[i], second[j]]
            delete = table[i, j + 1] + gap
            insert = table[i + 1, j] + gap
            table[i + 1, j + 1] = max(match, delete, insert)
    return table[-1, -1]


@program(lambda n, random: (random.uniform(0.5, 5.0, (n, n)),), small=5, large=120)
def floyd_warshall(weights: Array) -> Array:
    n = weights.shape[0]
    d = weights.copy()
    for i in range(n):
        d[i, i] = 0.0
    for k in range(n):
        for i in range(n):
            for j in range(n):
                through = d[i, k] + d[k, j]
                if through < d[i, j]:
                    d[i, j] = through
    total = 0.0
    for i in range(n):
        for j in range(n):
            total += (1 + i + 2 * j) * d[i, j]
    return total


@program(
    lambda n, random: (
        np.cumsum(random.standard_normal(n)),
        np.array([[1.0, 0.1], [0.0, 0.95]]),
        0.3,
        0.5,
    ),
    (0, 1, 2, 3),
    small=8,
    large=50_000,
)
def kalman(observed: Array, a: Array, q: Array, r: Array) -> Array:
    """A filter with two states: covariances as small arrays that are made anew in each step."""
    x0, x1 = 0.0, 0.0
    p = np.eye(2)
    loss = 0.0
    for z in observed:
        y0 = a[0, 0] * x0 + a[0, 1] * x1
        y1 = a[1, 0] * x0 + a[1, 1] * x1
        new = np.zeros((2, 2))
        for i in range(2):
            for j in range(2):
                for k in range(2):
                    for m in range(2):
                        new[i, j] += a[i, k] * p[k, m] * a[j, m]
            new[i, i] += q
        s = new[0, 0] + r
        gain = new[:, 0] / s
        innovation = z - y0
        x0 = y0 + gain[0] * innovation
        x1 = y1 + gain[1] * innovation
        for i in range(2):
            for j in range(2):
                p[i, j] = new[i, j] - gain[i] * new[0, j]
        loss += 0.5 * (math.log(s) + innovation**2 / s)
    return loss


@program(
    lambda n, random: (
        random.standard_normal((n, 2)),
        random.standard_normal((4, 2)),
        random.standard_normal((4, 4)) / 2.0,
        np.zeros(4),
    ),
    (0, 1, 2, 3),
    small=5,
    large=1000,
)
def rnn(inputs: Array, w: Array, u: Array, bias: Array) -> Array:
    """A recurrent network by scalar loops, its states kept in a table."""
    steps, width = inputs.shape
    units = len(bias)
    h = np.zeros((steps + 1, units))
    for t in range(steps):
        for i in range(units):
            s = bias[i]
            for j in range(width):
                s += w[i, j] * inputs[t, j]
            for j in range(units):
                s += u[i, j] * h[t, j]
            h[t + 1, i] = math.tanh(s)
    return np.sum(h[1:] ** 2) / steps


@program(
    lambda n, random: (random.standard_normal(n), np.array([0.2, 0.3, 0.2]), np.array([0.4, -0.1])),
    (0, 1, 2),
    small=12,
    large=100_000,
)
def recursive_filter(signal: Array, b: Array, a: Array) -> Array:
    """A digital filter, in the output's own array; negative indices stand for the past."""
    n = len(signal)
    out = np.zeros(n)
    for t in range(n):
        for k in range(len(b)):
            if t - k >= 0:
                out[t] += b[k] * signal[t - k]
        for k in range(1, len(a) + 1):
            if t >= k:
                out[t] += a[k - 1] * out[t - k]
    return out


@program(
    lambda n, random: (
        random.uniform(0.1, 1.0, n),
        random.integers(0, n, 3 * n),
        random.integers(0, n, 3 * n),
    ),
    small=6,
    large=3000,
)
def page_rank(start: Array, source: Array, target: Array) -> Array:
    """A walk on a graph given by two lists of integers; counts in an integer array."""
    n = len(start)
    degree = np.zeros(n, dtype=np.int64)
    for s in source:
        degree[s] += 1
    rank = start / start.sum()
    for _ in range(5):
        new = np.full(n, 0.15 / n)
        for s, t in zip(source, target):  # noqa: B905 - as Numba takes it
            new[t] += 0.85 * rank[s] / degree[s]
        rank = new
    total = 0.0
    for i, value in enumerate(rank):
        total += (i + 1) * value**2
    return total
