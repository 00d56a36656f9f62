"""Paths of a derivative through the graph: where they lead, where they are cut, and where a gradient becomes zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradtape.api.debug.cotangents import sweep_unrolled
from gradtape.api.debug.unrolled import Iterations, UnrolledLoops, compute_op_by_op
from gradtape.errors import NotDifferentiableError
from gradtape.ir.graph import Node, TraceTag, Value, extract, literal
from gradtape.ir.types import is_inexact
from gradtape.kinds.control import Custom, Structured
from gradtape.kinds.cotangent import Cotangent
from gradtape.kinds.elementwise import Elementwise, flat
from gradtape.kinds.operands import broadcast_to
from gradtape.ops.core.elementwise.cast import convert_row, stop_gradient
from gradtape.trace.lazy.gradient_cache import sites_in_call
from gradtape.transforms.call import GraphCall, inlined
from gradtape.transforms.loops.ops import STACK, Repeat
from gradtape.transforms.observers import Sweep, inner_sweeps
from gradtape.transforms.vjp import reverse_sweep


@dataclass(frozen=True)
class Cut:
    """A node at which a path ends: `operand` depends on the source differentiably, and the node's results do not.

    Attributes
    ----------
    kind : str
        ``"recording"``, ``"stop_gradient"``, ``"integer"``, ``"position"``, ``"comparison"`` or ``"no derivative"``.
    """

    kind: str
    node: Node
    operand: Value


KINDS = ("recording", "stop_gradient", "integer", "no derivative", "position", "comparison")
"""In the order in which they are likely to be a mistake."""


def unfolded(target: Value, tag: TraceTag) -> Value:
    """Return a target as nodes of its ops, where one call node has replaced its record."""
    node = target.node
    if node is None or not isinstance(node.op, GraphCall):
        return target
    copy = inlined(node.op.graph, node.inputs)[target.index]
    places = sites_in_call(node)
    for step in extract([copy], node.inputs, stop=lambda value: False)[0]:
        step.site = places.get(id(step.site), step.site)
        if tag in target.tags:  # otherwise nothing of it was recorded
            for out in step.outs:
                out.tags = (tag,)
    return copy


def ancestors(value: Value) -> list[Node]:
    """Return all nodes that a value was computed by, recorded by a tape or not."""
    return _ancestors([value])


def _ancestors(values: Sequence[Value]) -> list[Node]:
    nodes, _ = extract(values, (), stop=lambda v: False)
    return nodes


def leaves_of(value: Value) -> list[Value]:
    """Return the values without nodes that a value was computed from."""
    _, leaves = extract([value], (), stop=lambda v: False)
    return leaves


def depends(target: Value, source: Value) -> bool:
    """Return whether a value was computed from another."""
    if target is source:
        return True
    return any(source in node.inputs for node in ancestors(target))


def find_paths(
    targets: Sequence[Value], sources: Iterable[Value], nodes: Sequence[Node], tag: TraceTag | None
) -> tuple[bool, list[Cut]]:
    """Return whether a path of a derivative leads from a source to a target, and where other paths end."""
    active = set(sources)
    cuts: list[Cut] = []
    elsewhere: list[Cut] = []
    for node in nodes:
        for argument, operand in enumerate(node.inputs):
            if operand not in active:
                continue
            kind = _cut(node, argument, tag)
            if kind is None:
                outs = [out for out in node.outs if is_inexact(out.dtype)]
                reached = [out for out in outs if _reaches(node, argument, out)]
                active.update(reached)
                elsewhere += [Cut("no derivative", node, operand)] * (len(reached) < len(outs))
            else:
                inside = list(_cuts_inside(node, argument)) if kind == "no derivative" else []
                cuts += inside or [Cut(kind, node, operand)]
    cuts = cuts or elsewhere
    cuts.sort(key=lambda cut: KINDS.index(cut.kind))
    return not active.isdisjoint(targets), cuts


def _cut(node: Node, argument: int, tag: TraceTag | None) -> str | None:
    """Return the kind of the cut at one operand of a node; None where the path goes on. In a body, `tag` is None."""
    if tag is not None and tag not in node.outs[0].tags:
        return "recording"
    if not any(is_inexact(out.dtype) for out in node.outs):
        kinds = {out.dtype.kind for out in node.outs}
        if kinds == {"b"}:
            return "comparison"
        return "integer" if node.op is convert_row else "position"
    if _passes(node, argument):
        return None
    return "stop_gradient" if node.op is stop_gradient else "no derivative"


def _passes(node: Node, argument: int) -> bool:
    op = node.op
    if isinstance(op, Elementwise):
        rules = op.partials if op.partials is not None else op.tangents
        return rules is not None and rules[argument] is not None
    outs = [out for out in node.outs if is_inexact(out.dtype)]
    seeds = [_ones(out) for out in outs]
    try:
        sweep = reverse_sweep(outs, [node.inputs[argument]], seeds, lambda value: value.node is not node)
    except NotDifferentiableError:
        return False
    return sweep.results[0] is not None


def _reaches(node: Node, argument: int, out: Value) -> bool:
    """Return whether a path leads from one operand of a node to one of its results: loops and branches have many."""
    if not isinstance(node.op, Structured):
        return True
    sweep = reverse_sweep([out], [node.inputs[argument]], [_ones(out)], lambda value: value.node is not node)
    return sweep.results[0] is not None


def _cuts_inside(node: Node, argument: int) -> Iterator[Cut]:
    """Yield the cuts of paths from one operand inside a loop or branch, or inside the code that a rule runs again."""
    if isinstance(node.op, Custom):
        with inner_sweeps() as inner:
            _passes(node, argument)
        for sweep in inner:
            yield from find_paths(sweep.targets, sweep.sources, _ancestors(sweep.targets), None)[1]
    if not isinstance(node.op, Structured):
        return
    bodies = node.params.get("branches") or (node.params["body"],)
    # The first input of a loop's body is the number of the iteration; the first operand of a switch or repeat is not passed to bodies.
    place = argument - 1 if "branches" in node.params else argument + 1 - isinstance(node.op, Repeat)
    for body in bodies if place >= 0 else ():
        active = {body.inputs[place]}
        carried = body.inputs[1 + node.params.get("consts", 0) :][: node.params.get("carries", 0)]
        found: list[Cut] = []
        before = 0
        while len(active) > before:
            before, found = len(active), []
            for inner in body.nodes:
                for position, operand in enumerate(inner.inputs):
                    if operand in active:
                        kind = _cut(inner, position, None)
                        if kind is None:
                            active.update(out for out in inner.outs if is_inexact(out.dtype))
                        else:
                            found += list(_cuts_inside(inner, position)) or [Cut(kind, inner, operand)]
            active.update(carry for carry, end in zip(carried, body.outputs, strict=False) if end in active)
        yield from found


def _ones(value: Value) -> Value:
    return broadcast_to(literal(1, value.dtype), value.shape)


@dataclass(frozen=True)
class Loss:
    """Where a gradient that has a path becomes zero.

    Attributes
    ----------
    nodes : list of Node
        Nodes with a nonzero cotangent of a result and a zero cotangent of an operand; none where several paths cancel.
    cuts : list of Cut
        Where paths end in an unrolled loop or branch.
    iterations : tuple of (str, int)
        The loops of the node, each with the number of the iteration, the innermost first.
    """

    nodes: list[Node]
    cuts: Sequence[Cut] = ()
    iterations: Iterations = ()


def unobserved_sweep(target: Value, source: Value, tag: TraceTag) -> Sweep:
    """Return the sweep of a gradient; observers do not see it."""
    with inner_sweeps() as inner:
        sweep = reverse_sweep([target], [source], [_ones(target)], lambda value: tag not in value.tags)
    return replace(sweep, inner=inner)


def find_loss(sweep: Sweep) -> Loss | None:
    """Return where a gradient becomes zero; None if it is not zero."""
    (target,), (source,) = sweep.targets, sweep.sources
    cotangents = dict(sweep.arrived())
    nonzero = _nonzero(cotangents)
    if nonzero.get(source) or not source.size:
        return None
    nodes = [node for node in ancestors(target) if _loses_gradient(node, nonzero)]
    return _loss_at(nodes, cotangents, nonzero, sweep.inner, UnrolledLoops())


def _loss_at(
    nodes: list[Node],
    cotangents: dict[Value, Cotangent],
    nonzero: dict[Value, bool],
    inner: Sequence[Sweep],
    loops: UnrolledLoops,
) -> Loss:
    """Return the loss at the first of the nodes; if this is a loop, branch or rule, the loss inside it.

    `nonzero` says of each value with a cotangent whether this is other than zero.
    """
    node = nodes[0] if nodes else None
    if node is not None and isinstance(node.op, Structured):
        inside = sweep_unrolled(node, cotangents, loops)
        if inside is not None:
            zero = [operand for operand in node.inputs if nonzero.get(operand) is False]
            within = {**_nonzero(inside.cotangents), **dict.fromkeys(zero, False)}
            found = [each for each in inside.nodes if _loses_gradient(each, within)]
            if found:
                return _loss_at(
                    found,
                    {**cotangents, **inside.cotangents},
                    {**nonzero, **within},
                    inside.inner,
                    loops,
                )
            _, cuts = find_paths(inside.targets, zero, inside.nodes, None)
            return Loss(nodes, cuts, loops.iterations.get(cuts[0].node, ()) if cuts else ())
    if node is not None and isinstance(node.op, Custom):
        for sweep in inner:
            own = dict(sweep.arrived())
            within = _nonzero(own)
            found = [each for each in _ancestors(sweep.targets) if _loses_gradient(each, within)]
            if found:
                return _loss_at(found, own, within, sweep.inner, loops)
    return Loss(nodes, iterations=() if node is None else loops.iterations.get(node, ()))


def _nonzero(cotangents: dict[Value, Cotangent]) -> dict[Value, bool]:
    """Return for each value whether its cotangent is other than zero."""
    parts = {value: cotangent.applied() for value, cotangent in cotangents.items() if value.aval is not STACK}
    compute_op_by_op(list(parts.values()))
    return {value: bool(np.any(part.data)) for value, part in parts.items()}


def _loses_gradient(node: Node, nonzero: dict[Value, bool]) -> bool:
    return any(nonzero.get(out) for out in node.outs) and any(
        nonzero.get(operand) is False for operand in node.inputs
    )


def is_flat(node: Node) -> bool:
    """Return whether an op is piecewise constant."""
    return isinstance(node.op, Elementwise) and node.op.partials is not None and flat in node.op.partials


def uses(value: Value, nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield the nodes that have a value as operand."""
    return (node for node in nodes if value in node.inputs)
