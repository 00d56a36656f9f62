"""The printer of procedures as C functions: what was compiled from its source code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from gradtape.errors import LoweringError
from gradtape.ir.body import Body
from gradtape.ir.graph import Literal, Node, Value, number_of
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.routines.callback import PythonCall
from gradtape.lower.c.expressions import Helper, c_type, constant_text, operation
from gradtape.lower.c.printer import refused
from gradtape.lower.procedures.allocation import IN_FRAME, plan_allocations
from gradtape.lower.procedures.optimise import optimise_procedure
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
from gradtape.procedures.traversal import walk

INDENT: Final = "    "

NO_MEMORY: Final = "{ failed = 2; goto done; }"
"""What ends a call for which there is no memory."""

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_DEFINITION: Final = re.compile(r"\s*(?:const \w+|\w+ \*const) (\w+) = ")

_TARGET: Final = re.compile(r"\s*(\w+)(?:\[[^\]]*\])? = ")

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


class _Printer:
    """Prints a statement after the other; a value is computed where it is first used in a block."""

    def __init__(self, procedure: Procedure, helper: Helper, add_body: AddBody) -> None:
        self.procedure = procedure
        self.helper = helper
        self.add_body = add_body
        self.allocations = plan_allocations(procedure)
        self.lines: list[str] = []
        self.frame: list[str] = []
        self.known: list[dict[Content, str]] = [{}]
        self.variables: dict[Variable, str] = {}
        self.indent = INDENT
        self.count = 0
        inside = list(walk(procedure.body))
        self.uses_tape = any(isinstance(s, Push | Pop) for s in inside)
        self.uses_arena = bool(self.allocations.in_arena) or any(isinstance(s, Apply) for s in inside)
        self.fails = self.uses_tape or self.uses_arena or any(isinstance(s, Check) for s in inside)

    def function(self, name: str) -> str:
        procedure = self.procedure
        parameters = []
        for number, (leaf, type_) in enumerate(zip(procedure.parameters, procedure.types, strict=True)):
            type_name = c_type(type_.dtype)
            parameters.append(f"const {type_name} *restrict a{number}")
            if isinstance(leaf, Pointer):
                self.define(leaf, f"({type_name} *)a{number}")
            else:
                self.define(leaf, f"*a{number}")
        parameters += [f"{c_type(type_.dtype)} *r{k}" for k, type_ in enumerate(procedure.result_types)]
        self.block(procedure.body)
        for number, result in enumerate(procedure.results):
            if isinstance(result, Value):
                self.write(f"*r{number} = {self.operand(result)};")
        head = [f"static int {name}({', '.join(parameters)})", "{"]
        if self.fails:
            self.frame.insert(0, f"{INDENT}int failed = 0;")
        if self.uses_arena:
            self.helper("arena")
            self.frame.append(f"{INDENT}struct arena_block *arena = NULL;")
        if self.uses_tape:
            self.helper("tape")
            self.frame.append(f"{INDENT}struct tape tape = {{NULL, 0, 0}};")
        end = [f"{INDENT}return {'failed' if self.fails else '0'};", "}"]
        if self.uses_tape:
            end.insert(0, f"{INDENT}free(tape.start);")
        if self.uses_arena:
            end.insert(0, f"{INDENT}arena_free(&arena, NULL);")
        if any("goto done" in line for line in self.lines):
            end.insert(0, "done:")
        body = _without_unused([*self.frame, *self.lines])
        body = [*body[: len(self.frame)], *_marked(self.frame, body), *body[len(self.frame) :]]
        mentioned = set(_NAME.findall("\n".join(body)))
        names = [parameter.rpartition("*")[2].removeprefix("restrict ") for parameter in parameters]
        unused = [f"(void){parameter};" for parameter in names if parameter not in mentioned]
        return "\n".join([*head, *[f"{INDENT}{' '.join(unused)}"][: bool(unused)], *body, *end])

    # Names and operands

    def write(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def new(self, letter: str) -> str:
        """Return a name that no other has."""
        self.count += 1
        return f"{letter}{self.count}_"

    def define(self, content: Content, text: str) -> None:
        """Append the definition of a value or a pointer."""
        name, type_ = self.new("t"), c_type(content.dtype)
        self.write(
            f"{f'{type_} *const' if isinstance(content, Pointer) else f'const {type_}'} {name} = {text};"
        )
        self.known[-1][content] = name

    def find(self, content: Content) -> str | None:
        if isinstance(content, Literal):
            return constant_text(content.data, content.dtype)
        return next((known[content] for known in reversed(self.known) if content in known), None)

    def operand(self, content: Content) -> str:
        """Return a value or a pointer, after what computes it."""
        found = self.find(content)
        if found is not None:
            return found
        pending = [content]
        while pending:
            value = pending[-1]
            if self.find(value) is not None:
                pending.pop()
                continue
            assert isinstance(value, Value)
            assert value.node is not None, f"{value!r} is not defined here"
            missing = [x for x in value.node.inputs if self.find(x) is None]
            if missing:
                pending += missing
            else:
                self.define(value, self.computed(value.node, value))
                pending.pop()
        return self.known[-1][content]

    def computed(self, node: Node, out: Value) -> str:
        op = node.op
        if isinstance(op, PythonCall):
            raise refused(node.params["row"], "python", node.site)
        if not isinstance(op, Elementwise) or op.is_formula:
            raise LoweringError(f"{op.name} is no primitive of procedures", where=node.site)
        dtypes = [x.dtype for x in node.inputs]
        args = [self.find(x) or "" for x in node.inputs]
        return operation(op.name, op.body, dtypes, out.dtype, args, self.helper)

    def variable(self, variable: Variable) -> str:
        if variable not in self.variables:
            name = self.variables[variable] = self.new("v")
            pointer = isinstance(variable.type, Memory)
            self.frame.append(
                f"{INDENT}{c_type(variable.type.dtype)} {'*' if pointer else ''}{name} = {'NULL' if pointer else '0'};"
            )
        return self.variables[variable]

    def element(self, pointer: Pointer, index: Value) -> str:
        return f"{self.operand(pointer)}[{self.operand(index)}]"

    def address(self, span: Span) -> str:
        return f"&{self.element(span.pointer, span.offset)}"

    # Statements

    def block(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self.statement(statement)

    def inner(self, *parts: Sequence[Statement]) -> None:
        """Append statements of a block of their own, whose values are not known after it."""
        self.known.append({})
        outside, self.indent = self.indent, self.indent + INDENT
        for statements in parts:
            self.block(statements)
        self.known.pop()
        self.indent = outside

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
            self.write(f"if ({self.operand(statement.condition)}) {{")
            self.inner(statement.then)
            if statement.otherwise:
                self.write("} else {")
                self.inner(statement.otherwise)
            self.write("}")
        elif isinstance(statement, Push):
            for content in statement.values:
                self.push(content)
        elif isinstance(statement, Pop):
            for content in reversed(statement.outs):
                name = self.new("t")
                self.write(f"{c_type(content.dtype)} {'*' if isinstance(content, Pointer) else ''}{name};")
                self.write(f"tape_pop(&tape, &{name}, sizeof {name});")
                self.known[-1][content] = name
        else:
            self.apply(statement)

    def push(self, content: Content) -> None:
        operand, name = self.operand(content), self.new("t")
        self.write(
            f"{c_type(content.dtype)} {'*' if isinstance(content, Pointer) else ''}{name} = {operand};"
        )
        self.write(f"if (tape_push(&tape, &{name}, sizeof {name})) {NO_MEMORY}")

    def allocate(self, statement: Allocate) -> None:
        type_, plan = c_type(statement.out.dtype), self.allocations
        size = self.operand(statement.size)
        bytes_ = f"{size} * (int64_t)sizeof({type_})"
        if statement in plan.results:
            name = f"r{plan.results[statement]}"
        elif statement in plan.in_frame:
            name = self.new("m")
            count = plan.in_frame[statement] // statement.out.dtype.itemsize
            self.frame.append(f"{INDENT}{type_} {name}[{count}];")
        else:
            name = self.new("m")
            self.write(f"{type_} *const {name} = arena_take(&arena, {bytes_});")
            self.write(f"if ({name} == NULL) {NO_MEMORY}")
        if statement.zero:
            known = number_of(statement.size)
            if known is None:
                self.write(f"if ({size} > 0)")
            if known is None or known > 0:
                self.write(f"{INDENT if known is None else ''}memset({name}, 0, (size_t)({bytes_}));")
        self.known[-1][statement.out] = name

    def loop(self, loop: For) -> None:
        count, index = self.operand(loop.count), self.new("i")
        mark = self.mark(loop)
        self.write(f"for (int64_t {index} = 0; {index} < {count}; {index}++) {{")
        self.known.append({loop.index: index})
        self.inner(loop.body)
        self.known.pop()
        self.rewind(mark)
        self.write("}")

    def while_loop(self, loop: While) -> None:
        mark = self.mark(loop)
        self.write("for (;;) {")
        self.known.append({})
        outside, self.indent = self.indent, self.indent + INDENT
        self.block(loop.test)
        # After a failure the condition may hold for ever.
        self.write(f"if (!{self.operand(loop.condition)}{' || failed' if self.fails else ''})")
        self.write(f"{INDENT}break;")
        self.block(loop.body)
        self.indent = outside
        self.known.pop()
        self.rewind(mark)
        self.write("}")

    def mark(self, loop: Statement) -> str:
        """Append what remembers the memory to which a loop returns after each iteration; return its name, an empty one for others."""
        if loop not in self.allocations.rewound:
            return ""
        name = self.new("m")
        self.write(f"struct arena_block *const {name} = arena;")
        return name

    def rewind(self, mark: str) -> None:
        if mark:
            self.write(f"{INDENT}arena_free(&arena, {mark});")

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
        mark = ""
        if workspace > IN_FRAME:
            mark, name = self.new("m"), self.new("m")
            self.write(f"struct arena_block *const {mark} = arena;")
            self.write(f"char *const {name} = arena_take(&arena, {workspace});")
            self.write(f"if ({name} == NULL) {NO_MEMORY}")
        else:
            name = self.new("m")
            self.frame.append(f"{INDENT}double {name}[{max(workspace, 8) // 8}];")
            name = f"(char *){name}"
        self.write(
            f"if ({function}({', '.join([*given, *constants, *made, name])})) {{ failed = 1; goto done; }}"
        )
        if mark:
            self.write(f"arena_free(&arena, {mark});")


def _without_unused(lines: list[str]) -> list[str]:
    """Return the lines without definitions of names that no other line mentions, of which compilers warn."""
    while True:
        counts = Counter(_NAME.findall("\n".join(lines)))
        kept = [line for line in lines if (found := _DEFINITION.match(line)) is None or counts[found[1]] > 1]
        if len(kept) == len(lines):
            return lines
        lines = kept


def _marked(frame: list[str], body: list[str]) -> list[str]:
    """Return statements that mention the arrays and variables to which the body only writes, of which compilers warn."""
    counts = Counter(_NAME.findall("\n".join(body)))
    targets = Counter([found[1] for line in body if (found := _TARGET.match(line))])
    names = [
        _NAME.findall(line)[-1] if "=" not in line else _NAME.findall(line.partition("=")[0])[-1]
        for line in frame
    ]
    unread = [name for name in names if counts[name] == 1 + targets[name]]
    return [f"{INDENT}{' '.join([f'(void){name};' for name in unread])}"][: bool(unread)]
