"""Several threads at once: tapes, compiled functions, variables and pullbacks that they share give what one thread gives.

In each round every thread makes the same calls in another order, from shared functions that nothing is compiled of yet. The numbers are
compared with those of the interpreter on one thread. Python changes threads as often as it can.

    python -m tests.fuzz.threads --rounds 10000 --seed 1
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as gt
from tests.fuzz.interrupts import same, work_of_another

X = np.linspace(0.1, 1.0, 7)
THREADS = 4
CALLS = 3
numbers = itertools.count(1)


class Shared:
    """What the threads of one round share.

    Parameters
    ----------
    k : float
        A number that no program has met.
    """

    def __init__(self, k: float) -> None:
        self.k = k
        self.jitted = gt.jit(self.curve)
        self.gradient = gt.grad(self.branching)
        self.both = gt.value_and_grad(self.curve)
        self.variable = gt.Variable(X.copy())
        self.counter = gt.Variable(np.zeros(3))
        self.scale = gt.jit(lambda x: np.sum(self.variable * x) * k)
        self.count = gt.jit(lambda x: self.counter.assign_add(x))
        self.pending = np.sin(gt.constant(X) * k) + 1.0
        self.pull = gt.vjp(self.curve, X)[1]
        self.cotangent = gt.vjp(lambda x: np.sin(x * k), X)[1]

    def curve(self, x: Any) -> Any:
        y = np.sin(x * self.k) * np.cos(x)
        return np.sum(y * y)

    def branching(self, x: Any) -> Any:
        y = x * self.k
        for _ in range(3):
            y = y * 2.0 if np.sum(y) > 0 else y * 3.0
        return np.sum(y)

    # The calls: of a shared object and a number that says which of several

    def call_jitted(self, n: int) -> Any:
        return self.jitted(X * n)

    def other_types(self, n: int) -> Any:
        return self.jitted((X * n).astype(np.float32 if n % 2 else np.float64)[: n + 2])

    def call_gradient(self, n: int) -> Any:
        return self.gradient(X * (n - 1.5))

    def call_both(self, n: int) -> Any:
        return self.both(X * n)

    def tape(self, n: int) -> Any:
        with gt.GradientTape() as t:
            x = t.watch(X * n)
            loss = self.curve(x)
        return t.gradient(loss, x).numpy(), float(loss)

    def tape_of_jitted(self, n: int) -> Any:
        with gt.GradientTape() as t:
            x = t.watch(X * n)
            y = self.jitted(x) * self.jitted(x * 2.0)
        return t.gradient(y, x).numpy()

    def nested(self, n: int) -> Any:
        with gt.GradientTape() as outer:
            x = outer.watch(X * n)
            with gt.GradientTape() as inner:
                inner.watch(x)
                y = self.curve(x)
            slope = np.sum(inner.gradient(y, x) ** 2)
        return outer.gradient(slope, x).numpy()

    def tape_of_variable(self, n: int) -> Any:
        with gt.GradientTape() as t:
            y = np.sum(self.variable**2) * n * self.k
        return t.gradient(y, self.variable).numpy()

    def jitted_variable(self, n: int) -> Any:
        return self.scale(X * n)

    def counted(self, n: int) -> Any:
        self.count(np.ones(3))
        self.counter.assign_add(np.ones(3))
        return 0.0

    def looked_at(self, n: int) -> Any:
        return self.pending.numpy(), (self.pending * n).numpy()

    def tape_of_pending(self, n: int) -> Any:
        with gt.GradientTape() as t:
            x = t.watch(2.0 + n)
            y = np.sum(self.pending * x * x)
        return float(t.gradient(y, x))

    def pulled(self, n: int) -> Any:
        return self.pull(1.0 + n), self.cotangent(X * n)

    def loops(self, n: int) -> Any:
        return gt.grad(lambda x: gt.fori_loop(0, 3, lambda i, c: c * self.k, x) * n)(2.0)

    def written(self, n: int) -> Any:
        with gt.GradientTape() as t:
            x = t.watch(2.0)
            y = np.zeros(3)
            y[1] = x * self.k
            z = np.sum(y) * n
        return float(t.gradient(z, x))

    def plain(self, n: int) -> Any:
        y = np.zeros(3)
        y[1] = n
        return np.sum(np.concatenate([y, np.ones(2) * self.k]))

    def custom(self, n: int) -> Any:
        @gt.custom_gradient
        def f(x: Any) -> Any:
            return x * 2.0, lambda u: u * n * self.k

        with gt.GradientTape() as t:
            x = t.watch(X)
            y = np.sum(f(x))
        return t.gradient(y, x).numpy()

    def mapped(self, n: int) -> Any:
        return gt.vmap(self.curve)(np.outer(X, X) * n), gt.jacobian(lambda x: np.sin(x) * self.k)(X * n)


CALLABLE: tuple[Callable[[Shared, int], Any], ...] = tuple(
    item
    for name, item in vars(Shared).items()
    if not name.startswith("_") and name not in ("curve", "branching")
)


def expected(k: float) -> dict[tuple[str, int], Any]:
    """Return what the calls return, one after the other, on the interpreter."""
    with gt.config.override(jit=False):
        shared = Shared(k)
        return {(call.__name__, n): call(shared, n) for call in CALLABLE for n in range(1, CALLS + 1)}


def run_round(seed: int, threads: int = THREADS) -> list[str]:
    """Make all calls on several threads; return what is wrong."""
    k = 1.0 + next(numbers) / 8192
    answers = expected(k)
    shared = Shared(k)
    problems: list[str] = []
    ready = threading.Barrier(threads)

    def work(number: int) -> None:
        order = list(answers)
        random.Random(seed * 1000 + number).shuffle(order)
        try:
            ready.wait(60.0)
            for name, n in order:
                found = getattr(shared, name)(n)
                tolerance = 1e-4 if name == "other_types" else 1e-9
                if not same(found, answers[name, n], tolerance):
                    problems.append(f"{name}({n}) on thread {number}: {found}, not {answers[name, n]}")
        except BaseException:
            problems.append(f"on thread {number}:\n{traceback.format_exc()}")

    everyone = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in everyone:
            thread.start()
        for thread in everyone:
            thread.join(120.0)
    finally:
        sys.setswitchinterval(interval)
    for thread in everyone:
        frame = sys._current_frames().get(thread.ident or 0) if thread.is_alive() else None
        if frame is not None:
            problems.append(f"{thread.name} waits for ever:\n{''.join(traceback.format_stack(frame))}")
    if not problems:
        total = 2.0 * CALLS * threads
        if not np.array_equal(shared.counter.numpy(), np.full(3, total)):
            problems.append(f"counted {shared.counter.numpy()}, not {total}")
        work_of_another(k)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--most", type=int, default=20, help="findings after which to stop")
    options = parser.parse_args()
    found = 0
    with gt.config.override(disk_cache=False):
        for number in range(options.rounds):
            problems = run_round(options.seed + number, options.threads)
            if problems:
                found += 1
                print(
                    f"--- round {number}: --seed {options.seed + number} --rounds 1",
                    *problems,
                    sep="\n",
                    flush=True,
                )
                if found >= options.most:
                    break
    print(f"{found} findings, seed {options.seed}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
