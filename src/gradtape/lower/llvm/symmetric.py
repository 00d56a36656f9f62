"""A matrix times its own transpose: BLAS computes one half of it, and the other is copied."""

from __future__ import annotations

from typing import Final

from gradtape.loops.ir import Dtype, RoutineCall
from gradtape.lower.llvm.instructions import memory_type

LEAST: Final = 64
"""Rows of the result from which half of the product pays. With products of 1000 terms, syrk took of gemm's time 2.1 at 16 rows, 0.9 at 32,
0.75 at 64, 0.65 at 100, and 0.58 at 256."""

WORK: Final = 2**21
"""Products from which it pays: for 100 rows and terms, half of that, the two take the same time."""

_MIRROR: Final = """define internal void @mirror.{code}(ptr %c, i64 %n, i64 %leading) noinline nounwind {{
entry:
  br label %rows
rows:
  %j.low = phi i64 [ 0, %entry ], [ %j.far, %rows.done ]
  %j.far = add i64 %j.low, 16
  %j.high = call i64 @llvm.umin.i64(i64 %j.far, i64 %n)
  br label %columns
columns:
  %i.low = phi i64 [ 0, %rows ], [ %i.far, %columns.done ]
  %i.far = add i64 %i.low, 16
  br label %row
row:
  %j = phi i64 [ %j.low, %columns ], [ %j.next, %row.done ]
  %i.high = call i64 @llvm.umin.i64(i64 %i.far, i64 %j)
  %start = mul i64 %j, %leading
  %some = icmp ult i64 %i.low, %i.high
  br i1 %some, label %element, label %row.done
element:
  %i = phi i64 [ %i.low, %row ], [ %i.next, %element ]
  %known = add i64 %start, %i
  %known.at = getelementptr inbounds {T}, ptr %c, i64 %known
  %value = load {T}, ptr %known.at
  %across = mul i64 %i, %leading
  %other = add i64 %across, %j
  %other.at = getelementptr inbounds {T}, ptr %c, i64 %other
  store {T} %value, ptr %other.at
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %i.high
  br i1 %i.more, label %element, label %row.done
row.done:
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %j.high
  br i1 %j.more, label %row, label %columns.done
columns.done:
  %columns.more = icmp ult i64 %i.far, %j.high
  br i1 %columns.more, label %columns, label %rows.done
rows.done:
  %rows.more = icmp ult i64 %j.far, %n
  br i1 %rows.more, label %rows, label %done
done:
  ret void
}}"""


def is_symmetric(call: RoutineCall) -> bool:
    """Return whether a product is that of a matrix and its transpose, and large enough to be computed by halves."""
    first, second, wide, high, deep, ld_first, ld_second, beta, _ = call.numbers
    return (
        call.operands[0] == call.operands[1]
        and ld_first == ld_second
        and first != second
        and wide == high >= LEAST
        and wide * high * deep >= WORK
        and beta == 0.0
    )


def mirror_function(dtype: Dtype) -> str:
    """Return the function that copies the half above the diagonal, of a matrix that is stored by columns, below it."""
    return _MIRROR.format(code=dtype.name, T=memory_type(dtype))
