"""The score function with martingales as control variates, joined with the differences of decisions.

Of a comparison of a uniform number with a threshold r, the outcome less its probability, ``b - r``, has the mean 0 whatever came before.
So has its product with any function of what came before: the increment of a martingale. All control variates are sums of such
(S. Henderson and P. Glynn, "Approximating Martingales for Variance Reduction in Markov Process Simulation", 2002), and if decisions are
all that is random, one of them takes away all of the variance. The functions are polynomials in a few numbers of the program that
describe the state. They are fitted by least squares to other samples, so no bias is left. There are two for each comparison:

- A, by which the result f changes with the outcome. ``f - sum A (b - r)`` has less variance, and of decision i the score function has the
  expectation ``A dr`` instead of ``A (b - r)`` times the score;
- B, by which the derivative of a sample changes with the outcome. Least squares are linear in what is fitted, so ``sum B (b - r)`` over
  some samples is a weighted sum of the derivatives of those to which B is fitted, and the estimate is a weighted mean. Its weights are the
  same for all parameters (J.-C. Deville and C.-E. Särndal, "Calibration Estimators in Survey Sampling", 1992).

There are three parts of the samples. In each, A is fitted to the next part, and B to the derivatives of the next part, where A is fitted to
the one after that: nothing is fitted to what it is subtracted from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.api.uncertainty.control_variates import Known, Track
from gradtape.api.uncertainty.decisions import still

PARTS: Final = 3
"""Into how many parts samples are divided."""

ENOUGH: Final = 10
"""Samples per factor from which on the score function is fitted."""

ENOUGH_FOR_SQUARES: Final = 20
"""Samples per factor from which on squares and products of the state have factors."""

FITTED: Final = 16
"""Samples per factor to which the estimate is fitted at most, in each part; see `FITTED_AT_LEAST`."""

FITTED_AT_LEAST: Final = 2000
"""Samples of each part to which the estimate is fitted, if there are as many: states that are rare are among them."""

ALIKE: Final = 1e-9
"""The variance of a number over samples, in squares of its size, below which it counts as the same in all."""

RIDGE: Final = 1e-3
"""What is added to the diagonal of the normal equations, whose diagonal is 1: functions that are nearly the same share a factor, which
holds in states that are rare as well."""


class Steps(NamedTuple):
    """The part of the steps of `Known` that all samples share.

    Attributes
    ----------
    comparisons : int
        How many there are.
    sizes : sequence of int
        How many elements each of the first ones has, which are decisions; these share factors.
    controls : int
        How many of the last ones are controls (see `Control`), which move with the parameters.
    """

    comparisons: int
    sizes: Sequence[int]
    controls: int

    @property
    def decisions(self) -> int:
        """How many elements are decisions."""
        return sum(self.sizes)

    def spread(self, x: Any) -> Any:
        """Return, for each element that is a decision, the number of its comparison."""
        return np.repeat(x[..., : len(self.sizes)], self.sizes, axis=-1)


class _Part(NamedTuple):
    """Numbers of some samples; axes of samples, results, and decisions (`result`: no decisions).

    `ratio` has the decisions that are steps, which are the first ones, as `own` has. See `Track` for the others.
    """

    result: Any
    change: Any
    usual: Any
    inverse: Any
    sizes: Any
    is_scored: Any = None
    score_size: Any = None
    ratio: Any = None
    totals: Any = None
    products: Any = ()
    shared: Any = ()
    own: Any = ()

    def cut(self, start: int, stop: int) -> _Part:
        """Return these of fewer samples."""

        def of(x: Any) -> Any:
            return list(map(of, x)) if isinstance(x, list | tuple) else None if x is None else x[start:stop]

        return _Part._make(map(of, self))

    @property
    def samples(self) -> int:
        """How many samples these are."""
        return int(self.result.shape[0])


class _Scale(NamedTuple):
    """Middle of numbers, and the inverse of how far they are spread; for each comparison."""

    middle: Any
    inverse: Any


class _Fit(NamedTuple):
    """How estimates are combined.

    Attributes
    ----------
    trust : Array
        Factor of the usual changes.
    mean : Array or None
        The mean of the results, None without the score function.
    shared : list of _Scale
        Those of the state.
    factors : Array or None
        A: axes of functions of the state, of comparisons, and of results.
    share : Array or None
        The part of the score function in the estimate.
    table : Array or None
        The increments times functions of the state, less their means.
    solve : callable or None
        Solves the normal equations.
    """

    trust: Any
    mean: Any = None
    shared: Sequence[_Scale] = ()
    factors: Any = None
    share: Any = None
    table: Any = None
    solve: Callable[[Any], Any] | None = None


def combined(
    observed: Known, steps: Steps | None, results: Sequence[Any], changes: Sequence[Any]
) -> tuple[list[Any], Any, list[tuple[Any, Any]] | None]:
    """Return by what the derivatives of the weights of all decisions are multiplied, for each result, and the weights of the samples.

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

    Returns
    -------
    factors : list of Array
        For each result and decision.
    share : Array or None
        The weights of the samples.
    scores : list of (Array, Array) or None
        For each result: further weights, and by what their derivatives are multiplied; if there are controls.
    """
    samples, count = observed.sizes.shape
    inverse = np.where(np.arange(count) == observed.chosen[:, None], observed.inverse[:, None], 0.0)
    shared: list[Any] = [still(x)[:, None] for x in (inverse, observed.sizes)]
    is_square, factors, track = False, count, None
    if steps is not None and observed.track is not None:
        track = Track(*observed.track)
        steps, track = _within(steps, track, samples)
    if steps is not None and track is not None:
        squares, factors = [steps.comparisons * _number_of_functions(track, flag) for flag in (True, False)]
        is_square = samples >= ENOUGH_FOR_SQUARES * squares
        factors = squares if is_square else factors
        numbers = [[still(x) for x in part] for part in track[1:]]
        if steps.controls and observed.is_scored is not None:
            shared += [observed.is_scored[:, None], still(observed.score_size)[:, None]]
        else:
            shared += [None, None]
        ratio = (
            np.zeros((samples, 0)) if observed.ratio is None else still(observed.ratio)[:, : steps.decisions]
        )
        shared += [ratio[:, None], still(track.totals), *numbers]
    flat = [
        [still(np.reshape(x, (samples, -1, *x.shape[result.ndim :]))) for x in (result, change, usual)]
        for result, change, usual in zip(results, changes, observed.usual, strict=True)
    ]
    complete = _Part(*[np.concatenate(each, axis=1) for each in zip(*flat, strict=True)], *shared)
    if samples < PARTS:
        return _as_results(_differences(complete, 1.0), results), None, None
    ends = [samples * number // PARTS for number in range(PARTS + 1)]
    parts = [complete.cut(start, stop) for start, stop in pairwise(ends)]
    most = max(FITTED * factors, FITTED_AT_LEAST)
    fits = [_fit(part.cut(0, min(part.samples, most)), steps, is_square) for part in parts]
    fits = fits[1:] + fits[:1]
    pairs = list(zip(parts, fits, strict=True))
    if steps is None:
        return (
            _as_results(np.concatenate([_differences(part, fit.trust) for part, fit in pairs]), results),
            None,
            None,
        )
    rests = [_rest(*pair, is_square) for pair in pairs]
    factors_of_all = np.concatenate(
        [_factors(*pair, residual, steps, is_square) for pair, residual in zip(pairs, rests, strict=True)]
    )
    weights = [_weights(*pair, is_square) for pair in pairs]
    weights = weights[-1:] + weights[:-1]
    shares = [
        np.concatenate([1.0 - x, np.ones(part.samples - x.size)])
        for x, part in zip(weights, parts, strict=True)
    ]
    scores = None
    if steps.controls and track is not None:
        cuts = [(slice(start, stop), fit) for (start, stop), fit in zip(pairwise(ends), fits, strict=True)]
        moved = np.concatenate([_of_controls(track, columns, fit, steps, is_square) for columns, fit in cuts])
        pressed = np.concatenate(
            [fit.share[:, 0] * residual for fit, residual in zip(fits, rests, strict=True)]
        )
        trusted = np.concatenate(
            [fit.share[:, 0] + np.zeros(residual.shape) for fit, residual in zip(fits, rests, strict=True)]
        )
        log_chance = np.zeros(samples) if observed.log_chance is None else observed.log_chance
        scores = _by_result(log_chance, moved, pressed, trusted, results)
    return _as_results(factors_of_all, results), np.concatenate(shares) / samples, scores


def _within(steps: Steps, track: Track, samples: int) -> tuple[Steps | None, Track]:
    """Return the steps for whose factors there are enough samples: all of them, those without controls, or none."""
    if samples >= ENOUGH * steps.comparisons * _number_of_functions(track, False):
        return steps, track
    plain_comparisons = steps.comparisons - steps.controls
    if steps.controls and plain_comparisons:
        products, shared = [
            [x[:, :plain_comparisons] for x in part] for part in (track.products, track.shared)
        ]
        fewer = Track(track.totals[:, :plain_comparisons], products, shared, track.own)
        return _within(Steps(plain_comparisons, steps.sizes, 0), fewer, samples)
    return None, track


def _of_controls(track: Track, rows: slice, fit: _Fit, steps: Steps, is_square: bool) -> Any:
    """Return the part of the results that is fitted by controls, which has their derivatives."""
    last = slice(steps.comparisons - steps.controls, None)
    empty: list[Any] = [None] * 5
    part = _Part(*empty)._replace(
        totals=track.totals[rows, last],
        products=[x[rows, last] for x in track.products],
        shared=[x[rows, last] for x in track.shared],
        own=track.own,
    )
    scales = [_Scale(scale.middle[last], scale.inverse[last]) for scale in fit.shared]
    return _fitted(part, fit._replace(shared=scales, factors=fit.factors[:, last]), is_square)


def _by_result(
    log_chance: Any, moved: Any, remainder: Any, trusted: Any, results: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """Return the weights of the score function, and by what they are multiplied, for each result."""
    pairs, start = [], 0
    for result in results:
        size = int(np.prod(result.shape[1:]))
        here = slice(start, start + size)
        score = np.broadcast_to(log_chance[:, None], (result.shape[0], size))
        weight = np.stack([score, moved[:, here]], axis=-1)
        factor = np.stack([remainder[:, here], -trusted[:, here]], axis=-1)
        shape = (*result.shape, 2)
        pairs.append((np.reshape(weight, shape), np.reshape(factor, shape)))
        start += size
    return pairs


def _as_results(factors: Any, results: Sequence[Any]) -> list[Any]:
    """Return the factors of each result, given those of all of them."""
    parts, start = [], 0
    for result in results:
        size = int(np.prod(result.shape[1:]))
        parts.append(np.reshape(factors[:, start : start + size], (*result.shape, factors.shape[-1])))
        start += size
    return parts


def _number_of_functions(track: Track, is_square: bool) -> int:
    """Return how many functions of the state each comparison has; see `_functions`."""
    shared, own_count = len(track.shared), len(track.own)
    return 1 + shared + own_count + is_square * (shared * (shared + 1) // 2 + min(own_count, 1) * shared)


def _ratio(above: Any, below: Any, otherwise: float = 0.0) -> Any:
    return np.where(below > 0.0, above / np.where(below > 0.0, below, 1.0), otherwise)


def _differences(part: _Part, trust: Any) -> Any:
    """Return the factors of all weights, by differences: the usual changes, and what is wrong of the one that is chosen."""
    usual = trust * part.usual
    return usual + np.where(part.inverse > 0.0, part.change - usual * part.inverse, 0.0)


def _scale(x: Any) -> _Scale:
    """Return where numbers are; they count as 0 if they are the same in all samples."""
    middle = np.mean(x, axis=0)
    spread, size = np.mean((x - middle) ** 2, axis=0), np.mean(x**2, axis=0)
    return _Scale(middle, np.where(spread > ALIKE * size, _ratio(1.0, np.sqrt(spread)), 0.0))


def _scaled(x: Any, scale: _Scale) -> Any:
    return (x - scale.middle) * scale.inverse


def _functions(part: _Part, fit: _Fit, is_square: bool) -> tuple[list[Any], list[list[Any]]]:
    """Return functions of the state of all comparisons, and those by which each number of the elements is multiplied."""
    shared = [_scaled(x, scale) for x, scale in zip(part.shared, fit.shared, strict=True)]
    pairs = [x * y for position, x in enumerate(shared) for y in shared[position:]] if is_square else []
    return shared + pairs, [shared if is_square and not position else [] for position in range(len(part.own))]


def _columns(part: _Part, fit: _Fit, is_square: bool) -> list[Any]:
    """Return the sums over the elements of comparisons of the increments times functions of the state."""
    of_all, of_own = _functions(part, fit, is_square)
    columns = [part.totals, *[part.totals * x for x in of_all]]
    for x, functions in zip(part.products, of_own, strict=True):
        columns += [x, *[x * y for y in functions]]
    return columns


def _fit(part: _Part, steps: Steps | None, is_square: bool) -> _Fit:
    expected = np.sum(part.usual * part.inverse, axis=-1, keepdims=True)
    weight = np.sum((part.sizes * (part.inverse > 0.0)) ** 2, axis=-1, keepdims=True)
    products = np.sum(part.change * expected * weight, axis=0)
    trust = _ratio(products, np.sum(expected**2 * weight, axis=0), 1.0)
    if steps is None:
        return _Fit(trust)
    fit = _Fit(trust, np.mean(part.result, axis=0), list(map(_scale, part.shared)))
    columns = _columns(part, fit, is_square)
    table = np.concatenate(columns, axis=1)
    norm = _ratio(1.0, np.sqrt(np.sum(table**2, axis=0)))
    unit = table * norm
    matrix = unit.T @ unit + RIDGE * np.eye(table.shape[1])

    def solve(x: Any) -> Any:
        return norm[:, None] * np.linalg.solve(matrix, norm[:, None] * x)

    left = part.result - fit.mean
    factors = solve(table.T @ left)
    fit = fit._replace(table=table - np.mean(table, axis=0), solve=solve)
    fit = fit._replace(factors=np.reshape(factors, (len(columns), steps.comparisons, -1)))
    # By the inverse of the variances; of the score function this is that of what A leaves.
    noise = np.sum(np.where(part.ratio != 0.0, part.ratio * part.sizes[..., : steps.decisions], 0.0), axis=-1)
    differences = _differences(part, trust) * part.sizes
    by_differences = np.sum(differences[..., : steps.decisions], axis=-1)
    if part.is_scored is not None:
        noise = noise + part.score_size
        by_differences = by_differences + np.sum(np.where(part.is_scored, differences, 0.0), axis=-1)
    noise = noise * (left - table @ factors)
    both = np.concatenate([by_differences, noise], axis=1)
    both = both - np.mean(both, axis=0)
    residuals = np.mean((both - table @ solve(table.T @ both)) ** 2, axis=0)
    half = part.result.shape[1]
    return fit._replace(share=_ratio(residuals[:half], residuals[:half] + residuals[half:])[:, None])


def _fitted(part: _Part, fit: _Fit, is_square: bool) -> Any:
    """Return the part of the results that is fitted by increments."""
    columns = _columns(part, fit, is_square)
    parts = [
        sum(np.sum(x * factor, axis=-1) for x, factor in zip(columns, fit.factors[..., result], strict=True))
        for result in range(fit.factors.shape[-1])
    ]
    return np.stack(parts, axis=1)


def _rest(part: _Part, fit: _Fit, is_square: bool) -> Any:
    """Return the residual of the results."""
    return part.result - fit.mean - _fitted(part, fit, is_square)


def _factors(part: _Part, fit: _Fit, remainder: Any, steps: Steps, is_square: bool) -> Any:
    """Return the factors of the weights of some samples."""
    factors = _differences(part, fit.trust)
    if part.is_scored is not None:
        factors = np.where(part.is_scored, (1.0 - fit.share) * factors, factors)
    if not steps.decisions:
        return factors
    first = factors[..., : steps.decisions]
    both = (1.0 - fit.share) * first + fit.share * _scores(part, fit, remainder, steps, is_square)
    return np.concatenate(
        [np.where(part.ratio != 0.0, both, first), factors[..., steps.decisions :]], axis=-1
    )


def _scores(part: _Part, fit: _Fit, remainder: Any, steps: Steps, is_square: bool) -> Any:
    """Return the factors of the weights of the decisions that are steps, by the score function; meaningless where `ratio` is 0."""
    of_all, of_own = _functions(part, fit, is_square)
    every = []
    for result in range(part.result.shape[1]):
        a = fit.factors[..., result]
        value = steps.spread(_polynomial(a, of_all))
        start = 1 + len(of_all)
        for x, functions in zip(part.own, of_own, strict=True):
            value = value + x * steps.spread(_polynomial(a[start:], functions))
            start += 1 + len(functions)
        signs = np.sign(part.sizes[:, 0, : steps.decisions])
        every.append(signs * value + part.ratio[:, 0] * remainder[:, result, None])
    return np.stack(every, axis=1)


def _polynomial(factors: Any, functions: Sequence[Any]) -> Any:
    """Return the first factor, and the next ones times functions."""
    return sum([x * factor for x, factor in zip(functions, factors[1:], strict=False)], factors[:1])


def _weights(part: _Part, fit: _Fit, is_square: bool) -> Any:
    """Return what weight the derivatives of the samples of `fit` have in ``sum B (b - r)`` over other samples."""
    assert fit.solve is not None
    sums = np.concatenate([np.sum(x, axis=0) for x in _columns(part, fit, is_square)])
    return fit.table @ fit.solve(sums[:, None])[:, 0]
