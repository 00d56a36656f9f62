"""Hulls, triangulations and Voronoi diagrams: Qhull finds at the numbers which points belong together, and that has no derivative; volumes,
hyperplanes and circumcentres are formulas over these points."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from gradtape.trace.array.handle import Handle
from gradtape.trace.routines.distances import root
from gradtape.trace.routines.registry import (
    computed_arrays,
    computed_structure,
    lookup,
    refused,
    stands_for,
)


def _plain(name: str) -> Any:
    return getattr(sys.modules["scipy.spatial"], name)


def _points(points: Any, incremental: bool) -> Any:
    if incremental:
        raise refused(
            "incremental=True with traced points",
            "Qhull keeps the numbers of points that are added later",
            "make the hull anew, of all points",
        )
    points = np.asarray(points)
    if points.ndim != 2:
        raise ValueError(
            f"points must be an array of rank 2, one point in each row; got shape {points.shape}"
        )
    return points.astype(np.float64)


def _keep(self: Any, points: Any) -> None:
    """Give an object what SciPy's have whatever they are made by."""
    self._qhull = None
    self._points = points
    self.npoints, self.ndim = points.shape
    self.min_bound, self.max_bound = np.min(points, axis=0), np.max(points, axis=0)


class _LazyList(Sequence[Any]):
    """A list of SciPy's that is guarded as a whole, from where it is first looked at."""

    def __init__(self, find: Callable[[], list[Any]]) -> None:
        self._find = find
        self._found: list[Any] | None = None

    @property
    def _items(self) -> list[Any]:
        if self._found is None:
            self._found = self._find()
        return self._found

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        return bool(self._items == other)

    __hash__ = None  # type: ignore[assignment]  # as a list's

    def __repr__(self) -> str:
        return repr(self._items)


def _lists(find: Callable[..., list[Any]], *arrays: Any) -> Any:
    return _LazyList(lambda: computed_structure(find, *arrays))


# Hyperplanes


def _determinant(rows: Any) -> Any:
    """Return the determinants of small matrices (..., n, n): polynomials, which have derivatives where they are 0."""
    count = rows.shape[-1]
    if count == 0:
        return 1.0
    if count == 1:
        return rows[..., 0, 0]
    if count == 2:
        return rows[..., 0, 0] * rows[..., 1, 1] - rows[..., 0, 1] * rows[..., 1, 0]
    others = [[k for k in range(count) if k != column] for column in range(count)]
    return sum(
        (-1) ** column * rows[..., 0, column] * _determinant(rows[..., 1:, :][..., others[column]])
        for column in range(count)
    )


def _normals(corners: Any) -> Any:
    """Return vectors that are perpendicular to simplices (m, d, d), (d - 1)! times as long as these are large."""
    ndim = corners.shape[-1]
    edges = corners[:, 1:] - corners[:, :1]
    columns = [[k for k in range(ndim) if k != column] for column in range(ndim)]
    return np.stack([(-1) ** k * _determinant(edges[..., columns[k]]) for k in range(ndim)], axis=-1)


def _oriented(corners: Any, equations: Any) -> Any:
    """Return normals with the directions of those in Qhull's equations."""
    normals = _normals(corners)
    return normals * np.where(np.sum(normals * equations[:, :-1], axis=1) < 0, -1.0, 1.0)[:, None]


def _hyperplanes(corners: Any, equations: Any) -> Any:
    """Return unit normals and offsets of the hyperplanes through corners (m, d, d).

    Of simplices without extent, which Qhull makes of facets with more than `d` corners, the equations are Qhull's.
    """
    normals = _oriented(corners, equations)
    lengths = root(np.sum(normals**2, axis=1))
    extent = np.max(np.abs(corners[:, 1:] - corners[:, :1]), axis=(1, 2))
    flat = lengths <= 1e-10 * extent ** (corners.shape[-1] - 1)
    unit = normals / np.where(flat, 1.0, lengths)[:, None]
    planes = np.concatenate([unit, -np.sum(unit * corners[:, 0], axis=1)[:, None]], axis=1)
    return np.where(flat[:, None], equations, planes)


