"""Measure functions and their derivatives against arbitrary precision, in units in the last place of the true number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import mpmath
import numpy as np
from mpmath import mp

import gradtape as gt
from tests.accuracy.references import REFERENCES, Reference

DTYPES = (np.float64, np.float32)
NEVER = float("inf")
"""The error of NaN, of an infinity where the number is finite, and the other way round."""


class Worst(NamedTuple):
    """The largest error, and the arguments where it is."""

    ulps: float
    at: tuple[float, ...]


class Order(NamedTuple):
    """A derivative: how often in which argument, ``(0, 1)`` once in the second one."""

    counts: tuple[int, ...]

    def __str__(self) -> str:
        return "".join(map(str, self.counts))


def orders(arity: int) -> list[Order]:
    """Return the orders from 0 to 2."""
    every = product(range(3), repeat=arity)
    return sorted(
        [Order(counts) for counts in every if sum(counts) <= 2], key=lambda order: (sum(order.counts), order)
    )


# Points


def _one_argument(low: float, high: float, near: Sequence[float], dtype: Any, density: int) -> list[float]:
    info = np.finfo(dtype)
    least, largest = float(info.smallest_subnormal), float(info.max)
    exponents = np.linspace(np.log2(least), np.log2(largest), 8 * density + 1)[:-1]
    sizes = [least, float(info.smallest_normal), largest, *np.exp2(exponents)]
    rng = np.random.default_rng(0)
    sizes += [
        *rng.uniform(0, 1, 2 * density),
        *rng.uniform(0, 50, 4 * density),
        *rng.uniform(0, 750, 2 * density),
    ]
    sizes += [x * (1 + d) for x in near for d in (0.0, -1e-12, 1e-9, -1e-6, 1e-4, -1e-2, 1e-2)]
    ends = [x for x in (low, high) if np.isfinite(x)]
    sizes += [x * (1 - d) for x in ends for d in (2.0**-52, 1e-9, 1e-4)]
    with np.errstate(over="ignore", under="ignore"):
        found = np.array([*sizes, *[-x for x in sizes]]).astype(dtype)
    kept = sorted({float(x) for x in found if low <= x <= high and np.isfinite(x) and x != 0})
    return kept


@np.errstate(over="ignore", under="ignore")
def points(reference: Reference, dtype: Any, density: int) -> list[tuple[float, ...]]:
    """Return arguments from the smallest to the largest, by their exponents, and evenly where functions change."""
    if len(reference.domain) == 1:
        (bounds,) = reference.domain
        return [(x,) for x in _one_argument(*bounds, reference.near, dtype, density)]
    rng = np.random.default_rng(1)
    columns = [_one_argument(*bounds, (), dtype, density) for bounds in reference.domain]
    count = 30 * density
    drawn = [rng.choice(column, count) for column in columns]
    close = [np.where(rng.random(count) < 0.5, x, drawn[0] * rng.uniform(0.3, 3, count)) for x in drawn[1:]]
    rows = zip(*[x.astype(dtype).tolist() for x in (drawn[0], *close)], strict=True)
    return sorted(
        {
            row
            for row in rows
            if all(
                low <= x <= high and x != 0 and np.isfinite(x)
                for x, (low, high) in zip(row, reference.domain, strict=True)
            )
        }
    )


# True numbers


def truths(reference: Reference, at: tuple[float, ...]) -> dict[Order, Any]:
    """Return the function and its derivatives, by central differences with a step far below the resolution of floats."""
    with mp.workprec(reference.bits):
        numbers = [mp.mpf(x) for x in at]
        steps = [min(abs(x), 1) * mp.mpf(2) ** -(reference.bits // 20) for x in numbers]

        @cache
        def value(*shifts: int) -> Any:
            return reference.exact(*[x + k * h for x, k, h in zip(numbers, shifts, steps, strict=True)])

        found = {}
        for order in orders(len(at)):
            total = largest = mp.mpf(0)
            for terms in product(*[STENCILS[count] for count in order.counts]):
                term = value(*[shift for shift, _ in terms])
                for _, weight in terms:
                    term *= weight
                total += term
                largest = max(largest, abs(term))
            if any(order.counts) and abs(total) < largest * mp.mpf(2) ** (80 - reference.bits):
                continue  # lost in the working precision
            for count, step in zip(order.counts, steps, strict=True):
                total /= step**count
            found[order] = total
        return found


STENCILS = {
    0: ((0, mpmath.mpf(1)),),
    1: ((-1, mpmath.mpf(-0.5)), (1, mpmath.mpf(0.5))),
    2: ((-1, mpmath.mpf(1)), (0, mpmath.mpf(-2)), (1, mpmath.mpf(1))),
}


def ulps(got: float, true: Any, dtype: Any) -> float:
    """Return the distance from a true number in units in the last place of that number."""
    info = np.finfo(dtype)
    largest = mp.mpf(float(info.max))
    if abs(true) > largest:
        beyond = largest * (1 + mp.mpf(float(info.eps)) / 4)
        if np.isinf(got) and (got > 0) == (true > 0):
            return 0.0
        true = min(max(true, -beyond), beyond)
        if abs(true) == beyond and not np.isfinite(got):
            return NEVER
    if not np.isfinite(got):
        # A number within 8 units of the largest one may round to infinity.
        near = abs(true) > largest * (1 - 8 * mp.mpf(float(info.eps)))
        return 8.0 if near and np.isinf(got) and (got > 0) == (true > 0) else NEVER
    below = float(np.nextafter(info.max, dtype(0)))  # the spacing of the largest number itself overflows
    spacing = mp.mpf(float(np.spacing(dtype(min(abs(true), below)))))
    return float(abs(mp.mpf(float(got)) - true) / spacing)


# Measured numbers


def derivatives(function: Callable[..., Any], arity: int) -> Callable[..., Any]:
    """Return the function that computes a function and its derivatives up to order 2, first derivatives in both modes."""

    def along(f: Callable[..., Any], argument: int) -> Callable[..., Any]:
        def pushed(*args: Any) -> Any:
            def alone(x: Any) -> Any:
                return f(*args[:argument], x, *args[argument + 1 :])

            return gt.jvp(alone, (args[argument],), (np.ones_like(args[argument]),))[1]

        return pushed

    def all_of_them(*args: Any) -> Any:
        found = []
        for order in orders(arity):
            f = function
            for argument, count in enumerate(order.counts):
                for _ in range(count):
                    f = along(f, argument)
            found.append(f(*args))
        pulled = gt.grad(lambda *xs: np.sum(function(*xs)), argnums=tuple(range(arity)))(*args)
        return tuple(found), tuple(pulled)

    return all_of_them


def measured(
    reference: Reference, dtype: Any, at: Sequence[tuple[float, ...]]
) -> Iterator[dict[Order, list[Any]]]:
    """Yield the numbers that compiled code gives: by vectors, by the accurate scalar functions, and one number at a time."""
    arity = len(reference.domain)
    columns = [np.array(column, dtype) for column in zip(*at, strict=True)]
    body = derivatives(reference.function, arity)
    for precise in (False, True):
        with gt.config.override(precise_math=precise):
            found, pulled = gt.jit(lambda *xs: body(*xs))(*columns)
            yield dict(zip(orders(arity), map(np.asarray, found), strict=True))
            firsts = [order for order in orders(arity) if sum(order.counts) == 1]
            yield dict(zip(reversed(firsts), map(np.asarray, pulled), strict=True))


def sweep(name: str, dtype: Any = np.float64, density: int = 8) -> dict[Order, Worst]:
    """Return the largest errors of a function and of its derivatives."""
    reference = REFERENCES[name]
    at, true = [], []
    for point in points(reference, dtype, density):
        try:
            numbers = truths(reference, point)
        except (ValueError, ZeroDivisionError, OverflowError, mpmath.libmp.libhyper.NoConvergence):
            continue
        if all(isinstance(number, mpmath.mpf) and mp.isfinite(number) for number in numbers.values()):
            at.append(point)
            true.append(numbers)
    worst = {order: Worst(0.0, ()) for order in orders(len(reference.domain))}
    for way in measured(reference, dtype, at):
        for order, numbers in way.items():
            for point, got, exact in zip(at, numbers, true, strict=True):
                error = ulps(got, exact[order], dtype) if order in exact else 0.0
                if error > worst[order].ulps:
                    worst[order] = Worst(error, point)
    return worst
