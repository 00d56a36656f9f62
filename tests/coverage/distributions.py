"""The methods of the distributions of `scipy.stats`: what each is called with, and whether value and derivatives are right.

``python -m tests.coverage.distributions [--jit] [names]`` measures them and prints what is not right.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats as stats
from scipy.stats._distr_params import distcont, distdiscrete

import gradtape as gt
from tests.coverage.measure import Mismatch

LEVELS = np.array([0.15, 0.45, 0.83])
LOC, SCALE = 0.3, 1.7
ORDER = 3
SLOW = 0.5
"""Seconds of a difference of SciPy's from which there are fewer of them."""

CONTINUOUS: dict[str, tuple[Any, ...]] = {name: shapes for name, shapes in distcont if isinstance(name, str)}
DISCRETE: dict[str, tuple[Any, ...]] = {
    name: shapes for name, shapes in distdiscrete if isinstance(name, str)
}
SHAPES = {**CONTINUOUS, **DISCRETE}

OF_POINTS = ("cdf", "logcdf", "sf", "logsf")
OF_LEVELS = ("ppf", "isf")
OF_PARAMETERS = ("entropy", "mean", "median", "var", "std", "stats", "moment", "support")
METHODS = {
    "continuous": ("pdf", "logpdf", *OF_POINTS, *OF_LEVELS, *OF_PARAMETERS),
    "discrete": ("pmf", "logpmf", *OF_POINTS, *OF_LEVELS, *OF_PARAMETERS),
}


LAST_RUN = {
    "gt.jit": {"right": 2073, "refused or NaN": 21, "not compared": 2, "wrong": 0},
    "tapes": {"right": 2060, "refused or NaN": 21, "not compared": 15, "wrong": 0},
}
"""How many methods were what when all were measured the last time. What is not compared takes longer than the limit: SciPy's integrals
are slow, and there are differences of them."""


class Method(NamedTuple):
    """A method of a distribution."""

    distribution: str
    method: str

    @property
    def is_discrete(self) -> bool:
        """Whether the distribution is one of integers: it has no derivative in its points, and no scale."""
        return self.distribution in DISCRETE


GAPS: dict[str, str] = {
    "it is an integral of an integral, which SciPy computes in compiled code": "studentized_range",
    "SciPy computes the density by a recurrence, and its own derivative has no rule": "ksone:pdf,logpdf kstwo:pdf,logpdf",
    "SciPy raises an error itself": "levy_stable:entropy",
    "the moment is infinite, and NaN here": "pareto:moment",
}
"""Reasons of methods that are refused or NaN: distributions with their methods after a colon, or all but the support."""


def gaps() -> dict[Method, str]:
    """Return the methods that are not supported, with the reasons."""
    found = {}
    for reason, names in GAPS.items():
        for each in names.split():
            distribution, _, methods = each.partition(":")
            kind = "discrete" if distribution in DISCRETE else "continuous"
            for method in methods.split(",") if methods else METHODS[kind][:-1]:
                found[Method(distribution, method)] = reason
    return found


def every() -> Iterator[Method]:
    """Return all methods of all distributions."""
    for kind, names in (("continuous", CONTINUOUS), ("discrete", DISCRETE)):
        for name in names:
            yield from [Method(name, method) for method in METHODS[kind]]


def function_of(case: Method, *, frozen: bool = False) -> Callable[..., Any]:
    """Return a method as a function of the point or level if it takes one, the shape parameters, loc and the scale."""
    distribution = getattr(stats, case.distribution)
    of_numbers = case.method not in OF_PARAMETERS

    def function(*args: Any) -> Any:
        first, parameters = (args[:1], args[1:]) if of_numbers else ((), args)
        if case.method == "moment":
            first = (ORDER,)
        given = {"moments": "mvsk"} if case.method == "stats" else {}
        if frozen:
            found = getattr(distribution(*parameters), case.method)(*first, **given)
        else:
            found = getattr(distribution, case.method)(*first, *parameters, **given)
        return np.stack([np.asarray(part) * 1.0 for part in found]) if isinstance(found, tuple) else found

    return function


