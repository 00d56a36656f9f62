"""Smoothing splines: the fits of FITPACK that choose their knots by the data.

FITPACK decides with numbers how many knots there are, and at which data points. What it decides is held: to small changes of the data the
knots do not answer, but where a knot stands at a data point it moves with it. Given the knots, the coefficients c solve a problem of least
squares. If it leaves more residual than the smoothing parameter s allows, that is the fit. Otherwise c minimises

    ||W (y - A c)||^2 + weight ||B c||^2,

in which B c are the jumps of the highest derivative at the inner knots, and the weight is the one for which the first term is s
(P. Dierckx, "Curve and Surface Fitting with Splines", 1993, chapters 5 and 9). FITPACK meets s up to a tenth of a per cent only, by
some steps of rational interpolation. Which steps they are is found with numbers, and they are repeated on the data: the derivatives are
those of what FITPACK returns. Where its weight is not found so, the share of s that it left is held, and the derivatives are those of the
implicit function theorem.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.functions import without_hook
from gradtape.trace.routines.registry import computed, known_numbers, lookup, refused, stands_for
from gradtape.trace.routines.splines import (
    basis_functions,
    collocation,
    fitted_along_first,
    interpolated_spline,
    interpolating_knots,
    knots_around,
    padded,
    set_spline,
    solved_along_first,
)

GIVEN: Final = (
    "its work arrays and closed curves are not supported",
    "choose the knots: scipy.interpolate.make_lsq_spline, or make_interp_spline(..., bc_type='periodic')",
)
"""Why some calls of FITPACK are not supported, and what to do."""

LIMIT: Final = 20
"""The steps that FITPACK makes."""

ACCURACY: Final = 1e-3
"""The share of s by which it may miss s."""

DONE, SHRINK, SHRINK_INSIDE, GROW, GROW_INSIDE, RATIONAL = range(1, 7)
"""The kinds of steps, as digits of a number; a rational step has two digits more, by `UPPER` and `BELOW`."""

UPPER, BELOW, DIGITS = 1, 2, 10
"""Whether a rational step knows an upper end, and whether the last point was beyond the root."""

STEPS: Final = 2
"""Newton's steps for the weight from its number: they give its first and second derivatives."""

NEARLY: Final = 1e-9
"""The share by which a residual may be larger than that of least squares and is still taken for it."""

TOLERANCE: Final = 1e-6
"""How far values may be from those of FITPACK, relative to the largest."""


class Fit(NamedTuple):
    """A smoothing spline: what FITPACK has found with numbers, or one whose coefficients follow the data.

    Attributes
    ----------
    knots : list of array
        The knots along each axis.
    coefficients : array of shape (coefficients, columns)
        The coefficients.
    residual : float or array
        The weighted sum of squares that is left.
    """

    knots: Sequence[Any]
    coefficients: Any
    residual: Any


def _jumps(t: Any, k: int) -> Any:
    """Return the jumps (inner knots, coefficients) of the k-th derivatives of the basis functions, in FITPACK's scale."""
    count = t.shape[0] - k - 1
    inner = t[k + 1 : count]
    right = np.arange(k + 1, count)
    numbers = np.arange(count)

    def derivatives(interval: Any) -> Any:
        parts = basis_functions(t, k, inner, interval, k)
        return sum(
            np.where((interval - k + j)[:, None] == numbers, part[:, None], 0.0)
            for j, part in enumerate(parts)
        )

    scale = (t[count] - t[k]) / (count - k)
    return (derivatives(right) - derivatives(right - 1)) * scale**k / math.factorial(k)


def _system(knots: Sequence[Any], degrees: Sequence[int], points: Sequence[Any]) -> tuple[Any, Any]:
    """Return the values of all basis functions at the points, and the matrix of the jumps."""
    if len(knots) == 1:
        return collocation(knots[0], degrees[0], points[0]), _jumps(knots[0], degrees[0])
    first, second = (
        collocation(t, k, np.clip(x, t[k], t[-k - 1])) for t, k, x in zip(knots, degrees, points, strict=True)
    )
    rows = (first[:, :, None] * second[:, None, :]).reshape(first.shape[0], first.shape[1] * second.shape[1])
    across = np.kron(_jumps(knots[0], degrees[0]), np.eye(second.shape[1]))
    along = np.kron(np.eye(first.shape[1]), _jumps(knots[1], degrees[1]))
    return rows, np.concatenate([across, along])


