; x of a x = b, or of a.T x = b, with the factors and pivots of a matrix in bands, column by column.
declare void @"scipy.linalg.cython_lapack.${letter}gbtrs"(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)
declare void @"scipy.linalg.cython_blas.${letter}copy"(ptr, ptr, ptr, ptr, ptr)
@char.$transposed = internal constant [2 x i8] c"$transposed\00"

define internal i1 @band_lu_solve.$dtype.$lower.$upper.$columns.$transposed(
  ptr noalias %factors, ptr noalias %pivots, ptr noalias %b, ptr noalias %out, ptr noalias %spare, i64 %n, i64 %width
) noinline nounwind {
entry:
  %info.at = alloca i32
  %n.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  %lower.at = alloca i32
  store i32 $lower, ptr %lower.at
  %upper.at = alloca i32
  store i32 $upper, ptr %upper.at
  %width.at = alloca i32
  store i32 $width, ptr %width.at
  %one.at = alloca i32
  store i32 1, ptr %one.at
  %count.at = alloca i32
  store i32 $columns, ptr %count.at
  br label %column
column:
  %j = phi i64 [ 0, %entry ], [ %j.next, %column ]
  %b.at = getelementptr inbounds $T, ptr %b, i64 %j
  %out.at = getelementptr inbounds $T, ptr %out, i64 %j
  call void @"scipy.linalg.cython_blas.${letter}copy"(ptr %n.at, ptr %b.at, ptr %count.at, ptr %spare, ptr %one.at)
  call void @"scipy.linalg.cython_lapack.${letter}gbtrs"(
    ptr @char.$transposed, ptr %n.at, ptr %lower.at, ptr %upper.at, ptr %one.at,
    ptr %factors, ptr %width.at, ptr %pivots, ptr %spare, ptr %n.at, ptr %info.at)
  call void @"scipy.linalg.cython_blas.${letter}copy"(ptr %n.at, ptr %spare, ptr %one.at, ptr %out.at, ptr %count.at)
  %j.next = add i64 %j, 1
  %more = icmp ult i64 %j.next, $columns
  br i1 %more, label %column, label %done
done:
  ret i1 false
}
