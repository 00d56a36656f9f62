"""The LLVM functions of `matrix_routines`, with places for dtypes and for the names of routines."""

from __future__ import annotations

from typing import Final

BY_ADDRESS: Final = """  %{name}.at = alloca i32
  %{name}.short = trunc i64 %{name} to i32
  store i32 %{name}.short, ptr %{name}.at"""
"""LAPACK takes every argument by its address."""

FAILED: Final = """  %info = load i32, ptr %info.at
  %bad = icmp ne i32 %info, 0
  ret i1 %bad"""

TURN: Final = """define internal void @turn.{code}(
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

CHOLESKY: Final = """define internal i1 @cholesky.{code}(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {{
entry:
  %info.at = alloca i32
{n_by_address}
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
{failed}
}}"""

LU: Final = """define internal i1 @lu.{code}(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {{
entry:
  %info.at = alloca i32
{n_by_address}
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

ZERO_ON_DIAGONAL: Final = """define internal i1 @zero.on.diagonal.{code}(ptr %a, i64 %n) noinline nounwind {{
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

EXCHANGE: Final = """define internal void @exchange.{code}(
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

SOLVE_START: Final = """define internal i1 @{name}.{code}(
  ptr noalias %a, ptr noalias %b, ptr noalias %out, ptr noalias %spare, i64 %n, i64 %k
) noinline nounwind {{
entry:
{n_by_address}
{k_by_address}
  %size = mul i64 %n, %k
  %bytes = mul i64 %size, {itemsize}
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %b, i64 %bytes, i1 false)
"""

SOLVE_SIDE: Final = """  call void @"{blas}{letter}trsm"(
    ptr @char.R, ptr @char.{triangle}, ptr @char.{trans}, ptr @char.{unit},
    ptr %k.at, ptr %n.at, ptr @{real}.1, ptr %a, ptr %n.at, ptr %out, ptr %k.at)
"""
"""What stands by rows is x.T by columns: t x = b is x.T t.T = b.T."""

PIVOTS: Final = """  %square = mul i64 %n, %n
  %pivots = getelementptr inbounds {T}, ptr %a, i64 %square
"""
SWAP: Final = "  call void @exchange.{code}(ptr %pivots, ptr %out, i64 %n, i64 %k, i1 {backwards})\n"
SOLVE_END: Final = """  %bad = call i1 @zero.on.diagonal.{code}(ptr %a, i64 %n)
  ret i1 %bad
}}"""

LOG_DET: Final = """define internal i1 @log_det.{code}(
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

EIGH: Final = """define internal i1 @eigh.{triangle}.{code}(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {{
entry:
  %info.at = alloca i32
{n_by_address}
  call void @turn.{code}(ptr %a, ptr %spare, i64 %n, i64 %n)
  %square = mul i64 %n, %n
  %twice = shl i64 %square, 1
  %six = mul i64 %n, 6
  %more.work = add i64 %twice, %six
  %lwork = add i64 %more.work, 1
{lwork_by_address}
  %five = mul i64 %n, 5
  %liwork = add i64 %five, 3
{liwork_by_address}
  %work = getelementptr inbounds {T}, ptr %spare, i64 %square
  %iwork = getelementptr inbounds {T}, ptr %work, i64 %lwork
  call void @"{lapack}{letter}syevd"(
    ptr @char.V, ptr @char.{triangle}, ptr %n.at, ptr %spare, ptr %n.at, ptr %out,
    ptr %work, ptr %lwork.at, ptr %iwork, ptr %liwork.at, ptr %info.at)
  %vectors = getelementptr inbounds {T}, ptr %out, i64 %n
  call void @turn.{code}(ptr %spare, ptr %vectors, i64 %n, i64 %n)
{failed}
}}"""

SVD: Final = """define internal i1 @svd.{code}(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %m, i64 %n
) noinline nounwind {{
entry:
  %info.at = alloca i32
  %k = call i64 @llvm.umin.i64(i64 %m, i64 %n)
{m_by_address}
{n_by_address}
{k_by_address}
  call void @turn.{code}(ptr %a, ptr %spare, i64 %m, i64 %n)
  %size = mul i64 %m, %n
  %left = getelementptr inbounds {T}, ptr %spare, i64 %size
  %left.size = mul i64 %m, %k
  %work = getelementptr inbounds {T}, ptr %left, i64 %left.size
  %k.square = mul i64 %k, %k
  %k.four = shl i64 %k.square, 2
  %both = add i64 %m, %n
  %many = mul i64 %both, 64
  %lwork = add i64 %k.four, %many
{lwork_by_address}
  %iwork = getelementptr inbounds {T}, ptr %work, i64 %lwork
  %numbers = getelementptr inbounds {T}, ptr %out, i64 %left.size
  %right = getelementptr inbounds {T}, ptr %numbers, i64 %k
  call void @"{lapack}{letter}gesdd"(
    ptr @char.S, ptr %m.at, ptr %n.at, ptr %spare, ptr %m.at, ptr %numbers, ptr %left, ptr %m.at,
    ptr %right, ptr %k.at, ptr %work, ptr %lwork.at, ptr %iwork, ptr %info.at)
  call void @turn.{code}(ptr %left, ptr %out, i64 %k, i64 %m)
{failed}
}}"""
"""The right vectors by rows, as LAPACK stores them by columns, are themselves by columns."""

QR: Final = """define internal i1 @qr.{code}(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %m, i64 %n
) noinline nounwind {{
entry:
  %info.at = alloca i32
{m_by_address}
{n_by_address}
  call void @turn.{code}(ptr %a, ptr %spare, i64 %m, i64 %n)
  %size = mul i64 %m, %n
  %tau = getelementptr inbounds {T}, ptr %spare, i64 %size
  %work = getelementptr inbounds {T}, ptr %tau, i64 %n
  %lwork = mul i64 %n, 64
{lwork_by_address}
  call void @"{lapack}{letter}geqrf"(
    ptr %m.at, ptr %n.at, ptr %spare, ptr %m.at, ptr %tau, ptr %work, ptr %lwork.at, ptr %info.at)
  %triangle = getelementptr inbounds {T}, ptr %out, i64 %size
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row.done ]
  %start = mul i64 %i, %n
  br label %element
element:
  %j = phi i64 [ 0, %row ], [ %j.next, %element ]
  %across = mul i64 %j, %m
  %read = add i64 %across, %i
  %read.at = getelementptr inbounds {T}, ptr %spare, i64 %read
  %value = load {T}, ptr %read.at
  %below = icmp ugt i64 %i, %j
  %kept = select i1 %below, {T} 0.0, {T} %value
  %write = add i64 %start, %j
  %write.at = getelementptr inbounds {T}, ptr %triangle, i64 %write
  store {T} %kept, ptr %write.at
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %n
  br i1 %j.more, label %element, label %row.done
row.done:
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %n
  br i1 %i.more, label %row, label %vectors
vectors:
  call void @"{lapack}{letter}orgqr"(
    ptr %m.at, ptr %n.at, ptr %n.at, ptr %spare, ptr %m.at, ptr %tau, ptr %work, ptr %lwork.at, ptr %info.at)
  call void @turn.{code}(ptr %spare, ptr %out, i64 %n, i64 %m)
  ret i1 false
}}"""

COPY: Final = """define internal i1 @copy.{code}(
  ptr noalias %from, ptr noalias %to, ptr noalias %spare, i64 %m, i64 %n
) noinline nounwind {{
entry:
  %size = mul i64 %m, %n
  %bytes = mul i64 %size, {itemsize}
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  ret i1 false
}}"""
