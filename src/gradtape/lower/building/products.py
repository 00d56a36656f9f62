"""What calls of matrix products touch, for those who move them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gradtape.loops.affine import Position
from gradtape.loops.ir import Buffer, Call, Statement
from gradtape.lower.llvm.matrix import MATRIX_ROUTINES, multiplications_of
from gradtape.passes.layout.matmul_tiling import PRODUCT

_COMPARISONS: Final = 40
"""Products in the time of what it takes to sort or to look up an element."""


def multiplications(call: Call) -> int:
    """Return the size of a product, and about that of another routine.

    Examples
    --------
    >>> multiplications(Call("gemm", (), ("N", "N", 2, 3, 4, 2, 4, 0.0, 2)))
    24
    """
    if call.function in MATRIX_ROUTINES:
        return multiplications_of(call)
    if call.function != "gemm":
        return _COMPARISONS * call.operands[0][0].size
    wide, high, deep = call.numbers[2:5]
    return int(wide * high * deep)


def is_small(statement: Statement) -> bool:
    """Whether a statement is a product that BLAS computes in the thread that calls it."""
    return (
        isinstance(statement, Call) and statement.function == "gemm" and multiplications(statement) <= PRODUCT
    )


class Products:
    """The buffers that the products among statements touch.

    Attributes
    ----------
    places : dict of Buffer to list of Position
        The first and the last element of each matrix.
    written : set of Buffer
        Of results.
    sums : set of Buffer
        Of results that products are only added to.
    """

    def __init__(self, inside: Iterable[Statement]) -> None:
        self.places: dict[Buffer, list[Position]] = {}
        self.written: set[Buffer] = set()
        self.sums: set[Buffer] = set()
        read: set[Buffer] = set()
        replaced: set[Buffer] = set()
        for call in inside:
            if isinstance(call, Call):
                *operands, (result, _) = call.operands
                for (buffer, start), length in zip(call.operands, _lengths(call.numbers), strict=True):
                    self.places.setdefault(buffer, []).extend((start, start + (length - 1)))
                read.update(buffer for buffer, _ in operands)
                self.written.add(result)
                if not call.numbers[7]:
                    replaced.add(result)
        self.sums = self.written - replaced - read


def _lengths(numbers: Sequence[object]) -> tuple[int, int, int]:
    """Return how many elements of memory each matrix spans; BLAS stores them by columns."""
    first, second, wide, high, deep, ld_first, ld_second, _, ld_out = numbers
    a = _length(wide, deep, ld_first) if first == "N" else _length(deep, wide, ld_first)
    b = _length(deep, high, ld_second) if second == "N" else _length(high, deep, ld_second)
    return a, b, _length(wide, high, ld_out)


def _length(rows: object, columns: object, leading: object) -> int:
    assert isinstance(rows, int) and isinstance(columns, int) and isinstance(leading, int)
    return (columns - 1) * leading + rows
