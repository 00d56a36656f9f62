"""Measures `gt.debug.kinks` on 50 nonsmooth programs: what is found, what is invented, and the time in gradients.

    OPENBLAS_NUM_THREADS=1 GRADTAPE_CACHE_DIR=$(mktemp -d) python benchmarks/kinks.py [--repeats 5] [--only NAME]

The lines at which a program stands at a kink or a jump end with a comment that says so. All others are decoys: switches that are far away,
that cancel, that meet smoothly, or on which no result depends. A program is right if `kinks` reports the lines with a comment, with their
kinds, and no other line.

Times are CPU times. The first gradient is traced and compiled, which a user waits for who looks at a function once; run the command with
an empty disk cache, as it says. Those of later calls of `kinks` and of a gradient on a tape, which know their programs from the calls
before, are medians of calls in turns.
"""

from __future__ import annotations

import argparse
import inspect
import re
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import special

import gradtape as gt


class Program(NamedTuple):
    """A function, and the arguments at which it is looked at."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    @property
    def planted(self) -> set[tuple[str, int]]:
        """The kinds and lines of the comments."""
        lines, first = inspect.getsourcelines(self.function)
        marks = [(re.search(r"# (kink|jump)\b", line), number) for number, line in enumerate(lines, first)]
        return {(mark[1], number) for mark, number in marks if mark}

    def reported(self) -> set[tuple[str, int]]:
        """What `kinks` finds."""
        return {(kink.kind, kink.site.line) for kink in gt.debug.kinks(self.function, *self.arguments)}


PROGRAMS: dict[str, Program] = {}


def at(*arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a program with the arguments at which it is looked at."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = Program(function, arguments)
        return function

    return enter


@at(np.array([100.0, 120.0]))
def butterfly(spot: Any) -> Any:
    """Calls at three strikes, one of which is the first price."""
    low = np.maximum(spot - 90.0, 0.0)
    middle = np.maximum(spot - 100.0, 0.0)  # kink
    high = np.maximum(spot - 110.0, 0.0)
    return np.sum(low - 2.0 * middle + high)


@at(np.array([0.5, -0.25]), np.array([[2.0, 4.0], [1.0, 1.0], [0.0, 3.0]]))
def least_absolute(w: Any, a: Any) -> Any:
    """A fit whose first residual is zero."""
    residual = a @ w - np.array([0.0, 1.0, 2.0])
    return np.sum(np.abs(residual)) + 0.1 * np.sum(w**2)  # kink


@at(np.array([0.0, 1.5, -2.0]))
def lasso(w: Any) -> Any:
    """A penalty at an unknown that is zero."""
    fit = np.sum((w - np.array([0.2, 1.0, -1.0])) ** 2)
    ridge = np.sum(np.abs(w) ** 2)
    return fit + ridge + 0.3 * np.sum(np.abs(w))  # kink


@at(np.array([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 0.0]))
def hinge(w: Any, x: Any) -> Any:
    """A margin of exactly one."""
    score = w @ x + 2.0
    loss = np.maximum(0.0, 1.0 - score)  # kink
    return loss + 0.01 * np.sqrt(np.sum(w**2))


@at(np.array([0.3, 0.7]))
def relu_network(x: Any) -> Any:
    """Two layers, one unit of which is at zero."""
    first = np.array([[1.0, 1.0], [7.0, -3.0]]) @ x
    hidden = np.maximum(first, 0.0)  # kink
    second = np.array([1.0, -2.0]) @ hidden
    return np.tanh(second) + np.maximum(second + 5.0, 0.0)


@at(np.array([1.0, 1.0]))
def leaky(x: Any) -> Any:
    """A leaky unit, written with where."""
    z = x[0] - x[1]
    y = np.where(z > 0, z, 0.01 * z)  # kink
    return y + np.where(x[0] > 3, x[0], 2.0 * x[0])


@at(1.0)
def huber(r: Any) -> Any:
    """Huber's loss meets smoothly; the weight beside it does not."""
    smooth = np.where(np.abs(r) <= 1.0, 0.5 * r**2, np.abs(r) - 0.5)
    weight = np.minimum(1.0, 1.0 / np.abs(r))  # kink
    return smooth + weight


