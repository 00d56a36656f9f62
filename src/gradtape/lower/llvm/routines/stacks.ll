; Stacks are blocks of the memory pool that begin with their capacity in bytes. Between calls the module keeps a small one, and of a large
; one, which goes back to the pool, the capacity.
declare ptr @"gradtape.pool.allocate"(i64)
declare void @"gradtape.pool.release"(ptr)
declare void @"gradtape.pool.discard"(ptr)
declare void @"gradtape.pool.forget"(i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Returns a block as large as the last call's; null at the first call.
define internal ptr @lend_stack(ptr %kept, ptr %usual) nounwind {
  %block = atomicrmw xchg ptr %kept, ptr null acq_rel
  %some = icmp ne ptr %block, null
  br i1 %some, label %there, label %look
there:
  ret ptr %block
look:
  %room = load atomic i64, ptr %usual monotonic, align 8
  %first = icmp eq i64 %room, 0
  br i1 %first, label %none, label %large
large:
  %whole = add i64 %room, $head
  %fresh = call ptr @"gradtape.pool.allocate"(i64 %whole)
  %failed = icmp eq ptr %fresh, null
  br i1 %failed, label %none, label %made
made:
  store i64 %room, ptr %fresh
  ret ptr %fresh
none:
  ret ptr null
}

define internal void @return_stack(ptr %kept, ptr %usual, ptr %block) nounwind {
  %none = icmp eq ptr %block, null
  br i1 %none, label %end, label %some
some:
  %room = load i64, ptr %block
  %whole = add i64 %room, $head
  %large = icmp uge i64 %whole, $large
  br i1 %large, label %pooled, label %keep
pooled:
  store atomic i64 %room, ptr %usual monotonic, align 8
  call void @"gradtape.pool.release"(ptr %block)
  br label %end
keep:
  %other = atomicrmw xchg ptr %kept, ptr %block acq_rel
  call void @"gradtape.pool.discard"(ptr %other)
  br label %end
end:
  ret void
}

; Frees what is kept of a stack.
define internal void @drain_stack(ptr %kept, ptr %usual) nounwind {
  %block = atomicrmw xchg ptr %kept, ptr null acq_rel
  call void @"gradtape.pool.discard"(ptr %block)
  %room = atomicrmw xchg ptr %usual, i64 0 acq_rel
  %small = icmp eq i64 %room, 0
  br i1 %small, label %end, label %pooled
pooled:
  %whole = add i64 %room, $head
  call void @"gradtape.pool.forget"(i64 %whole)
  br label %end
end:
  ret void
}

; Makes a stack larger, at least twofold; whether there is no memory.
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
  %block = call ptr @"gradtape.pool.allocate"(i64 %whole)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %end, label %made
made:
  store i64 %room, ptr %block
  store ptr %block, ptr %entry
  br i1 %none, label %end, label %copy
copy:
  %to = getelementptr inbounds i8, ptr %block, i64 $head
  %from = getelementptr inbounds i8, ptr %old, i64 $head
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %before, i1 false)
  call void @"gradtape.pool.discard"(ptr %old)
  br label %end
end:
  ret i1 %failed
}
