"""Paths of a derivative through the graph: where they pass, where they are cut, where what passes becomes zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradtape.api.debug.inside import opened
from gradtape.api.debug.unrolled import WrittenOut, work_out
from gradtape.errors import NotDifferentiableError
from gradtape.ir.graph import Node, TraceTag, Value, extract, literal
from gradtape.ir.types import is_inexact
from gradtape.kinds.control import Custom, Structured
from gradtape.kinds.cotangent import Cotangent
from gradtape.kinds.elementwise import Elementwise, flat
from gradtape.kinds.operands import broadcast_to
from gradtape.transforms.call import Call, inlined
from gradtape.transforms.loops.ops import STACK, Repeat
from gradtape.transforms.observers import Sweep, inner_sweeps
from gradtape.transforms.vjp import sweep_back


@dataclass(frozen=True)
class Cut:
    """A node at which a path ends: it takes `operand`, which is followed, and its result is not.

    Attributes
    ----------
    kind : str
        ``"recording"``, ``"stop_gradient"``, ``"integer"``, ``"position"``, ``"comparison"`` or ``"no derivative"``.
    """

    kind: str
    node: Node
    operand: Value


KINDS = ("recording", "stop_gradient", "integer", "no derivative", "position", "comparison")
"""By how likely they are what was not meant."""


def unfolded(target: Value, tag: TraceTag) -> Value:
    """Return a target as it was computed op by op, where a call that stands for its whole record computes it now."""
    node = target.node
    if node is None or not isinstance(node.op, Call):
        return target
    copy = inlined(node.op.graph, node.inputs)[target.index]
    for step in extract([copy], node.inputs, stop=lambda value: False)[0]:
        for out in step.outs:
            out.tags = (tag,)
    return copy


def ancestry(value: Value) -> list[Node]:
    """Return all nodes that a value was computed by, whether or not a tape followed."""
    return _ancestry([value])


def _ancestry(values: Sequence[Value]) -> list[Node]:
    nodes, _ = extract(values, (), stop=lambda v: False)
    return nodes


def beginnings(value: Value) -> list[Value]:
    """Return the values, of which nothing before is known, that a value was computed from."""
    _, leaves = extract([value], (), stop=lambda v: False)
    return leaves


def depends(target: Value, source: Value) -> bool:
    """Return whether a value was computed from another."""
    if target is source:
        return True
    return any(source in node.inputs for node in ancestry(target))


def follow(
    targets: Sequence[Value], sources: Iterable[Value], nodes: Sequence[Node], tag: TraceTag | None
) -> tuple[bool, list[Cut]]:
    """Return whether a derivative leads from one of the sources to one of the targets, and where other ways end."""
    followed = set(sources)
    cuts: list[Cut] = []
    elsewhere: list[Cut] = []
    for node in nodes:
        for argument, operand in enumerate(node.inputs):
            if operand not in followed:
                continue
            kind = _cut(node, argument, tag)
            if kind is None:
                outs = [out for out in node.outs if is_inexact(out.dtype)]
                reached = [out for out in outs if _reaches(node, argument, out)]
                followed.update(reached)
                elsewhere += [Cut("no derivative", node, operand)] * (len(reached) < len(outs))
            else:
                inside = list(_cuts_inside(node, argument)) if kind == "no derivative" else []
                cuts += inside or [Cut(kind, node, operand)]
    cuts = cuts or elsewhere
    cuts.sort(key=lambda cut: KINDS.index(cut.kind))
    return not followed.isdisjoint(targets), cuts


def _cut(node: Node, argument: int, tag: TraceTag | None) -> str | None:
    """Return how the way through one operand of a node ends, or None where it goes on; in a body no tag tells."""
    if tag is not None and tag not in node.outs[0].tags:
        return "recording"
    if not any(is_inexact(out.dtype) for out in node.outs):
        kinds = {out.dtype.kind for out in node.outs}
        if kinds == {"b"}:
            return "comparison"
        return "integer" if node.op.name == "convert" else "position"
    if _passes(node, argument):
        return None
    return "stop_gradient" if node.op.name == "stop_gradient" else "no derivative"


def _passes(node: Node, argument: int) -> bool:
    op = node.op
    if isinstance(op, Elementwise):
        rules = op.partials if op.partials is not None else op.tangents
        return rules is not None and rules[argument] is not None
    outs = [out for out in node.outs if is_inexact(out.dtype)]
    seeds = [_ones(out) for out in outs]
    try:
        sweep = sweep_back(outs, [node.inputs[argument]], seeds, lambda value: value.node is not node)
    except NotDifferentiableError:
        return False
    return sweep.results[0] is not None


def _reaches(node: Node, argument: int, out: Value) -> bool:
    """Return whether the way through one operand leads to one of the results, of which a loop or branch has many."""
    if not isinstance(node.op, Structured):
        return True
    sweep = sweep_back([out], [node.inputs[argument]], [_ones(out)], lambda value: value.node is not node)
    return sweep.results[0] is not None


def _cuts_inside(node: Node, argument: int) -> Iterator[Cut]:
    """Yield where ways from one operand of a loop or branch end in its bodies; of a rule in what it computes again."""
    if isinstance(node.op, Custom):
        with inner_sweeps() as inner:
            _passes(node, argument)
        for sweep in inner:
            yield from follow(sweep.targets, sweep.sources, _ancestry(sweep.targets), None)[1]
    if not isinstance(node.op, Structured):
        return
    bodies = node.params.get("branches") or (node.params["body"],)
    # A loop's body is given its turn's number first, a switch and a repeat are given another number themselves.
    place = argument - 1 if "branches" in node.params else argument + 1 - isinstance(node.op, Repeat)
    for body in bodies if place >= 0 else ():
        followed = {body.inputs[place]}
        carried = body.inputs[1 + node.params.get("consts", 0) :][: node.params.get("carries", 0)]
        found: list[Cut] = []
        before = 0
        while len(followed) > before:
            before, found = len(followed), []
            for inner in body.nodes:
                for position, operand in enumerate(inner.inputs):
                    if operand in followed:
                        kind = _cut(inner, position, None)
                        if kind is None:
                            followed.update(out for out in inner.outs if is_inexact(out.dtype))
                        else:
                            found += list(_cuts_inside(inner, position)) or [Cut(kind, inner, operand)]
            followed.update(
                carry for carry, end in zip(carried, body.outputs, strict=False) if end in followed
            )
        yield from found


def _ones(value: Value) -> Value:
    return broadcast_to(literal(1, value.dtype), value.shape)


@dataclass(frozen=True)
class Loss:
    """Where a gradient that has a path becomes zero.

    Attributes
    ----------
    nodes : list of Node
        At which what arrives is not zero and what leaves is; none where several ways cancel.
    cuts : list of Cut
        Where ways end in what a loop or branch did.
    turns : tuple of (str, int)
        In which loops and turns that is, the innermost first.
    """

    nodes: list[Node]
    cuts: Sequence[Cut] = ()
    turns: tuple[tuple[str, int], ...] = ()


def swept(target: Value, source: Value, tag: TraceTag) -> Sweep:
    """Return the sweep of a gradient, untold."""
    with inner_sweeps() as inner:
        sweep = sweep_back([target], [source], [_ones(target)], lambda value: tag not in value.tags)
    return replace(sweep, inner=inner)


def lost(sweep: Sweep) -> Loss | None:
    """Return where a gradient becomes zero; None if it is not zero."""
    (target,), (source,) = sweep.targets, sweep.sources
    met = dict(sweep.arrived())
    alive = _alive(met)
    if alive.get(source) or not source.size:
        return None
    killers = [node for node in ancestry(target) if _kills(node, alive)]
    return _lost_at(killers, met, alive, sweep.inner, WrittenOut())


def _lost_at(
    killers: list[Node],
    met: dict[Value, Cotangent],
    alive: dict[Value, bool],
    inner: Sequence[Sweep],
    loops: WrittenOut,
) -> Loss:
    """Return the first of the nodes at which a gradient becomes zero; of a loop, branch or rule what did it inside."""
    node = killers[0] if killers else None
    if node is not None and isinstance(node.op, Structured):
        inside = opened(node, met, loops)
        if inside is not None:
            dead = [operand for operand in node.inputs if alive.get(operand) is False]
            within = {**_alive(inside.met), **dict.fromkeys(dead, False)}
            found = [each for each in inside.nodes if _kills(each, within)]
            if found:
                return _lost_at(found, {**met, **inside.met}, {**alive, **within}, inside.inner, loops)
            _, cuts = follow(inside.ends, dead, inside.nodes, None)
            return Loss(killers, cuts, loops.turns.get(cuts[0].node, ()) if cuts else ())
    if node is not None and isinstance(node.op, Custom):
        for sweep in inner:
            own = dict(sweep.arrived())
            within = _alive(own)
            found = [each for each in _ancestry(sweep.targets) if _kills(each, within)]
            if found:
                return _lost_at(found, own, within, sweep.inner, loops)
    return Loss(killers, turns=() if node is None else loops.turns.get(node, ()))


def _alive(met: dict[Value, Cotangent]) -> dict[Value, bool]:
    """Return of each value whether what arrived there is other than zero."""
    parts = {value: cotangent.applied() for value, cotangent in met.items() if value.aval is not STACK}
    work_out(list(parts.values()))
    return {value: bool(np.any(part.data)) for value, part in parts.items()}


def _kills(node: Node, alive: dict[Value, bool]) -> bool:
    return any(alive.get(out) for out in node.outs) and any(
        alive.get(operand) is False for operand in node.inputs
    )


def is_flat(node: Node) -> bool:
    """Return whether an op is constant piece by piece."""
    return isinstance(node.op, Elementwise) and node.op.partials is not None and flat in node.op.partials


def uses(value: Value, nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield the nodes that take a value."""
    return (node for node in nodes if value in node.inputs)
