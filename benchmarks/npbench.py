"""Runs NPBench's programs as they stand: value, gradient of the sum of their float results, first call.

    python benchmarks/npbench.py CHECKOUT [--preset S] [--works adi,lu] [--tools numpy,gradtape,jax]

CHECKOUT is a clone of https://github.com/spcl/npbench, which is read and never copied. Each program and tool runs in a process of its
own on one core, gradtape with an empty cache. Times are those of the processor, so that other programs do not count; imports are not
counted. JAX runs NPBench's own ports. The gradient is taken in all float and complex arrays among the arguments; other arguments are
passed as NPBench makes them. The results of a program that returns nothing are the arrays that it fills; for NumPy the arguments are
copied before each run. A derivative along one direction is compared with differences of NumPy's values and with JAX: "off" means that it
agrees with neither. Where JAX's port computes something else, such as the number of steps alone, a remark says so, and a star among the
slower programs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import linecache
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from processes import environment

TOOLS = ("numpy", "gradtape", "jax")
SAMPLE_SECONDS = 0.3

CLOCK: Final = time.process_time
"""Seconds of the processor, all threads of the process: on one core they are those of the clock, less those of other programs."""


@dataclass(frozen=True)
class Work:
    """A program of NPBench with its arguments."""

    info: dict[str, Any]
    arguments: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return list(self.info["input_args"])

    @property
    def active(self) -> list[str]:
        """The arguments that are differentiated."""
        return [
            name
            for name in self.names
            if isinstance(self.arguments[name], np.ndarray) and self._continuous(name)
        ]

    @property
    def written(self) -> list[str]:
        """The arrays that the program may write to."""
        return [name for name in self.names if isinstance(self.arguments[name], np.ndarray)]

    def function(self, port: str) -> Callable[..., Any]:
        info = self.info
        place = f"npbench.benchmarks.{info['relative_path'].replace('/', '.')}.{info['module_name']}_{port}"
        found: Callable[..., Any] = getattr(importlib.import_module(place), info["func_name"])
        return found

    def _continuous(self, name: str) -> bool:
        return bool(self.arguments[name].dtype.kind in "fc")


def load(checkout: Path, name: str, preset: str) -> Work:
    """Return a program with the arguments of a preset."""
    sys.path[0] = str(checkout)  # instead of this folder, whose npbench.py hides the package
    info = json.loads((checkout / "bench_info" / f"{name}.json").read_text())["benchmark"]
    data = dict(info["parameters"][preset])
    if info.get("init"):
        place = f"npbench.benchmarks.{info['relative_path'].replace('/', '.')}.{info['module_name']}"
        initialise = getattr(importlib.import_module(place), info["init"]["func_name"])
        made = initialise(*[data[key] for key in info["init"]["input_args"]])
        keys = info["init"]["output_args"]
        data.update(zip(keys, made if len(keys) > 1 else (made,), strict=True))
    return Work(info, data)


def numbers(result: Any) -> Iterator[Any]:
    """Yield the arrays and numbers of a program's result, of complex ones the real parts."""
    if isinstance(result, tuple | list):
        for part in result:
            yield from numbers(part)
    elif result is not None:
        yield result.real if getattr(result, "dtype", np.dtype(float)).kind == "c" else result


def objective(work: Work) -> Callable[..., Any]:
    """Return the sum of a program's results, or of the arrays that it fills, as a function of its arguments.

    It is written as one would write it for the program, from what the program returns.
    """
    kernel = work.function("numpy")
    result = kernel(*copies(work))
    outputs = work.info["output_args"] or work.written
    returned = list(leaves("r", result))
    filled = [part for name in outputs if name in work.names for part in leaves(name, work.arguments[name])]
    best = [part for part in returned if part[1] in "fc"] or [part for part in filled if part[1] in "fc"]
    best = best or returned or filled
    parts = [f"np.sum({name}{'.real' if kind == 'c' else ''})" for name, kind in best]
    names = ", ".join(work.names)
    text = f"def total({names}):\n    r = kernel({names})\n    return {' + '.join(parts)}\n"
    namespace: dict[str, Any] = {"np": np, "kernel": kernel, "__name__": "objective"}
    linecache.cache["objective.py"] = (len(text), None, text.splitlines(keepends=True), "objective.py")
    exec(compile(text, "objective.py", "exec"), namespace)
    total: Callable[..., Any] = namespace["total"]
    return total


def leaves(name: str, result: Any) -> Iterator[tuple[str, str]]:
    """Yield an expression for each array or number in a program's result, and the kind of its dtype."""
    if isinstance(result, tuple | list):
        for k, part in enumerate(result):
            yield from leaves(f"{name}[{k}]", part)
    elif result is not None:
        yield name, np.asarray(result).dtype.kind


def copies(work: Work) -> list[Any]:
    """Return the arguments, arrays copied: programs write to them."""
    return [np.copy(x) if isinstance(x, np.ndarray) else x for x in map(work.arguments.get, work.names)]


