; The factors L and U in one matrix, by columns, and the pivots.
declare void @"scipy.linalg.cython_lapack.${letter}getrf"(ptr, ptr, ptr, ptr, ptr, ptr)

define internal i1 @lu.$dtype(
  ptr noalias %a, ptr noalias %factors, ptr noalias %pivots, ptr noalias %spare, i64 %n
) noinline nounwind {
entry:
  %info.at = alloca i32
  %n.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  call void @transpose.$dtype(ptr %a, ptr %factors, i64 %n, i64 %n)
  call void @"scipy.linalg.cython_lapack.${letter}getrf"(
    ptr %n.at, ptr %n.at, ptr %factors, ptr %n.at, ptr %pivots, ptr %info.at)
  ret i1 false
}
