"""Symbolic kernels beside exact ones: the time of a call, and what the first calls of a stream of lengths cost.

python benchmarks/lengths.py [--stream 1000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as gt
from gradtape.runtime.compile import kernel as compiling
from gradtape.runtime.compile import symbolic

SEEN = (1009, 1511)
"""Lengths that are called before the one that is measured, so that its kernel is symbolic."""
MEASURED = (200, 1000, 10000)
ROUNDS = 41


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def logistic(w, X, y):
    return np.mean(np.logaddexp(0, -y * (X @ w))) + 0.5 * w @ w


def mixture(mu, x):
    logs = -0.5 * (x[:, None] - mu) ** 2
    m = np.max(logs, axis=1, keepdims=True)
    return np.sum(m[:, 0] + np.log(np.sum(np.exp(logs - m), axis=1)))


def cumulative(x):
    return np.sum(np.cumsum(x) ** 2 * np.where(x > 0, x, 0.1 * x))


def network(W, X):
    return np.mean(np.tanh(np.tanh(X @ W) @ W.T) ** 2)


def _inputs(rng: np.random.Generator) -> dict[str, tuple[Any, Callable[[int], tuple[Any, ...]]]]:
    return {
        "rosenbrock": (rosenbrock, lambda n: (rng.normal(size=n),)),
        "logistic regression": (
            logistic,
            lambda n: (np.ones(5), rng.normal(size=(n, 5)), np.sign(rng.normal(size=n))),
        ),
        "mixture": (mixture, lambda n: (np.linspace(-1, 1, 4), rng.normal(size=n))),
        "cumulative": (cumulative, lambda n: (rng.normal(size=n),)),
        "network": (network, lambda n: (np.eye(32), rng.normal(size=(n, 32)))),
    }


def _seconds(function: Any, args: tuple[Any, ...], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        function(*args)
    return (time.perf_counter() - begin) / calls


def speed() -> None:
    """Print the ratio of the two kernels' times: the least of rounds in which they take turns, which the load of a machine spares."""
    print(f"{'value and gradient':<22}{'length':>8}{'exact':>12}{'ratio':>8}  kernel")
    for name, (loss, make) in _inputs(np.random.default_rng(0)).items():
        for n in MEASURED:
            exact = gt.jit(gt.value_and_grad(loss), shapes="exact")
            shared = gt.jit(gt.value_and_grad(loss), shapes="symbolic")
            for seen in (n + 1, n + 3, *SEEN):
                shared(*make(seen))
            args = make(n)
            exact(*args), shared(*args)
            is_shared = "symbolic: the" in gt.inspect.explain(shared).split("arguments ")[-1]
            calls = max(1, int(2e-3 / _seconds(exact, args, 3)))
            pairs = [(_seconds(exact, args, calls), _seconds(shared, args, calls)) for _ in range(ROUNDS)]
            took = min(a for a, _ in pairs) * 1e6
            ratio = min(b for _, b in pairs) * 1e6 / took
            print(f"{name:<22}{n:>8}{took:>9.1f} us{ratio:>8.2f}  {'symbolic' if is_shared else 'exact'}")


def stream(count: int) -> None:
    """Print what the first calls of so many lengths cost, and how many modules were compiled."""
    compile_object = compiling.compile_object
    compiled = 0

    def counted(*args: Any, **kwargs: Any) -> bytes:
        nonlocal compiled
        compiled += 1
        return compile_object(*args, **kwargs)

    compiling.compile_object = counted
    try:
        print(f"\n{f'first calls, {count} lengths':<34}{'total':>9}{'median':>11}{'compiled':>10}")
        for name, (loss, make) in _inputs(np.random.default_rng(0)).items():
            for shapes in ("exact", "symbolic", "auto"):
                for known in (compiling.kernels, symbolic.symbolic_codes, symbolic.families):
                    known.clear()
                function, compiled = gt.jit(gt.value_and_grad(loss), shapes=shapes), 0
                took = []
                for n in range(2, count + 2):
                    args = make(n)
                    took.append(_seconds(function, args, 1))
                print(
                    f"{name:<24}{shapes:<10}{sum(took):>7.1f} s{np.median(took) * 1e3:>8.1f} ms{compiled:>10}"
                )
    finally:
        compiling.compile_object = compile_object


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", type=int, default=1000, help="how many lengths the stream has")
    options = parser.parse_args()
    with gt.config.override(disk_cache=False):
        speed()
        stream(options.stream)


if __name__ == "__main__":
    main()
