"""Patterns: records to be found again. To compare a record with one that is expected is quicker than to describe it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

from gradtape.ir.graph import Literal, Node, TraceTag, Value
from gradtape.ir.types import Aval

_index: Final = attrgetter("index")


class _Leaf(NamedTuple):
    """A value at which a record begins: its place, its type, and whether it is followed."""

    place: int
    type: Aval
    tagged: bool


class Pattern:
    """A record from its ends back to its leaves, without the values.

    The values of a record are met in one order: the ends, then the inputs of each value that a node computes, when it is met first. Two
    records are alike if what is met is: ops, parameters, numbers, types, and at which places one value is met again. The last
    is compared as whole lists.

    Parameters
    ----------
    ends : sequence of Value
        Each another.
    nodes : sequence of Node
        What lies between.
    leaves : sequence of Value
        Where it begins; literals are not among them.
    tag : TraceTag or None
        Whose record it is; None for work that waits, which begins at values that are known.
    """

    __slots__ = (
        "_again",
        "_count",
        "_earlier",
        "_expands",
        "_firsts",
        "_indices",
        "_leaves",
        "_leaves_of",
        "_numbers",
        "_numbers_at",
        "_steps",
    )

    def __init__(
        self, ends: Sequence[Value], nodes: Sequence[Node], leaves: Sequence[Value], tag: TraceTag | None
    ) -> None:
        self._count = len(ends)
        between = set(nodes)
        met = list(ends)
        places: dict[Value, int] = {}
        self._expands: list[bool] = []
        made = []
        for place, value in enumerate(met):  # which grows meanwhile
            expands = value not in places and value.node in between
            self._expands.append(expands)
            places.setdefault(value, place)
            if expands:
                made.append(value)
                met.extend(value._inputs)
        numbers = [place for place, value in enumerate(met) if isinstance(value, Literal)]
        again = sorted(
            {place for place, value in enumerate(met) if places[value] != place}.difference(numbers)
        )
        self._again = _picker(again)
        self._earlier = _picker([places[met[place]] for place in again])
        self._numbers_at = _picker(numbers)
        self._numbers = tuple([met[place] for place in numbers])
        firsts = [value for value in places if not isinstance(value, Literal)]
        self._firsts = _picker([places[value] for value in firsts])
        self._steps = [(value._op, value._params, len(value._inputs)) for value in made]
        several = any(len(node.types) > 1 for node in nodes)
        self._indices = [value.index for value in made] if several else None
        numbered = {value: number for number, value in enumerate(firsts)}
        self._leaves = [
            _Leaf(numbered[leaf], leaf.aval, tag in leaf.tags) for leaf in leaves if leaf in numbered
        ]
        self._leaves_of = _picker([leaf.place for leaf in self._leaves])

    def leaves_of(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Return the leaves among the values of a record like this one."""
        return self._leaves_of(values)

    def match(self, ends: Sequence[Value], tag: TraceTag | None) -> tuple[Value, ...] | None:
        """Return the values of the record behind `ends`, without literals and each once, if it is like this one: in the order met."""
        if len(ends) != self._count or not ends:
            return None
        expands = self._expands
        met = [*ends]
        tags = ends[0].tags
        waits = tag is None
        if not waits and tag not in tags:
            return None
        for value, (op, params, arity) in zip(compress(met, expands), self._steps):  # noqa: B905 - met grows meanwhile
            # With other arities the same inputs would be met in the same order.
            if value._op is not op or len(value._inputs) != arity:
                return None
            if value._params is not params and _differ(value._params, params):
                return None
            if value.data is not None if waits else value.tags is not tags and tag not in value.tags:
                return None
            met += value._inputs
        if self._indices is not None and self._indices != list(map(_index, compress(met, expands))):
            return None
        if len(met) != len(expands) or self._again(met) != self._earlier(met):
            return None
        numbers = self._numbers_at(met)
        if numbers != self._numbers and not all(map(_same_number, self._numbers, numbers)):
            return None
        values = self._firsts(met)
        # One value in two places is another record: gradients add up there.
        if len(set(values)) != len(values):
            return None
        for place, type_, tagged in self._leaves:
            value = values[place]
            if value.aval is not type_ or isinstance(value, Literal) or (tag in value.tags) is not tagged:
                return None
            if value.data is None if waits else tagged and value.is_made and not begins(value, tag):  # type: ignore[arg-type]
                return None
        return values


def _picker(places: Sequence[int]) -> Callable[[Sequence[Value]], tuple[Value, ...]]:
    """Return what picks the values at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    if not places:
        return lambda values: ()
    (only,) = places
    return lambda values: (values[only],)


def begins(value: Value, tag: TraceTag) -> bool:
    """Return whether a record goes back to a value but not beyond: it is not followed, or was watched and made of nothing that is."""
    if tag not in value.tags:
        return True
    node = value.node
    return node is None or all(tag not in operand.tags for operand in node.inputs)


def _differ(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    try:
        return found != expected
    except ValueError:  # of a parameter that is an array, which no pattern has
        return True


def _same_number(expected: Any, found: Value) -> bool:
    if not isinstance(expected, Literal) or not isinstance(found, Literal):
        return False
    here, there = expected.data, found.data
    assert here is not None
    assert there is not None
    return here.dtype == there.dtype and here.tobytes() == there.tobytes()
