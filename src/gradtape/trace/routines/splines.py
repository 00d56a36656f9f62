"""Splines in the B-spline basis: the routines of `scipy.interpolate._dierckx` and of FITPACK.

The basis functions that are not zero at a point are computed by the recurrence of de Boor ("On calculating with B-splines", 1972), for
all points at once; which knots they belong to has no derivative. Coefficients that interpolate solve the equations of collocation.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from gradtape.trace.array.handle import Handle
from gradtape.trace.routines.registry import computed, lookup, refused, stands_for


def knot_of(t: Any, k: int, points: Any) -> Any:
    """Return the knot at which the interval of each point begins; the first or last inner one for points outside."""
    return np.clip(np.searchsorted(t, points, side="right") - 1, k, t.shape[0] - k - 2)


def basis_functions(t: Any, k: int, points: Any, position: Any, nu: int = 0) -> list[Any]:
    """Return the values (or derivatives) at each point of the k + 1 basis functions that are not zero there."""
    values: list[Any] = [np.ones(points.shape[0])]
    if nu > k:
        return [0.0 * points] * (k + 1)
    for degree in range(1, k + 1):
        raised: list[Any] = [0.0 * points for _ in range(degree + 1)]
        for j in range(degree):
            left, right = lookup(t, position - degree + 1 + j), lookup(t, position + 1 + j)
            width = right - left
            part = np.where(width == 0, 0.0, values[j] / np.where(width == 0, 1.0, width))
            if degree > k - nu:
                raised[j] = raised[j] - degree * part
                raised[j + 1] = raised[j + 1] + degree * part
            else:
                raised[j] = raised[j] + (right - points) * part
                raised[j + 1] = raised[j + 1] + (points - left) * part
        values = raised
    return values


def collocation(t: Any, k: int, points: Any, nu: int = 0, columns: int | None = None) -> Any:
    """Return the matrix (points, coefficients) of the basis functions; with `columns`, of a periodic spline of so many coefficients."""
    count = t.shape[0] - k - 1 if columns is None else columns
    position = knot_of(t, k, points)
    numbers = np.arange(count)
    return sum(
        np.where(((position - k + j) % count)[:, None] == numbers, value[:, None], 0.0)
        for j, value in enumerate(basis_functions(t, k, points, position, nu))
    )


def spline_values(t: Any, c: Any, k: int, points: Any, nu: int = 0) -> Any:
    """Return the values (points, columns) of splines with coefficients (coefficients, columns)."""
    position = knot_of(t, k, points)
    parts = basis_functions(t, k, points, position, nu)
    return sum(value[:, None] * lookup(c, position - k + j) for j, value in enumerate(parts))


@stands_for("scipy.interpolate._dierckx.evaluate_spline")
def evaluate_spline(t: Any, c: Any, k: int, xp: Any, nu: int, extrapolate: bool) -> Any:
    """Evaluate splines at points."""
    values = spline_values(t, c, k, xp, int(nu))
    if extrapolate:
        return values
    inside = (xp >= t[k]) & (xp <= t[-k - 1])
    return np.where(inside[:, None], values, np.nan)


@stands_for("scipy.interpolate._dierckx.data_matrix")
def data_matrix(x: Any, t: Any, k: int, w: Any, extrapolate: bool = False) -> tuple[Any, Any, int]:
    """Return the basis functions that are not zero at each point, with weights, and the number of the first one."""
    position = knot_of(t, k, x)
    return np.stack(basis_functions(t, k, x, position), axis=1) * w[:, None], position - k, t.shape[0] - k - 1


@stands_for("scipy.interpolate._dierckx.evaluate_ndbspline")
def evaluate_ndbspline(
    xi: Any,
    t: Any,
    len_t: Any,
    k: Any,
    nu: Any,
    extrapolate: bool,
    c1r: Any,
    num_c_tr: int,
    strides_c1: Any,
    indices_k1d: Any,
) -> Any:
    """Evaluate tensor products of splines at points."""
    ndim = len(k)
    knots = [t[axis, : int(len_t[axis])] for axis in range(ndim)]
    degrees = [int(degree) for degree in k]
    extents = [knot.shape[0] - degree - 1 for knot, degree in zip(knots, degrees, strict=True)]
    c = c1r.reshape(*extents, num_c_tr)
    index: list[Any] = []
    weight: Any = 1.0
    for axis, (knot, degree) in enumerate(zip(knots, degrees, strict=True)):
        position = knot_of(knot, degree, xi[:, axis])
        shape = (xi.shape[0], *[degree + 1 if other == axis else 1 for other in range(ndim)])
        index.append((position[:, None] - degree + np.arange(degree + 1)).reshape(shape))
        parts = np.stack(basis_functions(knot, degree, xi[:, axis], position, int(nu[axis])), axis=1)
        weight = weight * parts.reshape(shape)
    values = np.sum(weight[..., None] * lookup(c, tuple(index)), axis=tuple(range(1, ndim + 1)))
    if extrapolate:
        return values
    for axis, (knot, degree) in enumerate(zip(knots, degrees, strict=True)):
        inside = (xi[:, axis] >= knot[degree]) & (xi[:, axis] <= knot[-degree - 1])
        values = np.where(inside[:, None], values, np.nan)
    return values


def solved_along_first(matrix: Any, values: Any) -> Any:
    """Return the coefficients whose spline has these values, along the first axis."""
    flat = values.reshape(values.shape[0], math.prod(values.shape[1:]))
    return np.linalg.solve(matrix, flat).reshape(matrix.shape[1], *values.shape[1:])


def fitted_along_first(matrix: Any, values: Any, w: Any) -> Any:
    """Return the coefficients of least squares, with weights, along the first axis."""
    flat = values.reshape(values.shape[0], math.prod(values.shape[1:]))
    fitted = np.linalg.lstsq(matrix * w[:, None], flat * w[:, None], rcond=None)[0]
    return fitted.reshape(matrix.shape[1], *values.shape[1:])


def _floats(x: Any) -> Any:
    array: Any = x if isinstance(x, Handle) else np.asarray(x)
    return array.astype(complex if array.dtype.kind == "c" else float)


def _bsplines() -> Any:
    return sys.modules["scipy.interpolate._bsplines"]


@stands_for("scipy.interpolate._bsplines.make_interp_spline")
def make_interp_spline(
    x: Any, y: Any, k: int = 3, t: Any = None, bc_type: Any = None, axis: int = 0, check_finite: bool = True
) -> Any:
    """Follow `scipy.interpolate.make_interp_spline`, with a dense matrix of collocation."""
    module = _bsplines()
    x, y = _floats(x), np.moveaxis(_floats(y), axis, 0)
    axis = axis % y.ndim
    if x.ndim != 1 or x.shape[0] != y.shape[0]:
        raise ValueError(f"Shapes of x {x.shape} and y {y.shape} are incompatible")
    if (x[1:] <= x[:-1]).any():
        raise ValueError("Expect x to be a 1D strictly increasing sequence.")
    periodic = bc_type == "periodic"
    ends = (None, None) if bc_type in (None, "not-a-knot", "periodic") else bc_type
    first, last = (ends, ends) if isinstance(ends, str) else ends
    if k < 2 and t is None:
        if first is not None or last is not None:
            raise ValueError(f"Too much info for k={k}: bc_type can only be None.")
        t = np.concatenate([x, x[-1:]] if k == 0 else [x[:1], x, x[-1:]])
        return module.BSpline.construct_fast(t, y, k, axis=axis)
    if t is None:
        make = module._periodic_knots if periodic else module._not_a_knot
        t = make(x, k) if first is None and last is None else module._augknt(x, k)
    t = _floats(t)
    if periodic:
        count = x.shape[0] - 1
        c = solved_along_first(collocation(t, k, x[:-1], columns=count), y[:-1])
        c = c[np.arange(count + k) % count]
        return module.BSpline.construct_fast(t, c, k, extrapolate="periodic", axis=axis)
    rows, values = [collocation(t, k, x)], [y]
    for conditions, point, position in ((first, x[:1], 0), (last, x[-1:], len(rows))):
        given = module._convert_string_aliases(conditions, y.shape[1:]) or []
        made = [collocation(t, k, point, int(order)) for order, _ in given]
        wanted = [(np.asarray(value) + np.zeros(y.shape[1:]))[None] for _, value in given]
        rows = [*made, *rows] if not position else [*rows, *made]
        values = [*wanted, *values] if not position else [*values, *wanted]
    matrix, right = np.concatenate(rows), np.concatenate(values)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"The number of derivatives at boundaries does not match: expected {matrix.shape[1] - x.shape[0]}, "
            f"got {matrix.shape[0] - x.shape[0]}"
        )
    return module.BSpline.construct_fast(t, solved_along_first(matrix, right), k, axis=axis)


@stands_for("scipy.interpolate._bsplines.make_lsq_spline")
def make_lsq_spline(
    x: Any,
    y: Any,
    t: Any,
    k: int = 3,
    w: Any = None,
    axis: int = 0,
    check_finite: bool = True,
    *,
    method: str = "qr",
) -> Any:
    """Follow `scipy.interpolate.make_lsq_spline`."""
    x, y, t = _floats(x), np.moveaxis(_floats(y), axis, 0), _floats(t)
    w = np.ones(x.shape[0]) if w is None else _floats(w)
    c = fitted_along_first(collocation(t, k, x), y, w)
    return _bsplines().BSpline.construct_fast(t, c, k, axis=axis % y.ndim)


@stands_for("scipy.interpolate._bsplines._insert")
def insert_knot(xval: Any, t: Any, c: Any, k: int, periodic: bool = False) -> tuple[Any, Any]:
    """Insert a knot (Boehm's algorithm)."""
    if periodic:
        raise refused(
            "a knot in a periodic spline", "its ends depend on the interval", "use a spline that is not"
        )
    position = int(knot_of(t, k, np.reshape(xval, (1,)))[0])
    knots = np.concatenate([t[: position + 1], np.reshape(xval, (1,)), t[position + 1 :]])
    numbers = np.arange(position - k + 1, position + 1)
    part = (xval - knots[numbers]) / (knots[numbers + k + 1] - knots[numbers])
    part = part.reshape(-1, *[1] * (c.ndim - 1))
    inner = part * c[numbers] + (1.0 - part) * c[numbers - 1]
    return knots, np.concatenate([c[: position - k + 1], inner, c[position:]])


# FITPACK: (t, c, k), in which c is as long as t


def padded(c: Any, t: Any) -> Any:
    missing = t.shape[0] - c.shape[0]
    return np.concatenate([c, np.zeros((missing, *c.shape[1:]))]) if missing > 0 else c


def _each(function: Any, c: Any) -> Any:
    """Return the results for each curve of a parametric spline, or None if it has one."""
    if isinstance(c, list | tuple) or np.ndim(c) > 1:
        return [function(part) for part in c]
    return None


def knots_around(x: Any, inner: Any, k: int, xb: Any, xe: Any) -> Any:
    first = x[:1] if xb is None else np.reshape(xb, (1,))
    last = x[-1:] if xe is None else np.reshape(xe, (1,))
    return np.concatenate([first] * (k + 1) + [np.asarray(inner)] + [last] * (k + 1))


def interpolating_knots(x: Any, k: int, xb: Any = None, xe: Any = None) -> Any:
    half = k // 2
    inner = x[half + 1 : -half - 1] if k % 2 else (x[half : -half - 1] + x[half + 1 : -half]) / 2
    return knots_around(x, inner, k, xb, xe)


@stands_for("scipy.interpolate._fitpack_impl.splev")
def splev(x: Any, tck: Any, der: int = 0, ext: int = 0) -> Any:
    """Follow `scipy.interpolate.splev`."""
    t, c, k = tck
    if (several := _each(lambda part: splev(x, (t, part, k), der, ext), c)) is not None:
        return several
    if not 0 <= der <= k:
        raise ValueError(f"0<=der={der}<=k={k} must hold")
    x = np.asarray(x)
    points = x.reshape(-1) + 0.0
    low, high = t[k], t[-k - 1]
    outside = (points < low) | (points > high)
    if ext == 2 and outside.any():
        raise ValueError("Found x value not in the domain")
    if ext == 3:
        points = np.clip(points, low, high)
    values = spline_values(t, c[:, None], k, points, der)[:, 0]
    return (np.where(outside, 0.0, values) if ext == 1 else values).reshape(x.shape)


@stands_for("scipy.interpolate._fitpack_impl.splint")
def splint(a: Any, b: Any, tck: Any, full_output: int = 0) -> Any:
    """Follow `scipy.interpolate.splint`: the spline is zero outside its knots."""
    t, c, k = tck
    if (several := _each(lambda part: splint(a, b, (t, part, k)), c)) is not None:
        return several
    weights = _integrals(t, k, a, b)
    value = np.sum(weights * c[: weights.shape[0]])
    return (value, weights) if full_output else value


def _integrals(t: Any, k: int, a: Any, b: Any) -> Any:
    """Return the integrals of the basis functions from a to b: with one degree more they are sums of basis functions."""
    count = t.shape[0] - k - 1
    knots = np.concatenate([t[:1], t, t[-1:]])
    ends = np.clip(np.stack([np.asarray(a) + 0.0, np.asarray(b) + 0.0]), t[k], t[count])
    sums = np.cumsum(collocation(knots, k + 1, ends)[:, ::-1], axis=1)[:, ::-1]
    return (sums[1, 1 : count + 1] - sums[0, 1 : count + 1]) * (t[k + 1 :] - t[: -k - 1]) / (k + 1)


@stands_for("scipy.interpolate._fitpack_impl.sproot")
def sproot(tck: Any, mest: int = 10) -> Any:
    """Follow `scipy.interpolate.sproot`; two of Newton's steps from the numbers give the first two derivatives."""
    t, c, k = tck
    if (several := _each(lambda part: sproot((t, part, k), mest), c)) is not None:
        return several

    def find(t: Any, c: Any) -> tuple[Any, Any]:
        found = sys.modules["scipy.interpolate._fitpack_impl"].sproot((t, c, k), mest)
        return np.pad(found, (0, mest - found.shape[0])), np.array(found.shape[0])

    roots, count = computed(find, (np.zeros(mest), np.array(1)), t, c)
    roots = roots[: int(count)]
    for _ in range(2 if roots.shape[0] else 0):
        roots = roots - splev(roots, tck) / splev(roots, tck, 1)
    return roots


@stands_for("scipy.interpolate._fitpack_impl.spalde")
def spalde(x: Any, tck: Any) -> Any:
    """Follow `scipy.interpolate.spalde`."""
    t, c, k = tck
    if (several := _each(lambda part: spalde(x, (t, part, k)), c)) is not None:
        return several
    points = np.atleast_1d(x) + 0.0
    found = np.stack([splev(points, tck, order) for order in range(k + 1)], axis=1)
    return found[0] if found.shape[0] == 1 else list(found)


@stands_for("scipy.interpolate._fitpack_impl.insert")
def insert(x: Any, tck: Any, m: int = 1, per: int = 0) -> Any:
    """Follow `scipy.interpolate.insert`."""
    t, c, k = tck
    if isinstance(c, list | tuple) or np.ndim(c) > 1:
        made = [insert(x, (t, part, k), m, per) for part in c]
        return made[0][0], [spline[1] for spline in made], k
    c = c[: t.shape[0] - k - 1]
    for _ in range(m):
        t, c = insert_knot(x, t, c, k, bool(per))
    return t, padded(c, t), k


def set_spline(spline: Any, x: Any, y: Any, k: int, knots: Any, c: Any, residual: Any = 0.0) -> None:
    """Write a fit to an object of `scipy.interpolate.UnivariateSpline`."""
    full = padded(c, knots)
    spline._eval_args = knots, full, k
    nothing = [None] * 4
    spline._data = (x, y, None, None, None, k, 0.0, knots.shape[0], knots, full, residual, *nothing[:3], -1)


@stands_for("scipy.interpolate._fitpack2.InterpolatedUnivariateSpline.__init__")
def interpolated_spline(
    self: Any,
    x: Any,
    y: Any,
    w: Any = None,
    bbox: Any = (None, None),
    k: int = 3,
    ext: Any = 0,
    check_finite: bool = False,
) -> None:
    """Follow the constructor of `scipy.interpolate.InterpolatedUnivariateSpline`."""
    x, y, _, _, self.ext = self.validate_input(x, y, w, np.array([None, None]), k, 0, ext, check_finite)
    knots = interpolating_knots(x, k, *bbox)
    set_spline(self, x, y, k, knots, solved_along_first(collocation(knots, k, x), y))


@stands_for("scipy.interpolate._fitpack2.LSQUnivariateSpline.__init__")
def least_squares_spline(
    self: Any,
    x: Any,
    y: Any,
    t: Any,
    w: Any = None,
    bbox: Any = (None, None),
    k: int = 3,
    ext: Any = 0,
    check_finite: bool = False,
) -> None:
    """Follow the constructor of `scipy.interpolate.LSQUnivariateSpline`."""
    x, y, w, _, self.ext = self.validate_input(x, y, w, np.array([None, None]), k, None, ext, check_finite)
    knots = knots_around(x, t, k, *bbox)
    w = np.ones(x.shape[0]) if w is None else w
    set_spline(self, x, y, k, knots, fitted_along_first(collocation(knots, k, x), y, w))


# Splines of two variables


@stands_for("scipy.interpolate._fitpack2.RectBivariateSpline.__init__")
def rectangular_spline(
    self: Any,
    x: Any,
    y: Any,
    z: Any,
    bbox: Any = (None,) * 4,
    kx: int = 3,
    ky: int = 3,
    s: Any = 0,
    maxit: int = 20,
) -> None:
    """Follow the constructor of `scipy.interpolate.RectBivariateSpline` for splines that interpolate."""
    if not (issubclass(type(s), int | float) and s == 0):
        raise refused(
            "scipy.interpolate.RectBivariateSpline with s > 0 of traced data",
            "how many knots there are, and where, depends on the numbers",
            "use s=0, or scipy.interpolate.SmoothBivariateSpline",
        )
    x, y, z = np.ravel(x), np.ravel(y), np.asarray(z)
    if not ((np.diff(x) > 0.0).all() and (np.diff(y) > 0.0).all()):
        raise ValueError("x and y must be strictly increasing")
    if z.shape != (x.shape[0], y.shape[0]):
        raise ValueError("z must have as many rows as x has elements, and as many columns as y")
    tx, ty = interpolating_knots(x, kx, *bbox[:2]), interpolating_knots(y, ky, *bbox[2:])
    half = solved_along_first(collocation(tx, kx, x), z)
    c = solved_along_first(collocation(ty, ky, y), half.T).T
    self.fp, self.tck, self.degrees = 0.0, (tx, ty, c.reshape(-1)), (kx, ky)


def _surface(tck: Any, degrees: Any, x: Any, y: Any, dx: int, dy: int, grid: bool) -> Any:
    (tx, ty, c), (kx, ky) = tck, degrees
    nx, ny = tx.shape[0] - kx - 1, ty.shape[0] - ky - 1
    matrix = np.asarray(c)[: nx * ny].reshape(nx, ny)
    x, y = np.clip(x + 0.0, tx[kx], tx[nx]), np.clip(y + 0.0, ty[ky], ty[ny])
    rows, columns = collocation(tx, kx, x, dx), collocation(ty, ky, y, dy)
    return rows @ matrix @ columns.T if grid else np.sum(rows @ matrix * columns, axis=1)


@stands_for("scipy.interpolate._fitpack2._BivariateSplineBase.__call__")
def surface(self: Any, x: Any, y: Any, dx: int = 0, dy: int = 0, grid: bool = True) -> Any:
    """Evaluate a spline of two variables, on a grid or at points."""
    x, y = np.asarray(x), np.asarray(y)
    if grid:
        return _surface(self.tck[:3], self.degrees, x.reshape(-1), y.reshape(-1), dx, dy, True)
    x, y = np.broadcast_arrays(x, y)
    made = _surface(self.tck[:3], self.degrees, x.reshape(-1), y.reshape(-1), dx, dy, False)
    return made.reshape(x.shape)


@stands_for("scipy.interpolate._fitpack2.BivariateSpline.integral")
def volume(self: Any, xa: Any, xb: Any, ya: Any, yb: Any) -> Any:
    """Integrate a spline of two variables over a rectangle."""
    (tx, ty, c), (kx, ky) = self.tck[:3], self.degrees
    rows, columns = _integrals(tx, kx, xa, xb), _integrals(ty, ky, ya, yb)
    count = rows.shape[0] * columns.shape[0]
    return rows @ np.asarray(c)[:count].reshape(rows.shape[0], columns.shape[0]) @ columns


@stands_for("scipy.interpolate._fitpack2._BivariateSplineBase.partial_derivative")
def partial_derivative(self: Any, dx: int, dy: int) -> Any:
    """Return the derivative of a spline of two variables as a spline."""
    if dx == 0 and dy == 0:
        return self
    (tx, ty, c), (kx, ky) = self.tck[:3], self.degrees
    if dx < 0 or dy < 0:
        raise ValueError("order of derivative must be positive or zero")
    if dx >= kx or dy >= ky:
        raise ValueError("order of derivative must be less than degree of spline")
    nx, ny = tx.shape[0] - kx - 1, ty.shape[0] - ky - 1
    tx, matrix = _derived(tx, np.asarray(c)[: nx * ny].reshape(nx, ny), kx, dx)
    ty, matrix = _derived(ty, matrix.T, ky, dy)
    derived = sys.modules["scipy.interpolate._fitpack2"]._DerivedBivariateSpline
    return derived._from_tck((tx, ty, matrix.T.reshape(-1), kx - dx, ky - dy))


def _derived(t: Any, c: Any, k: int, order: int) -> tuple[Any, Any]:
    """Return knots and coefficients (n, m) of the derivative along the first axis."""
    for degree in range(k, k - order, -1):
        gaps = t[degree + 1 : -1] - t[1 : -degree - 1]
        c = np.where(gaps > 0, degree / np.where(gaps > 0, gaps, 1.0), 0.0)[:, None] * np.diff(c, axis=0)
        t = t[1:-1]
    return t, c


@stands_for("scipy.interpolate._fitpack_impl.bisplev")
def bisplev(x: Any, y: Any, tck: Any, dx: int = 0, dy: int = 0) -> Any:
    """Follow `scipy.interpolate.bisplev`."""
    tx, ty, c, kx, ky = tck
    z = _surface((tx, ty, c), (kx, ky), np.atleast_1d(x), np.atleast_1d(y), dx, dy, True)
    if z.shape[0] > 1:
        return z
    return z[0] if z.shape[1] > 1 else z[0, 0]
