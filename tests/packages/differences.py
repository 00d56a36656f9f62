"""Derivatives by differences, with an estimate of their error: a derivative is called wrong only where it is known to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

STEPS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
"""The largest steps of the schemes, in units of the argument: far steps leave the domain or a branch, near ones cancel."""

LEVELS = 4
"""Steps of a scheme: each is half of the one before."""

CONVERGED = 1e-3
"""The relative error above which a scheme says nothing."""


class Slope(NamedTuple):
    """A derivative and its error."""

    value: float
    error: float


DOUBLE = float(np.finfo(np.float64).eps)


def slopes(function: Callable[[float], float], rounding: float = DOUBLE) -> list[Slope]:
    """Return the derivative of a function of a number at zero, by the schemes that converge, the one of the least error first.

    `rounding` is that of the function's results: it may compute in single precision, where small slopes are lost in steps.
    """
    found = sorted((_extrapolated(function, step, rounding) for step in STEPS), key=lambda each: each.error)
    return [each for each in found if each.error <= CONVERGED * abs(each.value)] or [
        each for each in found[:1] if np.isfinite(each.error)
    ]


def agrees(derivative: float, found: list[Slope], slack: float) -> bool:
    """Return whether a derivative is that of one of the schemes, up to its error."""
    return any(
        abs(derivative - each.value) <= 1e-5 * abs(each.value) + 10 * each.error + slack for each in found
    )


def _extrapolated(function: Callable[[float], float], step: float, rounding: float) -> Slope:
    best, before, largest = Slope(np.nan, np.inf), [], 0.0
    for level in range(LEVELS):
        h = step / 2**level
        try:
            right, left = function(h), function(-h)
        except Exception:  # outside the function's domain
            return best
        if not np.isfinite(right - left):
            before = []
            continue
        largest = max(largest, abs(right), abs(left))
        row = [(right - left) / (2 * h)]
        for k, previous in enumerate(before):
            row.append(row[k] + (row[k] - previous) / (4 ** (k + 1) - 1))
        for k in range(1, len(row)):
            error = max(abs(row[k] - row[k - 1]), abs(row[k] - before[k - 1]))
            error += 4 * rounding * largest / h  # rounding: differences that agree may be those of noise
            best = min(best, Slope(row[k], error), key=lambda each: each.error)
        before = row
    return best
