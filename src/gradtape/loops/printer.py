"""Loops as Python that a reader could have typed, and that runs: flat NumPy buffers in, flat NumPy buffers
out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ..ir.printer import identifier
from .affine import Position
from .ir import (
    Assign,
    Buffer,
    Call,
    Compute,
    Const,
    Declare,
    For,
    Guard,
    Index,
    Load,
    Number,
    Program,
    Statement,
    Store,
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


def print_loops(program: Program) -> str:
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


def _block(statements: Sequence[Statement], indent: str) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, For):
            var = statement.var
            bounds = f"{var.high + 1}" if var.low == 0 else f"{var.low}, {var.high + 1}"
            yield f"{indent}for {var.name} in range({bounds}):"
            yield from _block(statement.body, indent + "    ")
        else:
            yield indent + _line(statement)


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
    assert isinstance(statement, Call)
    operands = [f"{buffer.name}[{position}:]" for buffer, position in statement.operands]
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


def _element(buffer: Buffer, index: Position) -> str:
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
