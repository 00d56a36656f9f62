"""Arrays as sets, where the numbers are known: the elements are taken from the arrays, so that the
derivative follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array, concrete, lookup, one_axis
from gradtape.kinds.registry import implements
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.join import concatenate
from gradtape.ops.numpy.arrays.shape import ravel
from gradtape.ops.numpy.statistics.sort import isin


@implements(np.unique)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """Follow `numpy.unique` where the numbers are known."""
    x = as_array(ar)
    _, index, inverse, counts = np.unique(concrete(x, "ar"), True, True, True, axis=axis, equal_nan=equal_nan)
    flat, place = (reshape(x, (x.size,)), 0) if axis is None else (x, one_axis(axis, x.ndim))
    values = getitem(flat, (slice(None),) * place + (index,))
    extras = ((index, return_index), (inverse, return_inverse), (counts, return_counts))
    chosen = [extra for extra, wanted in extras if wanted]
    return (values, *chosen) if chosen else values


def _combined(function: Any) -> Callable[..., Any]:
    """Return what follows a function of two sets: its elements, looked up among those of both arrays."""

    def follow(ar1: Any, ar2: Any, assume_unique: bool = False) -> Value:
        both = concatenate([ravel(ar1), ravel(ar2)])
        found = function(concrete(ar1, "ar1"), concrete(ar2, "ar2"))
        numbers, first = np.unique(concrete(both, "ar1"), return_index=True)
        return getitem(both, (first[np.searchsorted(numbers, found)],))

    return follow


for _function in (np.union1d, np.setdiff1d, np.setxor1d, np.intersect1d):
    implements(_function)(_combined(_function))


@implements(lookup(np, "in1d"))
def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None) -> Value:
    """Follow `numpy.in1d`, which NumPy 2.4 no longer has."""
    return isin(ravel(ar1), ar2, assume_unique, invert)
