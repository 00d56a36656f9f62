"""Gradients by structure: a record like one that was differentiated before becomes one call of what was built then."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from ..config import config
from ..ir.builder import emit_all
from ..ir.fingerprint import structure
from ..ir.graph import Graph, Literal, Mark, Value, extract
from ..ir.op import NDArray
from ..runtime.program import Program, program_for
from ..transforms.call import Call, inlined
from ..transforms.observers import OBSERVERS
from ..transforms.rows import Rows, with_rows
from ..transforms.vjp import vjp


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


def gradients(
    targets: Sequence[Value], sources: Sequence[Value], seeds: Sequence[Value], mark: Mark, *, last: bool
) -> list[Value | Rows | None]:
    """Return the gradients of marked targets, as `gradtape.transforms.vjp.vjp` does, at the cost of a look-up for known structures.

    The gradient of a source that is only read by gathers of its rows comes as rows.

    Parameters
    ----------
    targets, sources, seeds : sequence of Value
        As for vjp.
    mark : Mark
        The tape.
    last : bool
        Whether the tape's record is not needed again: then the targets are computed along with the gradients.
    """
    alone = not OBSERVERS and not any(other.recording for target in targets for other in target.marks)
    if config.jit and targets and alone:
        nodes, leaves = extract(targets, (), lambda value: _begins(value, mark))
        inputs = [*leaves, *[seed for seed in seeds if not isinstance(seed, Literal)]]
        key = structure(inputs, nodes, (*targets, *seeds, *sources))
        if key is not None:
            template = _templates.get(key)
            if template is not None:
                _templates.move_to_end(key)
                return _applied(template, inputs, targets, last)
            pulled = _pulled(targets, sources, seeds, mark)
            seen_before = key in _templates
            template = _templates[key] = _template(inputs, targets, pulled) if seen_before else None
            while len(_templates) > config.memory_cache:
                _templates.popitem(last=False)
            return pulled if template is None else _applied(template, inputs, targets, last)
    return _pulled(targets, sources, seeds, mark)


def _begins(value: Value, mark: Mark) -> bool:
    """Return whether a record goes back to a value but not beyond: it is not followed, or was watched and made of nothing that is."""
    if mark not in value.marks:
        return True
    node = value.node
    return node is not None and all(mark not in operand.marks for operand in node.inputs)


def _pulled(
    targets: Sequence[Value], sources: Sequence[Value], seeds: Sequence[Value], mark: Mark
) -> list[Value | Rows | None]:
    def stop(value: Value) -> bool:
        return mark not in value.marks

    return with_rows(vjp(targets, sources, seeds, stop), sources, targets, stop)


def _template(
    inputs: Sequence[Value], targets: Sequence[Value], pulled: Sequence[Value | Rows | None]
) -> Template:
    parts = [_parts(gradient) for gradient in pulled]
    outputs = [*targets, *[value for values in parts for value in values]]
    nodes, _ = extract(outputs, inputs, lambda value: value.node is None)
    fresh = [Value(value.aval) for value in inputs]
    copies = inlined(Graph(inputs, nodes, outputs), fresh)
    inner, _ = extract(copies, fresh, lambda value: value.node is None)
    call = Call(graph := Graph(fresh, inner, copies, "gradient"), _Lazily(graph).run)
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


def _applied(
    template: Template, inputs: Sequence[Value], targets: Sequence[Value], last: bool
) -> list[Value | Rows | None]:
    outs = emit_all(template.call, inputs)
    node = outs[0].node
    assert node is not None
    parts = iter(outs[len(targets) :])
    if last and all(template.counts):
        # Nobody needs the record again (unless a gradient is missing and its absence is to be explained): from now on
        # the call computes the targets, and the old nodes can go.
        for index, target in enumerate(targets):
            if target.data is None and target.node is not node:
                target.node, target.index = node, index
        node.outs = tuple(
            target if target.node is node and target.index == index else out
            for index, (target, out) in enumerate(zip([*targets, *outs[len(targets) :]], outs, strict=True))
        )
    return [
        Rows(next(parts), next(parts)) if count == 2 else next(parts) if count else None
        for count in template.counts
    ]
