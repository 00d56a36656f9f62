"""The last points of a line search, and where the gradient jumps between two of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import numpy as np

from gradtape.ir.op import NDArray

KEPT: Final = 24
"""How many points are kept: those of the last line search, and of some steps before it."""

JUMP: Final = 0.05
"""The change of the gradient between two points that may be a jump, as a part of its size; below it a gradient is small beside others."""

HALVED: Final = 12
"""How many pairs of points are halved until they are close, or the change of the gradient is small."""

CLOSE: Final = 1e-9
"""The distance of two points, as a part of their size, at which a change of that size is a jump."""


class Trials:
    """A function with its gradient that keeps the last points.

    Parameters
    ----------
    function : callable
        ``(x, *args) -> (value, gradient)``.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._kept: deque[tuple[NDArray, NDArray]] = deque(maxlen=KEPT)

    def __call__(self, x: NDArray, *args: Any) -> Any:
        """Return value and gradient."""
        found = self._function(x, *args)
        self._kept.append((np.array(x), found[1]))
        return found

    def is_steep(self, slope: NDArray) -> bool:
        """Return whether a gradient is not small beside those of the points."""
        sizes = [float(np.max(np.abs(kept), initial=0.0)) for _, kept in self._kept]
        return bool(np.max(np.abs(slope), initial=0.0) > JUMP * np.median(sizes)) if sizes else False

    def crossing(self, x: NDArray, *args: Any) -> NDArray | None:
        """Return where the gradient jumps between two points, one after the other or beside the last one; None if it does not.

        Parameters
        ----------
        x : ndarray
            Where the run has ended.
        *args
            Further arguments of the function.
        """
        points = list(self._kept)
        slope = self._function(x, *args)[1]
        pairs = [*pairwise(points), *(((x, slope), point) for point in points)]
        nearest = sorted(pairs, key=lambda pair: float(np.linalg.norm(pair[0][0] - pair[1][0])))
        for a, b in [pair for pair in nearest if _jump(*pair)][:HALVED]:
            middle = self._halved(a, b, args)
            if middle is not None:
                return middle
        return None

    def _halved(
        self, a: tuple[NDArray, NDArray], b: tuple[NDArray, NDArray], args: tuple[Any, ...]
    ) -> NDArray | None:
        """Return the middle of two points between which the gradient jumps, after bisection; None if it does not."""
        scale = max(1.0, float(np.max(np.abs(a[0]), initial=0.0)))
        while _jump(a, b):
            middle = (a[0] + b[0]) / 2.0
            if float(np.max(np.abs(a[0] - b[0]), initial=0.0)) <= CLOSE * scale:
                return np.asarray(middle)
            between = middle, self._function(middle, *args)[1]
            a, b = max(((a, between), (between, b)), key=lambda pair: _difference(*pair))
        return None


def _difference(a: tuple[NDArray, NDArray], b: tuple[NDArray, NDArray]) -> float:
    return float(np.linalg.norm(a[1] - b[1]))


def _jump(a: tuple[NDArray, NDArray], b: tuple[NDArray, NDArray]) -> bool:
    """Return whether gradients at two different points differ by more than a small part."""
    size = max(float(np.linalg.norm(a[1])), float(np.linalg.norm(b[1])))
    return bool(np.any(a[0] != b[0])) and _difference(a, b) > JUMP * size
