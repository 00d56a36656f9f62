"""The rules that procedures keep between two stages."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from gradtape.errors import VerifyError
from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, INT64, Aval, part_dtype
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.routines.callback import PythonCall
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
from gradtape.statements import walk

Shape = tuple[Any, ...]
"""What of a push or a pop must match: the dtype or the memory of each entry."""


def verify_procedure(procedure: Procedure, stage: str = "") -> None:
    """Check a procedure.

    - Each leaf is defined once, and used in its block and in those inside it, after its definition. Scalar expressions are made of
      elementwise rows over 0-d values, and of index maps that leave them as they are.
    - A variable is assigned on every way to where it is read, and holds one type. Branches with one condition are one way;
      where conditions are on the tape, some assignment before the read has to do.
    - Indices, sizes and counts are int64, conditions bools; what is stored or assigned has the dtype of the memory or the variable.
    - Memories and variables have names of their own. Parameters are not written.
    - The entries of the tape that a pop takes have the types of those that a push appended, if the procedure has any.
    - Spans, results and parameters have the shapes and dtypes that are declared. No array is a result twice, or a parameter.

    Parameters
    ----------
    procedure : Procedure
        To check.
    stage : str
        What made it, for the message.

    Raises
    ------
    VerifyError
        Naming the statement, the rule and the stage that broke it.
    """
    _Verifier(procedure, stage).check()


class _Verifier:
    """Walks a procedure in the order in which it runs."""

    def __init__(self, procedure: Procedure, stage: str) -> None:
        self._procedure = procedure
        self._stage = stage
        self._statement: Statement | None = None
        self._known: set[Content] = set()
        self._defined: set[Content] = set()
        self._pure: list[set[Value]] = [set()]
        self._scopes: list[list[Content]] = [[]]
        self._assigned: set[Variable] = set()
        self._ever: set[Variable] = set()
        self._has_tape = any(isinstance(statement, Pop) for statement in walk(procedure.body))
        self._where: dict[tuple[Value, bool], set[Variable]] = {}
        self._names: dict[str, Memory] = {}
        self._variables: dict[str, Variable] = {}
        self._fixed = {p.memory for p in procedure.parameters if isinstance(p, Pointer)}
        self._outermost: set[Content] = set()
        self._pushed: set[Shape] = set()
        self._popped: set[Shape] = set()

    def check(self) -> None:
        procedure = self._procedure
        self._require(
            len(procedure.parameters) == len(procedure.types),
            "the parameters have other types than there are",
        )
        for parameter, type_ in zip(procedure.parameters, procedure.types, strict=True):
            self._define(parameter)
            self._require(
                parameter.dtype == type_.dtype, f"a parameter of {type_} has dtype {parameter.dtype}"
            )
            scalar = isinstance(parameter, Value)
            self._require(not scalar or type_.shape == (), f"a scalar parameter has the type {type_}")
        self._check_all(procedure.body)
        self._statement = None
        self._check_results()
        missing = self._popped - self._pushed
        self._require(not missing, f"a pop of {missing} has no push")

    def _check_results(self) -> None:
        procedure = self._procedure
        self._require(
            len(procedure.results) == len(procedure.result_types),
            "the results have other types than there are",
        )
        results_seen: set[Content] = set()
        for result, type_ in zip(procedure.results, procedure.result_types, strict=True):
            self._use(result)
            self._require(result.dtype == type_.dtype, f"a result of {type_} has dtype {result.dtype}")
            if isinstance(result, Value):
                self._require(type_.shape == (), f"a scalar result has the type {type_}")
                continue
            self._require(result not in results_seen, f"{result.name} is a result twice")
            self._require(result in self._outermost, f"the result {result.name} is not allocated outermost")
            results_seen.add(result)

    # Scopes

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Open a block, whose definitions end with it."""
        self._scopes.append([])
        self._pure.append(set())
        yield
        self._known.difference_update(self._scopes.pop())
        self._pure.pop()

    def _define(self, content: Content) -> None:
        self._require(content not in self._defined, f"{_shown(content)} is defined twice")
        if isinstance(content, Value):
            self._require(content.node is None, f"{_shown(content)} is defined and computed")
            self._require(content.data is None, f"{_shown(content)} is defined and a number")
            self._require(content.shape == (), f"{_shown(content)} is not a scalar")
        else:
            memory = content.memory
            self._require(
                self._names.setdefault(memory.name, memory) is memory,
                f"two memories are called {memory.name}",
            )
        self._defined.add(content)
        self._known.add(content)
        self._scopes[-1].append(content)

    def _use(self, content: Content) -> None:
        """Require that what is used is known; expressions that were checked in an open block need not be again."""
        if isinstance(content, Pointer):
            self._require(content in self._known, f"the pointer {content.name} is not known")
            return
        stack = [content]
        while stack:
            value = stack.pop()
            if any(value in pure for pure in self._pure):
                continue
            self._require(value.shape == (), f"{_shown(value)} is not a scalar")
            node = value.node
            if node is None:
                is_known = value in self._known or value.data is not None
                self._require(is_known, f"{_shown(value)} is not known")
                continue
            scalar = isinstance(node.op, Elementwise | PythonCall) or (
                isinstance(node.op, IndexMap) and not node.inputs[0].ndim
            )
            self._require(scalar, f"{node.op.name} is not elementwise")
            self._require(
                value.dtype == node.op.infer([x.aval for x in node.inputs], node.params)[value.index].dtype,
                f"{node.op.name} does not make {value.dtype}",
            )
            self._pure[-1].add(value)
            stack.extend(node.inputs)

    # Statements

    def _check_all(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self._statement = statement
            if not isinstance(statement, While):
                for content in statement.uses():
                    self._use(content)
            self._check(statement)

    def _check(self, statement: Statement) -> None:
        if isinstance(statement, Load | Store):
            value = statement.out if isinstance(statement, Load) else statement.value
            self._require_dtype(statement.index, INT64, "an index")
            self._require_dtype(value, statement.pointer.dtype, "an element")
            if isinstance(statement, Store):
                self._require_writable(statement.pointer)
        elif isinstance(statement, Assign):
            self._require_type(statement.variable, statement.value)
            self._assigned.add(statement.variable)
            self._ever.add(statement.variable)
        elif isinstance(statement, Read):
            self._require_type(statement.variable, statement.out)
            readable = self._ever if self._has_tape else self._assigned
            self._require(
                statement.variable in readable,
                f"the variable {statement.variable.name} is not assigned on every way to its read",
            )
        elif isinstance(statement, Allocate):
            self._require_dtype(statement.size, INT64, "a size")
        elif isinstance(statement, Check):
            self._require_dtype(statement.condition, BOOL, "a condition")
            kind = getattr(builtins, statement.error, None)
            built_in = isinstance(kind, type) and issubclass(kind, Exception)
            self._require(built_in, f"{statement.error} is not a built-in exception")
        elif isinstance(statement, Push):
            self._pushed.add(tuple(map(_kind, statement.values)))
        elif isinstance(statement, Pop):
            self._popped.add(tuple(map(_kind, statement.outs)))
        elif isinstance(statement, Apply):
            self._check_apply(statement)
        else:
            self._check_blocks(statement)
            return
        for content in statement.defines():
            self._define(content)
            if isinstance(statement, Allocate) and len(self._scopes) == 1:
                self._outermost.add(content)

    def _check_blocks(self, statement: For | While | If) -> None:
        """Check what is nested. What is assigned in it is assigned after it only where it surely ran."""
        before = set(self._assigned)
        assigned_by_condition = dict(self._where)
        if isinstance(statement, For):
            self._require_dtype(statement.count, INT64, "a count")
            with self._scope():
                self._define(statement.index)
                self._require_dtype(statement.index, INT64, "the index of a loop")
                self._check_all(statement.body)
            self._assigned, self._where = before, assigned_by_condition
        elif isinstance(statement, While):
            with self._scope():
                self._check_all(statement.test)
                self._statement = statement
                self._use(statement.condition)
                self._require_dtype(statement.condition, BOOL, "a condition")
                tested = set(self._assigned)
                self._check_all(statement.body)
            self._assigned, self._where = tested, assigned_by_condition
        else:
            self._check_branches(statement, before)

    def _check_branches(self, branch: If, before: set[Variable]) -> None:
        """Check both blocks. What one of them assigns can be read in the same block of a later branch with the same condition."""
        condition = branch.condition
        self._require_dtype(condition, BOOL, "a condition")
        ends = []
        for block, holds in ((branch.then, True), (branch.otherwise, False)):
            assigned_by_condition = dict(self._where)
            self._assigned = before | assigned_by_condition.get((condition, holds), set())
            with self._scope():
                self._check_all(block)
            ends.append(self._assigned)
            self._where = assigned_by_condition
        self._assigned = ends[0] & ends[1]
        for end, holds in zip(ends, (True, False), strict=True):
            self._where[condition, holds] = self._where.get((condition, holds), set()) | end

    def _check_apply(self, apply: Apply) -> None:
        pairs = [
            *zip(apply.graph.inputs, apply.inputs, strict=False),
            *zip(apply.graph.outputs, apply.outputs, strict=False),
        ]
        count = len(apply.inputs) + len(apply.outputs)
        self._require(
            len(pairs) == count == len(apply.graph.inputs) + len(apply.graph.outputs),
            "the operands of a graph are not as many as it has",
        )
        for value, operand in pairs:
            type_ = operand.aval
            self._require(
                (type_.shape, type_.dtype) == (value.shape, value.dtype),
                f"an operand of {type_} is given for {value.aval}",
            )
            if isinstance(operand, Span):
                self._require_dtype(operand.offset, INT64, "an offset")
                # once complex numbers are split, their arrays are pairs of floats in memory
                is_split = type_.dtype.kind == "c" and operand.pointer.dtype.kind == "f"
                stored_dtype = part_dtype(type_.dtype) if is_split else type_.dtype
                self._require_dtype(operand.pointer, stored_dtype, "a span")
        for span in apply.outputs:
            self._require_writable(span.pointer)

    # Requirements

    def _require_writable(self, pointer: Pointer) -> None:
        self._require(pointer.memory not in self._fixed, f"the parameter {pointer.memory.name} is written")

    def _require_type(self, variable: Variable, content: Content) -> None:
        name = variable.name
        self._require(
            self._variables.setdefault(name, variable) is variable, f"two variables are called {name}"
        )
        if isinstance(variable.type, Aval):
            fits = isinstance(content, Value) and content.dtype == variable.type.dtype
        else:
            fits = isinstance(content, Pointer) and content.memory is variable.type
        self._require(fits, f"the variable {name} does not hold {_shown(content)}")

    def _require_dtype(self, content: Content, dtype: Any, description: str) -> None:
        self._require(content.dtype == dtype, f"{description} is {content.dtype}, not {dtype}")

    def _require(self, holds: bool, rule: str) -> None:
        if not holds:
            self._fail(rule)

    def _fail(self, rule: str) -> NoReturn:
        shown = "" if self._statement is None else f" in a {type(self._statement).__name__}"
        why = f"after the stage {self._stage}" if self._stage else ""
        raise VerifyError(f"{rule}{shown}, procedure {self._procedure.name}", why=why)


def _kind(content: Content) -> Any:
    return content.memory if isinstance(content, Pointer) else content.dtype


def _shown(content: Content) -> str:
    return content.name if isinstance(content, Pointer) else repr(content)
