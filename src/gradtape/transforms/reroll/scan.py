"""Rolling a loop with known trip count: the nodes of its iterations become a scan."""

from __future__ import annotations

from typing import NamedTuple

from gradtape.config import loop_policy
from gradtape.ir.body import Body
from gradtape.ir.builder import at
from gradtape.ir.graph import Value, literal
from gradtape.transforms.loops.ops import scan
from gradtape.transforms.loops.squares import with_squares
from gradtape.transforms.reroll.carries import (
    LoopCarries,
    LoopSummary,
    SeenGuard,
    all_guards_hold,
    final_chain,
    uses_of,
)
from gradtape.transforms.reroll.loop_builder import BodyValue, Invariant, LoopBuilder, PerIteration
from gradtape.transforms.reroll.per_iteration import written_elements
from gradtape.transforms.reroll.rewrite_state import filled


class ReplacedGuards(NamedTuple):
    """The guards that a loop replaces, and those that replace them.

    Attributes
    ----------
    removed : set of int
        The numbers of the replaced ones.
    remaining : list of tuple
        The number of the guard at whose position it stands, the value, and the expected number.
    """

    removed: set[int]
    remaining: list[tuple[int, Value, int]]


def roll_scan(
    loop: LoopBuilder, seen_guards: dict[tuple[int, int], SeenGuard]
) -> tuple[LoopSummary, ReplacedGuards]:
    """Replace the nodes of a loop by a scan.

    Parameters
    ----------
    loop : LoopBuilder
        The loop.
    seen_guards : dict
        All guards, by node and output.
    """
    uses = uses_of(loop, seen_guards)
    stacked = {
        key: loop.slots[key].value
        for key, iterations in uses.escapes.items()
        if isinstance(loop.slots[key], BodyValue) and final_chain(loop, key, iterations) is None
    }
    deferred = {
        slot: loop.body_value(write.v)
        for slot, write in loop.deferred_writes.items()
        if not isinstance(write.v, PerIteration)
    }
    holds = all_guards_hold(loop, uses.guards)
    carried = LoopCarries(loop)
    place_of_holds = 0
    if holds is not None:
        before, after = holds
        place_of_holds = carried.add(before, filled(literal(True), before), after)
    outs: tuple[Value, ...] = ()
    count = elements = 0
    if carried.inputs or stacked or deferred:
        outputs = [*carried.following, *stacked.values(), *deferred.values()]
        nodes, consts, elements_read, _ = loop.live_body(outputs, carried.inputs)
        body = Body([loop.index, *consts.values(), *carried.inputs, *elements_read.values()], nodes, outputs)
        with at(loop.template[0].site):
            recorded = scan(
                body,
                list(consts),
                carried.inits,
                list(elements_read),
                loop.trips,
                policy=loop_policy(),
            )
            outs = tuple(with_squares(recorded))
        count, elements = len(nodes), len(elements_read)
    stacks = dict(zip([*stacked, *deferred], outs[len(carried.inputs) :], strict=True))
    new = list(outs)
    results: list[tuple[Value, Value]] = []
    for key, iterations in uses.escapes.items():
        slot, output = key
        operand = loop.slots[key]
        whole = stacks.get(key) if isinstance(operand, BodyValue) else operand.value
        for number in iterations:
            old = loop.recording.nodes[loop.start + slot + number * loop.period].outs[output]
            place = carried.place(key, loop.trips - number)
            if isinstance(operand, Invariant):
                results.append((old, operand.value))
            elif place is not None and isinstance(operand, BodyValue):
                results.append((old, outs[place]))
            else:
                assert whole is not None
                loop.state.replace_by_element(old, whole, number)
        new += [] if whole is None else [whole]
    for slot, write in loop.deferred_writes.items():
        parts = write.v.value if isinstance(write.v, PerIteration) else stacks[slot]
        with at(write.node.site):
            final = written_elements(
                write.base, parts, write.starts, write.node.params["strides"], write.line
            )
        last = loop.recording.nodes[loop.start + slot + (loop.trips - 1) * loop.period]
        results.append((last.out, final))
        new.append(final)
    loop.state.place(new)
    for old, value in results:
        loop.state.replace(old, value)
    replaced = ReplacedGuards(set(), [])
    if holds is not None:
        removed = {guard.number for guards in uses.guards.values() for guard in guards}
        replaced = ReplacedGuards(removed, [(min(removed), outs[place_of_holds], 1)])
    return LoopSummary(
        loop.template[0].site, loop.trips, loop.trips, count, len(carried.inputs), elements
    ), replaced