def _least_squares(rows: Any, right: Any) -> Any:
    return np.linalg.lstsq(rows, right, rcond=1e-15)[0]


def _penalised(rows: Any, right: Any, jumps: Any, weight: Any) -> Any:
    zeros = np.zeros((jumps.shape[0], right.shape[1]))
    return _least_squares(np.concatenate([rows, np.sqrt(weight) * jumps]), np.concatenate([right, zeros]))


def _weight_of(rows: Any, right: Any, jumps: Any, residual: float) -> float:
    """Return the weight for which this residual is left, by bisection on its logarithm; 0 for least squares."""

    def left_with(weight: float) -> float:
        c = _penalised(rows, right, jumps, weight) if weight else _least_squares(rows, right)
        return float(np.sum((right - rows @ c) ** 2))

    smallest = left_with(0.0)
    scale = float(np.sum(right**2))
    if not jumps.size or residual <= smallest * (1 + NEARLY) + 1e-14 * scale:
        return 0.0
    from scipy.optimize import brentq

    unit = float(np.sum(rows**2) / np.sum(jumps**2))
    return unit * math.exp(
        brentq(lambda z: left_with(unit * math.exp(z)) - residual, -60.0, 60.0, xtol=1e-13, rtol=1e-14)
    )


def _step_for(
    p1: Any, p2: Any, p3: Any, f1: Any, f2: Any, f3: Any, accuracy: float, signs_known: list[bool]
) -> int:
    """Return FITPACK's next step; `signs_known` says whether points on both sides of the root were found. 0 where it gives up."""
    if abs(f2) < accuracy:
        return DONE
    if not signs_known[1]:
        if f2 - f3 <= accuracy:
            return SHRINK_INSIDE if p2 * 0.04 <= p1 else SHRINK
        signs_known[1] = f2 < 0
    if not signs_known[0]:
        if f1 - f2 <= accuracy:
            return GROW_INSIDE if 0 < p3 <= p2 / 0.04 else GROW
        signs_known[0] = f2 > 0
    if f2 >= f1 or f2 <= f3:
        return 0
    return RATIONAL + UPPER * int(p3 > 0) + BELOW * int(f2 < 0)


def _search(
    distance: Callable[[Any], Any],
    p: Any,
    f1: Any,
    f3: Any,
    script: Sequence[int] | None,
    accuracy: float = 0.0,
) -> tuple[Any, list[int]]:
    """Return the square root of the inverse of the weight, by FITPACK's steps (fpcurf.f, fprati.f), and which steps these were.

    Parameters
    ----------
    distance : callable
        ``(p) -> residual - s``.
    p : float or array
        Its first point.
    f1, f3 : float or array
        The distances for the polynomial, and for least squares.
    script : sequence of int or None
        The steps; None to find out.
    accuracy : float
        The distance that is small enough.
    """
    p1, p3, codes, signs_known = 0.0, -1.0, [], [False, False]
    for step in range(LIMIT):
        if script is not None and script[step] == DONE:
            break
        f2, p2 = distance(p), p
        code = _step_for(p1, p2, p3, f1, f2, f3, accuracy, signs_known) if script is None else script[step]
        codes.append(code)
        if code in (0, DONE):
            break
        if code in (SHRINK, SHRINK_INSIDE):
            p3, f3 = p2, f2
            p = p1 * 0.9 + p2 * 0.1 if code == SHRINK_INSIDE else p * 0.04
        elif code in (GROW, GROW_INSIDE):
            p1, f1 = p2, f2
            p = p2 * 0.1 + p3 * 0.9 if code == GROW_INSIDE else p / 0.04
        else:
            if (code - RATIONAL) & UPPER:
                h1, h2, h3 = f1 * (f2 - f3), f2 * (f3 - f1), f3 * (f1 - f2)
                p = -(p1 * p2 * h3 + p2 * p3 * h1 + p3 * p1 * h2) / (p1 * h1 + p2 * h2 + p3 * h3)
            else:
                p = (p1 * (f1 - f3) * f2 - p2 * (f2 - f3) * f1) / ((f1 - f2) * f3)
            if (code - RATIONAL) & BELOW:
                p3, f3 = p2, f2
            else:
                p1, f1 = p2, f2
    return p, codes


