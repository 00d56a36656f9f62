"""Measures `gt.nlp` against CasADi's `nlpsol`: direct collocation, the same IPOPT, the same options.

    pip install casadi
    OMP_NUM_THREADS=1 python benchmarks/nlp.py [--sizes 600 6000 60000] [--repeats 5]

The program is the oscillator of docs/how-to/nonlinear-programs.md. Each time is that of everything: the build of the program, the
derivatives and IPOPT, as processor time of one thread, which other processes on the machine change little. The first call is made in a
process of its own; the next ones are medians, in turns with CasADi. For CasADi the program is built in each call by symbols of vectors
(MX), which is its fast way.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gradtape as gt

END = 10.0


def cost(x: Any, step: float) -> Any:
    """The effort and the distance from rest."""
    return step * np.sum(x["a"] ** 2 + x["b"] ** 2 + x["u"] ** 2)


def defects(x: Any, step: float) -> Any:
    """What the trapezoidal rule leaves of the differential equation."""
    a, b, u = x["a"], x["b"], x["u"]
    da, db = (1 - b**2) * a - b + u, a
    return {
        "a": a[1:] - a[:-1] - step / 2 * (da[1:] + da[:-1]),
        "b": b[1:] - b[:-1] - step / 2 * (db[1:] + db[:-1]),
        "start": np.stack([a[0], b[0] - 1.0]),
    }


def by_gradtape(unknowns: int) -> Any:
    """Return the solution."""
    count = unknowns // 3
    step = END / (count - 1)
    start = {name: np.zeros(count) for name in ("a", "b", "u")}
    low = {"a": -0.25, "b": -np.inf, "u": -1.0}
    high = {"a": np.inf, "b": np.inf, "u": 1.0}
    dynamics = {"type": "eq", "fun": defects, "args": (step,)}
    return gt.nlp(cost, start, step, constraints=dynamics, bounds=(low, high))


def by_casadi(unknowns: int) -> Any:
    """Return the objective and the number of iterations."""
    import casadi

    count = unknowns // 3
    step = END / (count - 1)
    a, b, u = (casadi.MX.sym(name, count) for name in "abu")
    da, db = (1 - b**2) * a - b + u, a
    objective = step * casadi.sum1(a**2 + b**2 + u**2)
    rows = [
        a[1:] - a[:-1] - step / 2 * (da[1:] + da[:-1]),
        b[1:] - b[:-1] - step / 2 * (db[1:] + db[:-1]),
        a[0],
        b[0] - 1,
    ]
    problem: dict[str, Any] = {"x": casadi.vertcat(a, b, u), "f": objective, "g": casadi.vertcat(*rows)}
    quiet: Any = {
        "print_level": 0,
        "sb": "yes",
        "tol": 1e-8,
        "max_iter": 3000,
        "honor_original_bounds": "yes",
    }
    solver = casadi.nlpsol("solver", "ipopt", problem, {"ipopt": quiet, "print_time": False})
    ones = np.ones(count)
    found = solver(
        x0=np.zeros(3 * count),
        lbx=np.concatenate([-0.25 * ones, -np.inf * ones, -ones]),
        ubx=np.concatenate([np.inf * ones, np.inf * ones, ones]),
        lbg=0,
        ubg=0,
    )
    return float(found["f"]), solver.stats()["iter_count"]


def seconds(run: Callable[[int], Any], unknowns: int) -> float:
    """Return the processor time of a call."""
    begin = time.process_time()
    run(unknowns)
    return time.process_time() - begin


@contextlib.contextmanager
def parts() -> Iterator[dict[str, float]]:
    """Give what each function of the program takes, in seconds, in a solution within."""
    from gradtape.api.nlp.derivatives import Derivatives

    made: dict[str, float] = {}
    names = "values", "gradient", "patterns", "jacobian", "hessian"
    kept = {name: getattr(Derivatives, name) for name in names}

    def timed(name: str) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            begin = time.process_time()
            try:
                return kept[name](*args)
            finally:
                made[name] = made.get(name, 0.0) + time.process_time() - begin

        return run

    for name in names:
        setattr(Derivatives, name, timed(name))
    try:
        yield made
    finally:
        for name in names:
            setattr(Derivatives, name, kept[name])


def first_call(unknowns: int, cache: str) -> float:
    """Return the time of the first call in a new process, without its imports."""
    code = f"import nlp; print(nlp.seconds(nlp.by_gradtape, {unknowns}))"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([os.path.dirname(__file__), *sys.path]))
    environment |= {"GRADTAPE_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    """Print a table."""
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[600, 6_000, 60_000])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    print(
        "| unknowns | iterations | CasADi | first call | first, from the disk cache | next calls | to CasADi | derivatives |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for unknowns in given.sizes:
        with tempfile.TemporaryDirectory() as cache:
            first, again = (first_call(unknowns, cache) for _ in range(2))
        found, (objective, iterations) = by_gradtape(unknowns), by_casadi(unknowns)
        assert found.success and abs(found.fun - objective) < 1e-8 * (1 + abs(objective))
        assert found.iterations in (iterations, iterations + 1)  # the start has a row of its own
        theirs, ours, inner = [], [], []
        for _ in range(given.repeats):
            theirs.append(seconds(by_casadi, unknowns))
            with parts() as made:
                ours.append(seconds(by_gradtape, unknowns))
            inner.append(sum(made.values()))
        casadi, us = statistics.median(theirs), statistics.median(ours)
        ratio = statistics.median([mine / other for mine, other in zip(ours, theirs, strict=True)])
        print(
            f"| {unknowns} | {iterations} | {casadi:.3f} s | {first:.2f} s | {again:.2f} s | {us:.3f} s "
            f"| {ratio:.2f} | {statistics.median(inner):.3f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
