"""Tables of pandas as containers: the leaves are the numbers, and the index, the columns and what is no number are a part of the structure.

pandas is not imported: its classes are known once they are there.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

import numpy as np

from gradtape.containers.tables import Attribute, Nodes
from gradtape.errors import DtypeError, InPlaceError, UnsupportedCodeError

_IS_ARGUMENT: Final = "_gradtape_is_argument"
_LEAVES: Final = "_gradtape_leaves"
"""The attribute of a data frame for a block and the array of which it is a view."""


class Axes:
    """The structure of a pandas table: everything but its numbers.

    Attributes
    ----------
    kind : callable
        Makes a table of its class.
    axes : list of pandas.Index
        Its index, and its columns.
    name, attrs : object and dict
        As in pandas; a data frame has no name.
    groups : dict
        For the dtype of each leaf the positions of its columns.
    fixed : dict
        The columns that are not numbers, by position.
    shapes : list of tuple
        Of the leaves.
    """

    __slots__ = ("_key", "attrs", "axes", "fixed", "groups", "kind", "name", "shapes")

    def __init__(self, table: Any) -> None:
        is_column = table.ndim == 1
        self.kind, self.attrs = table._constructor, deepcopy(table.attrs)
        self.axes = [axis.view() for axis in table.axes]  # a view has names of its own
        self.name = table.name if is_column else None
        self.groups: dict[np.dtype[Any], list[int]] = {}
        self.fixed: dict[int, Any] = {}
        for position, dtype in enumerate([table.dtype] if is_column else table.dtypes):
            numbers = numbers_in(dtype)
            if numbers is not None and hasattr(dtype, "na_value") and not hasattr(dtype, "fill_value"):
                _refuse_missing(table if is_column else table.iloc[:, position])
            if numbers is None:
                self.fixed[position] = column = (table if is_column else table.iloc[:, position]).copy(
                    deep=True
                )
                if getattr(dtype, "kind", "") == "O" and any(hasattr(each, "_current") for each in column):
                    raise DtypeError(
                        f"the column {column.name!r} of a table of pandas has dtype object and holds traced numbers",
                        why="columns of objects are a part of the program, and not among its numbers",
                        remedy="convert it to numbers: column.astype(float)",
                    )
            else:
                self.groups.setdefault(numbers, []).append(position)
        rows = len(table)
        self.shapes = [(rows,) if is_column else (rows, len(positions)) for positions in self.groups.values()]
        positions = tuple(map(tuple, self.groups.values()))
        self._key = type(table), tuple(map(len, self.axes)), positions

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Axes) or self._key != other._key or self.attrs.keys() != other.attrs.keys():
            return False
        return (
            all(mine.identical(theirs) for mine, theirs in zip(self.axes, other.axes, strict=True))
            and (type(self.name), self.name) == (type(other.name), other.name)
            and all(column.equals(other.fixed[position]) for position, column in self.fixed.items())
            and all(np.array_equal(content, other.attrs[key]) for key, content in self.attrs.items())
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"{self._key[0].__name__}{self._key[1]}"


def _refuse_missing(column: Any) -> None:
    if column.hasnans:
        raise DtypeError(
            f"the column {column.name!r} of dtype {column.dtype} has missing values",
            why="traced numbers have NaN, which operators treat otherwise than pd.NA",
            remedy="convert it: column.astype(float)",
        )


def numbers_in(dtype: Any) -> np.dtype[Any] | None:
    """Return the dtype of the numbers in a column; None for text, dates, categories and objects."""
    if not isinstance(dtype, np.dtype):
        dtype = dtype.subtype if str(dtype).startswith("Sparse") else getattr(dtype, "numpy_dtype", None)
    return dtype if isinstance(dtype, np.dtype) and dtype.kind in "biufc" else None


def column_values(column: Any) -> Any:
    """Return the values of a column as an array, a traced one if it holds one; missing ones are NaN. None if they are not numbers."""
    numbers = numbers_in(column.dtype)
    if numbers is None:
        return None
    if isinstance(column.dtype, np.dtype):
        return values_in(column)
    if not np.any(column.isna()):
        return np.asarray(column.to_numpy(dtype=numbers))
    numbers = numbers if numbers.kind in "fc" else np.dtype(float)
    return np.asarray(column.to_numpy(dtype=numbers, na_value=np.nan))


def values_in(table: Any) -> Any:
    """Return the values of a table of one dtype of NumPy, traced ones where its columns are, also when nothing is recorded any more."""
    if table.ndim == 1 or not holds_traced(table):
        return table.values
    blocks = table._mgr.blocks
    return (
        blocks[0].values.T
        if len(blocks) == 1
        else np.stack([column.values for _, column in table.items()], axis=1)
    )


def holds_traced(table: Any) -> bool:
    """Return whether a table holds traced arrays."""
    return any(hasattr(block.values, "value") for block in table._mgr.blocks)


def _leaf_of(table: Any, positions: list[int]) -> Any:
    """Return the values of some columns. A tape knows the array of which they were made, and are a view still."""
    for block, leaf in table.__dict__.get(_LEAVES, ()):
        if any(
            block_of_table.values is block() and list(block_of_table.mgr_locs) == positions
            for block_of_table in table._mgr.blocks
        ):
            return leaf()
    if len(positions) == table.shape[1] and isinstance(table.dtypes.iloc[0], np.dtype):
        return values_in(table)
    return np.stack([column_values(table.iloc[:, position]) for position in positions], axis=1)


def _flatten(table: Any) -> tuple[tuple[Any, ...], Axes, tuple[Any, ...]]:
    axes = Axes(table)
    if table.ndim == 1:
        count = len(axes.groups)
        return (column_values(table),) * count, axes, (Attribute("values"),) * count
    children = tuple([_leaf_of(table, positions) for positions in axes.groups.values()])
    if len(children) == 1 and not axes.fixed:
        return children, axes, (Attribute("values"),)
    names = [[table.columns[position] for position in positions] for positions in axes.groups.values()]
    return children, axes, tuple([each[0] if len(each) == 1 else tuple(each) for each in names])


def _unflatten(axes: Any, children: Sequence[Any]) -> Any:
    """Return a table with other numbers; what has another shape, and stands for something else, comes without labels."""
    shapes = [getattr(child, "shape", None) for child in children]
    if shapes != axes.shapes:
        return children[0] if len(children) == 1 else tuple(children)
    if not all(hasattr(child, "__array__") for child in children):
        raise UnsupportedCodeError("tables of pandas are among its arguments", where=None)
    children = [child.to_dense() if hasattr(child, "dense_shape") else child for child in children]
    index = axes.axes[0].view()
    if len(axes.axes) == 1:
        (column,) = children or axes.fixed.values()
        table = axes.kind(column, index=index, copy=False)
        table.name = axes.name
    else:
        table = _joined(axes, index, children)
        table.columns = axes.axes[1].view()
    table.attrs = deepcopy(axes.attrs)
    return table


def _joined(axes: Axes, index: Any, children: Sequence[Any]) -> Any:
    """Return a data frame of columns that are views of the largest leaf, with the other columns between them."""
    groups = sorted(zip(axes.groups.values(), children, strict=True), key=lambda group: -len(group[0]))
    positions, leaf = groups[0] if groups else ([], np.zeros((len(index), 0)))
    frame = axes.kind(leaf, index=index, columns=positions, copy=False)
    others = {position: each[:, k] for group, each in groups[1:] for k, position in enumerate(group)}
    for position, column in sorted({**axes.fixed, **others}.items(), key=lambda item: item[0]):
        frame.insert(position, position, column)
    if hasattr(leaf, "value"):
        block = next(
            (
                block_of_frame.values
                for block_of_frame in frame._mgr.blocks
                if list(block_of_frame.mgr_locs) == positions
            ),
            None,
        )
        if _is_view(block, leaf):
            object.__setattr__(frame, _LEAVES, [(weakref.ref(block), weakref.ref(leaf))])
    return frame


def _is_view(array: Any, array_of_view: Any) -> bool:
    """Return whether a traced array is a view of another one."""
    while array is not None and array is not array_of_view:
        array = getattr(array, "_base", None)
    return array is array_of_view and array_of_view is not None


def is_frame(value: Any) -> bool:
    """Return whether an object is a data frame of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def row_of(table: Any) -> Any:
    """Return a column that has the labels of the rows of a data frame, in place of one that is mapped.

    Raises
    ------
    DtypeError
        If its columns are of several dtypes: a row has one.
    """
    if len({numbers_in(dtype) for dtype in table.dtypes} - {None}) != 1 or not all(
        map(numbers_in, table.dtypes)
    ):
        raise DtypeError(
            f"the rows of a DataFrame of {len(set(map(str, table.dtypes)))} dtypes are mapped",
            why="an array of rows has one dtype of numbers",
            remedy="choose columns and convert them, table[['a', 'b']].astype(float), or pass dict(table.items()), a dict of columns",
        )
    row = np.zeros(table.shape[1], numbers_in(table.dtypes.iloc[0]))
    return table._constructor_sliced(row, index=table.columns)


