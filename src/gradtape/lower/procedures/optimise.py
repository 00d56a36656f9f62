"""Optimisation of procedures: the passes over graphs on the scalar code, and the removal of what is dead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from gradtape.ir.graph import Graph, Literal, Node, Value, extract, literal
from gradtape.kinds.index_map import IndexMap
from gradtape.lower.procedures.dead import remove_dead_statements
from gradtape.passes.pipeline import Pass
from gradtape.passes.rewrite import rewrite
from gradtape.passes.simplify.algebra import simplify_algebra
from gradtape.passes.simplify.cse import eliminate_common_subexpressions
from gradtape.passes.simplify.expand_formulas import expand_formulas
from gradtape.passes.simplify.fold import fold_constants
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    Content,
    For,
    If,
    Load,
    Pop,
    Procedure,
    Push,
    Read,
    Span,
    Statement,
    Store,
    While,
)
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
    procedure = remove_dead_statements(procedure)
    return remove_dead_statements(_with_passes(procedure))


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
    becomes: dict[Content, Content] = dict(zip(operands, map(_plain, graph.outputs), strict=True))
    copy = _Copy(becomes)
    return Procedure(
        procedure.name,
        procedure.parameters,
        procedure.types,
        copy.block(procedure.body),
        [copy(result) for result in procedure.results],
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


class _Copy:
    """Copies statements, with other operands."""

    def __init__(self, becomes: dict[Content, Content]) -> None:
        self._becomes = becomes

    def __call__(self, content: Content) -> Content:
        return self._becomes.get(content, content)

    def value(self, value: Value) -> Value:
        result = self._becomes.get(value, value)
        assert isinstance(result, Value)
        return result

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return copies of the statements of a block."""
        return [COPIES[type(statement)](self, statement) for statement in statements]

    def span(self, span: Span) -> Span:
        return Span(span.pointer, self.value(span.offset), span.aval)

    def load(self, s: Load) -> Load:
        return Load(s.out, s.pointer, self.value(s.index))

    def store(self, s: Store) -> Store:
        return Store(s.pointer, self.value(s.index), self.value(s.value))

    def read(self, s: Read) -> Read:
        return s

    def assign(self, s: Assign) -> Assign:
        return Assign(s.variable, self(s.value))

    def allocate(self, s: Allocate) -> Allocate:
        return Allocate(s.out, self.value(s.size), s.zero)

    def check(self, s: Check) -> Check:
        return Check(self.value(s.condition), s.error, s.message, s.site)

    def apply(self, s: Apply) -> Apply:
        inputs = [self.span(x) if isinstance(x, Span) else self.value(x) for x in s.inputs]
        return Apply(s.graph, tuple(inputs), tuple([self.span(x) for x in s.outputs]))

    def loop(self, s: For) -> For:
        return For(s.index, self.value(s.count), self.block(s.body), s.parallel)

    def loop_while(self, s: While) -> While:
        return While(self.value(s.condition), self.block(s.test), self.block(s.body))

    def branch(self, s: If) -> If:
        return If(self.value(s.condition), self.block(s.then), self.block(s.otherwise))

    def push(self, s: Push) -> Push:
        return Push(tuple(map(self, s.values)))

    def pop(self, s: Pop) -> Pop:
        return s


COPIES: Final[dict[type, Callable[[_Copy, Any], Statement]]] = {
    Load: _Copy.load,
    Store: _Copy.store,
    Read: _Copy.read,
    Assign: _Copy.assign,
    Allocate: _Copy.allocate,
    Check: _Copy.check,
    Apply: _Copy.apply,
    For: _Copy.loop,
    While: _Copy.loop_while,
    If: _Copy.branch,
    Push: _Copy.push,
    Pop: _Copy.pop,
}
