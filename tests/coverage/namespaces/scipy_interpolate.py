"""The functions and classes of `scipy.interpolate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.interpolate as interpolate
import scipy.sparse.linalg

from tests.coverage.cases import Case, Namespace, call, public_functions

X = np.array([0.0, 0.7, 1.52, 2.13, 3.0, 3.6])
Y = np.sin(X) + 0.3 * X + 0.1
SLOPES = np.cos(X)
Q = np.array([0.2, 1.1, 1.9, 2.5, 3.3])
TWO = np.stack([Y, Y**2], axis=1)
T = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0])
C = np.sin(np.arange(6.0))
POWERS = np.arange(9.0).reshape(3, 3) * 0.1
GRID = (np.array([0.0, 1.0, 2.2, 3.0, 4.0]), np.array([0.0, 0.5, 1.5, 2.0, 2.7]))
VALUES = np.sin(np.arange(25.0)).reshape(5, 5)
PLACES = np.array([[0.3, 0.2], [1.7, 1.2], [2.5, 1.9]])
POINTS = np.random.default_rng(0).uniform(size=(12, 2))
HEIGHTS = np.sin(3 * POINTS[:, 0]) + POINTS[:, 1] ** 2
INNER = np.array([[0.4, 0.5], [0.6, 0.3]])
LONG = np.arange(12.0)
ROUGH = np.sin(LONG) + 0.3 * np.cos(7 * LONG)
AT = np.linspace(0.3, 10.6, 6)
MANY = np.random.default_rng(1).uniform(size=(30, 2))
MANY_HEIGHTS = np.sin(3 * MANY[:, 0]) * MANY[:, 1] + MANY[:, 0]
ON_SPHERE = np.random.default_rng(2).uniform([[0.1], [0.0]], [[3.0], [6.2]], size=(2, 60))
HEIGHTS_ON_SPHERE = np.sin(ON_SPHERE[0]) * np.cos(ON_SPHERE[1]) + 0.3 * np.cos(3 * ON_SPHERE[0])


def first(function: Callable[..., Any], *arrays: Any) -> list[Case]:
    """Return the case of a function whose second derivatives are those of the same routines elsewhere."""
    return call(function, *arrays, second=False)


def grid(values: Any, points: Any, **options: Any) -> Any:
    return interpolate.RegularGridInterpolator(GRID, values, **options)(points)


CASES: dict[str, list[Case]] = {
    "CubicSpline": [
        *call(lambda x, y, q: interpolate.CubicSpline(x, y)(q), X, Y, Q),
        *first(lambda y, q: interpolate.CubicSpline(X, y, bc_type="natural")(q, 1), TWO, Q),
        *first(lambda y, a: interpolate.CubicSpline(X, y, bc_type=((1, a), (2, 0.3)))(Q), Y, 0.4),
        *first(
            lambda y: interpolate.CubicSpline(X, np.concatenate([y, y[:1]]), bc_type="periodic")(Q + 3),
            Y[:-1],
        ),
        *first(lambda y, a, b: interpolate.CubicSpline(X, y).integrate(a, b), Y, 0.3, 2.7),
        *first(lambda y: interpolate.CubicSpline(X[:3], y)([0.2, 4.0]), Y[:3]),
    ],
    "PchipInterpolator": call(lambda x, y, q: interpolate.PchipInterpolator(x, y)(q), X, Y, Q),
    "pchip_interpolate": first(lambda y, q: interpolate.pchip_interpolate(X, y, q, der=1), Y, Q),
    "Akima1DInterpolator": [
        *first(lambda x, y, q: interpolate.Akima1DInterpolator(x, y)(q), X, Y, Q),
        *first(lambda y: interpolate.Akima1DInterpolator(X, y, method="makima")(Q), Y),
    ],
    "CubicHermiteSpline": first(
        lambda x, y, d, q: interpolate.CubicHermiteSpline(x, y, d)(q), X, Y, SLOPES, Q
    ),
    "PPoly": [
        *call(lambda c, x, q: interpolate.PPoly(c, x)(q), POWERS, X[:4], Q),
        *first(lambda c, q: interpolate.PPoly(c, X[:4]).antiderivative(2)(q), POWERS, Q),
        *first(lambda c, q: interpolate.PPoly(c, X[:4], extrapolate="periodic")(q), POWERS, Q),
        *first(lambda c, q: interpolate.PPoly.from_spline((T, c, 3))(q), C, Q * 0.79),
    ],
    "BPoly": [
        *first(lambda c, x, q: interpolate.BPoly(c, x)(q), POWERS, X[:4], Q),
        *first(lambda c: interpolate.BPoly(c, X[:4]).derivative()(Q), POWERS),
        *first(lambda c: interpolate.BPoly(c, X[:4]).integrate(0.3, 1.9), POWERS),
        *first(lambda y: interpolate.BPoly.from_derivatives(X, y)(Q), np.stack([Y, SLOPES], axis=1)),
    ],
    "NdPPoly": first(
        lambda c, q: interpolate.NdPPoly(c, (X[:4], X[:3]))(q),
        np.sin(np.arange(24.0)).reshape(2, 2, 3, 2),
        np.stack([Q[:3], Q[:3] * 0.5], axis=1),
    ),
    "BSpline": [
        *call(lambda c, q: interpolate.BSpline(T, c, 3)(q), C, Q * 0.79),
        *first(lambda t, c: interpolate.BSpline(t, c, 2)(Q * 0.79), np.arange(9.0) - 2.2, C),
        *first(lambda c, q: interpolate.BSpline(T, c, 3).derivative(2)(q), C, Q * 0.79),
        *first(lambda c, q: interpolate.BSpline(T, c, 3)(q, 1), C, Q * 0.79),
        *first(lambda c, a, b: interpolate.BSpline(T, c, 3).integrate(a, b), C, 0.3, 2.2),
        *first(lambda q: interpolate.BSpline.basis_element([0, 1, 2, 3, 4.0])(q), Q),
        *first(lambda c: interpolate.BSpline(T, c, 3).insert_knot(1.4).c, C),
    ],
    "NdBSpline": first(
        lambda c, q: interpolate.NdBSpline((T, T), c, 3)(q),
        np.sin(np.arange(36.0)).reshape(6, 6),
        np.stack([Q[:3], Q[:3] * 0.5], axis=1) * 0.79,
    ),
    "make_interp_spline": [
        *call(lambda y, q: interpolate.make_interp_spline(X, y)(q), Y, Q),
        *first(lambda x, y: interpolate.make_interp_spline(x, y)(Q), X, TWO),
        *first(lambda y: interpolate.make_interp_spline(X, y, bc_type="natural")(Q), Y),
        *first(lambda y: interpolate.make_interp_spline(X, y, k=2)(Q + 0.03), Y),
        *first(
            lambda y: interpolate.make_interp_spline(X, np.concatenate([y, y[:1]]), bc_type="periodic")(Q),
            Y[:-1],
        ),
    ],
    "make_lsq_spline": first(
        lambda y, w, q: interpolate.make_lsq_spline(X, y, [0, 0, 0, 0, 3.6, 3.6, 3.6, 3.6], w=w)(q),
        Y,
        1 + X,
        Q,
    ),
    "make_smoothing_spline": first(
        lambda y, lam, q: interpolate.make_smoothing_spline(X, y, lam=lam)(q), Y, 0.3, Q
    ),
    "interp1d": [
        *call(lambda x, y, q: interpolate.interp1d(x, y)(q), X, Y, Q),
        *first(lambda y, q: interpolate.interp1d(X, y, kind="cubic")(q), Y, Q),
        *first(lambda y: interpolate.interp1d(X, y, kind="quadratic")(Q), Y),
        *first(lambda y: interpolate.interp1d(X, y, kind="nearest")(Q), Y),
        *first(lambda y: interpolate.interp1d(X, y, kind="previous", axis=0)(Q), TWO),
        *first(lambda y, q: interpolate.interp1d(X, y, fill_value="extrapolate")(q), Y, [-0.3, 0.5, 4.1]),
    ],
    "RegularGridInterpolator": [
        *call(grid, VALUES, PLACES),
        *first(lambda v: grid(v, PLACES, method="nearest"), VALUES),
        *first(lambda v, q: grid(v, q, method="cubic", solver=scipy.sparse.linalg.spsolve), VALUES, PLACES),
        *first(lambda v: grid(v, PLACES[:1], method="pchip"), VALUES),
        *first(lambda v, q: grid(v, q, bounds_error=False, fill_value=0.3), VALUES, [[0.3, 0.2], [9.0, 1.0]]),
        *first(lambda x: interpolate.RegularGridInterpolator((x, GRID[1]), VALUES)(PLACES), GRID[0]),
    ],
    "interpn": first(lambda v, q: interpolate.interpn(GRID, v, q), VALUES, PLACES),
    "RectBivariateSpline": [
        *first(
            lambda v, a, b: interpolate.RectBivariateSpline(*GRID, v)(a, b), VALUES, [0.3, 1.7], [0.2, 1.2]
        ),
        *first(
            lambda a, b: interpolate.RectBivariateSpline(*GRID, VALUES).ev(a, b, dx=1), [0.3, 1.7], [0.2, 1.2]
        ),
        *first(lambda v, a: interpolate.RectBivariateSpline(*GRID, v).integral(a, 2, 0.2, 1.5), VALUES, 0.3),
    ],
    "UnivariateSpline": [
        *first(lambda y, q: interpolate.UnivariateSpline(X, y, s=0)(q), Y, Q),
        *first(lambda q: interpolate.UnivariateSpline(X, Y, s=0.01)(q), Q),
        *first(lambda y, q: interpolate.UnivariateSpline(LONG, y, s=0.4)(q), ROUGH, AT),
        *first(lambda x, y, w: interpolate.UnivariateSpline(x, y, w, k=2)(AT), LONG, ROUGH, 1 + ROUGH**2),
    ],
    "InterpolatedUnivariateSpline": [
        *first(lambda y, q: interpolate.InterpolatedUnivariateSpline(X, y).derivative()(q), Y, Q),
        *first(lambda y, a: interpolate.InterpolatedUnivariateSpline(X, y).integral(a, 2.0), Y, 0.3),
    ],
    "LSQUnivariateSpline": first(lambda y, q: interpolate.LSQUnivariateSpline(X, y, [1.8])(q), Y, Q),
    "splrep": [
        *first(lambda y, q: interpolate.splev(q, interpolate.splrep(X, y)), Y, Q),
        *call(lambda y, s: interpolate.splev(AT, interpolate.splrep(LONG, y, s=s)), ROUGH, 0.4, rtol=1e-4),
    ],
    "splev": first(
        lambda c, q: interpolate.splev(q, (T, c, 3), der=1), np.concatenate([C, np.zeros(4)]), Q * 0.79
    ),
    "splder": first(lambda y: interpolate.splev(Q, interpolate.splder(interpolate.splrep(X, y))), Y),
    "splantider": first(lambda y: interpolate.splev(Q, interpolate.splantider(interpolate.splrep(X, y))), Y),
    "splint": first(lambda y, a, b: interpolate.splint(a, b, interpolate.splrep(X, y)), Y, 0.3, 2.0),
    "spalde": first(lambda y, q: interpolate.spalde(q, interpolate.splrep(X, y)), Y, 1.2),
    "insert": first(lambda y: interpolate.insert(1.2, interpolate.splrep(X, y))[1][:7], Y),
    "splprep": [
        *first(lambda x, y: interpolate.splprep([x, y], s=0)[0][1], X, Y),
        *first(lambda x, y: interpolate.splprep([x, y], s=0.5)[0][1], LONG, ROUGH),
    ],
    "sproot": first(lambda y: interpolate.sproot(interpolate.splrep(X, y - 1.0)), Y),
    "FloaterHormannInterpolator": first(
        lambda x, y, q: interpolate.FloaterHormannInterpolator(x, y, d=2)(q), X, Y, Q
    ),
    "SmoothBivariateSpline": [
        *first(lambda z, q: interpolate.SmoothBivariateSpline(*MANY.T, z)(q, q), MANY_HEIGHTS, [0.3, 0.6]),
        *first(
            lambda z, w: interpolate.SmoothBivariateSpline(*MANY.T, z, w, kx=2, ky=1)(*INNER.T, grid=False),
            MANY_HEIGHTS,
            1 + MANY_HEIGHTS**2,
        ),
    ],
    "LSQBivariateSpline": first(
        lambda z: interpolate.LSQBivariateSpline(*MANY.T, z, [0.5], [0.5], kx=1, ky=2)(*INNER.T, grid=False),
        MANY_HEIGHTS,
    ),
    "LSQSphereBivariateSpline": [
        *first(
            lambda r, a, b: interpolate.LSQSphereBivariateSpline(*ON_SPHERE, r, [0.8, 1.6, 2.3], [2.0, 4.0])(
                a, b
            ),
            HEIGHTS_ON_SPHERE,
            [0.5, 1.2],
            [0.4, 5.0],
        ),
        *first(
            lambda r: interpolate.LSQSphereBivariateSpline(
                *ON_SPHERE, r, [0.8, 1.6, 2.3], [2.0, 4.0], 1 + ON_SPHERE[0]
            ).get_residual(),
            HEIGHTS_ON_SPHERE,
        ),
    ],
    "RectSphereBivariateSpline": [
        *first(
            lambda r, a, b: interpolate.RectSphereBivariateSpline(
                [0.4, 0.9, 1.5, 2.2, 2.7], np.arange(6.0), r
            )(a, b),
            HEIGHTS_ON_SPHERE[:30].reshape(5, 6),
            [0.5, 1.2],
            [0.4, 5.0],
        ),
        *first(
            lambda r: interpolate.RectSphereBivariateSpline(
                [0.4, 0.9, 1.5, 2.2, 2.7],
                np.arange(6.0),
                r,
                pole_continuity=True,
                pole_values=(0.3, -0.2),
                pole_flat=True,
            ).ev([0.5, 1.2], [0.4, 5.0]),
            HEIGHTS_ON_SPHERE[:30].reshape(5, 6),
        ),
    ],
    "bisplrep": first(
        lambda z: interpolate.bisplev([0.3, 0.6], [0.2, 0.5], interpolate.bisplrep(*MANY.T, z)), MANY_HEIGHTS
    ),
    "bisplev": first(
        lambda a, b: interpolate.bisplev(a, b, (T, T, np.sin(np.arange(36.0)), 3, 3)), [0.3, 1.7], [0.2, 1.2]
    ),
    "griddata": [
        *first(lambda v: interpolate.griddata(POINTS, v, INNER), HEIGHTS),
        *first(lambda v: interpolate.griddata(POINTS, v, INNER, method="nearest"), HEIGHTS),
    ],
    "LinearNDInterpolator": first(lambda v: interpolate.LinearNDInterpolator(POINTS, v)(INNER), HEIGHTS),
    "NearestNDInterpolator": first(lambda v: interpolate.NearestNDInterpolator(POINTS, v)(INNER), HEIGHTS),
    "RBFInterpolator": [
        *first(lambda p, v, q: interpolate.RBFInterpolator(p, v)(q), POINTS, HEIGHTS, INNER),
        *first(
            lambda v, s: interpolate.RBFInterpolator(POINTS, v, smoothing=s, kernel="gaussian", epsilon=1.2)(
                INNER
            ),
            HEIGHTS,
            0.3,
        ),
    ],
    "Rbf": first(
        lambda v, x: interpolate.Rbf(*POINTS.T, v, function="gaussian", epsilon=0.5)(x, x * 0.5),
        HEIGHTS,
        INNER[0],
    ),
    "BarycentricInterpolator": first(
        lambda x, y, q: interpolate.BarycentricInterpolator(x, y, rng=1)(q), X, Y, Q
    ),
    "barycentric_interpolate": first(lambda y, q: interpolate.barycentric_interpolate(X, y, q, rng=1), Y, Q),
    "KroghInterpolator": first(lambda x, y, q: interpolate.KroghInterpolator(x, y)(q), X[:4], Y[:4], Q),
    "krogh_interpolate": first(lambda y, q: interpolate.krogh_interpolate(X[:4], y, q, der=1), Y[:4], Q),
    "lagrange": first(lambda x, y, q: interpolate.lagrange(x, y)(q), X[:4], Y[:4], Q),
    "pade": first(
        lambda c, q: np.divide(*[p(q) for p in interpolate.pade(c, 2)]), [1.0, 1.0, 0.5, 1 / 6, 1 / 24], Q
    ),
    "approximate_taylor_polynomial": first(
        lambda a: interpolate.approximate_taylor_polynomial(lambda z: np.exp(a * z), 0.0, 3, 1.0)(Q), 0.4
    ),
    "make_splrep": [
        *first(lambda y, q: interpolate.make_splrep(X, y, s=0)(q), Y, Q),
        *first(lambda y, q: interpolate.make_splrep(LONG, y, s=0.5)(q), ROUGH, AT),
    ],
    "make_splprep": [
        *first(lambda a, b: interpolate.make_splprep([a, b], s=0)[0]([0.2, 0.5]), Y, SLOPES),
        *first(lambda a, b: interpolate.make_splprep([a, b], s=0.5)[0]([0.2, 0.5]), LONG, ROUGH),
    ],
}
REFUSED = {
    "AAA": "it chooses its points by the numbers, and has singular vectors of matrices that are nearly singular",
    "CloughTocher2DInterpolator": "its gradients at the points come from iterations in compiled code",
    "SmoothSphereBivariateSpline": "it fits in compiled code of FITPACK, which chooses knots by the numbers",
    "generate_knots": "it chooses knots by the numbers",
}
REFUSALS = {
    "CloughTocher2DInterpolator": call(
        lambda v: interpolate.CloughTocher2DInterpolator(POINTS, v)(INNER), HEIGHTS
    ),
    "AAA": call(lambda y: interpolate.AAA(X, y)(Q), Y),
}
OTHERS = {
    "BivariateSpline": "the base class of splines of two variables",
    "interp2d": "removed from SciPy: it raises an error that names what to use",
}
PUBLIC = public_functions(interpolate, classes=True)
SCIPY_INTERPOLATE = Namespace(
    "scipy.interpolate", PUBLIC, CASES, refused=REFUSED, refusals=REFUSALS, others=OTHERS
)
