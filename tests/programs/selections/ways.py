"""Programs with selections, and what must give one answer on them: ``python -m tests.programs.selections.ways [--sizes 1,2,3] [NAME ...]``.

Each program takes an array of any length. The points have kinks, ties, zeros and infinities. The ways are tracing and translation of the
code, tapes, compiled functions, mapped functions and functions for Numba, each in reverse and in forward mode, in first and second order.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from scipy import special

import gradtape as gt
from gradtape.errors import ConcretizationError, UnsupportedCodeError, UnsupportedFunctionError

SIZES = (1, 2, 3, 10, 100, 300)
MOST_COLUMNS = 10
"""Sizes up to which whole Jacobians and Hessians are compared; beyond, their products with one direction."""

POINTS: dict[str, Callable[[int], Any]] = {
    "zeros": np.zeros,
    "ties": lambda n: np.resize([1.0, 2.0, 2.0, 1.0, 0.5], n),
    "kinks": lambda n: np.resize([-1.0, 0.0, 2.0, 2.0, -1.0, 1.0, 0.0], n),
    "generic": lambda n: np.sin(np.arange(n) * 1.7 + 0.3) + 1.2,
}

INFINITE: dict[str, Callable[[int], Any]] = {
    "infinite": lambda n: np.resize([1.0, np.inf, 2.0, -np.inf, -1.0], n),
    "not a number": lambda n: np.resize([1.0, np.nan, 2.0, -0.5], n),
}
"""For programs that do not select elements that are infinite, or no numbers."""


def running_maximum(x):
    best = x[0]
    total = 0.0
    for i in range(len(x)):
        if x[i] > best:
            best = x[i]
        total += best * (i + 1.0)
    return total


def running_max(x):
    best = -1.0
    total = 0.0
    for i in range(len(x)):
        best = max(best, x[i])
        total += best * (i + 1.0)
    return total


def minima_of_neighbours(x):
    y = np.zeros(len(x))
    for i in range(len(x)):
        y[i] = np.minimum(x[i], x[i - 1]) + np.abs(x[i])
    return y


def position_of_maximum(x):
    place = 0
    for i in range(len(x)):
        if x[i] > x[place]:
            place = i
    return x[place] * x


def insertion_sort(x):
    y = x.copy()
    for i in range(1, len(y)):
        k = i
        while k > 0 and y[k - 1] > y[k]:
            left = y[k - 1]
            y[k - 1] = y[k]
            y[k] = left
            k -= 1
    return y


def rectified(x):
    total = 0.0
    for i in range(len(x)):
        if x[i] > 0.0:
            total += x[i] * x[i]
        elif x[i] < 0.0:
            total -= 0.5 * x[i]
    return total


def halved_until_small(x):
    y = 1.0 * x
    count = 0
    while np.max(np.abs(y)) > 0.3 and count < 6:
        y = np.where(np.abs(y) > 0.5, 0.5 * y, 0.9 * y)
        count += 1
    return y


def soft_thresholds(x):
    y = np.zeros(len(x))
    for i in range(len(x)):
        y[i] = np.sign(x[i]) * np.maximum(np.abs(x[i]) - 1.0, 0.0)
    return y


def nested_selections(x):
    y = np.zeros(len(x))
    for i in range(len(x)):
        y[i] = np.where(x[i] > 0.0, np.where(x[i] > 1.0, np.log(x[i]), x[i] * x[i]), np.minimum(x[i], -0.5))
    return y


def clipped_steps(x):
    level = 0.0
    total = 0.0
    for i in range(len(x)):
        level = min(max(level + x[i], 0.0), 3.0)
        total += level * level
    return total


def distances_of_neighbours(x):
    total = 0.0
    for i in range(len(x) - 1):
        total += abs(x[i + 1] - x[i])
    return total


def guarded_logarithms(x):
    total = 0.0
    for i in range(len(x)):
        total += np.log(x[i]) if x[i] > 0.0 else x[i]
    return total


def masked_in_place(x):
    y = 1.0 * x
    y[y > 1.0] = 0.0
    return y * y


def rectified_in_place(x):
    y = 2.0 * x
    np.maximum(y, 0.0, out=y)
    return np.sqrt(y + 1.0)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: np.max(x) * x,
    "min": lambda x: np.min(x) ** 2,
    "ptp": lambda x: np.ptp(x),
    "maximum.reduce": lambda x: np.maximum.reduce(x),
    "maximum.accumulate": lambda x: np.maximum.accumulate(x),
    "minimum.accumulate": lambda x: np.minimum.accumulate(x * x),
    "sort": lambda x: np.sort(x),
    "sorted squares": lambda x: np.sort(x * x),
    "argsort": lambda x: x[np.argsort(x, kind="stable")] ** 2,
    "argmax": lambda x: x[np.argmax(x)] * x,
    "argmin": lambda x: x[np.argmin(x)],
    "median": lambda x: np.median(x),
    "quantile": lambda x: np.quantile(x, 0.3),
    "partition": lambda x: np.partition(x, len(x) // 2)[len(x) // 2],
    "clip": lambda x: np.clip(x, 0.0, 2.0),
    "clip from below": lambda x: np.clip(x, 0.0, None),
    "clip from above": lambda x: x.clip(max=2.0),
    "clip to itself": lambda x: np.clip(x, x[::-1], 3.0),
    "maximum of itself": lambda x: np.maximum(x, x),
    "maximum of reversed": lambda x: np.maximum(x, x[::-1]),
    "fmin": lambda x: np.fmin(x, 1.0),
    "where": lambda x: np.where(x > 0, x * x, 3.0 * x),
    "nested where": lambda x: np.where(x > 0, np.where(x > 1, np.log(x), np.sqrt(x)), -x),
    "select": lambda x: np.select([x > 1, x > 0], [x * x, np.sqrt(x)], -x),
    "choose": lambda x: np.choose((x > 0).astype(int), [x, x * x]),
    "piecewise": lambda x: np.piecewise(x, [x < 0, x >= 0], [lambda t: -t, lambda t: t * t]),
    "mask": lambda x: np.sum(x[x > 0] ** 2),
    "mask in a product": lambda x: (x > 0) * x * x,
    "masked in place": masked_in_place,
    "rectified in place": rectified_in_place,
    "sum where": lambda x: np.sum(x * x, where=x > 0),
    "max where": lambda x: np.max(x, where=x < 2, initial=-3.0),
    "abs": lambda x: np.abs(x) * x,
    "sign": lambda x: np.sign(x) * x,
    "copysign": lambda x: np.copysign(x * x, x),
    "heaviside": lambda x: np.heaviside(x, 0.5) * x,
    "remainder": lambda x: np.mod(x, 1.5),
    "norm": lambda x: np.linalg.norm(x),
    "norm squared": lambda x: np.linalg.norm(x) ** 2,
    "largest magnitude": lambda x: np.linalg.norm(x, np.inf),
    "sum of magnitudes": lambda x: np.linalg.norm(x, 1),
    "lengths": lambda x: np.hypot(x, x[::-1]),
    "logsumexp": lambda x: special.logsumexp(x),
    "xlogy": lambda x: special.xlogy(np.maximum(x, 0.0), np.maximum(x, 0.0)),
    "interp": lambda x: np.interp(x, [-1.0, 0.0, 1.0, 2.0], [1.0, 0.0, 2.0, 2.0]),
    "running maximum": running_maximum,
    "running max": running_max,
    "minima of neighbours": minima_of_neighbours,
    "position of maximum": position_of_maximum,
    "insertion sort": insertion_sort,
    "rectified": rectified,
    "halved until small": halved_until_small,
    "soft thresholds": soft_thresholds,
    "nested selections": nested_selections,
    "clipped steps": clipped_steps,
    "distances of neighbours": distances_of_neighbours,
    "guarded logarithms": guarded_logarithms,
}

WITH_INFINITIES: dict[str, Callable[[Any], Any]] = {
    "finite squares": lambda x: np.where(np.isfinite(x), x * x, 0.0),
    "finite sum": lambda x: np.sum(x[np.isfinite(x)] ** 2),
    "nansum": lambda x: np.nansum(np.where(np.isinf(x), 1.0, x) ** 2),
    "nanmax": lambda x: np.nanmax(np.where(np.isinf(x), 1.0, x)),
    "clip": lambda x: np.clip(np.where(np.isnan(x), 0.0, x), -1.5, 1.5),
    "nan_to_num": lambda x: np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-2.0),
    "sum where finite": lambda x: np.sum(x * x, where=np.isfinite(x)),
}

FOR_NUMBA = {name for name, function in PROGRAMS.items() if function.__name__ != "<lambda>"} - {
    "masked in place",
    "rectified in place",
    "halved until small",
}
"""Programs that Numba compiles."""

KNOWN = (ConcretizationError, UnsupportedCodeError, UnsupportedFunctionError)
"""Errors of a way that a program does not have."""


def cases(sizes: tuple[int, ...] = SIZES) -> Iterator[tuple[str, str, int]]:
    """Yield the programs with their points and sizes."""
    for table, points in ((PROGRAMS, POINTS), (WITH_INFINITIES, INFINITE)):
        for name in table:
            for point in points:
                for size in sizes:
                    yield name, point, size


def case(name: str, point: str, size: int) -> tuple[Callable[[Any], Any], Any]:
    """Return a program and its argument."""
    if point in INFINITE:
        return WITH_INFINITIES[name], INFINITE[point](size)
    return PROGRAMS[name], POINTS[point](size)


def weighted(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the sum of a program's results with weights of which no two are equal."""

    def total(x):
        y = function(x)
        return np.sum(y * (1.0 + 0.1 * np.arange(np.size(y)).reshape(np.shape(y))))

    return total