@at(np.array([2.0, 2.0, 1.0]))
def largest(x: Any) -> Any:
    """Two elements share the maximum."""
    top = np.max(x)  # kink
    return top + np.sum(x**2) + np.min(x)


@at(np.array([1.0, 4.0, 1.0, 9.0]))
def trimmed(x: Any) -> Any:
    """The sum of the two smallest is the same in both orders; the smallest alone is not."""
    ordered = np.sort(x)  # kink
    return np.sum(ordered[:2]) + 0.5 * ordered[0]


@at(np.array([3.0, 2.0, 2.0]))
def middle_value(x: Any) -> Any:
    """A median of tied elements, and the mean of two in the middle, which is smooth."""
    even = np.median(np.concatenate([x, np.array([1.0])]))
    return np.median(x) / even  # kink


@at(np.zeros(3))
def distance_to(x: Any) -> Any:
    """A norm at its tip, beside its square."""
    square = np.linalg.norm(x) ** 2
    return square + np.linalg.norm(x)  # kink


@at(np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]]))
def pairs(points: Any) -> Any:
    """Two points in the same place."""
    total = 0.0
    for i in range(3):
        for j in range(i):
            total = total + np.hypot(*(points[i] - points[j]))  # kink
    return total


@at(np.array([0.0, 0.0]))
def cone(x: Any) -> Any:
    """A root at zero."""
    r = np.sqrt(x[0] ** 2 + x[1] ** 2)  # kink
    return r * np.cos(1.0) + x[0]


@at(5.0, 3.0)
def gcd_like(x: Any, y: Any) -> Any:
    """A loop that ends by a comparison, far from its border, and a remainder at a multiple."""
    while y > 1.4:
        x, y = y, 0.5 * x
    return x + (3.0 * y) % 1.25  # jump


@at(2.5)
def progressive_tax(income: Any) -> Any:
    """A bracket that begins here."""
    tax = 0.1 * income
    if income > 1.0:
        tax = tax + 0.2 * (income - 1.0)
    if income >= 2.5:  # kink
        tax = tax + 0.3 * (income - 2.5)
    if income > 7.0:
        tax = tax + 0.4 * (income - 7.0)
    return tax


@at(1000.0)
def stepped_fee(amount: Any) -> Any:
    """A fee that changes at once."""
    fee = 2.0 if amount < 1000.0 else 5.0  # jump
    return amount * 0.01 + fee


@at(np.array([0.2, 0.4, 1.0]))
def histogram(x: Any) -> Any:
    """A level that is looked up at an edge."""
    levels = np.array([0.0, 1.0, 4.0, 9.0])
    k = np.searchsorted(np.array([0.3, 1.0, 2.0]), x)  # jump
    return np.sum(levels[k] * x)


@at(0.5)
def table(x: Any) -> Any:
    """Linear interpolation at a knot whose slopes differ, and at one whose slopes agree."""
    knots = np.array([0.0, 0.5, 1.0])
    straight = np.interp(x, knots, np.array([1.0, 2.0, 3.0]))
    return straight + np.interp(x, knots, np.array([0.0, 1.0, 5.0]))  # kink


@at(np.array([0.2, 1.0, 7.0]))
def clipped(x: Any) -> Any:
    """An element at the bound of a clip."""
    inside = np.clip(x, 0.0, 1.0)  # kink
    outside = np.clip(x, -10.0, 10.0)
    return np.prod(inside + 1.0) + np.sum(outside)


@at(np.array([2.0, 0.3]))
def rounded(x: Any) -> Any:
    """A price in whole numbers."""
    units = np.ceil(x[0])  # jump
    return units * x[1] + np.floor(x[1])


