"""Random functions with loops, and what must agree on them: ``python -m tests.programs.loops.fuzz [--compiled]``.

Without compiling: the value is Python's; reverse mode of the translation agrees with forward mode, and forward mode with differences.
Compiled: machine code of the function from Numba and of the plain function (traced, or translated where tracing does not do), tapes, and
the interpreter agree in value and gradient, and with forward mode; so do ``vmap`` and second derivatives.
"""

from __future__ import annotations

import argparse
import linecache
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np

import gradtape as gt
from gradtape.errors import ConcretizationError, UnsupportedCodeError
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.verifier import verify_procedure
from gradtape.transforms.procedures.jvp import jvp_procedure
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.frontend.support import translated
from tests.programs.loops.random_sources import random_source

STEPS = (1e-6, 1e-7, 1e-8, 3e-9)
"""Of differences; one of them has to agree, since a larger one may meet a branch."""


PLACES = (0, 1, 2)


def function_of(seed: int, rich: bool = True) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a random function and its arguments."""
    text, name = random_source(seed, rich), f"random_loops_{seed}{'_rich' * rich}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"np": np, "math": math, "__name__": "random_loops"}
    exec(compile(text, name, "exec"), namespace)
    random = np.random.default_rng(seed)
    n = int(random.integers(3, 5))
    return namespace["f"], (random.standard_normal(n), random.standard_normal((n, n)), 0.7)


def check(seed: int) -> None:
    """Compare all ways of one function."""
    function, args = function_of(seed)
    try:
        value = function(*args)
    except (ValueError, OverflowError):  # a number that has no integer: the program is none
        return
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

    def at(h: float) -> Any:
        given = list(args)
        for k, d in zip(translation.leaves, along, strict=True):
            given[k] = args[k] + h * d
        return function(*given)

    slopes = [(at(h) - at(-h)) / (2 * h) for h in STEPS]
    best = min(range(len(STEPS)), key=lambda k: abs(slopes[k] - tangent))
    assert_near(tangent, slopes[best], max(3e-6, 1e-13 / STEPS[best]), "forward against differences")


def on_tape(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """Return value and gradient by a tape."""
    with gt.GradientTape() as tape:
        watched = [tape.watch(np.asarray(x)) for x in args]
        y = function(*watched)
    found = tape.gradient(y, watched)
    return y.numpy(), [
        np.zeros(np.shape(x)) if g is None else g.numpy() for g, x in zip(found, args, strict=True)
    ]


def ways_of(seed: int, rich: bool) -> dict[str, Callable[[], Any]]:
    """Return what computes value and gradient of a function, by name."""
    function, args = function_of(seed, rich)
    translated = numba.njit(function)

    def both(function: Callable[..., Any], **settings: Any) -> Any:
        with gt.config.override(**settings):
            return gt.value_and_grad(function, argnums=PLACES)(*args)

    ways = {
        "njit": partial(both, translated),
        "jit": partial(both, function),
        "translated": partial(both, function, loops="compile"),
        "tape of njit": partial(on_tape, translated, args),
    }
    if "complex(" not in random_source(seed, rich):  # which leaves what is recorded
        ways["tape"] = partial(on_tape, function, args)
        ways["interpreter"] = partial(both, function, jit=False)
    return ways


def check_compiled(seed: int, rich: bool = True) -> None:
    """Compare all ways to compute one function with its derivatives."""
    function, args = function_of(seed, rich)
    value = function(*args)
    if not np.isfinite(value):
        return
    random = np.random.default_rng(1)
    along = tuple([random.standard_normal(np.shape(x)) for x in args])
    ways = ways_of(seed, rich)
    _, gradient = ways["njit"]()
    for name, way in ways.items():
        try:
            found, slopes = way()
        except ConcretizationError:  # what a trace cannot look at, in functions that cannot be translated
            assert name == "jit"
            continue
        assert_near(found, value, 1e-11, f"value by {name}")
        for one, other in zip(slopes, gradient, strict=True):
            assert_near(one, other, 1e-10, f"gradient by {name}")
    reverse = product(gradient, along)
    compiled = numba.njit(function)
    assert_near(gt.jit(compiled)(*args), value, 1e-11, "value")
    forward = gt.jvp(compiled, args, along)[1]
    assert_near(forward, reverse, 1e-9, "forward mode")
    expected = slope(function, args, along)
    if expected is not None:
        assert_near(reverse, expected, 3e-6, "differences")
    batch = [np.stack([np.asarray(x), 1.01 * np.asarray(x)]) for x in args]
    rows = gt.vmap(gt.grad(compiled, argnums=PLACES))(*batch)
    for row, whole in zip(rows, gradient, strict=True):
        assert_near(row[0], whole, 1e-10, "vmap")
    of_gradient = gt.grad(compiled, argnums=PLACES)
    second = product(gt.jvp(of_gradient, args, along)[1], along)
    expected = slope(lambda *at: product(of_gradient(*at), along), args, along)
    if expected is not None:
        assert_near(second, expected, 3e-5, "second derivative")


def slope(function: Callable[..., float], args: tuple[Any, ...], along: tuple[Any, ...]) -> float | None:
    """Return the derivative along a direction by differences; None where two steps disagree, as near a kink."""
    found = [
        (function(*moved(args, along, h)) - function(*moved(args, along, -h))) / (2 * h) for h in (1e-6, 2e-6)
    ]
    return found[0] if abs(found[0] - found[1]) < 1e-6 * (1.0 + abs(found[0])) else None


def moved(args: tuple[Any, ...], along: tuple[Any, ...], h: float) -> tuple[Any, ...]:
    return tuple([x + h * d for x, d in zip(args, along, strict=True)])


def product(gradient: Any, along: tuple[Any, ...]) -> float:
    return float(sum(np.sum(g * d) for g, d in zip(gradient, along, strict=True)))


def assert_near(found: Any, expected: Any, tolerance: float, what: str) -> None:
    assert np.shape(found) == np.shape(expected), f"{what}: {np.shape(found)}, {np.shape(expected)}"
    far = abs(np.asarray(found) - expected) > tolerance * (1.0 + abs(np.asarray(expected)))
    assert not np.any(far), f"{what}: {found}, {expected}"


def main() -> int:
    """Run functions, print those that fail, and what is refused; return how many have failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.loops.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--compiled", action="store_true", help="compile, and compare all ways")
    options = parser.parse_args()
    begin, failed, done = time.monotonic(), 0, 0
    refused: defaultdict[str, list[int]] = defaultdict(list)
    for seed in range(options.seed, options.seed + options.programs):
        if time.monotonic() - begin > options.seconds:
            break
        done += 1
        try:
            with np.errstate(all="ignore"):
                (check_compiled if options.compiled else check)(seed)
        except UnsupportedCodeError as refusal:
            refused[refusal.what].append(seed)
        except Exception as error:
            failed += 1
            print(seed, type(error).__name__, *str(error).splitlines()[:2], flush=True)
    print(f"{done} functions in {time.monotonic() - begin:.0f} s, {failed} failed; refused: {dict(refused)}")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 100))