def mark_argument(argument: Any) -> None:
    """Let a table of pandas know that it stands for an argument of the caller's, whose table does not change with it."""
    if hasattr(argument, "_mgr"):
        object.__setattr__(argument, _IS_ARGUMENT, True)


def refuse_change(table: Any) -> None:
    """Raise an error for a table that stands for an argument and is changed in place.

    Raises
    ------
    InPlaceError
    """
    if getattr(table, "__dict__", {}).get(_IS_ARGUMENT) and holds_traced(table):
        raise InPlaceError(
            f"the function changes a {type(table).__name__} among its arguments",
            why="the table of the caller would stay as it is",
            remedy="change a copy: table = table.copy(), or table = table.assign(name=column)",
        )


def is_column(value: Any) -> bool:
    """Return whether an object is a column of pandas whose values are a leaf."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.Series) and numbers_in(value.dtype) is not None


def labelled(block: Any, result: Any, argument: Any) -> Any:
    """Return derivatives of one leaf by another as a table of pandas, where one of them is a column; otherwise as they are.

    Parameters
    ----------
    block : array
        Its axes are those of the result and then those of the argument.
    result, argument : pandas.Series or None
        The columns.
    """
    columns = [column for column in (argument, result) if column is not None]
    if not columns or block.ndim > 2:
        return block
    if block.ndim == 1:
        return columns[0]._constructor(block, index=columns[0].index, name=columns[0].name)
    rows, names = [None if column is None else column.index for column in (result, argument)]
    return columns[0]._constructor_expanddim(block, index=rows, columns=names)


def nodes_of(kind: type) -> Nodes | None:
    """Return how objects of a class are taken apart and put together, if they are tables of pandas; None otherwise."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and issubclass(kind, pandas.Series | pandas.DataFrame):
        return _flatten, _unflatten
    return None
