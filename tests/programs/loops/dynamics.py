"""Motion by loops: differential equations, particles, springs, populations."""

from __future__ import annotations

import math

import numpy as np

from tests.programs.loops.cases import Array, program


@program(lambda n, random: (1.0, 0.2, 0.15, 9.81, 0.3, n), (0, 1, 2, 3, 4), small=40, large=1_000_000)
def pendulum(angle: Array, speed: Array, damping: Array, gravity: Array, drive: Array, steps: int) -> Array:
    """The damped, driven pendulum by Runge and Kutta; all state is scalars."""
    h = 0.01
    for _ in range(steps):
        s1 = drive - damping * speed - gravity * math.sin(angle)
        a2 = angle + 0.5 * h * speed
        v2 = speed + 0.5 * h * s1
        s2 = drive - damping * v2 - gravity * math.sin(a2)
        a3 = angle + 0.5 * h * v2
        v3 = speed + 0.5 * h * s2
        s3 = drive - damping * v3 - gravity * math.sin(a3)
        a4 = angle + h * v3
        v4 = speed + h * s3
        s4 = drive - damping * v4 - gravity * math.sin(a4)
        angle += h / 6.0 * (speed + 2.0 * v2 + 2.0 * v3 + v4)
        speed += h / 6.0 * (s1 + 2.0 * s2 + 2.0 * s3 + s4)
    return angle**2 + 0.1 * speed**2


@program(lambda n, random: (1.0, 2.5, 0.05 * n), (0, 1), small=40, large=4000)
def adaptive_ode(y0: Array, rate: Array, end: float) -> Array:
    """Heun and Euler with a step that follows the error; the number of steps depends on the data."""
    t = 0.0
    y = y0
    h = 0.05
    while t < end - 1e-9:
        if t + h > end:
            h = end - t
        k1 = math.cos(rate * t) - 0.5 * y**3
        k2 = math.cos(rate * (t + h)) - 0.5 * (y + h * k1) ** 3
        error = abs(0.5 * h * (k2 - k1)) + 1e-12
        if error < 1e-3:
            t += h
            y += 0.5 * h * (k1 + k2)
            if error < 1e-4:
                h *= 1.5
        else:
            h *= 0.5
    return y


@program(
    lambda n, random: (random.standard_normal((n, 3)), 0.1 * random.standard_normal((n, 3)), np.ones(n), 5),
    (0, 1, 2),
    small=4,
    large=60,
)
def nbody(position: Array, velocity: Array, mass: Array, steps: int) -> Array:
    """Leapfrog with softened gravitation; the energy at the end."""
    n = len(mass)
    x = position.copy()
    v = velocity.copy()
    h = 0.01
    for _ in range(steps):
        for i in range(n):
            ax = ay = az = 0.0
            for j in range(n):
                if i != j:
                    dx = x[j, 0] - x[i, 0]
                    dy = x[j, 1] - x[i, 1]
                    dz = x[j, 2] - x[i, 2]
                    d2 = dx * dx + dy * dy + dz * dz + 0.01
                    f = mass[j] / (d2 * math.sqrt(d2))
                    ax += f * dx
                    ay += f * dy
                    az += f * dz
            v[i, 0] += h * ax
            v[i, 1] += h * ay
            v[i, 2] += h * az
        for i in range(n):
            for k in range(3):
                x[i, k] += h * v[i, k]
    energy = 0.0
    for i in range(n):
        for k in range(3):
            energy += 0.5 * mass[i] * v[i, k] ** 2
        for j in range(i):
            d2 = 0.01
            for k in range(3):
                d2 += (x[i, k] - x[j, k]) ** 2
            energy -= mass[i] * mass[j] / math.sqrt(d2)
    return energy


def lattice(n: int, random: np.random.Generator) -> tuple[Array, float, float]:
    side = 1
    while side**3 < n:
        side += 1
    points = np.array([(i, j, k) for i in range(side) for j in range(side) for k in range(side)], float)
    return 1.1 * points[:n] + 0.05 * random.standard_normal((n, 3)), 0.9, 2.5


@program(lattice, (0, 1), small=6, large=300)
def lennard_jones(x: Array, sigma: Array, cutoff: float) -> Array:
    """The energy of pairs that are nearer than the cut-off."""
    n = x.shape[0]
    energy = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            d2 = 0.0
            for k in range(3):
                d = x[i, k] - x[j, k]
                d2 += d * d
            if d2 > cutoff * cutoff:
                continue
            s6 = (sigma * sigma / d2) ** 3
            energy += 4.0 * (s6 * s6 - s6)
    return energy


