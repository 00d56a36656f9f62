"""Data in partitions: Dask's collections, nests of them, and lists of delayed partitions, as one block for each partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from dask.delayed import Delayed, delayed

from gradtape.errors import ArgumentError, ShapeError, kind_of
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, unflatten

REMEDY = (
    "pass a dask.array, a dask.dataframe, a tuple or dict of these, or a list of dask.delayed partitions; "
    "dask.array.from_array(x, chunks=...) makes one of an array"
)


class Block(NamedTuple):
    """A partition of the data, which has their containers with NumPy arrays in them.

    Attributes
    ----------
    parts : tuple of Delayed
        The partition of each collection. The task that computes with a block puts them together, so that this is no task of its own.
    form : BlockForm
    """

    parts: tuple[Delayed, ...]
    form: BlockForm


class BlockForm(NamedTuple):
    """How the parts of a block are put together.

    Attributes
    ----------
    spec : TreeSpec or None
        The containers; None where there is one part and no container.
    converters : tuple of callable or None
        What makes arrays of each part.
    """

    spec: Any
    converters: tuple[Callable[[Any], Any] | None, ...]

    def assemble(self, parts: Sequence[Any]) -> Any:
        """Return the block."""
        leaves = [
            part if convert is None else convert(part)
            for convert, part in zip(self.converters, parts, strict=True)
        ]
        return leaves[0] if self.spec is None else unflatten(self.spec, leaves)


def partitions(data: Any, caller: str) -> list[Block]:
    """Return the blocks of the data, one for each partition, in their order; a partition of a data frame is a dict of its columns.

    Raises
    ------
    ArgumentError
        If some of it is not in partitions.
    ShapeError
        If its parts are not divided into the same partitions.
    """
    if isinstance(data, list) and data and all(_is_delayed(each) for each in data):
        whole = BlockForm(None, (None,))
        return [Block((each if isinstance(each, Delayed) else delayed(each),), whole) for each in data]
    leaves, spec = flatten(data)
    if not leaves:
        raise ArgumentError(f"{caller}: data is empty", where=user_site(), remedy=REMEDY)
    found = [_blocks(leaf, leaves[0], caller) for leaf in leaves]
    columns = [parts for parts, _ in found]
    counts = [len(each) for each in columns]
    if len(set(counts)) > 1:
        raise ShapeError(
            f"{caller}: the parts of data have {', '.join(map(str, counts))} partitions",
            where=user_site(),
            remedy="divide them into the same partitions: repartition(npartitions=...) of a data frame, rechunk(...) of an array",
        )
    form = BlockForm(None if spec.is_leaf() else spec, tuple([convert for _, convert in found]))
    return [Block(parts, form) for parts in zip(*columns, strict=True)]


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


def _blocks(leaf: Any, first: Any, caller: str) -> tuple[list[Delayed], Callable[[Any], Any] | None]:
    """Return the partitions of one collection, and what makes arrays of them; arrays are divided as the first one is."""
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
        return list(whole.to_delayed().ravel()), None
    if hasattr(leaf, "to_delayed") and hasattr(leaf, "npartitions"):
        return list(leaf.to_delayed()), columns_of
    raise ArgumentError(
        f"{caller}: data has {kind_of(leaf)}, which is not in partitions",
        where=user_site(),
        remedy=REMEDY,
    )


def columns_of(frame: Any) -> Any:
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
