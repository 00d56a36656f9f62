"""Vectorised short loops: loops inside sequential loops, as straight-line vector instructions.

LLVM's loop vectoriser leaves the iterations that do not fill a vector to scalar code, and what one short loop stores and the next one
loads it leaves in memory. Here 14 numbers are two vectors, of the second of which six lanes are in use; small arrays that all loops take
as a whole stay in registers from iteration to iteration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gradtape.kinds.elementwise import Instruction, Libm
from gradtape.loops.affine import Position, substitute
from gradtape.loops.ir import Assign, Buffer, Compute, Const, Dtype, For, Load, Number, Register, Store
from gradtape.loops.passes.monoids import identity
from gradtape.lower.llvm.function import FunctionEmitter
from gradtape.lower.llvm.instructions import (
    constant_text,
    conversion,
    memory_type,
    operation,
    reciprocal,
    register_type,
)
from gradtape.lower.llvm.math import inline_vectors
from gradtape.lower.llvm.vector_plans import (
    REDUCTIONS,
    Slot,
    VectorPlan,
    combining,
    plan_vectors,
    step_of,
    width_of,
)
from gradtape.lower.llvm.writer import PURE
from gradtape.lower.target.vecmath import INLINE, vector_attribute

_IDENTITY: Final = {"logical_or": "or", "logical_and": "and"}

_TYPE: Final = r"(?<![\w.%@<])(double|float|i1|i8|i16|i32|i64)(?![\w.])"
_TOKEN: Final = re.compile(rf"{_TYPE}|(?<= )(-?\d+(?:\.\d+)?|true|false)(?=,|$)")


def emit_vectors(function: FunctionEmitter, loop: For) -> bool:
    """Append a loop as vector instructions; return whether that was possible."""
    plan = plan_vectors(loop)
    if plan is None:
        return False
    _LoopWriter(function, plan).write_loop(loop)
    return True


class VectorWriter:
    """Writes operations on `size` numbers as vector instructions.

    Attributes
    ----------
    width : int
        The lanes of a vector.
    counts : list of int
        How many lanes of each vector are in use.
    names : dict of str to list of str
        The vectors of a register.
    """

    def __init__(self, function: FunctionEmitter, size: int) -> None:
        self.function = function
        self.width = width_of(size)
        self.counts = [min(self.width, size - start) for start in range(0, size, self.width)]
        self.names: dict[str, list[str]] = {}
        self.splats: dict[str, list[str]] = {}

    def type(self, scalar: str) -> str:
        return f"<{self.width} x {scalar}>"

    def constant(self, type_: str, text: str) -> str:
        return f"<{', '.join([f'{type_} {text}'] * self.width)}>"

    def mask(self, count: int) -> str:
        """Return the mask of the first `count` lanes."""
        lanes = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(self.width))
        return f"<{lanes}>"

    def read(self, buffer: Buffer, start: Position) -> list[str]:
        """Append the loads of all vectors."""
        function, type_ = self.function, self.type(memory_type(buffer.dtype))
        pieces = []
        for k, count in enumerate(self.counts):
            address = function.pointer(buffer, start + k * self.width)
            if count == self.width:
                pieces.append(function.let(f"load {type_}, ptr {address}, align {buffer.dtype.itemsize}"))
                continue
            name = f"llvm.masked.load.v{self.width}{_suffix(memory_type(buffer.dtype))}.p0"
            operands = (*self._masked(buffer, address, count), f"{type_} zeroinitializer")
            pieces.append(function.call(type_, name, *operands))
        return pieces

    def write(self, buffer: Buffer, start: Position, pieces: Sequence[str]) -> None:
        """Append the stores of all vectors."""
        function, type_ = self.function, self.type(memory_type(buffer.dtype))
        for k, (count, piece) in enumerate(zip(self.counts, pieces, strict=True)):
            address = function.pointer(buffer, start + k * self.width)
            if count == self.width:
                function.emit(f"store {type_} {piece}, ptr {address}, align {buffer.dtype.itemsize}")
                continue
            name = f"llvm.masked.store.v{self.width}{_suffix(memory_type(buffer.dtype))}.p0"
            function.call("void", name, f"{type_} {piece}", *self._masked(buffer, address, count))

    def _masked(self, buffer: Buffer, address: str, count: int) -> tuple[str, ...]:
        """Return the address, the alignment and the mask of a masked load or store."""
        return f"ptr {address}", f"i32 {buffer.dtype.itemsize}", f"{self.type('i1')} {self.mask(count)}"


class _LoopWriter(VectorWriter):
    """Writes one loop."""

    def __init__(self, function: FunctionEmitter, plan: VectorPlan) -> None:
        super().__init__(function, plan.trip_count)
        self.plan = plan

    def write_loop(self, loop: For) -> None:
        combined = {step.target.name for step in self.plan.totals.values()}
        for statement in loop.body:
            if isinstance(statement, Load):
                self._load(statement)
            elif isinstance(statement, Store):
                self._store(statement)
            elif isinstance(statement, Assign):
                self._combine(statement)
            elif isinstance(statement, Compute) and statement.target.name not in combined:
                self._compute(statement)

    def _start(self, position: Position) -> Position:
        return substitute(position, {self.plan.var: self.plan.var.low})

    def _slot(self, buffer: Buffer, start: Position) -> Slot | None:
        return self.function.slots.get((buffer, start)) if isinstance(start, int) else None

    def _load(self, statement: Load) -> None:
        function, buffer = self.function, statement.buffer
        start = self._start(statement.index)
        if step_of(statement.index, self.plan.var) == 0:
            function.statement(Load(statement.target, buffer, start))
            return
        type_ = self.type(memory_type(buffer.dtype))
        slot = self._slot(buffer, start)
        if slot is None:
            pieces = self.read(buffer, start)
        else:
            pieces = [function.let(f"load {type_}, ptr {piece}") for piece in slot.pieces()]
        if buffer.dtype.kind == "b":
            pieces = [function.let(f"icmp ne {type_} {piece}, zeroinitializer") for piece in pieces]
        self.names[statement.target.name] = pieces

    def _store(self, statement: Store) -> None:
        function, buffer = self.function, statement.buffer
        pieces = self._vector(statement.value)
        start = self._start(statement.index)
        type_ = self.type(memory_type(buffer.dtype))
        if buffer.dtype.kind == "b":
            pieces = [function.let(f"zext {self.type('i1')} {piece} to {type_}") for piece in pieces]
        slot = self._slot(buffer, start)
        if slot is None:
            self.write(buffer, start, pieces)
            return
        for name, piece in zip(slot.pieces(), pieces, strict=True):
            function.store(type_, piece, name)

    def _compute(self, statement: Compute) -> None:
        function, target, body = self.function, statement.target, statement.body
        if target.name not in self.plan.wide:
            function.statement(statement)
            return
        args = list(zip(*[self._vector(arg) for arg in statement.args], strict=True))
        dtypes = tuple(arg.dtype for arg in statement.args)
        if body is None:
            vectors_of_target = [piece[0] for piece in args]
        elif isinstance(body, Libm):
            vectors_of_target = [
                self._called(body, target.dtype, piece, count)
                for piece, count in zip(args, self.counts, strict=True)
            ]
        elif isinstance(body, Instruction) and "convert" in (body.real, body.signed):
            vectors_of_target = [piece[0] for piece in args]
            for step in conversion(dtypes[0], target.dtype, "%arg0"):
                vectors_of_target = [
                    self._bound(step.replace("{}", "%arg0"), [piece]) for piece in vectors_of_target
                ]
        elif (factors := _factors(statement)) is not None:
            element = register_type(target.dtype)
            high, low = (self.constant(element, factor) for factor in factors)
            wide, name = self.type(element), f"llvm.fma.v{self.width}{_suffix(element)}"
            vectors_of_target = []
            for piece in args:
                tail = function.let(f"fmul {wide} {piece[0]}, {low}")
                vectors_of_target.append(
                    function.call(wide, name, f"{wide} {piece[0]}", f"{wide} {high}", f"{wide} {tail}")
                )
        else:
            holes = tuple(f"%arg{k}" for k in range(len(dtypes)))
            text = operation(body, dtypes, target.dtype, holes, statement.reassociate)
            vectors_of_target = [self._bound(text, piece) for piece in args]
        self.names[target.name] = vectors_of_target

    def _bound(self, text: str, args: Sequence[str]) -> str:
        """Append a scalar instruction in its vector form."""
        last = ""

        def wide(match: re.Match[str]) -> str:
            nonlocal last
            if match[1]:
                last = match[1]
                return self.type(last)
            return self.constant(last, match[2])

        if text.startswith("call"):
            text = re.sub(_TYPE, lambda match: self.type(match[1]), text).replace(
                f"{self.type('i1')} false)", "i1 false)"
            )
            text = re.sub(r"\.([fi]\d+)\(", rf".v{self.width}\1(", text)
            result, _, tail = text.partition("@")
            name, _, operands = tail.partition("(")
            types = ", ".join(re.findall(r"<[^>]*>|i1(?= false)", operands))
            result = result[result.index("<") : result.index(">") + 1]
            self.function.module.declare(f"declare {result} @{name}({types})")
        else:
            text = _TOKEN.sub(wide, text)
        for k, arg in enumerate(args):
            text = re.sub(rf"%arg{k}\b", lambda _, arg=arg: arg, text)  # type: ignore[misc]
        return self.function.let(text)

    def _combine(self, statement: Assign) -> None:
        function, target = self.function, statement.target
        step = self.plan.totals[target.name]
        type_ = register_type(target.dtype)
        name = combining(step)
        assert name is not None
        pieces = self._vector(step.args[1])
        if self.counts[-1] < self.width:
            none = identity(_IDENTITY.get(step.function, step.function), target.dtype)
            nothing = self.constant(type_, constant_text(none))
            wide = self.type(type_)
            chosen = f"{self.type('i1')} {self.mask(self.counts[-1])}, {wide} {pieces[-1]}, {wide} {nothing}"
            pieces = [*pieces[:-1], function.let(f"select {chosen}")]
        text = operation(step.body, (target.dtype,) * 2, target.dtype, ("%arg0", "%arg1"), step.reassociate)
        vector = pieces[0]
        for piece in pieces[1:]:
            vector = self._bound(text, [vector, piece])
        before = function.number(target)
        total = self._reduced(step, REDUCTIONS[name], type_, before, vector)
        function.store(type_, total, f"%{target.name}.slot")

    def _reduced(self, step: Compute, reduction: str, type_: str, before: str, vector: str) -> str:
        function, wide = self.function, self.type(type_)
        name = f"llvm.vector.reduce.{reduction}.v{self.width}{_suffix(type_)}"
        if reduction in ("fadd", "fmul"):
            return function.call(
                type_, name, f"{type_} {before}", f"{wide} {vector}", flags=" reassoc contract"
            )
        flags = " nsz" if reduction in ("fmaximum", "fminimum") else ""
        reduced = function.call(type_, name, f"{wide} {vector}", flags=flags)
        dtype = step.target.dtype
        return function.let(
            function.applied(step.body, (dtype, dtype), dtype, (before, reduced), step.reassociate)
        )

    def _called(self, body: Libm, dtype: Dtype, args: Sequence[str], count: int) -> str:
        """Call a vector function of the C library; lanes beyond `count` repeat one that is in use."""
        function, element = self.function, register_type(dtype)
        _, variants = vector_attribute(body, dtype)
        lanes, symbol = next((v for v in reversed(variants) if v[0] >= self.width), variants[0])
        if symbol.startswith(INLINE):
            inline_vectors(function.module, symbol)
            type_ = self.type(element)
            return function.let(f"call {type_} @{symbol}({type_} {args[0]})")
        group = function.module.attribute(PURE)
        type_ = f"<{lanes} x {element}>"
        function.keep_vector_function(symbol, lanes, element, len(args))
        results = []
        for start in range(0, self.width, lanes):
            lanes_of_part = [min(start + lane, count - 1) for lane in range(lanes)]
            parts = [f"{type_} {self._shuffled(arg, element, lanes_of_part)}" for arg in args]
            results.append(function.let(f"call {type_} @{symbol}({', '.join(parts)}) #{group}"))
        if lanes == self.width:
            return results[0]
        if lanes > self.width:
            return _shuffle(function, type_, results[0], "poison", range(self.width))
        while len(results) > 1:
            joined = f"<{lanes} x {element}>"
            results = [
                _shuffle(function, joined, a, b, range(2 * lanes))
                for a, b in zip(results[::2], results[1::2], strict=True)
            ]
            lanes *= 2
        return results[0]

    def _shuffled(self, name: str, element: str, lanes_of_part: Sequence[int]) -> str:
        if list(lanes_of_part) == list(range(self.width)):
            return name
        return _shuffle(self.function, self.type(element), name, "poison", lanes_of_part)

    def _vector(self, number: Number) -> list[str]:
        """Return the vectors that hold a number of each iteration."""
        type_ = register_type(number.dtype)
        if isinstance(number, Const):
            return [self.constant(type_, constant_text(number))] * len(self.counts)
        if isinstance(number, Register) and number.name in self.names:
            return self.names[number.name]
        scalar = self.function.number(number)
        if scalar not in self.splats:
            wide = self.type(type_)
            first = self.function.let(f"insertelement {wide} poison, {type_} {scalar}, i64 0")
            zero_mask = f"<{self.width} x i32> zeroinitializer"
            splat = self.function.let(f"shufflevector {wide} {first}, {wide} poison, {zero_mask}")
            self.splats[scalar] = [splat] * len(self.counts)
        return self.splats[scalar]


def _factors(statement: Compute) -> tuple[str, str] | None:
    """Return the two numbers whose sum a quotient is multiplied by; None where it is computed otherwise."""
    divisor = statement.args[-1]
    if not isinstance(divisor, Const):
        return None
    return reciprocal(statement.body, statement.target.dtype, constant_text(divisor))


def _shuffle(function: FunctionEmitter, type_: str, a: str, b: str, lanes_of_result: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {lane}" for lane in lanes_of_result)
    return function.let(f"shufflevector {type_} {a}, {type_} {b}, <{len(lanes_of_result)} x i32> <{mask}>")


def _suffix(type_: str) -> str:
    return {"double": "f64", "float": "f32"}.get(type_, type_)
