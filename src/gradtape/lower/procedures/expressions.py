"""Scalar code of procedures as instructions: values are computed where they are used, once for each block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from gradtape.errors import LoweringError
from gradtape.ir.graph import Literal, Node, Value
from gradtape.kinds.elementwise import Elementwise, Instruction, Libm, SciPy
from gradtape.loops.ir import Const, Dtype
from gradtape.lower.llvm.function import FunctionEmitter, KernelModule
from gradtape.lower.llvm.instructions import constant_text, conversion
from gradtape.lower.llvm.math import can_inline_scalar, inline_scalar
from gradtape.ops.core.elementwise.arithmetic import add, multiply, subtract
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    For,
    Load,
    Pointer,
    Read,
    Span,
    Statement,
    Store,
)
from gradtape.procedures.traversal import walk


class ScalarEmitter(FunctionEmitter):
    """Writes the scalar code of a function.

    Attributes
    ----------
    known : list of dict
        The operands of what is known, a dictionary for each block around the present one.
    exact : set of Value
        Integers that do not overflow.
    sums : dict of Value to Value
        Sums whose order is free, with what each adds.
    inlines : bool
        Whether mathematics is inlined: it is not in loops that LLVM may vectorise, which call functions of vectors.
    """

    def __init__(self, module: KernelModule) -> None:
        super().__init__(module, {})
        self.known: list[dict[Content, str]] = [{}]
        self.exact: set[Value] = set()
        self.sums: dict[Value, Value] = {}
        self.inlines = True

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
                self.known[-1][value] = self._computed(node, value)
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
        if not isinstance(op, Elementwise) or op.is_formula:
            raise LoweringError(f"{op.name} is no primitive of procedures", where=node.site)
        body = op.body
        dtypes: tuple[Dtype, ...] = tuple([x.dtype for x in node.inputs])
        operands = tuple([self._find(x) or "" for x in node.inputs])
        if isinstance(body, Instruction) and "convert" in (body.real, body.signed):
            name = operands[0]
            for step in conversion(dtypes[0], out.dtype, operands[0]):
                name = self.let(step.format(name))
            return name
        if isinstance(body, SciPy) and out.dtype.itemsize == 4:
            wide = tuple([self.let(f"fpext float {operand} to double") for operand in operands])
            result = self.let(self.applied(body, dtypes, out.dtype, wide, False))
            return self.let(f"fptrunc double {result} to float")
        text = self.applied(body, dtypes, out.dtype, operands, out in self.sums)
        if isinstance(body, Libm) and self.inlines and can_inline_scalar(body.name, out.dtype):
            group = self.module.attribute("alwaysinline")
            symbol = inline_scalar(self.module, body.name)
            text = f"call double @{symbol}(double {operands[0]}) #{group}"
        if out in self.exact:
            text = _INTEGER.sub(r"\1 nsw ", text)
        return self.let(text)


_INTEGER: Final = re.compile(r"^(add|sub|mul) ")


def exact_integers(body: Sequence[Statement]) -> set[Value]:
    """Return the int64 sums, differences and products that are nothing but parts of indices, extents and trip counts.

    They do not overflow: an index is less than the extent of an array.
    """
    found: set[Value] = set()
    pending = [value for value in _positions(body) if value.is_made]
    while pending:
        value = pending.pop()
        if value in found or value.dtype.char not in "lq":
            continue
        node = value.node
        if node is None:
            continue
        if node.op in (add, subtract, multiply):
            found.add(value)
            pending += node.inputs
        elif node.op is where:
            pending += node.inputs[1:]
    return found


def _positions(body: Sequence[Statement]) -> Iterator[Value]:
    for statement in walk(body):
        if isinstance(statement, Load | Store):
            yield statement.index
        elif isinstance(statement, For):
            yield statement.count
        elif isinstance(statement, Allocate):
            yield statement.size
        elif isinstance(statement, Apply):
            for operand in (*statement.inputs, *statement.outputs):
                if isinstance(operand, Span):
                    yield operand.offset


def free_sums(body: Sequence[Statement]) -> dict[Value, Value]:
    """Return the sums that accumulate, with what each adds.

    A variable or an element gets what it held, plus terms that do not depend on that.
    """
    found: dict[Value, Value] = {}
    makers = {s.out: s for s in walk(body) if isinstance(s, Load | Read)}
    for statement in walk(body):
        if isinstance(statement, Assign | Store):
            found |= _accumulation(statement, makers)
    return found


def _accumulation(statement: Assign | Store, makers: dict[Content, Load | Read]) -> dict[Value, Value]:
    """Return the sums between what a statement writes and what stood there before, with their terms."""
    path: dict[Value, Value] = {}
    value = statement.value
    if isinstance(value, Pointer) or value.dtype.kind != "f":
        return {}
    while value.is_made:
        node = value.node
        assert node is not None
        if node.op not in (add, subtract):
            return {}
        first, second = node.inputs
        if node.op is add and _holds_former(makers.get(second), statement):
            first, second = second, first
        path[value] = second
        value = first
    if not _holds_former(makers.get(value), statement) or depend_on(list(path.values()), {value}):
        return {}
    return path


def added_terms(value: Value, sums: dict[Value, Value]) -> list[Value]:
    """Return what a free sum adds to what stood there before; the value itself if it is no free sum."""
    if value not in sums:
        return [value]
    terms: list[Value] = []
    while value in sums:
        terms.append(sums[value])
        node = value.node
        assert node is not None
        (value,) = [x for x in node.inputs if x is not terms[-1]]
    return terms


def _holds_former(maker: Load | Read | None, statement: Assign | Store) -> bool:
    """Return whether a leaf is what a statement overwrites."""
    if isinstance(statement, Assign):
        return isinstance(maker, Read) and maker.variable is statement.variable
    return (
        isinstance(maker, Load)
        and maker.pointer is statement.pointer
        and (maker.index is statement.index or _same_number(maker.index, statement.index))
    )


def _same_number(x: Value, y: Value) -> bool:
    return isinstance(x, Literal) and isinstance(y, Literal) and bool(x.data == y.data)


def depend_on(values: Sequence[Value], leaves: AbstractSet[Content]) -> bool:
    """Return whether one of several values is computed from one of the leaves."""
    seen: set[Value] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if value in leaves:
            return True
        if value not in seen:
            seen.add(value)
            made = value.maker()
            pending += () if made is None else made[1]
    return False
