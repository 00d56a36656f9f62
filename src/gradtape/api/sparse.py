"""Rows of tables: gather and scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.api.transforms.argnums import integer
from gradtape.errors import ArgumentError, DtypeError, kind_of
from gradtape.habits import suggests_keywords
from gradtape.ir.builder import here
from gradtape.kinds.arguments import as_array
from gradtape.ops.core.indexing import getitem_rows
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.scatter import How, scatter, scatter_ndarray
from gradtape.trace.variables.variable import Variable


@suggests_keywords
def gather(params: Any, indices: Any, axis: int = 0) -> Array:
    """Return slices of an array by their positions along an axis.

    Parameters
    ----------
    params : array_like or Array
        The array, a table of rows for instance.
    indices : array_like of int
        Positions, of any shape; negative ones count from the end.
    axis : int, default 0
        Along which axis.

    Returns
    -------
    Array
        Of shape ``params.shape[:axis] + indices.shape + params.shape[axis + 1:]``. On a tape, the gradient of what was watched has only
        the rows that were gathered (an `IndexedSlices`), if all its uses are gathers along the first axis.

    Raises
    ------
    IndexError
        For a position out of bounds.
    DtypeError, ArgumentError
        For indices that are no integers, an axis that does not exist.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.gather(np.array([10.0, 20.0, 30.0]), [2, 0])
    Array([30., 10.])
    """
    here.site = user_site()
    table, positions = as_array(unwrap(params), "params"), as_array(unwrap(indices), "indices")
    if positions.size == 0 and not isinstance(indices, Handle | np.ndarray):
        positions = as_array(np.empty(positions.shape, np.intp))
    if positions.dtype.kind not in "iu":
        raise DtypeError(
            f"gather: indices must be integers, got {positions.dtype}",
            where=here.site,
            remedy="indices.astype(int); for a mask, np.flatnonzero(mask)",
        )
    place = integer(axis)
    if place is None or not -table.ndim <= place < table.ndim:
        raise ArgumentError(
            f"gather: axis is {axis!r}, and params has shape {table.shape}",
            where=here.site,
            remedy=f"an integer from {-table.ndim} to {table.ndim - 1}"
            if table.ndim
            else "params of rank 1 or more",
        )
    return Array(getitem_rows(table, (slice(None),) * (place % table.ndim) + (positions,)))


def scatter_add(target: Any, slices: Any) -> Any:
    """Add rows to an array, in place.

    Parameters
    ----------
    target : Array, Variable or ndarray
        The array to change. Only the rows are written if there is no other reference to the array; otherwise it is copied first.
    slices : IndexedSlices
        The rows; equal indices add up.

    Returns
    -------
    Array, Variable or ndarray
        `target` itself.

    Raises
    ------
    ShapeError, DtypeError, IndexError
        For slices that do not fit; then nothing is changed.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> table = gt.constant(np.zeros((3, 2)))
    >>> gt.scatter_add(table, gt.IndexedSlices(np.ones((2, 2)), [2, 2]))
    Array([[0., 0.],
           [0., 0.],
           [2., 2.]])
    """
    return _scatter(target, slices, "add", "scatter_add", Variable.scatter_add)


def scatter_sub(target: Any, slices: Any) -> Any:
    """Subtract rows from an array, in place; see `scatter_add`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> with gt.GradientTape() as tape:
    ...     table = tape.watch(np.ones((3, 2)))
    ...     loss = np.sum(table[[0, 2]] ** 2)
    >>> gt.scatter_sub(table, 0.25 * tape.gradient(loss, table))
    Array([[0.5, 0.5],
           [1. , 1. ],
           [0.5, 0.5]])
    """
    return _scatter(target, slices, "subtract", "scatter_sub", Variable.scatter_sub)


def scatter_update(target: Any, slices: Any) -> Any:
    """Replace rows of an array, in place; see `scatter_add`. Of equal indices the last wins.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.scatter_update(np.zeros(4), gt.IndexedSlices([5.0, 7.0], [0, -1]))
    array([5., 0., 0., 7.])
    """
    return _scatter(target, slices, "set", "scatter_update", Variable.scatter_update)


def _scatter(
    target: Any, slices: Any, how: How, caller: str, method: Callable[[Variable, Any], Variable]
) -> Any:
    here.site = user_site()
    if isinstance(target, Variable):
        return method(target, slices)
    if isinstance(target, Handle):
        scatter(target, slices, how, caller)
    elif type(target) is np.ndarray:
        scatter_ndarray(target, slices, how, caller)
    else:
        raise DtypeError(
            f"{caller}: target must be an Array, a Variable or an ndarray, got {kind_of(target)}",
            where=here.site,
            remedy="pass an array: only arrays can be changed in place",
        )
    return target
