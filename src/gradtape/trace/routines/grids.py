"""Interpolation in several dimensions: regular grids, radial functions, triangulations, spheres."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.config import config
from gradtape.errors import UnsupportedFunctionError
from gradtape.lru import LRU
from gradtape.trace.array.handle import Handle
from gradtape.trace.routines.piecewise import interval_of
from gradtape.trace.routines.registry import computed, known_numbers, lookup, refused, stands_for
from gradtape.trace.routines.splines import collocation, solved_along_first


@stands_for(
    "scipy.interpolate._rgi._ndim_coords_from_arrays",
    "scipy.interpolate._interpolate._ndim_coords_from_arrays",
    "scipy.interpolate._ndgriddata._ndim_coords_from_arrays",
)
def coordinates(points: Any, ndim: int | None = None) -> Any:
    """Return points (..., dimensions), given so or as a tuple of coordinates."""
    if isinstance(points, tuple) and len(points) == 1:
        points = points[0]
    if isinstance(points, tuple):
        return np.stack(np.broadcast_arrays(*[np.asarray(part) + 0.0 for part in points]), axis=-1)
    points = np.asarray(points)
    if points.ndim == 1:
        points = points.reshape(-1, 1 if ndim is None else ndim)
    return points


@stands_for("scipy.interpolate._rgi.find_indices")
def find_indices(grid: Any, xi: Any) -> tuple[Any, Any]:
    """Return the cell of each point, and where in the cell it is, from 0 to 1, for each axis."""
    cells = [interval_of(x, points) for x, points in zip(grid, xi, strict=True)]
    parts = [
        (points - lookup(x, cell)) / (lookup(x, cell + 1) - lookup(x, cell))
        for x, points, cell in zip(grid, xi, cells, strict=True)
    ]
    return np.stack(cells), np.stack(parts)


@stands_for("scipy.interpolate._rgi.evaluate_linear_2d")
def evaluate_linear_2d(values: Any, indices: Any, norm_distances: Any, grid: Any, out: Any) -> Any:
    """Interpolate linearly in cells of two dimensions."""
    (i, j), (u, v) = indices, norm_distances
    low = lookup(values, (i, j)) * (1 - v) + lookup(values, (i, j + 1)) * v
    high = lookup(values, (i + 1, j)) * (1 - v) + lookup(values, (i + 1, j + 1)) * v
    return low * (1 - u) + high * u


@stands_for("scipy.interpolate._ndbspline.make_ndbspl", "scipy.interpolate._rgi.make_ndbspl")
def make_ndbspl(points: Any, values: Any, k: Any = 3, *, solver: Any = None, **solver_args: Any) -> Any:
    """Follow `make_ndbspl`: a tensor product is solved along one axis after the other, exactly instead of by iterations."""
    ndim = len(points)
    degrees = (k,) * ndim if np.ndim(k) == 0 else tuple(k)
    module = sys.modules["scipy.interpolate._ndbspline"]
    knots = []
    c = np.asarray(values)
    for axis, (x, degree) in enumerate(zip(points, degrees, strict=True)):
        x = np.asarray(x) + 0.0
        t = sys.modules["scipy.interpolate._bsplines"]._not_a_knot(x, degree)
        c = np.moveaxis(solved_along_first(collocation(t, degree, x), np.moveaxis(c, axis, 0)), 0, axis)
        knots.append(t)
    return module.NdBSpline(tuple(knots), c, degrees)


# Radial functions

_KERNELS: dict[str, Any] = {
    "linear": lambda r2: -_root(r2),
    "thin_plate_spline": lambda r2: np.where(r2 == 0, 0.0, 0.5 * r2 * np.log(np.where(r2 == 0, 1.0, r2))),
    "cubic": lambda r2: r2 * _root(r2),
    "quintic": lambda r2: -r2 * r2 * _root(r2),
    "multiquadric": lambda r2: -np.sqrt(r2 + 1.0),
    "inverse_multiquadric": lambda r2: 1.0 / np.sqrt(r2 + 1.0),
    "inverse_quadratic": lambda r2: 1.0 / (r2 + 1.0),
    "gaussian": lambda r2: np.exp(-r2),
}
"""The functions of the squared distance, which is smooth where the distance is not."""


def _root(r2: Any) -> Any:
    return np.where(r2 == 0, 0.0, np.sqrt(np.where(r2 == 0, 1.0, r2)))


def _radial(x: Any, y: Any, kernel: str, epsilon: float) -> Any:
    return _KERNELS[kernel](np.sum(((x[:, None] - y[None]) * epsilon) ** 2, axis=-1))


def _monomials(x: Any, powers: Any) -> Any:
    columns = [
        math.prod(
            [x[:, axis] ** int(power) for axis, power in enumerate(row) if power], start=np.ones(x.shape[0])
        )
        for row in powers
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((x.shape[0], 0))


@stands_for("scipy.interpolate._rbfinterp_np._build_and_solve_system")
def build_and_solve_system(
    y: Any, d: Any, smoothing: Any, kernel: str, epsilon: float, powers: Any, xp: Any
) -> tuple[Any, Any, Any]:
    """Return the shift and scale of the data, and the coefficients of the radial functions and monomials."""
    low, high = np.min(y, axis=0), np.max(y, axis=0)
    shift, scale = (high + low) / 2, (high - low) / 2
    scale = np.where(scale == 0.0, 1.0, scale)
    count = powers.shape[0]
    inner = _radial(y, y, kernel, epsilon) + np.eye(y.shape[0]) * smoothing
    outer = _monomials((y - shift) / scale, powers)
    matrix = np.concatenate(
        [
            np.concatenate([inner, outer], axis=1),
            np.concatenate([outer.T, np.zeros((count, count))], axis=1),
        ]
    )
    right = np.concatenate([d, np.zeros((count, d.shape[1]))])
    return shift, scale, np.linalg.solve(matrix, right)


@stands_for("scipy.interpolate._rbfinterp_np.compute_interpolation")
def compute_interpolation(
    x: Any, y: Any, kernel: str, epsilon: float, powers: Any, shift: Any, scale: Any, coeffs: Any, xp: Any
) -> Any:
    """Evaluate radial functions and monomials at points."""
    parts = [_radial(x, y, kernel, epsilon), _monomials((x - shift) / scale, powers)]
    return np.concatenate(parts, axis=1) @ coeffs


# Triangulations and neighbours, which have no derivative themselves


@stands_for("scipy.interpolate._ndgriddata.LinearNDInterpolator.__init__")
def linear_interpolator(
    self: Any, points: Any, values: Any, fill_value: Any = np.nan, rescale: bool = False
) -> None:
    """Follow the constructor of `LinearNDInterpolator`: the triangulation is that of the numbers of the points."""
    plain = type(self).__init__.__wrapped__
    numbers = (
        points if hasattr(points, "simplices") else known_numbers(coordinates(points), "a triangulation")
    )
    plain(self, numbers, np.zeros(np.shape(values)), fill_value=fill_value, rescale=rescale)
    self._gradtape_values = np.asarray(values)


@stands_for("scipy.interpolate._ndgriddata.CloughTocher2DInterpolator.__init__")
def cubic_interpolator(self: Any, points: Any, values: Any, *args: Any, **kwargs: Any) -> None:
    """Refuse `CloughTocher2DInterpolator` of traced data."""
    raise _cubic_refusal()


def _cubic_refusal() -> UnsupportedFunctionError:
    return refused(
        "scipy.interpolate.CloughTocher2DInterpolator",
        "its gradients at the points come from iterations in compiled code",
        "use RBFInterpolator, which is smooth, or LinearNDInterpolator",
    )


@stands_for("scipy.interpolate._ndgriddata.NDInterpolatorBase.__call__")
def linear_interpolation(self: Any, *args: Any, simplex_tolerance: float = 1.0) -> Any:
    """Interpolate by barycentric coordinates in the simplex of each point, which has no derivative."""
    if type(self).__name__ != "LinearNDInterpolator":
        raise _cubic_refusal()
    values = getattr(self, "_gradtape_values", None)
    values = (
        np.asarray(self.values).reshape(self.values.shape[0], *self.values_shape)
        if values is None
        else values
    )
    points = coordinates(args if len(args) > 1 else args[0], self.tri.points.shape[1])
    shape, ndim = points.shape, points.shape[-1]
    points = points.reshape(-1, ndim)
    if self.scale is not None:
        points = (points - self.offset) / self.scale
    find = self.tri.find_simplex
    if simplex_tolerance != 1.0:
        find = functools.partial(find, tol=100 * np.finfo(np.float64).eps * simplex_tolerance)
    simplices = computed(find, np.zeros(len(points), np.int32), points)
    transforms = lookup(self.tri.transform, simplices)
    inner = np.sum(transforms[:, :ndim] * (points - transforms[:, ndim])[:, None], axis=2)
    weights = np.concatenate([inner, 1 - np.sum(inner, axis=1, keepdims=True)], axis=1)
    flat = values.reshape(values.shape[0], -1)
    interpolated = np.sum(weights[:, :, None] * lookup(flat, lookup(self.tri.simplices, simplices)), axis=1)
    interpolated = np.where((simplices >= 0)[:, None], interpolated, self.fill_value)
    return interpolated.reshape(*shape[:-1], *values.shape[1:])


@stands_for("scipy.interpolate._ndgriddata.NearestNDInterpolator.__init__")
def nearest_interpolator(self: Any, x: Any, y: Any, rescale: bool = False, tree_options: Any = None) -> None:
    """Follow the constructor of `NearestNDInterpolator`: the tree is made where points are looked up."""
    self.points = coordinates(x)
    self.values = np.asarray(y)
    self.rescale, self._tree_options = rescale, tree_options or {}


@stands_for("scipy.interpolate._ndgriddata.NearestNDInterpolator.__call__")
def nearest_interpolation(self: Any, *args: Any, **query_options: Any) -> Any:
    """Return the value of the nearest point, which has no derivative in the position."""
    points = coordinates(args, self.points.shape[1])
    plain = sys.modules["scipy.interpolate._ndgriddata"].NearestNDInterpolator
    options = getattr(self, "_tree_options", {})

    def find(data: Any, at: Any) -> Any:
        numbers = np.arange(len(data))
        interpolator = self if hasattr(self, "tree") else plain(data, numbers, self.rescale, options)
        return interpolator.tree.query(interpolator._scale_x(at), **query_options)

    shape = points.shape[:-1]
    distances, positions = computed(find, (np.zeros(shape), np.zeros(shape, np.intp)), self.points, points)
    is_near = np.isfinite(distances).reshape(*shape, *[1] * (self.values.ndim - 1))
    return np.where(
        is_near, lookup(self.values, np.where(np.isfinite(distances), positions, 0)), np.float64(np.nan)
    )


# Splines on the sphere: with fixed knots FITPACK's coefficients are an affine function of the data, which is found by unit vectors. Of 14
# random grids, with all combinations of the options at the poles, coefficients are affine to 3e-12 but for continuous slopes at a pole
# whose value is given and that is not flat; of 30 random least-squares fits to 2e-15.

_fits: Final[LRU[Any, tuple[Any, Any, Any]]] = LRU(lambda: min(16, config.memory_cache))
"""By what a fit depends on besides its data: the knots, the coefficients for zeros, and those that each datum adds, by columns."""


def _set_fit(self: Any, fit: Callable[[Any], Any], data: Any, key: Any) -> None:
    """Give a spline the coefficients for data (n,), of a fit that is affine in them."""
    fitted = _fits.get(key)
    if fitted is None:
        at_zero = fit(np.zeros(data.shape[0]))
        columns = [fit(unit).tck[2] - at_zero.tck[2] for unit in np.eye(data.shape[0])]
        fitted = _fits[key] = at_zero.tck[:2], at_zero.tck[2], np.stack(columns, axis=1)
    knots, constant, matrix = fitted
    self.tck = (*knots, constant + matrix @ data)
    self.degrees = (3, 3)


def _refuse_traced(name: str, *arrays: Any) -> None:
    if any(isinstance(array, Handle) for array in arrays):
        raise refused(
            f"scipy.interpolate.{name} in anything but its data r",
            "the derivatives of FITPACK's fit in points, knots, weights and values at the poles have no rule",
            "differentiate with respect to the data and the points of evaluation only",
        )


def _of_both(option: Any) -> Any:
    """Return an option for each of the poles."""
    return option if isinstance(option, tuple | list) else (option, option)


def _key(*arrays: Any) -> Any:
    return tuple([(np.shape(x), np.asarray(x, float).tobytes()) for x in arrays])


@stands_for("scipy.interpolate._fitpack2.LSQSphereBivariateSpline.__init__")
def fit_on_sphere(
    self: Any, theta: Any, phi: Any, r: Any, tt: Any, tp: Any, w: Any = None, eps: float = 1e-16
) -> None:
    """Follow the constructor of `scipy.interpolate.LSQSphereBivariateSpline`."""
    _refuse_traced("LSQSphereBivariateSpline", theta, phi, tt, tp, w)
    plain = sys.modules["scipy.interpolate._fitpack2"].LSQSphereBivariateSpline
    key = (*_key(theta, phi, tt, tp, () if w is None else w), eps)
    r = np.asarray(r)
    _set_fit(self, lambda data: plain(theta, phi, data, tt, tp, w, eps), r, key)
    residuals = r - self(theta, phi, grid=False)
    self.fp = np.sum((residuals if w is None else np.asarray(w) * residuals) ** 2)


@stands_for("scipy.interpolate._fitpack2.RectSphereBivariateSpline.__init__")
def spline_on_sphere(
    self: Any,
    u: Any,
    v: Any,
    r: Any,
    s: float = 0.0,
    pole_continuity: Any = False,
    pole_values: Any = None,
    pole_exact: Any = False,
    pole_flat: Any = False,
) -> None:
    """Follow the constructor of `scipy.interpolate.RectSphereBivariateSpline` for splines that interpolate."""
    continuity, values, flat = (_of_both(x) for x in (pole_continuity, pole_values, pole_flat))
    _refuse_traced("RectSphereBivariateSpline", u, v, s, *values)
    if s != 0.0:
        raise refused(
            "scipy.interpolate.RectSphereBivariateSpline with s > 0 of traced data",
            "how many knots there are, and where, depends on the numbers",
            "use s=0, or scipy.interpolate.LSQSphereBivariateSpline",
        )
    if any(
        smooth and value is not None and not level
        for smooth, value, level in zip(continuity, values, flat, strict=True)
    ):
        raise refused(
            "scipy.interpolate.RectSphereBivariateSpline with pole_continuity and pole_values of traced data",
            "FITPACK searches for the slopes at such a pole: the result is not affine in the data",
            "add pole_flat=True, or leave pole_values out",
        )
    plain = sys.modules["scipy.interpolate._fitpack2"].RectSphereBivariateSpline
    r, shape = np.asarray(r), np.shape(r)
    options = (s, pole_continuity, pole_values, pole_exact, pole_flat)
    key = (*_key(u, v), shape, repr(options))
    _set_fit(self, lambda data: plain(u, v, data.reshape(shape), *options), r.reshape(-1), key)
    self.fp, self.v0 = 0.0, np.ravel(v)[0]
