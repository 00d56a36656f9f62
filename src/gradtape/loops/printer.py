"""The printer of loops: Python that a reader could have typed and that runs, on flat NumPy buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtape.ir.expressions import Code, dtype_name, expression, number
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


def print_loops(program: LoopProgram) -> str:
    """Return a program as a Python function of its buffers, which Numba compiles as well.

    It uses ``np``, ``math``, where SciPy alone has a function ``scipy.special``, ``wrap`` and routines, by `routine_name`. Numbers are
    NumPy's scalars.
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


def print_block(statements: Sequence[Statement]) -> list[str]:
    """Return the lines of statements."""
    return list(_block(statements, ""))


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
        size = pair.current.size
        if pair.aside is not None:
            yield f"{indent}{_part(pair.aside, size)}[:] = {pair.following.name}[:{size}]"
        if pair.landing is not None:
            yield f"{indent}{_part(pair.landing, size)}[:] = {pair.current.name}[:{size}]"
        if pair.aside is not None:
            yield f"{indent}{_part(pair.second, size)}[:] = {_part(pair.aside, size)}"


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
    for position, branch in enumerate(statement.branches):
        index = _number(statement.index)
        if last == 0:
            yield from _block(branch, indent)
            return
        if position == last:
            yield f"{indent}else:"
        else:
            yield f"{indent}{'elif' if position else 'if'} {index} <= {position}:"
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
    numbers = [] if statement.library == "procedure" else map(repr, statement.numbers)
    return f"{routine_name(statement)}({', '.join([*operands, *numbers])})"


def routine_name(call: RoutineCall) -> str:
    """Return the name by which prints call a routine: that of a procedure tells it from others of the same name."""
    if call.library != "procedure":
        return call.function
    (reference,) = call.numbers
    return f"{identifier(reference.name)}_{reference.digest[:6]}"


def _call(statement: Compute) -> str:
    args = [_code(arg) for arg in statement.args]
    dtypes = [arg.dtype for arg in statement.args]
    name, dtype = statement.function, statement.target.dtype
    plain = all(isinstance(arg, Const) for arg in statement.args)  # Python's numbers; all others are NumPy's
    code = expression(name, args, dtypes, dtype, plain)
    return f"{name}({', '.join([arg.text for arg in args])})" if code is None else code.text


def _room(buffer: Buffer) -> str:
    return f"np.empty({buffer.size}, np.{_dtype_name(buffer)})"


def _element(buffer: Buffer, index: Position) -> str:
    if buffer.role == "stack":
        return f"{buffer.name}[{index // buffer.size}][{index % buffer.size}]"
    return f"{buffer.name}[{index}]"


def _number(operand: Number) -> str:
    return _code(operand).text


def _code(operand: Number) -> Code:
    if isinstance(operand, Const):
        return number(operand.value, operand.dtype)
    return Code(f"({operand.position})" if isinstance(operand, Index) else operand.name)


def _dtype_name(buffer: Buffer) -> str:
    return dtype_name(buffer.dtype).removeprefix("np.")
