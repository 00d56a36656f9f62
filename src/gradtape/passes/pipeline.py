"""From the graph as traced to the graph that is lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..ir.graph import Graph
from ..ir.verify import verify
from .algebra import simplify
from .control import lift_barriers, open_custom_calls
from .cse import merge_equal
from .dce import drop_unused
from .expand_bodies import expand_bodies
from .factors import hoist_factors
from .fold import fold_numbers
from .inline_calls import inline_calls
from .operands import own_operands
from .product_sums import sum_before_products
from .rows_first import rows_first
from .slabs import slab_by_slab, slab_notes
from .transposes import absorb_transposes, pack_operands

Pass = Callable[[Graph], Graph]

PASSES: Final[tuple[Pass, ...]] = (
    inline_calls,
    open_custom_calls,
    drop_unused,
    expand_bodies,
    fold_numbers,
    merge_equal,
    simplify,
    fold_numbers,
    simplify,
    absorb_transposes,
    hoist_factors,
    sum_before_products,
    merge_equal,
    simplify,
    rows_first,
    slab_by_slab,
    simplify,
    absorb_transposes,
    merge_equal,
    pack_operands,
    merge_equal,
    own_operands,
    lift_barriers,
    drop_unused,
)
"""In this order: formulas open up, numbers fold, and what is equal is merged before and after what is
simple is simplified."""


NOTES: Final[dict[Pass, Callable[[Graph], list[str]]]] = {slab_by_slab: slab_notes}
"""What says why a pass changes a graph."""


def optimise(graph: Graph, *, check: bool = False, notes: list[str] | None = None) -> Graph:
    """Return an equivalent graph that consists of primitive rows.

    Parameters
    ----------
    graph : Graph
        As traced.
    check : bool
        Verify the graph after each pass.
    notes : list of str, optional
        Receives what passes say about what they did.

    Raises
    ------
    VerifyError
        Where a pass broke a rule; it is named.
    """
    for step in PASSES:
        before = graph
        graph = step(before)
        if notes is not None and graph is not before and step in NOTES:
            notes.extend(NOTES[step](before))
        if check:
            verify(graph, step.__name__)
    return graph
