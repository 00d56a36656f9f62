"""Functions of a kernel's module: operands, addresses of elements, and calls of primitives."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gradtape.ir.body import Body
from gradtape.ir.graph import Node
from gradtape.kinds.elementwise import Instruction, Libm, SciPy
from gradtape.loops.affine import Atom, Clamped, Position, Quotient, Remainder, Var
from gradtape.loops.ir import Buffer, Const, Dtype, For, Index, Number, Place, Statement
from gradtape.lower.llvm.instructions import (
    constant_text,
    conversion,
    memory_type,
    operation,
    reciprocal,
    register_type,
)
from gradtape.lower.llvm.math import can_inline_scalar, inline_scalar, inline_vectors
from gradtape.lower.llvm.special import emit_special
from gradtape.lower.llvm.vector_plans import Slot
from gradtape.lower.llvm.writer import ITSELF, PURE, UNLIKELY, FunctionWriter, ModuleWriter
from gradtape.lower.resident.callbacks import CALL_PYTHON
from gradtape.lower.resident.interrupts import (
    INTERRUPTED,
    OVER,
    OVER_DECLARATION,
    POLL,
    POLL_DECLARATION,
    RAISE,
)
from gradtape.lower.target.vecmath import INLINE, vector_attribute, vector_lanes
from gradtape.procedures.ir import Procedure
from gradtape.procedures.ir import Statement as ProcedureStatement

Emitters: TypeAlias = "Mapping[type, Callable[[FunctionEmitter, Any], None]]"
"""The functions that emit statements, by class."""


MOST_INLINED: Final = 64
"""Calls of mathematics that are inlined in one function, or in the loops of vectors of one module, at 20 to 30 instructions each.

Measured on 1000 lines with a sine each, with its derivative: 20 s to compile with inlined calls, 0.9 s with others.
"""


class KernelModule(ModuleWriter):
    """Builds the module of a kernel.

    Attributes
    ----------
    emitters : mapping of type to callable
        The functions that emit statements, by class.
    outline : callable
        Outlines a nest inside a sequential loop if it is large; returns whether it was.
    nests : dict of str to str
        The functions of nests, by their canonical text.
    stacks : dict of str to int
        The stacks, by name, and their numbers.
    lower_body : callable
        Adds the kernel of an array computation in a procedure; returns its symbol and the bytes of workspace that it needs.
    bodies : dict of str to (str, int)
        These kernels, by the digests of their graphs.
    python_calls : dict of str to None
        What Python is called for, see `gradtape.lower.resident.callbacks.call_text`.
    multiplies : bool
        Whether one of them calls BLAS or LAPACK.
    procedures : list of (Procedure, Procedure)
        The procedures of which there are functions: as they were called, and as they are after the passes.
    scalar_makers : dict of str to (Procedure, dict)
        By the function of a procedure: this, and what the registers are there for.
    unrolls : bool
        Whether LLVM may unroll loops. It does not if there is a procedure: measured on NPBench, that halves the time to compile (an
        N-body simulation 6.9 s and 0.9), and the code is as fast or faster.
    inlined : int
        Calls of mathematics that become instructions where the vectoriser makes vectors of their loop.
    """

    def __init__(
        self,
        emitters: Emitters,
        outline: Callable[[FunctionEmitter, For], bool],
        lower_body: Callable[[KernelModule, Body], tuple[str, int]],
    ) -> None:
        super().__init__()
        self.emitters = emitters
        self.outline = outline
        self.lower_body = lower_body
        self.bodies: dict[str, tuple[str, int]] = {}
        self.python_calls: dict[str, None] = {}
        self.multiplies = False
        self.procedures: list[tuple[Procedure, Procedure]] = []
        self.scalar_makers: dict[str, tuple[Procedure, dict[str, Node | ProcedureStatement]]] = {}
        self.unrolls = True
        self.nests: dict[str, str] = {}
        self.stacks: dict[str, int] = {}
        self.count = 0
        self.tasks = 0
        self.inlined = 0

    def body(self, graph: Body) -> tuple[str, int]:
        """Return the symbol of a graph's kernel in this module, and the bytes of workspace that it needs."""
        if graph.has_rules:
            return self.lower_body(self, graph)
        if graph.digest not in self.bodies:
            self.bodies[graph.digest] = self.lower_body(self, graph)
        return self.bodies[graph.digest]

    def loop_metadata(self, lanes: int) -> int:
        """Add the metadata of a loop that is not unrolled, and return its number; with `lanes`, the loop is vectorised in one piece."""
        facts = "!0"
        if lanes:
            width = min(vector_lanes(), lanes)
            facts += f', !{{!"llvm.loop.vectorize.width", i32 {width}}}'
            facts += f', !{{!"llvm.loop.interleave.count", i32 {min(lanes // width, 4)}}}'
        return self.add_metadata(f"distinct !{{{ITSELF}, {facts}}}")


