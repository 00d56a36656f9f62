"""Routines of linear algebra: calls of LLVM functions around those of LAPACK, one per dtype.

The functions are the files of ``routines``. LAPACK stores matrices by columns. Where it may compute with the transpose of what stands in
memory nothing is copied; where NumPy's result depends on the order of the rows (pivots, the signs of eigenvectors), LAPACK gets what
NumPy gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from gradtape.loops.ir import Dtype, RoutineCall
from gradtape.lower.llvm.function import FunctionEmitter
from gradtape.lower.llvm.instructions import memory_type
from gradtape.records import value_record

Places: TypeAlias = dict[str, str]


def _no_places(dtype: Dtype) -> Places:
    return {}


@value_record
class MatrixRoutine:
    """What there is to know of a routine.

    Attributes
    ----------
    work : float
        Its multiplications, as a part of the cube of its size, or of the square of it times the columns to solve for.
    spare : callable
        Returns how many elements it needs besides its operands and its result, for m by n matrices.
    extents : int
        How many extents it is told: 2 for matrices that need not be square, and where there are columns to solve for.
    is_rectangular : bool
        Whether matrices need not be square.
    uses : tuple of str
        Files of routines that it calls.
    places : callable
        Returns what its file has places for, given the dtype and the parameters; under ``file`` its file if that is not its name.
    """

    work: float
    spare: Callable[[int, int], int] = lambda m, n: 1
    extents: int = 1
    is_rectangular: bool = False
    uses: tuple[str, ...] = ()
    places: Callable[..., Places] = _no_places


def _triangular_solve(dtype: Dtype, lower: bool, transposed: bool, unit: bool) -> Places:
    # The lower triangle of what stands by rows is the upper one by columns.
    return {
        "form": f"{'lower' if lower else 'upper'}{'.transposed' * transposed}{'.unit' * unit}",
        "triangle": "U" if lower else "L",
        "transposed": "T" if transposed else "N",
        "unit": "U" if unit else "N",
        "singular": "or i1 false, false"
        if unit
        else f"call i1 @has_zero_on_diagonal.{dtype.name}(ptr %a, i64 %n)",
    }


MATRIX_ROUTINES: Final = {
    "cholesky": MatrixRoutine(0.3),
    "eigh": MatrixRoutine(
        9.0,
        lambda m, n: 3 * n * n + 11 * n + 4,
        uses=("transpose",),
        places=lambda dtype, lower: {"triangle": "L" if lower else "U"},
    ),
    "log_det": MatrixRoutine(0.01),
    "lu": MatrixRoutine(0.5, lambda m, n: max(n, 1), uses=("transpose",)),
    "lu_solve": MatrixRoutine(
        1.0,
        extents=2,
        uses=("has_zero_on_diagonal", "swap_rows"),
        places=lambda dtype, transposed: {"file": "lu_solve_transposed"} if transposed else {},
    ),
    "pseudoinverse": MatrixRoutine(0.01, extents=2, is_rectangular=True),
    "qr": MatrixRoutine(
        4.0, lambda m, n: m * n + 65 * n, extents=2, is_rectangular=True, uses=("transpose",)
    ),
    "svd": MatrixRoutine(
        20.0,
        lambda m, n: m * n + m * min(m, n) + 4 * min(m, n) ** 2 + 64 * (m + n) + 8 * min(m, n),
        extents=2,
        is_rectangular=True,
        uses=("transpose",),
    ),
    "triangular_solve": MatrixRoutine(
        0.5, extents=2, uses=("has_zero_on_diagonal",), places=_triangular_solve
    ),
}
"""By the name of the row."""


def multiplications_of(name: str, numbers: Sequence[object]) -> int:
    """Return about how many multiplications a routine takes that is told these numbers, the extents first."""
    n, *others = [number for number in numbers if type(number) is int]
    return int(n * n * next(iter(others), n) * MATRIX_ROUTINES[name].work)


def emit_matrix_routine(function: FunctionEmitter, call: RoutineCall) -> None:
    """Append the call of a routine, and take note of it if it fails: the interpreter will say why."""
    pointers = [f"ptr {function.place(place)}" for place in call.operands]
    dtype = call.operands[0][0].dtype
    routine = MATRIX_ROUTINES[call.function]
    single = dtype.itemsize == 4
    places: dict[str, Any] = {
        "dtype": dtype.name,
        "T": memory_type(dtype),
        "f": "f32" if single else "f64",
        "letter": "s" if single else "d",
        "itemsize": dtype.itemsize,
        "file": call.function,
        **routine.places(dtype, *call.numbers[routine.extents :]),
    }
    for file in routine.uses:
        function.module.add_routine(file, **places)
    symbol = function.module.add_routine(places["file"], **places)
    extents = [f"i64 {number}" for number in call.numbers[: routine.extents]]
    function.note_failure(function.let(f"call i1 @{symbol}({', '.join([*pointers, *extents])})"))
