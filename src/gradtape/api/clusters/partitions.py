"""Data in partitions: Dask's collections, nests of them, and lists of delayed partitions, as one delayed block for each partition."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.delayed import Delayed, delayed

from gradtape.errors import ArgumentError, ShapeError
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, unflatten

REMEDY = (
    "pass a dask.array, a dask.dataframe, a tuple or dict of these, or a list of dask.delayed partitions; "
    "dask.array.from_array(x, chunks=...) makes one of an array"
)


def partitions(data: Any, caller: str) -> list[Delayed]:
    """Return the blocks of the data, one for each partition, in their order.

    A block has the containers of the data, with NumPy arrays in them; a partition of a data frame is a dict of its columns.

    Raises
    ------
    ArgumentError
        If some of it is not in partitions.
    ShapeError
        If its parts are not divided into the same partitions.
    """
    if isinstance(data, list) and data and all(_is_delayed(each) for each in data):
        return [each if isinstance(each, Delayed) else delayed(each) for each in data]
    leaves, spec = flatten(data)
    if not leaves:
        raise ArgumentError(f"{caller}: data is empty", where=user_site(), remedy=REMEDY)
    columns = [_blocks(leaf, leaves[0], caller) for leaf in leaves]
    counts = [len(each) for each in columns]
    if len(set(counts)) > 1:
        raise ShapeError(
            f"{caller}: the parts of data have {', '.join(map(str, counts))} partitions",
            where=user_site(),
            remedy="divide them into the same partitions: repartition(npartitions=...) of a data frame, rechunk(...) of an array",
        )
    if spec.is_leaf():
        return columns[0]
    return [unflatten_block(spec, *block) for block in zip(*columns, strict=True)]


def unflatten_block(spec: Any, *leaves: Delayed) -> Delayed:
    """Return the delayed leaves of one partition in the containers of the data."""
    block: Delayed = delayed(unflatten, pure=False)(spec, list(leaves))
    return block


def rows(block: Any) -> int:
    """Return how many rows a block has: the length of its arrays."""
    lengths = {np.shape(leaf)[0] for leaf in flatten(block)[0] if np.ndim(leaf)}
    if len(lengths) != 1:
        raise ShapeError(
            f"a partition has arrays of {sorted(lengths)} rows" if lengths else "a partition has no arrays",
            remedy='reduce="mean" weights each partition by its rows: give all arrays as many, or let the function return sums',
        )
    return int(lengths.pop())


def _is_delayed(thing: Any) -> bool:
    return isinstance(thing, Delayed) or type(thing).__module__.startswith("distributed.")


def _blocks(leaf: Any, first: Any, caller: str) -> list[Delayed]:
    """Return one delayed block for each partition of one collection; arrays are divided as the first one is."""
    kind = type(leaf).__module__
    if kind.startswith("dask.array"):
        if not leaf.ndim:
            raise ShapeError(
                f"{caller}: data has an array without axes, which has no partitions",
                where=user_site(),
                remedy="capture numbers in the function, or pass them among the parameters",
            )
        lines = leaf.chunks[0]
        if type(first) is type(leaf) and first.ndim and not np.isnan([*lines, *first.chunks[0]]).any():
            if first.shape[0] != leaf.shape[0]:
                raise ShapeError(
                    f"{caller}: data has arrays of {first.shape[0]} and {leaf.shape[0]} rows",
                    where=user_site(),
                    remedy="partitions are rows of all arrays: give them the same length of the first axis",
                )
            lines = first.chunks[0]
        whole = leaf.rechunk({0: lines} | dict.fromkeys(range(1, leaf.ndim), -1))
        return list(whole.to_delayed().ravel())
    if hasattr(leaf, "to_delayed") and hasattr(leaf, "npartitions"):
        return [delayed(columns, pure=False)(each) for each in leaf.to_delayed()]
    raise ArgumentError(
        f"{caller}: data has a {type(leaf).__name__}, which is not in partitions",
        where=user_site(),
        remedy=REMEDY,
    )


def columns(frame: Any) -> Any:
    """Return a partition of a data frame as a dict of arrays by the names of the columns, that of a series as an array."""
    if frame.ndim == 1:
        return frame.to_numpy()
    found = {name: frame[name].to_numpy() for name in frame.columns}
    for name, column in found.items():
        if column.dtype.kind not in "bifuc":
            raise ArgumentError(
                f"column {name!r} of a data frame has the dtype {column.dtype}",
                remedy="select the columns with numbers before: data[['x', 'y']]",
            )
    return found