def _start(knots: Sequence[Any], degrees: Sequence[int], points: Any, w: Any, rows: Any, right: Any) -> Any:
    """Return FITPACK's first point, and the residuals of the polynomial and of least squares."""
    ends = [
        np.concatenate([t[:1]] * (k + 1) + [t[-1:]] * (k + 1)) for t, k in zip(knots, degrees, strict=True)
    ]
    few = _system(ends, degrees, points)[0] * w[:, None]
    residuals = [np.sum((right - a @ _least_squares(a, right)) ** 2) for a in (few, rows)]
    size = np.sum(np.abs(np.diagonal(np.linalg.qr(rows, mode="r"))))
    return rows.shape[1] / size, *residuals


def _traced_weight(
    knots: Sequence[Any],
    degrees: Sequence[int],
    points: Any,
    w: Any,
    s: Any,
    rows: Any,
    right: Any,
    jumps: Any,
    script: Sequence[int] | None,
) -> tuple[Any, list[int]]:
    """Return the weight that FITPACK's steps end at, and these steps."""
    p, above, below = _start(knots, degrees, points, w, rows, right)

    def distance(p: Any) -> Any:
        return np.sum((right - rows @ _penalised(rows, right, jumps, p**-2)) ** 2) - s

    p, codes = _search(distance, p, above - s, below - s, script, ACCURACY * s if script is None else 0.0)
    return p**-2, codes


def _places(t: Any, x: Any) -> tuple[Any, Any]:
    """Return the two data points in the middle of which each knot stands, the same ones for a knot at a data point; -1 for others."""
    middles = (x[1:] + x[:-1]) / 2
    first = np.full(t.shape[0], -1)
    second = np.full(t.shape[0], -1)
    for number, knot in enumerate(t):
        if (hit := np.flatnonzero(x == knot)).size:
            first[number] = second[number] = hit[0]
        elif (hit := np.flatnonzero(middles == knot)).size:
            first[number], second[number] = hit[0], hit[0] + 1
    return first, second


