"""The normal form in which procedures are differentiated: known contents are not read, and tests have no effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gradtape.ir.graph import Value, extract, literal, number_of
from gradtape.ir.types import BOOL, INT64, aval
from gradtape.ops.core.elementwise.arithmetic import add, subtract
from gradtape.ops.core.elementwise.extrema import maximum
from gradtape.procedures.builder import leaf
from gradtape.procedures.ir import (
    Assign,
    Check,
    Content,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Procedure,
    Read,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import add_name, assigned, names, stored
from gradtape.records import replaced
from gradtape.statements import walk
from gradtape.transforms.procedures.accumulate import structure

Known = dict[Variable, Content | None]
"""What variables hold; None where that is not known. Others may not have been assigned yet."""

Elements = dict[tuple[Pointer, object], Value]
"""What elements hold, by pointer and structure of the index."""


class NormalForm(NamedTuple):
    """The normal form of a procedure.

    Attributes
    ----------
    procedure : Procedure
        It reads a variable or an element only where its contents are not known as a value or a pointer. The test of a `While` consists of
        loads, reads and checks; first, it reads the number of the iteration.
    counts : dict of Value to Value
        By number of the iteration of a `While`: the number of its iterations.
    """

    procedure: Procedure
    counts: dict[Value, Value]


def normal_form(procedure: Procedure) -> NormalForm:
    """Return the normal form of a procedure.

    A variable that a loop reads and does not change is read before it. A variable that grows by the same number in each iteration is a
    function of the number of the iteration. Variables that are not read are not assigned.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("square")
    >>> s = build.variable("s", build.scalar("x"))
    >>> build.assign(s, build.read(s) * build.read(s))
    >>> normal_form(build.finish([build.read(s)])).procedure.body
    []
    """
    return _StoreForwarding(procedure).run()


class _StoreForwarding(Rewriter):
    def __init__(self, procedure: Procedure) -> None:
        super().__init__()
        self._procedure = procedure
        self._names = names(procedure)
        self._counts: dict[Value, Value] = {}
        self._elements: Elements = {}

    def run(self) -> NormalForm:
        procedure = self._procedure
        known_contents: Known = {}
        body = self._block(procedure.body, known_contents)
        results = [self.content(content) for content in procedure.results]
        body = _without_unused(body, [*results, *self._counts, *self._counts.values()])
        return NormalForm(replaced(procedure, body=body, results=results), self._counts)

    def _block(self, statements: Sequence[Statement], contents: Known) -> list[Statement]:
        """Return the statements of a block; `contents` is brought up to date."""
        forwarded: list[Statement] = []
        for statement in statements:
            if isinstance(statement, Read):
                content = contents.get(statement.variable)
                if content is None:
                    forwarded.append(statement)
                    content = statement.out
                self.becomes[statement.out] = contents[statement.variable] = content
            elif isinstance(statement, Load):
                load = self.statement(statement)
                assert isinstance(load, Load)
                key = load.pointer, structure(load.index)
                if key not in self._elements:
                    forwarded.append(load)
                    self._elements[key] = statement.out
                self.becomes[statement.out] = self._elements[key]
            elif isinstance(statement, For):
                self._overwrite([statement])
                self._hoist_reads(statement, contents, forwarded)
                count = self.value(statement.count)
                loop = For(statement.index, count, [], statement.parallel, statement.site)
                lines = self._lines(statement, contents, forwarded)
                inside = _inside(statement, contents)
                inside.update({variable: line.at(statement.index) for variable, line in lines.items()})
                loop.body = self._inner_block(statement.body, inside)
                forwarded.append(loop)
                _forget(statement, contents)
                count = count if _is_natural(count) else maximum(count, literal(0, INT64))
                contents.update({variable: line.at(count) for variable, line in lines.items()})
            elif isinstance(statement, While):
                forwarded += self._while(statement, contents)
            elif isinstance(statement, If):
                branch = If(self.value(statement.condition))
                first, second = dict(contents), dict(contents)
                branch.then = self._inner_block(statement.then, first)
                branch.otherwise = self._inner_block(statement.otherwise, second)
                self._overwrite([statement])
                forwarded.append(branch)
                contents.clear()
                for variable in first.keys() & second.keys():
                    same = first[variable] is second[variable]
                    contents[variable] = first[variable] if same else None
            else:
                changed = self.statement(statement)
                forwarded.append(changed)
                if isinstance(changed, Assign):
                    contents[changed.variable] = changed.value
                self._overwrite([changed])
                if isinstance(changed, Store):
                    self._elements[changed.pointer, structure(changed.index)] = changed.value
        return forwarded

    def _inner_block(self, statements: Sequence[Statement], contents: Known) -> list[Statement]:
        """Return the statements of a block that may not run: what it finds out about elements is forgotten after it."""
        elements = dict(self._elements)
        block = self._block(statements, contents)
        self._elements = elements
        return block

    def _overwrite(self, statements: Sequence[Statement]) -> None:
        """Forget the elements of memories that statements write."""
        memories = {pointer.memory for pointer in stored(statements)}
        if memories:
            self._elements = {key: x for key, x in self._elements.items() if key[0].memory not in memories}

    def _while(self, statement: While, contents: Known) -> list[Statement]:
        """Return a loop whose test has no effects: one with effects moves into the body, which sets a flag at the end."""
        forwarded: list[Statement] = []
        if not all(isinstance(each, Load | Read | Check) for each in statement.test):
            flag = Variable(add_name("flag", self._names), aval((), BOOL))
            go_on = leaf(BOOL)
            branch = If(statement.condition, statement.body, [Assign(flag, literal(False, BOOL))])
            forwarded.append(Assign(flag, literal(True, BOOL)))
            contents[flag] = None
            statement = While(go_on, [Read(go_on, flag)], [*statement.test, branch])
        self._overwrite([statement])
        self._hoist_reads(statement, contents, forwarded)
        counter = Variable(add_name("trips", self._names), aval((), INT64))
        number, count = leaf(INT64), leaf(INT64)
        self._counts[number] = count
        forwarded.append(Assign(counter, literal(0, INT64)))
        lines = self._lines(statement, contents, forwarded)
        inside = _inside(statement, contents)
        inside.update({variable: line.at(number) for variable, line in lines.items()})
        elements = dict(self._elements)
        test = [Read(number, counter), *self._block(statement.test, inside)]
        loop = While(self.value(statement.condition), test)
        loop.body = self._block(statement.body, inside)
        self._elements = elements
        loop.body.append(Assign(counter, number + literal(1, INT64)))
        forwarded += [loop, Read(count, counter)]
        _forget(statement, contents)
        contents.update({variable: line.at(count) for variable, line in lines.items()})
        return forwarded

    def _lines(self, loop: For | While, contents: Known, found: list[Statement]) -> dict[Variable, _Line]:
        """Return by variable how it grows with the number of the iteration; what it holds before the loop is read."""
        inside: list[Statement] = list(walk([loop]))
        assigns = Counter(statement.variable for statement in inside if isinstance(statement, Assign))
        inner = {content for statement in inside for content in statement.defines()}
        reads = {s.out: s.variable for s in inside if isinstance(s, Read) and isinstance(s.out, Value)}
        lines: dict[Variable, _Line] = {}
        for statement in loop.body:
            if not isinstance(statement, Assign) or not isinstance(statement.value, Value):
                continue
            variable = statement.variable
            step = _step(statement.value, variable, reads)
            if step is None or assigns[variable] > 1 or variable not in contents:
                continue
            _, leaves = extract([step], stop=lambda value: not value.is_made)
            if inner.isdisjoint(leaves):
                start = contents[variable]
                if start is None:
                    start = contents[variable] = leaf(INT64)
                    found.append(Read(start, variable))
                assert isinstance(start, Value)
                lines[variable] = _Line(start, self.value(step))
        return lines

    def _hoist_reads(self, loop: Statement, contents: Known, reads: list[Statement]) -> None:
        """Append reads of what a loop reads and does not change."""
        assigned_in_loop = assigned([loop])
        for statement in walk([loop]):
            if isinstance(statement, Read):
                variable = statement.variable
                if variable not in assigned_in_loop and variable in contents and contents[variable] is None:
                    out: Content
                    if isinstance(variable.type, Memory):
                        out = Pointer(add_name(variable.name, self._names), variable.type)
                    else:
                        out = Value(variable.type)
                    reads.append(Read(out, variable))
                    contents[variable] = out


class _Line(NamedTuple):
    """An affine function of the number of an iteration."""

    start: Value
    step: Value

    def at(self, number: Value) -> Value:
        grown = number if number_of(self.step) == 1 else number * self.step
        return grown if number_of(self.start) == 0 else self.start + grown


def _step(value: Value, variable: Variable, reads: dict[Value, Variable]) -> Value | None:
    """Return what an assigned integer is greater by than what a variable held; None if it is something else."""
    node = value.node
    if node is None or value.dtype != INT64:
        return None
    if node.op is add or node.op is subtract:
        first, second = node.inputs
        if reads.get(first) is variable:
            return second if node.op is add else -second
        if node.op is add and reads.get(second) is variable:
            return first
    return None


def _is_natural(count: Value) -> bool:
    number = number_of(count)
    return number is not None and number >= 0


def _inside(loop: Statement, contents: Known) -> Known:
    """Return the contents known at the beginning of each iteration."""
    inside = dict(contents)
    _forget(loop, inside)
    return inside


def _forget(loop: Statement, contents: Known) -> None:
    for variable in assigned([loop]):
        if variable in contents:
            contents[variable] = None


def _without_unused(body: list[Statement], results: Sequence[Content]) -> list[Statement]:
    """Return the body without assignments of variables that are not read, and without reads and loads that are not used."""
    while True:  # terminates: each round but the last drops a statement
        contents = [*[x for statement in walk(body) for x in statement.uses()], *results]
        values = [x for x in contents if isinstance(x, Value)]
        _, leaves = extract(values, stop=lambda value: not value.is_made)
        used: set[Content] = {*leaves, *[x for x in contents if isinstance(x, Pointer)]}
        read = {statement.variable for statement in walk(body) if isinstance(statement, Read)}
        used_statements = _kept(body, used, read)
        if sum(1 for _ in walk(used_statements)) == sum(1 for _ in walk(body)):
            return used_statements
        body = used_statements


def _kept(statements: Sequence[Statement], used: set[Content], read: set[Variable]) -> list[Statement]:
    statements_kept: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Read | Load) and statement.out not in used:
            continue
        if isinstance(statement, Assign) and statement.variable not in read:
            continue
        copied = statement.with_parts(block=lambda body: _kept(body, used, read))
        if any(copied.blocks()) or isinstance(copied, While) or not copied.blocks():
            statements_kept.append(copied)
    return statements_kept
