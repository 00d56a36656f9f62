; Q and R.
declare void @"scipy.linalg.cython_lapack.${letter}geqrf"(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)
declare void @"scipy.linalg.cython_lapack.${letter}orgqr"(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)

define internal i1 @qr.$dtype(
  ptr noalias %a, ptr noalias %columns, ptr noalias %triangle, ptr noalias %spare, i64 %m, i64 %n
) noinline nounwind {
entry:
  %info.at = alloca i32
  %m.at = alloca i32
  %m.short = trunc i64 %m to i32
  store i32 %m.short, ptr %m.at
  %n.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  call void @transpose.$dtype(ptr %a, ptr %spare, i64 %m, i64 %n)
  %size = mul i64 %m, %n
  %tau = getelementptr inbounds $T, ptr %spare, i64 %size
  %work = getelementptr inbounds $T, ptr %tau, i64 %n
  %lwork = mul i64 %n, 64
  %lwork.at = alloca i32
  %lwork.short = trunc i64 %lwork to i32
  store i32 %lwork.short, ptr %lwork.at
  call void @"scipy.linalg.cython_lapack.${letter}geqrf"(
    ptr %m.at, ptr %n.at, ptr %spare, ptr %m.at, ptr %tau, ptr %work, ptr %lwork.at, ptr %info.at)
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row.done ]
  %start = mul i64 %i, %n
  br label %element
element:
  %j = phi i64 [ 0, %row ], [ %j.next, %element ]
  %across = mul i64 %j, %m
  %read = add i64 %across, %i
  %read.at = getelementptr inbounds $T, ptr %spare, i64 %read
  %value = load $T, ptr %read.at
  %below = icmp ugt i64 %i, %j
  %kept = select i1 %below, $T 0.0, $T %value
  %write = add i64 %start, %j
  %write.at = getelementptr inbounds $T, ptr %triangle, i64 %write
  store $T %kept, ptr %write.at
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %n
  br i1 %j.more, label %element, label %row.done
row.done:
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %n
  br i1 %i.more, label %row, label %vectors
vectors:
  call void @"scipy.linalg.cython_lapack.${letter}orgqr"(
    ptr %m.at, ptr %n.at, ptr %n.at, ptr %spare, ptr %m.at, ptr %tau, ptr %work, ptr %lwork.at, ptr %info.at)
  call void @transpose.$dtype(ptr %spare, ptr %columns, i64 %n, i64 %m)
  ret i1 false
}
