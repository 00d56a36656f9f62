declare i32 @posix_memalign(ptr, i64, i64)
declare i32 @madvise(ptr, i64, i32)
declare void @free(ptr)

define internal ptr @heap_allocate(i64 %align, i64 %size) nounwind {
  %place = alloca ptr
  store ptr null, ptr %place
  %status = call i32 @posix_memalign(ptr %place, i64 %align, i64 %size)
  %made = icmp eq i32 %status, 0
  %block = load ptr, ptr %place
  %result = select i1 %made, ptr %block, ptr null
  ret ptr %result
}

define internal void @heap_free(ptr %block) nounwind {
  call void @free(ptr %block)
  ret void
}

define internal void @request_huge_pages(ptr %block, i64 %size) nounwind {
  %status = call i32 @madvise(ptr %block, i64 %size, i32 14)
  ret void
}

