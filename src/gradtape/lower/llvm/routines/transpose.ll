; The transpose of a matrix, in strips of 8 columns. Neither extent is zero.
declare i64 @llvm.umin.i64(i64, i64)

define internal void @transpose.$dtype(
  ptr noalias %from, ptr noalias %to, i64 %rows, i64 %columns
) noinline nounwind {
entry:
  br label %strip
strip:
  %low = phi i64 [ 0, %entry ], [ %far, %strip.done ]
  %far = add i64 %low, 8
  %high = call i64 @llvm.umin.i64(i64 %far, i64 %columns)
  br label %row
row:
  %i = phi i64 [ 0, %strip ], [ %i.next, %row.done ]
  %start = mul i64 %i, %columns
  br label %element
element:
  %j = phi i64 [ %low, %row ], [ %j.next, %element ]
  %read = add i64 %start, %j
  %read.at = getelementptr inbounds $T, ptr %from, i64 %read
  %value = load $T, ptr %read.at
  %across = mul i64 %j, %rows
  %write = add i64 %across, %i
  %write.at = getelementptr inbounds $T, ptr %to, i64 %write
  store $T %value, ptr %write.at
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %high
  br i1 %j.more, label %element, label %row.done
row.done:
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %rows
  br i1 %i.more, label %row, label %strip.done
strip.done:
  %more = icmp ult i64 %far, %columns
  br i1 %more, label %strip, label %done
done:
  ret void
}
