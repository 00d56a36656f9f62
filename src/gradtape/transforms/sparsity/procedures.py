"""Index sets through procedures: a program on sets that does what the procedure does with numbers.

Where a loop reads and writes is arithmetic of integers: of the numbers of iterations, of constants and of index arrays. So the indices,
trip counts and branches that are computed from them are computed, and each element that a statement stores gets the union of the index
sets of the elements that it is computed from. What depends on other numbers is not known: of a branch both sides are taken, a loop is
repeated until the sets no longer grow, and an unknown index may be any. Stores in them add to the sets that were there.

The program is Python source on lists of frozensets, which is compiled by `exec`: one pass over the iterations, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any, Final, TypeAlias

import numpy as np

from gradtape.ir.body import Body
from gradtape.ir.expressions import Code, expression, number
from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.ir.op import NDArray
from gradtape.ir.types import is_inexact
from gradtape.ops.core.elementwise.logic import bitwise_and, logical_and
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.dataflow import exposed_variables
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
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
from gradtape.procedures.tape import match_tape
from gradtape.procedures.traversal import roots
from gradtape.statements import walk
from gradtape.transforms.activity import active_values, differentiable_inputs
from gradtape.transforms.sparsity.index_sets import IndexSets, empty_sets, from_rows, rows_of

MOST_WORK: Final = 2**25
"""Entries of index sets, and statements times eight, up to which index sets are propagated through a procedure; some seconds."""

APPLY_WORK: Final = 4000
"""The work of the index sets of an array computation, besides that of its entries."""

Place: TypeAlias = Value | Variable | Memory
"""What holds a number or an index set: a value, or what statements write to."""

GraphRule: TypeAlias = Callable[
    [Body, Sequence[IndexSets | None], Sequence[NDArray | None]], list[IndexSets | None]
]
"""Returns the index sets of the outputs of a graph from those of its inputs, and the numbers of inputs as far as they are known."""


class UnknownPatternError(Exception):
    """The index sets of a procedure are not known: each result may depend on each input."""


def follow_procedure(
    procedure: Procedure,
    operand_sets: Sequence[IndexSets | None],
    is_needed: Sequence[bool],
    look: Callable[[int], NDArray | None],
    graph_rule: GraphRule,
) -> list[IndexSets | None]:
    """Return the index sets of the results of a procedure.

    Parameters
    ----------
    procedure : Procedure
    given : sequence of IndexSets or None
        By parameter.
    wanted : sequence of bool
        By result: whether its index sets are needed.
    look : callable
        ``look(k)``: the numbers of parameter k, an array of integers; None if they may be others in another call. It is called for
        parameters only whose numbers matter.
    graph_rule : callable
        What follows array computations.

    Raises
    ------
    UnknownPatternError
        Where it takes too much work, or where records are popped whose number is unknown.
    """
    flags = [
        sets is not None and is_inexact(x.dtype)
        for x, sets in zip(procedure.parameters, operand_sets, strict=True)
    ]
    wished = [not flag and x.dtype.kind in "iub" for x, flag in zip(procedure.parameters, flags, strict=True)]
    facts = Facts(procedure, flags, wished, is_needed)
    numbers: list[NDArray | None] = [
        look(position) if wish and _place(x) in facts.needed else None
        for position, (x, wish) in enumerate(zip(procedure.parameters, wished, strict=True))
    ]
    if any(
        wish and array is None and _place(x) in facts.needed
        for x, wish, array in zip(procedure.parameters, wished, numbers, strict=True)
    ):
        facts = Facts(procedure, flags, [array is not None for array in numbers], is_needed)
    columns = next(sets.shape[1] for sets in operand_sets if sets is not None)
    writer = _Writer(procedure, facts)
    operands: list[Any] = []
    for content, sets, array in zip(procedure.parameters, operand_sets, numbers, strict=True):
        is_scalar = isinstance(content, Value)
        if _place(content) in facts.active:
            assert sets is not None
            rows = rows_of(sets)
            operands.append(rows[0] if is_scalar else rows)
        if _place(content) in facts.needed:
            assert array is not None
            operands.append(array.item() if is_scalar else array.reshape(-1).tolist())
    names: dict[str, Any] = {"np": np, "E": frozenset(), "Full": UnknownPatternError}
    names["apply"] = _graph_follower(writer.applies, columns, graph_rule)
    try:
        code = writer.code()
    except (SyntaxError, RecursionError, MemoryError):  # blocks too deep for Python
        raise UnknownPatternError from None
    exec(code, names)
    with np.errstate(all="ignore"):
        answers = iter(names["follow"](*operands))
    results: list[IndexSets | None] = []
    for content in procedure.results:
        pattern: Any = next(answers) if _place(content) in facts.active else None
        if pattern is not None:
            pattern = from_rows([pattern] if isinstance(content, Value) else pattern, columns)
        results.append(pattern)
    return results


def _place(content: Content) -> Place:
    return content.memory if isinstance(content, Pointer) else content


class Facts:
    """What holds index sets, and which numbers are known and needed, whatever the order of statements.

    Attributes
    ----------
    active : set of Value, Variable or Memory
        What may depend on the seed, and on what wanted results may depend.
    unknown : set of Value, Variable or Memory
        Whose numbers are not known.
    needed : set of Value, Variable or Memory
        Whose numbers are known and decide where something active is read or written.
    """

    def __init__(
        self,
        procedure: Procedure,
        flags: Sequence[bool],
        is_constant: Sequence[bool],
        is_needed: Sequence[bool],
    ) -> None:
        self._statements = list(walk(procedure.body))
        self._nodes, _ = extract(roots(procedure), stop=lambda value: not value.is_made)
        self.tape = match_tape(procedure.body)
        if self.tape is None:
            raise UnknownPatternError
        self.around = dict(_surroundings(procedure.body, ()))
        parameters = [_place(x) for x in procedure.parameters]
        self._flows = list(self._all_flows())
        self.active: set[Place] = {x for x, flag in zip(parameters, flags, strict=True) if flag}
        self._find_active()
        self.active &= self._useful(
            {_place(x) for x, flag in zip(procedure.results, is_needed, strict=True) if flag}
        )
        self.unknown: set[Place] = {x for x, flag in zip(parameters, is_constant, strict=True) if not flag}
        self._find_unknown(procedure)
        for statement in self._statements:
            if isinstance(statement, Push | Pop) and self.is_uncertain(statement):
                raise UnknownPatternError
        self.needed: set[Place] = set()
        self._find_needed()

    def _all_flows(self) -> Iterator[tuple[Place, Place, Statement]]:
        """Yield from where to where numbers are handed on by statements."""
        assert self.tape is not None
        for statement in self._statements:
            if isinstance(statement, Load):
                yield statement.pointer.memory, statement.out, statement
            elif isinstance(statement, Store):
                yield statement.value, statement.pointer.memory, statement
            elif isinstance(statement, Read) and isinstance(statement.out, Value):
                yield statement.variable, statement.out, statement
            elif isinstance(statement, Assign) and isinstance(statement.value, Value):
                yield statement.value, statement.variable, statement
            elif isinstance(statement, Push):
                for value, out in zip(statement.values, self.tape[statement].outs, strict=True):
                    if isinstance(value, Value) and isinstance(out, Value):
                        yield value, out, statement

    def _find_active(self) -> None:
        active = self.active
        while True:
            size = len(active)
            active |= active_values(self._nodes, {x for x in active if isinstance(x, Value)})
            for source, target, _ in self._flows:
                if source in active and is_inexact(_dtype(target)):
                    active.add(target)
            for statement in self._statements:
                if isinstance(statement, Apply):
                    input_is_active = [_operand(x) in active for x in statement.inputs]
                    inner = {
                        x for x, flag in zip(statement.graph.inputs, input_is_active, strict=True) if flag
                    }
                    varied = active_values(statement.graph.nodes, inner)
                    outs = zip(statement.graph.outputs, statement.outputs, strict=True)
                    active |= {
                        span.pointer.memory for out, span in outs if out in varied and is_inexact(out.dtype)
                    }
            if len(active) == size:
                return

    def _useful(self, results: set[Place]) -> set[Place]:
        """Return on what results may depend."""
        useful = results
        while True:
            size = len(useful)
            for node in reversed(self._nodes):
                if any(out in useful for out in node.outs):
                    useful.update(differentiable_inputs(node))
            useful |= {source for source, target, _ in self._flows if target in useful}
            for statement in self._statements:
                if isinstance(statement, Apply) and any(
                    span.pointer.memory in useful for span in statement.outputs
                ):
                    useful.update(map(_operand, statement.inputs))
            if len(useful) == size:
                return useful

    def _find_unknown(self, procedure: Procedure) -> None:
        unknown = self.unknown
        unknown |= {out for node in self._nodes if not _is_written(node) for out in node.outs}
        unknown |= {
            span.pointer.memory for s in self._statements if isinstance(s, Apply) for span in s.outputs
        }
        readers: dict[Variable, list[Statement]] = {}
        for s in self._statements:
            if isinstance(s, Read):
                readers.setdefault(s.variable, []).append(s)
        while True:
            size = len(unknown)
            for node in self._nodes:
                if any(x in unknown for x in node.inputs):
                    unknown.update(node.outs)
            for s in self._statements:
                if isinstance(s, For) and s.count in unknown:
                    unknown.add(s.index)
            for source, target, s in self._flows:
                if (
                    source in unknown
                    or (isinstance(s, Load | Store) and s.index in unknown)
                    or (isinstance(s, Store) and self.is_uncertain(s))
                    or (isinstance(s, Assign) and self._escapes(s, readers))
                ):
                    unknown.add(target)
            if len(unknown) == size:
                return

    def _escapes(self, s: Assign, readers: dict[Variable, list[Statement]]) -> bool:
        """Return whether what is assigned in blocks that may not run is read outside one of them, or in its next run."""
        return any(
            self._leaves(s.variable, block, readers)
            for block in self.around[s]
            if self.decides(block) in self.unknown
        )

    def _leaves(self, variable: Variable, block: Statement, readers: dict[Variable, list[Statement]]) -> bool:
        """Return whether what is assigned to a variable in a block that may not run is read after it, or in its next run."""
        if self.bounds(block):
            return any(block not in self.around[reader] for reader in readers.get(variable, ()))
        loop: Any = (
            For(Value(block.condition.aval), block.condition, [block]) if isinstance(block, If) else block
        )
        return variable in exposed_variables(loop) or any(
            block not in self.around[reader] for reader in readers.get(variable, ())
        )

    def is_uncertain(self, statement: Statement) -> If | For | While | None:
        """Return the outermost branch or loop around a statement of which it is not known whether, or how often, it runs."""
        for outer in self.around[statement]:
            if self.decides(outer) in self.unknown:
                return outer
        return None

    def decides(self, statement: If | For | While) -> Value:
        """Return the value that says whether, or how often, the blocks of a statement run."""
        return statement.count if isinstance(statement, For) else statement.condition

    def bounds(self, statement: Statement) -> list[Value]:
        """Return the known parts of the condition of a loop that may end before: up to them, its iterations come one after the other."""
        if not isinstance(statement, While):
            return []
        pending, known_parts = [statement.condition], []
        while pending:
            value = pending.pop()
            node = value.node
            if node is not None and node.op in (bitwise_and, logical_and):
                pending += node.inputs
            elif value not in self.unknown and not isinstance(value, Literal):
                known_parts.append(value)
        return known_parts

    def _find_needed(self) -> None:
        """Find, backwards, the numbers that decide about what is active, and those they are computed from."""
        pending: list[Value] = []
        for s in self._statements:
            if isinstance(s, If | For | While):
                pending += [self.decides(s), *self.bounds(s)]
            elif isinstance(s, Load | Store) and s.pointer.memory in self.active:
                pending.append(s.index)
            elif isinstance(s, Allocate):
                if s.size in self.unknown:
                    raise UnknownPatternError
                pending.append(s.size)
            elif isinstance(s, Apply):
                spans = [x for x in (*s.inputs, *s.outputs) if isinstance(x, Span)]
                if any(span.offset in self.unknown for span in spans):
                    raise UnknownPatternError
                pending += [span.offset for span in spans]
                for operand in s.inputs:
                    content = _operand(operand)
                    if _dtype(content).kind in "iub" and content not in self.unknown:
                        pending.append(content) if isinstance(content, Value) else self._need_memory(
                            content, pending
                        )
        pending += [
            node.inputs[0]
            for node in self._nodes
            if node.op is where and any(x in self.active for x in node.outs)
        ]
        sources: dict[Place, list[tuple[Place, Statement]]] = {}
        for source, target, statement in self._flows:
            sources.setdefault(target, []).append((source, statement))
        self._sources = sources
        while pending:
            value = pending.pop()
            if value in self.needed or value in self.unknown or isinstance(value, Literal):
                continue
            self.needed.add(value)
            if value.node is not None:
                pending += value.node.inputs
                continue
            for source, statement in sources.get(value, ()):
                if isinstance(statement, Load):
                    pending.append(statement.index)
                if isinstance(source, Value):
                    pending.append(source)
                else:
                    self._need_memory(source, pending)

    def _need_memory(self, location: Variable | Memory, pending: list[Value]) -> None:
        if location in self.needed:
            return
        self.needed.add(location)
        for source, target, statement in self._flows:
            if target is location and isinstance(source, Value):
                pending.append(source)
                if isinstance(statement, Store):
                    pending.append(statement.index)


def _operand(operand: Value | Span) -> Value | Memory:
    return operand.pointer.memory if isinstance(operand, Span) else operand


def _dtype(location: Place) -> Any:
    return location.type.dtype if isinstance(location, Variable) else location.dtype


def _surroundings(
    body: Sequence[Statement], outer: tuple[If | For | While, ...]
) -> Iterator[tuple[Statement, tuple[If | For | While, ...]]]:
    """Yield statements with the branches and loops around each, from the outside."""
    for statement in body:
        yield statement, outer
        if isinstance(statement, If | For | While):
            for block in statement.blocks():
                yield from _surroundings(block, (*outer, statement))


def _is_written(node: Node) -> bool:
    """Return whether Python has an expression for a node."""
    return _expression(node, [Code("x")] * len(node.inputs)) is not None


def _expression(node: Node, args: Sequence[Code]) -> Code | None:
    dtypes = [operand.dtype for operand in node.inputs]
    return expression(node.op.name, args, dtypes, node.out.dtype, plain=True) if len(node.outs) == 1 else None


class _Writer:
    """Writes the program: `names` of numbers end in n, those of sets in s."""

    def __init__(self, procedure: Procedure, facts: Facts) -> None:
        self._procedure, self._facts = procedure, facts
        self.applies: list[tuple[Apply, list[bool], list[bool]]] = []
        self._lines: list[str] = []
        self._indent = 1
        self._names: dict[object, str] = {}
        self._scopes: list[dict[tuple[Value, str], str]] = [{}]
        self._count = 0
        self._kept_arrays: list[str] = []
        """Arrays that are made in loops of unknown trip count, and kept from round to round."""

    def code(self) -> CodeType:
        """Return the compiled function ``follow``."""
        facts, procedure = self._facts, self._procedure
        parameters = []
        for content in procedure.parameters:
            if _place(content) in facts.active:
                parameters.append(self._name(content, "s"))
            if _place(content) in facts.needed:
                parameters.append(self._name(content, "n"))
        self._write(f"work, grown, tape = {MOST_WORK}, 0, []")
        variables = dict.fromkeys(s.variable for s in walk(procedure.body) if isinstance(s, Assign))
        for variable in variables:
            if variable in facts.active:
                self._write(f"{self._name(variable, 's')} = E")
        self._block(procedure.body, False)
        results = [
            self._sets(x) if isinstance(x, Value) else self._name(x, "s")
            for x in procedure.results
            if _place(x) in facts.active
        ]
        self._write(f"return [{', '.join(results)}]")
        text = "\n".join([f"def follow({', '.join(parameters)}):", *self._lines])
        return compile(text, "<index sets>", "exec")

    # Names and expressions

    def _write(self, line: str) -> None:
        self._lines.append(" " * self._indent + line)

    @contextmanager
    def _inside(self, head: str) -> Iterator[None]:
        self._write(head)
        self._indent += 1
        self._scopes.append({})
        count = len(self._lines)
        yield
        if len(self._lines) == count:
            self._write("pass")
        self._scopes.pop()
        self._indent -= 1

    def _name(self, of: object, kind: str) -> str:
        if of not in self._names:
            self._names[of] = self._new()
        return self._names[of] + kind

    def _new(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _cached(self, value: Value, kind: str) -> str | None:
        return next((scope[value, kind] for scope in reversed(self._scopes) if (value, kind) in scope), None)

    def _number(self, value: Value) -> str:
        """Return the name of a known number."""
        for node in self._nodes_of(value, "n"):
            code = _expression(node, [Code(self._known_number(x)) for x in node.inputs])
            assert code is not None
            name = f"{self._new()}n"
            self._write(f"{name} = {code.text}")
            self._scopes[-1][node.out, "n"] = name
        return self._known_number(value)

    def _known_number(self, value: Value) -> str:
        if isinstance(value, Literal):
            assert value.data is not None
            return f"({number(value.data, value.dtype).text})"
        return self._cached(value, "n") or self._name(value, "n")

    def _sets(self, value: Value) -> str:
        """Return the name of the index set of a value."""
        active = self._facts.active
        for node in self._nodes_of(value, "s"):
            if not any(out in active for out in node.outs):
                continue
            if node.op is where and node.inputs[0] not in self._facts.unknown:
                first, second = (self._known_sets(x) for x in node.inputs[1:])
                text = f"{first} if {self._number(node.inputs[0])} else {second}"
            else:
                operands = [self._known_sets(x) for x in differentiable_inputs(node) if x in active]
                text = " | ".join(dict.fromkeys(operands)) or "E"
            name = text
            if not text.isidentifier():
                name = f"{self._new()}s"
                self._write(f"{name} = {text}")
            self._scopes[-1][node.out, "s"] = name
        return self._known_sets(value)

    def _known_sets(self, value: Value) -> str:
        if value not in self._facts.active:
            return "E"
        return self._cached(value, "s") or self._name(value, "s")

    def _nodes_of(self, value: Value, kind: str) -> Sequence[Node]:
        """Return the nodes of an expression that are not computed yet, in order."""
        relevant = self._facts.active if kind == "s" else None
        if not value.is_made:
            return ()
        return extract(
            [value],
            stop=lambda x: (
                not x.is_made
                or self._cached(x, kind) is not None
                or (relevant is not None and x not in relevant)
            ),
        )[0]

    # Statements

    def _block(self, statements: Sequence[Statement], is_weak: bool) -> None:
        for statement in statements:
            self._statement(statement, is_weak)

    def _matters(self, statements: Sequence[Statement]) -> bool:
        """Return whether statements do something with sets or numbers that are needed."""
        facts = self._facts
        locations = facts.active | facts.needed
        for s in walk(statements):
            if isinstance(s, Push | Pop | Allocate):
                return True
            if any(pointer.memory in locations for pointer in s.pointers_written()):
                return True
            if isinstance(s, Assign) and (isinstance(s.value, Pointer) or s.variable in locations):
                return True
        return False

    def _statement(self, s: Statement, is_weak: bool) -> None:
        facts = self._facts
        if isinstance(s, If | For | While):
            if self._matters([s]):
                self._controlled(s, is_weak)
        elif isinstance(s, Load):
            if s.out in facts.needed:
                self._write(
                    f"{self._name(s.out, 'n')} = {self._name(s.pointer, 'n')}[{self._number(s.index)}]"
                )
            if s.out in facts.active:
                self._load(s)
        elif isinstance(s, Store):
            if s.pointer.memory in facts.needed:
                index, value = self._number(s.index), self._number(s.value)
                self._write(f"{self._name(s.pointer, 'n')}[{index}] = {value}")
            if s.pointer.memory in facts.active:
                self._store(s, is_weak)
        elif isinstance(s, Read):
            self._copy(s.variable, s.out, _place(s.out))
        elif isinstance(s, Assign):
            if isinstance(s.value, Pointer):
                if is_weak:
                    raise UnknownPatternError
                self._copy(s.value, s.variable, s.value.memory)
                return
            if s.variable in facts.needed:
                self._write(f"{self._name(s.variable, 'n')} = {self._number(s.value)}")
            if s.variable in facts.active:
                name = self._name(s.variable, "s")
                self._write(f"{name} = {self._sets(s.value)}")
                self._write(f"work -= len({name})")
        elif isinstance(s, Allocate):
            self._allocate(s, is_weak)
        elif isinstance(s, Push):
            self._write(f"tape.append(({''.join([f'{self._entry(x)}, ' for x in s.values])}))")
        elif isinstance(s, Pop):
            names = [f"{self._name(out, 's')}, {self._name(out, 'n')}, " for out in s.outs]
            self._write(f"{''.join(names)} = tape.pop()")
        elif isinstance(s, Apply):
            self._apply(s, is_weak)

    def _copy(self, source: object, target: object, location: Place) -> None:
        """Write what hands on the set and the number, or the arrays of them."""
        for kind, locations in (("s", self._facts.active), ("n", self._facts.needed)):
            if location in locations:
                self._write(f"{self._name(target, kind)} = {self._name(source, kind)}")

    def _entry(self, content: Content) -> str:
        """Return the set and the number of a pushed value."""
        facts, location = self._facts, _place(content)
        if isinstance(content, Pointer):
            return ", ".join(
                self._name(content, kind) if location in locations else "None"
                for kind, locations in (("s", facts.active), ("n", facts.needed))
            )
        is_number = isinstance(content, Literal) or location in facts.needed
        return f"{self._sets(content)}, {self._number(content) if is_number else None}"

    def _load(self, s: Load) -> None:
        name, array = self._name(s.out, "s"), self._name(s.pointer, "s")
        if s.index in self._facts.unknown:
            self._write(f"{name} = E.union(*{array})")
            self._write(f"work -= len({array}) + len({name})")
        else:
            self._write(f"{name} = {array}[{self._number(s.index)}]")

    def _store(self, s: Store, is_weak: bool) -> None:
        array, sets = self._name(s.pointer, "s"), self._sets(s.value)
        if s.index in self._facts.unknown:
            if sets != "E":
                with self._inside(f"for at in range(len({array})):"):
                    self._add(array, "at", sets)
            return
        index = self._number(s.index)
        if not is_weak:
            self._write(f"{array}[{index}] = {sets}")
            if sets != "E":
                self._write(f"work -= len({sets})")
        elif sets != "E":
            self._add(array, index, sets)

    def _add(self, array: str, index: str, sets: str) -> None:
        """Write what adds an index set to that of an element."""
        self._write(f"more = {array}[{index}] | {sets}")
        self._write(f"work -= len(more); grown += len(more) - len({array}[{index}])")
        self._write(f"{array}[{index}] = more")

    def _allocate(self, s: Allocate, is_weak: bool) -> None:
        size = self._number(s.size)
        for kind, empty, locations in (("s", "E", self._facts.active), ("n", "0", self._facts.needed)):
            if s.out.memory in locations:
                name = self._name(s.out, kind)
                if is_weak and kind == "s":
                    self._kept_arrays.append(name)
                    self._write(f"if {name} is None or len({name}) != {size}: {name} = [E] * {size}")
                else:
                    self._write(f"{name} = [{empty}] * {size}")

    def _apply(self, s: Apply, is_weak: bool) -> None:
        facts = self._facts
        if not any(span.pointer.memory in facts.active for span in s.outputs):
            return
        active = [_operand(x) in facts.active for x in s.inputs]
        is_known_of = [
            _operand(x) in facts.needed and not flag for x, flag in zip(s.inputs, active, strict=True)
        ]
        operands = []
        for operand, is_active, is_known in zip(s.inputs, active, is_known_of, strict=True):
            kind = "s" if is_active else "n" if is_known else ""
            if not kind:
                operands.append("None")
            elif isinstance(operand, Span):
                operands.append(self._slice(operand, kind))
            else:
                text = self._sets(operand) if is_active else self._number(operand)
                operands.append(f"[{text}]")
        number = len(self.applies)
        self.applies.append((s, active, is_known_of))
        self._write(f"made = apply({number}, [{', '.join(operands)}])")
        self._write(f"work -= {APPLY_WORK}")
        for k, span in enumerate(s.outputs):
            if span.pointer.memory not in facts.active:
                continue
            target = self._slice(span, "s")
            self._write(f"work -= sum(map(len, made[{k}]))")
            if is_weak:
                self._write(f"grown -= sum(map(len, {target}))")
                self._write(f"{target} = [a | b for a, b in zip({target}, made[{k}])]")
                self._write(f"grown += sum(map(len, {target}))")
            else:
                self._write(f"{target} = made[{k}]")

    def _slice(self, span: Span, kind: str) -> str:
        offset = self._number(span.offset)
        return f"{self._name(span.pointer, kind)}[{offset}:{offset} + {span.aval.size}]"

    # Loops and branches

    def _controlled(self, s: If | For | While, is_weak: bool) -> None:
        if self._facts.decides(s) in self._facts.unknown:
            if isinstance(s, If):
                self._either(s)
            elif isinstance(s, While) and (bounds := self._facts.bounds(s)):
                self._bounded(s, bounds)
            else:
                self._repeated(s)
        elif isinstance(s, If):
            with self._inside(f"if {self._number(s.condition)}:"):
                self._block(s.then, is_weak)
            if self._matters(s.otherwise):
                with self._inside("else:"):
                    self._block(s.otherwise, is_weak)
        elif isinstance(s, For):
            with self._inside(f"for {self._name(s.index, 'n')} in range({self._number(s.count)}):"):
                self._spend(s)
                self._block(s.body, is_weak)
        else:
            with self._inside("while True:"):
                self._spend(s)
                self._block(s.test, is_weak)
                self._write(f"if not {self._number(s.condition)}: break")
                self._block(s.body, is_weak)

    def _spend(self, s: For | While) -> None:
        self._write(f"work -= {8 * sum(len(block) for block in s.blocks())}")
        self._write("if work < 0: raise Full")

    def _assigned(self, statements: Sequence[Statement]) -> list[str]:
        """Return the names of the sets of the variables that statements assign."""
        variables = dict.fromkeys(s.variable for s in walk(statements) if isinstance(s, Assign))
        return [self._name(x, "s") for x in variables if x in self._facts.active]

    def _either(self, s: If) -> None:
        """Write both branches: variables hold after them what they may hold after one of them."""
        names = self._assigned([s])
        before = self._saved(names)
        with self._inside("if True:"):
            self._block(s.then, True)
        after = self._saved(names)
        for name, old in zip(names, before, strict=True):
            self._write(f"{name} = {old}")
        with self._inside("if True:"):
            self._block(s.otherwise, True)
        self._join(names, after)

    def _bounded(self, s: While, bounds: Sequence[Value]) -> None:
        """Write all iterations that there may be: after them, variables hold what they may hold after any of them."""
        names = self._assigned([s])
        with self._kept():
            ends = self._saved(names)
            with self._inside("while True:"):
                self._spend(s)
                self._block(s.test, True)
                self._join(ends, names)
                for bound in bounds:
                    self._write(f"if not {self._number(bound)}: break")
                self._block(s.body, True)
            self._join(names, ends)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Write at the beginning that there are no arrays yet of those that a loop makes."""
        outer_arrays, self._kept_arrays = self._kept_arrays, []
        start, indent = len(self._lines), self._indent
        yield
        self._lines[start:start] = [" " * indent + f"{name} = None" for name in self._kept_arrays]
        self._kept_arrays = outer_arrays

    def _repeated(self, s: For | While) -> None:
        """Write rounds of a loop until its index sets no longer grow."""
        names = self._assigned([s])
        before_round = self._new()
        with self._kept(), self._inside("while True:"):
            self._spend(s)
            self._write(f"{before_round} = grown")
            before = self._saved(names)
            tested: list[str] = []
            if isinstance(s, While):
                self._block(s.test, True)
                tested = self._saved(names)
            self._block(s.body, True)
            self._join(names, before)
            if tested:
                self._join(names, tested)
            same = [f"len({name}) == len({old})" for name, old in zip(names, before, strict=True)]
            self._write(f"if {' and '.join([f'grown == {before_round}', *same])}: break")

    def _saved(self, names: Sequence[str]) -> list[str]:
        saved = [f"{self._new()}s" for _ in names]
        for new, name in zip(saved, names, strict=True):
            self._write(f"{new} = {name}")
        return saved

    def _join(self, names: Sequence[str], others: Sequence[str]) -> None:
        for name, other in zip(names, others, strict=True):
            self._write(f"{name} = {name} | {other}")


def _graph_follower(
    applies: list[tuple[Apply, list[bool], list[bool]]], columns: int, rule: GraphRule
) -> Callable[[int, Sequence[Any]], list[Any]]:
    """Return what the program calls for array computations: from lists of sets or numbers to lists of sets."""

    def apply(number: int, operands: Sequence[Any]) -> list[Any]:
        statement, active, is_known = applies[number]
        graph = statement.graph
        patterns = [
            from_rows(operand, columns) if flag else None
            for operand, flag in zip(operands, active, strict=True)
        ]
        numbers = [
            np.array(operand, x.dtype).reshape(x.shape) if flag else None
            for operand, flag, x in zip(operands, is_known, graph.inputs, strict=True)
        ]
        results = rule(graph, patterns, numbers)
        return [
            rows_of(empty_sets(x.size, columns) if sets is None else sets)
            for x, sets in zip(graph.outputs, results, strict=True)
        ]

    return apply
