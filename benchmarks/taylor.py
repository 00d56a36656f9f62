"""Measures method "Taylor" of `gt.scipy.solve_ivp` on orbits of three bodies, against DOP853.

    python benchmarks/taylor.py [--repeats 5] [--rtol 1e-6,1e-9,1e-12]

Errors are the largest ones of the state at the end, by series of numbers of 30 digits (mpmath) from the same initial values. Times
are medians of calls after the first, in one process and in turns, so that their ratios count. DOP853 runs at its tightest
too: SciPy raises smaller `rtol`s to 2.2e-14.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

import gradtape as gt

MU = 0.012277471


def arenstorf(t: Any, state: Any) -> Any:
    """The restricted problem of three bodies: a satellite between earth and moon."""
    x, y, u, v = state
    mu, other = MU, 1 - MU
    earth, moon = ((x + mu) ** 2 + y**2) ** -1.5, ((x - other) ** 2 + y**2) ** -1.5
    return [
        u,
        v,
        x + 2 * v - other * (x + mu) * earth - mu * (x - other) * moon,
        y - 2 * u - other * y * earth - mu * y * moon,
    ]


def bodies(masses: tuple[int, int, int]) -> Callable[[Any, Any], Any]:
    """Return the plane motion of three bodies."""

    def motion(t: Any, state: Any) -> Any:
        places = [(state[2 * k], state[2 * k + 1]) for k in range(3)]
        slopes = [state[6 + k] for k in range(6)]
        force = [0.0] * 6
        for i, j in ((0, 1), (0, 2), (1, 2)):
            dx, dy = places[j][0] - places[i][0], places[j][1] - places[i][1]
            cube = (dx * dx + dy * dy) ** -1.5
            for axis, d in enumerate((dx, dy)):
                force[2 * i + axis] += masses[j] * d * cube
                force[2 * j + axis] -= masses[i] * d * cube
        return [*slopes, *force]

    return motion


EIGHT = [-0.97000436, 0.24308753, 0.97000436, -0.24308753, 0.0, 0.0]
SPEED = [-0.93240737, -0.86473146]

PROBLEMS: dict[str, tuple[Callable[[Any, Any], Any], list[float], float]] = {
    "figure eight, one period": (
        bodies((1, 1, 1)),
        [*EIGHT, *[-s / 2 for s in SPEED] * 2, *SPEED],
        6.32591398,
    ),
    "Pythagorean, to time 10": (bodies((3, 4, 5)), [1.0, 3.0, -2.0, -1.0, 1.0, -1.0, *[0.0] * 6], 10.0),
    "Arenstorf, one period": (
        arenstorf,
        [0.994, 0.0, 0.0, -2.00158510637908252240537862224],
        17.0652165601579625588917206249,
    ),
}


class Series:
    """A power series of numbers of many digits, whose coefficients are computed on demand."""

    def __init__(self, coefficient: Callable[[int], Any]) -> None:
        self._coefficient, self._known = coefficient, list[Any]()

    def __getitem__(self, k: int) -> Any:
        while len(self._known) <= k:
            self._known.append(self._coefficient(len(self._known)))
        return self._known[k]

    def __add__(self, other: Any) -> Series:
        o = as_series(other)
        return Series(lambda k: self[k] + o[k])

    def __mul__(self, other: Any) -> Series:
        o = as_series(other)
        return Series(lambda k: mpmath.fdot((self[j], o[k - j]) for j in range(k + 1)))

    def __neg__(self) -> Series:
        return Series(lambda k: -self[k])

    def __sub__(self, other: Any) -> Series:
        return self + -as_series(other)

    def __rsub__(self, other: Any) -> Series:
        return as_series(other) + -self

    __radd__, __rmul__ = __add__, __mul__

    def __pow__(self, a: float) -> Series:
        if a == 2:
            return self * self

        def coefficient(k: int) -> Any:
            if k == 0:
                return self[0] ** a
            terms = ((((a + 1) * j - k) * self[j], made[k - j]) for j in range(1, k + 1))
            return mpmath.fdot(terms) / (k * self[0])

        made = Series(coefficient)
        return made


def as_series(x: Any) -> Series:
    """Return a number as a series."""
    return x if isinstance(x, Series) else Series(lambda k: x if k == 0 else mpmath.mpf(0))


def exactly(fun: Callable[[Any, Any], Any], start: list[float], end: float, digits: int = 30) -> Any:
    """Return the state at the end, by series of numbers of many digits."""
    with mpmath.workdps(digits):
        order, left, y = int(1.2 * digits), mpmath.mpf(end), [mpmath.mpf(one) for one in start]
        while left > 0:
            state: list[Series] = []

            slopes: list[Any] = []

            def coefficient(k: int, place: int, y: Any = y, slopes: list[Any] = slopes) -> Any:
                return y[place] if k == 0 else as_series(slopes[place])[k - 1] / k

            state += [Series(functools.partial(coefficient, place=place)) for place in range(len(y))]
            slopes += fun(None, state)
            sizes = [max(abs(one[k]) for one in state) ** (mpmath.mpf(-1) / k) for k in (order - 1, order)]
            h = min(left, min(sizes) * mpmath.mpf(10) ** (-mpmath.mpf(digits - 6) / order))
            y = [mpmath.polyval([one[k] for k in range(order, -1, -1)], h) for one in state]
            left -= h
        return np.array([float(one) for one in y])


def at_end(
    fun: Callable[[Any, Any], Any], end: float, method: str, rtol: float, atol: float
) -> Callable[[Any], Any]:
    """Return a function of the initial values."""

    def solved(y0: Any) -> Any:
        return gt.scipy.solve_ivp(fun, (0.0, end), y0, method, rtol=rtol, atol=atol).y[:, -1]

    return solved


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rtol", default="1e-6,1e-9,1e-12")
    given = parser.parse_args()
    tolerances = [float(one) for one in given.rtol.split(",")]
    for name, (fun, start, end) in PROBLEMS.items():
        truth = exactly(fun, start, end)
        ways: dict[str, Callable[[Any], Any]] = {}
        for rtol in [*tolerances, 2.2e-16]:
            ways[f"Taylor, rtol {rtol:.1e}"] = gt.jit(at_end(fun, end, "Taylor", rtol, rtol))
        for rtol in [*tolerances, 2.3e-14]:
            runge = at_end(fun, end, "DOP853", rtol, min(rtol, 1e-15) if rtol < 1e-13 else rtol)
            ways[f"DOP853 compiled, rtol {rtol:.1e}"] = gt.jit(runge)
            if rtol < 1e-13:
                ways[f"DOP853 of SciPy, rtol {rtol:.1e}"] = runge
        first = {}
        for way, run in ways.items():
            begin = time.perf_counter()
            run(np.array(start))
            first[way] = time.perf_counter() - begin
        error = {way: np.max(np.abs(np.asarray(run(np.array(start))) - truth)) for way, run in ways.items()}
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(given.repeats):
            for way, run in ways.items():
                begin = time.thread_time()
                run(np.array(start))
                times[way].append(time.thread_time() - begin)
        print(f"\n{name}")
        for way in ways:
            print(
                f"  {way:34s} error {error[way]:.1e}   {1e3 * statistics.median(times[way]):9.3f} ms   first {first[way]:6.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
