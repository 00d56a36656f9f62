"""Clipping of gradients by the norm of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.api.optimizers.methods import squared
from gradtape.api.optimizers.optimizer import as_factor, number
from gradtape.errors import ArgumentError
from gradtape.habits import suggests_keywords
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.indexed_slices import IndexedSlices
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten_to, unflatten


def global_norm(gradients: Any) -> Any:
    """Return the Euclidean norm of nested gradients, taken as one vector.

    Parameters
    ----------
    gradients : array, IndexedSlices or nest of them
        None counts as zero.

    Returns
    -------
    float or Array
        The norm; 0.0 if there is no gradient.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> float(gt.optimizers.global_norm({"w": np.array([3.0, 0.0]), "b": 4.0}))
    5.0
    """
    total: Any = 0.0
    for leaf in flatten_to(IndexedSlices, gradients, none_is_leaf=False)[0]:
        square = squared(leaf if isinstance(leaf, Handle | IndexedSlices) else np.asarray(leaf))
        total = total + np.sum(square.values if isinstance(square, IndexedSlices) else square)
    return np.sqrt(total)


@suggests_keywords
def clip_by_global_norm(gradients: Any, max_norm: float) -> tuple[Any, Any]:
    """Scale gradients down together so that their global norm is at most `max_norm`; the direction of the step stays the same.

    Parameters
    ----------
    gradients : array, IndexedSlices or nest of them
        None stays None.
    max_norm : float
        The greatest norm.

    Returns
    -------
    clipped : nest of arrays
        In the structure, shapes and dtypes of `gradients`.
    norm : float or Array
        The norm before clipping.

    Raises
    ------
    ArgumentError, DtypeError
        If `max_norm` is not a positive number.

    Notes
    -----
    Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", ICML 2013. A norm that is infinite
    or NaN makes all gradients NaN, as in TensorFlow: an error is not hidden.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> clipped, norm = gt.optimizers.clip_by_global_norm([np.array([3.0, 0.0]), np.array([4.0])], 1.0)
    >>> clipped, float(norm)
    ([array([0.6, 0. ]), array([0.8])], 5.0)
    """
    limit = number(max_norm, "max_norm", "clip_by_global_norm")
    if limit == 0:
        raise ArgumentError(
            "clip_by_global_norm: max_norm is 0", where=user_site(), remedy="a positive number: max_norm=1.0"
        )
    leaves, spec = flatten_to(IndexedSlices, gradients, none_is_leaf=False)
    norm = global_norm(gradients)
    factor = limit / np.where(np.isfinite(norm), np.maximum(norm, limit), np.nan)
    clipped = [
        leaf * as_factor(factor, leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype)
        for leaf in leaves
    ]
    return unflatten(spec, clipped), norm
