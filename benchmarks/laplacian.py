"""Measures `gt.laplacian` of networks of 100 inputs, in times of the value, and in times of the operations of a forward Laplacian.

    OPENBLAS_NUM_THREADS=1 python benchmarks/laplacian.py [--repeats 30]

A forward Laplacian (R. Li et al., Nature Machine Intelligence 6, 2024) of n inputs takes the operations of n + 2 values: one for each
first derivative, the value, and the sum. Their time is that of n + 2 values computed together, as matrix products. Times are medians of
calls in turns.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as gt

INPUTS = 100


def network(width: int, depth: int, activation: Callable[[Any], Any], seed: int = 0) -> Callable[[Any], Any]:
    """Return a network with one number as its result."""
    rng = np.random.default_rng(seed)
    sizes = [INPUTS, *[width] * depth, 1]
    weights = [rng.standard_normal((a, b)) / np.sqrt(a) for a, b in itertools.pairwise(sizes)]

    def value(x: Any) -> Any:
        for matrix in weights[:-1]:
            x = activation(x @ matrix)
        return np.sum(x @ weights[-1])

    return value


def swish(x: Any) -> Any:
    """Return x times the logistic function."""
    return x / (1.0 + np.exp(-x))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    rng = np.random.default_rng(1)
    x, many = rng.standard_normal(INPUTS), rng.standard_normal((INPUTS + 2, INPUTS))
    print(
        "| network | first call, s | value, us | Laplacian / value | / n + 2 values together | sum of the diagonal / Laplacian |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for width, depth, activation in ((64, 2, np.tanh), (256, 4, np.tanh), (256, 4, swish), (512, 3, np.sin)):
        f = network(width, depth, activation)
        ways = {
            "value": (gt.jit(f), x),
            "together": (gt.jit(gt.vmap(f)), many),
            "laplacian": (gt.laplacian(f), x),
            "diagonal": (gt.hessian_diagonal(f), x),
        }
        begin = time.perf_counter()
        found = ways["laplacian"][0](x)
        first = time.perf_counter() - begin
        np.testing.assert_allclose(found, np.sum(ways["diagonal"][0](x)), rtol=1e-10, atol=1e-12)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats + 1):
            for name, (way, argument) in ways.items():
                begin = time.perf_counter()
                for _ in range(10):
                    way(argument)
                times[name].append((time.perf_counter() - begin) / 10)
        median = {name: statistics.median(every[1:]) for name, every in times.items()}
        print(
            f"| {width} x {depth}, {activation.__name__} | {first:.1f} | {1e6 * median['value']:.0f} | "
            f"{median['laplacian'] / median['value']:.1f} | {median['laplacian'] / median['together']:.2f} | "
            f"{median['diagonal'] / median['laplacian']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
