"""NumPy's distributions as functions of noise, that is of random numbers that do not depend on their parameters.

Each function has the parameters of the method of its name, after `draw`, which draws from the same generator. The formulas are those of
NumPy's C code, so that the numbers are the same, to rounding. The derivatives in the parameters are those of the formulas for fixed noise
(reparameterisation; Kingma and Welling, Auto-Encoding Variational Bayes, 2014).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np

from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.trace.array.array import Array as Traced
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import abstract_of, trace_of

Array = Any
Size = Any


class Noise(Protocol):
    """Draws from the generator of a call.

    Attributes
    ----------
    legacy : bool
        Whether it is a `RandomState`, some of whose formulas are others.
    """

    legacy: bool

    def __call__(self, method: str, /, *parameters: Any, **named: Any) -> Array:
        """Return what a method draws."""


REPARAMETERISED: Final[dict[str, Callable[..., Array]]] = {}
"""The distributions of this module, by the names of the methods."""


def _reparameterised(function: Callable[..., Array]) -> Callable[..., Array]:
    REPARAMETERISED[function.__name__] = function
    return function


def shape_of(size: Size, *parameters: Array) -> tuple[int, ...] | None:
    """Return the shape of the draw; None for one number."""
    common = np.broadcast_shapes(*map(np.shape, parameters))
    if size is None:
        return common or None
    shape = as_shape(size)
    try:
        fits = np.broadcast_shapes(shape, common) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"Output size {shape} is not compatible with broadcast dimensions of inputs {common}."
        )
    return shape


def as_shape(size: Size) -> tuple[int, ...]:
    """Return a size as a tuple of integers."""
    items = tuple(size) if np.ndim(size) or isinstance(size, tuple | list) else (size,)
    return tuple(map(operator.index, items))


def is_known(x: Array) -> bool:
    """Return whether Python may look at a parameter: what NumPy refuses is refused where it can be seen."""
    if not isinstance(x, Handle):
        return True
    value = x.value
    return abstract_of(value) is None and (trace_of(value) is not None or value.data is not None)


def is_concrete(x: Array) -> bool:
    """Return whether a parameter has numbers, which a tape may have to compute; an element of a mapped axis has none."""
    return not isinstance(x, Handle) or abstract_of(x.value) is None


def not_negative(name: str, x: Array) -> None:
    """Raise NumPy's error for negative parameters."""
    if is_known(x) and bool(np.any(x < 0)):
        raise ValueError(f"{name} < 0")


def positive(name: str, x: Array) -> None:
    """Raise NumPy's error for parameters that are not positive."""
    if is_known(x) and bool(np.any(x <= 0)):
        raise ValueError(f"{name} <= 0")


@_reparameterised
def normal(noise: Noise, loc: Array = 0.0, scale: Array = 1.0, size: Size = None) -> Array:
    """``loc + scale * z``."""
    not_negative("scale", scale)
    return loc + scale * noise("standard_normal", size=shape_of(size, loc, scale))


@_reparameterised
def lognormal(noise: Noise, mean: Array = 0.0, sigma: Array = 1.0, size: Size = None) -> Array:
    """``exp(mean + sigma * z)``."""
    not_negative("sigma", sigma)
    return np.exp(mean + sigma * noise("standard_normal", size=shape_of(size, mean, sigma)))


@_reparameterised
def uniform(noise: Noise, low: Array = 0.0, high: Array = 1.0, size: Size = None) -> Array:
    """``low + (high - low) * u``."""
    if not noise.legacy and is_known(low) and is_known(high) and bool(np.any(high < low)):
        raise ValueError("high - low < 0")
    return low + (high - low) * noise("random", size=shape_of(size, low, high))


@_reparameterised
def exponential(noise: Noise, scale: Array = 1.0, size: Size = None) -> Array:
    """``scale * e``."""
    not_negative("scale", scale)
    return scale * noise("standard_exponential", size=shape_of(size, scale))


@_reparameterised
def laplace(noise: Noise, loc: Array = 0.0, scale: Array = 1.0, size: Size = None) -> Array:
    """``loc + scale * z``."""
    return _located("laplace", noise, loc, scale, size)


@_reparameterised
def gumbel(noise: Noise, loc: Array = 0.0, scale: Array = 1.0, size: Size = None) -> Array:
    """``loc + scale * z``."""
    return _located("gumbel", noise, loc, scale, size)


@_reparameterised
def logistic(noise: Noise, loc: Array = 0.0, scale: Array = 1.0, size: Size = None) -> Array:
    """``loc + scale * z``."""
    return _located("logistic", noise, loc, scale, size)


def _located(method: str, noise: Noise, loc: Array, scale: Array, size: Size) -> Array:
    not_negative("scale", scale)
    return loc + scale * noise(method, 0.0, 1.0, size=shape_of(size, loc, scale))


@_reparameterised
def rayleigh(noise: Noise, scale: Array = 1.0, size: Size = None) -> Array:
    """``scale * sqrt(2 e)``."""
    not_negative("scale", scale)
    return scale * noise("rayleigh", 1.0, size=shape_of(size, scale))


@_reparameterised
def weibull(noise: Noise, a: Array, size: Size = None) -> Array:
    """``e**(1/a)``."""
    not_negative("a", a)
    if is_concrete(a) and bool(np.any(a == 0.0)):  # NumPy draws nothing for 0
        return noise("weibull", a, size=shape_of(size, a))
    return noise("standard_exponential", size=shape_of(size, a)) ** (1.0 / a)


@_reparameterised
def pareto(noise: Noise, a: Array, size: Size = None) -> Array:
    """``exp(e/a) - 1``."""
    positive("a", a)
    rate = noise("standard_exponential", size=shape_of(size, a)) / a
    return np.exp(rate) - 1.0 if noise.legacy else np.expm1(rate)


@_reparameterised
def power(noise: Noise, a: Array, size: Size = None) -> Array:
    """``(1 - exp(-e))**(1/a)``."""
    positive("a", a)
    e = noise("standard_exponential", size=shape_of(size, a))
    return (1.0 - np.exp(-e) if noise.legacy else -np.expm1(-e)) ** (1.0 / a)


def _constant(x: Array) -> Array:
    """Return a number without a derivative."""
    return Traced(stop_gradient(x.value)) if isinstance(x, Handle) else x


@_reparameterised
def triangular(noise: Noise, left: Array, mode: Array, right: Array, size: Size = None) -> Array:
    """The inverse of the distribution function at u."""
    if is_known(left) and is_known(mode) and is_known(right):
        for first, second, message in (
            (left, mode, "left > mode"),
            (mode, right, "mode > right"),
        ):
            if bool(np.any(first > second)):
                raise ValueError(message)
        if bool(np.any(left == right)):
            raise ValueError("left == right")
    u = noise("random", size=shape_of(size, left, mode, right))
    base, lower = right - left, mode - left
    is_left = u <= _constant(lower / base)  # both sides have the same derivatives there
    rise = np.where(is_left, u * (lower * base), 1.0)
    fall = np.where(is_left, 1.0, (1.0 - u) * ((right - mode) * base))
    return np.where(is_left, left + np.sqrt(rise), right - np.sqrt(fall))
