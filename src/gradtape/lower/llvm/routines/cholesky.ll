; The lower triangle of a Cholesky decomposition: LAPACK's upper one, by columns, and zeros above.
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @"scipy.linalg.cython_lapack.${letter}potrf"(ptr, ptr, ptr, ptr, ptr)
@char.U = internal constant [2 x i8] c"U\00"

define internal i1 @cholesky.$dtype(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {
entry:
  %info.at = alloca i32
  %n.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  %size = mul i64 %n, %n
  %bytes = mul i64 %size, $itemsize
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %a, i64 %bytes, i1 false)
  call void @"scipy.linalg.cython_lapack.${letter}potrf"(ptr @char.U, ptr %n.at, ptr %out, ptr %n.at, ptr %info.at)
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row ]
  %i.next = add i64 %i, 1
  %start = mul i64 %i, %n
  %upper = add i64 %start, %i.next
  %upper.at = getelementptr inbounds $T, ptr %out, i64 %upper
  %rest = sub i64 %n, %i.next
  %rest.bytes = mul i64 %rest, $itemsize
  call void @llvm.memset.p0.i64(ptr %upper.at, i8 0, i64 %rest.bytes, i1 false)
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %row, label %done
done:
  %info = load i32, ptr %info.at
  %bad = icmp ne i32 %info, 0
  ret i1 %bad
}