def sample(function: Callable[[], Any]) -> float:
    """Return the median of the times of calls."""
    times: list[float] = []
    started = CLOCK()
    while len(times) < 3 or CLOCK() - started < SAMPLE_SECONDS:
        before = CLOCK()
        function()
        times.append(CLOCK() - before)
        if len(times) >= 2 and times[-1] > 10.0:
            break
    return statistics.median(times)


def directions(work: Work) -> list[np.ndarray]:
    """Return a direction for each active argument, in proportion to its entries."""
    random = np.random.default_rng(0)
    return [
        work.arguments[name] * random.uniform(0.5, 1.0, work.arguments[name].shape) for name in work.active
    ]


def along(gradient: Any, work: Work) -> float:
    """Return the derivative along the direction; complex gradients are conjugate cotangents, as JAX's."""
    return float(sum(np.sum(np.asarray(g) * d).real for g, d in zip(gradient, directions(work), strict=True)))


def by_numpy(work: Work) -> dict[str, Any]:
    total = objective(work)
    out: dict[str, Any] = {"value": float(total(*copies(work)))}
    out["value_s"] = sample(lambda: total(*copies(work)))
    if work.active and out["value_s"] < 5.0:
        moves = dict(zip(work.active, directions(work), strict=True))

        def moved(h: float) -> float:
            at = zip(work.names, copies(work), strict=True)
            return float(total(*[x + h * moves[name] if name in moves else x for name, x in at]))

        step = 1e-5 if all(work.arguments[n].dtype.itemsize >= 8 for n in work.active) else 1e-2
        with contextlib.suppress(np.linalg.LinAlgError):  # a direction that leaves the definite matrices
            out["slope"] = (moved(step) - moved(-step)) / (2 * step)
    return out


def by_gradtape(work: Work) -> dict[str, Any]:
    import gradtape as gt

    total = objective(work)
    arguments = [work.arguments[name] for name in work.names]
    places = tuple([work.names.index(name) for name in work.active])
    out: dict[str, Any] = {}
    if places:
        both = gt.value_and_grad(total, argnums=places)
        before = CLOCK()
        _, gradient = both(*arguments)
        out["first_gradient_s"] = CLOCK() - before
        out["slope"] = along([np.conj(part) for part in gradient], work)
        out["gradient_s"] = sample(lambda: both(*arguments))
        report(out)
    value = gt.jit(total)
    before = CLOCK()
    out["value"] = float(value(*arguments))
    out["first_value_s"] = CLOCK() - before
    out["value_s"] = sample(lambda: value(*arguments))
    return out


