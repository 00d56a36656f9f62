; Rows swapped as the pivots of a decomposition say, or back.

define internal void @swap_rows.$dtype(
  ptr noalias %pivots, ptr noalias %x, i64 %n, i64 %k, i1 %backwards
) noinline nounwind {
entry:
  %last = sub i64 %n, 1
  br label %row
row:
  %step = phi i64 [ 0, %entry ], [ %step.next, %row.done ]
  %mirrored = sub i64 %last, %step
  %i = select i1 %backwards, i64 %mirrored, i64 %step
  %pivot.at = getelementptr inbounds i32, ptr %pivots, i64 %i
  %pivot = load i32, ptr %pivot.at
  %number = sext i32 %pivot to i64
  %other = sub i64 %number, 1
  %own.start = mul i64 %i, %k
  %other.start = mul i64 %other, %k
  %stays = icmp eq i64 %other, %i
  br i1 %stays, label %row.done, label %element
element:
  %j = phi i64 [ 0, %row ], [ %j.next, %element ]
  %own = add i64 %own.start, %j
  %own.at = getelementptr inbounds $T, ptr %x, i64 %own
  %far = add i64 %other.start, %j
  %far.at = getelementptr inbounds $T, ptr %x, i64 %far
  %first = load $T, ptr %own.at
  %second = load $T, ptr %far.at
  store $T %second, ptr %own.at
  store $T %first, ptr %far.at
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, %k
  br i1 %j.more, label %element, label %row.done
row.done:
  %step.next = add i64 %step, 1
  %more = icmp ult i64 %step.next, %n
  br i1 %more, label %row, label %done
done:
  ret void
}
