"""Gradients of loops within memory budgets, beside those without: ``python benchmarks/memory.py [names]``.

For each program: the increase of the resident memory by the first call, with machine code from the disk cache, and the shortest
processor's time of the calls after it, without a budget and with a quarter and a sixteenth of that memory. Each is measured by a
process of its own. ``explain`` says what was chosen.

``python benchmarks/memory.py --long 1e5`` runs so many steps of a diffusion of 1e6 cells within 4 GB once, forward and back (ten minutes).
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from processes import environment

import gradtape as gt

STEPS: Final = 2000
ROUNDS: Final = 4


def neighbours(u: Any) -> Any:
    """Return the sum of the values on both sides, with periodic borders."""
    return np.roll(u, 1, 0) + np.roll(u, -1, 0)


def heat(u: Any) -> Any:
    """Heat equation with a conductivity that depends on the temperature."""
    return u + 0.2 * np.exp(-u) * (neighbours(u) - 2 * u)


def advection(u: Any) -> Any:
    """Burgers' equation, upwind."""
    return u - 0.1 * u * (u - np.roll(u, 1)) + 0.01 * np.tanh(u)


def gray_scott(state: Any) -> Any:
    """Reaction and diffusion of two substances on a square."""
    u, v = state
    reaction = u * v * v
    du = neighbours(u) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u
    dv = neighbours(v) + np.roll(v, 1, 1) + np.roll(v, -1, 1) - 4 * v
    return u + 0.16 * du - reaction + 0.04 * (1 - u), v + 0.08 * dv + reaction - 0.1 * v


def jacobi_2d(u: Any) -> Any:
    """A smoothing sweep over a square, with a source that is not linear."""
    return 0.2 * (u + neighbours(u) + np.roll(u, 1, 1) + np.roll(u, -1, 1)) + 0.01 * np.sin(u)


def wave(state: Any) -> Any:
    """The sine-Gordon equation."""
    u, v = state
    v = v + 0.1 * (neighbours(u) - 2 * u - np.sin(u))
    return u + 0.1 * v, v


def implicit(u: Any) -> Any:
    """A step of a reaction by the explicit, and of diffusion by the implicit Euler method: a product with the inverse."""
    size = u.shape[0]
    inverse = np.linalg.inv(1.2 * np.eye(size) - 0.1 * (np.eye(size, k=1) + np.eye(size, k=-1)))
    return inverse @ (u + 0.1 * u * (1 - u))


def rnn(h: Any) -> Any:
    """A recurrent layer of a batch."""
    weights = np.cos(np.arange(32.0 * 32).reshape(32, 32)) / 8
    return np.tanh(h @ weights + 0.1)


def nbody(state: Any) -> Any:
    """Bodies that attract each other, by the semi-implicit Euler method."""
    x, v = state
    d = x[None] - x[:, None]
    r2 = np.sum(d * d, axis=-1) + 0.01
    v = v + 1e-3 * np.sum(d * (r2**-1.5)[..., None], axis=1)
    return x + 1e-3 * v, v


def pendulum(state: Any) -> Any:
    """Coupled pendulums."""
    angle, speed = state
    speed = speed - 0.01 * (np.sin(angle) + 0.1 * (2 * angle - neighbours(angle)))
    return angle + 0.01 * speed, speed


LINE: Final = np.linspace(0.1, 0.9, 6000)
SQUARE: Final = LINE[:4900].reshape(70, 70)
PROGRAMS: Final[dict[str, tuple[Callable[[Any], Any], Any]]] = {
    "heat": (heat, LINE),
    "advection": (advection, LINE),
    "gray_scott": (gray_scott, (SQUARE, SQUARE.T.copy())),
    "jacobi_2d": (jacobi_2d, SQUARE),
    "wave": (wave, (LINE, 0 * LINE)),
    "implicit": (implicit, LINE[:1500].reshape(100, 15).copy()),
    "rnn": (rnn, LINE[:3200].reshape(100, 32).copy()),
    "nbody": (nbody, (np.random.default_rng(0).standard_normal((40, 3)), np.zeros((40, 3)))),
    "pendulum": (pendulum, (LINE, 0 * LINE)),
}


def loss(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the sum of squares after all steps."""

    def run(state: Any) -> Any:
        end = gt.fori_loop(0, STEPS, lambda _, state: step(state), state)
        return sum(np.sum(part * part) for part in (end if isinstance(end, tuple) else (end,)))

    return run


def report(name: str, memory: str) -> None:
    """Print the increase of the resident memory in MB, the time in ms, the sum of the gradient, and the plan of one program."""
    step, state = PROGRAMS[name]
    gt.grad(loss(np.tanh))(LINE[:3])  # what any first call loads
    gt.config.memory = memory
    gradient = gt.grad(loss(step))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = gradient(state)
    increase = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        gradient(state)
        times.append(1e3 * (time.process_time() - begin))
    total = sum(float(np.sum(part)) for part in (result if isinstance(result, tuple) else (result,)))
    plans = re.findall("a reversed loop of (.*)", str(gt.inspect.explain(gradient)))
    print(f"{increase:.1f}|{min(times):.1f}|{total:.12g}|{plans[0] if plans else ''}")


def measured(name: str, memory: str, own: dict[str, str]) -> list[str]:
    """Return what `report` prints in a process that finds the machine code on disk."""
    command = [sys.executable, __file__, "--one", name, memory]
    for _ in range(2):
        done = subprocess.run(command, check=True, env=own, capture_output=True, text=True)
    return done.stdout.strip().split("|")


def long_loop(steps: int, cells: int = 1_000_000) -> None:
    """Print the time and memory of the gradient of one long loop within 4 GB, and its plan."""

    def run(u: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            return u + 0.2 * (neighbours(u) - 2 * u) * (1 - 0.1 * u)

        return np.sum(gt.fori_loop(0, steps, step, u) ** 2) / cells

    gradient = gt.value_and_grad(run, memory="4 GB")
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    gradient(np.cos(np.linspace(0, 2000, cells)) ** 2)
    seconds = time.process_time() - begin
    increase = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    (plan,) = re.findall("a reversed loop of (.*)", str(gt.inspect.explain(gradient)))
    print(
        f"{seconds:.0f} s of the processor, {1e9 * seconds / steps / cells:.1f} ns for a cell and step, {increase:.0f} MB",
        plan,
    )


def main() -> None:
    """Print a table."""
    if sys.argv[1:2] == ["--long"]:
        long_loop(int(float(sys.argv[2])))
        return
    if sys.argv[1:2] == ["--one"]:
        report(*sys.argv[2:])
        return
    print(f"{'program':10} {'budget':>9} {'MB':>7} {'ms':>8} {'times':>6}  plan")
    with tempfile.TemporaryDirectory() as folder:
        own = environment(GRADTAPE_CACHE_DIR=folder, GRADTAPE_PROGRESS="0")
        for name in sys.argv[1:] or PROGRAMS:
            whole, time_without, expected, _ = measured(name, "1000 GB", own)
            print(f"{name:10} {'':>9} {whole:>7} {time_without:>8} {1:6.2f}", flush=True)
            for part in (4, 16):
                budget = f"{float(whole) / part:.2f} MB"
                memory, ms, total, plan = measured(name, budget, own)
                np.testing.assert_allclose(float(total), float(expected), rtol=1e-6)
                ratio = float(ms) / float(time_without)
                print(f"{'':10} {budget:>9} {memory:>7} {ms:>8} {ratio:6.2f}  {plan}", flush=True)


if __name__ == "__main__":
    main()
