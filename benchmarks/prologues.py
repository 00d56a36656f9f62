"""What data that stays equal costs: ``python benchmarks/prologues.py`` compares calls that keep results with whole programs, and with code
whose data were computed with by hand.

Each line has the milliseconds of a gradient by the whole program (``gt.config.kept_memory = 0``), by one that keeps results, and by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import gammaln

import gradtape as gt
from gradtape.runtime.compile.background import finish_all

RNG = np.random.default_rng(119)
ROUNDS = 15


def milliseconds(*calls: Callable[[], Any]) -> list[float]:
    """Return the shortest time of each call; they take turns, so that they meet the same machine."""
    best = [np.inf] * len(calls)
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            best[number] = min(best[number], time.perf_counter() - begin)
    return [1e3 * seconds for seconds in best]


def powers(x: Any, s: Any, t: Any, j: Any) -> Any:
    """A polynomial fit."""
    return 0.5 * np.sum((s - np.dot(t[:, None] ** j, x)) ** 2)


def powers_by_hand(x: Any, s: Any, table: Any) -> Any:
    """The same with the powers."""
    return 0.5 * np.sum((s - np.dot(table, x)) ** 2)


def poisson(beta: Any, design: Any, y: Any) -> Any:
    """A Poisson regression of the value with all its terms."""
    return poisson_by_hand(beta, design, y, np.sum(gammaln(y + 1.0)))


def poisson_by_hand(beta: Any, design: Any, y: Any, terms: Any) -> Any:
    """The same with the sum of the logarithms of factorials."""
    eta = design @ beta
    return -(np.sum(y * eta - np.exp(eta)) - terms * beta[0])


def kernel(x: Any, points: Any) -> Any:
    """A quadratic form of a kernel of distances."""
    return kernel_by_hand(x, np.exp(-np.sqrt(np.sum((points[:, None] - points[None]) ** 2, axis=-1))))


def kernel_by_hand(x: Any, matrix: Any) -> Any:
    """The same with the kernel."""
    return x @ (matrix @ x)


def solve(x: Any, matrix: Any) -> Any:
    """A quadratic form of an inverse."""
    return solve_by_hand(x, np.linalg.inv(matrix))


def solve_by_hand(x: Any, inverse: Any) -> Any:
    """The same with the inverse."""
    return x @ (inverse @ x)


def main() -> None:
    """Print the table."""
    t, j, s = np.linspace(0.1, 1, 8192), np.arange(64.0), RNG.standard_normal(8192)
    design, y = RNG.standard_normal((100_000, 4)), RNG.gamma(2.0, 1.0, 100_000)
    points = RNG.standard_normal((500, 3))
    root = RNG.standard_normal((300, 300))
    matrix = root @ root.T + 300 * np.eye(300)
    distances = np.sqrt(np.sum((points[:, None] - points[None]) ** 2, axis=-1))
    cases: list[tuple[Any, tuple[Any, ...], Any, tuple[Any, ...], Any]] = [
        (powers, (s, t, j), powers_by_hand, (s, t[:, None] ** j), np.ones(64)),
        (poisson, (design, y), poisson_by_hand, (design, y, np.sum(gammaln(y + 1.0))), np.full(4, 0.1)),
        (kernel, (points,), kernel_by_hand, (np.exp(-distances),), np.ones(500)),
        (solve, (matrix,), solve_by_hand, (np.linalg.inv(matrix),), np.ones(300)),
    ]
    print(f"{'':10}{'whole':>10}{'kept':>10}{'by hand':>10}{'gain':>8}")
    for function, data, by_hand, table, x in cases:
        whole, kept, hand = gt.grad(function), gt.grad(lambda *a, f=function: f(*a)), gt.grad(by_hand)
        with gt.config.override(kept_memory=0):
            right = whole(x, *data)
        for _ in range(4):
            result = kept(x, *data)
            hand(x, *table)
            finish_all()
        np.testing.assert_allclose(result, right, rtol=1e-8)
        a, b, c = milliseconds(partial(whole, x, *data), partial(kept, x, *data), partial(hand, x, *table))
        print(f"{function.__name__:10}{a:10.3f}{b:10.3f}{c:10.3f}{a / b:8.1f}")


if __name__ == "__main__":
    main()
