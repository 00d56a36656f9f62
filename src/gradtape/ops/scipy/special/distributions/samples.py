"""Samples: random numbers as differentiable functions of the parameters of their distributions, by implicit reparameterisation.

A sampler by rejection has no formula from noise to numbers. But the distribution function F of a number, and so the noise that it stands
for, stays the same when a parameter p moves: ``dx/dp = - (dF/dp) / (dF/dx)`` (Figurnov, Mohamed, Mnih, Implicit Reparameterization
Gradients, 2018). Each row returns its last operand, the number that was drawn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.kinds.elementwise import Elementwise, elementwise
from gradtape.ops.core.elementwise.exponential import cos, exp
from gradtape.ops.core.elementwise.floats import rint
from gradtape.ops.core.elementwise.inverse import log
from gradtape.ops.core.elementwise.logic import greater
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import sign
from gradtape.ops.scipy.special.bessel import i0e, i1e
from gradtape.ops.scipy.special.distributions.noncentral import noncentral_chi_square, noncentral_f
from gradtape.ops.scipy.special.distributions.normal import log_ndtr
from gradtape.ops.scipy.special.gamma import psi
from gradtape.ops.scipy.special.quadrature import beta_tail, gamma_tail, integrate, unit_interval

Rule = Callable[..., Value]


def sample(
    name: str,
    *partials: Rule,
    domain: tuple[tuple[float, float], ...],
) -> Elementwise:
    """Enter a row for samples of a distribution, with the derivatives of a sample in its parameters: formulas of ``(x, *parameters)``."""

    def drawn(*operands: NDArray) -> NDArray:
        return np.array(np.broadcast_arrays(*operands)[-1])

    def rule(partial: Rule) -> Rule:
        return lambda z, *operands: partial(z, *operands[:-1])

    return elementwise(
        name,
        drawn,
        body=lambda *operands: operands[-1],
        partials=(*map(rule, partials), None),
        dtypes=lambda *types: ((np.dtype(float),) * len(types), np.dtype(float)),
        domain=domain,
        is_sample=True,
    )


def _gamma(x: Value, a: Value) -> Value:
    inside = greater(x, 0.0)
    x = where(inside, x, 1.0)
    return where(inside, -x * gamma_tail(a, x, psi(a)), 0.0)


def _beta(x: Value, a: Value, b: Value) -> Value:
    y = 1.0 - x
    inside = greater(x, 0.0) & greater(y, 0.0)
    x, y = where(inside, x, 0.5), where(inside, y, 0.5)
    return where(inside, -x * y * beta_tail(a, b, x, y, psi(a) - psi(a + b)), 0.0)


def _student(t: Value, df: Value) -> Value:
    """The derivative of `stdtr` in the degrees of freedom, divided by that in t."""
    moved = greater(t * t, 0.0)
    t = where(moved, t, 1.0)
    total = df + t * t
    a, b = 0.5 * df, 0.5 + 0.0 * df
    tail = beta_tail(a, b, df / total, t * t / total, psi(a) - psi(a + b))
    return where(moved, 0.25 * t * tail + 0.5 * t / df, 0.0)


def _vonmises(x: Value, mean: Value, concentration: Value) -> Value:
    """The integral of ``(cos(t) - A) p(t)`` from 0 to x, or from x to pi, divided by p(x); A is the mean of the cosine."""
    turn = (x - mean) * (0.5 / np.pi)
    angle = 2.0 * np.pi * (turn - rint(turn))
    far = sign(angle) * angle
    share = i1e(concentration) / i0e(concentration)
    inner = greater(cos(far), share)
    length = where(inner, -far, np.pi - far)

    def integrand(v: Value, far: Value, length: Value, share: Value, concentration: Value) -> Value:
        t = far + length * (v * v)
        return 2.0 * v * (cos(t) - share) * exp(concentration * (cos(t) - cos(far)))

    total = length * integrate(unit_interval(), integrand, far, length, share, concentration)
    return sign(angle) * total


def _wald_share(x: Value, mean: Value, scale: Value) -> Value:
    """Return ``exp(2 scale / mean) Phi(-sqrt(scale / x) (x / mean + 1)) / p(x)``, with the density p."""
    distance = (x - mean) / mean
    log_density = 0.5 * log(scale / (2.0 * np.pi)) - 1.5 * log(x) - 0.5 * scale / x * distance * distance
    return exp(2.0 * scale / mean + log_ndtr(-sqrt(scale / x) * (x / mean + 1.0)) - log_density)


def _noncentral_chi_square(wanted: int) -> Rule:
    def rule(x: Value, df: Value, nc: Value) -> Value:
        in_x, *others = noncentral_chi_square(x, df, nc)
        return -others[wanted] / in_x

    return rule


def _noncentral_f(wanted: int) -> Rule:
    def rule(x: Value, dfn: Value, dfd: Value, nc: Value) -> Value:
        *others, in_x = noncentral_f(dfn, dfd, nc, x)
        return -others[wanted] / in_x

    return rule


SHAPE, POSITIVE = (0.4, 5.0), (0.3, 6.0)
sample("gamma_sample", _gamma, domain=(SHAPE, POSITIVE))
sample("beta_sample", _beta, lambda x, a, b: -_beta(1.0 - x, b, a), domain=(SHAPE, SHAPE, (0.1, 0.9)))
sample("student_sample", _student, domain=((0.8, 9.0), (-3.0, 3.0)))
sample(
    "wald_sample",
    lambda x, mean, scale: 2.0 * scale / (mean * mean) * _wald_share(x, mean, scale),
    lambda x, mean, scale: x / scale - 2.0 / mean * _wald_share(x, mean, scale),
    domain=((0.5, 3.0), (0.5, 3.0), POSITIVE),
)
sample(
    "vonmises_sample",
    lambda x, mean, concentration: 1.0 + 0.0 * x,
    _vonmises,
    domain=((-1.0, 1.0), (0.2, 9.0), (-3.0, 3.0)),
)
sample(
    "noncentral_chisquare_sample",
    _noncentral_chi_square(0),
    _noncentral_chi_square(1),
    domain=((1.5, 6.0), (0.3, 3.0), POSITIVE),
)
sample(
    "noncentral_f_sample",
    _noncentral_f(0),
    _noncentral_f(1),
    _noncentral_f(2),
    domain=((1.5, 6.0), (2.0, 6.0), (0.3, 3.0), (0.4, 2.0)),
)
