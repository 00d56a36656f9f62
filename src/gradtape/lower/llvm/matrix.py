"""Routines of linear algebra: calls of LLVM functions around those of LAPACK, one per dtype.

The functions are the files of ``routines``. LAPACK stores matrices by columns. Where it may compute with the transpose of what stands in
memory nothing is copied; where NumPy's result depends on the order of the rows (pivots, the signs of eigenvectors), LAPACK gets what
NumPy gives it.
"""

from __future__ import annotations

from typing import Any

from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.matrix import Matrix, Routine
from gradtape.loops.ir import RoutineCall
from gradtape.lower.llvm.function import FunctionEmitter
from gradtape.lower.llvm.instructions import memory_type


def routine_of(call: RoutineCall) -> Routine:
    """Return the routine of the row that a call is made for."""
    row = ROWS[call.function]
    assert isinstance(row, Matrix)
    return row.routine


def emit_matrix_routine(function: FunctionEmitter, call: RoutineCall) -> None:
    """Append the call of a routine, and take note of it if it fails: the interpreter will say why."""
    pointers = [f"ptr {function.place(place)}" for place in call.operands]
    dtype = call.operands[0][0].dtype
    routine = routine_of(call)
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
