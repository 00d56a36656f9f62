"""The printer of procedures: Python on flat NumPy arrays that runs as it is and compiles under Numba."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np

from gradtape.errors import VerifyError
from gradtape.ir.body import Body
from gradtape.ir.expressions import ATOM, OR, Code, dtype_name, expression, number
from gradtape.ir.graph import Node, Value, extract
from gradtape.kinds.elementwise import Elementwise
from gradtape.procedures.expansion import expand
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
from gradtape.procedures.liveness import Uses
from gradtape.records import record
from gradtape.statements import walk

RESERVED: Final = frozenset({*keyword.kwlist, *dir(builtins), "np", "math", "scipy", "numba"})

WRAPPING: Final = frozenset({"multiply", "shift_up", "left_shift", "power"})
"""Rows whose integer results leave 64 bits in programs that count on it (hashes, random numbers)."""

MOST_DEPTH: Final = 32
"""Operations inside each other in one printed expression: Python's parser takes 200 parentheses."""


@record
class Source:
    """A printed procedure.

    Attributes
    ----------
    text : str
        One function; it uses ``np``, ``math``, where SciPy alone has a function ``scipy.special``, and the names of `graphs`.
    name : str
        Of the function.
    graphs : dict of str to Body
        Array computations that the function calls: with the inputs, then the outputs, each as a flat array.
    checks : dict of int to Check
        By the line of its ``raise``, counted from 1.
    statements : list of Statement or None
        By line: the statement or node that it belongs to.
    """

    text: str
    name: str
    graphs: dict[str, Body]
    checks: dict[int, Check]
    statements: list[Statement | None]


def print_procedure(procedure: Procedure) -> str:
    """Return a procedure as a Python function of flat arrays and numbers.

    Division by zero and the like are silent only under ``np.errstate(all="ignore")``, and in Numba with ``error_model="numpy"``.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("total")
    >>> x = build.array("x", (3,))
    >>> s = build.variable("s", 0.0)
    >>> with build.loop(3) as i:
    ...     build.assign(s, build.read(s) + build.load(x, i))
    >>> print(print_procedure(build.finish([build.read(s)])))
    def total(x):
        s = 0.0
        for i in range(3):
            s += x[i]
        return s
    """
    return source_of(procedure).text


def source_of(procedure: Procedure, name: str = "", taken: Collection[str] = ()) -> Source:
    """Return a procedure as source code, with what a caller has to know of it.

    Parameters
    ----------
    procedure : Procedure
    name : str, optional
        Of the function; by default the procedure's.
    taken : collection of str
        Names that the functions of `Source.graphs` must not have.
    """
    return _Printer(procedure, name, taken).source()


@record
class _Delayed:
    """A load that is not written yet: it is to stand in the expression that uses it.

    Attributes
    ----------
    load : Load
    code : Code
        The element, as it can be written here.
    leaves : set of contents
        What the address depends on.
    """

    load: Load
    code: Code
    leaves: frozenset[Content]


class _Scope:
    """The names that are known in an open block."""

    __slots__ = ("aliases", "codes", "delayed")

    def __init__(self) -> None:
        self.codes: dict[Content, Code] = {}
        self.aliases: dict[Content, Variable] = {}
        self.delayed: dict[Value, _Delayed] = {}


