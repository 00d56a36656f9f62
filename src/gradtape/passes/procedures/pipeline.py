"""Optimisation of procedures: the passes over graphs on the scalar code, and the removal of dead code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from gradtape.ir.budget import allow
from gradtape.ir.graph import Graph, Literal, Node, Value, extract, literal
from gradtape.kinds.index_map import IndexMap
from gradtape.passes.complex.procedures import split_complex_procedure
from gradtape.passes.pipeline import Pass
from gradtape.passes.procedures.accumulations import separate_accumulations
from gradtape.passes.procedures.bounds import decide_comparisons
from gradtape.passes.procedures.branch_sinking import sink_into_branches
from gradtape.passes.procedures.dead import remove_dead_statements, remove_resets
from gradtape.passes.procedures.double_buffers import exchange_arrays
from gradtape.passes.procedures.forwarding import forward_elements
from gradtape.passes.procedures.fusion import fuse_loops
from gradtape.passes.procedures.interchange import interchange_loops
from gradtape.passes.procedures.parallelise import divide_loops
from gradtape.passes.procedures.product_blocking import block_products
from gradtape.passes.procedures.records import merge_records
from gradtape.passes.procedures.splitting import split_loops
from gradtape.passes.rewrite import rewrite
from gradtape.passes.simplify.algebra import simplify_algebra
from gradtape.passes.simplify.cse import eliminate_common_subexpressions
from gradtape.passes.simplify.expand_formulas import expand_formulas
from gradtape.passes.simplify.fold import fold_constants
from gradtape.procedures.ir import Procedure
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import roots
from gradtape.procedures.verifier import verify_procedure

ProcedurePass: TypeAlias = Callable[[Procedure], Procedure]
"""Returns the same procedure where there is nothing to do."""


def drop_index_maps(graph: Graph) -> Graph:
    """Return the graph without index maps of numbers, which formulas make."""
    return rewrite(graph, _number_itself)


def _number_itself(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    if isinstance(node.op, IndexMap) and inputs[0].shape == () == node.out.shape:
        return inputs[:1]
    return None


SCALAR_PASSES: Final[tuple[Pass, ...]] = (
    eliminate_common_subexpressions,
    expand_formulas,
    drop_index_maps,
    fold_constants,
    eliminate_common_subexpressions,
    simplify_algebra,
    fold_constants,
    simplify_algebra,
    eliminate_common_subexpressions,
)
"""The passes that concern numbers, in their order."""


def optimise_procedure(procedure: Procedure, *, check: bool = False) -> Procedure:
    """Return an equivalent procedure whose scalar code consists of primitive rows, without dead statements.

    Parameters
    ----------
    procedure : Procedure
        As translated, or as a transform made it.
    check : bool
        Verify the procedure before the first pass and after each.

    Raises
    ------
    VerifyError
        Where a pass broke a rule; it is named.
    """
    allow(len(extract(roots(procedure))[0]))
    if check:
        verify_procedure(procedure, "the transforms")
    for step in PASSES:
        procedure = step(procedure)
        if check:
            verify_procedure(procedure, step.__name__)
    return procedure


def simplify_scalars(procedure: Procedure) -> Procedure:
    """Return the procedure after the passes over all of its scalar code, as one graph."""
    operands = dict.fromkeys([x for x in roots(procedure) if x.is_made or x.data is not None])
    nodes, leaves = extract(operands)
    inputs = [leaf for leaf in leaves if leaf.data is None]
    graph = Graph(inputs, nodes, list(operands), procedure.name)
    for step in SCALAR_PASSES:
        graph = step(graph)
    copy = Rewriter()
    copy.becomes.update(zip(operands, map(_plain, graph.outputs), strict=True))
    return copy.rewritten(procedure)


def _plain(value: Value) -> Value:
    """Return a known number as a literal."""
    if value.data is not None and not isinstance(value, Literal):
        return literal(value.data, value.dtype)
    return value


def followed_by(step: ProcedurePass, *others: ProcedurePass) -> ProcedurePass:
    """Return a pass that ends with other ones if it has changed something."""

    @functools.wraps(step)
    def run(procedure: Procedure) -> Procedure:
        changed = step(procedure)
        if changed is procedure:
            return procedure
        for other in others:
            changed = other(changed)
        return changed

    return run


def fuse_and_forward(procedure: Procedure) -> Procedure:
    """Return the procedure with loops fused, and without the loads and arrays that hand on what is known."""
    return forward_elements(fuse_loops(procedure))


eliminate_checks = followed_by(decide_comparisons, simplify_scalars, remove_dead_statements)
"""Removes the checks of indices, and the choices by them, that bounds of loops decide."""

PASSES: Final[tuple[ProcedurePass, ...]] = (
    remove_dead_statements,
    split_complex_procedure,
    simplify_scalars,
    merge_records,
    remove_dead_statements,
    eliminate_checks,
    followed_by(block_products, simplify_scalars),
    followed_by(fuse_and_forward, simplify_scalars, remove_dead_statements),
    followed_by(interchange_loops, simplify_scalars),
    followed_by(split_loops, eliminate_checks),
    followed_by(sink_into_branches, forward_elements, remove_dead_statements),
    followed_by(exchange_arrays, remove_dead_statements),
    followed_by(remove_resets, remove_dead_statements),
    followed_by(divide_loops, simplify_scalars),
    followed_by(separate_accumulations, remove_dead_statements),
)
"""The passes over procedures, in their order."""