@at(np.array([0.5, 1.25]))
def quantised(x: Any) -> Any:
    """A half that is rounded."""
    coarse = np.round(x[0])  # jump
    return coarse + np.round(x[1]) * x[0]


@at(3.0)
def sawtooth(t: Any) -> Any:
    """A phase at its reset, and its absolute value, at the same time."""
    phase = t - np.floor(t)  # jump
    return np.sin(6.0 * phase + 1.0)


@at(1.5)
def triangle_wave(t: Any) -> Any:
    """A tip of a triangle wave: the sides of the rounding agree, since the value is even."""
    return np.abs(t - 2.0 * np.floor(t / 2.0) - 1.5)  # kink


@at(np.array([1.0, 5.0, 5.0]))
def winner(scores: Any) -> Any:
    """The prize of the best one, whose place jumps."""
    prizes = np.array([10.0, 20.0, 70.0])
    return prizes[np.argmax(scores)] + np.sum(scores)  # jump


@at(np.array([1.0, 2.0, 2.0, 0.5]))
def drawdown(prices: Any) -> Any:
    """A running maximum that is equalled."""
    peak = np.maximum.accumulate(prices)  # kink
    return np.sum(peak - prices)


@at(np.array([1.0, 0.0, -2.0, 3.0]))
def positive_part(x: Any) -> Any:
    """A mask with an element at its border; the sum of the squares is smooth."""
    y = x[x > 0]  # kink
    z = x[x > -5]
    return np.sum(y) + np.sum(z**2)


@at(np.array([0.0, 2.0]))
def positive_squares(x: Any) -> Any:
    """Squares of what a mask selects meet smoothly."""
    y = x[x > 0]
    return np.sum(y**2) + np.sum(np.maximum(x, 0.0) ** 3)


@at(np.array([1.0, 1.0]), 0.5)
def soft_threshold(x: Any, k: Any) -> Any:
    """The proximal map of the absolute value at its threshold."""
    shrunk = np.sign(x) * np.maximum(np.abs(x) - 2.0 * k, 0.0)  # kink
    return np.sum(shrunk * np.array([1.0, 3.0]))


@at(1.75, 0.0)
def bouncing_ball(height: Any, speed: Any) -> Any:
    """A ball that touches the ground at a step: it may turn around, or fall on."""
    for _ in range(5):
        height = height + 0.5 * speed
        speed = speed - 1.0
        if height < 0.25:  # jump
            height, speed = 0.5 - height, -speed
    return height


@at(2.0)
def saturation(v: Any) -> Any:
    """A limiter at its limit in the first of several steps."""
    total = 0.0
    for k in range(4):
        v = np.minimum(v, 2.0) * 0.9  # kink
        total = total + k * v
    return total


@at(np.array([1.0, 3.0, 2.0]))
def inventory(demand: Any) -> Any:
    """A stock that is empty exactly at the end of the second day."""
    stock, sold = 4.0, 0.0
    for d in demand:
        sale = min(stock, d)  # kink
        stock, sold = stock - sale, sold + sale * d
    return sold


@at(np.array([0.3, -0.3, 0.0]))
def counts(x: Any) -> Any:
    """How many are positive: a jump at zero."""
    number = np.sum(np.where(x > 0, 1.0, 0.0))  # jump
    return number * np.sum(x**2)


@at(np.array([1.0, 1.0]))
def rock_or_paper(x: Any) -> Any:
    """Branches of cond that meet with other slopes."""
    is_first = x[0] >= x[1]  # kink
    return gt.cond(is_first, lambda: 2.0 * x[0] + x[1], lambda: x[0] + 2.0 * x[1])


