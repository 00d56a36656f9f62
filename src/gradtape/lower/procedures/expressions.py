"""Scalar code of procedures as instructions: values are computed where they are used, once for each block."""

from __future__ import annotations

import re
from typing import Final

from gradtape.errors import LoweringError
from gradtape.ir.graph import Literal, Node, Value
from gradtape.kinds.elementwise import Elementwise, Libm
from gradtape.kinds.routines.callback import PythonCall
from gradtape.loops.ir import Const, Dtype
from gradtape.lower.llvm.function import MOST_INLINED, FunctionEmitter, KernelModule
from gradtape.lower.llvm.instructions import constant_text, memory_type
from gradtape.lower.llvm.math import can_inline_scalar
from gradtape.lower.resident.callbacks import call_text
from gradtape.procedures.ir import (
    Content,
    Statement,
)


class ScalarEmitter(FunctionEmitter):
    """Writes the scalar code of a function.

    Attributes
    ----------
    known : list of dict
        The operands of what is known, a dictionary for each block around the present one.
    exact : set of Value
        Integers that do not overflow.
    sums : dict of Value to Value
        Sums whose order is free, and the signs of whose zeros do not matter, with what each adds.
    inlines : bool
        Whether mathematics is inlined: it is not in loops that LLVM may vectorise, which call functions of vectors.
    in_loop : bool
        Whether code of a loop is appended. Only there LLVM inlines mathematics, up to `MOST_INLINED` times: longer code takes long to
        compile, and straight-line code calls once what a loop calls often.
    inlined : int
        How often it was inlined.
    makers : dict of str to Node or Statement
        What the registers are there for.
    """

    def __init__(self, module: KernelModule) -> None:
        super().__init__(module, {})
        self.known: list[dict[Content, str]] = [{}]
        self.exact: set[Value] = set()
        self.sums: dict[Value, Value] = {}
        self.inlines = True
        self.in_loop = False
        self.inlined = 0
        self.makers: dict[str, Node | Statement] = {}

    def set_operand(self, content: Content, operand: str) -> None:
        """Take note of the operand for a leaf."""
        self.known[-1][content] = operand

    def operand(self, content: Content) -> str:
        """Return the operand for a value or a pointer; what computes it is appended if it is not known yet."""
        found = self._find(content)
        if found is not None:
            return found
        assert isinstance(content, Value), f"{content} is not defined here"
        pending = [content]
        while pending:
            value = pending[-1]
            if self._find(value) is not None:
                pending.pop()
                continue
            node = value.node
            assert node is not None, f"{value} is not defined here"
            missing = [x for x in node.inputs if self._find(x) is None]
            if missing:
                pending += missing
            else:
                name = self.known[-1][value] = self._computed(node, value)
                self.makers.setdefault(name[1:], node)
                pending.pop()
        return self.known[-1][content]

    def _find(self, content: Content) -> str | None:
        if isinstance(content, Literal):
            assert content.data is not None
            return constant_text(Const(content.data.tobytes(), content.dtype))
        for known in reversed(self.known):
            if content in known:
                return known[content]
        return None

    def _computed(self, node: Node, out: Value) -> str:
        """Append what computes a value whose operands are known."""
        op = node.op
        if isinstance(op, PythonCall):
            return self._called(node, out)
        if not isinstance(op, Elementwise) or op.is_formula:
            raise LoweringError(f"{op.name} is no primitive of procedures", where=node.site)
        body = op.body
        dtypes: tuple[Dtype, ...] = tuple([x.dtype for x in node.inputs])
        operands = tuple([self._find(x) or "" for x in node.inputs])
        inlines: bool | None = None
        if self.inlines:
            self.inlined += (
                self.in_loop and isinstance(body, Libm) and can_inline_scalar(body.name, out.dtype)
            )
            inlines = self.in_loop and self.inlined <= MOST_INLINED
        text = self.computed(body, dtypes, out.dtype, operands, out in self.sums, inlines)
        if out in self.sums:
            text = text.replace(" reassoc ", " reassoc nsz ")
        if out in self.exact:
            text = _INTEGER.sub(r"\1 nsw ", text)
        return self.let(text)

    def _called(self, node: Node, out: Value) -> str:
        """Append what lets Python compute numbers, which it takes by address."""
        slots = [self.slot(memory_type(x.dtype)) for x in (*node.inputs, *node.outs)]
        for x, slot in zip(node.inputs, slots, strict=False):
            super().store_element(x.dtype, self._find(x) or "", slot)
        self.call_python(call_text(node), slots)
        for x, slot in zip(node.outs, slots[len(node.inputs) :], strict=True):
            self.known[-1][x] = self.let(self.loaded(x.dtype, slot))
        return self.known[-1][out]


_INTEGER: Final = re.compile(r"^(add|sub|mul) ")
