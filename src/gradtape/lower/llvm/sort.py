"""Sorting and searching as LLVM functions, one per dtype: a stable merge sort of positions, and bisection."""

from __future__ import annotations

from typing import Final

from gradtape.loops.ir import Dtype
from gradtape.lower.llvm.instructions import memory_type

_LESS: Final = """define internal i1 @less.{code}({T} %a, {T} %b) alwaysinline nounwind {{
  {less}
  ret i1 %result
}}"""

_FLOAT_LESS: Final = """%smaller = fcmp olt {T} %a, %b
  %number = fcmp ord {T} %a, %a
  %nan = fcmp uno {T} %b, %b
  %last = and i1 %number, %nan
  %result = or i1 %smaller, %last"""

_ARGSORT: Final = """define internal void @argsort.{code}(
  ptr noalias %keys, ptr noalias %out, ptr noalias %temp, i64 %n
) noinline nounwind {{
entry:
  br label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %i.next, %fill ]
  %out.i = getelementptr inbounds i64, ptr %out, i64 %i
  store i64 %i, ptr %out.i
  %i.next = add i64 %i, 1
  %filled = icmp uge i64 %i.next, %n
  br i1 %filled, label %widths, label %fill
widths:
  %width = phi i64 [ 1, %fill ], [ %width.next, %pass.done ]
  %from = phi ptr [ %out, %fill ], [ %to, %pass.done ]
  %to = phi ptr [ %temp, %fill ], [ %from, %pass.done ]
  %sorted = icmp uge i64 %width, %n
  br i1 %sorted, label %finish, label %runs
runs:
  %low = phi i64 [ 0, %widths ], [ %high, %run.done ]
  %middle.far = add i64 %low, %width
  %middle = call i64 @llvm.umin.i64(i64 %middle.far, i64 %n)
  %high.far = add i64 %middle, %width
  %high = call i64 @llvm.umin.i64(i64 %high.far, i64 %n)
  br label %merge
merge:
  %left = phi i64 [ %low, %runs ], [ %left.next, %put ]
  %right = phi i64 [ %middle, %runs ], [ %right.next, %put ]
  %place = phi i64 [ %low, %runs ], [ %place.next, %put ]
  %full = icmp uge i64 %place, %high
  br i1 %full, label %run.done, label %choose
choose:
  %has.left = icmp ult i64 %left, %middle
  %has.right = icmp ult i64 %right, %high
  %both = and i1 %has.left, %has.right
  %left.safe = select i1 %has.left, i64 %left, i64 %low
  %right.safe = select i1 %has.right, i64 %right, i64 %low
  %left.at = getelementptr inbounds i64, ptr %from, i64 %left.safe
  %right.at = getelementptr inbounds i64, ptr %from, i64 %right.safe
  %left.index = load i64, ptr %left.at
  %right.index = load i64, ptr %right.at
  %left.key.at = getelementptr inbounds {T}, ptr %keys, i64 %left.index
  %right.key.at = getelementptr inbounds {T}, ptr %keys, i64 %right.index
  %left.key = load {T}, ptr %left.key.at
  %right.key = load {T}, ptr %right.key.at
  %smaller = call i1 @less.{code}({T} %right.key, {T} %left.key)
  %only.right = xor i1 %has.left, true
  %preferred = and i1 %both, %smaller
  %take.right = or i1 %preferred, %only.right
  br label %put
put:
  %index = select i1 %take.right, i64 %right.index, i64 %left.index
  %put.at = getelementptr inbounds i64, ptr %to, i64 %place
  store i64 %index, ptr %put.at
  %step.right = zext i1 %take.right to i64
  %step.left = sub i64 1, %step.right
  %left.next = add i64 %left, %step.left
  %right.next = add i64 %right, %step.right
  %place.next = add i64 %place, 1
  br label %merge
run.done:
  %all = icmp uge i64 %high, %n
  br i1 %all, label %pass.done, label %runs
pass.done:
  %width.next = shl i64 %width, 1
  br label %widths
finish:
  %elsewhere = icmp ne ptr %from, %out
  br i1 %elsewhere, label %copy, label %done
copy:
  %bytes = shl i64 %n, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %temp, i64 %bytes, i1 false)
  br label %done
done:
  ret void
}}"""

_SEARCH: Final = """define internal void @searchsorted.{side}.{code}(
  ptr %a, i64 %n, ptr %v, i64 %m, ptr %out
) noinline nounwind {{
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %found ]
  %v.at = getelementptr inbounds {T}, ptr %v, i64 %k
  %x = load {T}, ptr %v.at
  br label %halve
halve:
  %low = phi i64 [ 0, %next ], [ %low.next, %step ]
  %high = phi i64 [ %n, %next ], [ %high.next, %step ]
  %more = icmp ult i64 %low, %high
  br i1 %more, label %step, label %found
step:
  %sum = add i64 %low, %high
  %middle = lshr i64 %sum, 1
  %a.at = getelementptr inbounds {T}, ptr %a, i64 %middle
  %y = load {T}, ptr %a.at
  {right_of}
  %above = add i64 %middle, 1
  %low.next = select i1 %right, i64 %above, i64 %low
  %high.next = select i1 %right, i64 %high, i64 %middle
  br label %halve
found:
  %out.at = getelementptr inbounds i64, ptr %out, i64 %k
  store i64 %low, ptr %out.at
  %k.next = add i64 %k, 1
  %finished = icmp uge i64 %k.next, %m
  br i1 %finished, label %done, label %next
done:
  ret void
}}"""

_RIGHT_OF: Final = {
    "left": "%right = call i1 @less.{code}({T} %y, {T} %x)",
    "right": "%beyond = call i1 @less.{code}({T} %x, {T} %y)\n  %right = xor i1 %beyond, true",
}


def less_function(dtype: Dtype) -> str:
    """Return the function that orders two keys: NaN comes last."""
    type_ = memory_type(dtype)
    if dtype.kind == "f":
        less = _FLOAT_LESS.format(T=type_)
    else:
        less = f"%result = icmp {'slt' if dtype.kind == 'i' else 'ult'} {type_} %a, %b"
    return _LESS.format(code=dtype.name, T=type_, less=less)


def argsort_function(dtype: Dtype) -> str:
    """Return the function that sorts positions by their keys."""
    return _ARGSORT.format(code=dtype.name, T=memory_type(dtype))


def search_function(dtype: Dtype, side: str) -> str:
    """Return the function that finds where elements belong among sorted ones."""
    type_ = memory_type(dtype)
    right_of = _RIGHT_OF[side].format(code=dtype.name, T=type_)
    return _SEARCH.format(code=dtype.name, T=type_, side=side, right_of=right_of)
