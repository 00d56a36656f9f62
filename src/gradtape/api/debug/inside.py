"""What arrived at every value of a sweep, in the turns of loops and in branches as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from gradtape.api.debug.unrolled import WrittenOut, left_place, work_out
from gradtape.ir.graph import Node, Value, constant, extract
from gradtape.kinds.control import Structured
from gradtape.kinds.cotangent import Cotangent
from gradtape.ops.core.indexing import parse_index
from gradtape.trace.jit.guards import trace_of
from gradtape.transforms.loops.ops import STACK, Switch
from gradtape.transforms.observers import Sweep, inner_sweeps
from gradtape.transforms.vjp import sweep_back

Looks: TypeAlias = Callable[[Node], bool]
Moment: TypeAlias = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Arrival:
    """What arrived at a value.

    Attributes
    ----------
    value : Value
        Where.
    cotangent : Cotangent
        What.
    turns : tuple of (str, int)
        In which loops, and in which of their turns, the innermost first.
    loop : Node or None
        The innermost loop or branch.
    """

    value: Value
    cotangent: Cotangent
    turns: tuple[tuple[str, int], ...] = ()
    loop: Node | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A loop or branch written out.

    Attributes
    ----------
    ends : list of Value
        The values at which something arrived from behind it.
    nodes : list of Node
        What computes them.
    met : dict of Value to Cotangent
        What arrived inside.
    moments : dict of Value to tuple
        When these were computed.
    inner : sequence of Sweep
        Those that rules made inside.
    """

    ends: list[Value]
    nodes: list[Node]
    met: dict[Value, Cotangent]
    moments: dict[Value, Moment]
    inner: Sequence[Sweep]


def arrivals(sweep: Sweep, looks_inside: Looks) -> list[Arrival]:
    """Return what arrived at the values of a sweep, in the order in which they were computed.

    Loops and branches for which `looks_inside` holds are written out: their turns come before their results.
    """
    met, moments = everything(sweep)
    return _united(_in_order(met, moments, met, WrittenOut(), looks_inside))


def everything(sweep: Sweep) -> tuple[dict[Value, Cotangent], dict[Value, Moment]]:
    """Return what arrived in a sweep and in those that were made on its way, and when the values were computed.

    What a rule computes again takes the moment of the rule's own result.
    """
    met = dict(sweep.arrived())
    moments: dict[Value, Moment] = {value: (_serial(value.node), np.inf) for value in met}
    for inner in sweep.inner:
        parts, when = everything(inner)
        for value, part in parts.items():
            if value not in met and _is_known(part):
                met[value] = part
                moments[value] = (_serial(inner.node), *when[value])
    return met, moments


def opened(node: Node, met: Mapping[Value, Cotangent], loops: WrittenOut) -> Opened | None:
    """Write out a loop or branch at whose results something arrived.

    None for what has no numbers yet.
    """
    operands = node.inputs
    if any(trace_of(operand) is not None for operand in operands):
        return None
    work_out(operands)
    arrived = [met.get(out) for out in node.outs]
    ends: list[tuple[Value, Cotangent]] = []
    last: list[Value] = []
    for turn, outs in loops.opened(node):
        last = outs
        if not isinstance(node.op, Switch):
            ends += [
                (outs[node.params["carries"] + left], _element(part, turn))
                for index, part in enumerate(arrived)
                if part is not None and (left := left_place(node, index)) is not None
            ]
    ends += [
        (end, part)
        for index, (end, part) in enumerate(zip(last, arrived, strict=False))
        if part is not None and (isinstance(node.op, Switch) or left_place(node, index) is None)
    ]
    targets = [end for end, _ in ends]
    with inner_sweeps() as inner:
        sweep = sweep_back(
            targets,
            [operand for operand in operands if operand in met],
            [part.value for _, part in ends],
            lambda value: False,
            set(operands),
            [part.mask for _, part in ends],
        )
    found, moments = everything(replace(sweep, inner=inner))
    nodes, _ = extract(targets, operands, stop=lambda value: False)
    own = {value: part for value, part in found.items() if value not in operands}
    return Opened(targets, nodes, own, moments, inner)


def _in_order(
    met: Mapping[Value, Cotangent],
    moments: Mapping[Value, Moment],
    around: Mapping[Value, Cotangent],
    loops: WrittenOut,
    looks_inside: Looks,
    loop: Node | None = None,
) -> list[Arrival]:
    """Return what is in `met`; `around` has what arrived outside of this turn as well."""
    found: list[Arrival] = []
    done: set[Node] = set()
    for value in sorted(met, key=moments.__getitem__):
        node = value.node
        if node is not None and isinstance(node.op, Structured) and node not in done and looks_inside(node):
            done.add(node)
            inside = opened(node, around, loops)
            if inside is not None:
                own = {v: part for v, part in inside.met.items() if v not in loops.elements}
                found += _in_order(own, inside.moments, {**around, **inside.met}, loops, looks_inside, node)
        if value.aval is not STACK:
            turns = () if node is None else loops.turns.get(node, ())
            found.append(Arrival(value, met[value], turns, loop))
    return found


def _united(found: Sequence[Arrival]) -> list[Arrival]:
    """Return what arrived with sums for named values of loops that ran twice.

    The derivative of a loop runs the loop again and leaves more of it: in a derivative of that, some of what arrives at a value arrives
    at its copy. That they are copies is known by their place, of which each call in the user's code has an object of its own.
    """
    places: dict[tuple[int, str, tuple[tuple[str, int], ...]], int] = {}
    united: list[Arrival] = []
    for arrival in found:
        node, name = arrival.value.node, arrival.value.name
        if arrival.turns and name is not None and node is not None and node.site is not None:
            place = places.setdefault((id(node.site), name, arrival.turns), len(united))
            if place < len(united) and united[place].loop is not arrival.loop:
                first = united[place]
                both = first.cotangent.applied() + arrival.cotangent.applied()
                united[place] = replace(first, cotangent=Cotangent(both))
                continue
        united.append(arrival)
    return united


def _serial(node: Node | None) -> int:
    return -1 if node is None else node.serial


def _element(part: Cotangent, turn: int) -> Cotangent:
    return Cotangent(_read(part.value, turn), None if part.mask is None else _read(part.mask, turn))


def _read(array: Value, turn: int) -> Value:
    if array.aval is STACK:
        work_out([array])
        assert array.data is not None
        return constant(np.asarray(array.data.item()[turn]))
    return parse_index(array.shape, turn).read(array)


def _is_known(part: Cotangent) -> bool:
    """Return whether there are numbers: a rule that is transposed is swept with stand-ins."""
    _, leaves = extract([part.value])
    return all(leaf.data is not None for leaf in leaves)
