"""Densities: what `scipy.stats` takes in compiled functions, in units of the same formula written out with NumPy.

Both are compiled by gradtape and take turns in one process, on one thread; a figure is the median of the ratios of neighbouring runs.
The bar is 1.5 for the value of a sum of logarithms of densities, and for its gradient in the points, the shapes, loc and scale.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import report
import scipy.special as special
import scipy.stats as stats

import gradtape as gt

COLUMNS = (
    "distribution",
    "points",
    "formula us",
    "value / formula",
    "gradient us",
    "gradient / formula",
    "error",
)
COUNT = 100_000
LOC, SCALE = 0.3, 1.7
LOG_2PI = float(np.log(2 * np.pi))


class Density(NamedTuple):
    """A distribution's shape parameters, and the logarithm of its standard density as a user would write it."""

    shapes: Sequence[float]
    formula: Callable[..., Any]


def student(z: Any, df: Any) -> Any:
    """Return the logarithm of the density of Student's t."""
    norm = special.gammaln((df + 1) / 2) - special.gammaln(df / 2) - 0.5 * np.log(df * np.pi)
    return norm - (df + 1) / 2 * np.log1p(z * z / df)


def chi_square(z: Any, df: Any) -> Any:
    """Return the logarithm of the density of a sum of squares of normal variables."""
    half = df / 2
    return (half - 1) * np.log(z) - z / 2 - special.gammaln(half) - half * np.log(2.0)


DENSITIES = {
    "norm": Density((), lambda z: -0.5 * z * z - 0.5 * LOG_2PI),
    "gamma": Density((2.5,), lambda z, a: (a - 1) * np.log(z) - z - special.gammaln(a)),
    "t": Density((4.5,), student),
    "beta": Density(
        (2.3, 1.6), lambda z, a, b: (a - 1) * np.log(z) + (b - 1) * np.log1p(-z) - special.betaln(a, b)
    ),
    "expon": Density((), lambda z: -z),
    "lognorm": Density((0.8,), lambda z, s: -(np.log(z) ** 2) / (2 * s * s) - np.log(s * z) - 0.5 * LOG_2PI),
    "weibull_min": Density((1.8,), lambda z, c: np.log(c) + (c - 1) * np.log(z) - z**c),
    "cauchy": Density((), lambda z: -np.log(np.pi) - np.log1p(z * z)),
    "chi2": Density((3.5,), chi_square),
    "gumbel_r": Density((), lambda z: -z - np.exp(-z)),
    "logistic": Density((), lambda z: -z - 2 * np.log1p(np.exp(-z))),
    "pareto": Density((2.6,), lambda z, b: np.log(b) - (b + 1) * np.log(z)),
}


def measure(name: str, rounds: int) -> list[str]:
    """Return the line of a distribution."""
    shapes, formula = DENSITIES[name]
    distribution = getattr(stats, name)
    x = distribution.rvs(*shapes, LOC, SCALE, size=COUNT, random_state=0)
    arguments = (x, *shapes, LOC, SCALE)

    def of_scipy(x: Any, *parameters: Any) -> Any:
        return np.sum(distribution.logpdf(x, *parameters))

    def written_out(x: Any, *parameters: Any) -> Any:
        *shapes, loc, scale = parameters
        return np.sum(formula((x - loc) / scale, *shapes) - np.log(scale))

    places = tuple(range(len(arguments)))
    values = [gt.jit(each) for each in (written_out, of_scipy)]
    gradients = [gt.grad(each, argnums=places) for each in (written_out, of_scipy)]
    plain, ratio = compare(values, arguments, rounds)
    slopes, slope_ratio = compare(gradients, arguments, rounds)
    expected = float(np.sum(distribution.logpdf(*arguments)))
    error = abs(float(values[1](*arguments)) - expected) / abs(expected)
    figures = f"{plain * 1e6:.0f}", f"{ratio:.2f}", f"{slopes * 1e6:.0f}", f"{slope_ratio:.2f}"
    return [name, str(COUNT), *figures, f"{error:.0e}"]


def compare(
    functions: Sequence[Callable[..., Any]], arguments: Sequence[Any], rounds: int
) -> tuple[float, float]:
    """Return the median time of the first function, and that of the ratios of the second one to it."""
    for function in functions:
        function(*arguments)
    pairs = []
    for _ in range(rounds):
        seconds = []
        for function in functions:
            begun = time.perf_counter()
            function(*arguments)
            seconds.append(time.perf_counter() - begun)
        pairs.append(seconds)
    return statistics.median(one for one, _ in pairs), statistics.median(two / one for one, two in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--distributions", default=",".join(DENSITIES), help="names, with commas between them"
    )
    parser.add_argument("--rounds", type=int, default=101)
    options = parser.parse_args()
    names = options.distributions.split(",")
    print(report.table(COLUMNS, 2, [measure(name, options.rounds) for name in names]))


if __name__ == "__main__":
    main()
