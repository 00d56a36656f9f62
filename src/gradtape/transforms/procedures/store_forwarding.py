"""The normal form in which procedures are differentiated: what a variable is known to hold is not read, and tests have no effects."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Value, extract, literal
from gradtape.ir.types import BOOL, aval
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
    Variable,
    While,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import names, uses, walk

Known = dict[Variable, Content | None]
"""What variables hold; None where that is not known. Others may not have been assigned yet."""


def forward_stores(procedure: Procedure) -> Procedure:
    """Return an equal procedure that reads a variable only where its contents are not known as a value or a pointer.

    A variable that a loop reads and does not change is read before it. Variables that nobody reads are not assigned. The test of a
    `While` consists of loads, reads and checks.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("square")
    >>> s = build.variable("s", build.scalar("x"))
    >>> build.assign(s, build.read(s) * build.read(s))
    >>> forward_stores(build.finish([build.read(s)])).body
    []
    """
    return _StoreForwarding(procedure).run()


class _StoreForwarding(Rewriter):
    def __init__(self, procedure: Procedure) -> None:
        super().__init__()
        self._procedure = procedure
        self._names = names(procedure)

    def run(self) -> Procedure:
        procedure = self._procedure
        known: Known = {}
        body = self._block(procedure.body, known)
        results = [self.content(content) for content in procedure.results]
        body = _without_unused(body, results)
        return Procedure(
            procedure.name, procedure.parameters, procedure.types, body, results, procedure.result_types
        )

    def _block(self, statements: Sequence[Statement], known: Known) -> list[Statement]:
        """Return the statements of a block; `known` is brought up to date."""
        found: list[Statement] = []
        for statement in statements:
            if isinstance(statement, Read):
                content = known.get(statement.variable)
                if content is None:
                    found.append(statement)
                    content = statement.out
                self.becomes[statement.out] = known[statement.variable] = content
            elif isinstance(statement, For):
                self._hoist_reads(statement, known, found)
                loop = For(statement.index, self.value(statement.count), [], statement.parallel)
                loop.body = self._block(statement.body, _inside(statement, known))
                found.append(loop)
                _forget(statement, known)
            elif isinstance(statement, While):
                found += self._while(statement, known)
            elif isinstance(statement, If):
                branch = If(self.value(statement.condition))
                first, second = dict(known), dict(known)
                branch.then = self._block(statement.then, first)
                branch.otherwise = self._block(statement.otherwise, second)
                found.append(branch)
                known.clear()
                for variable in first.keys() & second.keys():
                    same = first[variable] is second[variable]
                    known[variable] = first[variable] if same else None
            else:
                changed = self.statement(statement)
                found.append(changed)
                if isinstance(changed, Assign):
                    known[changed.variable] = changed.value
        return found

    def _while(self, statement: While, known: Known) -> list[Statement]:
        """Return a loop whose test has no effects: one with effects moves into the body, which sets a flag at the end."""
        found: list[Statement] = []
        if not all(isinstance(each, Load | Read | Check) for each in statement.test):
            flag = Variable(self._unique("flag"), aval((), BOOL))
            go_on = leaf(BOOL)
            branch = If(statement.condition, statement.body, [Assign(flag, literal(False, BOOL))])
            found.append(Assign(flag, literal(True, BOOL)))
            known[flag] = None
            statement = While(go_on, [Read(go_on, flag)], [*statement.test, branch])
        self._hoist_reads(statement, known, found)
        inside = _inside(statement, known)
        test = self._block(statement.test, inside)
        loop = While(self.value(statement.condition), test)
        loop.body = self._block(statement.body, inside)
        found.append(loop)
        _forget(statement, known)
        return found

    def _hoist_reads(self, loop: For | While, known: Known, found: list[Statement]) -> None:
        """Append reads of what a loop reads and does not change."""
        assigned = _assigned(loop)
        for statement in walk([loop]):
            if isinstance(statement, Read):
                variable = statement.variable
                if variable not in assigned and variable in known and known[variable] is None:
                    out: Content
                    if isinstance(variable.type, Memory):
                        out = Pointer(self._unique(variable.name), variable.type)
                    else:
                        out = Value(variable.type)
                    found.append(Read(out, variable))
                    known[variable] = out

    def _unique(self, base: str) -> str:
        name, count = base, 0
        while name in self._names:
            count += 1
            name = f"{base}.{count}"
        self._names.add(name)
        return name


def _assigned(loop: Statement) -> set[Variable]:
    return {statement.variable for statement in walk([loop]) if isinstance(statement, Assign)}


def _inside(loop: Statement, known: Known) -> Known:
    """Return what is known at the beginning of each iteration."""
    inside = dict(known)
    _forget(loop, inside)
    return inside


def _forget(loop: Statement, known: Known) -> None:
    for variable in _assigned(loop):
        if variable in known:
            known[variable] = None


def _without_unused(body: list[Statement], results: Sequence[Content]) -> list[Statement]:
    """Return the body without assignments of variables that are not read, and without reads and loads that are not used."""
    while True:  # terminates: each round but the last drops a statement
        contents = [*[x for statement in walk(body) for x in uses(statement)], *results]
        values = [x for x in contents if isinstance(x, Value)]
        _, leaves = extract(values, stop=lambda value: not value.is_made)
        used: set[Content] = {*leaves, *[x for x in contents if isinstance(x, Pointer)]}
        read = {statement.variable for statement in walk(body) if isinstance(statement, Read)}
        kept = _kept(body, used, read)
        if sum(1 for _ in walk(kept)) == sum(1 for _ in walk(body)):
            return kept
        body = kept


def _kept(statements: Sequence[Statement], used: set[Content], read: set[Variable]) -> list[Statement]:
    found: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Read | Load) and statement.out not in used:
            continue
        if isinstance(statement, Assign) and statement.variable not in read:
            continue
        if isinstance(statement, For):
            body = _kept(statement.body, used, read)
            if body:
                found.append(For(statement.index, statement.count, body, statement.parallel))
        elif isinstance(statement, While):
            test, body = _kept(statement.test, used, read), _kept(statement.body, used, read)
            found.append(While(statement.condition, test, body))
        elif isinstance(statement, If):
            then, otherwise = _kept(statement.then, used, read), _kept(statement.otherwise, used, read)
            if then or otherwise:
                found.append(If(statement.condition, then, otherwise))
        else:
            found.append(statement)
    return found
