"""NumPy's distributions whose numbers are drawn with their parameters: by rejection, as integers, or as elements of arrays.

The signatures are those of the methods, after `noise`, which draws. Numbers of continuous distributions are functions of the parameters by
implicit reparameterisation (`gradtape.ops.scipy.special.distributions.samples`); integers are constants in derivatives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.linalg.covariance import normal_factor
from gradtape.trace.array import array as arrays
from gradtape.trace.array.handle import Handle
from gradtape.trace.random.distributions import (
    Array,
    Noise,
    Size,
    as_shape,
    is_concrete,
    not_negative,
    positive,
    shape_of,
)

SAMPLED: Final[dict[str, Callable[..., Array]]] = {}
"""The distributions of this module, by the names of the methods."""

DISCRETE: Final = frozenset(
    {
        *("binomial", "geometric", "hypergeometric", "integers", "logseries", "multinomial"),
        *(
            "multivariate_hypergeometric",
            "negative_binomial",
            "poisson",
            "randint",
            "random_integers",
            "zipf",
        ),
        *("choice", "permutation", "permuted", "shuffle"),
    }
)
"""Methods whose numbers are integers, or choose among elements."""


def _sampled(function: Callable[..., Array]) -> Callable[..., Array]:
    SAMPLED[function.__name__] = function
    return function


def _as_sample(row: str, drawn: Array, *parameters: Array) -> Array:
    """Return drawn numbers as a function of the parameters of their distribution."""
    sample: Value = UFUNCS[row](*[_value(x) for x in (*parameters, drawn)])
    return arrays.Array(sample)


def _value(x: Array) -> Value:
    return x.value if isinstance(x, Handle) else as_value(x)


def _operand(x: Array) -> Array:
    return x if isinstance(x, Handle) else np.asarray(x)


def _gammas(noise: Noise, shape: Array, size: Size) -> Array:
    return _as_sample("gamma_sample", noise("standard_gamma", shape, size=size), shape)


@_sampled
def standard_gamma(
    noise: Noise, shape: Array, size: Size = None, dtype: Any = np.float64, out: Any = None
) -> Array:
    """Samples of the gamma distribution."""
    if np.dtype(dtype) != np.float64 or out is not None:
        raise TypeError("standard_gamma of a traced shape takes neither a dtype nor out=")
    not_negative("shape", shape)
    return _gammas(noise, shape, shape_of(size, shape))


@_sampled
def gamma(noise: Noise, shape: Array, scale: Array = 1.0, size: Size = None) -> Array:
    """``scale * g``."""
    not_negative("shape", shape)
    not_negative("scale", scale)
    return scale * _gammas(noise, shape, shape_of(size, shape, scale))


@_sampled
def chisquare(noise: Noise, df: Array, size: Size = None) -> Array:
    """``2 g`` of the shape ``df / 2``."""
    positive("df", df)
    return 2.0 * _gammas(noise, df / 2.0, shape_of(size, df))


@_sampled
def f(noise: Noise, dfnum: Array, dfden: Array, size: Size = None) -> Array:
    """The quotient of two chi-square numbers, each divided by its degrees of freedom."""
    positive("dfnum", dfnum)
    positive("dfden", dfden)
    shape = shape_of(size, dfnum, dfden) or ()
    halves = np.stack([np.broadcast_to(dfnum / 2.0, shape), np.broadcast_to(dfden / 2.0, shape)], -1)
    g = _gammas(noise, halves, (*shape, 2))
    return (2.0 * g[..., 0] * dfden) / (2.0 * g[..., 1] * dfnum)


@_sampled
def beta(noise: Noise, a: Array, b: Array, size: Size = None) -> Array:
    """Samples of the beta distribution."""
    positive("a", a)
    positive("b", b)
    return _as_sample("beta_sample", noise("beta", a, b, size=shape_of(size, a, b)), a, b)


@_sampled
def dirichlet(noise: Noise, alpha: Array, size: Size = None) -> Array:
    """Gamma numbers divided by their sum; for small shapes, shares of the remainder, which are beta numbers."""
    alpha = _operand(alpha)
    if alpha.ndim != 1:
        raise ValueError("alpha must be a one-dimensional array")
    not_negative("alpha", alpha)
    count, shape = alpha.shape[0], () if size is None else as_shape(size)
    if not noise.legacy and count and is_concrete(alpha) and bool(np.max(alpha) < 0.1):
        tail_sums = np.cumsum(alpha[::-1])[::-1][1:]
        first = np.broadcast_to(alpha[:-1], (*shape, count - 1))
        left = np.broadcast_to(tail_sums, first.shape)
        shares = beta(noise, first, left, first.shape)
        unit = np.ones((*shape, 1))
        remaining = np.concatenate([unit, np.cumprod(1.0 - shares, -1)], -1)
        return remaining * np.concatenate([shares, unit], -1)
    g = _gammas(noise, np.broadcast_to(alpha, (*shape, count)), (*shape, count))
    return g * (1.0 / np.sum(g, -1, keepdims=True))


@_sampled
def standard_t(noise: Noise, df: Array, size: Size = None) -> Array:
    """Samples of Student's distribution."""
    positive("df", df)
    return _as_sample("student_sample", noise("standard_t", df, size=shape_of(size, df)), df)


