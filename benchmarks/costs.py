"""Measure what stands beside the numbers of `gradtape.costs`: ``python benchmarks/costs.py``.

Each operation is in a chain, for each of 4,096 elements; the difference of a long and a short chain is divided by their difference in
operations and elements, so that calls, loads and stores do not count. Medians, and ratios to an addition in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
from scipy import special

import gradtape as gt

ELEMENTS = 4096
RANDOM = np.random.default_rng(0).permutation(ELEMENTS)

OPERATIONS: dict[str, Callable] = {
    "add": lambda y, x: y + x,
    "multiply": lambda y, x: y * x,
    "maximum": lambda y, x: np.maximum(y, x) * x,
    "divide": lambda y, x: y / x,
    "sqrt": lambda y, x: np.sqrt(y),
    "exp": lambda y, x: np.exp(-y),
    "log": lambda y, x: np.log(y + x),
    "sin": lambda y, x: np.sin(y),
    "power": lambda y, x: y**x,
    "gammaln": lambda y, x: special.gammaln(y + 1),
    "gather": lambda y, x: y[RANDOM],
}
"""Operations on the chain's value and an operand; "maximum" has a product beside it."""


def chain(operation: Callable, length: int) -> Callable:
    """Return a jitted sum over the elements of a chain of operations."""

    def total(x):
        y = x
        for _ in range(length):
            y = operation(y, x)
        return np.sum(y)

    return gt.jit(total)


def seconds(operation: Callable, short: int, long: int, repeats: int = 60, calls: int = 10) -> float:
    """Return the time of one operation on one element."""
    x = 1.0 + np.random.default_rng(1).random(ELEMENTS) * 1e-3
    chains = [chain(operation, short), chain(operation, long)]
    for function in chains:
        function(x)
    differences = []
    for _ in range(repeats):
        times = []
        for function in chains:
            start = time.perf_counter()
            for _ in range(calls):
                function(x)
            times.append(time.perf_counter() - start)
        differences.append((times[1] - times[0]) / calls)
    return median(differences) / (long - short) / ELEMENTS


def main() -> None:
    """Print the time of each operation, and its ratio to an addition."""
    unit = 0.0
    for name, operation in OPERATIONS.items():
        time_ = seconds(operation, *((1, 3) if name == "gammaln" else (8, 40)))
        unit = unit or time_
        print(f"{name:10} {time_ * 1e9:8.3f} ns {time_ / unit:8.1f}")
    a = np.random.default_rng(2).random((256, 256))
    product = gt.jit(lambda a: a @ a)
    product(a)
    times = []
    for _ in range(60):
        start = time.perf_counter()
        product(a)
        times.append(time.perf_counter() - start)
    time_ = median(times) / 256**3
    print(f"{'multiplication of a product':10} {time_ * 1e9:8.3f} ns {time_ / unit:8.1f}")


if __name__ == "__main__":
    main()
