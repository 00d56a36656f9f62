"""The gradient cache: the derivatives of a record, by one call of the graph that was derived from an earlier record like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.config import config
from gradtape.ir.builder import here
from gradtape.ir.graph import Graph, Literal, Node, TraceTag, Value, constant, extract, literal, merge_tags
from gradtape.ir.op import NDArray
from gradtape.kinds.operands import broadcast_to
from gradtape.lru import LRU
from gradtape.runtime.compile.program import Program, tape_program
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.literals import (
    Numbers,
    Structure,
    copy_with_inputs,
    input_values,
    places_of_inputs,
)
from gradtape.trace.lazy.region import Region, begins, number_key, region_of
from gradtape.transforms.call import GraphCall, without_data
from gradtape.transforms.masks import constants, is_constant
from gradtape.transforms.observers import OBSERVERS
from gradtape.transforms.reroll.periods import MIN_SAVED
from gradtape.transforms.reroll.roll import in_recorded_order, rolled
from gradtape.transforms.sparse_grads import SparseGradient, sparsify
from gradtape.transforms.vjp import vjp

Derivatives = list[Value | SparseGradient | None]
Stop = Callable[[Value], bool]
Derive = Callable[[Sequence[Value], Sequence[Value], Sequence[Value] | None, Stop], Derivatives]
"""``(targets, sources, seeds, stop) -> derivatives``, one per source; `stop` is a predicate: the values that count as constants."""


class GradientTemplate(NamedTuple):
    """The derivatives of a record, and its targets, as a function of its leaves.

    Attributes
    ----------
    call : GraphCall
        From the leaves, the seeds and the constants to the targets and the derivatives that exist.
    counts : tuple of int
        The number of outputs for each source: none without a path, one, or two for a sparse gradient.
    constants : tuple of Value
        Arrays that the derivation made, such as the positions of unit vectors; before them, in a template for a record, the literals
        of the record that are inputs.
    leaves : tuple of int
        The positions of the leaves and seeds that it takes.
    stacks : tuple of tuple of int
        The positions of leaves that it takes as the rows of one array.
    numbers : int
        The number of literals that are inputs.
    """

    call: GraphCall
    counts: tuple[int, ...]
    constants: tuple[Value, ...]
    leaves: tuple[int, ...]
    stacks: tuple[tuple[int, ...], ...]
    numbers: int


class _Known(NamedTuple):
    """An entry of the cache.

    Attributes
    ----------
    template : GradientTemplate or None
        Computes the derivatives; None for a structure that was derived once, or whose derivatives depend on data.
    retry : bool
        Whether to make a template when the structure comes again.
    """

    template: GradientTemplate | None
    retry: bool


_structures: Final[LRU[Any, Structure]] = LRU(lambda: config.memory_cache)
"""By the structural key of the record, and the request."""

_templates: Final[LRU[Any, _Known]] = LRU(lambda: config.memory_cache)
"""By the structure of the record and the request, and the numbers."""

LONG: Final = 512
"""Nodes from which a record that is new gets a template, if its loops are rolled."""


def gradients(
    targets: Sequence[Value], sources: Sequence[Value], seeds: Sequence[Value] | None, stop: Stop
) -> Derivatives:
    """Do what `gradtape.transforms.vjp.vjp` does; a source that is only read by gathers of its rows has a sparse gradient.

    Seeds may be None, for ones.
    """
    weights = [one_like(target) for target in targets] if seeds is None else seeds
    return sparsify(vjp(targets, sources, weights, stop, constant=constants(weights)), sources, targets, stop)


def one_like(target: Value) -> Value:
    """Return the seed of a target that is given none: ones."""
    return broadcast_to(literal(1, target.dtype), target.shape)


def derivatives(
    derive: Derive,
    what: str,
    targets: Sequence[Value],
    sources: Sequence[Value],
    seeds: Sequence[Value] | None,
    tag: TraceTag,
    *,
    last: bool,
) -> Derivatives:
    """Return the derivatives of tagged targets: by the template of their structure, or by `derive`.

    Parameters
    ----------
    derive : callable
        Appends the derivatives to the record.
    what : str
        Its name.
    targets, sources, seeds : sequence of Value
        As for `derive`.
    tag : TraceTag
        The tape.
    last : bool
        Whether the record is not needed again: then the call node computes the targets as well.
    """
    found = template_for(derive, what, targets, sources, seeds, tag)
    if found is None:
        return derive(targets, sources, seeds, lambda value: tag not in value.tags)
    return apply_template(*found, targets, seeds, tag, last=last)


def template_for(
    derive: Derive,
    what: str,
    targets: Sequence[Value],
    sources: Sequence[Value],
    seeds: Sequence[Value] | None,
    tag: TraceTag,
) -> tuple[GradientTemplate, Sequence[Value]] | None:
    """Return the template of the derivatives (see `derivatives`) and the leaves of the record; None for a structure that has none."""
    if not config.jit or not targets or OBSERVERS or merge_tags(targets):
        return None
    region = region_of(targets, tag)
    assert region is not None
    places = region.places
    key = (
        what,
        config.reroll,
        config.reroll_checkpoint,
        len(targets),
        tuple([places.get(source, -1) for source in sources]),
        seeds and tuple([_seed_key(seed, places, -1 - k) for k, seed in enumerate(seeds)]),
        region.key,
    )
    try:
        structure = _structures.get(key)
    except TypeError:  # a derivative given by the user, or an array, differs from itself when it comes again
        return None
    if structure is None:
        structure = _structures[key] = Structure()
    numbers = structure.numbers(region)
    known = _templates.get((structure, numbers.key))
    template = None if known is None else known.template
    if known is None or known.retry:
        if known is not None or (config.reroll and len(region.computed) >= LONG):
            nodes, _ = extract(targets, (), lambda value: begins(value, tag))
            template = _template(
                derive, nodes, region, numbers, targets, sources, seeds, tag, only_loops=known is None
            )
        _templates[structure, numbers.key] = _Known(template, retry=known is None and template is None)
    if template is None:
        return None
    if template.numbers:
        given = [constant(data) for k in numbers.inputs if (data := region.literals[k].data) is not None]
        template = template._replace(constants=(*given, *template.constants))
    return template, region.leaves


def _seed_key(seed: Value, places: dict[Value, int], other: int) -> Any:
    """Return the part of a seed in a key: its number, or the type of an array and its place in the record, or else `other`."""
    if isinstance(seed, Literal):
        return number_key(seed)
    return seed.aval, is_constant(seed), places.setdefault(seed, other)


def _arrays(seeds: Sequence[Value] | None) -> list[Value]:
    return [seed for seed in seeds or () if not isinstance(seed, Literal)]


def _template(
    derive: Derive,
    nodes: Sequence[Node],
    region: Region,
    numbers: Numbers,
    targets: Sequence[Value],
    sources: Sequence[Value],
    seeds: Sequence[Value] | None,
    tag: TraceTag,
    *,
    only_loops: bool,
) -> GradientTemplate | None:
    """Derive a copy of a record with placeholders for its leaves and for numbers that are inputs, so that the result holds for all data.

    Parameters
    ----------
    derive, targets, sources, seeds, tag
        As for `derivatives`.
    nodes : sequence of Node
        The nodes of the record, in topological order.
    leaves : sequence of Value
        Where it begins.
    only_loops : bool
        Whether a record without loops gets no template.

    Returns
    -------
    GradientTemplate or None
        None where the derivation reads data.
    """
    values = input_values(region, numbers)
    becomes: dict[Value, Value] = {value: Value(value.aval) for value in region.leaves}
    for seed in _arrays(seeds):
        becomes.setdefault(seed, Value(seed.aval, tags=seed.tags))
    inputs = [*becomes.values()]
    if config.reroll and len(nodes) >= MIN_SAVED:
        nodes = in_recorded_order(nodes)
    followed = {becomes[leaf] for leaf in region.leaves if tag in leaf.tags}
    copies, computed = copy_with_inputs(nodes, becomes, places_of_inputs(region, numbers), values)
    followed.update(computed)
    ends = [becomes.get(target, target) for target in targets]
    inside = [becomes[source] for source in sources if source in becomes and becomes[source].node is not None]
    sought = frozenset([made for value in inside if (made := value.node) is not None])
    result = rolled(copies, [*ends, *inside], (), sought, leaves=set(inputs)) if config.reroll else None
    if only_loops and result is None:
        return None
    stacks = [] if result is None else result.stacks
    moved: dict[Value, Value] = {}
    if result is not None:
        ends = result.outputs[: len(ends)]
        # Nodes that stay are made anew where they take what a loop computes.
        moved = dict(zip(inside, result.outputs[len(ends) :], strict=True))
        followed.update([whole for whole, rows in stacks if any(row in followed for row in rows)])
        for node in result.nodes:
            if any(value in followed for value in node.inputs):
                followed.update(node.outs)
    try:
        derived = derive(
            ends,
            [moved.get(start, start) for start in [becomes.get(source, source) for source in sources]],
            None if seeds is None else [becomes.get(seed, seed) for seed in seeds],
            lambda value: value not in followed,
        )
    except Exception:  # a custom derivative reads data: it does so each time
        return None
    parts = [_parts(gradient) for gradient in derived]
    outputs = [*ends, *[value for values in parts for value in values]]
    wholes = [whole for whole, _ in stacks]
    inner, constants = extract(
        outputs, [*inputs, *wholes, *values.values()], lambda value: value.node is None
    )
    if any(value.data is None for value in constants):
        return None
    places = {value: place for place, value in enumerate(inputs)}
    rows_of = tuple([tuple([places[row] for row in rows]) for _, rows in stacks])
    single = {place for rows in rows_of for place in rows}
    single -= {places[value] for node in inner for value in node.inputs if value in places}
    single -= {places[value] for value in outputs if value in places}
    taken = [place for place in range(len(inputs)) if place not in single]
    graph = without_data(
        Graph(
            [*[inputs[place] for place in taken], *wholes, *values.values(), *constants],
            inner,
            outputs,
            "gradient",
        )
    )
    call = GraphCall(graph, LazyProgram(graph).run)
    return GradientTemplate(
        call, tuple(map(len, parts)), tuple(constants), tuple(taken), rows_of, len(values)
    )


def _parts(gradient: Value | SparseGradient | None) -> list[Value]:
    if gradient is None:
        return []
    return [gradient.values, gradient.positions] if isinstance(gradient, SparseGradient) else [gradient]


class LazyProgram:
    """The program of a graph, which is compiled at its first run."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _program(self) -> Program:
        return tape_program(self._graph)

    def run(self, arrays: Sequence[NDArray]) -> Sequence[NDArray]:
        return self._program.run(arrays)


