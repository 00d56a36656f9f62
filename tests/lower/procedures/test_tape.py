"""The tape of a procedure: room for the records of a loop is made before it begins."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.lower.resident.memory import kept_bytes, trim_memory

N = 2**14
TRIPS = 130
"""A tape that doubles from the first record on would be 256 records long."""


def smoothed(u, a, steps):
    u = u.copy()
    for _ in range(steps):
        u[1:-1] += a * u[1:-1] * (u[2:] - 2 * u[1:-1] + u[:-2])
    return np.sum(u * u)


def triangle(x, a, steps):
    """Inner loops whose trip counts are not known before the outer one."""
    total = 0.0
    for i in range(steps):
        for j in range(i):
            total = np.sin(total * a + x[j])
    return total


def branching(x, a, steps):
    total = 0.0
    for i in range(steps):
        if x[i] > 0.0:
            total = np.sin(total * a + x[i])
        for j in range(3):
            total = np.cos(total + x[j])
    return total


def slope(function, x, a, steps, step=1e-6):
    return (function(x, a + step, steps) - function(x, a - step, steps)) / (2 * step)


@pytest.fixture(autouse=True)
def _from_code(monkeypatch):
    monkeypatch.setattr(gt.config, "loops", "compile")


def test_a_tape_is_as_long_as_the_records_of_a_loop():
    u = np.random.default_rng(0).random(N)
    gradient = gt.grad(smoothed, argnums=1)
    trim_memory()
    found = gradient(u, 0.01, TRIPS)
    kept = kept_bytes()
    gradient(u, 0.01, TRIPS)
    assert kept_bytes() == kept  # the second call needs no more
    assert (
        TRIPS * 8 * N <= kept < (TRIPS + 12) * 8 * N
    )  # a number for each cell and iteration, and some arrays
    assert found == pytest.approx(slope(smoothed, u, 0.01, TRIPS), rel=1e-5)


@pytest.mark.parametrize("steps", [-3, 0, 1, 2, 9])
@pytest.mark.parametrize("function", [smoothed, triangle, branching])
def test_records_of_any_number_of_iterations(function, steps):
    x = np.linspace(-0.9, 1.0, 12)
    value, gradient = gt.value_and_grad(function, argnums=1)(x, 0.3, steps)
    assert value == pytest.approx(function(x, 0.3, steps), rel=1e-12)
    assert gradient == pytest.approx(slope(function, x, 0.3, steps), rel=1e-6, abs=1e-8)
    (_, pushed) = gt.jvp(lambda a: function(x, a, steps), (0.3,), (1.0,))
    assert gradient == pytest.approx(pushed, rel=1e-10)
    second = gt.grad(gt.grad(function, argnums=1), argnums=1)(x, 0.3, steps)
    bent = gt.jvp(gt.grad(lambda a: function(x, a, steps)), (0.3,), (1.0,))[1]
    assert second == pytest.approx(bent, rel=1e-9, abs=1e-12)
    with gt.GradientTape() as tape:
        a = tape.watch(0.3)
        y = gt.jit(function)(x, a, steps)
    taped = tape.gradient(y, a)
    assert (0.0 if taped is None else taped) == pytest.approx(gradient, rel=1e-10)
    rows = gt.vmap(lambda a: gt.grad(function, argnums=1)(x, a, steps))(np.array([0.1, 0.3]))
    assert rows[1] == pytest.approx(gradient, rel=1e-10)
