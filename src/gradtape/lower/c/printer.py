"""The printer of loops as C: one function of flat arrays, as `gradtape.loops.printer` prints them as Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from gradtape.errors import LoweringError
from gradtape.ir.site import Site
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.elementwise import Instruction
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.matrix import Matrix
from gradtape.loops.affine import Position
from gradtape.loops.ir import (
    UNBOUNDED,
    Assign,
    Buffer,
    Compute,
    Const,
    Declare,
    DoubleBuffer,
    For,
    GrowStack,
    Guard,
    Index,
    IndexSwitch,
    Load,
    LoopProgram,
    Number,
    OpenStack,
    Place,
    Register,
    ReserveStack,
    RoutineCall,
    SequentialFor,
    Statement,
    Store,
    WhileLoop,
    Wrap,
)
from gradtape.loops.workspace import RESERVED
from gradtape.lower.c.expressions import Helper, c_type, constant_text, operation, position_text
from gradtape.lower.c.writer import FAILED, FunctionWriter

RAN_OUT: Final = 2
"""The status where there is no memory; the function returns -2."""

LEAST_LANES: Final = 8
"""Iterations of a loop for which vectors pay."""


def print_c(
    program: LoopProgram,
    name: str,
    offsets: Mapping[Buffer, int],
    helper: Helper,
    routines: Mapping[str, str],
    procedure: Callable[[Any], str],
) -> str:
    """Return a program as a C function.

    Parameters
    ----------
    program : LoopProgram
        The loops.
    name : str
        Of the function. Its parameters are the flat arrays: inputs, constants and outputs, in their order, and the workspace.
    offsets : dict of Buffer to int
        Positions of the scratch buffers in the workspace, in bytes.
    helper : callable
        Adds functions of the folder ``routines`` to the file.
    routines : mapping of str to str
        The files that are used in place of others: those that call BLAS.
    procedure : callable
        Adds the function of a procedure to the file, and returns its name.

    Raises
    ------
    LoweringError
        For what C does not have: functions of SciPy, some decompositions, calls of Python.
    """
    return _Printer(program, offsets, helper, routines, procedure).function(name)


class _Printer(FunctionWriter):
    """Prints the statements of one program."""

    def __init__(
        self,
        program: LoopProgram,
        offsets: Mapping[Buffer, int],
        helper: Helper,
        routines: Mapping[str, str],
        procedure: Callable[[Any], str],
    ) -> None:
        super().__init__(helper)
        self.program = program
        self.offsets = offsets
        self.routines = routines
        self.procedure = procedure
        self.stacks: dict[str, Buffer] = {}
        self.scopes: list[set[str]] = []

    def function(self, name: str) -> str:
        program = self.program
        for buffer in program.scratch:
            if buffer in self.offsets:
                type_, offset = c_type(buffer.dtype), self.offsets[buffer] - RESERVED
                self.declare(f"{type_} *const {buffer.name} = ({type_} *)(void *)(workspace + {offset});")
        self.statements(program.body)
        parameters = [(f"const {c_type(b.dtype)} *restrict ", b.name) for b in program.inputs]
        parameters += [(f"{c_type(b.dtype)} *restrict ", b.name) for b in program.outputs]
        return self.text(name, [*parameters, ("char *", "workspace")], "-")

    # Statements

    def statements(self, statements: Sequence[Statement]) -> None:
        """Append the statements of one scope."""
        self.scopes.append(set())
        for statement in statements:
            self.statement(statement)
        self.scopes.pop()

    def statement(self, statement: Statement) -> None:
        if isinstance(statement, For):
            lanes = lanes_of(statement)
            if lanes is not None:
                self.helper("lanes")
                self.write(lanes)
            var = statement.var
            with self.block(self.counted(var.name, var.high + 1, var.low)):
                self.statements(statement.body)
        elif isinstance(statement, SequentialFor):
            count = statement.var.high + 1 if statement.count is None else self.number(statement.count)
            with self._swapped(statement.pairs), self.block(self.counted(statement.var.name, count)):
                self.statements(statement.body)
                self._swap(statement.pairs)
        elif isinstance(statement, WhileLoop):
            self._while(statement)
        elif isinstance(statement, IndexSwitch):
            self._switch(statement)
        elif isinstance(statement, ReserveStack | GrowStack):
            self._make_room(statement)
        elif not isinstance(statement, OpenStack):
            line = self._line(statement)
            if line:
                self.write(line)

    def _while(self, statement: WhileLoop) -> None:
        name, most = statement.var.name, statement.var.high + 1
        bound = "" if most > UNBOUNDED else f" {name} < {most}"
        with self._swapped(statement.pairs), self.block(f"for (int64_t {name} = 0;{bound}; {name}++)"):
            self.scopes.append(set())
            for inner_statement in statement.test:
                self.statement(inner_statement)
            self.break_unless(self.number(statement.condition))
            for inner_statement in statement.body:
                self.statement(inner_statement)
            self.scopes.pop()
            self._swap(statement.pairs)

    def _switch(self, statement: IndexSwitch) -> None:
        index, last = self.number(statement.index), len(statement.branches) - 1
        for position, branch in enumerate(statement.branches):
            before = f"{self.lines.pop().strip()} else " if position else ""
            test = "" if position == last else f"if ({index} <= {position})"
            with self.block(f"{before}{test}".rstrip()):
                self.statements(branch)

    @contextmanager
    def _swapped(self, pairs: Sequence[DoubleBuffer]) -> Iterator[None]:
        """Append the buffers of carries before a loop, and the copies of what they hold after it."""
        for pair in pairs:
            type_ = c_type(pair.current.dtype)
            self.write(f"{type_} *{pair.current.name} = {self.place(pair.first)};")
            self.write(f"{type_} *{pair.following.name} = {self.place(pair.second)};")
        yield
        for pair in pairs:
            if pair.landing is None:
                continue
            size = f"{pair.current.size} * sizeof *{pair.current.name}"
            if pair.aside is not None:
                self.write(f"memmove({self.place(pair.aside)}, {pair.following.name}, {size});")
            self.write(f"memmove({self.place(pair.landing)}, {pair.current.name}, {size});")
            if pair.aside is not None:
                self.write(f"memmove({self.place(pair.second)}, {self.place(pair.aside)}, {size});")

    def _swap(self, pairs: Sequence[DoubleBuffer]) -> None:
        for pair in pairs:
            current, following = pair.current.name, pair.following.name
            self.write(f"{c_type(pair.current.dtype)} *const {current}_swap = {current};")
            self.write(f"{current} = {following};")
            self.write(f"{following} = {current}_swap;")

    def _make_room(self, statement: ReserveStack | GrowStack) -> None:
        """Append what makes room in a stack, which keeps its memory until the end."""
        stack = statement.stack
        if stack.name not in self.stacks:
            self.stacks[stack.name] = stack
            self.declare(f"{c_type(stack.dtype)} *{stack.name} = NULL; size_t {stack.name}_room = 0;")
            self.frees.append(f"free({stack.name});")
        if isinstance(statement, ReserveStack):
            count = self.number(statement.count)
        else:
            count = f"({self.number(statement.length)} + 1)"
        room = f"(int64_t){count} * {stack.size} * (int64_t)sizeof *{stack.name}"
        reserve = self.helper("reserve")
        self.write(f"if ({reserve}(&{stack.name}, &{stack.name}_room, {room})) {self.leave(RAN_OUT)}")

    def _line(self, statement: Statement) -> str:
        if isinstance(statement, Compute):
            return self._defined(statement.target, self._computed(statement))
        if isinstance(statement, Load):
            return self._defined(statement.target, self.element(statement.buffer, statement.index))
        if isinstance(statement, Store):
            return f"{self.element(statement.buffer, statement.index)} = {self.number(statement.value)};"
        if isinstance(statement, Declare):
            return self._declared(statement)
        if isinstance(statement, Assign):
            return f"{statement.target.name} = {self.number(statement.value)};"
        if isinstance(statement, Wrap) and not statement.is_checked:
            return self._defined(statement.target, f"(int64_t){self.number(statement.value)}")
        if isinstance(statement, Wrap):
            self.fails = True
            helper = self.helper("inside" if statement.value.dtype.kind == "u" else "wrapped")
            call = f"{helper}({self.number(statement.value)}, {statement.extent}, &{FAILED})"
            return f"const int64_t {statement.target.name} = {call};"
        if isinstance(statement, Guard):
            value = self.number(statement.value)
            return f"if ((int64_t){value} != {statement.expected}) {self.leave(-statement.number)}"
        assert isinstance(statement, RoutineCall)
        return self._routine(statement)

    def _defined(self, target: Register, text: str) -> str:
        return f"const {c_type(target.dtype)} {target.name} = {text};"

    def _declared(self, statement: Declare) -> str:
        name = statement.target.name
        if any(name in scope for scope in self.scopes):
            return f"{name} = {self.number(statement.value)};"
        self.scopes[-1].add(name)
        return f"{c_type(statement.target.dtype)} {name} = {self.number(statement.value)};"

    def _computed(self, statement: Compute) -> str:
        dtypes = [arg.dtype for arg in statement.args]
        args = [self.number(arg) for arg in statement.args]
        target = statement.target.dtype
        return operation(statement.function, statement.body, dtypes, target, args, self.helper)

    # Routines

    def _routine(self, call: RoutineCall) -> str:
        if call.library == "procedure":
            self.fails = True
            larger = self.helper("larger", T="int", dtype="int")
            function = self.procedure(call.numbers[0])
            return f"{FAILED} = {larger}({FAILED}, {function}({', '.join(map(self.place, call.operands))}));"
        dtype = call.operands[0][0].dtype
        template_values = {
            "T": c_type(dtype),
            "dtype": dtype.name,
            "letter": "s" if dtype.itemsize == 4 else "d",
        }
        if call.library == "lapack":
            return self._matrix_routine(call, template_values)
        if call.function == "gemm":
            symbol = self.helper(self.routines.get("gemm", "gemm"), **template_values)
            a, b, c = map(self.place, call.operands)
            first, second, *extents, beta, ld_out = call.numbers
            numbers = [f"'{first}'", f"'{second}'", *map(str, extents), str(float(beta)), str(ld_out)]
            return f"{symbol}({', '.join([a, b, c, *numbers])});"
        if call.function in ("argsort", "searchsorted"):
            self.helper("before_real" if dtype.kind == "f" else "before", **template_values)
            *numbers, side = call.numbers if call.function == "searchsorted" else (*call.numbers, "")
            symbol = self.helper(f"{call.function}{side and '_'}{side}", **template_values)
            return f"{symbol}({', '.join([*map(self.place, call.operands), *map(str, numbers)])});"
        raise refused(call.function, call.library)

    def _matrix_routine(self, call: RoutineCall, template_values: dict[str, str]) -> str:
        row = ROWS[call.function]
        assert isinstance(row, Matrix)
        routine, dtype = row.routine, call.operands[0][0].dtype
        options = {
            name: value.replace(".", "_")
            for name, value in routine.places(dtype, *call.numbers[routine.extents :]).items()
            if isinstance(value, str)
        }
        file = options.get("file", call.function)
        try:
            symbol = self.helper(self.routines.get(file, file), **{**options, **template_values})
        except FileNotFoundError:
            raise refused(call.function, call.library) from None
        self.fails = True
        extents = map(str, call.numbers[: routine.extents])
        return f"{FAILED} |= {symbol}({', '.join([*map(self.place, call.operands), *extents])});"

    # Operands

    def number(self, number: Number) -> str:
        if isinstance(number, Const):
            return constant_text(number.value, number.dtype)
        if isinstance(number, Index):
            text = self.position(number.position)
            return text if text.isidentifier() or text.isdigit() else f"({text})"
        return number.name

    def position(self, position: Position) -> str:
        return position_text(position, self.helper)

    def element(self, buffer: Buffer, index: Position) -> str:
        return f"{buffer.name}[{self.position(index)}]"

    def place(self, place: Place) -> str:
        buffer, position = place
        return buffer.name if position == 0 else f"{buffer.name} + {self.position(position)}"


def lanes_of(loop: For) -> str | None:
    """Return the pragma of an innermost loop whose iterations may be the lanes of vectors, in which its sums are taken; None for others."""
    body = loop.body
    stored = {statement.buffer: statement.index for statement in body if isinstance(statement, Store)}
    sums = {s.target.name: s.value for s in body if isinstance(s, Assign)}
    added: dict[str, Compute] = {s.target.name: s for s in body if isinstance(s, Compute)}
    uses = Counter(number.name for s in body for number in s.uses() if isinstance(number, Register))
    if loop.trip_count < LEAST_LANES and not lengths_vary():
        return None
    for statement in body:
        if isinstance(statement, Load | Store):
            index = stored.get(statement.buffer, statement.index)
            if index != statement.index:
                return None
            if isinstance(statement, Store) and (isinstance(index, int) or loop.var not in index.terms):
                return None
        elif not isinstance(statement, Compute | Assign):
            return None
    for name, value in sums.items():
        compute = added.get(value.name) if isinstance(value, Register) else None
        if (
            compute is None
            or not (compute.reassociate and _is_sum(compute, name))
            or uses[name] != 1
            or uses[compute.target.name] != 1
        ):
            return None
    return f"SUM_LANES({', '.join(sums)})" if sums else "LANES"


def _is_sum(compute: Compute, name: str) -> bool:
    """Return whether an addition of floats has an accumulator as an operand."""
    is_addition = (
        isinstance(compute.body, Instruction)
        and compute.body.real == "fadd"
        and compute.target.dtype.kind == "f"
    )
    return is_addition and any(isinstance(arg, Register) and arg.name == name for arg in compute.args)


def refused(name: str, library: str, where: Site | None = None) -> LoweringError:
    """Return the error for a routine that there is not in C."""
    why_lapack = "it needs LAPACK, of which exported C has no routines for bands"
    return LoweringError(
        f"{name} cannot be exported as C",
        where=where,
        why="Python computes it" if library == "python" else why_lapack,
        remedy="export a .gradtape file, which gt.load calls from Python, or compute it outside and pass it as an argument",
    )