class _Printer:
    """Writes a procedure statement by statement.

    A value that is used once is written where it is used, others get a name at the place of their first use in a block. A load is
    delayed to its use, and a read of a variable written as the variable, as long as no statement in between changes what they mean.
    """

    def __init__(self, procedure: Procedure, name: str = "", taken: Collection[str] = ()) -> None:
        self.procedure = procedure
        self._name_given = name
        self.uses = Uses(procedure)
        self.lines: list[str] = []
        self.statements: list[Statement | None] = []
        self._current: Statement | None = None
        self.graphs: dict[str, Body] = {}
        self.checks: dict[int, Check] = {}
        self._indent = 1
        self._taken: set[str] = {*RESERVED, *taken}
        self._names: dict[Variable | Pointer | Memory | str, str] = {}
        self._scopes = [_Scope()]
        self._numbers = 0
        self._shallow = False
        """Whether the expression that is being written is known not to be deep."""
        self._wrapping = _wrapping_variables(procedure)

    def source(self) -> Source:
        """Print the whole."""
        procedure = self.procedure
        name = self._name_given or self._new(procedure.name, "f")
        self._taken.add(name)
        scope = self._scopes[0]
        parameters = []
        for count, content in enumerate(procedure.parameters):
            parameter = self._new(content.name or "", f"x{count}")
            scope.codes[content] = Code(parameter)
            parameters.append(parameter)
        self._indent = 0
        self._write(f"def {name}({', '.join(parameters)}):")
        self._indent = 1
        for tape in _tapes(procedure):
            self._write(f"{self._tape(tape)} = []")
        self._block(procedure.body, scope)
        results = [self._content(result).text for result in procedure.results]
        self._write(f"return {', '.join(results)}" if results else "return None")
        return Source("\n".join(self.lines), name, self.graphs, self.checks, self.statements)

    # Names

    def _new(self, wish: str, otherwise: str) -> str:
        """Return a name that is not taken: the one that is wished for, if Python can define it."""
        wish = re.sub(r"\W+", "_", re.sub(r"\.\d+$", "", wish)).strip("_") or otherwise
        if wish[0].isdigit():
            wish = f"{otherwise}_{wish}"
        name, count = wish, 0
        while name in self._taken:
            count += 1
            name = f"{wish}_{count}"
        self._taken.add(name)
        return name

    def _temporary(self, value: Content) -> str:
        """Return a name for a value: its own, or the next of t0, t1, ..."""
        if value.name and value.name.isidentifier():
            return self._new(value.name, "t")
        return self._new_number()

    def _new_number(self) -> str:
        """Return the next of t0, t1, ..."""
        while f"t{self._numbers}" in self._taken:
            self._numbers += 1
        return self._new(f"t{self._numbers}", "t")

    def _name(self, of: Variable | Pointer) -> str:
        name = self._names.get(of)
        if name is None:
            name = self._names[of] = self._new(of.name, "v" if isinstance(of, Variable) else "a")
        return name

    def _tape(self, type_: Memory | str) -> str:
        name = self._names.get(type_)
        if name is None:
            wish = f"tape_{type_ if isinstance(type_, str) else type_.name}"
            name = self._names[type_] = self._new(wish, "tape")
        return name

    def _index(self) -> str:
        for name in "ijklmn":
            if name not in self._taken:
                return self._new(name, "i")
        return self._new("i", "i")

    # Expressions

    def _write(self, line: str) -> None:
        self.lines.append("    " * self._indent + line)
        self.statements.append(self._current)

    def _content(self, content: Content) -> Code:
        """Return how a value or a pointer is written here."""
        known = self._known(content)
        if known is not None:
            return known
        if isinstance(content, Pointer):
            raise VerifyError(
                f"the pointer {content.name} of {self.procedure.name} is used where it is not known"
            )
        if content.node is None and content.data is not None:
            return number(content.data, content.dtype)
        expanded = expand(content, self.uses.expanded)
        if expanded is not content:
            return self._content(expanded)
        if content.node is None:
            raise VerifyError(f"{content!r} of {self.procedure.name} is used where it is not known")
        if not self._shallow:
            self._cut(content)
        return self._computed(content, content.node)

    def _cut(self, value: Value) -> None:
        """Give names to the inner values of a deep expression, so that neither this printer nor Python's parser recurses deeply."""
        depths: dict[Value, int] = {}
        stack = [value]
        while stack:
            top = stack[-1]
            if top in depths or top.node is None or any(top in scope.codes for scope in self._scopes):
                depths.setdefault(top, 0)
                stack.pop()
                continue
            operands = [expand(operand, self.uses.expanded) for operand in top.node.inputs]
            waiting = [operand for operand in operands if operand not in depths]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            depths[top] = 1 + max((depths[operand] for operand in operands), default=0)
            if depths[top] == MOST_DEPTH and top is not value:
                self._shallow = True
                name = self._named(self._computed(top, top.node)).text
                self._scopes[-1].codes[top] = Code(name)
                self._shallow = False
                depths[top] = 0

    def _known(self, content: Content) -> Code | None:
        for scope in reversed(self._scopes):
            if isinstance(content, Value):
                delayed = scope.delayed.pop(content, None)
                if delayed is not None:
                    return delayed.code
            found = scope.codes.get(content)
            if found is not None:
                return found
        return None

    def _computed(self, value: Value, node: Node) -> Code:
        """Return what a node makes: its expression if it is used once, otherwise a name that is given here."""
        args = [self._content(operand) for operand in node.inputs]
        plain = all(self._may_be_plain(operand) for operand in node.inputs)
        dtypes = [operand.dtype for operand in node.inputs]
        code = expression(node.op.name, args, dtypes, value.dtype, plain)
        if code is None:
            args = [self._named(arg) for arg in args]
            code = expression(node.op.name, args, dtypes, value.dtype, plain)
        if code is None:
            raise VerifyError(f"{node.op.name} of {value.dtype} has no form in Python")
        if self.uses.count(value) < 2 or (node.op.name in _INDEX and _is_index(value, args)):
            return code
        name = self._temporary(value)
        self._write(f"{name} = {code.text}")
        self._scopes[-1].codes[value] = Code(name)
        return Code(name)

    def _named(self, code: Code) -> Code:
        if code.is_name:
            return code
        name = self._new_number()
        self._write(f"{name} = {code.text}")
        return Code(name)

    def _may_be_plain(self, value: Value) -> bool:
        """Return whether Python may have one of its own numbers here, which raises an error where it is divided by zero."""
        if value.node is not None:
            return value.node.op.name in ("where", "erf", "erfc")
        return value.data is not None or self.uses.may_be_plain(value)

    # Statements

    def _block(self, statements: Sequence[Statement], scope: _Scope | None = None) -> None:
        """Write the statements of a block in a scope of its own."""
        if scope is None:
            self._scopes.append(_Scope())
        around = self._current
        for statement in statements:
            self._current = statement
            self._statement(statement)
        self._current = around
        if scope is None:
            self._scopes.pop()

    def _statement(self, statement: Statement) -> None:
        if isinstance(statement, For):
            self._for(statement)
        elif isinstance(statement, While):
            self._while(statement)
        elif isinstance(statement, If):
            self._if(statement)
        elif isinstance(statement, Load):
            self._load(statement)
        elif isinstance(statement, Read):
            self._read(statement)
        elif isinstance(statement, Store):
            target = self._element(statement.pointer, statement.index)
            value = self._content(statement.value)
            self._settle(statement)
            self._write(value.assigned_to(target.text))
        elif isinstance(statement, Assign):
            self._assign(statement)
        elif isinstance(statement, Allocate):
            function = "zeros" if statement.zero else "empty"
            size, name = self._content(statement.size).text, self._name(statement.out)
            size = size if size.isdigit() else f"max({size}, 0)"
            self._write(f"{name} = np.{function}({size}, {dtype_name(statement.out.dtype)})")
            self._scopes[-1].codes[statement.out] = Code(name)
        elif isinstance(statement, Check):
            self._write(f"if not {self._content(statement.condition).within(ATOM - 1)}:")
            self._write(f"    raise {statement.error}({statement.message!r})")
            self.checks[len(self.lines)] = statement
        elif isinstance(statement, Push):
            for entry in statement.values:
                self._write(f"{self._tape(_tape_type(entry))}.append({self._content(entry).text})")
        elif isinstance(statement, Pop):
            for out in reversed(statement.outs):
                name = self._temporary(out)
                self._write(f"{name} = {self._tape(_tape_type(out))}.pop()")
                self._scopes[-1].codes[out] = Code(name)
        else:
            self._apply(statement)

    def _element(self, pointer: Pointer, index: Value) -> Code:
        return Code(f"{self._content(pointer).text}[{self._content(index).text}]")

    def _load(self, load: Load) -> None:
        scope = self._scopes[-1]
        if not self.uses.count(load.out):
            return
        code = self._element(load.pointer, load.index)
        if self.uses.count(load.out) == 1:
            leaves = frozenset({load.pointer, *self.uses.leaves(load.index)})
            scope.delayed[load.out] = _Delayed(load, code, leaves)
        else:
            self._give_name(load.out, code)

    def _read(self, read: Read) -> None:
        scope = self._scopes[-1]
        scope.codes[read.out] = Code(self._name(read.variable))
        scope.aliases[read.out] = read.variable

    def _give_name(self, value: Content, code: Code) -> None:
        name = self._temporary(value)
        self._write(f"{name} = {code.text}")
        self._scopes[-1].codes[value] = Code(name)

    def _assign(self, assign: Assign) -> None:
        value = assign.value
        code = self._content(value)
        self._settle(assign)
        name = self._name(assign.variable)
        if isinstance(value, Value) and value.data is not None and assign.variable in self._wrapping:
            code = Code(f"np.int64({code.text})")
        if code.text != name:
            self._write(code.assigned_to(name))

    def _settle(self, statement: Statement) -> None:
        """Write down what a statement would change: loads of the memory and earlier contents of the variables that it writes.

        A loop or a branch also has the delayed loads written that are used in it or after it.
        """
        position = self.uses.position(statement)
        memories, variables = self.uses.written(statement)
        nested = isinstance(statement, For | While | If)
        for scope in self._scopes:
            changed = [out for out, variable in scope.aliases.items() if variable in variables]
            for value, delayed in list(scope.delayed.items()):
                if self.uses.last(value) > position and (
                    nested
                    or delayed.load.pointer.memory in memories
                    or any(leaf in changed for leaf in delayed.leaves)
                ):
                    del scope.delayed[value]
                    self._place(scope, value, delayed.code)
            for out in changed:
                del scope.aliases[out]
                if self.uses.last(out) > position:
                    self._place(scope, out, scope.codes[out])

    def _place(self, scope: _Scope, value: Content, code: Code) -> None:
        name = self._temporary(value)
        self._write(f"{name} = {code.text}")
        scope.codes[value] = Code(name)

    def _for(self, loop: For) -> None:
        count = self._content(loop.count)
        self._settle(loop)
        name = self._new(loop.index.name, "i") if loop.index.name else self._index()
        self._write(f"for {name} in range({count.text}):")
        self._scopes.append(_Scope())
        self._scopes[-1].codes[loop.index] = Code(name)
        self._indented(loop.body)
        self._scopes.pop()
        self._taken.discard(name)

    def _indented(self, statements: Sequence[Statement]) -> None:
        """Write statements one level deeper, in the scope that is open."""
        self._indent += 1
        before = len(self.lines)
        self._block(statements, self._scopes[-1])
        if len(self.lines) == before:
            self._write("pass")
        self._indent -= 1

    def _while(self, loop: While) -> None:
        self._settle(loop)
        self._scopes.append(_Scope())
        start = len(self.lines)
        self._write("while True:")
        self._indent += 1
        self._block(loop.test, self._scopes[-1])
        condition = self._content(loop.condition)
        self._indent -= 1
        if len(self.lines) == start + 1:
            self.lines[start] = f"{'    ' * self._indent}while {condition.text}:"
        else:
            self._write(f"    if not {condition.within(ATOM - 1)}:")
            self._write("        break")
        self._indented(loop.body)
        self._scopes.pop()

    def _if(self, branch: If) -> None:
        condition = self._content(branch.condition)
        self._settle(branch)
        then, otherwise = branch.then, branch.otherwise
        if then or not otherwise:
            self._write(f"if {condition.text}:")
            self._branch(then)
            if not otherwise:
                return
            self._write("else:")
        else:
            self._write(f"if not {condition.within(ATOM - 1)}:")
            then = []
        start = len(self.lines)
        self._branch(otherwise)
        if then and len(otherwise) and isinstance(otherwise[-1], If):
            self._join_else(start)

    def _branch(self, statements: Sequence[Statement]) -> None:
        self._scopes.append(_Scope())
        self._indented(statements)
        self._scopes.pop()

    def _join_else(self, start: int) -> None:
        """Write an ``else`` whose block is one ``if`` as ``elif``."""
        inner = "    " * (self._indent + 1)
        block = self.lines[start:]
        heads = [line for line in block if not line.startswith(inner + " ")]
        joined = [f"{inner}if ", f"{inner}elif ", f"{inner}else:"]
        if not heads[0].startswith(joined[0]) or any(
            not head.startswith(tuple(joined[1:])) for head in heads[1:]
        ):
            return
        moved = [line[4:] for line in block]
        moved[0] = moved[0].replace("if ", "elif ", 1)
        self.lines[start - 1 :] = moved
        self.statements[start - 1 :] = self.statements[start:]
        self.checks = {line - (line > start): check for line, check in self.checks.items()}

    def _apply(self, apply: Apply) -> None:
        name = self._new(apply.graph.name, "graph")
        self.graphs[name] = apply.graph
        operands = [self._operand(operand) for operand in (*apply.inputs, *apply.outputs)]
        self._settle(apply)
        self._write(f"{name}({', '.join(operands)})")

    def _operand(self, operand: Value | Span) -> str:
        if isinstance(operand, Value):
            return f"np.full(1, {self._content(operand).text}, {dtype_name(operand.dtype)})"
        pointer, offset = self._content(operand.pointer), self._content(operand.offset)
        size = operand.aval.size
        if offset.text.isdigit():
            return f"{pointer.text}[{offset.text}:{int(offset.text) + size}]"
        start = offset.within(OR)
        return f"{pointer.text}[{start}:{start} + {size}]"