class FunctionEmitter(FunctionWriter):
    """Writes the body of one function of a kernel's module.

    Attributes
    ----------
    pointers : dict of Buffer to str
        The address of each buffer's element `origins`, 0 where that says nothing.
    names : dict of str to str
        Operands that stand for registers.
    mutable : dict of str to Dtype
        Accumulators, which are memory on the stack under ``%<name>.slot``.
    positions : list of dict
        The operands of positions that are known, a dictionary for each block around the present one.
    in_control_flow : bool
        Whether the function is that of a sequential loop or a switch.
    depth : int
        How many loops of independent iterations are around.
    may_fail : bool
        Whether an index may have been out of bounds: then ``%bad.slot`` says so.
    slots : dict of (Buffer, int) to Slot
        Parts of buffers that are in registers.
    """

    module: KernelModule

    def __init__(self, module: KernelModule, pointers: dict[Buffer, str]) -> None:
        super().__init__(module)
        self.pointers = pointers
        self.origins: dict[Buffer, Position] = {}
        self.names: dict[str, str] = {}
        self.mutable: dict[str, Dtype] = {}
        self.positions: list[dict[Position | Atom, str]] = [{}]
        self.in_control_flow = False
        self.depth = 0
        self.may_fail = False
        self.slots: dict[tuple[Buffer, int], Slot] = {}

    # Statements

    def statement(self, statement: Statement) -> None:
        """Append a statement."""
        self.module.emitters[type(statement)](self, statement)

    def statements(self, statements: Sequence[Statement]) -> None:
        """Append the statements of a sequential loop or of a branch; large nests among them are outlined."""
        for statement in statements:
            if not isinstance(statement, For) or not self.module.outline(self, statement):
                self.statement(statement)

    def block(self, statements: Sequence[Statement]) -> None:
        """Append such statements as a scope: positions that are computed in it are not known after it."""
        self.positions.append({})
        self.statements(statements)
        self.positions.pop()

    def note_failure(self, failed: str) -> None:
        """Append instructions that mark the run as failed if a condition holds: the interpreter then raises the error."""
        before = self.let("load i1, ptr %bad.slot")
        self.store("i1", self.let(f"or i1 {before}, {failed}"), "%bad.slot")

    def unless_failed(self, condition: str) -> str:
        """Append what makes a condition of a loop false after a failure: an index that was wrong has read another element, and the
        condition may hold for ever."""
        wrong = self.let("load i1, ptr %bad.slot")
        return self.let(f"and i1 {condition}, {self.let(f'xor i1 {wrong}, true')}")

    def is_poll_due(self, number: str, period: int) -> str:
        """Append what says whether an iteration is one that polls."""
        masked = self.let(f"and i64 {number}, {period - 1}")
        return self.let(f"icmp eq i64 {masked}, {period - 1}")

    def poll(self, done: str, total: str | int) -> str:
        """Append a poll for signals after so many iterations; return its status, not zero if a handler has raised an exception."""
        self.module.bind(POLL, RAISE)
        self.module.declare(POLL_DECLARATION)
        return self.let(f'call i32 @"{POLL}"(i64 {done}, i64 {total})')

    def end_progress(self) -> str:
        """Append the end of a loop that shows its progress; return the status."""
        self.module.bind(OVER)
        self.module.declare(OVER_DECLARATION)
        return self.let(f'call i32 @"{OVER}"()')

    def call_python(self, text: str, operands: Sequence[str]) -> None:
        """Append the evaluation of a row by Python, given the addresses of operands and results."""
        module = self.module
        module.bind(CALL_PYTHON, RAISE)
        module.python_calls[text] = None
        data = f"{text}\0".encode()
        name = f"python.{hashlib.blake2b(data, digest_size=8).hexdigest()}"
        escaped = "".join([f"\\{byte:02x}" for byte in data])
        label = module.constant(name, f"[{len(data)} x i8]", f'c"{escaped}"')
        table = self.pointer_table(f"%{self.new_label()}.operands", operands)
        self.note_status(self.call("i32", f'"{CALL_PYTHON}"', f"ptr {label}", f"ptr {table}"))

    def note_status(self, status: str) -> None:
        """Append what ends the call where what it called was interrupted, and what notes other failures.

        A failure does not end the kernel: a guard behind it, which does not hold, comes first. The interpreter raises the error.
        """
        name = self.new_label()
        interrupted = self.let(f"icmp eq i32 {status}, {INTERRUPTED}")
        self.branch(interrupted, f"{name}.stopped", f"{name}.over", UNLIKELY)
        self.start_block(f"{name}.stopped")
        self.leave(status)
        self.start_block(f"{name}.over")
        self.note_failure(self.let(f"icmp ne i32 {status}, 0"))

    def leave(self, status: str) -> None:
        """Append the end of the call with a status."""
        self.emit(f"ret i32 {status}")

    def pointer_table(self, table: str, addresses: Sequence[str]) -> str:
        """Append a table of pointers on the stack, and return its address."""
        self.entry.append(f"  {table} = alloca [{max(len(addresses), 1)} x ptr]")
        for position, pointer in enumerate(addresses):
            slot = self.let(f"getelementptr inbounds ptr, ptr {table}, i64 {position}")
            self.store("ptr", pointer, slot)
        return table

    # Numbers and positions

    def number(self, number: Number) -> str:
        """Return the operand for a number."""
        if isinstance(number, Const):
            return constant_text(number)
        if isinstance(number, Index):
            return self.position(number.position)
        if number.name in self.mutable:
            return self.let(f"load {register_type(number.dtype)}, ptr %{number.name}.slot")
        return self.names.get(number.name, f"%{number.name}")

    def position(self, position: Position) -> str:
        """Return the operand for a position."""
        if isinstance(position, int):
            return str(position)
        for emitted in reversed(self.positions):
            if position in emitted:
                return emitted[position]
        total = ""
        for atom, factor in position.terms.items():
            term = self._atom(atom)
            if factor == -1 and total:
                total = self.let(f"sub nsw i64 {total}, {term}")
                continue
            if factor != 1:
                term = self.let(f"mul nsw i64 {term}, {factor}")
            total = self.let(f"add nsw i64 {total}, {term}") if total else term
        if position.offset:
            total = self.let(f"add nsw i64 {total}, {position.offset}")
        self.positions[-1][position] = total
        return total

    def _atom(self, atom: Atom) -> str:
        """Return the operand for a variable, quotient, remainder or clamped position."""
        if isinstance(atom, Var):
            return self.names.get(atom.name, f"%{atom.name}")
        for emitted in reversed(self.positions):
            if atom in emitted:
                return emitted[atom]
        operand = self.position(atom.whole)
        if isinstance(atom, Clamped):
            raised = self.call("i64", "llvm.smax.i64", f"i64 {operand}", f"i64 {atom.low}")
            name = self.call("i64", "llvm.smin.i64", f"i64 {raised}", f"i64 {atom.high}")
        elif atom.whole.low >= 0:
            name = self.let(
                f"{'udiv' if isinstance(atom, Quotient) else 'urem'} i64 {operand}, {atom.divisor}"
            )
        else:
            name = self._floored(atom, operand)
        self.positions[-1][atom] = name
        return name

    def _floored(self, atom: Quotient | Remainder, operand: str) -> str:
        """Append a floor division: a multiple of the divisor is added, because the machine truncates."""
        shift = -(atom.whole.low // atom.divisor)
        raised = self.let(f"add nsw i64 {operand}, {shift * atom.divisor}")
        if isinstance(atom, Remainder):
            return self.let(f"urem i64 {raised}, {atom.divisor}")
        quotient = self.let(f"udiv i64 {raised}, {atom.divisor}")
        return self.let(f"sub nsw i64 {quotient}, {shift}")

    def pointer(self, buffer: Buffer, index: Position) -> str:
        """Return the address of an element."""
        base = self.pointers[buffer]
        index = index - self.origins.get(buffer, 0)
        if index == 0:
            return base
        type_ = memory_type(buffer.dtype)
        return self.let(f"getelementptr inbounds {type_}, ptr {base}, i64 {self.position(index)}")

    def place(self, place: Place) -> str:
        """Return the address of a place."""
        return self.pointer(*place)

    # Primitives

    def computed(
        self,
        body: Any,
        dtypes: tuple[Dtype, ...],
        out: Dtype,
        operands: tuple[str, ...],
        reassociate: bool,
        inlines: bool | None,
        is_alike: bool = False,
    ) -> str:
        """Return the last instruction of a primitive, after those before it.

        `inlines` says whether mathematics of single numbers is inlined, which LLVM does in loops only: straight-line code would become too
        long. It is None where loops of vectors call it. `is_alike` if the number is to be the same in any loop: the C library computes it.
        """
        if isinstance(body, Instruction) and "convert" in (body.real, body.signed):
            *steps, last = conversion(dtypes[0], out, operands[0])
            name = operands[0]
            for step in steps:
                name = self.let(step.format(name))
            return last.format(name)
        factors = reciprocal(body, out, operands[-1])
        if factors is not None:
            type_ = register_type(out)
            high, low = factors
            name = f"llvm.fma.{'f64' if type_ == 'double' else 'f32'}"
            self.module.declare(f"declare {type_} @{name}({type_}, {type_}, {type_})")
            low_part = self.let(f"fmul {type_} {operands[0]}, {low}")
            return f"call {type_} @{name}({type_} {operands[0]}, {type_} {high}, {type_} {low_part})"
        text = self.applied(body, dtypes, out, operands, reassociate, is_alike)
        if is_alike or inlines is None or not isinstance(body, Libm) or not can_inline_scalar(body.name, out):
            return text
        group = self.module.attribute("alwaysinline" if inlines else "noinline")
        return f"call double @{inline_scalar(self.module, body.name)}(double {operands[0]}) #{group}"

    def loaded(self, dtype: Dtype, address: str, facts: str = "") -> str:
        """Return the last instruction of a load of an element, after those before it."""
        text = f"load {memory_type(dtype)}, ptr {address}{facts}"
        return f"icmp ne i8 {self.let(text)}, 0" if dtype.kind == "b" else text

    def store_element(self, dtype: Dtype, value: str, address: str, facts: str = "") -> None:
        """Append a store of an element."""
        if dtype.kind == "b":
            value = self.let(f"zext i1 {value} to i8")
        self.emit(f"store {memory_type(dtype)} {value}, ptr {address}{facts}")

    def applied(
        self,
        body: Any,
        dtypes: tuple[Dtype, ...],
        out: Dtype,
        operands: tuple[str, ...],
        reassociate: bool,
        is_alike: bool = False,
    ) -> str:
        """Return the instruction of a primitive, and declare the function that it calls, if any."""
        if isinstance(body, SciPy):
            text = emit_special(self, body, dtypes, operands)
            return text if out.itemsize == 8 else f"fptrunc double {self.let(text)} to float"
        text = operation(body, dtypes, out, operands, reassociate)
        if is_alike:
            text = text.replace(" contract ", " ")
        if not text.startswith("call"):
            return text
        head, _, call_text = text.partition("@")
        name, _, operand_list = call_text.partition("(")
        types = [operand.split()[0] for operand in operand_list.rstrip(")").split(", ")]
        declaration = f"declare {head.split()[-1]} @{name}({', '.join(types)})"
        if isinstance(body, Libm):
            inlines = self.module.inlined < MOST_INLINED
            attribute, variants = ("", ()) if is_alike else vector_attribute(body, out, inlines=inlines)
            self.module.inlined += any(symbol.startswith(INLINE) for _, symbol in variants)
            group = self.module.attribute(" ".join(filter(None, (PURE, attribute))))
            for lanes, symbol in variants:
                self.keep_vector_function(symbol, lanes, register_type(out), len(types))
            # The vector forms are attributes of calls: one function may have calls with other forms, or none.
            self.module.declare(f"{declaration} #{self.module.attribute(PURE)}")
            return f"{text} #{group}"
        self.module.declare(declaration)
        return text

    def keep_vector_function(self, symbol: str, lanes: int, element: str, arity: int) -> None:
        """Declare or define a function of vectors, which the vectoriser may call."""
        type_ = f"<{lanes} x {element}>"
        if symbol.startswith(INLINE):
            inline_vectors(self.module, symbol)
        else:
            self.module.declare(f"declare {type_} @{symbol}({', '.join([type_] * arity)})")
        self.module.kept[symbol] = None
