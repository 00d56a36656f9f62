"""The functions of `scipy.cluster.hierarchy`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.cluster.hierarchy as hierarchy
from scipy.spatial.distance import pdist

from tests.coverage.cases import Case, Namespace, call, public_functions

POINTS = np.array([[0.0, 0.1], [0.3, 0.0], [2.0, 2.2], [2.3, 1.7], [5.1, 0.4]])
DISTANCES = pdist(POINTS)
TREE = hierarchy.linkage(DISTANCES, "average")
METHODS = ("average", "centroid", "complete", "median", "single", "ward", "weighted")


def tree(heights: Any) -> Any:
    """Return a linkage with other heights."""
    return np.stack([TREE[:, 0], TREE[:, 1], heights, TREE[:, 3]], axis=1)


CASES: dict[str, list[Case]] = {
    **{
        name: call(lambda d, name=name: getattr(hierarchy, name)(d)[:, 2], DISTANCES, second=False)
        for name in METHODS
    },
    "linkage": [
        *call(lambda p: hierarchy.linkage(p, "ward")[:, 2], POINTS, second=False),
        *call(lambda p: hierarchy.linkage(p)[:, 2], POINTS, second=False),
    ],
    "cophenet": [
        *call(lambda d: hierarchy.cophenet(hierarchy.linkage(d, "average")), DISTANCES, second=False),
        *call(lambda d: hierarchy.cophenet(TREE, d), DISTANCES, second=False),
    ],
    "inconsistent": call(
        lambda d: hierarchy.inconsistent(hierarchy.linkage(d, "average")), DISTANCES, second=False
    ),
    "maxdists": call(lambda d: hierarchy.maxdists(hierarchy.linkage(d, "average")), DISTANCES, second=False),
    "maxinconsts": call(
        lambda d: hierarchy.maxinconsts(TREE, d), hierarchy.inconsistent(TREE) + 0.1, second=False
    ),
    "maxRstat": call(
        lambda d: hierarchy.maxRstat(TREE, d, 1), hierarchy.inconsistent(TREE) + 0.1, second=False
    ),
    "optimal_leaf_ordering": call(
        lambda d: hierarchy.optimal_leaf_ordering(TREE, d)[:, 2], DISTANCES, second=False
    ),
    "from_mlab_linkage": call(
        lambda h: hierarchy.from_mlab_linkage(tree(h)[:, :3] + [1, 1, 0])[:, 2:], TREE[:, 2], second=False
    ),
    "to_mlab_linkage": call(lambda h: hierarchy.to_mlab_linkage(tree(h))[:, 2], TREE[:, 2], second=False),
}
CONSTANT: dict[str, list[Case]] = {
    "fcluster": call(lambda z: hierarchy.fcluster(z, 1.0, "distance"), TREE),
    "fclusterdata": call(lambda p: hierarchy.fclusterdata(p, 1.0), POINTS),
    "cut_tree": call(lambda z: hierarchy.cut_tree(z, 2), TREE),
    "is_monotonic": call(hierarchy.is_monotonic, TREE),
    "is_valid_im": call(hierarchy.is_valid_im, hierarchy.inconsistent(TREE)),
    "is_valid_linkage": call(hierarchy.is_valid_linkage, TREE),
    "leaders": call(lambda z: hierarchy.leaders(z, np.array([1, 1, 2, 2, 3], dtype=np.int32)), TREE),
    "leaves_list": call(hierarchy.leaves_list, TREE),
    "num_obs_linkage": call(hierarchy.num_obs_linkage, TREE),
    "correspond": call(hierarchy.correspond, TREE, DISTANCES),
}
SCIPY_HIERARCHY = Namespace(
    "scipy.cluster.hierarchy",
    public_functions(hierarchy),
    CASES,
    CONSTANT,
    others=dict.fromkeys(
        ["is_isomorphic", "dendrogram", "set_link_color_palette", "to_tree"],
        "it takes integers, or makes pictures or objects",
    ),
)
