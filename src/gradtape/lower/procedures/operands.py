"""Scalar code of procedures as text: values are computed where they are used, once for each block."""

from __future__ import annotations

from abc import abstractmethod

from gradtape.errors import LoweringError
from gradtape.ir.graph import Literal, Node, Value
from gradtape.kinds.elementwise import Elementwise
from gradtape.procedures.ir import Content


class BlockOperands:
    """The operands of values and pointers, for writers of any language.

    Attributes
    ----------
    known : list of dict
        The operands of what is known, a dictionary for each block around the present one.
    """

    def __init__(self) -> None:
        self.known: list[dict[Content, str]] = [{}]

    @abstractmethod
    def literal_operand(self, literal: Literal) -> str:
        """Return the operand for a known number."""

    @abstractmethod
    def append_node(self, node: Node, out: Value) -> str:
        """Append what computes a value whose operands are known; return its operand."""

    def set_operand(self, content: Content, operand: str) -> None:
        """Take note of the operand for a leaf."""
        self.known[-1][content] = operand

    def operand(self, content: Content) -> str:
        """Return the operand for a value or a pointer; what computes it is appended if it is not known yet."""
        known = self.known_operand(content)
        if known is not None:
            return known
        pending = [content]
        while pending:
            value = pending[-1]
            if self.known_operand(value) is not None:
                pending.pop()
                continue
            assert isinstance(value, Value) and value.node is not None, f"{value!r} is not defined here"
            missing = [x for x in value.node.inputs if self.known_operand(x) is None]
            if missing:
                pending += missing
            else:
                self.set_operand(value, self.append_node(value.node, value))
                pending.pop()
        return self.known[-1][content]

    def known_operand(self, content: Content) -> str | None:
        """Return the operand for what needs no more code."""
        if isinstance(content, Literal):
            return self.literal_operand(content)
        return next((known[content] for known in reversed(self.known) if content in known), None)

    def operands_of(self, node: Node) -> list[str]:
        """Return the operands of a node, which are known."""
        return [self.known_operand(x) or "" for x in node.inputs]


def primitive_of(node: Node) -> Elementwise:
    """Return the op of a node that the passes over scalar code leave.

    Raises
    ------
    LoweringError
        If it is another one.
    """
    op = node.op
    if not isinstance(op, Elementwise) or op.is_formula:
        raise LoweringError(f"{op.name} is no primitive of procedures", where=node.site)
    return op
