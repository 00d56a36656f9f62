"""Procedures that the tests differentiate, with arguments."""

from __future__ import annotations

import numpy as np

from gradtape.ir.graph import literal
from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.exponential import exp, sin
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.logic import less
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.builder import ProcedureBuilder

RNG = np.random.default_rng(5)


def copy_of(build, pointer, size):
    """Append a copy of an array."""
    copy = build.allocate("copy", size, pointer.dtype)
    with build.loop(size) as i:
        build.store(copy, i, build.load(pointer, i))
    return copy


def pendulum(steps=7):
    build = ProcedureBuilder("pendulum")
    theta0, omega0, g = build.scalar("theta0"), build.scalar("omega0"), build.scalar("g")
    theta, omega = build.variable("theta", theta0), build.variable("omega", omega0)
    with build.loop(steps):
        new = build.read(omega) - 0.1 * g * sin(build.read(theta))
        build.assign(omega, new)
        build.assign(theta, build.read(theta) + 0.1 * new)
    return build.finish([build.read(theta)]), [1.0, 0.5, 9.8]


def cholesky(n=5):
    build = ProcedureBuilder("cholesky")
    a = build.array("a", (n, n))
    out = build.allocate("l", n * n, zero=True)
    with build.loop(n) as i, build.loop(i + 1) as j:
        total = build.variable("s", build.load(a, i * n + j))
        with build.loop(j) as k:
            build.assign(total, build.read(total) - build.load(out, i * n + k) * build.load(out, j * n + k))
        with build.branch(i <= j) as branch:
            build.store(out, i * n + j, sqrt(build.read(total)))
            build.start_otherwise(branch)
            build.store(out, i * n + j, build.read(total) / build.load(out, j * n + j))
    x = RNG.normal(size=(n, n))
    return build.finish([out], [aval((n, n), np.dtype(float))]), [x @ x.T + n * np.eye(n)]


def soft_dtw(n=4, m=5):
    build = ProcedureBuilder("soft_dtw")
    x, y, gamma = build.array("x", (n,)), build.array("y", (m,)), build.scalar("gamma")
    r = build.allocate("r", (n + 1) * (m + 1))
    with build.loop((n + 1) * (m + 1)) as i:
        build.store(r, i, 1e6)
    build.store(r, 0, 0.0)
    with build.loop(n) as i, build.loop(m) as j:
        d = build.load(x, i) - build.load(y, j)
        a = -build.load(r, i * (m + 1) + j) / gamma
        b = -build.load(r, i * (m + 1) + j + 1) / gamma
        c = -build.load(r, (i + 1) * (m + 1) + j) / gamma
        ab = where(less(a, b), b, a)
        top = where(less(ab, c), c, ab)
        soft = -gamma * (log(exp(a - top) + exp(b - top) + exp(c - top)) + top)
        build.store(r, (i + 1) * (m + 1) + j + 1, d * d + soft)
    return build.finish([build.load(r, n * (m + 1) + m)]), [RNG.normal(size=n), RNG.normal(size=m), 0.7]


def gauss_seidel(n=8, sweeps=5):
    """In place, on a copy of the input that is returned, with a nonlinear term."""
    build = ProcedureBuilder("gauss_seidel")
    b, x0 = build.array("b", (n,)), build.array("x0", (n,))
    x = copy_of(build, x0, n)
    with build.loop(sweeps), build.loop(n - 2) as i:
        old = build.load(x, i + 1)
        around = build.load(x, i) + build.load(x, i + 2)
        build.store(x, i + 1, (build.load(b, i + 1) + around - 0.1 * old * old * old) / 2.0)
    return build.finish([x], [aval((n,), np.dtype(float))]), [RNG.normal(size=n), RNG.normal(size=n)]


def swap(n=7, steps=5):
    """Two arrays change roles by pointers."""
    build = ProcedureBuilder("swap")
    x0 = build.array("x0", (n,))
    first = build.allocate("p", n)
    second = build.allocate("q", n, zero=True, memory=first.memory)
    with build.loop(n) as i:
        build.store(first, i, build.load(x0, i))
    p, q = build.variable("p", first), build.variable("q", second)
    with build.loop(steps):
        source, target = build.read(p), build.read(q)
        with build.loop(n - 2) as i:
            left, mid = build.load(source, i), build.load(source, i + 1)
            build.store(target, i + 1, left * mid + sin(build.load(source, i + 2)))
        build.store(target, 0, build.load(source, 0))
        build.store(target, n - 1, build.load(source, n - 1))
        build.assign(p, target)
        build.assign(q, source)
    out = build.allocate("out", n)
    end = build.read(p)
    with build.loop(n) as i:
        build.store(out, i, build.load(end, i))
    return build.finish([out], [aval((n,), np.dtype(float))]), [RNG.normal(size=n)]


