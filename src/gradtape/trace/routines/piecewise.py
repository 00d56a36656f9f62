"""Piecewise polynomials, the routines of `scipy.interpolate._ppoly`, and interpolants in barycentric form.

A point belongs to the interval whose left end is the last breakpoint that is not greater than it; which one it is has no derivative. So
values are those of Horner's rule with the coefficients of that interval, and derivatives in coefficients, breakpoints and points follow.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from gradtape.trace.routines.registry import known_numbers, lookup, stands_for


def interval_of(x: Any, points: Any) -> Any:
    """Return the number of the interval of each point; the first or last one for points outside."""
    falls = x[-1] < x[0]
    if type(falls) is np.bool_:  # isinstance holds of traced numbers, too
        x, points = (-x, -points) if falls else (x, points)
    else:  # no branch: in the body of a loop it has no truth
        sign = np.where(falls, -1.0, 1.0)
        x, points = sign * x, sign * points
    intervals = np.searchsorted(x, points, side="right")
    return np.clip(intervals - 1, 0, x.shape[0] - 2)


def _outside(x: Any, points: Any) -> Any:
    low, high = np.minimum(x[0], x[-1]), np.maximum(x[0], x[-1])
    return ~((points >= low) & (points <= high))


def horner(coefficients: Any, s: Any, order: int = 0) -> Any:
    """Return the derivative of this order of polynomials with these coefficients, the highest power first, along the first axis."""
    if order < 0:
        raise ValueError("Order of derivative cannot be negative")
    degree = coefficients.shape[0] - 1
    total = 0.0 * coefficients[0] * s
    for power in range(degree, order - 1, -1):
        factor = math.perm(power, order)
        term = coefficients[degree - power]
        total = total * s + (term if factor == 1 else term * float(factor))
    return total


def _fill_outside(values: Any, x: Any, points: Any, extrapolate: bool) -> Any:
    return values if extrapolate else np.where(_outside(x, points)[:, None], np.nan, values)


@stands_for("scipy.interpolate._ppoly.evaluate")
def evaluate(c: Any, x: Any, xp: Any, dx: int, extrapolate: bool, out: Any) -> None:
    """Evaluate piecewise polynomials (degrees, intervals, columns) at points."""
    intervals = interval_of(x, xp)
    values = horner(lookup(c, (slice(None), intervals)), (xp - lookup(x, intervals))[:, None], int(dx))
    out[...] = _fill_outside(values, x, xp, extrapolate)


@stands_for("scipy.interpolate._ppoly.evaluate_bernstein")
def evaluate_bernstein(c: Any, x: Any, xp: Any, nu: int, extrapolate: bool, out: Any) -> None:
    """Evaluate polynomials in the Bernstein basis of each interval, by de Casteljau's algorithm."""
    if nu < 0:
        raise ValueError("Order of derivative cannot be negative")
    intervals = interval_of(x, xp)
    width = (lookup(x, intervals + 1) - lookup(x, intervals))[:, None]
    s = (xp - lookup(x, intervals))[:, None] / width
    points = lookup(c, (slice(None), intervals))
    for _ in range(int(nu)):
        degree = points.shape[0] - 1
        points = (points[1:] - points[:-1]) * degree / width if degree else 0.0 * points
    while points.shape[0] > 1:
        points = points[:-1] * (1 - s) + points[1:] * s
    out[...] = _fill_outside(points[0] + 0.0 * s, x, xp, extrapolate)


@stands_for("scipy.interpolate._ppoly.evaluate_nd")
def evaluate_nd(c: Any, xs: Any, ks: Any, xp: Any, dx: Any, extrapolate: bool, out: Any) -> None:
    """Evaluate piecewise polynomials of several variables: Horner's rule in one after the other."""
    ndim = len(xs)
    extents = [len(x) - 1 for x in xs]
    c = c.reshape(*map(int, ks), *extents, c.shape[-1])
    intervals = [interval_of(x, xp[:, axis]) for axis, x in enumerate(xs)]
    values = lookup(c, (slice(None),) * ndim + tuple(intervals))
    for axis, (x, interval) in enumerate(zip(xs, intervals, strict=True)):
        values = horner(values, (xp[:, axis] - lookup(x, interval))[:, None], int(dx[axis]))
        if not extrapolate:
            values = np.where(_outside(x, xp[:, axis])[:, None], np.nan, values)
    out[...] = values


