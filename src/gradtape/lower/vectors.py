"""Short loops inside of loops over time as vectors of just their length, in straight lines.

LLVM's loop vectoriser leaves the turns that do not fill a vector to scalar code, and what one short loop stores and the next one loads
it leaves in memory. A vector of 14 numbers is one value: it fills two registers, and stays there from turn to turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..kinds.elementwise import Instruction, Intrinsic, Libm
from ..loops.affine import Affine, Position, Var, substitute
from ..loops.ir import Assign, Buffer, Compute, Const, Dtype, For, Index, Load, Number, Register, Store
from .host import vector_bytes
from .instructions import constant_text, conversion, memory_type, operation, register_type
from .vecmath import c_name, vector_attribute

if TYPE_CHECKING:
    from .emit import FunctionEmitter

REGISTERS: Final = 8
"""Vector registers that one value may fill."""

_REDUCE: Final = {
    "fadd": "fadd",
    "fmul": "fmul",
    "add": "add",
    "mul": "mul",
    "or": "or",
    "and": "and",
    "llvm.maximum": "fmaximum",
    "llvm.minimum": "fminimum",
    "llvm.smax": "smax",
    "llvm.smin": "smin",
    "llvm.umax": "umax",
    "llvm.umin": "umin",
}
"""The reduction of a vector, by the instruction that combines two numbers."""

_TYPE: Final = r"(?<![\w.%@<])(double|float|i1|i8|i16|i32|i64)(?![\w.])"
_TOKEN: Final = re.compile(rf"{_TYPE}|(?<= )(-?\d+(?:\.\d+)?|true|false)(?=,|$)")


@dataclass(slots=True)
class _Plan:
    """A loop that can be written as vectors.

    Attributes
    ----------
    wide : set of str
        The registers that hold one number for each turn.
    totals : dict of str to Compute
        What combines the turns' numbers with an accumulator, by the accumulator's name.
    """

    turns: int
    var: Var
    wide: set[str] = field(default_factory=set)
    totals: dict[str, Compute] = field(default_factory=dict)


def emit_vectors(emitter: FunctionEmitter, loop: For) -> bool:
    """Append a loop as vectors; return whether that was possible."""
    plan = _plan(loop)
    if plan is None:
        return False
    _Writer(emitter, plan).write(loop)
    return True


def _plan(loop: For) -> _Plan | None:
    turns = loop.var.high - loop.var.low + 1
    if turns < 2 or loop.lanes or loop.private is not None:
        return None
    if not all(isinstance(statement, Load | Store | Compute | Assign) for statement in loop.body):
        return None
    plan = _Plan(turns, loop.var)
    if not _find_totals(plan, loop):
        return None
    combined = {step.target.name for step in plan.totals.values()}
    widest = 1
    for statement in loop.body:
        if isinstance(statement, Assign):
            continue
        if isinstance(statement, Store):
            if _step(statement.index, plan.var) != 1:
                return None
            widest = max(widest, statement.buffer.dtype.itemsize)
        elif isinstance(statement, Load):
            step = _step(statement.index, plan.var)
            if step not in (0, 1, -1):
                return None
            if step:
                plan.wide.add(statement.target.name)
                widest = max(widest, statement.target.dtype.itemsize)
        else:
            assert isinstance(statement, Compute)
            if statement.target.name in combined:
                continue
            if any(_is_wide(arg, plan) for arg in statement.args):
                if not _has_vector_form(statement):
                    return None
                plan.wide.add(statement.target.name)
                widest = max(widest, statement.target.dtype.itemsize)
    if turns * widest > REGISTERS * vector_bytes() or not _independent(loop):
        return None
    return plan


def _find_totals(plan: _Plan, loop: For) -> bool:
    """Find what the turns bring together; return whether that is all that goes from turn to turn."""
    made = {s.target.name: s for s in loop.body if isinstance(s, Compute)}
    uses: dict[str, int] = {}
    for statement in loop.body:
        numbers = statement.args if isinstance(statement, Compute) else ()
        if isinstance(statement, Store | Assign):
            numbers = (statement.value,)
        for number in numbers:
            if isinstance(number, Register):
                uses[number.name] = uses.get(number.name, 0) + 1
    for statement in loop.body:
        if not isinstance(statement, Assign):
            continue
        value, name = statement.value, statement.target.name
        step = made.get(value.name) if isinstance(value, Register) else None
        if step is None or not step.reassociate or step.args[0] is not statement.target:
            return False
        if uses[step.target.name] != 1 or uses.get(name) != 1 or name in plan.totals:
            return False
        if _combines(step) not in _REDUCE:
            return False
        plan.totals[name] = step
    return True


def _combines(step: Compute) -> str | None:
    body, kind = step.body, step.target.dtype.kind
    if not isinstance(body, Instruction):
        return None
    return {"f": body.real, "i": body.signed, "u": body.unsigned, "b": body.boolean}[kind]


def _step(position: Position, var: Var) -> int | None:
    """Return by how much a position moves from turn to turn; None where that differs."""
    if not isinstance(position, Affine):
        return 0
    for atom in position.terms:
        if not isinstance(atom, Var) and var in atom.whole.variables():
            return None
    return position.terms.get(var, 0)


def _is_wide(number: Number, plan: _Plan) -> bool:
    if isinstance(number, Index):
        return _step(number.position, plan.var) != 0
    return isinstance(number, Register) and number.name in plan.wide


def _has_vector_form(statement: Compute) -> bool:
    body = statement.body
    if any(isinstance(arg, Index) and isinstance(arg.position, Affine) for arg in statement.args):
        return False
    if isinstance(body, Libm):
        dtype = statement.target.dtype
        return bool(vector_attribute(c_name(body.name, dtype), dtype)[1])
    return body is None or isinstance(body, Instruction | Intrinsic)


def _independent(loop: For) -> bool:
    """Return whether no turn reads or replaces what another one stores."""
    places: dict[Buffer, set[Position]] = {}
    stored: set[Buffer] = set()
    for statement in loop.body:
        if isinstance(statement, Load | Store):
            places.setdefault(statement.buffer, set()).add(statement.index)
            if isinstance(statement, Store):
                stored.add(statement.buffer)
    turns = loop.var.high - loop.var.low + 1
    for buffer in stored:
        first, *others = places[buffer]
        for k, one in enumerate((first, *others)):
            for other in (first, *others)[k + 1 :]:
                apart = one - other
                if not isinstance(apart, int) or abs(apart) < turns:
                    return False
    return True


class _Writer:
    """Writes one loop."""

    def __init__(self, emitter: FunctionEmitter, plan: _Plan) -> None:
        self.emitter = emitter
        self.plan = plan
        self.names: dict[str, str] = {}
        self.splats: dict[str, str] = {}

    def write(self, loop: For) -> None:
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

    def type(self, scalar: str) -> str:
        return f"<{self.plan.turns} x {scalar}>"

    def _at(self, position: Position, turn: int) -> Position:
        return substitute(position, {self.plan.var: self.plan.var.low + turn})

    def _load(self, statement: Load) -> None:
        emitter, buffer = self.emitter, statement.buffer
        step = _step(statement.index, self.plan.var)
        if step == 0:
            emitter.statement(Load(statement.target, buffer, self._at(statement.index, 0)))
            return
        first = self._at(statement.index, 0 if step == 1 else self.plan.turns - 1)
        address = emitter.pointer(buffer, first)
        type_ = self.type(memory_type(buffer.dtype))
        name = emitter.bind(f"load {type_}, ptr {address}, align {buffer.dtype.itemsize}")
        if step == -1:
            name = self._shuffled(name, memory_type(buffer.dtype), range(self.plan.turns - 1, -1, -1))
        if buffer.dtype.kind == "b":
            name = emitter.bind(f"icmp ne {type_} {name}, zeroinitializer")
        self.names[statement.target.name] = name

    def _store(self, statement: Store) -> None:
        emitter, buffer = self.emitter, statement.buffer
        value = self._vector(statement.value)
        address = emitter.pointer(buffer, self._at(statement.index, 0))
        type_ = self.type(memory_type(buffer.dtype))
        if buffer.dtype.kind == "b":
            value = emitter.bind(f"zext {self.type('i1')} {value} to {type_}")
        emitter.line(f"store {type_} {value}, ptr {address}, align {buffer.dtype.itemsize}")

    def _compute(self, statement: Compute) -> None:
        emitter, target, body = self.emitter, statement.target, statement.body
        if target.name not in self.plan.wide:
            emitter.statement(statement)
            return
        args = [self._vector(arg) for arg in statement.args]
        dtypes = tuple(arg.dtype for arg in statement.args)
        if body is None:
            self.names[target.name] = args[0]
        elif isinstance(body, Libm):
            self.names[target.name] = self._called(body, target.dtype, args)
        elif isinstance(body, Instruction) and "convert" in (body.real, body.signed):
            name = args[0]
            for step in conversion(dtypes[0], target.dtype, "%arg0"):
                name = self._bound(step.replace("{}", "%arg0"), [name])
            self.names[target.name] = name
        else:
            holes = tuple(f"%arg{k}" for k in range(len(args)))
            text = operation(body, dtypes, target.dtype, holes, statement.reassociate)
            self.names[target.name] = self._bound(text, args)

    def _bound(self, text: str, args: Sequence[str]) -> str:
        """Append an instruction on numbers as one on vectors."""
        last = ""

        def wide(match: re.Match[str]) -> str:
            nonlocal last
            if match[1]:
                last = match[1]
                return self.type(last)
            return self._constant(last, match[2])

        if text.startswith("call"):
            text = re.sub(_TYPE, lambda match: self.type(match[1]), text).replace(
                f"{self.type('i1')} false)", "i1 false)"
            )
            text = re.sub(r"\.([fi]\d+)\(", rf".v{self.plan.turns}\1(", text)
            result, _, rest = text.partition("@")
            name, _, operands = rest.partition("(")
            types = ", ".join(re.findall(r"<[^>]*>|i1(?= false)", operands))
            result = result[result.index("<") : result.index(">") + 1]
            self.emitter.module.declarations[f"declare {result} @{name}({types})"] = None
        else:
            text = _TOKEN.sub(wide, text)
        for k, arg in enumerate(args):
            text = re.sub(rf"%arg{k}\b", lambda _, arg=arg: arg, text)  # type: ignore[misc]
        return self.emitter.bind(text)

    def _combine(self, statement: Assign) -> None:
        emitter, target = self.emitter, statement.target
        step = self.plan.totals[target.name]
        type_ = register_type(target.dtype)
        vector = self._vector(step.args[1])
        name = _combines(step)
        assert name is not None
        reduction = _REDUCE[name]
        suffix = f"v{self.plan.turns}{type_.replace('double', 'f64').replace('float', 'f32')}"
        function = f"llvm.vector.reduce.{reduction}.{suffix}"
        before = emitter.number(target)
        wide = self.type(type_)
        if reduction in ("fadd", "fmul"):
            emitter.module.declarations[f"declare {type_} @{function}({type_}, {wide})"] = None
            call = f"call reassoc contract {type_} @{function}({type_} {before}, {wide} {vector})"
            total = emitter.bind(call)
        else:
            emitter.module.declarations[f"declare {type_} @{function}({wide})"] = None
            flags = " nsz" if reduction in ("fmaximum", "fminimum") else ""
            one = emitter.bind(f"call{flags} {type_} @{function}({wide} {vector})")
            total = emitter.combined(step, before, one)
        emitter.line(f"store {type_} {total}, ptr %{target.name}.slot")

    def _called(self, body: Libm, dtype: Dtype, args: Sequence[str]) -> str:
        """Call the C library's function for vectors on as many pieces as it takes."""
        emitter, turns = self.emitter, self.plan.turns
        element = register_type(dtype)
        _, variants = vector_attribute(c_name(body.name, dtype), dtype)
        pieces: list[tuple[int, str]] = []
        start = 0
        group = emitter.module.attribute("nounwind willreturn memory(none)")
        while start < turns:
            left = turns - start
            lanes, symbol = next(
                (variant for variant in reversed(variants) if variant[0] >= left), variants[0]
            )
            places = [min(start + lane, turns - 1) for lane in range(lanes)]
            type_ = f"<{lanes} x {element}>"
            parts = [f"{type_} {self._shuffled(arg, element, places)}" for arg in args]
            types = ", ".join([type_] * len(args))
            emitter.module.declarations[f"declare {type_} @{symbol}({types})"] = None
            emitter.module.kept[symbol] = None
            pieces.append((lanes, emitter.bind(f"call {type_} @{symbol}({', '.join(parts)}) #{group}")))
            start += lanes
        return self._joined(element, pieces)

    def _joined(self, element: str, pieces: Sequence[tuple[int, str]]) -> str:
        lanes, joined = pieces[0]
        for more, piece in pieces[1:]:
            size = max(lanes, more)
            a = self._resized(joined, element, lanes, size)
            b = self._resized(piece, element, more, size)
            places = ", ".join(f"i32 {k if k < lanes else size + k - lanes}" for k in range(lanes + more))
            type_ = f"<{size} x {element}>"
            joined = self.emitter.bind(
                f"shufflevector {type_} {a}, {type_} {b}, <{lanes + more} x i32> <{places}>"
            )
            lanes += more
        return self._resized(joined, element, lanes, self.plan.turns)

    def _resized(self, name: str, element: str, lanes: int, size: int) -> str:
        if lanes == size:
            return name
        places = ", ".join(f"i32 {k}" if k < lanes else "i32 poison" for k in range(size))
        type_ = f"<{lanes} x {element}>"
        return self.emitter.bind(f"shufflevector {type_} {name}, {type_} poison, <{size} x i32> <{places}>")

    def _shuffled(self, name: str, element: str, places: Sequence[int]) -> str:
        if list(places) == list(range(self.plan.turns)):
            return name
        type_ = self.type(element)
        mask = ", ".join(f"i32 {place}" for place in places)
        return self.emitter.bind(
            f"shufflevector {type_} {name}, {type_} poison, <{len(places)} x i32> <{mask}>"
        )

    def _vector(self, number: Number) -> str:
        """Return the operand for a number in each turn."""
        type_ = register_type(number.dtype)
        if isinstance(number, Const):
            return self._constant(type_, constant_text(number))
        if isinstance(number, Register) and number.name in self.names:
            return self.names[number.name]
        scalar = self.emitter.number(number)
        if scalar not in self.splats:
            wide = self.type(type_)
            first = self.emitter.bind(f"insertelement {wide} poison, {type_} {scalar}, i64 0")
            self.splats[scalar] = self.emitter.bind(
                f"shufflevector {wide} {first}, {wide} poison, <{self.plan.turns} x i32> zeroinitializer"
            )
        return self.splats[scalar]

    def _constant(self, type_: str, text: str) -> str:
        return f"<{', '.join([f'{type_} {text}'] * self.plan.turns)}>"