def first_derivatives(function: Callable[[Any], Any], x: Any, for_numba: bool) -> Iterator[tuple[str, Any]]:
    """Yield the gradient by each way, or for large sizes its product with a direction, as functions."""
    total, direction = weighted(function), direction_of(x)
    is_small = len(x) <= MOST_COLUMNS

    def of_gradient(gradient: Any) -> Any:
        return gradient if is_small else np.dot(gradient, direction)

    def on_a_tape(total: Any = total) -> Any:
        with gt.GradientTape() as tape:
            watched = tape.watch(x)
            y = total(watched)
        if not isinstance(y, gt.Array):  # no branch has read an element
            return np.zeros_like(x)
        return tape.gradient(y, watched, unconnected_gradients="zero")

    def forward(total: Any) -> Any:
        return gt.jacfwd(total)(x) if is_small else gt.jvp(total, (x,), (direction,))[1]

    yield "tape", lambda: of_gradient(on_a_tape())
    totals = dict.fromkeys(("trace", "compile"), total)
    if for_numba:
        totals["numba"] = weighted(numba.njit(function))
    for loops, each in totals.items():
        setting = "auto" if loops == "numba" else loops

        def under(run: Any, setting: str = setting) -> Any:
            def answer() -> Any:
                with gt.config.override(loops=setting):
                    return run()

            return answer

        yield f"reverse, {loops}", under(lambda each=each: of_gradient(gt.grad(each)(x)))
        yield f"forward, {loops}", under(lambda each=each: forward(each))
        yield f"jitted, {loops}", under(lambda each=each: of_gradient(gt.jit(gt.grad(each))(x)))
        yield (
            f"mapped, {loops}",
            under(lambda each=each: of_gradient(gt.vmap(gt.grad(each))(np.stack([x, x]))[1])),
        )
    yield "tape of a jitted function", lambda: of_gradient(on_a_tape(gt.jit(total)))


