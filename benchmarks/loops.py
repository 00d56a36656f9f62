"""Measures the gradients of loops written as code: first call, time against Numba's primal, memory, adjoints by hand in C.

    python benchmarks/loops.py [--works cholesky,thomas] [--all] [--plain] [--threads 2]

The programs are those of tests/programs/loops, at their large sizes. Each runs in a process of its own on one core, with an empty cache:
imports are not counted, and Numba compiles its primal after the first gradient. Times are those of the processor, so that other programs
do not count; of the clock with several threads. `memory` is what a gradient adds to the memory in use at its peak, in a second process
that finds the code on the disk, results included. `C` is value and gradient in adjoints.c.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from processes import environment

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.programs.loops.all import PROGRAMS  # noqa: E402 - from the project's folder
from tests.programs.loops.cases import LoopProgram  # noqa: E402

TEN = (
    "cholesky",
    "soft_dtw",
    "american_put",
    "gauss_seidel",
    "adaptive_ode",
    "nbody",
    "thomas",
    "garch",
    "pendulum",
    "lennard_jones",
)
"""Those of the design."""

PARALLEL = ("pair_energy", "smooth_rows", "asian_option")
"""Loops by `numba.prange`; Numba's primal is compiled with ``parallel=True``. Measured with `--threads` of more than one."""

FLAGS = ("-O3", "-march=native", "-ffast-math", "-fPIC", "-c")
SAMPLE_SECONDS = 0.5


def clock(threads: int) -> Callable[[], float]:
    """Return the clock: of one thread the processor's, so that other programs do not count."""
    return time.process_time if threads == 1 else time.perf_counter


def sample(function: Callable[[], Any], now: Callable[[], float]) -> float:
    """Return the median of the times of calls, each of as many calls as the clock wants."""
    started = now()
    function()
    calls = max(1, round(1e-3 / max(now() - started, 1e-9)))
    times: list[float] = []
    began = now()
    while len(times) < 3 or now() - began < SAMPLE_SECONDS:
        before = now()
        for _ in range(calls):
            function()
        times.append((now() - before) / calls)
    return statistics.median(times)


def memory(name: str) -> float:
    """Return a figure of the system's in MB, or not a number where there is none."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else []:
        if line.startswith(name):
            return float(line.split()[1]) / 1024.0
    return float("nan")


def scalar(function: Callable[..., Any], case: LoopProgram) -> Callable[..., Any]:
    """Return a program, or the sum of its results if it returns more than a number."""
    result = case.function(*case.arguments())
    if isinstance(result, tuple):
        return lambda *args: sum(function(*args))
    return function if np.ndim(result) == 0 else lambda *args: np.sum(function(*args))


def measure(name: str, plain: bool, threads: int = 1) -> dict[str, Any]:
    """Return the figures of one program, in this process."""
    import numba
    import numba.core.compiler

    import gradtape as gt

    case = PROGRAMS[name]
    arguments = case.arguments(case.large)
    gt.config.num_threads = threads
    primal = numba.njit(case.function, parallel=threads > 1)
    if threads > 1:
        numba.set_num_threads(threads)
    function = scalar(case.function if plain else primal, case)
    both = gt.value_and_grad(function, argnums=case.active)
    now = clock(threads)
    before = now()
    value, gradient = both(*arguments)
    out: dict[str, Any] = {"first_s": now() - before}
    out["gradient_s"] = sample(lambda: both(*arguments), now)
    expected = scalar(primal, case)(*arguments)
    out["primal_s"] = sample(lambda: primal(*arguments), now)
    out["error"] = abs(float(value) - float(expected)) / max(abs(float(expected)), 1e-300)
    if name in BY_HAND:
        run, gradients = by_hand(name, arguments)
        out["error"] = max(out["error"], abs(run() - float(expected)) / abs(float(expected)))
        for mine, theirs in zip(gradient, gradients, strict=True):
            out["error"] = max(out["error"], float(np.max(np.abs(mine - theirs)) / np.max(np.abs(theirs))))
        out["by_hand_s"] = sample(run, now)
    both(*case.arguments())  # for the process that measures the memory
    return out


def measure_memory(name: str, plain: bool) -> dict[str, Any]:
    """Return what a first gradient adds to the memory in use, in a process that finds its code on the disk."""
    import numba

    import gradtape as gt

    case = PROGRAMS[name]
    both = gt.value_and_grad(
        scalar(case.function if plain else numba.njit(case.function), case), argnums=case.active
    )
    arguments = case.arguments(case.large)
    both(*case.arguments())
    gc.collect()
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")
    used = memory("VmRSS")
    both(*arguments)
    return {"memory_mb": memory("VmHWM") - used}


BY_HAND: dict[str, Callable[[Any], int]] = {
    "cholesky": lambda arguments: 2 * arguments[0].size,
    "thomas": lambda arguments: 4 * arguments[0].size,
    "nbody": lambda arguments: arguments[0].size * (arguments[3] + 3),
}
"""The programs of adjoints.c, with the size of their scratch memory."""


def by_hand(name: str, arguments: tuple[Any, ...]) -> tuple[Callable[[], float], list[np.ndarray]]:
    """Return value and gradient in C, and the arrays into which it writes."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("a C compiler is needed for the adjoints by hand")
    folder = Path(tempfile.mkdtemp())
    compiled, library = folder / "adjoints.o", folder / "adjoints.so"
    subprocess.run([compiler, *FLAGS, str(HERE / "adjoints.c"), "-o", str(compiled)], check=True)
    # Linked without -ffast-math, which would have the library flush the subnormal numbers of the whole process.
    subprocess.run([compiler, "-shared", str(compiled), "-o", str(library), "-lm"], check=True)
    function = ctypes.CDLL(str(library))[name]
    function.restype = ctypes.c_double
    arrays = [np.ascontiguousarray(x) for x in arguments if isinstance(x, np.ndarray)]
    whole = [ctypes.c_int64(x) for x in arguments if isinstance(x, int)]
    gradients = [np.empty_like(x) for x in arrays]
    buffers = [*arrays, *gradients, np.empty(BY_HAND[name](arguments))]

    def run() -> float:
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in buffers]
        return float(function(ctypes.c_int64(len(arrays[0])), *whole, *pointers))

    return run, gradients


