"""Quadrature inside derivatives: integrals over a half line, a period or an interval by fixed nodes, as arrays with one more axis.

Derivatives in the parameters of distribution functions and in orders are integrals of smooth functions. The sum over the nodes is
an ordinary reduction, which kernels fuse with the integrand; its own derivatives are those of the integrand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

import numpy as np

from gradtape.ir.graph import Value, constant, literal
from gradtape.ir.op import NDArray
from gradtape.ir.types import Shape
from gradtape.kinds.operands import as_value, broadcast_shapes, broadcast_to
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.elementwise.exponential import exp, expm1
from gradtape.ops.core.elementwise.extrema import maximum
from gradtape.ops.core.elementwise.inverse import log, log1p
from gradtape.ops.core.elementwise.logic import greater, less
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import reshape

NODES: Final = 112
"""Nodes on a half line: 1e-9 of the derivatives of the incomplete gamma and beta functions for parameters from 0.01 to 10,000, 1e-14 for
most."""

Integrand = Callable[..., Value]


@lru_cache(maxsize=16)
def half_line(count: int = NODES) -> tuple[NDArray, NDArray]:
    """Return nodes and weights of the double exponential rule ``w = exp(t - exp(-t))`` for functions that decay exponentially.

    References
    ----------
    Takahasi, Mori, Double exponential formulas for numerical integration, 1974.
    """
    t = np.linspace(-3.7, 3.9, count)
    nodes = np.exp(t - np.exp(-t))
    return nodes, nodes * (1.0 + np.exp(-t)) * (t[1] - t[0])


@lru_cache(maxsize=16)
def whole_line(count: int = 160) -> tuple[NDArray, NDArray]:
    """Return nodes and weights of the double exponential rule ``u = sinh(t)`` for functions on the line that decay exponentially."""
    t = np.linspace(-5.4, 5.4, count)
    return np.sinh(t), np.cosh(t) * (t[1] - t[0])


@lru_cache(maxsize=16)
def unit_interval(count: int = 64) -> tuple[NDArray, NDArray]:
    """Return nodes and weights of Gauss and Legendre's rule on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(count)
    return 0.5 * (x + 1.0), 0.5 * w


@lru_cache(maxsize=16)
def period(count: int = 64) -> tuple[NDArray, NDArray]:
    """Return nodes and weights on [0, 1) for periodic functions: equal ones."""
    return np.arange(count) / count, np.full(count, 1.0 / count)


class _Mode(threading.local):
    """Whether sums with scalar parameters are sums of scalars."""

    of_scalars = False


_mode: Final = _Mode()


@contextmanager
def sums_of_scalars() -> Iterator[None]:
    """Let `sum_over` with scalar parameters be a sum of scalars inside this context: the formulas of a procedure have no arrays."""
    before, _mode.of_scalars = _mode.of_scalars, True
    try:
        yield
    finally:
        _mode.of_scalars = before


def sum_over(
    numbers: Sequence[NDArray], term: Callable[..., Value], shape: Shape, *parameters: Value
) -> Value:
    """Return the sum over the last axis of arrays of numbers of ``term(*numbers, *parameters)``, of the shape of the parameters."""
    if _mode.of_scalars and shape == ():
        terms = [
            term(*[literal(x, x.dtype) for x in of_term], *parameters)
            for of_term in zip(*numbers, strict=True)
        ]
        while len(terms) > 1:  # in pairs, so that no formula is deep
            rest = terms[len(terms) // 2 * 2 :]
            terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + rest
        return terms[0]
    columns = [reshape(broadcast_to(x, shape), (*shape, 1)) for x in parameters]
    return reduce_sum(term(*map(constant, numbers), *columns), axes=(len(shape),))


def integrate(rule: tuple[NDArray, NDArray], integrand: Integrand, *parameters: Value) -> Value:
    """Return the sum over the nodes of a rule of ``weight * integrand(node, *parameters)``, of the shape of the parameters."""
    shape = broadcast_shapes([x.shape for x in parameters])
    dtype = np.result_type(*[x.dtype for x in parameters])
    dtype = dtype if dtype.kind in "fc" else np.dtype(float)
    real = np.dtype(np.float32) if dtype.char in "fF" else np.dtype(float)
    return sum_over(
        [part.astype(real) for part in rule],
        lambda node, weight, *columns: weight * integrand(node, *columns),
        shape,
        *[convert(as_value(x), dtype) for x in parameters],
    )


def width(rate: Value, curvature: Value) -> Value:
    """Return the w at which ``rate * w + curvature * w**2 / 2`` is 1."""
    return 2.0 / (rate + sqrt(rate * rate + 2.0 * curvature))


def gamma_tail(a: Value, x: Value, mean: Value) -> Value:
    """Return the integral of ``p(t) (log(t) - mean)`` over t from 0 to x, divided by ``x p(x)``, for ``p(t) = t**(a-1) exp(-t)``.

    The mean of the logarithm is `mean`, so that the integral from x on is the same with the other sign; the one whose integrand
    does not change its sign is taken. ``t = x exp(-w)`` on the left, ``t = x exp(w)`` on the right.
    """
    level = log(x)
    left = less(level, mean) | less(x, 0.8)
    sign = convert(where(left, -1.0, 1.0), level.dtype)
    narrow = width(sign * (x - a), x)
    scale = stop_gradient(where(left, maximum(narrow, 1.0 / a), log1p(narrow)))

    def integrand(
        v: Value, a: Value, x: Value, level: Value, mean: Value, sign: Value, scale: Value
    ) -> Value:
        u = sign * (scale * v)
        return exp(a * u - x * expm1(u)) * (level + u - mean)

    return -sign * scale * integrate(half_line(), integrand, a, x, level, mean, sign, scale)


def beta_tail(a: Value, b: Value, x: Value, y: Value, mean: Value) -> Value:
    """Return the same for the density ``t**(a-1) (1-t)**(b-1)``, divided by ``x (1-x) p(x)``; y is 1 - x."""
    level = log(x)
    near = where(less(a, 0.1), 0.25, 0.5) / (b + 1.0)
    left = (less(level, mean) | less(x, near)) & greater(y, 0.5 / (a + 1.0))
    sign = convert(where(left, 1.0, -1.0), level.dtype)
    power, share = where(left, a, b), where(left, x, y)
    narrow = width(power - (a + b) * share, (a + b) * x * y)
    scale = stop_gradient(maximum(narrow, 1.0 / power))
    taken = convert(where(left, 1.0, 0.0), level.dtype)

    def integrand(
        v: Value, power: Value, total: Value, share: Value, level: Value, taken: Value, scale: Value
    ) -> Value:
        w = scale * v
        rest = log1p(share * expm1(-w))
        return exp(-power * w - total * rest) * (level - taken * w - rest)

    return sign * scale * integrate(half_line(), integrand, power, a + b, share, level - mean, taken, scale)