def second_derivatives(function: Callable[[Any], Any], x: Any) -> Iterator[tuple[str, Any]]:
    """Yield the Hessian by each way, or for large sizes its product with a direction, as functions."""
    total, direction = weighted(function), direction_of(x)
    is_small = len(x) <= MOST_COLUMNS

    def on_tapes() -> Any:
        with gt.GradientTape() as outer:
            watched = outer.watch(x)
            with gt.GradientTape() as inner:
                inner.watch(watched)
                y = total(1.0 * watched)  # which is read in other ways than by rows: its gradient is dense
            if not isinstance(y, gt.Array):  # no branch has read an element
                return np.zeros((len(x), len(x))) if is_small else np.zeros_like(x)
            slope = inner.gradient(y, watched, unconnected_gradients="zero")
            target = slope if is_small else np.dot(slope, direction)
        derive = outer.jacobian if is_small else outer.gradient
        return derive(slope if is_small else target, watched, unconnected_gradients="zero")

    yield "tapes", on_tapes
    for loops in ("trace", "compile"):

        def under(run: Any, loops: str = loops) -> Any:
            def answer() -> Any:
                with gt.config.override(loops=loops):
                    return run()

            return answer

        if is_small:
            yield f"hessian, {loops}", under(lambda: gt.hessian(total)(x))
            yield f"reverse twice, {loops}", under(lambda: gt.jacrev(gt.grad(total))(x))
            yield f"forward over reverse, {loops}", under(lambda: gt.jacfwd(gt.grad(total))(x))
            yield f"forward twice, {loops}", under(lambda: gt.jacfwd(gt.jacfwd(total))(x))
        else:
            yield (
                f"reverse twice, {loops}",
                under(lambda: gt.grad(lambda x: np.dot(gt.grad(total)(x), direction))(x)),
            )
            yield (
                f"forward over reverse, {loops}",
                under(lambda: gt.jvp(gt.grad(total), (x,), (direction,))[1]),
            )


