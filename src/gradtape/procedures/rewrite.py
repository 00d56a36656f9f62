"""Statements and expressions with other leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.operands import conform
from gradtape.procedures.builder import leaf
from gradtape.procedures.ir import Content, If, Pointer, Procedure, Statement
from gradtape.records import replaced

S = TypeVar("S", bound=Statement)


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

    def statement(self, statement: Statement) -> Statement:
        """Return a statement that uses other leaves, with the blocks in it, and defines the same ones."""
        return statement.with_parts(self.content, self.block)

    def defined(self, content: Content) -> Content:
        """Return a new leaf that stands for another one."""
        new: Content = (
            Pointer(content.name, content.memory) if isinstance(content, Pointer) else leaf(content.dtype)
        )
        self.becomes[content] = new
        return new

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return the statements of a block, with those inside them."""
        return list(map(self.statement, statements))

    def rewritten(self, procedure: Procedure) -> Procedure:
        """Return a procedure with its body and its results in terms of other leaves."""
        body = self.block(procedure.body)
        return replaced(procedure, body=body, results=list(map(self.content, procedure.results)))


class BlockPass:
    """Replaces the statements of a procedure by others, block by block.

    Attributes
    ----------
    count : int
        Of the changes.
    around : list of (Statement, bool)
        The statements around the block, the outermost first, each with whether it is in the first block of it.
    """

    def __init__(self) -> None:
        self.count = 0
        self.around: list[tuple[Statement, bool]] = []

    def rewritten(self, procedure: Procedure) -> Procedure:
        """Return a procedure with its blocks changed; the same procedure where nothing is."""
        body = self.block(procedure.body)
        return replaced(procedure, body=body) if self.count else procedure

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return the statements that take the place of those of a block."""
        return [new for statement in statements for new in self.replacements(statement)]

    def replacements(self, statement: Statement) -> list[Statement]:
        """Return the statements that take the place of one."""
        return [self.with_blocks(statement)]

    def with_blocks(self, statement: S) -> S:
        """Return a statement with its blocks changed."""
        return statement.with_parts(block=lambda body: self.block_in(statement, body))  # type: ignore[return-value]  # of its class

    def block_in(self, holder: Statement, body: Sequence[Statement]) -> list[Statement]:
        """Return what takes the place of the statements of a block that another statement holds."""
        self.around.append((holder, not isinstance(holder, If) or body is holder.then))
        changed = self.block(body)
        self.around.pop()
        return changed
