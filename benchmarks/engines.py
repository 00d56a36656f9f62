"""Measures loops that are run and recorded against the same loops compiled from their code: value and gradient, and first calls.

    python benchmarks/engines.py [--works lstm,heat] [--seconds 1]

`trace` and `compile` are the settings of `gt.config.loops`. One thread. First calls are those of processes of their own with empty
caches, imports not counted. Steady states are minima, measured in turn in a third process, so that other programs on the machine do not
count. `C` is value and gradient by hand, for those works of run.py that have it. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import works
from processes import environment
from report import machine

WAYS = ("trace", "compile")
TIMEOUT = 120.0
rng = np.random.default_rng(0)


def pendulum(state: Any, damping: Any) -> Any:
    angle, speed = state[0], state[1]
    for _ in range(2000):
        angle, speed = angle + 0.01 * speed, speed - 0.01 * (np.sin(angle) + damping * speed)
    return angle * angle + speed * speed


def rnn(weights: Any, inputs: Any, h: Any) -> Any:
    total = 0.0
    for t in range(200):
        h = np.tanh(weights @ h + inputs[t])
        total = total + np.sum(h * h)
    return total


def batched_rnn(weights: Any, inputs: Any, h: Any) -> Any:
    for t in range(50):
        h = np.tanh(h @ weights + inputs[t])
    return np.sum(h * h)


def vector(x: Any, rate: Any) -> Any:
    for _ in range(500):
        x = x + 0.01 * (np.sin(x) * rate - x * x * 0.1)
    return np.sum(x * x)


def heat(u: Any, rate: Any) -> Any:
    u = u.copy()
    for _ in range(500):
        u[1:-1] = u[1:-1] + rate * (u[2:] - 2.0 * u[1:-1] + u[:-2])
    return np.sum(u * u)


def rk4(y: Any, p: Any) -> Any:
    def slope(y: Any) -> Any:
        return np.stack((p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]))

    for _ in range(400):
        k1 = slope(y)
        k2 = slope(y + 0.005 * k1)
        k3 = slope(y + 0.005 * k2)
        k4 = slope(y + 0.01 * k3)
        y = y + 0.01 / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return np.sum(y * y)


def recurrence(x: Any, a: Any) -> Any:
    y = 0.0
    for i in range(2000):
        y = a * y + x[i]
    return y * y


def small_lstm(weights: Any, inputs: Any, h: Any) -> Any:
    c = h
    for t in range(100):
        gates = weights @ np.concatenate((h, inputs[t]))
        enter = 1.0 / (1.0 + np.exp(-gates[:16]))
        forget = 1.0 / (1.0 + np.exp(-gates[16:32]))
        leave = 1.0 / (1.0 + np.exp(-gates[32:48]))
        c = forget * c + enter * np.tanh(gates[48:])
        h = leave * np.tanh(c)
    return np.sum(h * h)


def normal(*shape: int, scale: float = 0.1) -> np.ndarray:
    return scale * rng.normal(size=shape)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "pendulum 2000": (pendulum, (np.array([1.0, 0.1]), np.float64(0.2)), 2),
    "rnn 32 x 200": (rnn, (normal(32, 32), normal(200, 32), normal(32)), 1),
    "vector 1000 x 500": (vector, (normal(1000), np.float64(0.3)), 2),
    "heat 1000 x 500": (heat, (normal(1000), np.float64(0.2)), 2),
    "rk4 2 x 400": (rk4, (np.array([1.0, 0.5]), np.array([1.1, 0.4, 0.1, 0.4])), 2),
    "recurrence 2000": (recurrence, (normal(2000), np.float64(0.9)), 2),
    "small_lstm 16 x 100": (small_lstm, (normal(64, 20), normal(100, 4), normal(16)), 1),
    "batched_rnn 64 x 64 x 50": (batched_rnn, (normal(64, 64), normal(50, 64, 64), normal(64, 64)), 1),
}
"""Functions, their arguments, and in how many of these they are differentiated."""

OF_RUN = ("lstm", "hmm")
"""Works of run.py, in their wording by a plain loop."""


def names() -> list[str]:
    return [*PROGRAMS, *(f"{name} {works.SIZES[name][0]}" for name in OF_RUN)]


def prepare(name: str) -> tuple[Callable[[], Any], Callable[[], Any] | None]:
    """Return value and gradient of a program without arguments, and the same by hand where there is that."""
    import gradtape as gt

    gt.config.num_threads = 1
    work = name.split()[0]
    if work in OF_RUN:
        import native

        job = works.work(work, name.split()[1], "loop")
        function, arguments, count = job.function(), job.arguments, job.n_differentiated
        by_hand = native.bind(job).gradient
    else:
        (function, arguments, count), by_hand = PROGRAMS[name], None
    both = gt.value_and_grad(function, argnums=tuple(range(count)))
    return lambda: both(*arguments), by_hand


def first_call(name: str, way: str) -> dict[str, float]:
    import gradtape as gt

    gt.config.loops = way
    both, _ = prepare(name)
    begin = time.perf_counter()
    both()
    return {f"{way} first": time.perf_counter() - begin}


def steady(name: str, seconds: float) -> dict[str, float]:
    """Return minima, and the largest relative difference of the results of the two ways."""
    import gradtape as gt

    both, by_hand = prepare(name)
    results = {}
    for way in WAYS:
        gt.config.loops = way
        value, gradients = both()
        results[way] = [np.asarray(value), *map(np.asarray, gradients)]
        both()
    calls = dict.fromkeys(WAYS, both) | ({} if by_hand is None else {"C": by_hand})
    samples: dict[str, list[float]] = {way: [] for way in calls}
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(samples["trace"]) < 5:
        for way, call in calls.items():
            if way in WAYS:
                gt.config.loops = way
            call()
            for _ in range(5):
                start = time.perf_counter()
                call()
                samples[way].append(time.perf_counter() - start)
    pairs = zip(*results.values(), strict=True)
    error = max(float(np.max(np.abs(a - b)) / max(np.max(np.abs(a)), 1e-300)) for a, b in pairs)
    return {way: min(times) for way, times in samples.items()} | {"error": error}


def run(name: str, seconds: float) -> dict[str, float]:
    measured: dict[str, float] = {}
    for mode in (*WAYS, "steady"):
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", __file__, "--one", name, mode, "--seconds", str(seconds)],
                env=environment(GRADTAPE_CACHE_DIR=cache),
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
            )
        if done.returncode:
            raise SystemExit(done.stderr)
        measured |= json.loads(done.stdout.splitlines()[-1])
    return measured


def row(name: str, measured: dict[str, float]) -> str:
    by_hand = "C" in measured
    cells = [
        name,
        *(f"{measured[way] * 1e6:.4g}" for way in WAYS),
        f"{measured['compile'] / measured['trace']:.2f}",
        f"{measured['C'] * 1e6:.4g}" if by_hand else "",
        f"{measured['compile'] / measured['C']:.2f}" if by_hand else "",
        *(f"{measured[f'{way} first']:.2f}" for way in WAYS),
        f"differ by {measured['error']:.0e}" if measured["error"] > 1e-8 else "",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--works", help="beginnings of names, separated by commas")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each program's steady states")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "MODE"), help="measure in this process")
    options = parser.parse_args()
    if options.one:
        name, mode = options.one
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        print(json.dumps(steady(name, options.seconds) if mode == "steady" else first_call(name, mode)))
        return
    print(machine(("numpy", "numba")))
    print(
        "\n| program | trace us | compile us | ratio | C us | compile / C | trace first s | compile first s | remarks |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---|"
    )
    wanted = options.works.split(",") if options.works else [""]
    for name in names():
        if any(name.startswith(begin) for begin in wanted):
            print(row(name, run(name, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