def direction_of(x: Any) -> Any:
    return np.cos(np.arange(len(x)) * 0.9) + 1.5


def disagreements(name: str, point: str, size: int, order: int) -> list[str]:
    """Return how the ways of one case differ, one line for each way that differs from most."""
    function, x = case(name, point, size)
    if order == 1:
        ways = first_derivatives(function, x, name in FOR_NUMBA and point in POINTS)
    else:
        ways = second_derivatives(function, x)
    computed: dict[str, Any] = {}
    lines: list[str] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for way, answer in ways:
            try:
                computed[way] = np.asarray(answer())
            except KNOWN as error:
                if "mapped" not in way and not way.endswith("trace"):
                    lines.append(f"{way}: {type(error).__name__}: {error.what}")
            except Exception as error:  # is reported
                lines.append(f"{way}: {type(error).__name__}: {str(error).splitlines()[0]}")
    alike = groups_of_equals(computed)
    if len(alike) > 1:
        lines += [f"{', '.join(group)}: {shortened(computed[group[0]])}" for group in alike]
    return [f"{name} at {point}, {size}, order {order}: {line}" for line in lines]


def groups_of_equals(computed: dict[str, Any]) -> list[list[str]]:
    """Return the ways by what they computed, the largest group first."""
    alike: list[list[str]] = []
    for way, value in computed.items():
        for group in alike:
            if np.allclose(value, computed[group[0]], rtol=1e-8, atol=1e-11, equal_nan=True):
                group.append(way)
                break
        else:
            alike.append([way])
    return sorted(alike, key=len, reverse=True)


def shortened(value: Any) -> str:
    text = str(value.tolist())
    return text if len(text) < 200 else f"{text[:200]} ..."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sizes", default="1,2,3")
    parser.add_argument("--orders", default="1,2")
    options = parser.parse_args()
    sizes = tuple(map(int, options.sizes.split(",")))
    count = failures = 0
    for name, point, size in cases(sizes):
        if options.names and name not in options.names:
            continue
        for order in map(int, options.orders.split(",")):
            count += 1
            found = disagreements(name, point, size, order)
            failures += bool(found)
            for line in found:
                print(line, flush=True)
    print(f"{count} cases, {failures} with disagreements")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