@at(np.array([1.0, 2.0, 3.0, 3.0]))
def scanned_maximum(x: Any) -> Any:
    """A maximum that is carried by a scan."""

    def step(best: Any, item: Any) -> Any:
        best = np.maximum(best, item)  # kink
        return best, best

    return np.sum(gt.scan(step, 0.0, x)[1])


@at(4.0)
def halving(x: Any) -> Any:
    """A while loop whose number of iterations changes here."""
    return gt.while_loop(lambda c: c > 0.5, lambda c: 0.5 * c, x)  # jump


@at(3.0, 5)
def powers(x: Any, n: int) -> Any:
    """A loop over whole numbers, one of which the argument is."""
    return gt.fori_loop(0, n, lambda i, total: total + np.abs(x - i), 0.0)  # kink


@at(np.array([2.0, 2.0]), np.array([1.0, 0.0]))
def chebyshev(x: Any, y: Any) -> Any:
    """The largest of differences, and a norm far from its tip."""
    d = np.abs(x - y - np.array([-1.0, 0.0]))
    return np.max(d) + np.linalg.norm(x)  # kink


@at(np.array([0.5, 0.5]))
def simplex(x: Any) -> Any:
    """A constraint that is active, as a penalty of first order, beside one of second order."""
    excess = np.sum(x) - 1.0
    exact = 10.0 * np.maximum(excess, 0.0)  # kink
    return exact + np.maximum(excess, 0.0) ** 2 + x[0] * x[1]


@at({"price": 10.0, "cost": np.array([4.0, 10.0])})
def margins(p: Any) -> Any:
    """A nest of arguments."""
    gain = p["price"] - p["cost"]
    kept = np.fmax(gain, 0.0)  # kink
    return {"sum": np.sum(kept), "price": p["price"] ** 2}


@at(np.array([1.0, -1.0]))
def quadrants(x: Any) -> Any:
    """Two conditions that are joined, one of which is at its border."""
    inside = (x[0] > 0.0) & (x[1] >= -1.0)  # jump
    return np.where(inside, x[0] * x[1], 0.0)


@at(0.0)
def heaviside_energy(x: Any) -> Any:
    """A step times a square is smooth; the step alone is not."""
    smooth = np.heaviside(x, 0.5) * x**2
    return smooth + 3.0 * np.heaviside(x, 0.5)  # jump


@at(np.array([7.0, 2.0]))
def division(x: Any) -> Any:
    """A whole quotient, away from its steps, and another one at a step."""
    far = x[0] // x[1]
    near = (x[0] + 1.0) // x[1]  # jump
    return far * x[0] + near


@at(1.0)
def splined(t: Any) -> Any:
    """A cubic spline of two pieces that meet smoothly, and a line that does not meet."""
    cubic = np.piecewise(np.atleast_1d(t), [t < 1.0], [lambda t: t**3, lambda t: 1.0 + 3.0 * (t - 1.0)])[0]
    line = np.where(t < 1.0, t, 4.0 - 3.0 * t)  # kink
    return cubic + line


@at(np.array([1.0, 2.0, 3.0]))
def select_rate(x: Any) -> Any:
    """A choice among three, at a border where both values agree but not the slopes."""
    low, high = x < 1.5, x < 2.0  # kink
    rate = np.select([low, high], [x, 2.0 * x], x + 2.0)
    return np.sum(rate)


@at(np.array([0.0, 1.0]))
def entropy(p: Any) -> Any:
    """A guarded logarithm: the result has an infinite slope at zero. Either selection alone would make the kink."""
    safe = np.where(p > 0.0, p, 1.0)  # kink
    term = np.where(p > 0.0, p * np.log(safe), 0.0)  # kink
    return -np.sum(term)


@at(np.array([0.3, 0.2]))
def smooth_functions(x: Any) -> Any:
    """No switch stands near: special functions, a square root, an absolute value of a sum that is positive."""
    return np.sum(special.gammaln(1.0 + x)) + np.sqrt(np.sum(x)) + np.abs(np.sum(x) + 1.0)


