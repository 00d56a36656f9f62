"""Gradients by structure: a record like one that was differentiated before becomes one call of what was built then."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from ..config import config
from ..ir.builder import here
from ..ir.fingerprint import structure
from ..ir.graph import Graph, Literal, Mark, Value, extract, literal
from ..ir.op import NDArray
from ..kinds.operands import broadcast_to
from ..runtime.program import Program, program_for
from ..transforms.call import Call, without_data
from ..transforms.observers import OBSERVERS
from ..transforms.rows import Rows, with_rows
from ..transforms.vjp import vjp
from .pattern import Pattern, begins


class Template(NamedTuple):
    """A reverse sweep from leaves to gradients, with the targets themselves.

    Attributes
    ----------
    call : Call
        From the leaves and seeds to the targets and the gradients that exist.
    counts : tuple of int
        Per source, how many outputs make up its gradient: none, one, or two where it comes as rows.
    """

    call: Call
    counts: tuple[int, ...]


_templates: Final[OrderedDict[Any, Template | None]] = OrderedDict()
"""By structure; None for one that has been seen once."""


class _Expected(NamedTuple):
    """What a line asked for before.

    Attributes
    ----------
    pattern : Pattern
        The record.
    sources : list of int
        The places of the sources in it; -1 for one that is not in it.
    template : Template
        What was built for it.
    """

    pattern: Pattern
    sources: list[int]
    template: Template


_expected: Final[OrderedDict[Any, list[_Expected]]] = OrderedDict()
"""By the line that asks."""

AT_A_LINE: Final = 4
"""Records that are expected at one line."""


def gradients(
    targets: Sequence[Value],
    sources: Sequence[Value],
    seeds: Sequence[Value] | None,
    mark: Mark,
    *,
    last: bool,
) -> list[Value | Rows | None]:
    """Return the gradients of marked targets, as `gradtape.transforms.vjp.vjp` does, at the cost of a look-up for known structures.

    The gradient of a source that is only read by gathers of its rows comes as rows.

    Parameters
    ----------
    targets, sources : sequence of Value
        As for vjp.
    seeds : sequence of Value or None
        The cotangents of the targets; None stands for ones.
    mark : Mark
        The tape.
    last : bool
        Whether the tape's record is not needed again: then the targets are computed along with the gradients.
    """
    if not config.jit or not targets or OBSERVERS or _is_recorded(targets):
        return _pulled(targets, sources, seeds, mark)
    site = here.site
    line = id(site.code), site.instruction, seeds is None
    for expected in _expected.get(line, ()):
        values = expected.pattern.match(targets, mark)
        if values is not None and _are_at(sources, values, expected.sources):
            inputs = [*expected.pattern.leaves_of(values), *_arrays(seeds)]
            return _applied(expected.template, inputs, targets, last)
    nodes, leaves = extract(targets, (), lambda value: begins(value, mark))
    inputs = [*leaves, *_arrays(seeds)]
    key = structure(inputs, nodes, (*targets, *([] if seeds is None else seeds), *sources))
    if key is None:
        return _pulled(targets, sources, seeds, mark)
    key = key, seeds is None
    template = _templates.get(key)
    if template is None:
        pulled = _pulled(targets, sources, seeds, mark)
        seen_before = key in _templates
        template = _templates[key] = _template(inputs, targets, pulled) if seen_before else None
        _limit(_templates)
        if template is None:
            return pulled
    _templates.move_to_end(key)
    if len(set(targets)) == len(targets) and not _literals(seeds):
        _expect(line, Pattern(targets, nodes, leaves, mark), targets, sources, mark, template)
    return _applied(template, inputs, targets, last)


def _is_recorded(targets: Sequence[Value]) -> bool:
    return any([mark.recording for target in targets for mark in target.marks])


def _arrays(seeds: Sequence[Value] | None) -> list[Value]:
    return [seed for seed in seeds or () if not isinstance(seed, Literal)]


def _literals(seeds: Sequence[Value] | None) -> bool:
    return any(isinstance(seed, Literal) for seed in seeds or ())


def _expect(
    line: Any,
    pattern: Pattern,
    targets: Sequence[Value],
    sources: Sequence[Value],
    mark: Mark,
    template: Template,
) -> None:
    """Remember what a line has asked for: most recent first."""
    values = pattern.match(targets, mark)
    if values is None:
        return
    places = {value: place for place, value in enumerate(values)}
    found = _Expected(pattern, [places.get(source, -1) for source in sources], template)
    _expected[line] = [found, *_expected.get(line, ())][:AT_A_LINE]
    _expected.move_to_end(line)
    _limit(_expected)


def _are_at(sources: Sequence[Value], values: Sequence[Value], places: Sequence[int]) -> bool:
    """Return whether sources stand at these places; at -1 for those that do not stand anywhere."""
    return len(sources) == len(places) and all(
        [
            values[place] is source if place >= 0 else source not in values
            for source, place in zip(sources, places, strict=True)
        ]
    )


def _limit(table: OrderedDict[Any, Any]) -> None:
    while len(table) > config.memory_cache:
        table.popitem(last=False)


def _pulled(
    targets: Sequence[Value], sources: Sequence[Value], seeds: Sequence[Value] | None, mark: Mark
) -> list[Value | Rows | None]:
    if seeds is None:
        seeds = [one_like(target) for target in targets]

    def stop(value: Value) -> bool:
        return mark not in value.marks

    return with_rows(vjp(targets, sources, seeds, stop), sources, targets, stop)


def _template(
    inputs: Sequence[Value], targets: Sequence[Value], pulled: Sequence[Value | Rows | None]
) -> Template:
    parts = [_parts(gradient) for gradient in pulled]
    outputs = [*targets, *[value for values in parts for value in values]]
    nodes, _ = extract(outputs, inputs, lambda value: value.node is None)
    graph = without_data(Graph(inputs, nodes, outputs, "gradient"))
    call = Call(graph, _Lazily(graph).run)
    return Template(call, tuple(map(len, parts)))


def _parts(gradient: Value | Rows | None) -> list[Value]:
    if gradient is None:
        return []
    return [gradient.values, gradient.positions] if isinstance(gradient, Rows) else [gradient]


class _Lazily:
    """Runs a graph by its kernel, which is compiled at the first use."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _program(self) -> Program:
        return program_for(self._graph)

    def run(self, arrays: Sequence[NDArray]) -> Sequence[NDArray]:
        return self._program.run(arrays)


def one_like(target: Value) -> Value:
    """Return the weight of a target that is given none."""
    return broadcast_to(literal(1, target.dtype), target.shape)


def _applied(
    template: Template, inputs: Sequence[Value], targets: Sequence[Value], last: bool
) -> list[Value | Rows | None]:
    call, counts = template
    node, outs = call.appended(inputs, here.site)
    # Nobody needs the record again (unless a gradient is missing and its absence is to be explained): from now on
    # the call computes the targets, and the old nodes can go.
    if last and all(counts):
        for index, target in enumerate(targets):
            if target.data is None and target.node is not node:
                target.node, target.index = node, index
                outs[index] = target
        node.outs = tuple(outs)
    parts = iter(outs[len(targets) :])
    return [
        Rows(next(parts), next(parts)) if count == 2 else next(parts) if count else None for count in counts
    ]
