"""Nested containers as vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.trees import flatten as leaves_of
from gradtape.trees import unflatten as tree_of


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the numbers in nested lists, tuples and dicts as a vector, and the function that makes such containers of a vector.

    Keys of dicts are in sorted order.

    Examples
    --------
    >>> from gradtape.autograd.misc import flatten
    >>> vector, unflatten = flatten({"b": 3.0, "a": [1.0, 2.0]})
    >>> vector
    array([1., 2., 3.])
    >>> unflatten(10 * vector)
    {'b': np.float64(30.0), 'a': [np.float64(10.0), np.float64(20.0)]}
    """
    leaves, spec = leaves_of(value)
    shapes = [np.shape(leaf) for leaf in leaves]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes]).tolist()

    def unflatten(vector: Any) -> Any:
        parts = []
        for shape, begin, end in zip(shapes, [0, *ends], ends, strict=False):
            parts.append(np.reshape(vector[begin:end], shape) if shape else vector[begin])
        return tree_of(spec, parts)

    vector = np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else np.array([])
    return vector, unflatten


def flatten_func(
    func: Callable[..., Any], example: Any
) -> tuple[Callable[..., Any], Callable[[Any], Any], Any]:
    """Return a function of containers as one of vectors, with what makes containers of vectors, and the vector of an example."""
    vector, unflatten = flatten(example)

    def of_vector(x: Any, *args: Any) -> Any:
        return flatten(func(unflatten(x), *args))[0]

    return of_vector, unflatten, vector
