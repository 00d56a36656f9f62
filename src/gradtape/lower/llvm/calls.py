"""Calls of routines: products of BLAS, sorting and searching, and the kernels of outlined loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.loops.ir import Dtype, RoutineCall
from gradtape.lower.llvm.function import FunctionEmitter
from gradtape.lower.llvm.instructions import memory_type
from gradtape.lower.llvm.matrix import emit_matrix_routine
from gradtape.lower.resident.interrupts import RAISE

LEAST_ROWS: Final = 64
"""Rows of a product of a matrix and its transpose from which half of it pays. With sums of 1000 terms, syrk took of gemm's time 2.1 at
16 rows, 0.9 at 32, 0.75 at 64, 0.65 at 100, and 0.58 at 256."""

LEAST_PRODUCTS: Final = 2**21
"""Multiplications from which it pays: for 100 rows and terms, half of that, the two take the same time."""


def emit_routine(function: FunctionEmitter, call: RoutineCall) -> None:
    """Append a call of a routine."""
    if call.library == "lapack":
        emit_matrix_routine(function, call)
    elif call.library == "procedure":
        _procedure(function, call)
    elif call.library == "python":
        _python(function, call)
    elif call.function == "gemm":
        (_syrk if is_symmetric(call) else _gemm)(function, call)
    elif call.function == "argsort":
        _argsort(function, call)
    elif call.function == "searchsorted":
        _searchsorted(function, call)
    else:
        assert call.function == "loop"
        _outlined_loop(function, call)


# Sorting and searching


def _add_order(function: FunctionEmitter, dtype: Dtype) -> None:
    """Add the function that orders two keys."""
    places = {"T": memory_type(dtype), "dtype": dtype.name}
    if dtype.kind == "f":
        function.module.add_routine("less_float", **places)
    else:
        function.module.add_routine("less", less="slt" if dtype.kind == "i" else "ult", **places)


def _argsort(function: FunctionEmitter, call: RoutineCall) -> None:
    keys, out, temp = map(function.place, call.operands)
    dtype = call.operands[0][0].dtype
    _add_order(function, dtype)
    symbol = function.module.add_routine("argsort", T=memory_type(dtype), dtype=dtype.name)
    function.emit(f"call void @{symbol}(ptr {keys}, ptr {out}, ptr {temp}, i64 {call.numbers[0]})")


def _searchsorted(function: FunctionEmitter, call: RoutineCall) -> None:
    a, v, out = map(function.place, call.operands)
    dtype = call.operands[0][0].dtype
    count, wanted, side = call.numbers
    _add_order(function, dtype)
    first, second, otherwise = ("x", "y", "true") if side == "right" else ("y", "x", "false")
    symbol = function.module.add_routine(
        "searchsorted",
        T=memory_type(dtype),
        dtype=dtype.name,
        side=side,
        first=first,
        second=second,
        otherwise=otherwise,
    )
    function.emit(f"call void @{symbol}(ptr {a}, i64 {count}, ptr {v}, i64 {wanted}, ptr {out})")


# Products, whose arguments BLAS takes by their addresses


def is_symmetric(call: RoutineCall) -> bool:
    """Return whether a product is that of a matrix and its transpose, and large enough for syrk, which computes one triangle."""
    first, second, wide, high, deep, ld_first, ld_second, beta, _ = call.numbers
    return (
        call.operands[0] == call.operands[1]
        and ld_first == ld_second
        and first != second
        and wide == high >= LEAST_ROWS
        and wide * high * deep >= LEAST_PRODUCTS
        and beta == 0.0
    )


def _gemm(function: FunctionEmitter, call: RoutineCall) -> None:
    first, second, wide, high, deep, ld_first, ld_second, beta, ld_out = call.numbers
    a, b, c = map(function.place, call.operands)
    sizes = (wide, high, deep)
    arguments = (first, second, *sizes, 1.0, a, ld_first, b, ld_second, float(beta), c, ld_out)
    _call_blas(function, "gemm", call.operands[0][0].dtype, arguments)


def _syrk(function: FunctionEmitter, call: RoutineCall) -> None:
    """Append a call that computes the upper triangle, and one that mirrors it."""
    dtype = call.operands[0][0].dtype
    flag, _, rows, _, deep, leading, _, beta, ld_out = call.numbers
    a, c = function.place(call.operands[0]), function.place(call.operands[2])
    _call_blas(function, "syrk", dtype, ("U", flag, rows, deep, 1.0, a, leading, float(beta), c, ld_out))
    symbol = function.module.add_routine("mirror", T=memory_type(dtype), dtype=dtype.name)
    function.emit(f"call void @{symbol}(ptr {c}, i64 {rows}, i64 {ld_out})")


def _call_blas(function: FunctionEmitter, name: str, dtype: Dtype, arguments: Sequence[str | float]) -> None:
    """Append a call with extents (int), factors (float), options (one letter) and addresses (longer)."""
    module, real = function.module, memory_type(dtype)
    operands = []
    for value in arguments:
        if isinstance(value, float):
            value = module.constant(f"{real}.{int(value)}", real, str(value))
        elif isinstance(value, int):
            value = module.constant(f"int.{value}", "i32", str(value))
        elif len(value) == 1:
            value = module.constant(f"char.{value}", "[2 x i8]", f'c"{value}\\00"')
        operands.append(f"ptr {value}")
    symbol = f"scipy.linalg.cython_blas.{'s' if dtype.itemsize == 4 else 'd'}{name}"
    module.bind(symbol)
    function.call("void", f'"{symbol}"', *operands)


# Procedures


def _procedure(function: FunctionEmitter, call: RoutineCall) -> None:
    """Append the call of a procedure; where a check fails, the interpreter raises the error."""
    (reference,) = call.numbers
    from gradtape.lower.procedures.emit import (
        emit_procedure,  # late: a process without procedures compiles its first kernel 10 ms sooner
    )

    symbol = emit_procedure(function.module, reference.procedure)
    pointers = [f"ptr {place}" for place in map(function.place, call.operands)]
    status = function.let(f"call i32 @{symbol}({', '.join(pointers)})")
    function.note_status(status)


# Python


def _python(function: FunctionEmitter, call: RoutineCall) -> None:
    """Append a call of Python."""
    (text,) = call.numbers
    function.call_python(text, list(map(function.place, call.operands)))


# Outlined loops


def _outlined_loop(function: FunctionEmitter, call: RoutineCall) -> None:
    """Append a call of the kernel of an outlined loop; the trip count is its last input."""
    symbol, inputs, trip_count = call.numbers
    module = function.module
    module.bind(symbol, RAISE)
    count = module.constant(f"trip_count.{trip_count}", "i64", str(trip_count))
    pointers = list(map(function.place, call.operands))
    name = function.new_label()
    tables = [
        function.pointer_table(f"%{name}.{what}", held)
        for what, held in (("in", [*pointers[:inputs], count]), ("out", pointers[inputs:-1]))
    ]
    status = function.call("i32", f'"{symbol}"', *[f"ptr {pointer}" for pointer in (*tables, pointers[-1])])
    function.note_status(status)
