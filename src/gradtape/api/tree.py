"""Nested containers of arrays (pytrees): map over them, flatten them, and put all their numbers into one vector.

Containers are dicts, lists, tuples, named tuples, dataclasses and objects of classes that hold arrays, as for all functions of
gradtape. None is an empty container.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.errors import ArgumentError, ShapeError
from gradtape.habits import answering as _answering
from gradtape.trace.array.handle import Handle
from gradtape.trace.source.sites import user_site
from gradtape.trees import TreeSpec
from gradtape.trees import flatten as _flatten
from gradtape.trees import flatten_up_to as _flatten_up_to
from gradtape.trees import unflatten as _unflatten

__all__ = ["flatten", "leaves", "map", "ravel", "structure", "unflatten", "zeros_like"]


def map(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply a function to each leaf of a pytree (nested containers), and return the results in the same containers.

    Parameters
    ----------
    function : callable
        Takes one leaf of each tree.
    tree : nest
        The pytree that determines the structure.
    *rest : nests
        Further pytrees with the structure of `tree`.

    Returns
    -------
    nest
        The results, in the structure of `tree`.

    Raises
    ------
    StructureError
        If a further tree has another structure.

    Examples
    --------
    >>> import gradtape as gt
    >>> params, slopes = {"w": 1.0, "b": [2.0]}, {"w": 10.0, "b": [20.0]}
    >>> gt.tree.map(lambda p, g: p - 0.1 * g, params, slopes)
    {'w': 0.0, 'b': [0.0]}
    """
    first, spec = _flatten(tree)
    others = [
        _flatten_up_to(spec, other, f"tree {position}", "the first tree", user_site())
        for position, other in enumerate(rest, 2)
    ]
    return _unflatten(spec, [function(*group) for group in zip(first, *others, strict=True)])


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a nest from left to right, of dicts in sorted order of their keys.

    Parameters
    ----------
    tree : nest
        Any containers.

    Returns
    -------
    list
        The leaves; None is not a leaf.

    Examples
    --------
    >>> import gradtape as gt
    >>> gt.tree.leaves({"b": 1.0, "a": [2.0, None, (3.0,)]})
    [2.0, 3.0, 1.0]
    """
    return _flatten(tree)[0]


def structure(tree: Any) -> TreeSpec:
    """Return the structure of a nest: its containers without the leaves.

    Parameters
    ----------
    tree : nest
        Any containers.

    Returns
    -------
    optree.PyTreeSpec
        Can be compared, and passed to `gt.tree.unflatten`.

    Examples
    --------
    >>> import gradtape as gt
    >>> gt.tree.structure({"a": 1.0}) == gt.tree.structure({"a": 2.0})
    True
    """
    return _flatten(tree)[1]


def flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """Return the leaves and the structure of a nest.

    Parameters
    ----------
    tree : nest
        Any containers.

    Returns
    -------
    leaves : list
        As of `gt.tree.leaves`.
    structure : optree.PyTreeSpec
        As of `gt.tree.structure`.

    Examples
    --------
    >>> import gradtape as gt
    >>> leaves, structure = gt.tree.flatten({"a": [1.0, 2.0]})
    >>> gt.tree.unflatten(structure, [10.0 * leaf for leaf in leaves])
    {'a': [10.0, 20.0]}
    """
    return _flatten(tree)


def unflatten(structure: TreeSpec, leaves: Sequence[Any]) -> Any:
    """Return the nest with the given structure and leaves.

    Parameters
    ----------
    structure : optree.PyTreeSpec
        As of `gt.tree.structure`.
    leaves : sequence
        One for each leaf of the structure.

    Returns
    -------
    nest
        New containers with these leaves.

    Raises
    ------
    ArgumentError
        If the number of leaves is not that of the structure.

    Examples
    --------
    >>> import gradtape as gt
    >>> gt.tree.unflatten(gt.tree.structure((0, [0])), [1.0, 2.0])
    (1.0, [2.0])
    """
    items = list(leaves)
    if len(items) != structure.num_leaves:
        raise ArgumentError(
            f"gt.tree.unflatten: {len(items)} leaves for a structure with {structure.num_leaves}",
            where=user_site(),
            remedy="leaves, structure = gt.tree.flatten(tree)",
        )
    return _unflatten(structure, items)


def zeros_like(tree: Any) -> Any:
    """Return a nest of zeros with the structure, shapes and dtypes of another one.

    Parameters
    ----------
    tree : nest of array_like
        Decides the structure.

    Returns
    -------
    nest of arrays
        Zeros.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.tree.zeros_like({"w": np.ones(2), "b": 1.0})
    {'w': array([0., 0.]), 'b': array(0.)}
    """
    return map(np.zeros_like, tree)


def ravel(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return all numbers of a nest as one vector, and the function that rebuilds the nest from such a vector.

    Optimisers and samplers that take vectors then run on parameters of any structure.

    Parameters
    ----------
    tree : nest of array_like
        Arrays and numbers; the dtype of the vector is their common one.

    Returns
    -------
    flat : array, shape (n,)
        The numbers of all leaves, each in C order, from left to right.
    unravel : callable
        Takes a vector of shape (n,), traced or not, and returns the nest, each leaf in its shape and dtype.

    Raises
    ------
    ShapeError
        By `unravel`, for an array of another shape.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> flat, unravel = gt.tree.ravel({"w": np.ones((2, 2)), "b": 0.5})
    >>> flat
    array([0.5, 1. , 1. , 1. , 1. ])
    >>> loss = lambda vector: np.sum(unravel(vector)["w"] ** 2)
    >>> gt.grad(loss)(flat)
    array([0., 2., 2., 2., 2.])
    """
    items, spec = _flatten(tree)
    arrays = [_array(item) for item in items]
    shapes, dtypes = [array.shape for array in arrays], [array.dtype for array in arrays]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes], dtype=np.int64).tolist()
    count = ends[-1] if ends else 0

    def unravel(flat: Any) -> Any:
        vector = _array(flat)
        if vector.shape != (count,):
            raise ShapeError(
                f"unravel takes an array of shape ({count},), got shape {vector.shape}",
                where=user_site(),
                remedy="pass a vector like the one that gt.tree.ravel returned",
            )
        starts = [0, *ends][: len(ends)]
        parts = [
            vector[start:end].reshape(shape).astype(dtype, copy=False)
            for start, end, shape, dtype in zip(starts, ends, shapes, dtypes, strict=True)
        ]
        return _unflatten(spec, parts)

    flat = np.concatenate([np.ravel(array) for array in arrays]) if arrays else np.zeros(0)
    return flat, unravel


def _array(item: Any) -> Any:
    return item if isinstance(item, Handle) else np.asarray(item)


__getattr__, __dir__ = _answering("gradtape.tree", globals())
