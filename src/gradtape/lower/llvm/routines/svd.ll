; Left vectors, singular values, right vectors. The right ones by rows, as LAPACK stores them by columns, are themselves by columns.
declare void @"scipy.linalg.cython_lapack.${letter}gesdd"(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)
@char.S = internal constant [2 x i8] c"S\00"

define internal i1 @svd.$dtype(
  ptr noalias %a, ptr noalias %left, ptr noalias %numbers, ptr noalias %right, ptr noalias %spare, i64 %m, i64 %n
) noinline nounwind {
entry:
  %info.at = alloca i32
  %k = call i64 @llvm.umin.i64(i64 %m, i64 %n)
  %m.at = alloca i32
  %m.short = trunc i64 %m to i32
  store i32 %m.short, ptr %m.at
  %n.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  %k.at = alloca i32
  %k.short = trunc i64 %k to i32
  store i32 %k.short, ptr %k.at
  call void @transpose.$dtype(ptr %a, ptr %spare, i64 %m, i64 %n)
  %size = mul i64 %m, %n
  %left.columns = getelementptr inbounds $T, ptr %spare, i64 %size
  %left.size = mul i64 %m, %k
  %work = getelementptr inbounds $T, ptr %left.columns, i64 %left.size
  %k.square = mul i64 %k, %k
  %k.four = shl i64 %k.square, 2
  %both = add i64 %m, %n
  %many = mul i64 %both, 64
  %lwork = add i64 %k.four, %many
  %lwork.at = alloca i32
  %lwork.short = trunc i64 %lwork to i32
  store i32 %lwork.short, ptr %lwork.at
  %iwork = getelementptr inbounds $T, ptr %work, i64 %lwork
  call void @"scipy.linalg.cython_lapack.${letter}gesdd"(
    ptr @char.S, ptr %m.at, ptr %n.at, ptr %spare, ptr %m.at, ptr %numbers, ptr %left.columns, ptr %m.at,
    ptr %right, ptr %k.at, ptr %work, ptr %lwork.at, ptr %iwork, ptr %info.at)
  call void @transpose.$dtype(ptr %left.columns, ptr %left, i64 %k, i64 %m)
  %info = load i32, ptr %info.at
  %bad = icmp ne i32 %info, 0
  ret i1 %bad
}
