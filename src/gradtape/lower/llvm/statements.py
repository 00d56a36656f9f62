"""From statements to LLVM's notation: the body of a function, and the module that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Final

from gradtape.kinds.elementwise import Instruction, Libm, SciPy
from gradtape.loops.affine import Atom, Clamped, Position, Quotient, Remainder, Var
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Const,
    ControlFlow,
    Declare,
    Dtype,
    For,
    Guard,
    Index,
    Load,
    Number,
    Statement,
    Store,
    Wrap,
)
from gradtape.lower.llvm.control import emit_control
from gradtape.lower.llvm.instructions import (
    constant_text,
    conversion,
    intrinsic_declaration,
    memory_type,
    operation,
    register_type,
)
from gradtape.lower.llvm.routines import emit_routine
from gradtape.lower.llvm.trig import can_inline_single, inline_single, intrinsics
from gradtape.lower.llvm.vector_plans import Slot
from gradtape.lower.llvm.vectors import emit_vectors
from gradtape.lower.target.vecmath import c_name, vector_attribute, vector_lanes
from gradtape.records import record

ONE_VECTOR: Final = 8
"""SequentialFor that fill a vector register."""


@record
class Module:
    """The text of a module as it grows."""

    outline: Callable[[FunctionEmitter, For], bool]
    functions: list[str] = field(default_factory=list)
    nests: dict[str, str] = field(default_factory=dict)
    declarations: dict[str, None] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    kept: dict[str, None] = field(default_factory=dict)
    symbols: dict[str, None] = field(default_factory=dict)
    helpers: dict[str, str] = field(default_factory=dict)
    loops: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    count: int = 0
    stacks: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Return the module."""
        lines = [*self.helpers.values(), *self.functions, *self.declarations]
        if self.kept:
            names = ", ".join(f"ptr @{name}" for name in self.kept)
            array = f"[{len(self.kept)} x ptr] [{names}]"
            lines.append(f'@llvm.compiler.used = appending global {array}, section "llvm.metadata"')
        lines.extend(f"attributes #{number} = {{ {text} }}" for text, number in self.attributes.items())
        if self.loops:
            lines.append('!0 = !{!"llvm.loop.unroll.disable"}')
            lines.extend(
                f"!{number} = distinct !{{!{number}, {facts}}}" for number, facts in enumerate(self.loops, 1)
            )
        return "\n".join(lines) + "\n"

    def loop_facts(self, lanes: int) -> int:
        """Return the number of a loop's metadata: not to be unrolled, or (lanes) to be vectors in one
        piece."""
        facts = "!0"
        if lanes:
            width = min(vector_lanes(), lanes)
            facts += f', !{{!"llvm.loop.vectorize.width", i32 {width}}}'
            facts += f', !{{!"llvm.loop.interleave.count", i32 {min(lanes // width, 4)}}}'
        self.loops.append(facts)
        return len(self.loops)

    def attribute(self, text: str) -> str:
        """Return the number of a group of attributes."""
        return self.attributes.setdefault(text, str(len(self.attributes)))


