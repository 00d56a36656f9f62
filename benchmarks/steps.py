"""Training steps in a Python loop: a tape against compiled functions and against other eager tools.

    python benchmarks/steps.py
    python benchmarks/steps.py --operations

`mlp`: a 784-256-10 tanh network, softmax cross-entropy, batch 128, gradient step on all weights. `small`: 20 operations on arrays of 10
elements, and their gradient. One process for each tool, one thread, medians; prints a Markdown table.

With `--operations`: what one operation on a tape takes until the next line of Python runs, the first time and again under later tapes of
the same line, beside the same operation of PyTorch, which computes it, and a call of an empty Python function. All in one process,
alternately, minima.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from processes import environment
from report import machine, table
from run import THREADS

RATE = 0.01
rng = np.random.default_rng(0)
WEIGHTS = [rng.normal(size=(784, 256)) * 0.05, np.zeros(256), rng.normal(size=(256, 10)) * 0.05, np.zeros(10)]
BATCH = rng.normal(size=(128, 784))
LABELS = np.eye(10)[rng.integers(0, 10, 128)]
SMALL = rng.normal(size=10), rng.normal(size=10)


def mlp(weights: Any, x: Any, labels: Any, np: Any) -> Any:
    w1, b1, w2, b2 = weights
    scores = np.tanh(x @ w1 + b1) @ w2 + b2
    return np.sum(np.log(np.sum(np.exp(scores), 1)) - np.sum(scores * labels, 1)) / len(x)


def small(x: Any, y: Any, np: Any) -> Any:
    for _ in range(5):
        x = np.sin(x) * y + x * 0.5
    return np.sum(x)


def gradtape_tape(name: str) -> Callable[[], Any]:
    import gradtape as gt

    weights = [gt.constant(w) for w in WEIGHTS]
    batch, labels = gt.constant(BATCH), gt.constant(LABELS)
    point = [gt.constant(v) for v in SMALL]

    def train() -> Any:
        nonlocal weights
        with gt.GradientTape() as tape:
            tape.watch(weights)
            loss = mlp(weights, batch, labels, np)
        weights = [w - RATE * g for w, g in zip(weights, tape.gradient(loss, weights), strict=True)]
        return float(loss)

    def differentiate() -> Any:
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(point[0]))
            value = small(x, point[1], np)
        return tape.gradient(value, x).numpy()

    return train if name == "mlp" else differentiate


def gradtape_jit(name: str) -> Callable[[], Any]:
    import gradtape as gt

    weights = list(WEIGHTS)
    step = gt.jit(
        lambda weights, x, labels: [
            w - RATE * g
            for w, g in zip(weights, gt.grad(lambda w: mlp(w, x, labels, np))(weights), strict=True)
        ]
    )

    def train() -> Any:
        nonlocal weights
        weights = step(weights, BATCH, LABELS)

    gradient = gt.grad(lambda x, y: small(x, y, np))
    return train if name == "mlp" else lambda: gradient(*SMALL)


def torch(name: str) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    weights = [torch.tensor(w, requires_grad=True) for w in WEIGHTS]
    batch, labels = torch.tensor(BATCH), torch.tensor(LABELS)
    point = [torch.tensor(v) for v in SMALL]

    def train() -> Any:
        loss = mlp(weights, batch, labels, torch)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for w, g in zip(weights, gradients, strict=True):
                w -= RATE * g
        return float(loss)

    def differentiate() -> Any:
        x = point[0].clone().requires_grad_()
        return torch.autograd.grad(small(x, point[1], torch), x)[0].numpy()

    return train if name == "mlp" else differentiate


def autograd(name: str) -> Callable[[], Any]:
    import autograd.numpy
    from autograd import grad

    weights = list(WEIGHTS)
    gradient = grad(lambda weights: mlp(weights, BATCH, LABELS, autograd.numpy))

    def train() -> Any:
        nonlocal weights
        weights = [w - RATE * g for w, g in zip(weights, gradient(weights), strict=True)]

    slope = grad(lambda x: small(x, SMALL[1], autograd.numpy))
    return train if name == "mlp" else lambda: slope(SMALL[0])


def tensorflow(name: str) -> Callable[[], Any]:
    import tensorflow as tf

    names: Any = type(
        "names", (), {f: getattr(tf, f, None) or getattr(tf.math, f) for f in ("tanh", "exp", "sin")}
    )
    names.log, names.sum = tf.math.log, tf.reduce_sum
    weights = [tf.Variable(w) for w in WEIGHTS]
    batch, labels = tf.constant(BATCH), tf.constant(LABELS)
    point = [tf.constant(v) for v in SMALL]

    def train() -> Any:
        with tf.GradientTape() as tape:
            loss = mlp(weights, batch, labels, names)
        for w, g in zip(weights, tape.gradient(loss, weights), strict=True):
            w.assign_sub(RATE * g)
        return float(loss)

    def differentiate() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(point[0])
            value = small(point[0], point[1], names)
        return tape.gradient(value, point[0]).numpy()

    return train if name == "mlp" else differentiate


TOOLS = {
    "gradtape jit": (gradtape_jit, "gradtape"),
    "gradtape tape": (gradtape_tape, "gradtape"),
    "torch eager": (torch, "torch"),
    "autograd": (autograd, "autograd"),
    "tensorflow eager": (tensorflow, "tensorflow"),
}


def measure(tool: str, name: str, seconds: float) -> dict[str, float]:
    step = TOOLS[tool][0](name)
    for _ in range(5):
        step()
    times = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 5:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return {"us": statistics.median(times) * 1e6}


OPERATIONS = {
    "x * y": "x * y",
    "x + 1.5": "x + 1.5",
    "x > y": "x > y",
    "x + m": "x + m",
    "np.sin(x)": "torch.sin(x)",
    "np.maximum(x, y)": "torch.maximum(x, y)",
    "np.sum(x)": "torch.sum(x)",
    "x.sum()": "x.sum()",
    "np.mean(m, axis=1)": "torch.mean(m, dim=1)",
    "np.where(c, x, y)": "torch.where(c, x, y)",
    "x[3]": "x[3]",
    "x[1:]": "x[1:]",
    "x.reshape(2, 5)": "x.reshape(2, 5)",
    "m.T": "m.T",
    "m @ x": "m @ x",
    "np.concatenate((x, y))": "torch.cat((x, y))",
}
"""Operations on vectors x and y, a condition c and a matrix m, in NumPy's words and in PyTorch's."""


def many(expression: str, **names: Any) -> Callable[[int], Any]:
    """Return a function that evaluates an expression a number of times and keeps what comes out, as a tape does."""
    text = (
        f"def run(n, {', '.join(names)}):\n    kept = []\n    for _ in range(n): kept.append({expression})\n"
    )
    scope: dict[str, Any] = {}
    exec(text, scope)
    return lambda n: scope["run"](n, **names)


def best_of(functions: dict[str, Callable[[int], Any]], rounds: int = 60, n: int = 100) -> dict[str, float]:
    """Return the least microseconds that each takes for one evaluation, measured alternately."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function(n)
            best[name] = min(best[name], (time.perf_counter() - start) / n * 1e6)
    return best


