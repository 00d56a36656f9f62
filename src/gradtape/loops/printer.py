"""The printer of loops: Python that a reader could have typed and that runs, on flat NumPy buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from gradtape.ir.printer import identifier
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
    ReserveStack,
    RoutineCall,
    SequentialFor,
    Statement,
    Store,
    WhileLoop,
    Wrap,
)

INFIX: Final = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
}
"""Rows that Python writes as operators between two numbers."""

PREFIX: Final = {"negative": "-", "invert": "~"}

_PLAIN: Final = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_))


def print_loops(program: LoopProgram) -> str:
    """Return a program as a Python function of its buffers.

    The functions that it calls are rows, by name, ``wrap`` and routines of the same names as in the loops;
    numbers are NumPy's scalars.
    """
    names = ", ".join(buffer.name for buffer in (*program.inputs, *program.outputs))
    lines = [f"def {identifier(program.name)}({names}):"]
    lines.extend(
        f"    {buffer.name} = np.empty({buffer.size}, np.{_dtype_name(buffer)})" for buffer in program.scratch
    )
    body = list(_block(program.body, "    "))
    return "\n".join([*lines, *body, "    return 0"])


def print_statement(statement: Statement) -> str:
    """Return the line of a statement; the first one of a loop or a branch."""
    return next(_block([statement], ""), type(statement).__name__)


def _block(statements: Sequence[Statement], indent: str) -> Iterator[str]:
    """Yield the lines of statements."""
    for statement in statements:
        if isinstance(statement, For):
            var = statement.var
            bounds = f"{var.high + 1}" if var.low == 0 else f"{var.low}, {var.high + 1}"
            yield f"{indent}for {var.name} in range({bounds}):"
            yield from _block(statement.body, indent + "    ")
        elif isinstance(statement, SequentialFor):
            yield from _pairs_before(statement.pairs, indent)
            yield f"{indent}for {statement.var.name} in range({_trip_count(statement)}):"
            yield from _iteration(statement.body, statement.pairs, indent + "    ")
            yield from _pairs_after(statement.pairs, indent)
        elif isinstance(statement, WhileLoop):
            yield from _while(statement, indent)
        elif isinstance(statement, IndexSwitch):
            yield from _choose(statement, indent)
        elif isinstance(statement, ReserveStack):
            none = isinstance(statement.count, Const) and statement.count.value == 0
            entries = f"[{_room(statement.stack)} for _ in range({_number(statement.count)})]"
            yield f"{indent}{statement.stack.name} = {'[]' if none else entries}"
        elif isinstance(statement, GrowStack):
            yield f"{indent}{statement.stack.name}.append({_room(statement.stack)})"
        elif isinstance(statement, OpenStack):
            continue
        else:
            yield indent + _line(statement)


def _trip_count(statement: SequentialFor) -> str:
    if statement.count is not None:
        return _number(statement.count)
    return str(statement.var.high + 1)


def _iteration(body: Sequence[Statement], pairs: Sequence[DoubleBuffer], indent: str) -> Iterator[str]:
    lines = list(_block(body, indent))
    lines.extend(
        f"{indent}{pair.current.name}, {pair.following.name} = {pair.following.name}, {pair.current.name}"
        for pair in pairs
    )
    yield from lines or [f"{indent}pass"]


def _pairs_before(pairs: Sequence[DoubleBuffer], indent: str) -> Iterator[str]:
    for pair in pairs:
        yield f"{indent}{pair.current.name}, {pair.following.name} = {_part(pair.first)}, {_part(pair.second)}"


def _pairs_after(pairs: Sequence[DoubleBuffer], indent: str) -> Iterator[str]:
    for pair in pairs:
        if pair.landing is not None:
            yield f"{indent}{_part(pair.landing, pair.current.size)}[:] = {pair.current.name}[:{pair.current.size}]"


def _while(statement: WhileLoop, indent: str) -> Iterator[str]:
    name, inner = statement.var.name, indent + "    "
    yield from _pairs_before(statement.pairs, indent)
    most = statement.var.high + 1
    yield f"{indent}{name} = 0"
    yield f"{indent}while {'True' if most > UNBOUNDED else f'{name} < {most}'}:"
    yield from _block(statement.test, inner)
    yield f"{inner}if not {_number(statement.condition)}:"
    yield f"{inner}    break"
    yield from _iteration(statement.body, statement.pairs, inner)
    yield f"{inner}{name} += 1"
    yield from _pairs_after(statement.pairs, indent)


def _choose(statement: IndexSwitch, indent: str) -> Iterator[str]:
    last = len(statement.branches) - 1
    for number, branch in enumerate(statement.branches):
        index = _number(statement.index)
        if last == 0:
            yield from _block(branch, indent)
            return
        if number == last:
            yield f"{indent}else:"
        else:
            yield f"{indent}{'elif' if number else 'if'} {index} <= {number}:"
        yield from list(_block(branch, indent + "    ")) or [f"{indent}    pass"]


def _part(place: Place, size: int | None = None) -> str:
    buffer, position = place
    if buffer.role == "stack":
        return f"{buffer.name}[{position // buffer.size}][{position % buffer.size}:]"
    return f"{buffer.name}[{position}:{'' if size is None else position + size}]"


def _line(statement: Statement) -> str:
    if isinstance(statement, Compute):
        return f"{statement.target.name} = {_call(statement)}"
    if isinstance(statement, Load):
        return f"{statement.target.name} = {_element(statement.buffer, statement.index)}"
    if isinstance(statement, Store):
        return f"{_element(statement.buffer, statement.index)} = {_number(statement.value)}"
    if isinstance(statement, Declare | Assign):
        return f"{statement.target.name} = {_number(statement.value)}"
    if isinstance(statement, Wrap):
        return f"{statement.target.name} = wrap({_number(statement.value)}, {statement.extent})"
    if isinstance(statement, Guard):
        return f"if {_number(statement.value)} != {statement.expected}: return {statement.number}"
    assert isinstance(statement, RoutineCall)
    operands = [_part(place) for place in statement.operands]
    return f"{statement.function}({', '.join([*operands, *map(repr, statement.numbers)])})"


def _call(statement: Compute) -> str:
    args = [_number(arg) for arg in statement.args]
    name = statement.function
    if name == "identity":
        return args[0]
    if name in INFIX and not all(isinstance(arg, Const | Index) for arg in statement.args):
        return f"{args[0]} {INFIX[name]} {args[1]}"
    if name in PREFIX and not isinstance(statement.args[0], Const | Index):
        return f"{PREFIX[name]}{args[0]}"
    if name == "convert":
        return (
            f"np.{statement.target.dtype.name}({args[0]})"
            if statement.target.dtype.kind != "b"
            else f"np.bool_({args[0]})"
        )
    return f"{name}({', '.join(args)})"


def _room(buffer: Buffer) -> str:
    return f"np.empty({buffer.size}, np.{_dtype_name(buffer)})"


def _element(buffer: Buffer, index: Position) -> str:
    if buffer.role == "stack":
        return f"{buffer.name}[{index // buffer.size}][{index % buffer.size}]"
    return f"{buffer.name}[{index}]"


def _number(number: Number) -> str:
    if isinstance(number, Const):
        value = number.value
        text = repr(value.item())
        if number.dtype.kind == "f" and not np.isfinite(value):
            text = f'float("{text}")'
        return text if number.dtype in _PLAIN else f"np.{number.dtype.name}({text})"
    if isinstance(number, Index):
        return f"({number.position})"
    return number.name


def _dtype_name(buffer: Buffer) -> str:
    return "bool_" if buffer.dtype.kind == "b" else buffer.dtype.name
