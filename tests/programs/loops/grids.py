"""Grids by loops: waves, convolution, sampling, spins, rays."""

from __future__ import annotations

import math

import numpy as np

from tests.programs.loops.cases import Array, program


@program(lambda n, random: (random.uniform(1.0, 2.0, n), 10), small=10, large=2000)
def fdtd_1d(permittivity: Array, steps: int) -> Array:
    """Maxwell's equations on a line with a soft source."""
    n = len(permittivity)
    e = np.zeros(n)
    h = np.zeros(n)
    for t in range(steps):
        for i in range(n - 1):
            h[i] += 0.5 * (e[i + 1] - e[i])
        for i in range(1, n):
            e[i] += 0.5 / permittivity[i] * (h[i] - h[i - 1])
        e[n // 2] += math.exp(-(((t - 5.0) / 2.0) ** 2))
    energy = 0.0
    for i in range(n):
        energy += permittivity[i] * e[i] ** 2 + h[i] ** 2
    return energy


@program(lambda n, random: (random.standard_normal((n, n)), 0.5, 4), (0, 1), small=5, large=200)
def fdtd_2d(start: Array, speed: Array, steps: int) -> Array:
    """Three fields on staggered grids."""
    n = start.shape[0]
    ez = start.copy()
    hx = np.zeros((n, n - 1))
    hy = np.zeros((n - 1, n))
    for _ in range(steps):
        for i in range(n):
            for j in range(n - 1):
                hx[i, j] -= speed * (ez[i, j + 1] - ez[i, j])
        for i in range(n - 1):
            for j in range(n):
                hy[i, j] += speed * (ez[i + 1, j] - ez[i, j])
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                ez[i, j] += speed * (hy[i, j] - hy[i - 1, j] - hx[i, j] + hx[i, j - 1])
    return ez[1 : n - 1, 1 : n - 1]


@program(lambda n, random: (0.4 * random.standard_normal((n, n)), 0.5, 0.1), (0, 1, 2), small=4, large=60)
def ising_mean_field(field: Array, coupling: Array, temperature: Array) -> Array:
    """Magnetisations by sweeps over a torus until they hold still."""
    n = field.shape[0]
    m = np.zeros((n, n))
    for _sweep in range(60):
        change = 0.0
        for i in range(n):
            for j in range(n):
                around = m[i - 1, j] + m[(i + 1) % n, j] + m[i, j - 1] + m[i, (j + 1) % n]
                new = math.tanh((field[i, j] + coupling * around) / (1.0 + temperature))
                change = max(change, abs(new - m[i, j]))
                m[i, j] = new
        if change < 1e-11:
            break
    return m.mean() + 0.1 * np.sum(m * m)


@program(
    lambda n, random: (random.standard_normal((n, n)), random.standard_normal((3, 3))),
    (0, 1),
    small=6,
    large=200,
)
def convolution(image: Array, kernel: Array) -> Array:
    n, m = image.shape
    rows, columns = kernel.shape
    out = np.zeros((n - rows + 1, m - columns + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for k in range(rows):
                for p in range(columns):
                    out[i, j] += image[i + k, j + p] * kernel[k, p]
            if out[i, j] < 0.0:
                out[i, j] *= 0.1
    return np.sum(out**2)


@program(
    lambda n, random: (random.standard_normal((n, n)), random.uniform(0.0, n - 1.0, (3 * n, 2))),
    (0, 1),
    small=5,
    large=500,
)
def bilinear(image: Array, points: Array) -> Array:
    """Samples between pixels: the index is the whole part of what is differentiated."""
    total = 0.0
    n, m = image.shape
    for p in range(points.shape[0]):
        y = points[p, 0]
        x = points[p, 1]
        i = min(math.floor(y), n - 2)
        j = min(int(x), m - 2)
        u = y - i
        v = x - j
        value = (1.0 - u) * ((1.0 - v) * image[i, j] + v * image[i, j + 1])
        value += u * ((1.0 - v) * image[i + 1, j] + v * image[i + 1, j + 1])
        total += value**2
    return total


@program(lambda n, random: (random.uniform(0.0, 1.0, n), 8), small=20, large=100_000)
def histogram(x: Array, bins: int) -> Array:
    """Each number is shared between the two bins beside it; places by np.floor."""
    counts = np.zeros(bins + 1)
    for i in range(len(x)):
        place = x[i] * bins
        k = int(np.floor(place))
        share = place - k
        counts[k] += 1.0 - share
        counts[k + 1] += share
    expected = len(x) / (bins + 1)
    return np.sum((counts - expected) ** 2)


@program(lambda n, random: (np.array([0.1, -0.2, 3.0]), 1.0, n), (0, 1), small=4, large=100)
def sphere_tracing(centre: Array, radius: Array, pixels: int) -> Array:
    """Rays march by the distance to a sphere until they hit it or leave."""
    total = 0.0
    for i in range(pixels):
        for j in range(pixels):
            dx = (i + 0.5) / pixels - 0.5
            dy = (j + 0.5) / pixels - 0.5
            norm = math.sqrt(dx * dx + dy * dy + 1.0)
            dx, dy, dz = dx / norm, dy / norm, 1.0 / norm
            t = 0.0
            hit = False
            for _ in range(60):
                qx = t * dx - centre[0]
                qy = t * dy - centre[1]
                qz = t * dz - centre[2]
                distance = math.sqrt(qx * qx + qy * qy + qz * qz) - radius
                if distance < 1e-10:
                    hit = True
                    break
                t += distance
                if t > 10.0:
                    break
            if hit:
                nx = (t * dx - centre[0]) / radius
                ny = (t * dy - centre[1]) / radius
                total += max(0.0, 0.3 + 0.5 * nx - 0.6 * ny) + 0.1 * t
    return total / pixels**2


@program(lambda n, random: (-0.4, 0.6, n), (0, 1), small=12, large=50)
def mandelbrot(real: Array, imaginary: Array, most: int) -> Array:
    """Iterations until the number escapes, and a smooth count; complex by two floats."""
    x = 0.0
    y = 0.0
    count = 0
    while x * x + y * y < 1e4 and count < most:
        x, y = x * x - y * y + real + 0.6, 2.0 * x * y + imaginary + 0.4
        count += 1
    return count + 1.0 - math.log(0.5 * math.log(x * x + y * y) + 1.0)


@program(lambda n, random: (0.3, 0.4, n), (0, 1), small=6, large=50)
def julia(real: Array, imaginary: Array, most: int) -> Array:
    """The same with complex numbers."""
    z = 0.1 + 0.2j
    c = complex(real, imaginary)
    for _ in range(most):
        z = z * z + c
        if abs(z) > 100.0:
            break
    return z.real + 0.5 * abs(z) ** 2 + (z * z.conjugate()).real


@program(lambda n, random: (random.standard_normal((n, n)), 0.2, 6), (0, 1), small=5, large=200)
def heat(start: Array, diffusion: Array, steps: int) -> Array:
    """Two grids that change places; the boundary is a branch."""
    n = start.shape[0]
    old = start.copy()
    new = np.empty((n, n))
    for _ in range(steps):
        for i in range(n):
            for j in range(n):
                if i == 0 or j == 0 or i == n - 1 or j == n - 1:
                    new[i, j] = old[i, j]
                else:
                    new[i, j] = old[i, j] + diffusion * (
                        old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1] - 4.0 * old[i, j]
                    )
        old, new = new, old
    return np.sum(old**3)
