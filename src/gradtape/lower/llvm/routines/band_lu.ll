; The factors L and U of a matrix in bands, as LAPACK stores them, and the pivots.
declare void @"scipy.linalg.cython_lapack.${letter}gbtrf"(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr)

define internal i1 @band_lu.$dtype.$lower.$upper(
  ptr noalias %bands, ptr noalias %factors, ptr noalias %pivots, ptr noalias %spare, i64 %rows, i64 %n
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
  br label %column
column:
  %j = phi i64 [ 0, %entry ], [ %j.next, %column.done ]
  %start = mul i64 %j, $width
  br label %element
element:
  %i = phi i64 [ 0, %column ], [ %i.next, %element.done ]
  %write = add i64 %start, %i
  %write.at = getelementptr inbounds $T, ptr %factors, i64 %write
  %is.spare = icmp ult i64 %i, $lower
  br i1 %is.spare, label %element.spare, label %element.copied
element.spare:
  store $T 0.0, ptr %write.at
  br label %element.done
element.copied:
  %row = sub i64 %i, $lower
  %row.start = mul i64 %row, %n
  %read = add i64 %row.start, %j
  %read.at = getelementptr inbounds $T, ptr %bands, i64 %read
  %value = load $T, ptr %read.at
  store $T %value, ptr %write.at
  br label %element.done
element.done:
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, $width
  br i1 %i.more, label %element, label %column.done
column.done:
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %n
  br i1 %j.more, label %column, label %factored
factored:
  call void @"scipy.linalg.cython_lapack.${letter}gbtrf"(
    ptr %n.at, ptr %n.at, ptr %lower.at, ptr %upper.at, ptr %factors, ptr %width.at, ptr %pivots, ptr %info.at)
  ret i1 false
}
