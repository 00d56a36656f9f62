"""Decisions by chance: a random number is compared with a value that is differentiated, ``np.where(rng.random(n) < p, 3.0, 1.0)``.

The probability of the outcome depends on the value, and the derivative of the outcome is zero: the derivative of a mean would lack this
part. So there is a warning if the target depends on the comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet, ref

import numpy as np

from gradtape.errors import GradtapeWarning, warn
from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Node, TraceTag, Value, extract
from gradtape.ir.types import is_inexact
from gradtape.lru import LRU
from gradtape.ops.core.elementwise.cast import convert_row, stop_gradient
from gradtape.ops.core.elementwise.floats import ceil, floor, rint, trunc
from gradtape.trace.jit.guards import Trace, trace_of
from gradtape.trace.random.draws import is_differentiated
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.log import sample_of
from gradtape.trace.source.sites import user_site

ROUNDING: Final = frozenset({floor, ceil, rint, trunc})

LOOKS: Final = 8
"""Times that targets of one line are looked at."""

FEW: Final = 64
"""Nodes behind a truth value that are looked at."""

of_samples: Final[WeakSet[Value]] = WeakSet()
"""Draws for the samples of `gt.expectation`, which raises an error where its derivative would lack a decision."""

_recent: Final[LRU[Any, bool]] = LRU(lambda: 1024)
"""The numbers that were drawn on tapes, by shape and sample: there a draw is an ndarray or a number, as NumPy returns it."""

_arrays: Final[deque[ref[Any]]] = deque(maxlen=16)
"""The last arrays among them."""

_asked: Final[LRU[Any, int]] = LRU(lambda: 1024)
"""How often targets of a line were looked at: on a tape, a loop differentiates the same again and again."""

_told: Final[WeakKeyDictionary[TraceTag, set[Any]]] = WeakKeyDictionary()
"""The places that were warned of, by the derivative's tag."""


def note_drawn(numbers: Any) -> None:
    """Remember numbers that were drawn on a tape."""
    array = np.asarray(numbers)
    if array.dtype.kind != "f" or not array.size:
        return
    _recent[array.shape, sample_of(array)] = True
    if isinstance(numbers, np.ndarray):
        _arrays.append(ref(numbers))


def _draws_of_traces() -> set[Value]:
    """Return what was drawn in the traces around."""
    drawn: set[Value] = set()
    for context in contexts.stack:
        if isinstance(context, Trace) and context.draws is not None:
            drawn.update(draw.value for draw in context.draws.calls if draw.value not in of_samples)
    return drawn


def _is_recent(value: Value) -> bool:
    data = value.data
    if data is None or value.dtype.kind != "f" or not len(_recent):
        return False
    array = np.asarray(data)
    if not array.size:
        return False
    if (array.shape, sample_of(array)) in _recent:
        return True
    wholes = [recent_array for reference in _arrays if (recent_array := reference()) is not None]
    return array.ndim == 0 and any(
        bool(np.any(recent_array == array)) for recent_array in wholes
    )  # ``u[i] < p``


def warn_of_chance(tag: TraceTag, targets: Sequence[Value], sources: Sequence[Value]) -> None:
    """Warn of the decisions by chance between sources and targets.

    Parameters
    ----------
    tag : TraceTag
        That of the derivative.
    targets, sources : sequence of Value
        What is differentiated, and in what.
    """
    draws = _draws_of_traces()
    if not draws and not _may_be_on_tape(targets):
        return

    def stop(value: Value) -> bool:
        return value in draws or (tag not in value.tags and trace_of(value) is None)

    nodes, _ = extract(targets, sources, stop)
    for node in _decisions(nodes, set(sources), set(draws)):
        _warn(tag, node.site)


