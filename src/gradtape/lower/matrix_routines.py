"""Routines of linear algebra as LLVM functions around those of LAPACK, one per dtype.

LAPACK stores matrices by columns. Where it may compute with the transpose of what stands in memory nothing is copied; where NumPy's
result depends on the order of the rows (pivots, the signs of eigenvectors), LAPACK gets what NumPy gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ..loops.ir import Call, Dtype
from .instructions import memory_type

if TYPE_CHECKING:
    from .emit import FunctionEmitter

_TURN: Final = """define internal void @turn.{code}(
  ptr noalias %from, ptr noalias %to, i64 %rows, i64 %columns
) noinline nounwind {{
entry:
  br label %strip
strip:
  %low = phi i64 [ 0, %entry ], [ %far, %strip.done ]
  %far = add i64 %low, 8
  %high = call i64 @llvm.umin.i64(i64 %far, i64 %columns)
  br label %row
row:
  %i = phi i64 [ 0, %strip ], [ %i.next, %row.done ]
  %start = mul i64 %i, %columns
  br label %element
element:
  %j = phi i64 [ %low, %row ], [ %j.next, %element ]
  %read = add i64 %start, %j
  %read.at = getelementptr inbounds {T}, ptr %from, i64 %read
  %value = load {T}, ptr %read.at
  %across = mul i64 %j, %rows
  %write = add i64 %across, %i
  %write.at = getelementptr inbounds {T}, ptr %to, i64 %write
  store {T} %value, ptr %write.at
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %high
  br i1 %j.more, label %element, label %row.done
row.done:
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %rows
  br i1 %i.more, label %row, label %strip.done
strip.done:
  %more = icmp ult i64 %far, %columns
  br i1 %more, label %strip, label %done
done:
  ret void
}}"""
"""Neither extent is zero."""

_CHOLESKY: Final = """define internal i1 @cholesky.{code}(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {{
entry:
  %n.at = alloca i32
  %info.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  %size = mul i64 %n, %n
  %bytes = mul i64 %size, {itemsize}
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %a, i64 %bytes, i1 false)
  call void @"{lapack}{letter}potrf"(ptr @char.U, ptr %n.at, ptr %out, ptr %n.at, ptr %info.at)
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row ]
  %i.next = add i64 %i, 1
  %start = mul i64 %i, %n
  %upper = add i64 %start, %i.next
  %upper.at = getelementptr inbounds {T}, ptr %out, i64 %upper
  %rest = sub i64 %n, %i.next
  %rest.bytes = mul i64 %rest, {itemsize}
  call void @llvm.memset.p0.i64(ptr %upper.at, i8 0, i64 %rest.bytes, i1 false)
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %row, label %done
done:
  %info = load i32, ptr %info.at
  %bad = icmp ne i32 %info, 0
  ret i1 %bad
}}"""

_LU: Final = """define internal i1 @lu.{code}(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {{
entry:
  %n.at = alloca i32
  %info.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  call void @turn.{code}(ptr %a, ptr %out, i64 %n, i64 %n)
  call void @"{lapack}{letter}getrf"(
    ptr %n.at, ptr %n.at, ptr %out, ptr %n.at, ptr %spare, ptr %info.at)
  %size = mul i64 %n, %n
  br label %exchange
exchange:
  %i = phi i64 [ 0, %entry ], [ %i.next, %exchange ]
  %pivot.at = getelementptr inbounds i32, ptr %spare, i64 %i
  %pivot = load i32, ptr %pivot.at
  %number = sitofp i32 %pivot to {T}
  %place = add i64 %size, %i
  %place.at = getelementptr inbounds {T}, ptr %out, i64 %place
  store {T} %number, ptr %place.at
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %exchange, label %done
done:
  ret i1 false
}}"""

_ZERO_ON_DIAGONAL: Final = """define internal i1 @zero.on.diagonal.{code}(ptr %a, i64 %n) noinline nounwind {{
entry:
  %step = add i64 %n, 1
  br label %element
element:
  %i = phi i64 [ 0, %entry ], [ %i.next, %element ]
  %found = phi i1 [ false, %entry ], [ %either, %element ]
  %place = mul i64 %i, %step
  %place.at = getelementptr inbounds {T}, ptr %a, i64 %place
  %value = load {T}, ptr %place.at
  %zero = fcmp oeq {T} %value, 0.0
  %either = or i1 %found, %zero
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %element, label %done
done:
  ret i1 %either
}}"""

_EXCHANGE: Final = """define internal void @exchange.{code}(
  ptr noalias %pivots, ptr noalias %x, i64 %n, i64 %k, i1 %backwards
) noinline nounwind {{
entry:
  %last = sub i64 %n, 1
  br label %row
row:
  %step = phi i64 [ 0, %entry ], [ %step.next, %row.done ]
  %mirrored = sub i64 %last, %step
  %i = select i1 %backwards, i64 %mirrored, i64 %step
  %pivot.at = getelementptr inbounds {T}, ptr %pivots, i64 %i
  %pivot = load {T}, ptr %pivot.at
  %counted = fptosi {T} %pivot to i64
  %other = sub i64 %counted, 1
  %own.start = mul i64 %i, %k
  %other.start = mul i64 %other, %k
  %stays = icmp eq i64 %other, %i
  br i1 %stays, label %row.done, label %element
element:
  %j = phi i64 [ 0, %row ], [ %j.next, %element ]
  %own = add i64 %own.start, %j
  %own.at = getelementptr inbounds {T}, ptr %x, i64 %own
  %far = add i64 %other.start, %j
  %far.at = getelementptr inbounds {T}, ptr %x, i64 %far
  %first = load {T}, ptr %own.at
  %second = load {T}, ptr %far.at
  store {T} %second, ptr %own.at
  store {T} %first, ptr %far.at
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %k
  br i1 %j.more, label %element, label %row.done
row.done:
  %step.next = add i64 %step, 1
  %more = icmp ult i64 %step.next, %n
  br i1 %more, label %row, label %done
done:
  ret void
}}"""

_SOLVE_START: Final = """define internal i1 @{name}.{code}(
  ptr noalias %a, ptr noalias %b, ptr noalias %out, ptr noalias %spare, i64 %n, i64 %k
) noinline nounwind {{
entry:
  %n.at = alloca i32
  %k.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  %k.short = trunc i64 %k to i32
  store i32 %k.short, ptr %k.at
  %size = mul i64 %n, %k
  %bytes = mul i64 %size, {itemsize}
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %b, i64 %bytes, i1 false)
"""

_SOLVE_SIDE: Final = """  call void @"{blas}{letter}trsm"(
    ptr @char.R, ptr @char.{triangle}, ptr @char.{trans}, ptr @char.{unit},
    ptr %k.at, ptr %n.at, ptr @{real}.1, ptr %a, ptr %n.at, ptr %out, ptr %k.at)
"""
"""What stands by rows is x.T by columns: t x = b is x.T t.T = b.T."""

_PIVOTS: Final = """  %square = mul i64 %n, %n
  %pivots = getelementptr inbounds {T}, ptr %a, i64 %square
"""
_SWAP: Final = "  call void @exchange.{code}(ptr %pivots, ptr %out, i64 %n, i64 %k, i1 {backwards})\n"
_SOLVE_END: Final = """  %bad = call i1 @zero.on.diagonal.{code}(ptr %a, i64 %n)
  ret i1 %bad
}}"""

_LOG_DET: Final = """define internal i1 @log_det.{code}(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {{
entry:
  %step = add i64 %n, 1
  br label %element
element:
  %i = phi i64 [ 0, %entry ], [ %i.next, %element ]
  %sum = phi {T} [ 0.0, %entry ], [ %sum.next, %element ]
  %place = mul i64 %i, %step
  %place.at = getelementptr inbounds {T}, ptr %a, i64 %place
  %value = load {T}, ptr %place.at
  %size = call {T} @llvm.fabs.{f}({T} %value)
  %term = call {T} @llvm.log.{f}({T} %size)
  %sum.next = fadd {T} %sum, %term
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %element, label %done
done:
  store {T} %sum.next, ptr %out
  ret i1 false
}}"""

_EIGH: Final = """define internal i1 @eigh.{triangle}.{code}(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {{
entry:
  %n.at = alloca i32
  %lwork.at = alloca i32
  %liwork.at = alloca i32
  %info.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  call void @turn.{code}(ptr %a, ptr %spare, i64 %n, i64 %n)
  %square = mul i64 %n, %n
  %twice = shl i64 %square, 1
  %six = mul i64 %n, 6
  %more.work = add i64 %twice, %six
  %lwork = add i64 %more.work, 1
  %lwork.short = trunc i64 %lwork to i32
  store i32 %lwork.short, ptr %lwork.at
  %five = mul i64 %n, 5
  %liwork = add i64 %five, 3
  %liwork.short = trunc i64 %liwork to i32
  store i32 %liwork.short, ptr %liwork.at
  %work = getelementptr inbounds {T}, ptr %spare, i64 %square
  %iwork = getelementptr inbounds {T}, ptr %work, i64 %lwork
  call void @"{lapack}{letter}syevd"(
    ptr @char.V, ptr @char.{triangle}, ptr %n.at, ptr %spare, ptr %n.at, ptr %out,
    ptr %work, ptr %lwork.at, ptr %iwork, ptr %liwork.at, ptr %info.at)
  %vectors = getelementptr inbounds {T}, ptr %out, i64 %n
  call void @turn.{code}(ptr %spare, ptr %vectors, i64 %n, i64 %n)
  %info = load i32, ptr %info.at
  %bad = icmp ne i32 %info, 0
  ret i1 %bad
}}"""

_BLAS: Final = "scipy.linalg.cython_blas."
_LAPACK: Final = "scipy.linalg.cython_lapack."


def room(name: str, n: int) -> int:
    """Return how many elements a routine needs besides its operands and its result, for matrices of this size."""
    if name == "lu":
        return max(n, 1)
    if name == "eigh":
        return 3 * n * n + 11 * n + 4
    return 1


def multiplications_of(call: Call) -> int:
    """Return about how many products a routine takes."""
    n, *others = call.numbers
    columns = next((number for number in others if type(number) is int), n)
    return int(n * n * columns * WEIGHTS[call.function])


WEIGHTS: Final = {
    "cholesky": 0.3,
    "eigh": 9.0,
    "log_det": 0.01,
    "lu": 0.5,
    "lu_solve": 1.0,
    "triangular_solve": 0.5,
}
"""Of the cube of its size (of its square times the columns to solve for), by routine."""


class _Text:
    """Writes the functions for one dtype into a module."""

    def __init__(self, emitter: FunctionEmitter, dtype: Dtype) -> None:
        single = dtype.itemsize == 4
        self.module = emitter.module
        self.names = {
            "code": dtype.name,
            "T": memory_type(dtype),
            "f": "f32" if single else "f64",
            "real": "float" if single else "double",
            "letter": "s" if single else "d",
            "itemsize": str(dtype.itemsize),
            "blas": _BLAS,
            "lapack": _LAPACK,
        }

    def add(self, name: str, template: str, **more: str) -> str:
        """Add a function once, and return its name."""
        self.module.helpers.setdefault(f"{name}.{self.names['code']}", template.format(**self.names, **more))
        return f"{name}.{self.names['code']}"

    def declare(self, *lines: str) -> None:
        for line in lines:
            self.module.declarations[line.format(**self.names)] = None

    def routine(self, module: str, name: str, arguments: int) -> None:
        """Declare a routine of BLAS or LAPACK, which takes every argument by its address."""
        symbol = f"{module}{self.names['letter']}{name}"
        self.module.symbols[symbol] = None
        self.declare(f'declare void @"{symbol}"({", ".join(["ptr"] * arguments)})')

    def characters(self, letters: str) -> None:
        for letter in letters:
            self.declare(f'@char.{letter} = internal constant [2 x i8] c"{letter}\\00"')

    def turn(self) -> None:
        self.declare("declare i64 @llvm.umin.i64(i64, i64)")
        self.add("turn", _TURN)

    def copies(self) -> None:
        self.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")


def _cholesky(text: _Text, params: Sequence[object]) -> str:
    text.copies()
    text.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    text.characters("U")
    text.routine(_LAPACK, "potrf", 5)
    return text.add("cholesky", _CHOLESKY)


def _lu(text: _Text, params: Sequence[object]) -> str:
    text.turn()
    text.routine(_LAPACK, "getrf", 6)
    return text.add("lu", _LU)


def _solving(text: _Text) -> None:
    text.copies()
    text.declare("@{real}.1 = internal constant {T} 1.0")
    text.characters("RULNT")
    text.routine(_BLAS, "trsm", 11)
    text.add("zero.on.diagonal", _ZERO_ON_DIAGONAL)


def _side(triangle: str, trans: str, unit: str, text: _Text) -> str:
    return _SOLVE_SIDE.format(**text.names, triangle=triangle, trans=trans, unit=unit)


def _triangular_solve(text: _Text, params: Sequence[object]) -> str:
    lower, transposed, unit = params
    _solving(text)
    text.characters("U")
    name = f"solve.{'lower' if lower else 'upper'}{'.turned' * bool(transposed)}{'.unit' * bool(unit)}"
    # The lower triangle of what stands by rows is the upper one by columns.
    body = _side("U" if lower else "L", "T" if transposed else "N", "U" if unit else "N", text)
    end = "  ret i1 false\n}}" if unit else _SOLVE_END
    return _written(text, name, body, end)


def _lu_solve(text: _Text, params: Sequence[object]) -> str:
    (transposed,) = params
    _solving(text)
    text.add("exchange", _EXCHANGE)
    swap = _SWAP.format(**text.names, backwards="true" if transposed else "false")
    pivots = _PIVOTS.format(**text.names)
    if transposed:
        body = pivots + _side("U", "N", "N", text) + _side("L", "N", "U", text) + swap
    else:
        body = pivots + swap + _side("L", "T", "U", text) + _side("U", "T", "N", text)
    return _written(text, f"lu.solve{'.turned' * bool(transposed)}", body, _SOLVE_END)


def _written(text: _Text, name: str, body: str, end: str) -> str:
    symbol = f"{name}.{text.names['code']}"
    function = _SOLVE_START.format(**text.names, name=name) + body + end.format(**text.names)
    text.module.helpers.setdefault(symbol, function)
    return symbol


def _log_det(text: _Text, params: Sequence[object]) -> str:
    text.declare("declare {T} @llvm.fabs.{f}({T})", "declare {T} @llvm.log.{f}({T})")
    return text.add("log_det", _LOG_DET)


def _eigh(text: _Text, params: Sequence[object]) -> str:
    (lower,) = params
    triangle = "L" if lower else "U"
    text.turn()
    text.characters(f"V{triangle}")
    text.routine(_LAPACK, "syevd", 11)
    return text.add(f"eigh.{triangle}", _EIGH, triangle=triangle)


_WRITERS: Final[dict[str, Callable[[_Text, Sequence[object]], str]]] = {
    "cholesky": _cholesky,
    "eigh": _eigh,
    "log_det": _log_det,
    "lu": _lu,
    "lu_solve": _lu_solve,
    "triangular_solve": _triangular_solve,
}

MATRIX_ROUTINES: Final = frozenset(_WRITERS)

_COLUMNS: Final = frozenset({"lu_solve", "triangular_solve"})
"""Routines that are told how many columns to solve for."""


def emit_matrix_routine(emitter: FunctionEmitter, call: Call) -> None:
    """Append the call of a routine, and take note of it if it fails: the interpreter will say why."""
    pointers = [f"ptr {emitter.pointer(buffer, position)}" for buffer, position in call.operands]
    sizes = 2 if call.function in _COLUMNS else 1
    text = _Text(emitter, call.operands[0][0].dtype)
    symbol = _WRITERS[call.function](text, call.numbers[sizes:])
    arguments = ", ".join([*pointers, *[f"i64 {number}" for number in call.numbers[:sizes]]])
    emitter.note_failure(emitter.bind(f"call i1 @{symbol}({arguments})"))