def _volume_and_area(corners: Any, equations: Any, middle: Any) -> tuple[Any, Any]:
    """Return what a hull encloses (cones from a point inside it to its facets), and how large its facets are."""
    normals = _oriented(corners, equations)
    ndim = corners.shape[-1]
    volume = np.sum(normals * (corners[:, 0] - middle)) / math.factorial(ndim)
    return volume, np.sum(root(np.sum(normals**2, axis=1))) / math.factorial(ndim - 1)


# Hulls


@stands_for("scipy.spatial._qhull.ConvexHull.__init__")
def make_hull(self: Any, points: Any, incremental: bool = False, qhull_options: Any = None) -> None:
    """Follow the constructor of `scipy.spatial.ConvexHull`."""
    points = _points(points, incremental)
    ndim = points.shape[1]
    chosen = qhull_options is not None and "QG" in qhull_options

    def find(numbers: Any) -> tuple[Any, ...]:
        hull = _plain("ConvexHull")(numbers, qhull_options=qhull_options)
        good = hull.good if chosen else np.zeros(len(hull.simplices), bool)
        return hull.simplices, hull.neighbors, hull.equations, good, hull.coplanar, hull.vertices

    self.simplices, self.neighbors, equations, good, self.coplanar, self._vertices = computed_arrays(
        find,
        (("m", ndim), np.int32),
        (("m", ndim), np.int32),
        (("m", ndim + 1), np.float64),
        (("m",), bool),
        (("c", 3), np.int32),
        (("v",), np.int32),
        given=(points,),
    )
    self.good = good if chosen else None
    self.nsimplex = self.simplices.shape[0]
    corners = lookup(points, self.simplices)
    self.equations = _hyperplanes(corners, equations)
    self.volume, self.area = _volume_and_area(corners, equations, np.mean(points, axis=0))
    _keep(self, points)


@stands_for("scipy.spatial._qhull.HalfspaceIntersection.__init__")
def make_intersection(
    self: Any, halfspaces: Any, interior_point: Any, incremental: bool = False, qhull_options: Any = None
) -> None:
    """Follow the constructor of `scipy.spatial.HalfspaceIntersection`: a corner is where `d` of its hyperplanes meet."""
    halfspaces = _points(halfspaces, incremental)
    interior = np.asarray(interior_point).astype(np.float64)
    ndim = halfspaces.shape[1] - 1

    def made(*numbers: Any) -> Any:
        return _plain("HalfspaceIntersection")(*numbers, qhull_options=qhull_options)

    def find(*numbers: Any) -> tuple[Any, ...]:
        intersection = made(*numbers)
        rows = [_independent(numbers[0][facet, :ndim], facet, ndim) for facet in intersection.dual_facets]
        hull = _plain("ConvexHull")(intersection.dual_points)
        corners = np.array(rows, np.int32).reshape(-1, ndim)
        return (
            corners,
            intersection.dual_equations,
            hull.simplices,
            hull.equations,
            intersection.dual_vertices,
        )

    inputs = halfspaces, interior
    corners, equations, simplices, hull_equations, self._vertices = computed_arrays(
        find,
        (("m", ndim), np.int32),
        (("m", ndim + 1), np.float64),
        (("s", ndim), np.int32),
        (("s", ndim + 1), np.float64),
        (("v",), np.int32),
        given=inputs,
    )
    normals, offsets = halfspaces[:, :ndim], halfspaces[:, ndim]
    self.intersections = np.linalg.solve(lookup(normals, corners), -lookup(offsets, corners)[..., None])[
        ..., 0
    ]
    self.dual_points = -normals / (offsets + normals @ interior)[:, None]
    self.dual_equations = _hyperplanes(lookup(self.dual_points, corners), equations)
    # the interior point has the dual of infinity, which is the origin
    self.dual_volume, self.dual_area = _volume_and_area(
        lookup(self.dual_points, simplices), hull_equations, np.zeros(ndim)
    )
    self.dual_facets = _lists(
        lambda *numbers: [list(map(int, f)) for f in made(*numbers).dual_facets], *inputs
    )
    _keep(self, halfspaces)
    self.interior_point, self.ndim, self.nineq = interior, ndim, halfspaces.shape[0]


