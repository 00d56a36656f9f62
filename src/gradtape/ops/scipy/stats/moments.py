"""Moments and entropies of distributions, continuous and discrete: `scipy.stats.rv_generic`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.elementwise.floats import isinf
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.stats.parameters import Parameters, finish, of_parsed


class _Moments:
    """Mean, variance, skewness and excess kurtosis of a standard distribution, computed where they are needed.

    Attributes
    ----------
    known : dict
        What ``_stats`` returns, by letter.
    """

    def __init__(self, distribution: Any, shapes: tuple[Any, ...], letters: str) -> None:
        self._distribution = distribution
        self._shapes = shapes
        named = {"moments": letters} if distribution._stats_has_moments else {}
        moments = HOOKS.call(distribution._stats, *shapes, **named)
        self._known = dict(zip("mvsk", moments, strict=True))

    def raw(self, n: int) -> Any:
        """Return the moment of order n about the origin, by the private method."""
        return HOOKS.call(self._distribution._munp, n, *self._shapes)

    def __getitem__(self, letter: str) -> Any:
        moment = self._known[letter]
        if moment is None:
            moment = self._known[letter] = getattr(self, f"_{letter}")()
        return as_array(moment)

    def has(self, letters: str) -> bool:
        """Return whether ``_stats`` returned these."""
        return all(self._known[letter] is not None for letter in letters)

    def _m(self) -> Any:
        return self.raw(1)

    def _v(self) -> Any:
        mean = self["m"]
        return where(isinf(mean), np.inf, as_array(self.raw(2)) - mean * mean)

    def _s(self) -> Any:
        mean, variance = self["m"], self["v"]
        third = (-mean * mean - 3 * variance) * mean + as_array(self.raw(3))
        return third / power(variance, 1.5)

    def _k(self) -> Any:
        mean, variance = self["m"], self["v"]
        third = self["s"] * power(variance, 1.5)
        fourth = ((-mean * mean - 6 * variance) * mean - 4 * third) * mean + as_array(self.raw(4))
        return fourth / (variance * variance) - 3.0

    def about_origin(self, n: int) -> Any:
        """Return the moment of order n about the origin: from the moments above, where they are known."""
        if n == 0:
            return as_array(1.0)
        if n > 4 or not self.has("mvsk"[:n]):
            return as_array(self.raw(n))
        mean = self["m"]
        if n == 1:
            return mean
        variance = self["v"]
        if n == 2:
            return variance + mean * mean
        third = self["s"] * power(variance, 1.5)
        if n == 3:
            return third + 3 * mean * variance + mean * mean * mean
        fourth = (self["k"] + 3.0) * variance * variance
        return fourth + 4 * mean * third + 6 * mean * mean * variance + mean * mean * mean * mean


@borrows("scipy.stats._distn_infrastructure.rv_generic.stats")
def stats(self: Any, *args: Any, **kwds: Any) -> Any:
    """Follow the method of `scipy.stats.rv_generic`."""
    shapes, loc, scale, letters = self._parse_args_stats(*args, **kwds)
    parameters = of_parsed(self, shapes, loc, scale)
    moments = _Moments(self, parameters.shapes, letters)
    results = tuple([_scaled(letter, moments[letter], parameters) for letter in "mvsk" if letter in letters])
    return results[0] if len(results) == 1 else results


def _scaled(letter: str, moment: Value, parameters: Parameters) -> Value:
    if letter == "m":
        moment = moment * parameters.scale + parameters.loc
    elif letter == "v":
        moment = moment * parameters.scale * parameters.scale
    return finish(moment, parameters)


@borrows("scipy.stats._distn_infrastructure.rv_generic.std")
def std(self: Any, *args: Any, **kwds: Any) -> Value:
    """Follow the method of `scipy.stats.rv_generic`."""
    variance = stats(self, *args, **{**kwds, "moments": "v"})
    return sqrt(variance)


@borrows("scipy.stats._distn_infrastructure.rv_generic.entropy")
def entropy(self: Any, *args: Any, **kwds: Any) -> Value:
    """Follow the method of `scipy.stats.rv_generic`."""
    parameters = of_parsed(self, *self._parse_args(*args, **kwds))
    return finish(as_array(HOOKS.call(self._entropy, *parameters.shapes)) + log(parameters.scale), parameters)


@borrows("scipy.stats._distn_infrastructure.rv_generic.moment")
def moment(self: Any, order: Any, *args: Any, **kwds: Any) -> Value:
    """Follow the method of `scipy.stats.rv_generic`: the binomial expansion of E[(loc + scale Y)**n]."""
    if isinstance(order, Value) or math.floor(order) != order or order < 0:
        raise ArgumentError(
            f"the order of a moment is {order}",
            where=here.site,
            remedy="pass an integer that is not negative",
        )
    n = int(order)
    parameters = of_parsed(self, *self._parse_args(*args, **kwds))
    letters = {1: "m", 2: "v", 3: "vs", 4: "mvsk"}.get(n, "mvsk")
    moments = _Moments(self, parameters.shapes, letters)
    total: Any = 0.0
    for k in range(n + 1):
        factor = math.comb(n, k) * power(parameters.loc, float(n - k)) if k < n else 1.0
        total = total + factor * power(parameters.scale, float(k)) * moments.about_origin(k)
    return finish(total, parameters)