def by_jax(work: Work) -> dict[str, Any]:
    import jax

    jax.config.update("jax_enable_x64", True)
    kernel, names, arguments = work.function("jax"), work.names, work.arguments
    varied = work.active or work.written
    fixed = {
        name: jax.numpy.asarray(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }

    def total(*active: Any) -> Any:
        given = {name: fixed[name] for name in names} | dict(zip(varied, active, strict=True))
        return sum([part.sum() for part in numbers(kernel(*given.values()))], 0.0)

    active = [jax.numpy.asarray(arguments[name]) for name in varied]
    out: dict[str, Any] = {}
    value = jax.jit(total)
    before = CLOCK()
    out["value"] = float(value(*active))
    out["first_value_s"] = CLOCK() - before
    out["value_s"] = sample(lambda: jax.block_until_ready(value(*active)))
    report(out)
    if work.active:
        both = jax.jit(jax.value_and_grad(total, argnums=tuple(range(len(active)))))
        before = CLOCK()
        _, gradient = jax.block_until_ready(both(*active))
        out["first_gradient_s"] = CLOCK() - before
        out["slope"] = along(gradient, work)
        out["gradient_s"] = sample(lambda: jax.block_until_ready(both(*active)))
    return out


def report(measured: dict[str, Any]) -> None:
    """Print what is measured so far: the last such line counts."""
    print("measured " + json.dumps(measured), flush=True)


def run(checkout: Path, name: str, tool: str, preset: str, timeout: float) -> dict[str, Any]:
    """Measure in a process of its own; `error` says why something is missing."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        __file__,
        str(checkout),
        "--one",
        name,
        tool,
        "--preset",
        preset,
    ]
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as cache:
        try:
            done = subprocess.run(
                command,
                env=environment(**threads, GRADTAPE_CACHE_DIR=cache),
                capture_output=True,
                text=True,
                timeout=timeout,
            )
            lines, error = done.stdout.splitlines(), (done.stderr.strip().splitlines() or [""])
        except subprocess.TimeoutExpired as late:
            lines, error = (late.stdout or b"").decode().splitlines(), [f"nothing in {timeout:.0f} s"]
            done = None
    lines = [line for line in lines if line.startswith("measured ")]
    out: dict[str, Any] = json.loads(lines[-1].removeprefix("measured ")) if lines else {}
    if done is None or done.returncode != 0:
        causes = [line for line in error if "Error" in line and not line.startswith(" ")] or error
        out["error"] = (causes[-1] if causes else f"signal {done.returncode}" if done else "")[:160]
    return out


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3g}"


def near(found: float | None, expected: float | None, tolerance: float, scale: float = 0.0) -> str:
    """Return nothing where two numbers agree, their relative difference where not, and a dash if one is missing."""
    if found is None:
        return ""
    if expected is None:
        return "-"
    difference = abs(found - expected) / max(abs(expected), 1e-9 * abs(scale), 1e-12)
    return "" if difference < tolerance else f"{difference:.0e}"


def is_another(row: dict[str, dict[str, Any]], what: str, tolerance: float) -> bool:
    """Return whether JAX's port computes something else than NumPy's program, with which gradtape agrees."""
    expected, ours, theirs = (row.get(tool, {}).get(what) for tool in TOOLS)
    if None in (expected, ours, theirs):
        return False
    scale = row["numpy"].get("value", 0.0)
    return not near(ours, expected, tolerance, scale) and bool(near(theirs, expected, 10 * tolerance, scale))


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    head = [
        "program",
        "NumPy value ms",
        "value ms",
        "JAX value ms",
        "gradient ms",
        "JAX gradient ms",
        "first value s",
        "first gradient s",
        "JAX first gradient s",
        "remarks",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 2) + "---|"]
    for name, row in results.items():
        numpy_, ours, jax = (row.get(tool, {}) for tool in TOOLS)
        remarks = [f"{tool}: {row[tool]['error']}" for tool in row if "error" in row[tool]]
        for what, tolerance in (("value", 1e-6), ("slope", 1e-4)):
            far = [
                near(ours.get(what), other.get(what), tolerance, ours.get("value", 0.0))
                for other in (numpy_, jax)
            ]
            remarks += [f"{what} off by {far[0]}"] if all(far) else []
            if is_another(row, what, tolerance):
                remarks.append(f"JAX's port has another {what}")
        seconds = [ours.get("first_value_s"), ours.get("first_gradient_s"), jax.get("first_gradient_s")]
        cells = [
            name,
            *map(milliseconds, (numpy_.get("value_s"), ours.get("value_s"), jax.get("value_s"))),
            *map(milliseconds, (ours.get("gradient_s"), jax.get("gradient_s"))),
            *["" if s is None else f"{s:.2f}" for s in seconds],
            "; ".join(remarks).replace("|", "/"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def means(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the geometric means of the ratios, over the programs that both tools have."""
    lines = []
    for what, other in (("value", "numpy"), ("value", "jax"), ("gradient", "jax")):
        pairs = [
            (row.get(other, {}).get(f"{what}_s"), row.get("gradtape", {}).get(f"{what}_s"))
            for row in results.values()
        ]
        ratios = [theirs / ours for theirs, ours in pairs if theirs and ours]
        if ratios:
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            slower = sum(ratio < 0.95 for ratio in ratios)
            names = [
                name + ("*" if other == "jax" and is_another(row, "slope", 1e-4) else "")
                for (name, row), (theirs, ours) in zip(results.items(), pairs, strict=True)
                if theirs and ours and theirs / ours < 0.95
            ]
            lines.append(
                f"- {what}: {mean:.2f} times as fast as {other} in the geometric mean of {len(ratios)} programs; slower on {slower}"
                + (f" ({', '.join(names)})" if names else "")
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=inspect.getdoc(sys.modules[__name__]), formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--preset", default="S", help="S, M, L or paper")
    parser.add_argument("--works", help="names, separated by commas")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for a program and a tool")
    parser.add_argument("--out", type=Path, help="a file for the table")
    parser.add_argument("--keep", type=Path, help="a file of results, to which those of this run are added")
    parser.add_argument("--one", nargs=2, metavar=("WORK", "TOOL"), help="measure in this process")
    options = parser.parse_args()
    if options.one:
        name, tool = options.one
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        report(
            {"numpy": by_numpy, "gradtape": by_gradtape, "jax": by_jax}[tool](
                load(options.checkout, name, options.preset)
            )
        )
        return
    works = (
        options.works.split(",")
        if options.works
        else sorted(p.stem for p in (options.checkout / "bench_info").glob("*.json"))
    )
    results: dict[str, dict[str, dict[str, Any]]] = {}
    if options.keep and options.keep.exists():
        results = json.loads(options.keep.read_text())
    for name in works:
        results.setdefault(name, {})
        for tool in options.tools.split(","):
            results[name][tool] = run(options.checkout, name, tool, options.preset, options.timeout)
            print(name, tool, json.dumps(results[name][tool]), file=sys.stderr, flush=True)
        if options.keep:
            options.keep.write_text(json.dumps(results))
    results = {name: results[name] for name in works}
    text = f"NPBench, preset {options.preset}\n\n{table(results)}\n\n{means(results)}\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