def smoothed(
    function_name: str,
    fit: Callable[..., Fit],
    degrees: Sequence[int],
    points: Sequence[Any],
    values: Any,
    w: Any,
    s: Any,
) -> Fit:
    """Return the fit of a smoothing spline.

    Parameters
    ----------
    what : str
        The function, for errors.
    fit : callable
        ``(points, values, w, s) -> Fit`` of ndarrays.
    degrees : sequence of int
        The degree along each axis.
    points : sequence of arrays of shape (points,)
        The coordinates along each axis.
    values : array of shape (points, columns)
        The data.
    w : array of shape (points,)
        The weights.
    s : float or array
        The smoothing parameter.

    Raises
    ------
    UnsupportedFunctionError
        Where FITPACK returns something else than what its documentation says, as for data that do not determine the coefficients.
    """
    axes, count = len(points), values.shape[0]
    room = 2 * count + 2 * max(degrees) + 4

    def decide(*arrays: Any) -> tuple[Any, ...]:
        x, y, weights, level = arrays[:axes], arrays[axes], arrays[axes + 1], float(arrays[axes + 2])
        if not all(np.isfinite(each).all() for each in (*x, y, weights)):
            raise refused(
                f"{function_name} of data that are not finite",
                "FITPACK returns NaN for all coefficients then",
                "leave such points out; a weight of 0 is not enough",
            )
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of FITPACK, about s and the number of knots: its fit is what it is
            fitted = fit(x, y, weights, level)
        rows, jumps = _system(fitted.knots, degrees, x)
        rows, right = rows * weights[:, None], y * weights[:, None]
        weight = _weight_of(rows, right, jumps, fitted.residual)
        code = 0
        if weight and rows.shape[0] >= rows.shape[1]:
            other, steps = _traced_weight(fitted.knots, degrees, x, weights, level, rows, right, jumps, None)
            if steps[-1] == DONE and len(steps) < LIMIT - 2 and abs(other - weight) <= 1e-5 * weight:
                code = sum(step * DIGITS**power for power, step in enumerate(steps))
        c = _penalised(rows, right, jumps, weight) if weight else _least_squares(rows, right)
        gap = np.max(np.abs(rows @ (c - fitted.coefficients)), initial=0.0)
        if not gap <= TOLERANCE * np.max(np.abs(right), initial=1e-300):
            raise refused(
                f"this fit of {function_name}",
                "FITPACK does not solve the problem of least squares with these data",
                "choose the knots, or less smoothing",
            )
        share = fitted.residual / level if level else 1.0
        decisions: list[Any] = [np.array(weight), np.array(share), np.array(code or -int(weight > 0))]
        for t, line in zip(fitted.knots, x, strict=True):
            first, second = _places(t, line)
            padding = (0, room - t.shape[0])
            decisions += [
                np.array(t.shape[0]),
                np.pad(t, padding),
                np.pad(first, padding),
                np.pad(second, padding),
            ]
        return tuple(decisions)

    number, positions = np.array(1), np.zeros(room, int)
    like = (np.zeros(()), np.zeros(()), number, *[number, np.zeros(room), positions, positions] * axes)
    weight, share, smooth, *fitted = computed(decide, like, *points, values, w, np.asarray(s) + 0.0)
    knots = []
    for axis, x in enumerate(points):
        extent, t, first, second = fitted[4 * axis : 4 * axis + 4]
        part = slice(int(extent))
        t = t[part]
        if isinstance(x, Handle):
            first, second = first[part], second[part]
            middle = (lookup(x, np.maximum(first, 0)) + lookup(x, np.maximum(second, 0))) / 2
            t = np.where(first < 0, t, middle)
        knots.append(t)
    rows, jumps = _system(knots, degrees, points)
    rows, right = rows * w[:, None], values * w[:, None]
    script = int(smooth)
    if script == 0:
        c = _least_squares(rows, right)
        return Fit(knots, c, np.sum((right - rows @ c) ** 2))
    if script > 0:
        steps = [int(digit) for digit in str(script)[::-1]]
        weight, _ = _traced_weight(knots, degrees, points, w, s, rows, right, jumps, steps)
        c = _penalised(rows, right, jumps, weight)
        return Fit(knots, c, np.sum((right - rows @ c) ** 2))
    target = s * share
    gram, penalty = rows.T @ rows, jumps.T @ jumps
    for _ in range(STEPS):
        c = _penalised(rows, right, jumps, weight)
        force = penalty @ c
        slope = 2 * weight * np.sum(force * np.linalg.solve(gram + weight * penalty, force))
        weight = weight - (np.sum((right - rows @ c) ** 2) - target) / slope
    return Fit(knots, _penalised(rows, right, jumps, weight), target)


def _is_zero(s: Any) -> bool:
    return issubclass(type(s), int | float) and s == 0


def _curve(function_name: str, x: Any, y: Any, w: Any, k: int, s: Any, xb: Any, xe: Any) -> Fit:
    """Return the fit of a curve, or of some with the same knots."""

    def fit(points: Any, values: Any, weights: Any, level: float) -> Fit:
        module, (line,) = sys.modules["scipy.interpolate._fitpack_impl"], points
        if values.shape[1] == 1:
            (t, c, _), residual, *_ = module.splrep(
                line, values[:, 0], weights, xb, xe, k, s=level, full_output=1
            )
            parts = [c]
        else:
            ((t, parts, _), _), residual, *_ = module.splprep(
                list(values.T), weights, line, xb, xe, k, s=level, full_output=1
            )
        count = t.shape[0] - k - 1
        return Fit([t], np.stack([part[:count] for part in parts], axis=1), float(residual))

    return smoothed(function_name, fit, [k], [x], y, w, s)


