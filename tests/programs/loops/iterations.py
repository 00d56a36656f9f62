"""Iterations that end when they have converged: roots, splines, optimisation, quadrature."""

from __future__ import annotations

import math

import numpy as np

from tests.programs.loops.cases import Array, definite, program


@program(lambda n, random: (random.standard_normal(n), 0.7), (0, 1), small=6, large=10_000)
def horner(coefficients: Array, x: Array) -> Array:
    """A polynomial and its derivative."""
    value = 0.0
    slope = 0.0
    for c in coefficients[::-1]:
        slope = slope * x + value
        value = value * x + c
    return value + 0.5 * slope


@program(lambda n, random: (2.0, 3.7), (0, 1), small=1, large=1)
def newton(a: Array, b: Array) -> Array:
    """A root of x^3 + a x = b, until the step is small."""
    x = 1.0
    iterations = 0
    while True:
        step = (x**3 + a * x - b) / (3.0 * x**2 + a)
        x -= step
        iterations += 1
        if abs(step) < 1e-15 or iterations > 50:
            break
    return x


@program(lambda n, random: (0.3, 0.8), (0, 1), small=1, large=1)
def bisection(a: Array, b: Array) -> Array:
    """The bracket's ends do not depend smoothly on the data: two last steps of Newton's do."""

    def f(x: Array) -> Array:
        return math.exp(a * x) - b * x - 1.5

    low, high = -5.0, 0.5
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        if f(low) * f(middle) <= 0.0:
            high = middle
        else:
            low = middle
    root = 0.5 * (low + high)
    for _ in range(2):
        root -= f(root) / (a * math.exp(a * root) - b)
    return root


