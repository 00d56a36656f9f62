"""Measures gradtape on several works in this process, on one thread, and prints the results as a line of JSON.

A work is named ``work:size:wording``. The cache starts empty. One small gradient is computed before all works, so that no work's first
call imports anything: its time, with that of the import, is the row ``startup``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time

from measure import forget_peak, memory_of, sample, timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("works", nargs="+")
    parser.add_argument("--seconds", type=float, required=True, help="spent on each of value and gradient")
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    started = time.perf_counter()
    import numpy as np

    import gradtape as gt

    gt.value_and_grad(lambda x: np.sum(np.sin(x) * x))(np.ones(3))
    rows = {"startup::": {"first_s": time.perf_counter() - started}}
    rows |= {label: measured(label, options.seconds) for label in options.works}
    print(json.dumps(rows))


def measured(label: str, seconds: float) -> dict[str, float]:
    """Return times, and the memory that the first gradient takes above the arguments and its results."""
    import tools
    import works

    calls = tools.gradtape(works.work(*label.split(":")))
    gc.collect()
    before = forget_peak()
    first_seconds, result = timed(calls.gradient, calls.arguments, calls.finish, 1)
    peak = memory_of("VmHWM:") - before - sum(array.nbytes for array in calls.read(result))
    calls.value(*calls.arguments)
    return {
        "first_s": first_seconds,
        "peak_mb": max(peak, 0.0) / 1e6,
        "value_s": sample(calls.value, calls.arguments, calls.finish, seconds)["median_s"],
        "gradient_s": sample(calls.gradient, calls.arguments, calls.finish, seconds)["median_s"],
    }


if __name__ == "__main__":
    main()