@_sampled
def wald(noise: Noise, mean: Array, scale: Array, size: Size = None) -> Array:
    """Samples of the inverse Gaussian distribution."""
    positive("mean", mean)
    positive("scale", scale)
    return _as_sample(
        "wald_sample", noise("wald", mean, scale, size=shape_of(size, mean, scale)), mean, scale
    )


@_sampled
def vonmises(noise: Noise, mu: Array, kappa: Array, size: Size = None) -> Array:
    """Samples of the von Mises distribution."""
    not_negative("kappa", kappa)
    return _as_sample(
        "vonmises_sample", noise("vonmises", mu, kappa, size=shape_of(size, mu, kappa)), mu, kappa
    )


@_sampled
def noncentral_chisquare(noise: Noise, df: Array, nonc: Array, size: Size = None) -> Array:
    """Samples of the noncentral chi-square distribution."""
    positive("df", df)
    not_negative("nonc", nonc)
    drawn = noise("noncentral_chisquare", df, nonc, size=shape_of(size, df, nonc))
    return _as_sample("noncentral_chisquare_sample", drawn, df, nonc)


@_sampled
def noncentral_f(noise: Noise, dfnum: Array, dfden: Array, nonc: Array, size: Size = None) -> Array:
    """Samples of the noncentral F distribution."""
    positive("dfnum", dfnum)
    positive("dfden", dfden)
    not_negative("nonc", nonc)
    drawn = noise("noncentral_f", dfnum, dfden, nonc, size=shape_of(size, dfnum, dfden, nonc))
    return _as_sample("noncentral_f_sample", drawn, dfnum, dfden, nonc)


@_sampled
def multivariate_normal(
    noise: Noise,
    mean: Array,
    cov: Array,
    size: Size = None,
    check_valid: str = "warn",
    tol: float = 1e-8,
    *,
    method: str = "svd",
) -> Array:
    """``mean + z @ A.T`` with the factor A of the covariance matrix."""
    mean, cov = _operand(mean), _operand(cov)
    if mean.ndim != 1 or cov.shape != (*mean.shape, *mean.shape):
        raise ValueError("mean must be 1 dimensional, and cov a matrix of the same length")
    if check_valid not in ("warn", "raise", "ignore"):
        raise ValueError("check_valid must equal 'warn', 'raise', or 'ignore'")
    z = noise("standard_normal", size=(*(() if size is None else as_shape(size)), mean.shape[0]))
    if method == "cholesky":
        factor: Array = np.linalg.cholesky(cov)
    else:
        row = normal_factor(
            _value(cov),
            method="legacy" if noise.legacy else method,
            check=check_valid,
            tolerance=float(tol),
        )
        factor = arrays.Array(row)
    return mean + np.matmul(z, np.swapaxes(factor, 0, 1))


@lru_cache(maxsize=64)
def _signature(method: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(method)


def discrete(noise: Any, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Array:
    """Draw integers with traced parameters, or choose, or permute, elements of a traced array."""
    bound = _signature(method).bind(noise.generator, *args, **kwargs).arguments
    arguments = {name: item for name, item in bound.items() if name != "self"}
    if arguments.get("size") is not None:
        arguments["size"] = as_shape(arguments["size"])
    rule = CHOOSING.get(noise.method)
    if rule is not None and isinstance(arguments.get("a", arguments.get("x")), Handle):
        return rule(noise, **arguments)
    return noise(noise.method, **arguments)


def _length(x: Array, axis: int) -> int:
    return int(x.shape[axis])


def _choice(noise: Any, a: Array, axis: int = 0, **options: Any) -> Array:
    if not a.ndim:
        return noise("choice", a, **options)
    if noise.legacy and a.ndim > 1:
        raise ValueError("a must be 1-dimensional")
    return np.take(a, noise("choice", _length(a, axis), **options), axis=axis)


def _permutation(noise: Any, x: Array, axis: int = 0) -> Array:
    if not x.ndim:
        return noise("permutation", x)
    return np.take(x, noise("permutation", _length(x, axis)), axis=axis)


def _shuffle(noise: Any, x: Array, axis: int = 0) -> None:
    x[...] = _permutation(noise, x, axis)


def _permuted(noise: Any, x: Array, axis: int | None = None, out: Any = None) -> Array:
    if out is not None:
        raise TypeError("permuted of a traced array does not take out=")
    if axis is None:
        return np.ravel(x)[noise("permuted", np.arange(x.size).reshape(x.shape))]
    positions: Array = np.arange(_length(x, axis)).reshape(
        [-1 if k == axis % x.ndim else 1 for k in range(x.ndim)]
    )
    return np.take_along_axis(x, noise("permuted", np.broadcast_to(positions, x.shape), axis=axis), axis)


CHOOSING: Final[dict[str, Callable[..., Any]]] = {
    "choice": _choice,
    "permutation": _permutation,
    "shuffle": _shuffle,
    "permuted": _permuted,
}
"""Methods that choose or permute the elements of their first argument."""
