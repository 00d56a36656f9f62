"""Equal statements: loops and array computations of a block that compute what earlier ones have computed, of the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

from gradtape.ir.graph import Literal, Value, extract
from gradtape.ops.core.elementwise.logic import bitwise_and, bitwise_or, equal, logical_not, not_equal
from gradtape.procedures.builder import leaf
from gradtape.procedures.fingerprint import Writer
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
    Procedure,
    Read,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import leaves_of, stored
from gradtape.records import replaced
from gradtape.statements import walk

MOST_STORED: Final = 64
"""Stores into an array, and nodes that compute what is stored, that are compared one by one."""

COMPARED: Final = (Apply, Assign, Check, For, If, Load, Read, Store, While)
"""The statements whose effect is what they assign and store."""


def merge_equal_statements(procedure: Procedure) -> Procedure:
    """Return the procedure without the loops and array computations that an earlier one of their block equals.

    It is the same procedure where there is none. They assign variables, and fill arrays that nothing else writes to, from the same numbers.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("product")
    >>> def total(n):
    ...     s = build.variable("s", 0.0)
    ...     with build.loop(n) as i:
    ...         build.assign(s, build.read(s) + i * 1.0)
    ...     return build.read(s)
    >>> n = build.scalar("n", "int64")
    >>> merged = merge_equal_statements(build.finish([total(n) * total(n)]))
    >>> sum(isinstance(statement, For) for statement in merged.body)
    1
    """
    merging = _Merging(procedure)
    merged = merging.rewritten(procedure)
    return merged if merging.count else procedure


class WithEqualNumbers(Rewriter):
    """Reads one of two integers in branches where they are equal: what is computed of either is one value then.

    It looks through conjunctions, and through disjunctions on the other side of a branch (``if i != j or j < 2: continue``).

    Parameters
    ----------
    equal : dict of Value to Value
        By integer, the one that it is equal to.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> from gradtape.ops.core.elementwise.logic import equal
    >>> build = ProcedureBuilder("diagonal")
    >>> i, j, y = build.scalar("i", "int64"), build.scalar("j", "int64"), build.allocate("y", 9)
    >>> with build.branch(equal(i, j)):
    ...     build.store(y, i, build.load(y, j))
    >>> branch = WithEqualNumbers().rewritten(build.finish([])).body[-1]
    >>> branch.then[0].index is i
    True
    """

    def __init__(self, equal: dict[Value, Value] | None = None) -> None:
        super().__init__()
        self._equal = equal or {}
        for integer, other in self._equal.items():
            self.becomes[integer] = other

    def statement(self, statement: Statement) -> Statement:
        if not isinstance(statement, If):
            return super().statement(statement)
        condition = self.value(statement.condition)
        return replaced(
            statement,
            condition=condition,
            then=self._where(condition, holds=True).block(statement.then),
            otherwise=self._where(condition, holds=False).block(statement.otherwise),
        )

    def _where(self, condition: Value, *, holds: bool) -> WithEqualNumbers:
        """Return what rewrites one side of a branch."""
        representatives = self._equal
        for pair in _equal_integers(condition, holds=holds):
            representative, other = sorted(
                [representatives.get(x, x) for x in pair],
                key=lambda x: (not isinstance(x, Literal), not x.is_made),
            )
            if representative is not other and not isinstance(other, Literal) and not other.is_made:
                representatives = {
                    x: representative if same is other else same for x, same in representatives.items()
                } | {other: representative}
        return self if representatives is self._equal else WithEqualNumbers(representatives)


def _equal_integers(condition: Value, *, holds: bool) -> Iterator[tuple[Value, Value]]:
    """Yield pairs of integers that are equal where a condition holds, or where it does not."""
    pending = [(condition, holds)]
    while pending:
        value, is_true = pending.pop()
        node = value.node
        if node is None:
            continue
        if node.op is logical_not:
            pending.append((node.inputs[0], not is_true))
        elif node.op is (bitwise_and if is_true else bitwise_or):
            pending += [(x, is_true) for x in node.inputs]
        elif node.op is (equal if is_true else not_equal):
            first, second = node.inputs
            if first.dtype == second.dtype and first.dtype.kind in "iu":
                yield first, second


class _Seen(NamedTuple):
    """A statement that a later one may equal: where it stands in its block, and what it assigns and stores, in the order it is met."""

    place: int
    variables: list[Variable]
    pointers: list[Pointer]


class _Merging(Rewriter):
    """Replaces what equal statements give by what the first of them gave.

    Attributes
    ----------
    count : int
        Of the statements that were left out.
    """

    def __init__(self, procedure: Procedure) -> None:
        super().__init__()
        self.count = 0
        statements = list(walk(procedure.body))
        self._writes = Counter(pointer.memory for pointer in stored(procedure.body))
        escaping = {*procedure.parameters, *procedure.results}
        pointers = {
            content
            for statement in statements
            for content in (*statement.uses(), *statement.defines())
            if isinstance(content, Pointer)
        }
        aliases = Counter(pointer.memory for pointer in pointers)
        self._alone = {
            pointer for pointer in pointers if aliases[pointer.memory] == 1 and pointer not in escaping
        }
        self._numbers: dict[Content | Variable | Memory, int] = {}
        self._version = count()
        self._versions: dict[Variable | Memory, int] = {}
        """Tells the contents of a location apart."""
        self._fills: dict[Memory, list[str]] = {}
        """What is stored in new arrays, element by element: arrays with equal elements have equal names."""

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        merged: list[Statement] = []
        reads: dict[int, list[Statement]] = {}
        by_key: dict[str, _Seen] = {}
        contents: dict[Variable, Value] = {}
        allocated: dict[Pointer, Allocate] = {}
        for statement in statements:
            written = set(stored([statement])) if isinstance(statement, For | Apply) else set()
            key = None
            if isinstance(statement, For | Apply) and self._may_be_left_out(statement, written, allocated):
                statement = self.statement(statement)
                key, described = self._key(statement, contents, allocated)
                earlier = by_key.get(key)
                if earlier is not None:
                    self.count += 1
                    self.becomes.update(zip(described.pointers, earlier.pointers, strict=True))
                    for variable, other in zip(described.variables, earlier.variables, strict=True):
                        value = leaf(other.type.dtype)
                        reads.setdefault(earlier.place, []).append(Read(value, other))
                        merged.append(Assign(variable, value))
                        contents[variable] = value
                        self._versions[variable] = next(self._version)
                    continue
                by_key[key] = described._replace(place=len(merged))
            else:
                statement = self.statement(statement)
            merged.append(statement)
            for inner in walk([statement]):
                if isinstance(inner, Assign):
                    self._versions[inner.variable] = next(self._version)
                    contents.pop(inner.variable, None)
                for pointer in inner.pointers_written():
                    self._versions[pointer.memory] = next(self._version)
                    if inner is not statement or not isinstance(inner, Store):
                        self._fills.pop(pointer.memory, None)
            if isinstance(statement, Store) and statement.pointer.memory in self._fills:
                self._note_store(statement)
            if isinstance(statement, Assign) and isinstance(statement.value, Value):
                contents[statement.variable] = statement.value
            elif isinstance(statement, Allocate):
                allocated[statement.out] = statement
                if statement.out in self._alone:
                    self._fills[statement.out.memory] = [str(statement.zero), self._text(statement.size)]
        return [
            copied
            for number, statement in enumerate(merged)
            for copied in (statement, *reads.get(number, ()))
        ]

    def _may_be_left_out(
        self, statement: For | Apply, written: set[Pointer], allocated: dict[Pointer, Allocate]
    ) -> bool:
        """Return whether a statement has no effect but on variables of numbers, and on arrays that nothing else writes to."""
        inside = list(walk([statement]))
        writes_inside = Counter(
            pointer.memory for inner_statement in inside for pointer in inner_statement.pointers_written()
        )
        return (
            all(isinstance(inner_statement, COMPARED) for inner_statement in inside)
            and not any(
                isinstance(inner_statement, Read | Assign)
                and isinstance(inner_statement.variable.type, Memory)
                for inner_statement in inside
            )
            and all(
                pointer in self._alone
                and pointer in allocated
                and writes_inside[pointer.memory] == self._writes[pointer.memory]
                for pointer in written
            )
        )

    def _key(
        self, statement: Statement, contents: dict[Variable, Value], allocated: dict[Pointer, Allocate]
    ) -> tuple[str, _Seen]:
        """Return a text that is equal for equal statements, and what the statement gives."""
        inside = list(walk([statement]))
        defined = {content for inner_statement in inside for content in inner_statement.defines()}
        assigned = {
            inner_statement.variable for inner_statement in inside if isinstance(inner_statement, Assign)
        }
        written = set(stored([statement]))
        names: dict[Content | Variable | Memory, str] = {}
        for inner_statement in inside:
            for content in leaves_of(inner_statement):
                if content not in defined and content not in written:
                    self._name(content, names)
            if isinstance(inner_statement, Read) and inner_statement.variable not in assigned:
                names[inner_statement.variable] = self._versioned(inner_statement.variable)
        writer = Writer(names)
        writer.block([statement])
        new = [named for named in writer.names if named not in names]
        variables = [named for named in new if isinstance(named, Variable)]
        pointers = [named for named in new if isinstance(named, Pointer) and named in written]
        for variable in variables:
            value = contents.get(variable)
            if value is None:
                writer.parts.append(self._versioned(variable))
            else:
                self._write(value, writer)
        for pointer in pointers:
            writer.parts.append(str(allocated[pointer].zero))
            self._write(allocated[pointer].size, writer)
        return "\n".join(writer.parts), _Seen(0, variables, pointers)

    def _number(self, named: Content | Variable | Memory) -> int:
        return self._numbers.setdefault(named, len(self._numbers))

    def _versioned(self, location: Variable | Memory) -> str:
        return f"{self._number(location)}.{self._versions.get(location)}"

    def _name(self, content: Content, names: dict[Content | Variable | Memory, str]) -> None:
        """Enter the name of a leaf from outside, and that of the memory into which it points."""
        if isinstance(content, Pointer):
            fill = self._fills.get(content.memory)
            if fill is not None:
                names[content] = names[content.memory] = ",".join(fill)
                return
            names[content.memory] = self._versioned(content.memory)
            names[content] = f"{self._number(content)}@{names[content.memory]}"
        elif content.data is None:
            names[content] = str(self._number(content))

    def _note_store(self, store: Store) -> None:
        fill = self._fills[store.pointer.memory]
        if len(fill) == MOST_STORED or len(extract([store.index, store.value])[0]) > MOST_STORED:
            del self._fills[store.pointer.memory]
        else:
            fill.append(f"{self._text(store.index)}={self._text(store.value)}")

    def _text(self, value: Value) -> str:
        """Return a text that is equal for equal values from outside."""
        writer = Writer()
        self._write(value, writer)
        return "|".join(writer.parts)

    def _write(self, value: Value, writer: Writer) -> None:
        """Write a value from outside."""
        for content in extract([value])[1]:
            if content not in writer.names:
                self._name(content, writer.names)
        writer.parts.append(writer.content(value))