def _independent(vectors: Any, members: Sequence[int], count: int) -> list[int]:
    """Return so many of the members, whose vectors are the furthest from dependent."""
    if len(members) == count:
        return list(members)
    choices = list(itertools.islice(itertools.combinations(range(len(members)), count), 1000))
    sizes = [abs(np.linalg.det(vectors[list(choice)])) for choice in choices]
    return [members[k] for k in choices[int(np.argmax(sizes))]]


# Triangulations


@stands_for("scipy.spatial._qhull.Delaunay.__init__")
def make_triangulation(
    self: Any, points: Any, furthest_site: bool = False, incremental: bool = False, qhull_options: Any = None
) -> None:
    """Follow the constructor of `scipy.spatial.Delaunay`: which points are neighbours has no derivative."""
    points = _points(points, incremental)
    ndim = points.shape[1]

    def made(numbers: Any) -> Any:
        return _plain("Delaunay")(numbers, furthest_site, qhull_options=qhull_options)

    def find(numbers: Any) -> tuple[Any, ...]:
        triangulation = made(numbers)
        return (
            triangulation.simplices,
            triangulation.neighbors,
            triangulation.equations,
            triangulation.good,
            triangulation.coplanar,
        )

    self.simplices, self.neighbors, equations, self.good, self.coplanar = computed_arrays(
        find,
        (("m", ndim + 1), np.int32),
        (("m", ndim + 1), np.int32),
        (("m", ndim + 2), np.float64),
        (("m",), np.int32),
        (("c", 3), np.int32),
        given=(points,),
    )
    self.nsimplex = self.simplices.shape[0]
    self.furthest_site = furthest_site
    options = "Qbb Qc Qz Q12" if qhull_options is None else qhull_options
    heights = np.sum(points**2, axis=1)
    self.paraboloid_scale, self.paraboloid_shift = 1.0, 0.0
    if (
        "Qbb" in options
    ):  # Qhull scales the heights to the coordinates; a point at infinity is 1.1 times as high as the others
        infinity = 1.1 if "Qz" in options and not furthest_site else 1.0
        low, high = np.min(heights), infinity * np.max(heights)
        self.paraboloid_scale = np.max(np.abs(points)) / (high - low)
        self.paraboloid_shift = -low * self.paraboloid_scale
    _keep(self, points)
    lifted = _lift(self, points)
    self.equations = _hyperplanes(lookup(lifted, self.simplices), equations)
    self._transform = self._vertex_to_simplex = self._vertex_neighbor_vertices = None
    self._gradtape_made = made


def _of_triangulation(
    self: Any, function: Callable[..., Any], *shapes: Any, given: tuple[Any, ...] = ()
) -> Any:
    """Return arrays that SciPy computes of the numbers of a triangulation."""
    make = getattr(self, "_gradtape_made", None)
    if make is None:
        return computed_arrays(lambda *numbers: function(self, *numbers), *shapes, given=given)
    return computed_arrays(
        lambda points, *numbers: function(make(points), *numbers), *shapes, given=(self._points, *given)
    )


def _lift(self: Any, x: Any) -> Any:
    height = np.sum(x**2, axis=-1)[..., None]
    return np.concatenate([x, height * self.paraboloid_scale + self.paraboloid_shift], axis=-1)