@stands_for("scipy.interpolate._ppoly.fix_continuity")
def fix_continuity(c: Any, x: Any, order: int) -> None:
    """Change the low coefficients of all intervals but the first, so that derivatives up to an order are continuous.

    A coefficient of an interval is that of the one before plus what the higher powers contribute at its end: a cumulative sum.
    """
    degree = c.shape[0] - 1
    widths = (x[1:-1] - x[:-2])[:, None]
    for low in range(int(order), -1, -1):
        growth = sum(
            math.comb(power, low) * c[degree - power, :-1] * widths ** (power - low)
            for power in range(low + 1, degree + 1)
        )
        c[degree - low, 1:] = c[degree - low, 0] + np.cumsum(growth, axis=0)


def _antiderivative_at(c: Any, x: Any, point: Any) -> Any:
    """Return the integral from the first breakpoint to a point."""
    degree = c.shape[0]
    raised = c / np.arange(degree, 0, -1.0)[:, None, None]
    widths = (x[1:] - x[:-1])[:, None]
    whole = horner(raised, widths) * widths
    before = np.concatenate([0.0 * whole[:1], np.cumsum(whole, axis=0)])
    interval = interval_of(x, point)
    s = point - lookup(x, interval)
    return lookup(before, interval) + horner(lookup(raised, (slice(None), interval)), s) * s


@stands_for("scipy.interpolate._ppoly.integrate")
def integrate(c: Any, x: Any, a: Any, b: Any, extrapolate: bool, out: Any) -> None:
    """Integrate piecewise polynomials from a to b."""
    total = _antiderivative_at(c, x, b) - _antiderivative_at(c, x, a)
    if not extrapolate:
        total = np.where(_outside(x, a) | _outside(x, b), np.nan, total)
    out[...] = total


@stands_for("scipy.interpolate._ppoly.real_roots")
def real_roots(c: Any, x: Any, y: Any, report_discont: bool, extrapolate: bool) -> list[Any]:
    """Find where piecewise polynomials are y. Two of Newton's steps from the numbers give the first two derivatives."""
    what = "the solutions of a piecewise polynomial"
    numbers, breaks = known_numbers(c, what), known_numbers(x, what)
    routine = sys.modules["scipy.interpolate._ppoly"].real_roots
    found = routine(numbers, breaks, y, report_discont, extrapolate)
    return [
        _refined(c[:, :, column], numbers[:, :, column], x, breaks, y, roots)
        for column, roots in enumerate(found)
    ]


def _refined(c: Any, numbers: Any, x: Any, breaks: Any, y: Any, roots: Any) -> Any:
    """Return solutions with derivatives. One at a breakpoint where the polynomials jump across y moves with the breakpoint."""
    interval = interval_of(breaks, roots)
    terms = np.where(np.isnan(roots), 0.0, roots - breaks[interval])
    here = numbers[:, interval]
    size = horner(np.abs(here), np.abs(terms)) + np.abs(y)
    jumps = (roots == breaks[interval]) & (interval > 0) & (np.abs(horner(here, terms) - y) > 1e-9 * size)
    result = roots
    for _ in range(2):
        s = result - lookup(x, interval)
        slope = horner(lookup(c, (slice(None), interval)), s, 1)
        change = (horner(lookup(c, (slice(None), interval)), s) - y) / np.where(slope == 0, 1.0, slope)
        result = np.where(np.isnan(roots) | (slope == 0), roots, result - change)
    return np.where(jumps, lookup(x, interval), result)


def barycentric(points: Any, nodes: Any, weights: Any, values: Any) -> Any:
    """Return interpolants in barycentric form, one for each column of values.

    Both sums are multiplied by the distance to the nearest node: they are finite at the nodes, with all derivatives.
    """
    away = points[:, None] - nodes
    nearest = np.argmin(np.abs(away), axis=1)[:, None] == np.arange(nodes.shape[0])
    own = np.sum(np.where(nearest, away, 0.0), axis=1, keepdims=True)
    ratio = np.where(nearest, 1.0, own / np.where(nearest, 1.0, away))
    shares = weights * np.where(np.isinf(points)[:, None], 1.0, ratio)
    return shares @ values / np.sum(shares, axis=1, keepdims=True)


