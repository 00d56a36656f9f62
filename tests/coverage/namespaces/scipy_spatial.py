"""The functions and classes of `scipy.spatial`, `scipy.integrate` and `scipy.cluster.vq`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.cluster.vq as vq
import scipy.integrate as integrate
import scipy.spatial as spatial
import scipy.spatial.distance as distance
import scipy.spatial.transform as transform

from tests.coverage.cases import Case, Namespace, call, public_functions

U, V = np.array([0.3, 1.2, 0.7, 0.95]), np.array([1.1, 0.45, 0.2, 0.6])
W = np.array([1.0, 0.5, 2.0, 1.5])
A = np.random.default_rng(0).uniform(0.2, 1, size=(4, 3))
B = np.random.default_rng(1).uniform(0.2, 1, size=(3, 3))
SCALES = np.array([0.5, 0.7, 1.1])
INVERSE = np.array([[2.0, 0.1, 0.2], [0.1, 1.0, 0.3], [0.2, 0.3, 1.5]])
MASK = np.array([1.0, 0.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.0, 1.0])
VECTOR = np.array([0.3, -0.5, 0.8])
QUATERNION = np.array([0.1, 0.5, -0.3, 0.8])
MATRIX = transform.Rotation.from_quat(QUATERNION).as_matrix()
POINT = np.array([1.0, 0.3, -0.2])
Rotation, RigidTransform = transform.Rotation, transform.RigidTransform


def first(function: Callable[..., Any], *arrays: Any) -> list[Case]:
    """Return the case of a function without second derivatives."""
    return call(function, *arrays, second=False)


REAL = [
    "braycurtis",
    "canberra",
    "chebyshev",
    "cityblock",
    "correlation",
    "cosine",
    "euclidean",
    "sqeuclidean",
]
OF_SHARES = ["dice", "rogerstanimoto", "russellrao", "sokalsneath", "yule"]
"""Distances of booleans; numbers count as shares of them."""
DISTANCE = Namespace(
    "scipy.spatial.distance",
    public_functions(distance),
    cases={
        **{
            name: [
                *call(getattr(distance, name), U, V, second=name in ("cosine", "euclidean")),
                *first(getattr(distance, name), U, V, W),
            ]
            for name in REAL
        },
        "jensenshannon": call(distance.jensenshannon, U, V),
        "mahalanobis": call(distance.mahalanobis, U[:3], V[:3], INVERSE),
        "minkowski": call(distance.minkowski, U, V, 2.5, W),
        "seuclidean": first(distance.seuclidean, U[:3], V[:3], SCALES),
        "cdist": [
            *call(distance.cdist, A, B),
            *[
                case
                for name in ("canberra", "correlation", "jensenshannon", "chebyshev")
                for case in first(lambda a, b, name=name: distance.cdist(a, b, name), A, B)
            ],
            *first(lambda a, b, w: distance.cdist(a, b, "minkowski", p=3, w=w), A, B, SCALES),
            *first(lambda a, b, v: distance.cdist(a, b, "mahalanobis", VI=v), A, B, INVERSE),
            *first(lambda a, b: distance.cdist(a, b, lambda u, v: np.sum(np.abs(u - v) ** 1.5)), A, B),
        ],
        "pdist": [
            *call(distance.pdist, A),
            *first(lambda a: distance.pdist(a, "cosine"), A),
            *first(lambda a: distance.pdist(a, "seuclidean"), A),
        ],
        "squareform": first(lambda x: distance.squareform(distance.squareform(x)) * x, np.arange(6.0) + 0.5),
        "directed_hausdorff": first(lambda a, b: distance.directed_hausdorff(a, b)[0], A, B),
        **{name: first(getattr(distance, name), U, V) for name in OF_SHARES},
    },
    constant={
        "hamming": first(distance.hamming, *MASK),
        "jaccard": first(lambda u, v: distance.jaccard(u > 0.5, v > 0.5), U, V),
    },
    others=dict.fromkeys(["is_valid_dm", "is_valid_y", "num_obs_dm", "num_obs_y"], "says what a matrix is"),
)
PLANE = np.random.default_rng(3).uniform(size=(7, 2))
SPACE = np.random.default_rng(4).normal(size=(8, 3))
INSIDE = np.array([[0.4, 0.5], [0.6, 0.3]])
SPHERE = SPACE / np.linalg.norm(SPACE, axis=1)[:, None]
HALFSPACES = np.array([[-1, 0.1, -0.02], [0, -1, -0.05], [1, 1, -1.0], [2, 1, -1.5], [0.3, -0.2, -3]])


def hull(points: Any) -> Any:
    made = spatial.ConvexHull(points)
    return made.volume, made.area, made.equations, points[made.vertices], points[made.simplices] ** 2


def triangulation(points: Any, places: Any) -> Any:
    made = spatial.Delaunay(points)
    maps = made.transform[made.find_simplex(places)]
    inner = np.einsum("nij,nj->ni", maps[:, :2], places - maps[:, 2])
    return inner, made.equations, made.plane_distance(places), points[made.convex_hull] ** 2


def areas(points: Any) -> Any:
    """Return the areas of the bounded regions of a Voronoi diagram."""
    made = spatial.Voronoi(points)
    corners = [made.vertices[region] for region in made.regions if region and -1 not in region]
    return [np.sum(c[:, 0] * np.roll(c[:, 1], 1) - c[:, 1] * np.roll(c[:, 0], 1)) ** 2 for c in corners]


def spherical(points: Any, radius: Any, center: Any) -> Any:
    on_sphere = points / np.linalg.norm(points, axis=1)[:, None] * radius + center
    made = spatial.SphericalVoronoi(on_sphere, radius, center)
    return made.vertices, made.calculate_areas()


def intersection(halfspaces: Any, inside: Any) -> Any:
    made = spatial.HalfspaceIntersection(halfspaces, inside)
    return made.intersections, made.dual_points, made.dual_equations, made.dual_volume, made.dual_area


SPATIAL = Namespace(
    "scipy.spatial",
    public_functions(spatial, classes=True),
    cases={
        "distance_matrix": first(spatial.distance_matrix, A, B),
        "minkowski_distance": first(lambda a, b: spatial.minkowski_distance(a, b, 3), A[:3], B),
        "minkowski_distance_p": first(lambda a, b: spatial.minkowski_distance_p(a, b, 3), A[:3], B),
        "geometric_slerp": first(
            lambda a, t: spatial.geometric_slerp(np.stack([np.cos(a), np.sin(a)]), np.array([0.0, 1.0]), t),
            0.3,
            [0.2, 0.6],
        ),
        "KDTree": [
            *first(lambda a: spatial.KDTree(A).query(a, k=2)[0], B),
            *first(lambda a: spatial.KDTree(A).query(a[0], p=1)[0], B),
        ],
        "procrustes": first(lambda a, b: spatial.procrustes(a, b), A, A[::-1] ** 2),
        "ConvexHull": [*call(hull, PLANE), *first(hull, SPACE)],
        "Delaunay": first(triangulation, PLANE, INSIDE),
        "Voronoi": [
            *call(lambda p: spatial.Voronoi(p).vertices, PLANE),
            *first(areas, np.random.default_rng(3).uniform(size=(9, 2))),
        ],
        "SphericalVoronoi": first(spherical, SPHERE, 1.3, [0.1, 0.2, 0.3]),
        "HalfspaceIntersection": first(intersection, HALFSPACES, [0.2, 0.3]),
    },
    constant={"tsearch": first(lambda p, q: spatial.tsearch(spatial.Delaunay(p), q), PLANE, INSIDE)},
    refused={
        "cKDTree": "it is compiled; use KDTree",
    },
    others={
        "Rectangle": "a box of a tree",
        **dict.fromkeys(["convex_hull_plot_2d", "delaunay_plot_2d", "voronoi_plot_2d"], "draws"),
    },
)


def conversions(q: Any) -> Any:
    r = Rotation.from_quat(q)
    return (
        r.as_matrix(),
        r.as_rotvec(),
        r.as_mrp(),
        r.as_euler("xyz"),
        r.as_euler("ZXZ", degrees=True),
        r.as_quat(),
    )


def constructors(v: Any) -> Any:
    made = Rotation.from_rotvec(v), Rotation.from_euler("ZYX", v), Rotation.from_mrp(v)
    axes = [[1, 0, 0], [0, 1, 0]]
    return [r.as_matrix() for r in (*made, Rotation.from_davenport(axes, "extrinsic", v[:2]))]


def algebra(v: Any, q: Any, x: Any) -> Any:
    r, s = Rotation.from_rotvec(v), Rotation.from_quat(q)
    power = (r * s.inv()) ** 1.5
    both = Rotation.concatenate([r, s])
    return r.apply(x), s.apply(x, inverse=True), power.as_matrix(), r.magnitude(), both.mean().as_matrix()


def rigid(v: Any, x: Any) -> Any:
    t = RigidTransform.from_components(x, Rotation.from_rotvec(v))
    return (
        (t.inv() * RigidTransform.from_translation(x * x)).as_matrix(),
        t.apply(x),
        t.as_exp_coords(),
        (t**1.5).as_matrix(),
    )


def turns(v: Any) -> Any:
    return Rotation.from_rotvec(np.stack([v, 2 * v, v * v, -v]))


TRANSFORM = Namespace(
    "scipy.spatial.transform",
    ["RigidTransform", "Rotation", "RotationSpline", "Slerp"],
    cases={
        "Rotation": [
            *first(conversions, QUATERNION),
            *first(constructors, VECTOR),
            *first(algebra, VECTOR, QUATERNION, POINT),
            *call(lambda v, x: Rotation.from_rotvec(v).apply(x), VECTOR, POINT),
            *first(lambda m: Rotation.from_matrix(m).as_quat(), MATRIX),
            *first(lambda a: Rotation.align_vectors(a, A)[0].as_matrix(), A @ MATRIX),
        ],
        "RigidTransform": first(rigid, VECTOR, POINT),
        "Slerp": first(
            lambda v, t: transform.Slerp(np.arange(4.0), turns(v))(t).as_matrix(), VECTOR, [0.3, 1.4]
        ),
        "RotationSpline": first(
            lambda t: transform.RotationSpline(np.arange(4.0), turns(VECTOR))(t).as_matrix(), [0.3, 1.4]
        ),
    },
)

Y = np.sin(np.arange(9.0))
X = np.linspace(0, 2, 9) ** 1.2
INTEGRATE = Namespace(
    "scipy.integrate",
    public_functions(integrate),
    cases={
        "trapezoid": call(integrate.trapezoid, Y, X),
        "simpson": [
            *call(lambda y, x: integrate.simpson(y, x=x), Y, X),
            *first(lambda y: integrate.simpson(y, dx=0.3), Y[:8]),
        ],
        "cumulative_trapezoid": first(lambda y, x: integrate.cumulative_trapezoid(y, x, initial=0), Y, X),
        "cumulative_simpson": first(lambda y, x: integrate.cumulative_simpson(y, x=x), Y, X),
        "romb": first(integrate.romb, Y, 0.3),
        "fixed_quad": call(
            lambda a, b, c: integrate.fixed_quad(lambda x: np.exp(c * x), a, b, n=5)[0], 0.2, 1.3, 0.7
        ),
        "cubature": first(
            lambda c: integrate.cubature(lambda x: np.exp(c * x[:, 0]), [0], [1]).estimate, 0.7
        ),
        "quad": [
            *call(lambda c, a, b: integrate.quad(lambda x: np.exp(-c * x**2), a, b)[0], 0.7, 0.2, 1.3),
            *first(lambda c: integrate.quad(lambda x: np.exp(-c * x**2), -np.inf, np.inf)[0], 0.7),
        ],
        "quad_vec": call(
            lambda c, b: integrate.quad_vec(lambda x: np.exp(-c * x), 0, b)[0], np.array([0.4, 1.2]), 1.3
        ),
        "dblquad": call(
            lambda c: integrate.dblquad(lambda y, x: np.exp(-c * x * y), 0, c, 0, lambda x: c * x)[0], 0.7
        ),
        "tplquad": first(
            lambda c: integrate.tplquad(
                lambda z, y, x: c * x * y + z**2, 0, c, 0, lambda x: x, 0, lambda x, y: x * y * c
            )[0],
            0.9,
        ),
        "nquad": call(lambda c: integrate.nquad(lambda x, y: np.exp(-c * x * y), [[0, 1], [0, c]])[0], 0.7),
        "tanhsinh": call(lambda c, b: integrate.tanhsinh(lambda x: np.exp(-c * x), 0, b).integral, 0.7, 1.3),
        "solve_ivp": first(
            lambda c, y0: integrate.solve_ivp(lambda t, y: -c * y * t, (0, 1), y0, t_eval=[0.5, 1.0]).y,
            0.7,
            [1.0, 2.0],
        ),
        "odeint": [
            *call(
                lambda c: integrate.odeint(
                    lambda y, t: -c * y * t, [1.0, 2.0], [0.0, 0.5, 1.0], rtol=1e-11, atol=1e-11
                ),
                0.7,
            )
        ],
        "solve_bvp": [
            case._replace(second=False)  # which takes long to compile
            for case in call(
                lambda c: integrate.solve_bvp(
                    lambda x, y: np.stack([y[1], -c * y[0]]),
                    lambda first, last: np.stack([first[0] - 1, last[1]]),
                    [0.0, 1.0],
                    np.zeros((2, 2)),
                    tol=1e-9,
                ).y[0, -1],
                0.7,
            )
        ],
        "nsum": first(lambda p: integrate.nsum(lambda k: 1 / k**p, 1, np.inf).sum, 2.7),
    },
    refused={
        "qmc_quad": "it calls the function with numbers, at random points",
    },
    refusals={
        "qmc_quad": call(
            lambda a: integrate.qmc_quad(lambda x: np.exp(-a * x[0]), [0.0], [1.0], n_points=16).integral, 2.0
        ),
    },
    others={
        "lebedev_rule": "points and weights of a degree",
        "newton_cotes": "weights of a number of points",
    },
)

SAMPLES = np.random.default_rng(5).normal(size=(8, 2))
CODES = SAMPLES[[0, 4]] + 0.1
CLUSTER = Namespace(
    "scipy.cluster.vq",
    public_functions(vq),
    cases={
        "whiten": call(vq.whiten, SAMPLES),
        "vq": first(lambda o, c: vq.vq(o, c)[1], SAMPLES, CODES),
        "kmeans": call(lambda o: vq.kmeans(o, CODES)[0], SAMPLES),
        "kmeans2": first(lambda o, c: vq.kmeans2(o, c, minit="matrix")[0], SAMPLES, CODES),
    },
)
