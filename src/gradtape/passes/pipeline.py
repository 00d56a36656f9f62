"""The passes from the graph as traced to the graph that is lowered."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from gradtape.errors import VerifyError
from gradtape.ir.body import Body, bodies_of
from gradtape.ir.budget import budget, graph_size
from gradtape.ir.graph import Graph
from gradtape.ir.varying import lengths_vary
from gradtape.ir.verifier import verify
from gradtape.kinds.control import Structured
from gradtape.passes.control.bodies import holds_bodies, in_bodies
from gradtape.passes.control.loop_fusion import fuse_loops
from gradtape.passes.control.loop_simplify import simplify_loops
from gradtape.passes.control.loop_trim import hoist_invariants, trim_loops
from gradtape.passes.layout.contract_transposes import fold_transposes, pack_operands
from gradtape.passes.layout.matmul_tiling import tile_matmuls, tiling_notes
from gradtape.passes.layout.operand_privatisation import privatise_operands
from gradtape.passes.layout.row_major import make_row_major
from gradtape.passes.layout.transpose_propagation import propagate_transposes
from gradtape.passes.simplify.algebra import simplify_algebra
from gradtape.passes.simplify.annotations import inline_custom_calls, remove_barriers
from gradtape.passes.simplify.callbacks import call_python
from gradtape.passes.simplify.cse import eliminate_common_subexpressions
from gradtape.passes.simplify.dce import eliminate_dead_code
from gradtape.passes.simplify.expand_correlations import expand_correlations
from gradtape.passes.simplify.expand_formulas import expand_formulas
from gradtape.passes.simplify.factors import hoist_factors, share_quotients
from gradtape.passes.simplify.fold import fold_constants
from gradtape.passes.simplify.inline_calls import inline_calls
from gradtape.passes.simplify.joins import slice_pieces
from gradtape.passes.simplify.masks import fold_masks
from gradtape.passes.simplify.primal_results import share_primal_results
from gradtape.passes.simplify.product_sums import drop_repeated_axes, sum_before_products
from gradtape.passes.simplify.subnormals import share_vanishing_weights
from gradtape.transforms.loops.budget import record_notes

Pass = Callable[[Graph], Graph]

PASSES: Final[tuple[Pass, ...]] = (
    inline_calls,
    inline_custom_calls,
    eliminate_dead_code,
    share_primal_results,
    hoist_invariants,
    simplify_loops,
    eliminate_common_subexpressions,
    share_primal_results,
    fuse_loops,
    fold_masks,
    trim_loops,
    expand_formulas,
    expand_correlations,
    fold_masks,
    fold_constants,
    eliminate_common_subexpressions,
    simplify_algebra,
    fold_constants,
    simplify_algebra,
    fold_transposes,
    hoist_factors,
    share_quotients,
    slice_pieces,
    sum_before_products,
    drop_repeated_axes,
    share_vanishing_weights,
    eliminate_common_subexpressions,
    simplify_algebra,
    make_row_major,
    tile_matmuls,
    simplify_algebra,
    propagate_transposes,
    fold_transposes,
    eliminate_common_subexpressions,
    pack_operands,
    eliminate_common_subexpressions,
    privatise_operands,
    call_python,
    remove_barriers,
    eliminate_dead_code,
)
"""All passes, in their order. The bodies of loops and branches take them up to `remove_barriers` where `trim_loops` stands, and the rest
before the graph that holds them does."""

FOR_SOME_LENGTHS: Final = frozenset(
    [slice_pieces, make_row_major, tile_matmuls, pack_operands, privatise_operands]
)
"""Passes that are left out where lengths vary: layouts that are faster for some."""

_LAST: Final = PASSES.index(remove_barriers)
"""From here on, no pass may merge equal computations: a barrier keeps them apart."""

NOTES: Final[dict[Pass, Callable[[Graph], list[str]]]] = {tile_matmuls: tiling_notes}
"""Functions that explain what a pass does to a graph."""


FREE_ROUNDS: Final = 2
"""Rounds over the bodies of loops that need not make them smaller: the first expands formulas, the second merges their common
subexpressions."""


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
    CompileBudgetError
        Where passes do not come to an end.
    """
    if check:
        verify(graph)
    if notes is not None:
        notes.extend(record_notes(graph))
    with budget(graph):
        return _finished(_prepared(graph, check, notes), check)


def merge(graph: Graph) -> Graph:
    """Return the graph with calls inlined and equal computations merged, and otherwise as traced: all other passes see it later.

    Raises
    ------
    CompileBudgetError
        Where passes do not come to an end.
    """
    with budget(graph):
        for step in PASSES[: PASSES.index(fuse_loops)]:
            graph = step(graph)
        return graph


def _prepared(graph: Graph, check: bool, notes: list[str] | None = None) -> Graph:
    """Run the passes up to the last ones, also on the bodies of loops and branches."""
    for step in PASSES[:_LAST]:
        if lengths_vary() and step in FOR_SOME_LENGTHS:
            continue
        before = graph
        graph = step(before)
        if notes is not None and graph is not before and step in NOTES:
            notes.extend(NOTES[step](before))
        if step is trim_loops:
            graph = _with_bodies(graph, check)
        if check and graph is not before:
            _verify_after(step, before, graph)
    return graph


def _verify_after(step: Pass, before: Graph, graph: Graph) -> None:
    """Verify the graph that a pass has returned, and that it computes what the one before does: arrays of the same shapes and dtypes."""
    verify(graph, step.__name__)
    for number, (old, new) in enumerate(zip(before.outputs, graph.outputs, strict=True)):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise VerifyError(
                f"output {number} is {new.aval!r} and was {old.aval!r}", why=f"after the pass {step.__name__}"
            )


def _with_bodies(graph: Graph, check: bool) -> Graph:
    """Prepare the bodies and trim the loops until nothing changes.

    The second round works on what the first one made of bodies as traced; from then on a round must leave less inside loops, or it
    is the last.
    """
    sizes: list[int] = []
    while holds_bodies(graph):
        before = graph
        graph = trim_loops(in_bodies(graph, lambda body: _prepared_body(body, check)))
        sizes.append(_size_inside(graph))
        if graph is before or (len(sizes) > FREE_ROUNDS and sizes[-1] >= sizes[-2]):
            break
    return graph


def _size_inside(graph: Graph) -> int:
    """Return the number of nodes in the bodies of a graph, and of the operands of its loops and branches."""
    holders = [node for node in graph.nodes if isinstance(node.op, Structured)]
    operands = sum(len(node.inputs) + len(node.outs) for node in holders)
    return operands + sum(graph_size(body) for node in holders for body in bodies_of(node))


@lru_cache(maxsize=256)
def _prepared_body(body: Body, check: bool) -> Body:
    prepared = _prepared(body, check)
    return Body(prepared.inputs, prepared.nodes, prepared.outputs, body.name)


def _finished(graph: Graph, check: bool) -> Graph:
    """Run the last passes, also on the bodies."""
    if holds_bodies(graph):
        graph = in_bodies(graph, lambda body: _finished_body(body, check))
    for step in PASSES[_LAST:]:
        before = graph
        graph = step(before)
        if check and graph is not before:
            _verify_after(step, before, graph)
    return graph


@lru_cache(maxsize=256)
def _finished_body(body: Body, check: bool) -> Body:
    finished = _finished(body, check)
    return Body(finished.inputs, finished.nodes, finished.outputs, body.name)
