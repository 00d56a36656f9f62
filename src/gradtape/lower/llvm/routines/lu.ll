; The factors L and U in one matrix, by columns, and behind them the pivots as numbers.
declare void @"scipy.linalg.cython_lapack.${letter}getrf"(ptr, ptr, ptr, ptr, ptr, ptr)

define internal i1 @lu.$dtype(
  ptr noalias %a, ptr noalias %out, ptr noalias %spare, i64 %n
) noinline nounwind {
entry:
  %info.at = alloca i32
  %n.at = alloca i32
  %n.short = trunc i64 %n to i32
  store i32 %n.short, ptr %n.at
  call void @transpose.$dtype(ptr %a, ptr %out, i64 %n, i64 %n)
  call void @"scipy.linalg.cython_lapack.${letter}getrf"(
    ptr %n.at, ptr %n.at, ptr %out, ptr %n.at, ptr %spare, ptr %info.at)
  %size = mul i64 %n, %n
  br label %exchange
exchange:
  %i = phi i64 [ 0, %entry ], [ %i.next, %exchange ]
  %pivot.at = getelementptr inbounds i32, ptr %spare, i64 %i
  %pivot = load i32, ptr %pivot.at
  %number = sitofp i32 %pivot to $T
  %place = add i64 %size, %i
  %place.at = getelementptr inbounds $T, ptr %out, i64 %place
  store $T %number, ptr %place.at
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %exchange, label %done
done:
  ret i1 false
}
