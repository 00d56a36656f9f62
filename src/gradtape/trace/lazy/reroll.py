"""Where loops that Python unrolled are rolled up: traces, records of tapes, and what a transform is about to differentiate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.config import config
from gradtape.ir.graph import Graph, Value, next_serial
from gradtape.trace.array.array import Array
from gradtape.trace.jit.guards import Guard, Mapped, Trace
from gradtape.trace.jit.loop_exits import condition_line, has_uncertain_exit
from gradtape.trace.lazy.instruments import CHECKS
from gradtape.trace.source.contexts import contexts, running_trace
from gradtape.transforms.observers import OBSERVERS
from gradtape.transforms.reroll.periods import MIN_SAVED
from gradtape.transforms.reroll.recording import nodes_since
from gradtape.transforms.reroll.roll import RecordedGuard, rolled, rolled_graph
from gradtape.trees import flatten, unflatten


def rolled_trace(graph: Graph, trace: Trace) -> tuple[Graph, list[Guard]]:
    """Return the graph of a trace with loops, and the guards that are left."""
    guards = trace.guards
    if not config.reroll or (len(graph.nodes) < MIN_SAVED and not trace.dynamic_trips):
        return graph, guards
    found = rolled_graph(
        graph, _recorded_guards(guards, trace), until=trace.dynamic_trips, declined=trace.declined
    )
    if found is None:
        return graph, guards
    whole, numbers, result = found
    trace.loops += result.loops
    left = [
        Guard(value, expected, guards[number].site)
        for number, (value, expected) in zip(numbers, whole.guards, strict=True)
    ]
    return whole, left


def _since(value: Value, moment: int) -> bool:
    return value.node is not None and value.node.serial >= moment


def _recorded_guards(guards: Sequence[Guard], trace: Trace | None) -> list[RecordedGuard]:
    if trace is None or not trace.dynamic_trips:
        return [RecordedGuard(guard.value, guard.expected) for guard in guards]
    return [
        RecordedGuard(
            guard.value,
            guard.expected,
            condition_line(guard.site),
            has_uncertain_exit(guard.site, trace.sites),
        )
        for guard in guards
    ]


def moment_now() -> int:
    """Return the moment from which `rolled_since` looks at what is recorded."""
    return next_serial()


def recorded_since(moment: int) -> Callable[[], int]:
    """Return what counts the operations recorded since a moment."""
    return lambda: next_serial() - moment


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
    until = any(isinstance(context, Trace) and context.dynamic_trips for context in contexts.stack)
    small = next_serial() - moment < MIN_SAVED and not until
    if small or not config.reroll or OBSERVERS or CHECKS:
        return list(values)
    traces = [
        context
        for context in contexts.stack
        if isinstance(context, Trace) and any(_since(guard.value, moment) for guard in context.guards)
    ]
    is_mapped = any(isinstance(tag, Mapped) for value in (*values, *starts) for tag in value.tags)
    if len(traces) > 1 or (traces and is_mapped):
        # Guarded values are outside the mapped function, and the loop would be inside it: `rolled_trace` makes the loop.
        return list(values)
    guards = traces[0].guards if traces else []
    looked = {number: guard for number, guard in enumerate(guards) if _since(guard.value, moment)}
    nodes = nodes_since([*values, *[guard.value for guard in looked.values()]], starts, moment)
    running, _ = running_trace()
    result = rolled(
        nodes,
        values,
        _recorded_guards(list(looked.values()), traces[0] if traces else None),
        until=until,
        declined=None if running is None else running.declined,
    )
    if result is None:
        return list(values)
    if running is not None:
        running.loops += result.loops
    numbers = list(looked)
    left = {numbers[number]: look for number, look in result.guards}
    if traces:
        traces[0].guards = [
            Guard(left[number].value, left[number].expected, guard.site) if number in left else guard
            for number, guard in enumerate(guards)
            if number in left or number not in looked
        ]
    return result.outputs


def with_loops(
    moment: int, targets: Sequence[Value], aux: Any, starts: Sequence[Value]
) -> tuple[list[Value], Any]:
    """Return what a function computed, and what else it returned, as `rolled_since` does."""
    leaves, spec = flatten(aux)
    recorded = [leaf.value for leaf in leaves if type(leaf) is Array]
    found = rolled_since(moment, [*targets, *recorded], starts)
    ends, values = found[: len(targets)], found[len(targets) :]
    if all(new is old for new, old in zip(values, recorded, strict=True)):
        return ends, aux
    rest = iter(values)
    return ends, unflatten(spec, [Array(next(rest)) if type(leaf) is Array else leaf for leaf in leaves])
