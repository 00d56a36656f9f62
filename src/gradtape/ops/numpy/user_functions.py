"""Functions that call a function of the user's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL
from gradtape.kinds.arguments import as_array, one_axis
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import HOOKS, implements
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import full, stack
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.shape import expand_dims, moved


@implements(np.apply_along_axis)
def apply_along_axis(func1d: Any, axis: Any, arr: Any, *args: Any, **kwargs: Any) -> Value:
    """Follow `numpy.apply_along_axis`: the function is traced once for every position off the axis."""
    x = as_array(arr)
    place = one_axis(axis, x.ndim)
    lead = (*x.shape[:place], *x.shape[place + 1 :])
    rows = moved(x, (place,), (x.ndim - 1,))
    positions = list(itertools.product(*map(range, lead)))
    if not positions:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    results = [as_array(HOOKS.call(func1d, getitem(rows, at), *args, **kwargs)) for at in positions]
    inner = results[0].shape
    whole = reshape(stack(*results), (*lead, *inner))
    source = tuple(range(len(lead), len(lead) + len(inner)))
    return moved(whole, source, tuple(place + k for k in range(len(inner))))


@implements(np.apply_over_axes)
def apply_over_axes(func: Any, a: Any, axes: Any) -> Value:
    """Follow `numpy.apply_over_axes`."""
    x = as_array(a)
    rank = x.ndim
    for axis in np.atleast_1d(axes):
        place = int(axis) + rank if axis < 0 else int(axis)
        result = as_array(HOOKS.call(func, x, place))
        if result.ndim != rank:
            result = expand_dims(result, place)
        if result.ndim != rank:
            raise ShapeError(
                f"function is not returning an array of the correct shape: rank {result.ndim} "
                f"instead of {rank}",
                where=here.site,
                remedy="the function must reduce one axis, or keep it with extent 1",
            )
        x = result
    return x


@implements(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Value:
    """Follow `numpy.piecewise` for functions that work element by element: each sees all elements, and the
    conditions choose."""
    points = as_array(x)
    given = condlist if isinstance(condlist, list | tuple) else [condlist]
    if given and not isinstance(given[0], list | tuple | np.ndarray | Value) and points.ndim:
        given = [given]
    conditions = [broadcast_to(convert(as_array(condition), BOOL), points.shape) for condition in given]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} "
            "functions are expected"
        )
    result = full(points.shape, 0, points.dtype)
    if len(funclist) > len(conditions):
        result = _piece(funclist[-1], points, args, kw)
    for condition, function in zip(conditions, funclist, strict=False):
        result = where(condition, _piece(function, points, args, kw), result)
    return result


def _piece(function: Any, points: Value, args: tuple[Any, ...], kw: dict[str, Any]) -> Value:
    values = HOOKS.call(function, points, *args, **kw) if callable(function) else function
    return broadcast_to(convert(as_array(values), points.dtype), points.shape)
