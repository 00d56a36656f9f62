"""Distances between points, and decisions by distance: nearest neighbours, codes of clusters, assignments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.errors import DtypeError, ShapeError
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import borrows
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.routines.registry import computed, known_numbers, lookup, numbers_of, refused, stands_for
from gradtape.trace.source.sites import user_site


def root(x: Any) -> Any:
    """Return the square root; at 0 its derivative counts as 0."""
    return np.where(x == 0, 0.0, np.sqrt(np.where(x == 0, 1.0, x)))


def _weighted(terms: Any, w: Any) -> Any:
    return np.sum(terms if w is None else terms * w, axis=-1)


def _quotient(part: Any, total: Any) -> Any:
    return np.where(total == 0, 0.0, part / np.where(total == 0, 1.0, total))


def _minkowski(u: Any, v: Any, w: Any = None, p: Any = 2) -> Any:
    gap = np.abs(u - v)
    if not isinstance(p, Handle):
        if p == 1:
            return _weighted(gap, w)
        if p == 2:
            return root(_weighted(gap**2, w))
        if p == np.inf:
            return _chebyshev(u, v, w)
    total = _weighted(np.where(gap == 0, 0.0, np.where(gap == 0, 1.0, gap) ** p), w)
    return np.where(total == 0, 0.0, np.where(total == 0, 1.0, total) ** (1.0 / p))


def _chebyshev(u: Any, v: Any, w: Any = None) -> Any:
    gap = np.abs(u - v)
    return np.max(gap if w is None else np.where(w > 0, gap, 0.0), axis=-1)


def _cosine(u: Any, v: Any, w: Any = None) -> Any:
    product = _weighted(u * v, w) / np.sqrt(_weighted(u * u, w) * _weighted(v * v, w))
    return 1.0 - np.clip(product, -1.0, 1.0)


def _correlation(u: Any, v: Any, w: Any = None) -> Any:
    share = 1.0 / u.shape[-1] if w is None else w / np.sum(w)
    u = u - np.sum(u * share, axis=-1, keepdims=True)
    v = v - np.sum(v * share, axis=-1, keepdims=True)
    return _cosine(u, v, w)


def _entropy(p: Any, q: Any) -> Any:
    return np.where(p == 0, 0.0, p * np.log(np.where(p == 0, 1.0, p) / np.where(p == 0, 1.0, q)))


def _jensenshannon(u: Any, v: Any, w: Any = None) -> Any:
    p, q = u / np.sum(u, axis=-1, keepdims=True), v / np.sum(v, axis=-1, keepdims=True)
    middle = (p + q) / 2
    return root(np.maximum(_weighted(_entropy(p, middle) + _entropy(q, middle), w) / 2, 0.0))


def _mahalanobis(u: Any, v: Any, VI: Any) -> Any:
    gap = u - v
    return root(np.sum(gap @ VI * gap, axis=-1))


METRICS: Final[dict[str, Callable[..., Any]]] = {
    "braycurtis": lambda u, v, w=None: _quotient(_weighted(np.abs(u - v), w), _weighted(np.abs(u + v), w)),
    "canberra": lambda u, v, w=None: _weighted(_quotient(np.abs(u - v), np.abs(u) + np.abs(v)), w),
    "chebyshev": _chebyshev,
    "cityblock": lambda u, v, w=None: _weighted(np.abs(u - v), w),
    "correlation": _correlation,
    "cosine": _cosine,
    "euclidean": lambda u, v, w=None: root(_weighted((u - v) ** 2, w)),
    "hamming": lambda u, v, w=None: _weighted(u != v, w) / (u.shape[-1] if w is None else np.sum(w)),
    "jensenshannon": _jensenshannon,
    "mahalanobis": _mahalanobis,
    "minkowski": _minkowski,
    "seuclidean": lambda u, v, V: root(np.sum((u - v) ** 2 / V, axis=-1)),
    "sqeuclidean": lambda u, v, w=None: _weighted((u - v) ** 2, w),
}
"""The metrics of real vectors, along the last axis."""


def _metric(metric: Any, samples: Any, kwargs: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """Return the function of two arrays of vectors for a name of SciPy's, or for a function of the user's."""
    aliases = sys.modules["scipy.spatial.distance"]._METRIC_ALIAS
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
    info = aliases.get(name.lower())
    options = {key: item for key, item in kwargs.items() if item is not None}
    if info is None and callable(metric):
        return lambda u, v: metric(u, v, **options)
    function = None if info is None else METRICS.get(info.canonical_name)
    if function is None:
        raise refused(
            f"the metric {metric!r} of traced arrays",
            "it is one of booleans, or unknown",
            "use another metric",
        )
    if info.canonical_name == "seuclidean" and "V" not in options:
        options["V"] = np.var(samples, axis=0, ddof=1)
    if info.canonical_name == "mahalanobis" and "VI" not in options:
        options["VI"] = np.linalg.inv(np.cov(samples.T)).T
    return lambda u, v: function(u, v, **options)


def _double(points: Any) -> Any:
    """Return points in double precision, in which SciPy's compiled code works."""
    return np.asarray(points).astype(float)