@stands_for("scipy.spatial._qhull.Delaunay.transform")
def transform(self: Any) -> Any:
    """Return the affine maps to barycentric coordinates, and the corner that they begin at; NaN for simplices without extent."""
    if self._transform is None:
        corners = lookup(self._points, self.simplices)
        edges = np.swapaxes(corners[:, :-1] - corners[:, -1:], 1, 2)
        (plain,) = _of_triangulation(
            self, lambda tri: (tri.transform,), ((self.nsimplex, self.ndim + 1, self.ndim), np.float64)
        )
        flat = np.isnan(plain[:, 0, 0])[:, None, None]
        inverse = np.where(flat, np.nan, np.linalg.inv(np.where(flat, np.eye(self.ndim), edges)))
        self._transform = np.concatenate([inverse, corners[:, -1:]], axis=1)
    return self._transform


@stands_for("scipy.spatial._qhull.Delaunay.vertex_to_simplex")
def vertex_to_simplex(self: Any) -> Any:
    """Return a simplex of each point."""
    (simplices,) = _of_triangulation(self, lambda tri: (tri.vertex_to_simplex,), ((self.npoints,), np.int32))
    return simplices


@stands_for("scipy.spatial._qhull.Delaunay.vertex_neighbor_vertices")
def vertex_neighbor_vertices(self: Any) -> Any:
    """Return the neighbours of each point, and where those of each begin."""
    shapes = ((self.npoints + 1,), np.int32), (("n",), np.int32)
    return _of_triangulation(self, lambda tri: tri.vertex_neighbor_vertices, *shapes)


@stands_for("scipy.spatial._qhull.Delaunay.convex_hull")
def convex_hull(self: Any) -> Any:
    """Return the facets of the hull."""
    (facets,) = _of_triangulation(self, lambda tri: (tri.convex_hull,), (("h", self.ndim), np.int32))
    return facets


@stands_for("scipy.spatial._qhull.Delaunay.find_simplex")
def find_simplex(self: Any, xi: Any, bruteforce: bool = False, tol: Any = None) -> Any:
    """Return the simplex of each point, or -1."""
    xi = np.asarray(xi) + 0.0
    (simplices,) = _of_triangulation(
        self,
        lambda tri, x: (tri.find_simplex(x, bruteforce, tol),),
        (xi.shape[:-1], np.int32),
        given=(xi,),
    )
    return simplices


@stands_for("scipy.spatial._qhull.tsearch", "scipy.spatial.tsearch")
def tsearch(tri: Any, xi: Any) -> Any:
    """Follow `scipy.spatial.tsearch`."""
    return find_simplex(tri, xi)


@stands_for("scipy.spatial._qhull.Delaunay.lift_points")
def lift_points(self: Any, x: Any) -> Any:
    """Return points on the paraboloid of which the triangulation is the lower hull."""
    return _lift(self, np.asarray(x) + 0.0)


@stands_for("scipy.spatial._qhull.Delaunay.plane_distance")
def plane_distance(self: Any, xi: Any) -> Any:
    """Return how far lifted points are from the hyperplanes of the simplices."""
    return _lift(self, np.asarray(xi) + 0.0) @ self.equations[:, :-1].T + self.equations[:, -1]


# Voronoi diagrams


@stands_for("scipy.spatial._qhull.Voronoi.__init__")
def make_diagram(
    self: Any, points: Any, furthest_site: bool = False, incremental: bool = False, qhull_options: Any = None
) -> None:
    """Follow the constructor of `scipy.spatial.Voronoi`: its vertices are the circumcentres of the points around them."""
    points = _points(points, incremental)
    count, ndim = points.shape

    def made(numbers: Any) -> Any:
        return _plain("Voronoi")(numbers, furthest_site, qhull_options=qhull_options)

    def find(numbers: Any) -> tuple[Any, ...]:
        diagram = made(numbers)
        around: list[set[int]] = [set() for _ in diagram.vertices]
        for pair, ridge in zip(diagram.ridge_points.tolist(), diagram.ridge_vertices, strict=True):
            for vertex in ridge:
                if vertex >= 0:
                    around[vertex].update(pair)
        chosen = [_simplex(numbers, sorted(members), ndim) for members in around]
        simplices = np.array(chosen, np.int32).reshape(-1, ndim + 1)
        return simplices, diagram.ridge_points, diagram.point_region

    simplices, self.ridge_points, self.point_region = computed_arrays(
        find,
        (("m", ndim + 1), np.int32),
        (("r", 2), np.int32),
        ((count,), np.int64),
        given=(points,),
    )
    corners = lookup(points, simplices)
    edges = corners[:, 1:] - corners[:, :1]
    self.vertices = corners[:, 0] + np.linalg.solve(2 * edges, np.sum(edges**2, axis=2)[..., None])[..., 0]
    self.regions = _lists(lambda numbers: [list(map(int, each)) for each in made(numbers).regions], points)
    self.ridge_vertices = _lists(
        lambda numbers: [list(map(int, each)) for each in made(numbers).ridge_vertices], points
    )
    self._ridge_dict = None
    self.furthest_site = furthest_site
    _keep(self, points)


