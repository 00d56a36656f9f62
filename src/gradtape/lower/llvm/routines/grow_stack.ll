; Makes a stack larger, at least twofold; whether there is no memory.
declare ptr @"python.PyMem_RawRealloc"(ptr, i64)

define internal i1 @grow_stack(ptr %entry, i64 %bytes) noinline cold nounwind {
  %old = load ptr, ptr %entry
  %none = icmp eq ptr %old, null
  br i1 %none, label %new, label %kept
kept:
  %had = load i64, ptr %old
  br label %new
new:
  %before = phi i64 [ 0, %0 ], [ %had, %kept ]
  %twice = shl i64 %before, 1
  %larger = icmp ugt i64 %twice, %bytes
  %room = select i1 %larger, i64 %twice, i64 %bytes
  %whole = add i64 %room, $head
  %block = call ptr @"python.PyMem_RawRealloc"(ptr %old, i64 %whole)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %end, label %made
made:
  store i64 %room, ptr %block
  store ptr %block, ptr %entry
  br label %end
end:
  ret i1 %failed
}