@stands_for("scipy.interpolate._polyint.BarycentricInterpolator._evaluate")
def barycentric_polynomial(self: Any, x: Any) -> Any:
    """Evaluate a polynomial: SciPy's derivatives at the nodes would be those of numbers."""
    return barycentric(x, self.xi, self.wi, self.yi)


@stands_for("scipy.interpolate._bary_rational._BarycentricRational.__call__")
def barycentric_rational(self: Any, z: Any) -> Any:
    """Evaluate `scipy.interpolate.FloaterHormannInterpolator`."""
    values = np.reshape(self._support_values, (self._support_values.shape[0], -1))
    found = barycentric(np.ravel(z), self._support_points, self.weights, values)
    found = np.reshape(found, (*np.shape(z), *self._shape))
    return np.moveaxis(found, 0, self._axis) if np.ndim(z) else found


@stands_for("scipy.interpolate._cubic.Akima1DInterpolator.__init__")
def akima_interpolator(
    self: Any, x: Any, y: Any, axis: int = 0, *, method: str = "akima", extrapolate: bool | None = None
) -> None:
    """Set the slopes of `scipy.interpolate.Akima1DInterpolator` by selection: SciPy's code finds by their numbers where they are defined.

    H. Akima, "A New Method of Interpolation and Smooth Curve Fitting Based on Local Procedures", Journal of the ACM 17 (1970).
    """
    if method not in ("akima", "makima"):
        raise NotImplementedError(f"`method`={method} is unsupported.")
    x, y = np.asarray(x), np.asarray(y)
    if np.issubdtype(y.dtype, np.complexfloating):
        raise ValueError("`Akima1DInterpolator` only works with real values for `y`.")
    columns = np.moveaxis(y, axis, 0)
    slopes = np.diff(columns, axis=0) / np.reshape(np.diff(x), (-1, *[1] * (columns.ndim - 1)))
    if len(slopes) == 1:
        tangents = np.concatenate([slopes, slopes])
    else:
        before, after = 2 * slopes[:1] - slopes[1:2], 2 * slopes[-1:] - slopes[-2:-1]
        m = np.concatenate([2 * before - slopes[:1], before, slopes, after, 2 * after - slopes[-1:]])
        changes = np.abs(np.diff(m, axis=0))
        if method == "makima":
            sizes = np.abs(m[1:] + m[:-1])
            before_weight, after_weight = changes[2:] + 0.5 * sizes[2:], changes[:-2] + 0.5 * sizes[:-2]
        else:
            before_weight, after_weight = changes[2:], changes[:-2]
        total = before_weight + after_weight
        defined = total > 1e-9 * np.max(total)
        share = after_weight / np.where(defined, total, 1.0)
        tangents = np.where(defined, m[1:-2] + share * (m[2:-1] - m[1:-2]), 0.5 * (m[3:] + m[:-3]))
    outside = False if extrapolate is None else extrapolate
    kind = sys.modules["scipy.interpolate"].Akima1DInterpolator
    super(kind, self).__init__(x, y, np.moveaxis(tangents, 0, axis), axis, outside)


@stands_for("scipy.interpolate._polyint.BarycentricInterpolator.__init__")
def barycentric_interpolator(
    self: Any, xi: Any, yi: Any = None, axis: int = 0, *, wi: Any = None, **_: Any
) -> None:
    """Compute the weights of `scipy.interpolate.BarycentricInterpolator` in the order of the nodes.

    SciPy multiplies the distances in a random order, against overflow of the partial products; the weights are the same.
    """
    super(sys.modules["scipy.interpolate"].BarycentricInterpolator, self).__init__(xi, yi, axis)
    self.xi = np.asarray(xi)
    self.set_yi(yi)
    self.n = len(self.xi)
    self._diff_cij = None
    if wi is not None:
        self.wi = wi
        return
    self._inv_capacity = 4.0 / (np.max(self.xi) - np.min(self.xi))
    distances = self._inv_capacity * (self.xi[:, None] - self.xi)
    products = np.prod(np.where(np.eye(self.n, dtype=bool), 1.0, distances), axis=1)
    if np.any(products == 0.0):
        raise ValueError("Interpolation points xi must be distinct.")
    self.wi = 1.0 / products
