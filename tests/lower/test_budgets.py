"""How many loops, stores, library calls and bytes of scratch the known programs may take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import gradtape as gt
from gradtape.kinds.elementwise import Libm
from gradtape.loops.ir import Compute, For, RoutineCall, Store
from gradtape.loops.workspace import plan_memory
from gradtape.lower.pipeline import build_loops
from gradtape.lower.schedule.fusion import Fusion
from gradtape.statements import walk


@dataclass(frozen=True)
class Budget:
    """At most so many of each."""

    nests: int
    stores: int
    functions: int
    calls: int
    workspace: int


def rosen(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def bs(spot, strike, time, rate, vol):
    width = vol * np.sqrt(time)
    d1 = (np.log(spot / strike) + (rate + 0.5 * vol**2) * time) / width
    cdf = [0.5 * (1.0 + np.tanh(d)) for d in (d1, d1 - width)]
    return np.sum(spot * cdf[0] - strike * np.exp(-rate * time) * cdf[1])


def lse(x):
    top = np.max(x)
    return top + np.log(np.sum(np.exp(x - top)))


def mixture(weights, mu, q, x):
    scaled = q @ (x.T - mu[:, :, None])
    energy = weights[:, None] - 0.5 * np.sum(scaled**2, axis=1)
    top = np.max(energy, axis=0)
    return np.sum(top + np.log(np.sum(np.exp(energy - top), axis=0)))


def packed_mixture(weights, mu, packed, x):
    """The matrices stand in a table of what differs between them, as in ADBench."""
    places = np.abs(np.subtract.outer(np.arange(mu.shape[1]), np.arange(mu.shape[1])))
    return mixture(weights, mu, packed[:, places], x)


def mlp(w1, b1, w2, b2, x, y):
    scores = np.tanh(x @ w1 + b1) @ w2 + b2
    top = np.max(scores, axis=1, keepdims=True)
    logs = scores - top - np.log(np.sum(np.exp(scores - top), axis=1, keepdims=True))
    return -np.mean(np.sum(y * logs, axis=1))


def network(w1, w2, w3, x):
    return np.sum((np.tanh(np.tanh(x @ w1) @ w2) @ w3) ** 2)


def ones(*shapes):
    return [np.ones(shape) for shape in shapes]


PROGRAMS = {
    "rosen": (rosen, ones(1000), 1),
    "bs": (bs, ones(*[1000] * 5), 5),
    "lse": (lse, ones(1000), 1),
    "mixture": (mixture, ones(25, (25, 10), (25, 10, 10), (1000, 10)), 3),
    "mixture d64": (mixture, ones(50, (50, 64), (50, 64, 64), (1000, 64)), 3),
    "packed mixture": (packed_mixture, ones(25, (25, 10), (25, 10), (1000, 10)), 3),
    "packed mixture d64": (packed_mixture, ones(50, (50, 64), (50, 64), (1000, 64)), 3),
    "mixture of few": (mixture, ones(5, (5, 12), (5, 12, 12), (1000, 12)), 3),
    "mixture d20": (mixture, ones(50, (50, 20), (50, 20, 20), (1000, 20)), 3),
    "network": (network, ones(*[(64, 64)] * 3, (8000, 64)), 3),
    "mlp": (mlp, ones((784, 256), 256, (256, 10), 10, (128, 784), (128, 10)), 4),
}

BUDGETS = {
    "rosen": Budget(nests=1, stores=4, functions=0, calls=0, workspace=64),
    "bs": Budget(nests=1, stores=6, functions=6, calls=0, workspace=64),
    "lse": Budget(nests=3, stores=3, functions=2, calls=0, workspace=64),
    "mixture": Budget(nests=12, stores=64, functions=4, calls=0, workspace=332_000),
    "mixture d64": Budget(nests=5, stores=26, functions=2, calls=2, workspace=5_800_000),
    "packed mixture": Budget(nests=18, stores=68, functions=4, calls=0, workspace=372_000),
    "packed mixture d64": Budget(nests=10, stores=31, functions=2, calls=2, workspace=9_010_000),
    "mixture of few": Budget(nests=11, stores=68, functions=4, calls=0, workspace=97_000),
    "mixture d20": Budget(nests=10, stores=48, functions=4, calls=4, workspace=2_410_000),
    "network": Budget(nests=10, stores=18, functions=4, calls=8, workspace=2_100_000),
    "mlp": Budget(nests=6, stores=10, functions=4, calls=5, workspace=550_000),
}
"""What they took when this was written; the calls are the products that the mathematics asks for. The derivative of a tangent takes an
exponential (ADR 107). Small products make two rows at once, with a store for each (ADR 165).