def _may_be_on_tape(targets: Sequence[Value]) -> bool:
    """Return whether numbers were drawn on a tape, and targets of this line were not looked at before."""
    if not len(_recent):
        return False
    sites = [value.node.site for value in targets if value.node is not None]
    keys = [(site.code, site.instruction) for site in sites if hasattr(site, "instruction")]
    counts = [_asked.get(key) or 0 for key in keys]
    for key, count in zip(keys, counts, strict=True):
        _asked[key] = count + 1
    return min(counts, default=LOOKS) < LOOKS


def _decisions(nodes: Sequence[Node], active: set[Value], drawn: set[Value]) -> Iterator[Node]:
    """Yield the nodes that decide by chance; `active` and `drawn` become what depends on sources and on draws."""
    for node in nodes:
        actives = [value in active for value in node.inputs]
        draws = [value in drawn or (value.node is None and _is_recent(value)) for value in node.inputs]
        if any(actives) and any(draws):
            if _decides(node, actives, draws):
                yield node
            for body in bodies_of(node):
                pairs = list(
                    zip(
                        reversed(body.inputs),
                        zip(reversed(actives), reversed(draws), strict=True),
                        strict=False,
                    )
                )
                inner_active = {value for value, (is_active, _) in pairs if is_active}
                inner_drawn = {value for value, (_, is_drawn) in pairs if is_drawn}
                yield from _decisions(body.nodes, inner_active, inner_drawn)
        if any(actives) and node.op is not stop_gradient:
            active.update(out for out in node.outs if is_inexact(out.dtype))
        if any(draws):
            drawn.update(node.outs)


def _decides(node: Node, actives: Sequence[bool], draws: Sequence[bool]) -> bool:
    """Return whether a node compares a draw with a value that is differentiated, or rounds what depends on both."""
    if node.op in ROUNDING:
        return True
    if any(is_inexact(out.dtype) for out in node.outs):
        return False
    alone = [
        number
        for number, (active, draw) in enumerate(zip(actives, draws, strict=True))
        if draw and not active
    ]
    return bool(alone)


def warn_of_chance_in_branch(value: Value) -> None:
    """Warn if what Python asks for is decided by chance: the truth of a comparison of a random number with a value that is differentiated,
    or the integer part of a number that depends on both."""
    tag = next((tag for tag in value.tags if type(tag) is TraceTag and tag.recording), None)
    if tag is None:
        return
    draws = _draws_of_traces()
    if not draws and not len(_recent):
        return
    if value.dtype.kind == "f" and is_differentiated(value) and _comes_from(value, draws):
        _warn(tag, user_site(3))
        return
    ahead, visited = [value], set[Value]()
    while ahead and len(visited) < FEW:
        current = ahead.pop()
        node = current.node
        if current in visited or node is None:
            continue
        visited.add(current)
        if node.op is convert_row:
            ahead += node.inputs
            continue
        if not any(is_inexact(operand.dtype) for operand in node.inputs):
            ahead += node.inputs
            continue
        drawn = [_comes_from(operand, draws) for operand in node.inputs]
        moved = [is_differentiated(operand) for operand in node.inputs]
        if any(moved) and any(drawn) and _decides(node, moved, drawn):
            _warn(tag, user_site(3))
            return


def _comes_from(value: Value, draws: set[Value]) -> bool:
    ahead, visited = [value], set[Value]()
    while ahead and len(visited) < FEW:
        current = ahead.pop()
        if current in draws or _is_recent(current):
            return True
        if current in visited:
            continue
        visited.add(current)
        maker = current.maker()
        ahead += [] if maker is None else maker[1]
    return False


def _warn(tag: TraceTag, site: Any) -> None:
    """Warn of a line, once for each derivative."""
    key = (site.code, site.instruction) if hasattr(site, "instruction") else site
    warned = _told.setdefault(tag, set())
    if key in warned:
        return
    warned.add(key)
    warn(
        GradtapeWarning,
        "a random number is compared with a watched value, and the derivative does not see it",
        where=site,
        why="how often an outcome occurs depends on the value, but each outcome is a constant in derivatives",
        remedy="use gt.expectation (or gt.score_function) for the derivative of a mean; gt.stop_gradient(x) if this is intended",
    )
