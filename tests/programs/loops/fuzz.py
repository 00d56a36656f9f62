"""Translate random functions with loops, and compare values and derivatives without compiling: ``python -m tests.programs.loops.fuzz``.

The value is Python's; reverse mode agrees with forward mode, and forward mode with differences.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import UnsupportedCodeError
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.verifier import verify_procedure
from gradtape.transforms.procedures.jvp import jvp_procedure
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.frontend.support import translated
from tests.programs.loops.random_sources import random_source

STEPS = (1e-6, 1e-7, 1e-8, 3e-9)
"""Of differences; one of them has to agree, since a larger one may meet a branch."""


def function_of(seed: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a random function and its arguments."""
    namespace: dict[str, Any] = {"np": np, "math": math, "__name__": "random_loops"}
    exec(compile(random_source(seed, rich=True), f"random_{seed}.py", "exec"), namespace)
    random = np.random.default_rng(seed)
    n = int(random.integers(3, 5))
    return namespace["f"], (random.standard_normal(n), random.standard_normal((n, n)), 0.7)


def check(seed: int) -> None:
    """Compare all ways of one function."""
    function, args = function_of(seed)
    value = function(*args)
    if not np.isfinite(value):
        return
    translation = translated(function, *args)
    active = [True] * len(translation.leaves)
    operands = [np.asarray(args[k]) for k in translation.leaves]
    random = np.random.default_rng(1)
    along = [random.standard_normal(np.shape(x)) for x in operands]
    pulled = vjp_procedure(translation.procedure, active, [True])
    pushed = jvp_procedure(translation.procedure, active)
    for one in (pulled, pushed):
        verify_procedure(one)
    assert_near(run_procedure(translation.procedure, operands)[0], value, 1e-10, "value")
    result, *gradient = run_procedure(pulled, [*operands, np.ones(())])
    assert_near(result, value, 1e-10, "value in reverse mode")
    tangent = run_procedure(pushed, [*operands, *along])[1]
    assert_near(sum(np.sum(g * d) for g, d in zip(gradient, along, strict=True)), tangent, 1e-9, "reverse")

    def moved(h: float) -> Any:
        given = list(args)
        for k, d in zip(translation.leaves, along, strict=True):
            given[k] = args[k] + h * d
        return function(*given)

    slopes = [(moved(h) - moved(-h)) / (2 * h) for h in STEPS]
    best = min(range(len(STEPS)), key=lambda k: abs(slopes[k] - tangent))
    assert_near(tangent, slopes[best], max(3e-6, 1e-13 / STEPS[best]), "forward against differences")


def assert_near(found: Any, expected: Any, tolerance: float, what: str) -> None:
    assert abs(found - expected) <= tolerance * (1.0 + abs(expected)), f"{what}: {found}, {expected}"


def main() -> int:
    """Run functions, print those that fail, and what is refused; return how many have failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.loops.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    begin, failed, done = time.monotonic(), 0, 0
    refused: defaultdict[str, list[int]] = defaultdict(list)
    for seed in range(options.seed, options.seed + options.programs):
        if time.monotonic() - begin > options.seconds:
            break
        done += 1
        try:
            with np.errstate(all="ignore"):
                check(seed)
        except UnsupportedCodeError as refusal:
            refused[refusal.what].append(seed)
        except Exception as error:
            failed += 1
            print(seed, type(error).__name__, *str(error).splitlines()[:2], flush=True)
    print(f"{done} functions in {time.monotonic() - begin:.0f} s, {failed} failed; refused: {dict(refused)}")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 100))
