define i64 @ticks() {
  %now = call i64 @now()
  ret i64 %now
}
define i64 @cost() {
entry:
  br label %sample
sample:
  %count = phi i64 [ 0, %entry ], [ %next, %sample ]
  %sum = phi i64 [ 0, %entry ], [ %longer, %sample ]
  %begin = call i64 @now()
  %end = call i64 @now()
  %took = sub i64 %end, %begin
  %longer = add i64 %sum, %took
  %next = add i64 %count, 1
  %more = icmp slt i64 %next, 1000
  br i1 %more, label %sample, label %done
done:
  %mean = sdiv i64 %longer, 1000
  ret i64 %mean
}
