"""The time to the first answer of functions that take long to compile, and what threads save that compile at the same time.

python benchmarks/background.py [--rounds 3]

Each measurement is made in a process of its own, without a disk cache; the ways alternate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gradtape as gt


def layers(x, W):
    for i in range(6):
        x = np.tanh(x @ W * (i + 0.5)) + np.sin(x * 1.5) * np.logaddexp(x, i)
    return np.sum(x**2)


def terms(x):
    total = 0.0
    for i in range(60):
        total = total + np.sum(np.exp(-x * (i + 1)) * np.cumsum(x[i % 7 :])[-1] ** (i % 3))
    return total


X, W = np.linspace(0, 1, 60).reshape(3, 20), np.eye(20) * 0.1
WORKS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "Hessian of six layers": (gt.hessian(lambda x: layers(x, W)), (X,)),
    "gradient of sixty terms": (gt.value_and_grad(terms), (np.linspace(0, 1, 1000),)),
    "gradient of a sum": (gt.value_and_grad(lambda x: np.sum(np.sin(x) ** 2)), (np.ones(1000),)),
}


def first_answer(work: str, way: str) -> list[float]:
    """Return the seconds of the first call, until machine code answers, and how many calls the interpreter has answered."""
    gt.config.compile = way
    function, args = WORKS[work]
    begin = time.perf_counter()
    function(*args)
    first = time.perf_counter() - begin
    (made,) = function.site.specialisations()
    while not made.is_native:
        function(*args)
    return [first, time.perf_counter() - begin, made.program.interpreted]


def signatures(count: int, threads: int) -> list[float]:
    """Return the seconds to compile a function for as many signatures, in as many threads, and those of the busiest thread: at work, and
    blocked, by a lock or by the interpreter's; what is left it has waited for a processor. Linux tells them apart."""
    function = gt.value_and_grad(layers)
    waiting = [(np.ones((rows, 20)), W) for rows in range(3, 3 + count)]
    function(np.ones((2, 20)), W)

    spent: list[tuple[float, float]] = []

    def work() -> None:
        begin, ran, queued = time.perf_counter(), *_scheduled()
        while waiting:
            function(*waiting.pop())
        after, ran_after, queued_after = time.perf_counter(), *_scheduled()
        spent.append((ran_after - ran, after - begin - (ran_after - ran) - (queued_after - queued)))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [time.perf_counter() - begin, *max(spent)]


def _scheduled() -> tuple[float, float]:
    """Return for how many seconds this thread has run, and has waited for a processor."""
    text = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text()
    ran, queued, _ = text.split()
    return int(ran) * 1e-9, int(queued) * 1e-9


def _alone(*arguments: Any) -> list[float]:
    text = json.dumps(arguments)
    run = subprocess.run(
        [sys.executable, "-P", __file__, "--one", text], capture_output=True, text=True, check=True
    )
    found: list[float] = json.loads(run.stdout)
    return found


def _medians(samples: list[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*samples, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one")
    options = parser.parse_args()
    gt.config.disk_cache = gt.config.progress = False
    if options.one is not None:
        kind, *arguments = json.loads(options.one)
        print(json.dumps({"first": first_answer, "signatures": signatures}[kind](*arguments)))
        return
    print("| work | wait, first answer (s) | background, first answer | machine code | calls interpreted |")
    print("|---|---:|---:|---:|---:|")
    for work in WORKS:
        rounds = [
            (_alone("first", work, "wait"), _alone("first", work, "background"))
            for _ in range(options.rounds)
        ]
        waited, early = _medians([one for one, _ in rounds]), _medians([two for _, two in rounds])
        print(f"| {work} | {waited[0]:.2f} | {early[0]:.2f} | {early[1]:.2f} | {early[2]:.0f} |")
    rounds = [(_alone("signatures", 6, 1), _alone("signatures", 6, 2)) for _ in range(options.rounds)]
    one, two = _medians([one for one, _ in rounds]), _medians([two for _, two in rounds])
    print("\n| six signatures | s | busiest thread at work | blocked |\n|---|---:|---:|---:|")
    for name, found in (("one thread", one), ("two threads", two)):
        print(f"| {name} | {found[0]:.2f} | {found[1]:.2f} | {found[2]:.2f} |")


if __name__ == "__main__":
    main()
