"""Routines of linear algebra as LLVM functions around those of LAPACK, one per dtype.

LAPACK stores matrices by columns. Where it may compute with the transpose of what stands in memory nothing is copied; where NumPy's
result depends on the order of the rows (pivots, the signs of eigenvectors), LAPACK gets what NumPy gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from gradtape.loops.ir import Dtype, RoutineCall
from gradtape.lower.llvm.instructions import memory_type
from gradtape.lower.llvm.matrix_texts import (
    BY_ADDRESS,
    CHOLESKY,
    COPY,
    EIGH,
    EXCHANGE,
    FAILED,
    LOG_DET,
    LU,
    PIVOTS,
    QR,
    SOLVE_END,
    SOLVE_SIDE,
    SOLVE_START,
    SVD,
    SWAP,
    TURN,
    ZERO_ON_DIAGONAL,
)

if TYPE_CHECKING:
    from gradtape.lower.llvm.statements import FunctionEmitter

_BLAS: Final = "scipy.linalg.cython_blas."
_LAPACK: Final = "scipy.linalg.cython_lapack."


def room(name: str, m: int, n: int) -> int:
    """Return how many elements a routine needs besides its operands and its result, for m by n matrices."""
    if name == "svd":
        k = min(m, n)
        return m * n + m * k + 4 * k * k + 64 * (m + n) + 8 * k
    if name == "qr":
        return m * n + 65 * n
    if name == "lu":
        return max(n, 1)
    if name == "eigh":
        return 3 * n * n + 11 * n + 4
    return 1


def multiplications_of(name: str, numbers: Sequence[object]) -> int:
    """Return about how many multiplications a routine takes that is told these numbers, the extents first."""
    n, *others = [number for number in numbers if type(number) is int]
    return int(n * n * next(iter(others), n) * WEIGHTS[name])


WEIGHTS: Final = {
    "cholesky": 0.3,
    "eigh": 9.0,
    "log_det": 0.01,
    "lu": 0.5,
    "lu_solve": 1.0,
    "pseudoinverse": 0.01,
    "qr": 4.0,
    "svd": 20.0,
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
            "failed": FAILED,
            **{
                f"{name}_by_address": BY_ADDRESS.format(name=name)
                for name in ("m", "n", "k", "lwork", "liwork")
            },
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
        self.add("turn", TURN)

    def copies(self) -> None:
        self.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")


def _cholesky(text: _Text, params: Sequence[object]) -> str:
    text.copies()
    text.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    text.characters("U")
    text.routine(_LAPACK, "potrf", 5)
    return text.add("cholesky", CHOLESKY)


def _lu(text: _Text, params: Sequence[object]) -> str:
    text.turn()
    text.routine(_LAPACK, "getrf", 6)
    return text.add("lu", LU)


def _solving(text: _Text) -> None:
    text.copies()
    text.declare("@{real}.1 = internal constant {T} 1.0")
    text.characters("RULNT")
    text.routine(_BLAS, "trsm", 11)
    text.add("zero.on.diagonal", ZERO_ON_DIAGONAL)


def _side(triangle: str, trans: str, unit: str, text: _Text) -> str:
    return SOLVE_SIDE.format(**text.names, triangle=triangle, trans=trans, unit=unit)


def _triangular_solve(text: _Text, params: Sequence[object]) -> str:
    lower, transposed, unit = params
    _solving(text)
    text.characters("U")
    name = f"solve.{'lower' if lower else 'upper'}{'.turned' * bool(transposed)}{'.unit' * bool(unit)}"
    # The lower triangle of what stands by rows is the upper one by columns.
    body = _side("U" if lower else "L", "T" if transposed else "N", "U" if unit else "N", text)
    end = "  ret i1 false\n}}" if unit else SOLVE_END
    return _written(text, name, body, end)


def _lu_solve(text: _Text, params: Sequence[object]) -> str:
    (transposed,) = params
    _solving(text)
    text.add("exchange", EXCHANGE)
    swap = SWAP.format(**text.names, backwards="true" if transposed else "false")
    pivots = PIVOTS.format(**text.names)
    if transposed:
        body = pivots + _side("U", "N", "N", text) + _side("L", "N", "U", text) + swap
    else:
        body = pivots + swap + _side("L", "T", "U", text) + _side("U", "T", "N", text)
    return _written(text, f"lu.solve{'.turned' * bool(transposed)}", body, SOLVE_END)


def _written(text: _Text, name: str, body: str, end: str) -> str:
    symbol = f"{name}.{text.names['code']}"
    function = SOLVE_START.format(**text.names, name=name) + body + end.format(**text.names)
    text.module.helpers.setdefault(symbol, function)
    return symbol


def _log_det(text: _Text, params: Sequence[object]) -> str:
    text.declare("declare {T} @llvm.fabs.{f}({T})", "declare {T} @llvm.log.{f}({T})")
    return text.add("log_det", LOG_DET)


def _eigh(text: _Text, params: Sequence[object]) -> str:
    (lower,) = params
    triangle = "L" if lower else "U"
    text.turn()
    text.characters(f"V{triangle}")
    text.routine(_LAPACK, "syevd", 11)
    return text.add(f"eigh.{triangle}", EIGH, triangle=triangle)


def _pseudoinverse(text: _Text, params: Sequence[object]) -> str:
    text.copies()
    return text.add("copy", COPY)


def _svd(text: _Text, params: Sequence[object]) -> str:
    text.turn()
    text.characters("S")
    text.routine(_LAPACK, "gesdd", 14)
    return text.add("svd", SVD)


def _qr(text: _Text, params: Sequence[object]) -> str:
    text.turn()
    text.routine(_LAPACK, "geqrf", 8)
    text.routine(_LAPACK, "orgqr", 9)
    return text.add("qr", QR)


_WRITERS: Final[dict[str, Callable[[_Text, Sequence[object]], str]]] = {
    "cholesky": _cholesky,
    "eigh": _eigh,
    "log_det": _log_det,
    "lu": _lu,
    "lu_solve": _lu_solve,
    "pseudoinverse": _pseudoinverse,
    "qr": _qr,
    "svd": _svd,
    "triangular_solve": _triangular_solve,
}

MATRIX_ROUTINES: Final = frozenset(_WRITERS)

RECTANGULAR: Final = frozenset({"pseudoinverse", "qr", "svd"})
"""Routines of matrices that need not be square, which are told both extents."""

_TWO_SIZES: Final = RECTANGULAR | {"lu_solve", "triangular_solve"}
"""These, and those that are told how many columns to solve for."""


def emit_matrix_routine(emitter: FunctionEmitter, call: RoutineCall) -> None:
    """Append the call of a routine, and take note of it if it fails: the interpreter will say why."""
    pointers = [f"ptr {emitter.pointer(buffer, position)}" for buffer, position in call.operands]
    sizes = 2 if call.function in _TWO_SIZES else 1
    text = _Text(emitter, call.operands[0][0].dtype)
    symbol = _WRITERS[call.function](text, call.numbers[sizes:])
    arguments = ", ".join([*pointers, *[f"i64 {number}" for number in call.numbers[:sizes]]])
    emitter.note_failure(emitter.bind(f"call i1 @{symbol}({arguments})"))
