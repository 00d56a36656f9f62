"""Where loops that Python unrolled are rolled up: traces, records of tapes, and what a transform is about to differentiate."""

from __future__ import annotations

from collections.abc import Sequence

from ..config import config
from ..ir.graph import Graph, Value, extract, next_serial
from ..transforms.observers import OBSERVERS
from ..transforms.reroll.periods import LEAST_SAVED
from ..transforms.reroll.roll import Look, Rolled, rolled, rolled_graph
from .contexts import contexts
from .guards import Guard, Trace
from .instruments import CHECKS


def rolled_trace(graph: Graph, guards: list[Guard]) -> tuple[Graph, list[Guard], Rolled | None]:
    """Return the graph of a trace with loops, and the guards that are left."""
    if not config.reroll or len(graph.nodes) < LEAST_SAVED:
        return graph, guards, None
    found = rolled_graph(graph)
    if found is None:
        return graph, guards, None
    whole, numbers, result = found
    left = [
        Guard(value, expected, guards[number].site)
        for number, (value, expected) in zip(numbers, whole.guards, strict=True)
    ]
    return whole, left, result


def moment_now() -> int:
    """Return the moment from which `rolled_since` looks at what is recorded."""
    return next_serial()


def rolled_since(moment: int, values: Sequence[Value], starts: Sequence[Value]) -> list[Value]:
    """Return values computed by loops where what was recorded since a moment repeats itself.

    Parameters
    ----------
    moment : int
        What `moment_now` returned.
    values : sequence of Value
        What is wanted.
    starts : sequence of Value
        What they are made of: these stay.
    """
    small = next_serial() - moment < LEAST_SAVED
    if small or not config.reroll or OBSERVERS or CHECKS:
        return list(values)
    known = set(starts)

    def outside(value: Value) -> bool:
        return value.node is None or value.node.serial < moment or value in known

    nodes, _ = extract(values, (), outside)
    own = set(nodes)
    traces = [
        context
        for context in contexts.stack
        if isinstance(context, Trace) and any(guard.value.node in own for guard in context.guards)
    ]
    if len(traces) > 1:
        return list(values)
    guards = traces[0].guards if traces else []
    looked = {number: guard for number, guard in enumerate(guards) if guard.value.node in own}
    result = rolled(nodes, values, [Look(guard.value, guard.expected) for guard in looked.values()])
    if result is None:
        return list(values)
    numbers = list(looked)
    left = {numbers[number]: look for number, look in result.looks}
    if traces:
        traces[0].guards = [
            Guard(left[number].value, left[number].expected, guard.site) if number in left else guard
            for number, guard in enumerate(guards)
            if number in left or number not in looked
        ]
    return result.ends
