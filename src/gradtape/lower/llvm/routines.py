"""Calls of routines in LLVM: matrix products of BLAS, factorisations of LAPACK, sorting and searching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from gradtape.loops.ir import RoutineCall
from gradtape.lower.llvm.matrix import MATRIX_ROUTINES, emit_matrix_routine
from gradtape.lower.llvm.sort import argsort_function, less_function, search_function
from gradtape.lower.llvm.symmetric import is_symmetric, mirror_function
from gradtape.lower.resident.interrupts import RAISE

if TYPE_CHECKING:
    from gradtape.lower.llvm.statements import FunctionEmitter


def emit_routine(emitter: FunctionEmitter, call: RoutineCall) -> None:
    """Append a call of a routine."""
    ROUTINES[call.function](emitter, call)


def _argsort(emitter: FunctionEmitter, call: RoutineCall) -> None:
    keys, out, temp = [emitter.pointer(buffer, position) for buffer, position in call.operands]
    dtype = call.operands[0][0].dtype
    helpers = emitter.module.helpers
    helpers.setdefault(f"less.{dtype.name}", less_function(dtype))
    helpers.setdefault(f"argsort.{dtype.name}", argsort_function(dtype))
    emitter.module.declarations["declare i64 @llvm.umin.i64(i64, i64)"] = None
    emitter.module.declarations["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
    emitter.line(f"call void @argsort.{dtype.name}(ptr {keys}, ptr {out}, ptr {temp}, i64 {call.numbers[0]})")


def _searchsorted(emitter: FunctionEmitter, call: RoutineCall) -> None:
    (a, a_at), (v, v_at), (out, out_at) = call.operands
    count, wanted, side = call.numbers
    helpers = emitter.module.helpers
    helpers.setdefault(f"less.{a.dtype.name}", less_function(a.dtype))
    helpers.setdefault(f"search.{side}.{a.dtype.name}", search_function(a.dtype, side))
    pointers = [emitter.pointer(buffer, at) for buffer, at in ((a, a_at), (v, v_at), (out, out_at))]
    arguments = f"ptr {pointers[0]}, i64 {count}, ptr {pointers[1]}, i64 {wanted}, ptr {pointers[2]}"
    emitter.line(f"call void @searchsorted.{side}.{a.dtype.name}({arguments})")


def _gemm(emitter: FunctionEmitter, call: RoutineCall) -> None:
    """BLAS takes every argument by its address."""
    if is_symmetric(call):
        _syrk(emitter, call)
        return
    single = call.operands[0][0].dtype.itemsize == 4
    real = "float" if single else "double"
    first, second, *sizes = call.numbers
    wide, high, deep, ld_first, ld_second, beta, ld_out = sizes
    one = _global(emitter, real, 1.0)
    a, b, c = [emitter.pointer(buffer, position) for buffer, position in call.operands]
    arguments = (
        _character(emitter, first),
        _character(emitter, second),
        _integer(emitter, wide),
        _integer(emitter, high),
        _integer(emitter, deep),
        one,
        a,
        _integer(emitter, ld_first),
        b,
        _integer(emitter, ld_second),
        _global(emitter, real, beta),
        c,
        _integer(emitter, ld_out),
    )
    _call_blas(emitter, "sgemm" if single else "dgemm", arguments)


def _syrk(emitter: FunctionEmitter, call: RoutineCall) -> None:
    """Compute the half above the diagonal, and copy it below."""
    dtype = call.operands[0][0].dtype
    single = dtype.itemsize == 4
    real = "float" if single else "double"
    flag, _, rows, _, deep, leading, _, beta, ld_out = call.numbers
    a = emitter.pointer(*call.operands[0])
    c = emitter.pointer(*call.operands[2])
    arguments = (
        _character(emitter, "U"),
        _character(emitter, flag),
        _integer(emitter, rows),
        _integer(emitter, deep),
        _global(emitter, real, 1.0),
        a,
        _integer(emitter, leading),
        _global(emitter, real, beta),
        c,
        _integer(emitter, ld_out),
    )
    _call_blas(emitter, "ssyrk" if single else "dsyrk", arguments)
    emitter.module.declarations["declare i64 @llvm.umin.i64(i64, i64)"] = None
    emitter.module.helpers.setdefault(f"mirror.{dtype.name}", mirror_function(dtype))
    emitter.line(f"call void @mirror.{dtype.name}(ptr {c}, i64 {rows}, i64 {ld_out})")


def _call_blas(emitter: FunctionEmitter, name: str, arguments: Sequence[str]) -> None:
    symbol = f"scipy.linalg.cython_blas.{name}"
    emitter.module.symbols[symbol] = None
    emitter.module.declarations[f'declare void @"{symbol}"({", ".join(["ptr"] * len(arguments))})'] = None
    emitter.line(f'call void @"{symbol}"({", ".join(f"ptr {argument}" for argument in arguments)})')


def _loop(emitter: FunctionEmitter, call: RoutineCall) -> None:
    """Run the kernel of a loop: its inputs, the number of turns, its outputs, its workspace."""
    symbol, inputs, turns = call.numbers
    module = emitter.module
    module.symbols[symbol] = module.symbols[RAISE] = None
    module.declarations[f'declare i32 @"{symbol}"(ptr, ptr, ptr)'] = None
    module.declarations[f"@turns.{turns} = internal constant i64 {turns}"] = None
    pointers = [emitter.pointer(buffer, position) for buffer, position in call.operands]
    name = emitter.fresh()[1:]
    tables = []
    for what, held in (("in", [*pointers[:inputs], f"@turns.{turns}"]), ("out", pointers[inputs:-1])):
        tables.append(f"%{name}.{what}")
        emitter.entry.append(f"  {tables[-1]} = alloca [{max(len(held), 1)} x ptr]")
        for place, pointer in enumerate(held):
            slot = emitter.bind(f"getelementptr inbounds ptr, ptr {tables[-1]}, i64 {place}")
            emitter.line(f"store ptr {pointer}, ptr {slot}")
    operands = ", ".join(f"ptr {pointer}" for pointer in (*tables, pointers[-1]))
    status = emitter.bind(f'call i32 @"{symbol}"({operands})')
    fine = emitter.bind(f"icmp eq i32 {status}, 0")
    emitter.line(f"br i1 {fine}, label %{name}.over, label %{name}.stopped")
    emitter.start_block(f"{name}.stopped")
    emitter.line(f"ret i32 {status}")
    emitter.start_block(f"{name}.over")


def _global(emitter: FunctionEmitter, type_: str, value: float) -> str:
    name = f"@{type_}.{int(value)}"
    emitter.module.declarations[f"{name} = internal constant {type_} {float(value)}"] = None
    return name


def _integer(emitter: FunctionEmitter, value: int) -> str:
    emitter.module.declarations[f"@int.{value} = internal constant i32 {value}"] = None
    return f"@int.{value}"


def _character(emitter: FunctionEmitter, value: str) -> str:
    emitter.module.declarations[f'@char.{value} = internal constant [2 x i8] c"{value}\\00"'] = None
    return f"@char.{value}"


ROUTINES: Final[dict[str, Callable[[FunctionEmitter, RoutineCall], None]]] = {
    "gemm": _gemm,
    "loop": _loop,
    "argsort": _argsort,
    "searchsorted": _searchsorted,
    **dict.fromkeys(MATRIX_ROUTINES, emit_matrix_routine),
}
"""By name, what calls a routine."""
