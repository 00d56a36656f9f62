"""Interpolation in several dimensions: regular grids, radial functions, triangulations."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.trace.routines.piecewise import interval_of
from gradtape.trace.routines.registry import known_numbers, lookup, refused, stands_for
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
    places = [interval_of(x, points) for x, points in zip(grid, xi, strict=True)]
    parts = [
        (points - lookup(x, place)) / (lookup(x, place + 1) - lookup(x, place))
        for x, points, place in zip(grid, xi, places, strict=True)
    ]
    return np.stack(places), np.stack(parts)


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
def linear_interpolation(self: Any, *args: Any) -> Any:
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
    simplices = self.tri.find_simplex(known_numbers(points, "the simplices"))
    transforms = self.tri.transform[simplices]
    inner = np.sum(transforms[:, :ndim] * (points - transforms[:, ndim])[:, None], axis=2)
    weights = np.concatenate([inner, 1 - np.sum(inner, axis=1, keepdims=True)], axis=1)
    flat = values.reshape(values.shape[0], -1)
    found = np.sum(weights[:, :, None] * flat[self.tri.simplices[simplices]], axis=1)
    found = np.where((simplices >= 0)[:, None], found, self.fill_value)
    return found.reshape(*shape[:-1], *values.shape[1:])


@stands_for("scipy.interpolate._ndgriddata.NearestNDInterpolator.__init__")
def nearest_interpolator(self: Any, x: Any, y: Any, rescale: bool = False, tree_options: Any = None) -> None:
    """Follow the constructor of `NearestNDInterpolator`: the tree is that of the numbers of the points."""
    plain = sys.modules["scipy.interpolate._ndgriddata"].NearestNDInterpolator
    made = plain(known_numbers(coordinates(x), "a tree"), np.zeros(np.shape(y)), rescale, tree_options)
    for name, part in vars(made).items():
        setattr(self, name, part)
    self.values = np.asarray(y)


@stands_for("scipy.interpolate._ndgriddata.NearestNDInterpolator.__call__")
def nearest_interpolation(self: Any, *args: Any, **query_options: Any) -> Any:
    """Return the value of the nearest point, which has no derivative in the position."""
    points = coordinates(args if len(args) > 1 else args[0], self.points.shape[1])
    numbers = known_numbers(self._scale_x(points), "the nearest neighbours")
    flat = numbers.reshape(-1, numbers.shape[-1])
    distances, places = self.tree.query(flat, **query_options)
    values = self.values.reshape(self.values.shape[0], -1)
    found = values[np.where(np.isfinite(distances), places, 0)]
    found = np.where(np.isfinite(distances)[:, None], found, np.nan)
    return found.reshape(*points.shape[:-1], *self.values.shape[1:])
