"""Measures one tool on one work in this process, on one thread, and prints the result as a line of JSON.

Either times, or the memory, whose measurement wants a process that has compiled before.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

SHORTEST_SAMPLE = 200e-6
FEWEST_SAMPLES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool")
    parser.add_argument("work")
    parser.add_argument("size")
    parser.add_argument("--wording", help="one of the work's own")
    parser.add_argument("--modules", required=True, help="what to import, and to time, before all else")
    parser.add_argument("--seconds", type=float, required=True, help="spent on each of value and gradient")
    parser.add_argument("--memory", action="store_true", help="instead of the times")
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    started = time.perf_counter()
    for module in options.modules.split(","):
        importlib.import_module(module)
    import_seconds = time.perf_counter() - started
    # Importing `tools` brings NumPy, so it waits until the tool is timed.
    import tools
    import works

    tool = tools.TOOLS[options.tool]
    job = works.work(options.work, options.size, options.wording)
    if options.memory:
        print(json.dumps(memory(tool, works.small(job), job)))
    else:
        print(json.dumps({"import_s": import_seconds} | times(tool, job, options.seconds)))


def times(tool: Any, job: Any, seconds: float) -> dict[str, Any]:
    """Times, page faults and agreement."""
    calls = tool.prepare(job)
    first_seconds, result = timed(calls.gradient, calls.arguments, calls.finish, 1)
    value_alone = calls.finish(calls.value(*calls.arguments))
    value = sample(calls.value, calls.arguments, calls.finish, seconds)
    gradient = sample(calls.gradient, calls.arguments, calls.finish, seconds)
    return {
        "first_s": first_seconds,
        "value_s": value["median_s"],
        "gradient_s": gradient["median_s"],
        "faults": gradient["faults"],
        "cpu_share": min(value["cpu_share"], gradient["cpu_share"]),
        "error": _largest_error(value_alone, calls.read(result), job),
    }


def memory(tool: Any, small: Any, job: Any) -> dict[str, float]:
    """What a first gradient takes in a process that has computed one of smaller arrays and holds the arguments."""
    calls = tool.prepare(small)
    calls.finish(calls.gradient(*calls.arguments))
    calls = tool.prepare(job)
    gc.collect()
    before = forget_peak()
    seconds, result = timed(calls.gradient, calls.arguments, calls.finish, 1)
    peak = memory_of("VmHWM:")
    results = sum(array.nbytes for array in calls.read(result))
    return {"later_first_s": seconds, "peak_mb": max(peak - before - results, 0.0) / 1e6}


def timed(
    function: Callable[..., Any], arguments: tuple[Any, ...], finish: Callable[[Any], Any], times: int
) -> tuple[float, Any]:
    """Seconds for `times` calls in a row, and the last result."""
    started = time.perf_counter()
    for _ in repeat(None, times - 1):
        function(*arguments)
    result = finish(function(*arguments))
    return time.perf_counter() - started, result


def sample(
    function: Callable[..., Any], arguments: tuple[Any, ...], finish: Callable[[Any], Any], seconds: float
) -> dict[str, float]:
    """The median of samples, each of as many calls as make it long enough for the clock."""
    for _ in repeat(None, 2):
        warm, _ = timed(function, arguments, finish, 1)
    calls = max(1, round(SHORTEST_SAMPLE / warm))
    samples: list[float] = []
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    cpu, wall = time.process_time(), time.perf_counter()
    while len(samples) < FEWEST_SAMPLES or time.perf_counter() - wall < seconds:
        samples.append(timed(function, arguments, finish, calls)[0] / calls)
    spent = time.perf_counter() - wall
    return {
        "median_s": statistics.median(samples),
        "faults": (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / (calls * len(samples)),
        "cpu_share": (time.process_time() - cpu) / spent,
    }


def forget_peak() -> float:
    """The memory in use, in bytes; where the system can do that, the peak starts from it anew."""
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")
    return memory_of("VmRSS:")


def memory_of(name: str) -> float:
    """Bytes. Elsewhere than on Linux there is the peak alone."""
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return 1024.0 * float(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return float(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _largest_error(value_alone: Any, results: list[Any], job: Any) -> float:
    """Against the derivatives by hand: the largest difference over the largest entry of its array."""
    import byhand
    import numpy as np
    import tools

    expected = tools.read(byhand.derivatives(job)(*job.arguments))
    pairs = list(zip(results, expected, strict=True))
    if job.derivative == "gradient":
        pairs.append((np.asarray(value_alone), expected[0]))
    for actual, wanted in pairs:
        if np.shape(actual) != np.shape(wanted):
            raise ValueError(f"A result has shape {np.shape(actual)} where {np.shape(wanted)} is right.")
    return max(float(np.max(np.abs(a - w)) / np.max(np.abs(w))) for a, w in pairs)


if __name__ == "__main__":
    main()
