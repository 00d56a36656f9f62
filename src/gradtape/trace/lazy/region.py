"""Regions of the graph and their structural keys, by which derivatives and programs are found.

A *region* is the part of the graph from some values, its ends, back to the leaves at which it begins. One walk collects a region and its
structural key. Two regions have equal keys if they compute the same of their leaves: the values are met in one order (the ends, then the
inputs of each value when it is met first), and the key holds the op and the parameters of each value that is computed, the types of
leaves and literals, and the position at which each value was met first. The numbers of the literals are told apart from the structure (see
`gradtape.trace.lazy.literals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gradtape.ir.graph import Literal, TraceTag, Value


class Region(NamedTuple):
    """A part of the graph.

    Attributes
    ----------
    key : tuple
        Its structure; it has no hash where a parameter has none.
    positions : dict
        The position of each value in the walk, in the order met.
    computed : list of Value
        The values that nodes compute: the ends come first.
    leaves : list of Value
        The values at which it begins, in the order met; literals are not among them.
    literals : list of Literal
        The literals, in their order: first the ends, then the inputs of the computed values, in their order.
    """

    key: tuple[Any, ...]
    positions: dict[Value, int]
    computed: list[Value]
    leaves: list[Value]
    literals: list[Literal]


def region_of(ends: Sequence[Value], tag: TraceTag | None) -> Region | None:
    """Collect what lies behind values, and describe it.

    Parameters
    ----------
    ends : sequence of Value
        Where the walk begins.
    tag : TraceTag or None
        Whose record it is, which begins where `begins` says; None for what is to be computed, which begins at known values.

    Returns
    -------
    Region or None
        None where something is to be computed from a placeholder.
    """
    met = [*ends]
    parts: list[Any] = []
    add = parts.append
    positions: dict[Value, int] = {}
    computed: list[Value] = []
    leaves: list[Value] = []
    literals: list[Literal] = []
    for value in met:  # which grows meanwhile
        if value in positions:
            continue
        op = value._op
        if op is None and type(value) is Literal:
            literals.append(value)
            add(value.aval)
            continue
        positions[value] = len(positions)
        if op is not None and (value.data is None if tag is None else tag in value.tags):
            inputs = value._inputs
            if tag is not None:
                for operand in inputs:
                    if tag in operand.tags:
                        break
                else:
                    leaves.append(value)
                    add(value.aval)
                    continue
            computed.append(value)
            add(op)
            add(len(inputs))
            if value._params:
                add(tuple(value._params.items()))
            if value.index > 0:
                add(value.index)
            met += inputs
        elif tag is None and value.data is None:
            return None
        else:
            leaves.append(value)
            add(value.aval)
    return Region((*parts, *map(positions.get, met)), positions, computed, leaves, literals)


def begins(value: Value, tag: TraceTag) -> bool:
    """Return whether a record goes back to a value but not beyond: it is not recorded, or was watched and computed from nothing that is."""
    return tag not in value.tags or not value.is_made or all(tag not in each.tags for each in value._inputs)


def number_key(value: Value) -> Any:
    """Return what a literal means: equal numbers of other types are others, and so are zeros of other signs."""
    data = value.data
    assert data is not None
    return data.dtype, data.tobytes()