def _simplex(points: Any, members: list[int], ndim: int) -> list[int]:
    """Return `ndim + 1` of the points around a vertex, far from a common hyperplane."""
    edges = points[members[1:]] - points[members[0]]
    return [members[0], *_independent(edges, members[1:], ndim)]


@stands_for("scipy.spatial._qhull.Voronoi.ridge_dict")
def ridge_dict(self: Any) -> dict[tuple[int, int], list[int]]:
    """Return the vertices of each ridge by its two points, which are guarded as a whole in jitted functions."""

    def find(points: Any) -> list[Any]:
        diagram = _plain("Voronoi")(points, self.furthest_site)
        return [list(map(int, pair)) for pair in diagram.ridge_points]

    pairs = (
        computed_structure(find, self._points) if isinstance(self.ridge_points, Handle) else self.ridge_points
    )
    return dict(zip(map(tuple, np.asarray(pairs).tolist()), self.ridge_vertices, strict=True))


@stands_for("scipy.spatial._spherical_voronoi.SphericalVoronoi.__init__")
def make_spherical_diagram(
    self: Any, points: Any, radius: Any = 1, center: Any = None, threshold: float = 1e-06
) -> None:
    """Follow the constructor of `scipy.spatial.SphericalVoronoi`."""
    if radius is None:
        raise ValueError("`radius` is `None`. Please provide a floating point number (i.e. `radius=1`).")
    points = _points(points, incremental=False)
    ndim = points.shape[1]
    radius = np.asarray(radius) + 0.0
    center = np.zeros(ndim) if center is None else np.asarray(center) + 0.0

    def made(points: Any, radius: Any, center: Any) -> Any:
        return _plain("SphericalVoronoi")(points, radius.item(), center, threshold)

    def find(*numbers: Any) -> tuple[Any, ...]:
        return (made(*numbers)._simplices,)

    inputs = points, radius, center
    (simplices,) = computed_arrays(find, (("m", ndim), np.int32), given=inputs)
    self.points, self.radius, self.center, self._dim, self._rank = points, radius, center, ndim, ndim
    corners = lookup(points, simplices)
    middle = np.mean(points, axis=0)
    normals = _normals(corners)
    outwards = np.where(np.sum(normals * (corners[:, 0] - middle), axis=1) < 0, -1.0, 1.0)
    unit = normals * (outwards / root(np.sum(normals**2, axis=1)))[:, None]
    self.vertices = radius * unit + center
    self._simplices = simplices
    self._gradtape_made = lambda: computed_structure(
        lambda *numbers: [list(map(int, each)) for each in _sorted_regions(made(*numbers))], *inputs
    )
    self.regions = _lists(lambda *numbers: [list(map(int, each)) for each in made(*numbers).regions], *inputs)


def _sorted_regions(diagram: Any) -> Any:
    diagram.sort_vertices_of_regions()
    return diagram.regions


@stands_for("scipy.spatial._spherical_voronoi.SphericalVoronoi.sort_vertices_of_regions")
def sort_vertices_of_regions(self: Any) -> None:
    """Follow `SphericalVoronoi.sort_vertices_of_regions`."""
    if self._dim != 3:
        raise TypeError("Only supported for three-dimensional point sets")
    self.regions = self._gradtape_made()
