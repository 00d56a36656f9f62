"""Functions of samples in `scipy.stats`, in place of private routines that select elements by conditions or are compiled.

Ranks are functions of the order of numbers, which compiled programs sort too. They are steps: their derivative is zero.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.errors import ConcretizationError
from gradtape.trace.array.handle import Handle
from gradtape.trace.routines.registry import refused, stands_for


@stands_for("scipy.stats._stats_py._rankdata")
def rankdata(x: Any, method: str, *flags: Any, **options: Any) -> Any:
    """Follow the private function: the ranks along the last axis, and how often each number occurs, at its first place in the order.

    Since SciPy 1.18 it returns the ordered numbers as well, and ranks that are floating-point numbers.
    """
    routine = sys.modules["scipy.stats._stats_py"]._rankdata
    arguments = inspect.signature(routine).bind(x, method, *flags, **options).arguments
    ranks, ordered, ties = _ranks(x, method)
    if "return_sorted" in inspect.signature(routine).parameters:
        return ranks.astype(x.dtype if x.dtype.kind == "f" else np.float64), ordered, ties
    return (ranks, ties) if arguments.get("return_ties") and method != "ordinal" else ranks


def _ranks(x: Any, method: str) -> tuple[Any, Any, Any]:
    """Return the ranks, the ordered numbers, and how often each occurs.

    The positions in the order that equal numbers share run from the last start of such a group to the next end of one.
    """
    count = x.shape[-1]
    order = np.argsort(x, axis=-1, stable=True)
    rank_order = np.argsort(order, axis=-1, stable=True)
    positions = np.broadcast_to(np.arange(count), x.shape)
    if method == "ordinal":
        return rank_order + 1, None, None
    ordered = np.take_along_axis(x, order, axis=-1)
    edge = np.ones((*x.shape[:-1], 1), np.bool_)
    changes = ordered[..., 1:] != ordered[..., :-1]
    starts = np.concatenate([edge, changes], axis=-1)
    ends = np.concatenate([changes, edge], axis=-1)
    first = np.maximum.accumulate(np.where(starts, positions, 0), axis=-1)
    last = np.flip(
        np.minimum.accumulate(np.flip(np.where(ends, positions, count), axis=-1), axis=-1), axis=-1
    )
    if method == "dense":
        ranks = np.cumsum(starts, axis=-1)
    else:
        ranks = {"min": first, "max": last, "average": (first + last) / 2}[method] + 1
    ranks = np.take_along_axis(ranks, rank_order, axis=-1)
    return ranks, ordered, np.where(starts, last - first + 1, 0) * 1.0


@stands_for("scipy.stats._morestats._log_var")
def log_variance(logx: Any, xp: Any, axis: Any) -> Any:
    """Follow the private function: the logarithm of the variance, given logarithms of the numbers, relative to their mean."""
    count = logx.shape[axis]
    largest = np.max(logx, axis=axis, keepdims=True)
    mean = largest + np.log(np.mean(np.exp(logx - largest), axis=axis, keepdims=True))
    away = np.expm1(logx - mean)
    return 2 * np.squeeze(mean, axis=axis) + np.log(np.sum(away * away, axis=axis) / count)


@stands_for("scipy.stats._morestats._yeojohnson_transform")
def yeo_johnson(x: Any, lmbda: Any, xp: Any = None) -> Any:
    """Follow the private function: ``((1 + x)**lmbda - 1) / lmbda`` to the right of 0, and its mirror image with ``2 - lmbda``."""
    special: Any = sys.modules["scipy.special"]
    right = x >= 0
    level = np.log1p(np.where(right, x, -x))
    size = level * special.exprel(np.where(right, lmbda, 2 - lmbda) * level)
    return np.where(right, size, -size)


@stands_for("scipy.stats._morestats.boxcox_normmax")
def boxcox_parameter(
    x: Any, brack: Any = None, method: str = "pearsonr", optimizer: Any = None, *, ymax: Any = None
) -> Any:
    """Follow `scipy.stats.boxcox_normmax`: where the likelihood, or the correlation with normal quantiles, is largest."""
    stats, special, optimize = (sys.modules[f"scipy.{name}"] for name in ("stats", "special", "optimize"))
    samples: Any = sys.modules["scipy.stats._morestats"]
    if optimizer is not None:
        raise refused(
            "boxcox_normmax with an optimizer",
            "the steps of an optimizer have no derivative rule",
            "omit the optimizer",
        )
    if method not in ("pearsonr", "mle", "all"):
        raise ValueError(f"Method {method} not recognized.")
    if not bool(np.all(np.isfinite(x) & (x >= 0))):
        raise ValueError(
            "The `x` argument of `boxcox_normmax` must contain only positive, finite, real numbers."
        )
    quantiles = stats.norm.ppf(samples._calc_uniform_order_statistic_medians(x.shape[0]))

    def unlike_normal(power: Any) -> Any:
        return 1.0 - stats.pearsonr(quantiles, np.sort(special.boxcox(x, power)))[0]

    def unlikely(power: Any) -> Any:
        variance = np.var(special.boxcox(x, power))
        return x.shape[0] / 2 * np.log(variance) - (power - 1.0) * np.sum(np.log(x))

    objectives = {"pearsonr": [unlike_normal], "mle": [unlikely], "all": [unlike_normal, unlikely]}[method]
    powers = [optimize.brent(objective, brack=brack or (-2.0, 2.0)) for objective in objectives]
    ends = np.stack([np.min(x), np.max(x)])
    largest = np.finfo(x.dtype).max / 10000 if ymax is None or np.isinf(ymax) else ymax
    for power in powers:
        if bool(np.any(np.abs(special.boxcox(ends, power)) > largest)):
            raise refused(
                "boxcox_normmax at a bound", "the transformed numbers would exceed ymax", "scale the numbers"
            )
    return np.stack(powers) if method == "all" else powers[0]


@stands_for("scipy.stats._stats_mstats_common.siegelslopes_pythran")
def repeated_medians(y: Any, x: Any, method: str) -> tuple[Any, Any]:
    """Follow the compiled function: the median over points of the median slopes to the other points."""
    count = len(x)
    others = np.arange(count)[:, None] + np.arange(1, count)
    others = np.where(others >= count, others - count, others)
    across = np.take(x, others) - x[:, None]
    if bool(np.any(across == 0)):
        raise refused("siegelslopes of points that have the same x", "they have no slope", "leave them out")
    slopes = (np.take(y, others) - y[:, None]) / across
    slope = np.median(np.median(slopes, axis=1))
    if method == "hierarchical":
        return slope, np.median(y - slope * x)
    starts = (np.take(x, others) * y[:, None] - np.take(y, others) * x[:, None]) / across
    return slope, np.median(np.median(starts, axis=1))


@stands_for("scipy.stats._morestats.swilk")
def shapiro_wilk(x: Any, a: Any, init: int) -> tuple[Any, Any, int]:
    """Follow the compiled function: algorithm AS R94, in which the coefficients depend on the size only."""
    count = x.shape[0]
    half = np.zeros(count // 2)
    sys.modules["scipy.stats._morestats"].swilk(np.arange(float(count)), half, 0)
    coefficients = np.concatenate([-half, np.zeros(count % 2), half[::-1]])
    coefficients = coefficients - np.mean(coefficients)
    scaled = x / (x[-1] - x[0])
    away = scaled - np.mean(scaled)
    squares, size = np.sum(away * away), np.sum(coefficients * coefficients)
    product, root = np.sum(coefficients * away), np.sqrt(squares * size)
    share = (root - product) * (root + product) / (squares * size)
    ndtr: Any = sys.modules["scipy.special"].ndtr
    if count == 3:
        return 1.0 - share, 6 / np.pi * (np.arcsin(np.sqrt(1.0 - share)) - np.pi / 3), 0
    logarithm = np.log(share)
    if count <= 11:
        bound = 0.459 * count - 2.273
        mean = np.polyval([-6.714e-4, 0.025054, -0.39978, 0.544], count)
        spread = np.exp(np.polyval([-0.0020322, 0.062767, -0.77857, 1.3822], count))
        z = (-np.log(np.where(logarithm < bound, bound - logarithm, 1.0)) - mean) / spread
        return 1.0 - share, np.where(logarithm < bound, ndtr(-z), 1e-99), 0
    mean = np.polyval([0.0038915, -0.083751, -0.31082, -1.5861], np.log(count))
    spread = np.exp(np.polyval([0.0030302, -0.082676, -0.4803], np.log(count)))
    return 1.0 - share, ndtr(-(logarithm - mean) / spread), 0


TERMS: Final = np.arange(40.0)
"""The terms of a series of which SciPy adds up terms until one is small, in front of the numbers that they are functions of."""


def _series(terms: Any) -> Any:
    large = np.concatenate([np.ones((1, *terms.shape[1:]), np.bool_), np.abs(terms[:-1]) >= 1e-7])
    return np.sum(np.where(np.cumprod(large, axis=0) > 0, terms, 0.0), axis=0)


@stands_for("scipy.stats._hypotests._cdf_cvm_inf")
def cramer_von_mises(x: Any, *, xp: Any = None) -> Any:
    """Follow the private function: a series, cut off where SciPy does."""
    special: Any = sys.modules["scipy.special"]
    k = TERMS.reshape(-1, *(1,) * x.ndim)
    factor = np.exp(special.gammaln(k + 0.5) - special.gammaln(k + 1)) * np.sqrt(4 * k + 1) / np.pi**1.5
    q = (4 * k + 1) ** 2 / (16 * x)
    return _series(factor / np.sqrt(x) * np.exp(-q) * special.kv(0.25, q))


@stands_for("scipy.stats._hypotests._psi1_mod")
def cramer_von_mises_correction(x: Any, *, xp: Any = None) -> Any:
    """Follow the private function: a series, cut off where SciPy does."""
    special: Any = sys.modules["scipy.special"]

    def second(y: Any) -> Any:
        z = y * y / 4
        bessel = special.kv(0.25, z) + special.kv(0.75, z)
        return np.exp(-z) * (y / 2) ** 1.5 * bessel / np.sqrt(np.pi)

    def third(y: Any) -> Any:
        z = y * y / 4
        bessel = 2 * special.kv(0.25, z) + 3 * special.kv(0.75, z) - special.kv(1.25, z)
        return np.exp(-z) / np.sqrt(np.pi) * (y / 2) ** 2.5 * bessel

    k = TERMS.reshape(-1, *(1,) * x.ndim)
    root, near, far = 2 * np.sqrt(x), x**0.75, x**1.25
    first = special.gamma(k + 0.5)
    terms = (2 * k + 1) * first * second((4 * k + 3) / root) / (9 * near)
    terms = terms + first * third((4 * k + 1) / root) / (72 * far)
    terms = terms + (2 * k + 3) * special.gamma(k + 1.5) * third((4 * k + 5) / root) / (6 * far)
    ends = second((4 * k + 1) / root) + second((4 * k + 5) / root)
    terms = terms + 7 * (2 * k + 1) * first * ends / (144 * near)
    return _series(-terms / (np.pi * special.gamma(k + 1)))


@stands_for("scipy.stats._hypotests._cdf_cvm")
def cramer_von_mises_below(x: Any, n: Any = None, *, xp: Any = None) -> Any:
    """Follow the private function: the distribution of the statistic of a sample of a size, or of an infinite one."""
    x = np.asarray(x)
    if n is None:
        return cramer_von_mises(x)
    inside = (x > 1 / (12 * n)) & (x < n / 3)
    safe = np.where(inside, x, 1 / 6)
    below = cramer_von_mises(safe) * (1 + 1 / (12 * n)) + cramer_von_mises_correction(safe) / n
    return np.where(inside, below, np.where(x >= n / 3, 1.0, 0.0))


@stands_for("scipy.stats._distribution_infrastructure.UnivariateDistribution._entropy_quadrature")
def entropy_by_quadrature(self: Any, **params: Any) -> Any:
    """Follow the private method, which leaves zeros of the density out by a mask: the integral of -p log p."""

    def integrand(x: Any, **params: Any) -> Any:
        density, level = self._pxf_dispatch(x, **params), self._logpxf_dispatch(x, **params)
        inside = density != 0
        return np.where(inside, -density * np.where(inside, level, 0.0), 0.0)

    return self._quadrature(integrand, params=params)


# Distributions of SciPy's new infrastructure

PLACE: Final = "scipy.stats._distribution_infrastructure"

ENDS: Final = {"icdf": (0.0, 1.0), "iccdf": (0.0, 1.0), "ilogcdf": (-np.inf, 0.0), "ilogccdf": (-np.inf, 0.0)}
"""The domains of methods whose argument is a probability or its logarithm; elsewhere it is the support."""

BEYOND: Final = {
    "pdf": (0.0, 0.0),
    "pmf": (0.0, 0.0),
    "logpdf": (-np.inf, -np.inf),
    "logpmf": (-np.inf, -np.inf),
    "_cdf1": (0.0, 1.0),
    "_ccdf1": (1.0, 0.0),
    "_logcdf1": (-np.inf, 0.0),
    "_logccdf1": (0.0, -np.inf),
}
"""What methods are to the left and to the right of the support."""

CLIPPED: Final = {
    "_cdf1": (0.0, 1.0),
    "_ccdf1": (0.0, 1.0),
    "_logcdf1": (None, 0.0),
    "_logccdf1": (None, 0.0),
}


def _between(low: Any, high: Any) -> Any:
    """Return a point between two ends, which may be infinite."""
    from_low, from_high = np.isfinite(low), np.isfinite(high)
    left, right = np.where(from_low, low, 0.0), np.where(from_high, high, 0.0)
    one_sided = np.where(from_low, left + 1.0, np.where(from_high, right - 1.0, 0.0))
    return np.where(from_low & from_high, 0.5 * (left + right), one_sided)


def _inside_of_domain(name: str) -> None:
    """Follow a method that SciPy wraps to replace arguments outside its domain by NaN, and then the results, where there are any.

    To ask whether there are would be a branch on numbers, which makes another trace, and which functions that a solver calls cannot have.
    """

    @stands_for(f"{PLACE}.UnivariateDistribution.{name}")
    def method(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        home: Any = sys.modules[PLACE]
        plain = vars(home.UnivariateDistribution)[name].__wrapped__
        if self.validation_policy == home._SKIP_ALL:
            return plain(self, x, *args, **kwargs)
        is_discrete = isinstance(self, home.DiscreteDistribution)
        x = np.asarray(x)
        x = x.astype(np.result_type(x.dtype, self._dtype))
        shape = np.broadcast_shapes(x.shape, self._shape)
        x = np.broadcast_to(x, shape)
        low, high = ENDS.get(name) or self.support()
        below, above = x <= low, x >= high
        if name in ("pdf", "logpdf", "pmf", "logpmf"):
            includes_low, includes_high = self._variable.domain.inclusive
            below, above = (x < low) if includes_low else below, (x > high) if includes_high else above
        elif is_discrete and name in BEYOND:
            below = x < low
        if name in BEYOND:
            below, above = below | (x == -np.inf), above | (x == np.inf)
        outside = below | above | np.isnan(x)
        values = np.asarray(plain(self, np.where(outside, _between(low, high), x), *args, **kwargs))
        if is_discrete and name in ("pdf", "logpdf", "pmf", "logpmf"):
            values = np.where((x != np.floor(x)) & ~np.isnan(values), BEYOND[name][0], values)
        at_low, at_high = BEYOND.get(name, (np.nan, np.nan))
        values = np.where(below, at_low, np.where(above, at_high, values))
        if name in ENDS:
            first, last = self.support()[:: -1 if name.endswith("ccdf") else 1]
            values = np.where(x == low, first, np.where(x == high, last, values))
        if name in CLIPPED:
            values = np.clip(values.real, *CLIPPED[name])
        return np.where(np.isnan(x), np.nan, np.broadcast_to(values, shape))


for _name in (*ENDS, *BEYOND):
    _inside_of_domain(_name)


def _any(condition: Any) -> bool:
    """Return whether a condition holds anywhere; False in a function that a solver calls, where it is not known."""
    try:
        return bool(np.any(condition))
    except ConcretizationError:
        return False


def _accurate(name: str, plain: str, integral: str) -> None:
    """Follow a private method that integrates the density where a logarithm underflows: in a function that a solver calls, nowhere."""

    @stands_for(f"{PLACE}.UnivariateDistribution.{name}")
    def method(self: Any, x: Any, **params: Any) -> Any:
        value = getattr(self, plain)(x, **params)
        infinite = np.isinf(value)
        return np.where(infinite, getattr(self, integral)(x, **params), value) if _any(infinite) else value


_accurate("_logcdf_logexp_safe", "_logcdf_logexp", "_logcdf_quadrature")
_accurate("_logccdf_logexp_safe", "_logccdf_logexp", "_logccdf_quadrature")


@stands_for(f"{PLACE}.UnivariateDistribution._logentropy_quadrature")
def logarithm_of_entropy(self: Any, **params: Any) -> Any:
    """Follow the private method: the complex logarithm of what may be negative."""
    return np.log(self._entropy_quadrature(**params) + 0j)


@stands_for(f"{PLACE}.Mixture.logentropy")
def logarithm_of_entropy_of_mixture(self: Any, *, method: Any = None) -> Any:
    """Follow the method: the complex logarithm of what may be negative."""
    return np.log(self.entropy(method=method) + 0j)


@stands_for(f"{PLACE}.UnivariateDistribution._mode_optimization")
def mode(self: Any, xatol: Any = None, **params: Any) -> Any:
    """Follow the private method: where the density is largest, which may be an end of the support."""
    low, high = self._support(**params)

    def function(x: Any, *args: Any) -> Any:
        return -self._pxf_dispatch(x, **dict(zip(params, args, strict=True)))

    brackets, minima = (sys.modules[f"scipy.optimize.{name}"] for name in ("_bracket", "_chandrupatla"))
    args, start = tuple(params.values()), self._median_dispatch(**params)
    around = brackets._bracket_minimum(function, start, xmin=low, xmax=high, args=args)
    minimum = minima._chandrupatla_minimize(function, around.xl, around.xm, around.xr, args=args, xatol=xatol)
    # where the search runs into an end, the slope is not zero
    at_low, at_high = [
        np.isfinite(end) & (np.abs(minimum.x - end) <= 1e-8 * np.maximum(np.abs(end), 1.0))
        for end in (low, high)
    ]
    at_end = around.status == -1
    inside = np.where((at_end & (around.fr < around.fm)) | at_high, high, minimum.x)
    return np.where((at_end & (around.fl <= around.fm)) | at_low, low, inside)


@stands_for(f"{PLACE}._logexpxmexpy")
def log_difference(x: Any, y: Any) -> Any:
    """Follow the private function: the complex logarithm of the difference of two exponentials."""
    special: Any = sys.modules["scipy.special"]
    lowest = np.finfo(np.float64).min
    x, y = np.broadcast_arrays(x, np.where(np.real(y) == -np.inf, lowest, y))
    same = x == y
    terms = np.stack([x + 0j, np.where(same, y - 1.0, y) + np.pi * 1j])
    return np.where(same, -np.inf, special.logsumexp(terms, axis=0))


@stands_for(f"{PLACE}.UnivariateDistribution._logcdf2_subtraction")
def log_probability_between(self: Any, x: Any, y: Any, **params: Any) -> Any:
    """Follow the private method: by the tail in which the points are, or by both tails."""
    home: Any = sys.modules[PLACE]
    low, high = np.minimum(x, y), np.maximum(x, y)
    below_low, below_high = [self._logcdf_dispatch(point, **params) for point in (low, high)]
    above_low, above_high = [self._logccdf_dispatch(point, **params) for point in (low, high)]
    left = log_difference(below_high, below_low).real
    right = log_difference(above_low, above_high).real
    is_left, is_right = (below_low < -1) & (below_high < -1), (above_low < -1) & (above_high < -1)
    tails = np.where(is_left | is_right, -1.0, np.logaddexp(below_low, above_high))
    mass = np.where(is_right, right, np.where(is_left, left, home._log1mexp(tails)))
    return mass + np.where(x > y, np.pi, 0.0) * 1j if _any(x > y) else mass


@stands_for("scipy.stats._distn_infrastructure.rv_continuous.expect")
def expectation(
    self: Any,
    func: Any = None,
    args: Any = (),
    loc: Any = 0,
    scale: Any = 1,
    lb: Any = None,
    ub: Any = None,
    conditional: bool = False,
    **kwds: Any,
) -> Any:
    """Follow the method, whose infinite bounds are products of infinity with the scale: the derivative of one is no number."""
    integrate: Any = sys.modules["scipy.integrate"]
    ends = self._get_support(*args)
    low, high = [
        end
        if end is not None
        else loc + bound * scale
        if isinstance(bound, Handle) or np.isfinite(bound)
        else bound
        for end, bound in zip((lb, ub), ends, strict=True)
    ]

    def integrand(x: Any, *args: Any) -> Any:
        return (x if func is None else func(x)) * self.pdf(x, *args, loc=loc, scale=scale)

    at_low, at_high = [self.cdf(end, *args, loc=loc, scale=scale) for end in (low, high)]
    mass = at_high - at_low
    # SciPy divides the interval there, too
    inner = [loc + self._ppf(at_low + mass * share, *args) * scale for share in (0.05, 0.95)]
    bounds = [low, *inner, high]
    parts = [
        integrate.quad(integrand, first, last, args=args, **kwds)[0]
        for first, last in itertools.pairwise(bounds)
    ]
    total = sum(parts[1:], parts[0])
    return total / mass if conditional else total


# Discrepancies of points in the unit cube


def _discrepancy(name: str, formula: Callable[[Any, Any, Any, int], Any]) -> None:
    """Follow a compiled function: `formula` takes the points, both of each pair of them, and their number."""

    @stands_for(f"scipy.stats._qmc:_cy_wrapper_{name}")
    def method(sample: Any, iterative: bool, workers: int) -> Any:
        count = sample.shape[0] + bool(iterative)
        return formula(sample, sample[:, None, :], sample[None, :, :], count)


def _of_pairs(factors: Any, count: int) -> Any:
    return np.sum(np.prod(factors, axis=-1)) / count**2


def _of_points(factors: Any, count: int) -> Any:
    return np.sum(np.prod(factors, axis=-1)) / count


def _centered(x: Any, a: Any, b: Any, n: int) -> Any:
    away, of_a, of_b, gap = np.abs(x - 0.5), np.abs(a - 0.5), np.abs(b - 0.5), np.abs(a - b)
    pairs = _of_pairs(1 + 0.5 * of_a + 0.5 * of_b - 0.5 * gap, n)
    return (13 / 12) ** x.shape[1] - 2 * _of_points(1 + 0.5 * away - 0.5 * away * away, n) + pairs


def _mixture(x: Any, a: Any, b: Any, n: int) -> Any:
    away, of_a, of_b, gap = np.abs(x - 0.5), np.abs(a - 0.5), np.abs(b - 0.5), np.abs(a - b)
    pairs = _of_pairs(15 / 8 - 0.25 * of_a - 0.25 * of_b - 0.75 * gap + 0.5 * gap * gap, n)
    return (19 / 12) ** x.shape[1] - 2 * _of_points(5 / 3 - 0.25 * away - 0.25 * away * away, n) + pairs


def _wrapped(x: Any, a: Any, b: Any, n: int) -> Any:
    gap = np.abs(a - b)
    return -((4 / 3) ** x.shape[1]) + _of_pairs(1.5 - gap * (1 - gap), n)


def _star(x: Any, a: Any, b: Any, n: int) -> Any:
    d = x.shape[1]
    squared = 3.0**-d - 2.0 ** (1 - d) * _of_points(1 - x * x, n) + _of_pairs(1 - np.maximum(a, b), n)
    return np.sqrt(squared)


_discrepancy("centered_discrepancy", _centered)
_discrepancy("mixture_discrepancy", _mixture)
_discrepancy("wrap_around_discrepancy", _wrapped)
_discrepancy("l2_star_discrepancy", _star)


@stands_for("sklearn.utils.extmath:_incremental_mean_and_var")
def incremental_mean_and_var(
    X: Any, last_mean: Any, last_variance: Any, last_sample_count: Any, sample_weight: Any = None
) -> tuple[Any, Any, Any]:
    """Return mean, variance and number of samples after some more; scikit-learn divides by the number of those before, also if it is 0."""
    there = ~np.isnan(X)
    shares = there * (1.0 if sample_weight is None else np.asarray(sample_weight)[:, None])
    count, total = np.sum(shares, axis=0), np.sum(shares * np.where(there, X, 0), axis=0)
    together = last_sample_count + count
    mean = (last_mean * last_sample_count + total) / together
    if last_variance is None:
        return mean, None, together
    squares = np.sum(shares * np.where(there, X - total / count, 0) ** 2, axis=0)
    between = (total / count - last_mean) ** 2 * last_sample_count * count / together
    return mean, (last_variance * last_sample_count + squares + between) / together, together
