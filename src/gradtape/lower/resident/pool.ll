; The memory pool: large blocks that were freed, kept for whoever next needs their size, up to a limit in bytes for all of them.
; Results, workspaces, stacks and arenas take their blocks from it. A small block is the C library's own.
@handler = global { [127 x i8], i8, ptr, ptr, ptr, ptr, ptr } {
  [127 x i8] c"$name", i8 1, ptr null, ptr @allocate_result, ptr @allocate_zeros, ptr @move, ptr @release_result }
@limit = global i64 $limit
@kept = global i64 0
@count = internal global i64 0
@lock = internal global i32 0
@colour = internal global i64 0
@blocks = internal global [$slots x ptr] zeroinitializer
@sizes = internal global [$slots x i64] zeroinitializer

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare {i64, i1} @llvm.umul.with.overflow.i64(i64, i64)

; The lock is never waited for: a call that does not get it does without the pool.
define internal i1 @try_lock() nounwind {
  %former = atomicrmw xchg ptr @lock, i32 1 acquire
  %free = icmp eq i32 %former, 0
  ret i1 %free
}

define internal void @unlock() nounwind {
  store atomic i32 0, ptr @lock release, align 4
  ret void
}

; With the lock held: removes a block.
define internal ptr @remove(i64 %number) nounwind {
  %at = getelementptr ptr, ptr @blocks, i64 %number
  %block = load ptr, ptr %at
  %size_at = getelementptr i64, ptr @sizes, i64 %number
  %size = load i64, ptr %size_at
  %count = load i64, ptr @count
  %fewer = sub i64 %count, 1
  store i64 %fewer, ptr @count
  %kept = load i64, ptr @kept
  %less = sub i64 %kept, %size
  store i64 %less, ptr @kept
  %behind = sub i64 %fewer, %number
  %bytes = shl i64 %behind, 3
  %next = getelementptr ptr, ptr %at, i64 1
  call void @llvm.memmove.p0.p0.i64(ptr %at, ptr %next, i64 %bytes, i1 false)
  %size_next = getelementptr i64, ptr %size_at, i64 1
  call void @llvm.memmove.p0.p0.i64(ptr %size_at, ptr %size_next, i64 %bytes, i1 false)
  ret ptr %block
}

; With the lock held: frees the oldest blocks until there is room for %bytes and one more block.
define internal void @make_room(i64 %bytes, i64 %most) nounwind {
entry:
  br label %next
next:
  %limit = load i64, ptr @limit
  %kept = load i64, ptr @kept
  %count = load i64, ptr @count
  %sum = add i64 %kept, %bytes
  %over = icmp ugt i64 %sum, %limit
  %full = icmp ugt i64 %count, %most
  %some = icmp ne i64 %count, 0
  %much = or i1 %over, %full
  %go = and i1 %much, %some
  br i1 %go, label %drop, label %end
drop:
  %block = call ptr @remove(i64 0)
  call void @heap_free(ptr %block)
  br label %next
end:
  ret void
}

; Removes the free block of this size that came last; null if there is none.
define internal ptr @take(i64 %size) nounwind {
entry:
  %mine = call i1 @try_lock()
  br i1 %mine, label %begin, label %without
without:
  ret ptr null
begin:
  %count = load i64, ptr @count
  br label %next
next:
  %left = phi i64 [ %count, %begin ], [ %number, %look ]
  %none = icmp eq i64 %left, 0
  br i1 %none, label %nothing, label %look
look:
  %number = sub i64 %left, 1
  %at = getelementptr i64, ptr @sizes, i64 %number
  %found = load i64, ptr %at
  %fits = icmp eq i64 %found, %size
  br i1 %fits, label %hit, label %next
hit:
  %block = call ptr @remove(i64 %number)
  call void @unlock()
  ret ptr %block
nothing:
  call void @unlock()
  ret ptr null
}

; Returns memory on a 64-byte boundary; null where there is none.
; Starts differ by some cache lines: arrays that begin at the same offset of a page get in each other's way. They
; lie before the end of a page: a result that began a few lines further into a page than what it is made of would
; have each load wait for a store to the same offset of another page.
; In front of the data stand the block and its size.
define ptr @allocate(i64 %bytes) nounwind {
entry:
  %small = icmp ult i64 %bytes, $large
  br i1 %small, label %little, label %round
little:
  %padded = add i64 %bytes, 64
  %small.block = call ptr @heap_allocate(i64 64, i64 %padded)
  %made.small = icmp ne ptr %small.block, null
  br i1 %made.small, label %fill, label %none
round:
  %more = add i64 %bytes, 8191
  %size = and i64 %more, -4096
  %sane = icmp ugt i64 %size, %bytes
  br i1 %sane, label %look, label %none
look:
  %free = call ptr @take(i64 %size)
  %hit = icmp ne ptr %free, null
  br i1 %hit, label %ready, label %fresh
fresh:
  %huge = icmp uge i64 %size, $huge
  %align = select i1 %huge, i64 2097152, i64 4096
  %new = call ptr @heap_allocate(i64 %align, i64 %size)
  %made = icmp ne ptr %new, null
  br i1 %made, label %check, label %none
check:
  %advised = and i1 %huge, $advise
  br i1 %advised, label %advise, label %ready
advise:
  call void @request_huge_pages(ptr %new, i64 %size)
  br label %ready
ready:
  %kept.block = phi ptr [ %free, %look ], [ %new, %check ], [ %new, %advise ]
  %colour = atomicrmw add ptr @colour, i64 1 monotonic
  %line = urem i64 %colour, 6
  %step = mul i64 %line, 320
  %offset = sub i64 4032, %step
  br label %fill
fill:
  %block = phi ptr [ %small.block, %little ], [ %kept.block, %ready ]
  %skip = phi i64 [ 64, %little ], [ %offset, %ready ]
  %length = phi i64 [ %padded, %little ], [ %size, %ready ]
  %data = getelementptr i8, ptr %block, i64 %skip
  %block_at = getelementptr i8, ptr %data, i64 -16
  store ptr %block, ptr %block_at
  %size_at = getelementptr i8, ptr %data, i64 -8
  store i64 %length, ptr %size_at
  ret ptr %data
none:
  ret ptr null
}

