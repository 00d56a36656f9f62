"""Measures `gt.taylor` against `jax.experimental.jet` on ten functions: coefficients to order 8, and the time of a compiled call.

    OPENBLAS_NUM_THREADS=1 PYTHONPATH=src python benchmarks/jets.py [--order 8]

Errors are relative to the coefficient, or to 1e-3 where that is smaller. Times are medians of calls in turns, in one thread.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as gt

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "exp(-x**2) sin(3x) / (1 + x**4)": lambda m, x: m.exp(-x * x) * m.sin(3 * x) / (1 + x**4),
    "tanh(x)": lambda m, x: m.tanh(x),
    "log(1 + x**2)": lambda m, x: m.log(1 + x * x),
    "sqrt(1 + x)": lambda m, x: m.sqrt(1 + x),
    "1 / (1 + exp(-x))": lambda m, x: 1 / (1 + m.exp(-x)),
    "sin(exp(x))": lambda m, x: m.sin(m.exp(x)),
    "(1 + x)**2.5": lambda m, x: (1 + x) ** 2.5,
    "log(1 + exp(x))": lambda m, x: m.log(1 + m.exp(x)),
    "cosh(x) sinh(x)": lambda m, x: m.cosh(x) * m.sinh(x),
    "network, 3 units": lambda m, x: m.sum(
        m.tanh(m.outer(m.array([1.0, 2.0, 0.5]), x * m.array([1.0, -1.0])) @ m.array([0.3, 0.7]))
    ),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--order", type=int, default=8)
    order = parser.parse_args().order
    import jax
    import jax.numpy as jnp
    from jax.experimental.jet import jet

    jax.config.update("jax_enable_x64", True)
    factorials = np.array([float(math.factorial(k)) for k in range(order + 1)])
    print("| function | largest difference | gt.taylor, us | jet, us |")
    print("|---|---:|---:|---:|")
    for name, f in FUNCTIONS.items():

        def theirs(x: Any, f: Any = f) -> Any:
            value, rest = jet(lambda x: f(jnp, x), (x,), ([1.0] + [0.0] * (order - 1),))
            return jnp.stack([value, *rest]) / factorials

        def ours(x: Any, f: Any = f) -> Any:
            return gt.taylor(lambda x: f(np, x), x, 1.0, order)

        calls = (gt.jit(ours), jax.jit(theirs))
        times: list[list[float]] = [[], []]
        found = [np.asarray(call(0.3)) for call in calls]
        for _ in range(300):
            for call, kept in zip(calls, times, strict=True):
                start = time.perf_counter()
                np.asarray(call(0.3))
                kept.append(time.perf_counter() - start)
        off = np.max(np.abs(found[0] - found[1]) / np.maximum(np.abs(found[1]), 1e-3))
        mine, other = (1e6 * statistics.median(kept) for kept in times)
        print(f"| {name} | {off:.0e} | {mine:.1f} | {other:.1f} |", flush=True)


if __name__ == "__main__":
    main()
