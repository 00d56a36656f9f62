"""Derivatives of expectations: bias, variance and time of `gt.expectation`, beside the score function and the samples alone.

python benchmarks/expectation.py [--samples 100000] [--rounds 10]

Exact derivatives are differences of exact expectations: of tables of probabilities (walk, queue, epidemic), or of a Kalman filter, for
whose likelihood the particle filter has no bias. Times are CPU times.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import gradtape as gt


class Work(NamedTuple):
    """A simulation.

    Attributes
    ----------
    sample : callable
        ``(parameter, rng)``: one sample, for `gt.expectation`.
    plain : callable
        ``(parameter, rng, n)``: n samples as vectors of NumPy: results and derivatives of the logarithms of the probabilities.
    exact : callable
        The expectation.
    parameter : float
        Where the derivative is taken.
    """

    sample: Callable[..., Any]
    plain: Callable[..., Any]
    exact: Callable[[float], float]
    parameter: float


def _logistic(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def walk() -> Work:
    """Return a random walk whose steps depend on the position."""
    steps = 20

    def sample(p: Any, rng: Any) -> Any:
        x = 0.0
        for _ in range(steps):
            x = x + np.where(rng.random() < _logistic(p - 0.2 * x), 1.0, -1.0)
        return x**2

    def plain(p: float, rng: Any, n: int) -> Any:
        x, score = np.zeros(n), np.zeros(n)
        for _ in range(steps):
            up = _logistic(p - 0.2 * x)
            is_up = rng.random(n) < up
            score += np.where(is_up, 1.0 - up, -up)
            x = x + np.where(is_up, 1.0, -1.0)
        return x**2, score

    def exact(p: float) -> float:
        x = np.arange(-steps, steps + 1.0)
        chance, up = (x == 0) * 1.0, _logistic(p - 0.2 * x)
        for _ in range(steps):
            rises, falls = chance * up, chance * (1.0 - up)
            chance = np.concatenate([[0.0], rises[:-1]]) + np.concatenate([falls[1:], [0.0]])
        return float(np.sum(x**2 * chance))

    return Work(sample, plain, exact, 0.3)


def queue() -> Work:
    """Return a queue in discrete time: someone arrives, or not; someone is served, or not."""
    steps, serve = 15, 0.5

    def sample(p: Any, rng: Any) -> Any:
        length = waited = 0.0
        for _ in range(steps):
            length = length + np.where(rng.random() < p, 1.0, 0.0)
            length = np.where(rng.random() < serve, np.maximum(length - 1.0, 0.0), length)
            waited = waited + length
        return waited

    def plain(p: float, rng: Any, n: int) -> Any:
        length, waited, score = np.zeros(n), np.zeros(n), np.zeros(n)
        for _ in range(steps):
            arrives = rng.random(n) < p
            score += np.where(arrives, 1.0 / p, -1.0 / (1.0 - p))
            length = length + np.where(arrives, 1.0, 0.0)
            length = np.where(rng.random(n) < serve, np.maximum(length - 1.0, 0.0), length)
            waited = waited + length
        return waited, score

    def exact(p: float) -> float:
        number = np.arange(steps + 2.0)
        chance, waited = (number == 0) * 1.0, 0.0
        for _ in range(steps):
            chance = (1.0 - p) * chance + p * np.concatenate([[0.0], chance[:-1]])
            served = np.concatenate([[chance[0] + chance[1]], chance[2:], [0.0]])
            chance = (1.0 - serve) * chance + serve * served
            waited += float(np.sum(number * chance))
        return waited

    return Work(sample, plain, exact, 0.4)


def epidemic() -> Work:
    """Return an epidemic of eight agents: each susceptible one is infected, or not, by all who are infected."""
    agents, steps, recover = 8, 6, 0.3

    def sample(rate: Any, rng: Any) -> Any:
        sick = np.where(np.arange(agents) == 0, 1.0, 0.0)
        well = 1.0 - sick
        for _ in range(steps):
            chance = 1.0 - np.exp(-rate * np.sum(sick) / agents)
            caught = well * np.where(rng.random(agents) < chance, 1.0, 0.0)
            healed = sick * np.where(rng.random(agents) < recover, 1.0, 0.0)
            well, sick = well - caught, sick + caught - healed
        return agents - np.sum(well)

    def plain(rate: float, rng: Any, n: int) -> Any:
        sick = np.zeros((n, agents))
        sick[:, 0] = 1.0
        well, score = 1.0 - sick, np.zeros(n)
        for _ in range(steps):
            pressure = np.sum(sick, 1, keepdims=True) / agents
            chance = -np.expm1(-rate * pressure)
            hit = rng.random((n, agents)) < chance
            slope = pressure * np.exp(-rate * pressure)
            with np.errstate(divide="ignore", invalid="ignore"):
                of_hit = np.where(pressure > 0.0, slope / chance, 0.0)
            score += np.sum(well * np.where(hit, of_hit, -pressure), 1)
            caught = well * hit
            healed = sick * (rng.random((n, agents)) < recover)
            well, sick = well - caught, sick + caught - healed
        return agents - np.sum(well, 1), score

    def exact(rate: float) -> float:
        chance = {(agents - 1, 1): 1.0}
        for _ in range(steps):
            after: dict[tuple[int, int], float] = {}
            for (well, sick), weight in chance.items():
                hit = -math.expm1(-rate * sick / agents)
                for caught in range(well + 1):
                    first = math.comb(well, caught) * hit**caught * (1.0 - hit) ** (well - caught)
                    for healed in range(sick + 1):
                        second = (
                            math.comb(sick, healed) * recover**healed * (1.0 - recover) ** (sick - healed)
                        )
                        key = (well - caught, sick + caught - healed)
                        after[key] = after.get(key, 0.0) + weight * first * second
            chance = after
        return sum((agents - well) * weight for (well, _), weight in chance.items())

    return Work(sample, plain, exact, 1.2)


def particles() -> Work:
    """Return the likelihood of a particle filter with resampling, whose expectation is that of the model."""
    count, seen, pull = 6, np.array([0.4, -0.2, 0.9, 1.1]), 0.5

    def sample(p: Any, rng: Any) -> Any:
        x, total = np.zeros(count), 1.0
        for y in seen:
            x = p * x + pull * rng.standard_normal(count)
            weights = np.exp(-0.5 * (y - x) ** 2)
            total = total * np.mean(weights)
            sums = np.cumsum(weights)
            x = np.take(x, np.searchsorted(sums / sums[-1], rng.random(count)))
        return total

    def plain(p: float, rng: Any, n: int) -> Any:
        x, moved = np.zeros((n, count)), np.zeros((n, count))
        total, slope, score = np.ones(n), np.zeros(n), np.zeros(n)
        rows = np.arange(n)[:, None]
        for y in seen:
            moved = x + p * moved
            x = p * x + pull * rng.standard_normal((n, count))
            weights = np.exp(-0.5 * (y - x) ** 2)
            turned = (y - x) * moved
            mean = np.mean(weights, 1)
            slope = slope * mean + total * np.mean(weights * turned, 1)
            total = total * mean
            sums = np.cumsum(weights, 1)
            u = rng.random((n, count)) * sums[:, -1:]
            k = np.sum(sums[:, None, :] <= u[:, :, None], 2)
            usual = np.sum(weights * turned, 1) / sums[:, -1]
            score += np.sum(turned[rows, k] - usual[:, None], 1)
            x, moved = x[rows, k], moved[rows, k]
        return total, score, slope

    def exact(p: float) -> float:
        # The filter is unbiased for the likelihood of a linear model with Gaussian noise, which the Kalman filter computes.
        mean, variance, total = 0.0, 0.0, 1.0
        for y in seen:
            mean, variance = p * mean, p * p * variance + pull**2
            spread = variance + 1.0
            total *= math.exp(-0.5 * (y - mean) ** 2 / spread) / math.sqrt(spread)
            gain = variance / spread
            mean, variance = mean + gain * (y - mean), (1.0 - gain) * variance
        return total

    return Work(sample, plain, exact, 0.8)


WORKS = {"random walk": walk, "queue": queue, "epidemic of agents": epidemic, "particle filter": particles}


def _scored(work: Work, rng: Any, samples: int) -> float:
    """Return the estimate by the score function, with the mean of the others as the baseline."""
    results, score, *path = work.plain(work.parameter, rng, samples)
    others = (np.sum(results) - results) / (samples - 1)
    return float(np.mean((results - others) * score) + (np.mean(path[0]) if path else 0.0))


def _time(call: Callable[[], Any], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--works", default=",".join(WORKS))
    options = parser.parse_args()
    print("| work | exact | mean of estimates | standard errors off | variance / score function's | ", end="")
    print("time / NumPy's samples | / compiled samples |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in options.works.split(","):
        print(_row(name, options.samples, options.rounds), flush=True)


def _row(name: str, samples: int, rounds: int) -> str:
    """Measure a work, and return its line of the table."""
    work, rng = WORKS[name](), np.random.default_rng(1)
    mean = gt.expectation(work.sample, samples, rng=rng)
    both = gt.value_and_grad(mean)
    p, h = work.parameter, 1e-5
    both(p), mean(p)
    found = np.array([both(p)[1] for _ in range(rounds)])
    scored = np.array([_scored(work, rng, samples) for _ in range(rounds)])
    error = np.std(found, ddof=1) / math.sqrt(rounds)
    exact = (work.exact(p + h) - work.exact(p - h)) / (2.0 * h)
    off = abs(np.mean(found) - exact) / error
    ratio = np.var(found, ddof=1) / np.var(scored, ddof=1)
    ratio_error = ratio * math.sqrt(
        4.0 / (rounds - 1)
    )  # each variance has the relative error sqrt(2 / (rounds - 1))
    with_slope, alone = _time(lambda: both(p)), _time(lambda: mean(p))
    plain = _time(lambda: work.plain(p, rng, samples))
    return (
        f"| {name} | {exact:.5f} | {np.mean(found):.5f} ± {error:.5f} | {off:.1f} | {ratio:.4f} ± {ratio_error:.4f} | "
        f"{with_slope / plain:.1f} | {with_slope / alone:.1f} |"
    )


if __name__ == "__main__":
    main()
