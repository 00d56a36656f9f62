"""Cotangents at every value of a sweep, inside loops and branches too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from gradtape.api.debug.unrolled import Iterations, UnrolledLoops, compute_op_by_op, y_position
from gradtape.ir.graph import Node, Value, constant, extract
from gradtape.kinds.control import Structured
from gradtape.kinds.cotangent import Cotangent
from gradtape.ops.core.indexing import parse_index
from gradtape.trace.jit.guards import trace_of
from gradtape.transforms.loops.ops import STACK, Switch
from gradtape.transforms.observers import Sweep, inner_sweeps
from gradtape.transforms.vjp import reverse_sweep

NodeFilter: TypeAlias = Callable[[Node], bool]

Order: TypeAlias = tuple[float, ...]
"""The position of a value in the order of computation, as a key for sorting."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The cotangent at a value.

    Attributes
    ----------
    value : Value
        The value.
    cotangent : Cotangent
        The sum over all paths.
    iterations : tuple of (str, int)
        The loops that the value is in, each with the number of the iteration, the innermost first.
    loop : Node or None
        The innermost loop or branch.
    """

    value: Value
    cotangent: Cotangent
    iterations: Iterations = ()
    loop: Node | None = None


@dataclass(frozen=True, slots=True)
class UnrolledSweep:
    """The sweep through an unrolled loop or branch.

    Attributes
    ----------
    targets : list of Value
        The outputs of the iterations that have a cotangent.
    nodes : list of Node
        The nodes that compute these.
    cotangents : dict of Value to Cotangent
        By value inside the loop or branch.
    order : dict of Value to tuple
        When these values were computed.
    inner : sequence of Sweep
        The sweeps of rules inside.
    """

    targets: list[Value]
    nodes: list[Node]
    cotangents: dict[Value, Cotangent]
    order: dict[Value, Order]
    inner: Sequence[Sweep]


def arrivals(sweep: Sweep, looks_inside: NodeFilter) -> list[Arrival]:
    """Return the cotangents at the values of a sweep, in the order in which the values were computed.

    Loops and branches for which `looks_inside` holds are unrolled: the values of their iterations come before their results.
    """
    found, order = cotangents_of(sweep)
    return _merge_copies(_in_order(found, order, found, UnrolledLoops(), looks_inside))


def cotangents_of(sweep: Sweep) -> tuple[dict[Value, Cotangent], dict[Value, Order]]:
    """Return the cotangents of a sweep and of its inner sweeps by value, and when the values were computed.

    Values that a rule computes again are ordered by the result of the rule.
    """
    found = dict(sweep.arrived())
    order: dict[Value, Order] = {value: (_serial(value.node), np.inf) for value in found}
    for inner in sweep.inner:
        parts, inner_order = cotangents_of(inner)
        for value, part in parts.items():
            if value not in found and _has_data(part):
                found[value] = part
                order[value] = (_serial(inner.node), *inner_order[value])
    return found, order


def sweep_unrolled(
    node: Node, cotangents: Mapping[Value, Cotangent], loops: UnrolledLoops
) -> UnrolledSweep | None:
    """Unroll a loop or branch whose outputs have cotangents, and sweep back through it.

    None where its operands have no data, in a trace.
    """
    operands = node.inputs
    if any(trace_of(operand) is not None for operand in operands):
        return None
    compute_op_by_op(operands)
    parts = [cotangents.get(out) for out in node.outs]
    ends: list[tuple[Value, Cotangent]] = []
    last: list[Value] = []
    for iteration, outs in loops.unroll(node):
        last = outs
        if not isinstance(node.op, Switch):
            ends += [
                (outs[node.params["carries"] + y], _element(part, iteration))
                for output, part in enumerate(parts)
                if part is not None and (y := y_position(node, output)) is not None
            ]
    ends += [
        (end, part)
        for output, (end, part) in enumerate(zip(last, parts, strict=False))
        if part is not None and (isinstance(node.op, Switch) or y_position(node, output) is None)
    ]
    targets = [end for end, _ in ends]
    with inner_sweeps() as inner:
        sweep = reverse_sweep(
            targets,
            [operand for operand in operands if operand in cotangents],
            [part.value for _, part in ends],
            lambda value: False,
            set(operands),
            [part.mask for _, part in ends],
        )
    found, order = cotangents_of(replace(sweep, inner=inner))
    nodes, _ = extract(targets, operands, stop=lambda value: False)
    inside = {value: part for value, part in found.items() if value not in operands}
    return UnrolledSweep(targets, nodes, inside, order, inner)


def _in_order(
    cotangents: Mapping[Value, Cotangent],
    order: Mapping[Value, Order],
    visible: Mapping[Value, Cotangent],
    loops: UnrolledLoops,
    looks_inside: NodeFilter,
    loop: Node | None = None,
) -> list[Arrival]:
    """Return the arrivals at the values of `cotangents`; `visible` has those outside this loop as well."""
    found: list[Arrival] = []
    done: set[Node] = set()
    for value in sorted(cotangents, key=order.__getitem__):
        node = value.node
        if node is not None and isinstance(node.op, Structured) and node not in done and looks_inside(node):
            done.add(node)
            inside = sweep_unrolled(node, visible, loops)
            if inside is not None:
                own = {v: part for v, part in inside.cotangents.items() if v not in loops.elements}
                found += _in_order(
                    own, inside.order, {**visible, **inside.cotangents}, loops, looks_inside, node
                )
        if value.aval is not STACK:
            iterations = () if node is None else loops.iterations.get(node, ())
            found.append(Arrival(value, cotangents[value], iterations, loop))
    return found


def _merge_copies(found: Sequence[Arrival]) -> list[Arrival]:
    """Return arrivals in which the cotangents at copies of a named value of a loop are added.

    The derivative of a loop runs the loop again with more outputs. In a derivative of that, some cotangents arrive at a value, and others
    at its copy. Copies have the same site, of which each call in the user's code has an object of its own.
    """
    places: dict[tuple[int, str, Iterations], int] = {}
    merged: list[Arrival] = []
    for arrival in found:
        node, name = arrival.value.node, arrival.value.name
        if arrival.iterations and name is not None and node is not None and node.site is not None:
            place = places.setdefault((id(node.site), name, arrival.iterations), len(merged))
            if place < len(merged) and merged[place].loop is not arrival.loop:
                first = merged[place]
                both = first.cotangent.applied() + arrival.cotangent.applied()
                merged[place] = replace(first, cotangent=Cotangent(both))
                continue
        merged.append(arrival)
    return merged


def _serial(node: Node | None) -> int:
    return -1 if node is None else node.serial


def _element(part: Cotangent, iteration: int) -> Cotangent:
    """Return the cotangent of the element that one iteration wrote to a stacked output."""
    mask = None if part.mask is None else _read_element(part.mask, iteration)
    return Cotangent(_read_element(part.value, iteration), mask)


def _read_element(array: Value, iteration: int) -> Value:
    if array.aval is STACK:
        compute_op_by_op([array])
        assert array.data is not None
        return constant(np.asarray(array.data.item()[iteration]))
    return parse_index(array.shape, iteration).read(array)


def _has_data(part: Cotangent) -> bool:
    """Return whether a cotangent can be computed: a rule that is transposed is swept with placeholders."""
    _, leaves = extract([part.value])
    return all(leaf.data is not None for leaf in leaves)
