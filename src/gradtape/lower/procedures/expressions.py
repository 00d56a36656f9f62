"""Scalar code of procedures as instructions: values are computed where they are used, once for each block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gradtape.errors import LoweringError
from gradtape.ir.graph import Literal, Node, Value
from gradtape.kinds.elementwise import Elementwise, Libm
from gradtape.kinds.routines.callback import PythonCall
from gradtape.loops.ir import Const, Dtype
from gradtape.lower.llvm.function import FunctionEmitter, KernelModule
from gradtape.lower.llvm.instructions import constant_text, memory_type
from gradtape.lower.llvm.math import can_inline_scalar
from gradtape.lower.resident.callbacks import call_text
from gradtape.ops.core.elementwise.arithmetic import add, multiply, subtract
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.dataflow import depend_on
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
    Variable,
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


MOST_INLINED: Final = 64
"""Calls of mathematics that are inlined in one function, at 20 to 30 instructions each.

Measured on 1000 lines with a sine each, with its derivative: 20 s to compile with inlined calls, 0.9 s with others.
"""

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

    An element or a variable gets what it held, plus terms that do not depend on that. Between its assignments a variable may hand the sum
    on to others.
    """
    makers: dict[Content, Load | Read] = {s.out: s for s in walk(body) if isinstance(s, Load | Read)}
    found: dict[Value, Value] = {}
    paths: list[tuple[Variable, Variable, dict[Value, Value]]] = []
    for statement in walk(body):
        if not isinstance(statement, Assign | Store):
            continue
        for begin, path in _paths(statement, makers):
            maker = makers.get(begin)
            if isinstance(statement, Store):
                if isinstance(maker, Load) and _is_same_element(maker, statement):
                    found |= path
                    break
            elif isinstance(maker, Read):
                paths.append((maker.variable, statement.variable, path))
    reached = _reachable([(source, target) for source, target, _ in paths])
    for source, target, path in paths:
        if source is target or source in reached[target]:
            found |= path
    return found


def _paths(
    statement: Assign | Store, makers: dict[Content, Load | Read]
) -> Iterator[tuple[Value, dict[Value, Value]]]:
    """Yield the leaves to which the value of a statement adds terms, with the sums between, and their terms."""
    value = statement.value
    if isinstance(value, Pointer) or value.dtype.kind != "f":
        return
    pending: list[tuple[Value, dict[Value, Value]]] = [(value, {})]
    while pending:
        value, path = pending.pop()
        node = value.node
        if node is None:
            if not depend_on(list(path.values()), {value}):
                yield value, path
        elif node.op in (add, subtract):
            first, second = node.inputs
            pending.append((first, {**path, value: second}))
            if node.op is add and second.node is None:
                pending.append((second, {**path, value: first}))


def _reachable(edges: Sequence[tuple[Variable, Variable]]) -> dict[Variable, set[Variable]]:
    """Return the variables to which sums are handed on from each variable."""
    following: dict[Variable, set[Variable]] = {}
    for source, target in edges:
        following.setdefault(source, set()).add(target)
        following.setdefault(target, set())
    reached: dict[Variable, set[Variable]] = {}
    for start in following:
        seen: set[Variable] = set()
        pending = list(following[start])
        while pending:
            variable = pending.pop()
            if variable not in seen:
                seen.add(variable)
                pending += following[variable]
        reached[start] = seen
    return reached


def _is_same_element(load: Load, store: Store) -> bool:
    """Return whether a load and a store have the same pointer and index."""
    if load.pointer is not store.pointer:
        return False
    x, y = load.index, store.index
    return x is y or (isinstance(x, Literal) and isinstance(y, Literal) and bool(x.data == y.data))


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
