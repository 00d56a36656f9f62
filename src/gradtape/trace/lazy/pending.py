"""Arrays in the user's hands that wait to be computed, and which of them belong to work that is being done now."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from gradtape.ir.graph import Node, Value, extract

MANY: Final = 4096
"""Arrays that are remembered: the last ones."""


class _Waiting(threading.local):
    """The arrays of this thread that were made and not computed.

    Attributes
    ----------
    handles : deque of weakref.ref
        References to them.
    left_alone : bool
        Whether nothing but what is looked at is to be computed.
    """

    def __init__(self) -> None:
        self.handles: deque[weakref.ref[Any]] = deque(maxlen=MANY)
        self.left_alone = False


waiting: Final = _Waiting()


@contextmanager
def left_alone() -> Iterator[None]:
    """Compute nothing but what is looked at: for tools that walk a record while they look at its numbers."""
    before, waiting.left_alone = waiting.left_alone, True
    try:
        yield
    finally:
        waiting.left_alone = before


def others(node: Node) -> bool:
    """Return whether arrays wait that are not computed by this node."""
    for reference in tuple(waiting.handles):  # a destructor may add to it
        handle = reference()
        if handle is None:
            continue
        value = handle._current
        if value.data is None and value._node is not node and value.is_made:
            return True
    waiting.handles.clear()
    return False


def held_pending() -> list[Value]:
    """Return the pending values that the user holds."""
    return [
        value
        for reference in tuple(waiting.handles)  # a destructor may add to it
        if (handle := reference()) is not None
        and (value := handle._current).data is None
        and value._op is not None
    ]


def forget_computed() -> None:
    """Forget the handles whose values are not pending any more."""
    waiting.handles = deque(
        [
            reference
            for reference in tuple(waiting.handles)
            if (handle := reference()) is not None and handle._current.data is None
        ],
        MANY,
    )


def followers(nodes: Sequence[Node], held: Sequence[Value]) -> list[Value]:
    """Return the pending values that the user holds and that are computed from what `nodes` compute, if they can be computed now.

    In a training loop the next weights wait while the loss is looked at. Computed along with it, they need no gradients to be stored
    for later, and a step is one program, as it is in a jitted function.
    """
    done = set(nodes)
    pending = dict.fromkeys([value for value in held if value.node not in done])
    if not pending:
        return []
    reached = {out for node in nodes for out in node.outs}
    own = set(reached)
    more, leaves = extract(pending, own)
    if any(leaf.data is None for leaf in leaves):
        return []
    for node in more:
        if any(value in reached for value in node.inputs):
            reached.update(node.outs)
    return [value for value in pending if value in reached]