@stands_for("scipy.spatial.distance.cdist")
def cdist(XA: Any, XB: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    """Follow `scipy.spatial.distance.cdist`."""
    a, b = _double(XA), _double(XB)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError("XA and XB must be 2-dimensional and have the same number of columns")
    samples = np.concatenate([a, b]) if metric in ("seuclidean", "mahalanobis") else None
    function = _metric(metric, samples, kwargs)
    if callable(metric) and getattr(metric, "__name__", "") not in METRICS:
        distances = np.stack([np.stack([function(u, v) for v in b]) for u in a])
    else:
        distances = function(a[:, None], b[None])
    return distances if out is None else _written(out, distances)


@stands_for("scipy.spatial.distance.pdist")
def pdist(X: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    """Follow `scipy.spatial.distance.pdist`."""
    x = _double(X)
    if x.ndim != 2:
        raise ValueError(f"A 2-dimensional array must be passed. (Shape was {x.shape}).")
    first, second = np.triu_indices(x.shape[0], 1)
    function = _metric(metric, x, kwargs)
    if callable(metric) and getattr(metric, "__name__", "") not in METRICS:
        distances = np.stack([function(x[i], x[j]) for i, j in zip(first, second, strict=True)])
    else:
        distances = function(x[first], x[second])
    return distances if out is None else _written(out, distances)


def _written(out: Any, distances: Any) -> Any:
    out[...] = distances
    return out


@stands_for("scipy.spatial.distance.squareform")
def squareform(X: Any, force: str = "no", checks: bool = True) -> Any:
    """Follow `scipy.spatial.distance.squareform`."""
    x = np.asarray(X)
    if x.ndim == 1 and force.lower() != "tovector":
        count = int(np.ceil(np.sqrt(x.shape[0] * 2))) or 1
        if count * (count - 1) != x.shape[0] * 2:
            raise ValueError(
                "Incompatible vector size. It must be a binomial coefficient n choose 2 for some integer n >= 2."
            )
        first, second = np.triu_indices(count, 1)
        positions = np.full((count, count), x.shape[0])
        positions[first, second] = positions[second, first] = np.arange(x.shape[0])
        return np.concatenate([x, np.zeros(1, x.dtype)])[positions]
    if x.ndim != 2 or x.shape[0] != x.shape[1] or force.lower() == "tomatrix":
        raise ValueError("The argument must be a vector of distances, or a square matrix")
    if checks and not ((x == x.T).all() and (np.diagonal(x) == 0).all()):
        raise ValueError("Distance matrix 'X' must be symmetric, and its diagonal must be zero.")
    return x[np.triu_indices(x.shape[0], 1)]


@stands_for("scipy.spatial.distance.minkowski")
def minkowski(u: Any, v: Any, p: Any = 2, w: Any = None) -> Any:
    """Follow `scipy.spatial.distance.minkowski`."""
    if p <= 0:
        raise ValueError("p must be greater than 0")
    distance = _minkowski(np.asarray(u) + 0.0, np.asarray(v) + 0.0, None if w is None else np.asarray(w), p)
    return distance if isinstance(p, Handle) or p != 2 else distance.astype(float)


@stands_for("scipy.spatial.distance.directed_hausdorff")
def directed_hausdorff(u: Any, v: Any, rng: Any = 0, **kwargs: Any) -> tuple[Any, Any, Any]:
    """Follow `scipy.spatial.distance.directed_hausdorff`: the distance of the pair that it finds."""
    table = cdist(u, v, "sqeuclidean")
    nearest = np.min(table, axis=1)
    first = np.argmax(nearest)
    return root(lookup(nearest, first)), first, np.argmin(lookup(table, first))


# Trees


@stands_for("scipy.spatial._kdtree.KDTree.__init__")
def make_tree(self: Any, data: Any, *args: Any, **kwargs: Any) -> None:
    """Follow the constructor of `scipy.spatial.KDTree`: the tree is that of the numbers, or is made in each call of a compiled function."""
    data = _double(data)
    numbers = numbers_of(data)
    type(self).__init__(self, np.zeros((0, data.shape[-1])) if numbers is None else numbers, *args, **kwargs)
    self._followed_data, self._tree_options = data, (args, kwargs)


@stands_for("scipy.spatial._kdtree.KDTree.query")
def query_tree(
    self: Any,
    x: Any,
    k: Any = 1,
    eps: float = 0.0,
    p: float = 2.0,
    distance_upper_bound: float = np.inf,
    workers: int = 1,
) -> tuple[Any, Any]:
    """Follow `scipy.spatial.KDTree.query`: which points are the nearest has no derivative; their distances have."""
    x = _double(x)
    data = getattr(self, "_followed_data", self.data)
    args, kwargs = getattr(self, "_tree_options", ((), {}))
    make = sys.modules["scipy.spatial"].KDTree
    shape = (
        *x.shape[:-1],
        *(() if issubclass(type(k), int) and k == 1 else (k if issubclass(type(k), int) else len(k),)),
    )
    shared_tree = make(np.asarray(self.data)) if len(self.data) == len(data) else None

    def find(data: Any, points: Any) -> Any:
        tree = make(data, *args, **kwargs) if shared_tree is None else shared_tree
        return tree.query(points, k, eps, p, distance_upper_bound, workers)

    distances, positions = computed(find, (np.zeros(shape), np.zeros(shape, np.intp)), data, x)
    is_near = np.isfinite(distances)
    rows = lookup(data, np.where(is_near, positions, 0))
    points = x if np.ndim(positions) == x.ndim - 1 else x[..., None, :]
    return np.where(is_near, _minkowski(points, rows, p=p), np.inf), positions


def _constant_of_tree(name: str) -> Callable[..., Any]:
    """Return what stands for a method of `scipy.spatial.KDTree` whose results are counts and positions: they are those of the numbers."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        for item in (self, *args, *kwargs.values()):
            known_numbers(getattr(item, "_followed_data", np.zeros(())), f"{name} of a tree")
        numbers = [known_numbers(item, name) if isinstance(item, Handle) else item for item in args]
        return getattr(sys.modules["scipy.spatial"].cKDTree, name)(self, *numbers, **kwargs)

    return method


for _name in ("query_ball_point", "query_ball_tree", "query_pairs", "count_neighbors"):
    stands_for(f"scipy.spatial._kdtree.KDTree.{_name}")(_constant_of_tree(_name))


@stands_for("scipy.spatial._kdtree.KDTree.sparse_distance_matrix")
def sparse_distance_matrix(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse `scipy.spatial.KDTree.sparse_distance_matrix` of traced points."""
    raise refused(
        "sparse_distance_matrix of a tree of traced arrays",
        "which distances it holds depends on numbers",
        "take the distances of tree.query(x, k, distance_upper_bound=r)",
    )


@borrows("scipy.optimize.linear_sum_assignment")
def linear_sum_assignment(cost_matrix: Any, maximize: bool = False) -> tuple[Any, Any]:
    """Follow `scipy.optimize.linear_sum_assignment`: the assignment is found with numbers, and its positions are constants."""
    costs = Array(as_value(unwrap(cost_matrix)))
    if costs.ndim != 2:
        raise ShapeError(
            f"scipy.optimize.linear_sum_assignment: cost_matrix has shape {costs.shape}",
            where=user_site(),
            remedy="pass a matrix",
        )
    if costs.dtype.kind == "c":
        raise DtypeError(
            f"scipy.optimize.linear_sum_assignment: cost_matrix is {costs.dtype}",
            where=user_site(),
            remedy="pass real costs: np.abs(z), or np.real(z)",
        )
    solve = sys.modules["scipy.optimize"].linear_sum_assignment
    like = np.zeros(min(costs.shape), np.int64)
    rows, columns = computed(lambda numbers: solve(numbers, maximize), (like, like), costs)
    return unwrap(rows), unwrap(columns)


# Clusters


@stands_for("scipy.cluster.vq._vq.vq")
def nearest_codes(obs: Any, code_book: Any) -> tuple[Any, Any]:
    """Return the number of the nearest code of each observation, and the distance to it."""
    table = cdist(np.reshape(obs, (len(obs), -1)), np.reshape(code_book, (len(code_book), -1)), "sqeuclidean")
    codes = np.argmin(table, axis=1)
    return codes, root(np.min(table, axis=1))


@stands_for("scipy.cluster.vq._vq.update_cluster_means")
def cluster_means(obs: Any, labels: Any, nc: int) -> tuple[Any, Any]:
    """Return the mean of the observations of each code, and which codes have any."""
    members = np.asarray(labels)[:, None] == np.arange(nc)
    counts = np.sum(members, axis=0)
    means = (members.T + 0.0) @ obs / np.maximum(counts, 1)[:, None]
    return means, counts > 0


@stands_for("sklearn.metrics.pairwise._chi2_kernel_fast")
def additive_chi2_kernel(X: Any, Y: Any, result: Any) -> None:
    """Write the additive chi-squared kernel; features that neither of two samples has add nothing."""
    sums = X[:, None, :] + Y[None, :, :]
    terms = (X[:, None, :] - Y[None, :, :]) ** 2 / np.where(sums == 0, 1, sums)
    result[...] = -np.sum(np.where(sums == 0, 0, terms), axis=2)


@stands_for("sklearn.metrics.pairwise:haversine_distances")
def haversine_distances(X: Any, Y: Any = None) -> Any:
    """Return the angles between points on a sphere, each a latitude and a longitude."""
    a, b = np.asarray(X)[:, None, :], np.asarray(X if Y is None else Y)[None, :, :]
    halves = np.sin((a - b) / 2) ** 2
    squares = halves[..., 0] + np.cos(a[..., 0]) * np.cos(b[..., 0]) * halves[..., 1]
    is_apart = squares > 0
    return np.where(is_apart, 2 * np.arcsin(np.sqrt(np.where(is_apart, squares, 1))), 0)


@stands_for("sklearn.metrics.pairwise:pairwise_distances_argmin")
def pairwise_distances_argmin(
    X: Any, Y: Any, *, axis: int = 1, metric: Any = "euclidean", metric_kwargs: Any = None
) -> Any:
    """Return the position of the nearest sample."""
    pairwise: Any = sys.modules["sklearn.metrics.pairwise"]
    distances = pairwise.pairwise_distances(X, Y, metric=metric, **(metric_kwargs or {}))
    return np.argmin(distances, axis=axis)


@stands_for("sklearn.metrics.pairwise:pairwise_distances_argmin_min")
def pairwise_distances_argmin_min(
    X: Any, Y: Any, *, axis: int = 1, metric: Any = "euclidean", metric_kwargs: Any = None
) -> Any:
    """Return the position of the nearest sample, and the distance to it."""
    pairwise: Any = sys.modules["sklearn.metrics.pairwise"]
    distances = pairwise.pairwise_distances(X, Y, metric=metric, **(metric_kwargs or {}))
    return np.argmin(distances, axis=axis), np.min(distances, axis=axis)


@stands_for("sklearn.cluster._kmeans:_labels_inertia_threadpool_limit")
def nearest_centers(
    X: Any, sample_weight: Any, centers: Any, n_threads: int = 1, return_inertia: bool = True
) -> Any:
    """Return the cluster of each sample, and the sum of the squares of the distances to the centers."""
    squares = np.sum((X[:, None, :] - centers[None, :, :]) ** 2, axis=2)
    labels = np.argmin(squares, axis=1).astype(np.int32)
    return (labels, np.sum(sample_weight * np.min(squares, axis=1))) if return_inertia else labels
