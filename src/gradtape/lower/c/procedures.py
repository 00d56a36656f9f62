"""The printer of procedures, which come from code that was translated, as C functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from gradtape.ir.body import Body
from gradtape.ir.graph import Literal, Node, Value, number_of
from gradtape.kinds.routines.callback import PythonCall
from gradtape.lower.c.expressions import Helper, c_type, constant_text, operation
from gradtape.lower.c.printer import refused
from gradtape.lower.c.writer import INDENT, FunctionWriter, pointer_type
from gradtape.lower.procedures.allocation import IN_FRAME, plan_allocations
from gradtape.lower.procedures.operands import BlockOperands, primitive_of
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    Content,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Span,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.tape import foreseen_records, item_size
from gradtape.statements import walk

NO_MEMORY: Final = 2
"""The status where there is no memory."""

AddBody = Callable[[Body], tuple[str, list[str], int]]
"""Adds the function of an array computation to the file; returns its name, those of the constants that it takes after its inputs, and the
bytes of its workspace."""


def print_procedure(procedure: Procedure, name: str, helper: Helper, add_body: AddBody) -> str:
    """Return a procedure as a C function.

    Its parameters are the addresses of the arguments and of the results, scalars among them. It returns 0, 1 where a check fails, 2 where
    there is no memory, or what an array computation in it returns.

    Parameters
    ----------
    procedure : Procedure
    name : str
        Of the function.
    helper : callable
        Adds functions of the folder ``routines`` to the file.
    add_body : callable
        Adds the functions of array computations.

    Raises
    ------
    LoweringError
        For what C does not have.
    """
    return _Printer(optimise_procedure(procedure), helper, add_body).function(name)


class _Printer(FunctionWriter, BlockOperands):
    """Prints a statement after the other."""

    def __init__(self, procedure: Procedure, helper: Helper, add_body: AddBody) -> None:
        FunctionWriter.__init__(self, helper)
        BlockOperands.__init__(self)
        self.procedure = procedure
        self.add_body = add_body
        self.allocations = plan_allocations(procedure)
        self.foreseen = foreseen_records(procedure.body, lambda entries: sum(map(item_size, entries)))
        self.variables: dict[Variable, str] = {}
        self.count = 0
        inside = list(walk(procedure.body))
        uses_tape = any(isinstance(s, Push | Pop) for s in inside)
        uses_arena = bool(self.allocations.in_arena) or any(isinstance(s, Apply) for s in inside)
        self.fails = uses_tape or uses_arena or any(isinstance(s, Check) for s in inside)
        for is_used, name, start, free in (
            (uses_tape, "tape", "struct tape tape = {NULL, 0, 0};", "free(tape.start);"),
            (uses_arena, "arena", "struct arena_block *arena = NULL;", "arena_free(&arena, NULL);"),
        ):
            if is_used:
                self.helper(name)
                self.declare(start)
                self.frees.insert(0, free)

    def function(self, name: str) -> str:
        procedure = self.procedure
        parameters = []
        for number, (leaf, type_) in enumerate(zip(procedure.parameters, procedure.types, strict=True)):
            parameters.append((f"const {c_type(type_.dtype)} *restrict ", f"a{number}"))
            cast = f"({c_type(type_.dtype)} *)a{number}"
            self.define(leaf, cast if isinstance(leaf, Pointer) else f"*a{number}")
        parameters += [(pointer_type(type_.dtype), f"r{k}") for k, type_ in enumerate(procedure.result_types)]
        self.statements(procedure.body)
        for number, result in enumerate(procedure.results):
            if isinstance(result, Value):
                self.write(f"*r{number} = {self.operand(result)};")
        return self.text(name, parameters)

    # Names and operands

    def new(self, letter: str) -> str:
        """Return a name that no other has."""
        self.count += 1
        return f"{letter}{self.count}_"

    def define(self, content: Content, text: str) -> str:
        """Append the definition of a value or a pointer; return its name."""
        name, type_ = self.new("t"), c_type(content.dtype)
        head = f"{type_} *const" if isinstance(content, Pointer) else f"const {type_}"
        self.write(f"{head} {name} = {text};")
        self.set_operand(content, name)
        return name

    def literal_operand(self, literal: Literal) -> str:
        return constant_text(literal.data, literal.dtype)

    def append_node(self, node: Node, out: Value) -> str:
        if isinstance(node.op, PythonCall):
            raise refused(node.params["row"], "python", node.site)
        op, dtypes = primitive_of(node), [x.dtype for x in node.inputs]
        text = operation(op.name, op.body, dtypes, out.dtype, self.operands_of(node), self.helper)
        return self.define(out, text)

    def variable(self, variable: Variable) -> str:
        if variable not in self.variables:
            name = self.variables[variable] = self.new("v")
            pointer = isinstance(variable.type, Memory)
            self.declare(
                f"{pointer_type(variable.type.dtype, pointer)}{name} = {'NULL' if pointer else '0'};"
            )
        return self.variables[variable]

    def element(self, pointer: Pointer, index: Value) -> str:
        return f"{self.operand(pointer)}[{self.operand(index)}]"

    def address(self, span: Span) -> str:
        return f"&{self.element(span.pointer, span.offset)}"

    # Statements

    def statements(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self.statement(statement)

    @contextmanager
    def scope(self, head: str, known: dict[Content, str] | None = None) -> Iterator[None]:
        """Append a block, whose values are not known after it."""
        self.known.append({} if known is None else known)
        with self.block(head):
            yield
        self.known.pop()

    def statement(self, statement: Statement) -> None:
        if isinstance(statement, Load):
            self.define(statement.out, self.element(statement.pointer, statement.index))
        elif isinstance(statement, Store):
            value = self.operand(statement.value)
            self.write(f"{self.element(statement.pointer, statement.index)} = {value};")
        elif isinstance(statement, Read):
            self.define(statement.out, self.variable(statement.variable))
        elif isinstance(statement, Assign):
            value = self.operand(statement.value)
            self.write(f"{self.variable(statement.variable)} = {value};")
        elif isinstance(statement, Allocate):
            self.allocate(statement)
        elif isinstance(statement, Check):
            self.write(f"failed |= !{self.operand(statement.condition)};")
        elif isinstance(statement, For):
            self.loop(statement)
        elif isinstance(statement, While):
            self.while_loop(statement)
        elif isinstance(statement, If):
            with self.scope(f"if ({self.operand(statement.condition)})"):
                self.statements(statement.then)
            if statement.otherwise:
                with self.scope(f"{self.lines.pop().strip()} else"):
                    self.statements(statement.otherwise)
        elif isinstance(statement, Push):
            for content in statement.values:
                self.push(content)
        elif isinstance(statement, Pop):
            for content in reversed(statement.outs):
                name = self.new("t")
                self.write(f"{pointer_type(content.dtype, isinstance(content, Pointer))}{name};")
                self.write(f"tape_pop(&tape, &{name}, sizeof {name});")
                self.set_operand(content, name)
        else:
            self.apply(statement)

    def push(self, content: Content) -> None:
        operand, name = self.operand(content), self.new("t")
        self.write(f"{pointer_type(content.dtype, isinstance(content, Pointer))}{name} = {operand};")
        self.write(f"if (tape_push(&tape, &{name}, sizeof {name})) {self.leave(NO_MEMORY)}")

    def allocate(self, statement: Allocate) -> None:
        type_, plan = c_type(statement.out.dtype), self.allocations
        size = self.operand(statement.size)
        bytes_ = f"{size} * (int64_t)sizeof({type_})"
        if statement in plan.results:
            name = f"r{plan.results[statement]}"
        elif statement in plan.in_frame:
            name = self.new("m")
            count = plan.in_frame[statement] // statement.out.dtype.itemsize
            self.declare(f"{type_} {name}[{count}];")
        else:
            name = self.take(type_, bytes_)
        if statement.zero:
            known = number_of(statement.size)
            if known is None:
                self.write(f"if ({size} > 0)")
            if known is None or known > 0:
                self.write(f"{INDENT if known is None else ''}memset({name}, 0, (size_t)({bytes_}));")
        self.set_operand(statement.out, name)

    def take(self, type_: str, bytes_: object) -> str:
        """Append what takes memory out of the arena; return its name."""
        name = self.new("m")
        self.write(f"{type_} *const {name} = arena_take(&arena, {bytes_});")
        self.write(f"if ({name} == NULL) {self.leave(NO_MEMORY)}")
        return name

    def loop(self, loop: For) -> None:
        count, index = self.operand(loop.count), self.new("i")
        if loop in self.foreseen:
            self.write(f"{self.helper('tape_extend')}(&tape, {self.operand(self.foreseen[loop])});")
        mark = self.mark(loop in self.allocations.rewound)
        with self.scope(self.counted(index, count), {loop.index: index}):
            self.statements(loop.body)
            self.rewind(mark)

    def while_loop(self, loop: While) -> None:
        mark = self.mark(loop in self.allocations.rewound)
        with self.scope("for (;;)"):
            self.statements(loop.test)
            self.break_unless(self.operand(loop.condition))
            self.statements(loop.body)
            self.rewind(mark)

    def mark(self, rewinds: bool) -> str:
        """Append what remembers the memory to which the arena returns; return its name, an empty one where it does not."""
        if not rewinds:
            return ""
        name = self.new("m")
        self.write(f"struct arena_block *const {name} = arena;")
        return name

    def rewind(self, mark: str) -> None:
        if mark:
            self.write(f"arena_free(&arena, {mark});")

    def apply(self, statement: Apply) -> None:
        """Append the call of an array computation; the procedure ends where it fails."""
        function, constants, workspace = self.add_body(statement.graph)
        given = []
        for operand in statement.inputs:
            if isinstance(operand, Span):
                given.append(self.address(operand))
            else:
                value, name = self.operand(operand), self.new("t")
                self.write(f"{c_type(operand.dtype)} {name} = {value};")
                given.append(f"&{name}")
        made = [self.address(span) for span in statement.outputs]
        mark = self.mark(workspace > IN_FRAME)
        if mark:
            name = self.take("char", workspace)
        else:
            name = self.new("m")
            self.declare(f"double {name}[{max(workspace, 8) // 8}];")
            name = f"(char *){name}"
        operands = ", ".join([*given, *constants, *made, name])
        self.write(f"if ({function}({operands})) {self.leave(1)}")
        self.rewind(mark)