def spline(n: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
    knots = np.concatenate([np.zeros(3), np.linspace(0.0, 1.0, n - 2), np.ones(3)])
    return random.standard_normal(n), knots, np.linspace(0.03, 0.96, 7)


@program(spline, (0, 1), small=6, large=1000)
def de_boor(control: Array, knots: Array, at: Array) -> Array:
    """Cubic B-splines: a search for the interval, then a triangle of combinations."""
    total = 0.0
    d = np.empty(4)
    for x in at:
        k = 3
        while k < len(control) - 1 and x >= knots[k + 1]:
            k += 1
        for j in range(4):
            d[j] = control[j + k - 3]
        for r in range(1, 4):
            for j in range(3, r - 1, -1):
                left = knots[j + k - 3]
                alpha = (x - left) / (knots[j + 1 + k - r] - left)
                d[j] = (1.0 - alpha) * d[j - 1] + alpha * d[j]
        total += d[3] ** 2
    return total


@program(lambda n, random: (definite(n, random), random.standard_normal(n), 40), (0, 1), small=4, large=100)
def complementarity(m: Array, q: Array, sweeps: int) -> Array:
    """A linear complementarity problem by projected Gauss-Seidel."""
    n = len(q)
    z = np.zeros(n)
    for _ in range(sweeps):
        for i in range(n):
            r = q[i]
            for j in range(n):
                r += m[i, j] * z[j]
            z[i] = max(0.0, z[i] - r / m[i, i])
    total = 0.0
    for i in range(n):
        total += (i + 1) * z[i]
    return total


def separable(n: int, random: np.random.Generator) -> tuple[Array, Array, float, float]:
    x = random.standard_normal((n, 2))
    y = np.where(x[:, 0] + 0.3 * x[:, 1] > 0.0, 1.0, -1.0)
    return x, y, 0.8, 5.0


@program(separable, (0, 2), small=6, large=200)
def smo(x: Array, y: Array, width: Array, box: float) -> Array:
    """Support vectors by sequential minimal optimisation with a Gaussian kernel."""
    n = len(y)
    kernel = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            d = 0.0
            for k in range(x.shape[1]):
                d += (x[i, k] - x[j, k]) ** 2
            kernel[i, j] = math.exp(-width * d)
    alpha = np.zeros(n)
    for _ in range(3):
        for i in range(n):
            for j in range(i):
                eta = kernel[i, i] + kernel[j, j] - 2.0 * kernel[i, j]
                if eta < 1e-9:
                    continue
                ei = -y[i]
                ej = -y[j]
                for k in range(n):
                    ei += alpha[k] * y[k] * kernel[k, i]
                    ej += alpha[k] * y[k] * kernel[k, j]
                if y[i] != y[j]:
                    low = max(0.0, alpha[j] - alpha[i])
                    high = min(box, box + alpha[j] - alpha[i])
                else:
                    low = max(0.0, alpha[i] + alpha[j] - box)
                    high = min(box, alpha[i] + alpha[j])
                new = min(max(alpha[j] + y[j] * (ei - ej) / eta, low), high)
                alpha[i] += y[i] * y[j] * (alpha[j] - new)
                alpha[j] = new
    return np.sum(alpha)


@program(
    lambda n, random: (random.standard_normal((2 * n, n)), random.standard_normal(2 * n), 0.3),
    (0, 1, 2),
    small=4,
    large=60,
)
def coordinate_descent(x: Array, y: Array, penalty: Array) -> Array:
    """The lasso: soft thresholds, the residuals brought up to date in place."""
    rows, columns = x.shape
    w = np.zeros(columns)
    residual = y.copy()
    for _ in range(100):
        largest = 0.0
        for j in range(columns):
            rho = 0.0
            norm = 0.0
            for i in range(rows):
                rho += x[i, j] * (residual[i] + w[j] * x[i, j])
                norm += x[i, j] ** 2
            new = math.copysign(max(abs(rho) - penalty, 0.0), rho) / norm
            change = new - w[j]
            for i in range(rows):
                residual[i] -= change * x[i, j]
            w[j] = new
            largest = max(largest, abs(change))
        if largest < 1e-12:
            break
    return 0.5 * np.sum(residual**2) + penalty * np.sum(np.abs(w))


@program(lambda n, random: (1.0, 0.6), (0, 1), small=1, large=1)
def mean_of_means(a: Array, b: Array) -> Array:
    """The elliptic integral by arithmetic and geometric means."""
    while abs(a - b) > 1e-15 * abs(a):
        a, b = 0.5 * (a + b), math.sqrt(a * b)
    return math.pi / (2.0 * a)


@program(lambda n, random: (0.5, 2.0, 6), (0, 1), small=1, large=1)
def romberg(a: Array, b: Array, levels: int) -> Array:
    """A triangle of extrapolations of trapezoid sums, and an early return."""
    table = np.zeros((levels, levels))
    h = b - a
    table[0, 0] = 0.5 * h * (math.sin(a * a) + math.sin(b * b))
    for i in range(1, levels):
        h *= 0.5
        s = 0.0
        for k in range(1, 2**i, 2):
            s += math.sin((a + k * h) ** 2)
        table[i, 0] = 0.5 * table[i - 1, 0] + h * s
        for j in range(1, i + 1):
            table[i, j] = table[i, j - 1] + (table[i, j - 1] - table[i - 1, j - 1]) / (4**j - 1)
        if i > 2 and abs(table[i, i] - table[i - 1, i - 1]) < 1e-12:
            return table[i, i]
    return table[levels - 1, levels - 1]


@program(
    lambda n, random: (random.standard_normal((n, 2)), random.standard_normal((2, 2))),
    small=8,
    large=2000,
)
def k_means(points: Array, start: Array) -> Array:
    """Assignments to the nearest centre, and new centres, until the assignments hold still."""
    n = len(points)
    k = len(start)
    centres = start.copy()
    label = np.full(n, -1)
    loss = 0.0
    for _ in range(10):
        moved = False
        loss = 0.0
        sums = np.zeros((k, 2))
        count = np.zeros(k)
        for i in range(n):
            nearest = 0
            least = np.inf
            for c in range(k):
                d = (points[i, 0] - centres[c, 0]) ** 2 + (points[i, 1] - centres[c, 1]) ** 2
                if d < least:
                    nearest, least = c, d
            if label[i] != nearest:
                label[i] = nearest
                moved = True
            loss += least
            sums[nearest] += points[i]
            count[nearest] += 1.0
        if not moved:
            break
        for c in range(k):
            if count[c] > 0.0:
                centres[c] = sums[c] / count[c]
    return loss + 0.1 * np.sum(centres)


@program(
    lambda n, random: (np.sort(random.uniform(0.0, 5.0, n)), random.standard_normal(n)),
    (0, 1),
    small=6,
    large=5000,
)
def natural_spline(x: Array, y: Array) -> Array:
    """The second derivatives of the natural cubic spline, then its integral."""
    n = len(x)
    second = np.zeros(n)
    u = np.zeros(n)
    for i in range(1, n - 1):
        part = (x[i] - x[i - 1]) / (x[i + 1] - x[i - 1])
        p = part * second[i - 1] + 2.0
        second[i] = (part - 1.0) / p
        u[i] = (y[i + 1] - y[i]) / (x[i + 1] - x[i]) - (y[i] - y[i - 1]) / (x[i] - x[i - 1])
        u[i] = (6.0 * u[i] / (x[i + 1] - x[i - 1]) - part * u[i - 1]) / p
    for k in range(n - 2, -1, -1):
        second[k] = second[k] * second[k + 1] + u[k]
    total = 0.0
    for i in range(n - 1):
        h = x[i + 1] - x[i]
        total += 0.5 * h * (y[i] + y[i + 1]) - h**3 / 24.0 * (second[i] + second[i + 1])
    return total
