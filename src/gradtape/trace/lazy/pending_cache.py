"""Work that is done again: what waits to be computed is compared with what waited before, which is quicker than to work it out."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from gradtape.config import config
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray
from gradtape.reference_counts import reference_count
from gradtape.runtime.compile.program import Program
from gradtape.trace.lazy.pattern import Pattern
from gradtape.trace.lazy.pending import waiting
from gradtape.trace.source.contexts import scopes
from gradtape.trace.variables.locks import computing


class _Work(NamedTuple):
    """What waited, and the program that computed it.

    Attributes
    ----------
    pattern : Pattern
        From the values asked for, and then those in the user's hands, back to what is known.
    between : list of tuple
        The places of the values in between, each with how many references the work itself makes, and how many there are
        besides: who else refers to one needs it.
    several : list of int
        The place of an output of each node that has several.
    kept : list of int
        The places of what is computed.
    program : Program
        Computes it.
    """

    pattern: Pattern
    between: list[tuple[int, int, int]]
    several: list[int]
    kept: list[int]
    program: Program


_known: Final[OrderedDict[Any, list[_Work]]] = OrderedDict()
"""By the ops of the values asked for and in the user's hands."""

OF_A_KIND: Final = 4


def done_again(asked: Sequence[Value]) -> list[Value] | None:
    """Compute values, and what else waits, as it was computed before, and return what was computed; None where it is new."""
    if waiting.left_alone or scopes():
        return None
    ends = _ends(asked)
    for work in _known.get(_key(ends), ()):
        values = work.pattern.match(ends, None)
        if values is not None and _is_needed_as_before(work, values):
            arrays = [leaf.data for leaf in work.pattern.leaves_of(values)]
            kept = [values[place] for place in work.kept]
            run(work.program, arrays, kept)  # type: ignore[arg-type]
            waiting.handles.clear()
            return kept
    return None


def run(program: Program, arrays: Sequence[NDArray], kept: Iterable[Value]) -> None:
    """Let a program compute values, and other threads work meanwhile."""
    computing.release()
    try:
        computed = program.run(arrays)
    finally:
        computing.acquire()
    for value, array in zip(kept, computed, strict=True):
        value.data = array


def remember(
    asked: Sequence[Value],
    nodes: Sequence[Node],
    leaves: Sequence[Value],
    kept: Sequence[Value],
    program: Program,
) -> None:
    """Remember how values, and all that waits besides, are about to be computed."""
    ends = _ends(asked)
    key = _key(ends)
    if any(work.program is program for work in _known.get(key, ())):
        return
    if not _all_lead_to(ends, nodes) or not all(map(_can_come_again, nodes)):
        return
    pattern = Pattern(ends, nodes, leaves, None)
    values = pattern.match(ends, None)
    if values is None or not set(ends) <= set(kept) <= set(values):
        return
    places = {value: place for place, value in enumerate(values)}
    uses = Counter([places[value] for node in nodes for value in node.inputs if value in places])
    between = sorted(
        {places[out] for node in nodes for out in node.outs if out in places} - set(range(len(ends)))
    )
    several = [
        next(places[out] for out in node.outs if out in places) for node in nodes if len(node.types) > 1
    ]
    kept_places = [places[value] for value in kept]
    del places
    counted = [(place, uses[place], reference_count(values[place]) - uses[place]) for place in between]
    work = _Work(pattern, counted, several, kept_places, program)
    _known[key] = [work, *_known.get(key, ())][:OF_A_KIND]
    _known.move_to_end(key)
    while len(_known) > config.memory_cache:
        _known.popitem(last=False)


def _can_come_again(node: Node) -> bool:
    """Return whether another node may be found equal: a derivative given by the user, or an array, is another one each time."""
    try:
        hash(tuple(node.params.values()))
    except TypeError:
        return False
    return True


def _all_lead_to(ends: Sequence[Value], nodes: Sequence[Node]) -> bool:
    """Return whether a way leads from the ends to all nodes; none does to what is kept for somebody else only."""
    used = {*ends, *[value for node in nodes for value in node.inputs]}
    return not any(used.isdisjoint(node.outs) for node in nodes)


def _ends(asked: Sequence[Value]) -> list[Value]:
    """Return the values asked for, and then those that wait in the user's hands."""
    held = [
        value
        for reference in tuple(waiting.handles)
        if (handle := reference()) is not None and (value := handle.pending()) is not None
    ]
    return list(dict.fromkeys([*asked, *held]))


def _key(ends: Sequence[Value]) -> Any:
    return config.precise_math, *[made[0] for value in ends if (made := value.maker()) is not None]


def _is_needed_as_before(work: _Work, values: Sequence[Value]) -> bool:
    count = reference_count
    for place, uses, others in work.between:
        if count(values[place]) - uses != others:
            return False
    for place in work.several:
        node = values[place].node
        assert node is not None
        for out in node.living():
            if out not in values:
                return False
    return True
