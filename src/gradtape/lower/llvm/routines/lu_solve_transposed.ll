; x of a.T x = b with the factors and pivots of a.
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @"scipy.linalg.cython_blas.${letter}trsm"(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)
@char.R = internal constant [2 x i8] c"R\00"
@char.U = internal constant [2 x i8] c"U\00"
@char.L = internal constant [2 x i8] c"L\00"
@char.N = internal constant [2 x i8] c"N\00"
@$T.1 = internal constant $T 1.0

define internal i1 @lu_solve_transposed.$dtype(
  ptr noalias %a, ptr noalias %pivots, ptr noalias %b, ptr noalias %out, ptr noalias %spare, i64 %n, i64 %k
) noinline nounwind {
entry:
  %n.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  %k.at = alloca i32
  %k.short = trunc i64 %k to i32
  store i32 %k.short, ptr %k.at
  %size = mul i64 %n, %k
  %bytes = mul i64 %size, $itemsize
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %b, i64 %bytes, i1 false)
  call void @"scipy.linalg.cython_blas.${letter}trsm"(
    ptr @char.R, ptr @char.U, ptr @char.N, ptr @char.N,
    ptr %k.at, ptr %n.at, ptr @$T.1, ptr %a, ptr %n.at, ptr %out, ptr %k.at)
  call void @"scipy.linalg.cython_blas.${letter}trsm"(
    ptr @char.R, ptr @char.L, ptr @char.N, ptr @char.U,
    ptr %k.at, ptr %n.at, ptr @$T.1, ptr %a, ptr %n.at, ptr %out, ptr %k.at)
  call void @swap_rows.$dtype(ptr %pivots, ptr %out, i64 %n, i64 %k, i1 true)
  %bad = call i1 @has_zero_on_diagonal.$dtype(ptr %a, i64 %n)
  ret i1 %bad
}
