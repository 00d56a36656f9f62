"""Derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def difference(
    function: Callable[[Sequence[Any]], Any], arrays: Sequence[Any], directions: Sequence[Any]
) -> Any:
    """Return the derivative along a direction by Richardson's extrapolation of central differences."""

    def moved(h: float) -> list[Any]:
        return [x + h * t if x.dtype.kind in "fc" else x for x, t in zip(arrays, directions, strict=True)]

    def central(h: float) -> Any:
        return (function(moved(h)) - function(moved(-h))) / (2 * h)

    return (4 * central(5e-4) - central(1e-3)) / 3


def gradient_by_differences(function: Callable[..., Any], x: Any, step: float = 1e-6) -> Any:
    """Return the derivatives of a function in each element of its argument by central differences.

    The axes of `x` come first, those of the result after them.
    """
    slopes = []
    for place in np.ndindex(np.shape(x)):
        moved = np.zeros(np.shape(x))
        moved[place] = step
        slopes.append((function(x + moved) - function(x - moved)) / (2 * step))
    return np.reshape(slopes, np.shape(x) + np.shape(slopes[0]))


def gradients_by_differences(function: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """Return the derivatives of a function in each of its arguments by central differences."""
    return [
        gradient_by_differences(lambda x, k=k: function(*args[:k], x, *args[k + 1 :]), arg)
        for k, arg in enumerate(args)
    ]