def arguments(case: Method) -> tuple[list[Any], list[int]]:
    """Return arguments of a method, and which of them are differentiated: floats other than points of discrete distributions."""
    name, method = case
    distribution, shapes = getattr(stats, name), SHAPES[name]
    if case.is_discrete:
        given = [*[np.asarray(shape) if np.ndim(shape) else shape for shape in shapes], 2]
        smooth = [k for k, shape in enumerate(distribution._shape_info()) if not shape.integrality]
        point = 2 + distribution.ppf(LEVELS, *shapes)
    else:
        given = [*map(float, shapes), LOC, SCALE]
        integers = [k for k, shape in enumerate(distribution._shape_info()) if shape.integrality]
        smooth = [k for k in range(len(given)) if k not in integers]
        point = LOC + SCALE * distribution.ppf(LEVELS, *shapes)
    given = [np.asarray(each, float) if k in smooth else each for k, each in enumerate(given)]
    if method in OF_PARAMETERS:
        return given, smooth
    first = LEVELS if method in OF_LEVELS else point
    # points of discrete distributions are integers, and levels of theirs have steps
    others = [1 + k for k in smooth]
    return [first, *given], others if case.is_discrete else [0, *others]


def derivative(function: Callable[..., Any], args: list[Any], place: int) -> tuple[Any, Any]:
    """Return the derivative of the weighted sum in an argument by differences, and an estimate of their error."""
    x = np.asarray(args[place], float)
    size = 2e-3 * np.maximum(np.abs(x), 0.1)
    direction = np.cos(1.0 + np.arange(x.size)).reshape(x.shape)

    def total(h: Any) -> Any:
        return objective(function)(*args[:place], x + h * size * direction, *args[place + 1 :])

    def slope(k: float) -> Any:
        return (total(k) - total(-k)) / (2 * k)

    began = time.monotonic()
    slopes = [slope(1.0)]
    is_slow = time.monotonic() - began > SLOW
    slopes += [slope(2.0**-k) for k in range(1, 4 if is_slow else 8)]
    finer = [(4 * b - a) / 3 for a, b in itertools.pairwise(slopes)]
    gaps = [abs(b - a) for a, b in itertools.pairwise(finer)]
    best = int(np.nanargmin(gaps)) if np.isfinite(gaps).any() else 0
    return finer[best + 1], gaps[best], size * direction