@stands_for("scipy.interpolate._fitpack_impl.splrep")
def splrep(
    x: Any,
    y: Any,
    w: Any = None,
    xb: Any = None,
    xe: Any = None,
    k: int = 3,
    task: int = 0,
    s: Any = None,
    t: Any = None,
    full_output: int = 0,
    per: int = 0,
    quiet: int = 1,
) -> Any:
    """Follow `scipy.interpolate.splrep` for one curve."""
    x, y = np.atleast_1d(x), np.atleast_1d(y)
    if per or full_output or task == 1:
        raise refused("scipy.interpolate.splrep with per, full_output or task=1, of traced arrays", *GIVEN)
    smooth = t is None and (s is not None or w is not None) and not _is_zero(s)
    w = np.ones(x.shape[0]) if w is None else np.asarray(w)
    if smooth:
        s = x.shape[0] - math.sqrt(2 * x.shape[0]) if s is None else s
        curve = _curve("scipy.interpolate.splrep", x, y[:, None] + 0.0, w, k, s, xb, xe)
        return curve.knots[0], padded(curve.coefficients[:, 0], curve.knots[0]), k
    knots = interpolating_knots(x, k, xb, xe) if t is None else knots_around(x, t, k, xb, xe)
    matrix = collocation(knots, k, x)
    c = solved_along_first(matrix, y) if t is None else fitted_along_first(matrix, y, w)
    return knots, padded(c, knots), k


@stands_for("scipy.interpolate._fitpack_impl.splprep")
def splprep(
    x: Any,
    w: Any = None,
    u: Any = None,
    ub: Any = None,
    ue: Any = None,
    k: int = 3,
    task: int = 0,
    s: Any = None,
    t: Any = None,
    full_output: int = 0,
    nest: Any = None,
    per: int = 0,
    quiet: int = 1,
) -> Any:
    """Follow `scipy.interpolate.splprep` for curves that are not closed."""
    if task or per or full_output or t is not None:
        raise refused("scipy.interpolate.splprep with per, full_output or task, of traced arrays", *GIVEN)
    points = np.stack([np.asarray(part) + 0.0 for part in x])
    if u is None:
        steps = np.sqrt(np.sum(np.diff(points, axis=1) ** 2, axis=0))
        length = np.concatenate([np.zeros(1), np.cumsum(steps)])
        u = length / length[-1]
    u = np.asarray(u)
    if not _is_zero(s):
        weights = np.ones(u.shape[0]) if w is None else np.asarray(w)
        s = u.shape[0] - math.sqrt(2 * u.shape[0]) if s is None else s
        fit = _curve("scipy.interpolate.splprep", u, points.T, weights, k, s, ub, ue)
        parts = [fit.coefficients[:, column] for column in range(points.shape[0])]
        return (fit.knots[0], parts, k), u
    knots = interpolating_knots(u, k, ub, ue)
    c = solved_along_first(collocation(knots, k, u), points.T)
    return (knots, [c[:, column] for column in range(c.shape[1])], k), u


@stands_for("scipy.interpolate._fitpack2.UnivariateSpline.__init__")
def univariate_spline(
    self: Any,
    x: Any,
    y: Any,
    w: Any = None,
    bbox: Any = (None, None),
    k: int = 3,
    s: Any = None,
    ext: Any = 0,
    check_finite: bool = False,
) -> None:
    """Follow the constructor of `scipy.interpolate.UnivariateSpline` ."""
    if _is_zero(s):
        interpolated_spline(self, x, y, w, bbox, k, ext, check_finite)
        return
    x, y, w, bounds, self.ext = self.validate_input(x, y, w, np.asarray(bbox), k, s, ext, check_finite)
    w = np.ones(x.shape[0]) if w is None else w
    s = float(x.shape[0]) if s is None else s
    curve = _curve("scipy.interpolate.UnivariateSpline", x, y[:, None] + 0.0, w, k, s, *bounds)
    set_spline(self, x, y, k, curve.knots[0], curve.coefficients[:, 0], curve.residual)