_INDEX: Final = frozenset({"add", "subtract", "multiply"})


def _is_index(value: Value, args: Sequence[Code]) -> bool:
    """Return whether an expression is short index arithmetic, which reads better where it stands than under a name."""
    return value.dtype == np.int64 and all(arg.is_name for arg in args)


def _tape_type(content: Content) -> Memory | str:
    """Return which of the tapes holds a value: one per dtype, and one per memory for pointers."""
    return content.memory if isinstance(content, Pointer) else content.dtype.name


def _tapes(procedure: Procedure) -> Iterator[Memory | str]:
    """Yield the tapes of a procedure."""
    found: dict[Memory | str, None] = {}
    for statement in walk(procedure.body):
        if isinstance(statement, Push):
            found.update(dict.fromkeys(map(_tape_type, statement.values)))
    yield from found


def _wrapping_variables(procedure: Procedure) -> set[Variable]:
    """Return the int64 variables that hold products or shifts: Python's own integers would not wrap at 64 bits."""
    return {
        statement.variable
        for statement in walk(procedure.body)
        if isinstance(statement, Assign)
        and isinstance(statement.value, Value)
        and statement.value.dtype == np.int64
        and any(
            node.op.name in WRAPPING
            for node in extract(
                [statement.value], follow=lambda node: node.inputs if isinstance(node.op, Elementwise) else ()
            )[0]
        )
    }
