"""Reverse mode: each node is linearised and transposed, in reverse topological order."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from gradtape.errors import InternalError
from gradtape.ir.builder import at
from gradtape.ir.graph import Node, TraceTag, Value, extract, number_of
from gradtape.kinds.control import Custom, OwnPullback, visible_inputs
from gradtape.kinds.cotangent import Cotangent
from gradtape.kinds.elementwise import Elementwise, scaled
from gradtape.kinds.routines.callback import Callback
from gradtape.kinds.routines.matrix import Matrix
from gradtape.transforms.activity import active_values
from gradtape.transforms.linear import Cotangents, pull_linear
from gradtape.transforms.loops.squares import Recomputed, whole_at
from gradtape.transforms.masks import with_masks
from gradtape.transforms.observers import Sweep, derivative_site, inner_sweeps, is_observed, notify
from gradtape.transforms.shift_invariance import cancelling_shifts
from gradtape.transforms.spectral import equal_part


def vjp(
    targets: Sequence[Value],
    sources: Sequence[Value],
    cotangents: Sequence[Value],
    stop: Callable[[Value], bool],
    barriers: Collection[Value] = (),
    constant: Collection[Value] = (),
    *,
    are_units: bool = False,
) -> list[Value | None]:
    """Append the nodes of the reverse sweep from `targets` to `sources`.

    Parameters
    ----------
    targets, sources : sequence of Value
        The values from which and to which cotangents are propagated.
    cotangents : sequence of Value
        One per target, of its shape.
    stop : callable
        Predicate on values: those that count as constants.
    barriers : collection of Value
        Further constants, which may be sources: a barrier has a cotangent, and does not propagate it.
    constant : collection of Value
        Those of the cotangents that no derivative is taken with respect to: where they are 0, they are zero by selection.
    are_units : bool, default False
        Whether these are 0 or 1 everywhere.

    Returns
    -------
    list of Value or None
        The cotangent of each source; None where no path leads to it. A source that is a target receives its seed.

    Notes
    -----
    A. Griewank and A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 3 (reverse mode); the split into linearisation and
    transposition follows A. Radul et al., "You Only Linearize Once", POPL 2023.
    """
    seeds = with_masks(cotangents, constant, targets, sources, stop, are_units=are_units)
    masks = [seed.mask for seed in seeds]
    values = [seed.value for seed in seeds]
    return list(vjp_with_observers(targets, sources, values, stop, barriers, masks).results)


def vjp_with_observers(
    targets: Sequence[Value],
    sources: Sequence[Value],
    cotangents: Sequence[Value],
    stop: Callable[[Value], bool],
    barriers: Collection[Value] = (),
    masks: Sequence[Value | None] | None = None,
) -> Sweep:
    """Return the same sweep as `reverse_sweep`, and notify the observers."""
    if not is_observed():
        return reverse_sweep(targets, sources, cotangents, stop, barriers, masks)
    with inner_sweeps() as inner:
        sweep = reverse_sweep(targets, sources, cotangents, stop, barriers, masks)
    notify(replace(sweep, inner=inner))
    return sweep


def reverse_sweep(
    targets: Sequence[Value],
    sources: Sequence[Value],
    cotangents: Sequence[Value],
    stop: Callable[[Value], bool],
    barriers: Collection[Value] = (),
    masks: Sequence[Value | None] | None = None,
) -> Sweep:
    """Append the nodes of `vjp`, and return the sweep with all cotangents; observers are not notified.

    Where `masks` has one for a target, its cotangent is zero by selection outside the mask (see `Cotangent`).
    """
    needed_sources = set(sources)
    # Sources are not stops for the walk: another source may lie above them, and its gradient is total.
    nodes, _ = extract(
        targets,
        (),
        stop=lambda value: (
            value.node is None or value in barriers or (stop(value) and value not in needed_sources)
        ),
        follow=visible_inputs,
    )
    active = active_values(nodes, needed_sources, cancelling_shifts(nodes, targets, needed_sources))
    found = Cotangents(barriers)

    def is_closed(value: Value) -> bool:
        return value in needed_sources or value in barriers or stop(value)

    for target, cotangent, mask in zip(targets, cotangents, masks or [None] * len(targets), strict=True):
        found.add(target, Cotangent(cotangent, mask))
    for node in reversed(nodes):
        if any(out in active and found.get(out) is not None for out in node.outs):
            extra = equal_part(node, nodes, found) if isinstance(node.op, Matrix | Callback) else None
            pull_back(node, active, found, is_closed)
            if extra is not None:
                found.add(node.inputs[0], Cotangent(extra))
    results: list[Value | None] = []
    for source in sources:
        arrived = found.arrived(source)
        results.append(None if arrived is None else arrived.applied())
    return Sweep(tuple(targets), tuple(sources), tuple(results), found.items)


def pull_back(
    node: Node, active: set[Value], cotangents: Cotangents, is_closed: Callable[[Value], bool]
) -> None:
    """Add the cotangents of a node's active inputs; `is_closed` holds for values at which derivatives end."""
    op = node.op
    with at(derivative_site(node, backward=True)):
        rule_of_whole = whole_at(node, is_closed)
        if isinstance(rule_of_whole, Recomputed):
            cotangent = cotangents.get(node.out)
            assert cotangent is not None
            cotangents.add(rule_of_whole.value, cotangent)
            active |= active_values(rule_of_whole.nodes, active)
            for part_of_node in reversed(rule_of_whole.nodes):
                if any(out in active and cotangents.get(out) is not None for out in part_of_node.outs):
                    pull_back(part_of_node, active, cotangents, is_closed)
            return
        if rule_of_whole is not None:
            _pull_linearised(
                node, rule_of_whole.operands, lambda values: [rule_of_whole.push(values)], active, cotangents
            )
            return
        if isinstance(op, Elementwise) and op.partials is not None:
            cotangent = cotangents.get(node.out)
            assert cotangent is not None
            for operand, rule in zip(node.inputs, op.partials, strict=True):
                if rule is not None and operand in active:
                    partial = rule(node.out, *node.inputs, **node.params)
                    part = scaled(partial, cotangent.value)
                    # Zeros times a number are zeros.
                    number = number_of(partial)
                    applied = cotangent.is_applied and number is not None and cmath.isfinite(number)
                    cotangents.add(operand, Cotangent(part, cotangent.mask, applied))
            return
        if isinstance(op, Custom):
            if not is_observed():
                _pull_by_rule(node, active, cotangents)
                return
            with inner_sweeps() as inner:
                _pull_by_rule(node, active, cotangents)
            for sweep in inner:
                notify(replace(sweep, node=node))
            return
        if isinstance(op, OwnPullback):
            needed = [operand in active for operand in node.inputs]
            parts = op.pull(node, list(map(cotangents.get, node.outs)), needed)
            for operand, part_, chosen in zip(node.inputs, parts, needed, strict=True):
                if chosen and part_ is not None:
                    cotangents.add(operand, part_)
            return
        _pull_linearised(node, node.inputs, lambda values: op.jvp(node, values), active, cotangents)