class FunctionEmitter:
    """Writes the body of one function."""

    def __init__(self, module: Module, pointers: dict[Buffer, str]) -> None:
        self.module = module
        self.pointers = pointers
        self.origins: dict[Buffer, Position] = {}
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.names: dict[str, str] = {}
        self.mutable: dict[str, Dtype] = {}
        self.positions: list[dict[Position | Atom, str]] = [{}]
        self.label = "entry"
        self.count = 0
        self.wraps = False
        self.wide = False
        self.within = 0
        self.slots: dict[tuple[Buffer, int], Slot] = {}

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def bind(self, text: str) -> str:
        """Append an instruction and return the name of its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def start_block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    # Numbers and positions

    def number(self, number: Number) -> str:
        """Return the operand for a number."""
        if isinstance(number, Const):
            return constant_text(number)
        if isinstance(number, Index):
            return self.position(number.position)
        if number.name in self.mutable:
            type_ = register_type(number.dtype)
            return self.bind(f"load {type_}, ptr %{number.name}.slot")
        return self.names.get(number.name, f"%{number.name}")

    def position(self, position: Position) -> str:
        """Return the operand for a position."""
        if isinstance(position, int):
            return str(position)
        for known in reversed(self.positions):
            if position in known:
                return known[position]
        total = ""
        for atom, factor in position.terms.items():
            term = self.atom(atom)
            if factor == -1 and total:
                total = self.bind(f"sub nsw i64 {total}, {term}")
                continue
            if factor != 1:
                term = self.bind(f"mul nsw i64 {term}, {factor}")
            total = self.bind(f"add nsw i64 {total}, {term}") if total else term
        if position.offset:
            total = self.bind(f"add nsw i64 {total}, {position.offset}")
        self.positions[-1][position] = total
        return total

    def atom(self, atom: Atom) -> str:
        """Return the operand for a variable, quotient, remainder or clamped position."""
        if isinstance(atom, Var):
            return self.names.get(atom.name, f"%{atom.name}")
        for known in reversed(self.positions):
            if atom in known:
                return known[atom]
        whole = self.position(atom.whole)
        if isinstance(atom, Clamped):
            raised = self.call("i64", "llvm.smax.i64", f"i64 {whole}, i64 {atom.low}")
            name = self.call("i64", "llvm.smin.i64", f"i64 {raised}, i64 {atom.high}")
        elif atom.whole.low >= 0:
            name = self.bind(
                f"{'udiv' if isinstance(atom, Quotient) else 'urem'} i64 {whole}, {atom.divisor}"
            )
        else:
            name = self._floored(atom, whole)
        self.positions[-1][atom] = name
        return name

    def _floored(self, atom: Quotient | Remainder, whole: str) -> str:
        """Shift by a multiple of the divisor, so that the machine's division rounds as Python's does."""
        shift = -(atom.whole.low // atom.divisor)
        raised = self.bind(f"add nsw i64 {whole}, {shift * atom.divisor}")
        if isinstance(atom, Remainder):
            return self.bind(f"urem i64 {raised}, {atom.divisor}")
        quotient = self.bind(f"udiv i64 {raised}, {atom.divisor}")
        return self.bind(f"sub nsw i64 {quotient}, {shift}")

    def call(self, result: str, name: str, operands: str) -> str:
        """Append a call of an intrinsic."""
        text = f"call {result} @{name}({operands})"
        self.module.declarations[intrinsic_declaration(text)] = None
        return self.bind(text)

    def pointer(self, buffer: Buffer, index: Position) -> str:
        """Return the address of an element."""
        base = self.pointers[buffer]
        index = index - self.origins.get(buffer, 0)
        if index == 0:
            return base
        return self.bind(
            f"getelementptr inbounds {memory_type(buffer.dtype)}, ptr {base}, i64 {self.position(index)}"
        )

    # Statements

    def statement(self, statement: Statement) -> None:
        """Append a statement."""
        if isinstance(statement, Compute):
            self._compute(statement)
        elif isinstance(statement, Load):
            self._load(statement)
        elif isinstance(statement, Store):
            self._store(statement)
        elif isinstance(statement, For):
            self.loop(statement)
        elif isinstance(statement, Declare):
            self._declare(statement)
        elif isinstance(statement, Assign):
            target = statement.target
            value = self.number(statement.value)
            self.line(f"store {register_type(target.dtype)} {value}, ptr %{target.name}.slot")
        elif isinstance(statement, Wrap):
            self._wrap(statement)
        elif isinstance(statement, Guard):
            self._guard(statement)
        elif isinstance(statement, ControlFlow):
            emit_control(self, statement)
        else:
            emit_routine(self, statement)

    def _compute(self, statement: Compute) -> None:
        target, body, args = statement.target, statement.body, statement.args
        if body is None:
            self.names[target.name] = self.number(args[0])
            return
        dtypes = tuple(arg.dtype for arg in args)
        operands = tuple(self.number(arg) for arg in args)
        if isinstance(body, Instruction) and "convert" in (body.real, body.signed):
            steps = conversion(dtypes[0], target.dtype, operands[0])
            name = operands[0]
            for step in steps[:-1]:
                name = self.bind(step.format(name))
            self.line(f"%{target.name} = {steps[-1].format(name)}")
            return
        if isinstance(body, SciPy) and target.dtype.itemsize == 4:
            wide = tuple(self.bind(f"fpext float {operand} to double") for operand in operands)
            text = operation(body, dtypes, target.dtype, wide, False)
            result = self.bind(self._declared(text, body, target.dtype))
            self.line(f"%{target.name} = fptrunc double {result} to float")
            return
        text = operation(body, dtypes, target.dtype, operands, statement.reassociate)
        if text.startswith("call"):
            text = self._declared(text, body, target.dtype)
        if (
            isinstance(body, Libm)
            and not self.within
            and can_inline_single(body.name, register_type(target.dtype))
        ):
            text = self._written_out(body.name, operands[0])
        self.line(f"%{target.name} = {text}")

    def _written_out(self, name: str, operand: str) -> str:
        """Return a call of a function that becomes part of a loop over time, and of nothing else: a thousand of them are long."""
        symbol, text = inline_single(name)
        self.module.helpers.setdefault(symbol, text)
        self.module.declarations.update(dict.fromkeys(intrinsics()))
        group = self.module.attribute("alwaysinline" if self.wide else "noinline")
        return f"call double @{symbol}(double {operand}) #{group}"

    def combined(self, step: Compute, before: str, one: str) -> str:
        """Append what combines two numbers, and return the name of the result."""
        dtype = step.target.dtype
        text = operation(step.body, (dtype, dtype), dtype, (before, one), step.reassociate)
        return self.bind(self._declared(text, step.body, dtype) if text.startswith("call") else text)

    def _declared(self, text: str, body: object, dtype: Dtype) -> str:
        declaration = intrinsic_declaration(text)
        if isinstance(body, Libm):
            name = c_name(body.name, dtype)
            attribute, variants = vector_attribute(name, dtype)
            group = self.module.attribute(
                " ".join(filter(None, ("nounwind willreturn memory(none)", attribute)))
            )
            self.module.declarations[f"{declaration} #{group}"] = None
            element = register_type(dtype)
            count = declaration.count(element) - 1
            for lanes, symbol in variants:
                vector = f"<{lanes} x {element}>"
                self.module.declarations[f"declare {vector} @{symbol}({', '.join([vector] * count)})"] = None
                self.module.kept[symbol] = None
            return f"{text} #{group}"
        if isinstance(body, SciPy):
            group = self.module.attribute("nounwind willreturn memory(none)")
            self.module.declarations[f"{declaration} #{group}"] = None
            self.module.symbols[text.split('"')[1]] = None
            return text
        self.module.declarations[declaration] = None
        return text

    def _load(self, statement: Load) -> None:
        target, buffer = statement.target, statement.buffer
        address = self.pointer(buffer, statement.index)
        if buffer.dtype.kind == "b":
            byte = self.bind(f"load i8, ptr {address}")
            self.line(f"%{target.name} = icmp ne i8 {byte}, 0")
            return
        self.line(f"%{target.name} = load {memory_type(buffer.dtype)}, ptr {address}")

    def _store(self, statement: Store) -> None:
        buffer = statement.buffer
        value = self.number(statement.value)
        address = self.pointer(buffer, statement.index)
        if buffer.dtype.kind == "b":
            value = self.bind(f"zext i1 {value} to i8")
        self.line(f"store {memory_type(buffer.dtype)} {value}, ptr {address}")

    def _declare(self, statement: Declare) -> None:
        target = statement.target
        type_ = register_type(target.dtype)
        if target.name not in self.mutable:
            self.mutable[target.name] = target.dtype
            self.entry.append(f"  %{target.name}.slot = alloca {type_}")
        self.line(f"store {type_} {self.number(statement.value)}, ptr %{target.name}.slot")

    def _wrap(self, statement: Wrap) -> None:
        """Count negatives from the end; note a bad index and read element 0 in its place."""
        self.wraps = True
        value, dtype = self.number(statement.value), statement.value.dtype
        if dtype.itemsize < 8:
            value = self.bind(
                f"{'sext' if dtype.kind == 'i' else 'zext'} {register_type(dtype)} {value} to i64"
            )
        if dtype.kind == "i":
            negative = self.bind(f"icmp slt i64 {value}, 0")
            moved = self.bind(f"add i64 {value}, {statement.extent}")
            value = self.bind(f"select i1 {negative}, i64 {moved}, i64 {value}")
        inside = self.bind(f"icmp ult i64 {value}, {statement.extent}")
        self.line(f"%{statement.target.name} = select i1 {inside}, i64 {value}, i64 0")
        outside = self.bind(f"xor i1 {inside}, true")
        self.note_failure(outside)

    def note_failure(self, failed: str) -> None:
        """Append a note, if a condition holds, that the interpreter is to say what is wrong."""
        before = self.bind("load i1, ptr %bad.slot")
        self.line(f"store i1 {self.bind(f'or i1 {before}, {failed}')}, ptr %bad.slot")

    def _guard(self, statement: Guard) -> None:
        value, dtype = self.number(statement.value), statement.value.dtype
        if dtype.itemsize < 8 or dtype.kind == "b":
            value = self.bind(
                f"{'sext' if dtype.kind == 'i' else 'zext'} {register_type(dtype)} {value} to i64"
            )
        holds = self.bind(f"icmp eq i64 {value}, {statement.expected}")
        number = statement.number
        self.line(f"br i1 {holds}, label %held{number}, label %missed{number}")
        self.start_block(f"missed{number}")
        self.line(f"store i64 {value}, ptr %workspace")
        self.line(f"ret i32 {number}")
        self.start_block(f"held{number}")

    def loop(self, statement: For) -> None:
        """Append a loop; it turns at least once."""
        if self.wide and emit_vectors(self, statement):
            return
        var = statement.var
        before, head = self.label, f"{var.name}.head"
        self.line(f"br label %{head}")
        self.start_block(head)
        at = len(self.lines)
        self.positions.append({})
        self.within += 1
        for inner in statement.body:
            self.statement(inner)
        self.within -= 1
        self.positions.pop()
        following = self.bind(f"add nuw nsw i64 %{var.name}, 1")
        self.lines.insert(
            at, f"  %{var.name} = phi i64 [ {var.low}, %{before} ], [ {following}, %{self.label} ]"
        )
        done = self.bind(f"icmp eq i64 {following}, {var.high + 1}")
        self.line(f"br i1 {done}, label %{var.name}.exit, label %{head}{self._kept_rolled(statement)}")
        self.start_block(f"{var.name}.exit")

    def _kept_rolled(self, statement: For) -> str:
        """Return metadata that keep LLVM from unrolling a loop of few turns.

        It would do so before it vectorises, and then vectorise the loop around it with gathers and
        scatters: 5 times slower on batches of 10 by 10 products.
        """
        turns = statement.var.high - statement.var.low + 1
        if statement.lanes:
            return f", !llvm.loop !{self.module.loop_facts(turns)}"
        nested = len(self.positions) > 1 or any(isinstance(inner, For) for inner in statement.body)
        return f", !llvm.loop !{self.module.loop_facts(0)}" if nested and turns >= ONE_VECTOR else ""
