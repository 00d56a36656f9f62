; Copies the half above the diagonal, of a matrix that is stored by columns, below it.
declare i64 @llvm.umin.i64(i64, i64)

define internal void @mirror.$dtype(ptr %c, i64 %n, i64 %leading) noinline nounwind {
entry:
  br label %rows
rows:
  %j.low = phi i64 [ 0, %entry ], [ %j.far, %rows.done ]
  %j.far = add i64 %j.low, 16
  %j.high = call i64 @llvm.umin.i64(i64 %j.far, i64 %n)
  br label %columns
columns:
  %i.low = phi i64 [ 0, %rows ], [ %i.far, %columns.done ]
  %i.far = add i64 %i.low, 16
  br label %row
row:
  %j = phi i64 [ %j.low, %columns ], [ %j.next, %row.done ]
  %i.high = call i64 @llvm.umin.i64(i64 %i.far, i64 %j)
  %start = mul i64 %j, %leading
  %some = icmp ult i64 %i.low, %i.high
  br i1 %some, label %element, label %row.done
element:
  %i = phi i64 [ %i.low, %row ], [ %i.next, %element ]
  %known = add i64 %start, %i
  %known.at = getelementptr inbounds $T, ptr %c, i64 %known
  %value = load $T, ptr %known.at
  %across = mul i64 %i, %leading
  %other = add i64 %across, %j
  %other.at = getelementptr inbounds $T, ptr %c, i64 %other
  store $T %value, ptr %other.at
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %i.high
  br i1 %i.more, label %element, label %row.done
row.done:
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %j.high
  br i1 %j.more, label %row, label %columns.done
columns.done:
  %columns.more = icmp ult i64 %i.far, %j.high
  br i1 %columns.more, label %columns, label %rows.done
rows.done:
  %rows.more = icmp ult i64 %j.far, %n
  br i1 %rows.more, label %rows, label %done
done:
  ret void
}