@at(np.array([[2.0, 0.0], [0.0, 2.0]]))
def eigenvalues(a: Any) -> Any:
    """A trace by eigenvalues is smooth where they are equal."""
    return np.sum(np.linalg.eigvalsh(0.5 * (a + a.T)) ** 2)


@at(1.0 + 1e-8, 1.0)
def nearly(x: Any, y: Any) -> Any:
    """A switch that is close, and one that is a little too far to count."""
    close = np.abs(x - y)  # kink
    far = np.abs(x - y - 1e-4)
    return close + far


@at(np.array([1.0, 2.0]), np.array([True, False]))
def masked(x: Any, use: Any) -> Any:
    """A mask of data selects without a switch, as does a comparison of data."""
    kept = np.where(use, x, 0.0)
    data = np.arange(2.0)
    return np.sum(np.where(data > 0.0, kept, 2.0 * kept)) + np.sum(np.maximum(data, 1.0) * x)


@at(np.array([3.0, 4.0]))
def projection(x: Any) -> Any:
    """A projection to a ball whose border the point is on."""
    r = np.linalg.norm(x)
    scale = np.where(r > 5.0, 5.0 / r, 1.0)  # kink
    return np.sum(scale * x * np.array([1.0, 2.0]))


WARM = 40
"""Calls before those that are timed: what is called often is compiled."""


def _times(program: Program, repeats: int) -> tuple[float, float, float]:
    """Return CPU seconds of `kinks`, of the first gradient, which is traced and compiled, and of one on a tape; the first and the third
    when their programs are known."""

    def number(*arguments: Any) -> Any:
        result = program.function(*arguments)
        return sum(result.values()) if isinstance(result, dict) else result

    given = program.arguments
    moving = [k for k, x in enumerate(given) if isinstance(x, dict) or np.asarray(x).dtype == float]

    def on_tape() -> Any:
        with gt.GradientTape() as tape:
            watched = [tape.watch(x) if k in moving else x for k, x in enumerate(given)]
            y = number(*watched)
        return tape.gradient(y, [watched[k] for k in moving])

    start = time.thread_time()
    gt.grad(number, argnums=tuple(moving))(*given)
    first = time.thread_time() - start
    times: list[list[float]] = [[], []]
    for _ in range(WARM + repeats):
        for way, kept in zip((program.reported, on_tape), times, strict=True):
            start = time.thread_time()
            way()
            kept.append(time.thread_time() - start)
    here, tape = (statistics.median(kept[WARM:]) for kept in times)
    return here, first, tape


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(
        "| program | planted | found | invented | first call, ms | later, ms | first / the first gradient | ",
        end="",
    )
    print("later / a gradient on a tape |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    sums = [0, 0, 0]
    ratios = []
    for name, program in PROGRAMS.items():
        if options.only and options.only != name:
            continue
        start = time.thread_time()
        planted, reported = program.planted, program.reported()
        first_call = time.thread_time() - start
        row = [len(planted), len(planted & reported), len(reported - planted)]
        sums = [a + b for a, b in zip(sums, row, strict=True)]
        line = f"| {name} | " + " | ".join(map(str, row))
        if options.repeats:
            here, first, tape = _times(program, options.repeats)
            ratios.append((first_call / first, here / tape))
            line += f" | {1e3 * first_call:.1f} | {1e3 * here:.2f} | {first_call / first:.2f} | {here / tape:.2f} |"
        print(line, flush=True)
        if planted != reported:
            print(f"    planted {sorted(planted - reported)}, reported instead {sorted(reported - planted)}")
    line = f"| all {len(PROGRAMS)} | " + " | ".join(map(str, sums))
    if ratios:
        medians = [statistics.median(part) for part in zip(*ratios, strict=True)]
        line += f" | | | median {medians[0]:.2f} | median {medians[1]:.2f} |"
    print(line)


if __name__ == "__main__":
    main()
