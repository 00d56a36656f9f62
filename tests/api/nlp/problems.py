"""Problems of W. Hock, K. Schittkowski, Test Examples for Nonlinear Programming Codes, Springer 1981, by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Function = Callable[[Any], Any]
INF = np.inf


class Problem(NamedTuple):
    """A problem, with its optimum."""

    start: list[float]
    objective: Function
    best: float
    equal: Function | None = None
    positive: Function | None = None
    bounds: tuple[Any, Any] | None = None

    def constraints(self) -> list[dict[str, Any]]:
        named = (("eq", self.equal), ("ineq", self.positive))
        return [{"type": name, "fun": function} for name, function in named if function is not None]


def hs78(x: Any) -> Any:
    return np.stack([np.sum(x**2) - 10, x[1] * x[2] - 5 * x[3] * x[4], x[0] ** 3 + x[1] ** 3 + 1])


def hs100(x: Any) -> Any:
    a, b, c, d, e, f, g = x
    far = (a - 10) ** 2 + 5 * (b - 12) ** 2 + c**4 + 3 * (d - 11) ** 2
    return far + 10 * e**6 + 7 * f**2 + g**4 - 4 * f * g - 10 * f - 8 * g


def hs100_positive(x: Any) -> Any:
    a, b, c, d, e, f, g = x
    return np.stack(
        [
            127 - 2 * a**2 - 3 * b**4 - c - 4 * d**2 - 5 * e,
            282 - 7 * a - 3 * b - 10 * c**2 - d + e,
            196 - 23 * a - b**2 - 6 * f**2 + 8 * g,
            -4 * a**2 - b**2 + 3 * a * b - 2 * c**2 - 5 * f + 11 * g,
        ]
    )


PROBLEMS = {
    6: Problem([-1.2, 1], lambda x: (1 - x[0]) ** 2, 0, lambda x: 10 * (x[1] - x[0] ** 2)),
    7: Problem(
        [2, 2],
        lambda x: np.log(1 + x[0] ** 2) - x[1],
        -np.sqrt(3),
        lambda x: (1 + x[0] ** 2) ** 2 + x[1] ** 2 - 4,
    ),
    10: Problem(
        [-10, 10],
        lambda x: x[0] - x[1],
        -1,
        positive=lambda x: -3 * x[0] ** 2 + 2 * x[0] * x[1] - x[1] ** 2 + 1,
    ),
    12: Problem(
        [0, 0],
        lambda x: x[0] ** 2 / 2 + x[1] ** 2 - x[0] * x[1] - 7 * x[0] - 7 * x[1],
        -30,
        positive=lambda x: 25 - 4 * x[0] ** 2 - x[1] ** 2,
    ),
    14: Problem(
        [2, 2],
        lambda x: (x[0] - 2) ** 2 + (x[1] - 1) ** 2,
        9 - 2.875 * np.sqrt(7),
        lambda x: x[0] - 2 * x[1] + 1,
        lambda x: 1 - x[0] ** 2 / 4 - x[1] ** 2,
    ),
    27: Problem(
        [2, 2, 2],
        lambda x: 0.01 * (x[0] - 1) ** 2 + (x[1] - x[0] ** 2) ** 2,
        0.04,
        lambda x: x[0] + x[2] ** 2 + 1,
    ),
    28: Problem(
        [-4, 1, 1],
        lambda x: (x[0] + x[1]) ** 2 + (x[1] + x[2]) ** 2,
        0,
        lambda x: x[0] + 2 * x[1] + 3 * x[2] - 1,
    ),
    29: Problem(
        [1, 1, 1],
        lambda x: -x[0] * x[1] * x[2],
        -16 * np.sqrt(2),
        positive=lambda x: 48 - x[0] ** 2 - 2 * x[1] ** 2 - 4 * x[2] ** 2,
    ),
    34: Problem(
        [0, 1.05, 2.9],
        lambda x: -x[0],
        -np.log(np.log(10)),
        positive=lambda x: x[1:] - np.exp(x[:-1]),
        bounds=(0.0, np.array([100.0, 100.0, 10.0])),
    ),
    35: Problem(
        [0.5, 0.5, 0.5],
        lambda x: (
            (9 - 8 * x[0] - 6 * x[1] - 4 * x[2] + 2 * x[0] ** 2 + 2 * x[1] ** 2 + x[2] ** 2)
            + 2 * x[0] * (x[1] + x[2])
        ),
        1 / 9,
        positive=lambda x: 3 - x[0] - x[1] - 2 * x[2],
        bounds=(0.0, INF),
    ),
    39: Problem(
        [2, 2, 2, 2],
        lambda x: -x[0],
        -1,
        lambda x: np.stack([x[1] - x[0] ** 3 - x[2] ** 2, x[0] ** 2 - x[1] - x[3] ** 2]),
    ),
    40: Problem(
        [0.8, 0.8, 0.8, 0.8],
        lambda x: -np.prod(x),
        -0.25,
        lambda x: np.stack([x[0] ** 3 + x[1] ** 2 - 1, x[0] ** 2 * x[3] - x[2], x[3] ** 2 - x[1]]),
    ),
    43: Problem(
        [0, 0, 0, 0],
        lambda x: np.sum(np.array([1, 1, 2, 1]) * x**2 + np.array([-5, -5, -21, 7]) * x),
        -44,
        positive=lambda x: np.stack(
            [
                8 - np.sum(x**2) - x[0] + x[1] - x[2] + x[3],
                10 - np.sum(np.array([1, 2, 1, 2]) * x**2) + x[0] + x[3],
                5 - 2 * x[0] ** 2 - x[1] ** 2 - x[2] ** 2 - 2 * x[0] + x[1] + x[3],
            ]
        ),
    ),
    48: Problem(
        [3, 5, -3, 2, -2],
        lambda x: (x[0] - 1) ** 2 + (x[1] - x[2]) ** 2 + (x[3] - x[4]) ** 2,
        0,
        lambda x: np.stack([np.sum(x) - 5, x[2] - 2 * (x[3] + x[4]) + 3]),
    ),
    51: Problem(
        [2.5, 0.5, 2, -1, 0.5],
        lambda x: (x[0] - x[1]) ** 2 + (x[1] + x[2] - 2) ** 2 + (x[3] - 1) ** 2 + (x[4] - 1) ** 2,
        0,
        lambda x: np.stack([x[0] + 3 * x[1] - 4, x[2] + x[3] - 2 * x[4], x[1] - x[4]]),
    ),
    60: Problem(
        [2, 2, 2],
        lambda x: (x[0] - 1) ** 2 + (x[0] - x[1]) ** 2 + (x[1] - x[2]) ** 4,
        0.03256820025,
        lambda x: x[0] * (1 + x[1] ** 2) + x[2] ** 4 - 4 - 3 * np.sqrt(2),
        bounds=(-10.0, 10.0),
    ),
    63: Problem(
        [2, 2, 2],
        lambda x: 1000 - x[0] ** 2 - 2 * x[1] ** 2 - x[2] ** 2 - x[0] * x[1] - x[0] * x[2],
        961.7151721,
        lambda x: np.stack([8 * x[0] + 14 * x[1] + 7 * x[2] - 56, np.sum(x**2) - 25]),
        bounds=(0.0, INF),
    ),
    65: Problem(
        [-4.5, 4.5, 0],
        lambda x: (x[0] - x[1]) ** 2 + (x[0] + x[1] - 10) ** 2 / 9 + (x[2] - 5) ** 2,
        0.9535288567,
        positive=lambda x: 48 - np.sum(x**2),
        bounds=(np.array([-4.5, -4.5, -5.0]), np.array([4.5, 4.5, 5.0])),
    ),
    71: Problem(
        [1, 5, 5, 1],
        lambda x: x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2],
        17.0140173,
        lambda x: np.sum(x**2) - 40,
        lambda x: np.prod(x) - 25,
        (1.0, 5.0),
    ),
    78: Problem([-2, 1.5, 2, -1, -1], lambda x: np.prod(x), -2.91970041, hs78),
    80: Problem(
        [-2, 2, 2, -1, -1],
        lambda x: np.exp(np.prod(x)),
        0.0539498478,
        hs78,
        bounds=(-np.array([2.3, 2.3, 3.2, 3.2, 3.2]), np.array([2.3, 2.3, 3.2, 3.2, 3.2])),
    ),
    100: Problem([1, 2, 0, 4, 0, 1, 1], hs100, 680.6300573, positive=hs100_positive),
}
