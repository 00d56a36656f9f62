"""Scalar code of procedures as instructions."""

from __future__ import annotations

import re
from typing import Final

from gradtape.ir.graph import Literal, Node, Value
from gradtape.kinds.elementwise import Libm
from gradtape.kinds.routines.callback import PythonCall
from gradtape.loops.ir import Const, Dtype
from gradtape.lower.llvm.function import MOST_INLINED, FunctionEmitter, KernelModule
from gradtape.lower.llvm.instructions import constant_text, memory_type
from gradtape.lower.llvm.math import can_inline_scalar
from gradtape.lower.procedures.operands import BlockOperands, primitive_of
from gradtape.lower.resident.callbacks import call_text
from gradtape.procedures.ir import Statement


class ScalarEmitter(FunctionEmitter, BlockOperands):
    """Writes the scalar code of a function.

    Attributes
    ----------
    exact : set of Value
        Integers that do not overflow.
    rounded_alike : set of Value
        Numbers that are rounded as written, by the functions for numbers.
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
        FunctionEmitter.__init__(self, module, {})
        BlockOperands.__init__(self)
        self.exact: set[Value] = set()
        self.rounded_alike: set[Value] = set()
        self.sums: dict[Value, Value] = {}
        self.inlines = True
        self.in_loop = False
        self.inlined = 0
        self.makers: dict[str, Node | Statement] = {}

    def literal_operand(self, literal: Literal) -> str:
        assert literal.data is not None
        return constant_text(Const(literal.data.tobytes(), literal.dtype))

    def append_node(self, node: Node, out: Value) -> str:
        if isinstance(node.op, PythonCall):
            name = self._called(node, out)
        else:
            name = self._computed(node, out)
        self.makers.setdefault(name[1:], node)
        return name

    def _computed(self, node: Node, out: Value) -> str:
        body = primitive_of(node).body
        dtypes: tuple[Dtype, ...] = tuple([x.dtype for x in node.inputs])
        inlines: bool | None = None
        is_alike = out in self.rounded_alike
        if self.inlines and not is_alike:
            self.inlined += (
                self.in_loop and isinstance(body, Libm) and can_inline_scalar(body.name, out.dtype)
            )
            inlines = self.in_loop and self.inlined <= MOST_INLINED
        text = self.computed(
            body, dtypes, out.dtype, tuple(self.operands_of(node)), out in self.sums, inlines, is_alike
        )
        if out in self.sums:
            text = text.replace(" reassoc ", " reassoc nsz ")
        if out in self.exact:
            text = _INTEGER.sub(r"\1 nsw ", text)
        return self.let(text)

    def _called(self, node: Node, out: Value) -> str:
        """Append what lets Python compute numbers, which it takes by address."""
        slots = [self.slot(memory_type(x.dtype)) for x in (*node.inputs, *node.outs)]
        for x, operand, slot in zip(node.inputs, self.operands_of(node), slots, strict=False):
            super().store_element(x.dtype, operand, slot)
        self.call_python(call_text(node), slots)
        for x, slot in zip(node.outs, slots[len(node.inputs) :], strict=True):
            self.set_operand(x, self.let(self.loaded(x.dtype, slot)))
        return self.known[-1][out]


_INTEGER: Final = re.compile(r"^(add|sub|mul) ")
