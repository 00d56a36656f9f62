"""A Monte-Carlo price with its derivatives, against NumPy's forward time: ``python benchmarks/monte_carlo.py``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as gt

RNG = np.random.default_rng(0)


def price(spot: Any, volatility: Any, rate: Any, paths: int = 1_000_000, steps: int = 1) -> Any:
    """Return the price of a call option."""
    log_spot = np.log(spot)
    for _ in range(steps):
        z = RNG.standard_normal(paths)
        log_spot = log_spot + (rate - 0.5 * volatility**2) / steps + volatility * np.sqrt(1.0 / steps) * z
    return np.exp(-rate) * np.mean(np.maximum(np.exp(log_spot) - 100.0, 0.0))


def milliseconds(function: Callable[..., Any], *args: Any, rounds: int = 9) -> float:
    """Return the median time of a call, the first one apart."""
    function(*args)
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        function(*args)
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def main() -> None:
    """Print a table."""
    print(
        f"{'paths':>9} {'steps':>6} {'draws':>7} {'NumPy':>7} {'value':>7} {'value and 3 derivatives':>24}   (ms)"
    )
    for paths, steps in ((1_000_000, 1), (100_000, 10), (10_000, 100)):

        def call(spot: Any, volatility: Any, rate: Any, paths: int = paths, steps: int = steps) -> Any:
            return price(spot, volatility, rate, paths, steps)

        at = 100.0, 0.2, 0.03
        row = [
            milliseconds(lambda paths=paths, steps=steps: RNG.standard_normal((steps, paths))),
            milliseconds(call, *at),
            milliseconds(gt.jit(call), *at),
            milliseconds(gt.value_and_grad(call, argnums=(0, 1, 2)), *at),
        ]
        print(f"{paths:9} {steps:6} {row[0]:7.1f} {row[1]:7.1f} {row[2]:7.1f} {row[3]:24.1f}")


if __name__ == "__main__":
    main()
