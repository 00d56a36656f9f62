"""What a call costs where the transform, or the function, is made at the call: ``python benchmarks/calls.py``.

Microseconds of medians, taken in turns in one process, and what each adds to the warm call of a kept gradient.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import report

import gradtape as gt

X = np.linspace(0.1, 1.0, 20)
NUMBERS = itertools.count(1)


def loss(p: Any) -> Any:
    return np.sum(np.sin(p) ** 2)


def scaled(p: Any, k: Any) -> Any:
    return np.sum(np.sin(p * k) ** 2)


class Model:
    """An object that is made at the call."""

    def __init__(self, k: float) -> None:
        self.k = k

    def loss(self, p: Any) -> Any:
        return scaled(p, self.k)


class Average:
    """An object outside that a function writes to."""

    def __init__(self) -> None:
        self.mean: Any = np.zeros(20)


AVERAGE = Average()


def averaged(p: Any) -> Any:
    AVERAGE.mean = 0.9 * AVERAGE.mean + 0.1 * p
    return loss(p)


def closure(convert: Callable[[int], Any]) -> Any:
    k = convert(next(NUMBERS))
    return gt.grad(lambda p: scaled(p, k))(X)


def converted() -> Any:
    k = next(NUMBERS)
    return gt.grad(lambda p: scaled(p, float(k)))(X)


def calls() -> dict[str, Callable[[], Any]]:
    """Return what is measured, by what the user writes; the first is the warm call of a kept gradient."""
    gradient, writing = gt.grad(loss), gt.grad(averaged)
    return {
        "g(x), kept": lambda: gradient(X),
        "gt.grad(f)(x)": lambda: gt.grad(loss)(X),
        "gt.value_and_grad(f)(x)": lambda: gt.value_and_grad(loss)(X),
        "gt.jit(f)(x)": lambda: gt.jit(loss)(X),
        "gt.vjp(f, x)[1](ct)": lambda: gt.vjp(loss, X)[1](1.0),
        "gt.linearize(f, x)[1](t)": lambda: gt.linearize(loss, X)[1](X),
        "gt.jvp(f, (x,), (t,))": lambda: gt.jvp(loss, (X,), (X,)),
        "gt.grad(lambda p: f(p, k))(x), k a float": lambda: closure(float),
        "k an int": lambda: closure(int),
        "k an array": lambda: closure(lambda number: X + number),
        "float(k) in the function": converted,
        "gt.grad(functools.partial(f, k=k))(x)": lambda: gt.grad(
            functools.partial(scaled, k=float(next(NUMBERS)))
        )(X),
        "gt.grad(Model(k).loss)(x)": lambda: gt.grad(Model(float(next(NUMBERS))).loss)(X),
        "kept, writes an attribute": lambda: writing(X),
    }


def main(rounds: int = 300, repeats: int = 5) -> None:
    measured = calls()
    times: dict[str, list[float]] = {name: [] for name in measured}
    for call in measured.values():
        for _ in range(12):
            call()
    for _ in range(rounds):
        for name, call in measured.items():
            begin = time.perf_counter()
            for _ in range(repeats):
                call()
            times[name].append((time.perf_counter() - begin) / repeats * 1e6)
    medians = {name: median(each) for name, each in times.items()}
    warm = next(iter(medians.values()))
    rows = [[name, f"{each:.1f}", f"{each - warm:+.1f}"] for name, each in medians.items()]
    print(report.table(("call", "us", "more than warm"), 1, rows))
    print(report.machine(("numpy", "scipy", "numba")))


if __name__ == "__main__":
    main()