def _fit_of_objects(x: Any, y: Any, w: Any, k: int, s: Any, options: dict[str, Any]) -> Any:
    """Return a spline object, for one curve or several with the same knots."""
    module = sys.modules["scipy.interpolate._fitpack_repro"]

    def fit(points: Any, values: Any, weights: Any, level: float) -> Fit:
        (line,) = points
        spline, _ = module.make_splprep(list(values.T), w=weights, u=line, k=k, s=level, **options)
        left = np.sum((weights * (values.T - spline(line).reshape(values.shape[::-1]))) ** 2)
        return Fit([spline.t], np.reshape(spline.c, (-1, values.shape[1])), float(left))

    smooth = smoothed("scipy.interpolate.make_splrep", fit, [k], [x], y, w, s)
    spline = sys.modules["scipy.interpolate._bsplines"].BSpline
    return spline.construct_fast(smooth.knots[0], smooth.coefficients, k)


def _is_traced(s: Any, bc_type: Any) -> bool:
    return not _is_zero(s) and bc_type in (None, "not-a-knot")


@stands_for("scipy.interpolate._fitpack_repro.make_splrep")
def make_splrep(
    x: Any, y: Any, *, w: Any = None, k: int = 3, s: Any = 0, bc_type: Any = None, **options: Any
) -> Any:
    """Follow `scipy.interpolate.make_splrep`; a spline that interpolates, or is closed, is traced."""
    if not _is_traced(s, bc_type):
        plain = without_hook(sys.modules["scipy.interpolate._fitpack_repro"].make_splrep)
        return plain(x, y, w=w, k=k, s=s, bc_type=bc_type, **options)
    x, y = np.asarray(x) + 0.0, np.asarray(y) + 0.0
    w = np.ones(x.shape[0]) if w is None else np.asarray(w) + 0.0
    ends = {"ub": options.pop("xb", None), "ue": options.pop("xe", None), **options}
    spline = _fit_of_objects(x, y[:, None], w, k, s, ends)
    spline.c = spline.c[:, 0]
    return spline


@stands_for("scipy.interpolate._fitpack_repro.make_splprep")
def make_splprep(
    x: Any, *, w: Any = None, u: Any = None, k: int = 3, s: Any = 0, bc_type: Any = None, **options: Any
) -> Any:
    """Follow `scipy.interpolate.make_splprep`; a curve that interpolates, or is closed, is traced."""
    if not _is_traced(s, bc_type):
        plain = without_hook(sys.modules["scipy.interpolate._fitpack_repro"].make_splprep)
        return plain(x, w=w, u=u, k=k, s=s, bc_type=bc_type, **options)
    points = np.stack([np.asarray(part) + 0.0 for part in x])
    if u is None:
        steps = np.sqrt(np.sum(np.diff(points, axis=1) ** 2, axis=0))
        length = np.concatenate([np.zeros(1), np.cumsum(steps)])
        u = length / length[-1]
    u = np.asarray(u)
    w = np.ones(u.shape[0]) if w is None else np.asarray(w) + 0.0
    spline = _fit_of_objects(u, points.T, w, k, s, options)
    spline.axis = 1
    return spline, u


@stands_for("scipy.interpolate._fitpack_repro.generate_knots")
def generate_knots(x: Any, y: Any, *, w: Any = None, **options: Any) -> Any:
    """Follow `scipy.interpolate.generate_knots` on a tape: its knots are constants."""
    name = "the knots for data"
    if isinstance(x, Handle):
        raise refused(
            f"{name} at traced points", "which points are knots depends on the numbers", "use x.numpy()"
        )
    plain = without_hook(sys.modules["scipy.interpolate._fitpack_repro"].generate_knots)
    return plain(x, known_numbers(y, name), w=None if w is None else known_numbers(w, name), **options)


# Surfaces over scattered points