def best_read(gt: Any, run: Callable[[int], Any], watched: list[Any], rounds: int, n: int = 100) -> float:
    """Return the least microseconds of one evaluation under a tape whose line has seen the same evaluations before."""
    best = float("inf")
    for _ in range(rounds):
        with gt.GradientTape() as tape:
            tape.watch(watched)
            target = np.sum(watched[0])
            start = time.perf_counter()
            kept = run(n)
            best = min(best, (time.perf_counter() - start) / n * 1e6)
        del kept
        tape.gradient(target, watched[0])
    return best


def operations(rounds: int) -> str:
    """Return the table of single operations."""
    import gradtape as gt

    arrays = {"x": SMALL[0], "y": SMALL[1], "m": rng.normal(size=(4, 10)), "c": SMALL[0] > 0}
    others = None
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
        others = {name: torch.tensor(array) for name, array in arrays.items()}
        for name in "xym":
            others[name].requires_grad_()
    lines = []
    for ours, theirs in OPERATIONS.items():
        with gt.GradientTape() as tape:
            watched = {name: gt.constant(array) for name, array in arrays.items()}
            tape.watch([watched[name] for name in "xym"])
            functions = {"call": many("f()", f=lambda: None), "tape": many(ours, np=np, **watched)}
            if others is not None:
                functions["torch"] = many(theirs, torch=torch, **others)
            found = best_of(functions, rounds)
        watched = {name: gt.constant(array) for name, array in arrays.items()}
        run = many(ours, np=np, **watched)
        found["read"] = best_read(gt, run, [watched[name] for name in "xym"], rounds)
        cells = [found.get(name) for name in ("tape", "read", "torch", "call")]
        lines.append([f"`{ours}`", *["" if cell is None else f"{cell:.2f}" for cell in cells]])
    return table(("operation", "recorded us", "again us", "by PyTorch us", "empty call us"), 1, lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each tool and work (2)")
    parser.add_argument("--operations", action="store_true", help="single operations instead of steps")
    parser.add_argument("--rounds", type=int, default=60, help="rounds for each operation (60)")
    parser.add_argument("--one", nargs=2, metavar=("TOOL", "WORK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, options.seconds)))
        return
    if options.operations:
        print(operations(options.rounds))
        print(machine(("numpy", "gradtape", "torch")))
        return
    lines = []
    for tool, (_, package) in TOOLS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{tool}: not measured, {package} is not installed", file=sys.stderr)
            continue
        cells = [tool]
        for name in ("mlp", "small"):
            command = [sys.executable, __file__, "--seconds", str(options.seconds), "--one", tool, name]
            done = subprocess.run(command, capture_output=True, text=True, env=environment(**THREADS))
            if done.returncode:
                sys.exit(f"{tool} failed on {name}:\n{done.stderr}")
            cells.append(f"{json.loads(done.stdout)['us']:.4g}")
        lines.append(cells)
    print(table(("step by", "mlp us", "small us"), 1, lines))
    print(machine(("numpy", "gradtape", "torch", "autograd", "tensorflow")))


if __name__ == "__main__":
    main()