def _pull_linearised(
    node: Node,
    operands: Sequence[Value],
    push: Callable[[list[Value | None]], Sequence[Value | None]],
    active: set[Value],
    cotangents: Cotangents,
) -> None:
    """Add the cotangents of active operands of a node's outputs, by the transpose of the linear map `push`."""
    tag = TraceTag()
    tangents: list[Value | None] = [
        Value(operand.aval, tags=(tag,)) if operand in active else None for operand in operands
    ]
    outs = push(tangents)
    if len(outs) != len(node.outs):
        raise InternalError(
            f"the jvp of {node.op.name} returned {len(outs)} tangents for {len(node.outs)} outputs",
            where=node.site,
        )
    pairs = []
    for out, tangent in zip(node.outs, outs, strict=True):
        cotangent = cotangents.get(out)
        if tangent is not None and cotangent is not None:
            pairs.append((tangent, cotangent))
    starts = [tangent for tangent in tangents if tangent is not None]
    pulled = pull_linear(pairs, starts, tag)
    for operand, tangent in zip(operands, tangents, strict=True):
        part = None if tangent is None else pulled.get(tangent)
        if part is not None:
            cotangents.add(operand, part)
    tag.recording = False


def _pull_by_rule(node: Node, active: set[Value], cotangents: Cotangents) -> None:
    operands = visible_inputs(node)
    is_active = [operand in active for operand in operands]
    parts = node.params["rule"].pull_back(node, list(map(cotangents.get, node.outs)), is_active)
    for operand, part, chosen in zip(operands, parts, is_active, strict=True):
        if chosen and part is not None:
            cotangents.add(operand, part)