def _surface(
    function_name: str,
    x: Any,
    y: Any,
    z: Any,
    w: Any,
    bounds: Any,
    kx: int,
    ky: int,
    s: Any,
    eps: float,
    fit: Any,
) -> Fit:
    x, y, z = np.ravel(x) + 0.0, np.ravel(y) + 0.0, np.ravel(z) + 0.0
    w = np.ones(x.shape[0]) if w is None else np.ravel(w) + 0.0
    if not x.shape == y.shape == z.shape == w.shape:
        raise ValueError("x, y, z and w must have as many elements")

    def decide(points: Any, values: Any, weights: Any, level: float) -> Fit:
        tx, ty, c, residual = fit(*points, values[:, 0], weights, level)
        return Fit([tx, ty], c[: (tx.shape[0] - kx - 1) * (ty.shape[0] - ky - 1), None], float(residual))

    return smoothed(function_name, decide, [kx, ky], [x, y], z[:, None], w, s)


@stands_for("scipy.interpolate._fitpack2.SmoothBivariateSpline.__init__")
def smooth_surface(
    self: Any,
    x: Any,
    y: Any,
    z: Any,
    w: Any = None,
    bbox: Any = (None,) * 4,
    kx: int = 3,
    ky: int = 3,
    s: Any = None,
    eps: float = 1e-16,
) -> None:
    """Follow the constructor of `scipy.interpolate.SmoothBivariateSpline`."""

    def fit(x: Any, y: Any, z: Any, w: Any, level: float) -> Any:
        surface = type(self)(x, y, z, w, bbox, kx, ky, level, eps)
        return *surface.tck, surface.fp

    level = float(np.size(z)) if s is None else s
    surface = _surface("scipy.interpolate.SmoothBivariateSpline", x, y, z, w, bbox, kx, ky, level, eps, fit)
    self.fp, self.degrees = surface.residual, (kx, ky)
    self.tck = (*surface.knots, surface.coefficients[:, 0])


@stands_for("scipy.interpolate._fitpack2.LSQBivariateSpline.__init__")
def least_squares_surface(
    self: Any,
    x: Any,
    y: Any,
    z: Any,
    tx: Any,
    ty: Any,
    w: Any = None,
    bbox: Any = (None,) * 4,
    kx: int = 3,
    ky: int = 3,
    eps: float | None = None,
) -> None:
    """Follow the constructor of `scipy.interpolate.LSQBivariateSpline`."""

    def fit(x: Any, y: Any, z: Any, w: Any, level: float) -> Any:
        surface = type(self)(x, y, z, tx, ty, w, bbox, kx, ky, eps)
        return *surface.tck, 0.0

    surface = _surface("scipy.interpolate.LSQBivariateSpline", x, y, z, w, bbox, kx, ky, 0.0, 1e-16, fit)
    self.fp, self.degrees = surface.residual, (kx, ky)
    self.tck = (*surface.knots, surface.coefficients[:, 0])


@stands_for("scipy.interpolate._fitpack_impl.bisplrep")
def bisplrep(
    x: Any,
    y: Any,
    z: Any,
    w: Any = None,
    xb: Any = None,
    xe: Any = None,
    yb: Any = None,
    ye: Any = None,
    kx: int = 3,
    ky: int = 3,
    task: int = 0,
    s: Any = None,
    eps: float = 1e-16,
    tx: Any = None,
    ty: Any = None,
    full_output: int = 0,
    nxest: Any = None,
    nyest: Any = None,
    quiet: int = 1,
) -> Any:
    """Follow `scipy.interpolate.bisplrep`."""
    if full_output or task == 1:
        raise refused("scipy.interpolate.bisplrep with full_output or task=1, of traced arrays", *GIVEN)
    bounds = (xb, xe, yb, ye)

    def fit(x: Any, y: Any, z: Any, w: Any, level: float) -> Any:
        module = sys.modules["scipy.interpolate._fitpack_impl"]
        (a, b, c, *_), residual, *_ = module.bisplrep(
            x, y, z, w, *bounds, kx, ky, task, level, eps, tx, ty, 1, nxest, nyest
        )
        return a, b, c, 0.0 if task == -1 else residual

    count = np.size(z)
    level = count - math.sqrt(2 * count) if s is None else s
    surface = _surface("scipy.interpolate.bisplrep", x, y, z, w, bounds, kx, ky, level, eps, fit)
    return [*surface.knots, surface.coefficients[:, 0], kx, ky]