def apply_template(
    template: GradientTemplate,
    leaves: Sequence[Value],
    targets: Sequence[Value],
    seeds: Sequence[Value] | None,
    tag: TraceTag,
    *,
    last: bool,
) -> Derivatives:
    """Append the call of a template, and return the derivatives (see `derivatives`)."""
    call, counts, constants, taken, stacks, _ = template
    given = [*dict.fromkeys([*leaves, *_arrays(seeds)])] if seeds else leaves
    if stacks:
        wholes = [constant(np.stack(force([given[place] for place in rows]))) for rows in stacks]
        given = [*[given[place] for place in taken], *wholes]
    node, outs = call.appended([*given, *constants], here.site)
    # The record is not needed again, unless a missing gradient is to be explained: from now on the call computes the targets, and
    # the old nodes are released.
    if last and 0 not in counts and _can_replace_record(targets, given, tag):
        for index, target in enumerate(targets):
            if target.data is None and targets.index(target) == index:
                node.take_as_out(target, index)
    return grouped(counts, outs[len(targets) :])


def grouped(counts: Sequence[int], outs: Sequence[Value]) -> Derivatives:
    """Return derivatives from their values: none, one, or two for each."""
    found: Derivatives = []
    place = 0
    for count in counts:
        found.append(
            SparseGradient(*outs[place : place + 2]) if count == 2 else outs[place] if count else None
        )
        place += count
    return found


def _can_replace_record(targets: Sequence[Value], leaves: Sequence[Value], tag: TraceTag) -> bool:
    """Return whether a call of the leaves may compute the targets: no other tape follows these, and no leaf depends on them.

    A target may be a leaf itself; a value that was computed from a target while recording was stopped is a leaf as well.
    """
    for target in targets:
        tags = target.tags
        if len(tags) > 1 and any(other is not tag and not other.over for other in tags):
            return False
    for leaf in leaves:
        if leaf.data is None:
            break
    else:
        return True
    first = min([target.node.serial for target in targets if target.node is not None], default=0)
    ahead, seen = list(leaves), set()
    while ahead:
        value = ahead.pop()
        node = value.node if value.data is None else None
        if node is not None and node.serial >= first and node not in seen:
            if value in targets:
                return False
            seen.add(node)
            ahead += node.inputs
    return True
