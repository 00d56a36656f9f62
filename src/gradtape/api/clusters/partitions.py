"""Data in partitions: Dask's collections, nests of them, and lists of delayed partitions, as one block for each partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from dask.delayed import Delayed, delayed

from gradtape.errors import ArgumentError, ShapeError, kind_of
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, tree_map, unflatten

REMEDY = (
    "pass a dask.array, a dask.dataframe, a tuple or dict of these, or a list of dask.delayed partitions; "
    "dask.array.from_array(x, chunks=...) makes one of an array"
)

NUMBERS: Final = "bifuc"
"""The kinds of dtypes that are numbers."""


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
    number, last : int
        Which partition it is, and which is the last one, for errors.
    """

    spec: Any
    converters: tuple[Callable[[Any], Any] | None, ...]
    number: int
    last: int

    def apply(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> Any:
        """Return what a function gives for the block. Its errors say which block it was."""
        block = None
        try:
            block = self.assemble(parts)
            return function(block)
        except Exception as error:
            arrays = ", ".join(map(_type_of, flatten(block)[0]))
            error.add_note(
                f"  partition: number {self.number} of 0 to {self.last}, of {arrays or 'no arrays'}"
            )
            raise

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
    if _is_delayed(data):
        data = [data]
    if isinstance(data, list) and data and all(_is_delayed(each) for each in data):
        parts = [(each if isinstance(each, Delayed) else delayed(each),) for each in data]
        return _numbered(parts, None, (_with_columns,))
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
    converters = tuple([convert for _, convert in found])
    return _numbered(list(zip(*columns, strict=True)), None if spec.is_leaf() else spec, converters)


def _numbered(
    parts: Sequence[tuple[Delayed, ...]], spec: Any, converters: tuple[Callable[[Any], Any] | None, ...]
) -> list[Block]:
    last = len(parts) - 1
    return [Block(each, BlockForm(spec, converters, number, last)) for number, each in enumerate(parts)]


def rows(block: Any) -> int:
    """Return how many rows a block has: the length of its arrays."""
    lengths = {np.shape(leaf)[0] for leaf in flatten(block)[0] if np.ndim(leaf)}
    if len(lengths) != 1:
        raise ShapeError(
            f"a partition has arrays of {sorted(lengths)} rows" if lengths else "a partition has no arrays",
            remedy='reduce="mean" weights each partition by its rows: give all arrays the same number of rows, or let the function '
            "return sums",
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
                    remedy="a partition holds the same rows of all arrays: give their first axes one length",
                )
            lines = first.chunks[0]
        whole = leaf.rechunk({0: lines} | dict.fromkeys(range(1, leaf.ndim), -1))
        return list(whole.to_delayed().ravel()), None if leaf.dtype.names is None else fields_of
    if _is_delayed(leaf):
        raise ArgumentError(
            f"{caller}: a dask.delayed object is mixed with other data",
            where=user_site(),
            why="its rows are not known before it is computed",
            remedy="pass a list of delayed partitions, each of which is a whole block, such as a pair of arrays",
        )
    if hasattr(leaf, "to_delayed") and hasattr(leaf, "divisions"):
        for name, dtype in dict(leaf.dtypes).items() if leaf.ndim == 2 else [(leaf.name, leaf.dtype)]:
            if (
                dtype.kind not in NUMBERS and dtype.name != "category"
            ):  # of which the workers know what they are of
                raise _no_numbers(name, dtype, f"{caller}: ")
        return list(leaf.to_delayed()), columns_of
    raise ArgumentError(
        f"{caller}: data has {kind_of(leaf)}, which is not partitioned",
        where=user_site(),
        remedy=REMEDY,
    )


def fields_of(records: Any) -> Any:
    """Return an array of records as a dict of its fields."""
    names = records.dtype.names
    return (
        records if names is None else {name: fields_of(np.ascontiguousarray(records[name])) for name in names}
    )


def columns_of(frame: Any) -> Any:
    """Return a partition of a data frame as a dict of arrays by the names of the columns, that of a series as an array."""
    if frame.ndim == 2:
        return {name: columns_of(frame[name]) for name in frame.columns}
    found = frame.to_numpy()
    if found.dtype.kind not in NUMBERS:
        raise _no_numbers(frame.name, frame.dtype)
    return found


def _with_columns(part: Any) -> Any:
    """Return a delayed partition with dicts of arrays in place of data frames."""
    return tree_map(lambda leaf: columns_of(leaf) if hasattr(leaf, "to_numpy") else leaf, part)


def _no_numbers(name: Any, dtype: Any, caller: str = "") -> ArgumentError:
    own = f"data[{name!r}]"
    return ArgumentError(
        f"{caller}column {name!r} of a data frame has the dtype {dtype}",
        where=user_site() if caller else None,
        why="its elements are not numbers"
        if dtype.kind not in NUMBERS
        else "it has missing values, which are not numbers",
        remedy=f"{own}.cat.codes are numbers"
        if dtype.name == "category"
        else f"take the seconds since a date: ({own} - start).dt.total_seconds()"
        if dtype.kind == "M"
        else f"{own}.dt.total_seconds() are numbers"
        if dtype.kind == "m"
        else f"fill them first: {own}.fillna(0)"
        if dtype.kind in NUMBERS
        else "select the numeric columns first: data[['x', 'y']]",
    )


def _type_of(leaf: Any) -> str:
    dtype = getattr(leaf, "dtype", None)
    return type(leaf).__name__ if dtype is None else f"{dtype}{list(leaf.shape)}"
