"""Statements and expressions with other leaves."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.operands import conform
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    Content,
    For,
    If,
    Load,
    Pointer,
    Push,
    Span,
    Statement,
    Store,
    While,
)


class Rewriter:
    """Replaces leaves by values and pointers, and drops index maps of numbers and folds what is computed from literals.

    Attributes
    ----------
    becomes : dict of Content to Content
        By leaf, what stands for it; values that were rewritten are entered as well, so a leaf has to be entered before it is met.
    """

    def __init__(self) -> None:
        self.becomes: dict[Content, Content] = {}

    def unknown(self, content: Content) -> None:
        """Be told of a leaf that is not replaced."""

    def pointer(self, pointer: Pointer) -> Pointer:
        found = self.becomes.get(pointer)
        if found is None:
            self.unknown(pointer)
            return pointer
        assert isinstance(found, Pointer)
        return found

    def value(self, value: Value) -> Value:
        """Return a value in terms of other leaves."""
        becomes = self.becomes
        if isinstance(value, Literal):
            return value
        nodes, leaves = extract([value], stop=lambda x: not x.is_made or x in becomes)
        for content in leaves:
            if content not in becomes:
                self.unknown(content)
                becomes.setdefault(content, content)
        for node in nodes:
            inputs = tuple([becomes.get(operand, operand) for operand in node.inputs])
            if isinstance(node.op, IndexMap):  # of a number: formulas make such
                becomes[node.out] = inputs[0]
                continue
            if isinstance(node.op, Elementwise) and all(isinstance(x, Literal) for x in inputs):
                becomes[node.out] = conform(node.op(*inputs, **node.params), node.out.dtype, ())
                continue
            becomes.update(zip(node.outs, self.made(node, inputs), strict=True))  # type: ignore[arg-type]  # a Value is a Content
        result = becomes[value]
        assert isinstance(result, Value)
        return result

    def made(self, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        """Return what a node makes of other inputs."""
        return node.outs if inputs == node.inputs else node.copy(inputs).outs

    def content(self, content: Content) -> Content:
        return self.pointer(content) if isinstance(content, Pointer) else self.value(content)

    def span(self, span: Span) -> Span:
        return Span(self.pointer(span.pointer), self.value(span.offset), span.aval)

    def statement(self, statement: Statement) -> Statement:
        """Return a statement without blocks that uses other leaves, and defines the same ones."""
        if isinstance(statement, Load):
            pointer, index = self.pointer(statement.pointer), self.value(statement.index)
            return Load(statement.out, pointer, index, statement.site)
        if isinstance(statement, Store):
            pointer, index = self.pointer(statement.pointer), self.value(statement.index)
            return Store(pointer, index, self.value(statement.value), statement.site)
        if isinstance(statement, Assign):
            return Assign(statement.variable, self.content(statement.value), statement.site)
        if isinstance(statement, Allocate):
            return Allocate(statement.out, self.value(statement.size), statement.zero)
        if isinstance(statement, Check):
            condition = self.value(statement.condition)
            return Check(condition, statement.error, statement.message, statement.site)
        if isinstance(statement, Apply):
            inputs = [self.span(x) if isinstance(x, Span) else self.value(x) for x in statement.inputs]
            return Apply(statement.graph, tuple(inputs), tuple([self.span(x) for x in statement.outputs]))
        if isinstance(statement, Push):
            return Push(tuple([self.content(x) for x in statement.values]))
        return statement

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return the statements of a block, with those inside of them."""
        return list(map(self.any_statement, statements))

    def any_statement(self, statement: Statement) -> Statement:
        """Return a statement that uses other leaves, with the blocks in it."""
        if isinstance(statement, For):
            count = self.value(statement.count)
            return For(statement.index, count, self.block(statement.body), statement.parallel, statement.site)
        if isinstance(statement, While):
            test = self.block(statement.test)
            return While(self.value(statement.condition), test, self.block(statement.body))
        if isinstance(statement, If):
            condition = self.value(statement.condition)
            return If(condition, self.block(statement.then), self.block(statement.otherwise))
        return self.statement(statement)
