"""The gradient cache: the derivatives of a record, by one call of the graph that was derived from an earlier record like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from gradtape.config import config, running
from gradtape.interruptions import raise_interruption
from gradtape.ir.builder import here
from gradtape.ir.graph import Graph, Literal, Node, TraceTag, Value, constant, extract, literal, merge_tags
from gradtape.ir.op import NDArray
from gradtape.kinds.operands import broadcast_to
from gradtape.lru import LRU
from gradtape.runtime.compile.program import Program, tape_program
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.literals import (
    Numbers,
    StructureTable,
    copy_with_inputs,
    input_values,
    operands_that_are_inputs,
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
    sites : tuple
        The places of the record's operations.
    own : tuple or None
        Those of another record that it is applied to; None where they are the same.
    """

    call: GraphCall
    counts: tuple[int, ...]
    constants: tuple[Value, ...]
    leaves: tuple[int, ...]
    stacks: tuple[tuple[int, ...], ...]
    numbers: int
    sites: tuple[Any, ...]
    own: tuple[Any, ...] | None = None


class _Entry(NamedTuple):
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


_structures: Final = StructureTable(lambda: config.memory_cache)
"""By the structural key of the record, and the request."""

_templates: Final[LRU[Any, _Entry]] = LRU(lambda: config.memory_cache)
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
    template_and_leaves = template_for(derive, what, targets, sources, seeds, tag)
    if template_and_leaves is None:
        return derive(targets, sources, seeds, lambda value: tag not in value.tags)
    return apply_template(*template_and_leaves, targets, seeds, tag, last=last)


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
    positions = region.positions
    key = (
        what,
        config.reroll,
        config.reroll_checkpoint,
        running.memory or config.memory,
        config.scratch_dir,
        len(targets),
        tuple([positions.get(source, -1) for source in sources]),
        seeds and tuple([_seed_key(seed, positions, -1 - k) for k, seed in enumerate(seeds)]),
        region.key,
    )
    structure = _structures.of(key)
    if (
        structure is None
    ):  # a derivative given by the user, or an array, differs from itself when it comes again
        return None
    numbers = structure.numbers(region)
    entry = _templates.get((structure, numbers.key))
    template = None if entry is None else entry.template
    if entry is None or entry.retry:
        if entry is not None or (config.reroll and len(region.computed) >= LONG):
            nodes, _ = extract(targets, (), lambda value: begins(value, tag))
            record = _RecordCopy(nodes, region, numbers, targets, sources, seeds, tag)
            if record.roll() or entry is not None:
                template = record.template(derive, seeds)
        _templates[structure, numbers.key] = _Entry(template, retry=entry is None and template is None)
    if template is None:
        return None
    # The positions of the first and last operation decide whether it is at the lines of the template; without calls, for steps of loops.
    for position in (0, -1) if template.sites else ():
        value, other = region.computed[position], template.sites[position]
        own = value._site if value._node is None else value._node.site
        if own is not other and (
            getattr(own, "code", None) is not getattr(other, "code", None)
            or getattr(own, "instruction", None) != getattr(other, "instruction", None)
        ):
            template = template._replace(own=_sites_of(region.computed))
            break
    if template.numbers:
        literals = region.literals
        inputs = [constant(data) for k in numbers.inputs if (data := literals[k].data) is not None]
        template = template._replace(constants=(*inputs, *template.constants))
    return template, region.leaves


def _site_of(value: Value) -> Any:
    return value._site if value._node is None else value._node.site


def _sites_of(computed: Sequence[Value]) -> tuple[Any, ...]:
    return tuple(map(_site_of, computed))


def sites_in_call(node: Node) -> dict[int, Any]:
    """Return the places of a record that a call of a template has replaced, by the identities of those of the template, which is made
    once for the records of all lines; empty where they are the same."""
    return {id(first): own for first, own in zip(*_moved.get(node, ((), ())), strict=True)}


_moved: Final[WeakKeyDictionary[Node, tuple[tuple[Any, ...], tuple[Any, ...]]]] = WeakKeyDictionary()
"""By the node of a call that has replaced a record: the places of the template's operations, and those of the record's own."""


def _seed_key(seed: Value, positions: dict[Value, int], other: int) -> Any:
    """Return the part of a seed in a key: its number, or the type of an array and its place in the record, or else `other`."""
    if isinstance(seed, Literal):
        return number_key(seed)
    return seed.aval, is_constant(seed), positions.setdefault(seed, other)


def _arrays(seeds: Sequence[Value] | None) -> list[Value]:
    return [seed for seed in seeds or () if not isinstance(seed, Literal)]


