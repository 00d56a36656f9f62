; x of t x = b: what stands by rows is x.T by columns, and x.T t.T = b.T.
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @"scipy.linalg.cython_blas.${letter}trsm"(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)
@char.R = internal constant [2 x i8] c"R\00"
@char.$triangle = internal constant [2 x i8] c"$triangle\00"
@char.$transposed = internal constant [2 x i8] c"$transposed\00"
@char.$unit = internal constant [2 x i8] c"$unit\00"
@$T.1 = internal constant $T 1.0

define internal i1 @triangular_solve.$form.$dtype(
  ptr noalias %a, ptr noalias %b, ptr noalias %out, ptr noalias %spare, i64 %n, i64 %k
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
    ptr @char.R, ptr @char.$triangle, ptr @char.$transposed, ptr @char.$unit,
    ptr %k.at, ptr %n.at, ptr @$T.1, ptr %a, ptr %n.at, ptr %out, ptr %k.at)
  %bad = $singular
  ret i1 %bad
}
