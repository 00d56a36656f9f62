"""The printer of loops as C: one function of flat arrays, as `gradtape.loops.printer` prints them as Python."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from gradtape.errors import LoweringError
from gradtape.ir.site import Site
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.elementwise import Instruction
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.matrix import Matrix
from gradtape.loops.affine import Affine, Position
from gradtape.loops.ir import (
    UNBOUNDED,
    Assign,
    Buffer,
    Compute,
    Const,
    ControlFlow,
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
from gradtape.loops.traversal import numbers_of, positions_of, walk
from gradtape.loops.workspace import RESERVED
from gradtape.lower.c.expressions import Helper, c_type, constant_text, operation, position_text

FAILED: Final = "failed"
"""The variable that says whether an index was out of bounds, or a routine has failed."""

RAN_OUT: Final = -2
"""The status where there is no memory."""

INDENT: Final = "    "

LEAST_LANES: Final = 8
"""Iterations of a loop for which vectors pay."""

_NAME: Final = re.compile(r"[A-Za-z_]\w*")


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


class _Printer:
    """Prints the statements of one program."""

    def __init__(
        self,
        program: LoopProgram,
        offsets: Mapping[Buffer, int],
        helper: Helper,
        routines: Mapping[str, str],
        procedure: Callable[[Any], str],
    ) -> None:
        self.program = program
        self.offsets = offsets
        self.helper = helper
        self.routines = routines
        self.procedure = procedure
        self.used = _used_names(program.body)
        self.fails = False
        self.stacks: dict[str, Buffer] = {}
        self.scopes: list[set[str]] = []

    def function(self, name: str) -> str:
        body = list(self.block(self.program.body, INDENT))
        inputs = [f"const {c_type(buffer.dtype)} *restrict {buffer.name}" for buffer in self.program.inputs]
        outputs = [f"{c_type(buffer.dtype)} *restrict {buffer.name}" for buffer in self.program.outputs]
        head = f"static int {name}({', '.join([*inputs, *outputs, 'char *workspace'])})"
        lines = []
        for buffer in self.program.scratch:
            if buffer in self.offsets:
                type_ = c_type(buffer.dtype)
                offset = self.offsets[buffer] - RESERVED
                lines.append(
                    f"{INDENT}{type_} *const {buffer.name} = ({type_} *)(void *)(workspace + {offset});"
                )
        mentioned = set(_NAME.findall("\n".join([*lines, *body])))
        parameters = [buffer.name for buffer in (*self.program.inputs, *self.program.outputs)]
        unused = [f"(void){name};" for name in (*parameters, "workspace") if name not in mentioned]
        if unused:
            lines.append(f"{INDENT}{' '.join(unused)}")
        if self.fails:
            lines.append(f"{INDENT}int {FAILED} = 0;")
        lines += [
            f"{INDENT}{c_type(stack.dtype)} *{stack.name} = NULL; size_t {stack.name}_room = 0;"
            for stack in self.stacks.values()
        ]
        result = f"-{FAILED}" if self.fails else "0"
        if self.stacks:
            free = [f"{INDENT}free({stack});" for stack in self.stacks]
            end = [f"{INDENT}status = {result};", "done:", *free, f"{INDENT}return status;"]
            lines.append(f"{INDENT}int status;")
        else:
            end = [f"{INDENT}return {result};"]
        return "\n".join([head, "{", *lines, *body, *end, "}"])

    def ending(self, status: int) -> str:
        """Return the statement that ends the program."""
        if any(isinstance(statement, ReserveStack) for statement in walk(self.program.body)):
            return f"{{ status = {status}; goto done; }}"
        return f"return {status};"

    # Statements

    def block(self, statements: Sequence[Statement], indent: str) -> Iterator[str]:
        """Yield the lines of the statements of one scope."""
        self.scopes.append(set())
        for statement in statements:
            yield from self.statement(statement, indent)
        self.scopes.pop()

    def statement(self, statement: Statement, indent: str) -> Iterator[str]:
        inner = indent + INDENT
        if isinstance(statement, For):
            var = statement.var
            lanes = lanes_of(statement, self.used)
            if lanes is not None:
                yield f"{indent}{self.helper('lanes') and lanes}"
            yield f"{indent}for (int64_t {var.name} = {var.low}; {var.name} < {var.high + 1}; {var.name}++) {{"
            yield from self.block(statement.body, inner)
            yield f"{indent}}}"
        elif isinstance(statement, SequentialFor):
            count = statement.var.high + 1 if statement.count is None else self.number(statement.count)
            yield from self._pairs_before(statement.pairs, indent)
            name = statement.var.name
            yield f"{indent}for (int64_t {name} = 0; {name} < {count}; {name}++) {{"
            yield from self.block(statement.body, inner)
            yield from _pairs_swapped(statement.pairs, inner)
            yield f"{indent}}}"
            yield from self._pairs_after(statement.pairs, indent)
        elif isinstance(statement, WhileLoop):
            yield from self._while(statement, indent)
        elif isinstance(statement, IndexSwitch):
            yield from self._switch(statement, indent)
        elif isinstance(statement, ReserveStack | GrowStack):
            yield f"{indent}{self._room(statement)}"
        elif isinstance(statement, OpenStack):
            return
        else:
            line = self._line(statement)
            if line:
                yield f"{indent}{line}"

    def _while(self, statement: WhileLoop, indent: str) -> Iterator[str]:
        name, inner = statement.var.name, indent + INDENT
        yield from self._pairs_before(statement.pairs, indent)
        most = statement.var.high + 1
        bound = "" if most > UNBOUNDED else f" {name} < {most}"
        yield f"{indent}for (int64_t {name} = 0;{bound}; {name}++) {{"
        self.scopes.append(set())
        for one in statement.test:
            yield from self.statement(one, inner)
        condition = self.number(statement.condition)
        yield f"{inner}if (!{condition}{f' || {FAILED}' if self.fails else ''})"
        yield f"{inner}{INDENT}break;"
        for one in statement.body:
            yield from self.statement(one, inner)
        self.scopes.pop()
        yield from _pairs_swapped(statement.pairs, inner)
        yield f"{indent}}}"
        yield from self._pairs_after(statement.pairs, indent)

    def _switch(self, statement: IndexSwitch, indent: str) -> Iterator[str]:
        index, last = self.number(statement.index), len(statement.branches) - 1
        for position, branch in enumerate(statement.branches):
            test = "" if position == last else f"if ({index} <= {position}) "
            yield f"{indent}{'} else ' if position else ''}{test}{{"
            yield from self.block(branch, indent + INDENT)
        yield f"{indent}}}"

    def _pairs_before(self, pairs: Sequence[DoubleBuffer], indent: str) -> Iterator[str]:
        for pair in pairs:
            type_ = c_type(pair.current.dtype)
            yield f"{indent}{type_} *{pair.current.name} = {self.place(pair.first)};"
            yield f"{indent}{type_} *{pair.following.name} = {self.place(pair.second)};"

    def _pairs_after(self, pairs: Sequence[DoubleBuffer], indent: str) -> Iterator[str]:
        for pair in pairs:
            if pair.landing is None:
                continue
            size = f"{pair.current.size} * sizeof *{pair.current.name}"
            if pair.aside is not None:
                yield f"{indent}memmove({self.place(pair.aside)}, {pair.following.name}, {size});"
            yield f"{indent}memmove({self.place(pair.landing)}, {pair.current.name}, {size});"
            if pair.aside is not None:
                yield f"{indent}memmove({self.place(pair.second)}, {self.place(pair.aside)}, {size});"

    def _room(self, statement: ReserveStack | GrowStack) -> str:
        """Return the statement that makes room in a stack, which keeps its memory until the end."""
        stack = self.stacks.setdefault(statement.stack.name, statement.stack)
        if isinstance(statement, ReserveStack):
            count = self.number(statement.count)
        else:
            count = f"({self.number(statement.length)} + 1)"
        wanted = f"(int64_t){count} * {stack.size} * (int64_t)sizeof *{stack.name}"
        reserve = self.helper("reserve")
        return f"if ({reserve}(&{stack.name}, &{stack.name}_room, {wanted})) {self.ending(RAN_OUT)}"

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
            if statement.target.name not in self.used:
                return ""
            return f"{statement.target.name} = {self.number(statement.value)};"
        if isinstance(statement, Wrap) and not statement.is_checked:
            return self._defined(statement.target, f"(int64_t){self.number(statement.value)}")
        if isinstance(statement, Wrap):
            self.fails = True
            helper = self.helper("inside" if statement.value.dtype.kind == "u" else "wrapped")
            call = f"{helper}({self.number(statement.value)}, {statement.extent}, &{FAILED})"
            name = statement.target.name
            return f"const int64_t {name} = {call};" if name in self.used else f"{call};"
        if isinstance(statement, Guard):
            value = self.number(statement.value)
            return f"if ((int64_t){value} != {statement.expected}) {self.ending(statement.number)}"
        assert isinstance(statement, RoutineCall)
        return self._routine(statement)

    def _defined(self, target: Register, text: str) -> str:
        return f"const {c_type(target.dtype)} {target.name} = {text};" if target.name in self.used else ""

    def _declared(self, statement: Declare) -> str:
        name = statement.target.name
        if name not in self.used:
            return ""
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
        places = {"T": c_type(dtype), "dtype": dtype.name, "letter": "s" if dtype.itemsize == 4 else "d"}
        if call.library == "lapack":
            return self._matrix_routine(call, places)
        if call.function == "gemm":
            symbol = self.helper(self.routines.get("gemm", "gemm"), **places)
            a, b, c = map(self.place, call.operands)
            first, second, *extents, beta, ld_out = call.numbers
            numbers = [f"'{first}'", f"'{second}'", *map(str, extents), str(float(beta)), str(ld_out)]
            return f"{symbol}({', '.join([a, b, c, *numbers])});"
        if call.function in ("argsort", "searchsorted"):
            self.helper("before_real" if dtype.kind == "f" else "before", **places)
            *numbers, side = call.numbers if call.function == "searchsorted" else (*call.numbers, "")
            symbol = self.helper(f"{call.function}{side and '_'}{side}", **places)
            return f"{symbol}({', '.join([*map(self.place, call.operands), *map(str, numbers)])});"
        raise refused(call.function, call.library)

    def _matrix_routine(self, call: RoutineCall, places: dict[str, str]) -> str:
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
            symbol = self.helper(self.routines.get(file, file), **{**options, **places})
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


def lanes_of(loop: For, used: set[str]) -> str | None:
    """Return the pragma of an innermost loop whose iterations may be the lanes of vectors, in which its sums are taken; None for others."""
    body = loop.body
    stored = {statement.buffer: statement.index for statement in body if isinstance(statement, Store)}
    sums = {s.target.name: s.value for s in body if isinstance(s, Assign)}
    added: dict[str, Compute] = {s.target.name: s for s in body if isinstance(s, Compute)}
    uses = Counter(number.name for s in body for number in numbers_of(s) if isinstance(number, Register))
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
        made = added.get(value.name) if isinstance(value, Register) else None
        if (
            made is None
            or not (made.reassociate and _is_sum(made, name))
            or uses[name] != 1
            or uses[made.target.name] != 1
        ):
            return None
    names = [name for name in sums if name in used]  # the others are not declared
    return f"SUM_LANES({', '.join(names)})" if names else "LANES"


def _is_sum(made: Compute, name: str) -> bool:
    """Return whether an addition of floats has an accumulator as an operand."""
    is_addition = (
        isinstance(made.body, Instruction) and made.body.real == "fadd" and made.target.dtype.kind == "f"
    )
    return is_addition and any(isinstance(arg, Register) and arg.name == name for arg in made.args)


def _pairs_swapped(pairs: Sequence[DoubleBuffer], indent: str) -> Iterator[str]:
    for pair in pairs:
        current, following = pair.current.name, pair.following.name
        yield f"{indent}{c_type(pair.current.dtype)} *const {current}_swap = {current};"
        yield f"{indent}{current} = {following};"
        yield f"{indent}{following} = {current}_swap;"


def refused(name: str, library: str, where: Site | None = None) -> LoweringError:
    """Return the error for a routine that there is not in C."""
    what = "it needs LAPACK, of which exported C has no routines for bands"
    return LoweringError(
        f"{name} cannot be exported as C",
        where=where,
        why="Python computes it" if library == "python" else what,
        remedy="export a .gradtape file, which gt.load calls from Python, or compute it outside and pass it as an argument",
    )


def _used_names(body: Sequence[Statement]) -> set[str]:
    """Return the registers on which an effect depends: C compilers warn of others."""
    needed: dict[str, set[str]] = {}
    used: set[str] = set()
    for statement in walk(body):
        names = {number.name for number in numbers_of(statement) if isinstance(number, Register)}
        for position in positions_of(statement):
            names |= _variables(position)
        if isinstance(statement, WhileLoop):
            used |= {statement.condition.name} if isinstance(statement.condition, Register) else set()
        if isinstance(statement, Compute | Load | Declare | Assign):
            needed.setdefault(statement.target.name, set()).update(names)
        else:
            used |= names
            for _, position in _places(statement):
                used |= _variables(position)
    pending = list(used)
    while pending:
        for name in needed.pop(pending.pop(), ()):
            if name not in used:
                used.add(name)
                pending.append(name)
    return used


def _places(statement: Statement) -> Sequence[Place]:
    if isinstance(statement, RoutineCall):
        return statement.operands
    return statement.places() if isinstance(statement, ControlFlow) else ()


def _variables(position: Position) -> set[str]:
    return {var.name for var in position.variables()} if isinstance(position, Affine) else set()
