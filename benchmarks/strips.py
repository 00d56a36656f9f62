"""Value and gradient of loops over long arrays, against the same by hand in C: ``python benchmarks/strips.py``.

For each program, the processor's time of the first call and the shortest of the following ones, in milliseconds, and the increase of
the resident memory, in a process of its own with an empty cache.
"""

from __future__ import annotations

import ctypes
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from processes import environment

import gradtape as gt

HERE: Final = Path(__file__).parent
FLAGS: Final = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")
ROUNDS: Final = 7


def sines(x: Any) -> Any:
    """Return the sum of a sequence of sines."""
    y = x
    for _ in range(300):
        y = np.sin(y) + x
    return np.sum(y)


def heston(p: Any, z1: Any, z2: Any) -> Any:
    """Return the price of a call option in Heston's model, by paths of 252 days."""
    spot, variance, kappa, theta, xi, rho, rate = p
    steps, paths = z1.shape
    dt = 1 / 252

    def step(state: Any, z: Any) -> Any:
        x, v = state
        plus = np.maximum(v, 0.0)
        root = np.sqrt(plus * dt)
        x = x + (rate - 0.5 * plus) * dt + root * z[0]
        v = v + kappa * (theta - plus) * dt + xi * root * (rho * z[0] + np.sqrt(1 - rho * rho) * z[1])
        return (x, v), None

    (x, _), _ = gt.scan(step, (np.log(spot) * np.ones(paths), variance * np.ones(paths)), (z1, z2))
    return np.exp(-rate * steps * dt) * np.mean(np.maximum(np.exp(x) - 100.0, 0.0))


def garch(p: Any, returns: Any) -> Any:
    """Return the negative log-likelihoods of GARCH(1,1) models of many series, added up."""
    omega, alpha, beta = p

    def step(h: Any, r: Any) -> Any:
        square = r * r
        return omega + alpha * square + beta * h, 0.5 * np.sum(np.log(h) + square / h)

    _, terms = gt.scan(step, np.ones(returns.shape[1]), returns)
    return np.sum(terms)


def arguments(name: str) -> tuple[Callable[..., Any], list[Any]]:
    """Return a program and its arguments."""
    rng = np.random.default_rng(0)
    if name == "sines":
        return sines, [np.linspace(0.0, 1.0, 1_000_000)]
    if name == "heston":
        p = np.array([100.0, 0.04, 2.0, 0.04, 0.3, -0.7, 0.02])
        return heston, [p, *rng.standard_normal((2, 252, 99_968))]
    p = np.repeat([[0.1], [0.1], [0.8]], 1000, axis=1)
    return garch, [p, rng.standard_normal((1000, 1000))]


def by_hand(name: str, args: list[Any], library: str) -> tuple[Callable[[], float], Any]:
    """Return a call of the C code, and the array that it writes."""
    function = getattr(ctypes.CDLL(library), name)
    function.restype = ctypes.c_double
    steps, n = (300, args[0].size) if name == "sines" else args[-1].shape
    gradient, work = np.empty_like(args[0]), np.empty(2 * steps * 64)
    arrays = (*args, gradient, work)

    def call() -> float:
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        value: float = function(ctypes.c_int64(n), ctypes.c_int64(steps), *pointers)
        return value

    return call, gradient


def measured(call: Callable[[], Any]) -> tuple[float, float, float]:
    """Return the processor's time of the first call, the shortest of the others, and the megabytes that they took."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        call()
        times.append(1e3 * (time.process_time() - begin))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return times[0], min(times[1:]), (after - before) / 1024


def report(name: str, tool: str, library: str) -> None:
    """Measure one program by one tool and print a line."""
    function, args = arguments(name)
    if tool == "C":
        call, _ = by_hand(name, args, library)
        first, best, memory = measured(call)
    else:
        both = gt.value_and_grad(function)
        first, best, memory = measured(lambda: both(*args))
        call, gradient = by_hand(name, args, library)
        value, found = both(*args)
        np.testing.assert_allclose(value, call(), rtol=1e-9)
        np.testing.assert_allclose(found, gradient, rtol=1e-7, atol=1e-9)
    print(f"{name:8} {tool:9} {first:8.0f} {best:8.1f} {memory:8.0f}", flush=True)


def main() -> None:
    """Print a table, each line measured by a process of its own."""
    if len(sys.argv) == 4:
        report(*sys.argv[1:])
        return
    compiler = shutil.which("gcc")
    assert compiler is not None, "gcc is needed to build the hand-written code"
    print(f"{'program':8} {'tool':9} {'first':>8} {'then':>8} {'MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "strips.so")
        subprocess.run([compiler, *FLAGS, str(HERE / "strips.c"), "-o", library, "-lmvec", "-lm"], check=True)
        own = environment(GRADTAPE_CACHE_DIR=folder)
        for name in ("sines", "heston", "garch"):
            for tool in ("C", "gradtape"):
                subprocess.run([sys.executable, __file__, name, tool, library], check=True, env=own)


if __name__ == "__main__":
    main()
