"""Multivariate distributions and densities of kernels in `scipy.stats`, in place of compiled code and of code that writes by conditions."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import numpy as np

from gradtape.ops.scipy.stats.bivariate import upper_quadrant
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import unwrap
from gradtape.trace.routines.registry import refused, stands_for


def _solve_lower(factor: Any, right: Any) -> Any:
    linalg: Any = sys.modules["scipy.linalg"]
    return linalg.solve_triangular(factor, right, lower=True)


def _kernels(self: Any, points: Any) -> tuple[Any, Any]:
    """Return the exponents of the kernels at the points, and the logarithm of their norm."""
    points = np.atleast_2d(np.asarray(points))
    d, m = points.shape
    if d != self.d:
        if d != 1 or m != self.d:
            raise ValueError(f"points have dimension {d}, dataset has dimension {self.d}")
        points = np.reshape(points, (self.d, 1))
    factor = self.cho_cov
    centres, places = _solve_lower(factor, self.dataset), _solve_lower(factor, points)
    gaps = centres[:, :, None] - places[:, None, :]
    norm = -self.d / 2 * np.log(2 * np.pi) - np.sum(np.log(np.diagonal(factor)))
    return -0.5 * np.sum(gaps * gaps, axis=0), norm


@stands_for("scipy.stats._kde.gaussian_kde.evaluate")
def kernel_density(self: Any, points: Any) -> Any:
    """Follow the method, which computes in compiled code."""
    exponents, norm = _kernels(self, points)
    return self.weights @ np.exp(exponents + norm)


@stands_for("scipy.stats._kde.gaussian_kde.logpdf")
def log_kernel_density(self: Any, x: Any) -> Any:
    """Follow the method, which computes in compiled code."""
    exponents, norm = _kernels(self, x)
    special: Any = sys.modules["scipy.special"]
    return special.logsumexp(exponents, axis=0, b=self.weights[:, None]) + norm


def _scaled(bound: Any, spread: Any) -> Any:
    """Return a bound in units of the standard deviation; the quotient of an infinite one has no derivative in it."""
    infinite = np.isinf(bound)
    return np.where(infinite, bound, np.where(infinite, 0.0, bound) / spread)


@stands_for("scipy.stats._qmvnt._qauto", "scipy.stats._multivariate._qauto")
def probability_of_box(
    func: Any, covar: Any, low: Any, high: Any, *options: Any, **kwds: Any
) -> tuple[Any, Any, int]:
    """Follow the private function, which repeats an integration until it is exact enough: in two dimensions at most, at once."""
    special: Any = sys.modules["scipy.special"]
    if len(covar) == 1:
        spread = np.sqrt(covar[0, 0])
        sides = []
        for bound in (high[0], low[0]):  # at an infinite bound the second derivative would not be a number
            infinite = np.isinf(bound)
            inside = special.ndtr(np.where(infinite, 0.0, bound) / spread)
            sides.append(np.where(infinite, np.where(bound > 0, 1.0, 0.0), inside))
        return sides[0] - sides[1], 1e-15, 0
    if len(covar) == 2:
        return bivariate_normal(low, high, covar), 1e-15, 0
    return random_integral()


@stands_for("scipy.stats._qmvnt._bvn")
def bivariate_normal(a: Any, b: Any, A: Any) -> Any:
    """Follow the private function: the probability of a rectangle, from those of quadrants."""
    first, second = np.sqrt(A[0, 0]), np.sqrt(A[1, 1])
    r = A[0, 1] / (first * second)
    low, high = [[_scaled(bound[k], spread) for k, spread in enumerate((first, second))] for bound in (a, b)]

    def above(x: Any, y: Any) -> Any:
        return Array(upper_quadrant(*[unwrap(np.asarray(each)) for each in (x, y, r)]))

    p = above(low[0], low[1]) - above(high[0], low[1]) - above(low[0], high[1]) + above(high[0], high[1])
    return np.clip(p, 0.0, 1.0)


@stands_for("scipy.stats._qmvnt._qmvn", "scipy.stats._qmvnt._qmvt", "scipy.stats._multivariate._qmvt")
def random_integral(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse the integrals that SciPy computes from random numbers."""
    raise refused(
        "the probability of a box under a multivariate normal or t distribution",
        "in three dimensions and more, and for t distributions, SciPy computes it from random numbers, up to an error",
        "integrate it by a rule of fixed nodes, or hold the arguments fixed: gt.stop_gradient(...)",
    )


@stands_for("scipy.stats._multivariate.invwishart_gen._logpdf")
def inverse_wishart(self: Any, x: Any, dim: int, df: Any, log_det_scale: Any, C: Any) -> Any:
    """Follow the private method, which calls a routine of BLAS."""
    special: Any = sys.modules["scipy.special"]
    factors = np.linalg.cholesky(np.moveaxis(x, -1, 0))
    log_det_x = 2 * np.sum(np.log(np.diagonal(factors, axis1=1, axis2=2)), axis=-1)
    solved = np.linalg.solve(factors, np.broadcast_to(C, factors.shape))
    trace = np.sum(solved * solved, axis=(1, 2))
    norm = 0.5 * df * dim * np.log(2.0) + special.multigammaln(0.5 * df, dim)
    return 0.5 * df * log_det_scale - 0.5 * trace - 0.5 * (df + dim + 1) * log_det_x - norm


@stands_for("scipy.stats._multivariate.multinomial_gen._process_parameters")
def multinomial_parameters(self: Any, n: Any, p: Any) -> tuple[Any, Any, Any]:
    """Follow the private method: the last probability is what the others leave, unless the sum is one."""
    p = np.asarray(p) + 0.0
    rest = 1.0 - np.sum(p[..., :-1], axis=-1)
    exact = np.abs(1.0 - np.sum(p, axis=-1)) <= 10 * np.finfo(np.float64).eps
    p = np.concatenate([p[..., :-1], np.where(exact, p[..., -1], rest)[..., None]], axis=-1)
    outside = np.any(p < 0, axis=-1) | np.any(p > 1, axis=-1)
    n = np.array(n, dtype=int)
    return n, p, (n < 0) | outside
