"""Labelled arrays of xarray as containers: the leaves are the numbers, and names, coordinates and attributes are a part of the structure.

xarray is not imported: its classes are known once they are there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

Nodes = tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]


class Attribute(str):
    """The name of an attribute that is the place of a leaf, where others are items."""

    __slots__ = ()


class Labels:
    """What an array or a data set of xarray is but for its numbers.

    Attributes
    ----------
    kind : type
        Its class.
    names : tuple of str
        Of its leaves: variables, and coordinates that hold what is traced.
    moving : tuple of str
        Those coordinates.
    dims, shapes : list of tuple
        Of the leaves.
    fixed : dict
        The variables that are not numbers, by name.
    coords : xarray.Coordinates
        All other coordinates.
    is_fixed : bool
        Whether these are indices without attributes, whose content cannot change: tables may share them.
    name, attrs : object and dict
        As in xarray.
    variable_attrs : list of dict
        Of the leaves.
    empty : xarray.DataArray or None
        The array without its numbers, once one was put together, where what it holds cannot be changed.
    """

    __slots__ = (
        "_key",
        "_variables",
        "attrs",
        "coords",
        "dims",
        "empty",
        "fixed",
        "is_fixed",
        "kind",
        "moving",
        "name",
        "names",
        "shapes",
        "variable_attrs",
    )

    def __init__(self, table: Any) -> None:
        is_array = hasattr(table, "variable")
        self.kind = type(table)
        self.empty: Any = None
        self.attrs = deepcopy(table.attrs)
        self.name = table.name if is_array else None
        index = sys.modules["xarray"].IndexVariable
        coords = dict(table.coords.variables)
        data = {None: table.variable} if is_array else {n: a.variable for n, a in table.data_vars.items()}
        self.moving = tuple(
            [n for n, variable in coords.items() if type(variable) is not index and _is_traced(variable.data)]
        )
        leaves = {name: variable for name, variable in data.items() if is_array or _has_numbers(variable)}
        self.fixed = {n: variable.copy(deep=True) for n, variable in data.items() if n not in leaves}
        leaves.update({name: coords[name] for name in self.moving})
        # Copies: what the user writes into coordinates later is another structure.
        rest = table.coords.to_dataset()
        if self.moving:
            rest = rest.drop_vars([*self.moving])
        self.is_fixed = all(type(each) is index and not each.attrs for each in rest.variables.values())
        if not self.is_fixed:
            rest = rest.copy(deep=True)
        self.coords, self._variables = rest.coords, list(rest.variables.values())
        self.names = tuple(leaves)
        self.dims = [variable.dims for variable in leaves.values()]
        self.shapes = [variable.shape for variable in leaves.values()]
        self.variable_attrs = [deepcopy(variable.attrs) for variable in leaves.values()]
        self._key = (self.kind, self.name, self.names, self.moving, tuple(self.dims), tuple(self.shapes))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels) or self._key != other._key:
            return False
        if self.fixed.keys() != other.fixed.keys() or self.coords.keys() != other.coords.keys():
            return False
        mine, theirs = [[*table.fixed.values(), *table._variables] for table in (self, other)]
        attrs = zip([self.attrs, *self.variable_attrs], [other.attrs, *other.variable_attrs], strict=True)
        return all(a is b or a.identical(b) for a, b in zip(mine, theirs, strict=True)) and all(
            _is_equal(a, b) for a, b in attrs
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({', '.join(map(repr, self.dims[0] if self.name is None and self.dims else self.names))})"


def _is_equal(mine: dict[Any, Any], theirs: dict[Any, Any]) -> bool:
    """Return whether attributes are equal, which may be arrays."""
    if not (mine or theirs):
        return True
    variable = sys.modules["xarray"].Variable
    return bool(variable((), 0, mine).identical(variable((), 0, theirs)))


def _is_traced(data: Any) -> bool:
    return hasattr(data, "value")  # in a trace, traced arrays are instances of ndarray


def _has_numbers(variable: Any) -> bool:
    return _is_traced(variable.data) or variable.dtype.kind in "biufc"


def _flatten(table: Any) -> tuple[tuple[Any, ...], Labels, tuple[Any, ...]]:
    labels = Labels(table)
    children = [table.variable.data if name is None else table[name].variable.data for name in labels.names]
    return (
        tuple(children),
        labels,
        tuple([Attribute("data") if name is None else name for name in labels.names]),
    )


def _unflatten(labels: Any, children: Sequence[Any]) -> Any:
    """Return a table with other numbers; what has another shape, and stands for something else, comes without labels."""
    if any(
        getattr(child, "shape", None) != shape for child, shape in zip(children, labels.shapes, strict=True)
    ):
        plain = dict(zip(labels.names, children, strict=True))
        return plain.get(None, plain)
    if labels.empty is not None:
        return labels.empty.copy(deep=False, data=children[0])
    coords, attrs = labels.coords.to_dataset().copy(deep=not labels.is_fixed).coords, deepcopy(labels.attrs)
    parts = zip(labels.names, labels.dims, children, map(deepcopy, labels.variable_attrs), strict=True)
    made = {name: (dims, child, own) for name, dims, child, own in parts}
    moving = {name: made.pop(name) for name in labels.moving}
    if None in made:
        dims, child, _ = made[None]
        whole = labels.kind(child, coords=coords, dims=dims, attrs=attrs)
        whole.name = labels.name  # xarray would give it that of a traced array
        if labels.is_fixed and not (labels.moving or attrs):
            labels.empty = whole.copy(deep=False, data=np.broadcast_to(0.0, whole.shape))
    else:
        fixed = {name: variable.copy(deep=True) for name, variable in labels.fixed.items()}
        whole = labels.kind({**made, **fixed}, coords=coords, attrs=attrs)
    return whole.assign_coords(moving) if moving else whole


def nodes_of(kind: type) -> Nodes | None:
    """Return how objects of a class are taken apart and put together, if they are labelled data of xarray; None otherwise."""
    xarray = sys.modules.get("xarray")
    if xarray is not None and kind in (xarray.DataArray, xarray.Dataset):
        return _flatten, _unflatten
    return None