class _RecordCopy:
    """A copy of a record with placeholders for its leaves and for numbers that are inputs, so that its derivatives hold for all data.

    Parameters
    ----------
    nodes : sequence of Node
        The nodes of the record, in topological order.
    region : Region
        The record.
    numbers : Numbers
        Its numbers.
    targets, sources, seeds, tag
        As for `derivatives`.

    Attributes
    ----------
    copy_of : dict of Value to Value
        The copies of leaves, seeds and computed values.
    inputs : list of Value
        The placeholders of leaves and seeds.
    numbers : list of Value
        Those of numbers.
    active : set of Value
        What derivatives pass through.
    targets, sources : list of Value
        The copies of these.
    stacks : list of (Value, sequence of Value)
        Placeholders of arrays whose rows are inputs, which rolled loops read.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        region: Region,
        numbers: Numbers,
        targets: Sequence[Value],
        sources: Sequence[Value],
        seeds: Sequence[Value] | None,
        tag: TraceTag,
    ) -> None:
        placeholders = input_values(region, numbers)
        self._sites = _sites_of(region.computed)
        self.copy_of: dict[Value, Value] = {value: Value(value.aval) for value in region.leaves}
        for seed in _arrays(seeds):
            self.copy_of.setdefault(seed, Value(seed.aval, tags=seed.tags))
        self.inputs = [*self.copy_of.values()]
        self.numbers = [*placeholders.values()]
        self.active = {self.copy_of[leaf] for leaf in region.leaves if tag in leaf.tags}
        if config.reroll and len(nodes) >= MIN_SAVED:
            nodes = in_recorded_order(nodes)
        literals = operands_that_are_inputs(region, numbers)
        self._nodes, computed = copy_with_inputs(nodes, self.copy_of, literals, placeholders)
        self.active.update(computed)
        self.targets = [self.copy_of.get(target, target) for target in targets]
        self.sources = [self.copy_of.get(source, source) for source in sources]
        copies = [self.copy_of[source] for source in sources if source in self.copy_of]
        self._computed_sources = [copy for copy in copies if copy.node is not None]
        self.stacks: Sequence[tuple[Value, Sequence[Value]]] = ()

    def roll(self) -> bool:
        """Roll the loops of the copy, and return whether there are any."""
        computed = self._computed_sources
        producers = frozenset([source.node for source in computed if source.node is not None])
        ends = [*self.targets, *computed]
        # A source is not stacked: a derivative with respect to the stack would not reach it.
        leaves = set(self.inputs).difference(self.sources)
        result = rolled(self._nodes, ends, (), producers, leaves=leaves) if config.reroll else None
        if result is None:
            return False
        self.stacks = result.stacks
        count = len(self.targets)
        self.targets = result.outputs[:count]
        # Remaining nodes are rebuilt if an operand is now computed by a loop.
        moved = dict(zip(computed, result.outputs[count:], strict=True))
        self.sources = [moved.get(source, source) for source in self.sources]
        active = self.active
        active.update([stack for stack, rows in self.stacks if any(row in active for row in rows)])
        for node in result.nodes:
            if any(value in active for value in node.inputs):
                active.update(node.outs)
        return True

    def template(self, derive: Derive, seeds: Sequence[Value] | None) -> GradientTemplate | None:
        """Derive the copy; return None where the derivation reads data."""
        weights = None if seeds is None else [self.copy_of.get(seed, seed) for seed in seeds]
        try:
            derived = derive(self.targets, self.sources, weights, lambda value: value not in self.active)
        except Exception as error:  # a custom derivative reads data: it does so each time
            raise_interruption(error)
            return None
        parts = [_parts(gradient) for gradient in derived]
        outputs = [*self.targets, *[value for values in parts for value in values]]
        stacked = [stack for stack, _ in self.stacks]
        nodes, constants = extract(
            outputs, [*self.inputs, *stacked, *self.numbers], lambda value: value.node is None
        )
        if any(value.data is None for value in constants):
            return None
        positions = {value: position for position, value in enumerate(self.inputs)}
        rows_of = tuple([tuple([positions[row] for row in rows]) for _, rows in self.stacks])
        only_rows = {position for rows in rows_of for position in rows}
        only_rows -= {positions[value] for node in nodes for value in node.inputs if value in positions}
        only_rows -= {positions[value] for value in outputs if value in positions}
        leaves = [position for position in range(len(self.inputs)) if position not in only_rows]
        inputs = [*[self.inputs[position] for position in leaves], *stacked, *self.numbers, *constants]
        graph = without_data(Graph(inputs, nodes, outputs, "gradient"))
        call = GraphCall(graph, LazyProgram(graph).run)
        counts = tuple(map(len, parts))
        return GradientTemplate(
            call, counts, tuple(constants), tuple(leaves), rows_of, len(self.numbers), self._sites
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
    call, counts, constants, positions, stacks = template[:5]
    inputs = [*dict.fromkeys([*leaves, *_arrays(seeds)])] if seeds else leaves
    if stacks:
        arrays = [constant(np.stack(force([inputs[position] for position in rows]))) for rows in stacks]
        inputs = [*[inputs[position] for position in positions], *arrays]
    node, outs = call.appended([*inputs, *constants], here.site)
    # The record is not needed again, unless a missing gradient is to be explained: from now on the call computes the targets, and
    # the old nodes are released.
    if last and 0 not in counts and _can_replace_record(targets, inputs, tag):
        for index, target in enumerate(targets):
            if target.data is None and targets.index(target) == index:
                node.take_as_out(target, index)
        if template.own is not None:
            _moved[node] = template.sites, template.own
    return grouped(counts, outs[len(targets) :])


def grouped(counts: Sequence[int], outs: Sequence[Value]) -> Derivatives:
    """Return derivatives from their values: none, one, or two for each."""
    derivatives: Derivatives = []
    position = 0
    for count in counts:
        first = outs[position] if count else None
        derivatives.append(SparseGradient(*outs[position : position + 2]) if count == 2 else first)
        position += count
    return derivatives


def _can_replace_record(targets: Sequence[Value], leaves: Sequence[Value], tag: TraceTag) -> bool:
    """Return whether a call of the leaves may compute the targets: no other tape records these, and no leaf depends on them.

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
