"""Arrays in the user's hands that wait to be computed, and which of them belong to work that is being done now."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ..ir.graph import Node, Value, extract

MANY: Final = 4096
"""Notes after which those of arrays that are gone are thrown away."""


class _Waiting(threading.local):
    def __init__(self) -> None:
        self.handles: list[weakref.ref[Any]] = []
        self.left_alone = False


_waiting = _Waiting()


def note(handle: weakref.ref[Any]) -> None:
    """Remember an array that was made and not computed."""
    handles = _waiting.handles
    handles.append(handle)
    if len(handles) > MANY:
        handles[:] = [reference for reference in handles[-MANY // 2 :] if reference() is not None]


@contextmanager
def left_alone() -> Iterator[None]:
    """Compute nothing but what is looked at: for tools that walk a record while they look at its numbers."""
    before, _waiting.left_alone = _waiting.left_alone, True
    try:
        yield
    finally:
        _waiting.left_alone = before


def followers(nodes: Sequence[Node]) -> list[Value]:
    """Return the waiting values that are computed from what `nodes` compute, if they can be computed now.

    In a training loop the next weights wait while the loss is looked at. Computed along with it, they need no gradients to be stored
    for later, and a step is one program, as it is in a jitted function.
    """
    if _waiting.left_alone:
        return []
    noted = [
        (reference, value)
        for reference in _waiting.handles
        if (handle := reference()) is not None and (value := handle.pending()) is not None
    ]
    _waiting.handles[:] = [reference for reference, _ in noted]
    if not noted:
        return []
    waiting = list(dict.fromkeys(value for _, value in noted))
    reached = {out for node in nodes for out in node.outs}
    own = set(reached)
    more, leaves = extract(waiting, own)
    if any(leaf.data is None for leaf in leaves):
        return []
    for node in more:
        if any(value in reached for value in node.inputs):
            reached.update(node.outs)
    return [value for value in waiting if value in reached and value not in own]