define internal ptr @allocate_result(ptr %context, i64 %bytes) nounwind {
  %data = call ptr @allocate(i64 %bytes)
  ret ptr %data
}

define internal ptr @allocate_zeros(ptr %context, i64 %count, i64 %each) nounwind {
entry:
  %product = call {i64, i1} @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %bytes = extractvalue {i64, i1} %product, 0
  %much = extractvalue {i64, i1} %product, 1
  br i1 %much, label %none, label %make
make:
  %data = call ptr @allocate(i64 %bytes)
  %failed = icmp eq ptr %data, null
  br i1 %failed, label %none, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %data, i8 0, i64 %bytes, i1 false)
  ret ptr %data
none:
  ret ptr null
}

define internal ptr @move(ptr %context, ptr %old, i64 %bytes) nounwind {
entry:
  %new = call ptr @allocate(i64 %bytes)
  %failed = icmp eq ptr %new, null
  %first = icmp eq ptr %old, null
  %over = or i1 %failed, %first
  br i1 %over, label %end, label %copy
copy:
  %block_at = getelementptr i8, ptr %old, i64 -16
  %block = load ptr, ptr %block_at
  %size_at = getelementptr i8, ptr %old, i64 -8
  %size = load i64, ptr %size_at
  %start = ptrtoint ptr %block to i64
  %data = ptrtoint ptr %old to i64
  %skipped = sub i64 %data, %start
  %held = sub i64 %size, %skipped
  %common = call i64 @llvm.umin.i64(i64 %held, i64 %bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %old, i64 %common, i1 false)
  call void @release(ptr %old)
  ret ptr %new
end:
  ret ptr %new
}

define internal void @release_result(ptr %context, ptr %data, i64 %unused) nounwind {
  call void @release(ptr %data)
  ret void
}

; Takes memory back: a large block is kept for the next that needs its size, if the limit allows that.
define void @release(ptr %data) nounwind {
entry:
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %end, label %read
read:
  %block_at = getelementptr i8, ptr %data, i64 -16
  %block = load ptr, ptr %block_at
  %size_at = getelementptr i8, ptr %data, i64 -8
  %size = load i64, ptr %size_at
  %limit = load i64, ptr @limit
  %fits = icmp ule i64 %size, %limit
  %large = icmp uge i64 %size, $pooled
  %keeps = and i1 %fits, %large
  br i1 %keeps, label %ask, label %drop
ask:
  %mine = call i1 @try_lock()
  br i1 %mine, label %keep, label %drop
keep:
  call void @make_room(i64 %size, i64 $last)
  %count = load i64, ptr @count
  %at = getelementptr ptr, ptr @blocks, i64 %count
  store ptr %block, ptr %at
  %entry_at = getelementptr i64, ptr @sizes, i64 %count
  store i64 %size, ptr %entry_at
  %more = add i64 %count, 1
  store i64 %more, ptr @count
  %kept = load i64, ptr @kept
  %sum = add i64 %kept, %size
  store i64 %sum, ptr @kept
  call void @unlock()
  ret void
drop:
  call void @heap_free(ptr %block)
  ret void
end:
  ret void
}

define void @trim() nounwind {
entry:
  %mine = call i1 @try_lock()
  br i1 %mine, label %go, label %end
go:
  call void @make_room(i64 0, i64 $slots)
  call void @unlock()
  ret void
end:
  ret void
}

; Gives the memory of a large block back to the system: nothing else will need its size.
define void @discard(ptr %data) nounwind {
entry:
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %end, label %drop
drop:
  %block_at = getelementptr i8, ptr %data, i64 -16
  %block = load ptr, ptr %block_at
  call void @heap_free(ptr %block)
  ret void
end:
  ret void
}

; Frees the kept blocks that @allocate would take for so many bytes.
define void @forget(i64 %bytes) nounwind {
entry:
  %more = add i64 %bytes, 8191
  %size = and i64 %more, -4096
  br label %next
next:
  %block = call ptr @take(i64 %size)
  %none = icmp eq ptr %block, null
  br i1 %none, label %end, label %drop
drop:
  call void @heap_free(ptr %block)
  br label %next
end:
  ret void
}
