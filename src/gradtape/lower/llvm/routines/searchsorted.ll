; Where elements belong among sorted ones: bisection, to the left or to the right of equal ones.

define internal void @searchsorted.$side.$dtype(
  ptr %a, i64 %n, ptr %v, i64 %m, ptr %out
) noinline nounwind {
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %found ]
  %v.at = getelementptr inbounds $T, ptr %v, i64 %k
  %x = load $T, ptr %v.at
  br label %halve
halve:
  %low = phi i64 [ 0, %next ], [ %low.next, %step ]
  %high = phi i64 [ %n, %next ], [ %high.next, %step ]
  %more = icmp ult i64 %low, %high
  br i1 %more, label %step, label %found
step:
  %sum = add i64 %low, %high
  %middle = lshr i64 %sum, 1
  %a.at = getelementptr inbounds $T, ptr %a, i64 %middle
  %y = load $T, ptr %a.at
  %order = call i1 @less.$dtype($T %$first, $T %$second)
  %right = xor i1 %order, $otherwise
  %above = add i64 %middle, 1
  %low.next = select i1 %right, i64 %above, i64 %low
  %high.next = select i1 %right, i64 %high, i64 %middle
  br label %halve
found:
  %out.at = getelementptr inbounds i64, ptr %out, i64 %k
  store i64 %low, ptr %out.at
  %k.next = add i64 %k, 1
  %finished = icmp uge i64 %k.next, %m
  br i1 %finished, label %done, label %next
done:
  ret void
}