def cloth_grid(n: int, random: np.random.Generator) -> tuple[Array, float, float]:
    rows, columns = np.meshgrid(np.arange(float(n)), np.arange(float(n)), indexing="ij")
    return np.stack([rows, columns, 0.1 * random.standard_normal((n, n))], axis=-1), 30.0, 0.3


@program(cloth_grid, (0, 1, 2), small=3, large=40)
def cloth(start: Array, stiffness: Array, damping: Array) -> Array:
    """A square of springs between neighbours that falls, its first row fixed."""
    n = start.shape[0]
    x = start.copy()
    v = np.zeros((n, n, 3))
    h = 0.02
    for _ in range(10):
        force = np.zeros((n, n, 3))
        for i in range(n):
            for j in range(n):
                force[i, j, 2] -= 1.0
                for di, dj in ((0, 1), (1, 0)):
                    if i + di >= n or j + dj >= n:
                        continue
                    d = x[i + di, j + dj] - x[i, j]
                    length = math.sqrt(d[0] ** 2 + d[1] ** 2 + d[2] ** 2)
                    pull = stiffness * (length - 1.0) / length
                    for k in range(3):
                        force[i, j, k] += pull * d[k]
                        force[i + di, j + dj, k] -= pull * d[k]
        for i in range(1, n):
            for j in range(n):
                for k in range(3):
                    v[i, j, k] += h * (force[i, j, k] - damping * v[i, j, k])
                    x[i, j, k] += h * v[i, j, k]
    return np.mean(x[n - 1] ** 2)


@program(lambda n, random: (0.4, 0.1, 0.01, n), (0, 1, 2), small=50, large=100_000)
def sir(beta: Array, gamma: Array, infected: Array, steps: int) -> Array:
    """Susceptible, infected, recovered; the highest count and when it was, smoothly."""
    s = 1.0 - infected
    i = infected
    r = 0.0
    peak = 0.0
    for step in range(steps):
        new = beta * s * i
        gone = gamma * i
        s -= new
        i += new - gone
        r += gone
        if i > peak:
            peak = i
        if i < 1e-12 and step > 10:
            break
    return peak + r * r


@program(lambda n, random: (np.array([1.0, 0.0]), 1.5, n), (0, 1), small=20, large=50_000)
def runge_kutta(start: Array, mu: Array, steps: int) -> Array:
    """Van der Pol's oscillator: a right side as an inner function that returns an array."""

    def right(y: Array) -> Array:
        out = np.empty(2)
        out[0] = y[1]
        out[1] = mu * (1.0 - y[0] ** 2) * y[1] - y[0]
        return out

    y = start.copy()
    h = 0.05
    for _ in range(steps):
        k1 = right(y)
        k2 = right(y + 0.5 * h * k1)
        k3 = right(y + 0.5 * h * k2)
        k4 = right(y + h * k3)
        y += h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return y


@program(lambda n, random: (0.1, 0.2, 10.0, 28.0, 8.0 / 3.0, n), (0, 1, 2, 3, 4), small=30, large=1000)
def lorenz(
    x: Array, y: Array, sigma: Array, rho: Array, beta: Array, steps: int
) -> tuple[Array, Array, Array]:
    """Euler's steps with tuple assignment; a tuple is returned."""
    z = 1.0
    for _ in range(steps):
        x, y, z = (
            x + 0.01 * sigma * (y - x),
            y + 0.01 * (x * (rho - z) - y),
            z + 0.01 * (x * y - beta * z),
        )
    return x, y, z


@program(lambda n, random: (2.0 + random.uniform(0.0, 1.0), 0.7, 0.02, 60), (0, 1), small=1, large=1)
def bouncing_ball(height: Array, restitution: Array, h: float, steps: int) -> Array:
    """Events: the velocity turns at the ground; stops early when the ball rests."""
    x = height
    v = 0.0
    bounces = 0
    for _ in range(steps):
        v -= 9.81 * h
        x += v * h
        if x < 0.0:
            x = -restitution * x
            v = -restitution * v
            bounces += 1
            if bounces == 4:
                return x + v
    return x
