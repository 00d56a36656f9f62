"""The first ten gradients of many programs, each in a new process with an empty cache, beside autograd, which compiles nothing, and NumPy.

python benchmarks/first_calls.py [--works rosen garch ...] [--rounds 3] [--autograd PYTHON]

The seconds are those of the processor, of all threads. autograd is measured where it can differentiate the program.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import environment

HERE = Path(__file__).resolve().parent
CALLS = 10
COLUMNS = ("work", "import", "first", "second", "tenth", "all ten", "autograd first", "ratio", "NumPy value")
NOTES = """\
Seconds of the processor for the gradients of a program in a new process with an empty cache: the import of the
library, the first, second and tenth call, and ten calls together; the first gradient by autograd, gradtape's first
in multiples of it, and the value by NumPy.
"""


def quick_work(name: str) -> Callable[[], tuple[Any, tuple[Any, ...], tuple[int, ...]]]:
    """Return what makes a work of `works.py` in its quick size."""

    def make() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
        import works

        found = works.work(name, works.QUICK_SIZES[name][-1])
        return found.function(), found.arguments, tuple(range(found.n_differentiated))

    return make


def loop_program(name: str) -> Callable[[], tuple[Any, tuple[Any, ...], tuple[int, ...]]]:
    """Return what makes a program of the tests, which have loops."""

    def make() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
        from tests.programs.loops.all import PROGRAMS

        program = PROGRAMS[name]
        return program.function, program.arguments(), program.active

    return make


def plain(name: str) -> Callable[[], tuple[Any, tuple[Any, ...], tuple[int, ...]]]:
    """Return what makes one of the functions below."""

    def make() -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
        import numpy

        text, arguments = TEXTS[name]
        namespace: dict[str, Any] = {"np": numpy, "__name__": name}
        with tempfile.NamedTemporaryFile(
            "w", suffix=".py", delete=False
        ) as file:  # gradtape reads the source
            file.write(text)
        exec(compile(text, file.name, "exec"), namespace)
        values = eval(arguments, {"np": numpy})
        return namespace["f"], values, tuple(range(len(values)))

    return make


def straight(count: int) -> str:
    """Return a function of `count` statements that are not alike."""
    rows = [
        "np.sin({0}) + {1}",
        "{0} * {1}",
        "np.tanh({0} - {1})",
        "np.exp(-{0} * {0}) * {1}",
        "{0} / (1.0 + {1} * {1})",
    ]
    lines = ["def f(x):", "    a0 = x", "    a1 = np.sin(x)"]
    for k in range(2, count):
        row = rows[(k * k + k // 7) % len(rows)]
        lines.append(f"    a{k} = " + row.format(f"a{k - 1}", f"a{max(0, k - 2 - k * k % 11)}"))
    return "\n".join([*lines, f"    return np.sum(a{count - 1} + a{count // 2})"])


TEXTS = {
    "sum of squares": ("def f(x):\n    return np.sum(np.sin(x) ** 2)", "(np.arange(5.0),)"),
    "logistic regression": (
        "X = np.random.default_rng(0).normal(size=(200, 5))\ns = np.sign(X[:, 0])\n"
        "def f(w):\n    return np.sum(np.log(1 + np.exp(-s * (X @ w)))) + 0.1 * np.sum(w ** 2)",
        "(np.zeros(5),)",
    ),
    "least squares": (
        "A = np.random.default_rng(0).normal(size=(50, 5))\ndef f(x):\n    return np.sum((A @ x - 1.0) ** 2)",
        "(np.ones(5),)",
    ),
    "large data": (
        "X = np.random.default_rng(0).normal(size=(100000, 252))\ndef f(w):\n    return np.mean((X @ w) ** 2)",
        "(np.ones(252),)",
    ),
    "Gaussian process": (
        "def f(p, x, y):\n    K = np.exp(p[0] - (x[:, None] - x) ** 2 * np.exp(p[1])) + 0.1 * np.eye(len(x))\n"
        "    return 0.5 * np.dot(y, np.linalg.solve(K, y)) + 0.5 * np.linalg.slogdet(K)[1]",
        "(np.zeros(2), np.linspace(0, 1, 30), np.sin(np.linspace(0, 9, 30)))",
    ),
    "small network": (
        "def f(W1, b1, W2, b2, x):\n    h = np.tanh(x @ W1 + b1)\n    z = h @ W2 + b2\n"
        "    return -np.mean(z[:, 0] - np.log(np.sum(np.exp(z), axis=1)))",
        "(np.full((4, 8), 0.1), np.zeros(8), np.full((8, 3), 0.2), np.zeros(3), np.ones((16, 4)))",
    ),
    "many sums": (
        "def f(x):\n    total = 0.0\n    for k in range(60):\n"
        "        total = total + np.sum(np.exp(-x * (k + 1)) * np.cumsum(x[k % 7:])[-1] ** (k % 3))\n    return total",
        "(np.linspace(0.0, 1.0, 1000),)",
    ),
    "pendulum of 10,000 steps": (
        "def f(a):\n    w = 0.0\n    for k in range(10000):\n        w = w - 0.001 * np.sin(a)\n        a = a + 0.001 * w\n"
        "    return a",
        "(0.3,)",
    ),
    "Lorenz by arrays": (
        "def slope(s):\n    return np.array([10.0 * (s[1] - s[0]), s[0] * (28.0 - s[2]) - s[1], s[0] * s[1] - 2.667 * s[2]])\n"
        "def f(s):\n    for k in range(200):\n        a = slope(s)\n        b = slope(s + 0.005 * a)\n        s = s + 0.01 * b\n"
        "    return np.sum(s)",
        "(np.array([1.0, 2.0, 3.0]),)",
    ),
    "200 statements": (straight(200), "(np.linspace(0.1, 1.0, 5),)"),
    "800 statements": (straight(800), "(np.linspace(0.1, 1.0, 5),)"),
    "800 statements of a number": (straight(800), "(0.3,)"),
}
QUICK = ("rosen", "bs", "lse", "gmm", "ba", "mlp", "pendulum", "lstm", "hmm", "newton")
LOOPS = (
    "adaptive_ode",
    "nbody",
    "lennard_jones",
    "cloth",
    "sir",
    "runge_kutta",
    "lorenz",
    "bouncing_ball",
    "american_put",
    "binomial_tree",
    "garch",
    "asian_monte_carlo",
    "drawdown",
    "crank_nicolson",
    "fdtd_1d",
    "fdtd_2d",
    "convolution",
    "histogram",
    "heat",
    "horner",
    "bisection",
    "romberg",
    "k_means",
    "natural_spline",
    "cholesky",
    "lu_pivoting",
    "thomas",
    "conjugate_gradients",
    "householder",
    "power_iteration",
    "matrix_exponential",
    "pair_energy",
    "soft_dtw",
    "viterbi",
    "kalman",
    "rnn",
    "page_rank",
)
WORKS = {
    **{name: plain(name) for name in TEXTS},
    **{f"work {name}": quick_work(name) for name in QUICK},
    **{f"loops {name}": loop_program(name) for name in LOOPS},
}


def total(function: Any, np: Any) -> Callable[..., Any]:
    """Return a function whose result is the sum of all numbers in the result of another."""

    def number(*args: Any) -> Any:
        result = function(*args)
        parts = result if isinstance(result, tuple) else (result,)
        return sum(np.sum(part) for part in parts)

    return number


def measure(work: str, tool: str) -> dict[str, Any]:
    """Measure one work by one tool, in this process."""
    import numpy

    function, args, active = WORKS[work]()
    derivative: Callable[..., Any]
    begin = time.process_time()
    imported = 0.0
    if tool == "gradtape":
        import gradtape as gt

        imported = time.process_time() - begin
        derivative = gt.value_and_grad(total(function, numpy), argnums=active)
    elif tool == "autograd":
        import autograd
        import autograd.numpy

        imported = time.process_time() - begin
        getattr(function, "func", function).__globals__["np"] = autograd.numpy
        derivative = autograd.value_and_grad(total(function, autograd.numpy), argnum=active)
    else:
        derivative = total(function, numpy)
    seconds, longest = [], 0.0
    for _ in range(CALLS):
        wall, begin = time.perf_counter(), time.process_time()
        derivative(*args)
        seconds.append(time.process_time() - begin)
        longest = max(longest, time.perf_counter() - wall)
    return {"import": imported, "seconds": seconds, "longest": longest}


def in_process(work: str, tool: str, python: str) -> dict[str, Any] | None:
    """Measure one work in a process of its own; None where it fails."""
    with tempfile.TemporaryDirectory() as empty:
        path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        own = environment(GRADTAPE_CACHE_DIR=empty, PYTHONPATH=path)
        command = [python, "-W", "ignore", __file__, "--child", work, tool]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=own, timeout=120)
        except subprocess.TimeoutExpired:
            return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        if tool != "autograd":
            print(f"{work}: {tool} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    measured: dict[str, Any] = json.loads(lines[-1])
    return measured


def median_of(runs: list[dict[str, Any] | None], take: Callable[[dict[str, Any]], float]) -> float | None:
    done = [take(run) for run in runs if run is not None]
    return statistics.median(done) if done else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--works", nargs="*", default=list(WORKS), help="words of the names")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--autograd", default=sys.executable, metavar="PYTHON", help="an interpreter with autograd"
    )
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(*options.child)))
        return
    import report

    rows = []
    for work in WORKS:
        if not any(word in work for word in options.works):
            continue
        runs: dict[str, list[dict[str, Any] | None]] = {"gradtape": [], "autograd": [], "numpy": []}
        for _ in range(options.rounds):
            for tool, taken in runs.items():
                taken.append(
                    in_process(work, tool, options.autograd if tool == "autograd" else sys.executable)
                )
        ours = runs["gradtape"]
        first = median_of(ours, lambda run: run["seconds"][0])
        other = median_of(runs["autograd"], lambda run: run["seconds"][0])
        numbers = [
            median_of(ours, lambda run: run["import"]),
            first,
            median_of(ours, lambda run: run["seconds"][1]),
            median_of(ours, lambda run: run["seconds"][-1]),
            median_of(ours, lambda run: sum(run["seconds"])),
            other,
            first / other if first and other else None,
            median_of(runs["numpy"], lambda run: run["seconds"][0]),
        ]
        rows.append([work, *("" if number is None else f"{number:.4f}" for number in numbers)])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    packages = ("numpy", "scipy", "numba", "autograd")
    print(f"{NOTES}\n{report.table(COLUMNS, 1, rows)}\n{report.machine(packages)}")


if __name__ == "__main__":
    main()
