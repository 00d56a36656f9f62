"""A loop of known length: the nodes of its turns become a scan."""

from __future__ import annotations

from typing import NamedTuple

from gradtape.config import rolling
from gradtape.ir.body import Body
from gradtape.ir.builder import at
from gradtape.ir.graph import Value, extract, literal
from gradtape.transforms.loops.ops import scan
from gradtape.transforms.reroll.carries import Carried, Seen, Summary, final_chain, held, uses_of
from gradtape.transforms.reroll.iteration import Fixed, Inner, Rows, Turn
from gradtape.transforms.reroll.per_iteration import written_rows
from gradtape.transforms.reroll.rewrite_state import spread_number


class Checked(NamedTuple):
    """The guards that a loop has taken over, and those that stand for them.

    Attributes
    ----------
    gone : set of int
        The numbers of the former.
    left : list of tuple
        The number of the one whose place it takes, the value, and what is expected.
    """

    gone: set[int]
    left: list[tuple[int, Value, int]]


def roll(turn: Turn, seen: dict[tuple[int, int], Seen]) -> tuple[Summary, Checked]:
    """Put a scan in the place of the nodes."""
    uses = uses_of(turn, seen)
    left = {
        key: turn.slots[key].value
        for key, turns in uses.escapes.items()
        if isinstance(turn.slots[key], Inner) and final_chain(turn, key, turns) is None
    }
    written = {
        slot: turn.inside(write.v) for slot, write in turn.written.items() if not isinstance(write.v, Rows)
    }
    good = held(turn, uses.looks)
    carried = Carried(turn)
    place_of_good = 0
    if good is not None:
        before, after = good
        place_of_good = carried.add(before, spread_number(literal(True), before), after)
    outs: tuple[Value, ...] = ()
    count = elements = 0
    if carried.inputs or left or written:
        ends = [*carried.following, *left.values(), *written.values()]
        nodes, _ = extract(
            ends, [turn.number, *turn.consts.values(), *carried.inputs, *turn.elements.values()]
        )
        needed = {value for node in nodes for value in node.inputs} | set(ends)
        consts = {outer: value for outer, value in turn.consts.items() if value in needed}
        rows = {outer: value for outer, value in turn.elements.items() if value in needed}
        body = Body([turn.number, *consts.values(), *carried.inputs, *rows.values()], nodes, ends)
        with at(turn.template[0].site):
            outs = scan(body, list(consts), carried.inits, list(rows), turn.trips, policy=rolling().policy)
        count, elements = len(nodes), len(rows)
    kept = dict(zip([*left, *written], outs[len(carried.inputs) :], strict=True))
    new = list(outs)
    results: list[tuple[Value, Value]] = []
    for key, turns in uses.escapes.items():
        slot, output = key
        operand = turn.slots[key]
        whole = kept.get(key) if isinstance(operand, Inner) else operand.value
        for number in turns:
            old = turn.recording.nodes[turn.start + slot + number * turn.period].outs[output]
            place = carried.place(key, turn.trips - number)
            if isinstance(operand, Fixed):
                results.append((old, operand.value))
            elif place is not None and isinstance(operand, Inner):
                results.append((old, outs[place]))
            else:
                assert whole is not None
                turn.world.becomes_element(old, whole, number)
        new += [] if whole is None else [whole]
    for slot, write in turn.written.items():
        parts = write.v.value if isinstance(write.v, Rows) else kept[slot]
        with at(write.node.site):
            final = written_rows(write.base, parts, write.starts, write.node.params["strides"], write.line)
        last = turn.recording.nodes[turn.start + slot + (turn.trips - 1) * turn.period]
        results.append((last.out, final))
        new.append(final)
    turn.world.place(new)
    for old, value in results:
        turn.world.becomes(old, value)
    checked = Checked(set(), [])
    if good is not None:
        gone = {look.number for looks in uses.looks.values() for look in looks}
        checked = Checked(gone, [(min(gone), outs[place_of_good], 1)])
    return Summary(
        turn.template[0].site, turn.trips, turn.trips, count, len(carried.inputs), elements
    ), checked
