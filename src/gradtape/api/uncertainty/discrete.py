"""Discrete distributions with traced parameters in functions of `expectation`: quantiles of uniform numbers.

With the same uniform number and other parameters, the outcome is the same or a neighbour: so two runs that differ in one decision stay
close (a coupling). The numbers are not those that NumPy draws from the same state of a generator, but have the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.uncertainty.decisions import Decision, still
from gradtape.trace.array.handle import Handle
from gradtape.trace.random.distributions import as_shape, shape_of
from gradtape.trace.random.lanes import Lanes

RULES: Final[dict[str, Callable[..., Any]]] = {}
"""``(lanes, call, *parameters)`` by the name of the method."""


def _rule(function: Callable[..., Any]) -> Callable[..., Any]:
    RULES[function.__name__] = function
    return function


def _uniform(call: Any, size: Any, *parameters: Any) -> Any:
    """Draw uniform numbers, of the shape that the method would return."""
    return call("random", size=shape_of(size, *parameters))


def _entered(
    lanes: Lanes, k: Any, other: Callable[[Any], Any], weight: Any, importance: Any, has_other: Any = True
) -> Any:
    """Enter the decision between k and another outcome."""
    lanes.decisions.append(Decision(k.value, other, None, None, None, weight, importance, has_other))
    return k


def _next(k: Any) -> Any:
    return k + 1


def _quantile(u: Any, start: Any, below: Callable[[Any], Any]) -> Any:
    """Return the smallest integer k with ``F(k) >= u``, given a real number near it."""
    k = np.maximum(np.ceil(start), 0.0)
    return np.where((k > 0.0) & (below(np.maximum(k - 1.0, 0.0)) >= u), k - 1.0, k)


@_rule
def poisson(lanes: Lanes, call: Any, lam: Any = 1.0, size: Any = None) -> Any:
    """``dF(k) = -P(k) d lam``."""
    from scipy import special

    u = _uniform(call, size, lam)
    rate = np.broadcast_to(still(lam), u.shape)
    safe = np.where(rate > 0.0, rate, 1.0)
    found = _quantile(u, special.pdtrik(u, safe), lambda k: special.pdtr(k, safe))
    k = np.where(rate > 0.0, found, 0.0).astype(np.int64)
    return _entered(lanes, k, _next, np.broadcast_to(lam, u.shape), rate)


@_rule
def binomial(lanes: Lanes, call: Any, n: Any, p: Any, size: Any = None) -> Any:
    """``dF(k) = -P(k) (n - k) / (1 - p) dp``."""
    from scipy import special

    u = _uniform(call, size, n, p)
    count = np.broadcast_to(still(n), u.shape)
    chance = np.broadcast_to(still(p), u.shape)
    is_inner = (count > 0) & (chance > 0.0) & (chance < 1.0)
    trials = np.where(is_inner, count * 1.0, 1.0)
    safe = np.where(is_inner, chance, 0.5)
    found = _quantile(
        u,
        special.bdtrik(u, trials, safe),
        lambda k: special.betaincc(k + 1.0, np.maximum(trials - k, 0.5), safe),
    )
    sure = np.where(chance >= 1.0, count * 1.0, 0.0)
    k = np.where(is_inner, np.minimum(found, trials), sure).astype(np.int64)
    # All succeed where p is 1; then the outcome with one less takes the place of k + 1.
    is_sure = chance >= 1.0
    factor = np.where(is_sure, -count * 1.0, (count - k) / np.where(is_sure, 1.0, 1.0 - chance))
    has_other = is_sure | (k < count)

    def other(k: Any) -> Any:
        return np.where(is_sure, np.maximum(k - 1, 0), np.minimum(k + 1, count))

    return _entered(lanes, k, other, factor * np.broadcast_to(p, u.shape), np.abs(factor) * chance, has_other)


@_rule
def geometric(lanes: Lanes, call: Any, p: Any, size: Any = None) -> Any:
    """``dF(k) = k (1 - p)**(k - 1) dp = P(k) k / p dp``."""
    u = _uniform(call, size, p)
    chance = np.broadcast_to(still(p), u.shape)
    safe = np.where(chance < 1.0, chance, 0.5)
    found = np.maximum(np.ceil(np.log1p(-u) / np.log1p(-safe)), 1.0)
    k = np.where(chance < 1.0, found, 1.0).astype(np.int64)
    return _entered(lanes, k, _next, -k / chance * np.broadcast_to(p, u.shape), k * 1.0)


@_rule
def choice(
    lanes: Lanes,
    call: Any,
    a: Any,
    size: Any = None,
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    shuffle: bool = True,
) -> Any:
    """Where a uniform number is among the cumulative probabilities, as in NumPy."""
    count = int(a) if not isinstance(a, Handle) and np.ndim(a) == 0 else np.shape(a)[axis]
    if p is None or not replace:
        k = call("choice", count, size, replace, **({} if p is None else {"p": p}))
    else:
        sums = np.cumsum(p)
        u = call("random", size=None if size is None else as_shape(size))
        k = np.searchsorted(sums / sums[-1], u, side="right")
    return k if np.ndim(a) == 0 else np.take(a, k, axis=axis)