def newton(n=3):
    """A while loop for each element, with a branch and a count that depends on the data."""
    build = ProcedureBuilder("newton")
    a = build.array("a", (n,))
    out = build.allocate("out", n)
    steps = build.variable("steps", 0)
    with build.loop(n) as i:
        c = build.load(a, i)
        x = build.variable("x", c)
        with build.loop_while() as loop:
            now = build.read(x)
            error = now * now - c
            build.start_body(loop, less(literal(1e-3), abs(error)))
            with build.branch(less(error, literal(0.5))) as branch:
                build.assign(x, now - error / (2.0 * now))
                build.start_otherwise(branch)
                build.assign(x, now - 0.9 * error / (2.0 * now))
            build.assign(steps, build.read(steps) + 1)
        build.store(out, i, build.read(x) * sin(c))
    return build.finish([out], [aval((n,), np.dtype(float))]), [np.array([2.0, 3.3, 9.1])[:n]]


def aliased(n=6):
    """Two pointers into one memory that may reach the same elements, read before and after stores."""
    build = ProcedureBuilder("aliased")
    x0 = build.array("x0", (n,))
    x = copy_of(build, x0, n)
    with build.loop(n) as i:
        a = build.load(x, i)
        build.store(x, remainder(i + 1, n), a * a + build.load(x, remainder(i + 2, n)))
        b = build.load(x, remainder(i + 1, n))
        with build.branch(less(b, literal(1.0))):
            build.store(x, i, sin(a * b))
    return build.finish([x], [aval((n,), np.dtype(float))]), [RNG.normal(size=n)]


def zero_trips(n=3):
    build = ProcedureBuilder("zero_trips")
    x, count = build.array("x", (n,)), build.scalar("count", np.int64)
    s = build.variable("s", 1.0)
    with build.loop(count) as i:
        build.assign(s, build.read(s) * build.load(x, i))
        with build.loop(i - 1) as j:
            build.assign(s, sin(build.read(s)) + build.load(x, j))
    return build.finish([build.read(s)]), [RNG.normal(size=n), np.int64(0)]


def triangular(n=6):
    """A triangular solve, in place, with sums in memory."""
    build = ProcedureBuilder("triangular")
    a, b = build.array("a", (n, n)), build.array("b", (n,))
    x = copy_of(build, b, n)
    with build.loop(n) as i:
        with build.loop(i) as j:
            build.store(x, i, build.load(x, i) - build.load(a, i * n + j) * build.load(x, j))
        build.store(x, i, build.load(x, i) / build.load(a, i * n + i))
    return build.finish([x], [aval((n,), np.dtype(float))]), [
        RNG.normal(size=(n, n)) + 3 * np.eye(n),
        RNG.normal(size=n),
    ]


def histogram(n=6, bins=3):
    """Accumulations at indices that are data, and a branch on data in a loop."""
    build = ProcedureBuilder("histogram")
    x, place = build.array("x", (n,)), build.array("place", (n,), np.int64)
    h = build.allocate("h", bins, zero=True)
    with build.loop(n) as i:
        k = build.load(place, i)
        v = build.load(x, i)
        with build.branch(less(v, literal(0.0))) as branch:
            build.store(h, k, build.load(h, k) - v * v)
            build.start_otherwise(branch)
            build.store(h, k, build.load(h, k) + exp(v))
    return build.finish([h], [aval((bins,), np.dtype(float))]), [
        RNG.normal(size=n),
        RNG.integers(0, bins, n),
    ]


def guarded(n=6):
    """Roots of what may be negative, in branches that are not taken then, and a while loop that counts."""
    build = ProcedureBuilder("guarded")
    x = build.array("x", (n,))
    total, k = build.variable("s", 0.0), build.variable("k", 1)
    with build.loop_while() as loop:
        place = build.read(k)
        build.start_body(loop, less(place, literal(n)))
        v = build.load(x, place)
        root = sqrt(v)
        with build.branch(less(literal(0.0), v)) as branch:
            with build.loop(place) as j:
                build.assign(total, build.read(total) + root * build.load(x, j))
            build.start_otherwise(branch)
            build.assign(total, build.read(total) * v)
        build.assign(k, build.read(k) + 1)
    return build.finish([build.read(total)]), [np.array([-0.3, 0.7, -1.2, 0.4, -0.9, 2.0])[:n]]


def late_load():
    """A load of a restored element, which the reverse sweep needs where the element is restored already."""
    build = ProcedureBuilder("late_load")
    x, z = build.scalar("x"), build.array("z", (3,))
    g = build.allocate("g", 1)
    state, total = build.variable("state", x), build.variable("total", 0.0)
    build.store(g, 0, x)
    with build.loop(3) as i:
        early = build.load(z, i)
        build.store(g, 0, sin(build.read(state)))
        late = build.load(g, 0)
        with build.loop(4) as j:
            element = build.load(g, j * 0)
            build.assign(total, build.read(total) + exp(element * element))
        build.assign(state, build.read(state) + late * (early - build.read(state)))
    return build.finish([build.read(total) + build.read(state)]), [0.7, np.array([0.2, -0.4, 0.9])]


SAMPLES = [
    late_load,
    guarded,
    pendulum,
    cholesky,
    soft_dtw,
    gauss_seidel,
    swap,
    newton,
    aliased,
    zero_trips,
    triangular,
    histogram,
]