def objective(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the sum of the results, each with a weight of its own, without those that are infinite."""

    def total(*args: Any) -> Any:
        found = function(*args)
        weights = np.cos(0.4 + 1.7 * np.arange(np.size(found))).reshape(np.shape(found))
        return np.sum(np.where(np.isfinite(found), found, 0.0) * weights)

    return total


def check(case: Method, *, compiled: bool, frozen: bool = False) -> None:
    """Raise unless the value and the derivatives of a method are right."""
    function = function_of(case, frozen=frozen)
    args, smooth = arguments(case)
    with np.errstate(all="ignore"):
        expected = np.asarray(function(*args), float)
        if compiled:
            found = gt.jit(lambda *given: function(*_placed(args, smooth, given)))(*[args[k] for k in smooth])
            total = gt.value_and_grad(
                lambda *given: objective(function)(*_placed(args, smooth, given)),
                argnums=tuple(range(len(smooth))),
            )
            slopes = total(*[args[k] for k in smooth])[1] if smooth else ()
        else:
            with gt.GradientTape() as tape:
                given = [tape.watch(args[k]) for k in smooth]
                found = function(*_placed(args, smooth, given))
                result = objective(lambda: found)()
            slopes = tape.gradient(result, given) if isinstance(result, gt.Array) else [None] * len(given)
        found = np.asarray(found, float)
        if found.shape != expected.shape:
            raise Mismatch(f"shape {found.shape} instead of {expected.shape}")
        if np.any(np.isnan(found) & ~np.isnan(expected)):
            raise gt.errors.GradtapeError(f"it is NaN instead of {expected}")
        is_integral = case.method in (
            "entropy",
            "mean",
            "var",
            "std",
            "stats",
            "moment",
        )  # SciPy's have errors
        # skewness and kurtosis of SciPy's sums, numbers of order one, lose digits where they are small
        size = 1e-6 if case.method == "stats" else 1e-12
        if not np.allclose(found, expected, rtol=1e-5 if is_integral else 1e-8, atol=size, equal_nan=True):
            raise Mismatch(f"value {found} instead of {expected}")
        for place, gradient in zip(smooth, slopes, strict=True):
            slope, error, step = derivative(function, args, place)
            ours = 0.0 if gradient is None else float(np.sum(np.asarray(gradient) * step))
            scale = max(
                abs(slope), 1e-3 * float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0))
            )
            if np.isnan(ours):
                raise gt.errors.GradtapeError(f"the derivative in argument {place} is NaN instead of {slope}")
            if not abs(ours - slope) <= 3 * error + (3e-4 if is_integral else 1e-5) * scale + 1e-14:
                raise Mismatch(f"derivative in argument {place}: {ours} instead of {slope} (+-{error})")


def _placed(args: list[Any], smooth: list[int], given: Any) -> list[Any]:
    placed = list(args)
    for k, each in zip(smooth, given, strict=True):
        placed[k] = each
    return placed


def outcome(case: Method, **how: Any) -> str:
    """Return "" if a method is right, and else what it is: wrong, refused, or an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", gt.errors.GradtapeWarning)
        try:
            check(case, **how)
        except Mismatch as error:
            return f"wrong: {error}"
        except (gt.errors.GradtapeError, gt.errors.GradtapeWarning) as error:
            return f"refused: {error}"
        except Exception as error:
            return f"error: {type(error).__name__}: {error}"
    return ""


def outcomes(cases: list[Method], limit: float, **how: Any) -> Iterator[tuple[Method, str, float]]:
    """Return the outcome of each method and the seconds it took; what takes longer than the limit is ended there."""
    forked = multiprocessing.get_context("fork")
    while cases:
        ours, theirs = forked.Pipe(duplex=False)
        worker = forked.Process(target=_work, args=(cases, theirs, how), daemon=True)
        worker.start()
        theirs.close()
        done = 0
        for case in cases:
            began = time.monotonic()
            try:
                found = ours.recv() if ours.poll(limit) else f"slow: more than {limit:g} s"
            except EOFError:
                found = "error: the process died"
            done += 1
            yield case, found, time.monotonic() - began
            if found.startswith("slow") or found == "error: the process died":
                break
        worker.kill()
        worker.join()
        cases = cases[done:]


def _work(cases: list[Method], pipe: Any, how: dict[str, Any]) -> None:
    for case in cases:
        pipe.send(outcome(case, **how))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.coverage.distributions", description=__doc__)
    parser.add_argument("--jit", action="store_true", help="compiled functions, not tapes")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each method")
    parser.add_argument("--out", type=Path, help="a file of outcomes, to which the missing ones are added")
    parser.add_argument("names", nargs="*", help="distributions")
    given = parser.parse_args()
    known = {}
    if given.out and given.out.exists():
        for line in given.out.read_text().splitlines():
            name, _seconds, found = line.split("\t")
            known[name] = found
    cases = [case for case in every() if not given.names or case.distribution in given.names]
    missing = [case for case in cases if ".".join(case) not in known]
    for case, found, seconds in outcomes(missing, given.limit, compiled=given.jit):
        name = ".".join(case)
        known[name] = " | ".join(found.splitlines())[:300]
        if given.out:
            with given.out.open("a") as file:
                file.write(f"{name}\t{seconds:.1f}\t{known[name]}\n")
    kinds = Counter()
    for case in cases:
        found = known[".".join(case)]
        kinds[found.partition(":")[0] or "right"] += 1
        if found:
            print(".".join(case), found)
    print(", ".join(f"{count} {kind}" for kind, count in kinds.most_common()), f"of {len(cases)}")
    sys.exit(kinds["right"] < len(cases))


if __name__ == "__main__":
    main()
