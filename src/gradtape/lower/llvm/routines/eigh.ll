; Eigenvalues and eigenvectors of a symmetric matrix of which one triangle is read.
declare void @"scipy.linalg.cython_lapack.${letter}syevd"(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)
@char.V = internal constant [2 x i8] c"V\00"
@char.$triangle = internal constant [2 x i8] c"$triangle\00"

define internal i1 @eigh.$triangle.$dtype(
  ptr noalias %a, ptr noalias %numbers, ptr noalias %vectors, ptr noalias %spare, i64 %n
) noinline nounwind {
entry:
  %info.at = alloca i32
  %n.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  call void @transpose.$dtype(ptr %a, ptr %spare, i64 %n, i64 %n)
  %square = mul i64 %n, %n
  %twice = shl i64 %square, 1
  %six = mul i64 %n, 6
  %more.work = add i64 %twice, %six
  %lwork = add i64 %more.work, 1
  %lwork.at = alloca i32
  %lwork.short = trunc i64 %lwork to i32
  store i32 %lwork.short, ptr %lwork.at
  %five = mul i64 %n, 5
  %liwork = add i64 %five, 3
  %liwork.at = alloca i32
  %liwork.short = trunc i64 %liwork to i32
  store i32 %liwork.short, ptr %liwork.at
  %work = getelementptr inbounds $T, ptr %spare, i64 %square
  %iwork = getelementptr inbounds $T, ptr %work, i64 %lwork
  call void @"scipy.linalg.cython_lapack.${letter}syevd"(
    ptr @char.V, ptr @char.$triangle, ptr %n.at, ptr %spare, ptr %n.at, ptr %numbers,
    ptr %work, ptr %lwork.at, ptr %iwork, ptr %liwork.at, ptr %info.at)
  call void @transpose.$dtype(ptr %spare, ptr %vectors, i64 %n, i64 %n)
  %info = load i32, ptr %info.at
  %bad = icmp ne i32 %info, 0
  ret i1 %bad
}
