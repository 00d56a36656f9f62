"""Pending values: which of them the user holds, and which are computed along with others."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from gradtape.ir.graph import Node, Value, extract
from gradtape.trace.jit.guards import Trace

MAX_HANDLES: Final = 4096
"""Handles that are noted: the last ones."""


class _LiveArrays(threading.local):
    """The arrays of this thread that were made with pending values.

    Attributes
    ----------
    handles : deque of weakref.ref
        References to them.
    only_requested : bool
        Whether nothing but the requested values is computed.
    """

    def __init__(self) -> None:
        self.handles: deque[weakref.ref[Any]] = deque(maxlen=MAX_HANDLES)
        self.only_requested = False


live_arrays: Final = _LiveArrays()


@contextmanager
def only_requested() -> Iterator[None]:
    """Compute nothing but the requested values: for tools that walk a record while they read its values."""
    before, live_arrays.only_requested = live_arrays.only_requested, True
    try:
        yield
    finally:
        live_arrays.only_requested = before


def live_pending() -> list[Value]:
    """Return the pending values that the user holds; those that leaked from a trace never have numbers."""
    return [
        value
        for reference in tuple(live_arrays.handles)  # a destructor may add to it
        if (handle := reference()) is not None
        and (value := handle._current).data is None
        and value._op is not None
        and not any(isinstance(tag, Trace) and tag.over for tag in value.tags)
    ]


def has_other_pending(node: Node) -> bool:
    """Return whether the user holds pending values that are no outputs of a node."""
    for reference in tuple(live_arrays.handles):  # a destructor may add to it
        handle = reference()
        if handle is None:
            continue
        value = handle._current
        if value.data is None and value._node is not node and value.is_made:
            return True
    live_arrays.handles.clear()
    return False


def forget_failed(failed: Sequence[Value]) -> None:
    """Drop the handles of values that could not be computed: a traceback keeps them, and with others they would fail again."""
    live_arrays.handles = deque(
        [
            reference
            for reference in tuple(live_arrays.handles)
            if (handle := reference()) is not None and not any(handle._current is value for value in failed)
        ],
        maxlen=MAX_HANDLES,
    )


def forget_computed() -> None:
    """Drop the handles whose values are not pending any more."""
    live_arrays.handles = deque(
        [
            reference
            for reference in tuple(live_arrays.handles)
            if (handle := reference()) is not None and handle._current.data is None
        ],
        MAX_HANDLES,
    )


def dependents(nodes: Sequence[Node], live: Sequence[Value]) -> list[Value]:
    """Return the live pending values that are computed from outputs of `nodes` by other nodes, and can be computed now.

    In a training loop the next weights are pending while the loss is read. Computed along with it, they need no gradients to be stored
    for later, and a step is one program, as it is in a jitted function.
    """
    done = set(nodes)
    pending = dict.fromkeys([value for value in live if value.node not in done])
    if not pending:
        return []
    reached = {out for node in nodes for out in node.outs}
    own = set(reached)
    more, leaves = extract(pending, own)
    unknown = {leaf for leaf in leaves if leaf.data is None}
    for node in more:
        if any(value in unknown for value in node.inputs):
            unknown.update(node.outs)
        elif any(value in reached for value in node.inputs):
            reached.update(node.outs)
    return [value for value in pending if value in reached]
