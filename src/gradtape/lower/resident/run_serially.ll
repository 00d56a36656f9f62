; Runs the blocks one after the other.
define internal void @alone(ptr %task, ptr %context, i64 %blocks) nounwind {
entry:
  br label %next
next:
  %block = phi i64 [ 0, %entry ], [ %following, %next ]
  call void %task(ptr %context, i64 %block, ptr null)
  %following = add nuw nsw i64 %block, 1
  %more = icmp slt i64 %following, %blocks
  br i1 %more, label %next, label %end
end:
  ret void
}
