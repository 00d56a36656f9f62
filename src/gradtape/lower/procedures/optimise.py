"""Optimisation of procedures: the passes over graphs on the scalar code, and the removal of what is dead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.ir.graph import Graph, Literal, Node, Value, extract, literal
from gradtape.kinds.index_map import IndexMap
from gradtape.lower.procedures.accumulations import separate_accumulations
from gradtape.lower.procedures.complex import split_complex_procedure
from gradtape.lower.procedures.dead import remove_dead_statements
from gradtape.passes.pipeline import Pass
from gradtape.passes.rewrite import rewrite
from gradtape.passes.simplify.algebra import simplify_algebra
from gradtape.passes.simplify.cse import eliminate_common_subexpressions
from gradtape.passes.simplify.expand_formulas import expand_formulas
from gradtape.passes.simplify.fold import fold_constants
from gradtape.procedures.ir import (
    Content,
    For,
    If,
    Procedure,
    Statement,
    While,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import uses, walk


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


def optimise_procedure(procedure: Procedure) -> Procedure:
    """Return an equivalent procedure whose scalar code consists of primitive rows, without dead statements."""
    procedure = split_complex_procedure(remove_dead_statements(procedure))
    return separate_accumulations(remove_dead_statements(_with_passes(procedure)))


def _with_passes(procedure: Procedure) -> Procedure:
    """Return the procedure after the passes over all of its scalar code, as one graph."""
    operands: dict[Value, None] = {}
    for statement in walk(procedure.body):
        operands.update(dict.fromkeys(filter(_is_computed, uses(statement))))  # type: ignore[arg-type]
    operands.update(dict.fromkeys(filter(_is_computed, procedure.results)))  # type: ignore[arg-type]
    nodes, leaves = extract(operands)
    inputs = [leaf for leaf in leaves if leaf.data is None]
    graph = Graph(inputs, nodes, list(operands), procedure.name)
    for step in SCALAR_PASSES:
        graph = step(graph)
    copy = _Copy()
    copy.becomes.update(zip(operands, map(_plain, graph.outputs), strict=True))
    return Procedure(
        procedure.name,
        procedure.parameters,
        procedure.types,
        copy.block(procedure.body),
        [copy.content(result) for result in procedure.results],
        procedure.result_types,
    )


def _is_computed(content: Content) -> bool:
    """Return whether an operand is an expression, or a number that is no literal."""
    return isinstance(content, Value) and (content.is_made or content.data is not None)


def _plain(value: Value) -> Value:
    """Return a known number as a literal."""
    if value.data is not None and not isinstance(value, Literal):
        return literal(value.data, value.dtype)
    return value


class _Copy(Rewriter):
    """Copies statements, with other operands."""

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return copies of the statements of a block."""
        return list(map(self.any_statement, statements))

    def any_statement(self, statement: Statement) -> Statement:
        """Return a copy of a statement, with the blocks in it."""
        if isinstance(statement, For):
            return For(
                statement.index, self.value(statement.count), self.block(statement.body), statement.parallel
            )
        if isinstance(statement, While):
            condition = self.value(statement.condition)
            return While(condition, self.block(statement.test), self.block(statement.body))
        if isinstance(statement, If):
            condition = self.value(statement.condition)
            return If(condition, self.block(statement.then), self.block(statement.otherwise))
        return self.statement(statement)
