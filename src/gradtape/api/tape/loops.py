"""A warning of loops of Python that a tape has recorded iteration by iteration, and that need not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from gradtape.errors import LongLoopWarning, warn
from gradtape.ir.graph import TraceTag, Value, extract, next_serial

LONG: Final = 50_000
"""Operations of a record from which a loop is worth a warning: to record and differentiate them takes about a second."""

REPEATED: Final = 1000
"""Operations of one line, of those, from which it is taken for a loop."""


def warn_of_long_loop(targets: Sequence[Value], first: int, tag: TraceTag) -> None:
    """Warn if targets were computed by a loop that goes on for long.

    Parameters
    ----------
    targets : sequence of Value
        What is about to be differentiated.
    first : int
        The serial number at which the record begins.
    tag : TraceTag
        The tape's.
    """
    if next_serial() - first < LONG:
        return
    nodes, _ = extract(targets, (), stop=lambda value: tag not in value.tags)
    if len(nodes) < LONG:
        return
    counts: Counter[Any] = Counter([_place(node.site) for node in nodes])
    place, count = counts.most_common(1)[0]
    if place is None or count < REPEATED:
        return
    site = next(node.site for node in nodes if _place(node.site) == place)
    warn(
        LongLoopWarning,
        f"a tape has recorded {len(nodes):,} operations, {count:,} of them at one place",
        where=site,
        why="on a tape each operation of each iteration is recorded and differentiated separately",
        remedy="put the loop into a function, f = gt.jit(f), and call that on the tape: its code is compiled whatever the number of "
        "iterations",
    )


def _place(site: Any) -> tuple[Any, Any] | None:
    code = getattr(site, "code", None)
    return None if code is None else (code, site.instruction)
