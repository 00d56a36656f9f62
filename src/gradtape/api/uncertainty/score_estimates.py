"""The score function with martingales as control variates, joined with the differences of decisions.

Of a comparison of a uniform number with a threshold r, the outcome less its probability, ``b - r``, has the mean 0 whatever came before.
So has its product with any function of what came before: the increment of a martingale. All control variates are sums of such
(S. Henderson and P. Glynn, "Approximating Martingales for Variance Reduction in Markov Process Simulation", 2002), and if decisions are
all that is random, one of them takes away all of the variance. The functions are linear in r and in a few numbers of the program that
describe the state. They are fitted by least squares to the other half of the samples, so no bias is left. There are two for each
comparison:

- A, by which the result f changes with the outcome. ``f - sum A (b - r)`` has less variance, and of decision i the score function has the
  expectation ``A dr`` instead of ``A (b - r)`` times the score;
- B, by which the derivative that is so estimated changes with the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.uncertainty.control_variates import Known
from gradtape.api.uncertainty.decisions import still
from gradtape.ir.op import NDArray

ENOUGH: Final = 10
"""Samples per factor from which on the score function is fitted."""

FITTED: Final = 8
"""Samples per factor to which the estimate is fitted at most, in each half."""

SWEEPS: Final = 4
"""Iterations of conjugate gradients for the factors: they need not be exact."""


ALIKE: Final = 1e-9
"""The variance of a number over samples, in squares of its size, below which it counts as the same in all."""


class Steps(NamedTuple):
    """What is the same in all samples of the steps of `Known`.

    Attributes
    ----------
    sizes : sequence of int
        How many elements each comparison has; these share factors.
    anchor : int
        A decision whose weight does not depend on the steps of `behind`: their control variates are attached to it.
    behind : ndarray
        Which elements beside the decisions are part of derivatives.
    """

    sizes: Sequence[int]
    anchor: int
    behind: NDArray

    def pooled(self, x: Any) -> Any:
        """Return the sums over the elements of each comparison; the last axis is that of elements."""
        parts, start = [], 0
        for size, alike in groupby(self.sizes):
            count = len(list(alike))
            part = x[..., start : start + count * size]
            parts.append(
                part if size == 1 else np.sum(np.reshape(part, (*x.shape[:-1], count, size)), axis=-1)
            )
            start += count * size
        return np.concatenate(parts, axis=-1)

    def spread(self, x: Any) -> Any:
        """Return, for each element, the number of its comparison."""
        return np.repeat(x, self.sizes, axis=-1)


class _Half(NamedTuple):
    """Numbers of some samples; axes of samples, results, and decisions (`result`: no decisions).

    `increment`, `scale` and `state` have the decisions that are steps, which are the first ones, and then the other steps; `ratio` has the
    former alone. Derivatives have the increment times `scale`.
    """

    result: Any
    change: Any
    usual: Any
    inverse: Any
    sizes: Any
    ratio: Any = None
    increment: Any = None
    scale: Any = None
    state: Any = ()

    def cut(self, start: int, stop: int) -> _Half:
        """Return these of fewer samples."""
        parts: list[Any] = [None if x is None else x[start:stop] for x in self[:-1]]
        return _Half._make([*parts, [x[start:stop] for x in self.state]])


class _Fit(NamedTuple):
    """How estimates are combined.

    Attributes
    ----------
    trust : Array
        Factor of the usual changes.
    mean : Array or None
        The mean of the results, None without the score function.
    middles : list of Array
        The means of the state, of each element.
    of_result, of_estimate : list of Array or None
        The factors A and B: of a constant, and of each number of the state; axes of results and elements.
    share : Array or None
        The part of the score function in the estimate.
    """

    trust: Any
    mean: Any = None
    middles: Any = ()
    of_result: Any = ()
    of_estimate: Any = ()
    share: Any = None


def combined(known: Known, steps: Steps | None, results: Sequence[Any], changes: Sequence[Any]) -> list[Any]:
    """Return by what the derivatives of the weights of all decisions are multiplied, for each result.

    Parameters
    ----------
    known : Known
        The first axis of all arrays here is that of samples.
    steps : Steps or None
        What is known of its steps, if it has some.
    results : sequence of Array
        Those of the samples.
    changes : sequence of Array
        By what the results change with the decision that is chosen, divided by the probability of the choice.
    """
    samples, count = known.sizes.shape
    inverse = np.where(np.arange(count) == known.chosen[:, None], known.inverse[:, None], 0.0)
    shared = [still(x)[:, None] for x in (inverse, known.sizes)]
    factors = count if steps is None else len(known.steps) * len(steps.sizes)
    if steps is not None and samples >= ENOUGH * factors:
        shared += _of_steps(known, steps)
    else:
        steps = None
    every = []
    for result, change, usual in zip(results, changes, known.usual, strict=True):
        flat = [still(np.reshape(x, (samples, -1, *x.shape[result.ndim :]))) for x in (result, change, usual)]
        whole, middle = _Half(*flat, *shared), samples // 2
        if not middle:
            found = _differences(whole, 1.0)
        else:
            # Each half is combined as fits the other one, which is independent: so there is no bias.
            most = FITTED * factors
            of_first = _fit(whole.cut(0, min(middle, most)), steps)
            of_second = _fit(whole.cut(middle, min(samples, middle + most)), steps)
            found = np.concatenate(
                [
                    _factors(whole.cut(0, middle), of_second, steps),
                    _factors(whole.cut(middle, samples), of_first, steps),
                ]
            )
        every.append(np.reshape(found, (*result.shape, -1)))
    return every


def _of_steps(known: Known, steps: Steps) -> list[Any]:
    """Return the last four attributes of `_Half`."""
    increment, *state = [still(x) for x in known.steps]
    count, sizes = increment.shape[1] - len(steps.behind), np.abs(still(known.sizes))
    chance = state[0][:, :count]
    scale = sizes[:, :count] / (chance * (1.0 - chance))
    if len(steps.behind):
        scale = np.concatenate([scale, sizes[:, steps.anchor, None] * steps.behind], axis=1)
    return [still(known.ratio)[:, None, :count], increment, scale, state]


def _ratio(above: Any, below: Any, otherwise: float = 0.0) -> Any:
    return np.where(below > 0.0, above / np.where(below > 0.0, below, 1.0), otherwise)


def _differences(half: _Half, trust: Any) -> Any:
    """Return the factors of all weights, by differences: the usual changes, and what is wrong of the one that is chosen."""
    usual = trust * half.usual
    return usual + np.where(half.inverse > 0.0, half.change - usual * half.inverse, 0.0)


def _least_squares(increment: Any, state: Sequence[Any], steps: Steps, targets: Any) -> tuple[list[Any], Any]:
    """Fit targets by increments times functions that are linear in the state, by conjugate gradients.

    Returns
    -------
    factors : list of Array
        Of the constant, and of each number of the state; axes of targets and elements.
    rest : Array
        The targets less their means, and less what is fitted.
    """
    table = np.concatenate([steps.pooled(x) for x in (increment, *[increment * x for x in state])], axis=1)
    inverse = _ratio(1.0, np.sqrt(np.sum(table**2, axis=0)))
    left = targets - np.mean(targets, axis=0)
    x = np.zeros((targets.shape[1], table.shape[1]))
    slope = (left.T @ table) * inverse
    ahead, size = slope, np.sum(slope**2, axis=1, keepdims=True)
    for _ in range(SWEEPS):
        moved = table @ (ahead * inverse).T
        step = _ratio(size, np.sum(moved**2, axis=0)[:, None])
        x, left = x + step * ahead, left - moved * step.T
        slope = (left.T @ table) * inverse
        after = np.sum(slope**2, axis=1, keepdims=True)
        ahead, size = slope + _ratio(after, size) * ahead, after
    x, groups = x * inverse, len(steps.sizes)
    return [steps.spread(x[:, start : start + groups]) for start in range(0, x.shape[1], groups)], left


def _varying(x: Any, middle: Any, squares: Any, steps: Steps) -> Any:
    """Return ``x - middle``; 0 in groups where that is the rounding of a number that is the same in all samples."""
    apart = x - middle
    spread, size = (steps.pooled(np.sum(squares * y**2, axis=0)) for y in (apart, x))
    return np.where(steps.spread(spread > ALIKE * size), apart, 0.0)


def _fit(half: _Half, steps: Steps | None) -> _Fit:
    expected = np.sum(half.usual * half.inverse, axis=-1, keepdims=True)
    weight = np.sum((half.sizes * (half.inverse > 0.0)) ** 2, axis=-1, keepdims=True)
    products = np.sum(half.change * expected * weight, axis=0)
    trust = _ratio(products, np.sum(expected**2 * weight, axis=0), 1.0)
    if steps is None:
        return _Fit(trust)
    squares = half.increment**2
    total = steps.pooled(np.sum(squares, axis=0))
    middles = [steps.spread(_ratio(steps.pooled(np.sum(squares * x, axis=0)), total)) for x in half.state]
    state = [_varying(x, middle, squares, steps) for x, middle in zip(half.state, middles, strict=True)]
    of_result, _ = _least_squares(half.increment, state, steps, half.result)
    fit = _Fit(trust, np.mean(half.result, axis=0), middles, of_result)
    by_differences = _differences(half, trust) * half.sizes
    count = half.ratio.shape[-1]
    apart = _scores(half, fit) * half.sizes[..., :count] - by_differences[..., :count]
    estimates = [np.sum(by_differences, axis=-1), np.sum(np.where(half.ratio != 0.0, apart, 0.0), axis=-1)]
    found, left = _least_squares(half.increment * half.scale, state, steps, np.concatenate(estimates, axis=1))
    results = half.result.shape[1]
    rest, apart = left[:, :results], left[:, results:]
    share = np.clip(-_ratio(np.sum(rest * apart, axis=0), np.sum(apart**2, axis=0)), 0.0, 1.0)[:, None]
    return fit._replace(of_estimate=[x[:results] + share * x[results:] for x in found], share=share)


def _values(half: _Half, fit: _Fit, factors: Sequence[Any]) -> Any:
    """Return functions of the state; axes of samples, results and elements."""
    pairs = zip(factors[1:], half.state, fit.middles, strict=True)
    return sum([factor * (x - middle)[:, None] for factor, x, middle in pairs], factors[0])


def _scores(half: _Half, fit: _Fit) -> Any:
    """Return the factors of the weights of the decisions that are steps, by the score function; meaningless where `ratio` is 0."""
    values, increment = _values(half, fit, fit.of_result), half.increment[:, None]
    rest = half.result - fit.mean - np.sum(values * increment, axis=-1)
    expected = np.where(increment > 0.0, -values, values)[..., : half.ratio.shape[-1]]
    return expected + half.ratio * rest[..., None]


def _factors(half: _Half, fit: _Fit, steps: Steps | None) -> Any:
    """Return the factors of the weights of some samples."""
    factors = _differences(half, fit.trust)
    if steps is None:
        return factors
    count = half.ratio.shape[-1]
    values = _values(half, fit, fit.of_estimate)
    first = factors[..., :count]
    both = (1.0 - fit.share) * first + fit.share * _scores(half, fit) - half.ratio * values[..., :count]
    factors = np.concatenate([np.where(half.ratio != 0.0, both, first), factors[..., count:]], axis=-1)
    if not len(steps.behind):
        return factors
    behind = half.increment * (half.scale > 0.0)
    attached = np.sum((values * behind[:, None])[..., count:], axis=-1, keepdims=True)
    is_anchor = np.arange(half.sizes.shape[-1]) == steps.anchor
    return factors - np.where(is_anchor, np.sign(half.sizes), 0.0) * attached
