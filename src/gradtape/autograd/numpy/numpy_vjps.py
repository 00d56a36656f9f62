"""Tools for the rules of functions that broadcast their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.autograd.numpy.numpy_wrapper import metadata


def unbroadcast(x: Any, target_meta: Any, broadcast_idx: int = 0) -> Any:
    """Return the sum of a cotangent over the axes in which an operand was broadcast.

    Parameters
    ----------
    x : array_like
        The cotangent.
    target_meta : tuple
        What `metadata` returns of the operand.
    broadcast_idx : int, default 0
        The axis at which axes were added.
    """
    target_shape, target_ndim, _, target_iscomplex = target_meta
    while np.ndim(x) > target_ndim:
        x = np.sum(x, axis=broadcast_idx)
    for axis, size in enumerate(target_shape):
        if size == 1:
            x = np.sum(x, axis=axis, keepdims=True)
    return np.real(x) if np.iscomplexobj(x) and not target_iscomplex else x


def unbroadcast_f(target: Any, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the pullback `f` followed by `unbroadcast` to an operand."""
    target_meta = metadata(target)
    return lambda g: unbroadcast(f(g), target_meta)


def replace_zero(x: Any, val: Any) -> Any:
    """Return an array with another number in place of zeros."""
    return np.where(x, x, val)