The scratch of "mixture d64" and "network" would be 52 and 17 MB if whole products were kept.
"""


def spent(name):
    function, args, differentiated = PROGRAMS[name]
    argnums = tuple(range(differentiated)) if differentiated > 1 else 0
    gradient = gt.value_and_grad(function, argnums=argnums)
    gradient(*args)
    made = gradient.site.specialisations()
    program, _ = build_loops(made[0].graph)
    inside = list(walk(program.body))
    return Budget(
        nests=sum(isinstance(s, For) for s in program.body),
        stores=sum(isinstance(s, Store) for s in inside),
        functions=sum(isinstance(s, Compute) and isinstance(s.body, Libm) for s in inside),
        calls=sum(isinstance(s, RoutineCall) for s in inside),
        workspace=plan_memory(program)[1],
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_stays_within_its_budget(name):
    used, budget = spent(name), BUDGETS[name]
    assert used.nests <= budget.nests
    assert used.stores <= budget.stores
    assert used.functions <= budget.functions
    assert used.calls <= budget.calls
    assert used.workspace <= budget.workspace


def test_a_sum_of_gathers_is_computed_once_for_all_scatters_of_its_gradient():
    def interpolated(x, points):
        base = np.floor(points)
        part = points - base
        total = 0.0
        for k in range(4):
            total = total + x[(base.astype(int) + k) % len(x)] * np.exp(-((part - k) ** 2))
        return total

    x, points = np.linspace(0.0, 1.0, 50), np.linspace(0.0, 40.0, 20_000)
    gradient = gt.value_and_grad(lambda x: np.sum(interpolated(x, points) ** 2))
    assert str(gt.inspect.loops(gradient, x)).count("wrap(") <= 8


def shifted(y):
    y[1:] = y[:-1]


def scaled(y):
    y[2:5] = 2.0 * y[2:5]


def halves(y):
    y[:8] = np.sin(y[8:])


def turned(y):
    y[::-1] = y


@pytest.mark.parametrize(
    "write, nests, scratch", [(scaled, 2, 64), (halves, 3, 128), (shifted, 2, 192), (turned, 3, 192)]
)
def test_an_assignment_in_place_stores_what_it_would_overwrite_and_no_more(write, nests, scratch):
    def function(x):
        y = np.exp(x)
        write(y)
        return y

    jitted = gt.jit(function)
    x = np.linspace(0.0, 1.0, 16)
    np.testing.assert_allclose(jitted(x), function(x.copy()))
    made = jitted.site.specialisations()
    program, _ = build_loops(made[0].graph)
    assert sum(isinstance(s, For) for s in program.body) <= nests
    assert plan_memory(program)[1] <= scratch


def test_a_loop_is_compared_with_those_that_touch_the_same_memory(monkeypatch):
    """The time to schedule many independent vectors grows with their number, and not with its square."""
    compared = 0
    related = Fusion._related

    def counted(self, loop, nest):
        nonlocal compared
        compared += 1
        return related(self, loop, nest)

    monkeypatch.setattr(Fusion, "_related", counted)
    counts = []
    for n in (25, 50):
        jitted = gt.jit(lambda vectors: [np.sin(v) * v for v in vectors])
        jitted([np.full(3 + k, 0.1) for k in range(n)])
        compared = 0
        build_loops(jitted.site.specialisations()[0].graph)
        counts.append(compared)
    assert 0 < counts[1] <= 2.5 * counts[0]