def run(name: str, plain: bool, timeout: float, threads: int = 1) -> dict[str, Any]:
    """Measure in processes of their own: times, then memory."""
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        for more in ([], ["--memory"]):
            command = [
                sys.executable,
                "-W",
                "ignore",
                __file__,
                "--one",
                name,
                *(["--plain"] if plain else []),
                *(["--threads", str(threads)] if threads > 1 else []),
            ]
            try:
                done = subprocess.run(
                    [*command, *more],
                    env=environment(GRADTAPE_CACHE_DIR=cache),
                    capture_output=True,
                    text=True,
                    timeout=timeout,
                )
            except subprocess.TimeoutExpired:
                return measured | {"remark": f"nothing in {timeout:.0f} s"}
            if done.returncode:
                causes = [
                    line for line in done.stderr.splitlines() if re.match(r"[\w.]*(Error|Warning)", line)
                ]
                return measured | {"remark": (causes[-1] if causes else f"signal {done.returncode}")[:160]}
            measured |= json.loads(done.stdout.splitlines()[-1])
    return measured


def row(name: str, measured: dict[str, Any]) -> str:
    def figure(key: str, factor: float, places: str) -> str:
        return format(measured[key] * factor, places) if key in measured else ""

    def ratio(over: str) -> str:
        return f"{measured['gradient_s'] / measured[over]:.2f}" if over in measured else ""

    remark = measured.get("remark", "")
    if measured.get("error", 0.0) > 1e-8:
        remark = f"off by {measured['error']:.0e}"
    cells = [
        f"{name} {PROGRAMS[name].large}",
        figure("first_s", 1.0, ".2f"),
        figure("primal_s", 1e3, ".4g"),
        figure("gradient_s", 1e3, ".4g"),
        ratio("primal_s"),
        figure("by_hand_s", 1e3, ".4g"),
        ratio("by_hand_s"),
        figure("memory_mb", 1.0, ".1f"),
        remark.replace("|", "/"),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--works", help="names, separated by commas")
    parser.add_argument("--all", action="store_true", help="all programs, not only the ten of the design")
    parser.add_argument("--plain", action="store_true", help="from plain Python instead of @njit")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for a program")
    parser.add_argument("--memory", action="store_true", help="with --one, instead of the times")
    parser.add_argument("--one", help="measure in this process")
    parser.add_argument("--threads", type=int, default=1, help="for loops by prange")
    options = parser.parse_args()
    if options.one:
        if options.threads == 1:
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        if options.memory:
            print(json.dumps(measure_memory(options.one, options.plain)))
        else:
            print(json.dumps(measure(options.one, options.plain, options.threads)))
        return
    usual = TEN + PARALLEL if options.threads == 1 else PARALLEL
    works = options.works.split(",") if options.works else PROGRAMS if options.all else usual
    print(
        "| program | first gradient s | Numba's primal ms | gradient ms | ratio | C ms | ratio to C | memory MB | remarks |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---|"
    )
    for name in works:
        print(row(name, run(name, options.plain, options.timeout, options.threads)), flush=True)


if __name__ == "__main__":
    main()
