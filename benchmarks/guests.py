"""What a call of gradtape's code costs inside JAX, beside JAX's own code for the same function: ``python -m benchmarks.guests``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gradtape as gt

CALLS = 500


def microseconds(function: Callable[..., Any], x: Any) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        jax.block_until_ready(function(x))
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    x = jnp.arange(4.0)
    ours, theirs = gt.jax(lambda x: np.sum(np.sin(x) ** 2)), lambda x: jnp.sum(jnp.sin(x) ** 2)
    print(f"{'':12}{'gt.jax':>8}{'JAX':>8}  microseconds, 4 elements")
    for name, transform in {
        "jit": jax.jit,
        "jit, grad": lambda f: jax.jit(jax.grad(f)),
        "jit, hessian": lambda f: jax.jit(jax.hessian(f)),
    }.items():
        print(f"{name:12}{microseconds(transform(ours), x):8.1f}{microseconds(transform(theirs), x):8.1f}")


if __name__ == "__main__":
    main()
